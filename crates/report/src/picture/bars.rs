//! Panels of horizontal bars with names at their left and numbers at their right. A bar has parts of several colours,
//! and may have an interval. Most pictures of `handlers`, `footprint` and `services` consist of such panels.

use plotters::style::{Color, RGBColor};

use super::axis::Axis;
use super::chart::{Chart, Look, further_title_lines_height, room_for_names};
use super::palette::{INK, SOFT_INK};
use super::sheet::{
    Area, Heading, MARGIN, NARROW_BELOW, PanelTitle, Sheet, TEXT_SIZE, Undrawn, draw, panel_title,
    shortened, text_width, units,
};

/// Height of a bar with the room around it, pixels.
const BAR_STEP: f64 = 24.0;
/// Thickness of a bar as a part of [`BAR_STEP`].
const THICKNESS: f64 = 0.62;
/// Height of the parts of a panel above and below its bars, pixels.
const FRAME_HEIGHT: f64 = 80.0;
/// Room at the right of a plot, pixels.
const RIGHT_ROOM: f64 = 22.0;
/// Panels have one scale if their longest bars differ by at most this factor.
const SHARED_SCALE_FACTOR_MAX: f64 = 10.0;
/// The note of a picture whose panels have their own scales.
pub const OWN_SCALES: &str = "Each panel has its own scale, because the longest bars of the panels differ by more than \
                          ten times.";

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

/// Room for the texts of a panel's bars, pixels. Panels with equal room have plots of equal width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// Room for names at the left of the plot.
    names: f64,
    /// Room for labels between the longest bar and the right end of the plot.
    labels: f64,
    /// Distance of the titles from the left end of the panel, the same in all panels.
    titles_left: f64,
    /// Width of the panel.
    width: f64,
}

impl Room {
    /// The room that the bars need in panels of this width. If each title fits into one line above the plot, the titles
    /// are there. Otherwise all of them start at the margin.
    pub fn for_panels<'b>(
        mut titles: impl Iterator<Item = &'b str>,
        bars: impl Iterator<Item = &'b Bar> + Clone,
        width: f64,
    ) -> Room {
        let names: Vec<String> = bars.clone().map(|bar| shortened(&bar.name)).collect();
        let labels = bars.map(|bar| text_width(&label(bar, width), TEXT_SIZE)).fold(0.0, f64::max);
        let names = room_for_names(names.iter().map(String::as_str));
        let fits = |title: &str| panel_title(title, width, names).left == names;
        let titles_left = if titles.all(fits) { names } else { MARGIN };
        Room { names, labels: labels + 14.0, titles_left, width }
    }

    /// Height of a panel with a title and a number of bars, pixels.
    pub fn height(self, title: &str, bars: usize) -> f64 {
        let title_lines = self.title(title).lines.len();
        FRAME_HEIGHT + further_title_lines_height(title_lines) + BAR_STEP * bars as f64
    }

    fn title(self, title: &str) -> PanelTitle {
        panel_title(title, self.width, self.titles_left)
    }

    /// Lengthens an axis that ends at the longest bar, so that the labels after the bars have room.
    fn extended(self, axis: Axis) -> Axis {
        let plot_width = (self.width - self.names - RIGHT_ROOM).max(self.labels + 40.0);
        axis.extended(plot_width / (plot_width - self.labels))
    }
}

/// The text at the right of a bar in a panel of this width.
fn label(bar: &Bar, panel_width: f64) -> String {
    if panel_width < NARROW_BELOW {
        return bar.label.clone();
    }
    format!("{}{}", bar.label, bar.detail)
}

/// The length of the longest bar or interval. 0 without bars.
pub fn longest_bar(bars: &[Bar]) -> f64 {
    bars.iter().map(Bar::right_end).fold(0.0, f64::max)
}

/// The length of the longest bar of all panels, if one scale suits all panels. `None` if bars of a panel would be too
/// short in that scale. See [`SHARED_SCALE_FACTOR_MAX`].
fn shared_longest(panels: &[(String, Vec<Bar>)]) -> Option<f64> {
    shared_maximum(panels.iter().map(|(_, bars)| longest_bar(bars)))
}

/// The largest of the panels' maxima, if one scale suits all panels. See [`SHARED_SCALE_FACTOR_MAX`].
pub fn shared_maximum(maxima: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let largest = maxima.clone().fold(0.0, f64::max);
    // A panel of empty bars has no scale that could suit it better.
    let smallest = maxima.filter(|maximum| *maximum > 0.0).fold(largest, f64::min);
    (largest <= SHARED_SCALE_FACTOR_MAX * smallest).then_some(largest)
}

