//! Runs on simulated machines that a signal or a limit ends: they keep what they measured, and leave no machine.
//! Without QEMU the tests say so and pass.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value as Json;

use crate::support::{
    CommandOutput, Place, can_simulate, children, lives, rows, signal, wait_until,
};

/// Starts irqlab, and reads its stderr until `times` lines have `text`. Returns it with the rest of stderr.
fn started_until(
    workspace: &Place,
    line: &str,
    (text, times): (&str, usize),
) -> (Child, BufReader<std::process::ChildStderr>) {
    // A command of the guest, after ` -- `, is one argument.
    let (options, command) = line.split_once(" -- ").unwrap_or((line, ""));
    let mut arguments: Vec<&str> = options.split_whitespace().collect();
    if !command.is_empty() {
        arguments.extend(["--", command]);
    }
    let mut started = workspace.irqlab(&arguments);
    started.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = started.env("TMPDIR", workspace.path().join("tmp")).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while seen.lines().filter(|line| line.contains(text)).count() < times {
        let read = stderr.read_line(&mut seen).unwrap();
        assert!(read > 0, "{line} ended without {text:?}: {seen}");
    }
    (child, stderr)
}

/// All processes that irqlab's threads have started: machines are children of threads.
fn machines(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let file = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    let lists: Vec<String> = tasks.filter_map(|task| file(task).ok()).collect();
    lists
        .iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Runs irqlab until `until`: a text of stderr's lines, and how many lines have it. Sends the signal, and waits for the end. Asserts that no machine
/// and no temporary file are left.
fn stopped_at(line: &str, until: (&str, usize), kill: Signal) -> CommandOutput {
    let workspace = Place::new();
    std::fs::create_dir(workspace.path().join("tmp")).unwrap();
    let (mut child, mut stderr) = started_until(&workspace, line, until);
    let running = machines(child.id());
    assert!(!running.is_empty(), "a machine runs: {:?}", children(child.id()));
    signal(&child, kill);
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    stderr.read_to_string(&mut err).unwrap();
    let code = child.wait().unwrap().code();
    wait_until("the machines end", || running.iter().all(|pid| !lives(*pid)));
    let leftovers = crate::support::names(&workspace.path().join("tmp"));
    assert!(leftovers.is_empty(), "{leftovers:?}");
    CommandOutput { code, out, err }
}

/// Returns the run of a command that was stopped in its window. Asserts that the run is marked as partial, and that a
/// warning names `missing`.
#[track_caller]
fn partial(ended: &CommandOutput, missing: &str) -> Json {
    ended.assert_code(0);
    let run = ended.json();
    assert_eq!(run["complete"], false, "{}", ended.err);
    let warnings = run["warnings"].as_array().unwrap();
    let is_named = |warning: &Json| {
        let warning = warning.as_str().unwrap();
        warning.starts_with("missing, because ") && warning.contains(missing)
    };
    assert!(warnings.iter().any(is_named), "{missing:?} is not in {warnings:?}");
    run
}

#[test]
fn a_stop_in_a_window_keeps_it_and_names_the_other_condition() {
    if !can_simulate(&Place::new()) {
        return;
    }
    for (on, kill) in [("sim", Signal::TERM), ("sim:r4400-1994", Signal::INT)] {
        let line = format!(
            "handlers -v -j 1 --on {on} --stimulus timer --load busy --rate low,high -d 600s --json \
             --out run"
        );
        let ended = stopped_at(&line, ("busy/low/timer: window 1", 1), kill);
        let run = partial(&ended, "busy/low/timer after ");
        let conditions = rows(&run, "conditions");
        assert_eq!(conditions.len(), 1, "{conditions:?}");
        assert!(conditions[0]["window_ns"].as_u64() > Some(0), "{conditions:?}");
        assert!(ended.err.contains("busy/low/timer: stopping (window 1)"), "{}", ended.err);
        partial(&ended, "busy/high/timer");
    }
}

#[test]
fn a_stop_before_the_first_window_names_the_phase() {
    if !can_simulate(&Place::new()) {
        return;
    }
    let line =
        "handlers -v --on sim --stimulus none --load busy --rate low --warm-up 600s --out run";
    let ended = stopped_at(line, ("preparing the first window", 1), Signal::INT);
    ended.assert_code(1).assert_says("stopping (preparing the first window)");
    ended.assert_says("stopped before anything was measured; nothing was written");
    assert_eq!(ended.out, "");
}

#[test]
fn a_stopped_loop_keeps_its_detours() {
    if !can_simulate(&Place::new()) {
        return;
    }
    let line = "noise -v --on sim:r4400-1994 --loop detour,fwq -d 100s --until end --warm-up 1us --quantum 1ms --json --out run";
    let ended = stopped_at(line, ("loop detour: window 1", 1), Signal::TERM);
    let run = partial(&ended, "loop detour after ");
    partial(&ended, "loop fwq");
    assert!(rows(&run, "noise")[0]["window_ns"].as_u64() > Some(0), "{run}");
}

#[test]
fn a_stopped_command_keeps_its_services() {
    if !can_simulate(&Place::new()) {
        return;
    }
    for on in ["sim", "sim:r4400-1994"] {
        let line = format!(
            "services -v --on {on} --json --out run -- while true; do /bin/busybox true; done"
        );
        let ended = stopped_at(&line, ("command: window 1", 1), Signal::INT);
        let run = partial(&ended, "the command after ");
        assert!(!rows(&run, "services").is_empty(), "{run}");
    }
}

#[test]
fn a_stopped_footprint_keeps_its_repetitions() {
    if !can_simulate(&Place::new()) {
        return;
    }
    let line = "footprint -v -j 1 --on sim:r4400-1994 --level l1d,l1i,dtlb,itlb --stimulus timer,ipi \
                --method refined,basic --json --out run";
    // About 20 windows of both kinds.
    let ended = stopped_at(line, ("l1d: after window ", 6), Signal::TERM);
    // On a busy host further series end before the signal comes, but not all.
    let run = partial(&ended, "itlb");
    assert!((1..16).contains(&rows(&run, "footprint").len()), "{run}");
}

#[test]
fn a_stopped_signal_run_keeps_its_finished_windows() {
    if !can_simulate(&Place::new()) {
        return;
    }
    let line = "signal run -v -j 1 --on sim:r4400-1994 --loads idle --repetitions 4 --parts rates --rates 1k \
                --schemes drain,spin,deferred:5ms -d 40ms --json --out run";
    // With -v each machine names its phases. The second machine starts after the first one has ended. On a busy host
    // further ones end before the signal comes, but not all.
    let second_machine = "spin, idle, 1000 events/s: preparing the first window";
    let ended = stopped_at(line, (second_machine, 1), Signal::INT);
    let run = partial(&ended, " of 12 windows");
    assert!(!rows(&run, "rates").is_empty(), "{run}");
}

#[test]
fn a_stopped_boot_keeps_the_commands_counts() {
    if !can_simulate(&Place::new()) {
        return;
    }
    for detail in ["--detail count", "--on sim:r4400-1994 --boot fast"] {
        let line = format!(
            "sim boot {detail} --json --out run -- while true; do echo irqlab-$((1+1)); done"
        );
        let ended = stopped_at(&line, ("irqlab-2", 1), Signal::TERM);
        let run = partial(&ended, "what the command would have done");
        assert!(!rows(&run, "contexts").is_empty(), "{run}");
    }
}

#[test]
fn limits_on_the_hosts_clock_keep_what_was_measured() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let run = |line: &str| workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    let handlers = "handlers --on sim --stimulus none --load busy --rate low";
    // The machine boots at least once before, so that the second limit is for the window.
    run(&format!("{handlers} -d 1ms --out boot")).assert_code(0);
    let early = run(&format!("{handlers} -d 600s --limit 1ms --out early"));
    early.assert_code(124).assert_says("--limit").assert_says(" before ");
    // On a busy machine the start alone may reach the first limit.
    let late = [15, 30, 60, 120].into_iter().map(|seconds| {
        let limit = format!("--limit {seconds}s --json --out late-{seconds}");
        run(&format!("{handlers} -d 600s {limit}"))
    });
    let late = late.into_iter().find(|ended| !ended.err.contains(" before ")).expect("a window");
    late.assert_code(124).assert_says("(--limit)");
    assert_eq!(late.json()["complete"], false);
    assert!(rows(&late.json(), "conditions")[0]["window_ns"].as_u64() > Some(0));
}

