//! The tables `footprint` and `calibration`.

use record::{Absence, Column, Format, IntervalColumns, Kind, Table, TableDisplay, Value};

use super::columns::{all_rows, column, key, key_columns};
use super::curve::Curve;
use super::estimate::{
    HALF_WIDTH_RATIO, Lines, Mean, REPETITIONS_MIN, accepted, beyond_control, difference, excess,
    kernel_misses, lines, mean, user_misses,
};
use super::rounds::{self, estimate_from_rounds};
use super::sample::{Repetition, Verdict};
use super::series::Series;

fn columns() -> Vec<Column> {
    use Kind::{Bool, Real, Text, Uint};
    let ci95 = |name: &str, estimate: &str| {
        let doc = format!("Half width of the 95 % confidence interval of {estimate}.");
        column(name, Real, &doc).detail()
    };
    let us = |name: &str, kind, doc: &str| column(name, kind, doc).format(Format::Microseconds);
    let count = |name: &str, doc: &str| column(name, Uint, doc);
    let mut columns = key_columns();
    columns.extend([
        column(
            "user_misses",
            Real,
            "Misses in user mode (the loop) per interrupt: treatment minus control.",
        )
        .title("user misses ± ci95")
        .plus_minus("user_misses_ci95")
        .priority(98)
        .cost(),
        ci95("user_misses_ci95", "user_misses"),
        column("kernel_misses", Real, "Misses in kernel mode per interrupt: treatment minus control.")
            .interval(IntervalColumns::half_width("kernel_misses_ci95"))
            .shown_as("kernel misses", 97)
            .cost(),
        ci95("kernel_misses_ci95", "kernel_misses"),
        count("counter_start_misses", "Misses of the loop that starting the counters causes.").detail(),
        column(
            "displaced_lines",
            Real,
            "Lines (entries) that one interrupt displaces, from the extra time of the pass after it \
             and the calibration curve. Absent below detection_limit_lines.",
        )
        .title("lines")
        .interval(IntervalColumns::bounds("displaced_ci95_low_lines", "displaced_ci95_high_lines"))
        .bound("is_upper_bound", "≤")
        .digits(4)
        .priority(99)
        .cost(),
        column(
            "is_upper_bound",
            Bool,
            "Whether displaced_lines is an upper bound. The extra time also includes misses in other caches and \
             TLBs, and no counter shows that they are few. If the clock does not resolve single lines, a line \
             from a more distant level counts as several lines.",
        )
        .detail(),
        column(
            "displaced_ci95_low_lines",
            Real,
            "Lower end of the 95 % confidence interval of displaced_lines.",
        )
        .title("ci95")
        .up_to("displaced_ci95_high_lines")
        .digits(4)
        .priority(95),
        column(
            "displaced_ci95_high_lines",
            Real,
            "Upper end of the 95 % confidence interval of displaced_lines.",
        )
        .detail(),
        column(
            "calibration_ci95_lines",
            Real,
            "Half width of the 95 % confidence interval of displaced_lines if only the calibration curve had an \
             error. More repetitions do not reduce this part. With rounds, each with its own curve: the curves' \
             part of the spread between rounds.",
        )
        .shown_as("by curve ±", 70),
        column(
            "detection_limit_lines",
            Real,
            "Detection limit: fewer lines are not distinguishable from none (Currie, 5 % errors).",
        )
        .title("limit")
        .digits(4)
        .priority(80),
        column("displaced_ratio", Real, "displaced_lines over level_lines.")
            .shown_as("of level", 85),
        count("displaced_bytes", "displaced_lines times line_bytes.").shown_as("size", 60),
        column(
            "displaced_line_mean_cycles",
            Real,
            "Cost of one displaced line, mean over the calibration curve, and over rounds.",
        )
        .detail(),
        ci95("displaced_line_ci95_cycles", "displaced_line_mean_cycles"),
        us("indirect_mean_ns", Real, "Indirect cost: extra time of the pass after the interrupt, mean.")
            .title("indirect ± ci95")
            .plus_minus("indirect_ci95_ns")
            .priority(92),
        ci95("indirect_ci95_ns", "indirect_mean_ns"),
        us("stalled_p50_ns", Uint, "Median time that the interrupt stalled the loop.")
            .shown_as("stalled p50", 88),
        count("round_count", "Rounds, each with new memory and a new calibration; 1: no rounds.").detail(),
        count("accepted_treatment_count", "Repetitions with the interrupt (treatment) that count.")
            .shown_as("treatment", 75),
        count("accepted_control_count", "Repetitions without the interrupt (control) that count.")
            .shown_as("control", 50),
        count(
            "not_interrupted_count",
            "Repetitions excluded because the interrupt did not come within the window.",
        )
        .title("not interrupted")
        .detail(),
        count(
            "contaminated_count",
            "Repetitions excluded because other interrupts came, treatment and control together.",
        )
        .shown_as("contaminated", 40),
        count(
            "switched_or_faulted_count",
            "Repetitions excluded because the loop was switched out or had a page fault.",
        )
        .detail(),
        count(
            "stalled_count",
            "Repetitions excluded because the loop stalled without an interrupt of the kernel.",
        )
        .detail(),
        count("pass_p50_ns", "Median time of a pass over all lines with nothing displaced.").detail(),
        count("level_lines", "Lines, or entries, of the level.").detail(),
        count("line_bytes", "Size of a line, or of a page.").detail(),
        column("pages", Text, "Size of the pages of the touched memory.").priority(30),
        column("raised_by", Text, "How the interrupt was raised.").detail(),
    ]);
    columns
}