/// Draws panels of bars below one another, on a sheet that is `width` pixels wide. A panel has a title and its bars.
/// The plots are equally wide. They have one scale, or a note says that they have not. `axis`: makes the horizontal
/// axis for the length of the longest bar.
pub fn draw_panels(
    heading: &Heading,
    width: f64,
    panels: &[(String, Vec<Bar>)],
    axis: impl Fn(f64) -> Axis,
) -> Result<Sheet, Undrawn> {
    let titles = panels.iter().map(|(title, _)| title.as_str());
    let room = Room::for_panels(titles, panels.iter().flat_map(|(_, bars)| bars), width);
    let shared_longest = shared_longest(panels);
    let mut heading = heading.clone();
    heading.notes.extend(shared_longest.is_none().then(|| OWN_SCALES.to_owned()));
    let total_height: f64 = panels.iter().map(|(title, bars)| room.height(title, bars.len())).sum();
    draw(&heading, width, total_height, |area| {
        let mut top = 0.0;
        for (title, bars) in panels {
            let panel_height = room.height(title, bars.len());
            let size = (units(width) as u32, units(panel_height) as u32);
            let panel_area = area.part((0, units(top)), size);
            top += panel_height;
            let longest = shared_longest.unwrap_or_else(|| longest_bar(bars));
            draw_bars(&panel_area, title, bars, room, axis(longest))?;
        }
        Ok(())
    })
}

/// Draws bars into an area, the first at the top. `axis`: the horizontal axis without room for labels.
pub fn draw_bars(
    area: &Area<'_>,
    title: &str,
    bars: &[Bar],
    room: Room,
    axis: Axis,
) -> Result<(), Undrawn> {
    let names: Vec<String> = bars.iter().map(|bar| shortened(&bar.name)).collect();
    let (x, y) = (room.extended(axis), Axis::names(&names));
    let mut chart =
        Chart::with_title(area, &room.title(title), [&x, &y], [room.names, RIGHT_ROOM])?;
    for (index, bar) in bars.iter().enumerate() {
        let middle = bars.len() as f64 - index as f64 - 0.5;
        let (low, high) = (middle - THICKNESS / 2.0, middle + THICKNESS / 2.0);
        let mut part_start = 0.0;
        let drawn_parts = || bar.parts.iter().filter(|(length, _)| *length > 0.0);
        for (length, colour) in drawn_parts() {
            let corners = [(part_start, low), (part_start + length, high)];
            chart.block(corners, colour.filled())?;
            let share = (drawn_parts().count() > 1).then(|| (length / bar.length(), *colour));
            chart.hover(corners, format!("{}: {}{}", bar.name, bar.label, bar.detail), share);
            part_start += length;
        }
        if let Some(interval) = bar.interval {
            chart.bar_whisker(middle, interval, Look { colour: INK, pattern: 0 })?;
        }
        chart.text_after(&label(bar, room.width), (bar.right_end(), middle), SOFT_INK)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::human::Quantity;
    use crate::picture::palette::BLUE;
    use crate::picture::sheet::NARROW;

    fn panel(title: &str, length: f64) -> (String, Vec<Bar>) {
        let bar = Bar {
            name: "a context".to_owned(),
            parts: vec![(length, BLUE)],
            interval: None,
            label: "5 %".to_owned(),
            detail: String::new(),
        };
        (title.to_owned(), vec![bar])
    }

    /// The ends of the horizontal axis of each panel, and the notes.
    fn scales(panels: &[(String, Vec<Bar>)]) -> (Vec<(f64, f64)>, Vec<String>) {
        let axis = |longest| Axis::linear("share", Quantity::Share, 0.0, longest);
        let sheet = draw_panels(&Heading::default(), NARROW, panels, axis).unwrap();
        let ends = sheet.plots().iter().map(|plot| plot.axis.ends()).collect();
        (ends, sheet.heading.notes)
    }

    #[test]
    fn panels_have_one_scale_unless_they_differ_by_more_than_ten_times() {
        let (ends, notes) = scales(&[panel("idle", 0.01), panel("busy", 0.1)]);
        assert_eq!(ends[0], ends[1]);
        assert_eq!(notes, Vec::<String>::new());
        let (ends, notes) = scales(&[panel("idle", 0.01), panel("busy", 0.2)]);
        assert!(ends[0].1 < ends[1].1, "{ends:?}");
        assert_eq!(notes, [OWN_SCALES]);
        let (ends, notes) = scales(&[panel("nothing", 0.0), panel("busy", 0.2)]);
        assert_eq!((ends[0], notes.len()), (ends[1], 0));
    }

    #[test]
    fn a_long_title_makes_its_panel_higher_and_moves_all_titles_to_the_margin() {
        let bars = panel("", 0.1).1;
        let long = "word ".repeat(20);
        let room = Room::for_panels([long.as_str(), "word"].into_iter(), bars.iter(), NARROW);
        let added = room.height(&long, 1) - room.height("word", 1);
        let long_lines = room.title(&long).lines.len();
        assert!(long_lines > 1);
        assert_eq!(added, further_title_lines_height(long_lines));
        assert_eq!([room.title("word").left, room.title(&long).left], [MARGIN; 2]);
        // Short titles alone are above the plot.
        let short = Room::for_panels(["word"].into_iter(), bars.iter(), NARROW);
        assert_eq!(short.title("word").left, short.names);
    }
}
