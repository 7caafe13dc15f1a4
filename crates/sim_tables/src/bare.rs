//! Tables of the machine without a kernel, for `irqlab sim bare`: `bare_footprint`, `bare_accuracy` and
//! `bare_calibration`. Column names and their order are public: a recorded run has them.

use lab::footprint::curve::CurvePoint;
use record::{Columns, IntervalColumns, Table, column};
use sim::bare::{Point, Repetition};
use sim::counters;

/// Counters of the simulator that table `bare_footprint` shows.
const EXACT: [&str; 6] = [
    "cycles",
    "l1i_misses",
    "l1d_load_misses",
    "l1d_store_misses",
    "l2_fetch_misses",
    "l2_data_misses",
];

/// Returns the table `bare_footprint`: repetitions, alternately without and with an interrupt. `events`: names of the
/// events that the guest's performance counters counted, in the order of [`Repetition::read`].
#[must_use]
pub fn repetitions(repetitions: &[Repetition], events: &[&str]) -> Table {
    /// The position of a repetition, and the repetition.
    type Row<'a> = (usize, &'a Repetition);
    let columns = Columns::all([
        column("repetition", "Number of the repetition, from 1.")
            .key()
            .uint(|(number, _): &Row<'_>| *number / 2 + 1),
        column("interrupt", "Whether an interrupt was scheduled.")
            .key()
            .bool(|(_, repetition): &Row<'_>| repetition.irq),
        column("handled_count", "How often the handler ran.")
            .uint(|(_, repetition): &Row<'_>| repetition.ran),
        column("last_pass_ns", "Duration of the last pass over all lines, by the machine's clock.")
            .uint(|(_, repetition): &Row<'_>| repetition.touch),
        column("counted_ns", "Time from the start to the end of the counters.")
            .uint(|(_, repetition): &Row<'_>| repetition.all),
    ]);
    let doc = "Counted by the guest's performance counters.";
    let columns = columns.and(events.iter().enumerate().map(|(event, name)| {
        column(name, doc).uint(move |(_, repetition): &Row<'_>| repetition.read[event])
    }));
    let doc = "Counted by the simulator, including the reading of the counters.";
    let columns = columns.and(EXACT.map(|name| {
        let counter =
            (0..counters::COUNTERS).find(|counter| counters::name(*counter) == Some(name));
        column(name, doc)
            .uint(move |(_, repetition): &Row<'_>| counter.map(|counter| repetition.exact[counter]))
    }));
    let doc = "Misses and times of a filled cache, without an interrupt and with it.";
    columns.table("bare_footprint", doc, repetitions.iter().enumerate())
}

/// Returns the table `bare_accuracy`: lines that each method counted, and lines that were displaced.
#[must_use]
pub fn accuracy(points: &[Point]) -> Table {
    let truth = "Exact number of displaced lines of the program, including those displaced by the \
                 handler's own stack, table and code";
    let found = "Misses in user mode, treatment minus control";
    let columns = Columns::all([
        column("handler_lines", "Lines that the handler touches.")
            .key()
            .uint(|point: &Point| point.handler_lines),
        column("displaced_basic_lines", &format!("{truth} (basic method)."))
            .uint(|point: &Point| point.basic.truth),
        column("counted_basic_lines", &format!("{found}, basic method."))
            .int(|point: &Point| point.basic.found),
        column(
            "timed_lines",
            "Lines by the extra time of the last pass (basic method); absent below the \
             detection limit, and where the pass took longer than with all lines displaced.",
        )
        .real(|point: &Point| point.timed),
        column("timed_error_ratio", "timed_lines over displaced_basic_lines, minus 1.")
            .real(|point: &Point| point.timed_error_ratio()),
        column(
            "detection_limit_lines",
            "Detection limit by time: fewer lines are not distinguishable from none. Absent above the cache's number \
             of lines.",
        )
        .real(|point: &Point| point.limit),
        column("displaced_refined_lines", &format!("{truth} (refined method)."))
            .uint(|point: &Point| point.refined.truth),
        column("counted_refined_lines", &format!("{found}, refined method."))
            .int(|point: &Point| point.refined.found),
        column(
            "refined_is_accurate",
            "Whether counted_refined_lines is within 2 lines or 1 % of the exact number.",
        )
        .bool(|point: &Point| point.refined.holds()),
        column(
            "basic_is_accurate",
            "Whether counted_basic_lines is within 2 lines or 1 % of the exact number.",
        )
        .bool(|point: &Point| point.basic.holds()),
        column(
            "timed_is_accurate",
            "Whether timed_lines is within 10 %, or absent where fewer lines are below the \
             limit.",
        )
        .bool(|point: &Point| point.time_holds()),
    ]);
    let doc = "Lines counted by each method, and lines displaced.";
    columns.table("bare_accuracy", doc, points)
}

/// Returns the table `bare_calibration`: the cost of displaced lines.
#[must_use]
pub fn calibration(points: &[CurvePoint]) -> Table {
    let columns = Columns::all([
        column("displaced_lines", "Lines that the program itself displaced.")
            .key()
            .uint(|point: &CurvePoint| point.lines),
        column("excess_ns", "Extra time of the last pass over all lines, median.")
            .interval(IntervalColumns::half_width("excess_ci95_ns"))
            .real(|point: &CurvePoint| point.excess_cycles),
        column("excess_ci95_ns", "Half width of the 95 % confidence interval of excess_ns.")
            .real(|point: &CurvePoint| point.half_width_cycles()),
    ]);
    let doc = "Calibration: the cost of displaced lines.";
    columns.table("bare_calibration", doc, points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_of_the_guest_has_a_column() {
        let names = |events: &[&str]| {
            let table = repetitions(&[], events);
            table.columns.into_iter().map(|column| column.name).collect::<Vec<_>>()
        };
        let (without, with) = (names(&[]), names(&["pmu_misses"]));
        assert_eq!(with.len(), without.len() + 1);
        assert!(with.contains(&"pmu_misses".to_owned()), "{with:?}");
    }

    #[test]
    fn the_interval_of_the_calibration_exists() {
        assert_eq!(calibration(&[]).check_display(), Ok(()));
    }

    #[test]
    fn every_counter_of_the_table_exists() {
        let known: Vec<&str> = (0..counters::COUNTERS).filter_map(counters::name).collect();
        assert!(EXACT.iter().all(|name| known.contains(name)), "{known:?}");
    }
}
