//! The picture `regions` of `signal model` and `signal advise`: the plane of event rates and latency bounds. Each
//! point has the colour of the scheme that keeps the bound with the least CPU use.

use std::collections::{BTreeMap, BTreeSet};

use plotters::style::{Color, RGBColor};
use record::{Run, Table, keys};

use super::{positive, range, run_looks, text};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, Label, Look, plot_size, room_for};
use crate::picture::palette::{GREY, INK, PAPER, SOFT_INK};
use crate::picture::rows;
use crate::picture::sheet::{Entry, Heading, Sheet, TEXT_SIZE, Undrawn, draw, text_width};

/// Height of the picture, pixels.
const PANEL_HEIGHT: f64 = 520.0;
/// The vertical axis ends at this factor above the highest start of a part. Such a bound excludes no scheme.
const FACTOR_ABOVE: f64 = 5.0;
/// The vertical axis starts at this factor below the lowest start of a part. No scheme keeps such a bound.
const FACTOR_BELOW: f64 = 2.0;
/// Height that a name takes, pixels.
const NAME_HEIGHT: f64 = 17.0;

/// A range of latency bounds within which one scheme is the best at a rate.
struct Part {
    scheme: String,
    from_ns: f64,
    /// Upper end, or `None` if the range has none.
    to_ns: Option<f64>,
}

/// A rate, with the best schemes for all bounds that a scheme keeps.
struct Column {
    rate_hz: f64,
    parts: Vec<Part>,
}

/// The columns of the plane, in ascending order of rates.
fn columns(table: &Table) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for row in rows(table) {
        let (Some(rate_hz), Some(from_ns)) =
            (positive(&row, "rate_hz"), positive(&row, "bound_from_ns"))
        else {
            continue;
        };
        let part =
            Part { scheme: text(&row, "scheme"), from_ns, to_ns: positive(&row, "bound_to_ns") };
        match columns.iter_mut().find(|column| column.rate_hz == rate_hz) {
            Some(column) => column.parts.push(part),
            None => columns.push(Column { rate_hz, parts: vec![part] }),
        }
    }
    columns.sort_by(|a, b| a.rate_hz.total_cmp(&b.rate_hz));
    columns
}

/// The colours of the schemes of the plane.
fn colours(run: &Run, columns: &[Column]) -> BTreeMap<String, RGBColor> {
    let names: BTreeSet<&String> =
        columns.iter().flat_map(|column| &column.parts).map(|part| &part.scheme).collect();
    let looks = run_looks(run);
    let colour = |name: &String| looks.get(name).map_or(GREY, |look| look.colour);
    names.into_iter().map(|name| (name.clone(), colour(name))).collect()
}

