//! The tables `footprint` and `calibration`, from the series. `experiment.rs` puts them into the report. Names and
//! order of the columns, and the reasons of absences, are public.

use std::collections::BTreeSet;

use record::{Absence, Columns, Format, IntervalColumns, Table, TableDisplay, column};

use super::Geometry;
use super::columns::{all_rows, key_columns};
use super::curve::{Curve, CurvePoint, LineCost};
use super::estimate::{
    DisplacedLines, Mean, REPETITIONS_MIN, accepted, difference, estimate_displaced_lines, excess,
    kernel_misses, mean, user_misses,
};
use super::reasons::{
    counts_more, reason_disagreement, reason_flat_rounds, reason_refuted,
    reason_rounds_without_lines, reason_short_interrupts, reason_wide_interval, reason_wide_lines,
};
use super::rounds::{self, ROUNDS_MIN, Spread, beyond_control_with_spread, estimate_from_rounds};
use super::sample::{Repetition, Verdict};
use super::series::Series;
use super::sums::LineEstimate;

/// A row of table `footprint`: a series and its estimates.
struct Row<'a> {
    series: &'a Series,
    estimates: Estimates,
    line_cost: Option<LineCost>,
}

impl Row<'_> {
    /// Displaced lines by time. An upper bound is the upper end of the interval. `None` below the detection limit.
    fn lines(&self) -> Option<f64> {
        let by_time = self.estimates.lines?;
        let count = by_time.count?;
        let is_bound = is_upper_bound(self.series, &self.estimates);
        Some(if is_bound { by_time.interval.1 } else { count })
    }

    /// The 95 % interval of the displaced lines. If the time is only an upper bound, other misses can be all of it: the
    /// interval then starts at 0.
    fn interval(&self) -> Option<(f64, f64)> {
        let (low, high) = self.estimates.lines?.interval;
        let is_confirmed = !is_upper_bound(self.series, &self.estimates);
        Some((if is_confirmed { low } else { 0.0 }, high))
    }

    fn geometry(&self) -> Geometry {
        self.series.ready.geometry
    }
}

