//! A chart: a plot with a title, two axes and a grid, and the curves, marks, blocks and labels in it. All pictures
//! with axes use it. Positions are values on the axes unless a comment says pixels.

use plotters::chart::{ChartBuilder, ChartContext, LabelAreaPosition};
use plotters::coord::cartesian::Cartesian2d;
use plotters::element::{Circle, DashedPathElement, EmptyElement, PathElement, Polygon, Rectangle};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, RGBColor, ShapeStyle};

use super::axis::Axis;
use super::palette::{FINE_GRID, GRID, INK, PAPER, SOFT_INK};
use super::sheet::{
    Area, Hover, PanelTitle, Plot, RIGHT_MARGIN, SUBTITLE_SIZE, TEXT_SIZE, Undrawn, anchored, bold,
    panel_title, shortened, text_style, text_width, units,
};

/// Room above a plot with a title of one line, pixels.
const TOP_WITH_TITLE: f64 = 30.0;
/// Height of each further line of a title, pixels.
const TITLE_LINE_HEIGHT: f64 = 17.0;
/// Minimum distance between the numbers at an axis, pixels: the width of a space, or more.
const NUMBER_DISTANCE: f64 = 6.0;
/// Room above a plot without a title, pixels.
const TOP_WITHOUT_TITLE: f64 = 12.0;
/// Room below a plot for the labels and the title of the horizontal axis, pixels.
const AXIS_HEIGHT: f64 = 46.0;
/// Room below the title of the horizontal axis, pixels.
const BOTTOM_MARGIN: f64 = 4.0;
/// Room at the left of a plot for the title of the vertical axis, and for labels of the length of `512 MiB/s`, pixels.
const AXIS_WIDTH: f64 = 104.0;
/// Minimum distance between the labels of two curves, pixels.
const LABEL_STEP: f64 = 15.0;
/// Distance of a curve's label from the plot, pixels.
const LABEL_GAP: f64 = 16.0;

/// The style of a curve and its points. The pattern distinguishes curves for readers who do not see the colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub colour: RGBColor,
    /// Index of the pattern: of a line modulo [`LINE_PATTERNS`], of a mark modulo [`PATTERNS`]. 0 is a solid line with
    /// circles.
    pub pattern: usize,
}

/// Number of patterns of marks.
pub const PATTERNS: usize = 4;
/// Number of patterns of lines.
pub const LINE_PATTERNS: usize = 8;
/// Lengths of dash and gap of each pattern of lines, pixels. `None`: a solid line.
const DASHES: [Option<(f64, f64)>; LINE_PATTERNS] = [
    None,
    Some((7.0, 4.0)),
    Some((2.0, 3.0)),
    Some((12.0, 3.0)),
    Some((18.0, 6.0)),
    Some((4.0, 4.0)),
    Some((10.0, 10.0)),
    Some((2.0, 7.0)),
];

/// The share of a line that is gaps, from 0 to 1.
pub fn gap_share(look: Look) -> f64 {
    DASHES[look.pattern % LINE_PATTERNS].map_or(0.0, |(dash, gap)| gap / (dash + gap))
}

/// A chart that has its title, axes and grid. Methods draw into it.
pub struct Chart<'s> {
    context: ChartContext<'s, SVGBackend<'s>, Cartesian2d<Axis, Axis>>,
    area: Area<'s>,
    /// The horizontal and the vertical axis.
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

/// The room that the labels of curves take at the right of a plot, pixels. Without labels: [`RIGHT_MARGIN`].
pub fn room_for<'n>(names: impl Iterator<Item = &'n str>) -> f64 {
    let widest = names.map(|name| text_width(&shortened(name), TEXT_SIZE)).fold(0.0, f64::max);
    if widest > 0.0 { widest + LABEL_GAP + 6.0 } else { RIGHT_MARGIN }
}

/// Room above a plot with a title of this number of lines, pixels.
fn top_room(title_lines: usize) -> f64 {
    match title_lines {
        0 => TOP_WITHOUT_TITLE,
        lines => TOP_WITH_TITLE + further_title_lines_height(lines),
    }
}

/// Height of the lines of a title after the first, pixels.
pub fn further_title_lines_height(lines: usize) -> f64 {
    TITLE_LINE_HEIGHT * lines.saturating_sub(1) as f64
}

