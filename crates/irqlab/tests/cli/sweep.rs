//! `irqlab sweep`: plans, executions that are killed or run twice, and merged data sets.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use record::{Kind, Table, Value};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use crate::support::{CommandOutput, IRQLAB, Place, lives, names, rows, signal, wait_until};

/// Two costs and three seeds; one combination is excluded.
const SPEC: &str = r#"
command = ["signal", "model", "--schemes", "interrupt,spin", "--rates", "10k"]
[axes]
"--interrupt-cost" = ["2us", "4us"]
"--seed" = { from = 1, to = 3 }
[[exclude]]
"--interrupt-cost" = "4us"
"--seed" = 3
[baseline]
"--seed" = 1
"#;

/// Tasks that take about a second each.
const LONG_SPEC: &str = r#"
command = ["signal", "model", "--schemes", "interrupt", "--rates", "100k", "--simulate"]
[axes]
"--events" = [60000000]
"--seed" = [1, 2]
"#;

/// A directory with a planned sweep `sweep`.
fn planned(spec: &str) -> Place {
    let workspace = Place::new();
    plan(&workspace, spec, "sweep").assert_code(0);
    workspace
}

fn plan(workspace: &Place, spec: &str, name: &str) -> CommandOutput {
    fs::write(workspace.path().join("spec.toml"), spec).expect("a file");
    workspace.run(&["sweep", "plan", "spec.toml", "-o", name])
}

fn status(workspace: &Place) -> Json {
    workspace.run(&["sweep", "status", "sweep", "--json"]).assert_code(0).json()
}

/// The path of a file in the workspace.
fn path(workspace: &Place, name: &str) -> PathBuf {
    workspace.path().join(name)
}

fn merged(workspace: &Place, table: &str) -> Table {
    let file = path(workspace, &format!("data/{table}/data.parquet"));
    record::read_parquet(&file).expect("a Parquet file")
}

/// The text of a file, changed by `change`.
fn edit(file: &Path, change: impl FnOnce(String) -> String) {
    let text = fs::read_to_string(file).expect("text");
    fs::write(file, change(text)).expect("a file");
}

/// Asserts that a specification is refused with `says`, and leaves nothing.
#[track_caller]
fn check_spec_refused(spec: &str, says: &str) {
    let workspace = Place::new();
    plan(&workspace, spec, "sweep").assert_code(2).assert_says(says);
    assert_eq!(workspace.names(), ["spec.toml"]);
}

#[test]
fn a_sweep_is_planned_executed_and_merged() {
    let workspace = Place::new();
    let ended = plan(&workspace, SPEC, "sweep");
    ended.assert_code(0);
    assert!(ended.out.starts_with("5 tasks (excluded combinations: 1)"), "{}", ended.out);
    assert!(ended.out.contains("tasks of the baseline: 2"), "{}", ended.out);
    assert_eq!(status(&workspace)["missing_indexes"], "0-4");

    let merge = ["sweep", "merge", "sweep", "-o", "data"];
    workspace.run(&merge).assert_code(2).assert_says("5 of 5 tasks have no result");
    workspace.run(&["sweep", "run", "sweep", "--jobs", "2"]).assert_code(0);
    let status = status(&workspace);
    assert_eq!((&status["done"], &status["missing"]), (&5.into(), &0.into()));
    workspace
        .run(&["sweep", "run", "sweep"])
        .assert_code(0)
        .assert_says("done: 5 of 5 tasks; none is open");

    workspace.run(&merge).assert_code(0);
    workspace.run(&merge).assert_code(2).assert_says("exists already");
    assert_eq!(workspace.names(), ["data", "spec.toml", "sweep"]);
    assert_eq!(names(&path(&workspace, "data")), ["columns.json", "model", "tasks"]);
    check_model_table(&workspace);
    let tasks = merged(&workspace, "tasks");
    assert_eq!(tasks.rows().len(), 5);
    let baseline = tasks.column("is_baseline").expect("a column");
    let count = tasks.rows().iter().filter(|row| row[baseline] == Value::Bool(true)).count();
    assert_eq!(count, 2);
}

/// A task and the same command alone have equal rows.
fn check_model_table(workspace: &Place) {
    let table = merged(workspace, "model");
    assert_eq!(table.rows().len(), 10);
    let kinds: Vec<(&str, Kind)> =
        table.columns[..3].iter().map(|column| (column.name.as_str(), column.kind)).collect();
    let expected =
        [("task_id", Kind::Text), ("axis_interrupt_cost", Kind::Text), ("axis_seed", Kind::Uint)];
    assert_eq!(kinds, expected);
    let ended = workspace.run(&[
        "signal",
        "model",
        "--schemes",
        "interrupt,spin",
        "--rates",
        "10k",
        "--interrupt-cost",
        "4us",
        "--seed",
        "2",
        "--json",
        "--out",
        "alone",
    ]);
    let alone = ended.assert_code(0).json();
    fs::remove_dir_all(path(workspace, "alone")).expect("a run");
    let is_task = |row: &&Vec<Value>| row[1] == "4us".into() && row[2] == Value::Uint(2);
    let found: Vec<&Vec<Value>> = table.rows().iter().filter(is_task).collect();
    let expected = rows(&alone, "model");
    assert_eq!(found.len(), expected.len());
    for (row, expected) in found.iter().zip(expected) {
        for (column, value) in table.columns.iter().zip(row.iter()).skip(3) {
            assert_eq!(value.to_json(), expected[&column.name], "{}", column.name);
        }
    }
}

