//! Table `sums`: displaced lines of both L1 caches compared with those of the L2 cache.

use record::{Format, Kind, Table, Value};

use super::estimate::{beyond_control, user_misses};
use super::experiment::Series;
use super::tables::{all_rows, column, timed_lines};
use super::what::{Level, Method, Stimulus};

/// How displaced lines were counted.
const COUNTERS: &str = "counters";
const TIME: &str = "time";

/// Displaced lines of a level: the loop's misses by counters, or by time and the calibration curve.
fn displaced(series: &Series, by: &str) -> Option<f64> {
    match by {
        COUNTERS => Some(beyond_control(&series.treatment, &series.control, user_misses)?.mean),
        _ => timed_lines(series),
    }
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
        lines("l1_sum_lines", "Their sum; absent when one of them is."),
        lines("l2_lines", "Displaced lines of the L2 cache."),
        column("l1_over_l2_ratio", Real, "l1_sum_lines over l2_lines.")
            .title("L1 / L2")
            .format(Format::Factor),
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
                Some(lines[at]? / level_lines as f64)
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
    [l1d, l1i, l2]: [Option<f64>; 3],
    shares: [Option<f64>; 3],
) -> Vec<Value> {
    let sum = l1d.zip(l1i).map(|(d, i)| d + i);
    let ratio = sum.zip(l2).map(|(sum, l2)| sum / l2);
    let cell = |value: Option<f64>| value.map_or(Value::Absent, Value::real);
    let mut row = vec![stimulus.word().into(), method.word().into(), by.into()];
    row.extend([l1d, l1i, sum, l2, ratio].map(cell));
    row.extend(shares.map(cell));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::tests::counted;

    #[test]
    fn counters_alone_make_sums_and_shares() {
        let of = |level, misses| Series { level, ..counted(misses, 10) };
        let all = [of(Level::L1d, 42), of(Level::L1i, 60), of(Level::L2, 90)];
        let table = sums(&all);
        assert_eq!(table.rows().len(), 1, "nothing was timed");
        let row = &table.rows()[0];
        assert_eq!(row[5], Value::Real(82.0));
        assert_eq!(row[7], Value::Real(82.0 / 80.0));
        assert_eq!(row[8], Value::Real(32.0 / all[0].ready.geometry.lines() as f64));
        // One level alone is no sum.
        assert!(sums(&all[..1]).rows().is_empty());
        assert_eq!(sums(&all[..2]).rows()[0][7], Value::Absent);
    }
}