/// The forecast is a line on stderr; results on stdout stay clean.
#[test]
fn a_forecast_comes_while_the_machine_runs() {
    if !can_simulate(&Place::new()) {
        return;
    }
    let line = "handlers --on sim:r4400-1994 --stimulus timer --load busy --rate low -d 600s --until end --json --out run";
    // Without -v only a forecast names the window.
    let ended = stopped_at(line, ("; busy/low/timer: window 1, ", 1), Signal::TERM);
    partial(&ended, "busy/low/timer after ");
}

#[test]
fn a_dry_run_prints_the_plan_and_the_times_of_earlier_runs() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let run = |line: &str| workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    // No other test has this warm-up, so the cache has no times of the request; of the condition it may have some.
    let handlers =
        "handlers --on sim --stimulus timer --load busy --rate low,high --warm-up 3ms -d 2s -j 1";
    run(&format!("{handlers} -q --out run")).assert_code(0);
    let plan = run(&format!("{handlers} --dry-run"));
    plan.assert_code(0);
    let windows = "warm-up of 3 ms, windows: 1, of 2000 ms each; time: about ";
    assert!(plan.out.contains(&format!("busy/low/timer: {windows}")), "{}", plan.out);
    assert!(plan.out.contains(&format!("busy/high/timer: {windows}")), "{}", plan.out);
    assert!(plan.out.contains("all, 1 at the same time: about "), "{}", plan.out);
    assert_eq!(workspace.names(), ["run"], "it measures nothing");
}