#[test]
fn specifications_that_cannot_be_planned_are_refused() {
    let axes = |axes: &str| format!("command = ['signal', 'model']\n[axes]\n{axes}\n");
    check_spec_refused(
        &axes("'--seed' = { from = 1, to = 10000000 }"),
        "10000000 combinations, more than 1000000",
    );
    check_spec_refused(&axes("'--sede' = [1]"), "no option --sede; near: --seed");
    check_spec_refused(&axes("'--seed' = ['moon']"), "invalid value 'moon' for '--seed");
    check_spec_refused(&axes("'--out' = ['a']"), "a sweep sets --out itself");
    check_spec_refused(&axes("'rate' = ['1k']"), "{rate} is not in the command");
    check_spec_refused("command = ['doctor']\n[axes]\n", "irqlab doctor cannot be a task");
    check_spec_refused("command = ['handlers']\n[axes]\n'--vcpus' = [2]\n", "add --on sim");
    check_spec_refused("moon", "spec.toml: ");
    let workspace = planned(SPEC);
    plan(&workspace, SPEC, "sweep").assert_code(2).assert_says("exists already");
    let refused = workspace.run(&["sweep", "run", "."]);
    refused.assert_code(2).assert_says("is not a sweep");
}

#[test]
fn a_scheduler_passes_the_index_of_a_task() {
    let workspace = planned(SPEC);
    let run = |variable: &str, index: &str| {
        let mut command = workspace.irqlab(&["sweep", "run", "sweep"]);
        CommandOutput::of(command.env(variable, index))
    };
    run("SLURM_ARRAY_TASK_ID", "1").assert_code(0);
    run("JOB_COMPLETION_INDEX", "3").assert_code(0);
    workspace
        .run(&["sweep", "run", "sweep", "--index", "3"])
        .assert_code(0)
        .assert_says("done already");
    run("SLURM_ARRAY_TASK_ID", "5").assert_code(2).assert_says("the indexes are 0 to 4");
    run("SLURM_ARRAY_TASK_ID", "x").assert_code(2).assert_says("no index of a task");
    assert_eq!(status(&workspace)["missing_indexes"], "0,2,4");
    let ended = workspace.run(&["sweep", "merge", "sweep", "-o", "data", "--allow-missing"]);
    ended.assert_code(0);
    assert!(ended.out.contains("without a result: 3 of 5 tasks"), "{}", ended.out);
    assert_eq!(
        (merged(&workspace, "model").rows().len(), merged(&workspace, "tasks").rows().len()),
        (4, 5)
    );
}