/// Notes below the table `footprint` on how its numbers were measured.
fn notes(all: &[Series]) -> Vec<String> {
    let rounds = all.iter().map(|series| series.rounds.len()).max().unwrap_or(0);
    let intervals = match rounds {
        4.. => format!(
            "intervals from the means of {rounds} rounds, each with new memory and calibration, \
             treatment minus control"
        ),
        _ => "intervals by Welch's method, as if repetitions were independent, treatment minus \
              control"
            .to_owned(),
    };
    let mut notes = [
        "loop on CPU {settings.cpu}",
        "clock resolution {settings.clock_step_ns}",
        "windows of at least {settings.window_ns} after a tick",
        "lines from the calibration curve of this run (table calibration)",
    ]
    .map(str::to_owned)
    .to_vec();
    notes.push(intervals);
    notes
}

/// Time and counters disagree if their numbers of lines differ by more than this ratio.
const DISAGREE_RATIO: f64 = 0.10;

/// The estimates of a series.
struct Estimates {
    /// Extra time of the pass after the interrupt, cycles.
    indirect_cost: Option<Mean>,
    /// Displaced lines by time.
    lines: Option<Lines>,
    user_misses: Option<Mean>,
    kernel_misses: Option<Mean>,
    /// Why an estimate is missing or inaccurate, in words.
    reason: Option<String>,
}

fn estimate(series: &Series) -> Estimates {
    let [treatment_count, control_count] =
        [&series.treatment, &series.control].map(|repetitions| accepted_count(repetitions));
    let [user_misses, kernel_misses] = [user_misses, kernel_misses]
        .map(|value| beyond_control(&series.treatment, &series.control, value));
    let estimates = |indirect_cost, lines, reason| Estimates {
        indirect_cost,
        lines,
        user_misses,
        kernel_misses,
        reason,
    };
    if treatment_count < REPETITIONS_MIN || control_count < REPETITIONS_MIN {
        let reason = format!(
            "{treatment_count} treatment and {control_count} control repetitions were accepted; \
             {REPETITIONS_MIN} of each are needed"
        );
        return estimates(None, None, Some(reason));
    }
    let [treatment, control] = [&series.treatment, &series.control]
        .map(|repetitions| mean(&accepted(repetitions, excess)));
    let Some((treatment, control)) = treatment.zip(control) else {
        let neither = "neither timed nor counted (repetitions are not timed in windows with ticks)"
            .to_owned();
        let reason = user_misses.map_or(Some(neither), too_wide);
        return estimates(None, None, reason);
    };
    let (indirect_cost, by_time) = match estimate_from_rounds(series) {
        Some(estimate) => (Some(estimate.indirect_cost), estimate.lines),
        None => {
            let indirect_cost = difference(treatment, control);
            let reading = indirect_cost.zip(rounds::curve(series));
            (indirect_cost, reading.and_then(|(cycles, curve)| lines(cycles, &curve)))
        }
    };
    if series.ready.curve.is_none() {
        return estimates(indirect_cost, None, user_misses.and_then(too_wide));
    }
    let reason = match &by_time {
        None => Some("the clock cannot resolve displaced lines of this level".to_owned()),
        Some(Lines { from_farther: true, .. }) => Some(
            "the pass took longer than with all lines displaced: some lines came from beyond the next \
             level"
                .to_owned(),
        ),
        Some(Lines { lines: None, limit, .. }) => {
            Some(format!("below the detection limit of {limit:.1} lines"))
        }
        Some(by_time) => user_misses
            .and_then(|misses| disagree(misses, by_time))
            .or_else(|| lines_too_wide(by_time)),
    };
    estimates(indirect_cost, by_time, reason)
}

