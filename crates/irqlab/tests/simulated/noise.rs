//! `irqlab noise` on a simulated machine. Without QEMU the tests say so and pass.

use std::path::Path;

use crate::support::{Place, absence, can_simulate, check_longest, names, rows};
use serde_json::Value as Json;

fn measured(workspace: &Place, arguments: &[&str]) -> Json {
    let all = ["noise", "-q", "--json", "--all", "--repetitions", "1000"];
    workspace.run(&[&all[..], arguments].concat()).assert_code(0).json()
}

fn uint(row: &Json, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))
}

/// The first row of a CPU in a table.
fn cpu_row<'a>(run: &'a Json, table: &str, cpu: u64) -> &'a Json {
    let found = rows(run, table).iter().find(|row| row["cpu"] == cpu);
    found.unwrap_or_else(|| panic!("{table} of CPU {cpu}: {run}"))
}

/// Asserts that each cycle of each detour has a cause. Only the CPUs in `tickless` may have no detour.
fn assert_all_explained(run: &Json, tickless: &[u64]) {
    assert_eq!((&run["bench"], &run["complete"]), (&"sim".into(), &true.into()));
    assert_eq!(run["settings"]["broken"], 0, "{}", run["warnings"]);
    assert!(!rows(run, "noise").is_empty() && !rows(run, "detours").is_empty(), "{run}");
    for row in rows(run, "noise") {
        let of_cpu =
            |table: &str| rows(run, table).iter().filter(|found| found["cpu"] == row["cpu"]);
        if uint(row, "detour_count") == 0 {
            assert!(tickless.contains(&uint(row, "cpu")), "a CPU with a tick has detours: {row}");
            assert_eq!(uint(row, "lost_ns"), 0, "{row}");
            assert_eq!((of_cpu("causes").count(), of_cpu("detours").count()), (0, 0), "{run}");
            continue;
        }
        assert_eq!((uint(row, "remainder_ns"), row["explained_ratio"].as_f64()), (0, Some(1.0)));
        assert_eq!(uint(row, "attributed_ns") + uint(row, "indirect_ns"), uint(row, "lost_ns"));
        // The simulator sees every kernel entry, and there is no host. So these times are absent, not zero.
        assert!(row["entry_exit_ns"].is_null() && row["unattributed_ns"].is_null(), "{row}");
        assert_eq!(
            of_cpu("causes").map(|cause| uint(cause, "total_ns")).sum::<u64>(),
            uint(row, "lost_ns")
        );
        check_longest(run, row, 64);
    }
    for row in rows(run, "detours") {
        assert_eq!(uint(row, "remainder_ns"), 0, "{row}");
        assert!(row["trigger_name"].is_string(), "a detour without a cause: {row}");
        let parts = uint(row, "attributed_ns") + uint(row, "indirect_ns");
        assert_eq!(parts, uint(row, "length_ns"), "{row}");
    }
}

/// The rate of the tick on a CPU, or `None` if its ticks are not periodic.
fn tick_hz(run: &Json, cpu: u64) -> Option<f64> {
    let is_tick = |row: &&Json| row["cpu"] == cpu && row["trigger_name"] == "local_timer";
    rows(run, "periods").iter().find(is_tick)?["frequency_hz"].as_f64()
}

#[track_caller]
fn ticks(run: &Json, cpu: u64) {
    let hz = run["host"]["hz"].as_f64().expect("the kernel's tick rate");
    let found = tick_hz(run, cpu).unwrap_or_else(|| panic!("no tick on CPU {cpu}"));
    assert!((found / hz - 1.0).abs() < 0.001, "CPU {cpu}: {found} Hz, configured {hz}");
}

fn assert_same_bytes(directory: &Path, first: &str, second: &str) {
    let tables = names(&directory.join(first).join("tables"));
    assert!(tables.len() > 4, "{tables:?}");
    for table in tables {
        let bytes =
            |run: &str| std::fs::read(directory.join(run).join("tables").join(&table)).unwrap();
        assert!(bytes(first) == bytes(second), "{table}");
    }
}

