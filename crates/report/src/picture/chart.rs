//! A panel with axes, and what is drawn in it.

use plotters::chart::{ChartBuilder, ChartContext, LabelAreaPosition};
use plotters::coord::cartesian::Cartesian2d;
use plotters::element::{Circle, DashedPathElement, EmptyElement, PathElement, Polygon, Rectangle};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, RGBColor, ShapeStyle};

use super::axis::Axis;
use super::palette::{FINE_GRID, GRID, INK, PAPER, SOFT_INK};
use super::sheet::{
    Area, Plot, RIGHT, SUBTITLE, Undrawn, WORDS, at, bold, short, units, width_of, words,
};

/// Room above a plot, pixels, with a title and without.
const TITLED: f64 = 30.0;
const UNTITLED: f64 = 12.0;
/// Room under it for numbers and the axis' title.
const UNDER: f64 = 46.0;
/// Room under all of that.
const BELOW: f64 = 4.0;
/// Room at its left: for the axis' title, and numbers as long as `512 MiB/s`.
const LEFT: f64 = 104.0;
/// Distance of labels of curves from one to the next.
const LABEL_STEP: f64 = 15.0;
/// Distance of such a label from the plot.
const LABEL_GAP: f64 = 16.0;

/// How a curve and its points look: so that they are distinguished without colours, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The colour of both.
    pub colour: RGBColor,
    /// Number of the pattern of the line and of the mark: 0 is solid, and a circle.
    pub pattern: usize,
}

/// Number of patterns.
pub const PATTERNS: usize = 4;
/// Lengths of dash and gap, pixels; solid where there is none.
const DASHES: [Option<(f64, f64)>; PATTERNS] =
    [None, Some((7.0, 4.0)), Some((2.0, 3.0)), Some((12.0, 3.0))];

/// A panel.
pub struct Chart<'s> {
    context: ChartContext<'s, SVGBackend<'s>, Cartesian2d<Axis, Axis>>,
    area: Area<'s>,
    axes: [Axis; 2],
}

/// The name of a curve, which is written at its end.
#[derive(Clone, Debug)]
pub struct Label {
    pub name: String,
    pub colour: RGBColor,
    /// The end of the curve.
    pub end: (f64, f64),
}

/// Room at the right that labels take, pixels; as much as a panel without, where there are none.
pub fn room_for<'n>(names: impl Iterator<Item = &'n str>) -> f64 {
    let widest = names.map(|name| width_of(&short(name), WORDS)).fold(0.0, f64::max);
    if widest > 0.0 { widest + LABEL_GAP + 6.0 } else { RIGHT }
}

fn above(title: &str) -> f64 {
    if title.is_empty() { UNTITLED } else { TITLED }
}

/// Room at the left that names take, pixels.
pub fn room_for_names<'n>(names: impl Iterator<Item = &'n str>) -> f64 {
    names.map(|name| width_of(name, WORDS)).fold(0.0, f64::max) + 28.0
}

/// Width and height of the plot of a chart with that title, in an area of that size, pixels.
pub fn plot_size((width, height): (f64, f64), title: &str, right: f64) -> (f64, f64) {
    (width - LEFT - right, height - above(title) - UNDER - BELOW)
}

