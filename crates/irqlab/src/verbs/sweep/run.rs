//! `irqlab sweep run`: executes one task of a sweep, or all tasks that have no result.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Command;
use live::host::process_cpus;
use sweep::{FileHashes, Plan, Status, SweepDirectory};

use super::command_line::CommandLine;
use super::pool::{Counts, Pool};
use super::{open, usage};
use crate::VERSION;
use crate::console;
use crate::options::Usage;
use crate::run::stop_on_signals;

/// Environment variables with the index of a task, set by Slurm and Kubernetes. The first that is set counts.
const INDEX_VARIABLES: [&str; 2] = ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"];
/// Exit code if a task failed, or the sweep was stopped.
const FAILED: u8 = 1;

/// Execute the tasks that have no result, or one task by its index
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep run caches                all tasks that have no result
  irqlab sweep run caches --jobs 4       four at the same time
  irqlab sweep run caches --index 7      only the task with index 7

A task that is killed leaves nothing, and is executed by the next run. A task that failed is executed again
after irqlab sweep retry. Tasks that measure this machine run one after the other, because they would
disturb each other.

Exit codes: 0 all of these tasks are done, or another irqlab executes them; 1 a task failed, now or before, or
Ctrl-C stopped the sweep; 2 the command line is wrong.")]
pub struct RunArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR")]
    sweep: PathBuf,
    /// Execute only the task with this index, from 0 on [default: SLURM_ARRAY_TASK_ID, else JOB_COMPLETION_INDEX,
    /// else all tasks]
    #[arg(long, value_name = "N")]
    index: Option<usize>,
    /// Tasks at the same time [default: the CPUs that irqlab may use, or 1 if tasks measure this machine]
    #[arg(short, long, value_name = "N", conflicts_with = "index")]
    jobs: Option<NonZeroU32>,
}

pub fn run(args: &RunArgs, command: Command) -> anyhow::Result<ExitCode> {
    let sweep = open(&args.sweep)?;
    sweep.check_version(VERSION).map_err(usage)?;
    let index = chosen_index(args, |name| std::env::var(name).ok())?;
    let (tasks, failed_before) = match index {
        Some(index) => (one_task(&sweep, index)?, 0),
        None => open_tasks(&sweep)?,
    };
    if tasks.is_empty() {
        return Ok(if index.is_some() { ExitCode::SUCCESS } else { nothing_to_do(&sweep)? });
    }
    let mut hashes = FileHashes::default();
    for index in &tasks {
        sweep.check_task(&sweep.plan().tasks[*index], &mut hashes).map_err(usage)?;
    }
    let jobs = number_of_jobs(args, sweep.plan(), tasks.len());
    let options = task_options(&sweep, &tasks, jobs, command)?;
    let stop = stop_on_signals()?;
    let pool = Pool { sweep: &sweep, tasks: &tasks, jobs, options: &options, stop: &stop };
    conclude(pool.execute()?, tasks.len(), failed_before, &args.sweep.display().to_string())
}

