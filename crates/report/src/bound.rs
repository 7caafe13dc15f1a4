//! Numbers of a table that are no measurements: bounds, and values below the detection limit. A reader that takes single
//! numbers from a table, without its cells, asks [`bound`] first.

use record::{Column, Combine, Table, Value};

use crate::row::Row;

/// A number that is no measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Describes the bound: `below the detection limit (< 1.23 µs)`, or `only a bound: ≥ 5.00 µs`.
    pub text: String,
    /// Lower end of the values that the quantity may have; negative infinity if there is none.
    pub low: f64,
    /// Upper end of the values that the quantity may have; infinity if there is none.
    pub high: f64,
}

/// The bound in a column of a row. `None` if the cell has no number, or a measurement.
#[must_use]
pub fn bound(table: &Table, values: &[Value], column: &Column) -> Option<Bound> {
    let row = Row::new(table, values);
    let number = row.number(&column.name)?;
    if !sources(table, column).iter().any(|source| row.is_bound(source)) {
        return None;
    }
    let sign = match &column.display.combine {
        Some(Combine::Bound { flag, sign }) if *row.get(flag) == Value::Bool(true) => sign,
        _ => return Some(below_limit(row, column, number)),
    };
    let text = format!("only a bound: {sign} {}", row.value_text(&column.name));
    let (low, high) = match sign.as_str() {
        "≤" | "<" => (f64::NEG_INFINITY, number),
        "≥" | ">" => (number, f64::INFINITY),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    Some(Bound { text, low, high })
}

fn below_limit(row: Row<'_>, column: &Column, number: f64) -> Bound {
    let upper_end = row.bound_below_limit(&column.name).filter(|end| end.is_finite());
    let text = match upper_end {
        Some(end) if end > 0.0 => {
            format!("below the detection limit ({})", row.value_text(&column.name))
        }
        _ => "below the detection limit".to_owned(),
    };
    // Without an interval the number is the best guess of the upper end.
    Bound { text, low: f64::NEG_INFINITY, high: upper_end.unwrap_or(number) }
}

/// The columns whose marks decide whether the numbers of `column` are measurements.
pub(crate) fn sources<'t>(table: &'t Table, column: &Column) -> Vec<&'t Column> {
    table.columns.iter().filter(|source| source.marks(column)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Kind;

    #[test]
    fn a_number_below_its_limit_and_a_bound_are_no_measurements() {
        let columns = vec![
            Column::new("mean_ns", Kind::Real, "").plus_minus("ci95_ns").below_limit("is_below"),
            Column::new("ci95_ns", Kind::Real, ""),
            Column::new("is_below", Kind::Bool, ""),
            Column::new("late_ns", Kind::Real, "").bound("is_bound", "≥"),
            Column::new("is_bound", Kind::Bool, ""),
            Column::new("self_cpu_ratio", Kind::Real, "").below_limit("is_below"),
        ];
        let mut table = Table::new("t", "", columns);
        let mut row = |mean: f64, is_bound: bool| {
            let times = [mean.into(), 1_200.0.into(), is_bound.into()];
            let others = [5_000.0.into(), is_bound.into(), 0.25.into()];
            table.push(times.into_iter().chain(others).collect());
        };
        row(20.0, false);
        row(30.0, true);
        row(-5_000.0, true);
        let found = |row: usize, name: &str| {
            let column = table.columns.iter().find(|column| column.name == name).unwrap();
            bound(&table, &table.rows()[row], column)
        };
        for column in ["mean_ns", "ci95_ns", "late_ns", "self_cpu_ratio"] {
            assert_eq!(found(0, column), None);
        }
        let below = |text: &str, high: f64| {
            Some(Bound { text: text.to_owned(), low: f64::NEG_INFINITY, high })
        };
        let limit = "below the detection limit";
        assert_eq!(found(1, "mean_ns"), below(&format!("{limit} (< 1.23 µs)"), 1_230.0));
        assert_eq!(found(2, "mean_ns"), below(limit, -3_800.0));
        assert_eq!(found(1, "self_cpu_ratio"), below(limit, 0.25));
        assert!(found(1, "ci95_ns").is_some(), "half the width of a bound's interval");
        let late = found(1, "late_ns").unwrap();
        assert_eq!(
            (late.text.as_str(), late.low, late.high),
            ("only a bound: ≥ 5.00 µs", 5_000.0, f64::INFINITY)
        );
    }
}
