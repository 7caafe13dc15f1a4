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

/// The waker on the other CPU is never late, and its system call is a part of each wake-up.
#[test]
fn wake_ups_that_another_cpu_sends_are_exact_and_the_same_again() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for (wake_by, vcpus, waker_cpu) in [("futex", "2", 0), ("eventfd", "1", 0)] {
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

    let alone = measured(&["--seed", &worst["seed"].to_string()]);
    for table in ["wakeup", "causes", "worst", "worst_parts"] {
        assert_eq!(alone["tables"][table], run["tables"][table], "{table}");
    }
}
