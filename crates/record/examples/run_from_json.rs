//! Writes a run directory from text: golden runs are reviewed as text, and made when a test needs them.
//!
//! `run_from_json FILE.json DIRECTORY`. The text is a manifest. Instead of the name of its file, each
//! table has its rows, as lists of values in the order of its columns. The tests of the Python reader
//! use it, so that its input is always what `record` writes.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use record::{Absence, Column, Kind, Run, Table, TableDisplay, Value, write_run};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

/// A run as text: the manifest with tables that have rows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    schema: String,
    experiment: String,
    bench: String,
    started_utc: String,
    complete: bool,
    host: Map<String, Json>,
    settings: Map<String, Json>,
    observer: Map<String, Json>,
    warnings: Vec<String>,
    absent: Vec<Absence>,
    tables: Vec<TextTable>,
}

/// A table as text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextTable {
    name: String,
    doc: String,
    #[serde(default)]
    display: TableDisplay,
    columns: Vec<Column>,
    rows: Vec<Vec<Json>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [text, directory] = &arguments[..] else {
        return Err("usage: run_from_json FILE.json DIRECTORY".into());
    };
    let text: Text = serde_json::from_str(&fs::read_to_string(text)?)?;
    write_run(&run(text)?, &[], Path::new(directory))?;
    Ok(())
}

fn run(text: Text) -> Result<Run, String> {
    let tables = text.tables.into_iter().map(table).collect::<Result<_, _>>()?;
    Ok(Run {
        schema: text.schema,
        experiment: text.experiment,
        bench: text.bench,
        started_utc: text.started_utc,
        complete: text.complete,
        host: text.host,
        settings: text.settings,
        observer: text.observer,
        warnings: text.warnings,
        absent: text.absent,
        tables,
    })
}

/// Fails if a row has another number of cells than the table has columns, or a cell has another kind than its column.
fn table(text: TextTable) -> Result<Table, String> {
    let kinds: Vec<Kind> = text.columns.iter().map(|column| column.kind).collect();
    let mut table = Table::new(&text.name, &text.doc, text.columns).displayed(text.display);
    for row in text.rows {
        if row.len() != kinds.len() {
            let (found, wanted) = (row.len(), kinds.len());
            return Err(format!("table {}: a row of {found} values, not {wanted}", text.name));
        }
        let values = kinds.iter().zip(&row).map(|(kind, json)| {
            value(*kind, json).ok_or_else(|| format!("table {}: {json} is no {kind}", text.name))
        });
        table.push(values.collect::<Result<_, _>>()?);
    }
    Ok(table)
}

/// The cell of a column of this kind. JSON's `null` is an absent cell. `None` if the JSON value has another kind.
fn value(kind: Kind, json: &Json) -> Option<Value> {
    match kind {
        _ if json.is_null() => Some(Value::Absent),
        Kind::Bool => json.as_bool().map(Value::Bool),
        Kind::Uint => json.as_u64().map(Value::Uint),
        Kind::Int => json.as_i64().map(Value::Int),
        Kind::Real => json.as_f64().map(Value::Real),
        Kind::Text => json.as_str().map(Value::from),
    }
}
