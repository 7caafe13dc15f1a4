//! `irqlab show`: prints a run's tables.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;

use crate::args::{Format, Usage};
use crate::output;

/// Print a run's tables
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// Run directory
    run: PathBuf,
    /// Table to print; all of them by default
    table: Option<String>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Short for --format json
    #[arg(long)]
    json: bool,
    /// List the tables and their columns instead
    #[arg(long)]
    columns: bool,
    /// Also the rows of each CPU
    #[arg(long)]
    all: bool,
}

/// Reads the run directory and prints.
pub fn run(args: ShowArgs) -> anyhow::Result<ExitCode> {
    let run = record::read_run(&args.run)?;
    let format = if args.json { Format::Json } else { args.format };
    let text = if args.columns {
        columns(&run)
    } else if let Some(name) = &args.table {
        let Some(table) = run.table(name) else {
            let names: Vec<&str> = run.tables.iter().map(|table| table.name.as_str()).collect();
            bail!(Usage(format!("no table {name:?} in this run; it has: {}", names.join(", "))));
        };
        output::table_text(&run, &args.run, table, format)
    } else {
        let main = run.tables.first().map(|table| table.name.clone()).unwrap_or_default();
        output::run_text(&run, &args.run, format, &main, args.all)
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn columns(run: &record::Run) -> String {
    let mut text = String::new();
    for table in &run.tables {
        text += &format!("{}: {}\n", table.name, table.doc);
        for column in &table.columns {
            text += &format!("  {} ({}): {}\n", column.name, column.kind, column.doc);
        }
    }
    // The run may have come from anywhere: one line at a time, so that line ends survive.
    text.lines().map(|line| report::escape::plain(line) + "\n").collect()
}
