//! Pictures of `signal`: what schemes cost and delay, measured and by the model. This file has the common parts: the
//! looks of schemes, and series of points. A scheme has the same look in all pictures of a run.

mod cpu;
mod latency;
mod paper;
mod regions;
mod sweep;
mod throughput;

use std::collections::{BTreeMap, BTreeSet};

use plotters::style::RGBColor;
use record::{Run, Table, Value, keys};

pub use cpu::cpu;
pub use latency::latency;
pub use paper::paper;
pub use regions::regions;
pub use throughput::throughput;

use crate::escape::plain;
use crate::human::Quantity;
use crate::picture::chart::{Chart, Label, Look, gap_share};
use crate::picture::palette::{BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION};
use crate::picture::rows;
use crate::picture::sheet::Undrawn;
use crate::row::Row;
use crate::schemes;

/// Maximum number of schemes of a picture, because more names have no room next to a panel.
const SCHEMES_MAX: usize = 16;

/// Sideways distance between the points of neighbouring schemes, pixels. It keeps their intervals from overlapping.
const SIDEWAYS_STEP: f64 = 4.0;

/// Shares of a kind's colour, mixed with white, for the schemes of the kind in the order of their names.
const SHADES: [f64; 3] = [1.0, 0.7, 0.5];
/// Factor that darkens the colours of further schemes of a kind, once for each use of all [`SHADES`].
const DARKER_FACTOR: f64 = 0.6;
/// Maximum number of times that a colour is made darker.
const DARKER_STEPS_MAX: usize = 4;

/// The tables of the pictures of `signal`. All have a column `scheme`.
const TABLES: [&str; 6] = ["rates", "model", "curves", "regions", "throughput", "paper"];

/// Kinds of schemes (the name before the colon), and their colours.
const KIND_COLOURS: [(&str, RGBColor); 8] = [
    ("interrupt", VERMILION),
    ("drain", ORANGE),
    ("spin", BLUE),
    ("yield", GREY),
    ("clocked", GREEN),
    ("deferred", PURPLE),
    ("coalesced", SKY),
    ("hybrid", BLACK),
];

/// The schemes of a picture, in the order of their rows, each with its look.
struct Schemes {
    looks: Vec<(String, Look)>,
    /// Number of further schemes, which the picture does not draw.
    left_out: usize,
}

impl Schemes {
    /// Collects the schemes from the names in the drawn rows. A name may repeat.
    fn new(run: &Run, names: impl Iterator<Item = String>) -> Schemes {
        let mut drawn_names: Vec<String> = Vec::new();
        let mut left_out_names: Vec<String> = Vec::new();
        for name in names {
            if drawn_names.contains(&name) || left_out_names.contains(&name) {
                continue;
            }
            if drawn_names.len() >= SCHEMES_MAX {
                left_out_names.push(name);
            } else {
                drawn_names.push(name);
            }
        }
        let mut looks_of_run = run_looks(run);
        let looks =
            drawn_names.into_iter().filter_map(|name| looks_of_run.remove_entry(&name)).collect();
        Schemes { looks, left_out: left_out_names.len() }
    }

    fn look(&self, scheme: &str) -> Option<Look> {
        self.looks.iter().find(|(name, _)| name == scheme).map(|(_, look)| *look)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.looks.iter().map(|(name, _)| name.as_str())
    }

    /// A note about the schemes that are not drawn, or `None` if all are drawn.
    fn note(&self, table: &str) -> Option<String> {
        let left_out = self.left_out;
        (left_out > 0).then(|| format!("{left_out} more schemes are not drawn: see table {table}."))
    }
}

/// The looks of all schemes in the tables of a run. Pictures take their looks from here, so that a scheme has one look
/// in all of them.
fn run_looks(run: &Run) -> BTreeMap<String, Look> {
    let tables = TABLES.iter().filter_map(|table| run.table(table));
    looks_of(tables.flat_map(rows).map(|row| text(&row, "scheme")).collect())
}

