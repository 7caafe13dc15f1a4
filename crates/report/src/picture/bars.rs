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
/// Part of that which the bar takes.
const THICK: f64 = 0.62;
/// Height of a panel without bars.
const AROUND: f64 = 80.0;

#[derive(Clone, Debug)]
pub struct Bar {
    /// The name next to it.
    pub name: String,
    /// Its parts, from the left: lengths, not negative, and colours.
    pub parts: Vec<(f64, RGBColor)>,
    /// Ends of the interval of its length.
    pub interval: Option<(f64, f64)>,
    /// What is written after it.
    pub label: String,
    /// What is written after that where there is room for it.
    pub detail: String,
}

impl Bar {
    pub fn length(&self) -> f64 {
        self.parts.iter().map(|(length, _)| length).sum()
    }

    /// How far it reaches, with its interval.
    fn reach(&self) -> f64 {
        self.interval.map_or(0.0, |(_, high)| high).max(self.length())
    }
}

/// Height of a panel with a number of bars, pixels.
pub fn height(bars: usize) -> f64 {
    AROUND + STEP * bars as f64
}

/// Draws panels of bars under each other on a sheet of that width; `axis` as in [`draw_bars`].
///
/// # Errors
/// When plotters fails.
pub fn draw_panels(
    heading: &Heading,
    width: f64,
    panels: &[(String, Vec<Bar>)],
    axis: impl Fn(f64) -> Axis,
) -> Result<Sheet, Undrawn> {
    let whole: f64 = panels.iter().map(|(_, bars)| height(bars.len())).sum();
    draw(heading, width, whole, |area| {
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

/// Draws bars into an area, the first at the top; `axis` makes the horizontal axis up to the longest.
///
/// # Errors
/// When plotters fails.
pub fn draw_bars(
    area: &Area<'_>,
    title: &str,
    bars: &[Bar],
    axis: impl Fn(f64) -> Axis,
) -> Result<(), Undrawn> {
    let names: Vec<String> = bars.iter().map(|bar| short(&bar.name)).collect();
    let most = bars.iter().map(Bar::reach).fold(0.0, f64::max);
    let left = room_for_names(names.iter().map(String::as_str));
    let right = 22.0;
    // Room for the words after the longest bar.
    let (wide, _) = area.size();
    let is_narrow = wide < NARROW_BELOW;
    let label = |bar: &Bar| match is_narrow {
        true => bar.label.clone(),
        false => format!("{}{}", bar.label, bar.detail),
    };
    let words = bars.iter().map(|bar| width_of(&label(bar), WORDS)).fold(0.0, f64::max) + 14.0;
    let plot = (wide - left - right).max(words + 40.0);
    let x = axis(most);
    let x = x.extended(plot / (plot - words));
    let y = Axis::names(&names);
    let mut chart = Chart::with_room(area, title, [&x, &y], [left, right])?;
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
