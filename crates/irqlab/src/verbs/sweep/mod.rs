//! `irqlab sweep`: one command with every combination of the values of some options. `sweep` (the crate) plans tasks
//! and keeps their results; the files here resolve options, execute tasks, and print.

mod axis_settings;
mod bisect;
mod build;
pub mod command_line;
mod estimate;
mod execute;
mod merge;
mod plan;
mod pool;
mod prepare;
pub mod report;
mod run;
mod status;
mod submit;

use std::path::Path;
use std::process::ExitCode;

use ::report::TerminalOptions;
use ::report::escape::plain;
use clap::Command;
use record::Run;
use sweep::{Plan, SweepDirectory, SweepError, Task};

use crate::console;
use crate::options::Usage;
use crate::run::terminal_options;

/// One command with every combination of some options: planned, executed anywhere, merged into one data set
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep plan caches.toml -o caches      lists the tasks, and executes none
  irqlab sweep prepare caches                  boots their machines once
  irqlab sweep run caches                      executes them here
  irqlab sweep submit slurm caches --time 30m --memory 2G > caches.sh
  irqlab sweep status caches
  irqlab sweep report caches --row RCU -o caches.html
  irqlab sweep bisect kernels --rule 'handlers[name=NET_RX].self_mean_ns>+5%'
  irqlab sweep merge caches -o caches-data     Parquet for DuckDB, pandas and Spark")]
pub struct SweepArgs {
    #[command(subcommand)]
    verb: SweepVerb,
}

#[derive(Debug, clap::Subcommand)]
enum SweepVerb {
    Plan(plan::PlanArgs),
    Prepare(prepare::PrepareArgs),
    Run(run::RunArgs),
    Status(status::StatusArgs),
    Retry(status::RetryArgs),
    Report(report::ReportArgs),
    Bisect(bisect::BisectArgs),
    Merge(merge::MergeArgs),
    /// Print what a scheduler needs to execute the tasks; nothing is submitted
    #[command(after_help = "Examples:
  irqlab sweep submit slurm caches --time 30m --memory 2G > caches.sh
  irqlab sweep submit kubernetes caches --image registry/irqlab --claim sweeps > caches.yaml")]
    Submit {
        #[command(subcommand)]
        verb: submit::SubmitVerb,
    },
}

pub fn run(args: &SweepArgs, command: Command) -> anyhow::Result<ExitCode> {
    match &args.verb {
        SweepVerb::Plan(args) => plan::run(args, command),
        SweepVerb::Prepare(args) => prepare::run(args, command),
        SweepVerb::Run(args) => run::run(args, command),
        SweepVerb::Status(args) => status::run(args),
        SweepVerb::Retry(args) => status::retry(args),
        SweepVerb::Report(args) => report::run(args),
        SweepVerb::Bisect(args) => bisect::run(args, command),
        SweepVerb::Merge(args) => merge::run(args),
        SweepVerb::Submit { verb } => submit::run(verb),
    }
}

/// Makes an error of the request an error of the command line: exit code 2.
fn usage(error: SweepError) -> anyhow::Error {
    match error {
        SweepError::Invalid(what) => Usage(what).into(),
        error => error.into(),
    }
}

fn open(path: &Path) -> anyhow::Result<SweepDirectory> {
    SweepDirectory::open(path).map_err(usage)
}

/// Prints a report with its answers: as text, or as one JSON document. `command`: the command line that prints all of it.
pub fn print_with_answers(
    report: &Run,
    answers: &[String],
    as_json: bool,
    all_rows: bool,
    command: String,
) -> anyhow::Result<()> {
    if as_json {
        let mut document = report.to_json();
        document["answers"] = serde_json::json!(answers);
        return console::print(&format!("{document:#}\n"));
    }
    let options =
        TerminalOptions { whole_command: Some(command), ..terminal_options(None, all_rows) };
    let mut text = ::report::terminal(report, options);
    for answer in answers {
        text += &format!("\n{}\n", plain(answer));
    }
    console::print(&text)
}

/// A text of several lines without control characters.
pub fn printable(text: &str) -> String {
    text.lines().map(|line| plain(line) + "\n").collect()
}

/// A task's value on each axis, as in `--on sim:zen3, --seed 1`.
fn values_text(plan: &Plan, task: &Task) -> String {
    let pairs = plan.named_values(task).map(|(name, value)| format!("{name} {value}"));
    pairs.collect::<Vec<_>>().join(", ")
}
