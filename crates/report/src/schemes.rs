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

/// Whether all windows of a row are contaminated. Its figures then come from contaminated windows. Tables of early versions
/// lack column `is_contaminated`. Equal counts of contaminated and used windows then count as contamination.
pub fn is_contaminated(row: &Row<'_>) -> bool {
    if let Value::Bool(is_contaminated) = row.get("is_contaminated") {
        return *is_contaminated;
    }
    let windows = row.number("contaminated_count").zip(row.number("repetitions"));
    windows.is_some_and(|(contaminated, windows)| contaminated > 0.0 && contaminated >= windows)
}

/// A scheme's figure. `None` if it is absent. A formula is exact. A measurement has an interval, and so has a simulation.
pub fn figure(row: &Row<'_>, column: &str) -> Option<Figure> {
    let value = row.number(column)?;
    let is_quantile = column.starts_with("latency_p");
    let method = if is_quantile { "quantiles_method" } else { "method" };
    if row.has_text(method, "closed-form") {
        return Some(Figure::exact(value));
    }
    let half_widths = HALF_WIDTHS.iter().filter(|(known, _)| *known == column);
    let half_width = half_widths.filter_map(|(_, half_width)| row.number(half_width)).next();
    Some(Figure::with_interval(value, half_width))
}

/// The load of a row, escaped. Empty without a load.
pub fn load(row: &Row<'_>) -> String {
    match row.get("load") {
        Value::Text(load) => plain(load),
        _ => String::new(),
    }
}

/// The rows whose figures in `column` can be compared: those of one load and one value of `x_column`, of the schemes that
/// keep up. The load is `background`, else the first load with a figure. The value is the largest with which at least
/// two schemes have a figure, else the largest with a figure. Includes the rows without a figure: such a scheme was
/// measured there, and may have any figure. Empty if no row has a figure.
pub fn comparable_rows<'t>(table: &'t Table, x_column: &str, column: &str) -> Vec<Row<'t>> {
    let rows = table.rows().iter().map(|values| Row::new(table, values));
    let x = |row: &Row<'_>| row.number(x_column).filter(|x| x.is_finite());
    let has_figure = |row: &&Row<'_>| row.number(column).is_some();
    let mut rows: Vec<Row<'t>> =
        rows.filter(|row| keeps_up_with_rate(row) && x(row).is_some()).collect();
    let loads: Vec<String> = rows.iter().filter(has_figure).map(load).collect();
    let fitted_load = loads.iter().find(|load| *load == FITTED_LOAD);
    let Some(compared_load) = fitted_load.or(loads.first()) else { return Vec::new() };
    rows.retain(|row| load(row) == *compared_load);
    let measured_at = |compared_x: f64| {
        let measured = rows.iter().filter(has_figure);
        measured.filter(|row| x(row) == Some(compared_x)).copied().collect::<Vec<_>>()
    };
    // Compares the numbers of schemes before the values of x.
    let order = |compared_x: &f64| (has_two_schemes(&measured_at(*compared_x)), *compared_x);
    let by_order = |a: &f64, b: &f64| {
        let ((a_is_comparison, a_x), (b_is_comparison, b_x)) = (order(a), order(b));
        a_is_comparison.cmp(&b_is_comparison).then(a_x.total_cmp(&b_x))
    };
    let compared_x = rows.iter().filter(has_figure).filter_map(x).max_by(by_order);
    rows.retain(|row| x(row) == compared_x);
    rows
}

