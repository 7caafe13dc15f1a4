//! Table `sums`: displaced lines of both L1 caches compared with those of the L2 cache.

use record::{Format, Kind, Table, Value};

use super::columns::{all_rows, column};
use super::estimate::{beyond_control, user_misses};
use super::series::Series;
use super::tables::timed_lines;
use super::what::{Level, Method, Stimulus};

/// How displaced lines were counted.
const COUNTERS: &str = "counters";
const TIME: &str = "time";

/// A number, and half the width of its 95 % interval.
type Estimate = (f64, f64);

/// Displaced lines of a level: the loop's misses by counters, or by time and the calibration curve.
fn displaced(series: &Series, by: &str) -> Option<Estimate> {
    match by {
        COUNTERS => {
            let found = beyond_control(&series.treatment, &series.control, user_misses)?;
            Some((found.mean, found.half_width))
        }
        _ => timed_lines(series),
    }
}

/// The ratio of two numbers whose errors do not depend on each other: each level has a loop and a curve of
/// its own.
fn ratio(one: Estimate, other: Estimate) -> Estimate {
    let ratio = one.0 / other.0;
    (ratio, ratio.abs() * (one.1 / one.0).hypot(other.1 / other.0))
}

/// The series of a level with this stimulus and method.
fn find(all: &[Series], level: Level, stimulus: Stimulus, method: Method) -> Option<&Series> {
    all.iter().find(|one| (one.level, one.stimulus, one.method) == (level, stimulus, method))
}

/// Displaced lines of both L1 caches compared with those of the L2 cache: about equal where their
/// lines have the same length and the L1 caches share none (the paper, section 4.1).
pub(super) fn sums(all: &[Series]) -> Table {
    use Kind::{Real, Text};
    let lines = |name: &str, doc: &str| column(name, Real, doc).digits(4);
    let ci95 = |name: &str, of: &str| {
        let doc = format!(
            "Half width of the 95 % confidence interval of {of}, from those of the levels, the calibration \
             curves' errors included."
        );
        column(name, Real, &doc).detail()
    };
    let columns = vec![
        column("stimulus", Text, "What interrupted the loop."),
        column("method", Text, "basic or refined, as in the paper's Figure 1."),
        column(
            "counted_by",
            Text,
            "How lines were counted: counters (misses of the loop) or time.",
        )
        .title("counted by"),
        lines("l1d_lines", "Displaced lines of the L1 data cache."),
        lines("l1i_lines", "Displaced lines of the L1 instruction cache."),
        lines("l1_sum_lines", "Their sum; absent when one of them is.")
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
    let doc = "Displaced lines of both L1 caches compared with those of the L2 cache.";
    let mut table = Table::new("sums", doc, columns).displayed(all_rows());
    let first = [Level::L1d, Level::L1i, Level::L2];
    let mut done = Vec::new();
    for like in all.iter().filter(|series| first.contains(&series.level)) {
        let (stimulus, method) = (like.stimulus, like.method);
        if done.contains(&(stimulus, method)) {
            continue;
        }
        done.push((stimulus, method));
        for by in [COUNTERS, TIME] {
            let series = first.map(|level| find(all, level, stimulus, method));
            let lines = series.map(|one| displaced(one?, by));
            let shares = [0, 1, 2].map(|at| {
                let level_lines = series[at]?.ready.geometry.lines();
                Some(lines[at]?.0 / level_lines as f64)
            });
            if lines.iter().flatten().count() < 2 {
                continue;
            }
            table.push(row(stimulus, method, by, lines, shares));
        }
    }
    table
}

fn row(
    stimulus: Stimulus,
    method: Method,
    by: &str,
    [l1d, l1i, l2]: [Option<Estimate>; 3],
    shares: [Option<f64>; 3],
) -> Vec<Value> {
    let sum = l1d.zip(l1i).map(|(d, i)| (d.0 + i.0, d.1.hypot(i.1)));
    let ratio = sum.zip(l2).map(|(sum, l2)| ratio(sum, l2));
    let [number, half_width]: [fn(Estimate) -> f64; 2] = [|one| one.0, |one| one.1];
    let cell = |value: Option<f64>| value.map_or(Value::Absent, Value::real);
    let mut row = vec![stimulus.word().into(), method.word().into(), by.into()];
    row.extend([l1d, l1i, sum].map(|one| cell(one.map(number))));
    row.push(cell(sum.map(half_width)));
    row.extend([l2, ratio].map(|one| cell(one.map(number))));
    row.push(cell(ratio.map(half_width)));
    row.extend(shares.map(cell));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::tests::counted;

    fn half_width(series: &Series) -> f64 {
        displaced(series, COUNTERS).unwrap().1
    }

    fn number(value: &Value) -> f64 {
        value.to_json().as_f64().unwrap()
    }

    #[test]
    fn counters_alone_make_sums_and_shares() {
        let of = |level, misses| Series { level, ..counted(misses, 10) };
        let all = [of(Level::L1d, 42), of(Level::L1i, 60), of(Level::L2, 90)];
        let table = sums(&all);
        assert_eq!(table.rows().len(), 1, "nothing was timed");
        let row = &table.rows()[0];
        assert_eq!(row[5], Value::Real(82.0));
        assert_eq!(row[8], Value::Real(82.0 / 80.0));
        assert_eq!(row[10], Value::Real(32.0 / all[0].ready.geometry.lines() as f64));
        // The levels have the same spread.
        let [one, sum, over_l2] = [half_width(&all[0]), number(&row[6]), number(&row[9])];
        assert!((sum - one * 2.0_f64.sqrt()).abs() < 1e-9, "{row:?}");
        assert!((over_l2 - 82.0 / 80.0 * (sum / 82.0).hypot(one / 80.0)).abs() < 1e-9, "{row:?}");
        // One level alone is no sum.
        assert!(sums(&all[..1]).rows().is_empty());
        assert_eq!(sums(&all[..2]).rows()[0][8], Value::Absent);
    }
}