/// A sentence if the mean's interval is wider than the target.
fn too_wide(mean: Mean) -> Option<String> {
    let ratio = mean.half_width / mean.mean.abs();
    let percent = ratio * 100.0;
    (ratio > HALF_WIDTH_RATIO).then(|| {
        format!("the interval is ± {percent:.0} %, wider than ± 5 %, after all repetitions")
    })
}

/// A sentence if the interval of lines by time is wider than the target. It names the part by the calibration
/// curve, which more repetitions do not reduce.
fn lines_too_wide(by_time: &Lines) -> Option<String> {
    let lines = by_time.lines.filter(|lines| *lines > 0.0)?;
    let half_width = (by_time.interval.1 - by_time.interval.0) / 2.0;
    let [percent, calibration] =
        [half_width, by_time.calibration_half_width].map(|width| 100.0 * width / lines);
    (half_width > HALF_WIDTH_RATIO * lines).then(|| {
        format!(
            "the interval is ± {percent:.0} %, wider than ± 5 %, after all repetitions; ± {calibration:.0} % \
             by the calibration curve alone"
        )
    })
}

/// A sentence if time and counters disagree: their intervals do not overlap, and their numbers differ by more
/// than [`DISAGREE_RATIO`].
fn disagree(user_misses: Mean, by_time: &Lines) -> Option<String> {
    let (low, high) = by_time.interval;
    let Mean { mean, half_width, .. } = user_misses;
    let is_apart = low > mean + half_width || high < mean - half_width;
    let lines = by_time.lines?;
    let differs = (lines - mean).abs() > DISAGREE_RATIO * mean.abs();
    (is_apart && differs)
        .then(|| format!("time and counters disagree: {lines:.1} lines and {mean:.1} misses"))
}

fn accepted_count(repetitions: &[Repetition]) -> usize {
    let is_accepted = |repetition: &&Repetition| repetition.verdict == Verdict::Accepted;
    repetitions.iter().filter(is_accepted).count()
}

/// Displaced lines by time, and half the width of their interval.
pub(super) fn timed_lines(series: &Series) -> Option<(f64, f64)> {
    let by_time = estimate(series).lines?;
    Some((by_time.lines?, (by_time.interval.1 - by_time.interval.0) / 2.0))
}

/// Number of treatment and control repetitions with this verdict.
fn verdict_count(series: &Series, verdict: Verdict) -> Value {
    let repetitions = series.treatment.iter().chain(&series.control);
    Value::Uint(repetitions.filter(|repetition| repetition.verdict == verdict).count() as u64)
}

/// Median stall of the accepted repetitions, cycles.
fn stalled_median(repetitions: &[Repetition]) -> Option<u64> {
    let accepted = repetitions.iter().filter(|repetition| repetition.verdict == Verdict::Accepted);
    let mut stalls: Vec<u64> =
        accepted.filter_map(|repetition| repetition.stalled_cycles).collect();
    stalls.sort_unstable();
    stalls.get(stalls.len() / 2).copied()
}