fn columns<'a>(clock_hz: f64) -> Columns<'a, Row<'a>> {
    let ns = move |cycles: f64| cycles * 1e9 / clock_hz;
    let whole_ns = move |cycles: u64| ns(cycles as f64).round() as u64;
    let ci95 = |name: &str, estimate: &str| {
        let doc = format!("Half width of the 95 % confidence interval of {estimate}.");
        column(name, &doc).detail()
    };
    let us_column = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    Columns::all([
        key_columns().of(|row: &Row<'_>| row.series.key()),
        column(
            "user_misses",
            "Misses in user mode (the loop) per interrupt: treatment minus control.",
        )
        .title("user misses ± ci95")
        .plus_minus("user_misses_ci95")
        .priority(98)
        .cost()
        .real(|row: &Row<'_>| row.estimates.user_misses.map(|misses| misses.mean)),
        ci95("user_misses_ci95", "user_misses")
            .real(|row: &Row<'_>| row.estimates.user_misses.map(|misses| misses.half_width)),
        column("kernel_misses", "Misses in kernel mode per interrupt: treatment minus control.")
            .interval(IntervalColumns::half_width("kernel_misses_ci95"))
            .shown_as("kernel misses", 97)
            .cost()
            .real(|row: &Row<'_>| row.estimates.kernel_misses.map(|misses| misses.mean)),
        ci95("kernel_misses_ci95", "kernel_misses")
            .real(|row: &Row<'_>| row.estimates.kernel_misses.map(|misses| misses.half_width)),
        column("counter_start_misses", "Misses of the loop that starting the counters causes.")
            .detail()
            .uint(|row: &Row<'_>| row.series.ready.start_misses),
        column(
            "displaced_lines",
            "Lines (entries) that one interrupt displaces, from the extra time of the pass \
             after it and the calibration curve. If is_upper_bound: the upper end of their interval. Absent below \
             detection_limit_lines, and if more misses are counted than the time allows.",
        )
        .title("lines")
        .interval(IntervalColumns::bounds("displaced_ci95_low_lines", "displaced_ci95_high_lines"))
        .bound("is_upper_bound", "≤")
        .digits(4)
        .priority(99)
        .cost()
        .real(|row: &Row<'_>| row.lines()),
        column(
            "is_upper_bound",
            "Whether displaced_lines is an upper bound. The extra time also includes misses in \
             other caches and TLBs, and no counter shows that they are few. If the clock does \
             not resolve single lines, a line from a more distant level counts as several \
             lines.",
        )
        .detail()
        .bool(|row: &Row<'_>| row.lines().map(|_| is_upper_bound(row.series, &row.estimates))),
        column(
            "displaced_ci95_low_lines",
            "Lower end of the 95 % confidence interval of displaced_lines. 0 where only the time is known and no counter \
             confirms it: the extra time can be that of other misses.",
        )
        .title("ci95")
        .up_to("displaced_ci95_high_lines")
        .digits(4)
        .priority(95)
        .real(|row: &Row<'_>| row.interval().map(|(low, _)| low)),
        column(
            "displaced_ci95_high_lines",
            "Upper end of the 95 % confidence interval of displaced_lines.",
        )
        .detail()
        .real(|row: &Row<'_>| row.interval().map(|(_, high)| high)),
        column(
            "calibration_ci95_lines",
            "Half width of the 95 % confidence interval of displaced_lines if only the \
             calibration curve had an error. More repetitions do not reduce this part. With \
             rounds, each with its own curve: the curves' part of the spread between rounds. Absent if the pass \
             took longer than with all lines displaced.",
        )
        .shown_as("by curve ±", 70)
        .real(|row: &Row<'_>| {
            let by_time = row.estimates.lines.filter(|by_time| !by_time.exceeds_level)?;
            Some(by_time.calibration_half_width)
        }),
        column(
            "detection_limit_lines",
            "Detection limit: fewer lines are not distinguishable from none (Currie, 5 % \
             errors). Absent if it is above level_lines.",
        )
        .title("limit")
        .digits(4)
        .priority(80)
        .real(|row: &Row<'_>| row.estimates.lines.and_then(|by_time| by_time.limit_in_level())),
        column("displaced_ratio", "displaced_lines over level_lines. An upper bound if is_upper_bound.")
            .shown_as("of level", 85)
            .bound("is_upper_bound", "≤")
            .real(|row: &Row<'_>| row.lines().map(|lines| lines / row.geometry().lines() as f64)),
        column("displaced_bytes", "displaced_lines times line_bytes. An upper bound if is_upper_bound.")
            .shown_as("size", 60)
            .bound("is_upper_bound", "≤")
            .uint(|row: &Row<'_>| {
                let bytes = row.lines()? * f64::from(row.geometry().line_bytes);
                Some(bytes.round() as u64)
            }),
        column(
            "displaced_line_mean_cycles",
            "Cost of one displaced line, mean over the calibration curve, and over rounds, in cycles of the \
             time-stamp counter (in a simulated machine 1 ns each, whatever the model's clock).",
        )
        .interval(IntervalColumns::half_width("displaced_line_ci95_cycles"))
        .detail()
        .real(|row: &Row<'_>| row.line_cost.map(|cost| cost.mean_cycles)),
        ci95("displaced_line_ci95_cycles", "displaced_line_mean_cycles")
            .real(|row: &Row<'_>| row.line_cost.map(|cost| cost.half_width_cycles)),
        us_column("indirect_mean_ns", "Indirect cost: extra time of the pass after the interrupt, mean.")
            .title("indirect ± ci95")
            .plus_minus("indirect_ci95_ns")
            .priority(92)
            .real(move |row: &Row<'_>| row.estimates.indirect_cost.map(|cycles| ns(cycles.mean))),
        ci95("indirect_ci95_ns", "indirect_mean_ns").real(move |row: &Row<'_>| {
            row.estimates.indirect_cost.map(|cycles| ns(cycles.half_width))
        }),
        us_column(
            "stalled_p50_ns",
            "Median time that the interrupt stalled the loop: the time of the interrupted chunk of \
             lines less its usual time. Misses of this chunk are in it.",
        )
        .shown_as("stalled p50", 88)
        .uint(move |row: &Row<'_>| stalled_median(&row.series.treatment).map(whole_ns)),
        column("round_count", "Rounds, each with new memory and a new calibration; 1: no rounds.")
            .detail()
            .uint(|row: &Row<'_>| row.series.rounds.len().max(1)),
        column(
            "accepted_treatment_count",
            "Repetitions with the interrupt (treatment) that count.",
        )
        .shown_as("treatment", 75)
        .uint(|row: &Row<'_>| accepted_count(&row.series.treatment)),
        column("accepted_control_count", "Repetitions without the interrupt (control) that count.")
            .shown_as("control", 50)
            .uint(|row: &Row<'_>| accepted_count(&row.series.control)),
        column(
            "not_interrupted_count",
            "Repetitions excluded because the interrupt did not come within the window.",
        )
        .title("not interrupted")
        .detail()
        .uint(|row: &Row<'_>| verdict_count(row.series, Verdict::NotInterrupted)),
        column(
            "unseen_count",
            "Repetitions excluded because the interrupt was due within the window, but too short for the \
             loop to detect.",
        )
        .title("unseen")
        .detail()
        .uint(|row: &Row<'_>| verdict_count(row.series, Verdict::Unseen)),
        column(
            "contaminated_count",
            "Repetitions excluded because other interrupts came, treatment and control \
             together.",
        )
        .shown_as("contaminated", 40)
        .uint(|row: &Row<'_>| verdict_count(row.series, Verdict::Contaminated)),
        column(
            "switched_or_faulted_count",
            "Repetitions excluded because the loop was switched out or had a page fault.",
        )
        .detail()
        .uint(|row: &Row<'_>| verdict_count(row.series, Verdict::Switched)),
        column(
            "stalled_count",
            "Repetitions excluded because the loop stalled without an interrupt of the kernel.",
        )
        .detail()
        .uint(|row: &Row<'_>| verdict_count(row.series, Verdict::Paused)),
        column("pass_p50_ns", "Median time of a pass over all lines with nothing displaced.")
            .detail()
            .uint(move |row: &Row<'_>| whole_ns(row.series.ready.pass_cycles)),
        column("level_lines", "Lines, or entries, of the level.")
            .detail()
            .uint(|row: &Row<'_>| row.geometry().lines()),
        column("line_bytes", "Size of a line, or of a page.")
            .detail()
            .uint(|row: &Row<'_>| row.geometry().line_bytes),
        column("pages", "Size of the pages of the touched memory.")
            .priority(30)
            .text(|row: &Row<'_>| row.series.ready.pages.clone()),
        column("raised_by", "How the interrupt was raised.")
            .detail()
            .text(|row: &Row<'_>| row.series.ready.raised_by.clone()),
    ])
}

/// Maximum number of rows that a note names.
const NAMED_ROWS_MAX: usize = 6;

/// The rows' levels, stimuli and methods: the first [`NAMED_ROWS_MAX`] rows, and the number of the others.
fn row_names(rows: &[&Row<'_>]) -> String {
    let name = |row: &&Row<'_>| {
        let (level, stimulus, method) = row.series.key();
        format!("{level} {stimulus} {method}")
    };
    let names: Vec<String> = rows.iter().take(NAMED_ROWS_MAX).map(name).collect();
    let further = match rows.len().saturating_sub(NAMED_ROWS_MAX) {
        0 => String::new(),
        count => format!(" and {count} more rows"),
    };
    names.join(", ") + &further
}

/// Notes on the spreads behind the rows' intervals. If some rows use rounds and others use repetitions, the note names
/// the rows that use repetitions. Empty if no row has an interval.
fn interval_notes(rows: &[Row<'_>]) -> Vec<String> {
    let spreads = rows.iter().flat_map(|row| &row.estimates.spreads);
    let round_counts: BTreeSet<usize> = spreads
        .filter_map(|spread| match spread {
            Spread::Rounds(count) => Some(*count),
            Spread::Repetitions => None,
        })
        .collect();
    let is_pooled = |row: &&Row<'_>| row.estimates.spreads.contains(&Spread::Repetitions);
    let pooled: Vec<&Row<'_>> = rows.iter().filter(is_pooled).collect();
    let mut notes = Vec::new();
    if let Some((fewest, most)) = round_counts.first().zip(round_counts.last()) {
        let rounds = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
        notes.push(format!(
            "intervals from the means of {rounds} rounds, each with new memory and \
             calibration, treatment minus control"
        ));
    }
    if !pooled.is_empty() {
        notes.push(if round_counts.is_empty() {
            "intervals by Welch's method, as if repetitions were independent, treatment minus \
             control"
                .to_owned()
        } else {
            format!(
                "intervals of {} by Welch's method, as if repetitions were independent: fewer \
                 than {ROUNDS_MIN} rounds count",
                row_names(&pooled)
            )
        });
    }
    notes
}

/// Notes below the table `footprint` on how its numbers were measured.
fn notes(rows: &[Row<'_>]) -> Vec<String> {
    let mut notes = [
        "loop on CPU {settings.cpu}",
        "clock resolution {settings.clock_step_ns}",
        "windows after a tick, longest wait for an interrupt {settings.window_ns}",
        "lines from the calibration curve of this run (table calibration)",
    ]
    .map(str::to_owned)
    .to_vec();
    notes.extend(interval_notes(rows));
    notes
}

/// The estimates of a series.
pub(super) struct Estimates {
    /// Extra time of the pass after the interrupt, cycles.
    indirect_cost: Option<Mean>,
    /// Displaced lines by time.
    pub(super) lines: Option<DisplacedLines>,
    /// Misses per interrupt: treatment minus control.
    user_misses: Option<Mean>,
    kernel_misses: Option<Mean>,
    /// For each estimate that exists, the spread from which its interval follows.
    spreads: Vec<Spread>,
    /// Why an estimate is missing or inaccurate, in words.
    reason: Option<String>,
}

/// The estimates of a series: from its rounds if enough rounds count, otherwise from all repetitions. The counted
/// misses have no part in the estimate by time. They only check it.
fn estimate(series: &Series) -> Estimates {
    let [treatment_count, control_count] =
        [&series.treatment, &series.control].map(|repetitions| accepted_count(repetitions));
    let counted =
        [user_misses, kernel_misses].map(|value| beyond_control_with_spread(series, value));
    let [user_misses, kernel_misses] = counted.map(|misses| misses.map(|(mean, _)| mean));
    let estimates = |indirect_cost: Option<(Mean, Spread)>, lines, reason| {
        let all = [indirect_cost, counted[0], counted[1]];
        Estimates {
            indirect_cost: indirect_cost.map(|(mean, _)| mean),
            lines,
            user_misses,
            kernel_misses,
            spreads: all.into_iter().flatten().map(|(_, spread)| spread).collect(),
            reason,
        }
    };
    if treatment_count < REPETITIONS_MIN || control_count < REPETITIONS_MIN {
        let reason = format!(
            "{treatment_count} treatment and {control_count} control repetitions were \
             accepted; {REPETITIONS_MIN} of each are needed"
        );
        return estimates(None, None, Some(reason));
    }
    let [treatment, control] = [&series.treatment, &series.control]
        .map(|repetitions| mean(&accepted(repetitions, excess)));
    let Some((treatment, control)) = treatment.zip(control) else {
        let unmeasured =
            "neither timed nor counted (repetitions are not timed in windows with ticks)"
                .to_owned();
        let reason = user_misses.map_or(Some(unmeasured), reason_wide_interval);
        return estimates(None, None, reason);
    };
    let (indirect_cost, by_time) = match estimate_from_rounds(series) {
        Some(estimate) => {
            let cycles = estimate.indirect_cost;
            (Some((cycles, Spread::Rounds(cycles.count))), estimate.lines)
        }
        None => {
            let indirect_cost = difference(treatment, control);
            let reading = indirect_cost.zip(rounds::curve(series));
            let by_time =
                reading.and_then(|(cycles, curve)| estimate_displaced_lines(cycles, &curve));
            (indirect_cost.map(|cycles| (cycles, Spread::Repetitions)), by_time)
        }
    };
    if series.ready.curve.is_none() {
        return estimates(indirect_cost, None, user_misses.and_then(reason_wide_interval));
    }
    let refuted = user_misses
        .zip(by_time)
        .and_then(|(misses, by_time)| reason_refuted(series, misses, &by_time));
    let by_time = by_time.map(|by_time| match refuted {
        Some(_) => DisplacedLines { count: None, ..by_time },
        None => by_time,
    });
    let reason = refuted.or_else(|| match &by_time {
        None if rounds::flat_rounds(series).len() < series.rounds.len() => {
            reason_flat_rounds(series)
                .map(|flat| format!("{flat}; fewer than {ROUNDS_MIN} other rounds count"))
        }
        None => Some("the clock cannot resolve displaced lines of this level".to_owned()),
        Some(DisplacedLines { exceeds_level: true, .. }) => Some(
            "the pass took longer than with all lines displaced: some lines came from beyond \
             the next level"
                .to_owned(),
        ),
        Some(by_time) if by_time.limit_in_level().is_none() => Some(
            "the detection limit is above the level: no number of its lines is distinguishable \
             from none"
                .to_owned(),
        ),
        Some(DisplacedLines { count: None, limit, .. }) => {
            Some(format!("below the detection limit of {limit:.1} lines"))
        }
        Some(by_time) => user_misses
            .and_then(|misses| reason_disagreement(misses, by_time))
            .or_else(|| reason_wide_lines(by_time)),
    });
    estimates(indirect_cost, by_time, reason)
}

pub(super) fn accepted_count(repetitions: &[Repetition]) -> usize {
    let is_accepted = |repetition: &&Repetition| repetition.verdict == Verdict::Accepted;
    repetitions.iter().filter(is_accepted).count()
}

/// Displaced lines by time. `None` below the detection limit.
pub(super) fn timed_lines(series: &Series) -> Option<LineEstimate> {
    let estimates = estimate(series);
    let by_time = estimates.lines?;
    Some(LineEstimate {
        lines: by_time.count?,
        half_width: by_time.half_width,
        upper_end: by_time.interval.1,
        is_upper_bound: is_upper_bound(series, &estimates),
    })
}

/// Number of treatment and control repetitions with this verdict.
pub(super) fn verdict_count(series: &Series, verdict: Verdict) -> usize {
    let repetitions = series.treatment.iter().chain(&series.control);
    repetitions.filter(|repetition| repetition.verdict == verdict).count()
}

/// Median time that an interrupt stalled the loop in the accepted repetitions, cycles. `None` if no
/// accepted repetition was stalled.
fn stalled_median(repetitions: &[Repetition]) -> Option<u64> {
    let accepted = repetitions.iter().filter(|repetition| repetition.verdict == Verdict::Accepted);
    let mut stalls: Vec<u64> =
        accepted.filter_map(|repetition| repetition.stalled_cycles).collect();
    stalls.sort_unstable();
    stalls.get(stalls.len() / 2).copied()
}

/// Table `footprint`: one row per series. Adds to `absent` the reason for a missing or inaccurate estimate, and for interrupts too
/// short to be seen. `clock_hz`: frequency of the clock whose periods are the cycles of the samples.
pub(super) fn footprint_table(all: &[Series], clock_hz: f64, absent: &mut Vec<Absence>) -> Table {
    let doc = "Lines of a loop that one interrupt displaces from a cache or TLB, and their cost \
             for the loop after the interrupt.";
    let mut rows: Vec<Row<'_>> = Vec::new();
    for series in all {
        let estimates = estimate(series);
        let row_name = format!("{}, {}, {}", series.level, series.stimulus, series.method);
        let reasons = [
            estimates.reason.clone(),
            reason_rounds_without_lines(series, &estimates),
            reason_short_interrupts(series),
        ];
        absent.extend(
            reasons.into_iter().flatten().map(|why| Absence::new("footprint", &row_name, why)),
        );
        rows.push(Row { series, estimates, line_cost: rounds::line_cost(series) });
    }
    let display = TableDisplay { notes: notes(&rows), ..all_rows() };
    columns(clock_hz).table("footprint", doc, rows).displayed(display)
}

/// Whether the lines by time are only an upper bound, because the extra time also includes misses in TLBs and other
/// caches. They are exact only if the clock times single lines, and the counters do not show fewer misses. They are no
/// bound if the counters show more misses.
fn is_upper_bound(series: &Series, estimates: &Estimates) -> bool {
    let Some((misses, by_time)) = estimates.user_misses.zip(estimates.lines) else { return true };
    let counts_fewer = misses.mean + misses.half_width < by_time.interval.0;
    !counts_more(misses, &by_time) && (series.ready.chunk_lines > 1 || counts_fewer)
}

/// Table `calibration`: the curves that convert times to lines, one row per point.
pub(super) fn curves(all: &[Series]) -> Table {
    /// A series, the number of the round that measured the curve, and a point of the curve.
    type Row<'a> = (&'a Series, u64, &'a CurvePoint);
    let columns = key_columns().of(|(series, ..): &Row<'_>| series.key()).and([
        column("round", "Round of the plan that measured the curve, from 1.").uint(|(_, round, _): &Row<'_>| *round),
        column("displaced_lines", "Lines that the loop itself displaced.")
            .uint(|(.., point): &Row<'_>| point.lines),
        column("excess_cycles", "Extra time of the next pass, median, in cycles of the time-stamp counter (in a simulated machine 1 ns each, whatever the model's clock).")
            .title("excess cycles ± ci95")
            .plus_minus("excess_ci95_cycles")
            .real(|(.., point): &Row<'_>| point.excess_cycles),
        column(
            "excess_ci95_cycles",
            "Half width of the 95 % confidence interval of excess_cycles, by Price and \
             Bonett's standard error of a median and the steps of a simulated machine's clock.",
        )
        .detail()
        .real(|(.., point): &Row<'_>| point.half_width_cycles()),
        column("repetition_count", "Number of repetitions behind the median excess_cycles.")
            .uint(|(.., point): &Row<'_>| point.repetitions),
    ]);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for series in all {
        let curves: Vec<(u64, &Curve)> = match &series.rounds[..] {
            [] => series.ready.curve.iter().map(|curve| (1, curve)).collect(),
            rounds => rounds
                .iter()
                .filter_map(|round| Some((round.number, round.curve.as_ref()?)))
                .collect(),
        };
        for (round, curve) in curves {
            rows.extend(curve.points().iter().map(|point| (series, round, point)));
        }
    }
    let doc = "Calibration: extra time of a pass after a known number of lines was displaced.";
    columns.table("calibration", doc, rows)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::super::contexts::{Windows, by_context, modes};
    use super::super::curve::tests::exact;
    use super::super::series::Round;
    use super::super::sums::sums;
    use super::super::tests::{ROUND_REPETITIONS, counted, counted_in_rounds};
    use super::super::what::Level;
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
            let is_bound = is_upper_bound(&timed(cycles), &estimates);
            assert_eq!((has_reason, is_bound), (disagrees, bound), "{cycles}");
        }
    }

    #[test]
    fn a_time_below_the_counted_misses_is_no_bound_whatever_the_chunk() {
        // 100 misses are counted.
        let row_of = |cycles: i64| {
            let mut series = timed(cycles);
            series.ready.chunk_lines = 32;
            let mut absent = Vec::new();
            let table = footprint_table(&[series], 1e9, &mut absent);
            let cell = |name: &str| table.get(&table.rows()[0], name).unwrap().clone();
            let [lines, low] =
                ["displaced_lines", "displaced_ci95_low_lines"].map(|name| cell(name).number());
            let reasons: Vec<String> = absent.into_iter().map(|absence| absence.reason).collect();
            (lines, low, cell("is_upper_bound"), reasons)
        };
        let above = row_of(105);
        assert_eq!(above, (Some(105.0), Some(0.0), record::Value::from(true), Vec::new()));
        for (cycles, lines) in [(80, "80.0"), (97, "97.0")] {
            let (number, low, is_bound, reasons) = row_of(cycles);
            assert_eq!((number, low), (None, Some(cycles as f64)));
            assert_eq!(is_bound, record::Value::Absent);
            let expected = format!(
                "time and counters disagree: at most {lines} lines by time and 100.0 counted misses, so the \
                 lines by time are too few"
            );
            assert_eq!(reasons, [expected]);
        }
    }

    #[test]
    fn an_interval_by_time_has_a_lower_end_only_if_counters_confirm_it() {
        let interval = |series: Series| {
            let mut absent = Vec::new();
            let table = footprint_table(&[series], 1e9, &mut absent);
            let row = &table.rows()[0];
            let cell = |name: &str| table.get(row, name).unwrap().number();
            let ends = ["displaced_ci95_low_lines", "displaced_ci95_high_lines"].map(cell);
            (cell("displaced_lines"), ends, cell("calibration_ci95_lines").is_some())
        };
        let uncounted = |cycles: i64| {
            let mut series = timed(cycles);
            let repetitions = series.treatment.iter_mut().chain(&mut series.control);
            repetitions.for_each(|repetition| repetition.user_misses = None);
            series
        };
        // 100 misses are counted. A level has 256 lines of one cycle.
        let measured = (Some(100.0), [Some(100.0); 2], true);
        assert_eq!(interval(timed(100)), measured);
        assert_eq!(interval(uncounted(100)), (Some(100.0), [Some(0.0), Some(100.0)], true));
        // The pass took longer than with all lines displaced.
        let unknown = (None, [Some(0.0), Some(256.0)], false);
        assert_eq!(interval(uncounted(400)), unknown);
        assert_eq!(interval(timed(400)), unknown, "100 misses are fewer than 256 lines");
        let mut all_lines = timed(400);
        for repetition in &mut all_lines.treatment {
            repetition.user_misses = repetition.user_misses.map(|misses| misses + 200);
        }
        assert_eq!(interval(all_lines), (None, [Some(256.0); 2], false));
    }

    /// A series without counters: its lines by time are only a bound. They are 100 with an interval of some lines.
    fn timed_with_spread() -> Series {
        let mut series = timed(100);
        for (number, repetition) in (0_i64..).zip(&mut series.treatment) {
            repetition.excess_cycles = Some(100 + (number % 3 - 1) * 20);
        }
        let repetitions = series.treatment.iter_mut().chain(&mut series.control);
        repetitions.for_each(|repetition| repetition.user_misses = None);
        series
    }

    #[test]
    fn an_upper_bound_is_the_upper_end_in_each_column() {
        let table = footprint_table(&[timed_with_spread()], 1e9, &mut Vec::new());
        let row = &table.rows()[0];
        let cell = |name: &str| table.get(row, name).unwrap().number().unwrap();
        let high = cell("displaced_ci95_high_lines");
        assert!((105.0..115.0).contains(&high), "{high}");
        assert_eq!(cell("displaced_lines"), high);
        assert_eq!(cell("displaced_ratio"), high / 256.0);
        assert_eq!(cell("displaced_bytes"), (high * 32.0).round());
        let bounds = ["displaced_lines", "displaced_ratio", "displaced_bytes"];
        for column in table.columns.iter().filter(|column| bounds.contains(&&*column.name)) {
            let expected =
                record::Combine::Bound { flag: "is_upper_bound".into(), sign: "≤".into() };
            assert_eq!(column.display.combine, Some(expected), "{}", column.name);
        }
        // The table of sums has the same bounds, and their sum is at most the sum of the upper ends.
        let all = [Level::L1d, Level::L1i].map(|level| Series { level, ..timed_with_spread() });
        let sums = sums(&all, &mut Vec::new());
        let cell = |name: &str| sums.get(&sums.rows()[0], name).unwrap().number();
        assert_eq!(cell("l1d_lines"), Some(high));
        assert_eq!(cell("l1d_displaced_ratio"), Some(high / 256.0));
        let half_width = (high - 100.0) * 2.0_f64.sqrt();
        assert!((cell("l1_sum_lines").unwrap() - 200.0 - half_width).abs() < 1e-6);
        assert_eq!(cell("l1_sum_ci95_lines"), None, "it is in the bound");
    }

    #[test]
    fn a_mean_of_zero_has_its_interval_in_misses() {
        let series = counted(200, 200);
        let misses = estimate(&series).user_misses.unwrap();
        assert_eq!(misses.mean, 0.0);
        let expected = format!(
            "the interval is ± {:.2} misses around a mean of 0, after all repetitions",
            misses.half_width
        );
        assert_eq!(estimate(&series).reason, Some(expected));
    }

    /// Five rounds whose means spread much more than the repetitions of a round.
    const SPREAD_ROUNDS: [u64; 5] = [100, 160, 220, 130, 190];

    #[test]
    fn counted_misses_have_the_spread_between_rounds() {
        let estimates = estimate(&counted_in_rounds(&SPREAD_ROUNDS));
        for misses in [estimates.user_misses, estimates.kernel_misses].map(Option::unwrap) {
            assert!((misses.mean - 160.0).abs() < 1e-9, "{misses:?}");
            assert!(misses.half_width > 50.0, "{misses:?}");
        }
        assert_eq!(estimates.spreads, [Spread::Rounds(5); 2]);
        assert!(estimates.reason.is_some_and(|why| why.starts_with("the interval is ± 37 %")));
    }

    #[test]
    fn notes_name_the_method_of_each_row() {
        let interval_notes = |all: &[Series]| -> Vec<String> {
            let notes = footprint_table(all, 1e9, &mut Vec::new()).display.notes;
            notes.into_iter().filter(|note| note.starts_with("intervals")).collect()
        };
        let five_rounds = counted_in_rounds(&SPREAD_ROUNDS);
        let four_rounds = counted_in_rounds(&SPREAD_ROUNDS[..4]);
        // Two of five rounds are contaminated, so three count.
        let mut few_rounds = Series { level: Level::L2, ..five_rounds.clone() };
        let contaminated = few_rounds.control.iter_mut().skip(3 * ROUND_REPETITIONS);
        contaminated.for_each(|repetition| repetition.verdict = Verdict::Contaminated);
        let from_rounds = |rounds: &str| {
            format!(
                "intervals from the means of {rounds} rounds, each with new memory and \
                 calibration, treatment minus control"
            )
        };
        assert_eq!(interval_notes(slice::from_ref(&five_rounds)), [from_rounds("5")]);
        let pooled = interval_notes(slice::from_ref(&few_rounds));
        assert!(pooled.len() == 1 && pooled[0].contains("by Welch's method"), "{pooled:?}");
        let mixed = interval_notes(&[five_rounds, four_rounds, few_rounds]);
        let of_few_rounds = "intervals of l2 disk refined by Welch's method, as if repetitions \
                             were independent: fewer than 4 rounds count";
        assert_eq!(mixed, [from_rounds("4 to 5"), of_few_rounds.to_owned()]);
        assert!(interval_notes(&[]).is_empty());
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
        let round = |number| Round { number, curve: curve.clone(), treatment: 22, control: 22 };
        // The second round failed.
        series.rounds = [1, 3, 4].map(round).to_vec();
        let table = curves(&[series]);
        let numbers: Vec<_> = table.rows().iter().map(|row| table.get(row, "round")).collect();
        let expected = [1, 1, 3, 3, 4, 4_u64].map(record::Value::from);
        assert_eq!(numbers, expected.iter().map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn a_detection_limit_above_the_level_is_absent_with_a_reason() {
        // The times spread by more than the 256 lines of the level cost.
        let mut series = timed(300);
        for (number, repetition) in (0_i64..).zip(&mut series.treatment) {
            repetition.excess_cycles = Some(300 + (number % 2 * 2 - 1) * 2_000);
        }
        let mut absent = Vec::new();
        let table = footprint_table(&[series], 1e9, &mut absent);
        let cells = ["displaced_lines", "displaced_ratio", "detection_limit_lines"]
            .map(|column| table.get(&table.rows()[0], column));
        assert_eq!(cells, [Some(&record::Value::Absent); 3]);
        assert!(
            absent[0].reason.starts_with("the detection limit is above the level"),
            "{absent:?}"
        );
    }

    /// A series in rounds without noise. Each round has this number of lines by time; a line costs one cycle.
    fn timed_in_rounds(rounds_lines: &[u64]) -> Series {
        let mut series = counted_in_rounds(rounds_lines);
        for (index, lines) in rounds_lines.iter().enumerate() {
            let repetitions = index * ROUND_REPETITIONS..(index + 1) * ROUND_REPETITIONS;
            let cycles = Some(*lines as i64);
            let set = |repetitions: &mut [Repetition], cycles| {
                repetitions.iter_mut().for_each(|repetition| repetition.excess_cycles = cycles);
            };
            set(&mut series.treatment[repetitions.clone()], cycles);
            set(&mut series.control[repetitions], Some(0));
            series.rounds[index].curve = Some(exact(&[(0, 0), (512, 512)]));
        }
        series.ready.curve = series.rounds[0].curve.clone();
        series
    }

    #[test]
    fn sums_have_the_half_width_before_the_level_cuts_it() {
        // The interval is cut at 512 lines: 414 to 512. Its half width is 2.776 * 49 / sqrt(5).
        let found = timed_lines(&timed_in_rounds(&[400, 450, 500, 512, 512])).unwrap();
        assert!((found.lines - 474.8).abs() < 1e-9 && found.half_width > 60.0, "{found:?}");
    }

    #[test]
    fn rounds_whose_curve_does_not_rise_have_a_reason() {
        let absences = |flat: &[usize]| -> Vec<String> {
            let mut series = timed_in_rounds(&[100, 101, 99, 100, 100]);
            flat.iter().for_each(|index| {
                series.rounds[*index].curve = Some(exact(&[(0, 9), (512, 9)]));
            });
            let mut absent = Vec::new();
            footprint_table(&[series], 1e9, &mut absent);
            absent.into_iter().map(|absence| absence.reason).collect()
        };
        assert_eq!(absences(&[]), [""; 0]);
        let one = "displaced lines are from the other rounds: the curve of round 3 does not rise";
        assert_eq!(absences(&[2]), [one]);
        let two = "the curves of rounds 3, 5 do not rise; fewer than 4 other rounds count";
        assert_eq!(absences(&[2, 4]), [two]);
        let all = "the clock cannot resolve displaced lines of this level";
        assert_eq!(absences(&[0, 1, 2, 3, 4]), [all]);
    }

    #[test]
    fn a_selection_of_longer_interrupts_has_a_reason() {
        let reasons = |unseen: usize| {
            let mut series = counted(300, 200);
            let accepted = accepted_count(&series.treatment);
            let repetition = Repetition { verdict: Verdict::Unseen, ..series.treatment[0] };
            series.treatment.extend(vec![repetition; unseen]);
            let mut absent = Vec::new();
            footprint_table(&[series], 1e9, &mut absent);
            let is_it = |absence: &&Absence| absence.reason.contains("too short to be seen");
            (accepted, absent.iter().filter(is_it).count())
        };
        let (accepted, _) = reasons(0);
        assert_eq!(reasons(accepted / 20), (accepted, 0));
        assert_eq!(reasons(accepted), (accepted, 1));
    }

    #[test]
    fn display_hints_name_existing_columns() {
        let windows = Windows::default();
        let tables = [
            footprint_table(&[], 1e9, &mut Vec::new()),
            curves(&[]),
            sums(&[], &mut Vec::new()),
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
