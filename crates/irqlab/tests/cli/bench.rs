//! Small runs of each bench. The tests check counts and the presence of rows, never times.

use crate::support::{
    Place, absence, alone, can_measure, can_measure_as_root, lives, names, rows, signal, wait_until,
};
use rustix::process::Signal;
use serde_json::Value as Json;

const INSTANCES: &str = "/sys/kernel/tracing/instances";

fn count(row: &Json, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column} in {row}"))
}

fn row<'a>(run: &'a Json, table: &str, column: &str, value: &str) -> Option<&'a Json> {
    rows(run, table).iter().find(|row| row[column] == value)
}

/// The trace instances `irqlab-PID-NUMBER` whose PID `is_wanted`.
fn instances(is_wanted: impl Fn(u32) -> bool) -> Vec<String> {
    let path = std::path::Path::new(INSTANCES);
    let mut all = if path.exists() { names(path) } else { Vec::new() };
    let pid = |name: &str| name.strip_prefix("irqlab-")?.split('-').next()?.parse().ok();
    all.retain(|name| pid(name).is_some_and(&is_wanted));
    all
}

/// Trace instances of dead processes, which nobody will remove.
fn leftovers() -> Vec<String> {
    instances(|pid| !lives(pid))
}

#[test]
fn overhead_measures_every_tool_or_says_why_not() {
    let _alone = alone();
    if !can_measure_as_root() {
        return;
    }
    let workspace = Place::new();
    let arguments = ["bench", "overhead", "--rounds", "1", "--calls", "500", "-q", "--json"];
    let ended = workspace.run(&[&arguments[..], &["--out", "run"]].concat());
    let run = ended.assert_code(0).json();
    for tool in ["nothing", "empty raw_tp", "irqlab raw_tp"] {
        assert!(row(&run, "overhead", "probe", tool).is_some(), "{tool}: {run}");
    }
    for tool in ["ftrace", "bpftrace", "perf record"] {
        let measured = row(&run, "overhead", "probe", tool).is_some();
        let reason = absence(&run, tool);
        assert!(measured != reason.is_some_and(|reason| !reason.is_empty()), "{tool}: {run}");
    }
    let ours = row(&run, "overhead", "probe", "irqlab raw_tp").expect("it was there");
    assert!(count(ours, "span_count") >= count(ours, "call_count"), "every call is a span: {ours}");
    assert_eq!(run["observer"]["events_lost"], 0);
    assert_eq!(leftovers(), [""; 0], "trace instances are removed");
    let shown = workspace.run(&["show", "run", "--json"]);
    assert_eq!(shown.assert_code(0).json()["tables"], run["tables"], "the run is recorded");
}

#[test]
fn the_trace_of_the_same_interrupts_has_the_same_count() {
    let _alone = alone();
    if !can_measure_as_root() {
        return;
    }
    let workspace = Place::new();
    let arguments = ["bench", "trace-agreement", "--rounds", "2", "-d", "300ms", "-q", "--json"];
    let ended = workspace.run(&arguments);
    if ended.code == Some(4) {
        let is_disk = ended.err.contains("disk");
        let need = if is_disk { needs::Need::Disk } else { needs::Need::Tracefs };
        return needs::not_run(need, &ended.err);
    }
    let run = ended.assert_code(0).json();
    assert_eq!(run["observer"]["events_lost"], 0);
    let lines = rows(&run, "trace_agreement");
    if lines.is_empty() {
        needs::not_run(needs::Need::Disk, "this disk raises no interrupts of its own");
    }
    for line in lines {
        let (counted, traced) = (count(line, "irqlab_count"), count(line, "trace_count"));
        // The counts are equal unless a thread of PID 1 ended meanwhile. The trace then has its interrupts, too.
        assert!(counted <= traced && traced - counted <= traced / 100, "{line}");
        assert!(line["irqlab_over_trace_ratio"].as_f64().is_some_and(f64::is_finite), "{line}");
    }
    assert_eq!(rows(&run, "corrections").len(), lines.len());
    assert_eq!(leftovers(), [""; 0], "trace instances are removed");
    assert_eq!(workspace.names(), [""; 0], "nothing is written without --out");
}

