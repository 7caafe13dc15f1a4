//! `irqlab wakeup` as a user runs it. No assertion is on a time.

use std::process::{Child, Command, Stdio};

use crate::support::{
    Place, absence, alone, check_refused, check_wakeup_sums, rows, signal, uint, wait_until,
};
use rustix::process::Signal;
use serde_json::Value as Json;

#[test]
fn invalid_options_are_named() {
    check_refused(&["wakeup", "-c", "9999"], "CPU 9999 is not online here; online: ");
    check_refused(
        &["wakeup", "--no-trace", "--on-threshold", "1ms:trace"],
        "which --no-trace leaves out",
    );
    check_refused(&["wakeup", "-c", "0", "-H", "0"], "CPU 0 is in -c and in -H");
    check_refused(&["wakeup", "-p", "1us"], "allowed: 10us to 10s");
    check_refused(&["wakeup", "-p", "2s", "-d", "1s"], "-d is shorter than the period -p");
    check_refused(&["wakeup", "--policy", "fifo:100"], "allowed: other, fifo:PRIO or rr:PRIO");
    check_refused(
        &["wakeup", "--policy", "deadline:1ms"],
        "allowed: deadline:RUNTIME,DEADLINE,PERIOD",
    );
    check_refused(
        &["wakeup", "--policy", "deadline:2ms,1ms,4ms"],
        "a DEADLINE not below it, and a PERIOD not below the DEADLINE",
    );
    check_refused(&["wakeup", "--wait", "futex"], "allowed: nanosleep, timerfd");
    check_refused(
        &["wakeup", "--idle-exit-max", "10ns"],
        "allowed: whole microseconds with a unit",
    );
    check_refused(&["wakeup", "--keep-worst", "0"], "1..=1000");
    check_refused(
        &["wakeup", "--wake-by", "signal"],
        "allowed: timer, futex, eventfd, packet, disk",
    );
    check_refused(
        &["wakeup", "--waker-cpu", "0"],
        "--waker-cpu needs --wake-by futex, eventfd or packet",
    );
    check_refused(
        &["wakeup", "--wake-by", "futex", "--waker-cpu", "9999"],
        "CPU 9999 is not online here",
    );
    check_refused(&["wakeup", "--disk-file", "/dev/vda"], "--disk-file needs --wake-by disk");
    check_refused(&["wakeup", "--wake-by", "disk", "--no-trace"], "leave --no-trace out");
}

#[test]
fn every_period_is_counted_and_the_parts_of_each_wake_up_add_up() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["wakeup", "-q", "-d", "640ms", "--keep-worst", "20", "--json", "--out", "run"];
    let run = workspace.run(&arguments).assert_code(0).json();
    assert_eq!((&run["experiment"], &run["complete"]), (&"wakeup".into(), &true.into()));
    let wakeup = rows(&run, "wakeup");
    for row in wakeup {
        // 640 periods begin in 640 ms, wherever the first one begins.
        assert_eq!(uint(row, "wakeup_count") + uint(row, "missed_count"), 640, "{row}");
        assert_eq!(uint(row, "lost_record_count"), 0);
        let histogram =
            rows(&run, "late_histogram").iter().filter(|slot| slot["cpu"] == row["cpu"]);
        let counted: u64 = histogram.map(|slot| uint(slot, "wakeup_count")).sum();
        assert_eq!(counted, uint(row, "wakeup_count"));
    }
    if let Some(reason) = absence(&run, "why the threads were late") {
        assert!(rows(&run, "worst").iter().all(|row| row["largest_ns"].is_null()));
        return needs::not_run(needs::Need::Bpf, reason);
    }
    check_wakeup_sums(&run);
    check_chains(&run, |first| first["kind"] != "task");
    assert_eq!(run["observer"]["compared_pairs"], 16, "{}", run["observer"]);
    let shown = workspace.run(&["show", "run", "--json"]);
    assert_eq!(shown.assert_code(0).json(), run);
    workspace.run(&["report", "run", "-o", "report.html"]).assert_code(0);
    let page = std::fs::read_to_string(workspace.path().join("report.html")).unwrap();
    assert!(page.contains("The worst wake-up was "), "the answer");
    workspace.run(&["export", "run", "--format", "hlog", "-o", "late.hlog"]).assert_code(0);
}

