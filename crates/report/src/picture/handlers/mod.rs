//! Pictures of `handlers`: what each interrupt context costs, how long it takes, and how well it runs.

mod costs;
mod distribution;
mod efficiency;

use record::{Table, Value};

pub use costs::costs;
pub use distribution::distribution;
pub use efficiency::efficiency;

use crate::escape::plain;
use crate::picture::rows;
use crate::row::Row;

/// Most conditions of a picture.
const CONDITIONS_MAX: usize = 8;

/// The text in a column; empty where there is none.
fn text(row: &Row<'_>, column: &str) -> String {
    match row.get(column) {
        Value::Text(text) => plain(text),
        _ => String::new(),
    }
}

/// A context by name and kind, the name first: `BLOCK softirq`, `virtio1-req.0 irq 36`.
fn context(row: &Row<'_>) -> String {
    match text(row, "kind").as_str() {
        "irq" => format!("{} irq {}", text(row, "name"), row.alone("number")),
        kind => format!("{} {kind}", text(row, "name")),
    }
}

/// The conditions of a table, as they come, as many as a picture has; and how many more there are.
fn conditions(table: &Table) -> (Vec<String>, usize) {
    let mut found: Vec<String> = Vec::new();
    for row in rows(table) {
        let condition = text(&row, "condition");
        if !found.contains(&condition) {
            found.push(condition);
        }
    }
    let more = found.len().saturating_sub(CONDITIONS_MAX);
    found.truncate(CONDITIONS_MAX);
    (found, more)
}

/// The rows of all CPUs together under a condition, the largest by a column first.
fn largest<'t>(table: &'t Table, condition: &str, column: &str) -> Vec<Row<'t>> {
    let is_wanted = |row: &Row<'_>| {
        text(row, "condition") == condition
            && (table.column("cpu").is_none() || text(row, "cpu") == "all")
            && row.number(column).is_some_and(|number| number > 0.0)
    };
    let mut found: Vec<Row<'t>> = rows(table).filter(is_wanted).collect();
    let size = |row: &Row<'_>| row.number(column).unwrap_or(0.0);
    found.sort_by(|a, b| size(b).total_cmp(&size(a)));
    found
}

/// The title of a panel of a condition.
fn panel_title(condition: &str) -> String {
    format!("condition {condition}")
}

/// The note on what a picture has no room for.
fn left_out(conditions: usize, contexts: usize, table: &str) -> Option<String> {
    let parts = [(conditions, "conditions"), (contexts, "contexts of the least cost")];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    (!parts.is_empty()).then(|| format!("Not drawn: {}; see table {table}.", parts.join(", ")))
}
