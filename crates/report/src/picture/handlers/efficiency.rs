//! The picture `efficiency` of `handlers`: instructions per cycle and miss ratios of each context, a panel of bars
//! for each measure.

use record::{Run, Table};

use super::{all_conditions, context, largest, left_out, not_drawn};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::bars::{Bar, OWN_SCALES, Room, draw_bars, longest_bar, shared_maximum};
use crate::picture::palette::{BLUE, VERMILION};
use crate::picture::rows;
use crate::picture::sheet::{
    Heading, NARROW_BELOW, Sheet, Undrawn, draw, units, without_shared_parts,
};
use crate::row::Row;
use crate::winner::{Extreme, Figure, candidates};

/// Maximum number of contexts of a panel.
const CONTEXTS_MAX: usize = 8;

const IPC_COLUMN: &str = "instructions_per_cycle";
/// Columns of table `ratios`, with the titles of their panels. The first is not a share.
const MEASURES: [(&str, &str); 7] = [
    (IPC_COLUMN, "instructions per cycle (IPC)"),
    ("l1i_miss_ratio", "L1I misses, of its accesses"),
    ("l1d_miss_ratio", "L1D misses, of its accesses"),
    ("llc_miss_ratio", "LLC misses, of its accesses"),
    ("branch_miss_ratio", "mispredicted, of branches"),
    ("itlb_miss_ratio", "ITLB misses, of its accesses"),
    ("dtlb_miss_ratio", "DTLB misses, of its accesses"),
];

/// The conditions of the picture, each with the parts of its name that tell it from the others.
struct Conditions(Vec<(String, String)>);

impl Conditions {
    fn new(names: &[String]) -> Conditions {
        let texts: Vec<&str> = names.iter().map(String::as_str).collect();
        Conditions(names.iter().cloned().zip(without_shared_parts(&texts)).collect())
    }

    /// A context's name. If the picture has several conditions, the name starts with the condition.
    fn name_of_context(&self, row: &Row<'_>) -> String {
        if self.0.len() == 1 {
            return context(row);
        }
        let condition = row.value_text("condition");
        let short = self.0.iter().find(|(name, _)| *name == condition).map(|(_, short)| short);
        format!("{}: {}", short.unwrap_or(&condition), context(row))
    }
}

/// The bar of a context in the panel of a column. `None` if the column has no value for it.
fn bar(row: &Row<'_>, column: &str, conditions: &Conditions) -> Option<Bar> {
    let value = row.number(column).filter(|value| *value >= 0.0)?;
    let half_width = row.number(&format!("{column}_ci95"));
    let is_share = is_share(column);
    let label = if is_share { human::percent(value) } else { human::number(value) };
    let colour = if is_share { VERMILION } else { BLUE };
    Some(Bar {
        name: conditions.name_of_context(row),
        parts: vec![(value, colour)],
        interval: half_width.map(|half| ((value - half).max(0.0), value + half)),
        label,
        detail: String::new(),
    })
}

/// The context with the lowest IPC, and its IPC as text. `None` if the errors allow another context to be lowest, or if a context
/// has no IPC.
fn lowest_ipc(table: &Table, conditions: &Conditions) -> Option<(String, String)> {
    let ipc = |row: &Row<'_>| {
        let value = row.number(IPC_COLUMN).filter(|value| *value >= 0.0)?;
        Some(Figure::with_interval(value, row.number(&format!("{IPC_COLUMN}_ci95"))))
    };
    if rows(table).any(|row| ipc(&row).is_none()) {
        return None;
    }
    let (figures, measured_rows): (Vec<Figure>, Vec<Row<'_>>) =
        rows(table).filter_map(|row| Some((ipc(&row)?, row))).unzip();
    let [lowest] = candidates(&figures, Extreme::Smallest)[..] else { return None };
    let name = conditions.name_of_context(&measured_rows[lowest]);
    Some((name, human::number(figures[lowest].value)))
}

/// The title. `has_ipc`: whether the picture has a panel of instructions per cycle.
fn title(table: &Table, conditions: &Conditions, has_ipc: bool) -> String {
    let subject = match lowest_ipc(table, conditions) {
        Some((name, ipc)) => format!("{name} has the lowest IPC ({ipc})"),
        None if has_ipc => "instructions per cycle and miss ratios".to_owned(),
        None => "miss ratios".to_owned(),
    };
    format!("How well each context runs: {subject}")
}

/// A note about the contexts that are not drawn. Contexts follow in the order of conditions, so those at the end
/// have the lowest cost, but only if the run has one condition.
fn undrawn_note(undrawn_count: usize, conditions: &Conditions) -> Option<String> {
    match conditions.0.len() {
        1 => left_out(0, undrawn_count, "ratios"),
        _ => not_drawn(&[(undrawn_count, "contexts")], "ratios"),
    }
}

