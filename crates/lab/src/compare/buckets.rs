//! Figures that stand for a bucket of a histogram.
//!
//! Goal: a difference of quantiles is real only if the values behind them differ.
//! Problem: a quantile is the midpoint of its histogram's bucket, which is up to 1/16 of its lower end wide. A change of
//! 0.6 % can move a quantile to the next bucket, and a change of 2.8 % can leave it in its bucket.
//! Rule: the true quantile is anywhere in the bucket. The interval of a difference therefore reaches half a bucket of both
//! figures farther on each side. Two rows that agree in all their figures are a repetition, and their quantiles are equal.

use std::hash::{DefaultHasher, Hash, Hasher};

use record::{Column, Kind, Role, Table, Value};
use stats::histogram::{ERROR_DENOMINATOR, VALUE_LIMIT, bounds_of, slot_of};

use super::estimates::{is_quantile, is_simulated};

/// The words in the documentation of each column with a histogram's quantiles, in runs of all versions.
const BUCKETED_DOC: &str = "within 1/16";

/// The table whose quantiles are converted from ticks of a clock. The histogram has buckets of ticks, not of nanoseconds.
const CONVERTED: &str = "services";

/// From this value on, a bucket contains several values.
const SHARED_FROM: u64 = 2 * ERROR_DENOMINATOR;

/// Whether the figures of some rows of a column may be midpoints of a histogram's buckets.
pub(super) fn may_be_bucketed(column: &Column) -> bool {
    is_bucketed(column) || is_quantile(&column.name)
}

/// Whether the figures of a column are midpoints of a histogram's buckets.
fn is_bucketed(column: &Column) -> bool {
    let has_wide_interval =
        column.interval.as_ref().is_some_and(|interval| interval.wide.is_some());
    has_wide_interval
        || (column.kind == Kind::Uint
            && is_quantile(&column.name)
            && column.doc.contains(BUCKETED_DOC))
}

/// The lower and the upper end of the bucket that the figure `value` of `row` stands for, in the unit of the column.
/// `None` if the figure comes from no histogram, or its bucket contains a single value.
pub(super) fn bucket(
    table: &Table,
    row: &[Value],
    column: &Column,
    value: f64,
) -> Option<(f64, f64)> {
    let is_from_histogram =
        is_bucketed(column) || (is_quantile(&column.name) && is_simulated(table, row, column));
    if !is_from_histogram || value < SHARED_FROM as f64 {
        return None;
    }
    if table.name == CONVERTED || value >= VALUE_LIMIT as f64 {
        // A midpoint is at most 1/32 of itself away from the ends of its bucket. The conversion rounds to a whole number.
        let half_width = value / (2 * ERROR_DENOMINATOR) as f64 + 0.5;
        return Some((value - half_width, value + half_width));
    }
    // Benches round times down to whole units: the bucket ends where the next one starts.
    let (low, high) = bounds_of(slot_of(value as u64));
    Some((low as f64, (high + 1) as f64))
}

/// A hash of all figures of a row. Two rows with the same hash are a repetition.
pub(super) fn row_fingerprint(table: &Table, row: &[Value]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (column, value) in table.columns.iter().zip(row) {
        if column.role == Role::Key {
            continue;
        }
        column.name.hash(&mut hasher);
        value.kind().map(|kind| kind as u8).hash(&mut hasher);
        match value {
            Value::Absent => {}
            Value::Bool(flag) => flag.hash(&mut hasher),
            Value::Uint(number) => number.hash(&mut hasher),
            Value::Int(number) => number.hash(&mut hasher),
            Value::Real(number) => number.to_bits().hash(&mut hasher),
            Value::Text(text) => text.hash(&mut hasher),
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_contains_its_midpoint_and_small_values_have_none() {
        let column = Column::new("self_p99_ns", Kind::Uint, "exact within 1/16");
        let in_table = |name: &str, value: f64| {
            let table = Table::new(name, "", vec![column.clone()]);
            bucket(&table, &[], &column, value)
        };
        assert_eq!(in_table("handlers", 31.0), None);
        assert_eq!(in_table("handlers", 1_007.0), Some((992.0, 1_024.0)));
        assert_eq!(in_table("handlers", 1_055.0), Some((1_024.0, 1_088.0)));
        // Ticks were converted: the bucket may be the widest of its size.
        assert_eq!(in_table("services", 3_200.0), Some((3_099.5, 3_300.5)));
        let exact = Column::new("stalled_p50_ns", Kind::Uint, "Median of the repetitions.");
        let table = Table::new("footprint", "", vec![exact.clone()]);
        assert_eq!(bucket(&table, &[], &exact, 1_007.0), None);
    }

    #[test]
    fn rows_that_differ_in_any_figure_are_no_repetition() {
        let columns = vec![
            Column::new("name", Kind::Text, "").key(),
            Column::new("count", Kind::Uint, ""),
            Column::new("mean_ns", Kind::Real, ""),
        ];
        let table = Table::new("handlers", "", columns);
        let row = |name: &str, mean: f64| vec![Value::from(name), 5_u64.into(), mean.into()];
        let fingerprint = |row: Vec<Value>| row_fingerprint(&table, &row);
        assert_eq!(fingerprint(row("a", 1.0)), fingerprint(row("b", 1.0)));
        assert_ne!(fingerprint(row("a", 1.0)), fingerprint(row("a", 1.1)));
    }
}
