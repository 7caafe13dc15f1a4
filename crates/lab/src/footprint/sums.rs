//! Table `sums` of `footprint`: compares the displaced lines of both L1 caches with the displaced lines of the L2
//! cache. Names and order of the columns are public.

use record::{Absence, Columns, Format, IntervalColumns, Table, column};

use super::columns::all_rows;
use super::estimate::user_misses;
use super::rounds::beyond_control_with_spread;
use super::series::Series;
use super::tables::timed_lines;
use super::what::{Level, Method, Stimulus};

/// How displaced lines were counted.
#[derive(Clone, Copy)]
enum CountedBy {
    /// The loop's misses by hardware counters.
    Counters,
    /// The extra time of a pass, converted by the calibration curve.
    Time,
}

impl CountedBy {
    fn word(self) -> &'static str {
        match self {
            CountedBy::Counters => "counters",
            CountedBy::Time => "time",
        }
    }
}

/// A number of displaced lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LineEstimate {
    pub(super) lines: f64,
    /// Half the width of the 95 % confidence interval, lines.
    pub(super) half_width: f64,
    /// Upper end of the interval, not above the level's number of lines.
    pub(super) upper_end: f64,
    /// Whether the estimate is only an upper bound of the displaced lines.
    pub(super) is_upper_bound: bool,
}

impl LineEstimate {
    /// The number in the table: the estimate, or the upper end of its interval if it is only an upper bound.
    fn shown_lines(self) -> f64 {
        if self.is_upper_bound { self.upper_end } else { self.lines }
    }
}

/// A ratio, and half the width of its 95 % interval.
type Ratio = (f64, f64);

/// Displaced lines of the series' level. `None` if this kind of count has no estimate.
fn displaced(series: &Series, counted_by: CountedBy) -> Option<LineEstimate> {
    match counted_by {
        CountedBy::Counters => {
            let (misses, _) = beyond_control_with_spread(series, user_misses)?;
            let (lines, half_width) = (misses.mean, misses.half_width);
            let upper_end = lines + half_width;
            Some(LineEstimate { lines, half_width, upper_end, is_upper_bound: false })
        }
        CountedBy::Time => timed_lines(series),
    }
}

/// The ratio of two numbers with independent errors, as [`stats::Interval::over`]. The errors are independent because each
/// level has its own loop and its own curve. `None` in two cases: one of the numbers is only a bound, or 0 is in the
/// interval of the denominator. The ratio then has no bounds.
fn ratio(numerator: LineEstimate, denominator: LineEstimate) -> Option<Ratio> {
    let is_bound = numerator.is_upper_bound || denominator.is_upper_bound;
    if is_bound || denominator.lines.abs() <= denominator.half_width {
        return None;
    }
    let ratio = numerator.lines / denominator.lines;
    let half_width = numerator.half_width.hypot(ratio * denominator.half_width);
    Some((ratio, half_width / denominator.lines.abs()))
}

fn find(all: &[Series], level: Level, stimulus: Stimulus, method: Method) -> Option<&Series> {
    all.iter()
        .find(|series| (series.level, series.stimulus, series.method) == (level, stimulus, method))
}

/// The displaced lines of the levels, and the displaced share of each level, by one kind of count.
struct Row {
    stimulus: Stimulus,
    method: Method,
    counted_by: CountedBy,
    l1d: Option<LineEstimate>,
    l1i: Option<LineEstimate>,
    l2: Option<LineEstimate>,
    /// Displaced share of each level, in the order L1d, L1i, L2.
    shares: [Option<f64>; 3],
}

impl Row {
    fn l1_sum(&self) -> Option<LineEstimate> {
        let (data, code) = self.l1d.zip(self.l1i)?;
        let lines = data.lines + code.lines;
        let half_width = data.half_width.hypot(code.half_width);
        Some(LineEstimate {
            lines,
            half_width,
            upper_end: (lines + half_width).min(data.upper_end + code.upper_end),
            is_upper_bound: data.is_upper_bound || code.is_upper_bound,
        })
    }