/// The index of the only task to execute. `None`: all tasks.
fn chosen_index(
    args: &RunArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<usize>, Usage> {
    if args.index.is_some() || args.jobs.is_some() {
        return Ok(args.index);
    }
    let found = INDEX_VARIABLES.iter().find_map(|name| Some((name, variable(name)?)));
    let Some((name, text)) = found else { return Ok(None) };
    let index = text.trim().parse();
    index.map(Some).map_err(|_| Usage(format!("{name} is {text:?}, which is no index of a task")))
}

/// The task with this index, or nothing if its result is recorded.
fn one_task(sweep: &SweepDirectory, index: usize) -> anyhow::Result<Vec<usize>> {
    let Some(task) = sweep.plan().tasks.get(index) else {
        let last = sweep.plan().tasks.len() - 1;
        bail!(Usage(format!("there is no task {index}: the indexes are 0 to {last}")));
    };
    if sweep.is_done(task) {
        console::say(&format!("task {index} is done already"));
        return Ok(Vec::new());
    }
    if let Some(failure) = sweep.failure(task)? {
        bail!(
            "task {index} failed before: {} (irqlab sweep retry {} allows another execution)",
            failure.reason,
            sweep.path().display()
        );
    }
    Ok(vec![index])
}

/// All tasks that have neither a result nor a failure, and that no other irqlab executes; and the number of tasks that
/// failed before. Removes what killed executions left.
fn open_tasks(sweep: &SweepDirectory) -> anyhow::Result<(Vec<usize>, usize)> {
    let removed = sweep.remove_leftovers();
    if removed > 0 {
        console::say(&format!("leftovers of killed executions: removed {removed} directories"));
    }
    let status = Status::read(sweep).map_err(usage)?;
    if !status.running.is_empty() {
        console::say(&format!("another irqlab executes {}", status.running.len()));
    }
    Ok((status.missing, status.failed.len()))
}

/// Says why no task is open.
fn nothing_to_do(sweep: &SweepDirectory) -> anyhow::Result<ExitCode> {
    let status = Status::read(sweep).map_err(usage)?;
    let (done, tasks) = (status.done.len(), sweep.plan().tasks.len());
    if status.failed.is_empty() {
        console::say(&format!("done: {done} of {tasks} tasks; none is open"));
        return Ok(ExitCode::SUCCESS);
    }
    let path = sweep.path().display();
    console::warn(&format!(
        "done: {done} of {tasks} tasks; {} failed before (irqlab sweep status {path} has the reasons; irqlab sweep retry \
         {path} allows another execution)",
        status.failed.len()
    ));
    Ok(ExitCode::from(FAILED))
}

/// Tasks at the same time, unless the user says else.
pub fn default_jobs(plan: &Plan) -> usize {
    if plan.measures_this_machine { 1 } else { process_cpus().started_with.len() }
}

fn number_of_jobs(args: &RunArgs, plan: &Plan, tasks: usize) -> usize {
    let jobs = args.jobs.map_or_else(|| default_jobs(plan), |jobs| jobs.get() as usize);
    if plan.measures_this_machine && jobs > 1 {
        console::warn("tasks that measure this machine disturb each other: use --jobs 1");
    }
    jobs.clamp(1, tasks.max(1))
}

/// Options for tasks that run at the same time: each simulates one machine at a time, unless its arguments say else.
pub fn task_options(
    sweep: &SweepDirectory,
    tasks: &[usize],
    jobs: usize,
    command: Command,
) -> anyhow::Result<Vec<String>> {
    let plan = sweep.plan();
    // Tasks that measure this machine refuse the option.
    if jobs == 1 || plan.measures_this_machine {
        return Ok(Vec::new());
    }
    let Some(first) = tasks.first() else { return Ok(Vec::new()) };
    let parsed = CommandLine::new(command).parse(&plan.arguments(&plan.tasks[*first].values))?;
    Ok(if parsed.lacks_jobs { vec!["--jobs=1".to_owned()] } else { Vec::new() })
}

fn conclude(
    counts: Counts,
    tasks: usize,
    failed_before: usize,
    sweep: &str,
) -> anyhow::Result<ExitCode> {
    let Counts { done, failed, elsewhere, .. } = counts;
    let open = tasks - done - failed - elsewhere;
    let mut parts = vec![format!("done: {done} of {tasks} tasks")];
    if failed > 0 {
        parts.push(format!("{failed} failed (irqlab sweep status {sweep})"));
    }
    if failed_before > 0 {
        parts.push(format!("{failed_before} failed before (irqlab sweep status {sweep})"));
    }
    if elsewhere > 0 {
        parts.push(format!("another irqlab executes {elsewhere}"));
    }
    if open > 0 {
        parts.push(format!("stopped; {open} are open (irqlab sweep run {sweep} executes them)"));
    }
    console::say(&parts.join("; "));
    Ok(if failed + failed_before + open > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_from_the_option_or_the_scheduler() {
        let args = |index| RunArgs { sweep: PathBuf::new(), index, jobs: None };
        let chosen = |index, variables: &[(&str, &str)]| {
            chosen_index(&args(index), |name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
            .map_err(|Usage(what)| what)
        };
        let both = [("JOB_COMPLETION_INDEX", "5"), ("SLURM_ARRAY_TASK_ID", "4")];
        assert_eq!(chosen(Some(3), &both), Ok(Some(3)));
        assert_eq!(chosen(None, &both), Ok(Some(4)));
        assert_eq!(chosen(None, &both[..1]), Ok(Some(5)));
        assert_eq!(chosen(None, &[]), Ok(None));
        assert!(chosen(None, &[("SLURM_ARRAY_TASK_ID", "x")]).unwrap_err().contains("\"x\""));
    }
}
