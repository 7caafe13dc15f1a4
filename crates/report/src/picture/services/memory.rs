//! The pictures `mcpi` and `hidden` of `reproduce simos-1995`: memory stall cycles per instruction (MCPI) by machine,
//! and the stall cycles that an out-of-order core hides. A panel of bars for each workload.

use plotters::style::RGBColor;
use record::{Run, Table};

use super::{LegendPart, distinct, legend, sum_text, text};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::bars::{Bar, draw_panels};
use crate::picture::palette::{BLUE, GREEN, GREY, ORANGE, PALE, PURPLE, SKY, VERMILION};
use crate::picture::rows;
use crate::picture::sheet::{Heading, Sheet, Undrawn};
use crate::row::Row;

/// The streams of accesses, each with the colours of waits for L1, for L2, and for all levels if single levels are not
/// known.
const STREAMS: [(&str, [RGBColor; 3]); 2] =
    [("instructions", [ORANGE, VERMILION, PURPLE]), ("data", [SKY, BLUE, GREEN])];
const OTHER: RGBColor = GREY;
/// The entries of the legend of `mcpi`.
const PARTS: [LegendPart; 7] = [
    ("instructions, L1", ORANGE),
    ("instructions, L2", VERMILION),
    ("instructions, all levels", PURPLE),
    ("data, L1", SKY),
    ("data, L2", BLUE),
    ("data, all levels", GREEN),
    ("page walks, devices", OTHER),
];
/// The entries of the legend of `hidden`.
const HIDDEN: [LegendPart; 3] =
    [("waits for instructions", VERMILION), ("waits for data", BLUE), ("hidden", PALE)];

/// The panels: for each workload, its name and its bars. `name` returns the name of a row's bar. `bar` makes the bar
/// from all rows with this name.
fn panels(
    table: &Table,
    name: impl Fn(&Row<'_>) -> String,
    bar: impl Fn(&[Row<'_>], &str) -> Bar,
) -> Vec<(String, Vec<Bar>)> {
    let workloads = distinct(rows(table).map(|row| text(&row, "workload")));
    let panel = |workload: String| {
        let workload_rows: Vec<Row<'_>> =
            rows(table).filter(|row| text(row, "workload") == workload).collect();
        let names = distinct(workload_rows.iter().map(&name));
        let bars = names.iter().map(|bar_name| {
            let bar_rows: Vec<Row<'_>> =
                workload_rows.iter().filter(|row| name(row) == *bar_name).copied().collect();
            bar(&bar_rows, bar_name)
        });
        let bars = bars.collect();
        (workload, bars)
    };
    workloads.into_iter().map(panel).collect()
}

/// The bar of a machine and mode: the stalls of both streams, by level.
fn stalls(rows: &[Row<'_>], name: &str) -> Bar {
    let mut parts = Vec::new();
    // `None` while no row has waits for other levels.
    let mut other_levels: Option<f64> = None;
    let mut is_known = true;
    for (stream, [l1, l2, all]) in STREAMS {
        let Some(row) = rows.iter().find(|row| text(row, "stream") == stream) else { continue };
        let number = |column: &str| row.number(column);
        match (number("l1_mcpi_ratio"), number("l2_mcpi_ratio")) {
            (Some(first), Some(second)) => {
                parts.extend([(first, l1), (second, l2)]);
                if let Some(other) = number("other_mcpi_ratio") {
                    other_levels = Some(other_levels.unwrap_or(0.0) + other);
                }
            }
            _ => match number("mcpi_ratio") {
                Some(mcpi) => parts.push((mcpi, all)),
                None => is_known = false,
            },
        }
    }
    parts.extend(other_levels.map(|length| (length, OTHER)));
    let label = sum_text(&parts, is_known);
    Bar { name: name.to_owned(), parts, interval: None, label, detail: String::new() }
}

/// The picture of table `mcpi`. `None` for a run without this table.
pub fn mcpi(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("mcpi") else { return Ok(None) };
    let name = |row: &Row<'_>| format!("{}, {}", text(row, "model"), text(row, "mode"));
    let panels = panels(table, name, stalls);
    if panels.is_empty() {
        return Ok(None);
    }
    let heading = Heading {
        title: "Cycles that an instruction waits for memory".to_owned(),
        notes: vec![
            "Idle time is left out. Where a core overlaps misses, a cycle is not the wait for one level."
                .to_owned(),
        ],
        legend: legend(&PARTS, &panels),
        description: "A bar for kernel and user mode of each machine and workload, divided by what is waited \
                      for. The numbers are in table mcpi of the run."
            .to_owned(),
    };
    draw_panels(&heading, width, &panels, axis).map(Some)
}

fn axis(longest: f64) -> Axis {
    Axis::linear("cycles per instruction", Quantity::Count, 0.0, longest)
}

/// The bar of a stream. It has the stalls that remain on the out-of-order core, and the stalls that the core hides.
fn left_and_hidden(rows: &[Row<'_>], name: &str) -> Bar {
    let row = rows.first();
    let number = |column: &str| row.and_then(|row| row.number(column));
    let is_data = row.is_some_and(|row| text(row, "stream") == "data");
    let colour = if is_data { BLUE } else { VERMILION };
    let mut parts = Vec::new();
    if let Some(out_of_order) = number("mcpi_ratio") {
        parts.push((out_of_order, colour));
        let in_order = number("in_order_mcpi_ratio");
        parts.extend(in_order.map(|in_order| ((in_order - out_of_order).max(0.0), PALE)));
    }
    let hidden = row.and_then(|row| row.number("hidden_ratio"));
    let label = match hidden {
        None if parts.is_empty() => human::ABSENT.to_owned(),
        None => String::new(),
        Some(hidden) if hidden >= 0.0 => format!("{} hidden", human::percent(hidden)),
        Some(hidden) => format!("{} more than in order", human::percent(-hidden)),
    };
    Bar { name: name.to_owned(), parts, interval: None, label, detail: String::new() }
}

/// The picture of table `hidden_stalls`. `None` for a run without this table.
pub fn hidden(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("hidden_stalls") else { return Ok(None) };
    let name = |row: &Row<'_>| {
        format!("{} {}, {}", text(row, "model"), text(row, "mode"), text(row, "stream"))
    };
    let panels = panels(table, name, left_and_hidden);
    if panels.is_empty() {
        return Ok(None);
    }
    let heading = Heading {
        title: "Waits for memory that an out-of-order core hides".to_owned(),
        notes: vec![
            "Compared with the in-order core of the first machine with the same caches and memory.".to_owned(),
        ],
        legend: legend(&HIDDEN, &panels),
        description: "A bar for each stream of a machine: what is left of the waits, and what is hidden. The \
                      numbers are in table hidden_stalls of the run."
            .to_owned(),
    };
    draw_panels(&heading, width, &panels, axis).map(Some)
}