/// Each chain of wakers begins with a waker that satisfies `is_expected`, goes back in time, and says why it ends.
fn check_chains(run: &Json, is_expected: impl Fn(&Json) -> bool) {
    if let Some(reason) = absence(run, "who woke the threads") {
        return needs::not_run(needs::Need::Bpf, reason);
    }
    let worst = rows(run, "worst");
    let steps = rows(run, "wakers");
    let mut chains = 0;
    for row in worst.iter().filter(|row| !row["wakers"].is_null()) {
        let is_of_row = |step: &&Json| step["cpu"] == row["cpu"] && step["rank"] == row["rank"];
        let chain: Vec<&Json> = steps.iter().filter(is_of_row).collect();
        assert!((1..=4).contains(&chain.len()), "{row}");
        assert!(is_expected(chain[0]), "{}", chain[0]);
        assert_eq!(uint(chain[0], "before_ns"), 0, "{}", chain[0]);
        let before: Vec<u64> = chain.iter().map(|step| uint(step, "before_ns")).collect();
        assert!(before.is_sorted(), "{before:?}");
        let ends = chain.iter().filter(|step| !step["chain_end"].is_null()).count();
        assert_eq!((ends, chain[chain.len() - 1]["chain_end"].is_null()), (1, false), "{chain:?}");
        chains += 1;
    }
    assert!(chains > 0, "{worst:?}");
}

/// Every period of the window is in one column. The first stage is on the waker's CPU, and no timer is a cause.
#[test]
fn a_thread_that_another_thread_wakes_has_parts_that_add_up_from_the_sending_on() {
    let _alone = alone();
    let workspace = Place::new();
    for wake_by in ["futex", "eventfd", "packet"] {
        let arguments = ["wakeup", "-q", "-d", "320ms", "--no-comparison", "--keep-worst", "20"];
        let options = ["--wake-by", wake_by, "--json", "--out", wake_by];
        let run = workspace.run(&[&arguments[..], &options].concat()).assert_code(0).json();
        let settings = &run["settings"];
        assert_eq!(settings["wake_by"], wake_by);
        assert!(settings["waker_cpus"].is_string(), "{settings}");
        assert!(settings["waker_scheduler"].is_string(), "{settings}");
        for row in rows(&run, "wakeup") {
            let counts = ["wakeup_count", "missed_count", "waker_missed_count", "not_asleep_count"];
            let periods: u64 = counts.iter().map(|column| uint(row, column)).sum();
            assert_eq!(periods, 320, "{row}");
            assert!(uint(row, "wakeup_count") > 0, "{row}");
        }
        let page = format!("{wake_by}.html");
        workspace.run(&["report", wake_by, "-o", &page]).assert_code(0);
        if let Some(reason) = absence(&run, "why the threads were late") {
            return needs::not_run(needs::Need::Bpf, reason);
        }
        check_wakeup_sums(&run);
        let causes = rows(&run, "causes");
        assert!(causes.iter().all(|row| row["stage"] != "expiry"), "{causes:?}");
        assert!(causes.iter().all(|row| row["class"] != "late timer"), "{causes:?}");
        // A softirq delivers the packet, mostly in the waker itself.
        let is_waker_thread = |first: &Json| match wake_by {
            "packet" => first["kind"] == "softirq" && first["name"] == "NET_RX",
            _ => first["kind"] == "task" && first["name"] == "irqlab-waker",
        };
        check_chains(&run, is_waker_thread);
        let is_waker = |row: &&Json| row["stage"] == "waking" && row["name"] == "the waker";
        assert!(causes.iter().any(|row| is_waker(&row)), "{causes:?}");
    }
    let shown = workspace.run(&["wakeup", "-q", "-d", "50ms", "--no-trace", "--wake-by", "futex"]);
    assert!(shown.assert_code(0).out.contains("woken by futex"), "{}", shown.out);
}

