//! The results of a bench of `cargo xtask`, in the format of a run of irqlab. Each bench makes a [`Results`] at its
//! start, fills it, and ends with [`Results::finish`], which prints the run and can record it in a directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
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
    /// Empty results of the bench `name`, which starts now.
    ///
    /// Checks first that the bench can record them at its end. Fails if `--out` exists or cannot be made.
    pub fn start(name: &str, args: &PrintArgs) -> anyhow::Result<Results> {
        if let Some(directory) = &args.out {
            let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
            ensure!(directory.symlink_metadata().is_err(), "{} exists", directory.display());
            outputs::can_create_in(parent.unwrap_or(Path::new(".")))
                .with_context(|| format!("{} cannot be made", directory.display()))?;
        }
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
        Ok(Results { run })
    }

    /// Marks the results as those of simulated machines, and leaves out the facts about the host.
    pub fn of_simulated_machines(mut self) -> Results {
        self.run.bench = "sim".to_owned();
        self.run.host = Map::new();
        self
    }

    pub fn setting(&mut self, name: &str, value: impl Into<Json>) {
        self.run.settings.insert(name.to_owned(), value.into());
    }

    pub fn warn(&mut self, text: String) {
        self.run.warnings.push(text);
    }

    /// Records why `what` is not in the table.
    pub fn record_absence(&mut self, table: &str, what: String, reason: String) {
        self.run.absent.push(Absence::new(table, what, reason));
    }

    pub fn table(&mut self, table: Table) {
        self.run.tables.push(table);
    }

    /// Records that the bench was stopped before its end.
    pub fn interrupted(&mut self) {
        self.run.complete = false;
    }

    #[cfg(test)]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Prints the results, and records them if `args` has a directory. Returns the exit code of success.
    ///
    /// Fails if the directory exists or cannot be written.
    pub fn finish(&self, args: &PrintArgs) -> anyhow::Result<ExitCode> {
        let options = TerminalOptions { all_rows: true, ..TerminalOptions::default() };
        let text =
            if args.json { report::json(&self.run) } else { report::terminal(&self.run, options) };
        print!("{text}");
        if let Some(directory) = &args.out {
            record::write_run(&self.run, &[], directory).context("the results are not recorded")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_cannot_hold_the_results_is_refused_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let start = |out: PathBuf| {
            let error = Results::start("test", &PrintArgs { json: false, out: Some(out) }).err();
            error.map(|error| error.to_string())
        };
        assert!(start(directory.path().to_owned()).unwrap().ends_with(" exists"));
        assert!(start(directory.path().join("none/run")).unwrap().ends_with(" cannot be made"));
        assert_eq!(start(directory.path().join("run")), None);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