/// The looks of schemes. They follow the order of names, not of rows.
fn looks_of(names: BTreeSet<String>) -> BTreeMap<String, Look> {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut looks = BTreeMap::new();
    for name in names {
        let kind_index = KIND_COLOURS.iter().position(|(known, _)| *known == kind(&name));
        let colour = kind_index.map_or(GREY, |index| KIND_COLOURS[index].1);
        let number = numbers.entry(kind(&name).to_owned()).or_default();
        // Kinds differ in the pattern too, so that lines on one another can be told apart.
        let pattern = kind_index.unwrap_or(KIND_COLOURS.len()) + *number;
        looks.insert(name, Look { colour: shade(colour, *number), pattern });
        *number += 1;
    }
    looks
}

/// The colour of scheme `number` of a kind: the kind's colour, then lighter ones, then darker ones.
fn shade(RGBColor(red, green, blue): RGBColor, number: usize) -> RGBColor {
    // A lighter black would be the grey of another kind.
    let is_black = RGBColor(red, green, blue) == BLACK;
    let share = if is_black { 1.0 } else { SHADES[number % SHADES.len()] };
    let darker = DARKER_FACTOR.powi((number / SHADES.len()).min(DARKER_STEPS_MAX) as i32);
    let part = |part: u8| {
        let lighter = f64::from(part) * share + 255.0 * (1.0 - share);
        (lighter * darker).round() as u8
    };
    RGBColor(part(red), part(green), part(blue))
}

/// A scheme's name without its parameters.
fn kind(scheme: &str) -> &str {
    scheme.split(':').next().unwrap_or(scheme)
}

/// The text in a column, escaped. Empty if the value is no text.
fn text(row: &Row<'_>, column: &str) -> String {
    match row.get(column) {
        Value::Text(text) => plain(text),
        _ => String::new(),
    }
}

/// The number in a column, if a logarithmic axis can show it: positive and finite.
fn positive(row: &Row<'_>, column: &str) -> Option<f64> {
    row.number(column).filter(|number| number.is_finite() && *number > 0.0)
}

/// The loads of a table, in order of their first rows.
fn loads(table: &Table) -> Vec<String> {
    let mut loads: Vec<String> = Vec::new();
    for row in rows(table) {
        let load = schemes::load(&row);
        if !loads.contains(&load) {
            loads.push(load);
        }
    }
    loads
}

/// Describes a load in the title of a panel.
fn describe_load(load: &str) -> String {
    match load {
        "idle" => "receiving CPU otherwise idle".to_owned(),
        "background" => {
            "a job of the lowest priority on the receiving CPU (load background)".to_owned()
        }
        "busy" => "a job of the receiver's priority on the receiving CPU (load busy)".to_owned(),
        other => format!("load {other}"),
    }
}

/// The rig that carried the events, as a sentence with a trailing space. `None` if the run does not state it.
fn rig(run: &Run) -> Option<String> {
    let rig = run.settings.get(keys::RIG)?.as_str()?;
    Some(format!("Rig {}. ", plain(rig)))
}

/// Notes with the warnings of the run about contaminated windows.
fn contamination_notes(run: &Run) -> impl Iterator<Item = String> {
    let is_about_windows = |warning: &&String| warning.contains(keys::ONLY_CONTAMINATED_WINDOWS);
    run.warnings.iter().filter(is_about_windows).map(|warning| {
        let warning = plain(warning);
        let first_part = warning.split(keys::FIRST_ROW).next().unwrap_or(&warning);
        format!("Warning of the run: {first_part}.")
    })
}

/// The smallest and the largest number. `None` without numbers.
fn range(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    numbers.fold(None, |range, number| {
        let (low, high) = range.unwrap_or((number, number));
        Some((low.min(number), high.max(number)))
    })
}

/// The points of a scheme, in ascending order of x.
struct Series {
    scheme: String,
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    x: f64,
    y: f64,
    /// Half the width of the interval of `y`.
    half_width: Option<f64>,
    source: PointSource,
}

/// How a point was measured or computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PointSource {
    Measured,
    ByFormula,
    Simulated,
    OverCapacity,
}