/// Table `footprint`: one row per series. Adds a reason to `absent` for each missing or inaccurate estimate.
pub(super) fn footprint(all: &[Series], clock_hz: f64, absent: &mut Vec<Absence>) -> Table {
    let doc = "Lines of a loop that one interrupt displaces from a cache or TLB, and their cost for the loop \
               after the interrupt.";
    let display = TableDisplay { notes: notes(all), ..all_rows() };
    let mut table = Table::new("footprint", doc, columns()).displayed(display);
    for series in all {
        let estimates = estimate(series);
        if let Some(reason) = &estimates.reason {
            absent.push(Absence {
                table: "footprint".to_owned(),
                what: format!("{}, {}, {}", series.level, series.stimulus, series.method),
                reason: reason.clone(),
                remedy: None,
            });
        }
        table.push(row(series, &estimates, clock_hz));
    }
    table
}

/// Whether the lines by time are an upper bound. The extra time also includes misses in TLBs and other caches.
/// The lines are exact only if the clock times single lines and the counted misses are not fewer.
fn is_bound(series: &Series, estimates: &Estimates) -> bool {
    let is_less =
        |(misses, by_time): (Mean, Lines)| misses.mean + misses.half_width < by_time.interval.0;
    let counted = estimates.user_misses.zip(estimates.lines);
    series.ready.chunk_lines > 1 || counted.is_none_or(is_less)
}

fn row(series: &Series, estimates: &Estimates, clock_hz: f64) -> Vec<Value> {
    let geometry = series.ready.geometry;
    let real = |value: Option<f64>| value.map_or(Value::Absent, Value::real);
    let ns = |cycles: f64| cycles * 1e9 / clock_hz;
    let whole_ns = |cycles: u64| ns(cycles as f64).round() as u64;
    let by_time = estimates.lines;
    let lines = by_time.and_then(|by_time| by_time.lines);
    let cost = rounds::line_cost(series);
    let count = |repetitions: &[Repetition]| Value::Uint(accepted_count(repetitions) as u64);
    let mut row = key(series);
    row.extend([
        real(estimates.user_misses.map(|misses| misses.mean)),
        real(estimates.user_misses.map(|misses| misses.half_width)),
        real(estimates.kernel_misses.map(|misses| misses.mean)),
        real(estimates.kernel_misses.map(|misses| misses.half_width)),
        series.ready.start_misses.into(),
        real(lines),
        lines.map(|_| is_bound(series, estimates)).into(),
        real(by_time.map(|by_time| by_time.interval.0)),
        real(by_time.map(|by_time| by_time.interval.1)),
        real(by_time.map(|by_time| by_time.calibration_half_width)),
        real(by_time.map(|by_time| by_time.limit)),
        real(lines.map(|lines| lines / geometry.lines() as f64)),
        lines.map(|lines| (lines * f64::from(geometry.line_bytes)).round() as u64).into(),
        real(cost.map(|cost| cost.mean_cycles)),
        real(cost.map(|cost| cost.half_width_cycles)),
        real(estimates.indirect_cost.map(|cycles| ns(cycles.mean))),
        real(estimates.indirect_cost.map(|cycles| ns(cycles.half_width))),
        stalled_median(&series.treatment).map(whole_ns).into(),
        (series.rounds.len().max(1) as u64).into(),
        count(&series.treatment),
        count(&series.control),
        verdict_count(series, Verdict::NotInterrupted),
        verdict_count(series, Verdict::Contaminated),
        verdict_count(series, Verdict::Switched),
        verdict_count(series, Verdict::Paused),
        whole_ns(series.ready.pass_cycles).into(),
        geometry.lines().into(),
        u64::from(geometry.line_bytes).into(),
        series.ready.pages.as_str().into(),
        series.ready.raised_by.as_str().into(),
    ]);
    row
}

