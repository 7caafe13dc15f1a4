//! Pictures of a sweep: one figure over each axis, and a heat map over two axes. The data are a [`SweepFigures`], not a
//! run, because the figures are from many runs.
//!
//! A picture over an axis holds all further axes but one at fixed values, and says so. Nothing is averaged.

use std::collections::{BTreeMap, HashMap};

use plotters::style::{Color, RGBColor};
use record::{Column, Format, Value};

use super::axis::Axis;
use super::bars::{Bar, draw_panels};
use super::chart::{Chart, Label, Look, room_for, room_for_names};
use super::palette::{BLUE, INK, PALE, SERIES, SOFT_INK, VERMILION};
use super::sheet::{Entry, Heading, Sheet, TEXT_SIZE, Undrawn, draw, shortened, text_width, units};
use crate::escape::plain;
use crate::human::{self, Quantity};

/// Maximum number of lines of a picture over a numeric axis.
const LINES_MAX: usize = 6;
/// Maximum number of values of a numeric axis with a point.
const POINTS_MAX: usize = 50;
/// Maximum number of panels and of bars of a picture over a named axis.
const PANELS_MAX: usize = 4;
const BARS_MAX: usize = 24;
/// Maximum number of rows and of columns of a heat map. A page has one note for the wide and the narrow sheet, so the
/// numbers do not depend on the width.
const CELLS_MAX: usize = 24;
const CELLS_ACROSS_MAX: usize = 12;
/// Height of a picture with lines, pixels.
const LINES_HEIGHT: f64 = 380.0;
/// Height of a cell of a heat map, pixels.
const CELL_HEIGHT: f64 = 30.0;
/// The vertical axis is logarithmic if the figures differ by more than this factor.
const LINEAR_FACTOR_MAX: f64 = 30.0;
/// A horizontal axis is logarithmic if its values differ by at least this factor.
const LOGARITHMIC_FACTOR_MIN: f64 = 8.0;
/// Weakest and strongest colour of a cell, so that its text stays legible.
const SHADES: (f64, f64) = (0.02, 0.55);

/// Note of pictures with intervals.
const WHISKERS: &str = "Whiskers: 95 % intervals.";

/// An axis of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepAxis {
    /// The name in the specification.
    pub name: String,
    /// All values as texts.
    pub values: Vec<String>,
    /// Position of the value at which pictures over other axes hold this axis.
    pub held: u32,
}

/// A combination with its figure.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepPoint {
    /// Position of the value on each axis.
    pub values: Vec<u32>,
    /// `None` if the combination has no figure.
    pub figure: Option<f64>,
    /// Ends of the 95 % interval of the figure. `None` for exact figures and if it is not known.
    pub interval: Option<(f64, f64)>,
    /// Change against [`SweepFigures::compared_with`], as a part of the figure there.
    pub change: Option<f64>,
    /// The verdict on the change, or why the figure is absent.
    pub remark: String,
}

/// The figures of a sweep.
#[derive(Clone, Debug)]
pub struct SweepFigures<'a> {
    /// The column of the figures in the runs.
    pub column: &'a Column,
    /// Name of the figure with its row, such as `self_mean_ns of RCU`.
    pub name: String,
    pub axes: Vec<SweepAxis>,
    pub points: Vec<SweepPoint>,
    /// The figures with which the points are compared, such as `the baseline`.
    pub compared_with: String,
}

/// The figures, with what the pictures look up in them.
pub(crate) struct Drawn<'a> {
    figures: &'a SweepFigures<'a>,
    by_values: HashMap<&'a [u32], &'a SweepPoint>,
    /// Axes with more than one value among the points, those with the largest effect on the figure first.
    pub varying: Vec<usize>,
    quantity: Quantity,
}

impl<'a> Drawn<'a> {
    pub fn new(figures: &'a SweepFigures<'a>) -> Drawn<'a> {
        let by_values = figures.points.iter().map(|point| (&point.values[..], point)).collect();
        let has_several = |axis: &usize| {
            let mut values = figures.points.iter().filter_map(|point| point.values.get(*axis));
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        let mut varying: Vec<usize> = (0..figures.axes.len()).filter(has_several).collect();
        varying.sort_by_cached_key(|axis| {
            // Effects are compared as whole millionths, because a key must have an order.
            std::cmp::Reverse((effect(figures, *axis) * 1e6) as u64)
        });
        Drawn { figures, by_values, varying, quantity: quantity(figures.column) }
    }

