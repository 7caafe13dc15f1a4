//! Displaced lines of both first-level caches against those of the second, and which part of each cache
//! that is.

use record::{Kind, Table, Value};

use super::estimate::{beyond_idle, user_misses};
use super::experiment::Series;
use super::tables::{column, timed_lines};
use super::what::{Level, Method, Source};

/// How displaced lines were counted.
const COUNTERS: &str = "counters";
const TIME: &str = "time";

/// Displaced lines of a level: by counters the loop's misses, by time what the curve says.
fn displaced(series: &Series, by: &str) -> Option<f64> {
    match by {
        COUNTERS => Some(beyond_idle(&series.raised, &series.idle, user_misses)?.mean),
        _ => timed_lines(series),
    }
}

/// The series of a level that are like one of another.
fn find(all: &[Series], level: Level, source: Source, method: Method) -> Option<&Series> {
    all.iter().find(|one| (one.level, one.source, one.method) == (level, source, method))
}

/// Displaced lines of both first-level caches beside those of the second: close, where lines are
/// equally long and nothing is shared (the paper, section 4.1).
pub(super) fn sums(all: &[Series]) -> Table {
    use Kind::{Real, Text};
    let columns = vec![
        column("source", Text, "What interrupted."),
        column("method", Text, "basic or refined."),
        column("by", Text, "How lines were counted: by counters (misses of the loop), or by time."),
        column("l1d_lines", Real, "Displaced of the first-level data cache."),
        column("l1i_lines", Real, "Displaced of the first-level instruction cache."),
        column("l1_sum_lines", Real, "Both; absent when one of them is."),
        column("l2_lines", Real, "Displaced of the second-level cache."),
        column("l1_over_l2_ratio", Real, "Their ratio."),
        column("l1d_ratio", Real, "Share of the first-level data cache that is gone."),
        column("l1i_ratio", Real, "Share of the first-level instruction cache."),
        column("l2_ratio", Real, "Share of the second-level cache."),
    ];
    let doc = "Displaced lines of both first-level caches beside those of the second.";
    let mut table = Table::new("sums", doc, columns);
    let first = [Level::L1d, Level::L1i, Level::L2];
    let mut told = Vec::new();
    for like in all.iter().filter(|series| first.contains(&series.level)) {
        let (source, method) = (like.source, like.method);
        if told.contains(&(source, method)) {
            continue;
        }
        told.push((source, method));
        for by in [COUNTERS, TIME] {
            let series = first.map(|level| find(all, level, source, method));
            let lines = series.map(|one| displaced(one?, by));
            let shares = [0, 1, 2].map(|at| {
                let level_lines = series[at]?.ready.geometry.lines();
                Some(lines[at]? / level_lines as f64)
            });
            if lines.iter().flatten().count() < 2 {
                continue;
            }
            table.push(row(source, method, by, lines, shares));
        }
    }
    table
}

fn row(
    source: Source,
    method: Method,
    by: &str,
    [l1d, l1i, l2]: [Option<f64>; 3],
    shares: [Option<f64>; 3],
) -> Vec<Value> {
    let sum = l1d.zip(l1i).map(|(d, i)| d + i);
    let ratio = sum.zip(l2).map(|(sum, l2)| sum / l2);
    let cell = |value: Option<f64>| value.map_or(Value::Absent, Value::real);
    let mut row = vec![source.word().into(), method.word().into(), by.into()];
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
