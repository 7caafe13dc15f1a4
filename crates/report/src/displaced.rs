//! Which stimulus of `footprint` displaces most lines. The answer of a page and the title of the picture follow the rules
//! of this file, so that they name the same stimulus.

use record::{Table, Value};

use crate::row::{Row, possible_extremes};
use crate::winner::{Extreme, Figure};

/// Stands before a number that is an upper bound.
pub const AT_MOST: &str = "at most ";
/// Stands before a number that is a lower bound.
pub const AT_LEAST: &str = "at least ";

/// The number of lines that an interrupt displaces, with its interval. An upper bound is the upper end of its interval, and has no
/// lower end. In runs of older versions, `displaced_lines` of an upper bound is the middle of its interval. Where
/// more misses are counted than the time allows, the misses are a lower bound. An absent number
/// may have an interval: it is below the detection limit, or the pass took longer than with all lines displaced. Its value
/// is then the lower end if counters confirm it, or negative infinity. Time alone confirms no lower end: in runs of older
/// versions, intervals without counters have one. `None` without both.
pub fn displaced(row: &Row<'_>) -> Option<Figure> {
    if let Some(counted) = more_misses(row) {
        return Some(counted);
    }
    let interval =
        row.number("displaced_ci95_low_lines").zip(row.number("displaced_ci95_high_lines"));
    let Some(value) = row.number("displaced_lines") else {
        let is_counted = row.number("user_misses").is_some();
        return interval.map(|(low, high)| {
            if is_counted && low > 0.0 {
                Figure { value: low, low, high }
            } else {
                Figure { value: f64::NEG_INFINITY, low: 0.0, high }
            }
        });
    };
    if is_upper_bound(row) {
        let high = interval.map_or(value, |(_, high)| high);
        return Some(Figure { value: high, low: f64::NEG_INFINITY, high });
    }
    Some(interval.map_or(Figure::with_unknown_error(value), |(low, high)| Figure {
        value,
        low,
        high,
    }))
}

/// The counted misses of a row whose lines by time are fewer, beyond both intervals. Prefetchers hide misses, so the value is a
/// lower bound. `None` if time and counters agree.
fn more_misses(row: &Row<'_>) -> Option<Figure> {
    let lines_max = row.number("displaced_ci95_high_lines")?;
    let (misses, half_width) = row.number("user_misses").zip(row.number("user_misses_ci95"))?;
    let (low, high) = (misses - half_width, misses + half_width);
    (lines_max < low).then_some(Figure { value: low, low, high })
}

/// Whether the displaced lines of a row are an upper bound and no measurement.
fn is_upper_bound(row: &Row<'_>) -> bool {
    *row.get("is_upper_bound") == Value::Bool(true)
}

/// The displaced share of the level, for the number of [`displaced`]. `None` where the number or the share is absent or 0.
pub fn displaced_share(row: &Row<'_>) -> Option<f64> {
    let lines = row.number("displaced_lines").filter(|lines| *lines > 0.0)?;
    let ratio = row.number("displaced_ratio").filter(|ratio| *ratio > 0.0)?;
    Some(ratio * displaced(row)?.value / lines)
}

/// The words before the value of [`displaced`]. Empty for a measured number.
pub fn displaced_bound(row: &Row<'_>) -> &'static str {
    match row.number("displaced_lines") {
        None => AT_LEAST,
        Some(_) if more_misses(row).is_some() => AT_LEAST,
        Some(_) if is_upper_bound(row) => AT_MOST,
        Some(_) => "",
    }
}

/// The row with most displaced lines, then a row of each other stimulus that may displace more of the level, within the errors. A
/// row without any figure may have more, unless its stimulus has a figure by another method. Empty if no row has a figure.
pub fn most_displaced(table: &Table) -> Vec<Row<'_>> {
    let rows = || table.rows().iter().map(move |values| Row::new(table, values));
    let known = rows().filter_map(|row| Some((displaced(&row)?.value, row)));
    let known = known.filter(|(lines, _)| lines.is_finite());
    let Some((_, largest)) = known.max_by(|a, b| a.0.total_cmp(&b.0)) else { return Vec::new() };
    let on_level = || rows().filter(|row| row.get("level") == largest.get("level"));
    let has_figure = |stimulus: &Value| {
        on_level().any(|row| row.get("stimulus") == stimulus && displaced(&row).is_some())
    };
    let unknown = Figure::with_unknown_error(f64::NEG_INFINITY);
    let mut rows = possible_extremes(on_level(), Extreme::Largest, |row| {
        displaced(row).or_else(|| (!has_figure(row.get("stimulus"))).then_some(unknown))
    });
    // Another method of the same stimulus is no other stimulus.
    let mut seen: Vec<&Value> = Vec::new();
    rows.retain(|row| {
        let stimulus = row.get("stimulus");
        let is_first = !seen.contains(&stimulus);
        seen.push(stimulus);
        is_first
    });
    rows
}

#[cfg(test)]
mod tests {
    use record::Kind;

    use super::*;
    use crate::picture::tests::table;

    #[test]
    fn counted_misses_above_the_time_are_a_lower_bound() {
        let columns = [
            "displaced_lines",
            "displaced_ci95_low_lines",
            "displaced_ci95_high_lines",
            "user_misses",
            "user_misses_ci95",
        ];
        let columns: Vec<(&str, Kind)> = columns.map(|name| (name, Kind::Real)).to_vec();
        let figure = |lines: Option<f64>, misses: f64| {
            let cells = [lines, Some(41.2), Some(43.75), Some(misses), Some(0.75)];
            let table = table("footprint", &columns, vec![cells.map(Value::from).to_vec()]);
            let row = Row::new(&table, &table.rows()[0]);
            (displaced(&row), displaced_bound(&row))
        };
        let counted = Figure { value: 47.75, low: 47.75, high: 49.25 };
        assert_eq!(figure(Some(42.5), 48.5), (Some(counted), AT_LEAST));
        assert_eq!(figure(None, 48.5), (Some(counted), AT_LEAST));
        let timed = Figure { value: 42.5, low: 41.2, high: 43.75 };
        assert_eq!(figure(Some(42.5), 44.0), (Some(timed), ""));
    }
}
