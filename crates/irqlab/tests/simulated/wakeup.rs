//! `irqlab wakeup` on simulated machines. Without QEMU the tests say so and pass.

use std::cmp::Reverse;

use serde_json::Value as Json;

use crate::support::{Place, can_simulate, check_refused, check_wakeup_sums, rows, uint};

#[test]
fn options_that_a_simulated_machine_lacks_are_refused() {
    let refused = |options: &[&str], says: &str| {
        check_refused(&[&["wakeup", "--on", "sim"], options].concat(), says);
    };
    refused(&["--", "true"], "-- CMD works only with --on live");
    refused(&["--on-threshold", "1ms:stop"], "--on-threshold is for --on live");
    refused(&["-H", "0"], "--housekeeping is for --on live");
    refused(&["--free-running"], "the simulated machine's clock, not the host's");
    refused(&["--vcpus", "2"], "without a model, virtual CPUs share one clock");
    refused(
        &["--vcpus", "2", "--policy", "deadline:100us,200us,500us"],
        "--policy deadline needs a machine with one CPU",
    );
    refused(&["--wake-by", "futex", "--waker-cpu", "1"], "no CPU 1 in the simulated machine");
    refused(&["-d", "1h"], "the guest keeps all of them until the end");
}

/// Every wake-up of an idle machine has the same way: idle, the timer's interrupt, idle, the thread.
#[test]
fn the_causes_of_each_wake_up_are_exact_and_the_same_again() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let measured = |out: &str| {
        let arguments =
            ["wakeup", "-q", "--json", "--on", "sim:zen3", "--vcpus", "2", "--out", out];
        let options = ["-p", "500us", "-d", "40ms", "--keep-worst", "80"];
        workspace.run(&[&arguments[..], &options].concat()).assert_code(0).json()
    };
    let (first, second) = (measured("first"), measured("second"));
    assert_eq!(first["tables"], second["tables"]);
    let wakeup = rows(&first, "wakeup");
    assert_eq!(wakeup.len(), 2, "{first}");
    for row in wakeup {
        assert_eq!((uint(row, "wakeup_count"), uint(row, "missed_count")), (80, 0), "{row}");
        assert_eq!(row["other_ratio"].as_f64(), Some(0.0), "{row}");
    }
    check_wakeup_sums(&first);
    // With --keep-worst 80, all wake-ups are in the table.
    for worst in rows(&first, "worst") {
        let parts: Vec<&Json> = rows(&first, "worst_parts")
            .iter()
            .filter(|part| part["cpu"] == worst["cpu"] && part["rank"] == worst["rank"])
            .collect();
        let has = |stage: &str, name: &str| {
            parts.iter().any(|part| part["stage"] == stage && part["name"] == name)
        };
        assert!(has("expiry", "local_timer"), "{parts:?}");
        assert!(has("scheduling", "idle"), "{parts:?}");
        let last = parts.last().unwrap();
        assert_eq!((&last["stage"], &last["kind"]), (&"return".into(), &"thread".into()));
    }
    assert_eq!(first["observer"]["guest_overhead_ns"], 0);
}

/// The timer's interrupt takes the CPU from the load, whose return path calls the scheduler: from there to the switch, the load
/// delays the thread, and no longer the interrupt.
#[test]
fn the_scheduler_at_the_end_of_an_interrupt_is_time_of_the_task() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["wakeup", "-q", "--json", "--on", "sim:r4400-1994", "--load", "busy"];
    let options = ["-p", "2ms", "-d", "60ms", "--keep-worst", "30"];
    let run = workspace.run(&[&arguments[..], &options].concat()).assert_code(0).json();
    check_wakeup_sums(&run);
    let [wakeup] = rows(&run, "wakeup") else { panic!("{run}") };
    let causes = rows(&run, "causes");
    let is_load = |row: &&Json| row["class"] == "tasks" && row["name"] == "irqlab-load";
    let load = causes.iter().find(is_load).unwrap_or_else(|| panic!("no load: {causes:?}"));
    assert_eq!(load["wakeup_count"], wakeup["wakeup_count"], "{load}");
    // Table `causes` of `sim verify-probes --experiment wakeup --load busy` shows a quarter of the lateness here.
    let ratio = load["late_ratio"].as_f64().unwrap_or_else(|| panic!("{load}"));
    assert!(ratio > 0.15, "{load}");
}