#[test]
fn every_injected_detour_is_found_and_the_same_again() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["--on", "sim", "--loop", "detour", "--inject", "3:97us"];
    let run = measured(&workspace, &[&arguments[..], &["--out", "first"]].concat());
    assert_all_explained(&run, &[]);
    let iteration_ns = run["settings"]["iteration_ns"].as_f64().unwrap().ceil() as u64;
    let injected = rows(&run, "injected");
    assert!(injected.len() >= 1000, "{}", injected.len());
    let is_right = |row: &&Json| {
        let is_found = row["detected"] == true && uint(row, "stalled_ns") >= 100;
        is_found && uint(row, "detour_length_ns").abs_diff(uint(row, "stalled_ns")) <= iteration_ns
    };
    let right = injected.iter().filter(is_right).count();
    assert!(right as f64 >= 0.999 * injected.len() as f64, "{right} of {}", injected.len());
    assert!(injected.iter().all(|row| uint(row, "latency_ns") < 10_000), "late: {injected:?}");
    let longest = |timers: u64| {
        let matching = injected.iter().filter(|row| row["timer_count"] == timers);
        matching
            .map(|row| uint(row, "stalled_ns"))
            .min()
            .unwrap_or_else(|| panic!("{timers} timers"))
    };
    assert!(longest(1) < longest(2) && longest(2) < longest(3), "more timers take longer");
    // The loop missed almost none of the time that others took. Without a model, an instruction takes no longer after
    // an interrupt. So indirect time only comes from interrupts during the recording of a detour.
    let window = &run["settings"]["windows"][0];
    let [taken, seen] = ["taken_ns_on_cpu_0", "taken_in_detours_ns_on_cpu_0"];
    let [taken, seen] = [taken, seen].map(|name| uint(window, name));
    assert!(seen <= taken && 1000 * seen >= 999 * taken, "{window}");
    let row = cpu_row(&run, "noise", 0);
    assert!(100 * uint(row, "indirect_ns") < uint(row, "lost_ns"), "{row}");
    assert_eq!(uint(row, "uninterrupted_gap_count"), 0, "{row}");

    measured(&workspace, &[&arguments[..], &["--out", "second"]].concat());
    assert_same_bytes(workspace.path(), "first", "second");
}

#[test]
fn the_tick_is_seen_where_it_lives_and_leaves_an_aftermath() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments =
        ["--on", "sim:r4400-1994", "--vcpus", "2", "--loop", "detour,fwq", "--body", "load"];
    let periodic = measured(&workspace, &[&arguments[..], &["--out", "periodic"]].concat());
    assert_all_explained(&periodic, &[]);
    ticks(&periodic, 0);
    ticks(&periodic, 1);
    let is_tick = |row: &&Json| row["name"] == "local_timer" && row["context_switch"] == false;
    for row in rows(&periodic, "aftermath").iter().filter(is_tick) {
        let number =
            |column: &str| row[column].as_f64().unwrap_or_else(|| panic!("{column}: {row}"));
        assert!(number("quantum_count") >= 10.0 && number("undisturbed_count") >= 500.0, "{row}");
        assert!(number("direct_mean_cycles") > 1000.0, "{row}");
        // The loop fills the cache, and a handler displaces some of its lines.
        assert!(number("indirect_mean_cycles") > number("indirect_ci95_cycles"), "{row}");
        assert!(number("indirect_p50_ci95_low_cycles") > 0.0, "{row}");
    }
    assert!(rows(&periodic, "aftermath").iter().filter(is_tick).count() == 2);

    let arguments = ["--on", "sim:r4400-1994", "--vcpus", "2", "--loop", "detour", "--out", "nohz"];
    let append = ["--append", "nohz_full=1", "--append", "isolcpus=1", "--append", "rcu_nocbs=1"];
    let nohz = measured(&workspace, &[&arguments[..], &append].concat());
    assert_all_explained(&nohz, &[1]);
    ticks(&nohz, 0);
    assert_eq!(tick_hz(&nohz, 1), None, "CPU 1 has no tick");
    let detours = |run: &Json, cpu: u64| uint(cpu_row(run, "noise", cpu), "detour_count");
    assert!(10 * detours(&nohz, 1) < detours(&nohz, 0), "{nohz}");
    assert!(detours(&periodic, 1) >= 20, "{periodic}");
}

