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
fn dropped_note(dropped: usize, conditions: &Conditions) -> Option<String> {
    match conditions.0.len() {
        1 => left_out(0, dropped, "ratios"),
        _ => not_drawn(&[(dropped, "contexts")], "ratios"),
    }
}

/// The picture of table `ratios`. `None` for a run without counters.
pub fn efficiency(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("ratios") else { return Ok(None) };
    let conditions = all_conditions(table);
    let in_picture = Conditions::new(&conditions);
    // Contexts are in the order of their costs, the costliest first, as in the picture `costs`.
    let handlers = run.table("handlers");
    let order: Vec<String> = handlers.map_or(Vec::new(), |handlers| {
        let by_cost = |condition: &String| largest(handlers, condition, "self_total_ns");
        conditions.iter().flat_map(by_cost).map(|row| in_picture.name_of_context(&row)).collect()
    });
    let rank =
        |name: &String| order.iter().position(|ordered| ordered == name).unwrap_or(usize::MAX);
    let (mut panels, mut dropped) = (Vec::new(), 0);
    for (column, title) in MEASURES {
        let mut bars: Vec<Bar> =
            rows(table).filter_map(|row| bar(&row, column, &in_picture)).collect();
        bars.sort_by_key(|bar| rank(&bar.name));
        dropped = dropped.max(bars.len().saturating_sub(CONTEXTS_MAX));
        bars.truncate(CONTEXTS_MAX);
        if !bars.is_empty() {
            panels.push((column, title, bars));
        }
    }
    if panels.is_empty() {
        return Ok(None);
    }
    // All shares have one scale. Instructions per cycle have another unit.
    let ratio_maxima =
        panels.iter().filter(|(column, ..)| is_share(column)).map(|(.., bars)| longest_bar(bars));
    let shared_ratio = shared_maximum(ratio_maxima);
    let mut notes = vec!["Whiskers: 95 % intervals, where the run has them.".to_owned()];
    notes.extend(shared_ratio.is_none().then(|| OWN_SCALES.to_owned()));
    notes.extend(dropped_note(dropped, &in_picture));
    let has_ipc = panels.iter().any(|(column, ..)| *column == MEASURES[0].0);
    let heading = Heading {
        title: title(table, &in_picture, has_ipc),
        notes,
        description:
            "Panels of bars, one for each context: instructions per cycle and miss ratios. The \
                      numbers are in table ratios of the run."
                .to_owned(),
        ..Heading::default()
    };
    let columns = if width < NARROW_BELOW { 1 } else { 2 };
    let panel_width = width / columns as f64;
    let titles = panels.iter().map(|(_, title, _)| *title);
    let bars = panels.iter().flat_map(|(.., bars)| bars);
    let room = Room::for_panels(titles, bars, panel_width);
    let panel_height = |(_, title, bars): &(_, &str, Vec<Bar>)| room.height(title, bars.len());
    let heights: Vec<f64> = panels
        .chunks(columns)
        .map(|line| line.iter().map(panel_height).fold(0.0, f64::max))
        .collect();
    let sheet = draw(&heading, width, heights.iter().sum(), |area| {
        let mut top = 0.0;
        for (line, line_height) in panels.chunks(columns).zip(&heights) {
            for (index, panel) in line.iter().enumerate() {
                let (column, title, bars) = panel;
                let part = area.part(
                    (units(panel_width * index as f64), units(top)),
                    (units(panel_width) as u32, units(panel_height(panel)) as u32),
                );
                let longest = match shared_ratio {
                    Some(shared) if is_share(column) => shared,
                    _ => longest_bar(bars),
                };
                draw_bars(&part, title, bars, room, axis(column, longest))?;
            }
            top += line_height;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// Whether the numbers of a column are shares.
fn is_share(column: &str) -> bool {
    column.ends_with("_ratio")
}

/// The horizontal axis of a column's panel, up to the longest bar.
fn axis(column: &str, longest: f64) -> Axis {
    let quantity = if is_share(column) { Quantity::Share } else { Quantity::Count };
    Axis::linear("", quantity, 0.0, longest)
}