/// The waker on the other CPU is never late, and its system call is a part of each wake-up.
#[test]
fn wake_ups_that_another_cpu_sends_are_exact_and_the_same_again() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for (wake_by, vcpus, waker_cpu) in [("futex", "2", 0), ("eventfd", "1", 0), ("packet", "2", 0)]
    {
        let measured = |out: &str| {
            let arguments = ["wakeup", "-q", "--json", "--on", "sim:zen3", "--vcpus", vcpus];
            let options = ["-p", "500us", "-d", "20ms", "--keep-worst", "40", "--wake-by", wake_by];
            let run = workspace.run(&[&arguments[..], &options, &["--out", out]].concat());
            run.assert_code(0).json()
        };
        let first = measured(&format!("{wake_by}-first"));
        assert_eq!(first["tables"], measured(&format!("{wake_by}-second"))["tables"]);
        assert_eq!(first["settings"]["waker_cpus"], "0");
        let [row] = rows(&first, "wakeup") else { panic!("{first}") };
        assert_eq!(uint(row, "waker_cpu"), waker_cpu, "{row}");
        let counts = ["wakeup_count", "missed_count", "waker_missed_count", "not_asleep_count"];
        assert_eq!(counts.map(|column| uint(row, column)), [40, 0, 0, 0], "{row}");
        assert_eq!(row["other_ratio"].as_f64(), Some(0.0), "{row}");
        check_wakeup_sums(&first);
        // With --keep-worst 40, all wake-ups are in the table.
        for worst in rows(&first, "worst") {
            let parts: Vec<&Json> = rows(&first, "worst_parts")
                .iter()
                .filter(|part| part["rank"] == worst["rank"])
                .collect();
            let (start, end) = (parts[0], parts[parts.len() - 1]);
            assert_eq!((&start["stage"], &start["name"]), (&"waking".into(), &"the waker".into()));
            assert_eq!((&end["stage"], &end["kind"]), (&"return".into(), &"thread".into()));
            let has_idle =
                parts.iter().any(|part| part["stage"] == "scheduling" && part["name"] == "idle");
            assert_eq!(has_idle, vcpus == "2", "{parts:?}");
        }
    }
}

/// The disk's time is before the lateness. With two virtual CPUs, the interrupt may come to the one without the thread.
#[test]
fn wake_ups_by_a_disk_begin_with_its_interrupt_and_are_the_same_again() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for (disk, name, cpus) in [
        ("virtio-blk,latency=100us", "virtio", ["1", "0"]),
        ("virtio-blk,latency=100us", "virtio", ["2", "1"]),
        ("nvme,latency=100us", "nvme", ["1", "0"]),
    ] {
        let [vcpus, cpu] = cpus;
        let measured = |out: &str| {
            let out = format!("{name}-{vcpus}-{out}");
            let arguments =
                ["wakeup", "-q", "--json", "--on", "sim:zen3", "--vcpus", vcpus, "-c", cpu];
            let options = ["-p", "500us", "-d", "20ms", "--keep-worst", "40", "--wake-by", "disk"];
            let run = [&arguments[..], &options, &["--disk", disk, "--out", &out]].concat();
            workspace.run(&run).assert_code(0).json()
        };
        let first = measured("first");
        assert_eq!(first["tables"], measured("second")["tables"]);
        let [row] = rows(&first, "wakeup") else { panic!("{first}") };
        let counts = ["wakeup_count", "missed_count", "not_asleep_count", "no_interrupt_count"];
        assert_eq!(counts.map(|column| uint(row, column)), [40, 0, 0, 0], "{row}");
        assert_eq!(uint(row, "several_interrupts_count"), 0, "{row}");
        assert_eq!(row["other_ratio"].as_f64(), Some(0.0), "{row}");
        // Exact within 1/16.
        assert!(uint(row, "until_interrupt_p50_ns") > 93_000, "{row}");
        assert!(uint(row, "late_max_ns") < 100_000, "the disk's time is no part: {row}");
        check_wakeup_sums(&first);
        for worst in rows(&first, "worst") {
            let is_of_wakeup = |part: &&Json| part["rank"] == worst["rank"];
            let parts: Vec<&Json> =
                rows(&first, "worst_parts").iter().filter(is_of_wakeup).collect();
            let (start, end) = (parts[0], parts[parts.len() - 1]);
            assert_eq!((&start["stage"], &start["kind"]), (&"waking".into(), &"irq".into()));
            assert!(start["name"].as_str().unwrap().contains(name), "{start}");
            assert_eq!((&end["stage"], &end["kind"]), (&"return".into(), &"thread".into()));
        }
    }
}

