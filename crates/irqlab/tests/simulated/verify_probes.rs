//! Compares the live bench in a simulated machine with the simulator's record. Without QEMU the test says so and passes.

use crate::support::{Place, can_simulate, check_refused, rows, uint};
use crate::user_functions::write_program;
use serde_json::Value as Json;

/// Maximum relative error of the mean of instructions.
const INSTRUCTIONS_ERROR_MAX: f64 = 0.05;
/// Maximum relative error of the mean of cycles. Unoptimised programs keep less of the probes in the caches, but
/// irqlab subtracts the cost of reading the counters as if the probes were cached (docs/sim.md).
const CYCLES_ERROR_MAX: f64 = 0.2;
/// Maximum relative error of the mean time. The window here is much shorter than in the documented table.
const TIME_ERROR_MAX: f64 = 0.1;
fn number(row: &Json, column: &str) -> f64 {
    row[column].as_f64().unwrap_or_else(|| panic!("{column}: {row}"))
}

/// Relative difference of two numbers.
fn difference_ratio(value: f64, reference: f64) -> f64 {
    (value / reference - 1.0).abs()
}

#[test]
fn the_probes_of_a_disk_agree_with_the_simulator() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["sim", "verify-probes", "-q", "--json", "--events", "--stimulus", "disk"];
    let options = ["--disk", "virtio-blk,latency=100us", "-d", "200ms", "--warm-up", "50ms"];
    let run = workspace.run(&[&arguments[..], &options[..]].concat()).assert_code(0).json();
    let disk = rows(&run, "probes").iter().find(|row| row["kind"] == "irq");
    let disk = disk.unwrap_or_else(|| panic!("no disk: {run}"));
    assert!(number(disk, "measured_count") >= 100.0, "{disk}");
    assert_eq!(disk["measured_count"], disk["exact_count"], "{disk}");
    assert_eq!(disk["measured_event_span_count"], disk["exact_event_span_count"], "{disk}");
    assert!(number(disk, "self_mean_error_ratio").abs() < TIME_ERROR_MAX, "{disk}");
    assert!(number(disk, "instructions_error_ratio").abs() < INSTRUCTIONS_ERROR_MAX, "{disk}");
    assert!(number(disk, "cycles_error_ratio").abs() < CYCLES_ERROR_MAX, "{disk}");
    // A handler does the same work in the window of times and in the window of events, except for its start.
    let [times, events] = ["exact_self_mean_instructions", "exact_mean_instructions"]
        .map(|column| number(disk, column));
    assert!(difference_ratio(times, events) < 0.1, "{disk}");
}

/// Planted senders have exact counts, and each of their calls its run. A kernel with the tracepoints of senders (Linux 6.5) has the
/// same counts by the live bench; on another one, a warning says why it has none.
#[test]
fn planted_senders_are_compared_with_the_simulator() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let written = write_program(workspace.path(), "senders.S", &[], "/tmp/sends");
    let command = format!("{written}; /tmp/sends");
    let options = ["sim", "verify-probes", "-q", "--json", "--senders", "--vcpus", "2"];
    let run = workspace.run(&[&options[..], &["--", &command]].concat()).assert_code(0).json();
    let senders = rows(&run, "probe_senders");
    assert!(senders.iter().all(|row| row["name"] != "__bpf_prog_test_run_raw_tp"), "{senders:#?}");
    for (name, planted) in [("ipi_mb", 200), ("flush_tlb_func", 100), ("reschedule", 50)] {
        let planted_row = |row: &&Json| row["name"] == name && row["sender"] == "sends";
        let found: Vec<&Json> = senders.iter().filter(planted_row).collect();
        // A side without a row may have it under the name of another call site.
        let sum = |column: &str| found.iter().filter_map(|row| row[column].as_u64()).sum::<u64>();
        let count = sum("exact_count");
        assert!((planted / 4..=planted + 10).contains(&count), "{name}: {senders:#?}");
        if found.iter().any(|row| row["measured_count"].is_number()) {
            assert_eq!(sum("measured_count"), count, "{name}: {senders:#?}");
        } else {
            let warnings = run["warnings"].to_string();
            assert!(warnings.contains("this kernel has no tracepoint"), "{warnings}");
        }
        for row in found {
            assert_eq!(row["exact_joined_count"], row["exact_count"], "{row}");
            if row["kind"] == "call" {
                let wait = number(row, "exact_wait_mean_ns");
                assert!(wait > number(row, "exact_run_mean_ns"), "{row}");
            }
        }
    }
}

