//! `--trace`: single events of simulated windows. Without QEMU the tests say so and pass.

use serde_json::Value as Json;

use crate::delays::{number, rows_with};
use crate::support::{Place, can_simulate, read_by, rows, timeline};

const HANDLERS: &str = "handlers --on sim -q --load idle --rate high --stimulus disk -d 50ms --callbacks \
                        --disk virtio-blk,latency=100us --vcpus 2";

fn words<'a>(line: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    line.split_whitespace().chain(more.iter().copied()).collect()
}

/// Slices add up to the tables exactly, nothing else changes, and a second run has the same bytes.
#[test]
fn the_timeline_adds_up_to_the_tables_and_is_the_same_each_time() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let traced = |out: &str| {
        workspace.run(&words(HANDLERS, &["--trace", "8MiB", "--out", out])).assert_code(0);
        workspace.run(&["show", out, "--json"]).assert_code(0).json()
    };
    let run = traced("run");
    timeline::check_table(&run);
    let facts = &run["settings"]["conditions"]["idle/high/disk"];
    assert_eq!(facts["trace_lost_events"], 0, "{facts}");
    let delays =
        rows(&run, "delays").iter().filter(|row| row["cpu"] == "all" && row["kind"] == "softirq");
    let joined: u64 = delays.map(|row| row["count"].as_u64().expect("a count")).sum();
    assert!(joined > 10, "{joined}");
    assert_eq!(timeline::arrows(&run, "raise"), joined);
    let csv = |out: &str| {
        let file = format!("{out}.csv");
        let export = ["export", out, "--format", "csv", "--table", "timeline", "-o", &file];
        workspace.run(&export).assert_code(0);
        std::fs::read(workspace.path().join(file)).expect("a table")
    };
    traced("again");
    assert_eq!(csv("run"), csv("again"));
    let plain = workspace.run(&words(HANDLERS, &["--format", "csv", "--table", "handlers"]));
    plain.assert_code(0);
    let shown = workspace.run(&["show", "run", "--format", "csv", "--table", "handlers"]);
    assert_eq!(rows_with(&shown.out, "self_mean_ns"), rows_with(&plain.out, "self_mean_ns"));
    workspace.run(&["export", "run", "--format", "perfetto", "-o", "p"]).assert_code(0);
    let Some(trace) = read_by("read_perfetto.py", &workspace.path().join("p")) else { return };
    timeline::check_trace(&run, &trace);
}

/// The latest events are kept, the loss is counted and said, and the trace marks the time that is not complete.
#[test]
fn a_full_timeline_keeps_the_latest_events_and_marks_the_gap() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let options = ["--trace", "64KiB", "--out", "run", "--format", "csv", "--table", "timeline"];
    let ended = workspace.run(&words(HANDLERS, &options));
    ended.assert_code(0);
    let run = workspace.run(&["show", "run", "--json"]).assert_code(0).json();
    let warnings = run["warnings"].to_string();
    assert!(warnings.contains("earlier events had no room"), "{warnings}");
    let events = rows_with(&ended.out, "to_event");
    let gaps: Vec<_> = events.iter().filter(|row| row["kind"] == "lost").collect();
    assert!(!gaps.is_empty());
    for gap in gaps {
        let until_ns = number(gap, "length_ns");
        let same_cpu =
            events.iter().filter(|row| row["cpu"] == gap["cpu"] && row["kind"] != "lost");
        let ends = same_cpu
            .filter(|row| row["to_event"].is_empty())
            .map(|row| number(row, "start_ns") + number(row, "length_ns"));
        assert!(ends.min() > Some(until_ns), "{gap:?}");
    }
    assert!(events.len() as u64 <= (64 << 10) / 40 + 2, "{}", events.len());
}

/// `services` has system calls in the timeline, too.
#[test]
fn services_have_system_calls_between_tasks_and_interrupts() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "services --on sim -q --trace 8MiB --out run -- ls /";
    workspace.run(&words(line, &[])).assert_code(0);
    let run = workspace.run(&["show", "run", "--json"]).assert_code(0).json();
    let events = rows(&run, "timeline");
    timeline::check_nesting(events);
    let has = |kind: &str| events.iter().any(|row| row["kind"] == kind);
    assert!(["task", "vector", "exception"].into_iter().all(has), "{}", events.len());
    let is_read = |row: &Json| row["kind"] == "syscall" && row["name"] == "getdents64";
    assert!(events.iter().any(is_read), "ls reads a directory");
    workspace.run(&["export", "run", "--format", "perfetto", "-o", "p"]).assert_code(0);
    let Some(trace) = read_by("read_perfetto.py", &workspace.path().join("p")) else { return };
    timeline::check_trace(&run, &trace);
}
