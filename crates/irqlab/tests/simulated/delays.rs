//! `irqlab handlers --delays`: from raise or queueing to run. Without QEMU the tests say so and pass.

use std::collections::BTreeMap;

use crate::support::{Place, can_simulate, csv_fields};
use crate::user_functions::write_program;

/// The rows of one table in CSV: the columns by name.
pub(crate) type Rows = Vec<BTreeMap<String, String>>;

/// The rows of the table whose header has the column `column`.
pub(crate) fn rows_with(csv: &str, column: &str) -> Rows {
    let has_column = |header: &[String]| header.iter().any(|name| name == column);
    let mut lines = csv.lines().map(csv_fields).skip_while(|row| !has_column(row));
    let header = lines.next().unwrap_or_else(|| panic!("no column {column}: {csv}"));
    let rows = lines.take_while(|row| row.len() == header.len());
    rows.map(|row| header.iter().cloned().zip(row).collect()).collect()
}

pub(crate) fn number(columns: &BTreeMap<String, String>, name: &str) -> u64 {
    columns[name].parse().unwrap_or_else(|error| panic!("{name}: {error}: {columns:?}"))
}

/// The guest does the same with the option: all rows of table `handlers` stay as they are. Each run of a softirq has a
/// delay, except for those that were raised before the window opened.
#[test]
fn each_run_of_a_softirq_has_a_delay_and_nothing_else_changes() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let run = |options: &[&str], table: &str| {
        let line = "handlers --on sim -q --load idle --rate high --stimulus disk -d 100ms \
                    --disk virtio-blk,latency=100us --format csv --table";
        let words = line.split_whitespace().chain([table]).chain(options.iter().copied());
        let run = workspace.run(&words.collect::<Vec<_>>());
        run.assert_code(0);
        run.out
    };
    let (with, without) = (run(&["--delays"], "handlers"), run(&[], "handlers"));
    assert_eq!(rows_with(&with, "self_mean_ns"), rows_with(&without, "self_mean_ns"));
    let delays = rows_with(&run(&["--delays"], "delays"), "delay_mean_ns");
    let handlers = rows_with(&with, "self_mean_ns");
    let is_sum = |row: &&BTreeMap<String, String>| row["cpu"] == "all";
    let softirqs = || handlers.iter().filter(is_sum).filter(|row| row["kind"] == "softirq");
    assert!(softirqs().count() > 1, "{handlers:?}");
    for softirq in softirqs() {
        let same = |row: &&BTreeMap<String, String>| {
            row["kind"] == "softirq" && row["name"] == softirq["name"]
        };
        let row = delays.iter().filter(is_sum).find(same);
        let row = row.unwrap_or_else(|| panic!("no delays of {}", softirq["name"]));
        // A span that is open at an edge of the window counts in one of the tables only.
        let (joined, unjoined) = (number(row, "count"), number(row, "unjoined_end_count"));
        let spans = number(softirq, "count");
        assert!((joined + unjoined).abs_diff(spans) <= 1, "{row:?}, {spans} spans");
        assert!(unjoined <= 1, "only a softirq raised before the window is not joined: {row:?}");
        assert_eq!(number(row, "unjoined_begin_count"), 0);
        assert!(number(row, "delay_p50_ns") <= number(row, "delay_max_ns"));
    }
    // A softirq that an interrupt raises runs at the end of that interrupt.
    let block = delays.iter().filter(is_sum).find(|row| row["name"] == "BLOCK");
    if let Some(block) = block {
        assert!(number(block, "delay_p50_ns") < 100_000, "{block:?}");
    }
    let work: Rows =
        delays.iter().filter(is_sum).filter(|row| row["kind"] == "work").cloned().collect();
    let sum = |column| work.iter().map(|row| number(row, column)).sum::<u64>();
    assert!(sum("count") > 0 && sum("unjoined_end_count") <= 5, "{work:?}");
}

