//! The sheet of a picture: SVG with a heading and a legend above the panels. The crate plotters writes most of it. The
//! sheet adds a title and a description for screen readers. Pictures call [`draw`]; a page calls
//! [`Sheet::inline`], and `--pictures` calls [`Sheet::file`].
//!
//! Lengths are in pixels, and plotters gets them in [`units`] of a quarter of a pixel.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Rectangle;
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, TextStyle};
use serde_json::{Value as Json, json};
use unicode_width::UnicodeWidthStr;

use super::axis::Axis;
use super::palette::{INK, PAPER, SOFT_INK};
use crate::human;

/// The surface that plotters draws on.
type Drawing<'s> = DrawingArea<SVGBackend<'s>, Shift>;

/// A rectangular part of the sheet. All areas of a sheet collect their plots and hovers in one list each.
#[derive(Clone)]
pub struct Area<'s> {
    drawing: Drawing<'s>,
    plots: Rc<RefCell<Vec<Plot>>>,
    hovers: Rc<RefCell<Vec<Hover>>>,
}

impl<'s> Deref for Area<'s> {
    type Target = Drawing<'s>;

    fn deref(&self) -> &Drawing<'s> {
        &self.drawing
    }
}

impl<'s> Area<'s> {
    /// The part of the area with this upper left corner and this size, in units.
    pub fn part(&self, corner: (i32, i32), size: (u32, u32)) -> Area<'s> {
        let drawing = self.drawing.clone().shrink(corner, size);
        Area { drawing, plots: Rc::clone(&self.plots), hovers: Rc::clone(&self.hovers) }
    }

    /// Width and height, pixels.
    pub fn size(&self) -> (f64, f64) {
        let (width, height) = self.drawing.dim_in_pixel();
        (f64::from(width) / UNITS_PER_PIXEL, f64::from(height) / UNITS_PER_PIXEL)
    }

    /// Adds a plot to the list of the sheet's plots.
    pub fn add_plot(&self, plot: Plot) {
        self.plots.borrow_mut().push(plot);
    }

    /// Adds a text that a page shows while the pointer is at a part of the sheet.
    pub fn add_hover(&self, hover: Hover) {
        self.hovers.borrow_mut().push(hover);
    }
}

/// A part of the sheet, and the text that a page shows while the pointer is there. A file does not have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Hover {
    /// Two opposite corners, in units.
    pub corners: [(i32, i32); 2],
    pub text: String,
    /// The part's share of a whole, with the colour that names the part in the legend. `None`: it is the whole.
    pub share: Option<(f64, RGBColor)>,
}

/// The position of a plot on the sheet, in units, and its horizontal axis. A page needs both to zoom into the plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Left and right end, in units.
    pub x: (i32, i32),
    /// Upper and lower end, in units.
    pub y: (i32, i32),
    /// The axis from left to right.
    pub axis: Axis,
    /// Whether the vertical axis has names, as in a plot of bars.
    pub has_names: bool,
}

/// A drawn picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// The title, notes and legend above the panels.
    pub heading: Heading,
    /// SVG of the background and of the heading's text.
    heading_svg: String,
    /// SVG of the legend and of the panels.
    panels_svg: String,
    /// Width in pixels.
    width: f64,
    /// Height of the heading's text without the legend, pixels.
    heading_height: f64,
    /// Height of the whole sheet, pixels.
    height: f64,
    plots: Vec<Plot>,
    hovers: Vec<Hover>,
}

/// An error of plotters. In memory, drawing has no known reason to fail.
pub type Undrawn = DrawingAreaErrorKind<std::io::Error>;

/// Units of plotters per pixel. Coordinates of plotters are whole numbers, and whole pixels would make curves rough.
const UNITS_PER_PIXEL: f64 = 4.0;
/// Width of a sheet in a file or on a screen of usual size, pixels.
pub const WIDTH: f64 = 960.0;
/// Width of a sheet for a phone or next to another sheet, pixels.
pub const NARROW: f64 = 500.0;
/// On a sheet narrower than this, panels are below one another, pixels.
pub const NARROW_BELOW: f64 = 700.0;
/// Room at the left and right of the heading and of long titles, pixels.
pub const MARGIN: f64 = 16.0;
/// plotters divides font sizes by this factor.
const FONT_FACTOR: f64 = 1.24;
/// Width of a character in a name, as a part of the font's size, in the widest usual font without serifs.
const NAME_CHARACTER_WIDTH: f64 = 0.6;
/// Mean width of a character in a sentence, as a part of the font's size.
const SENTENCE_CHARACTER_WIDTH: f64 = 0.525;
/// Mean width of a character in a bold title, as a part of the font's size.
const TITLE_CHARACTER_WIDTH: f64 = 0.635;
/// Longest name in a legend or a label, characters.
const NAME_CHARS_MAX: usize = 32;

