//! Pictures of where the time of a kernel goes: of the experiment `services`, and of `reproduce simos-1995`, which
//! measures several machines.

mod execution;
mod memory;
mod misses;
mod profile;
mod requests;
mod shares;

pub use execution::execution;
pub use memory::{hidden, mcpi};
pub use misses::cache_misses;
pub use profile::profile;
pub use requests::requests;
pub use shares::services;

use plotters::style::RGBColor;
use record::Table;

use super::bars::Bar;
use super::rows;
use super::sheet::Entry;
use crate::human;
use crate::row::Row;

/// Maximum number of panels of a picture.
const PANELS_MAX: usize = 12;

/// A part of a bar: its name in the legend and its colour.
type LegendPart = (&'static str, RGBColor);

/// The text in a column, escaped. Empty if the value is no text.
fn text(row: &Row<'_>, column: &str) -> String {
    match row.get(column) {
        record::Value::Text(text) => crate::escape::plain(text),
        _ => String::new(),
    }
}

/// The title of a row's panel: its workload and its model, if the table has them.
fn panel_title(row: &Row<'_>) -> String {
    let names = ["workload", "model"].map(|name| text(row, name));
    names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The titles of the panels of a table, the first [`PANELS_MAX`], and a note that says how many further machines are not
/// drawn.
fn panel_titles(table: &Table) -> (Vec<String>, Option<String>) {
    let mut titles = distinct(rows(table).map(|row| panel_title(&row)));
    let further = titles.len().saturating_sub(PANELS_MAX);
    titles.truncate(PANELS_MAX);
    let note = (further > 0)
        .then(|| format!("Not drawn: {further} further machines; see table {}.", table.name));
    (titles, note)
}

/// The entries of the legend for those parts whose colours the panels contain.
fn legend(parts: &[LegendPart], panels: &[(String, Vec<Bar>)]) -> Vec<Entry> {
    let bars = || panels.iter().flat_map(|(_, bars)| bars);
    let is_drawn = |colour: &RGBColor| {
        bars().any(|bar| {
            bar.parts.iter().any(|(length, part_colour)| *length > 0.0 && part_colour == colour)
        })
    };
    let drawn = parts.iter().filter(|(_, colour)| is_drawn(colour));
    drawn.map(|(name, colour)| Entry { name: (*name).to_owned(), colour: *colour }).collect()
}

/// The label of a bar: the sum of its parts. `is_complete`: whether all parts were measured; without some, the sum is a
/// lower bound.
fn sum_text(parts: &[(f64, RGBColor)], is_complete: bool) -> String {
    let total = parts.iter().fold(0.0, |sum, (length, _)| sum + length);
    match (parts, is_complete) {
        ([], _) => human::ABSENT.to_owned(),
        (_, true) => format!("{total:.2}"),
        (_, false) => format!("≥ {total:.2}"),
    }
}

/// The texts without repetitions, in order of first appearance.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for text in texts {
        if !distinct.contains(&text) {
            distinct.push(text);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use record::{Kind, Run, Value};

    use super::super::sheet::{NARROW, WIDTH};
    use super::super::tests::{golden, run_of, table};
    use super::*;

    fn row(texts: &[&str], numbers: &[f64]) -> Vec<Value> {
        let texts = texts.iter().map(|text| Value::from(*text));
        texts.chain(numbers.iter().map(|number| Value::from(*number))).collect()
    }

    fn made(name: &str, texts: &[&str], numbers: &[&str], rows: Vec<Vec<Value>>) -> Run {
        let texts = texts.iter().map(|name| (*name, Kind::Text));
        let columns: Vec<(&str, Kind)> =
            texts.chain(numbers.iter().map(|name| (*name, Kind::Real))).collect();
        run_of(vec![table(name, &columns, rows)])
    }

    #[test]
    fn a_bar_of_execution_is_divided_by_mode_and_waiting() {
        let numbers =
            ["time_ratio", "relative_time_ratio", "fetch_stall_ratio", "data_stall_ratio"];
        let row_of =
            |model: &str, mode: &str, numbers: [f64; 4]| row(&["w", model, mode], &numbers);
        let run = made(
            "execution",
            &["workload", "model", "mode"],
            &numbers,
            vec![
                row_of("old", "user", [0.5, 0.5, 0.25, 0.25]),
                row_of("old", "kernel", [0.25, 0.25, 0.5, 0.0]),
                row_of("old", "idle", [0.25, 0.25, 0.0, 0.0]),
                row_of("new", "user", [0.5, 0.2, 0.5, 0.0]),
                row_of("new", "kernel", [0.25, 0.1, 0.5, 0.0]),
                row_of("new", "idle", [0.25, 0.1, 0.0, 0.0]),
            ],
        );
        golden("execution", execution(&run, WIDTH));
        golden("execution_narrow", execution(&run, NARROW));
        assert_eq!(execution(&run_of(vec![]), WIDTH).unwrap(), None);
    }

    #[test]
    fn a_profile_has_layers_that_fill_its_slots() {
        let numbers =
            ["start_ns", "length_ns", "time_ratio", "execution_ratio", "pipeline_stall_ratio"];
        let rows = (0..2000).flat_map(|slot| {
            let start = f64::from(slot) * 1e6;
            let row_of = |mode, time, executes, pipeline| {
                row(&[mode], &[start, 1e6, time, executes, pipeline])
            };
            // Idle has no execution and no stalls.
            let mut idle = row_of("idle", 0.1, 0.0, 0.0);
            idle[4..].fill(Value::Absent);
            [row_of("user", 0.6, 0.3, 0.2), row_of("kernel", 0.3, 0.1, 0.1), idle]
        });
        let run = made("profile", &["mode"], &numbers, rows.collect());
        golden("profile", profile(&run, WIDTH));
        // A table `profile` without times is not drawn.
        assert_eq!(
            profile(&made("profile", &["mode"], &["time_ratio"], vec![]), WIDTH).unwrap(),
            None
        );
    }

    #[test]
    fn services_are_divided_by_what_they_wait_for() {
        let numbers = [
            "kernel_ratio",
            "cpi_ratio",
            "fetch_mcpi_ratio",
            "data_mcpi_ratio",
            "self_cycles",
            "self_pipeline_stall_cycles",
            "self_branch_stall_cycles",
        ];
        let rows = vec![
            row(&["user"], &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
            row(&["read"], &[0.25, 4.0, 1.0, 1.0, 100.0, 40.0, 10.0]),
            row(&["write"], &[0.75, 2.0, 0.5, 0.5, 100.0, 0.0, 0.0]),
        ];
        let run = made("services", &["service"], &numbers, rows);
        golden("services", services(&run, WIDTH));
    }

    #[test]
    fn the_title_names_its_machine_and_a_note_counts_machines_that_are_not_drawn() {
        let machines: Vec<String> = (0..14).map(|number| format!("w{number}")).collect();
        let heading = |machines: &[String]| {
            let rows = machines.iter().map(|machine| row(&[machine.as_str(), "read"], &[0.25]));
            let run = made("services", &["workload", "service"], &["kernel_ratio"], rows.collect());
            services(&run, WIDTH).unwrap().unwrap().heading
        };
        let all = heading(&machines);
        assert_eq!(all.title, "The kernel's services (w0): read takes 25.0 % of its time");
        assert_eq!(all.notes[1], "Not drawn: 2 further machines; see table services.");
        let one = heading(&machines[..1]);
        assert_eq!(one.title, "The kernel's services: read takes 25.0 % of its time");
        assert_eq!(one.notes.len(), 1);
    }

    #[test]
    fn an_absent_figure_has_no_bar_and_is_not_zero() {
        let texts = |sheet: Result<Option<crate::picture::Sheet>, crate::Undrawn>| {
            sheet.unwrap().unwrap().file()
        };
        let numbers = ["mcpi_ratio", "l1_mcpi_ratio", "l2_mcpi_ratio", "other_mcpi_ratio"];
        let keys = ["workload", "model", "mode", "stream"];
        let absent = |names: [&str; 4], count: usize| {
            let mut row = row(&names, &[]);
            row.resize(4 + count, Value::Absent);
            row
        };
        let known = row(&["w", "m", "user", "data"], &[2.0, 1.5, 0.5, 0.0]);
        let unknown = ["kernel", "user"].map(|mode| absent(["w", "m", mode, "instructions"], 4));
        let rows = [unknown.to_vec(), vec![known]].concat();
        let svg = texts(mcpi(&made("mcpi", &keys, &numbers, rows), WIDTH));
        assert!(svg.contains("–") && svg.contains("≥ 2.00") && !svg.contains("0.00"), "{svg}");

        let mut idle = row(&["w", "m", "idle"], &[]);
        idle.resize(5, Value::Absent);
        let rows = vec![row(&["w", "m", "user"], &[0.5, 0.5]), idle];
        let keys_of_modes = ["workload", "model", "mode"];
        let numbers = ["time_ratio", "relative_time_ratio"];
        let svg = texts(execution(&made("execution", &keys_of_modes, &numbers, rows), WIDTH));
        assert!(!svg.contains("100 %"), "the idle time is not zero: {svg}");

        let numbers = ["in_order_mcpi_ratio", "mcpi_ratio", "hidden_ratio"];
        let rows = vec![
            row(&["w", "m", "user", "data"], &[2.0, 1.0, 0.5]),
            absent(["w", "m", "kernel", "data"], 3),
        ];
        let svg = texts(hidden(&made("hidden_stalls", &keys, &numbers, rows), WIDTH));
        assert!(svg.contains("–"), "{svg}");

        let numbers = ["cpus", "cache_bytes", "misses_per_kinstruction"];
        let keys = ["workload", "cache", "mode", "class"];
        let mut unknown = row(&["w", "L1I", "user", "self"], &[1.0, 65536.0]);
        unknown.push(Value::Absent);
        let rows = vec![row(&["w", "L1I", "user", "self"], &[1.0, 16384.0, 8.0]), unknown];
        let svg = texts(cache_misses(&made("cache_misses", &keys, &numbers, rows), WIDTH));
        assert!(svg.contains("–") && !svg.contains("0.00"), "{svg}");
    }

    #[test]
    fn misses_and_stalls_have_bars_for_what_is_known() {
        let numbers = ["mcpi_ratio", "l1_mcpi_ratio", "l2_mcpi_ratio", "other_mcpi_ratio"];
        let texts_of = ["workload", "model", "mode", "stream"];
        let mut rows = vec![row(&["w", "m", "kernel", "instructions"], &[1.0, 0.5, 0.4, 0.1])];
        let mut unknown = row(&["w", "m", "kernel", "data"], &[2.0]);
        unknown.resize(8, Value::Absent);
        rows.push(unknown);
        golden("mcpi", mcpi(&made("mcpi", &texts_of, &numbers, rows), WIDTH));
        let numbers = ["in_order_mcpi_ratio", "mcpi_ratio", "hidden_ratio"];
        let rows = vec![row(&["w", "m", "kernel", "data"], &[2.0, 1.0, 0.5])];
        golden("hidden_stalls", hidden(&made("hidden_stalls", &texts_of, &numbers, rows), WIDTH));
        let numbers = ["cpus", "cache_bytes", "misses_per_kinstruction"];
        let row_of = |class, size, misses| row(&["w", "L1I", "user", class], &[1.0, size, misses]);
        let rows = vec![
            row_of("self", 16384.0, 8.0),
            row_of("other", 16384.0, 2.0),
            row_of("self", 65536.0, 1.0),
        ];
        let texts_of = ["workload", "cache", "mode", "class"];
        let close = [65_536.0, 65_537.0].map(|size| row_of("self", size, 1.0));
        let close = made("cache_misses", &texts_of, &numbers, close.to_vec());
        let svg = cache_misses(&close, WIDTH).unwrap().unwrap().file();
        assert!(svg.contains("64.00097") && svg.matches("1.00").count() == 2, "two bars: {svg}");
        let run = made("cache_misses", &texts_of, &numbers, rows);
        golden("cache_misses", cache_misses(&run, WIDTH));
    }
}