/// Checks the delays of the disk's interrupt thread. `csv`: the tables `handlers` and `delays` of a window with one disk
/// request at a time, so the thread sleeps when the interrupt of the next request comes.
fn check_delays_of_thread(csv: &str) {
    let is_sum = |row: &&BTreeMap<String, String>| row["cpu"] == "all";
    let handlers = rows_with(csv, "self_mean_ns");
    let is_disk = |row: &&BTreeMap<String, String>| {
        row["kind"] == "irq" && row["name"].starts_with("virtio0-req")
    };
    let interrupts = handlers.iter().filter(is_sum).find(is_disk).expect("the disk's interrupt");
    let interrupts = number(interrupts, "count");
    let delays = rows_with(csv, "delay_mean_ns");
    let is_thread = |row: &&BTreeMap<String, String>| {
        row["kind"] == "irq_thread" && row["number"] != "0" && row["name"].starts_with("virtio0")
    };
    let threads = delays.iter().filter(is_sum).filter(is_thread);
    let thread = threads
        .max_by_key(|row| number(row, "count"))
        .unwrap_or_else(|| panic!("no delays of a thread: {csv}"));
    let (joined, awake) = (number(thread, "count"), number(thread, "awake_count"));
    assert!(joined > 50, "{thread:?}");
    let requests = joined + awake + number(thread, "unjoined_begin_count");
    // At each edge of the window, one of the two events may be outside.
    assert!(requests.abs_diff(interrupts) <= 2, "{interrupts} interrupts, {thread:?}");
    assert!(awake * 10 <= interrupts, "{thread:?}");
    assert!(number(thread, "unjoined_end_count") <= 2, "{thread:?}");
    let (half, longest) = (number(thread, "delay_p50_ns"), number(thread, "delay_max_ns"));
    assert!(0 < half && half <= longest, "{thread:?}");
}

/// Checks the delays of timers. `csv`: as for [`check_delays_of_thread`].
fn check_delays_of_timers(csv: &str) {
    let delays = rows_with(csv, "delay_mean_ns");
    let sums_of = |kind: &str| -> Rows {
        delays.iter().filter(|row| row["cpu"] == "all" && row["kind"] == kind).cloned().collect()
    };
    // The tick is a high-resolution timer. Its function has another name from Linux 6.9 on.
    let is_tick = |row: &&BTreeMap<String, String>| {
        ["tick_sched_timer", "tick_nohz_handler"].contains(&row["name"].as_str())
    };
    let hrtimers = sums_of("hrtimer");
    let tick = hrtimers.iter().find(is_tick).unwrap_or_else(|| panic!("no tick: {csv}"));
    assert!(number(tick, "count") > 10, "{tick:?}");
    assert!(number(tick, "unjoined_end_count") <= 5, "{tick:?}");
    // An interrupt brings the time, so no timer runs at the instant at which it is due.
    assert!(number(tick, "delay_p50_ns") > 0, "{tick:?}");
    for row in sums_of("timer").iter().filter(|row| number(row, "count") > 0) {
        // A timer of the wheel runs at least one jiffy late.
        assert!(number(row, "delay_max_ns") >= 900_000, "{row:?}");
        assert!(row["awake_count"].is_empty(), "{row:?}");
    }
    for kind in ["hrtimer", "timer", "work"] {
        let rows = sums_of(kind);
        assert!(rows.iter().all(|row| !row["name"].starts_with(['(', '0', '['])), "{rows:?}");
    }
}

/// Each call of a function that `--callbacks` counts is a run in the row of the same name.
#[test]
fn functions_have_the_names_and_counts_of_their_callbacks() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "handlers --on sim -q --delays --callbacks --load idle --rate high --stimulus disk -d 100ms \
                --disk virtio-blk,latency=100us --out run --format csv --table handlers";
    let handlers = workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    handlers.assert_code(0);
    let delays = workspace.run(&["show", "run", "--format", "csv", "--table", "delays"]);
    delays.assert_code(0);
    let delays = rows_with(&delays.out, "delay_mean_ns");
    let mut compared = 0;
    for calls in rows_with(&handlers.out, "self_mean_ns") {
        if calls["cpu"] != "all" || !["hrtimer", "timer", "work"].contains(&calls["kind"].as_str())
        {
            continue;
        }
        let is_same = |row: &&BTreeMap<String, String>| {
            ["cpu", "kind", "name"].iter().all(|column| row[*column] == calls[*column])
        };
        let runs = delays.iter().find(is_same).unwrap_or_else(|| panic!("no delays: {calls:?}"));
        let (joined, unjoined) = (number(runs, "count"), number(runs, "unjoined_end_count"));
        // A call that is open at an edge of the window counts in one of the tables only.
        assert!((joined + unjoined).abs_diff(number(&calls, "count")) <= 1, "{runs:?} {calls:?}");
        compared += 1;
    }
    assert!(compared > 2, "{delays:?}");
}