    fn over_l2(&self) -> Option<Ratio> {
        ratio(self.l1_sum()?, self.l2?)
    }

    /// Why the ratio to the L2 cache is absent although both counts exist. `None` if a count is missing, or the ratio
    /// exists.
    fn unbounded_ratio(&self) -> Option<Absence> {
        let (l1_sum, l2) = self.l1_sum().zip(self.l2)?;
        if self.over_l2().is_some() {
            return None;
        }
        let ratio_name = format!(
            "l1_over_l2_ratio of {}, {}, {}",
            self.stimulus,
            self.method,
            self.counted_by.word()
        );
        let reason = match (l1_sum.is_upper_bound, l2.is_upper_bound) {
            (true, true) => "l1_sum_lines and l2_lines are upper bounds".to_owned(),
            (true, false) => "l1_sum_lines is an upper bound".to_owned(),
            (false, true) => "l2_lines is an upper bound".to_owned(),
            (false, false) => format!(
                "0 is in the interval of l2_lines, {:.1} ± {:.1} lines",
                l2.lines, l2.half_width
            ),
        };
        Some(Absence::new("sums", ratio_name, reason))
    }
}

fn lines(estimate: Option<LineEstimate>) -> Option<f64> {
    estimate.map(LineEstimate::shown_lines)
}

fn columns<'a>() -> Columns<'a, Row> {
    let lines_column = |name: &str, bound: &str, doc: &str| {
        let doc = format!("{doc} The upper end of the 95 % confidence interval if {bound}.");
        column(name, &doc).bound(bound, "≤").digits(4)
    };
    let bound_column = |name: &str, estimate: &str| {
        let doc = format!(
            "Whether {estimate} is only an upper bound of the displaced lines, as is_upper_bound of table footprint."
        );
        column(name, &doc).detail()
    };
    let share_column = |name: &str, bound: &str, level: &str| {
        let doc =
            format!("Share of the {level} cache that was displaced. An upper bound if {bound}.");
        column(name, &doc).bound(bound, "≤")
    };
    let ci95 = |name: &str, estimate: &str| {
        let doc = format!(
            "Half width of the 95 % confidence interval of {estimate}, from the intervals of the levels. It includes \
             the errors of the calibration curves."
        );
        column(name, &doc)
    };
    let is_bound =
        |estimate: Option<LineEstimate>| estimate.map(|estimate| estimate.is_upper_bound);
    Columns::all([
        column("stimulus", "Source of the interrupt.").text(|row: &Row| row.stimulus.word()),
        column("method", "basic or refined, as in the paper's Figure 1.")
            .text(|row: &Row| row.method.word()),
        column("counted_by", "How lines were counted: counters (misses of the loop) or time.")
            .title("counted by")
            .text(|row: &Row| row.counted_by.word()),
        lines_column("l1d_lines", "l1d_is_upper_bound", "Displaced lines of the L1 data cache.")
            .real(|row: &Row| lines(row.l1d)),
        lines_column(
            "l1i_lines",
            "l1i_is_upper_bound",
            "Displaced lines of the L1 instruction cache.",
        )
        .real(|row: &Row| lines(row.l1i)),
        lines_column(
            "l1_sum_lines",
            "l1_sum_is_upper_bound",
            "Sum of l1d_lines and l1i_lines; absent if one is absent.",
        )
        .title("l1 sum lines")
        .interval(IntervalColumns::half_width("l1_sum_ci95_lines"))
        .real(|row: &Row| lines(row.l1_sum())),
        ci95("l1_sum_ci95_lines", "l1_sum_lines, absent if l1_sum_is_upper_bound")
            .title("sum ± ci95")
            .digits(4)
            .real(|row: &Row| {
                row.l1_sum().filter(|sum| !sum.is_upper_bound).map(|sum| sum.half_width)
            }),
        lines_column("l2_lines", "l2_is_upper_bound", "Displaced lines of the L2 cache.")
            .real(|row: &Row| lines(row.l2)),
        column(
            "l1_over_l2_ratio",
            "l1_sum_lines over l2_lines. Absent if one of them is an upper bound, or 0 is in the interval of l2_lines.",
        )
        .title("L1 / L2 ± ci95")
        .format(Format::Factor)
        .plus_minus("l1_over_l2_ci95_ratio")
        .real(|row: &Row| row.over_l2().map(|(ratio, _)| ratio)),
        ci95("l1_over_l2_ci95_ratio", "l1_over_l2_ratio")
            .detail()
            .real(|row: &Row| row.over_l2().map(|(_, half_width)| half_width)),
        share_column("l1d_displaced_ratio", "l1d_is_upper_bound", "L1 data")
            .real(|row: &Row| row.shares[0]),
        share_column("l1i_displaced_ratio", "l1i_is_upper_bound", "L1 instruction")
            .real(|row: &Row| row.shares[1]),
        share_column("l2_displaced_ratio", "l2_is_upper_bound", "L2")
            .real(|row: &Row| row.shares[2]),
        bound_column("l1d_is_upper_bound", "l1d_lines").bool(move |row: &Row| is_bound(row.l1d)),
        bound_column("l1i_is_upper_bound", "l1i_lines").bool(move |row: &Row| is_bound(row.l1i)),
        bound_column("l1_sum_is_upper_bound", "l1_sum_lines")
            .bool(move |row: &Row| is_bound(row.l1_sum())),
        bound_column("l2_is_upper_bound", "l2_lines").bool(move |row: &Row| is_bound(row.l2)),
    ])
}