/// The room that names take at the left of a plot, pixels.
pub fn room_for_names<'n>(names: impl Iterator<Item = &'n str>) -> f64 {
    names.map(|name| text_width(name, TEXT_SIZE)).fold(0.0, f64::max) + 28.0
}

/// Width and height of the plot of [`Chart::new`] without a title, in an area with this width and height, pixels.
/// `right`: room at the right of the plot.
pub fn plot_size(area_size: (f64, f64), right: f64) -> (f64, f64) {
    inner_size(area_size, top_room(0), [AXIS_WIDTH, right])
}

/// Width and height of a plot with room at its top, left and right, pixels.
fn inner_size((width, height): (f64, f64), top: f64, [left, right]: [f64; 2]) -> (f64, f64) {
    (width - left - right, height - top - AXIS_HEIGHT - BOTTOM_MARGIN)
}

impl<'s> Chart<'s> {
    /// Draws title, axes and grid into an area. `right`: room for labels at the right, from [`room_for`].
    pub fn new(
        area: &Area<'s>,
        title: &str,
        axes: [&Axis; 2],
        right: f64,
    ) -> Result<Chart<'s>, Undrawn> {
        Chart::with_room(area, title, axes, [AXIS_WIDTH, right])
    }

    /// Draws title, axes and grid into an area. `rooms`: the room at the left and at the right of the plot, pixels. If the
    /// vertical axis has names, the room at the left is from [`room_for_names`].
    pub fn with_room(
        area: &Area<'s>,
        title: &str,
        axes: [&Axis; 2],
        rooms: [f64; 2],
    ) -> Result<Chart<'s>, Undrawn> {
        let title = panel_title(title, area.size().0, rooms[0]);
        Chart::with_title(area, &title, axes, rooms)
    }

    /// Draws axes, grid and a title that is already broken into lines into an area. `left` and `right`: the room next to the
    /// plot, pixels. Labels of the axes that would overlap are left out.
    pub fn with_title(
        area: &Area<'s>,
        title: &PanelTitle,
        [x, y]: [&Axis; 2],
        [left, right]: [f64; 2],
    ) -> Result<Chart<'s>, Undrawn> {
        for (number, line) in title.lines.iter().enumerate() {
            let line_middle = TOP_WITH_TITLE / 2.0 + TITLE_LINE_HEIGHT * number as f64;
            let style = bold(SUBTITLE_SIZE, INK).pos(anchored(HPos::Left));
            area.draw_text(line, &style, (units(title.left), units(line_middle)))?;
        }
        let top = top_room(title.lines.len());
        let (width, height) = inner_size(area.size(), top, [left, right]);
        let number_width = |label: &str| text_width(label, TEXT_SIZE) + NUMBER_DISTANCE;
        let x = x.clone().with_fitting_labels(width, number_width);
        let y = y.clone().with_fitting_labels(height, |_| TEXT_SIZE + 4.0);
        let mut context = ChartBuilder::on(area)
            .margin_top(units(top))
            .margin_right(units(right))
            .margin_left(units(12.0))
            .margin_bottom(units(BOTTOM_MARGIN))
            .set_label_area_size(LabelAreaPosition::Bottom, units(AXIS_HEIGHT))
            .set_label_area_size(LabelAreaPosition::Left, units(left - 12.0))
            .build_cartesian_2d(x.clone(), y.clone())?;
        let thin = |colour: RGBColor| colour.stroke_width(units(1.0) as u32);
        let mut mesh = context.configure_mesh();
        if y.has_names() {
            mesh.disable_y_mesh();
        }
        mesh.bold_line_style(thin(GRID))
            .light_line_style(thin(FINE_GRID))
            .axis_style(thin(SOFT_INK))
            .label_style(text_style(TEXT_SIZE, SOFT_INK))
            .axis_desc_style(text_style(TEXT_SIZE, INK))
            .x_desc(x.title.clone())
            .y_desc(y.title.clone())
            .set_all_tick_mark_size(units(4.0))
            .draw()?;
        let (across, down) = context.plotting_area().get_pixel_range();
        let ends = |range: std::ops::Range<i32>| (range.start, range.end);
        let has_names = y.has_names();
        let plot = Plot { x: ends(across), y: ends(down), axis: x.clone(), has_names };
        area.add_plot(plot);
        Ok(Chart { context, area: area.clone(), axes: [x, y] })
    }

    /// Joins points by straight lines, `width` pixels wide. A point outside of the axes interrupts the line.
    pub fn line(&mut self, points: &[(f64, f64)], look: Look, width: f64) -> Result<(), Undrawn> {
        let style = look.colour.stroke_width(units(width) as u32);
        let [x_axis, y_axis] = &self.axes;
        let is_in_plot = |(x, y): &(f64, f64)| x_axis.holds(*x) && y_axis.holds(*y);
        for part in points.split(|point| !is_in_plot(point)).filter(|part| part.len() > 1) {
            let part = part.to_vec();
            match DASHES[look.pattern % LINE_PATTERNS] {
                None => drop(self.context.draw_series([PathElement::new(part, style)])?),
                Some((dash, gap)) => {
                    let dashes = DashedPathElement::new(part, units(dash), units(gap), style);
                    self.context.draw_series([dashes])?;
                }
            }
        }
        Ok(())
    }

    /// Draws a mark at a point, unless the point is outside of the axes. An open mark is white inside.
    pub fn mark(&mut self, point: (f64, f64), look: Look, is_open: bool) -> Result<(), Undrawn> {
        let ([x_axis, y_axis], (x, y)) = (&self.axes, point);
        if !x_axis.holds(x) || !y_axis.holds(y) {
            return Ok(());
        }
        let fill = if is_open { PAPER } else { look.colour };
        let outline = look.colour.stroke_width(units(1.5) as u32);
        let size = f64::from(units(4.0));
        // Corners relative to the point, in units from factors of `size`.
        let scaled = |factors: &[(f64, f64)]| -> Vec<(i32, i32)> {
            factors
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
            1 => scaled(&[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]),
            2 => scaled(&[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)]),
            _ => scaled(&[(0.0, -1.1), (1.1, 0.9), (-1.1, 0.9)]),
        };
        let mut closed_outline = corners.clone();
        closed_outline.push(corners[0]);
        let mark = EmptyElement::at(point)
            + Polygon::new(corners, fill.filled())
            + PathElement::new(closed_outline, outline);
        self.context.draw_series([mark])?;
        Ok(())
    }

    /// Draws a cross, for a scheme that could not keep up.
    pub fn cross(&mut self, point: (f64, f64), look: Look) -> Result<(), Undrawn> {
        let style = look.colour.stroke_width(units(1.8) as u32);
        let reach = units(4.0);
        let stroke = |sign: i32| {
            PathElement::new(vec![(-reach, -reach * sign), (reach, reach * sign)], style)
        };
        self.context.draw_series([EmptyElement::at(point) + stroke(1) + stroke(-1)])?;
        Ok(())
    }

    /// Draws a vertical interval at `x`. At the ends of the axis it is cut off, without a cap.
    pub fn whisker(&mut self, x: f64, ends: (f64, f64), look: Look) -> Result<(), Undrawn> {
        let [x_axis, y_axis] = &self.axes;
        let ((low, high), (axis_low, axis_high)) = (ends, y_axis.ends());
        if high < axis_low || low > axis_high || !x_axis.holds(x) {
            return Ok(());
        }
        let style = look.colour.stroke_width(units(1.2) as u32);
        let cap = |y: f64| {
            EmptyElement::at((x, y))
                + PathElement::new(vec![(-units(3.0), 0), (units(3.0), 0)], style)
        };
        let stem = vec![(x, low.max(axis_low)), (x, high.min(axis_high))];
        self.context.draw_series([PathElement::new(stem, style)])?;
        let caps = [low, high].into_iter().filter(|end| (axis_low..=axis_high).contains(end));
        self.context.draw_series(caps.map(cap))?;
        Ok(())
    }

    /// Draws a horizontal interval at `y`. At the ends of the axis it is cut off, without a cap.
    pub fn bar_whisker(&mut self, y: f64, ends: (f64, f64), look: Look) -> Result<(), Undrawn> {
        let ((low, high), (axis_low, axis_high)) = (ends, self.axes[0].ends());
        if high < axis_low || low > axis_high {
            return Ok(());
        }
        let style = look.colour.stroke_width(units(1.2) as u32);
        let cap = |x: f64| {
            EmptyElement::at((x, y))
                + PathElement::new(vec![(0, -units(3.0)), (0, units(3.0))], style)
        };
        let stem = vec![(low.max(axis_low), y), (high.min(axis_high), y)];
        self.context.draw_series([PathElement::new(stem, style)])?;
        let caps = [low, high].into_iter().filter(|end| (axis_low..=axis_high).contains(end));
        self.context.draw_series(caps.map(cap))?;
        Ok(())
    }

    /// Writes text to the right of a point.
    pub fn text_after(
        &mut self,
        text: &str,
        point: (f64, f64),
        colour: RGBColor,
    ) -> Result<(), Undrawn> {
        let (x, y) = self.position(point);
        // A backdrop hides the grid behind the text.
        let (left, half_height) = (x + units(4.0), units(TEXT_SIZE * 0.6));
        let backdrop = [
            (left, y - half_height),
            (left + units(text_width(text, TEXT_SIZE) * 0.9), y + half_height),
        ];
        self.area.draw(&Rectangle::new(backdrop, PAPER.filled()))?;
        let style = text_style(TEXT_SIZE, colour).pos(anchored(HPos::Left));
        self.area.draw_text(text, &style, (x + units(6.0), y))
    }

    /// Draws a filled rectangle between two corners.
    pub fn block(
        &mut self,
        corners: [(f64, f64); 2],
        style: impl Into<ShapeStyle>,
    ) -> Result<(), Undrawn> {
        self.context.draw_series([Rectangle::new(corners, style)])?;
        Ok(())
    }

    /// Shows a text while the pointer is between two corners. `share`: see [`Hover::share`].
    pub fn hover(&self, corners: [(f64, f64); 2], text: String, share: Option<(f64, RGBColor)>) {
        let corners = corners.map(|corner| self.context.backend_coord(&corner));
        self.area.add_hover(Hover { corners, text, share });
    }

    /// Draws a line that joins the points.
    pub fn stroke(
        &mut self,
        points: &[(f64, f64)],
        style: impl Into<ShapeStyle>,
    ) -> Result<(), Undrawn> {
        self.context.draw_series([PathElement::new(points.to_vec(), style)])?;
        Ok(())
    }

    /// Draws a filled polygon.
    pub fn polygon(
        &mut self,
        corners: Vec<(f64, f64)>,
        style: impl Into<ShapeStyle>,
    ) -> Result<(), Undrawn> {
        self.context.draw_series([Polygon::new(corners, style)])?;
        Ok(())
    }

    /// Writes text into the plot, in a box of the background's colour. The middle of the text is at `point`.
    pub fn draw_boxed_text(&mut self, text: &str, point: (f64, f64)) -> Result<(), Undrawn> {
        const PADDING_X_PIXELS: f64 = 3.0;
        const PADDING_Y_PIXELS: f64 = 2.0;
        let (x, y) = self.position(point);
        let half_width = units(text_width(text, TEXT_SIZE) / 2.0 + PADDING_X_PIXELS);
        let half_height = units(TEXT_SIZE / 2.0 + PADDING_Y_PIXELS);
        let corners = [(x - half_width, y - half_height), (x + half_width, y + half_height)];
        self.area.draw(&Rectangle::new(corners, PAPER.filled()))?;
        self.area.draw_text(text, &text_style(TEXT_SIZE, INK).pos(anchored(HPos::Center)), (x, y))
    }

    /// Writes text into the plot. The middle of the text is at `point`, moved by a number of pixels to the right and
    /// down.
    pub fn centered_text(
        &mut self,
        text: &str,
        point: (f64, f64),
        [right, down]: [f64; 2],
        colour: RGBColor,
    ) -> Result<(), Undrawn> {
        let (x, y) = self.position(point);
        // Near an end of the plot, the text is moved until it is inside.
        let (half_width, plot) = (units(text_width(text, TEXT_SIZE) / 2.0), self.plot_ends());
        let x = (x + units(right)).min(plot.1 - half_width).max(plot.0 + half_width);
        let style = text_style(TEXT_SIZE, colour).pos(anchored(HPos::Center));
        self.area.draw_text(text, &style, (x, y + units(down)))
    }

    /// The value on the horizontal axis that is `pixels` to the right of the value `x`.
    pub fn moved_right(&self, x: f64, pixels: f64) -> f64 {
        let [axis, _] = &self.axes;
        axis.value_at(axis.share(x) + pixels / self.size().0)
    }

    /// Left and right end of the plot, in units from the left end of its area.
    fn plot_ends(&self) -> (i32, i32) {
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

    /// The position of a point, in units from the upper left corner of the area.
    fn position(&self, point: (f64, f64)) -> (i32, i32) {
        let (x, y) = self.context.backend_coord(&point);
        let (left, top) = self.area.get_base_pixel();
        (x - left, y - top)
    }

    /// The highest and the lowest position for the middle of a curve's label, in units from the upper end of the area.
    /// Labels stay beside the plot, away from the numbers below it, unless this number of labels has no room there.
    fn label_range(&self, labels: usize) -> (f64, f64) {
        let half_height = f64::from(units(TEXT_SIZE / 2.0));
        let (_, y) = self.context.plotting_area().get_pixel_range();
        let (_, top) = self.area.get_base_pixel();
        let (top, bottom) = (f64::from(y.start - top), f64::from(y.end - top));
        let beside_plot = (top + half_height, bottom - half_height);
        let needed = f64::from(units(LABEL_STEP)) * labels.saturating_sub(1) as f64;
        if needed <= beside_plot.1 - beside_plot.0 {
            return beside_plot;
        }
        let (_, area_height) = self.area.dim_in_pixel();
        (2.0 * half_height, f64::from(area_height) - 2.0 * half_height)
    }

    /// Writes the names of curves at the right of the plot, each with a line to the end of its curve. Moves names
    /// apart that would overlap.
    pub fn label_ends(&mut self, labels: &[Label]) -> Result<(), Undrawn> {
        let mut ends_of_curves: Vec<(&Label, (i32, i32))> =
            labels.iter().map(|label| (label, self.position(label.end))).collect();
        ends_of_curves.sort_by_key(|(_, (_, y))| *y);
        let preferred: Vec<f64> = ends_of_curves.iter().map(|(_, (_, y))| f64::from(*y)).collect();
        let heights =
            spread(&preferred, f64::from(units(LABEL_STEP)), self.label_range(labels.len()));
        let (_, right) = self.plot_ends();
        for ((label, (x, y)), height) in ends_of_curves.into_iter().zip(heights) {
            let label_left = right + units(LABEL_GAP);
            let height = height.round() as i32;
            let line = vec![(x.min(right) + units(5.0), y), (label_left - units(3.0), height)];
            let leader = label.colour.mix(0.6).stroke_width(units(1.0) as u32);
            self.area.draw(&PathElement::new(line, leader))?;
            let style = text_style(TEXT_SIZE, INK).pos(anchored(HPos::Left));
            self.area.draw_text(&shortened(&label.name), &style, (label_left, height))?;
        }
        Ok(())
    }
}

