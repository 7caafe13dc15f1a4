//! For programs: JSON with everything that a run has, and CSV of one table.

use record::{Keep, Run, Table, Value};

use crate::escape;
use crate::grid::rows_of;

/// The run as one JSON document, with a line break at the end.
#[must_use]
pub fn json(run: &Run) -> String {
    // The alternate form of a JSON value is the pretty one.
    escape::json(&format!("{:#}\n", run.to_json()))
}

/// The same document on one line, for streams of runs.
#[must_use]
pub fn json_line(run: &Run) -> String {
    escape::json(&format!("{}\n", run.to_json()))
}

/// The table as CSV: a header row, an empty field for what is absent, lines that end in LF. Control
/// characters in text are written as `\n`, `\u{1b}`: a row is a line. Rows that are parts of other
/// rows (per CPU, next to their sum) are left out unless `all_rows`: see [`csv_omissions`].
#[must_use]
pub fn csv(table: &Table, all_rows: bool) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = table.columns.iter().map(|column| escape::plain(&column.name)).collect();
    let rows = rows(table, all_rows).map(|row| row.iter().map(field).collect());
    for record in std::iter::once(header).chain(rows) {
        let record: Vec<String> = record;
        // Writing to memory does not fail, and every row is as long as the header.
        writer.write_record(&record).unwrap_or_else(|error| unreachable!("csv: {error}"));
    }
    let bytes = writer.into_inner().unwrap_or_else(|error| unreachable!("csv: {error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What [`csv()`] leaves out of a run when it prints that table, in words for people: `4 rows per CPU
/// (--all prints them); tables conditions, events (--table NAME prints one)`. Empty when nothing is.
#[must_use]
pub fn csv_omissions(run: &Run, table: &Table, all_rows: bool) -> String {
    let left_out = table.rows().len() - rows(table, all_rows).count();
    let others = table.display.filter.as_ref().map(|filter| escape::plain(&filter.others));
    let rows = others
        .filter(|_| left_out > 0)
        .map(|others| format!("{} {others} (--all prints them)", rows_of(left_out)));
    let names = run.tables.iter().filter(|one| one.name != table.name && !one.rows().is_empty());
    let names: Vec<String> = names.map(|one| escape::plain(&one.name)).collect();
    let tables = match names.as_slice() {
        [] => None,
        [one] => Some(format!("table {one} (--table {one} prints it)")),
        _ => Some(format!("tables {} (--table NAME prints one)", names.join(", "))),
    };
    rows.into_iter().chain(tables).collect::<Vec<_>>().join("; ")
}

/// The rows that [`csv`] prints.
fn rows(table: &Table, all_rows: bool) -> impl Iterator<Item = &Vec<Value>> {
    // A limit on the size of rows is for people; rows that are parts of other rows are not to be
    // added up with them.
    let parts = table.display.filter.as_ref().filter(|filter| matches!(filter.keep, Keep::Text(_)));
    let is_kept =
        move |row: &&Vec<Value>| all_rows || parts.is_none_or(|filter| filter.keeps(table, row));
    table.rows().iter().filter(is_kept)
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
