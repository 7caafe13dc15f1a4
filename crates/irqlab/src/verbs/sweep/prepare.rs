//! `irqlab sweep prepare`: makes what tasks need once and share: kernels, guest images, and booted machines in the cache.
//!
//! One task of each combination that may have a machine of its own executes `--dry-run`, which makes its machine and
//! measures nothing. The cache finds equal machines by their content, and makes an entry as a whole or not at all.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Command;
use sweep::{BuildStart, FileHashes, Plan, SweepDirectory, Task};

use super::command_line::CommandLine;
use super::estimate::{self, MachineSource, dry_run};
use super::{open, printable, usage, values_text};
use crate::VERSION;
use crate::console::{self, rounded};

/// Exit code if the machine of a task could not be made.
const FAILED: u8 = 1;

/// Make the machines of all tasks in the cache, and execute no task
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep prepare caches
  IRQLAB_CACHE=/shared/irqlab irqlab sweep prepare caches

Tasks find their kernel, guest image and booted machine in the cache, by content. After prepare, no task boots a
machine for the cache. On nodes that share the cache, set IRQLAB_CACHE_ONLY=1: a task whose machine is missing
then fails instead of booting it. prepare builds nothing: a task whose [build] file does not exist yet counts as a
task without its machine.

Exit codes: 0 all tasks find their machines in the cache; 1 some do not, or the system refuses; 2 the command
line is wrong.")]
pub struct PrepareArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR")]
    sweep: PathBuf,
}

/// The machines of a sweep, by whether the cache has them.
#[derive(Default)]
struct Prepared {
    /// Number of machines that the cache had.
    found: usize,
    /// Number of machines that it had not. Another irqlab may have made them meanwhile.
    made: usize,
    /// Positions of tasks with the reason why their machine is not in the cache.
    failed: Vec<(usize, String)>,
}

pub fn run(args: &PrepareArgs, command: Command) -> anyhow::Result<ExitCode> {
    let sweep = open(&args.sweep)?;
    sweep.check_version(VERSION).map_err(usage)?;
    let plan = sweep.plan();
    let mut parser = CommandLine::new(command);
    let mut positions = Vec::new();
    for position in tasks_with_own_machines(plan, &parser) {
        if parser.parse(&plan.arguments(&plan.tasks[position].values))?.plans_machines {
            positions.push(position);
        }
    }
    let mut hashes = FileHashes::default();
    for position in &positions {
        sweep.check_task(&plan.tasks[*position], &mut hashes).map_err(usage)?;
    }
    if positions.is_empty() {
        console::say(
            "nothing to prepare: no task of this sweep starts from a machine in the cache",
        );
        return Ok(ExitCode::SUCCESS);
    }
    let prepared = prepare(&sweep, &positions)?;
    let Prepared { found, failed, .. } = prepared;
    console::print(&format!(
        "combinations with a machine of their own: {} (in the cache before: {found}, now: {})\n{}",
        positions.len(),
        positions.len() - failed.len(),
        printable(&estimate::lines(plan, &mut parser)?)
    ))?;
    for (position, reason) in &failed {
        let values = values_text(plan, &plan.tasks[*position]);
        console::warn(&format!("task {position} ({values}) finds no machine: {reason}"));
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Positions of the first tasks with each combination of values on the axes that may change the machine.
fn tasks_with_own_machines(plan: &Plan, parser: &CommandLine) -> Vec<usize> {
    let command = plan.arguments(&plan.tasks[0].values);
    let may_change: Vec<bool> =
        plan.axes.iter().map(|axis| parser.may_change_machine(&command, &axis.form)).collect();
    let values_of = |task: &Task| -> Vec<u32> {
        let pairs = task.values.iter().zip(&may_change);
        pairs.filter(|(_, may_change)| **may_change).map(|(value, _)| *value).collect()
    };
    let mut seen = BTreeSet::new();
    let is_first = |(_, task): &(usize, &Task)| seen.insert(values_of(task));
    plan.tasks.iter().enumerate().filter(is_first).map(|(position, _)| position).collect()
}

fn prepare(sweep: &SweepDirectory, positions: &[usize]) -> anyhow::Result<Prepared> {
    let mut prepared = Prepared::default();
    let mut usable = Vec::new();
    for (number, position) in positions.iter().enumerate() {
        let arguments = match arguments(sweep, &sweep.plan().tasks[*position])? {
            Ok(arguments) => arguments,
            Err(reason) => {
                prepared.failed.push((*position, reason));
                continue;
            }
        };
        if dry_run(&arguments, MachineSource::CacheOnly)?.is_ok() {
            prepared.found += 1;
            usable.push((*position, arguments));
            continue;
        }
        let started = Instant::now();
        match dry_run(&arguments, MachineSource::MadeIfMissing)? {
            Ok(_) => {
                prepared.made += 1;
                let values = values_text(sweep.plan(), &sweep.plan().tasks[*position]);
                let (count, time) = (positions.len(), rounded(started.elapsed()));
                console::say(&format!(
                    "{} of {count}: task {position} ({values}), {time}",
                    number + 1
                ));
                usable.push((*position, arguments));
            }
            Err(reason) => prepared.failed.push((*position, reason)),
        }
    }
    if prepared.made > 0 {
        // The cache may have refused a machine, as on a full disk, or evicted an earlier one for a later one.
        for (position, arguments) in usable {
            if let Err(reason) = dry_run(&arguments, MachineSource::CacheOnly)? {
                let hint = "irqlab sim cache limit sets the size of the cache";
                let reason = format!("the cache does not keep it: {reason} ({hint})");
                prepared.failed.push((position, reason));
            }
        }
    }
    Ok(prepared)
}

/// The arguments of a task. The inner error says that its file is not built.
fn arguments(sweep: &SweepDirectory, task: &Task) -> anyhow::Result<Result<Vec<String>, String>> {
    let Some(build) = sweep.build_of(task) else {
        return Ok(Ok(sweep.plan().arguments(&task.values)));
    };
    Ok(match build.start().map_err(usage)? {
        BuildStart::Done(file) => {
            Ok(sweep.plan().arguments_with_file(task, &file.display().to_string()))
        }
        BuildStart::Ready(_) | BuildStart::Busy => {
            Err("its file is not built (irqlab sweep run builds it)".to_owned())
        }
    })
}