/// Positions near the `preferred` ones (ascending) that are at least `step` apart. The sum of the squared distances
/// from the preferred positions is minimal: neighbours that would overlap are pooled. Finally, all positions are
/// moved between `lowest` and `highest`, if there is room for them.
fn spread(preferred: &[f64], step: f64, (lowest, highest): (f64, f64)) -> Vec<f64> {
    // Groups of neighbours: the sum of their preferred positions minus their steps, and their number.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for (number, position) in preferred.iter().enumerate() {
        groups.push((position - step * number as f64, 1));
        while let [.., (previous_sum, previous_count), (sum, count)] = groups[..] {
            if previous_sum / previous_count as f64 <= sum / count as f64 {
                break;
            }
            let pooled = (previous_sum + sum, previous_count + count);
            groups.truncate(groups.len() - 2);
            groups.push(pooled);
        }
    }
    let means = groups.iter().flat_map(|(sum, count)| vec![sum / *count as f64; *count]);
    let positions = means.enumerate().map(|(number, mean)| mean + step * number as f64);
    let last_number = preferred.len().saturating_sub(1) as f64;
    let moved_inside = |(number, position): (usize, f64)| {
        let room_before = step * number as f64;
        let room_after = step * (last_number - number as f64);
        position.min(highest - room_after).max(lowest + room_before)
    };
    positions.enumerate().map(moved_inside).collect()
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