/// The points of the rows by scheme, ascending by x. `point` returns `None` to leave a row out. Rows of schemes that `schemes`
/// does not have are left out, and schemes without points.
fn series_by_scheme<'r>(
    rows: impl Iterator<Item = Row<'r>>,
    schemes: &Schemes,
    point: impl Fn(&Row<'r>) -> Option<Point>,
) -> Vec<Series> {
    let empty_series = |name: &str| Series { scheme: name.to_owned(), points: Vec::new() };
    let mut series_of_schemes: Vec<Series> = schemes.names().map(empty_series).collect();
    for row in rows {
        let scheme = text(&row, "scheme");
        if let Some(series) = series_of_schemes.iter_mut().find(|series| series.scheme == scheme) {
            series.points.extend(point(&row));
        }
    }
    for series in &mut series_of_schemes {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    series_of_schemes.retain(|series| !series.points.is_empty());
    series_of_schemes
}

/// Draws series: lines if `is_joined`, intervals, and marks by the source of each point. If series with intervals are
/// joined, points are moved sideways a little. Points that are compared with a curve are not joined, and stay in place.
fn draw_series(
    chart: &mut Chart<'_>,
    all_series: &[Series],
    schemes: &Schemes,
    is_joined: bool,
) -> Result<(), Undrawn> {
    let has_interval =
        all_series.iter().flat_map(|series| &series.points).any(|point| point.half_width.is_some());
    let mut series_with_looks: Vec<(usize, &Series, Look)> = all_series
        .iter()
        .enumerate()
        .filter_map(|(index, series)| Some((index, series, schemes.look(&series.scheme)?)))
        .collect();
    // The lines with the widest gaps are drawn last, so that lines below them can be seen.
    series_with_looks.sort_by(|(.., look), (.., other_look)| {
        gap_share(*look).total_cmp(&gap_share(*other_look))
    });
    for (index, series, look) in series_with_looks {
        let sideways = if is_joined && has_interval {
            SIDEWAYS_STEP * (index as f64 - (all_series.len() - 1) as f64 / 2.0)
        } else {
            0.0
        };
        let moved_points: Vec<Point> = series
            .points
            .iter()
            .map(|point| Point { x: chart.moved_right(point.x, sideways), ..*point })
            .collect();
        if is_joined {
            let line: Vec<(f64, f64)> =
                moved_points.iter().map(|point| (point.x, point.y)).collect();
            chart.line(&line, look, 1.8)?;
        }
        for point in &moved_points {
            if let Some(half_width) = point.half_width {
                chart.whisker(point.x, (point.y - half_width, point.y + half_width), look)?;
            }
            match point.source {
                PointSource::Measured => chart.mark((point.x, point.y), look, false)?,
                PointSource::Simulated => chart.mark((point.x, point.y), look, true)?,
                PointSource::OverCapacity => chart.cross((point.x, point.y), look)?,
                PointSource::ByFormula => {}
            }
        }
    }
    Ok(())
}

/// The labels at the ends of series.
fn labels<'s>(all: impl Iterator<Item = &'s Series>, schemes: &Schemes) -> Vec<Label> {
    let label = |series: &Series| {
        let (last, look) = (series.points.last()?, schemes.look(&series.scheme)?);
        Some(Label { name: series.scheme.clone(), colour: look.colour, end: (last.x, last.y) })
    };
    all.filter_map(label).collect()
}

/// The costs of the model in words: fitted costs as `C = 3.5 µs`, and costs from the settings as the user wrote them.
/// `None` for a run without costs.
fn costs(run: &Run) -> Option<String> {
    let symbol = |cost: &str| match cost {
        "interrupt" | "interrupt_cost" => Some("C"),
        "tick" | "tick_cost" => Some("C of a tick"),
        "event" | "event_cost" => Some("alpha"),
        _ => None,
    };
    let fitted = run.table("costs").into_iter().flat_map(rows).filter_map(|row| {
        let value = Quantity::Time.text(row.number("value_ns")?);
        Some(format!("{} = {value}", symbol(&text(&row, "cost"))?))
    });
    let configured = ["interrupt_cost", "tick_cost", "event_cost"].into_iter().filter_map(|key| {
        Some(format!("{} = {}", symbol(key)?, plain(run.settings.get(key)?.as_str()?)))
    });
    let costs: Vec<String> = fitted.chain(configured).collect();
    (!costs.is_empty()).then(|| costs.join(", "))
}

#[cfg(test)]
mod tests;
