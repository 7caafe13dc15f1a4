//! `irqlab report`: runs as one HTML page. `report::page` makes the page; this file reads the runs, and compares the
//! first with each other run of its experiment.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use lab::compare::{Plan, compare, tables};
use record::{Run, read_run, read_run_parts};
use report::{Comparison, Entry};
use serde_json::{Map, json};

use super::compare::{listed_for_people, run_of};
use crate::console;
use crate::output_file::{self, ForceArgs};

/// Figures of live runs that differ by less than this ratio count as equal. `compare` has this default, too.
const MARGIN_RATIO: f64 = 0.02;

/// Write runs as one HTML page, with pictures, tables and what changed
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab report RUN -o report.html
  irqlab report BASE NEW -o report.html      two runs, and what changed between them
  irqlab report HANDLERS NOISE SIGNAL -o report.html

The page is one file that loads nothing: it can be sent, archived and printed.")]
pub struct ReportArgs {
    /// Run directories; runs of the same experiment as the first are compared with it
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// File to write, or - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    force: ForceArgs,
}

/// Reads the runs, compares them and writes the page.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    output_file::check_or_stdout(&args.output, args.force)?;
    // Only a comparison needs all parts of the runs.
    let is_single_run = args.runs.len() == 1;
    let read = |path: &PathBuf| {
        if is_single_run { read_run_parts(path, report::needed) } else { read_run(path) }
    };
    let runs = args.runs.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = args.runs.iter().map(|path| path.display().to_string()).collect();
    let results = compare_with_first(&runs, &names);
    let entries: Vec<Entry<'_>> =
        runs.iter().zip(&names).map(|(run, directory)| Entry { run, directory }).collect();
    let comparisons = results.iter().map(|(other, result)| Comparison {
        other: *other,
        result: result.as_ref().map_err(String::as_str),
    });
    let page =
        report::page(&entries, &comparisons.collect::<Vec<_>>()).context("cannot make the page")?;
    output_file::write(&args.output, page.as_bytes(), args.force)?;
    if !output_file::is_stdout(&args.output) {
        console::say(&format!("report: {}", args.output.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares the first run with each other run of its experiment. Returns the index of the other run, and the comparison
/// as a run of `compare`, or the reason why the two cannot be compared.
fn compare_with_first(runs: &[Run], names: &[String]) -> Vec<(usize, Result<Run, String>)> {
    let Some((base, others)) = runs.split_first() else { return Vec::new() };
    let plan = Plan { all_rows: false, margin_ratio: MARGIN_RATIO, rules: Vec::new() };
    let compared_with_base = |(index, new): (usize, &Run)| {
        let result = compare(base, new, &plan).map_err(|error| error.to_string());
        let result = result.map(|mut comparison| {
            let listed = listed_for_people(comparison.differences.len());
            let (tables, absent) = tables(&comparison, &[], listed);
            let mut settings = Map::new();
            settings.insert("base".to_owned(), json!(names[0]));
            settings.insert("new".to_owned(), json!(names[index + 1]));
            settings.insert("margin_ratio".to_owned(), json!(MARGIN_RATIO));
            let started = base.started_utc.clone();
            run_of(base, started, &mut comparison, settings, (tables, absent))
        });
        (index + 1, result)
    };
    let comparable = others.iter().enumerate().filter(|(_, new)| new.experiment == base.experiment);
    comparable.map(compared_with_base).collect()
}