/// Table `calibration`: the curves that convert times to lines, one row per point.
pub(super) fn curves(all: &[Series]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        column("round", Kind::Uint, "Round of the curve, from 1."),
        column("displaced_lines", Kind::Uint, "Lines that the loop itself displaced."),
        column("excess_cycles", Kind::Real, "Extra time of the next pass, median.")
            .title("excess cycles ± ci95")
            .plus_minus("excess_ci95_cycles"),
        column(
            "excess_ci95_cycles",
            Kind::Real,
            "Half width of the 95 % confidence interval of excess_cycles, by Price and Bonett's \
             standard error of a median and the steps of a simulated machine's clock.",
        )
        .detail(),
        column(
            "repetition_count",
            Kind::Uint,
            "Number of repetitions behind the median excess_cycles.",
        ),
    ]);
    let doc = "Calibration: extra time of a pass after a known number of lines was displaced.";
    let mut table = Table::new("calibration", doc, columns);
    for series in all {
        let curves: Vec<&Curve> = match &series.rounds[..] {
            [] => series.ready.curve.iter().collect(),
            rounds => rounds.iter().filter_map(|round| round.curve.as_ref()).collect(),
        };
        for (round, curve) in (1_u64..).zip(curves) {
            for point in curve.points() {
                let mut row = key(series);
                row.extend([Value::Uint(round), Value::Uint(point.lines)]);
                row.extend([point.excess_cycles, point.half_width_cycles()].map(Value::real));
                row.push(Value::Uint(point.repetitions as u64));
                table.push(row);
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::contexts::{Windows, by_context, modes};
    use super::super::curve::tests::exact;
    use super::super::series::Round;
    use super::super::sums::sums;
    use super::super::tests::counted;
    use super::*;

    /// A series with 100 misses by counters. One line costs one cycle, so `cycles` is also the lines by time.
    fn timed(cycles: i64) -> Series {
        let mut series = counted(300, 200);
        series.ready.curve = Some(exact(&[(0, 0), (256, 256)]));
        series.treatment.iter_mut().for_each(|treatment| treatment.excess_cycles = Some(cycles));
        series.control.iter_mut().for_each(|control| control.excess_cycles = Some(0));
        series
    }

    #[test]
    fn time_and_counters_that_disagree_have_a_reason_and_longer_time_is_a_bound() {
        for (cycles, disagrees, bound) in
            [(100, false, false), (105, false, true), (120, true, true), (80, true, false)]
        {
            let estimates = estimate(&timed(cycles));
            let has_reason = estimates.reason.as_ref().is_some_and(|why| why.contains("disagree"));
            let is_bound = is_bound(&timed(cycles), &estimates);
            assert_eq!((has_reason, is_bound), (disagrees, bound), "{cycles}");
        }
    }

    #[test]
    fn a_reason_names_the_part_of_the_curve() {
        let mut series = timed(100);
        assert_eq!(estimate(&series).reason, None);
        let around = |cycles: i64| (-8..=8).map(|step| cycles + 4 * step).collect();
        series.ready.curve = Some(Curve::new([(0, around(0)), (256, around(256))]));
        let estimates = estimate(&series);
        let (low, high) = estimates.lines.unwrap().interval;
        let half_width = estimates.lines.unwrap().calibration_half_width;
        assert!(((high - low) / 2.0 - half_width).abs() < 1e-6, "the times have no spread");
        let expected = format!("± {half_width:.0} % by the calibration curve alone");
        let reason = estimates.reason.unwrap_or_default();
        assert!(reason.ends_with(&expected), "{reason}");
        // The table has the curve of each round.
        let curve = series.ready.curve.clone();
        series.rounds = vec![Round { curve, treatment: 22, control: 22 }; 3];
        assert_eq!(curves(&[series]).rows().len(), 3 * 2);
    }

    #[test]
    fn display_hints_name_existing_columns() {
        let windows = Windows::default();
        let tables = [
            footprint(&[], 1e9, &mut Vec::new()),
            curves(&[]),
            sums(&[]),
            modes(&[], &windows),
            by_context(&[], &windows),
        ];
        for table in tables {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }

    #[test]
    fn a_series_without_times_still_has_counts() {
        let counted_only = estimate(&counted(300, 200));
        assert_eq!(counted_only.user_misses.map(|misses| misses.mean), Some(100.0));
        assert!(counted_only.indirect_cost.is_none() && counted_only.lines.is_none());
        assert_eq!(counted_only.reason, None);
        let mut uncounted = counted(300, 200);
        let repetitions = uncounted.treatment.iter_mut().chain(&mut uncounted.control);
        repetitions.for_each(|repetition| repetition.user_misses = None);
        assert!(estimate(&uncounted).reason.is_some_and(|why| why.starts_with("neither")));
    }
}