/// The guest's only CPU is its root domain, so the kernel accepts the class for a pinned thread.
#[test]
fn a_thread_of_sched_deadline_meets_every_period() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for (wake_by, waker_scheduler) in [("timer", Json::Null), ("futex", "SCHED_FIFO 99".into())] {
        let arguments = ["wakeup", "-q", "--json", "--on", "sim", "-p", "500us", "-d", "20ms"];
        let options = ["--policy", "deadline:200us,500us,500us", "--wake-by", wake_by];
        let run = workspace.run(&[&arguments[..], &options].concat()).assert_code(0).json();
        let constrained = ["--policy", "deadline:200us,400us,500us"];
        workspace
            .run(&[&arguments[..], &constrained].concat())
            .assert_code(2)
            .assert_says("DEADLINE = PERIOD");
        for setting in ["policy", "scheduler"] {
            assert_eq!(run["settings"][setting], "SCHED_DEADLINE 200us,500us,500us", "{setting}");
        }
        assert_eq!(run["settings"]["waker_scheduler"], waker_scheduler);
        let [row] = rows(&run, "wakeup") else { panic!("{run}") };
        assert_eq!((uint(row, "wakeup_count"), uint(row, "missed_count")), (40, 0), "{row}");
        assert_eq!(row["other_ratio"].as_f64(), Some(0.0), "{row}");
        check_wakeup_sums(&run);
    }
}

/// The idle task executes more blocks before the due time than the record of blocks has room for.
#[test]
fn functions_are_recorded_after_an_idle_task_that_polls() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["wakeup", "-q", "--json", "--on", "sim", "-p", "50ms", "-d", "100ms"];
    let options = ["--seeds", "1", "--append", "idle=poll"];
    let run = workspace.run(&[&arguments[..], &options].concat()).assert_code(0).json();
    check_worst_functions(&run);
    let functions = rows(&run, "worst_functions");
    assert!(functions.iter().any(|row| row["function"] == "hrtimer_interrupt"), "{functions:?}");
}

/// Seeds change the phases, so machines differ. The worst of them is reported, and its seed alone gives it again.
#[test]
fn the_worst_of_several_seeds_is_found_and_the_same_again() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let measured = |options: &[&str]| {
        let machine = ["wakeup", "-q", "--json", "--on", "sim", "-p", "500us", "-d", "10ms"];
        let load = ["--stimulus", "timer", "--rate", "low", "--low-interval", "300us"];
        workspace.run(&[&machine[..], &load, options].concat()).assert_code(0).json()
    };
    let run = measured(&["--seeds", "3", "--seed", "7"]);
    let seeds = rows(&run, "seeds");
    let numbers: Vec<u64> = seeds.iter().map(|row| uint(row, "seed")).collect();
    assert_eq!(numbers, [7, 8, 9]);
    assert!(seeds.iter().all(|row| uint(row, "wakeup_count") == 20), "{seeds:?}");
    let dues: Vec<u64> = seeds.iter().map(|row| uint(row, "due_ns") % 500_000).collect();
    assert!(dues[0] != dues[1] && dues[1] != dues[2], "{seeds:?}");
    let latest = |row: &&Json| (uint(row, "late_max_ns"), Reverse(uint(row, "seed")));
    let worst = seeds.iter().max_by_key(latest).unwrap();
    let settings = &run["settings"];
    assert_eq!(
        (&settings["worst_seed"], &settings["worst_seed_runs"]),
        (&worst["seed"], &2.into())
    );
    assert_eq!(uint(&rows(&run, "wakeup")[0], "late_max_ns"), uint(worst, "late_max_ns"));
    check_wakeup_sums(&run);

    check_worst_functions(&run);
    // The level has no caches.
    let functions = rows(&run, "worst_functions");
    assert!(functions.iter().all(|row| row["l1_miss_count"].is_null()), "{functions:?}");
    assert!(functions.iter().any(|row| uint(row, "instruction_count") > 0), "{functions:?}");
    check_flight_record(&run);
    // The record does not start before the window.
    let before_ns = uint(worst, "due_ns").min(10_000_000);
    let length_ns = before_ns + uint(worst, "late_max_ns");
    assert_eq!(uint(settings, "flight_record_length_ns"), length_ns);
    let sentence = settings["worst_case"].as_str().unwrap();
    let start = format!("worst of 3 machines: seed {}, ", worst["seed"]);
    assert!(sentence.starts_with(&start), "{sentence}");

    let again = measured(&["--seeds", "3", "--seed", "7"]);
    assert_eq!(again["tables"], run["tables"]);

    let alone = measured(&["--seed", &worst["seed"].to_string(), "--flight-record", "10ms"]);
    for table in ["wakeup", "causes", "worst", "worst_parts"] {
        assert_eq!(alone["tables"][table], run["tables"][table], "{table}");
    }
    check_flight_record(&alone);
    assert!(alone["tables"]["worst_functions"].is_null());
}