    fn axis(&self, index: usize) -> &'a SweepAxis {
        &self.figures.axes[index]
    }

    /// The point whose axes have the held values, except those in `values`. `None` if the sweep has no such point.
    fn point(&self, values: &[(usize, u32)]) -> Option<&'a SweepPoint> {
        let mut wanted: Vec<u32> = self.held_values();
        for (axis, value) in values {
            wanted[*axis] = *value;
        }
        self.by_values.get(&wanted[..]).copied()
    }

    /// The held value of each varying axis, and the only value of each other axis.
    fn held_values(&self) -> Vec<u32> {
        let first = self.figures.points.first();
        let held = |(index, axis): (usize, &SweepAxis)| {
            let only = first.and_then(|point| point.values.get(index).copied()).unwrap_or(0);
            if self.varying.contains(&index) { axis.held } else { only }
        };
        self.figures.axes.iter().enumerate().map(held).collect()
    }

    /// The values of an axis that any point has, ascending.
    fn values(&self, axis: usize) -> Vec<u32> {
        let mut values: Vec<u32> = self
            .figures
            .points
            .iter()
            .filter_map(|point| point.values.get(axis).copied())
            .collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    fn text(&self, axis: usize, value: u32) -> String {
        plain(self.axis(axis).values.get(value as usize).map_or("", String::as_str))
    }

    /// A note with the values at which a picture holds the axes that it does not show. `None` if it shows all varying axes.
    fn held_note(&self, shown: &[usize]) -> Option<String> {
        let axes_with_values: Vec<String> = self
            .varying
            .iter()
            .filter(|axis| !shown.contains(axis))
            .map(|axis| {
                format!(
                    "{} {}",
                    plain(&self.axis(*axis).name),
                    self.text(*axis, self.axis(*axis).held)
                )
            })
            .collect();
        (!axes_with_values.is_empty()).then(|| format!("With {}.", axes_with_values.join(", ")))
    }

    fn value_text(&self, value: f64) -> String {
        let column = self.figures.column;
        human::value_text(&column.name, column.display.format, &Value::real(value))
    }

    /// A point in words, for readers with a pointer.
    fn hover(&self, point: &SweepPoint) -> String {
        let pairs = self.varying.iter().map(|axis| {
            let value = point.values.get(*axis).copied().unwrap_or(0);
            format!("{} {}", plain(&self.axis(*axis).name), self.text(*axis, value))
        });
        let mut text = format!("{}: ", pairs.collect::<Vec<_>>().join(", "));
        match point.figure {
            Some(figure) => text += &self.value_text(figure),
            None => text += &plain(&point.remark),
        }
        if let Some((low, high)) = point.interval {
            text += &format!(" ({} to {})", self.value_text(low), self.value_text(high));
        }
        if let Some(change) = point.change {
            let compared_with = plain(&self.figures.compared_with);
            text += &format!(
                ", {} against {compared_with} ({})",
                human::signed_percent(change),
                plain(&point.remark)
            );
        }
        text
    }
}

/// The largest difference that an axis makes while all other axes stay, as a part of the larger figure.
fn effect(figures: &SweepFigures<'_>, axis: usize) -> f64 {
    let mut ranges_by_others: HashMap<Vec<u32>, (f64, f64)> = HashMap::new();
    for point in &figures.points {
        let Some(figure) = point.figure else { continue };
        let mut values_of_others = point.values.clone();
        values_of_others[axis] = 0;
        let (low, high) = ranges_by_others.entry(values_of_others).or_insert((figure, figure));
        *low = low.min(figure);
        *high = high.max(figure);
    }
    let relative_range = |(low, high): &(f64, f64)| {
        let size = low.abs().max(high.abs());
        if size > 0.0 { (high - low) / size } else { 0.0 }
    };
    ranges_by_others.values().map(relative_range).fold(0.0, f64::max)
}

/// The quantity of a column's figures, by the unit in its name.
fn quantity(column: &Column) -> Quantity {
    if column.display.format == Format::Factor {
        return Quantity::Count;
    }
    let endings = [
        ("_ns", Quantity::Time),
        ("_hz", Quantity::Rate),
        ("_bytes_per_second", Quantity::SizeRate),
        ("_bytes", Quantity::Size),
        ("_ratio", Quantity::Share),
    ];
    let ending = endings.iter().find(|(ending, _)| column.name.ends_with(ending));
    ending.map_or(Quantity::Count, |(_, quantity)| *quantity)
}

/// Units of the values of axes: their text, their quantity, and their size.
const VALUE_UNITS: [(&str, Quantity, f64); 18] = [
    ("KiB", Quantity::Size, 1024.0),
    ("MiB", Quantity::Size, 1_048_576.0),
    ("GiB", Quantity::Size, 1_073_741_824.0),
    ("B", Quantity::Size, 1.0),
    ("ns", Quantity::Time, 1.0),
    ("us", Quantity::Time, 1e3),
    ("µs", Quantity::Time, 1e3),
    ("ms", Quantity::Time, 1e6),
    ("s", Quantity::Time, 1e9),
    ("m", Quantity::Time, 60e9),
    ("h", Quantity::Time, 3600e9),
    ("GHz", Quantity::Frequency, 1e9),
    ("MHz", Quantity::Frequency, 1e6),
    ("kHz", Quantity::Frequency, 1e3),
    ("%", Quantity::Share, 0.01),
    ("k", Quantity::Count, 1e3),
    ("M", Quantity::Count, 1e6),
    ("", Quantity::Count, 1.0),
];

