//! Enlarges a run, to measure how long its readers take: repeats the rows of one table until the table has ROWS rows.
//!
//!     cargo run --release -p record --example enlarge -- RUN TABLE ROWS OUT
//!
//! Each repetition has other numbers in the table's first key column of whole numbers, so that keys stay unique,
//! and later times in a column `start_ns`.

use std::path::Path;
use std::process::ExitCode;

use record::{Kind, Role, Run, Table, Value, read_run, write_run};

/// Each repetition adds this to the keys of the one before.
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
    let tables = run.tables.iter().map(|table| if table.name == *name { &large } else { table });
    let run = Run { tables: tables.cloned().collect(), ..run.clone() };
    write_run(&run, &[], Path::new(out))?;
    Ok(())
}

fn enlarged(table: &Table, rows: usize) -> Table {
    let is_key = |index: &usize| {
        let column = &table.columns[*index];
        column.role == Role::Key && column.kind == Kind::Uint && column.name != "cpu"
    };
    let key = (0..table.columns.len()).find(is_key);
    let start = table.column("start_ns");
    let number = |value: &Value| value.number().unwrap_or(0.0) as u64;
    let time_step = start.map_or(0, |start| {
        table.rows().iter().map(|row| number(&row[start])).max().unwrap_or(0) + 1
    });
    let mut large = Table::new(&table.name, &table.doc, table.columns.clone());
    large.display = table.display.clone();
    for (repetition, row) in (0_u64..)
        .flat_map(|repetition| table.rows().iter().map(move |row| (repetition, row)))
        .take(rows)
    {
        let mut row = row.clone();
        if let Some(key) = key {
            row[key] = Value::Uint(number(&row[key]) + repetition * KEY_STEP);
        }
        if let Some(start) = start {
            row[start] = Value::Uint(number(&row[start]) + repetition * time_step);
        }
        large.push(row);
    }
    large
}
