//! Panels of horizontal bars with names at their left and numbers at their right. A bar has parts of several colours,
//! and may have an interval. Most pictures of `handlers`, `footprint` and `services` consist of such panels.

use plotters::style::{Color, RGBColor};

use super::axis::Axis;
use super::chart::{Chart, Look, room_for_names};
use super::palette::{INK, SOFT_INK};
use super::sheet::{
    Area, Heading, NARROW_BELOW, Sheet, TEXT_SIZE, Undrawn, draw, shortened, text_width, units,
};

/// Height of a bar with the room around it, pixels.
const BAR_STEP: f64 = 24.0;
/// Thickness of a bar as a part of [`BAR_STEP`].
const THICKNESS: f64 = 0.62;
/// Height of the parts of a panel above and below its bars, pixels.
const FRAME_HEIGHT: f64 = 80.0;

/// A bar with its texts.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Text at the left of the bar.
    pub name: String,
    /// Length and colour of each part, from the left. Lengths are not negative.
    pub parts: Vec<(f64, RGBColor)>,
    /// Ends of the interval of the bar's length, or `None` if it has no interval.
    pub interval: Option<(f64, f64)>,
    /// Text at the right of the bar.
    pub label: String,
    /// Text after the label on wide sheets only.
    pub detail: String,
}

impl Bar {
    pub fn length(&self) -> f64 {
        self.parts.iter().map(|(length, _)| length).sum()
    }

    /// The right end of the bar or of its interval: the larger of the two.
    fn right_end(&self) -> f64 {
        self.interval.map_or(0.0, |(_, high)| high).max(self.length())
    }
}

/// Height of a panel with a number of bars, pixels.
pub fn height(bars: usize) -> f64 {
    FRAME_HEIGHT + BAR_STEP * bars as f64
}

/// Draws panels of bars below one another, on a sheet that is `width` pixels wide. A panel has a title and its bars.
/// `axis`: see [`draw_bars`].
pub fn draw_panels(
    heading: &Heading,
    width: f64,
    panels: &[(String, Vec<Bar>)],
    axis: impl Fn(f64) -> Axis,
) -> Result<Sheet, Undrawn> {
    let total_height: f64 = panels.iter().map(|(_, bars)| height(bars.len())).sum();
    draw(heading, width, total_height, |area| {
        let mut top = 0.0;
        for (title, bars) in panels {
            let panel_height = height(bars.len());
            let size = (units(width) as u32, units(panel_height) as u32);
            let part = area.part((0, units(top)), size);
            top += panel_height;
            draw_bars(&part, title, bars, &axis)?;
        }
        Ok(())
    })
}

/// Draws bars into an area, the first at the top. `axis` makes the horizontal axis for the length of the longest bar.
pub fn draw_bars(
    area: &Area<'_>,
    title: &str,
    bars: &[Bar],
    axis: impl Fn(f64) -> Axis,
) -> Result<(), Undrawn> {
    let names: Vec<String> = bars.iter().map(|bar| shortened(&bar.name)).collect();
    let longest = bars.iter().map(Bar::right_end).fold(0.0, f64::max);
    let name_room = room_for_names(names.iter().map(String::as_str));
    let right = 22.0;
    let (area_width, _) = area.size();
    let is_narrow = area_width < NARROW_BELOW;
    let label = |bar: &Bar| {
        if is_narrow { bar.label.clone() } else { format!("{}{}", bar.label, bar.detail) }
    };
    // The axis is longer than the longest bar, so that the labels after the bars have room.
    let label_room =
        bars.iter().map(|bar| text_width(&label(bar), TEXT_SIZE)).fold(0.0, f64::max) + 14.0;
    let plot_width = (area_width - name_room - right).max(label_room + 40.0);
    let x = axis(longest);
    let x = x.extended(plot_width / (plot_width - label_room));
    let y = Axis::names(&names);
    let mut chart = Chart::with_room(area, title, [&x, &y], [name_room, right])?;
    for (index, bar) in bars.iter().enumerate() {
        let middle = bars.len() as f64 - index as f64 - 0.5;
        let (low, high) = (middle - THICKNESS / 2.0, middle + THICKNESS / 2.0);
        let mut part_start = 0.0;
        let drawn = || bar.parts.iter().filter(|(length, _)| *length > 0.0);
        for (length, colour) in drawn() {
            let corners = [(part_start, low), (part_start + length, high)];
            chart.block(corners, colour.filled())?;
            let share = (drawn().count() > 1).then(|| (length / bar.length(), *colour));
            chart.hover(corners, format!("{}: {}{}", bar.name, bar.label, bar.detail), share);
            part_start += length;
        }
        if let Some(interval) = bar.interval {
            chart.bar_whisker(middle, interval, Look { colour: INK, pattern: 0 })?;
        }
        chart.text_after(&label(bar), (bar.right_end(), middle), SOFT_INK)?;
    }
    Ok(())
}
