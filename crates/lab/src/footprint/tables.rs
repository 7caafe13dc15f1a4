//! The tables `footprint` and `calibration`, from the series of the experiment.

use record::{Absence, Column, Format, Kind, Table, TableDisplay, Value};

use super::columns::{all_rows, column, key, key_columns};
use super::curve::Curve;
use super::estimate::{
    HALF_WIDTH_RATIO, Lines, Mean, REPETITIONS_MIN, accepted, beyond_control, difference, excess,
    kernel_misses, lines, mean, user_misses,
};
use super::rounds::{self, of_rounds};
use super::sample::{Repetition, Verdict};
use super::series::Series;

fn columns() -> Vec<Column> {
    use Kind::{Bool, Real, Text, Uint};
    let ci95 = |name: &str, of: &str| {
        column(name, Real, &format!("Half width of the 95 % confidence interval of {of}.")).detail()
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
            .title("kernel misses")
            .priority(97)
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
        .bound("is_upper_bound", "≤")
        .digits(4)
        .priority(99)
        .cost(),
        column(
            "is_upper_bound",
            Bool,
            "Whether displaced_lines is an upper bound: the extra time also includes what else the \
             interrupt displaced, and no counter shows that this is little; where the clock does not \
             resolve single lines, a line from a more distant level counts as several.",
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
            "Half width of the 95 % confidence interval of displaced_lines if the calibration curve alone \
             had an error: the part that more repetitions do not reduce. With rounds, which have a curve \
             each, it is their share of what differs between rounds.",
        )
        .title("by curve ±")
        .priority(70),
        column(
            "detection_limit_lines",
            Real,
            "Detection limit: fewer lines are not distinguishable from none (Currie, 5 % errors).",
        )
        .title("limit")
        .digits(4)
        .priority(80),
        column("displaced_ratio", Real, "displaced_lines over level_lines.")
            .title("of level")
            .priority(85),
        count("displaced_bytes", "displaced_lines times line_bytes.").title("size").priority(60),
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
        us("stalled_p50_ns", Uint, "Median time for which the interrupt stalled the loop.")
            .title("stalled p50")
            .priority(88),
        count("round_count", "Rounds, each with new memory and a new calibration; 1: no rounds.").detail(),
        count("accepted_treatment_count", "Repetitions with the interrupt (treatment) that count.")
            .title("treatment")
            .priority(75),
        count("accepted_control_count", "Repetitions without the interrupt (control) that count.")
            .title("control")
            .priority(50),
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
        .title("contaminated")
        .priority(40),
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

/// How the numbers were measured.
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

/// Time and counters disagree when they find numbers of lines that differ by more than this.
const DISAGREE_RATIO: f64 = 0.10;

/// The results of a series.
struct Found {
    aftermath: Option<Mean>,
    lines: Option<Lines>,
    user: Option<Mean>,
    kernel: Option<Mean>,
    reason: Option<String>,
}

fn find(series: &Series) -> Found {
    let [with, without] = [&series.treatment, &series.control].map(|all| accepted_count(all));
    let [user, kernel] = [user_misses, kernel_misses]
        .map(|value| beyond_control(&series.treatment, &series.control, value));
    let none =
        |reason: String| Found { aftermath: None, lines: None, user, kernel, reason: Some(reason) };
    if with < REPETITIONS_MIN || without < REPETITIONS_MIN {
        return none(format!(
            "{with} treatment and {without} control repetitions were accepted; {REPETITIONS_MIN} of \
             each are needed"
        ));
    }
    let [treatment, control] =
        [&series.treatment, &series.control].map(|all| mean(&accepted(all, excess)));
    let Some((treatment, control)) = treatment.zip(control) else {
        let neither = "neither timed (windows with ticks are not) nor counted".to_owned();
        let reason = user.map_or(Some(neither), too_wide);
        return Found { aftermath: None, lines: None, user, kernel, reason };
    };
    let (aftermath, found) = match of_rounds(series) {
        Some(found) => (Some(found.aftermath), found.lines),
        None => {
            let aftermath = difference(treatment, control);
            let read = aftermath.zip(rounds::curve(series));
            (aftermath, read.and_then(|(mean, curve)| lines(mean, &curve)))
        }
    };
    if series.ready.curve.is_none() {
        let reason = user.and_then(too_wide);
        return Found { aftermath, lines: None, user, kernel, reason };
    }
    let reason = match (&found, aftermath) {
        (None, _) => Some("the clock cannot resolve displaced lines of this level".to_owned()),
        (Some(Lines { from_farther: true, .. }), _) => Some(
            "the pass took longer than with all lines displaced: some lines came from beyond the next \
             level"
                .to_owned(),
        ),
        (Some(Lines { lines: None, limit, .. }), _) => {
            Some(format!("below the detection limit of {limit:.1} lines"))
        }
        (Some(lines), _) => {
            user.and_then(|user| disagree(user, lines)).or_else(|| lines_too_wide(lines))
        }
    };
    Found { aftermath, lines: found, user, kernel, reason }
}

/// A sentence, where an interval is wider than the target.
fn too_wide(mean: Mean) -> Option<String> {
    let ratio = mean.half_width / mean.mean.abs();
    let wide = ratio * 100.0;
    (ratio > HALF_WIDTH_RATIO)
        .then(|| format!("the interval is ± {wide:.0} %, wider than ± 5 %, after all repetitions"))
}

/// The same of lines by time, with the part of it that more repetitions do not make narrower.
fn lines_too_wide(found: &Lines) -> Option<String> {
    let lines = found.lines.filter(|lines| *lines > 0.0)?;
    let half_width = (found.interval.1 - found.interval.0) / 2.0;
    let [wide, calibration] =
        [half_width, found.calibration_half_width].map(|width| 100.0 * width / lines);
    (half_width > HALF_WIDTH_RATIO * lines).then(|| {
        format!(
            "the interval is ± {wide:.0} %, wider than ± 5 %, after all repetitions; ± {calibration:.0} % \
             by the calibration curve alone"
        )
    })
}

/// A sentence, where time and counters disagree: beyond both intervals, and by more than
/// [`DISAGREE_RATIO`].
fn disagree(user: Mean, by_time: &Lines) -> Option<String> {
    let (low, high) = by_time.interval;
    let apart = low - (user.mean + user.half_width);
    let apart = apart.max(user.mean - user.half_width - high);
    let lines = by_time.lines?;
    let mean = user.mean;
    let differs = (lines - mean).abs() > DISAGREE_RATIO * mean.abs();
    (apart > 0.0 && differs)
        .then(|| format!("time and counters disagree: {lines:.1} lines and {mean:.1} misses"))
}

fn accepted_count(all: &[Repetition]) -> usize {
    all.iter().filter(|one| one.verdict == Verdict::Accepted).count()
}

/// Displaced lines, by time, with half the width of their interval.
pub(super) fn timed_lines(series: &Series) -> Option<(f64, f64)> {
    let found = find(series).lines?;
    Some((found.lines?, (found.interval.1 - found.interval.0) / 2.0))
}

fn removed(series: &Series, verdict: Verdict) -> Value {
    let all = series.treatment.iter().chain(&series.control);
    Value::Uint(all.filter(|one| one.verdict == verdict).count() as u64)
}

fn stalled_median(repetitions: &[Repetition]) -> Option<u64> {
    let accepted = repetitions.iter().filter(|one| one.verdict == Verdict::Accepted);
    let mut stopped: Vec<u64> = accepted.filter_map(|one| one.stalled_cycles).collect();
    stopped.sort_unstable();
    stopped.get(stopped.len() / 2).copied()
}

/// One row per series.
pub(super) fn footprint(all: &[Series], clock_hz: f64, absent: &mut Vec<Absence>) -> Table {
    let doc = "What one interrupt displaces of the lines that a loop keeps in a cache or TLB, and what \
               that costs the loop afterwards.";
    let display = TableDisplay { notes: notes(all), ..all_rows() };
    let mut table = Table::new("footprint", doc, columns()).displayed(display);
    for series in all {
        let found = find(series);
        if let Some(reason) = &found.reason {
            absent.push(Absence {
                table: "footprint".to_owned(),
                what: format!("{}, {}, {}", series.level, series.stimulus, series.method),
                reason: reason.clone(),
                remedy: None,
            });
        }
        table.push(row(series, &found, clock_hz));
    }
    table
}

/// Whether lines by time are an upper bound: where single lines are not timed, or where the time
/// includes what else the interrupt made slower (TLBs, other caches) and no counter shows that it is
/// little.
fn is_bound(series: &Series, found: &Found) -> bool {
    let is_less = |(user, lines): (Mean, Lines)| user.mean + user.half_width < lines.interval.0;
    let counted = found.user.zip(found.lines);
    series.ready.chunk_lines > 1 || counted.is_none_or(is_less)
}

fn row(series: &Series, found: &Found, clock_hz: f64) -> Vec<Value> {
    let geometry = series.ready.geometry;
    let real = |value: Option<f64>| value.map_or(Value::Absent, Value::real);
    let ns = |cycles: f64| cycles * 1e9 / clock_hz;
    let whole_ns = |cycles: u64| ns(cycles as f64).round() as u64;
    let lines = found.lines.and_then(|found| found.lines);
    let cost = rounds::line_cost(series);
    let count = |of: &[Repetition]| Value::Uint(accepted_count(of) as u64);
    let mut row = key(series);
    row.extend([
        real(found.user.map(|mean| mean.mean)),
        real(found.user.map(|mean| mean.half_width)),
        real(found.kernel.map(|mean| mean.mean)),
        real(found.kernel.map(|mean| mean.half_width)),
        series.ready.start_misses.into(),
        real(lines),
        lines.map(|_| is_bound(series, found)).into(),
        real(found.lines.map(|found| found.interval.0)),
        real(found.lines.map(|found| found.interval.1)),
        real(found.lines.map(|found| found.calibration_half_width)),
        real(found.lines.map(|found| found.limit)),
        real(lines.map(|lines| lines / geometry.lines() as f64)),
        lines.map(|lines| (lines * f64::from(geometry.line_bytes)).round() as u64).into(),
        real(cost.map(|cost| cost.mean_cycles)),
        real(cost.map(|cost| cost.half_width_cycles)),
        real(found.aftermath.map(|mean| ns(mean.mean))),
        real(found.aftermath.map(|mean| ns(mean.half_width))),
        stalled_median(&series.treatment).map(whole_ns).into(),
        (series.rounds.len().max(1) as u64).into(),
        count(&series.treatment),
        count(&series.control),
        removed(series, Verdict::NotInterrupted),
        removed(series, Verdict::Contaminated),
        removed(series, Verdict::Switched),
        removed(series, Verdict::Paused),
        whole_ns(series.ready.pass_cycles).into(),
        geometry.lines().into(),
        u64::from(geometry.line_bytes).into(),
        series.ready.pages.as_str().into(),
        series.ready.raised_by.as_str().into(),
    ]);
    row
}

/// The curves by which times were converted into lines.
pub(super) fn curves(all: &[Series]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        column("round", Kind::Uint, "The round that the curve is of, from 1."),
        column("displaced_lines", Kind::Uint, "Lines that the loop itself displaced."),
        column("excess_cycles", Kind::Real, "Extra time of the pass after that, median.")
            .title("excess cycles ± ci95")
            .plus_minus("excess_ci95_cycles"),
        column(
            "excess_ci95_cycles",
            Kind::Real,
            "Half width of the 95 % confidence interval of excess_cycles, by Price and Bonett's \
             standard error of a median and the steps of a simulated machine's clock.",
        )
        .detail(),
        column("repetition_count", Kind::Uint, "Repetitions that excess_cycles is the median of."),
    ]);
    let doc = "Calibration: extra time of a pass after a known number of lines was displaced.";
    let mut table = Table::new("calibration", doc, columns);
    for series in all {
        let of_rounds: Vec<&Curve> = match &series.rounds[..] {
            [] => series.ready.curve.iter().collect(),
            rounds => rounds.iter().filter_map(|round| round.curve.as_ref()).collect(),
        };
        for (round, curve) in (1_u64..).zip(of_rounds) {
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

    /// 100 misses by counters; by time as many lines as cycles, with a curve of a cycle a line.
    fn timed(cycles: i64) -> Series {
        let mut series = counted(300, 200);
        series.ready.curve = Some(exact(&[(0, 0), (256, 256)]));
        series.treatment.iter_mut().for_each(|one| one.excess_cycles = Some(cycles));
        series.control.iter_mut().for_each(|one| one.excess_cycles = Some(0));
        series
    }

    #[test]
    fn time_that_disagrees_with_counters_is_said_and_more_is_a_bound() {
        for (cycles, disagrees, bound) in
            [(100, false, false), (105, false, true), (120, true, true), (80, true, false)]
        {
            let found = find(&timed(cycles));
            let says = found.reason.as_ref().is_some_and(|why| why.contains("disagree"));
            assert_eq!((says, is_bound(&timed(cycles), &found)), (disagrees, bound), "{cycles}");
        }
    }

    #[test]
    fn a_reason_names_the_part_of_the_curve() {
        let mut series = timed(100);
        assert_eq!(find(&series).reason, None);
        let around = |cycles: i64| (-8..=8).map(|step| cycles + 4 * step).collect();
        series.ready.curve = Some(Curve::new([(0, around(0)), (256, around(256))]));
        let found = find(&series);
        let (low, high) = found.lines.unwrap().interval;
        let half_width = found.lines.unwrap().calibration_half_width;
        assert!(((high - low) / 2.0 - half_width).abs() < 1e-6, "the times have no spread");
        let words = format!("± {half_width:.0} % by the calibration curve alone");
        assert!(
            found.reason.as_ref().is_some_and(|why| why.ends_with(&words)),
            "{:?}",
            found.reason
        );
        // Each round has its curve in the table.
        let curve = series.ready.curve.clone();
        series.rounds = vec![Round { curve, treatment: 22, control: 22 }; 3];
        assert_eq!(curves(&[series]).rows().len(), 3 * 2);
    }

    #[test]
    fn display_hints_are_about_columns_that_exist() {
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
    fn what_was_not_timed_is_still_counted() {
        let found = find(&counted(300, 200));
        assert_eq!(found.user.map(|user| user.mean), Some(100.0));
        assert!(found.aftermath.is_none() && found.lines.is_none() && found.reason.is_none());
        let mut uncounted = counted(300, 200);
        let all = uncounted.treatment.iter_mut().chain(&mut uncounted.control);
        all.for_each(|one| one.user_misses = None);
        assert!(find(&uncounted).reason.is_some_and(|why| why.starts_with("neither")));
    }
}