/// Font size of a sheet's title, pixels.
pub const TITLE_SIZE: f64 = 16.0;
/// Font size of a panel's title, pixels.
pub const SUBTITLE_SIZE: f64 = 13.0;
/// Font size of all other text, pixels.
pub const TEXT_SIZE: f64 = 12.0;
/// Room at the right of a plot without labels, pixels.
pub const RIGHT_MARGIN: f64 = 22.0;

/// The text above the panels, and the description for screen readers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heading {
    /// The main result of the picture.
    pub title: String,
    /// Explanations below the title. Each is broken into lines of the sheet's width.
    pub notes: Vec<String>,
    /// Names and colours, for all panels.
    pub legend: Vec<Entry>,
    /// For screen readers: the content of the panels, and the table with the numbers.
    pub description: String,
}

/// An entry of a legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    pub colour: RGBColor,
}

/// Converts pixels to units of plotters, rounded.
pub fn units(pixels: f64) -> i32 {
    (pixels * UNITS_PER_PIXEL).round() as i32
}

/// The font size for plotters that gives text of this size in pixels.
fn font_size(pixels: f64) -> f64 {
    pixels * UNITS_PER_PIXEL * FONT_FACTOR
}

pub fn text_style(size: f64, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", font_size(size)).into_font().color(&colour)
}

/// The style of bold text.
pub fn bold(size: f64, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", font_size(size), FontStyle::Bold).into_font().color(&colour)
}

/// The anchor of text: horizontally its start, middle or end; vertically its middle.
pub fn anchored(horizontal: HPos) -> Pos {
    Pos::new(horizontal, VPos::Center)
}

/// Estimated width of text of this font size, pixels. The estimate is usually a little too large.
pub fn text_width(text: &str, size: f64) -> f64 {
    text.width() as f64 * NAME_CHARACTER_WIDTH * size
}

/// A name, cut to [`NAME_CHARS_MAX`] characters.
pub fn shortened(name: &str) -> String {
    shortened_to(NAME_CHARS_MAX, name)
}

/// A name, cut to `length_max` characters.
pub fn shortened_to(length_max: usize, name: &str) -> String {
    if name.chars().count() <= length_max {
        return name.to_owned();
    }
    name.chars().take(length_max.saturating_sub(1)).chain(['…']).collect()
}

/// The texts, such as `idle/low/timer`, without the parts that all of them share. Texts with different numbers of parts
/// stay as they are, and so does a single text.
pub fn without_shared_parts(texts: &[&str]) -> Vec<String> {
    let parts: Vec<Vec<&str>> = texts.iter().map(|text| text.split('/').collect()).collect();
    let count = parts.first().map_or(0, Vec::len);
    let differs = |index: &usize| parts.iter().any(|others| others[*index] != parts[0][*index]);
    if parts.iter().any(|others| others.len() != count) || !(0..count).any(|index| differs(&index))
    {
        return texts.iter().map(|text| (*text).to_owned()).collect();
    }
    let kept: Vec<usize> = (0..count).filter(differs).collect();
    let text_of =
        |parts: &Vec<&str>| kept.iter().map(|index| parts[*index]).collect::<Vec<_>>().join("/");
    parts.iter().map(text_of).collect()
}

/// The title of a panel, broken into lines that fit.
#[derive(Debug, PartialEq)]
pub struct PanelTitle {
    /// Distance of the lines from the left end of the panel, pixels.
    pub left: f64,
    pub lines: Vec<String>,
}

