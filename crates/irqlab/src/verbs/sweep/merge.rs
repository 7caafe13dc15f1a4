//! `irqlab sweep merge`: one Parquet data set of all results.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use report::escape;
use sweep::{MergeSummary, MissingTasks, SweepDirectory, merge};

use super::{open, usage};
use crate::console;
use crate::options::Usage;
use crate::run::stop_on_signals;

/// Merge the results into one Parquet data set: a directory for each table, with the axes as columns
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep merge caches -o caches-data
  irqlab sweep merge caches --allow-missing -o half      while tasks are missing
  irqlab sweep merge here/caches there/caches -o all     two copies of one sweep

Exit codes: 0 merged; 1 failed, or a result was edited; 2 the command line is wrong, or results are missing or
contradict each other.")]
pub struct MergeArgs {
    /// Directories of the sweep: several if copies of it were executed in several places
    #[arg(value_name = "DIR", required = true)]
    sweeps: Vec<PathBuf>,
    /// Directory of the data set, which must not exist
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Merge although tasks have no result
    #[arg(long)]
    allow_missing: bool,
}

pub fn run(args: &MergeArgs) -> anyhow::Result<ExitCode> {
    let output = args.output.display();
    if args.output.symlink_metadata().is_ok() {
        bail!(Usage(format!("{output} exists already (name a new directory with -o)")));
    }
    let sweeps: Vec<SweepDirectory> =
        args.sweeps.iter().map(|path| open(path)).collect::<anyhow::Result<_>>()?;
    let missing = if args.allow_missing { MissingTasks::LeftOut } else { MissingTasks::Refused };
    let stop = stop_on_signals()?;
    let summary = merge(&sweeps, &args.output, missing, &|| stop.is_requested()).map_err(usage)?;
    console::print(&text(&summary))?;
    console::say(&format!(
        "data set: {output}  (each table is a directory; columns.json documents the columns)"
    ));
    Ok(ExitCode::SUCCESS)
}

fn text(summary: &MergeSummary) -> String {
    let mut text = String::new();
    for (name, rows) in &summary.tables {
        let _ = writeln!(text, "{}: {rows} rows", escape::plain(name));
    }
    if summary.missing_count > 0 {
        let _ = writeln!(
            text,
            "without a result: {} of {} tasks",
            summary.missing_count, summary.task_count
        );
    }
    if summary.live_machines.len() > 1 {
        let machines: Vec<&str> = summary.live_machines.iter().map(String::as_str).collect();
        let machines = escape::plain(&machines.join("; "));
        let _ = writeln!(
            text,
            "warning: live runs of several machines, which may differ for that alone: {machines}"
        );
    }
    text
}
