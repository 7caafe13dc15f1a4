//! Runs that end early leave only the results that they measured.

use std::collections::BTreeSet;
use std::io::Read;
use std::process::Child;
use std::time::Duration;

use crate::support::{
    Place, alone, can_measure, lives, names, only_run, signal, start_with_sources, wait_until,
};
use rustix::process::Signal;
use serde_json::Value as Json;

/// Waits for the child. Returns its exit code, stdout and stderr.
fn ended(mut child: Child) -> (Option<i32>, String, String) {
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (child.wait().unwrap().code(), out, err)
}

/// Whether this process ignores SIGHUP: bit 0 of SigIgn in proc_pid_status(5).
fn ignores_hang_ups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 == 1
}

/// Starts a run of two conditions, and stops it after this time. Returns its directory, the PIDs of its stimuli,
/// and its stdout, or `None` if it ended before its first window.
fn stopped_in_the_window(kill: Signal, after: Duration) -> Option<(Place, Vec<u32>, String)> {
    let workspace = Place::new();
    let arguments = ["handlers", "-d", "600s", "--warm-up", "1ms", "--stimulus", "timer"];
    let options = ["--rate", "low,high", "--load", "busy", "--events", "none", "--json"];
    let mut command = workspace.irqlab(&[&arguments[..], &options].concat());
    let (child, sources) = start_with_sources(&mut command);
    std::thread::sleep(after);
    signal(&child, kill);
    let (code, out, err) = ended(child);
    if err.contains("stopped before anything was measured") {
        return None;
    }
    assert_eq!(code, Some(0), "{err}");
    Some((workspace, sources, out))
}

#[test]
fn an_interrupt_ends_the_run_and_keeps_what_was_measured() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    // Under nohup(1) irqlab also ignores hang-ups.
    let hang_up = if ignores_hang_ups() { Signal::TERM } else { Signal::HUP };
    for kill in [Signal::INT, hang_up] {
        // irqlab first calibrates its probes in situ, next to the load. This takes seconds, and longer on a busy
        // host. So the signal may come before the first window.
        let (workspace, sources, out) = [5, 20, 80]
            .into_iter()
            .find_map(|seconds| stopped_in_the_window(kill, Duration::from_secs(seconds)))
            .expect("a window opens within 80 s");
        let run: Json = serde_json::from_str(&out).unwrap();
        assert_eq!(run["complete"], false);
        let conditions = crate::support::rows(&run, "conditions");
        assert_eq!(conditions.len(), 1, "the second condition was never started");
        assert_eq!(conditions[0]["condition"], "busy/low/timer");
        assert!(conditions[0]["window_ns"].as_u64() > Some(0));
        assert!(sources.iter().all(|pid| !lives(*pid)), "no process is left");
        let dir = only_run(&workspace).display().to_string();
        let shown = workspace.run(&["show", &dir]);
        assert!(shown.assert_code(0).out.contains("warning: the run was cut short"));
    }
}

#[test]
fn an_interrupt_before_the_first_window_leaves_nothing() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    for kill in [Signal::TERM, Signal::QUIT] {
        let workspace = Place::new();
        let arguments =
            ["handlers", "--warm-up", "600s", "--stimulus", "timer", "--events", "none"];
        let (child, sources) = start_with_sources(&mut workspace.irqlab(&arguments));
        signal(&child, kill);
        let (code, out, err) = ended(child);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains("stopped before anything was measured; nothing was written"), "{err}");
        assert!(sources.iter().all(|pid| !lives(*pid)), "no process is left");
        assert!(workspace.names().is_empty(), "{:?}", workspace.names());
    }
}

/// Network namespaces of a process's threads.
fn namespaces(pid: u32) -> BTreeSet<String> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeSet::new() };
    let links = tasks.flatten().map(|task| std::fs::read_link(task.path().join("ns/net")));
    links.flatten().map(|link| link.display().to_string()).collect()
}

fn namespaces_of_all() -> BTreeSet<String> {
    let pids = names("/proc".as_ref());
    pids.iter().filter_map(|pid| pid.parse().ok()).flat_map(namespaces).collect()
}

#[test]
fn a_kill_leaves_no_process_no_namespace_and_no_file() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let own_namespaces = namespaces(std::process::id());
    for source in ["disk", "net"] {
        let (workspace, scratch) = (Place::new(), Place::new());
        let arguments = ["handlers", "-d", "600s", "--rate", "low", "--load", "busy"];
        let options = ["--events", "none", "--stimulus", source];
        let mut command = workspace.irqlab(&[&arguments[..], &options].concat());
        let (mut child, _) = start_with_sources(command.env("TMPDIR", scratch.path()));
        std::thread::sleep(Duration::from_millis(1500));
        let sources = crate::support::children(child.id());
        let made: BTreeSet<String> = sources
            .iter()
            .flat_map(|pid| namespaces(*pid))
            .filter(|namespace| !own_namespaces.contains(namespace))
            .collect();
        println!("{source}: {} processes, namespaces {made:?}", sources.len());
        assert!(!sources.is_empty());
        signal(&child, Signal::KILL);
        child.wait().unwrap();
        wait_until("its processes end", || sources.iter().all(|pid| !lives(*pid)));
        wait_until("its namespaces go", || namespaces_of_all().is_disjoint(&made));
        assert!(scratch.names().is_empty(), "{:?}", scratch.names());
        let runs = workspace.path().join("irqlab-runs");
        assert!(names(&runs).is_empty(), "{:?}", names(&runs));
    }
}

#[test]
fn the_next_start_removes_a_half_written_run_and_says_so() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let runs = workspace.path().join("irqlab-runs");
    let dead = u32::MAX; // beyond any pid_max
    let half = runs.join(format!(".20261121T000000Z-handlers.partial-{dead}"));
    std::fs::create_dir_all(half.join("tables")).unwrap();
    std::fs::write(half.join("manifest.json"), "{").unwrap();
    let run = workspace.run(&["handlers", "-d", "50ms", "--events", "none"]);
    run.assert_code(0).assert_says("leftovers of a killed run: removed irqlab-runs/.2026");
    assert!(!half.exists());
    only_run(&workspace);
}