#[test]
fn a_storm_is_counted_whole() {
    let _alone = alone();
    if !can_measure() {
        return;
    }
    let workspace = Place::new();
    let ended = workspace.run(&["bench", "storm", "-d", "1s", "-q", "--json"]);
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Other, &ended.err);
    }
    let run = ended.assert_code(0).json();
    let lost = row(&run, "storm", "quantity", "events lost").expect("a row of its own");
    assert_eq!(lost["value"], 0.0, "{run}");
    let events = row(&run, "storm", "quantity", "entry and exit events").expect("as well");
    assert!(events["value"].as_f64() > Some(0.0), "{run}");
    let counts = || rows(&run, "counts").iter().filter(|line| line["kernel_count"].is_u64());
    assert!(counts().count() > 0, "nothing is compared: {run}");
    for line in counts() {
        // The kernel counts a softirq before its tracepoint. So one softirq may lie on the edge of the window.
        assert!(count(line, "irqlab_count") <= count(line, "kernel_count") + 1, "{line}");
    }
    // The stimuli ran for longer than the window, and counted their operations all the time.
    let window_ns = run["settings"]["duration_ns"].as_u64();
    let stimuli = ["timer high", "ipi high", "disk high"].map(|name| &run["settings"][name]);
    let stimuli: Vec<_> = stimuli.into_iter().filter(|stimulus| stimulus.is_object()).collect();
    assert!(!stimuli.is_empty(), "{run}");
    for stimulus in stimuli {
        assert!(stimulus["elapsed_ns"].as_u64() > window_ns, "{stimulus}");
        assert!(stimulus["operations"].is_u64(), "{stimulus}");
    }
}

#[test]
fn the_next_start_of_any_verb_removes_leftovers_of_a_killed_bench() {
    let _alone = alone();
    if !can_measure_as_root() {
        return;
    }
    if !std::path::Path::new(INSTANCES).exists() {
        return needs::not_run(needs::Need::Tracefs, INSTANCES);
    }
    let workspace = Place::new();
    let arguments = ["bench", "trace-agreement", "--rounds", "1000", "-q", "--json"];
    let mut child = workspace
        .irqlab(&arguments)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let (child_pid, mut has_ended) = (child.id(), false);
    wait_until("trace instances, or an end without", || {
        has_ended = child.try_wait().expect("our child").is_some();
        has_ended || !instances(|pid| pid == child_pid).is_empty()
    });
    if has_ended {
        return needs::not_run(needs::Need::Other, "no disk, or no trace, is available");
    }
    signal(&child, Signal::KILL);
    child.wait().expect("our child");
    assert!(!instances(|pid| pid == child_pid).is_empty(), "SIGKILL leaves them");
    let ended = workspace.run(&["machines"]);
    ended.assert_says("removed the trace instance irqlab-");
    assert_eq!(leftovers(), [""; 0]);
}

#[test]
fn invalid_options_are_refused_with_the_allowed_values() {
    let workspace = Place::new();
    for (arguments, allowed) in [
        (&["bench", "storm", "--timer-period", "1us"][..], "10us to 100ms"),
        (&["bench", "trace-agreement", "-d", "10s"], "1us to 3s"),
        (&["bench", "overhead", "-c", "4095"], "online"),
        (&["bench", "overhead", "--rounds", "0"], "1..=1000"),
        (&["bench", "storm", "--out", "."], "exists already"),
    ] {
        workspace.run(arguments).assert_code(2).assert_says(allowed);
    }
}

#[test]
fn noise_peers_compares_installed_tools_with_the_detour_loop() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["bench", "noise-peers", "-q", "--rounds", "1", "-d", "1s", "--json"];
    let ended = workspace.run(&[&arguments[..], &["--thresholds-us", "5,1000"]].concat());
    if ended.code != Some(0) {
        // The machine has one CPU, or no clock for the loop.
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    let run = ended.json();
    for tool in ["irqlab", "oslat", "cyclictest"] {
        let seen: Vec<&Json> =
            rows(&run, "noise_peers").iter().filter(|row| row["tool"] == tool).collect();
        let missing = absence(&run, tool);
        assert!(seen.len() == 2 || (seen.is_empty() && missing.is_some()), "{tool}: {run}");
        let rate = |row: &Json| row["rate_hz"].as_f64().unwrap_or_else(|| panic!("{row}"));
        assert!(seen.is_sorted_by(|low, high| rate(low) >= rate(high)), "{seen:?}");
    }
    assert!(workspace.names().is_empty(), "{:?}", workspace.names());
    workspace
        .run(&[&arguments[..], &["--thresholds-us", "1"]].concat())
        .assert_code(2)
        .assert_says("2..=1023");
    workspace.run(&["bench", "noise-peers", "-d", "1ms"]).assert_code(2).assert_says("1s to 1h");
}