/// Table `sums`: one row for each stimulus, method and kind of count with estimates of at least two levels. The sum
/// over the L1 caches and the count of the L2 cache are about equal if all lines have equal length and the L1 caches
/// have no common line (section 4.1 of the paper). Adds a reason to `absent` for each ratio without bounds.
pub(super) fn sums(all: &[Series], absent: &mut Vec<Absence>) -> Table {
    let levels = [Level::L1d, Level::L1i, Level::L2];
    let mut seen = Vec::new();
    let mut rows = Vec::new();
    for series in all.iter().filter(|series| levels.contains(&series.level)) {
        let (stimulus, method) = (series.stimulus, series.method);
        if seen.contains(&(stimulus, method)) {
            continue;
        }
        seen.push((stimulus, method));
        let by_level = levels.map(|level| find(all, level, stimulus, method));
        for counted_by in [CountedBy::Counters, CountedBy::Time] {
            let [l1d, l1i, l2] = by_level.map(|series| displaced(series?, counted_by));
            let estimates = [l1d, l1i, l2];
            let shares = [0, 1, 2].map(|index| {
                let level_lines = by_level[index]?.ready.geometry.lines();
                Some(estimates[index]?.shown_lines() / level_lines as f64)
            });
            if estimates.iter().flatten().count() >= 2 {
                rows.push(Row { stimulus, method, counted_by, l1d, l1i, l2, shares });
            }
        }
    }
    absent.extend(rows.iter().filter_map(Row::unbounded_ratio));
    let doc = "Displaced lines of both L1 caches compared with displaced lines of the L2 cache.";
    columns().table("sums", doc, rows).displayed(all_rows())
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::*;
    use crate::footprint::curve::tests::exact;
    use crate::footprint::sample::Repetition;
    use crate::footprint::tests::{counted, counted_in_rounds};

    fn sums_of(all: &[Series]) -> Table {
        sums(all, &mut Vec::new())
    }

    fn counted_half_width(series: &Series) -> f64 {
        displaced(series, CountedBy::Counters).unwrap().half_width
    }

    fn real(value: &Value) -> f64 {
        value.to_json().as_f64().unwrap()
    }

    #[test]
    fn intervals_of_counters_contain_the_spread_between_rounds() {
        let series = |level| Series { level, ..counted_in_rounds(&[100, 160, 220, 130, 190]) };
        let all = [series(Level::L1d), series(Level::L1i)];
        assert!(counted_half_width(&all[0]) > 50.0);
        let table = sums_of(&all);
        let row = &table.rows()[0];
        assert_eq!(real(&row[5]).round(), 320.0);
        assert!(real(&row[6]) > 50.0 * 2.0_f64.sqrt(), "{row:?}");
    }

    #[test]
    fn counters_alone_make_sums_and_shares() {
        let series = |level, misses| Series { level, ..counted(misses, 10) };
        let all = [series(Level::L1d, 42), series(Level::L1i, 60), series(Level::L2, 90)];
        let table = sums_of(&all);
        assert_eq!(table.rows().len(), 1, "nothing was timed");
        let row = &table.rows()[0];
        assert_eq!(row[5], Value::Real(82.0));
        assert_eq!(row[8], Value::Real(82.0 / 80.0));
        assert_eq!(row[10], Value::Real(32.0 / all[0].ready.geometry.lines() as f64));
        // All levels have one spread, so one half width.
        let [level, sum, over_l2] = [counted_half_width(&all[0]), real(&row[6]), real(&row[9])];
        assert!((sum - level * 2.0_f64.sqrt()).abs() < 1e-9, "{row:?}");
        assert!((over_l2 - 82.0 / 80.0 * (sum / 82.0).hypot(level / 80.0)).abs() < 1e-9, "{row:?}");
        // A numerator of 0 has a half width, too.
        let none = [series(Level::L1d, 10), series(Level::L1i, 10), series(Level::L2, 90)];
        let row = &sums_of(&none).rows()[0].clone();
        assert_eq!(row[8], Value::Real(0.0));
        assert!((real(&row[9]) - real(&row[6]) / 80.0).abs() < 1e-9, "{row:?}");
        // Without displaced lines of the L2 cache, the ratio has no bounds.
        let no_l2 = [series(Level::L1d, 42), series(Level::L1i, 60), series(Level::L2, 10)];
        let mut absent = Vec::new();
        let row = &sums(&no_l2, &mut absent).rows()[0].clone();
        assert_eq!([&row[8], &row[9]], [&Value::Absent; 2]);
        assert_eq!(absent[0].what, "l1_over_l2_ratio of disk, refined, counters");
        assert!(
            absent[0].reason.starts_with("0 is in the interval of l2_lines, 0.0 ±"),
            "{absent:?}"
        );
        // A single level has no sum.
        assert!(sums_of(&all[..1]).rows().is_empty());
        assert_eq!(sums_of(&all[..2]).rows()[0][8], Value::Absent);
    }

    #[test]
    fn upper_bounds_are_marked_and_have_no_ratio() {
        // The clock times two lines at once, so lines by time are upper bounds.
        let series = |level, cycles: u64| {
            let mut series = Series { level, ..counted(cycles + 10, 10) };
            series.ready.chunk_lines = 2;
            series.ready.curve = Some(exact(&[(0, 0), (256, 256)]));
            for (repetitions, cycles) in [(&mut series.treatment, cycles), (&mut series.control, 0)]
            {
                let set = |repetition: &mut Repetition| {
                    repetition.excess_cycles = Some(cycles as i64);
                };
                repetitions.iter_mut().for_each(set);
            }
            series
        };
        let all = [series(Level::L1d, 40), series(Level::L1i, 60), series(Level::L2, 90)];
        let mut absent = Vec::new();
        let table = sums(&all, &mut absent);
        let cell = |row: usize, column| table.get(&table.rows()[row], column).unwrap().clone();
        let bounds = ["l1d", "l1i", "l1_sum", "l2"].map(|name| format!("{name}_is_upper_bound"));
        for (row, counted_by, is_bound) in [(0, "counters", false), (1, "time", true)] {
            assert_eq!(cell(row, "counted_by"), Value::from(counted_by));
            for bound in &bounds {
                assert_eq!(cell(row, bound), Value::Bool(is_bound), "{bound}");
            }
            assert_eq!(cell(row, "l1_over_l2_ratio") == Value::Absent, is_bound);
        }
        assert_eq!(real(&cell(1, "l2_lines")), 90.0);
        assert_eq!(absent[0].reason, "l1_sum_lines and l2_lines are upper bounds");
    }
}