impl<'s> Chart<'s> {
    /// Draws title, axes and grid into an area; `right`: room for labels there, from [`room_for`].
    ///
    /// # Errors
    /// When plotters fails.
    pub fn new(
        area: &Area<'s>,
        title: &str,
        axes: [&Axis; 2],
        right: f64,
    ) -> Result<Chart<'s>, Undrawn> {
        Chart::with_room(area, title, axes, [LEFT, right])
    }

    /// The same with room at both sides: for names at the left, from [`room_for_names`].
    ///
    /// # Errors
    /// When plotters fails.
    pub fn with_room(
        area: &Area<'s>,
        title: &str,
        [x, y]: [&Axis; 2],
        [left, right]: [f64; 2],
    ) -> Result<Chart<'s>, Undrawn> {
        if !title.is_empty() {
            let place = (units(left), units(TITLED / 2.0));
            area.draw_text(title, &bold(SUBTITLE, INK).pos(at(HPos::Left)), place)?;
        }
        let (wide, high) = area.dim_in_pixel();
        let pixels = |length: u32| f64::from(length) / f64::from(units(1.0));
        let (wide, high) = plot_size((pixels(wide), pixels(high)), title, right);
        let x = x.clone().with_room(wide, |label| width_of(label, WORDS) + 4.0);
        let y = y.clone().with_room(high, |_| WORDS + 4.0);
        let mut context = ChartBuilder::on(area)
            .margin_top(units(above(title)))
            .margin_right(units(right))
            .margin_left(units(12.0))
            .margin_bottom(units(BELOW))
            .set_label_area_size(LabelAreaPosition::Bottom, units(UNDER))
            .set_label_area_size(LabelAreaPosition::Left, units(left - 12.0))
            .build_cartesian_2d(x.clone(), y.clone())?;
        let thin = |colour: RGBColor| colour.stroke_width(units(1.0) as u32);
        let mut mesh = context.configure_mesh();
        if y.is_of_names() {
            mesh.disable_y_mesh();
        }
        mesh.bold_line_style(thin(GRID))
            .light_line_style(thin(FINE_GRID))
            .axis_style(thin(SOFT_INK))
            .label_style(words(WORDS, SOFT_INK))
            .axis_desc_style(words(WORDS, INK))
            .x_desc(x.title.clone())
            .y_desc(y.title.clone())
            .set_all_tick_mark_size(units(4.0))
            .draw()?;
        let (across, down) = context.plotting_area().get_pixel_range();
        let ends = |range: std::ops::Range<i32>| (range.start, range.end);
        let is_of_names = y.is_of_names();
        let plot = Plot { x: ends(across), y: ends(down), axis: x.clone(), is_of_names };
        area.note(plot);
        Ok(Chart { context, area: area.clone(), axes: [x, y] })
    }

    /// Joins points by straight lines; those without a place on the axes interrupt the line.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn line(&mut self, points: &[(f64, f64)], look: Look, width: f64) -> Result<(), Undrawn> {
        let style = look.colour.stroke_width(units(width) as u32);
        let has_place =
            |point: &(f64, f64)| self.axes[0].holds(point.0) && self.axes[1].holds(point.1);
        for part in points.split(|point| !has_place(point)).filter(|part| part.len() > 1) {
            let part = part.to_vec();
            match DASHES[look.pattern % PATTERNS] {
                None => drop(self.context.draw_series([PathElement::new(part, style)])?),
                Some((dash, gap)) => {
                    let dashes = DashedPathElement::new(part, units(dash), units(gap), style);
                    self.context.draw_series([dashes])?;
                }
            }
        }
        Ok(())
    }

    /// A mark at a point; an open one is white inside.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn mark(&mut self, point: (f64, f64), look: Look, is_open: bool) -> Result<(), Undrawn> {
        if !self.axes[0].holds(point.0) || !self.axes[1].holds(point.1) {
            return Ok(());
        }
        let fill = if is_open { PAPER } else { look.colour };
        let outline = look.colour.stroke_width(units(1.5) as u32);
        let size = f64::from(units(4.0));
        let corners = |corners: &[(f64, f64)]| -> Vec<(i32, i32)> {
            corners
                .iter()
                .map(|(x, y)| ((x * size).round() as i32, (y * size).round() as i32))
                .collect()
        };
        let corners = match look.pattern % PATTERNS {
            0 => {
                let mark = EmptyElement::at(point)
                    + Circle::new((0, 0), units(3.6), fill.filled())
                    + Circle::new((0, 0), units(3.6), outline);
                self.context.draw_series([mark])?;
                return Ok(());
            }
            1 => corners(&[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]),
            2 => corners(&[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)]),
            _ => corners(&[(0.0, -1.1), (1.1, 0.9), (-1.1, 0.9)]),
        };
        let mut closed = corners.clone();
        closed.push(corners[0]);
        let mark = EmptyElement::at(point)
            + Polygon::new(corners, fill.filled())
            + PathElement::new(closed, outline);
        self.context.draw_series([mark])?;
        Ok(())
    }

    /// A cross: what could not keep up.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn cross(&mut self, point: (f64, f64), look: Look) -> Result<(), Undrawn> {
        let style = look.colour.stroke_width(units(1.8) as u32);
        let reach = units(4.0);
        let stroke = |sign: i32| {
            PathElement::new(vec![(-reach, -reach * sign), (reach, reach * sign)], style)
        };
        self.context.draw_series([EmptyElement::at(point) + stroke(1) + stroke(-1)])?;
        Ok(())
    }

    /// An interval; what is outside of the axis is cut off.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn whisker(&mut self, x: f64, ends: (f64, f64), look: Look) -> Result<(), Undrawn> {
        let (low, high) = self.axes[1].ends();
        if ends.1 < low || ends.0 > high || !self.axes[0].holds(x) {
            return Ok(());
        }
        let style = look.colour.stroke_width(units(1.2) as u32);
        let cap = |y: f64| {
            EmptyElement::at((x, y))
                + PathElement::new(vec![(-units(3.0), 0), (units(3.0), 0)], style)
        };
        let stem = vec![(x, ends.0.max(low)), (x, ends.1.min(high))];
        self.context.draw_series([PathElement::new(stem, style)])?;
        let caps = [ends.0, ends.1].into_iter().filter(|end| *end >= low && *end <= high);
        self.context.draw_series(caps.map(cap))?;
        Ok(())
    }

    /// An interval along the horizontal axis; what is outside of the axis is cut off.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn bar_whisker(&mut self, y: f64, ends: (f64, f64), look: Look) -> Result<(), Undrawn> {
        let (low, high) = self.axes[0].ends();
        if ends.1 < low || ends.0 > high {
            return Ok(());
        }
        let style = look.colour.stroke_width(units(1.2) as u32);
        let cap = |x: f64| {
            EmptyElement::at((x, y))
                + PathElement::new(vec![(0, -units(3.0)), (0, units(3.0))], style)
        };
        let stem = vec![(ends.0.max(low), y), (ends.1.min(high), y)];
        self.context.draw_series([PathElement::new(stem, style)])?;
        let caps = [ends.0, ends.1].into_iter().filter(|end| *end >= low && *end <= high);
        self.context.draw_series(caps.map(cap))?;
        Ok(())
    }

    /// Words to the right of a point.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn words_after(
        &mut self,
        text: &str,
        point: (f64, f64),
        colour: RGBColor,
    ) -> Result<(), Undrawn> {
        let (x, y) = self.pixel(point);
        // A grid line would go through them.
        let (from, half) = (x + units(4.0), units(WORDS * 0.6));
        let backdrop = [(from, y - half), (from + units(width_of(text, WORDS) * 0.9), y + half)];
        self.area.draw(&Rectangle::new(backdrop, PAPER.filled()))?;
        let style = words(WORDS, colour).pos(at(HPos::Left));
        self.area.draw_text(text, &style, (x + units(6.0), y))
    }

    /// A filled rectangle between two corners.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn block(
        &mut self,
        corners: [(f64, f64); 2],
        style: impl Into<ShapeStyle>,
    ) -> Result<(), Undrawn> {
        self.context.draw_series([Rectangle::new(corners, style)])?;
        Ok(())
    }

    /// A line in a style.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn stroke(
        &mut self,
        points: &[(f64, f64)],
        style: impl Into<ShapeStyle>,
    ) -> Result<(), Undrawn> {
        self.context.draw_series([PathElement::new(points.to_vec(), style)])?;
        Ok(())
    }

    /// A filled polygon.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn polygon(
        &mut self,
        corners: Vec<(f64, f64)>,
        style: impl Into<ShapeStyle>,
    ) -> Result<(), Undrawn> {
        self.context.draw_series([Polygon::new(corners, style)])?;
        Ok(())
    }

    /// Words in the plot, their middle at a point that is moved by pixels: right, down.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn words(
        &mut self,
        text: &str,
        point: (f64, f64),
        [right, down]: [f64; 2],
        colour: RGBColor,
    ) -> Result<(), Undrawn> {
        let (x, y) = self.pixel(point);
        // Inside of the plot, where it is near an end.
        let (half, plot) = (units(width_of(text, WORDS) / 2.0), self.plot());
        let x = (x + units(right)).min(plot.1 - half).max(plot.0 + half);
        let style = words(WORDS, colour).pos(at(HPos::Center));
        self.area.draw_text(text, &style, (x, y + units(down)))
    }

    /// The value a number of pixels to the right of another on the horizontal axis.
    pub fn aside(&self, x: f64, pixels: f64) -> f64 {
        let [axis, _] = &self.axes;
        axis.at(axis.share(x) + pixels / self.size().0)
    }

    /// Left and right end of the plot in its area.
    fn plot(&self) -> (i32, i32) {
        let (x, _) = self.context.plotting_area().get_pixel_range();
        let (left, _) = self.area.get_base_pixel();
        (x.start - left, x.end - left)
    }

    /// Size of the plot, pixels.
    pub fn size(&self) -> (f64, f64) {
        let (x, y) = self.context.plotting_area().dim_in_pixel();
        let unit = f64::from(units(1.0));
        (f64::from(x) / unit, f64::from(y) / unit)
    }

    fn pixel(&self, point: (f64, f64)) -> (i32, i32) {
        let (x, y) = self.context.backend_coord(&point);
        let (left, top) = self.area.get_base_pixel();
        (x - left, y - top)
    }

    /// Writes the names of curves at the right of the plot, each as near to its curve's end as the others
    /// allow, with a line to it.
    ///
    /// # Errors
    /// When plotters fails.
    pub fn label_ends(&mut self, labels: &[Label]) -> Result<(), Undrawn> {
        let mut labels: Vec<(&Label, (i32, i32))> =
            labels.iter().map(|label| (label, self.pixel(label.end))).collect();
        labels.sort_by_key(|(_, (_, y))| *y);
        let wanted: Vec<f64> = labels.iter().map(|(_, (_, y))| f64::from(*y)).collect();
        let (_, bottom) = self.area.dim_in_pixel();
        let ends = (f64::from(units(WORDS)), f64::from(bottom) - f64::from(units(WORDS)));
        let places = spread(&wanted, f64::from(units(LABEL_STEP)), ends);
        let (_, right) = self.plot();
        for ((label, (x, y)), place) in labels.into_iter().zip(places) {
            let start = right + units(LABEL_GAP);
            let place = place.round() as i32;
            let line = vec![(x.min(right) + units(5.0), y), (start - units(3.0), place)];
            let leader = label.colour.mix(0.6).stroke_width(units(1.0) as u32);
            self.area.draw(&PathElement::new(line, leader))?;
            let style = words(WORDS, INK).pos(at(HPos::Left));
            self.area.draw_text(&short(&label.name), &style, (start, place))?;
        }
        Ok(())
    }
}

