//! Common parts of the pictures of `noise`: a panel for each CPU, and the colours of the causes of lost time.

use std::collections::BTreeMap;

use plotters::style::RGBColor;
use record::{Run, Table, Value};

use crate::escape::plain;
use crate::picture::palette::{BLACK, GREY, PALE, SERIES};
use crate::picture::rows;
use crate::picture::sheet::{Area, Entry, Heading, Sheet, Undrawn, draw, units};
use crate::row::Row;

/// Height of a panel, pixels.
const PANEL_HEIGHT: f64 = 300.0;
/// Maximum number of panels of a picture.
const PANELS_MAX: usize = 32;

/// The CPUs of a table, in order of their first rows.
pub fn cpus(table: &Table) -> Vec<String> {
    let mut cpus: Vec<String> = Vec::new();
    for row in rows(table) {
        let cpu = row.value_text("cpu");
        if cpus.last() != Some(&cpu) && !cpus.contains(&cpu) {
            cpus.push(cpu);
        }
    }
    cpus
}

/// A picture with a panel for each CPU of the table. `panel` draws the panel of a CPU. `None` for a table without CPUs.
pub fn draw_cpus(
    mut heading: Heading,
    table: &Table,
    width: f64,
    panel: impl Fn(&Area<'_>, &str) -> Result<(), Undrawn>,
) -> Result<Option<Sheet>, Undrawn> {
    let mut cpus = cpus(table);
    if cpus.is_empty() {
        return Ok(None);
    }
    let left_out = cpus.len().saturating_sub(PANELS_MAX);
    cpus.truncate(PANELS_MAX);
    if left_out > 0 {
        heading
            .notes
            .push(format!("{left_out} more CPUs are not drawn: see table {}.", plain(&table.name)));
    }
    heading.description += &format!(
        "One panel for each CPU: {}. The numbers are in table {} of the run.",
        cpus.join(", "),
        plain(&table.name)
    );
    let sheet = draw(&heading, width, PANEL_HEIGHT * cpus.len() as f64, |area| {
        for (number, cpu) in cpus.iter().enumerate() {
            let top = units(PANEL_HEIGHT) * number as i32;
            let size = (units(width) as u32, units(PANEL_HEIGHT) as u32);
            panel(&area.part((0, top), size), cpu)?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// The text in a column, escaped, or `None` if the value is no text.
pub fn name_in(row: &Row<'_>, column: &str) -> Option<String> {
    match row.get(column) {
        Value::Text(name) => Some(plain(name)),
        _ => None,
    }
}

/// Number of kinds of causes: a kind for each cause with its own colour, then [`OTHER_CAUSES`] and [`NO_CAUSE`].
pub const KINDS: usize = SERIES.len() + 2;
/// The kind of all named causes without a colour of their own.
pub const OTHER_CAUSES: usize = KINDS - 2;
/// The kind of lost time without a named cause.
pub const NO_CAUSE: usize = KINDS - 1;

/// A table, its column of causes, and the time that a row adds to its cause.
type Source<'f> = (&'static str, &'static str, &'f dyn Fn(&Row<'_>) -> Option<f64>);

/// The names in the order of the sums of their times, the largest first.
fn by_time(shares: impl Iterator<Item = (String, f64)>) -> Vec<String> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for (name, time) in shares {
        *sums.entry(name).or_default() += time;
    }
    let mut sums: Vec<(String, f64)> = sums.into_iter().collect();
    // The sort is stable, so names decide between equal times.
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums.into_iter().map(|(name, _)| name).collect()
}

/// The names of the causes that have their own colours, in the order of [`SERIES`].
pub struct Causes(Vec<String>);

impl Causes {
    /// The causes that took most time of the run, the largest first. A cause has one colour in all pictures of a run.
    ///
    /// The first table that the run has ranks the causes: the exact sums of `lost_time`, the exact counts of
    /// `detour_histogram_by_cause`, then the samples in `detours` and `fwq_quanta`. Causes that are only in a later
    /// table follow.
    pub fn of_run(run: &Run) -> Causes {
        let middle = |row: &Row<'_>| {
            let ends = row.number("bucket_min_ns").zip(row.number("bucket_max_ns"));
            ends.map(|(shortest, longest)| shortest.midpoint(longest))
        };
        let sources: [Source<'_>; 4] = [
            ("lost_time", "name", &|row| row.number("lost_ns")),
            ("detour_histogram_by_cause", "largest_name", &|row| {
                Some(middle(row)? * row.number("detour_count")?)
            }),
            ("detours", "largest_name", &|row| row.number("length_ns")),
            ("fwq_quanta", "largest_name", &|row| row.number("attributed_ns")),
        ];
        let mut names: Vec<String> = Vec::new();
        for (table, column, time_ns) in sources {
            let table_rows = run.table(table).into_iter().flat_map(rows);
            let shares =
                table_rows.filter_map(|row| Some((name_in(&row, column)?, time_ns(&row)?)));
            for name in by_time(shares) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names.truncate(SERIES.len());
        Causes(names)
    }

    /// The name of a kind with its own colour. `None` for other kinds.
    #[cfg(test)]
    pub fn name(&self, kind: usize) -> Option<&str> {
        self.0.get(kind).map(String::as_str)
    }

    /// The kind of a cause: its index if it has its own colour, else [`OTHER_CAUSES`] or [`NO_CAUSE`].
    pub fn kind(&self, cause: Option<&str>) -> usize {
        let Some(cause) = cause else { return NO_CAUSE };
        self.0.iter().position(|known| known == cause).unwrap_or(OTHER_CAUSES)
    }

    /// The legend: the entry `quiet` for undisturbed data, then an entry for each kind that `used` marks.
    pub fn legend(&self, quiet: &str, used: &[bool; KINDS]) -> Vec<Entry> {
        let named = self.0.iter().map(String::as_str).enumerate();
        let unnamed = [(OTHER_CAUSES, "other causes"), (NO_CAUSE, "no named cause")];
        let kinds = named.chain(unnamed).filter(|(kind, _)| used[*kind]);
        let entry = |name: &str, colour| Entry { name: name.to_owned(), colour };
        let quiet = [entry(quiet, PALE)].into_iter();
        quiet.chain(kinds.map(|(kind, name)| entry(name, colour(kind)))).collect()
    }
}

/// The colour of a kind of causes.
pub fn colour(kind: usize) -> RGBColor {
    match kind {
        _ if kind < SERIES.len() => SERIES[kind],
        OTHER_CAUSES => GREY,
        _ => BLACK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::noise::{repetitions, sizes, timeline};
    use crate::picture::sheet::WIDTH;
    use crate::picture::tests::{run_of, table};
    use record::Kind;

    const UINT: Kind = Kind::Uint;

    /// `tick` takes most time of the run, but `stall` most of the sampled quanta, and `make` is only in these.
    fn run() -> Run {
        let columns = |numbers: &[&'static str], name: &'static str| -> Vec<(&str, Kind)> {
            numbers.iter().map(|column| (*column, UINT)).chain([(name, Kind::Text)]).collect()
        };
        let row = |numbers: &[u64], name: &str| -> Vec<Value> {
            numbers.iter().map(|number| (*number).into()).chain([name.into()]).collect()
        };
        let lost = columns(&["cpu", "start_ns", "end_ns", "lost_ns"], "name");
        let lost_rows =
            vec![row(&[0, 0, 1_000_000, 900], "tick"), row(&[0, 0, 9_000, 200], "stall")];
        let detours = columns(&["cpu", "start_ns", "length_ns"], "largest_name");
        let detour_rows = vec![row(&[0, 100, 200], "stall"), row(&[0, 900, 50], "tick")];
        let histogram = ["cpu", "bucket_min_ns", "bucket_max_ns", "detour_count"];
        let by_cause = columns(&histogram, "largest_name");
        let by_cause_rows = vec![row(&[0, 200, 207, 9], "stall"), row(&[0, 48, 51, 2], "tick")];
        let quanta = columns(&["cpu", "start_ns", "duration_ns", "attributed_ns"], "largest_name");
        let quantum_rows = vec![
            row(&[0, 0, 100, 0], "tick"),
            row(&[0, 100, 900, 700], "stall"),
            row(&[0, 200, 800, 600], "make"),
        ];
        let histogram_columns = histogram.map(|name| (name, UINT));
        let histogram_rows = vec![[0_u64, 200, 207, 9].map(Value::from).to_vec()];
        run_of(vec![
            table("lost_time", &lost, lost_rows),
            table("detours", &detours, detour_rows),
            table("detour_histogram", &histogram_columns, histogram_rows),
            table("detour_histogram_by_cause", &by_cause, by_cause_rows),
            table("fwq_quanta", &quanta, quantum_rows),
        ])
    }

    #[test]
    fn a_cause_has_one_colour_in_all_pictures_of_a_run() {
        let run = run();
        let causes = Causes::of_run(&run);
        let names: Vec<&str> = (0..3).filter_map(|kind| causes.name(kind)).collect();
        assert_eq!(names, ["tick", "stall", "make"]);
        let mut found = Vec::new();
        for draw in [timeline, repetitions, sizes] {
            let sheet = draw(&run, WIDTH).unwrap().unwrap();
            let entry = sheet.heading.legend.iter().find(|entry| entry.name == "stall");
            found.push(entry.expect("a cause of all three").colour);
        }
        assert_eq!(found, [SERIES[1]; 3]);
    }
}