/// Every period is in one column, and each wake-up begins with the handler of the disk's interrupt.
#[test]
fn a_thread_that_a_disk_wakes_has_parts_that_add_up_from_the_interrupt_on() {
    let _alone = alone();
    let workspace = Place::new();
    let memory = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    std::fs::write(memory.path(), [0; 8192]).unwrap();
    let path = memory.path().to_str().unwrap();
    let refused = workspace.run(&["wakeup", "-q", "--wake-by", "disk", "--disk-file", path]);
    refused.assert_code(4).assert_says("is on tmpfs, which is memory").assert_says("--disk-file");
    let arguments = ["wakeup", "-q", "-p", "2ms", "-d", "320ms", "--no-comparison"];
    let options = ["--wake-by", "disk", "--keep-worst", "20", "--json", "--out", "run"];
    let finished = workspace.run(&[&arguments[..], &options].concat());
    if finished.code == Some(4) {
        let need =
            if finished.err.contains("probes") { needs::Need::Bpf } else { needs::Need::Disk };
        return needs::not_run(need, finished.err);
    }
    let run = finished.assert_code(0).json();
    assert_eq!(run["settings"]["wake_by"], "disk");
    assert!(run["settings"]["disk"].is_string(), "{}", run["settings"]);
    for row in rows(&run, "wakeup") {
        let counts = ["wakeup_count", "missed_count", "not_asleep_count", "no_interrupt_count"];
        let periods: u64 = counts.iter().map(|column| uint(row, column)).sum();
        assert_eq!(periods, 160, "{row}");
        assert!(uint(row, "wakeup_count") > 0, "{row}");
        assert!(uint(row, "until_interrupt_p50_ns") > 0, "{row}");
        assert!(row["waker_missed_count"].is_null() && row["late_timer_ratio"].is_null(), "{row}");
    }
    check_wakeup_sums(&run);
    let parts = rows(&run, "worst_parts");
    assert!(parts.iter().all(|part| part["stage"] != "expiry"), "{parts:?}");
    for worst in rows(&run, "worst") {
        let is_of_wakeup =
            |part: &&Json| part["cpu"] == worst["cpu"] && part["rank"] == worst["rank"];
        let first = parts.iter().find(is_of_wakeup).unwrap();
        assert_eq!((&first["stage"], &first["kind"]), (&"waking".into(), &"irq".into()), "{first}");
    }
    workspace.run(&["report", "run", "-o", "run.html"]).assert_code(0);
}

#[test]
fn runs_that_differ_in_what_wakes_the_threads_are_compared_with_a_warning() {
    let _alone = alone();
    let workspace = Place::new();
    for wake_by in ["timer", "futex"] {
        let arguments = ["wakeup", "-q", "-d", "50ms", "--no-trace", "--wake-by", wake_by];
        workspace.run(&[&arguments[..], &["--out", wake_by]].concat()).assert_code(0);
    }
    let compared = workspace.run(&["compare", "timer", "futex"]);
    let warning = "setting wake_by differs: \"timer\" and \"futex\"";
    assert!(compared.out.contains(warning), "{}", compared.out);
}

/// Ends the process when the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program of higher priority takes the CPU again and again. Wake-ups that are due meanwhile have it as their cause.
#[test]
fn a_task_of_higher_priority_is_the_cause_of_the_worst_wake_ups() {
    let _alone = alone();
    let workspace = Place::new();
    let hog = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.02; done";
    let mut command = Command::new("chrt");
    command.args(["-f", "98", "taskset", "-c", "0", "sh", "-c", hog]).stdin(Stdio::null());
    let Ok(hog) = command.spawn() else {
        return needs::not_run(needs::Need::Other, "there is no chrt(1)");
    };
    let _hog = Ended(hog);
    let arguments = ["wakeup", "-q", "-c", "0", "-d", "2s", "--no-comparison", "--keep-worst", "5"];
    let ended = workspace.run(&[&arguments[..], &["--json"]].concat());
    let run = ended.assert_code(0).json();
    if let Some(reason) = absence(&run, "why the threads were late") {
        return needs::not_run(needs::Need::Bpf, reason);
    }
    if run["settings"]["scheduler"] != "SCHED_FIFO 95" {
        return needs::not_run(needs::Need::Fifo, "SCHED_FIFO is refused");
    }
    check_wakeup_sums(&run);
    let is_hog =
        |row: &&Json| row["class"] == "tasks" && row["kind"] == "task" && row["name"] == "sh";
    let hog = rows(&run, "causes").iter().find(is_hog).unwrap_or_else(|| panic!("{run}"));
    assert!(uint(hog, "wakeup_count") >= 10, "{hog}");
    let worst = rows(&run, "worst");
    let caused = worst.iter().filter(|row| row["largest_name"] == "sh").count();
    assert!(caused >= 3, "{worst:?}");
    // Its spins take several periods, which a late thread leaves out.
    assert!(uint(&rows(&run, "wakeup")[0], "missed_count") > 0);
}

