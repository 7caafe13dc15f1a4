//! The live bench in a simulated machine, compared with what the simulator recorded. Where there is no QEMU,
//! says so and passes.

use crate::support::{Place, can_simulate, rows};
use serde_json::Value as Json;

/// Most that the mean of instructions may be off the truth.
const INSTRUCTIONS_OFF: f64 = 0.05;
/// The same for cycles. Programs built without optimisation leave less of the probes in the caches, and
/// what reading the counters costs is subtracted as if it were there (docs/sim.md).
const CYCLES_OFF: f64 = 0.2;
/// The same for times, in a window much shorter than that of the documented table.
const TIME_OFF: f64 = 0.1;

fn number(row: &Json, column: &str) -> f64 {
    row[column].as_f64().unwrap_or_else(|| panic!("{column}: {row}"))
}

/// By which part two numbers are apart.
fn apart(one: f64, other: f64) -> f64 {
    (one / other - 1.0).abs()
}

#[test]
fn what_the_probes_of_a_disk_say_is_what_was() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let words = ["sim", "verify-probes", "-q", "--json", "--events", "--stimulus", "disk"];
    let more = ["--disk", "virtio-blk,latency=100us", "-d", "200ms", "--warm-up", "50ms"];
    let run = place.run(&[&words[..], &more[..]].concat()).assert_code(0).json();
    let disk = rows(&run, "probes").iter().find(|row| row["kind"] == "irq");
    let disk = disk.unwrap_or_else(|| panic!("no disk: {run}"));
    assert!(number(disk, "measured_count") >= 100.0, "{disk}");
    assert_eq!(disk["measured_count"], disk["exact_count"], "{disk}");
    assert_eq!(disk["measured_event_span_count"], disk["exact_event_span_count"], "{disk}");
    assert!(number(disk, "self_mean_error_ratio").abs() < TIME_OFF, "{disk}");
    assert!(number(disk, "instructions_error_ratio").abs() < INSTRUCTIONS_OFF, "{disk}");
    assert!(number(disk, "cycles_error_ratio").abs() < CYCLES_OFF, "{disk}");
    // The same work in the window of the times and in that of the events, but for how it started.
    let [times, events] = ["exact_self_mean_instructions", "exact_mean_instructions"]
        .map(|column| number(disk, column));
    assert!(apart(times, events) < 0.1, "{disk}");
}
