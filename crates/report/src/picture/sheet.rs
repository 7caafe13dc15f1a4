//! The sheet of a picture: SVG by plotters, with a heading, a legend, and the title and description that
//! screen readers read, which plotters does not write.

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

/// What plotters draws on.
type Drawing<'s> = DrawingArea<SVGBackend<'s>, Shift>;

/// A part of the sheet.
#[derive(Clone)]
pub struct Area<'s> {
    drawing: Drawing<'s>,
    plots: Rc<RefCell<Vec<Plot>>>,
}

impl<'s> Deref for Area<'s> {
    type Target = Drawing<'s>;

    fn deref(&self) -> &Drawing<'s> {
        &self.drawing
    }
}

impl<'s> Area<'s> {
    /// A part of this one: its corner at the left and top, and its size, in units.
    pub fn part(&self, corner: (i32, i32), size: (u32, u32)) -> Area<'s> {
        let drawing = self.drawing.clone().shrink(corner, size);
        Area { drawing, plots: Rc::clone(&self.plots) }
    }

    /// Its width and height, pixels.
    pub fn size(&self) -> (f64, f64) {
        let (wide, high) = self.drawing.dim_in_pixel();
        (f64::from(wide) / UNITS, f64::from(high) / UNITS)
    }

    pub fn note(&self, plot: Plot) {
        self.plots.borrow_mut().push(plot);
    }
}

/// Where a plot is on the sheet, in units, and what its horizontal axis shows: for a page that zooms into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Left and right end.
    pub x: (i32, i32),
    /// Upper and lower end.
    pub y: (i32, i32),
    /// The horizontal axis.
    pub axis: Axis,
    /// Whether the vertical axis has names: bars, of which all is to be seen.
    pub is_of_names: bool,
}

/// A picture that is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// What is above the panels.
    pub heading: Heading,
    /// SVG of the background and of the heading's words.
    words: String,
    /// SVG of all else.
    panels: String,
    /// Width, pixels.
    width: f64,
    /// Height of the words, and of all, pixels.
    heights: (f64, f64),
    plots: Vec<Plot>,
}
/// Why plotters could not draw. In memory, nothing is known that makes it fail.
pub type Undrawn = DrawingAreaErrorKind<std::io::Error>;

/// plotters places by whole units: quarters of a pixel, so that curves are smooth.
const UNITS: f64 = 4.0;
/// Width of a sheet, pixels: as a file, and of a page on a screen of usual size.
pub const WIDTH: f64 = 960.0;
/// Width of a sheet for a phone, or next to another.
pub const NARROW: f64 = 500.0;
/// On a sheet that is narrower, panels are below each other.
pub const NARROW_BELOW: f64 = 700.0;
const MARGIN: f64 = 16.0;
/// plotters divides font sizes by this.
const FONT_FACTOR: f64 = 1.24;
/// Width of a character as a part of the font's size, of the widest usual font without serifs: of a
/// name, and the means of sentences and of bold ones.
const CHARACTER: f64 = 0.6;
const CHARACTER_OF_SENTENCE: f64 = 0.525;
const CHARACTER_OF_TITLE: f64 = 0.635;
/// Longest name of a legend or a label, characters.
const NAME_MAX: usize = 32;

/// Font sizes, pixels.
pub const TITLE: f64 = 16.0;
/// Font size of panels' titles.
pub const SUBTITLE: f64 = 13.0;
/// Font size of all other text.
pub const WORDS: f64 = 12.0;
/// Room at the right of a plot without labels there, pixels.
pub const RIGHT: f64 = 22.0;

/// What is above the panels, and what a screen reader says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heading {
    /// What is seen, in a sentence.
    pub title: String,
    /// How it was made; sentences that are wrapped.
    pub notes: Vec<String>,
    /// Names and colours that the panels share.
    pub legend: Vec<Entry>,
    /// What a screen reader says in addition: what the panels show, and where the numbers are.
    pub description: String,
}

/// An entry of a legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    pub colour: RGBColor,
}

/// Units of plotters.
pub fn units(pixels: f64) -> i32 {
    (pixels * UNITS).round() as i32
}

