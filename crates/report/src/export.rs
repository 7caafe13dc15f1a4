//! For programs: JSON and CSV, with everything there is.

use record::{Run, Table, Value};

use crate::escape;

/// The run as one JSON document, with a line break at the end.
#[must_use]
pub fn json(run: &Run) -> String {
    // The alternate form of a JSON value is the pretty one.
    escape::json(&format!("{:#}\n", run.to_json()))
}

/// The table as CSV: a header row, an empty field for what is absent, lines that end in LF. Control
/// characters in text are written as `\n`, `\u{1b}`: a row is a line.
#[must_use]
pub fn csv(table: &Table) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = table.columns.iter().map(|column| escape::plain(&column.name)).collect();
    let rows = table.rows().iter().map(|row| row.iter().map(field).collect());
    for record in std::iter::once(header).chain(rows) {
        let record: Vec<String> = record;
        // Writing to memory does not fail, and every row is as long as the header.
        writer.write_record(&record).unwrap_or_else(|error| unreachable!("csv: {error}"));
    }
    let bytes = writer.into_inner().unwrap_or_else(|error| unreachable!("csv: {error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn field(value: &Value) -> String {
    match value {
        Value::Absent => String::new(),
        Value::Bool(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        // As in JSON: the shortest digits that give the same number.
        Value::Real(_) => value.to_json().to_string(),
        Value::Text(text) => escape::plain(text),
    }
}