/// The schemes that may have any figure in `column`, because they have none where `comparable` was measured. These are the
/// schemes without a row there, as in a run that was interrupted, and those whose row has no figure. A scheme that does
/// not keep up is not among them. `comparable`: rows of the table, from [`comparable_rows`].
pub fn unmeasured(
    table: &Table,
    x_column: &str,
    column: &str,
    comparable: &[Row<'_>],
) -> Vec<String> {
    let Some(first) = comparable.first() else { return Vec::new() };
    let under_load = || {
        let rows = table.rows().iter().map(|values| Row::new(table, values));
        rows.filter(|row| row.get("load") == first.get("load"))
    };
    let has_result = |scheme: &Value| {
        under_load().any(|row| {
            row.get("scheme") == scheme
                && row.number(x_column) == first.number(x_column)
                && (row.number(column).is_some() || !keeps_up_with_rate(&row))
        })
    };
    let mut names: Vec<String> = Vec::new();
    for row in under_load().filter(|row| !has_result(row.get("scheme"))) {
        let name = row.value_text("scheme");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether the rows are of more than one scheme.
pub fn has_two_schemes(rows: &[Row<'_>]) -> bool {
    rows.iter().any(|row| row.get("scheme") != rows[0].get("scheme"))
}

/// The scheme with the smallest or largest figure of the [`comparable_rows`]. `None` if another scheme may have this figure,
/// within the errors or because it has none; if only one scheme was measured; or if something else had a CPU in all
/// windows of a scheme.
pub fn best_scheme(
    table: &Table,
    x_column: &str,
    column: &str,
    extreme: Extreme,
) -> Option<BestScheme> {
    let rows = comparable_rows(table, x_column, column);
    if rows.iter().any(is_contaminated) || !has_two_schemes(&rows) {
        return None;
    }
    if !unmeasured(table, x_column, column, &rows).is_empty() {
        return None;
    }
    let figures: Vec<Figure> = rows.iter().filter_map(|row| figure(row, column)).collect();
    let [winner] = candidates(&figures, extreme)[..] else { return None };
    let row = rows[winner];
    let (x, value) = (row.number(x_column)?, row.number(column)?);
    Some(BestScheme { scheme: row.value_text("scheme"), load: load(&row), x, value })
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
            let numbers = [Value::real(*cpu), 0.0001.into(), (*dropped).into()];
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
        let idle = [("idle", "drain", 9_000, 0.3, 0.0), rows[0]];
        assert_eq!(cheapest(&idle).unwrap().1, "idle");
    }

    #[test]
    fn a_scheme_that_drops_events_is_not_compared() {
        let rows = [
            ("background", "spin", 9_000, 0.5, 0.0),
            ("background", "yield", 9_000, 0.7, 0.0),
            ("background", "drain", 9_000, 0.3, 0.02),
            ("background", "drain", 20_000, 0.1, 0.5),
        ];
        let spin = Some(("spin".to_owned(), "background".to_owned(), 9_000.0));
        assert_eq!(cheapest(&rows), spin);
    }

    #[test]
    fn a_scheme_wins_against_another_scheme_only() {
        let rows = [
            ("background", "spin", 9_000, 0.5, 0.0),
            ("background", "drain", 9_000, 0.3, 0.0),
            ("background", "spin", 10_000, 0.5, 0.0),
        ];
        let drain = Some(("drain".to_owned(), "background".to_owned(), 9_000.0));
        assert_eq!(cheapest(&rows), drain, "the last rate of a run that was interrupted");
        assert_eq!(cheapest(&rows[..1]), None);
        let with_yield = [&rows[..], &[("background", "yield", 1_000, 0.9, 0.0)]].concat();
        assert_eq!(cheapest(&with_yield), None, "nothing is known of yield at this rate");
    }

    #[test]
    fn a_scheme_without_a_figure_may_be_the_best() {
        let rows = [
            ("background", "spin", 9_000, 0.5, 0.0),
            ("background", "drain", 9_000, 0.3, 0.0),
            ("background", "yield", 9_000, f64::NAN, 0.0),
        ];
        assert_eq!(cheapest(&rows), None);
        assert_eq!(comparable_rows(&rates(&rows), "rate_hz", "cpu_ratio").len(), 3);
    }

    #[test]
    fn a_share_below_zero_is_compared() {
        let rows =
            [("background", "spin", 9_000, 0.5, 0.0), ("background", "drain", 9_000, -0.001, 0.0)];
        assert_eq!(cheapest(&rows).unwrap().0, "drain");
    }
}