/// The picture of table `regions`. `None` for a run without this table, without a bound that a scheme
/// keeps, or with only one rate.
pub fn regions(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("regions") else { return Ok(None) };
    let columns = columns(table);
    let parts = || columns.iter().flat_map(|column| &column.parts);
    let Some((lowest_ns, highest_ns)) = range(parts().map(|part| part.from_ns)) else {
        return Ok(None);
    };
    let (Some(first_column), Some(last_column)) = (columns.first(), columns.last()) else {
        return Ok(None);
    };
    if first_column.rate_hz == last_column.rate_hz {
        return Ok(None);
    }
    let statistic = rows(table).next().map(|row| text(&row, "statistic")).unwrap_or_default();
    let x = Axis::logarithmic_to(
        "events per second",
        Quantity::Rate,
        first_column.rate_hz,
        highest_rate(run, last_column),
    );
    let y_title = match statistic.as_str() {
        "mean" => "bound of the mean latency".to_owned(),
        quantile => format!("bound of the latency's {quantile}"),
    };
    let y_range = (lowest_ns / FACTOR_BELOW, highest_ns * FACTOR_ABOVE);
    let y = Axis::logarithmic(&y_title, Quantity::Time, y_range.0, y_range.1);
    let colours = colours(run, &columns);
    let bound = requested_bound(run, &x, &y);
    let right = room_for(bound.iter().map(|label| label.name.as_str()));
    let size = plot_size((width, PANEL_HEIGHT), right);
    let plane = Plane { columns: &columns, edges: edges(&columns), axes: [&x, &y], size };
    let names_with_positions: Vec<(&str, Option<(f64, f64)>)> =
        colours.keys().map(|scheme| (scheme.as_str(), plane.name_position(scheme))).collect();
    let unnamed_schemes = names_with_positions
        .iter()
        .filter(|(_, position)| position.is_none())
        .map(|(scheme, _)| *scheme);
    let entry = |scheme: &str| Entry {
        name: scheme.to_owned(),
        colour: colours.get(scheme).copied().unwrap_or(GREY),
    };
    let mut notes = vec![method_note(run, table, columns.len())];
    notes.extend(super::contamination_notes(run));
    let heading = Heading {
        title: "Which scheme keeps a latency bound with the least CPU use".to_owned(),
        notes,
        description: format!(
            "The plane of event rates and bounds of the latency ({statistic}), by the cheapest scheme that \
             keeps the bound: {}. The numbers are in table regions of the run.",
            colours.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
        ),
        legend: unnamed_schemes.map(entry).collect(),
    };
    let sheet = draw(&heading, width, PANEL_HEIGHT, |area| {
        let mut chart = Chart::new(area, "", [&x, &y], right)?;
        plane.fill(&mut chart, &colours)?;
        plane.outline(&mut chart)?;
        for (scheme, position) in &names_with_positions {
            if let Some((x_share, y_share)) = position {
                chart.draw_boxed_text(scheme, (x.value_at(*x_share), y.value_at(*y_share)))?;
            }
        }
        if let Some(middle_share) = plane.middle_below() {
            chart.centered_text(
                "no scheme keeps the bound",
                (x.value_at(0.5), y.value_at(middle_share)),
                [0.0, 0.0],
                SOFT_INK,
            )?;
        }
        if let Some(bound) = bound {
            let ((x_low, _), (_, bound_ns)) = (x.ends(), bound.end);
            chart.line(&[(x_low, bound_ns), bound.end], Look { colour: INK, pattern: 1 }, 1.5)?;
            chart.label_ends(&[bound])?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// The bound that the user asked for, as the label of a line. `None` without such a bound, or if it is outside of the axis.
fn requested_bound(run: &Run, x: &Axis, y: &Axis) -> Option<Label> {
    let bound_ns = run.settings.get(keys::LATENCY_BOUND_NS).and_then(serde_json::Value::as_f64);
    let (_, x_high) = x.ends();
    bound_ns.filter(|bound_ns| y.holds(*bound_ns)).map(|bound_ns| Label {
        name: format!("asked for: {}", Quantity::Time.text(bound_ns)),
        colour: INK,
        end: (x_high, bound_ns),
    })
}

/// How the schemes of `table` were compared.
fn method_note(run: &Run, table: &Table, rate_count: usize) -> String {
    let is_simulated = rows(table).any(|row| text(&row, "method") == "simulation");
    let method = if is_simulated { "closed forms and simulations" } else { "closed forms" };
    let source = super::costs(run).map_or(String::new(), |costs| format!(" with {costs}"));
    format!(
        "By the model{source}: {method} at {rate_count} rates. Unfilled: no scheme of this run keeps the bound."
    )
}

/// The highest rate that the model computed or the user asked about. At rates above the last column, no scheme keeps
/// up.
fn highest_rate(run: &Run, last: &Column) -> f64 {
    let model = run.table("model").into_iter().flat_map(rows);
    let rates = model.filter_map(|row| positive(&row, "rate_hz"));
    let requested = run.settings.get(keys::RATE_HIGH_HZ).and_then(serde_json::Value::as_f64);
    rates.chain(requested).fold(last.rate_hz, f64::max)
}

/// The boundaries of the columns: the first rate, the geometric means of neighbouring rates, and the last rate.
fn edges(columns: &[Column]) -> Vec<f64> {
    let rates: Vec<f64> = columns.iter().map(|column| column.rate_hz).collect();
    let means = rates.windows(2).map(|pair| (pair[0] * pair[1]).sqrt());
    let ends = [rates.first(), rates.last()].map(|end| end.copied().unwrap_or(1.0));
    [ends[0]].into_iter().chain(means).chain([ends[1]]).collect()
}

/// The plane of rates and bounds, which is drawn column by column.
struct Plane<'p> {
    columns: &'p [Column],
    /// See [`edges`].
    edges: Vec<f64>,
    /// The axes of rates and of bounds.
    axes: [&'p Axis; 2],
    /// Size of the plot, pixels.
    size: (f64, f64),
}

impl Plane<'_> {
    /// The upper end of a part, at most the end of the axis.
    fn top(&self, part: &Part) -> f64 {
        part.to_ns.unwrap_or(self.axes[1].ends().1)
    }

    /// Fills the areas of all schemes. Parts of a scheme that touch in neighbouring columns become one area.
    fn fill(
        &self,
        chart: &mut Chart<'_>,
        colours: &BTreeMap<String, RGBColor>,
    ) -> Result<(), Undrawn> {
        for (scheme, colour) in colours {
            // The area that neighbouring columns have formed so far: column, lower and upper end.
            let mut area: Vec<(usize, f64, f64)> = Vec::new();
            for (number, column) in self.columns.iter().enumerate() {
                let part = column.parts.iter().find(|part| part.scheme == *scheme);
                let part = part.map(|part| (number, part.from_ns, self.top(part)));
                let touches = part.zip(area.last()).is_some_and(
                    |((_, low, high), (_, last_low, last_high))| {
                        low < *last_high && high > *last_low
                    },
                );
                if !touches {
                    self.fill_area(chart, &area, *colour)?;
                    area.clear();
                }
                area.extend(part);
            }
            self.fill_area(chart, &area, *colour)?;
        }
        Ok(())
    }

    /// Fills an area. `parts`: indices of columns, with the area's lower and upper end there.
    fn fill_area(
        &self,
        chart: &mut Chart<'_>,
        parts: &[(usize, f64, f64)],
        colour: RGBColor,
    ) -> Result<(), Undrawn> {
        if parts.is_empty() {
            return Ok(());
        }
        let ends = |column: usize| (self.edges[column], self.edges[column + 1]);
        let lower_edge = |&(column, low, _): &(usize, f64, f64)| {
            let (left, right) = ends(column);
            [(left, low), (right, low)]
        };
        let upper_edge = |&(column, _, high): &(usize, f64, f64)| {
            let (left, right) = ends(column);
            [(right, high), (left, high)]
        };
        let corners =
            parts.iter().flat_map(lower_edge).chain(parts.iter().rev().flat_map(upper_edge));
        chart.polygon(corners.collect(), colour.filled())
    }

    /// Draws white lines at the boundaries between schemes.
    fn outline(&self, chart: &mut Chart<'_>) -> Result<(), Undrawn> {
        let style = PAPER.stroke_width(4);
        for (number, column) in self.columns.iter().enumerate() {
            for part in &column.parts {
                let (left, right) = (self.edges[number], self.edges[number + 1]);
                chart.stroke(&[(left, part.from_ns), (right, part.from_ns)], style)?;
                let Some(next) = self.columns.get(number + 1) else { continue };
                for neighbour in
                    next.parts.iter().filter(|neighbour| neighbour.scheme != part.scheme)
                {
                    let low = part.from_ns.max(neighbour.from_ns);
                    let high = self.top(part).min(self.top(neighbour));
                    if low < high {
                        chart.stroke(&[(right, low), (right, high)], style)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The position with most room for a scheme's name, as parts of both axes: the middle of the largest rectangle in the
    /// scheme's area. `None` if the name has no room.
    fn name_position(&self, scheme: &str) -> Option<(f64, f64)> {
        let (width, height) = self.size;
        let [x, y] = self.axes;
        let name_width = text_width(scheme, TEXT_SIZE) + 8.0;
        let mut best_position: Option<(f64, f64, f64)> = None;
        for first_column in 0..self.columns.len() {
            let (mut low, mut high) = (0.0_f64, height);
            for last_column in first_column..self.columns.len() {
                let part =
                    self.columns[last_column].parts.iter().find(|part| part.scheme == *scheme);
                let Some(part) = part else { break };
                low = low.max(y.share(part.from_ns) * height);
                high = high.min(y.share(self.top(part)) * height);
                if high - low < NAME_HEIGHT {
                    break;
                }
                let (left, right) =
                    (x.share(self.edges[first_column]), x.share(self.edges[last_column + 1]));
                let room = (right - left) * width;
                // Both sides count only up to a limit, so that the middle of a large area is preferred.
                let size = (high - low).min(60.0) * room.min(3.0 * name_width);
                if room >= name_width
                    && best_position.is_none_or(|(largest_size, ..)| largest_size < size)
                {
                    best_position =
                        Some((size, f64::midpoint(left, right), f64::midpoint(low, high)));
                }
            }
        }
        best_position.map(|(_, across, up)| (across, up / height))
    }

    /// The middle of the empty space below all areas, as a part of the vertical axis. `None` if text has no room there.
    fn middle_below(&self) -> Option<f64> {
        let [_, y] = self.axes;
        let parts = self.columns.iter().flat_map(|column| &column.parts);
        let lowest = parts.map(|part| y.share(part.from_ns)).fold(1.0, f64::min);
        (lowest * self.size.1 >= NAME_HEIGHT).then_some(lowest / 2.0)
    }
}
