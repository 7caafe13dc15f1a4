//! Pictures of where a kernel's time goes.

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

use super::bars::Bar;
use super::sheet::Entry;
use crate::row::Row;

/// A part of a bar: its name in the legend and its colour.
type PartOf = (&'static str, RGBColor);

/// The text in a column; empty where there is none.
fn text(row: &Row<'_>, column: &str) -> String {
    match row.get(column) {
        record::Value::Text(text) => crate::escape::plain(text),
        _ => String::new(),
    }
}

/// Legend of the parts that bars have.
fn legend(parts: &[PartOf], panels: &[(String, Vec<Bar>)]) -> Vec<Entry> {
    let bars = || panels.iter().flat_map(|(_, bars)| bars);
    let is_seen = |colour: &RGBColor| {
        bars().any(|bar| bar.parts.iter().any(|(length, one)| *length > 0.0 && one == colour))
    };
    let seen = parts.iter().filter(|(_, colour)| is_seen(colour));
    seen.map(|(name, colour)| Entry { name: (*name).to_owned(), colour: *colour }).collect()
}

/// Texts of a column without repetition, in the order of the rows.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}
