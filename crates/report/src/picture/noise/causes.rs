//! Common parts of the pictures of `noise`: a panel for each CPU, and the colours of causes.

use plotters::style::RGBColor;
use record::{Table, Value};

use crate::escape::plain;
use crate::picture::palette::{BLACK, GREY, PALE, SERIES};
use crate::picture::rows;
use crate::picture::sheet::{Area, Entry, Heading, Sheet, Undrawn, draw, units};
use crate::row::Row;

/// Height of a panel, pixels.
const PANEL: f64 = 300.0;
/// Maximum number of panels of a picture.
const PANELS_MAX: usize = 32;

/// The CPUs of a table, in order of their first rows.
pub fn cpus(table: &Table) -> Vec<String> {
    let mut cpus: Vec<String> = Vec::new();
    for row in rows(table) {
        let cpu = row.alone("cpu");
        if cpus.last() != Some(&cpu) && !cpus.contains(&cpu) {
            cpus.push(cpu);
        }
    }
    cpus
}

/// A picture with a panel for each CPU of the table. `None` for a table without CPUs.
pub fn by_cpu(
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
    let sheet = draw(&heading, width, PANEL * cpus.len() as f64, |area| {
        for (number, cpu) in cpus.iter().enumerate() {
            let top = units(PANEL) * number as i32;
            let size = (units(width) as u32, units(PANEL) as u32);
            panel(&area.part((0, top), size), cpu)?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// The text in a column, or `None` if the value is not text.
pub fn name_of(row: &Row<'_>, column: &str) -> Option<String> {
    match row.get(column) {
        Value::Text(name) => Some(plain(name)),
        _ => None,
    }
}

/// Number of kinds of causes: one for each cause with its own colour, one for other causes, one for no named cause.
pub const KINDS: usize = SERIES.len() + 2;

/// The names of the causes that have their own colours, in the order of [`SERIES`].
pub struct Causes(Vec<String>);

impl Causes {
    /// Selects the causes that took most time, largest first, from names and times.
    pub fn largest(shares: impl Iterator<Item = (String, f64)>) -> Causes {
        let mut sums: Vec<(String, f64)> = Vec::new();
        for (cause, time) in shares {
            match sums.iter_mut().find(|(name, _)| *name == cause) {
                Some((_, sum)) => *sum += time,
                None => sums.push((cause, time)),
            }
        }
        // Names decide between equals, so that the picture does not depend on the order of rows.
        sums.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        sums.truncate(SERIES.len());
        Causes(sums.into_iter().map(|(name, _)| name).collect())
    }

    /// The kind of a cause: its index if it has its own colour, then one for other causes, then one for no cause.
    pub fn kind(&self, cause: Option<&str>) -> usize {
        let Some(cause) = cause else { return KINDS - 1 };
        self.0.iter().position(|known| known == cause).unwrap_or(KINDS - 2)
    }

    /// The legend: an entry `quiet` for undisturbed data, and an entry for each used kind.
    pub fn legend(&self, quiet: &str, used: &[bool; KINDS]) -> Vec<Entry> {
        let named = self.0.iter().map(String::as_str).enumerate();
        let unnamed = [(KINDS - 2, "other causes"), (KINDS - 1, "no named cause")];
        let kinds = named.chain(unnamed).filter(|(kind, _)| used[*kind]);
        let entry = |name: &str, colour| Entry { name: name.to_owned(), colour };
        let quiet = [entry(quiet, PALE)].into_iter();
        quiet.chain(kinds.map(|(kind, name)| entry(name, colour(kind)))).collect()
    }
}

pub fn colour(kind: usize) -> RGBColor {
    match kind {
        _ if kind < SERIES.len() => SERIES[kind],
        _ if kind == KINDS - 2 => GREY,
        _ => BLACK,
    }
}