/// The probes read the clock soon after they start. So the error of a mean delay is below the cost of a program. The programs at
/// the timers of the softirq TIMER are no self time of it: without them, the probes would seem to make it faster.
#[test]
fn the_delays_of_threads_and_timers_agree_with_the_simulator() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["sim", "verify-probes", "-q", "--json", "--delays", "--stimulus", "disk"];
    let machine = ["--disk", "virtio-blk,latency=100us", "--append", "threadirqs"];
    let options = ["-d", "200ms", "--warm-up", "50ms"];
    let run = workspace.run(&[&arguments[..], &machine, &options].concat()).assert_code(0).json();
    let cost_ns = |function: &str| {
        let cost = rows(&run, "probe_costs").iter().find(|row| row["function"] == function);
        number(cost.unwrap_or_else(|| panic!("no {function}: {run}")), "mean_ns")
    };
    for (kind, count_min, function) in [
        ("irq_thread", 100, "__bpf_trace_sched_switch"),
        ("hrtimer", 20, "__bpf_trace_hrtimer_expire_entry"),
    ] {
        let is_wanted = |row: &&Json| row["kind"] == kind && uint(row, "measured_count") > 0;
        let all = rows(&run, "probe_delays").iter().filter(is_wanted);
        let row = all.max_by_key(|row| uint(row, "measured_count"));
        let row = row.unwrap_or_else(|| panic!("no {kind}: {run}"));
        let (measured, exact) = (uint(row, "measured_count"), uint(row, "exact_count"));
        assert!(measured >= count_min && measured.abs_diff(exact) <= 2, "{row}");
        assert!(number(row, "mean_error_ns").abs() < cost_ns(function), "{row}");
    }
    assert!(cost_ns("__bpf_trace_timer_expire_entry") > 0.0);
    assert!(cost_ns("__bpf_trace_workqueue_queue_work") > 0.0);
    let timer = rows(&run, "probes").iter().find(|row| row["name"] == "TIMER");
    let timer = timer.unwrap_or_else(|| panic!("no softirq TIMER: {run}"));
    assert!(number(timer, "exact_probe_overhead_mean_ns") > 0.0, "{timer}");
}

#[test]
fn options_of_the_other_experiment_are_refused() {
    let refused = |options: &[&str], says: &str| {
        check_refused(&[&["sim", "verify-probes"], options].concat(), says);
    };
    refused(&["--hog"], "--period, --hog and --withhold work only with --experiment wakeup");
    refused(
        &["--experiment", "wakeup", "--events"],
        "--events works only with --experiment handlers",
    );
    refused(
        &["--experiment", "wakeup", "--senders"],
        "--senders and a command work only with --experiment handlers",
    );
    refused(&["--stimulus", "ipi", "--", "true"], "--stimulus and a command cannot be combined");
    refused(
        &["--experiment", "wakeup", "--delays"],
        "--delays works only with --experiment handlers",
    );
    refused(&["--withhold"], "work only with --experiment wakeup");
    refused(&["--experiment", "wakeup", "-d", "1h"], "the guest keeps all parts of all of them");
    refused(&["--experiment", "wakeup", "-p", "1s", "-d", "10ms"], "no thread would wake up");
}

