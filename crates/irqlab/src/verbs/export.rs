//! `irqlab export`: writes a run in the format of another program. `report::exchange` makes each format; this file
//! checks the options and writes the files.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use outputs::{MakeDirectoryError, NewDirectory};
use record::{Run, Table, Timestamp};
use report::{CsvRows, CsvText, Exposition};

use crate::console;
use crate::options::Usage;
use crate::output_file::{self, ForceArgs};
use crate::run::table;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// A timeline for ui.perfetto.dev: tracks for each CPU and context
    Perfetto,
    /// Stacks for a flame graph: inferno, flamegraph.pl, speedscope
    Folded,
    /// Histograms, as an HdrHistogram log
    Hlog,
    /// Comma-separated values: a directory with a file for each table
    Csv,
    /// Metrics in Prometheus' text format 0.0.4, for the textfile collector of node_exporter
    Prometheus,
    /// Metrics in OpenMetrics text, to fill Prometheus with past runs
    Openmetrics,
}

/// Write a run in the format of another program
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab export RUN --format folded | flamegraph.pl > flame.svg
  irqlab export RUN --format folded --weight l1d_misses -o misses.folded
  irqlab export RUN --format perfetto -o run.pftrace
  irqlab export RUN --format hlog -o run.hlog
  irqlab export RUN --format prometheus -o /var/lib/prometheus/node-exporter/irqlab.prom
  irqlab export RUN --format csv -o tables/
  irqlab export RUN --format csv --table handlers

Exit codes: 0 written; 1 failed; 2 the command line is wrong, or the run has nothing for the format.")]
pub struct ExportArgs {
    /// Run directory
    run: PathBuf,
    /// Format of the output
    #[arg(long, value_enum)]
    format: ExportFormat,
    /// File to write, or with csv the directory; - is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// With folded: weight of each stack, such as ns, cycles or l1d_misses [default: the run's first weight]
    #[arg(long, value_name = "WEIGHT")]
    weight: Option<String>,
    /// With csv: write only this table
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// With csv: write all text unchanged [default: an apostrophe before text that a spreadsheet takes for a formula]
    #[arg(long)]
    exact_text: bool,
    /// With openmetrics: give each sample the start time of the run, which a back-fill needs
    #[arg(long)]
    timestamps: bool,
}

impl ExportArgs {
    fn csv(&self, table: &Table) -> String {
        let text = if self.exact_text { CsvText::Exact } else { CsvText::Guarded };
        report::csv(table, CsvRows::All, text)
    }

    /// Refuses options that belong to another format.
    fn check(&self) -> Result<(), Usage> {
        for (flag, is_given, format, name) in [
            ("--weight", self.weight.is_some(), ExportFormat::Folded, "folded"),
            ("--table", self.table.is_some(), ExportFormat::Csv, "csv"),
            ("--exact-text", self.exact_text, ExportFormat::Csv, "csv"),
            ("--timestamps", self.timestamps, ExportFormat::Openmetrics, "openmetrics"),
        ] {
            if is_given && self.format != format {
                return Err(Usage(format!("{flag} works only with --format {name}")));
            }
        }
        Ok(())
    }
}

pub fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    // `None`: standard output.
    let output = args.output.as_deref().filter(|path| !output_file::is_stdout(path));
    let is_directory = args.format == ExportFormat::Csv && args.table.is_none();
    if let Some(file) = output
        && !is_directory
    {
        output_file::check(file, args.force)?;
    }
    let run = record::read_run(&args.run)?;
    let write = |contents: &[u8]| write(output, contents, args.force);
    match args.format {
        ExportFormat::Perfetto => {
            if output.is_none() && io::stdout().is_terminal() {
                bail!(Usage("a trace is binary: write it to a file with -o FILE".to_owned()));
            }
            write(&report::perfetto(&run).map_err(usage)?)?;
        }
        ExportFormat::Folded => {
            let folded = report::folded(&run, args.weight.as_deref()).map_err(usage)?;
            write(folded.text.as_bytes())?;
            console::say(&format!("folded: the weight of each stack is {}", folded.weight));
            if let Some(left_out) = folded.left_out {
                console::say(&format!("folded: {left_out}"));
            }
        }
        ExportFormat::Hlog => write(report::hlog(&run).map_err(usage)?.as_bytes())?,
        ExportFormat::Csv => match &args.table {
            Some(name) => write(args.csv(table(&run, name)?).as_bytes())?,
            None => write_csv_directory(args, &run, output)?,
        },
        ExportFormat::Openmetrics | ExportFormat::Prometheus => {
            let format = match args.format {
                ExportFormat::Openmetrics => Exposition::OpenMetrics,
                _ => Exposition::Prometheus,
            };
            let timestamp = args.timestamps.then(|| started_seconds(&run)).transpose()?;
            let metrics = report::metrics(&run, format, timestamp).map_err(usage)?;
            write(metrics.text.as_bytes())?;
            if !metrics.left_out.is_empty() {
                let tables = metrics.left_out.join(", ");
                console::say(&format!(
                    "metrics: these tables are left out, because they have no labels that identify a \
                     row: {tables}"
                ));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Turns the error that a run has nothing for the format into an error of the command line: exit code 2.
fn usage(error: report::Unexported) -> Usage {
    Usage(error.to_string())
}

/// When the run started, in seconds of Unix time.
fn started_seconds(run: &Run) -> anyhow::Result<f64> {
    let started: Timestamp = run
        .started_utc
        .parse()
        .with_context(|| format!("the start time of the run is wrong: {:?}", run.started_utc))?;
    Ok(started.as_millisecond() as f64 / 1e3)
}

/// Writes to `file`, or to standard output if it is `None`.
fn write(file: Option<&Path>, contents: &[u8], force: ForceArgs) -> anyhow::Result<()> {
    match file {
        Some(file) => output_file::write(file, contents, force),
        None => console::print_bytes(contents).map(drop),
    }
}

/// Writes each table that has rows as `NAME.csv` in `directory`. A new directory appears whole or not at all. An
/// existing directory must be empty.
fn write_csv_directory(
    args: &ExportArgs,
    run: &Run,
    directory: Option<&Path>,
) -> anyhow::Result<()> {
    let Some(path) = directory else {
        bail!(Usage(
            "a run has several tables: add -o DIR for all tables, or --table NAME for one".into()
        ))
    };
    if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
        let path = path.display();
        bail!(Usage(format!("{path} is not empty; name a new or an empty directory")));
    }
    if path.is_dir() {
        return csv_files(args, run).try_for_each(|(name, text)| {
            output_file::write(&path.join(name), text.as_bytes(), ForceArgs::default())
        });
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
    }
    write_new_directory(args, run, path).map_err(|error| match error {
        MakeDirectoryError::Exists => anyhow!("{} exists already", path.display()),
        MakeDirectoryError::Io { path, source } => {
            anyhow!("cannot write {}: {source}", path.display())
        }
    })
}

/// Writes the CSV files of the run into a new directory, which must not exist.
fn write_new_directory(
    args: &ExportArgs,
    run: &Run,
    path: &Path,
) -> Result<(), MakeDirectoryError> {
    let directory = NewDirectory::create(path)?;
    for (name, text) in csv_files(args, run) {
        directory.write(&name, text.as_bytes())?;
    }
    directory.finish()
}

/// Names and contents of the CSV files, one for each table with rows.
fn csv_files(args: &ExportArgs, run: &Run) -> impl Iterator<Item = (String, String)> {
    let filled = run.tables.iter().filter(|table| !table.rows().is_empty());
    filled.map(|table| (format!("{}.csv", table.name), args.csv(table)))
}