/// Breaks the title of a panel with this width. A title that fits into one line starts at `plot_left`, above the plot.
/// A longer title starts at the margin. A word that is longer than the panel is cut.
pub fn panel_title(title: &str, panel_width: f64, plot_left: f64) -> PanelTitle {
    let character_width = TITLE_CHARACTER_WIDTH * SUBTITLE_SIZE;
    if title.is_empty() {
        return PanelTitle { left: plot_left, lines: Vec::new() };
    }
    if title.width() as f64 * character_width <= panel_width - plot_left - 4.0 {
        return PanelTitle { left: plot_left, lines: vec![title.to_owned()] };
    }
    let characters_max = ((panel_width - 2.0 * MARGIN) / character_width).max(2.0) as usize;
    let cut = |line: String| {
        if line.chars().count() <= characters_max {
            return line;
        }
        line.chars().take(characters_max - 1).chain(['…']).collect()
    };
    let lines = wrapped(title, panel_width, character_width);
    PanelTitle { left: MARGIN, lines: lines.into_iter().map(cut).collect() }
}

/// Breaks text into lines that fit on a sheet with this width. `character_width`: mean width of a character, pixels.
fn wrapped(text: &str, width: f64, character_width: f64) -> Vec<String> {
    let characters_max = ((width - 2.0 * MARGIN) / character_width) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= characters_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Entries of the legend with their positions: pixels from the left, and index of the line.
fn placed_entries(legend: &[Entry], sheet_width: f64) -> Vec<(f64, usize, &Entry)> {
    let (mut left, mut line) = (MARGIN, 0);
    let mut placed = Vec::new();
    for entry in legend {
        let width = 22.0 + text_width(&shortened(&entry.name), TEXT_SIZE) + 14.0;
        if left + width > sheet_width && left > MARGIN {
            (left, line) = (MARGIN, line + 1);
        }
        placed.push((left, line, entry));
        left += width;
    }
    placed
}

/// Places for pairs of panels. The panels of a pair are next to each other, or below each other on a narrow sheet.
/// Labels are at the right of the second panel.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// Width of the sheet, pixels.
    pub width: f64,
    /// Height of a panel, pixels.
    pub height: f64,
    /// Room for labels at the right of the second panel, pixels.
    pub right: f64,
}

impl Pairs {
    fn is_narrow(self) -> bool {
        self.width < NARROW_BELOW
    }

    /// Height of this number of pairs, pixels.
    pub fn height_of(self, pairs: usize) -> f64 {
        self.height * (if self.is_narrow() { 2 * pairs } else { pairs }) as f64
    }

    /// Room at the right of the first panel of a pair, pixels.
    pub fn right_of_first(self) -> f64 {
        if self.is_narrow() { self.right } else { RIGHT_MARGIN }
    }

    /// The areas of the two panels of pair `number`, counted from 0. Their plots are equally wide.
    pub fn areas<'s>(self, area: &Area<'s>, number: usize) -> [Area<'s>; 2] {
        let first_width = if self.is_narrow() {
            self.width
        } else {
            (self.width - self.right + self.right_of_first()) / 2.0
        };
        let top = self.height_of(number);
        let second = if self.is_narrow() { (0.0, top + self.height) } else { (first_width, top) };
        let part = |(x, y): (f64, f64), width: f64| {
            let size = (units(width) as u32, units(self.height) as u32);
            area.part((units(x), units(y)), size)
        };
        [part((0.0, top), first_width), part(second, self.width - second.0)]
    }
}

