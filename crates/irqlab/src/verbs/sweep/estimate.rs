//! Estimates the time, memory and disk space of tasks before their execution. Tasks that simulate machines forecast their time
//! by `--dry-run`, from the times of earlier runs in the cache.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use live::program_rights;
use live::spawn::end_with_this_thread;
use sim::CACHE_ONLY;
use sweep::{MeasuredCosts, Plan, Status, SweepDirectory, Task, replace_in_command};

use super::command_line::{CommandLine, with_options};
use super::execute::running_program;
use super::run::default_jobs;
use super::usage;
use crate::console;
use crate::dry_run::DryRun;
use crate::options::Usage;
use crate::simulated::size_text;

/// Maximum number of tasks that are asked for their forecast. Each takes about half a second.
const ASKED_MAX: usize = 8;
/// Maximum length of a reason, characters.
const REASON_CHARS_MAX: usize = 300;

/// Where a task's machine is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineSource {
    /// The cache. A machine that it lacks is an error.
    CacheOnly,
    /// The cache, which boots a machine that it lacks.
    MadeIfMissing,
}

/// Asks a task for its forecast. The inner error says why it has none.
///
/// Fails if irqlab cannot be started.
pub fn dry_run(
    arguments: &[String],
    source: MachineSource,
) -> anyhow::Result<Result<DryRun, String>> {
    let program = std::env::current_exe().context("cannot find irqlab's own file")?;
    let options = ["--dry-run".to_owned(), "--json".to_owned()];
    // The task's own choice of a format would contradict these options.
    let names = ["--format".to_owned()];
    let arguments = replace_in_command(arguments, &names, true, None);
    let names = ["--json".to_owned()];
    let arguments = replace_in_command(&arguments, &names, false, None);
    let mut command = Command::new(running_program(program));
    command.args(with_options(&arguments, options)).stdin(Stdio::null());
    if source == MachineSource::CacheOnly {
        command.env(CACHE_ONLY, "1");
    }
    program_rights::give_to_helper(&mut command);
    end_with_this_thread(&mut command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output =
        outputs::output_of_program(&mut command).context("cannot start irqlab for a forecast")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let error = text.lines().rev().find_map(|line| line.strip_prefix("irqlab: "));
        let reason = error.map_or_else(|| output.status.to_string(), str::to_owned);
        return Ok(Err(reason.chars().take(REASON_CHARS_MAX).collect()));
    }
    Ok(serde_json::from_slice(&output.stdout).map_err(|error| format!("its forecast: {error}")))
}

/// The part of an estimate that some tasks have stated for all tasks.
#[derive(Clone, Debug, PartialEq)]
struct Forecasts {
    /// Number of tasks that were asked.
    asked_count: usize,
    /// Time of one core for all tasks, seconds. The error says why it is unknown.
    core_time_s: Result<f64, String>,
    /// Whether `core_time_s` is an upper bound.
    is_upper_bound: bool,
    /// Host memory of the largest machine, MiB. `None`: unknown.
    machine_memory_mib: Option<u64>,
}

/// Lines that state what all tasks of a plan will take: core-hours, memory, disk. Executes no task and boots nothing.
///
/// Fails if irqlab cannot be started.
pub fn lines(plan: &Plan, parser: &mut CommandLine) -> anyhow::Result<String> {
    let forecasts = match plan.tasks.first() {
        Some(first) if plan.build.is_none() && has_forecast(plan, first, parser)? => {
            Some(forecasts(plan)?)
        }
        _ => None,
    };
    Ok(text(plan, forecasts.as_ref()))
}

/// Like [`lines`], by the results of another sweep with similar tasks.
///
/// Fails if no task of that sweep has a result, or it cannot be read.
pub fn lines_by_results(plan: &Plan, similar: &SweepDirectory) -> anyhow::Result<String> {
    let done = Status::of(similar).map_err(usage)?.done;
    let costs = MeasuredCosts::of(similar, &done);
    let path = similar.path().display();
    let Some(mean_bytes) = costs.mean_bytes() else {
        bail!(Usage(format!("{path}: no task has a result, so there is nothing to estimate by")));
    };
    let tasks = plan.tasks.len();
    let core_hours = match costs.mean_cpu_time_s() {
        Some(mean_s) => format!("about {}", core_hours(mean_s * tasks as f64)),
        None => "unknown, because these results do not state their CPU time".to_owned(),
    };
    Ok(format!(
        "core-hours: {core_hours}\nmemory: unknown\ndisk: about {}\ncore-hours and \
         disk: by the mean of {} results of {path}\n",
        size_text(mean_bytes.saturating_mul(tasks as u64)),
        costs.result_count
    ))
}

/// A time of one core in hours, with two significant digits.
pub fn core_hours(time_s: f64) -> String {
    let hours = time_s / 3600.0;
    let digits = (1.0 - hours.abs().max(1e-6).log10().floor()).clamp(0.0, 7.0);
    format!("{hours:.*}", digits as usize)
}