/// A value of an axis as a number that is not negative. `None` for a name.
fn number(text: &str) -> Option<(Quantity, f64)> {
    let end = text.find(|sign: char| !(sign.is_ascii_digit() || sign == '.')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim_start();
    let (_, quantity, size) = VALUE_UNITS.iter().find(|(name, ..)| *name == unit)?;
    Some((*quantity, number * size))
}

/// The values of an axis as numbers of one quantity. `None` if one of them is a name, or they have several quantities. A 0
/// without a unit suits every quantity.
fn numbers(texts: &[String]) -> Option<(Quantity, Vec<f64>)> {
    let parsed: Vec<(Quantity, f64)> =
        texts.iter().map(|text| number(text)).collect::<Option<_>>()?;
    let is_zero = |(_, number): &&(Quantity, f64)| *number == 0.0;
    let quantity = parsed.iter().find(|pair| !is_zero(pair)).or(parsed.first())?.0;
    let fits = |pair: &(Quantity, f64)| pair.0 == quantity || is_zero(&pair);
    parsed.iter().all(fits).then(|| (quantity, parsed.iter().map(|(_, number)| *number).collect()))
}

/// At most `max` of the values, ascending: the first, the last, `required` if it is one of the
/// values, and others at equal distances.
fn select_spread(values: &[u32], max: usize, required: u32) -> Vec<u32> {
    if values.len() <= max {
        return values.to_vec();
    }
    let step = (values.len() - 1) as f64 / (max - 1).max(1) as f64;
    let mut chosen: Vec<u32> =
        (0..max).map(|index| values[(index as f64 * step).round() as usize]).collect();
    if values.contains(&required) && !chosen.contains(&required) && max > 2 {
        let nearest =
            (1..max - 1).min_by_key(|index| chosen[*index].abs_diff(required)).unwrap_or(1);
        chosen[nearest] = required;
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// A note about values that are not drawn. `None` if all are.
fn remainder(axis: &str, value_count: usize, drawn_count: usize) -> Option<String> {
    let more = value_count - drawn_count;
    (more > 0).then(|| format!("{more} of {value_count} values of {} are not drawn.", plain(axis)))
}

/// The picture over one axis. `None` if no combination in it has a figure.
pub(crate) fn over_axis(
    drawn: &Drawn<'_>,
    axis: usize,
    width: f64,
) -> Result<Option<Sheet>, Undrawn> {
    let other = drawn.varying.iter().copied().find(|other| *other != axis);
    match numbers(&drawn.axis(axis).values) {
        Some((quantity, numbers)) => lines(drawn, (axis, other), (quantity, &numbers), width),
        None => bars(drawn, (axis, other), width),
    }
}

/// The values of the other axis of a picture, bounded, and a note if some are left out. One empty choice without such an
/// axis.
fn other_values(
    drawn: &Drawn<'_>,
    other: Option<usize>,
    max: usize,
) -> (Vec<Option<(usize, u32)>>, Option<String>) {
    let Some(other) = other else { return (vec![None], None) };
    let all = drawn.values(other);
    let chosen = select_spread(&all, max, drawn.axis(other).held);
    let note = remainder(&drawn.axis(other).name, all.len(), chosen.len());
    (chosen.into_iter().map(|value| Some((other, value))).collect(), note)
}

fn axis_heading(drawn: &Drawn<'_>, axis: usize, notes: Vec<String>) -> Heading {
    let (name, axis_name) = (plain(&drawn.figures.name), plain(&drawn.axis(axis).name));
    Heading {
        title: format!("{name} over {axis_name}"),
        notes,
        description: format!(
            "{name} over the values of {axis_name}. The numbers are in table combinations of the page."
        ),
        ..Heading::default()
    }
}

/// A line of a picture.
struct Line<'a> {
    name: String,
    points: Vec<LinePoint<'a>>,
}

/// A value of the axis on a line.
#[derive(Clone, Copy)]
struct LinePoint<'a> {
    /// The value as a number.
    x: f64,
    /// `None` if the sweep has no such combination.
    combination: Option<&'a SweepPoint>,
}

impl LinePoint<'_> {
    /// `None` without the combination, and if it has no figure.
    fn figure(&self) -> Option<f64> {
        self.combination?.figure
    }
}

