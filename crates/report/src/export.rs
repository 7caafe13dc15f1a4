//! Output for programs: JSON with the whole run, and CSV of one table. Both are written row by row, because a table
//! can be larger than the memory. `irqlab show` and the verbs that measure print them.

use std::io::{self, Write};

use record::{InMemory, Keep, Rows, Run, Table, Value};
use serde_json::{Map, Value as Json};

use crate::escape;
use crate::grid::rows_of;

/// The run as one JSON document, with a line break at the end.
#[must_use]
pub fn json(run: &Run) -> String {
    in_memory(|out| write_json(out, run, &InMemory))
}

/// Collects the output of `write` as text.
fn in_memory(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    write(&mut text).unwrap_or_else(|error| unreachable!("writing to memory: {error}"));
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes the run as one JSON document with a line break at the end, row by row. The output equals [`json`].
///
/// Fails when writing or reading rows fails.
pub fn write_json(out: &mut dyn Write, run: &Run, rows: &dyn Rows) -> io::Result<()> {
    // `{:#}` indents a JSON value. The tables are the last member of the document, so the text before them is the head.
    let without_rows = format!("{:#}", run.with_tables(Vec::new()).to_json());
    let head = without_rows.strip_suffix("{}\n}").unwrap_or(&without_rows);
    out.write_all(escape::json(head).as_bytes())?;
    out.write_all(b"{")?;
    for (index, table) in run.tables.iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        let name = escape::json(&Json::from(table.name.as_str()).to_string());
        write!(out, "{separator}\n    {name}: [")?;
        let mut is_first = true;
        rows.for_each_row(table, &mut |row| {
            let separator = if std::mem::take(&mut is_first) { "" } else { "," };
            let document = escape::json(&format!("{:#}", row_document(table, row)));
            write!(out, "{separator}\n      {}", document.replace('\n', "\n      "))
        })?;
        out.write_all(if is_first { b"]" } else { b"\n    ]" })?;
    }
    out.write_all(if run.tables.is_empty() { b"}\n}\n" } else { b"\n  }\n}\n" })
}

/// A row as a JSON object with a member for each column.
fn row_document(table: &Table, row: &[Value]) -> Json {
    let cells = table.columns.iter().zip(row);
    let cells = cells.map(|(column, value)| (column.name.clone(), value.to_json()));
    Json::Object(cells.collect::<Map<_, _>>())
}

/// The run as a JSON document on one line, for streams of runs.
#[must_use]
pub fn json_line(run: &Run) -> String {
    escape::json(&format!("{}\n", run.to_json()))
}

/// The rows of a table that are written as CSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvRows {
    /// Rows that are not a part of another row. Leaves out rows per CPU next to their sum.
    Sums,
    /// Every row of the table.
    All,
}

/// How text is written as CSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvText {
    /// For a spreadsheet. Text that starts with `=`, `+`, `-` or `@` and is no number gets an apostrophe in front.
    /// Otherwise a spreadsheet would take it for a formula.
    Guarded,
    /// Unchanged, apart from the escapes of control characters.
    Exact,
}

/// The table as CSV: a header row, empty fields for absent values, lines that end in LF. Control characters in text are
/// escaped (`\n`, `\u{1b}`), so a row is always one line. [`csv_omissions`] describes the rows that are left out.
#[must_use]
pub fn csv(table: &Table, csv_rows: CsvRows, text: CsvText) -> String {
    in_memory(|out| write_csv(out, table, &InMemory, (csv_rows, text)).map(drop))
}

/// Writes a table as CSV in the format of [`csv()`], row by row. Returns the number of rows that it leaves out.
///
/// Fails when writing or reading rows fails.
pub fn write_csv(
    out: &mut dyn Write,
    table: &Table,
    rows: &dyn Rows,
    (csv_rows, text): (CsvRows, CsvText),
) -> io::Result<u64> {
    let mut writer = csv::Writer::from_writer(out);
    let names = table.columns.iter().map(|column| escape::plain(&column.name));
    writer.write_record(names).map_err(io_error)?;
    let mut left_out = 0;
    rows.for_each_row(table, &mut |row| {
        if csv_rows == CsvRows::Sums && !is_sum(table, row) {
            left_out += 1;
            return Ok(());
        }
        writer.write_record(row.iter().map(|value| field(value, text))).map_err(io_error)
    })?;
    writer.flush()?;
    Ok(left_out)
}

/// The error of the file or pipe below a CSV writer, with its kind: a closed pipe is no error for the caller.
fn io_error(error: csv::Error) -> io::Error {
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        _ => io::Error::other(text),
    }
}

/// A note for people about the rows and tables of a run that the CSV of `table` leaves out. An example: `4 rows per CPU
/// (--all prints them); tables conditions, events (--table NAME prints one)`. Empty if nothing is left out.
/// `left_out`: number of rows that are left out.
#[must_use]
pub fn csv_omissions(run: &Run, table: &Table, left_out: u64) -> String {
    let filter = if left_out > 0 { table.display.filter.as_ref() } else { None };
    let rows = filter.map(|filter| {
        let number = usize::try_from(left_out).unwrap_or(usize::MAX);
        let description = escape::plain(&filter.others);
        format!("{} {description} (--all prints them)", rows_of(number))
    });
    let names = run.tables.iter().filter(|other| other.name != table.name && other.row_count() > 0);
    let names: Vec<String> = names.map(|table| escape::plain(&table.name)).collect();
    let tables = match names.as_slice() {
        [] => None,
        [name] => Some(format!("table {name} (--table {name} prints it)")),
        _ => Some(format!("tables {} (--table NAME prints one)", names.join(", "))),
    };
    rows.into_iter().chain(tables).collect::<Vec<_>>().join("; ")
}

/// Whether a row is not a part of another row: nobody must add up parts with their sum. The table's filter knows the
/// parts, unless it filters by size, which serves only people.
pub(crate) fn is_sum(table: &Table, row: &[Value]) -> bool {
    match &table.display.filter {
        Some(filter) if matches!(filter.keep, Keep::Text(_)) => filter.keeps(table, row),
        _ => true,
    }
}

/// Text for a spreadsheet, with an apostrophe before text that it would take for a formula.
fn guarded(text: String) -> String {
    let is_number = text.parse::<f64>().is_ok_and(f64::is_finite);
    if text.starts_with(['=', '+', '-', '@']) && !is_number { format!("'{text}") } else { text }
}

/// A value as a field of CSV.
fn field(value: &Value, text: CsvText) -> String {
    match value {
        Value::Absent => String::new(),
        Value::Bool(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        // The shortest digits that give the same number, as in JSON.
        Value::Real(_) => value.to_json().to_string(),
        Value::Text(value) if text == CsvText::Exact => escape::plain(value),
        Value::Text(value) => guarded(escape::plain(value)),
    }
}
