//! Columns of the table `services` that the bench of a sample cannot fill.

use record::Absence;

use super::super::counters::{CYCLES, DATA_STALL};
use super::super::sample::ServicesSample;

/// The columns that are empty in all rows, with the reason.
pub(in super::super) fn absent_columns(sample: &ServicesSample) -> Vec<Absence> {
    let absence = |columns: &str, reason: &str| {
        Absence::new("services", columns, reason).with_remedy(Some("--on sim:MODEL"))
    };
    let mut absent = Vec::new();
    if sample.counter(CYCLES).is_none() {
        let reason = "nothing counts cycles of single services on this bench";
        absent.push(absence("CPI and memory stalls", reason));
    } else if sample.counter(DATA_STALL).is_none() {
        let reason = "without a model each instruction takes one cycle";
        absent.push(absence("memory stalls", reason));
    }
    absent
}
