//! The picture `profile`: the modes of the CPUs over the time of the window, stacked, each divided
//! into executing and waiting.

use plotters::style::{Color, RGBColor};
use record::Run;

use super::{panel_title, panel_titles, text};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::Chart;
use crate::picture::palette::{BLACK, BLUE, GREEN, GREY, ORANGE, PALE, PURPLE, SKY, VERMILION};
use crate::picture::rows;
use crate::picture::sheet::{Entry, Heading, Sheet, Undrawn, draw, units};
use crate::row::Row;

/// Height of a panel, pixels.
const PANEL_HEIGHT: f64 = 220.0;
/// Minimum width of a time slot, pixels. If there are more slots, neighbours are joined.
const SLOT_WIDTH_MIN: f64 = 2.5;

/// The part of a mode's time in a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All time of the mode. The table may lack the execution and the stalls of such a mode.
    All,
    Executes,
    /// Cycles without a retirement that wait for no memory: after mispredicted branches, and for dependences.
    Pipeline,
    WaitsForMemory,
}

/// Layers from the bottom: name, mode, part of the mode, colour.
const LAYERS: [(&str, &str, Part, RGBColor); 9] = [
    ("user executes", "user", Part::Executes, BLUE),
    ("user: branches, dependences", "user", Part::Pipeline, PURPLE),
    ("user waits for memory", "user", Part::WaitsForMemory, SKY),
    ("kernel executes", "kernel", Part::Executes, VERMILION),
    ("kernel: branches, dependences", "kernel", Part::Pipeline, GREY),
    ("kernel waits for memory", "kernel", Part::WaitsForMemory, ORANGE),
    ("kernel waits for locks", "sync", Part::All, GREEN),
    ("idle", "idle", Part::All, PALE),
    ("unknown", "unknown", Part::All, BLACK),
];

/// A time slot, with the share of its time in each layer.
struct Slot {
    start_ns: f64,
    length_ns: f64,
    layers: [f64; LAYERS.len()],
}

/// The slots of a machine, each with the mean shares of its time. If there are more than `slots_max`, neighbours are
/// joined. `rows`: sorted by start, a row for each mode of a slot. The layers of a mode add up to its whole time.
fn slots_of(rows: &[Row<'_>], slots_max: usize) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    for row in rows {
        let number = |column: &str| row.number(column).unwrap_or(0.0);
        let (start_ns, length_ns) = (number("start_ns"), number("length_ns"));
        if slots.last().is_none_or(|last| last.start_ns < start_ns) {
            slots.push(Slot { start_ns, length_ns, layers: [0.0; LAYERS.len()] });
        }
        let Some(slot) = slots.last_mut() else { continue };
        let time_ratio = number("time_ratio");
        let execution_ratio = number("execution_ratio").min(time_ratio);
        let pipeline_ratio = number("pipeline_stall_ratio").min(time_ratio - execution_ratio);
        let mode = text(row, "mode");
        for (layer, (_, layer_mode, part, _)) in slot.layers.iter_mut().zip(LAYERS) {
            if layer_mode == mode {
                *layer += match part {
                    Part::All => time_ratio,
                    Part::Executes => execution_ratio,
                    Part::Pipeline => pipeline_ratio,
                    Part::WaitsForMemory => time_ratio - execution_ratio - pipeline_ratio,
                };
            }
        }
    }
    let slots_per_mean = slots.len().div_ceil(slots_max.max(1)).max(1);
    let mean = |neighbours: &[Slot]| {
        let length_ns: f64 = neighbours.iter().map(|slot| slot.length_ns).sum();
        let layers = std::array::from_fn(|layer| {
            let sum: f64 = neighbours.iter().map(|slot| slot.layers[layer] * slot.length_ns).sum();
            sum / length_ns.max(1e-9)
        });
        Slot { start_ns: neighbours[0].start_ns, length_ns, layers }
    };
    slots.chunks(slots_per_mean).map(mean).collect()
}

/// The picture of table `profile`. `None` for a run without times of a profile.
pub fn profile(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("profile").filter(|table| table.column("start_ns").is_some())
    else {
        return Ok(None);
    };
    let (titles, not_drawn) = panel_titles(table);
    let slots_max = ((width - 140.0) / SLOT_WIDTH_MIN) as usize;
    let panels: Vec<(String, Vec<Slot>)> = titles
        .into_iter()
        .map(|title| {
            let machine_rows: Vec<Row<'_>> =
                rows(table).filter(|row| panel_title(row) == title).collect();
            (title, slots_of(&machine_rows, slots_max))
        })
        .filter(|(_, slots)| !slots.is_empty())
        .collect();
    if panels.is_empty() {
        return Ok(None);
    }
    let is_drawn = |layer: &usize| {
        panels.iter().any(|(_, slots)| slots.iter().any(|slot| slot.layers[*layer] > 1e-6))
    };
    let legend = (0..LAYERS.len()).filter(is_drawn).map(|layer| {
        let (name, _, _, colour) = LAYERS[layer];
        Entry { name: name.to_owned(), colour }
    });
    let mut notes = vec![
        "Shares of the time of all CPUs. Branches, dependences: cycles that are lost after mispredicted branches, \
         and while instructions wait for each other or for a unit."
            .to_owned(),
    ];
    notes.extend(not_drawn);
    let heading = Heading {
        title: "What the processors do over time".to_owned(),
        notes,
        legend: legend.collect(),
        description: "Shares of user mode, kernel and idle time over the time of the window, on top of each other. \
                      The numbers are in table profile of the run."
            .to_owned(),
    };
    let height = PANEL_HEIGHT * panels.len() as f64;
    let sheet = draw(&heading, width, height, |area| {
        let mut top = 0.0;
        for (title, slots) in &panels {
            let panel_area =
                area.part((0, units(top)), (units(width) as u32, units(PANEL_HEIGHT) as u32));
            top += PANEL_HEIGHT;
            let end = slots.last().map_or(1.0, |slot| slot.start_ns + slot.length_ns);
            let x = Axis::linear_to("time since the window opened", Quantity::Time, end);
            let y = Axis::linear_between("share of the time", Quantity::Share, 0.0, 1.0);
            let mut chart = Chart::new(&panel_area, title, [&x, &y], 22.0)?;
            for slot in slots {
                let mut bottom = 0.0;
                for (share, (.., colour)) in slot.layers.iter().zip(LAYERS) {
                    let layer_top = (bottom + share).min(1.0);
                    if layer_top > bottom {
                        let right = (slot.start_ns + slot.length_ns).min(end);
                        let corners = [(slot.start_ns, bottom), (right, layer_top)];
                        chart.block(corners, colour.filled())?;
                    }
                    bottom = layer_top;
                }
            }
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}