/// The observers of the second run leave time as it is on a core with caches, too; irqlab fails otherwise.
#[test]
fn the_worst_wake_up_of_a_core_has_functions_with_misses() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["wakeup", "-q", "--json", "--on", "sim:zen3", "-p", "500us", "-d", "5ms"];
    let options =
        ["--stimulus", "timer", "--rate", "low", "--low-interval", "300us", "--seeds", "2"];
    let run = workspace.run(&[&arguments[..], &options].concat()).assert_code(0).json();
    check_wakeup_sums(&run);
    check_worst_functions(&run);
    check_flight_record(&run);
    let functions = rows(&run, "worst_functions");
    let sum = |column: &str| functions.iter().map(|row| uint(row, column)).sum::<u64>();
    assert!(sum("instruction_count") > 1_000, "{functions:?}");
    assert!(sum("l1_miss_count") >= sum("l2_miss_count"), "{functions:?}");
    let has = |name: &str, context: &str| {
        functions.iter().any(|row| row["function"] == name && row["name"] == context)
    };
    assert!(has("hrtimer_interrupt", "local_timer"), "{functions:?}");
}

/// Functions add up to each part of the worst wake-up, and no time is without a function.
fn check_worst_functions(run: &Json) {
    let worst = rows(run, "worst").iter().max_by_key(|row| uint(row, "late_ns")).unwrap();
    let functions = rows(run, "worst_functions");
    assert!(!functions.is_empty() && functions.len() <= 120, "{functions:?}");
    let mut parts = std::collections::BTreeMap::new();
    let key = |row: &Json| ["class", "stage", "kind", "name"].map(|column| row[column].to_string());
    let is_worst = |part: &&Json| part["cpu"] == worst["cpu"] && part["rank"] == 1;
    for part in rows(run, "worst_parts").iter().filter(is_worst) {
        *parts.entry(key(part)).or_insert(0) += uint(part, "length_ns");
    }
    let mut sums = std::collections::BTreeMap::new();
    for row in functions {
        assert_eq!(row["cpu"], worst["cpu"]);
        assert!(row["function"] != "not recorded", "{functions:?}");
        let self_ns = uint(row, "self_ns");
        let total_ns = row["total_ns"].as_u64().unwrap_or(self_ns);
        assert!(self_ns <= total_ns && total_ns <= uint(worst, "late_ns"), "{row}");
        *sums.entry(key(row)).or_insert(0) += self_ns;
    }
    assert_eq!(sums, parts);
}

/// Intervals are within the record and nest, and the worst wake-up is among them.
fn check_flight_record(run: &Json) {
    let record = rows(run, "flight_record");
    let setting = |key: &str| uint(&run["settings"], key);
    let start_ns = setting("flight_record_start_ns");
    let end_ns = start_ns + setting("flight_record_length_ns");
    let is_measured = |row: &&Json| row["kind"] == "late wake-up";
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut cpu = None;
    for row in record.iter().filter(|row| !is_measured(row)) {
        let (from_ns, length_ns) = (uint(row, "start_ns"), uint(row, "length_ns"));
        let to_ns = from_ns + length_ns;
        assert!(start_ns <= from_ns && to_ns <= end_ns, "{row}");
        if cpu.replace(&row["cpu"]) != Some(&row["cpu"]) {
            open.clear();
        }
        open.retain(|(_, outer_end_ns)| *outer_end_ns > from_ns);
        assert!(open.iter().all(|(_, outer_end_ns)| to_ns <= *outer_end_ns), "{row}");
        open.push((from_ns, to_ns));
    }
    for kind in ["thread", "task", "vector"] {
        assert!(record.iter().any(|row| row["kind"] == kind), "{kind}: {record:?}");
    }
    // The record ends with the first of several wake-ups that are equally late.
    let key = |row: &&Json| (uint(row, "late_ns"), Reverse(uint(row, "rank")));
    let worst = rows(run, "worst").iter().max_by_key(key).unwrap();
    let is_worst =
        |row: &&Json| row["start_ns"] == worst["due_ns"] && row["length_ns"] == worst["late_ns"];
    assert!(record.iter().filter(is_measured).any(|row| is_worst(&row)), "{record:?}");
}