/// The range of the points of a picture, with their intervals.
struct Extent {
    x_low: f64,
    x_high: f64,
    y_low: f64,
    y_high: f64,
}

/// The extent of the points with a figure. Intervals that end below 0 count from 0, where the axis ends. `None` if no point
/// has a figure, or if a figure is negative.
fn extent(lines: &[Line<'_>]) -> Option<Extent> {
    let mut extent = Extent {
        x_low: f64::INFINITY,
        x_high: 0.0,
        y_low: f64::INFINITY,
        y_high: f64::NEG_INFINITY,
    };
    let mut has_figure = false;
    for point in lines.iter().flat_map(|line| &line.points) {
        let Some((combination, figure)) = point.combination.zip(point.figure()) else { continue };
        has_figure = true;
        let (low, high) = combination.interval.unwrap_or((figure, figure));
        extent.x_low = extent.x_low.min(point.x);
        extent.x_high = extent.x_high.max(point.x);
        extent.y_low = extent.y_low.min(low.max(0.0).min(figure));
        extent.y_high = extent.y_high.max(high.max(figure));
    }
    (has_figure && extent.y_low >= 0.0).then_some(extent)
}

/// The picture of a figure over an axis with numbers: a line for each value of the axis `other`, or one line. `numbers`: the
/// values of `axis` in their order. `None` if no point has a figure, or if one is negative. Leaves out points beyond
/// [`POINTS_MAX`] and lines beyond [`LINES_MAX`], with a note.
fn lines(
    drawn: &Drawn<'_>,
    (axis, other): (usize, Option<usize>),
    (quantity, numbers): (Quantity, &[f64]),
    width: f64,
) -> Result<Option<Sheet>, Undrawn> {
    let all_values = drawn.values(axis);
    let mut values = select_spread(&all_values, POINTS_MAX, drawn.axis(axis).held);
    values.sort_by(|first, second| numbers[*first as usize].total_cmp(&numbers[*second as usize]));
    let (values_of_other, others_note) = other_values(drawn, other, LINES_MAX);
    let line = |fixed: &Option<(usize, u32)>| -> Line<'_> {
        let name = fixed.map_or(String::new(), |(other, value)| drawn.text(other, value));
        let points = values.iter().map(|value| {
            let coordinates: Vec<(usize, u32)> =
                fixed.iter().copied().chain([(axis, *value)]).collect();
            LinePoint { x: numbers[*value as usize], combination: drawn.point(&coordinates) }
        });
        Line { name, points: points.collect() }
    };
    let lines: Vec<Line<'_>> = values_of_other.iter().map(line).collect();
    let Some(extent) = extent(&lines) else { return Ok(None) };
    let y_title = human::heading(drawn.figures.column);
    let (y, y_note) = vertical_axis(&y_title, drawn.quantity, extent.y_low, extent.y_high);
    let x_range = (extent.x_low, extent.x_high);
    let x = horizontal_axis(&plain(&drawn.axis(axis).name), quantity, x_range, numbers);
    let shown_axes: Vec<usize> = [Some(axis), other].into_iter().flatten().collect();
    let notes = [
        other.map(|other| format!("A line for each value of {}.", plain(&drawn.axis(other).name))),
        whiskers_note(&lines),
        drawn.held_note(&shown_axes),
        y_note,
        remainder(&drawn.axis(axis).name, all_values.len(), values.len()),
        others_note,
        interruption_note(&lines),
    ];
    let heading = axis_heading(drawn, axis, notes.into_iter().flatten().collect());
    let sheet = draw(&heading, width, LINES_HEIGHT, |area| {
        let room = room_for(lines.iter().map(|line| line.name.as_str()));
        let mut chart = Chart::new(area, "", [&x, &y], room)?;
        let mut labels = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let look = Look { colour: SERIES[index % SERIES.len()], pattern: index };
            draw_line(&mut chart, drawn, line, look, y.ends())?;
            let last = line.points.iter().rev().find_map(|point| Some((point.x, point.figure()?)));
            if let Some(end) = last
                && !line.name.is_empty()
            {
                labels.push(Label { name: line.name.clone(), colour: look.colour, end });
            }
        }
        chart.label_ends(&labels)
    })?;
    Ok(Some(sheet))
}

