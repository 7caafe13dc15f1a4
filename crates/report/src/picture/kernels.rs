//! The picture of `bench model` and `machines fit`: cycles of each kernel in the model over its cycles on the real
//! processor. A bar for each kernel, by group, on a logarithmic scale, in two columns on a wide sheet. It draws its
//! text itself, because a chart with an axis has no room for this many names.

use plotters::element::{PathElement, Rectangle};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, RGBColor};
use record::{Run, Table};

use super::palette::{BLUE, GRID, INK, SOFT_INK, VERMILION};
use super::rows;
use super::sheet::{
    Area, Entry, Heading, NARROW_BELOW, SUBTITLE_SIZE, Sheet, Undrawn, anchored, bold, draw,
    shortened, text_style, units,
};

/// Columns of a wide sheet.
const COLUMNS: usize = 2;
/// Height of a kernel's row, pixels.
const ROW_HEIGHT: f64 = 13.0;
/// Font size of a kernel's row, pixels.
const ROW_TEXT_SIZE: f64 = 9.5;
/// Height of a group's title, pixels.
const TITLE_HEIGHT: f64 = 28.0;
/// Room for names at the left of a column, pixels.
const NAME_WIDTH: f64 = 140.0;
/// Room for numbers at the right of a column, pixels.
const NUMBER_WIDTH: f64 = 52.0;
/// Room at both sides of the sheet, pixels.
const MARGIN: f64 = 16.0;
/// Distance between columns, pixels.
const GAP: f64 = 24.0;
/// Bars beyond this ratio or its inverse are cut off. The number after the bar is not.
const RATIO_MAX: f64 = 4.0;
/// Ratios at which the grid has lines.
const GRID_RATIOS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// Maximum number of kernels that are drawn.
const KERNELS_MAX: usize = 1000;

/// A line of a column: the title of a group with its mean error factor, or a kernel.
enum Line {
    Group { name: String, mean: Option<f64> },
    Kernel { name: String, ratio: f64 },
}

impl Line {
    fn height(&self) -> f64 {
        match self {
            Line::Group { .. } => TITLE_HEIGHT,
            Line::Kernel { .. } => ROW_HEIGHT,
        }
    }
}

