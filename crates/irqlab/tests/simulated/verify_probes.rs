//! Compares the live bench in a simulated machine with the simulator's record. Without QEMU the test says so and
//! passes.

use crate::support::{Place, can_simulate, rows};
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
