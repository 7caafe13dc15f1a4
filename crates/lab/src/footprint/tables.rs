//! The tables of the experiment, from its series.

use record::{Absence, Column, Kind, Table, Value};

use super::estimate::{
    HALF_WIDTH_RATIO, Lines, Mean, REPETITIONS_MIN, beyond_idle, difference, excess, kept,
    kernel_misses, lines, mean, user_misses,
};
use super::experiment::Series;
use super::rounds::of_rounds;
use super::sample::{Repetition, Verdict};

pub(super) fn column(name: &str, kind: Kind, doc: &str) -> Column {
    Column::new(name, kind, doc)
}

pub(super) fn key_columns() -> Vec<Column> {
    use Kind::Text;
    vec![
        column("level", Text, "What was filled: a cache or a translation buffer."),
        column("source", Text, "What interrupted."),
        column("method", Text, "basic or refined, as in the paper's Figure 1."),
    ]
}

fn columns() -> Vec<Column> {
    use Kind::{Bool, Real, Text, Uint};
    let mut columns = key_columns();
    columns.extend([
        column("user_misses", Real, "Misses of the loop that the interrupt makes; idle ones off."),
        column("user_misses_ci95", Real, "Half the width of their 95 % interval."),
        column("kernel_misses", Real, "Misses in the kernel that it makes; idle ones off."),
        column("kernel_misses_ci95", Real, "Half the width of their 95 % interval."),
        column("start_misses", Uint, "Misses of the loop that starting the counters makes."),
        column(
            "lines",
            Real,
            "Lines (entries) displaced, by what touching takes longer and the curve. Absent below \
             limit_lines.",
        ),
        column(
            "at_most",
            Bool,
            "Whether lines is an upper bound: what else the interrupt displaces is in the time, too, and no \
             counter says that it is little; where the clock tells no single lines, one that came from \
             farther than the next level counts for several.",
        ),
        column("lines_low", Real, "Least lines that the 95 % interval allows."),
        column("lines_high", Real, "Most lines that it allows."),
        column("limit_lines", Real, "Fewer lines are not told from none (Currie, 5 % errors)."),
        column("level_ratio", Real, "lines over all lines of the level."),
        column("displaced_bytes", Uint, "lines times the line size."),
        column("line_cycles", Real, "What a displaced line costs, over the whole curve."),
        column("aftermath_ns", Real, "What the pass behind the interrupt took longer, mean."),
        column("aftermath_ci95_ns", Real, "Half the width of its 95 % interval."),
        column("stopped_p50_ns", Uint, "Median time that the loop stood still at the interrupt."),
        column("round_count", Uint, "Rounds, each with everything made anew; 1: no more than one."),
        column("kept_count", Uint, "Repetitions with the interrupt that count."),
        column("idle_kept_count", Uint, "Repetitions without it that count."),
        column("not_interrupted_count", Uint, "Removed: the interrupt did not come in the window."),
        column("others_count", Uint, "Removed: other interrupts came, too, of both sorts."),
        column("switched_count", Uint, "Removed: the loop was switched out or had a page fault."),
        column("paused_count", Uint, "Removed: it stood still without an interrupt of the kernel."),
        column("pass_ns", Uint, "A pass over all lines with nothing displaced, median."),
        column("level_lines", Uint, "Lines, or entries, of the level."),
        column("line_bytes", Uint, "Bytes of a line, or of a page."),
        column("pages", Text, "In what pages the touched memory is."),
        column("raised_by", Text, "How the interrupt was raised."),
    ]);
    columns
}

/// Time that finds more or less lines than counters do by so much is said.
const DISAGREE_RATIO: f64 = 0.10;

/// What is known of a series.
struct Found {
    aftermath: Option<Mean>,
    lines: Option<Lines>,
    user: Option<Mean>,
    kernel: Option<Mean>,
    reason: Option<String>,
}

fn find(series: &Series) -> Found {
    let [with, without] = [&series.raised, &series.idle].map(|all| kept_count(all));
    let [user, kernel] =
        [user_misses, kernel_misses].map(|value| beyond_idle(&series.raised, &series.idle, value));
    let none =
        |reason: String| Found { aftermath: None, lines: None, user, kernel, reason: Some(reason) };
    if with < REPETITIONS_MIN || without < REPETITIONS_MIN {
        return none(format!(
            "{with} repetitions with the interrupt and {without} without count; {REPETITIONS_MIN} of \
             each are needed"
        ));
    }
    let [raised, idle] = [&series.raised, &series.idle].map(|all| mean(&kept(all, excess)));
    let Some((raised, idle)) = raised.zip(idle) else {
        let neither = "neither timed (windows with ticks are not) nor counted".to_owned();
        let reason = user.map_or(Some(neither), too_wide);
        return Found { aftermath: None, lines: None, user, kernel, reason };
    };
    let (aftermath, found) = match of_rounds(series) {
        Some(found) => (Some(found.aftermath), found.lines),
        None => {
            let aftermath = difference(raised, idle);
            let curve = aftermath.zip(series.ready.curve.as_ref());
            (aftermath, curve.and_then(|(mean, curve)| lines(mean, idle, curve)))
        }
    };
    if series.ready.curve.is_none() {
        let reason = user.and_then(too_wide);
        return Found { aftermath, lines: None, user, kernel, reason };
    }
    let reason = match (&found, aftermath) {
        (None, _) => Some("the clock tells no displaced lines of this level".to_owned()),
        (Some(Lines { from_farther: true, .. }), _) => Some(
            "touching took longer than with all lines displaced: some came from farther than the \
             next level"
                .to_owned(),
        ),
        (Some(Lines { lines: None, limit, .. }), _) => {
            Some(format!("fewer than {limit:.1} lines are not told from none"))
        }
        (Some(lines), mean) => {
            user.and_then(|user| disagree(user, lines)).or_else(|| mean.and_then(too_wide))
        }
    };
    Found { aftermath, lines: found, user, kernel, reason }
}

