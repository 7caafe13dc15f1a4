//! Prints and records the results of a bench, as a run of irqlab.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use live::host::{Root, host_facts, run_host_block};
use record::{Absence, Run, SCHEMA, Table};
use report::TerminalOptions;
use serde_json::{Map, Value as Json};

/// Options that choose how results are printed.
#[derive(Clone, Debug, clap::Args)]
pub struct PrintArgs {
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Also record the run in this new directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The results of a bench.
pub struct Results {
    run: Run,
}

impl Results {
    /// The results of the bench `name`, which starts now.
    pub fn start(name: &str) -> Results {
        let run = Run {
            schema: SCHEMA.to_owned(),
            experiment: format!("bench-{name}"),
            bench: "live".to_owned(),
            started_utc: record::now().to_string(),
            complete: true,
            host: run_host_block(&host_facts(&Root::default())),
            settings: Map::from_iter([("version".to_owned(), env!("CARGO_PKG_VERSION").into())]),
            observer: Map::new(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: Vec::new(),
        };
        Results { run }
    }

    pub fn setting(&mut self, name: &str, value: impl Into<Json>) {
        self.run.settings.insert(name.to_owned(), value.into());
    }

    pub fn warn(&mut self, text: String) {
        self.run.warnings.push(text);
    }

    /// Says why `what` is not in the table.
    pub fn absent(&mut self, table: &str, what: String, reason: String) {
        self.run.absent.push(Absence::new(table, what, reason));
    }

    pub fn table(&mut self, table: Table) {
        self.run.tables.push(table);
    }

    /// Says that the bench was stopped before its end.
    pub fn interrupted(&mut self) {
        self.run.complete = false;
    }

    #[cfg(test)]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Prints the results, and records them if that is asked for.
    ///
    /// Fails when the directory exists or cannot be written.
    pub fn finish(&self, args: &PrintArgs) -> anyhow::Result<ExitCode> {
        let options = TerminalOptions { width: None, color: false, all_rows: true, run_dir: None };
        let text =
            if args.json { report::json(&self.run) } else { report::terminal(&self.run, options) };
        print!("{text}");
        if let Some(directory) = &args.out {
            record::write_run(&self.run, &[], directory).context("the results are not recorded")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
