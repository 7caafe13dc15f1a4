//! `irqlab sweep` on a full disk, two merges at once, and tables whose columns differ between tasks.

use std::fs;
use std::process::{Command, Stdio};

use record::{Kind, Table, Value};

use crate::support::{CommandOutput, IRQLAB, Place, can_mount_in_namespaces};

const SPEC: &str = "command = ['signal', 'model', '--schemes', 'interrupt', '--rates', '10k']\n[axes]\n'--seed' = \
    { from = 1, to = 6 }\n";

fn planned(spec: &str) -> Place {
    let workspace = Place::new();
    fs::write(workspace.path().join("spec.toml"), spec).expect("a file");
    workspace.run(&["sweep", "plan", "spec.toml", "-o", "sweep"]).assert_code(0);
    workspace
}

fn merged(workspace: &Place, table: &str) -> Table {
    let file = workspace.path().join(format!("data/{table}/data.parquet"));
    record::read_parquet(&file).expect("a Parquet file")
}

/// A full file system fails tasks. With space, the sweep goes on: nothing is lost, and nothing is double.
#[test]
fn a_full_file_system_loses_no_result() {
    if !can_mount_in_namespaces(&[]) {
        return;
    }
    let workspace = Place::new();
    fs::write(workspace.path().join("spec.toml"), SPEC).expect("a file");
    fs::create_dir(workspace.path().join("there")).expect("a directory");
    // The file system has room for the plan and some results. It vanishes with the namespace of the script.
    let script = "mount -t tmpfs -o size=120k none there || exit 99\n\
        $1 sweep plan spec.toml -o there/sweep || exit 98\n\
        $1 sweep run there/sweep --jobs 1 > full.txt 2>&1 && exit 97\n\
        $1 sweep merge there/sweep --allow-missing -o there/data 2>> full.txt && exit 96\n\
        ls -A there > names.txt\n\
        mount -o remount,size=20m there || exit 95\n\
        $1 sweep status there/sweep --json > status.json || exit 94\n\
        $1 sweep retry there/sweep && $1 sweep run there/sweep || exit 93\n\
        $1 sweep merge there/sweep -o data || exit 92\n\
        ls -A there/sweep/tasks | wc -l > count.txt\n";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", IRQLAB]).current_dir(workspace.path());
    CommandOutput::of(&mut command).assert_code(0);
    let read = |name: &str| fs::read_to_string(workspace.path().join(name)).expect("text");
    assert!(read("full.txt").contains("No space left on device"), "{}", read("full.txt"));
    assert_eq!(read("names.txt"), "sweep\n", "a merge that fails leaves nothing");
    let status: serde_json::Value = serde_json::from_str(&read("status.json")).expect("JSON");
    let done = status["done"].as_u64().expect("a number");
    assert!((1..6).contains(&done), "some tasks are done: {status}");
    assert_eq!(read("count.txt").trim(), "6", "no leftovers");
    let mut seeds: Vec<Value> =
        merged(&workspace, "model").rows().iter().map(|row| row[1].clone()).collect();
    seeds.dedup();
    assert_eq!(seeds, [1, 2, 3, 4, 5, 6].map(Value::Uint));
}

#[test]
fn of_two_merges_at_once_one_writes_the_data_set() {
    let workspace = planned(SPEC);
    workspace.run(&["sweep", "run", "sweep"]).assert_code(0);
    let merges = [0, 1, 2, 3].map(|_| {
        let mut merge = workspace.irqlab(&["sweep", "merge", "sweep", "-o", "data"]);
        merge.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    });
    let ended =
        merges.map(|merge| CommandOutput::of_output(&merge.wait_with_output().expect("it ends")));
    assert_eq!(ended.iter().filter(|merge| merge.code == Some(0)).count(), 1);
    for merge in ended.iter().filter(|merge| merge.code != Some(0)) {
        assert!(merge.err.contains("exists already"), "{}", merge.err);
    }
    assert_eq!(workspace.names(), ["data", "spec.toml", "sweep"], "no leftovers");
    assert_eq!(merged(&workspace, "tasks").rows().len(), 6);
}

/// The rate of a trace is a fraction; the rates of `--rates` are whole numbers.
#[test]
fn whole_numbers_and_fractions_of_a_column_are_merged_exactly() {
    let workspace = Place::new();
    fs::write(workspace.path().join("trace.txt"), "1000\n2000\n4000\n8000\n").expect("a file");
    let spec = "command = ['signal', 'model', '--schemes', 'interrupt']\n[axes]\n'--arrivals' = ['poisson', \
        'trace:./trace.txt', 'periodic']\n";
    fs::write(workspace.path().join("spec.toml"), spec).expect("a file");
    workspace.run(&["sweep", "plan", "spec.toml", "-o", "sweep"]).assert_code(0);
    workspace.run(&["sweep", "run", "sweep"]).assert_code(0);
    workspace.run(&["sweep", "merge", "sweep", "-o", "data"]).assert_code(0);
    let table = merged(&workspace, "model");
    let rate = table.column("rate_hz").expect("a column");
    assert_eq!(table.columns[rate].kind, Kind::Real);
    let is_whole = |value: &Value| matches!(value, Value::Real(rate) if rate.fract() == 0.0);
    let has = |arrivals: &str, is_whole_wanted: bool| {
        let rows = table.rows().iter().filter(|row| row[1] == arrivals.into());
        let rates: Vec<&Value> = rows.map(|row| &row[rate]).collect();
        assert!(!rates.is_empty());
        assert!(rates.iter().all(|rate| is_whole(rate) == is_whole_wanted), "{rates:?}");
    };
    has("poisson", true);
    has("periodic", true);
    has("trace:./trace.txt", false);
    let documented = fs::read_to_string(workspace.path().join("data/columns.json")).expect("text");
    assert!(documented.contains("rate_hz"));
}