/// A font's size for plotters, pixels.
fn font_size(pixels: f64) -> f64 {
    pixels * UNITS * FONT_FACTOR
}

pub fn words(size: f64, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", font_size(size)).into_font().color(&colour)
}

/// The style of words of more weight.
pub fn bold(size: f64, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", font_size(size), FontStyle::Bold).into_font().color(&colour)
}

/// A position of text: at its start, middle or end, and at its vertical middle.
pub fn at(horizontal: HPos) -> Pos {
    Pos::new(horizontal, VPos::Center)
}

/// About how wide text is, pixels; rather too wide.
pub fn width_of(text: &str, size: f64) -> f64 {
    text.width() as f64 * CHARACTER * size
}

/// A name, cut off where it is too long for a picture.
pub fn short(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.to_owned();
    }
    name.chars().take(NAME_MAX - 1).chain(['…']).collect()
}

/// Lines of text that are not wider than the sheet, of characters that wide.
fn wrapped(text: &str, width: f64, character: f64) -> Vec<String> {
    let most = ((width - 2.0 * MARGIN) / character) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Entries of the legend with their places: from the left, and the line.
fn placed(legend: &[Entry], sheet: f64) -> Vec<(f64, usize, &Entry)> {
    let (mut left, mut line) = (MARGIN, 0);
    let mut places = Vec::new();
    for entry in legend {
        let width = 22.0 + width_of(&short(&entry.name), WORDS) + 14.0;
        if left + width > sheet && left > MARGIN {
            (left, line) = (MARGIN, line + 1);
        }
        places.push((left, line, entry));
        left += width;
    }
    places
}

/// Pairs of panels: next to each other where the sheet has room for two, with labels at the right of both.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// Width of the sheet, pixels.
    pub width: f64,
    /// Height of a panel.
    pub height: f64,
    /// Room for labels at the right of the second.
    pub right: f64,
}

impl Pairs {
    fn is_narrow(self) -> bool {
        self.width < NARROW_BELOW
    }

    /// Height of a number of pairs.
    pub fn height_of(self, pairs: usize) -> f64 {
        self.height * (if self.is_narrow() { 2 * pairs } else { pairs }) as f64
    }

    /// Room at the right of the first panel of a pair.
    pub fn right_of_first(self) -> f64 {
        if self.is_narrow() { self.right } else { RIGHT }
    }

    pub fn areas<'s>(self, area: &Area<'s>, number: usize) -> [Area<'s>; 2] {
        let split = if self.is_narrow() { self.width } else { (self.width - self.right) / 2.0 };
        let top = self.height_of(number);
        let second = if self.is_narrow() { (0.0, top + self.height) } else { (split, top) };
        let part = |(left, top): (f64, f64), width: f64| {
            let size = (units(width) as u32, units(self.height) as u32);
            area.part((units(left), units(top)), size)
        };
        [part((0.0, top), split), part(second, self.width - second.0)]
    }
}

/// What `paint` draws with plotters, as SVG without the outermost element. Attributes that say what is so
/// without them are left out; text has no quotation marks that are not escaped, so none of it is taken for one.
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
    let inside = svg.split_once(">\n").map_or("", |(_, inside)| inside);
    let inside = inside.strip_suffix("</svg>\n").unwrap_or(inside);
    let inside = inside.replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", "");
    // Two characters that a name may have and XML may not.
    Ok(inside.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}"))
}