/// Places that are `step` apart at least, in the order of the wanted ones (ascending) and as near to them
/// as that allows: least squares, by pooling neighbours that would overlap; then moved to be from the first
/// to the last of `ends`, where that has room for them.
fn spread(wanted: &[f64], step: f64, ends: (f64, f64)) -> Vec<f64> {
    // Groups of neighbours: sum of the wanted places less their steps, and how many they are.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for (number, place) in wanted.iter().enumerate() {
        groups.push((place - step * number as f64, 1));
        while let [.., before, last] = &groups[..] {
            if before.0 / before.1 as f64 <= last.0 / last.1 as f64 {
                break;
            }
            let both = (before.0 + last.0, before.1 + last.1);
            groups.truncate(groups.len() - 2);
            groups.push(both);
        }
    }
    let means = groups.iter().flat_map(|(sum, count)| vec![sum / *count as f64; *count]);
    let places = means.enumerate().map(|(number, mean)| mean + step * number as f64);
    let after = wanted.len().saturating_sub(1) as f64;
    let within = |(number, place): (usize, f64)| {
        let (before, after) = (step * number as f64, step * (after - number as f64));
        place.min(ends.1 - after).max(ends.0 + before)
    };
    places.enumerate().map(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap_and_stay_near() {
        let far = (-1e3, 1e3);
        assert_eq!(spread(&[10.0, 50.0, 90.0], 15.0, far), [10.0, 50.0, 90.0]);
        assert_eq!(spread(&[50.0, 50.0, 50.0], 10.0, far), [40.0, 50.0, 60.0]);
        let places = spread(&[10.0, 12.0, 13.0, 80.0], 10.0, far);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 10.0 - 1e-9), "{places:?}");
        assert_eq!(places[3], 80.0);
        assert_eq!(spread(&[5.0, 5.0, 90.0], 10.0, (3.0, 85.0)), [3.0, 13.0, 85.0]);
        assert_eq!(spread(&[], 10.0, far), Vec::<f64>::new());
    }
}
