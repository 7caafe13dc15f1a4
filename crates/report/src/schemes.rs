//! Which scheme of `signal` has the smallest or largest figure. The answer of a page and the titles of pictures follow
//! the rules of this file, so that they name the same scheme.

use record::{Table, Value};

use crate::escape::plain;
use crate::row::Row;
use crate::winner::{Extreme, Figure, candidates};

/// A measured scheme that loses this part of the events or more does not keep up: what it loses costs it nothing.
const LOST_RATIO_MAX_MEASURED: f64 = 0.01;
/// As above, for a computed scheme: the limit with which `signal model` judges.
const LOST_RATIO_MAX_COMPUTED: f64 = 1e-4;
/// The load that the fit of the model uses.
pub const FITTED_LOAD: &str = "background";

/// Columns with the half width of a figure's interval. A computed figure may have another column than a measured one.
const HALF_WIDTHS: [(&str, &str); 5] = [
    ("cpu_ratio", "cpu_ci95_ratio"),
    ("cpu_ratio", "cpu_half_width_ratio"),
    ("latency_mean_ns", "latency_mean_ci95_ns"),
    ("latency_mean_ns", "latency_half_width_ns"),
    ("throughput_bytes_per_second", "throughput_ci95_bytes_per_second"),
];

/// The scheme with the best figure of a table, and where the table has this figure.
#[derive(Clone, Debug, PartialEq)]
pub struct BestScheme {
    pub scheme: String,
    /// The load, escaped. Empty for a table without loads.
    pub load: String,
    /// The largest value of the horizontal axis that the comparison has.
    pub x: f64,
    pub value: f64,
}

/// Whether the scheme of a row of `signal run` or `signal model` handles the events of its rate.
pub fn keeps_up_with_rate(row: &Row<'_>) -> bool {
    let loses = |column, limit| row.number(column).is_some_and(|ratio| ratio >= limit);
    *row.get("is_over_capacity") != Value::Bool(true)
        && !loses("dropped_ratio", LOST_RATIO_MAX_MEASURED)
        && !loses("drops_ratio", LOST_RATIO_MAX_COMPUTED)
}

/// Whether all windows of a row are contaminated. Its figures then come from contaminated windows. If only some windows
/// are, the table does not say whether the figures use them.
pub fn is_contaminated(row: &Row<'_>) -> bool {
    let windows = row.number("contaminated_count").zip(row.number("repetitions"));
    windows.is_some_and(|(contaminated, windows)| contaminated > 0.0 && contaminated >= windows)
}

/// A scheme's figure. A formula is exact. A measurement has an interval, and so has a simulation.
pub fn figure(row: &Row<'_>, column: &str) -> Option<Figure> {
    let value = row.number(column)?;
    let is_quantile = column.starts_with("latency_p");
    let method = if is_quantile { "quantiles_method" } else { "method" };
    if row.has_text(method, "closed-form") {
        return Some(Figure::exact(value));
    }
    let half_widths = HALF_WIDTHS.iter().filter(|(known, _)| *known == column);
    let half_width = half_widths.filter_map(|(_, half_width)| row.number(half_width)).next();
    Some(Figure::measured(value, half_width))
}

/// The load of a row, escaped. Empty without a load.
pub fn load(row: &Row<'_>) -> String {
    match row.get("load") {
        Value::Text(load) => plain(load),
        _ => String::new(),
    }
}