#[test]
fn a_commands_end_ends_the_window_and_its_failure_is_the_exit_code() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["wakeup", "-q", "--no-trace", "-c", "0", "--json", "--"];
    let run = |command: &[&str]| workspace.run(&[&arguments[..], command].concat());
    let window_ns = |command: &[&str]| {
        let run = run(command).assert_code(0).json();
        assert_eq!(run["complete"], true);
        uint(&run["settings"], "measured_window_ns")
    };
    assert!(window_ns(&["sleep", "0.3"]) >= 300_000_000);
    assert!(window_ns(&["sleep", "0.6"]) >= 600_000_000);
    let failed = run(&["sh", "-c", "sleep 0.1; exit 9"]).assert_code(9).json();
    assert_eq!(failed["warnings"][0], "the command failed: exit status: 9", "{failed}");
    run(&["no-such-program"]).assert_says("no-such-program");
    let timed = ["wakeup", "-q", "--no-trace", "-c", "0", "-d", "200ms", "--json", "--"];
    let timed = |command: &[&str]| workspace.run(&[&timed[..], command].concat());
    let whole = timed(&["sleep", "600"]).assert_code(0).json();
    assert_eq!(whole["settings"]["command_ended"], Json::Null, "{whole}");
    // Whoever reads the run later must know that most of its window had no load.
    let early = timed(&["true"]).assert_code(0).json();
    assert_eq!(early["settings"]["command_ended"], "exit status: 0", "{early}");
    let is_said = |warning: &Json| {
        warning.as_str().is_some_and(|text| text.starts_with("the command ended by itself before"))
    };
    assert!(early["warnings"].as_array().unwrap().iter().any(is_said), "{early}");
}

#[test]
fn a_stop_keeps_the_wake_ups_until_then() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["wakeup", "-q", "--no-comparison", "-p", "2ms", "-d", "1h", "--json"];
    let mut command = workspace.irqlab(&arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let threads = format!("/proc/{}/task", child.id());
    let runs = || {
        let tasks = std::fs::read_dir(&threads).into_iter().flatten().flatten();
        let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.flatten().any(|name| name.starts_with("irqlab-wakeup"))
    };
    wait_until("a measured thread", runs);
    std::thread::sleep(std::time::Duration::from_secs(1));
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let run: Json = serde_json::from_slice(&output.stdout).expect("a run in JSON");
    assert_eq!((output.status.code(), &run["complete"]), (Some(0), &false.into()));
    let [row, ..] = rows(&run, "wakeup") else { panic!("{run}") };
    assert!(uint(row, "wakeup_count") > 0, "{row}");
    let window_ns = uint(&run["settings"], "measured_window_ns");
    let periods = uint(row, "wakeup_count") + uint(row, "missed_count");
    // The window ended at the signal, at most one period after the last due time of the thread.
    assert!((periods * 2_000_000).abs_diff(window_ns) <= 200_000_000, "{window_ns} {row}");
}

/// Every wake-up is later than 1 ns. None is an hour late.
#[test]
fn a_threshold_ends_the_window_and_then_starts_its_actions() {
    let _alone = alone();
    let workspace = Place::new();
    let mut sleeper = Ended(Command::new("sleep").arg("600").spawn().unwrap());
    let arguments = ["wakeup", "-q", "--no-comparison", "-c", "0", "-d", "1h", "--json"];
    let end_sleeper = format!("1ns:signal=TERM,{}", sleeper.0.id());
    let actions = ["--on-threshold", "1ns:run=touch over-{cpu}", "--on-threshold", &end_sleeper];
    let later = ["--on-threshold", "3600s:run=touch never"];
    let ended = workspace.run(&[&arguments[..], &actions, &later].concat());
    let run = ended.assert_code(3).assert_says("ns late").json();
    assert_eq!(run["complete"], true);
    assert_eq!(run["settings"]["threshold_ns"], 1);
    assert!(uint(&rows(&run, "wakeup")[0], "wakeup_count") > 0);
    assert!(workspace.path().join("over-0").exists() && !workspace.path().join("never").exists());
    assert!(!sleeper.0.wait().unwrap().success());

    let refused = |action: &str, says: &str| {
        check_refused(&["wakeup", "-d", "1s", "--on-threshold", action], says);
    };
    refused("1ms:run=no-such-program", "there is no program \"no-such-program\"");
    // This process has ended, and this test waited for it.
    refused(&format!("1ms:signal=TERM,{}", sleeper.0.id()), "--on-threshold: process");
    refused(
        "1ms",
        "allowed: TIME:stop, TIME:trace, TIME:continue, TIME:run=COMMAND or TIME:signal=NAME,PID",
    );
    let timed = ["wakeup", "-q", "--no-trace", "-c", "0", "-d", "200ms"];
    let within = [&timed[..], &["--on-threshold", "3600s:stop"]].concat();
    workspace.run(&within).assert_code(0);
    let failing = [&timed[..], &["--on-threshold", "1ns:run=false"]].concat();
    workspace.run(&failing).assert_code(3).assert_says("--on-threshold: false: exit status: 1");
}

