//! `irqlab show`: prints the tables of a recorded run, or the meaning of its columns. Reads only those parts of the
//! run that it prints, because a table can be larger than the memory.

use std::path::PathBuf;
use std::process::ExitCode;

use record::{Part, StoredRun};
use serde_json::{Value as Json, json};

use crate::console;
use crate::options::{Format, FormatArgs};
use crate::run::{CsvSelection, table, text, write_csv};

/// Print a run's tables
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab show RUN                          the tables, as they were printed
  irqlab show RUN handlers                 one table, with all of its rows
  irqlab show RUN handlers --format csv    one table, for a spreadsheet
  irqlab show RUN --columns                what the tables and columns mean")]
pub struct ShowArgs {
    /// Run directory
    run: PathBuf,
    /// Table to print [default: all tables]
    #[arg(value_name = "TABLE", conflicts_with = "table")]
    name: Option<String>,
    /// Print what the tables and columns mean, instead of their rows
    #[arg(long, conflicts_with_all = ["all", "format"])]
    columns: bool,
    #[command(flatten)]
    format_args: FormatArgs,
}

/// Prints the rows (as JSON or CSV, row by row), the tables as text, or the meaning of the columns. The last needs no rows, so it
/// reads none.
pub fn run(args: ShowArgs) -> anyhow::Result<ExitCode> {
    let ShowArgs { run: directory, name, columns, mut format_args } = args;
    format_args.table = format_args.table.or(name);
    let stored = StoredRun::open(&directory)?;
    if !columns && matches!(format_args.format(), Format::Json | Format::Csv) {
        return print_rows(&stored, &format_args).map(|()| ExitCode::SUCCESS);
    }
    // Reads no rows of a table that is not printed.
    let hides_tables =
        matches!(format_args.format(), Format::Table | Format::Markdown) && !format_args.all;
    let mut run = stored.read_parts(|table| {
        let is_wanted = format_args.table.as_ref().is_none_or(|name| *name == table.name);
        let is_hidden = format_args.table.is_none() && table.display.rows_max == Some(0);
        if columns || !is_wanted || (hides_tables && is_hidden) { Part::Outline } else { Part::All }
    })?;
    if !columns {
        console::print(&text(&run, Some(&directory), &format_args, None)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &format_args.table {
        let table = table(&run, name)?.clone();
        run.tables = vec![table];
    }
    let is_json = format_args.format() == Format::Json;
    console::print(&if is_json { columns_document(&run) } else { columns_text(&run) })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the run as JSON or CSV, row by row, without a whole table in memory.
fn print_rows(stored: &StoredRun, format_args: &FormatArgs) -> anyhow::Result<()> {
    let single_table;
    let outline = match &format_args.table {
        Some(name) => {
            let outline = stored.outline();
            single_table = outline.with_tables(vec![table(outline, name)?.clone()]);
            &single_table
        }
        None => stored.outline(),
    };
    console::print_by(|out| match format_args.format() {
        Format::Json => report::write_json(out, outline, stored),
        _ => {
            let selection = CsvSelection { main_table: None, all_rows: format_args.all };
            write_csv(out, outline, stored, selection)
        }
    })
}

/// The meaning of tables and columns as text.
fn columns_text(run: &record::Run) -> String {
    let mut text = String::new();
    for table in &run.tables {
        text += &format!("{}: {}\n", table.name, table.doc);
        for column in &table.columns {
            text += &format!("  {} ({}): {}\n", column.name, column.kind, column.doc);
        }
    }
    // The run may come from an untrusted source. Escaping line by line keeps the line ends.
    text.lines().map(|line| report::escape::plain(line) + "\n").collect()
}

/// The meaning of tables and columns as a JSON document.
fn columns_document(run: &record::Run) -> String {
    let column = |column: &record::Column| {
        let kind = column.kind.to_string();
        json!({ "name": column.name, "kind": kind, "doc": column.doc })
    };
    let tables = run.tables.iter().map(|table| {
        let columns: Vec<Json> = table.columns.iter().map(column).collect();
        json!({ "name": table.name, "doc": table.doc, "columns": columns })
    });
    let document = json!({ "schema": run.schema, "tables": tables.collect::<Vec<Json>>() });
    format!("{document:#}\n")
}