/// The SVG that `paint` draws with plotters, without the outermost element. Attributes with default values are
/// removed by replacing text. This cannot hit a name, because plotters escapes its quotation marks.
fn fragment(
    (width, height): (f64, f64),
    paint: impl FnOnce(&Drawing<'_>) -> Result<(), Undrawn>,
) -> Result<String, Undrawn> {
    let mut svg = String::new();
    {
        let size = (units(width) as u32, units(height) as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        paint(&root)?;
        root.present()?;
    }
    let content = svg.split_once(">\n").map_or("", |(_, content)| content);
    let content = content.strip_suffix("</svg>\n").unwrap_or(content);
    let content = content.replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", "");
    // XML does not allow these two characters, but a name may contain them.
    Ok(content.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}"))
}

/// Draws a sheet: the heading, and the panels below it. `paint` draws the panels into an area of `width` times `height`
/// pixels.
pub fn draw(
    heading: &Heading,
    width: f64,
    height: f64,
    paint: impl FnOnce(&Area<'_>) -> Result<(), Undrawn>,
) -> Result<Sheet, Undrawn> {
    let titles = wrapped(&heading.title, width, TITLE_CHARACTER_WIDTH * TITLE_SIZE);
    let notes: Vec<String> = heading
        .notes
        .iter()
        .flat_map(|note| wrapped(note, width, SENTENCE_CHARACTER_WIDTH * TEXT_SIZE))
        .collect();
    let legend = placed_entries(&heading.legend, width);
    let legend_lines = legend.last().map_or(0, |(_, line, _)| line + 1);
    let title_bottom = MARGIN + 22.0 * titles.len() as f64;
    let notes_bottom = title_bottom + 17.0 * notes.len() as f64;
    let top = notes_bottom + 4.0 + 20.0 * legend_lines as f64;
    let total_height = top + height + MARGIN / 2.0;
    let heading_svg = fragment((width, total_height), |root| {
        root.fill(&PAPER)?;
        let line = |text: &str, style: &TextStyle<'_>, y: f64| {
            root.draw_text(text, &style.pos(anchored(HPos::Left)), (units(MARGIN), units(y)))
        };
        for (number, text) in titles.iter().enumerate() {
            line(text, &bold(TITLE_SIZE, INK), MARGIN + 22.0 * number as f64 + 9.0)?;
        }
        for (number, text) in notes.iter().enumerate() {
            line(
                text,
                &text_style(TEXT_SIZE, SOFT_INK),
                title_bottom + 17.0 * number as f64 + 8.0,
            )?;
        }
        Ok(())
    })?;
    let plots = Rc::new(RefCell::new(Vec::new()));
    let hovers = Rc::new(RefCell::new(Vec::new()));
    let panels_svg = fragment((width, total_height), |root| {
        for (left, number, entry) in legend {
            let y = notes_bottom + 4.0 + 20.0 * number as f64 + 9.0;
            swatch(root, entry, left, y)?;
            let name = shortened(&entry.name);
            let position = (units(left + 22.0), units(y));
            root.draw_text(&name, &text_style(TEXT_SIZE, INK).pos(anchored(HPos::Left)), position)?;
        }
        let size = (units(width) as u32, units(height) as u32);
        let drawing = root.clone().shrink((0, units(top)), size);
        paint(&Area { drawing, plots: Rc::clone(&plots), hovers: Rc::clone(&hovers) })
    })?;
    Ok(Sheet {
        heading: heading.clone(),
        heading_svg,
        panels_svg,
        width,
        heading_height: notes_bottom,
        height: total_height,
        plots: plots.take(),
        hovers: hovers.take(),
    })
}

/// A square in the colour of an entry.
fn swatch(root: &Drawing<'_>, entry: &Entry, left: f64, y: f64) -> Result<(), Undrawn> {
    let corners = [(2.0, -6.0), (14.0, 6.0)].map(|(x, down)| (units(left + x), units(y + down)));
    root.draw(&Rectangle::new(corners, entry.colour.filled()))
}

impl Sheet {
    /// The picture as a file, with its size in pixels, and with a role, title and description for screen readers.
    pub fn file(&self) -> String {
        let (width_units, height_units) = (units(self.width), units(self.height));
        let (title, description) = (xml(&self.heading.title), xml(&self.heading.description));
        let Sheet { heading_svg, panels_svg, width, height, .. } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width_units} {height_units}\" role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"description\">{description}</desc>\n\
             {heading_svg}{panels_svg}</svg>\n"
        )
    }

    /// The plots of the panels, in the order in which they were drawn.
    #[cfg(test)]
    pub(crate) fn plots(&self) -> &[Plot] {
        &self.plots
    }

    /// The picture as a part of a page, without title and notes, because the page has them as text. `id` must be
    /// unique on the page.
    pub fn inline(&self, id: &str) -> String {
        let top = units(self.heading_height);
        let (width, height) = (units(self.width), units(self.height) - top);
        let description = xml(&self.heading.description);
        let plots: Vec<Json> = self.plots.iter().map(Plot::json).collect();
        let plots = Json::from(plots).to_string().replace('\'', "&#39;");
        let panels_svg = &self.panels_svg;
        let hovers: String =
            self.hovers.iter().map(|hover| hover.svg(&self.heading.legend)).collect();
        format!(
            "<svg viewBox=\"0 {top} {width} {height}\" role=\"img\" aria-labelledby=\"{id}-d\" \
             data-plots='{plots}'>\n<desc id=\"{id}-d\">{description}</desc>\n{panels_svg}{hovers}</svg>\n"
        )
    }
}