#[test]
fn a_window_that_goes_on_counts_the_wake_ups_over_the_threshold() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["wakeup", "-q", "--no-comparison", "-c", "0", "-d", "640ms", "--json"];
    let thresholds =
        ["--on-threshold", "1ns:continue", "--on-threshold", "1ns:run=touch over-{cpu}"];
    let ended = workspace.run(&[&arguments[..], &thresholds].concat());
    let run = ended.assert_code(3).assert_says("the window went on (--on-threshold)").json();
    let row = &rows(&run, "wakeup")[0];
    assert_eq!(uint(row, "wakeup_count") + uint(row, "missed_count"), 640, "{row}");
    assert_eq!(uint(row, "over_threshold_count"), uint(row, "wakeup_count"));
    assert!(run["settings"]["threshold_stop_ns"].is_null());
    assert!(workspace.path().join("over-0").exists());
}

#[test]
fn the_flight_record_has_the_last_of_the_window_with_its_late_wake_ups() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["wakeup", "-q", "--no-comparison", "-c", "0", "-d", "640ms", "--json"];
    let ended = workspace.run(&[&arguments[..], &["--flight-record", "100ms"]].concat());
    let run = ended.assert_code(0).json();
    if let Some(reason) = absence(&run, "the last seconds") {
        return needs::not_run(needs::Need::Bpf, reason);
    }
    let setting = |key: &str| uint(&run["settings"], key);
    assert_eq!(setting("flight_record_length_ns"), 100_000_000);
    assert_eq!(setting("flight_record_dropped_events"), 0);
    let start_ns = setting("flight_record_start_ns");
    let record = rows(&run, "flight_record");
    let is_measured = |row: &&Json| row["kind"] == "late wake-up";
    for row in record.iter().filter(|row| !is_measured(row)) {
        let [from_ns, length_ns] = ["start_ns", "length_ns"].map(|column| uint(row, column));
        assert!(start_ns <= from_ns, "{row}");
        assert!(from_ns + length_ns <= start_ns + 100_000_000, "{row}");
    }
    for kind in ["thread", "task", "wake-up"] {
        assert!(record.iter().any(|row| row["kind"] == kind), "{kind}: {record:?}");
    }
    // A late wake-up of the record is in table worst.
    for row in record.iter().filter(is_measured) {
        let is_it = |worst: &&Json| worst["late_ns"] == row["length_ns"];
        assert!(rows(&run, "worst").iter().any(|worst| is_it(&worst)), "{row}");
    }
}

/// Every wake-up is later than 1 ns. The window goes on, but the record does not.
#[test]
fn a_threshold_keeps_the_flight_record() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["wakeup", "-q", "--no-comparison", "-c", "0", "-d", "1500ms", "--json"];
    let thresholds = ["--on-threshold", "1ns:trace", "--on-threshold", "1ns:continue"];
    let ended = workspace.run(&[&arguments[..], &thresholds].concat());
    let run = ended.assert_code(3).json();
    if let Some(reason) = absence(&run, "the last seconds") {
        return needs::not_run(needs::Need::Bpf, reason);
    }
    assert_eq!(run["settings"]["flight_record_at_threshold"], true);
    assert_eq!(run["settings"]["flight_record_ns"], 5_000_000_000_u64);
    let setting = |key: &str| uint(&run["settings"], key);
    let end_ns = setting("flight_record_start_ns") + setting("flight_record_length_ns");
    assert!(end_ns < setting("measured_window_ns"), "{}", run["settings"]);
    assert!(!rows(&run, "flight_record").is_empty());
}

/// The record of 60,000 wake-ups is larger than the file system.
#[test]
fn a_full_disk_costs_the_flight_record_and_no_other_table() {
    let _alone = alone();
    let workspace = Place::new();
    // The mount is in this shell's namespace alone, so the shell also reads the run.
    let script = "mount -t tmpfs -o size=400k tmpfs . || exit 77; cd \"$PWD\"; \"$@\"; code=$?; \
                  \"$1\" show run --json > /dev/null || exit 99; exit $code";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", crate::support::IRQLAB]);
    command.args(["wakeup", "-q", "--no-comparison", "-c", "0", "-p", "50us", "-d", "3s"]);
    command.args(["--flight-record", "10s", "--out", "run", "--json"]);
    command.current_dir(workspace.path());
    let ended = crate::support::CommandOutput::of(&mut command);
    if ended.code == Some(77) || ended.err.contains("unshare") {
        return needs::not_run(needs::Need::Namespaces, &ended.err);
    }
    let run = ended.json();
    if let Some(reason) = absence(&run, "the last seconds") {
        return needs::not_run(needs::Need::Bpf, reason);
    }
    ended.assert_says("the flight record is not recorded: cannot write");
    ended.assert_code(0);
}