/// Draws a sheet: the heading, and what `paint` draws under it, `width` pixels wide
/// and high.
///
/// # Errors
/// When plotters fails.
pub fn draw(
    heading: &Heading,
    width: f64,
    height: f64,
    paint: impl FnOnce(&Area<'_>) -> Result<(), Undrawn>,
) -> Result<Sheet, Undrawn> {
    let titles = wrapped(&heading.title, width, CHARACTER_OF_TITLE * TITLE);
    let notes: Vec<String> = heading
        .notes
        .iter()
        .flat_map(|note| wrapped(note, width, CHARACTER_OF_SENTENCE * WORDS))
        .collect();
    let legend = placed(&heading.legend, width);
    let legend_lines = legend.last().map_or(0, |(_, line, _)| line + 1);
    let title_bottom = MARGIN + 22.0 * titles.len() as f64;
    let notes_bottom = title_bottom + 17.0 * notes.len() as f64;
    let top = notes_bottom + 4.0 + 20.0 * legend_lines as f64;
    let whole = top + height + MARGIN / 2.0;
    let above = fragment((width, whole), |root| {
        root.fill(&PAPER)?;
        let line = |text: &str, style: &TextStyle<'_>, y: f64| {
            root.draw_text(text, &style.pos(at(HPos::Left)), (units(MARGIN), units(y)))
        };
        for (number, text) in titles.iter().enumerate() {
            line(text, &bold(TITLE, INK), MARGIN + 22.0 * number as f64 + 9.0)?;
        }
        for (number, text) in notes.iter().enumerate() {
            line(text, &words(WORDS, SOFT_INK), title_bottom + 17.0 * number as f64 + 8.0)?;
        }
        Ok(())
    })?;
    let plots = Rc::new(RefCell::new(Vec::new()));
    let panels = fragment((width, whole), |root| {
        for (left, number, entry) in legend {
            let y = notes_bottom + 4.0 + 20.0 * number as f64 + 9.0;
            swatch(root, entry, left, y)?;
            let name = short(&entry.name);
            let place = (units(left + 22.0), units(y));
            root.draw_text(&name, &words(WORDS, INK).pos(at(HPos::Left)), place)?;
        }
        let size = (units(width) as u32, units(height) as u32);
        let drawing = root.clone().shrink((0, units(top)), size);
        paint(&Area { drawing, plots: Rc::clone(&plots) })
    })?;
    Ok(Sheet {
        heading: heading.clone(),
        words: above,
        panels,
        width,
        heights: (notes_bottom, whole),
        plots: plots.take(),
    })
}

/// A square in the colour of an entry.
fn swatch(root: &Drawing<'_>, entry: &Entry, left: f64, y: f64) -> Result<(), Undrawn> {
    let corners = [(2.0, -6.0), (14.0, 6.0)].map(|(x, down)| (units(left + x), units(y + down)));
    root.draw(&Rectangle::new(corners, entry.colour.filled()))
}

impl Sheet {
    /// The picture as a file: with its size in pixels, and a role, title and description for screen readers.
    pub fn file(&self) -> String {
        let (wide, high) = (units(self.width), units(self.heights.1));
        let (title, description) = (xml(&self.heading.title), xml(&self.heading.description));
        let (height, Sheet { words, panels, width, .. }) = (self.heights.1, self);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {wide} {high}\" role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"description\">{description}</desc>\n\
             {words}{panels}</svg>\n"
        )
    }

    /// The picture as a part of a page that has the heading's words itself. `id`: of the picture, unique on the
    /// page.
    pub fn inline(&self, id: &str) -> String {
        let top = units(self.heights.0);
        let (wide, high) = (units(self.width), units(self.heights.1) - top);
        let description = xml(&self.heading.description);
        let plots: Vec<Json> = self.plots.iter().map(Plot::json).collect();
        let plots = Json::from(plots).to_string().replace('\'', "&#39;");
        let panels = &self.panels;
        format!(
            "<svg viewBox=\"0 {top} {wide} {high}\" role=\"img\" aria-labelledby=\"{id}-d\" \
             data-plots='{plots}'>\n<desc id=\"{id}-d\">{description}</desc>\n{panels}</svg>\n"
        )
    }
}

impl Plot {
    /// Its place, and its horizontal axis: ends, scale, and the units in which its numbers are written.
    fn json(&self) -> Json {
        let (low, high) = self.axis.ends();
        let units = self.axis.units();
        let units: Vec<Json> = units.iter().map(|unit| json!([unit.label, unit.size])).collect();
        json!({
            "x": [self.x.0, self.x.1], "y": [self.y.0, self.y.1], "ends": [low, high],
            "log": self.axis.is_logarithmic(), "units": units, "names": self.is_of_names,
        })
    }
}

/// Text between tags.
fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
