//! Horizontal bars with names at their left and numbers at their right: parts of several colours, and intervals.

use plotters::style::{Color, RGBColor};

use super::axis::Axis;
use super::chart::{Chart, Look, room_for_names};
use super::palette::{INK, SOFT_INK};
use super::sheet::{
    Area, Heading, NARROW_BELOW, Sheet, Undrawn, WORDS, draw, short, units, width_of,
};

/// Height of a bar with the room around it, pixels.
const STEP: f64 = 24.0;
/// Thickness of a bar as a part of [`STEP`].
const THICK: f64 = 0.62;
/// Height of a panel without bars.
const AROUND: f64 = 80.0;

#[derive(Clone, Debug)]
pub struct Bar {
    /// Written at the left of the bar.
    pub name: String,
    /// Length and colour of each part, from the left. Lengths are not negative.
    pub parts: Vec<(f64, RGBColor)>,
    /// Ends of the interval of the bar's length.
    pub interval: Option<(f64, f64)>,
    /// Written at the right of the bar.
    pub label: String,
    /// Written after the label on wide sheets.
    pub detail: String,
}

impl Bar {
    pub fn length(&self) -> f64 {
        self.parts.iter().map(|(length, _)| length).sum()
    }

    /// The right end of the bar or of its interval, whichever is further.
    fn reach(&self) -> f64 {
        self.interval.map_or(0.0, |(_, high)| high).max(self.length())
    }
}

/// Height of a panel with a number of bars, pixels.
pub fn height(bars: usize) -> f64 {
    AROUND + STEP * bars as f64
}

/// Draws panels of bars below each other on a sheet that is `width` pixels wide; `axis` as in [`draw_bars`].
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
            let high = height(bars.len());
            let part = area.part((0, units(top)), (units(width) as u32, units(high) as u32));
            top += high;
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
    let names: Vec<String> = bars.iter().map(|bar| short(&bar.name)).collect();
    let longest = bars.iter().map(Bar::reach).fold(0.0, f64::max);
    let name_room = room_for_names(names.iter().map(String::as_str));
    let right = 22.0;
    // Room for the labels after the longest bar.
    let (wide, _) = area.size();
    let is_narrow = wide < NARROW_BELOW;
    let label = |bar: &Bar| {
        if is_narrow { bar.label.clone() } else { format!("{}{}", bar.label, bar.detail) }
    };
    let label_room = bars.iter().map(|bar| width_of(&label(bar), WORDS)).fold(0.0, f64::max) + 14.0;
    let plot = (wide - name_room - right).max(label_room + 40.0);
    let x = axis(longest);
    let x = x.extended(plot / (plot - label_room));
    let y = Axis::names(&names);
    let mut chart = Chart::with_room(area, title, [&x, &y], [name_room, right])?;
    for (at, bar) in bars.iter().enumerate() {
        let middle = bars.len() as f64 - at as f64 - 0.5;
        let (low, high) = (middle - THICK / 2.0, middle + THICK / 2.0);
        let mut from = 0.0;
        for (length, colour) in bar.parts.iter().filter(|(length, _)| *length > 0.0) {
            chart.block([(from, low), (from + length, high)], colour.filled())?;
            from += length;
        }
        if let Some(interval) = bar.interval {
            chart.bar_whisker(middle, interval, Look { colour: INK, pattern: 0 })?;
        }
        chart.words_after(&label(bar), (bar.reach(), middle), SOFT_INK)?;
    }
    Ok(())
}