#[test]
fn loops_side_by_side_and_one_after_the_other_give_the_same_tables() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["noise", "-q", "--json", "--all", "--on", "sim:r4400-1994", "-d", "20ms"];
    let run = |jobs: &str| {
        let arguments = [&arguments[..], &["-j", jobs, "--out", jobs]].concat();
        workspace.run(&arguments).assert_code(0).json()
    };
    let (alone, together) = (run("1"), run("2"));
    for table in ["noise", "fwq", "ftq"] {
        assert_eq!(rows(&alone, table).len(), 1, "{table}: {alone}");
    }
    assert_same_bytes(workspace.path(), "1", "2");
    assert_eq!(alone["settings"]["windows"], together["settings"]["windows"]);
    assert!(alone["settings"]["user_mode"].is_null(), "this core cannot be sampled");
    let ns = |run: &Json, key: &str| uint(&run["settings"], key);
    assert_eq!(ns(&alone, "warm_up_ns"), 5_000_000);
    assert_eq!(ns(&alone, "threshold_ns"), ns(&together, "threshold_ns"));
}

#[test]
fn a_loop_that_reaches_the_limit_leaves_the_other() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    // The loop detour is done after 0.4 s. A quantum of fwq alone lasts as long as the limit.
    let line = "noise -q --json --on sim --loop detour,fwq --quantum 1s -d 400ms --guest-limit 1s";
    let ended = workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    ended.assert_code(124).assert_says("(--guest-limit)");
    let run = ended.json();
    assert_eq!(run["complete"], false);
    assert!(uint(cpu_row(&run, "noise", 0), "window_ns") > 0);
    assert!(rows(&run, "fwq").is_empty(), "{run}");
    assert_eq!(run["warnings"][0], "missing, because the run ended early: loop fwq");
    let reason = absence(&run, "the cost of the tick to a program");
    assert_eq!(reason, Some("no window of the loop fwq was measured"), "{run}");
}

#[test]
fn sampled_user_mode_has_the_injected_detours_of_detailed_user_mode() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let run = |user_mode: &str| {
        let arguments =
            ["--on", "sim:zen3", "--loop", "detour", "-d", "10ms", "--inject", "3:397us"];
        let all = ["noise", "-q", "--json", "--all", "--user-mode", user_mode];
        let run = workspace.run(&[&all[..], &arguments].concat()).assert_code(0).json();
        assert_all_explained(&run, &[]);
        assert_eq!(run["settings"]["user_mode"], user_mode);
        run
    };
    // Times are averages per interrupt: the last interrupt may be in one window alone.
    let stalled_ns = |run: &Json| -> u64 {
        let injected = rows(run, "injected");
        let detected = injected.iter().filter(|row| row["detected"] == true).count();
        // Timers in the last half of a period are left out. An interrupt while the loop records the detour before is no
        // detour of its own.
        assert_eq!(
            injected.len() as u64,
            (10_000_000 + 198_500 - uint(&injected[0], "scheduled_at_ns")) / 397_000
        );
        assert!(detected + 1 >= injected.len(), "{injected:?}");
        injected.iter().map(|row| uint(row, "stalled_ns")).sum::<u64>() / injected.len() as u64
    };
    // The timers expire when they are due, and each expiry is one interrupt. The rest are ticks, every 4 ms.
    let is_on_time = |run: &Json| {
        let injected = rows(run, "injected");
        let in_time = injected.iter().filter(|row| uint(row, "latency_ns") < 100).count();
        let detours = rows(run, "detours").len();
        assert!(in_time + 1 >= injected.len() && detours <= injected.len() + 4, "{injected:?}");
    };
    let timers = |run: &Json| -> Vec<u64> {
        rows(run, "injected").iter().map(|row| uint(row, "timer_count")).take(20).collect()
    };
    let (detailed, sampled) = (run("detailed"), run("sampled"));
    is_on_time(&detailed);
    is_on_time(&sampled);
    assert_eq!(timers(&detailed), timers(&sampled));
    let (exact, estimated) = (stalled_ns(&detailed), stalled_ns(&sampled));
    // Kernel mode is in detail in both.
    assert!(20 * exact.abs_diff(estimated) < exact, "{exact} ns, {estimated} ns");
}