/// The picture of the tables `kernels` and `groups` of a comparison. `None` for a run without a comparison.
pub fn kernels(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(kernels) = run.table("kernels").filter(|table| table.column("ratio").is_some()) else {
        return Ok(None);
    };
    let lines = lines_of(kernels, run.table("groups"));
    if lines.is_empty() {
        return Ok(None);
    }
    let column_count = if width < NARROW_BELOW { 1 } else { COLUMNS };
    let columns = columns(&lines, column_count);
    let gaps = GAP * (column_count - 1) as f64;
    let column_width = (width - 2.0 * MARGIN - gaps) / column_count as f64;
    let height = |column: &&[Line]| column.iter().map(Line::height).sum::<f64>();
    let height_max = columns.iter().map(height).fold(0.0, f64::max);
    let heading = Heading {
        title: "The model's cycles over the processor's, kernel by kernel".to_owned(),
        notes: vec![format!(
            "Logarithmic, from 1/{RATIO_MAX} to {RATIO_MAX}; bars beyond are cut off. Lines: 1/4, 1/2, 1, 2, 4. \
             Next to a group's name: the mean error factor."
        )],
        legend: [("the model is too slow", VERMILION), ("the model is too fast", BLUE)]
            .map(|(name, colour)| Entry { name: name.to_owned(), colour })
            .into(),
        description:
            "The ratio of cycles of each kernel, by group. The numbers are in table kernels \
                      of the run."
                .to_owned(),
    };
    let sheet = draw(&heading, width, height_max + 12.0, |area| {
        for (index, lines) in columns.iter().enumerate() {
            let column_left = MARGIN + (column_width + GAP) * index as f64;
            draw_column(area, column_left, column_width, lines)?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// The kernels with a ratio, each group after its title.
fn lines_of(kernels: &Table, groups: Option<&Table>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut last_group = None;
    for row in rows(kernels).take(KERNELS_MAX) {
        let ratio = row.number("ratio").filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        let Some(ratio) = ratio else { continue };
        let group = row.value_text("group");
        if last_group.as_ref() != Some(&group) {
            let is_group = |row: &super::Row<'_>| row.value_text("group") == group;
            let group_row = groups.into_iter().flat_map(rows).find(is_group);
            let mean = group_row.and_then(|row| row.number("mean_error_factor"));
            lines.push(Line::Group { name: group.clone(), mean });
            last_group = Some(group);
        }
        lines.push(Line::Kernel { name: row.value_text("kernel"), ratio });
    }
    lines
}

/// Divides the lines into `column_count` columns of about equal height. No column ends with the title of a group.
fn columns(lines: &[Line], column_count: usize) -> Vec<&[Line]> {
    let total_height: f64 = lines.iter().map(Line::height).sum();
    let (mut columns, mut remaining) = (Vec::new(), lines);
    for columns_left in (1..=column_count).rev() {
        let mut height = 0.0;
        let mut fitting = remaining.iter().take_while(|line| {
            height += line.height();
            height <= total_height / column_count as f64 + TITLE_HEIGHT
        });
        let mut count = if columns_left == 1 { remaining.len() } else { fitting.by_ref().count() };
        while count > 1
            && count < remaining.len()
            && matches!(remaining[count - 1], Line::Group { .. })
        {
            count -= 1;
        }
        let (column, further) = remaining.split_at(count);
        if !column.is_empty() {
            columns.push(column);
        }
        remaining = further;
    }
    columns
}

/// Draws the lines of a column, from the top of the area down. Names are right-aligned before the bars, numbers after them.
/// `left` and `column_width`: the column's place, pixels.
fn draw_column(
    area: &Area<'_>,
    left: f64,
    column_width: f64,
    lines: &[Line],
) -> Result<(), Undrawn> {
    let right = left + column_width;
    let (bars_left, bars_right) = (left + NAME_WIDTH, right - NUMBER_WIDTH);
    let bar_x = |ratio: f64| {
        let share = (ratio.ln() / RATIO_MAX.ln()).clamp(-1.0, 1.0);
        f64::midpoint(bars_left, bars_right) + share * (bars_right - bars_left) / 2.0
    };
    let text = |label: &str, size: f64, colour: RGBColor, anchor: HPos, x: f64, y: f64| {
        area.draw_text(label, &text_style(size, colour).pos(anchored(anchor)), (units(x), units(y)))
    };
    let mut top = 0.0;
    for line in lines {
        match line {
            Line::Group { name, mean } => {
                let base = top + TITLE_HEIGHT - 9.0;
                area.draw_text(
                    &shortened(name),
                    &bold(SUBTITLE_SIZE, INK).pos(anchored(HPos::Left)),
                    (units(left), units(base)),
                )?;
                if let Some(mean) = mean {
                    let mean_text = format!("{mean:.2}");
                    text(&mean_text, SUBTITLE_SIZE, SOFT_INK, HPos::Right, right, base)?;
                }
            }
            Line::Kernel { name, ratio } => {
                let middle = top + ROW_HEIGHT / 2.0;
                for grid_ratio in GRID_RATIOS {
                    let x = units(bar_x(grid_ratio));
                    let ends = vec![(x, units(top)), (x, units(top + ROW_HEIGHT))];
                    let colour = if grid_ratio == 1.0 { SOFT_INK } else { GRID };
                    area.draw(&PathElement::new(ends, colour.stroke_width(units(0.5) as u32)))?;
                }
                text(&shortened(name), ROW_TEXT_SIZE, INK, HPos::Right, bars_left - 6.0, middle)?;
                let (start, end) = (bar_x(ratio.min(1.0)), bar_x(ratio.max(1.0)));
                let bar_colour = if *ratio > 1.0 { VERMILION } else { BLUE };
                let corners = [
                    (units(start), units(middle - 3.0)),
                    (units(end.max(start + 0.75)), units(middle + 3.0)),
                ];
                area.draw(&Rectangle::new(corners, bar_colour.filled()))?;
                let ratio_text = ratio_text(*ratio);
                text(&ratio_text, ROW_TEXT_SIZE, SOFT_INK, HPos::Right, right, middle)?;
            }
        }
        top += line.height();
    }
    Ok(())
}

/// The number after a bar, with about three digits.
fn ratio_text(ratio: f64) -> String {
    if ratio < 0.1 {
        format!("{ratio:.3}")
    } else if ratio >= 10.0 {
        format!("{ratio:.0}")
    } else {
        format!("{ratio:.2}")
    }
}

#[cfg(test)]
mod tests {
    use record::{Kind, Value};

    use super::super::sheet::WIDTH;
    use super::super::tests::{golden, run_of, table};
    use super::*;

    fn run(kernels: usize) -> Run {
        let columns = [("group", Kind::Text), ("kernel", Kind::Text), ("ratio", Kind::Real)];
        let row = |index: usize| {
            let group = if index < kernels / 3 { "arithmetic" } else { "system" };
            vec![
                group.into(),
                format!("k{index}").as_str().into(),
                Value::Real(0.01 * (index + 1) as f64),
            ]
        };
        let means = [("group", Kind::Text), ("mean_error_factor", Kind::Real)];
        let groups = vec![vec!["arithmetic".into(), 1.25.into()]];
        run_of(vec![
            table("kernels", &columns, (0..kernels).map(row).collect()),
            table("groups", &means, groups),
        ])
    }

    #[test]
    fn each_kernel_has_its_bar_its_name_and_its_number() {
        golden("kernels", kernels(&run(40), WIDTH));
    }

    #[test]
    fn a_run_without_a_comparison_has_no_picture() {
        assert_eq!(kernels(&run(0), WIDTH).unwrap(), None);
        let plain = table("kernels", &[("kernel", Kind::Text)], vec![vec!["k".into()]]);
        assert_eq!(kernels(&run_of(vec![plain]), WIDTH).unwrap(), None);
        assert_eq!(kernels(&run_of(vec![]), WIDTH).unwrap(), None);
    }
}