#[test]
fn a_failure_is_kept_with_its_reason_until_it_is_retried() {
    let workspace = planned(&SPEC.replace("4us", "4parsec"));
    let ended = workspace.run(&["sweep", "run", "sweep"]);
    ended.assert_code(1).assert_says("2 failed");
    let reported = status(&workspace);
    assert_eq!((&reported["done"], &reported["missing"]), (&3.into(), &0.into()));
    let failed = reported["failed"].as_array().expect("a list");
    assert_eq!(failed.len(), 2);
    assert_eq!(failed[0]["exit_code"], 2);
    let reason = failed[0]["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("exit code 2: ") && reason.contains("4parsec"), "{reason}");
    let index = failed[0]["index"].to_string();
    let once = workspace.run(&["sweep", "run", "sweep", "--index", &index]);
    once.assert_code(1).assert_says("failed before");
    workspace.run(&["sweep", "run", "sweep"]).assert_code(1).assert_says("2 failed before");
    workspace.run(&["sweep", "retry", "sweep"]).assert_code(0).assert_says("forgotten failures: 2");
    assert_eq!(status(&workspace)["missing"], 2);
    assert!(names(&path(&workspace, "sweep/failed")).is_empty());
}

/// A `sweep run` in the background.
fn start(workspace: &Place) -> Child {
    let mut command = workspace.irqlab(&["sweep", "run", "sweep", "--jobs", "1"]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the command starts")
}

/// The process of the task that a `sweep run` executes now. A thread of the run is its parent.
fn task_process(run: &Child) -> u32 {
    let mut found = None;
    wait_until("a task runs", || {
        let threads =
            fs::read_dir(format!("/proc/{}/task", run.id())).into_iter().flatten().flatten();
        let children =
            threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        found = children
            .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .next();
        found.is_some()
    });
    found.and_then(|pid| pid.parse().ok()).expect("a number")
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
    kill_process(pid, Signal::KILL).expect("the process is ours");
}

#[test]
fn a_task_that_is_killed_fails_and_is_executed_again() {
    let workspace = planned(LONG_SPEC);
    let run = start(&workspace);
    kill(task_process(&run));
    let ended = CommandOutput::of_output(&run.wait_with_output().expect("it ends"));
    ended.assert_code(1).assert_says("killed by signal 9");
    let reported = status(&workspace);
    assert_eq!(
        (&reported["done"], reported["failed"].as_array().map(Vec::len)),
        (&1.into(), Some(1))
    );
    workspace.run(&["sweep", "retry", "sweep"]).assert_code(0);
    workspace.run(&["sweep", "run", "sweep"]).assert_code(0).assert_says("done: 1 of 1 tasks");
    assert_eq!(status(&workspace)["done"], 2);
}

#[test]
fn a_run_that_is_killed_ends_its_task_and_loses_nothing() {
    let workspace = planned(LONG_SPEC);
    let mut run = start(&workspace);
    let task = task_process(&run);
    run.kill().and_then(|()| run.wait()).expect("the process is ours");
    wait_until("the task ends with its run", || !lives(task));
    let reported = status(&workspace);
    assert_eq!((&reported["done"], &reported["missing"]), (&0.into(), &2.into()));
    workspace.run(&["sweep", "run", "sweep"]).assert_code(0);
    assert_eq!(names(&path(&workspace, "sweep/tasks")).len(), 2, "no leftovers");
}

#[test]
fn a_task_that_another_irqlab_executes_is_left_to_it() {
    let workspace = planned(&LONG_SPEC.replace("60000000", "1000000000").replace("[1, 2]", "[1]"));
    let mut run = start(&workspace);
    let task = task_process(&run);
    let reported = status(&workspace);
    assert_eq!((&reported["running_indexes"], &reported["missing"]), (&"0".into(), &0.into()));
    let says = "another irqlab executes 1";
    workspace.run(&["sweep", "run", "sweep"]).assert_code(0).assert_says(says);
    workspace.run(&["sweep", "run", "sweep", "--index", "0"]).assert_code(0).assert_says(says);
    run.kill().and_then(|()| run.wait()).expect("the process is ours");
    wait_until("the task ends with its run", || !lives(task));
    assert_eq!(status(&workspace)["missing"], 1);
}

#[test]
fn a_run_that_is_stopped_ends_its_task_and_records_no_failure() {
    let workspace = planned(&LONG_SPEC.replace("60000000", "1000000000"));
    let run = start(&workspace);
    let task = task_process(&run);
    signal(&run, Signal::TERM);
    let ended = CommandOutput::of_output(&run.wait_with_output().expect("it ends"));
    ended.assert_code(1).assert_says("stopped; 2 are open");
    assert!(!lives(task));
    assert!(names(&path(&workspace, "sweep/tasks")).is_empty());
    assert_eq!(status(&workspace)["missing"], 2);
}

#[test]
fn two_runs_at_once_execute_each_task_once() {
    let spec = SPEC.replace("to = 3", "to = 12");
    let workspace = planned(&spec);
    let runs = [start(&workspace), start(&workspace)];
    for run in runs {
        let ended = CommandOutput::of_output(&run.wait_with_output().expect("it ends"));
        ended.assert_code(0);
        assert!(!ended.err.contains("executed elsewhere, too"), "{}", ended.err);
    }
    let reported = status(&workspace);
    assert_eq!((&reported["done"], &reported["running"]), (&23.into(), &0.into()));
    let tasks = names(&path(&workspace, "sweep/tasks"));
    assert_eq!(tasks.len(), 23, "{tasks:?}");
}

/// An executed sweep `sweep`, and its copy `copy`.
fn executed_twice() -> Place {
    let workspace = planned(SPEC);
    workspace.run(&["sweep", "run", "sweep"]).assert_code(0);
    let mut copy = Command::new("cp");
    CommandOutput::of(copy.args(["-r", "sweep", "copy"]).current_dir(workspace.path()))
        .assert_code(0);
    workspace
}

fn first_task(workspace: &Place, sweep: &str) -> PathBuf {
    let tasks = path(workspace, &format!("{sweep}/tasks"));
    tasks.join(&names(&tasks)[0])
}

#[test]
fn copies_of_a_result_are_merged_once_and_contradictions_are_refused() {
    let workspace = executed_twice();
    let merge = ["sweep", "merge", "sweep", "copy", "-o", "data"];
    fs::remove_dir_all(first_task(&workspace, "sweep")).expect("a result");
    workspace.run(&merge).assert_code(0);
    assert_eq!(merged(&workspace, "model").rows().len(), 10);
    fs::remove_dir_all(path(&workspace, "data")).expect("a data set");

    // Another table, with its checksum in the manifest: the results of this task differ.
    let [ours, theirs] = ["sweep", "copy"].map(|sweep| {
        let task = first_task(&workspace, sweep).file_name().map(|name| name.to_owned());
        path(&workspace, sweep).join("tasks").join(task.expect("a name"))
    });
    let task = ours.file_name().expect("a name");
    let theirs = theirs.with_file_name(task);
    fs::write(theirs.join("run/tables/model.parquet"), "other").expect("a file");
    let printed =
        CommandOutput::of(Command::new("sha256sum").arg(theirs.join("run/tables/model.parquet")));
    let hash = printed.out.split_whitespace().next().unwrap_or_default().to_owned();
    edit(&theirs.join("task.json"), |text| {
        let mut manifest: Json = serde_json::from_str(&text).expect("JSON");
        let files = manifest["files"].as_array_mut().expect("a list");
        let table = files.iter_mut().find(|file| file["path"] == "run/tables/model.parquet");
        let table = table.expect("the table");
        (table["sha256"], table["bytes"]) = (hash.into(), 5.into());
        manifest.to_string()
    });
    let ended = workspace.run(&merge);
    ended.assert_code(2).assert_says("has two different results: sweep/tasks/");
    ended.assert_says(" and copy/tasks/");
    assert!(!path(&workspace, "data").exists());
}

#[test]
fn edited_results_and_mixed_versions_are_refused() {
    let workspace = executed_twice();
    let merge = ["sweep", "merge", "sweep", "-o", "data"];
    let manifest = first_task(&workspace, "sweep").join("run/manifest.json");
    let restored = fs::read(&manifest).expect("a manifest");
    edit(&manifest, |text| text.replace("\"seed\": ", "\"seed\":  "));
    workspace.run(&merge).assert_code(1).assert_says("manifest.json: was edited");
    fs::write(&manifest, restored).expect("a file");
    workspace.run(&merge).assert_code(0);
    fs::remove_dir_all(path(&workspace, "data")).expect("a data set");

    let manifest = first_task(&workspace, "sweep").join("task.json");
    edit(&manifest, |text| text.replace("\"version\": \"", "\"version\": \"9"));
    workspace.run(&merge).assert_code(2).assert_says("is a result of irqlab 9");
    edit(&path(&workspace, "copy/sweep.json"), |text| {
        text.replace("\"version\":\"", "\"version\":\"9")
    });
    let both = workspace.run(&["sweep", "merge", "sweep", "copy", "-o", "data"]);
    both.assert_code(2).assert_says("sweep was planned by irqlab");
    workspace
        .run(&["sweep", "run", "copy"])
        .assert_code(2)
        .assert_says("copy was planned by irqlab 9");
    assert!(!path(&workspace, "data").exists());
}

#[test]
fn a_file_that_changed_since_the_plan_is_refused() {
    let workspace = Place::new();
    let trace = path(&workspace, "trace.txt");
    fs::write(&trace, "1000\n2000\n3000\n").expect("a file");
    let spec = "command = ['signal', 'model', '--schemes', 'interrupt', '--arrivals', 'trace:./trace.txt']\n\
        [axes]\n'--seed' = [1, 2]\n";
    let planned = plan(&workspace, spec, "sweep");
    assert!(planned.assert_code(0).out.contains("file ./trace.txt: sha256 "), "{}", planned.out);
    workspace.run(&["sweep", "run", "sweep", "--index", "0"]).assert_code(0);
    fs::write(&trace, "1000\n2000\n4000\n").expect("a file");
    let run = ["sweep", "run", "sweep", "--index", "1"];
    workspace
        .run(&run)
        .assert_code(2)
        .assert_says("./trace.txt has changed since the sweep was planned");
    fs::remove_file(&trace).expect("a file");
    workspace.run(&run).assert_code(2).assert_says("./trace.txt is not there");
}

#[test]
fn a_plan_that_was_edited_executes_nothing() {
    let workspace = planned(SPEC);
    edit(&path(&workspace, "sweep/sweep.json"), |text| text.replace("10k", "20k"));
    let ended = workspace.run(&["sweep", "run", "sweep"]);
    ended.assert_code(1).assert_says("the plan was edited");
    assert!(names(&path(&workspace, "sweep/tasks")).is_empty());
}

#[test]
fn schedulers_get_an_element_for_each_task() {
    let workspace = planned(SPEC);
    let arguments = ["sweep", "submit", "slurm", "sweep", "--time", "90m", "--memory", "2G"];
    let cache = ["--cache", "/shared/it's", "--prepared"];
    let script = workspace.run(&[&arguments[..], &cache].concat()).assert_code(0).out.clone();
    let exported = "export IRQLAB_CACHE='/shared/it'\\''s'\nexport IRQLAB_CACHE_ONLY='1'\n";
    assert!(script.contains(exported), "{script}");
    let script = workspace.run(&arguments).assert_code(0).out.clone();
    for line in ["#SBATCH --array=0-4", "#SBATCH --time=01:30:00", "#SBATCH --mem=2048M"] {
        assert!(script.lines().any(|found| found == line), "{line}: {script}");
    }
    // The script executes the task of its index, also from another directory.
    let mut shell = Command::new("sh");
    let program = Path::new(IRQLAB).parent().expect("a directory");
    let search = std::env::var("PATH").unwrap_or_default();
    shell.args(["-c", &script]).current_dir("/").env("SLURM_ARRAY_TASK_ID", "2");
    shell.env("PATH", format!("{}:{search}", program.display()));
    CommandOutput::of(&mut shell).assert_code(0);
    assert_eq!(status(&workspace)["missing_indexes"], "0-1,3-4");

    let arguments = [
        "sweep",
        "submit",
        "kubernetes",
        "sweep",
        "--image",
        "i\"x",
        "--claim",
        "c",
        "--memory",
        "1G",
    ];
    let manifest = workspace.run(&arguments).assert_code(0).out.clone();
    let lines: Vec<&str> = manifest.lines().map(str::trim).collect();
    let expected = [
        "completionMode: Indexed",
        "completions: 5",
        "image: \"i\\\"x\"",
        "memory: \"1024Mi\"",
        "claimName: \"c\"",
    ];
    for line in expected {
        assert!(lines.contains(&line), "{line}: {manifest}");
    }
}

#[test]
fn a_placeholder_stands_for_a_word_of_the_command() {
    let spec = "command = ['signal', '{verb}', '--rates', '{rate}']\n[axes]\nrate = ['1k', '10k']\n\
        verb = ['model']\n";
    let workspace = Place::new();
    // The verb must be known before the axes are.
    plan(&workspace, spec, "sweep").assert_code(2).assert_says("cannot be a task");
    let workspace = planned(&spec.replace("{verb}", "model").replace("verb = ['model']", ""));
    workspace.run(&["sweep", "run", "sweep"]).assert_code(0);
    workspace.run(&["sweep", "merge", "sweep", "-o", "data"]).assert_code(0);
    let table = merged(&workspace, "model");
    let (axis, rate) = (table.column("axis_rate").unwrap(), table.column("rate_hz").unwrap());
    let rates: BTreeMap<String, String> = table
        .rows()
        .iter()
        .map(|row| (row[axis].to_json().to_string(), row[rate].to_json().to_string()))
        .collect();
    let expected = [("\"10k\"", "10000"), ("\"1k\"", "1000")];
    assert_eq!(rates, expected.map(|(axis, rate)| (axis.to_owned(), rate.to_owned())).into());
}

/// The figure of a row in the run of a task.
fn figure_of(workspace: &Place, id: &str, column: &str) -> f64 {
    let run = record::read_run(&path(workspace, &format!("sweep/tasks/{id}/run"))).expect("a run");
    let table = run.table("model").expect("a table");
    let is_row = |row: &&Vec<Value>| table.get(row, "scheme") == Some(&"interrupt".into());
    let row = table.rows().iter().find(is_row).expect("a row");
    table.get(row, column).and_then(Value::number).expect("a number")
}

#[test]
fn a_report_has_the_figures_of_the_runs_and_names_what_is_absent() {
    let spec =
        SPEC.replace("[baseline]\n\"--seed\" = 1", "[baseline]\n\"--interrupt-cost\" = \"2us\"");
    let workspace = planned(&spec);
    let report = |more: &[&str]| {
        let all = [&["sweep", "report", "sweep"], more].concat();
        workspace.run(&all)
    };
    report(&[]).assert_code(2).assert_says("none of the combinations has a result yet");
    // Two costs with seed 1, one with seed 2. Four of five tasks would be too many for a baseline that is missing.
    for index in ["0", "1", "3"] {
        workspace.run(&["sweep", "run", "sweep", "--index", index]).assert_code(0);
    }
    let column = "latency_mean_ns";
    let chosen = ["--row", "interrupt", "--column", column];
    let goal = ["--best", "max latency_mean_ns subject to cpu_ratio<=90%, latency_mean_ns>1us"];
    let ended = report(&[&chosen[..], &goal, &["--json", "-o", "page.html"]].concat());
    let document = ended.assert_code(0).json();
    let combinations = rows(&document, "combinations");
    assert_eq!(combinations.len(), 5);
    let with_figure = || combinations.iter().filter(|row| !row[column].is_null());
    assert_eq!(with_figure().count(), 3, "absent figures are not zero");
    for row in with_figure() {
        let id = row["task_id"].as_str().expect("an id");
        let expected = figure_of(&workspace, id, column);
        assert_eq!(row[column].as_f64(), Some(expected));
    }
    let changed: Vec<&Json> = with_figure().filter(|row| !row["change_ratio"].is_null()).collect();
    let [row] = changed[..] else { panic!("{changed:?}") };
    let base = with_figure().find(|base| base["axis_seed"] == row["axis_seed"]).is_some();
    assert!(base && row["axis_interrupt_cost"] == "4us" && row["verdict"] == "worse", "{row}");
    let base = with_figure()
        .find(|base| base["axis_seed"] == row["axis_seed"] && base["verdict"] == "baseline")
        .and_then(|base| base[column].as_f64())
        .expect("a baseline");
    let expected = row[column].as_f64().expect("a figure") / base - 1.0;
    assert!((row["change_ratio"].as_f64().expect("a change") - expected).abs() < 1e-12);
    let absent = document["absent"].as_array().expect("a list");
    assert!(absent.iter().all(|entry| entry["reason"] == "has no result yet"), "{absent:?}");
    assert_eq!(absent.len(), 2);
    let answers = document["answers"].to_string();
    assert!(answers.contains("--interrupt-cost 4us, --seed 1, with latency_mean_ns"), "{answers}");
    check_page(&fs::read_to_string(path(&workspace, "page.html")).expect("a page"));
    report(&[&chosen[..], &["-o", "page.html"]].concat()).assert_code(2).assert_says("--force");
}

#[test]
fn a_sweep_is_compared_with_another_one_combination_by_combination() {
    let column = "latency_mean_ns";
    let workspace = planned(&SPEC.replace("\"10k\"]", "\"10k\", \"--event-cost\", \"3us\"]"));
    plan(&workspace, &SPEC.replace("\"10k\"]", "\"10k\", \"--event-cost\", \"1us\"]"), "base");
    let other_axes =
        SPEC.lines().filter(|line| !line.contains("seed")).collect::<Vec<_>>().join("\n");
    let other_axes =
        other_axes.replace("[[exclude]]\n\"--interrupt-cost\" = \"4us\"\n[baseline]", "");
    plan(&workspace, &other_axes, "other").assert_code(0);
    workspace.run(&["sweep", "run", "sweep"]).assert_code(0);
    let report = |more: &[&str]| {
        let all = ["sweep", "report", "sweep", "--row", "interrupt", "--column", column];
        workspace.run(&[&all[..], more].concat())
    };
    let equal = report(&["--against", "sweep", "--fail-on", "worse", "--json"]);
    let document = equal.assert_code(0).json();
    assert!(rows(&document, "combinations").iter().all(|row| row["verdict"] == "equal"));
    report(&["--against", "other"]).assert_code(2).assert_says("has the axes --interrupt-cost,");
    // A combination that cannot be compared is not a passed test.
    let unknown = report(&["--against", "base", "--fail-on", "worse"]);
    unknown.assert_code(3);
    let says = "--fail-on worse: 5 of 5 combinations cannot be compared with base.";
    assert!(unknown.out.contains(says), "{}", unknown.out);
    workspace.run(&["sweep", "run", "base"]).assert_code(0);
    let ended = report(&["--against", "base", "--fail-on", "worse", "--json", "-o", "page.html"]);
    let document = ended.assert_code(3).json();
    for row in rows(&document, "combinations") {
        assert_eq!(row["verdict"], "worse", "{row}");
        let [figure, base] = [column, "base_ns"].map(|name| row[name].as_f64().expect("a figure"));
        let ratio = row["change_ratio"].as_f64().expect("a change");
        assert!(figure > base && (ratio - (figure / base - 1.0)).abs() < 1e-12, "{row}");
    }
    let answers = document["answers"].to_string();
    assert!(answers.contains("--fail-on worse: 5 of 5 combinations are worse."), "{answers}");
    let page = fs::read_to_string(path(&workspace, "page.html")).expect("a page");
    assert!(page.contains("against base") && !page.contains("against the baseline"));
}

/// The page is whole, loads nothing, and has the pictures and the table.
fn check_page(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "{}", page.len());
    for part in
        ["id=\"sweep-map-picture\"", "id=\"sweep-axis-0-picture\"", "id=\"sweep-combinations\""]
    {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_report_of_what_does_not_exist_names_what_there_is() {
    let workspace = planned(SPEC);
    workspace.run(&["sweep", "run", "sweep", "--index", "0"]).assert_code(0);
    let refused = |more: &[&str], says: &str| {
        let all = [&["sweep", "report", "sweep"], more].concat();
        workspace.run(&all).assert_code(2).assert_says(says);
    };
    refused(&[], "By scheme: interrupt, spin");
    refused(
        &["--row", "moon"],
        "no run has the row moon in table model. By scheme: interrupt, spin",
    );
    refused(&["--column", "latency_man_ns"], "near: latency_mean_ns");
    refused(&["--table", "modle"], "near: model");
    refused(&["--row", "spin", "--column", "scheme"], "has no numbers");
    refused(
        &["--where", "moon=1"],
        "there is no axis \"moon\"; the axes: --interrupt-cost, --seed",
    );
    refused(&["--where", "seed=9"], "axis --seed has no value \"9\"; it has 1, 2, 3");
    refused(&["--row", "spin", "--best", "min moon"], "--best: table model has no column \"moon\"");
    refused(&["--best", "moon cpu_ratio"], "neither min nor max");
    let ended = workspace.run(&["sweep", "report", "sweep", "--row", "spin"]);
    ended.assert_code(0);
    assert!(ended.out.contains("no column was named: this is model."), "{}", ended.out);
}

/// A sweep of a cost over a row of values, and the mean latency that the rule is about.
const COSTS: &str = r#"
command = ["signal", "model", "--schemes", "interrupt", "--rates", "10k"]
[axes]
"--interrupt-cost" = ["2us", "2.01us", "2.02us", "4parsec", "2.03us", "4us", "4.01us", "4.02us"]
"--seed" = [1, 2]
"#;

/// The values that a search executed, with what it found about each.
fn judgements(document: &Json) -> Vec<(String, String)> {
    let text = |row: &Json, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let judged = |row: &Json| (text(row, "axis_interrupt_cost"), text(row, "judgement"));
    rows(document, "bisect").iter().map(judged).collect()
}

#[test]
fn the_first_value_that_breaks_a_rule_is_found_with_few_tasks() {
    let workspace = planned(COSTS);
    let bisect = |more: &[&str]| {
        let all = ["sweep", "bisect", "sweep", "--rule", "model.latency_mean_ns>+20%"];
        workspace.run(&[&all[..], more].concat())
    };
    bisect(&[]).assert_code(2).assert_says("choose an axis with --axis: --interrupt-cost, --seed");
    let axis = ["--axis", "interrupt-cost"];
    bisect(&axis).assert_code(2).assert_says("several combinations have --interrupt-cost 2us");
    let seed = [&axis[..], &["--where", "seed=2", "--json"]].concat();
    let document = bisect(&seed).assert_code(0).json();
    let answers = document["answers"].to_string();
    let first_bad = "--interrupt-cost 4us breaks model.latency_mean_ns>+20% (+";
    assert!(answers.contains(first_bad), "{answers}");
    assert!(answers.contains("and the value before it, 2.03us, keeps it ("), "{answers}");
    let judged = judgements(&document);
    let word = |value: &str| {
        judged.iter().find(|(text, _)| text == value).map(|(_, judgement)| judgement.as_str())
    };
    assert_eq!(
        (word("2us"), word("4.02us"), word("4us")),
        (Some("good"), Some("bad"), Some("bad"))
    );
    assert_eq!(word("4parsec"), Some("can't tell"), "{judged:?}");
    assert!(judged.len() < 8, "{judged:?}");
    // Nothing is executed twice, and the tasks of the other seed not at all.
    assert_eq!(status(&workspace)["done"], judged.len() - 1);
    let again = bisect(&seed);
    assert_eq!(again.assert_code(0).json()["answers"], document["answers"]);
    assert!(!again.err.contains("1 of 1"), "{}", again.err);
    // What is named is what compare says about the two runs.
    let compare = document["answers"][1].as_str().and_then(|text| text.split_once("irqlab "));
    let words: Vec<&str> = compare.expect("a command").1.split(' ').collect();
    let rule = ["--fail-on", "model.latency_mean_ns>+20%"];
    workspace.run(&[&words[..], &rule].concat()).assert_code(3);
    // From the other end, a cost that falls breaks nothing.
    let fallen = [&seed[..], &["--good", "4us", "--bad", "2.03us"]].concat();
    bisect(&fallen).assert_code(1).assert_says("2.03us, keeps the rule (−");
    bisect(&[&seed[..], &["--good", "5us"]].concat())
        .assert_code(2)
        .assert_says("5us is no value of the axis");
}

#[test]
fn a_search_names_all_values_that_may_be_the_first() {
    let workspace = planned(&COSTS.replace("\"2.03us\"", "\"5parsec\"").replace("[1, 2]", "[1]"));
    let rule = "model.latency_mean_ns>+20%";
    let ended = workspace.run(&["sweep", "bisect", "sweep", "--rule", rule]);
    ended.assert_code(0);
    let says = "is one of 4parsec, 5parsec, 4us: those before 4us could not be judged";
    let text = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(says), "{text}");
    assert!(text.contains("The last value that keeps it: 2.02us (+"), "{text}");
    // A good value without a result is no start.
    let refused = ["sweep", "bisect", "sweep", "--good", "4parsec", "--bad", "4us", "--rule", rule];
    workspace
        .run(&refused)
        .assert_code(1)
        .assert_says("4parsec, cannot be judged: failed: exit code 2");
    let wrong = ["sweep", "bisect", "sweep", "--rule", "model.latency_mean>+20%"];
    workspace.run(&wrong).assert_code(2).assert_says("latency_mean");
}

/// A sweep whose traces are built: a script writes one for each value.
fn planned_with_build(script: &str) -> Place {
    let workspace = Place::new();
    fs::write(path(&workspace, "build.sh"), script).expect("a file");
    let spec = "command = ['signal', 'model', '--schemes', 'interrupt', '--arrivals', 'trace:{burst}']\n\
        [axes]\nburst = ['1', '01', '12', '24']\n'--seed' = [1, 2]\n\
        [build]\nburst = ['sh', './build.sh', '{value}', '{file}']\n";
    plan(&workspace, spec, "sweep").assert_code(0);
    workspace
}

#[test]
fn files_are_built_for_the_values_that_a_task_needs() {
    // Events come at 100,000 per second, in bursts of this length.
    let script = "echo built $1 >> built.txt\n\
        awk -v k=$1 'BEGIN { for (i = 0; i < 241; i++) print int(i / k) * k * 10000 }' > $2\n";
    let workspace = planned_with_build(script);
    let built = || fs::read_to_string(path(&workspace, "built.txt")).unwrap_or_default();
    assert_eq!(built(), "", "a plan builds nothing");
    let rule = "model.latency_mean_ns>+100%";
    let bisect =
        ["sweep", "bisect", "sweep", "--axis", "burst", "--where", "seed=1", "--rule", rule];
    let ended = workspace.run(&bisect);
    ended.assert_code(0);
    let found = format!("burst 12 breaks {rule} (+");
    assert!(ended.out.contains(&found), "{}", ended.out);
    // Both seeds have one file, and all values have one now.
    workspace.run(&["sweep", "run", "sweep", "--jobs", "2"]).assert_code(0);
    let mut lines: Vec<String> = built().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["built 01", "built 1", "built 12", "built 24"]);
    assert_eq!(names(&path(&workspace, "sweep/built")).len(), 5, "a lock and four files");
    workspace.run(&["sweep", "merge", "sweep", "-o", "data"]).assert_code(0);
    assert_eq!(merged(&workspace, "tasks").rows().len(), 8);
    // A file that was changed since it was built is not taken for it.
    fs::remove_dir_all(first_task(&workspace, "sweep")).expect("a result");
    for name in names(&path(&workspace, "sweep/built")).iter().filter(|name| *name != "lock") {
        fs::write(path(&workspace, &format!("sweep/built/{name}/file")), "0\n").expect("a file");
    }
    let run = ["sweep", "run", "sweep"];
    workspace.run(&run).assert_code(1).assert_says("has changed since it was built (remove ");
    fs::remove_dir_all(path(&workspace, "sweep/built")).expect("built files");
    // The same script in another directory may build other files.
    let mut elsewhere = workspace.irqlab(&["sweep", "run", "../sweep"]);
    fs::create_dir(path(&workspace, "elsewhere")).expect("a directory");
    fs::write(path(&workspace, "elsewhere/build.sh"), script).expect("a file");
    let elsewhere = CommandOutput::of(elsewhere.current_dir(path(&workspace, "elsewhere")));
    elsewhere
        .assert_code(2)
        .assert_says("files are built in the directory where the sweep was planned");
    workspace.run(&run).assert_code(0);
    // The script determines what the files are.
    fs::write(path(&workspace, "build.sh"), format!("{script}\n")).expect("a file");
    workspace.run(&["sweep", "retry", "sweep"]).assert_code(0);
    fs::remove_dir_all(first_task(&workspace, "sweep")).expect("a result");
    let changed = workspace.run(&["sweep", "run", "sweep"]);
    changed.assert_code(2).assert_says("./build.sh has changed since the sweep was planned");
}

#[test]
fn a_build_that_fails_or_is_stopped_leaves_no_file() {
    let failed = |script: &str, reason: &str| {
        let workspace = planned_with_build(script);
        let run = workspace.run(&["sweep", "run", "sweep", "--index", "0"]);
        run.assert_code(1).assert_says(reason);
        assert_eq!(names(&path(&workspace, "sweep/built")), ["lock"]);
    };
    failed("echo no such commit >&2\nexit 3\n", "the build failed, exit code 3: no such commit");
    failed("echo nothing to do\n", "the build made no file at its {file}: nothing to do");
    let workspace = planned_with_build("echo $$ > pid.txt\nsleep 1000\n");
    let run = start(&workspace);
    let file = path(&workspace, "pid.txt");
    let pid = || fs::read_to_string(&file).ok()?.trim().parse::<u32>().ok();
    wait_until("the build runs", || pid().is_some());
    signal(&run, Signal::TERM);
    let ended = CommandOutput::of_output(&run.wait_with_output().expect("it ends"));
    ended.assert_code(1).assert_says("stopped; 8 are open");
    wait_until("the build ends", || !lives(pid().expect("a number")));
    assert_eq!(names(&path(&workspace, "sweep/built")), ["lock"]);
    assert_eq!(status(&workspace)["missing"], 8);
}
