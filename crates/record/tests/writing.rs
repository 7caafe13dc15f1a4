//! A run directory is there whole or not at all, whatever the system says.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use record::{Attachment, Column, Kind, Run, Table, Value, WriteError, read_run, write_run};

fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn parents_are_made_and_nothing_else_is_left() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("a/b");
    write_run(&common::sample(), &[], &dir).unwrap();
    assert_eq!(entries(&parent.path().join("a")), ["b"]);
    assert_eq!(entries(&dir), ["manifest.json", "tables"]);
    assert_eq!(entries(&dir.join("tables")), ["empty.parquet", "handlers.parquet"]);
}

fn attachment(name: &str) -> Attachment {
    Attachment { name: name.to_owned(), contents: b"<svg>".to_vec() }
}

#[test]
fn attachments_are_part_of_the_run() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    write_run(&common::sample(), &[attachment("sizes.svg")], &dir).unwrap();
    assert_eq!(entries(&dir), ["manifest.json", "sizes.svg", "tables"]);
    assert_eq!(fs::read(dir.join("sizes.svg")).unwrap(), b"<svg>");
    assert_eq!(read_run(&dir).unwrap(), common::sample());
    let manifest = fs::read(dir.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let entry = serde_json::json!([{ "file": "sizes.svg", "bytes": 5, "crc32": crc32fast::hash(b"<svg>") }]);
    assert_eq!(manifest["attachments"], entry);
}

#[test]
fn an_attachment_stays_in_the_run_and_replaces_nothing() {
    for name in ["", "../x", "a/b", ".x", "manifest.json", "tables", "a b"] {
        let parent = tempfile::tempdir().unwrap();
        let error = write_run(&common::sample(), &[attachment(name)], &parent.path().join("run"));
        assert!(matches!(error, Err(WriteError::Invalid { .. })), "{name:?}");
        assert!(entries(parent.path()).is_empty());
    }
}

#[test]
fn what_exists_is_never_overwritten() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    fs::create_dir(&dir).unwrap();
    let error = write_run(&common::sample(), &[], &dir).unwrap_err();
    assert!(matches!(error, WriteError::Exists { ref path } if *path == dir));
    let message = format!("{}: exists already, and a run is never overwritten", dir.display());
    assert_eq!(error.to_string(), message);
    assert_eq!(entries(parent.path()), ["run"]);
    assert!(entries(&dir).is_empty());
}

#[test]
fn a_path_without_a_name_is_refused() {
    for path in ["..", "/", ""] {
        let outcome = write_run(&common::sample(), &[], Path::new(path));
        assert!(matches!(outcome, Err(WriteError::NoName { .. })), "{path}");
    }
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    let column = |name| vec![Column::new(name, Kind::Text, "")];
    let mut long = Table::new("t", "", column("x"));
    long.push(vec!["y".repeat((64 << 10) + 1).into()]);
    let mut nan = Table::new("t", "", vec![Column::new("x", Kind::Real, "")]);
    nan.push(vec![Value::Real(f64::NAN)]);
    let twice = vec![Table::new("t", "", column("x")), Table::new("t", "", column("x"))];
    for (tables, expected) in [
        (vec![Table::new("T", "", column("x"))], "table name \"T\": must be 1 to 64 of"),
        (vec![Table::new("t", "", column(""))], "table t: column name \"\": must be"),
        (vec![Table::new("t", "", Vec::new())], "table t: no columns"),
        (vec![long], "table t column x row 0: text of 65537 bytes, more than 65536"),
        (vec![nan], "table t column x row 0: NaN is not finite"),
        (twice, "table name \"t\" occurs twice"),
    ] {
        let parent = tempfile::tempdir().unwrap();
        let run = Run { tables, ..common::sample() };
        let error = write_run(&run, &[], &parent.path().join("run")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(entries(parent.path()).is_empty());
    }
}

#[test]
fn what_a_killed_process_left_is_in_nobodys_way() {
    let parent = tempfile::tempdir().unwrap();
    let leftover = parent.path().join(format!(".run.partial-{}", std::process::id()));
    fs::create_dir(&leftover).unwrap();
    fs::write(leftover.join("manifest.json"), "{").unwrap();
    write_run(&common::sample(), &[], &parent.path().join("run")).unwrap();
    assert_eq!(record::remove_leftovers(parent.path()), [leftover]);
    assert_eq!(entries(parent.path()), ["run"]);
    read_run(&parent.path().join("run")).unwrap();
}

/// A directory that may not be written to; as root it has to be a read-only mount (see below).
#[test]
fn no_permission_names_path_and_cause() {
    let parent = tempfile::tempdir().unwrap();
    fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(parent.path().join("probe"), "").is_ok() {
        return needs::not_run(needs::Need::Other, "this user may write anywhere");
    }
    let error = write_run(&common::sample(), &[], &parent.path().join("run")).unwrap_err();
    let start = format!("cannot write {}", parent.path().display());
    assert!(error.to_string().starts_with(&start), "{error}");
    assert!(error.to_string().contains("Permission denied"), "{error}");
    assert!(entries(parent.path()).is_empty());
}

/// Runs the ignored test `name` on a fresh tmpfs with those options, in a mount namespace.
fn on_tmpfs(name: &str, options: &str) {
    let mount = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o \"$2\" tmpfs \"$1\" || exit 77; shift 2; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]);
    command.arg(mount.path()).arg(options).arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]).env("FULL_DIR", mount.path());
    match command.output() {
        Ok(output) if output.status.success() => {
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(stdout.contains("1 passed"), "{stdout}");
        }
        Ok(output) if output.status.code() == Some(101) => {
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output) => {
            needs::not_run(needs::Need::Namespaces, String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => needs::not_run(needs::Need::Namespaces, format!("unshare: {error}")),
    }
}

/// A run larger than the file systems of the tests below.
fn large() -> Run {
    let mut table = Table::new("large", "", vec![Column::new("x", Kind::Uint, "")]);
    (0..100_000_u64).for_each(|n| table.push(vec![n.wrapping_mul(0x9E37_79B9_7F4A_7C15).into()]));
    Run { tables: vec![table], ..common::sample() }
}

#[test]
fn disk_full() {
    on_tmpfs("inside_a_full_file_system", "size=128k");
}

#[test]
#[ignore = "run by disk_full on a small file system"]
fn inside_a_full_file_system() {
    let parent = std::env::var("FULL_DIR").unwrap();
    let parent = Path::new(&parent);
    let error = write_run(&large(), &[], &parent.join("run")).unwrap_err();
    let start = format!("cannot write {}/.run.partial-{}-", parent.display(), std::process::id());
    let end = "/tables/large.parquet: No space left on device (os error 28)";
    let error = error.to_string();
    assert!(error.starts_with(&start) && error.ends_with(end), "{error}");
    assert!(entries(parent).is_empty());
    // A smaller run is still written.
    write_run(&common::sample(), &[], &parent.join("run")).unwrap();
}

#[test]
fn read_only() {
    on_tmpfs("inside_a_read_only_file_system", "ro");
}

#[test]
#[ignore = "run by read_only on a read-only file system"]
fn inside_a_read_only_file_system() {
    let parent = std::env::var("FULL_DIR").unwrap();
    let error = write_run(&large(), &[], &Path::new(&parent).join("run")).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot write {parent}/.run.partial-")));
    assert!(error.to_string().ends_with("Read-only file system (os error 30)"), "{error}");
}