/// Each wake-up has the same parts on both sides, and they add up to the lateness, to the nanosecond. A task of a higher
/// priority delays some wake-ups.
#[test]
fn the_live_bench_of_wakeup_agrees_with_the_simulator() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["sim", "verify-probes", "-q", "--json", "--experiment", "wakeup", "--hog"];
    let options = ["-d", "120ms", "-p", "500us", "--warm-up", "20ms"];
    let run = workspace.run(&[&arguments[..], &options[..]].concat()).assert_code(0).json();
    let wakeups = &rows(&run, "wakeups")[0];
    let count = uint(wakeups, "wakeup_count");
    assert!((200..=240).contains(&count), "{wakeups}");
    assert_eq!(uint(wakeups, "joined_count"), count, "{wakeups}");
    assert_eq!(uint(wakeups, "measured_only_count"), 0, "{wakeups}");
    assert_eq!(uint(wakeups, "lost_event_count"), 0, "{wakeups}");
    let late = uint(wakeups, "late_total_ns");
    assert_eq!(uint(wakeups, "measured_total_ns"), late, "{wakeups}");
    assert_eq!(uint(wakeups, "exact_total_ns"), late, "{wakeups}");
    for table in ["parts", "causes"] {
        let sum = |column: &str| rows(&run, table).iter().map(|row| uint(row, column)).sum::<u64>();
        assert_eq!((sum("measured_total_ns"), sum("exact_total_ns")), (late, late), "{table}");
        for row in rows(&run, table) {
            assert_ne!(row["verdict"], "differs", "{row}");
        }
    }
    // Both sides see the same causes in the same wake-ups, also the task that was injected.
    let counts = |row: &Json| (uint(row, "measured_count"), uint(row, "exact_count"));
    let hog = rows(&run, "causes")
        .iter()
        .find(|row| row["name"] == "irqlab-hog" && row["class"] == "tasks")
        .unwrap_or_else(|| panic!("no injected delay: {run}"));
    let (measured, exact) = counts(hog);
    assert!(exact > 0 && measured == exact, "{hog}");
    let timer = |row: &&Json| row["name"] == "local_timer" && row["stage"] == "expiry";
    let timer = rows(&run, "causes").iter().find(timer).unwrap_or_else(|| panic!("{run}"));
    // A timer can expire while the thread is still on its way to sleep: then only one of the sides may see an event.
    let is_awake = |row: &&Json| row["stage"] == "expiry" && row["name"] == "the measured thread";
    let awake: u64 = rows(&run, "causes").iter().filter(is_awake).map(|row| counts(row).1).sum();
    assert!(awake * 10 <= count, "{run}");
    assert!(counts(timer).0.abs_diff(counts(timer).1) <= awake, "{timer}");
    // The live bench finds each long delay by the task, under its name.
    let delays = rows(&run, "delays");
    let hog = delays.iter().find(|row| row["name"] == "irqlab-hog");
    let hog = hog.unwrap_or_else(|| panic!("{delays:?}"));
    assert_eq!(hog["class"], "tasks", "{hog}");
    assert!(uint(hog, "wakeup_count") > 0, "{hog}");
    assert_eq!(uint(hog, "found_count"), uint(hog, "wakeup_count"), "{hog}");
    assert!(uint(hog, "within_count") > 0, "{hog}");
    // No wake-up is joined with another one, and no clock with another time.
    let probe_ns = number(wakeups, "probe_cost_ns");
    for row in rows(&run, "instants").iter().filter(|row| row["error_ns"].is_number()) {
        assert!(counts(row).0.abs_diff(counts(row).1) <= awake, "{row}");
        assert!(number(row, "error_max_ns") < 10.0 * probe_ns, "{row}");
    }
}

/// The simulated host withholds the CPU. The live bench has this time in the part `late timer`, at the same length as the
/// simulator, and each part contains the host's time in it. The result is the same again, to the byte.
#[test]
fn the_live_bench_of_wakeup_finds_each_timer_that_the_host_made_late() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["sim", "verify-probes", "-q", "--json", "--experiment", "wakeup"];
    let options = ["--withhold", "-d", "60ms", "-p", "500us", "--warm-up", "20ms"];
    let measure = || workspace.run(&[&arguments[..], &options[..]].concat()).assert_code(0).json();
    let run = measure();
    let wakeups = &rows(&run, "wakeups")[0];
    assert!((9..=12).contains(&uint(wakeups, "withheld_count")), "{wakeups}");
    let late = uint(wakeups, "late_total_ns");
    assert_eq!(uint(wakeups, "measured_total_ns"), late, "{wakeups}");
    assert_eq!(uint(wakeups, "exact_total_ns"), late, "{wakeups}");
    let host = rows(&run, "delays").iter().find(|row| row["kind"] == "host");
    let host = host.unwrap_or_else(|| panic!("no timer was due while the CPU was withheld: {run}"));
    assert_eq!((&host["class"], &host["name"]), (&"late timer".into(), &"withheld CPU".into()));
    let delays = uint(host, "wakeup_count");
    assert!(delays > 0, "{host}");
    for column in ["found_count", "within_count", "host_contained_count"] {
        assert_eq!(uint(host, column), delays, "{column}: {host}");
    }
    // Almost all of the delay is the host's time, and no delay is longer than a withheld time and a probe or two.
    assert!(number(host, "host_mean_ns") > 0.8 * number(host, "exact_mean_ns"), "{host}");
    assert!(uint(host, "exact_max_ns") < 550_000, "{host}");
    assert_eq!(measure()["tables"], run["tables"], "the same machine again");
}
