//! Makes a large run of a small one, to see how long its readers take: repeats the rows of one table until there
//! are so many.
//!
//!     cargo run --release -p record --example enlarge -- RUN TABLE ROWS OUT
//!
//! Each repetition has other numbers in the table's first key column of whole numbers, so that keys stay unique,
//! and later times in a column `start_ns`.

use std::path::Path;
use std::process::ExitCode;

use record::{Kind, Role, Run, Table, Value, read_run, write_run};

/// What keys of one repetition differ from those of the next by, at least.
const KEY_STEP: u64 = 1_000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, name, rows, out] = &arguments[..] else {
        return Err("usage: enlarge RUN TABLE ROWS OUT".into());
    };
    let rows: usize = rows.parse()?;
    let run = read_run(Path::new(from))?;
    let table = run.table(name).ok_or("no such table")?;
    if table.rows().is_empty() {
        return Err("the table has no rows to repeat".into());
    }
    let large = enlarged(table, rows);
    let tables = run.tables.iter().map(|one| if one.name == *name { &large } else { one });
    let run = Run { tables: tables.cloned().collect(), ..run.clone() };
    write_run(&run, &[], Path::new(out))?;
    Ok(())
}

fn enlarged(table: &Table, rows: usize) -> Table {
    let is_key = |at: &usize| {
        let column = &table.columns[*at];
        column.role == Role::Key && column.kind == Kind::Uint && column.name != "cpu"
    };
    let key = (0..table.columns.len()).find(is_key);
    let start = table.column("start_ns");
    let whole = |value: &Value| value.number().unwrap_or(0.0) as u64;
    let last =
        start.map_or(0, |at| table.rows().iter().map(|row| whole(&row[at])).max().unwrap_or(0) + 1);
    let mut large = Table::new(&table.name, &table.doc, table.columns.clone());
    large.display = table.display.clone();
    for (repetition, row) in
        (0_u64..).flat_map(|at| table.rows().iter().map(move |row| (at, row))).take(rows)
    {
        let mut row = row.clone();
        if let Some(at) = key {
            row[at] = Value::Uint(whole(&row[at]) + repetition * KEY_STEP);
        }
        if let Some(at) = start {
            row[at] = Value::Uint(whole(&row[at]) + repetition * last);
        }
        large.push(row);
    }
    large
}