/// Without probes, on sim.
#[test]
fn the_simulator_measures_how_long_threads_and_timers_wait() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "handlers --on sim -q --delays --load idle --rate high --stimulus disk -d 100ms --append threadirqs \
                --disk virtio-blk,latency=100us --out run --format csv --table handlers";
    let handlers = workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    handlers.assert_code(0);
    let delays = workspace.run(&["show", "run", "--format", "csv", "--table", "delays"]);
    delays.assert_code(0);
    let csv = format!("{}\n{}", handlers.out, delays.out);
    check_delays_of_thread(&csv);
    check_delays_of_timers(&csv);
}

/// The probes in a guest whose kernel threads all interrupts.
#[test]
fn the_live_bench_measures_how_long_a_thread_waits_for_its_interrupt() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let machine = ["sim", "boot", "-q", "--append", "threadirqs", "--with-irqlab"];
    let disk = ["--disk", "virtio-blk,latency=100us", "--"];
    let inside = "irqlab handlers -q --delays --load idle --rate high --stimulus disk --disk-file /dev/vda -d 100ms \
                  --out /tmp/run --format csv --table handlers && \
                  irqlab show /tmp/run --format csv --table delays";
    let ended = workspace.run(&[&machine[..], &disk[..], &[inside]].concat());
    ended.assert_code(0);
    check_delays_of_thread(&ended.out);
    check_delays_of_timers(&ended.out);
}

/// Checks the delays of softirq TIMER under PREEMPT_RT, in a window in which a task holds the CPU for 150 ms at first. Ticks
/// raise the softirq again and again meanwhile, so its thread serves many raises with one run. No later run has such a delay.
fn check_delays_of_timer_softirq(csv: &str) {
    let delays = rows_with(csv, "delay_mean_ns");
    let is_timer = |row: &&BTreeMap<String, String>| row["cpu"] == "all" && row["name"] == "TIMER";
    let timer = delays.iter().find(is_timer).unwrap_or_else(|| panic!("no TIMER: {csv}"));
    assert!(number(timer, "count") >= 4, "{timer:?}");
    assert!(number(timer, "unjoined_end_count") <= 1, "{timer:?}");
    assert!(number(timer, "delay_max_ns") > 20_000_000, "{timer:?}");
    assert!(number(timer, "delay_p50_ns") < 1_000_000, "{timer:?}");
}

/// A kernel with PREEMPT_RT raises the softirqs of timers in a mask of their own, on both benches.
#[test]
fn runs_of_timer_softirqs_under_preempt_rt_end_the_delays_of_their_own_raises() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let written = write_program(workspace.path(), "holds_cpu.S", &[], "/tmp/holds_cpu");
    let command = format!("{written}; /tmp/holds_cpu && sleep 0.6");
    let simulated =
        "handlers --on sim -q --flavour rt --mem 512M --delays --format csv --table delays --";
    let words = simulated.split_whitespace().chain([&*command]);
    let simulated = workspace.run(&words.collect::<Vec<_>>());
    simulated.assert_code(0);
    check_delays_of_timer_softirq(&simulated.out);

    let machine = "sim boot -q --flavour rt --mem 512M --with-irqlab --";
    let inside = format!(
        "{written}; irqlab handlers -q --delays --format csv --table delays -- /bin/busybox sh -c '/tmp/holds_cpu && sleep 0.6'"
    );
    let live = workspace.run(&machine.split_whitespace().chain([&*inside]).collect::<Vec<_>>());
    live.assert_code(0);
    check_delays_of_timer_softirq(&live.out);
}