fn has_forecast(plan: &Plan, task: &Task, parser: &mut CommandLine) -> Result<bool, Usage> {
    Ok(parser.parse(&plan.arguments(&task.values))?.has_forecast)
}

fn forecasts(plan: &Plan) -> anyhow::Result<Forecasts> {
    let positions = spread_positions(plan.tasks.len());
    let mut forecasts = Forecasts {
        asked_count: positions.len(),
        core_time_s: Ok(0.0),
        is_upper_bound: false,
        machine_memory_mib: None,
    };
    let mut sum_s = 0.0;
    for position in positions {
        let arguments = plan.arguments(&plan.tasks[position].values);
        let dry_run = match dry_run(&arguments, MachineSource::CacheOnly)? {
            Ok(dry_run) => dry_run,
            Err(reason) => {
                let is_missing = reason.contains(CACHE_ONLY);
                let reason =
                    if is_missing { "the cache lacks its machine".to_owned() } else { reason };
                forecasts.core_time_s = Err(format!("task {position}: {reason}"));
                break;
            }
        };
        for machine in dry_run.machines {
            forecasts.is_upper_bound |= machine.is_upper_bound;
            let largest = forecasts.machine_memory_mib.max(machine.host_memory_mib);
            forecasts.machine_memory_mib = largest;
            match machine.host_time_s {
                Some(time_s) => sum_s += time_s,
                None => {
                    let reason = "the cache has no times of an earlier run";
                    forecasts.core_time_s = Err(format!("task {position}: {reason}"));
                }
            }
        }
        if forecasts.core_time_s.is_err() {
            break;
        }
    }
    if forecasts.core_time_s.is_ok() {
        let mean_s = sum_s / forecasts.asked_count.max(1) as f64;
        forecasts.core_time_s = Ok(mean_s * plan.tasks.len() as f64);
    }
    Ok(forecasts)
}

/// Positions of at most [`ASKED_MAX`] tasks. Multiples of the golden ratio are spread evenly, and follow no axis.
fn spread_positions(task_count: usize) -> BTreeSet<usize> {
    if task_count <= ASKED_MAX {
        return (0..task_count).collect();
    }
    const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;
    let mut positions = BTreeSet::new();
    let mut part = 0.0_f64;
    while positions.len() < ASKED_MAX {
        positions.insert((part * task_count as f64) as usize);
        part = (part + GOLDEN_RATIO).fract();
    }
    positions
}

fn text(plan: &Plan, forecasts: Option<&Forecasts>) -> String {
    let later = "irqlab sweep status estimates it after the first tasks";
    let Some(forecasts) = forecasts else {
        let why = if plan.build.is_some() {
            "the file of a task is not built yet"
        } else {
            "this verb has no forecast"
        };
        return format!("core-hours, memory, disk: unknown, because {why}; {later}\n");
    };
    let (asked, tasks) = (forecasts.asked_count, plan.tasks.len());
    let mut text = String::new();
    let _ = match &forecasts.core_time_s {
        Ok(core_time_s) => {
            let qualifier = if forecasts.is_upper_bound { "at most" } else { "about" };
            let jobs = default_jobs(plan).clamp(1, tasks);
            let here = Duration::try_from_secs_f64(core_time_s / jobs as f64);
            let here = console::rounded(here.unwrap_or(Duration::MAX));
            writeln!(
                text,
                "core-hours: {qualifier} {}, by the times of earlier runs ({asked} of {tasks} tasks asked by \
                 --dry-run); here, {jobs} at the same time, {here}",
                core_hours(*core_time_s)
            )
        }
        Err(reason) => writeln!(
            text,
            "core-hours: unknown ({reason}; irqlab sweep prepare makes machines, and {later})"
        ),
    };
    let _ = match forecasts.machine_memory_mib {
        Some(mib) => {
            writeln!(text, "memory: {mib} MiB for each simulated machine, QEMU's own included")
        }
        None => writeln!(text, "memory: unknown, for the same reason"),
    };
    let _ = writeln!(text, "disk: unknown; {later}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_hours_have_two_significant_digits() {
        let texts = [0.0, 0.36, 36.0, 3_600.0, 450_000.0].map(core_hours);
        assert_eq!(texts, ["0.0000000", "0.00010", "0.010", "1.0", "125"]);
    }

    #[test]
    fn tasks_that_are_asked_are_spread_over_the_plan() {
        assert_eq!(spread_positions(3), BTreeSet::from([0, 1, 2]));
        for count in [9, 48, 960, 1_000_000] {
            let positions = spread_positions(count);
            assert_eq!(positions.len(), ASKED_MAX, "{count}: {positions:?}");
            assert!(positions.iter().all(|position| *position < count));
            // Each half and each period of 4 has some of them.
            assert!(positions.iter().any(|position| *position >= count / 2));
            let rests: BTreeSet<usize> = positions.iter().map(|position| position % 4).collect();
            assert!(rests.len() >= 3, "{count}: {positions:?}");
        }
    }
}
