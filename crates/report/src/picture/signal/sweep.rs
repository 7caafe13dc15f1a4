//! What the pictures `cpu` and `latency` of `signal` share: the table of the sweep, its drawn rows, and the parts of
//! texts about them.

use record::{Run, Table, Value};

use super::{PointSource, describe_load, positive, text};
use crate::human::Quantity;
use crate::picture::rows;
use crate::row::Row;
use crate::schemes::BestScheme;

/// The table of the sweep: `rates` of a measurement, or `model` of a computation. `None` if the run has neither.
pub fn sweep(run: &Run) -> Option<&Table> {
    run.table("rates").or_else(|| run.table("model"))
}

/// Divides a sweep by its rates. Returns the rows to draw, whose rates at least one scheme keeps up with, and the rates
/// that no scheme keeps up with, ascending. Rows without a rate are not drawn.
pub fn drawn_rows_and_too_fast_rates(table: &Table) -> (Vec<Row<'_>>, Vec<f64>) {
    let is_over = |row: &Row<'_>| *row.get("is_over_capacity") == Value::Bool(true);
    let mut rates: Vec<f64> = rows(table).filter_map(|row| positive(&row, "rate_hz")).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let rows_at = |rate: f64| rows(table).filter(move |row| row.number("rate_hz") == Some(rate));
    let is_too_fast = |rate: &f64| rows_at(*rate).all(|row| is_over(&row));
    let too_fast: Vec<f64> = rates.into_iter().filter(is_too_fast).collect();
    let is_drawn =
        |row: &Row<'_>| row.number("rate_hz").is_some_and(|rate| !too_fast.contains(&rate));
    (rows(table).filter(is_drawn).collect(), too_fast)
}

/// A note about the rates with which no scheme keeps up. `None` without such rates.
pub fn too_fast_note(too_fast: &[f64]) -> Option<String> {
    let first = Quantity::Rate.round_text(*too_fast.first()?);
    Some(format!("From {first} on, no scheme of this run keeps up; those rates are not drawn."))
}

/// How a row was measured or computed. `method_column`: name of the column with the model's method. A row without a
/// method was measured.
pub fn point_source(row: &Row<'_>, method_column: &str) -> PointSource {
    if *row.get("is_over_capacity") == Value::Bool(true) {
        return PointSource::OverCapacity;
    }
    match text(row, method_column).as_str() {
        "simulation" => PointSource::Simulated,
        "closed-form" => PointSource::ByFormula,
        _ => PointSource::Measured,
    }
}

/// A note that explains the marks of computed rows.
pub const MARKS: &str = "Lines join the computed rates. Open marks: simulated; without a mark: closed form; \
                     cross: more events than the scheme can handle.";

/// The end of a title that names the best scheme, such as ": least at RATE with SCHEME (VALUE, load busy)". Empty
/// without a best scheme. `superlative`: the word for its property, such as `least`.
pub fn title_end(best: Option<BestScheme>, superlative: &str, quantity: Quantity) -> String {
    best.map_or(String::new(), |BestScheme { scheme, load, x, value }| {
        let load = if load.is_empty() { load } else { format!(", {}", short_load(&load)) };
        let (rate, value) = (Quantity::Rate.round_text(x), quantity.text(value));
        format!(": {superlative} at {rate} with {scheme} ({value}{load})")
    })
}

/// Describes a load in a few words.
pub fn short_load(load: &str) -> String {
    match load {
        "idle" | "background" | "busy" => format!("load {load}"),
        other => describe_load(other),
    }
}
