//! `irqlab noise` on a simulated machine, by the command. Where there is no QEMU, says so and passes.

use std::path::Path;

use crate::support::{Place, can_simulate, names, rows};
use serde_json::Value as Json;

fn measured(place: &Place, words: &[&str]) -> Json {
    let all = ["noise", "-q", "--json", "--all", "--repetitions", "1000"];
    place.run(&[&all[..], words].concat()).assert_code(0).json()
}

fn uint(row: &Json, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))
}

/// The first row of a table that a CPU has.
fn of_cpu<'a>(run: &'a Json, table: &str, cpu: u64) -> &'a Json {
    let found = rows(run, table).iter().find(|row| row["cpu"] == cpu);
    found.unwrap_or_else(|| panic!("{table} of CPU {cpu}: {run}"))
}

/// Each cycle of each detour has its cause.
fn closes(run: &Json) {
    assert_eq!((&run["bench"], &run["complete"]), (&"sim".into(), &true.into()));
    assert_eq!(run["settings"]["broken"], 0, "{}", run["warnings"]);
    assert!(!rows(run, "noise").is_empty() && !rows(run, "detours").is_empty(), "{run}");
    for row in rows(run, "noise") {
        assert!(uint(row, "detour_count") > 0, "{row}");
        assert_eq!((uint(row, "remainder_ns"), row["explained_ratio"].as_f64()), (0, Some(1.0)));
        assert_eq!(uint(row, "attributed_ns") + uint(row, "indirect_ns"), uint(row, "lost_ns"));
        // Neither a way in that is not seen nor a host: absent, not zero.
        assert!(row["entry_exit_ns"].is_null() && row["unattributed_ns"].is_null(), "{row}");
        let causes = rows(run, "causes").iter().filter(|cause| cause["cpu"] == row["cpu"]);
        assert_eq!(causes.map(|cause| uint(cause, "total_ns")).sum::<u64>(), uint(row, "lost_ns"));
    }
    for row in rows(run, "detours") {
        assert_eq!(uint(row, "remainder_ns"), 0, "{row}");
        assert!(row["trigger_name"].is_string(), "a detour without a cause: {row}");
        let parts = uint(row, "attributed_ns") + uint(row, "indirect_ns");
        assert_eq!(parts, uint(row, "length_ns"), "{row}");
    }
}

/// The tick's rate on a CPU, if its ticks keep to a clock.
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

fn same_bytes(place: &Path, one: &str, other: &str) {
    let tables = names(&place.join(one).join("tables"));
    assert!(tables.len() > 4, "{tables:?}");
    for table in tables {
        let of = |run: &str| std::fs::read(place.join(run).join("tables").join(&table)).unwrap();
        assert!(of(one) == of(other), "{table}");
    }
}

#[test]
fn every_injected_detour_is_found_and_the_same_again() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let words = ["--on", "sim", "--loop", "detour", "--inject", "3:97us"];
    let run = measured(&place, &[&words[..], &["--out", "first"]].concat());
    closes(&run);
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
        let of = injected.iter().filter(|row| row["timer_count"] == timers);
        of.map(|row| uint(row, "stalled_ns")).min().unwrap_or_else(|| panic!("{timers} timers"))
    };
    assert!(longest(1) < longest(2) && longest(2) < longest(3), "more timers take longer");
    // Next to nothing that others took was missed, and an instruction takes no longer after an interrupt:
    // the loop's own part is the recording of a detour that an interrupt interrupted.
    let window = &run["settings"]["windows"][0];
    let [taken, seen] = ["taken_ns_on_cpu_0", "taken_in_detours_ns_on_cpu_0"];
    let [taken, seen] = [taken, seen].map(|name| uint(window, name));
    assert!(seen <= taken && 1000 * seen >= 999 * taken, "{window}");
    let row = of_cpu(&run, "noise", 0);
    assert!(100 * uint(row, "indirect_ns") < uint(row, "lost_ns"), "{row}");
    assert_eq!(uint(row, "uninterrupted_gap_count"), 0, "{row}");

    measured(&place, &[&words[..], &["--out", "second"]].concat());
    same_bytes(place.path(), "first", "second");
}

#[test]
fn the_tick_is_seen_where_it_lives_and_leaves_an_aftermath() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let words =
        ["--on", "sim:r4400-1994", "--vcpus", "2", "--loop", "detour,fwq", "--body", "load"];
    let periodic = measured(&place, &[&words[..], &["--out", "periodic"]].concat());
    closes(&periodic);
    ticks(&periodic, 0);
    ticks(&periodic, 1);
    let is_tick = |row: &&Json| row["name"] == "local_timer" && row["context_switch"] == false;
    for row in rows(&periodic, "aftermath").iter().filter(is_tick) {
        let of = |column: &str| row[column].as_f64().unwrap_or_else(|| panic!("{column}: {row}"));
        assert!(of("quantum_count") >= 10.0 && of("undisturbed_count") >= 500.0, "{row}");
        assert!(of("direct_mean_cycles") > 1000.0, "{row}");
        // The loop fills the cache, and a handler displaces some of its lines.
        assert!(of("indirect_mean_cycles") > of("indirect_ci95_cycles"), "{row}");
        assert!(of("indirect_p50_ci95_low_cycles") > 0.0, "{row}");
    }
    assert!(rows(&periodic, "aftermath").iter().filter(is_tick).count() == 2);

    let words = ["--on", "sim:r4400-1994", "--vcpus", "2", "--loop", "detour", "--out", "nohz"];
    let append = ["--append", "nohz_full=1", "--append", "isolcpus=1", "--append", "rcu_nocbs=1"];
    let nohz = measured(&place, &[&words[..], &append].concat());
    closes(&nohz);
    ticks(&nohz, 0);
    assert_eq!(tick_hz(&nohz, 1), None, "CPU 1 has no tick");
    let of = |run: &Json, cpu: u64| uint(of_cpu(run, "noise", cpu), "detour_count");
    assert!(10 * of(&nohz, 1) < of(&nohz, 0) && of(&periodic, 1) >= 20, "{nohz}");
}
