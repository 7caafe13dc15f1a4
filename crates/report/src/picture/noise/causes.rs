//! Common parts of the pictures of `noise`: a panel for each CPU, and the colours of the causes of lost time.

use plotters::style::RGBColor;
use record::{Table, Value};

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
        let cpu = row.alone("cpu");
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

/// The names of the causes that have their own colours, in the order of [`SERIES`].
pub struct Causes(Vec<String>);

impl Causes {
    /// Selects the causes that took most time, the largest first. `shares`: names of causes, and times.
    pub fn largest(shares: impl Iterator<Item = (String, f64)>) -> Causes {
        let mut sums: Vec<(String, f64)> = Vec::new();
        for (cause, time) in shares {
            match sums.iter_mut().find(|(name, _)| *name == cause) {
                Some((_, sum)) => *sum += time,
                None => sums.push((cause, time)),
            }
        }
        // Names decide between equal times, so that the picture does not depend on the order of rows.
        sums.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        sums.truncate(SERIES.len());
        Causes(sums.into_iter().map(|(name, _)| name).collect())
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
