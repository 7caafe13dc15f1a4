//! `irqlab sweep plan`: makes a directory with a task for each combination of a specification. The parser of irqlab's
//! own command line checks the tasks before the directory is written.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Command;
use sweep::{Plan, SPEC_BYTES_MAX, Spec, SweepDirectory, Task};

use super::command_line::CommandLine;
use super::{estimate, open, printable, usage};
use crate::VERSION;
use crate::console;
use crate::options::Usage;

/// The parser checks all tasks of a sweep with up to this many tasks. In a larger sweep, it checks the first tasks with
/// a value that no earlier task has, at most this many, and the last task.
pub const PARSED_TASKS_MAX: usize = 10_000;
/// Number of values of an axis that are printed.
const PRINTED_VALUES: usize = 8;

/// Make a task for each combination of a specification, and execute none
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep plan caches.toml -o caches
  irqlab sweep plan more-caches.toml --like caches -o more-caches

The specification is TOML:
  command = [\"handlers\", \"--on\", \"sim:zen3\", \"-d\", \"100ms\"]
  [axes]
  \"--seed\" = { from = 1, to = 10 }
  \"--set l2.size\" = [\"256KiB\", \"1MiB\"]

Exit codes: 0 planned; 1 failed; 2 the specification or the command line is wrong.")]
pub struct PlanArgs {
    /// File with the specification
    #[arg(value_name = "SPEC")]
    spec: PathBuf,
    /// Directory of the sweep, which must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Estimate by the results of this sweep with similar tasks [default: by --dry-run, for simulated machines]
    #[arg(long, value_name = "SWEEP")]
    like: Option<PathBuf>,
}

pub fn run(args: &PlanArgs, command: Command) -> anyhow::Result<ExitCode> {
    let spec = Spec::parse(&read_text(&args.spec)?).map_err(|error| in_file(&args.spec, error))?;
    if args.output.symlink_metadata().is_ok() {
        let output = args.output.display();
        bail!(Usage(format!("{output} exists already (name a new directory with -o)")));
    }
    let mut parser = CommandLine::new(command);
    let resolved = parser.resolve(&spec.command, &spec.axes)?;
    let directory = std::env::current_dir().context("cannot find the working directory")?;
    let planned = Plan::new(&spec, resolved.command, resolved.axes, VERSION, &directory);
    let mut plan = planned.map_err(|error| in_file(&args.spec, error))?;
    plan.measures_this_machine = check_tasks(&plan, &mut parser)?;
    let estimate = match &args.like {
        Some(path) => estimate::lines_by_results(&plan, &open(path)?)?,
        None => estimate::lines(&plan, &mut parser)?,
    };
    SweepDirectory::create(&args.output, &plan).map_err(usage)?;
    console::print(&(summary(&plan, &args.output) + &printable(&estimate)))?;
    Ok(ExitCode::SUCCESS)
}

/// Parses the arguments of [`tasks_to_parse`]. Returns whether any parsed task measures this machine.
///
/// Fails with the first task that the parser refuses.
fn check_tasks(plan: &Plan, parser: &mut CommandLine) -> Result<bool, Usage> {
    let mut measures_this_machine = false;
    for task in tasks_to_parse(plan) {
        let parsed = parser.parse(&plan.arguments(&task.values))?;
        measures_this_machine |= parsed.measures_this_machine;
    }
    Ok(measures_this_machine)
}

/// The tasks that the parser checks, in the order of the plan: see [`PARSED_TASKS_MAX`].
fn tasks_to_parse(plan: &Plan) -> Vec<&Task> {
    if plan.tasks.len() <= PARSED_TASKS_MAX {
        return plan.tasks.iter().collect();
    }
    // Whether an earlier task has a value, by axis and position of the value.
    let mut is_seen: Vec<Vec<bool>> =
        plan.axes.iter().map(|axis| vec![false; axis.values.len()]).collect();
    let mut chosen: Vec<&Task> = Vec::new();
    for task in &plan.tasks {
        let mut has_new_value = false;
        for (seen_values, position) in is_seen.iter_mut().zip(&task.values) {
            if let Some(is_value_seen) = seen_values.get_mut(*position as usize) {
                has_new_value |= !*is_value_seen;
                *is_value_seen = true;
            }
        }
        if has_new_value {
            chosen.push(task);
        }
        if chosen.len() == PARSED_TASKS_MAX {
            break;
        }
    }
    chosen.extend(plan.tasks.last());
    chosen
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    if !file.metadata().with_context(cannot)?.is_file() {
        bail!(Usage(format!("{}: it is not a regular file", cannot())));
    }
    let mut text = String::new();
    file.take(SPEC_BYTES_MAX + 1).read_to_string(&mut text).with_context(cannot)?;
    Ok(text)
}

/// Adds the file's name to an error of the specification.
fn in_file(path: &Path, error: sweep::SweepError) -> anyhow::Error {
    match error {
        sweep::SweepError::Invalid(what) => Usage(format!("{}: {what}", path.display())).into(),
        error => error.into(),
    }
}

/// Text that summarizes a plan: number of tasks, axes, files.
fn summary(plan: &Plan, output: &Path) -> String {
    let excluded = match plan.excluded_count {
        0 => String::new(),
        count => format!(" (excluded combinations: {count})"),
    };
    let mut text =
        format!("{} tasks{excluded}: irqlab {}\n", plan.tasks.len(), plan.command.join(" "));
    for axis in &plan.axes {
        let mut values = axis.values[..axis.values.len().min(PRINTED_VALUES)].join(", ");
        if axis.values.len() > PRINTED_VALUES {
            values += ", ...";
        }
        let _ = writeln!(text, "  {} ({}): {values}", axis.name, axis.values.len());
    }
    for (path, hash) in &plan.files {
        let _ = writeln!(text, "  file {path}: sha256 {}", hash.get(..16).unwrap_or(hash));
    }
    let baseline = plan.tasks.iter().filter(|task| plan.is_baseline(task)).count();
    if plan.baseline.is_some() {
        let _ = writeln!(text, "  tasks of the baseline: {baseline}");
    }
    let output = output.display();
    let _ = writeln!(text, "sweep: {output}  (to execute the tasks: irqlab sweep run {output})");
    printable(&text)
}
