//! The picture `execution` of `reproduce simos-1995`: the time for equal work on each machine, a bar for each. The
//! bars are divided by mode, and into executing and waiting.

use plotters::style::RGBColor;
use record::{Run, Table};

use super::{LegendPart, distinct, legend, sum_text, text};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::bars::{Bar, draw_panels};
use crate::picture::palette::{BLUE, GREEN, ORANGE, PALE, SKY, VERMILION};
use crate::picture::rows;
use crate::picture::sheet::{Heading, Sheet, Undrawn};
use crate::row::Row;

/// Modes with the colours of executing and of waiting in them.
const MODES: [(&str, RGBColor, RGBColor); 2] = [("user", BLUE, SKY), ("kernel", VERMILION, ORANGE)];
const IDLE: RGBColor = PALE;
/// The entries of the legend, without waits for locks.
const PARTS: [LegendPart; 5] = [
    ("user executes", BLUE),
    ("user waits", SKY),
    ("kernel executes", VERMILION),
    ("kernel waits", ORANGE),
    ("idle", IDLE),
];
/// Waits for locks are drawn only if they are longer than this.
const LOCK_WAITS_MIN: f64 = 1e-9;
/// Colour of waits for locks, the mode `sync`.
const LOCK_WAITS: RGBColor = GREEN;

/// The bar of a machine. `column`: the column with the lengths of its parts.
fn bar(table: &Table, workload: &str, model: &str, column: &str) -> Bar {
    let row_of = |mode: &str| {
        rows(table).find(|row| {
            text(row, "workload") == workload
                && text(row, "model") == model
                && text(row, "mode") == mode
        })
    };
    let length = |row: &Row<'_>| row.number(column).unwrap_or(0.0).max(0.0);
    let modes = MODES.iter().map(|(mode, ..)| *mode).chain(["sync", "idle"]);
    let is_complete = modes.filter_map(row_of).all(|row| row.number(column).is_some());
    let mut parts = Vec::new();
    for (mode, executes, waits) in MODES {
        let Some(row) = row_of(mode) else { continue };
        let share = |name: &str| row.number(name).unwrap_or(0.0).clamp(0.0, 1.0);
        let stalls = ["fetch_stall_ratio", "data_stall_ratio", "pipeline_stall_ratio"].map(share);
        let stalls = stalls.iter().sum::<f64>().min(1.0);
        parts.push((length(&row) * (1.0 - stalls), executes));
        parts.push((length(&row) * stalls, waits));
    }
    // The kernel's time includes waits for locks. Subtracts them from the kernel's parts, which follow the user's.
    if let Some(sync) = row_of("sync").map(|row| length(&row)).filter(|sync| *sync > LOCK_WAITS_MIN)
    {
        let mut not_subtracted = sync;
        for (part, _) in parts.iter_mut().skip(2) {
            let taken = not_subtracted.min(*part);
            *part -= taken;
            not_subtracted -= taken;
        }
        parts.push((sync, LOCK_WAITS));
    }
    parts.extend(row_of("idle").map(|row| (length(&row), IDLE)));
    parts.retain(|(length, _)| *length > 0.0 || is_complete);
    // A machine without idle time has no row of it. A row without its share is no zero.
    let idle = row_of("idle").map_or(Some(0.0), |row| row.number("time_ratio"));
    let (label, detail) = match (column, idle) {
        ("time_ratio", Some(idle)) => (human::percent(1.0 - idle), " not idle".to_owned()),
        ("time_ratio", None) => (human::ABSENT.to_owned(), String::new()),
        (_, Some(idle)) => {
            (sum_text(&parts, is_complete), format!(", idle {}", human::percent(idle)))
        }
        (_, None) => (sum_text(&parts, is_complete), String::new()),
    };
    Bar { name: model.to_owned(), parts, interval: None, label, detail }
}

/// The picture of table `execution`. `None` for a run without this table.
pub fn execution(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("execution") else { return Ok(None) };
    let workloads = distinct(rows(table).map(|row| text(&row, "workload")));
    let mut panels = Vec::new();
    for workload in &workloads {
        let workload_rows = || rows(table).filter(|row| text(row, "workload") == *workload);
        let models = distinct(workload_rows().map(|row| text(&row, "model")));
        // A model has no relative time if the first machine has no time.
        let is_relative = |model: &String| {
            workload_rows().any(|row| {
                text(&row, "model") == *model && row.number("relative_time_ratio").is_some()
            })
        };
        let (relative, absolute): (Vec<String>, Vec<String>) =
            models.into_iter().partition(is_relative);
        for (models, column, measure) in [
            (relative, "relative_time_ratio", "time for the same work, first machine = 1"),
            (absolute, "time_ratio", "shares of the time of all CPUs"),
        ] {
            let bars: Vec<Bar> =
                models.iter().map(|model| bar(table, workload, model, column)).collect();
            if !bars.is_empty() {
                panels.push((format!("{workload}: {measure}"), bars));
            }
        }
    }
    if panels.is_empty() {
        return Ok(None);
    }
    let mut parts = PARTS.to_vec();
    parts.insert(4, ("kernel waits for locks", LOCK_WAITS));
    let heading = Heading {
        title: "Where the time goes on each machine".to_owned(),
        notes: vec![
            "The unit of work is one instruction in user mode. Waits are those for memory, and cycles lost in the \
             pipeline."
                .to_owned(),
        ],
        legend: legend(&parts, &panels),
        description: "A bar for each machine and workload, divided into user mode, kernel and idle time. The \
                      numbers are in table execution of the run."
            .to_owned(),
    };
    draw_panels(&heading, width, &panels, |longest| {
        Axis::linear("time", Quantity::Count, 0.0, longest)
    })
    .map(Some)
}

#[cfg(test)]
mod tests {
    use record::{Kind, Value};

    use super::super::super::tests::table;
    use super::*;

    /// Waits for locks are part of the kernel's time: they move to a part of their own, and the bar keeps its length.
    #[test]
    fn waits_for_locks_leave_the_length_of_a_bar() {
        let row_of = |mode: &str, ratio: f64, stalls: f64| -> Vec<Value> {
            vec!["w".into(), "m".into(), mode.into(), ratio.into(), stalls.into()]
        };
        let columns = [("workload", Kind::Text), ("model", Kind::Text), ("mode", Kind::Text)]
            .into_iter()
            .chain([("time_ratio", Kind::Real), ("data_stall_ratio", Kind::Real)]);
        let rows = vec![
            row_of("user", 0.5, 0.0),
            row_of("kernel", 0.4, 0.5),
            row_of("sync", 0.3, 0.0),
            row_of("idle", 0.1, 0.0),
        ];
        let columns: Vec<_> = columns.collect();
        let bar = bar(&table("execution", &columns, rows), "w", "m", "time_ratio");
        let lengths: Vec<f64> = bar.parts.iter().map(|(length, _)| *length).collect();
        // Executing first, then waiting: 0.2 and 0.1 of the kernel's 0.4 were waits for locks.
        let expected = [0.5, 0.0, 0.0, 0.1, 0.3, 0.1];
        assert!(lengths.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{lengths:?}");
        assert!((lengths.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