impl Hover {
    /// An invisible rectangle above the part, with the text as its title: browsers show it at the pointer.
    fn svg(&self, legend: &[Entry]) -> String {
        let [(left, top), (right, bottom)] = self.corners;
        let (width, height) = ((right - left).abs(), (bottom - top).abs());
        let mut text = self.text.clone();
        if let Some((share, colour)) = self.share {
            let part = legend.iter().find(|entry| entry.colour == colour);
            let name = part.map_or("this part", |entry| entry.name.as_str());
            text = format!("{text}\n{name}: {} of it", human::percent(share));
        }
        let text = xml(&text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
        format!(
            "<rect class=\"hover\" x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\" fill=\"none\" \
             pointer-events=\"all\"><title>{text}</title></rect>\n",
            left.min(right),
            top.min(bottom),
        )
    }
}

impl Plot {
    /// The data for the page's script (`page.js`): the position, and the horizontal axis with its ends, scale and
    /// units.
    fn json(&self) -> Json {
        let (low, high) = self.axis.ends();
        let units = self.axis.units();
        let units: Vec<Json> = units.iter().map(|unit| json!([unit.label, unit.size])).collect();
        json!({
            "x": [self.x.0, self.x.1], "y": [self.y.0, self.y.1], "ends": [low, high],
            "log": self.axis.is_logarithmic(), "units": units, "names": self.has_names,
        })
    }
}

/// Text with escapes, for use between tags.
fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::palette::{BLUE, GREY};

    #[test]
    fn conditions_keep_the_parts_that_differ() {
        let conditions = ["idle/low/timer", "busy/low/timer"];
        assert_eq!(without_shared_parts(&conditions), ["idle", "busy"]);
        assert_eq!(
            without_shared_parts(&["idle/low/timer", "busy/high/timer"]),
            ["idle/low", "busy/high"]
        );
        for same in [&["idle/low/timer"][..], &["a/b", "a"], &["a", "a"], &[]] {
            assert_eq!(without_shared_parts(same), same);
        }
    }

    #[test]
    fn a_long_title_of_a_panel_has_several_lines() {
        let short = PanelTitle { left: 104.0, lines: vec!["CPU 3".to_owned()] };
        assert_eq!(panel_title("CPU 3", 500.0, 104.0), short);
        assert_eq!(panel_title("", 500.0, 104.0).lines, Vec::<String>::new());
        let long = "A job of the receiver's priority on the receiving CPU (load busy)";
        assert_eq!(panel_title(long, 960.0, 104.0).lines, [long]);
        let broken = panel_title(long, NARROW, 104.0);
        assert_eq!(broken.left, MARGIN);
        let lines = ["A job of the receiver's priority on the receiving CPU", "(load busy)"];
        assert_eq!(broken.lines, lines);
        let single_word = panel_title(&"x".repeat(200), NARROW, 104.0);
        assert_eq!(single_word.lines, [format!("{}…", "x".repeat(55))]);
    }

    #[test]
    fn the_plots_of_a_pair_are_equally_wide() {
        let heading = Heading::default();
        let pairs = Pairs { width: WIDTH, height: 100.0, right: 140.0 };
        let mut widths = Vec::new();
        draw(&heading, WIDTH, 100.0, |area| {
            let rooms = [pairs.right_of_first(), pairs.right];
            let areas = pairs.areas(area, 0);
            widths.extend(areas.iter().zip(rooms).map(|(area, room)| area.size().0 - room));
            Ok(())
        })
        .unwrap();
        assert_eq!(widths[0], widths[1]);
    }

    #[test]
    fn a_part_of_a_bar_has_its_value_and_its_share() {
        let legend = [Entry { name: "executes".to_owned(), colour: BLUE }];
        let hover =
            |share| Hover { corners: [(8, 40), (4, 10)], text: "a<b: 5 %".to_owned(), share };
        let svg = hover(Some((0.25, BLUE))).svg(&legend);
        let place = "x=\"4\" y=\"10\" width=\"4\" height=\"30\"";
        assert!(svg.contains(place), "{svg}");
        assert!(svg.contains("<title>a&lt;b: 5 %\nexecutes: 25.0 % of it</title>"), "{svg}");
        assert!(hover(Some((0.5, GREY))).svg(&legend).contains("this part: 50.0 % of it"));
        assert!(hover(None).svg(&legend).contains("<title>a&lt;b: 5 %</title>"));
    }
}