/// The rows whose figures in `column` can be compared: those of one load, of the schemes that keep up, at the largest
/// value of `x_column` that a scheme keeps up with. The load is `background`, else the first load with a figure.
pub fn comparable_rows<'t>(table: &'t Table, x_column: &str, column: &str) -> Vec<Row<'t>> {
    let rows = table.rows().iter().map(|values| Row::new(table, values));
    let x = |row: &Row<'_>| row.number(x_column).filter(|x| x.is_finite());
    let has_figure = |row: &Row<'_>| x(row).is_some() && row.number(column).is_some();
    let mut rows: Vec<Row<'t>> =
        rows.filter(|row| keeps_up_with_rate(row) && has_figure(row)).collect();
    let loads: Vec<String> = rows.iter().map(load).collect();
    let fitted_load = loads.iter().find(|load| *load == FITTED_LOAD);
    let Some(compared_load) = fitted_load.or(loads.first()) else { return rows };
    rows.retain(|row| load(row) == *compared_load);
    let largest_x = rows.iter().filter_map(x).fold(f64::NEG_INFINITY, f64::max);
    rows.retain(|row| x(row) == Some(largest_x));
    rows
}

/// The scheme with the smallest or largest figure of the [`comparable_rows`]. `None` if, within the errors, another
/// scheme may have this figure, or if something else had a CPU in all windows of a scheme.
pub fn best_scheme(
    table: &Table,
    x_column: &str,
    column: &str,
    extreme: Extreme,
) -> Option<BestScheme> {
    let rows = comparable_rows(table, x_column, column);
    if rows.iter().any(is_contaminated) {
        return None;
    }
    let figures: Vec<Figure> = rows.iter().filter_map(|row| figure(row, column)).collect();
    let [winner] = candidates(&figures, extreme)[..] else { return None };
    let row = rows[winner];
    let (x, value) = (row.number(x_column)?, row.number(column)?);
    Some(BestScheme { scheme: row.alone("scheme"), load: load(&row), x, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::table;
    use record::Kind;

    /// A table of schemes from load, scheme, rate, CPU use and share of dropped events.
    fn rates(rows: &[(&str, &str, u64, f64, f64)]) -> Table {
        let columns = [
            ("load", Kind::Text),
            ("scheme", Kind::Text),
            ("rate_hz", Kind::Uint),
            ("cpu_ratio", Kind::Real),
            ("cpu_ci95_ratio", Kind::Real),
            ("dropped_ratio", Kind::Real),
        ];
        let row = |(load, scheme, rate_hz, cpu, dropped): &(&str, &str, u64, f64, f64)| {
            let keys: [Value; 3] = [(*load).into(), (*scheme).into(), (*rate_hz).into()];
            let numbers: [Value; 3] = [(*cpu).into(), 0.0001.into(), (*dropped).into()];
            [keys, numbers].concat()
        };
        table("rates", &columns, rows.iter().map(row).collect())
    }

    fn cheapest(rows: &[(&str, &str, u64, f64, f64)]) -> Option<(String, String, f64)> {
        let best = best_scheme(&rates(rows), "rate_hz", "cpu_ratio", Extreme::Smallest)?;
        Some((best.scheme, best.load, best.x))
    }

    #[test]
    fn schemes_are_compared_under_one_load() {
        let rows = [
            ("idle", "spin", 9_000, 0.1, 0.0),
            ("background", "spin", 9_000, 0.5, 0.0),
            ("background", "drain", 9_000, 0.3, 0.0),
        ];
        let drain = Some(("drain".to_owned(), "background".to_owned(), 9_000.0));
        assert_eq!(cheapest(&rows), drain);
        assert_eq!(cheapest(&rows[..1]).unwrap().1, "idle");
    }

    #[test]
    fn a_scheme_that_drops_events_is_not_compared() {
        let rows = [
            ("background", "spin", 9_000, 0.5, 0.0),
            ("background", "drain", 9_000, 0.3, 0.02),
            ("background", "drain", 20_000, 0.1, 0.5),
        ];
        let spin = Some(("spin".to_owned(), "background".to_owned(), 9_000.0));
        assert_eq!(cheapest(&rows), spin);
    }

    #[test]
    fn a_share_below_zero_is_compared() {
        let rows =
            [("background", "spin", 9_000, 0.5, 0.0), ("background", "drain", 9_000, -0.001, 0.0)];
        assert_eq!(cheapest(&rows).unwrap().0, "drain");
    }
}