/// The note about intervals. `None` if no point has one.
fn whiskers_note(lines: &[Line<'_>]) -> Option<String> {
    let mut combinations =
        lines.iter().flat_map(|line| &line.points).filter_map(|point| point.combination);
    combinations.any(|combination| combination.interval.is_some()).then(|| WHISKERS.to_owned())
}

/// The note about values without a figure. `None` if all points have one.
fn interruption_note(lines: &[Line<'_>]) -> Option<String> {
    let points = lines.iter().flat_map(|line| &line.points);
    let absent_count = points.filter(|point| point.figure().is_none()).count();
    (absent_count > 0).then(|| {
        format!(
            "{absent_count} of the drawn combinations have no figure or are excluded: lines are interrupted there."
        )
    })
}

/// Draws a line with its marks and whiskers. The line is interrupted where points have no figure. `y_low` and `y_high`: the
/// ends of the vertical axis; a pointer between them finds the point.
fn draw_line(
    chart: &mut Chart<'_>,
    drawn: &Drawn<'_>,
    line: &Line<'_>,
    look: Look,
    (y_low, y_high): (f64, f64),
) -> Result<(), Undrawn> {
    for part in line.points.split(|point| point.figure().is_none()) {
        let part: Vec<(f64, f64)> =
            part.iter().filter_map(|point| Some((point.x, point.figure()?))).collect();
        chart.line(&part, look, 1.8)?;
    }
    for point in &line.points {
        let Some((combination, figure)) = point.combination.zip(point.figure()) else { continue };
        if let Some(interval) = combination.interval {
            chart.whisker(point.x, interval, look)?;
        }
        chart.mark((point.x, figure), look, false)?;
        let (left, right) = (chart.moved_right(point.x, -5.0), chart.moved_right(point.x, 5.0));
        chart.hover([(left, y_high), (right, y_low)], drawn.hover(combination), None);
    }
    Ok(())
}

/// The vertical axis for figures that are not negative, and a note if it does not start at 0.
fn vertical_axis(title: &str, quantity: Quantity, low: f64, high: f64) -> (Axis, Option<String>) {
    if low > 0.0 && high / low > LINEAR_FACTOR_MAX {
        return (Axis::logarithmic(title, quantity, low, high), None);
    }
    if low > 0.5 * high && high > low {
        let note = "The vertical axis does not start at 0.".to_owned();
        return (Axis::linear(title, quantity, low, high), Some(note));
    }
    (Axis::linear(title, quantity, 0.0, high), None)
}

/// The horizontal axis for numbers between `low` and `high`: logarithmic if they differ by a large factor. `all_values`: the
/// numbers of all values of the axis, drawn or not, which decide how its labels look.
fn horizontal_axis(
    title: &str,
    quantity: Quantity,
    (low, high): (f64, f64),
    all_values: &[f64],
) -> Axis {
    let is_wide = low > 0.0 && high / low >= LOGARITHMIC_FACTOR_MIN;
    let is_power_of_two = |number: &f64| *number > 0.0 && number.log2().fract() == 0.0;
    let unpadded =
        if quantity == Quantity::Size && is_wide && all_values.iter().all(is_power_of_two) {
            Axis::doublings(title, quantity, low, high)
        } else if is_wide {
            Axis::logarithmic(title, quantity, low, high)
        } else if high > low {
            Axis::linear_between(title, quantity, low, high)
        } else {
            Axis::linear(title, quantity, low.min(high) * 0.5, high * 1.5)
        };
    let are_whole =
        quantity == Quantity::Count && all_values.iter().all(|number| number.fract() == 0.0);
    let axis = unpadded.padded();
    if are_whole { axis.with_whole_labels() } else { axis }
}

/// The picture of a figure over an axis: a bar for each value, and a panel for each value of the axis `other`, or one panel.
/// `None` if no combination has a figure, or one is negative. Leaves out bars beyond [`BARS_MAX`] and panels beyond
/// [`PANELS_MAX`], with a note.
fn bars(
    drawn: &Drawn<'_>,
    (axis, other): (usize, Option<usize>),
    width: f64,
) -> Result<Option<Sheet>, Undrawn> {
    let all_values = drawn.values(axis);
    let values = select_spread(&all_values, BARS_MAX, drawn.axis(axis).held);
    let (values_of_other, others_note) = other_values(drawn, other, PANELS_MAX);
    let mut absent_count = 0;
    let (mut is_negative, mut has_changes) = (false, false);
    let mut panels = Vec::new();
    for fixed in &values_of_other {
        let panel_title = fixed.map_or(String::new(), |(other, value)| {
            format!("{} {}", plain(&drawn.axis(other).name), drawn.text(other, value))
        });
        let mut bars_of_panel = Vec::new();
        for value in &values {
            let coordinates: Vec<(usize, u32)> =
                fixed.iter().copied().chain([(axis, *value)]).collect();
            let point = drawn.point(&coordinates);
            let Some((point, figure)) = point.and_then(|point| Some((point, point.figure?))) else {
                absent_count += 1;
                continue;
            };
            is_negative |= figure < 0.0;
            has_changes |= point.change.is_some();
            let change = point
                .change
                .map_or(String::new(), |change| format!(" ({})", human::signed_percent(change)));
            bars_of_panel.push(Bar {
                name: drawn.text(axis, *value),
                parts: vec![(figure, BLUE)],
                interval: point.interval,
                label: format!("{}{change}", drawn.value_text(figure)),
                detail: String::new(),
            });
        }
        if !bars_of_panel.is_empty() {
            panels.push((panel_title, bars_of_panel));
        }
    }
    if panels.is_empty() || is_negative {
        return Ok(None);
    }
    let shown_axes: Vec<usize> = [Some(axis), other].into_iter().flatten().collect();
    let absent_note = (absent_count > 0).then(|| {
        format!(
            "{absent_count} of the drawn combinations have no figure or are excluded: they have no bar."
        )
    });
    let changes_note = has_changes.then(|| {
        format!("In brackets: the change against {}.", plain(&drawn.figures.compared_with))
    });
    let mut bars = panels.iter().flat_map(|(_, panel)| panel);
    let has_interval = bars.any(|bar: &Bar| bar.interval.is_some());
    let notes = [
        has_interval.then(|| WHISKERS.to_owned()),
        changes_note,
        drawn.held_note(&shown_axes),
        remainder(&drawn.axis(axis).name, all_values.len(), values.len()),
        others_note,
        absent_note,
    ];
    let heading = axis_heading(drawn, axis, notes.into_iter().flatten().collect());
    let y_title = human::heading(drawn.figures.column);
    draw_panels(&heading, width, &panels, |longest| {
        Axis::linear(&y_title, drawn.quantity, 0.0, longest)
    })
    .map(Some)
}

/// The texts of a heat map.
pub(crate) struct MapTexts {
    pub title: String,
    /// The reason of the empty cells, after their number.
    pub empty: &'static str,
    /// The table with the numbers.
    pub table: &'static str,
}

/// The heat map over the two axes with the largest effect. `None` if fewer than two axes vary.
pub(crate) fn heat_map(drawn: &Drawn<'_>, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let texts = MapTexts {
        title: format!("{} over the two axes with the largest effect", plain(&drawn.figures.name)),
        empty: "excluded combinations",
        table: "combinations of the page",
    };
    heat_map_with(drawn, width, texts)
}

/// The cells of a heat map, and the axes that it shows.
struct MapCells<'a> {
    /// The horizontal and the vertical axis.
    across: usize,
    down: usize,
    /// The shown values of the horizontal and of the vertical axis.
    columns: Vec<u32>,
    rows: Vec<u32>,
    /// Number of values of each axis, with those that are not shown.
    column_count: usize,
    row_count: usize,
    /// The combinations by row and column. Cells without a combination are empty.
    points: BTreeMap<(usize, usize), &'a SweepPoint>,
}