/// In words, where an interval is wider than it was to become.
fn too_wide(mean: Mean) -> Option<String> {
    let ratio = mean.half_width / mean.mean.abs();
    let wide = ratio * 100.0;
    (ratio > HALF_WIDTH_RATIO)
        .then(|| format!("the interval is ± {wide:.0} %, more than ± 5 %, with all repetitions"))
}

/// In words, where time finds other than counters do: beyond both intervals, and by more than
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

/// Repetitions that count.
fn kept_count(all: &[Repetition]) -> usize {
    all.iter().filter(|one| one.verdict == Verdict::Kept).count()
}

/// Lines that are gone by time.
pub(super) fn timed_lines(series: &Series) -> Option<f64> {
    find(series).lines?.lines
}

fn removed(series: &Series, verdict: Verdict) -> Value {
    let all = series.raised.iter().chain(&series.idle);
    Value::Uint(all.filter(|one| one.verdict == verdict).count() as u64)
}

fn stopped_median(repetitions: &[Repetition]) -> Option<u64> {
    let kept = repetitions.iter().filter(|one| one.verdict == Verdict::Kept);
    let mut stopped: Vec<u64> = kept.filter_map(|one| one.stopped_cycles).collect();
    stopped.sort_unstable();
    stopped.get(stopped.len() / 2).copied()
}

pub(super) fn key(series: &Series) -> Vec<Value> {
    vec![series.level.word().into(), series.source.word().into(), series.method.word().into()]
}

/// One row a series.
pub(super) fn footprint(all: &[Series], clock_hz: f64, absent: &mut Vec<Absence>) -> Table {
    let doc = "What one interrupt displaces of what a loop keeps in a cache, and what it costs the \
               loop after the return.";
    let mut table = Table::new("footprint", doc, columns());
    for series in all {
        let found = find(series);
        if let Some(reason) = &found.reason {
            absent.push(Absence {
                table: "footprint".to_owned(),
                what: format!("{}, {}, {}", series.level, series.source, series.method),
                reason: reason.clone(),
                remedy: None,
            });
        }
        table.push(row(series, &found, clock_hz));
    }
    table
}

/// Whether lines by time are an upper bound: where one is not timed alone, and what else the interrupt made
/// slower (translation buffers, other caches) is in the time, and no counter says that it is little.
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
    let count = |of: &[Repetition]| Value::Uint(kept_count(of) as u64);
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
        real(found.lines.map(|found| found.limit)),
        real(lines.map(|lines| lines / geometry.lines() as f64)),
        lines.map(|lines| (lines * f64::from(geometry.line_bytes)).round() as u64).into(),
        real(series.ready.curve.as_ref().and_then(|curve| curve.cycles_per_line())),
        real(found.aftermath.map(|mean| ns(mean.mean))),
        real(found.aftermath.map(|mean| ns(mean.half_width))),
        stopped_median(&series.raised).map(whole_ns).into(),
        (series.rounds.len().max(1) as u64).into(),
        count(&series.raised),
        count(&series.idle),
        removed(series, Verdict::NotInterrupted),
        removed(series, Verdict::OthersToo),
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

/// The curves by which times were turned into lines.
pub(super) fn curves(all: &[Series]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        column("displaced_lines", Kind::Uint, "Lines that the loop itself displaced."),
        column("excess_cycles", Kind::Real, "What a pass took longer behind that, median."),
    ]);
    let mut table =
        Table::new("curves", "What a pass takes longer behind known displacements.", columns);
    for series in all {
        for &(lines, cycles) in series.ready.curve.iter().flat_map(|curve| &curve.points) {
            let mut row = key(series);
            row.extend([Value::Uint(lines), Value::real(cycles)]);
            table.push(row);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::sample::Curve;
    use super::super::tests::counted;
    use super::*;

    /// 100 misses by counters; by time as many lines as cycles, with a curve of a cycle a line.
    fn timed(cycles: i64) -> Series {
        let mut series = counted(300, 200);
        series.ready.curve = Some(Curve { points: vec![(0, 0.0), (256, 256.0)] });
        series.raised.iter_mut().for_each(|one| one.excess_cycles = Some(cycles));
        series.idle.iter_mut().for_each(|one| one.excess_cycles = Some(0));
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
    fn what_was_not_timed_is_still_counted() {
        let found = find(&counted(300, 200));
        assert_eq!(found.user.map(|user| user.mean), Some(100.0));
        assert!(found.aftermath.is_none() && found.lines.is_none() && found.reason.is_none());
        let mut uncounted = counted(300, 200);
        let all = uncounted.raised.iter_mut().chain(&mut uncounted.idle);
        all.for_each(|one| one.user_misses = None);
        assert!(find(&uncounted).reason.is_some_and(|why| why.starts_with("neither")));
    }
}