#[test]
fn a_boot_says_what_it_has_executed_and_what_limits_it() {
    if !can_simulate(&Place::new()) {
        return;
    }
    // No other run has this command and this limit, so the cache has no times for this run.
    let line = "sim boot --on sim:r4400-1994 --boot fast --guest-limit 599s --json --out run -- \
                while true; do : forecast; done";
    let says = "599 s of guest time (--guest-limit); command: window 1, ";
    let ended = stopped_at(line, (says, 1), Signal::TERM);
    partial(&ended, "the command would have done");
}

#[test]
fn a_dry_run_of_a_boot_has_the_time_of_an_equal_one() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let command = "echo dry";
    for options in ["--append quiet", "--append quiet --detail count"] {
        let mut arguments: Vec<&str> = ["sim", "boot", "-q"].to_vec();
        arguments.extend(options.split_whitespace());
        workspace.run(&[&arguments[..], &["--", command]].concat()).assert_code(0);
        let plan = workspace.run(&[&arguments[..], &["--dry-run", "--", command]].concat());
        plan.assert_code(0);
        assert!(plan.out.starts_with("command: until it ends; time: about "), "{}", plan.out);
        assert!(plan.out.contains("and 600 s of guest time (--guest-limit)"), "{}", plan.out);
    }
    let unknown = workspace.run(&["sim", "boot", "--dry-run", "--", "echo another command"]);
    let says = "time: not known, because the cache has no times";
    assert!(unknown.out.contains(says), "{}", unknown.out);
    assert!(workspace.names().is_empty(), "{:?}", workspace.names());
}

#[test]
fn a_machine_that_is_killed_at_its_limit_ends_irqlab_with_124() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let boot = workspace.run(&["sim", "boot", "-q", "--limit", "10ms", "--", "true"]);
    boot.assert_code(124).assert_says("was killed after 10ms (--limit)");
    let save = workspace.run(&["sim", "checkpoint", "never-saved", "--limit", "10ms"]);
    save.assert_code(124).assert_says("was not ready after 10ms (--limit)");
}

/// A second signal ends irqlab at once: nothing is kept, and no machine is left.
#[test]
fn a_second_stop_ends_irqlab_and_its_machines() {
    if !can_simulate(&Place::new()) {
        return;
    }
    let workspace = Place::new();
    std::fs::create_dir(workspace.path().join("tmp")).unwrap();
    let line = "handlers -v --on sim:r4400-1994 --stimulus timer --load busy --rate low -d 600s --until end --json --out run";
    let (mut child, mut stderr) = started_until(&workspace, line, ("busy/low/timer: window 1", 1));
    let running = machines(child.id());
    assert!(!running.is_empty(), "a machine runs: {:?}", children(child.id()));
    signal(&child, Signal::INT);
    let mut seen = String::new();
    while !seen.contains("busy/low/timer: stopping (window 1)") {
        assert!(stderr.read_line(&mut seen).unwrap() > 0, "it does not say that it stops: {seen}");
    }
    signal(&child, Signal::TERM);
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{status}");
    wait_until("the machines end", || running.iter().all(|pid| !lives(*pid)));
    assert_eq!(workspace.names(), ["tmp"], "nothing is kept");
}

#[test]
fn a_guest_that_floods_its_console_stops() {
    if !can_simulate(&Place::new()) {
        return;
    }
    let line =
        "services -v --on sim --json --out run -- yes 0123456789012345678901234567890123456789";
    let ended = stopped_at(line, ("command: window 1", 1), Signal::TERM);
    let run = partial(&ended, "the command after ");
    assert!(!rows(&run, "services").is_empty(), "{run}");
    assert!(!ended.err.contains("did not respond"), "{}", ended.err);
}

/// The limit of each machine comes in its window. A machine keeps its results until then, or fails without results.
#[test]
fn a_limit_in_a_reproduction_names_the_part() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "reproduce noise-t1 --models t1 --limit 1s -q --out run";
    let ended = workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    ended.assert_code(124).assert_says("--limit");
    assert!(workspace.names().is_empty(), "{:?}", workspace.names());
}