impl<'a> MapCells<'a> {
    /// The cells of the two axes with the largest effect. `None` if fewer than two axes vary.
    fn new(drawn: &Drawn<'a>) -> Option<MapCells<'a>> {
        let [first, second, ..] = drawn.varying[..] else { return None };
        let (first_values, second_values) = (drawn.values(first), drawn.values(second));
        // The axis with fewer values is across, where there is less room.
        let (across, down) = if first_values.len() <= second_values.len() {
            (first, second)
        } else {
            (second, first)
        };
        let (across_values, down_values) = (drawn.values(across), drawn.values(down));
        let columns = select_spread(&across_values, CELLS_ACROSS_MAX, drawn.axis(across).held);
        let rows = select_spread(&down_values, CELLS_MAX, drawn.axis(down).held);
        let mut points = BTreeMap::new();
        for (row, down_value) in rows.iter().enumerate() {
            for (column, across_value) in columns.iter().enumerate() {
                if let Some(point) = drawn.point(&[(across, *across_value), (down, *down_value)]) {
                    points.insert((row, column), point);
                }
            }
        }
        let (column_count, row_count) = (across_values.len(), down_values.len());
        Some(MapCells { across, down, columns, rows, column_count, row_count, points })
    }

    /// Title, notes, legend and description of the map.
    fn heading(&self, drawn: &Drawn<'_>, shade: &Shade, texts: MapTexts) -> Heading {
        let (across_name, down_name) =
            (plain(&drawn.axis(self.across).name), plain(&drawn.axis(self.down).name));
        let empty_count = self.rows.len() * self.columns.len() - self.points.len();
        let absent_count = self.points.values().filter(|point| point.figure.is_none()).count();
        let notes = [
            Some(format!(
                "Down: {down_name}; across: {across_name}. {}",
                shade.note(&drawn.figures.compared_with)
            )),
            drawn.held_note(&[self.across, self.down]),
            remainder(&drawn.axis(self.across).name, self.column_count, self.columns.len()),
            remainder(&drawn.axis(self.down).name, self.row_count, self.rows.len()),
            (absent_count > 0)
                .then(|| format!("–: {absent_count} combinations without a figure, not zero.")),
            (empty_count > 0).then(|| format!("Empty cells: {empty_count} {}.", texts.empty)),
        ];
        Heading {
            title: texts.title,
            notes: notes.into_iter().flatten().collect(),
            legend: shade.legend(&drawn.figures.compared_with),
            description: format!(
                "A heat map of {}, {down_name} down and {across_name} across. The numbers are in table {}.",
                plain(&drawn.figures.name),
                texts.table
            ),
        }
    }
}

/// The heat map of a sweep with these texts. `None` if [`heat_map`] has none, or if no cell has a figure.
pub(crate) fn heat_map_with(
    drawn: &Drawn<'_>,
    width: f64,
    texts: MapTexts,
) -> Result<Option<Sheet>, Undrawn> {
    let Some(cells) = MapCells::new(drawn) else { return Ok(None) };
    let MapCells { across, down, rows, columns, .. } = &cells;
    let figures: Vec<f64> = cells.points.values().filter_map(|point| point.figure).collect();
    if figures.is_empty() {
        return Ok(None);
    }
    let shade = Shade::new(cells.points.values().copied());
    let row_names: Vec<String> =
        rows.iter().map(|value| shortened(&drawn.text(*down, *value))).collect();
    let left_margin = room_for_names(row_names.iter().map(String::as_str)) + 4.0;
    let right_margin = 22.0;
    let cell_width = (width - left_margin - right_margin) / columns.len() as f64;
    let characters_max = ((cell_width - 8.0) / text_width("0", TEXT_SIZE)).max(1.0) as usize;
    let mut column_names: Vec<String> =
        columns.iter().map(|value| cut(&drawn.text(*across, *value), characters_max)).collect();
    // The first name of an axis of names is at the right end.
    column_names.reverse();
    let (mut x, y) = (Axis::names(&column_names), Axis::names(&row_names));
    x.title = plain(&drawn.axis(*across).name);
    let heading = cells.heading(drawn, &shade, texts);
    let unit = human::unit_of(drawn.figures.column, figures.iter().copied());
    let height = CELL_HEIGHT * rows.len() as f64 + 66.0;
    let sheet = draw(&heading, width, height, |area| {
        let mut chart = Chart::with_room(area, "", [&x, &y], [left_margin, right_margin])?;
        for ((row, column), point) in &cells.points {
            // A cell is a square of side 1. The first row is at the top.
            let (cell_left, cell_top) = (*column as f64, (rows.len() - row) as f64);
            let corners = [(cell_left, cell_top), (cell_left + 1.0, cell_top - 1.0)];
            let middle = (cell_left + 0.5, cell_top - 0.5);
            let (text, colour) = match point.figure {
                Some(figure) => {
                    let (colour, strength) = shade.of_point(point);
                    chart.block(corners, colour.mix(strength).filled())?;
                    (human::cell(drawn.figures.column, unit, &Value::real(figure)), INK)
                }
                None => (human::ABSENT.to_owned(), SOFT_INK),
            };
            chart.block(corners, PALE.stroke_width(units(0.5) as u32))?;
            if text_width(&text, TEXT_SIZE) <= cell_width - 2.0 {
                chart.centered_text(&text, middle, [0.0, 0.0], colour)?;
            }
            chart.hover(corners, drawn.hover(point), None);
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// A text of at most this number of characters.
fn cut(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    text.chars().take(characters.saturating_sub(1)).chain(['…']).collect()
}

/// The colours of a heat map.
enum Shade {
    /// The colour follows the change of the cell, up to this largest change of all cells.
    Change(f64),
    /// The colour follows the figure, between this smallest and this largest figure.
    Figure(f64, f64),
}

impl Shade {
    fn new<'a>(points: impl Iterator<Item = &'a SweepPoint> + Clone) -> Shade {
        let changes = points.clone().filter_map(|point| point.change).map(f64::abs);
        let largest = changes.fold(0.0, f64::max);
        if largest > 0.0 {
            return Shade::Change(largest);
        }
        let figures = points.filter_map(|point| point.figure);
        let (low, high) = figures
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), figure| {
                (low.min(figure), high.max(figure))
            });
        Shade::Figure(low, high)
    }

    /// The colour of a point with a figure, and its strength.
    fn of_point(&self, point: &SweepPoint) -> (RGBColor, f64) {
        let (weakest, strongest) = SHADES;
        let strength = |part: f64| weakest + (strongest - weakest) * part.clamp(0.0, 1.0);
        match self {
            Shade::Change(largest) => match point.change {
                Some(change) if change > 0.0 => (VERMILION, strength(change / largest)),
                Some(change) if change < 0.0 => (BLUE, strength(-change / largest)),
                _ => (PALE, weakest),
            },
            Shade::Figure(low, high) => {
                let part =
                    (point.figure.unwrap_or(*low) - low) / (high - low).max(f64::MIN_POSITIVE);
                (BLUE, strength(part))
            }
        }
    }

    fn note(&self, compared_with: &str) -> String {
        match self {
            Shade::Change(largest) => format!(
                "The colour is the change against {}: the stronger, the larger, up to {}.",
                plain(compared_with),
                human::percent(*largest)
            ),
            Shade::Figure(..) => "The stronger the colour, the larger the figure.".to_owned(),
        }
    }

    fn legend(&self, compared_with: &str) -> Vec<Entry> {
        let entry = |name: &str, colour| Entry { name: name.to_owned(), colour };
        match self {
            Shade::Change(_) => {
                let more = format!("more than {}", plain(compared_with));
                vec![entry(&more, VERMILION), entry("less", BLUE)]
            }
            Shade::Figure(..) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use record::Kind;

    use super::*;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::golden;

    /// Cache sizes and machines: the figure falls with the size. One combination has no figure, one is excluded.
    fn figures(column: &Column) -> SweepFigures<'_> {
        let axis = |name: &str, values: &[&str], held| SweepAxis {
            name: name.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            held,
        };
        let mut points = Vec::new();
        for size in 0..4_u32 {
            for machine in (0..2_u32).filter(|machine| (size, *machine) != (3, 1)) {
                let figure = 4_000.0 / f64::from(size + 1) + 500.0 * f64::from(machine);
                let figure = ((size, machine) != (1, 0)).then_some(figure);
                points.push(SweepPoint {
                    values: vec![size, machine],
                    figure,
                    interval: figure.map(|figure| (figure - 150.0, figure + 150.0)),
                    change: figure.map(|figure| figure / 4_000.0 - 1.0),
                    remark: "better".to_owned(),
                });
            }
        }
        let axes = vec![
            axis("--set l2.size", &["256KiB", "512KiB", "1MiB", "2MiB"], 0),
            axis("--on", &["sim:zen3", "<b>"], 0),
        ];
        let (name, compared_with) = ("self_mean_ns of RCU".to_owned(), "the baseline".to_owned());
        SweepFigures { column, name, axes, points, compared_with }
    }

    fn column() -> Column {
        Column::new("self_mean_ns", Kind::Real, "").cost()
    }

    #[test]
    fn a_numeric_axis_has_lines_a_named_axis_bars_and_two_axes_a_heat_map() {
        let column = column();
        let figures = figures(&column);
        let drawn = Drawn::new(&figures);
        assert_eq!(drawn.varying, [0, 1], "the axis with the larger effect is first");
        golden("sweep-lines", over_axis(&drawn, 0, WIDTH));
        golden("sweep-bars", over_axis(&drawn, 1, NARROW));
        golden("sweep-map", heat_map(&drawn, NARROW));
        let notes = heat_map(&drawn, WIDTH).unwrap().unwrap().heading.notes.join(" ");
        assert!(notes.contains("1 combinations without a figure, not zero"), "{notes}");
        assert!(notes.contains("Empty cells: 1 excluded"), "{notes}");
    }

    #[test]
    fn values_of_axes_are_numbers_of_one_quantity_or_names() {
        let numbers = |texts: &[&str]| {
            numbers(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            numbers(&["256KiB", "1MiB"]),
            Some((Quantity::Size, vec![262_144.0, 1_048_576.0]))
        );
        assert_eq!(numbers(&["0", "1.5us"]), Some((Quantity::Time, vec![0.0, 1_500.0])));
        assert_eq!(numbers(&["1", "20"]), Some((Quantity::Count, vec![1.0, 20.0])));
        for names in [&["1", "2us"][..], &["sim:zen3"], &["1", "true"], &["-1"], &[""]] {
            assert_eq!(numbers(names), None, "{names:?}");
        }
    }

    #[test]
    fn long_axes_are_bounded_and_keep_their_ends_and_the_held_value() {
        let all: Vec<u32> = (0..1_000).collect();
        let chosen = select_spread(&all, 6, 7);
        assert!(chosen.len() <= 6 && chosen.contains(&7), "{chosen:?}");
        assert_eq!((chosen[0], chosen[chosen.len() - 1]), (0, 999));
        assert_eq!(remainder("a", 1_000, 6).unwrap(), "994 of 1000 values of a are not drawn.");
        assert_eq!(select_spread(&all[..3], 6, 0), [0, 1, 2]);
    }
}
