//! The counts of a real run compared with the kernel's own.

use std::collections::BTreeMap;

use crate::support::{Place, alone, can_measure, rows};
use serde_json::Value as Json;

fn count(row: &Json, column: &str) -> Option<u64> {
    row[column].as_u64()
}

/// Events that the kernel counted but did not deliver to the probes, by condition and CPU. On the kernel of this
/// VM, BPF programs do not see events while threads of PID 1 run.
fn undelivered(agreement: &[Json]) -> BTreeMap<(String, u64), u64> {
    let mut undelivered = BTreeMap::new();
    for row in agreement {
        if let (Some(counted), Some(exact)) =
            (count(row, "irqlab_count"), count(row, "kernel_count"))
        {
            let key = (row["condition"].to_string(), count(row, "cpu").unwrap());
            let lacks = exact.saturating_sub(counted + count(row, "edge_tolerance_count").unwrap());
            *undelivered.entry(key).or_default() += lacks;
        }
    }
    undelivered
}

fn check(row: &Json, undelivered: u64) {
    let Some(counted) = count(row, "irqlab_count") else {
        assert!(row["agrees"].is_null(), "without a count there is nothing to agree: {row}");
        return;
    };
    let edge = count(row, "edge_tolerance_count").expect("every row has its edges");
    if let Some(exact) = count(row, "kernel_count") {
        assert!(counted <= exact + edge, "never more than the kernel: {row}");
        assert_eq!(row["agrees"], counted + edge >= exact, "{row}");
        return;
    }
    if let Some(max) = count(row, "kernel_max_count") {
        assert!(counted <= max, "never more than the files allow: {row}");
    }
    if let Some(min) = count(row, "kernel_min_count") {
        assert!(counted + undelivered >= min, "less than the files allow: {row}");
        if undelivered == 0 {
            assert_eq!(row["agrees"], true, "{row}");
        }
    }
}

#[test]
fn counts_agree_with_the_kernel_except_for_undelivered_events() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["handlers", "-q", "-d", "2s", "--rate", "high", "--events", "none", "--json"];
    let sources = ["--stimulus", "disk,net,timer,ipi"];
    let run = workspace.run(&[&arguments[..], &sources].concat()).assert_code(0).json();
    let agreement = rows(&run, "agreement");
    let undelivered = undelivered(agreement);
    println!("undelivered: {undelivered:?}");
    let mut exact = 0;
    for row in agreement {
        let key = (row["condition"].to_string(), count(row, "cpu").unwrap());
        check(row, undelivered.get(&key).copied().unwrap_or(0));
        exact += count(row, "kernel_count").unwrap_or(0);
    }
    assert!(exact > 1_000, "the sources raise thousands: {exact}");
    let total: u64 = undelivered.values().sum();
    assert!(total <= exact / 10, "{total} of {exact} undelivered: more than PID 1 explains");
    let lacking: u64 = rows(&run, "conditions")
        .iter()
        .filter_map(|row| count(row, "undelivered_event_count"))
        .sum();
    assert_eq!(lacking, total, "table conditions says how many are lacking");
    assert_eq!(run["observer"]["events_undelivered"], total);
    assert_eq!(run["observer"]["events_lost"], 0);
    let conditions = rows(&run, "conditions").len();
    assert!(conditions >= 2, "every machine has at least timer and ipi: {conditions}");
}

#[test]
fn the_handlers_table_counts_what_the_agreement_table_compares() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["handlers", "-q", "-d", "1s", "--stimulus", "timer", "--rate", "high"];
    let run = workspace.run(&[&arguments[..], &["--events", "none", "--json"]].concat()).json();
    let ticks = || rows(&run, "agreement").iter().filter(|row| row["line"] == "LOC");
    assert!(ticks().count() > 0, "nothing is compared: {run}");
    for line in ticks() {
        let cpu = count(line, "cpu").unwrap().to_string();
        let is_timer = |row: &&Json| row["name"] == "local_timer" && row["cpu"] == *cpu;
        let timer = rows(&run, "handlers").iter().find(is_timer).expect("its row");
        let counted = count(line, "irqlab_count").unwrap();
        // A span that is open when the window closes counts as an entry, but not as a span.
        let ended = count(timer, "count").unwrap() + count(timer, "unmatched_entry_count").unwrap();
        assert!(counted - ended <= 1, "{line} {timer}");
    }
}
