//! A sweep that was planned and executed in the current format stays readable, and its ids stay valid.

use std::path::{Path, PathBuf};

use record::{Value, read_parquet};
use sweep::{FileHashes, MissingTasks, Spec, Status, SweepDirectory, index_ranges, merge};

fn golden() -> SweepDirectory {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/sweep-1");
    SweepDirectory::open(&path).unwrap()
}

#[test]
fn the_golden_sweep_is_read_and_merged() {
    let sweep = golden();
    let status = Status::read(&sweep).unwrap();
    assert_eq!(index_ranges(&status.done), "0-2");
    for task in &sweep.plan().tasks {
        sweep.check_task(task, &mut FileHashes::default()).unwrap();
    }
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("data");
    let summary = merge(&[golden(), sweep], &out, MissingTasks::Refused, &|| false).unwrap();
    assert_eq!(summary.tables, [("tasks".to_owned(), 3), ("model".to_owned(), 3)]);
    let table = read_parquet(&out.join("model/data.parquet")).unwrap();
    let axes: Vec<(&Value, &Value)> = table.rows().iter().map(|row| (&row[1], &row[2])).collect();
    let (two, four) = (Value::from("2us"), Value::from("4us"));
    let expected = [(&two, &Value::Uint(1)), (&two, &Value::Uint(2)), (&four, &Value::Uint(1))];
    assert_eq!(axes, expected);
}

#[test]
fn a_stopped_merge_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("data");
    let stopped = merge(&[golden()], &out, MissingTasks::Refused, &|| true);
    assert!(stopped.unwrap_err().to_string().contains("stopped"));
    assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 0);
}

/// Plans of unknown origin, with bytes changed everywhere: each is read, or refused with an error.
#[test]
fn damaged_plans_never_panic() {
    let parent = tempfile::tempdir().unwrap();
    let text = std::fs::read(golden().path().join("sweep.json")).unwrap();
    let file = parent.path().join("sweep.json");
    let mut refused = 0;
    for position in 0..text.len() {
        for byte in [b'0', b'9', b'"', b'[', b'x', 0xff] {
            let mut damaged = text.clone();
            damaged[position] = byte;
            std::fs::write(&file, &damaged).unwrap();
            let Ok(sweep) = SweepDirectory::open(parent.path()) else {
                refused += 1;
                continue;
            };
            let checks = sweep.plan().tasks.iter().map(|task| {
                let _ = sweep.plan().is_baseline(task);
                sweep.check_task(task, &mut FileHashes::default())
            });
            let _ = checks.collect::<Vec<_>>();
            Status::read(&sweep).unwrap();
        }
    }
    assert!(refused > text.len(), "{refused}");
}

/// Specifications with bytes changed everywhere: each is read, or refused with an error.
#[test]
fn damaged_specifications_never_panic() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/spec.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let mut refused = 0;
    for position in 0..text.len() {
        for sign in ["0", "9", "\"", "[", "{", "x", "=", "\n", "\u{e9}"] {
            let mut damaged = text.clone();
            damaged.replace_range(position..=position, sign);
            refused += usize::from(Spec::parse(&damaged).is_err());
        }
    }
    assert!(refused > text.len(), "{refused}");
}