/// The names of the contexts, by condition and then by cost, the costliest first, as in the picture `costs`.
/// Empty without the table of costs.
fn names_by_cost(run: &Run, conditions: &[String], in_picture: &Conditions) -> Vec<String> {
    let Some(costs) = run.table("handlers") else { return Vec::new() };
    let rows_by_cost = |condition: &String| largest(costs, condition, "self_total_ns");
    conditions.iter().flat_map(rows_by_cost).map(|row| in_picture.name_of_context(&row)).collect()
}

/// A panel of the picture: one measure.
struct Panel {
    /// The column of table `ratios`.
    column: &'static str,
    title: &'static str,
    /// One for each context that has the measure, [`CONTEXTS_MAX`] at most.
    bars: Vec<Bar>,
}

impl Panel {
    /// The panels of the measures that have a bar, and how many contexts the fullest measure has beyond
    /// [`CONTEXTS_MAX`]. The bars follow `names_by_cost`.
    fn of_measures(
        table: &Table,
        conditions: &Conditions,
        names_by_cost: &[String],
    ) -> (Vec<Panel>, usize) {
        let rank = |name: &String| {
            names_by_cost.iter().position(|known| known == name).unwrap_or(usize::MAX)
        };
        let (mut panels, mut undrawn_count) = (Vec::new(), 0);
        for (column, title) in MEASURES {
            let mut bars: Vec<Bar> =
                rows(table).filter_map(|row| bar(&row, column, conditions)).collect();
            bars.sort_by_key(|bar| rank(&bar.name));
            undrawn_count = undrawn_count.max(bars.len().saturating_sub(CONTEXTS_MAX));
            bars.truncate(CONTEXTS_MAX);
            if !bars.is_empty() {
                panels.push(Panel { column, title, bars });
            }
        }
        (panels, undrawn_count)
    }

    /// The horizontal axis: up to `ratio_maximum` if the panel shows shares and there is such a maximum,
    /// else up to the longest bar.
    fn axis(&self, ratio_maximum: Option<f64>) -> Axis {
        let is_share = is_share(self.column);
        let maximum = ratio_maximum.filter(|_| is_share).unwrap_or_else(|| longest_bar(&self.bars));
        let quantity = if is_share { Quantity::Share } else { Quantity::Count };
        Axis::linear("", quantity, 0.0, maximum)
    }
}

/// Draws the panels, one or two a line by `width`. `ratio_maximum`: see [`Panel::axis`].
fn draw_panels(
    heading: &Heading,
    panels: &[Panel],
    ratio_maximum: Option<f64>,
    width: f64,
) -> Result<Sheet, Undrawn> {
    let columns = if width < NARROW_BELOW { 1 } else { 2 };
    let panel_width = width / columns as f64;
    let titles = panels.iter().map(|panel| panel.title);
    let room = Room::for_panels(titles, panels.iter().flat_map(|panel| &panel.bars), panel_width);
    let height_of = |panel: &Panel| room.height(panel.title, panel.bars.len());
    let line_heights: Vec<f64> =
        panels.chunks(columns).map(|line| line.iter().map(height_of).fold(0.0, f64::max)).collect();
    draw(heading, width, line_heights.iter().sum(), |area| {
        let mut top = 0.0;
        for (line, line_height) in panels.chunks(columns).zip(&line_heights) {
            for (index, panel) in line.iter().enumerate() {
                let panel_area = area.part(
                    (units(panel_width * index as f64), units(top)),
                    (units(panel_width) as u32, units(height_of(panel)) as u32),
                );
                let axis = panel.axis(ratio_maximum);
                draw_bars(&panel_area, panel.title, &panel.bars, room, axis)?;
            }
            top += line_height;
        }
        Ok(())
    })
}

/// The picture of table `ratios`. `None` for a run without counters.
pub fn efficiency(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("ratios") else { return Ok(None) };
    let conditions = all_conditions(table);
    let in_picture = Conditions::new(&conditions);
    let names_by_cost = names_by_cost(run, &conditions, &in_picture);
    let (panels, undrawn_count) = Panel::of_measures(table, &in_picture, &names_by_cost);
    if panels.is_empty() {
        return Ok(None);
    }
    // All shares have one scale. Instructions per cycle have another unit.
    let panels_of_ratios = panels.iter().filter(|panel| is_share(panel.column));
    let ratio_maximum = shared_maximum(panels_of_ratios.map(|panel| longest_bar(&panel.bars)));
    let mut notes = vec!["Whiskers: 95 % intervals, where the run has them.".to_owned()];
    notes.extend(ratio_maximum.is_none().then(|| OWN_SCALES.to_owned()));
    notes.extend(undrawn_note(undrawn_count, &in_picture));
    let has_ipc = panels.iter().any(|panel| panel.column == IPC_COLUMN);
    let heading = Heading {
        title: title(table, &in_picture, has_ipc),
        notes,
        description:
            "Panels of bars, one for each context: instructions per cycle and miss ratios. The \
                      numbers are in table ratios of the run."
                .to_owned(),
        ..Heading::default()
    };
    draw_panels(&heading, &panels, ratio_maximum, width).map(Some)
}

/// Whether the numbers of a column are shares.
fn is_share(column: &str) -> bool {
    column.ends_with("_ratio")
}
