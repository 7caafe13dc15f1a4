//! Table `sums`: compares the displaced lines of both L1 caches with the displaced lines of the L2 cache.

use record::{Format, Kind, Table, Value};

use super::columns::{all_rows, column};
use super::estimate::{beyond_control, user_misses};
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

/// Displaced lines of the series' level.
fn displaced(series: &Series, counted_by: CountedBy) -> Option<Estimate> {
    match counted_by {
        CountedBy::Counters => {
            let misses = beyond_control(&series.treatment, &series.control, user_misses)?;
            Some((misses.mean, misses.half_width))
        }
        CountedBy::Time => timed_lines(series),
    }
}

/// The ratio of two numbers with independent errors. The errors are independent because each level has its
/// own loop and its own curve.
fn ratio(numerator: Estimate, denominator: Estimate) -> Estimate {
    let ratio = numerator.0 / denominator.0;
    let relative_error = (numerator.1 / numerator.0).hypot(denominator.1 / denominator.0);
    (ratio, ratio.abs() * relative_error)
}

fn find(all: &[Series], level: Level, stimulus: Stimulus, method: Method) -> Option<&Series> {
    all.iter()
        .find(|series| (series.level, series.stimulus, series.method) == (level, stimulus, method))
}

/// Compares the displaced lines of both L1 caches with the displaced lines of the L2 cache. Both counts are
/// about equal if all caches have lines of one length and the L1 caches have no common line (section 4.1 of the
/// paper).
pub(super) fn sums(all: &[Series]) -> Table {
    use Kind::{Real, Text};
    let lines = |name: &str, doc: &str| column(name, Real, doc).digits(4);
    let ci95 = |name: &str, estimate: &str| {
        let doc = format!(
            "Half width of the 95 % confidence interval of {estimate}, from the intervals of the levels. It includes \
             the errors of the calibration curves."
        );
        column(name, Real, &doc).detail()
    };
    let columns = vec![
        column("stimulus", Text, "Source of the interrupt."),
        column("method", Text, "basic or refined, as in the paper's Figure 1."),
        column(
            "counted_by",
            Text,
            "How lines were counted: counters (misses of the loop) or time.",
        )
        .title("counted by"),
        lines("l1d_lines", "Displaced lines of the L1 data cache."),
        lines("l1i_lines", "Displaced lines of the L1 instruction cache."),
        lines("l1_sum_lines", "Sum of l1d_lines and l1i_lines; absent if one is absent.")
            .title("l1 sum lines ± ci95")
            .plus_minus("l1_sum_ci95_lines"),
        ci95("l1_sum_ci95_lines", "l1_sum_lines"),
        lines("l2_lines", "Displaced lines of the L2 cache."),
        column("l1_over_l2_ratio", Real, "l1_sum_lines over l2_lines.")
            .title("L1 / L2 ± ci95")
            .format(Format::Factor)
            .plus_minus("l1_over_l2_ci95_ratio"),
        ci95("l1_over_l2_ci95_ratio", "l1_over_l2_ratio"),
        column("l1d_displaced_ratio", Real, "Share of the L1 data cache that was displaced."),
        column(
            "l1i_displaced_ratio",
            Real,
            "Share of the L1 instruction cache that was displaced.",
        ),
        column("l2_displaced_ratio", Real, "Share of the L2 cache that was displaced."),
    ];
    let doc = "Displaced lines of both L1 caches compared with displaced lines of the L2 cache.";
    let mut table = Table::new("sums", doc, columns).displayed(all_rows());
    let levels = [Level::L1d, Level::L1i, Level::L2];
    let mut seen = Vec::new();
    for series in all.iter().filter(|series| levels.contains(&series.level)) {
        let (stimulus, method) = (series.stimulus, series.method);
        if seen.contains(&(stimulus, method)) {
            continue;
        }
        seen.push((stimulus, method));
        let series = levels.map(|level| find(all, level, stimulus, method));
        for counted_by in [CountedBy::Counters, CountedBy::Time] {
            let lines = series.map(|series| displaced(series?, counted_by));
            let shares = [0, 1, 2].map(|index| {
                let level_lines = series[index]?.ready.geometry.lines();
                Some(lines[index]?.0 / level_lines as f64)
            });
            if lines.iter().flatten().count() < 2 {
                continue;
            }
            table.push(row(stimulus, method, counted_by, lines, shares));
        }
    }
    table
}

fn row(
    stimulus: Stimulus,
    method: Method,
    counted_by: CountedBy,
    [l1d, l1i, l2]: [Option<Estimate>; 3],
    shares: [Option<f64>; 3],
) -> Vec<Value> {
    let sum = l1d.zip(l1i).map(|(data, code)| (data.0 + code.0, data.1.hypot(code.1)));
    let ratio = sum.zip(l2).map(|(sum, l2)| ratio(sum, l2));
    let real = |value: Option<f64>| value.map_or(Value::Absent, Value::real);
    let number = |estimate: Option<Estimate>| real(estimate.map(|(number, _)| number));
    let half_width = |estimate: Option<Estimate>| real(estimate.map(|(_, half_width)| half_width));
    let mut row = vec![stimulus.word().into(), method.word().into(), counted_by.word().into()];
    row.extend([l1d, l1i, sum].map(number));
    row.push(half_width(sum));
    row.extend([l2, ratio].map(number));
    row.push(half_width(ratio));
    row.extend(shares.map(real));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::tests::counted;

    fn half_width(series: &Series) -> f64 {
        displaced(series, CountedBy::Counters).unwrap().1
    }

    fn number(value: &Value) -> f64 {
        value.to_json().as_f64().unwrap()
    }

    #[test]
    fn counters_alone_make_sums_and_shares() {
        let series = |level, misses| Series { level, ..counted(misses, 10) };
        let all = [series(Level::L1d, 42), series(Level::L1i, 60), series(Level::L2, 90)];
        let table = sums(&all);
        assert_eq!(table.rows().len(), 1, "nothing was timed");
        let row = &table.rows()[0];
        assert_eq!(row[5], Value::Real(82.0));
        assert_eq!(row[8], Value::Real(82.0 / 80.0));
        assert_eq!(row[10], Value::Real(32.0 / all[0].ready.geometry.lines() as f64));
        // All levels have one spread, so one half width.
        let [level, sum, over_l2] = [half_width(&all[0]), number(&row[6]), number(&row[9])];
        assert!((sum - level * 2.0_f64.sqrt()).abs() < 1e-9, "{row:?}");
        assert!((over_l2 - 82.0 / 80.0 * (sum / 82.0).hypot(level / 80.0)).abs() < 1e-9, "{row:?}");
        // A single level has no sum.
        assert!(sums(&all[..1]).rows().is_empty());
        assert_eq!(sums(&all[..2]).rows()[0][8], Value::Absent);
    }
}