/// A window that ends because it has measured enough has the records that the whole window begins with.
#[test]
fn a_window_that_ends_early_is_the_start_of_the_whole_one() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = ["noise", "-q", "--json", "--all", "--on", "sim:r4400-1994", "--vcpus", "2"];
    let measured = |until: &str, out: &str| {
        let options = ["-d", "200ms", "--until", until, "--out", out];
        workspace.run(&[&line[..], &options].concat()).assert_code(0).json()
    };
    let (early, whole) = (measured("2-spans", "early"), measured("end", "whole"));
    assert_all_explained(&early, &[]);
    // Where the guest's code lies decides whether a loop begins too late for this.
    let ran_on = early["warnings"].to_string().contains("ran on after --until had closed");
    let mut early_ends = 0;
    for (table, records) in [("noise", "detours"), ("fwq", "fwq_quanta"), ("ftq", "ftq_quanta")] {
        for cpu in 0..2 {
            let (row, whole_row) = (cpu_row(&early, table, cpu), cpu_row(&whole, table, cpu));
            assert_eq!(whole_row["ended_by"], "length");
            // Where the guest's code lies decides how many detours a window has, and whether one suffices for --until.
            if row["ended_by"] == "length" {
                continue;
            }
            early_ends += 1;
            assert_eq!(row["ended_by"], "enough");
            // The guest's kernel counted on after the window.
            assert!(row["page_fault_count"].is_null(), "{row}");
            let of_cpu = |run: &Json| -> Vec<Json> {
                rows(run, records).iter().filter(|row| row["cpu"] == cpu).cloned().collect()
            };
            let (early, whole) = (of_cpu(&early), of_cpu(&whole));
            assert!((4..whole.len()).contains(&early.len()), "{records}: {}", early.len());
            let whole = &whole[..early.len()];
            if records == "detours" && ran_on {
                // A loop that ran on has its iteration time from before the window, so its detours begin some ns earlier
                // or later. A warning says so. All else is the same.
                let unshifted = |rows: &[Json]| -> Vec<_> {
                    let end = |row: &Json| uint(row, "start_ns") + uint(row, "length_ns");
                    let part = |row: &Json| uint(row, "attributed_ns");
                    rows.iter()
                        .map(|row| (end(row), part(row), row["trigger_name"].clone()))
                        .collect()
                };
                assert_eq!(unshifted(&early), unshifted(whole), "{records} of CPU {cpu}");
            } else {
                assert_eq!(early, whole, "{records} of CPU {cpu}");
            }
        }
    }
    assert!(early_ends >= 4, "{early_ends} of 6 windows");
    let refused = |options: &[&str], words: &str| {
        let refused = workspace.run(&[&["noise"], options].concat());
        refused.assert_code(2);
        assert!(refused.err.contains(words), "{}", refused.err);
    };
    refused(&["--on", "sim", "-d", "1s", "--until", "5%"], "--until needs a model");
    refused(&["--on", "sim:zen3", "--until", "5%"], "add -d TIME");
}

/// At level `ooo`, the loops of quanta end after 100 ms by default, as if `-d` were no longer.
#[test]
fn loops_of_quanta_end_after_a_time_at_level_ooo() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = ["noise", "-q", "--json", "--all", "--on", "sim:r4400-1994", "--detail", "ooo"];
    let line = [&line[..], &["--loop", "fwq,ftq"]].concat();
    let measured =
        |options: &[&str]| workspace.run(&[&line[..], options].concat()).assert_code(0).json();
    let (default, short) =
        (measured(&["-d", "300ms"]), measured(&["-d", "100ms", "--until", "end"]));
    let longer = measured(&["-d", "110ms", "--until", "end"]);
    let rule = "100 ms, whatever the interrupts";
    assert_eq!(default["settings"]["until_of_quanta"], rule);
    assert!(longer["settings"]["until_of_quanta"].is_null());
    for (table, records) in [("fwq", "fwq_quanta"), ("ftq", "ftq_quanta")] {
        let ends = [&default, &longer].map(|run| cpu_row(run, table, 0)["ended_by"].clone());
        assert_eq!(ends, ["enough", "length"], "{table}");
        let [default, short, longer] = [&default, &short, &longer].map(|run| rows(run, records));
        assert!(default.len() >= 900 && longer.len() > default.len(), "{table}: {}", default.len());
        assert_eq!(default, short, "{table}");
    }
}
