//! Table `sums` of `footprint`: compares the displaced lines of both L1 caches with the displaced lines of the L2
//! cache. Names and order of the columns are public.

use record::{Absence, Columns, Format, Table, column};

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

/// A number, and half the width of its 95 % interval.
type Estimate = (f64, f64);

/// Displaced lines of the series' level. `None` if this kind of count has no estimate.
fn displaced(series: &Series, counted_by: CountedBy) -> Option<Estimate> {
    match counted_by {
        CountedBy::Counters => {
            let (misses, _) = beyond_control_with_spread(series, user_misses)?;
            Some((misses.mean, misses.half_width))
        }
        CountedBy::Time => timed_lines(series),
    }
}

/// The ratio of two numbers with independent errors, as [`stats::Interval::over`]. The errors are independent because each
/// level has its own loop and its own curve. `None` if 0 is in the interval of the denominator: the ratio then has no
/// bounds.
fn ratio(numerator: Estimate, denominator: Estimate) -> Option<Estimate> {
    let (numerator, numerator_half_width) = numerator;
    let (denominator, denominator_half_width) = denominator;
    if denominator.abs() <= denominator_half_width {
        return None;
    }
    let ratio = numerator / denominator;
    let half_width = numerator_half_width.hypot(ratio * denominator_half_width);
    Some((ratio, half_width / denominator.abs()))
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
    l1d: Option<Estimate>,
    l1i: Option<Estimate>,
    l2: Option<Estimate>,
    /// Displaced share of each level, in the order L1d, L1i, L2.
    shares: [Option<f64>; 3],
}

impl Row {
    fn l1_sum(&self) -> Option<Estimate> {
        let ((data, data_half_width), (code, code_half_width)) = self.l1d.zip(self.l1i)?;
        Some((data + code, data_half_width.hypot(code_half_width)))
    }

    fn over_l2(&self) -> Option<Estimate> {
        ratio(self.l1_sum()?, self.l2?)
    }

    /// Why the ratio to the L2 cache is absent although both counts exist. `None` if a count is missing, or the ratio
    /// exists.
    fn unbounded_ratio(&self) -> Option<Absence> {
        let ((_, _), (l2, half_width)) = self.l1_sum().zip(self.l2)?;
        if self.over_l2().is_some() {
            return None;
        }
        let ratio_name = format!(
            "l1_over_l2_ratio of {}, {}, {}",
            self.stimulus,
            self.method,
            self.counted_by.word()
        );
        let reason = format!("0 is in the interval of l2_lines, {l2:.1} ± {half_width:.1} lines");
        Some(Absence::new("sums", ratio_name, reason))
    }
}

fn number(estimate: Option<Estimate>) -> Option<f64> {
    estimate.map(|(number, _)| number)
}

fn half_width(estimate: Option<Estimate>) -> Option<f64> {
    estimate.map(|(_, half_width)| half_width)
}

fn columns<'a>() -> Columns<'a, Row> {
    let lines = |name: &str, doc: &str| column(name, doc).digits(4);
    let ci95 = |name: &str, estimate: &str| {
        let doc = format!(
            "Half width of the 95 % confidence interval of {estimate}, from the intervals of the levels. It includes \
             the errors of the calibration curves."
        );
        column(name, &doc).detail()
    };
    Columns::all([
        column("stimulus", "Source of the interrupt.").text(|row: &Row| row.stimulus.word()),
        column("method", "basic or refined, as in the paper's Figure 1.")
            .text(|row: &Row| row.method.word()),
        column("counted_by", "How lines were counted: counters (misses of the loop) or time.")
            .title("counted by")
            .text(|row: &Row| row.counted_by.word()),
        lines("l1d_lines", "Displaced lines of the L1 data cache.")
            .real(|row: &Row| number(row.l1d)),
        lines("l1i_lines", "Displaced lines of the L1 instruction cache.")
            .real(|row: &Row| number(row.l1i)),
        lines("l1_sum_lines", "Sum of l1d_lines and l1i_lines; absent if one is absent.")
            .title("l1 sum lines ± ci95")
            .plus_minus("l1_sum_ci95_lines")
            .real(|row: &Row| number(row.l1_sum())),
        ci95("l1_sum_ci95_lines", "l1_sum_lines").real(|row: &Row| half_width(row.l1_sum())),
        lines("l2_lines", "Displaced lines of the L2 cache.").real(|row: &Row| number(row.l2)),
        column(
            "l1_over_l2_ratio",
            "l1_sum_lines over l2_lines. Absent if 0 is in the interval of l2_lines.",
        )
        .title("L1 / L2 ± ci95")
        .format(Format::Factor)
        .plus_minus("l1_over_l2_ci95_ratio")
        .real(|row: &Row| number(row.over_l2())),
        ci95("l1_over_l2_ci95_ratio", "l1_over_l2_ratio")
            .real(|row: &Row| half_width(row.over_l2())),
        column("l1d_displaced_ratio", "Share of the L1 data cache that was displaced.")
            .real(|row: &Row| row.shares[0]),
        column("l1i_displaced_ratio", "Share of the L1 instruction cache that was displaced.")
            .real(|row: &Row| row.shares[1]),
        column("l2_displaced_ratio", "Share of the L2 cache that was displaced.")
            .real(|row: &Row| row.shares[2]),
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
                Some(estimates[index]?.0 / level_lines as f64)
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
    use crate::footprint::tests::{counted, counted_in_rounds};

    fn sums_of(all: &[Series]) -> Table {
        sums(all, &mut Vec::new())
    }

    fn counted_half_width(series: &Series) -> f64 {
        displaced(series, CountedBy::Counters).unwrap().1
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
}
