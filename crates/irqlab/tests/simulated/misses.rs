//! `irqlab handlers --misses`. Without QEMU the tests say so and pass.

use crate::support::{Place, can_simulate, check_refused, rows};
use serde_json::Value as Json;

fn uint(row: &Json, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))
}

#[test]
fn misses_need_a_model() {
    check_refused(&["handlers", "--misses"], "add --on sim");
    check_refused(&["handlers", "--on", "sim", "--misses"], "--on sim:MODEL");
}

#[test]
fn misses_of_handlers_have_one_class_and_one_function_and_agree_with_counters() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "handlers --on sim:r4400-1994 --misses --stimulus timer --rate low,high -d 20ms --warm-up 10ms -q \
                 --json --out run";
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let run = workspace.run(&arguments).assert_code(0).json();
    for condition in ["idle/low/timer", "idle/high/timer"] {
        let cache_rows = |table: &str, cache: &str| -> Vec<Json> {
            let is_wanted = |row: &&Json| row["condition"] == condition && row["cache"] == cache;
            rows(&run, table).iter().filter(is_wanted).cloned().collect()
        };
        // Each miss has one class and one function.
        for cache in ["L1I", "L1D", "L2"] {
            for column in ["miss_count", "cold_count", "self_count", "other_count"] {
                let sum = |table: &str| -> u64 {
                    cache_rows(table, cache).iter().map(|row| uint(row, column)).sum()
                };
                assert_eq!(sum("misses"), sum("miss_functions"), "{condition}, {cache}, {column}");
            }
        }
        // Counters of the timer's spans agree with misses of the timer's service to 5 %. Only spans that the window
        // cuts differ.
        let is_timer = |row: &&Json| row["name"] == "local_timer" && row["condition"] == condition;
        let timer_events = rows(&run, "events").iter().filter(is_timer);
        let counter_rows = timer_events.filter(|row| row["event"] == "L1-icache-load-misses");
        let counted: u64 = counter_rows.map(|row| uint(row, "self_total")).sum();
        let misses = cache_rows("misses", "L1I");
        let timer_row = misses.iter().find(|row| row["service"] == "local_timer");
        let timer_row = timer_row.unwrap_or_else(|| panic!("no timer in {misses:?}"));
        let timer_misses = uint(timer_row, "miss_count");
        assert!(
            counted > 0 && counted.abs_diff(timer_misses) * 20 <= timer_misses,
            "{counted} and {timer_misses}"
        );
    }
}

#[test]
fn functions_of_drivers_have_their_right_names() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "handlers --on sim:r4400-1994 --misses --net virtio-net --stimulus net --rate low --low-interval 5ms \
                 -d 20ms --warm-up 10ms -q --json --out run";
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let run = workspace.run(&arguments).assert_code(0).json();
    let functions: Vec<&str> =
        rows(&run, "miss_functions").iter().filter_map(|row| row["function"].as_str()).collect();
    for function in ["virtnet_poll [virtio_net]", "start_xmit [virtio_net]"] {
        assert!(functions.contains(&function), "{function}: {functions:?}");
    }
    // All code of the kernel and its modules has a name. Programs in the guest may have no symbols.
    let is_wrong = |row: &&Json| {
        let name = row["function"].as_str().unwrap_or_default();
        name.starts_with("__init_scratch")
            || name.starts_with('[') && name != "[handler entry]" && row["class"] != "user"
    };
    let wrong: Vec<&Json> = rows(&run, "miss_functions").iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let is_entry = |row: &Json| row["function"] == "[handler entry]" && row["class"] == "interrupt";
    assert!(rows(&run, "miss_functions").iter().any(is_entry), "{functions:?}");
}

/// The text of `zen3` without the levels below L1.
fn zen3_without_outer_caches() -> String {
    let mut is_kept = true;
    let lines = include_str!("../../../../machines/zen3.toml").lines().filter(|line| {
        if line.starts_with('[') {
            is_kept = !line.starts_with("[l2]") && !line.starts_with("[l3]");
        }
        is_kept && !line.starts_with("l2_hit_cycles") && !line.starts_with("l3_hit_cycles")
    });
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_model_without_a_second_level_has_no_figures_of_one() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    std::fs::write(workspace.path().join("alone.toml"), zen3_without_outer_caches()).unwrap();
    let boot = ["sim", "boot", "-q", "--json", "--on", "sim:./alone.toml", "--misses"];
    let command = ["--", "cat /sys/devices/system/cpu/cpu0/cache/index*/size"];
    let ended = workspace.run(&[&boot[..], &command].concat());
    // The guest's kernel, too, finds only the two caches of the first level.
    assert_eq!(ended.assert_code(0).err, "32K\n32K\n");
    let run = ended.json();
    let contexts = rows(&run, "contexts");
    let of_outer = |name: &&String| name.contains("l2_") || name.contains("l3_");
    let row = contexts[0].as_object().expect("a row");
    assert_eq!(row.keys().filter(of_outer).collect::<Vec<_>>(), Vec::<&String>::new());
    let misses = rows(&run, "misses");
    assert!(misses.iter().any(|row| row["cache"] == "L1D"), "{misses:?}");
    assert!(misses.iter().all(|row| row["cache"] != "L2" && row["cache"] != "L3"), "{misses:?}");

    let footprint = ["footprint", "--on", "sim:./alone.toml", "--level", "l2"];
    let refused = workspace.run(&footprint);
    assert_ne!(refused.code, Some(0));
    refused.assert_says("l2 of the model").assert_says("does not exist");
    let bare = ["sim", "bare", "footprint", "--on", "sim:./alone.toml", "--level", "l2"];
    workspace.run(&bare).assert_code(2).assert_says("has no L2");
}
