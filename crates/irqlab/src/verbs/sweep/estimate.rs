//! Estimates the time, memory and disk space of tasks before their execution. Tasks that simulate machines forecast their time
//! by `--dry-run`, from the times of earlier runs in the cache.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use live::program_rights;
use live::spawn::end_with_this_thread;
use sim::CACHE_ONLY;
use sweep::{MeasuredCosts, Plan, Status, SweepDirectory, replace_in_command};

use super::command_line::{CommandLine, with_options};
use super::plan::PARSED_TASKS_MAX;
use super::run::default_jobs;
use super::usage;
use crate::child::running_program;
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

/// The part of an estimate that some tasks have stated for all tasks that have a forecast.
#[derive(Clone, Debug, PartialEq)]
struct Forecasts {
    /// Number of tasks that have a forecast.
    task_count: usize,
    /// Number of tasks that were asked.
    asked_count: usize,
    /// Time of one core for all tasks that have a forecast, seconds. The error says why it is unknown.
    core_time_s: Result<f64, String>,
    /// Whether the cache lacks the machine of a task that was asked.
    lacks_machine: bool,
    /// Whether the asked times are upper bounds: windows may end early.
    is_upper_bound: bool,
    /// Host memory of the largest machine, MiB. `None`: unknown for a machine of a task that was asked.
    machine_memory_mib: Option<u64>,
}

impl Forecasts {
    /// Whether each task that has a forecast was asked, so that nothing is extrapolated.
    fn asked_all(&self) -> bool {
        self.asked_count == self.task_count
    }
}

/// Lines that state what all tasks of a plan will take: core-hours, memory, disk. Executes no task and boots nothing.
///
/// Fails if irqlab cannot be started.
pub fn lines(plan: &Plan, parser: &mut CommandLine) -> anyhow::Result<String> {
    if plan.build.is_some() {
        return Ok(unknown_text("the file of a task is not built yet"));
    }
    match positions_with_forecast(plan, parser)? {
        None => Ok(unknown_text("too many values may decide which tasks have a forecast")),
        Some(positions) if positions.is_empty() => Ok(unknown_text("these tasks have no forecast")),
        Some(positions) => Ok(text(plan, &forecasts(plan, &positions)?)),
    }
}

/// Like [`lines`], by the results of another sweep with similar tasks.
///
/// Fails if no task of that sweep has a result, or it cannot be read.
pub fn lines_by_results(plan: &Plan, similar: &SweepDirectory) -> anyhow::Result<String> {
    let done = Status::read(similar).map_err(usage)?.done;
    let costs = MeasuredCosts::read(similar, &done);
    let path = similar.path().display();
    let Some(mean_bytes) = costs.mean_bytes() else {
        bail!(Usage(format!(
            "{path}: no task has a result from which the cost could be estimated"
        )));
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

/// Positions of the tasks that have a forecast. Parses a task of each combination of values that may decide it. `None` if
/// there are more than [`PARSED_TASKS_MAX`] of them.
fn positions_with_forecast(
    plan: &Plan,
    parser: &mut CommandLine,
) -> Result<Option<Vec<usize>>, Usage> {
    let may_decide: Vec<bool> =
        plan.axes.iter().map(|axis| CommandLine::may_change_bench(&axis.form)).collect();
    let mut known: BTreeMap<Vec<u32>, bool> = BTreeMap::new();
    let mut positions = Vec::new();
    for (position, task) in plan.tasks.iter().enumerate() {
        let pairs = task.values.iter().zip(&may_decide);
        let values = pairs.filter(|(_, may_decide)| **may_decide).map(|(value, _)| *value);
        if known.len() > PARSED_TASKS_MAX {
            return Ok(None);
        }
        let has_forecast = match known.entry(values.collect()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => {
                *unknown.insert(parser.parse(&plan.arguments(&task.values))?.has_forecast)
            }
        };
        if has_forecast {
            positions.push(position);
        }
    }
    Ok(Some(positions))
}

/// `positions`: the tasks that have a forecast, at least one.
fn forecasts(plan: &Plan, positions: &[usize]) -> anyhow::Result<Forecasts> {
    let asked: Vec<usize> =
        spread_positions(positions.len()).into_iter().map(|index| positions[index]).collect();
    let mut forecasts = Forecasts {
        task_count: positions.len(),
        asked_count: asked.len(),
        core_time_s: Ok(0.0),
        lacks_machine: false,
        is_upper_bound: false,
        machine_memory_mib: None,
    };
    let mut machines = Vec::new();
    for position in asked {
        let arguments = plan.arguments(&plan.tasks[position].values);
        match dry_run(&arguments, MachineSource::CacheOnly)? {
            Ok(dry_run) => {
                machines.extend(dry_run.machines.into_iter().map(|machine| (position, machine)));
            }
            Err(reason) => {
                forecasts.lacks_machine = reason.contains(CACHE_ONLY);
                let missing = || "the cache lacks its machine".to_owned();
                let reason = if forecasts.lacks_machine { missing() } else { reason };
                forecasts.core_time_s = Err(format!("task {position}: {reason}"));
                return Ok(forecasts);
            }
        }
    }
    forecasts.is_upper_bound = machines.iter().any(|(_, machine)| machine.is_upper_bound);
    let memory_mib: Option<Vec<u64>> =
        machines.iter().map(|(_, machine)| machine.host_memory_mib).collect();
    forecasts.machine_memory_mib = memory_mib.and_then(|all| all.into_iter().max());
    let times_s: Result<Vec<f64>, String> = machines
        .iter()
        .map(|(position, machine)| {
            let reason = || format!("task {position}: the cache has no times of an earlier run");
            machine.host_time_s.ok_or_else(reason)
        })
        .collect();
    forecasts.core_time_s = times_s.map(|times_s| {
        let mean_s = times_s.iter().sum::<f64>() / forecasts.asked_count as f64;
        mean_s * forecasts.task_count as f64
    });
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

/// Says what `status` states later.
const LATER: &str = "irqlab sweep status estimates it after the first tasks";

fn unknown_text(why: &str) -> String {
    format!("core-hours, memory, disk: unknown, because {why}; {LATER}\n")
}

fn text(plan: &Plan, forecasts: &Forecasts) -> String {
    let Forecasts { task_count, asked_count, .. } = forecasts;
    let without_forecast = plan.tasks.len() - task_count;
    let mut text = String::new();
    let _ = match &forecasts.core_time_s {
        Ok(core_time_s) => {
            let (qualifier, condition) = match (forecasts.is_upper_bound, forecasts.asked_all()) {
                (true, true) => ("at most", ""),
                // A mean of some tasks bounds nothing: a task that was not asked may take longer.
                (true, false) => ("about", ", if no window ends early"),
                (false, _) => ("about", ""),
            };
            let _ = write!(
                text,
                "core-hours: {qualifier} {}{condition}, by the times of earlier runs ({asked_count} of {task_count} \
                 tasks asked by --dry-run)",
                core_hours(*core_time_s)
            );
            if without_forecast > 0 {
                writeln!(
                    text,
                    "; left out: {without_forecast} of {} tasks, which have no forecast",
                    plan.tasks.len()
                )
            } else {
                let jobs = default_jobs(plan).clamp(1, *task_count);
                let here = Duration::try_from_secs_f64(core_time_s / jobs as f64);
                let here = console::rounded(here.unwrap_or(Duration::MAX));
                writeln!(text, "; here, {jobs} at the same time, {here}")
            }
        }
        Err(reason) => {
            let remedy = if forecasts.lacks_machine {
                "irqlab sweep prepare makes machines, and "
            } else {
                ""
            };
            writeln!(text, "core-hours: unknown ({reason}; {remedy}{LATER})")
        }
    };
    let _ = match forecasts.machine_memory_mib {
        Some(mib) => {
            let which = if forecasts.asked_all() {
                "each simulated machine"
            } else {
                "the largest machine of the asked tasks"
            };
            writeln!(text, "memory: {mib} MiB for {which}, QEMU's own included")
        }
        None if forecasts.core_time_s.is_err() => {
            writeln!(text, "memory: unknown, for the same reason")
        }
        None => writeln!(text, "memory: unknown"),
    };
    let _ = writeln!(text, "disk: unknown; {LATER}");
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;
    use sweep::Spec;

    use super::*;

    fn parser() -> CommandLine {
        CommandLine::new(crate::help::arrange(crate::Cli::command()))
    }

    fn plan(spec: &str) -> Plan {
        let spec = Spec::parse(spec).unwrap();
        let resolved =
            parser().resolve(&spec.command, &spec.axes).map_err(|usage| usage.0).unwrap();
        Plan::new(&spec, resolved.command, resolved.axes, "1.0.0", Path::new("/")).unwrap()
    }

    #[test]
    fn only_tasks_of_simulated_machines_have_a_forecast() {
        for values in ["'live', 'sim'", "'sim', 'live'"] {
            let spec = format!(
                "command = ['handlers']\n[axes]\n'--on' = [{values}]\n'-d' = ['1ms', '2ms', '3ms']\n"
            );
            let plan = plan(&spec);
            let positions =
                positions_with_forecast(&plan, &mut parser()).map_err(|usage| usage.0).unwrap();
            let positions = positions.expect("few combinations");
            assert_eq!(positions.len(), 3);
            for position in positions {
                let arguments = plan.arguments(&plan.tasks[position].values);
                assert!(arguments.contains(&"--on=sim".to_owned()), "{arguments:?}");
            }
        }
    }

    #[test]
    fn an_estimate_says_what_it_lacks() {
        let plan = plan("command = ['handlers']\n[axes]\n'--on' = ['live', 'sim', 'sim:zen3']\n");
        let forecasts = Forecasts {
            task_count: 2,
            asked_count: 2,
            core_time_s: Ok(36.0),
            lacks_machine: false,
            is_upper_bound: false,
            machine_memory_mib: Some(1_024),
        };
        let estimate = text(&plan, &forecasts);
        let expected = "core-hours: about 0.010, by the times of earlier runs (2 of 2 tasks asked by --dry-run); \
                        left out: 1 of 3 tasks, which have no forecast\nmemory: 1024 MiB";
        assert!(estimate.starts_with(expected), "{estimate}");
        let refused = Forecasts {
            core_time_s: Err("task 1: --disk: no such file".to_owned()),
            machine_memory_mib: None,
            ..forecasts
        };
        let estimate = text(&plan, &refused);
        let expected =
            "core-hours: unknown (task 1: --disk: no such file; irqlab sweep status estimates";
        assert!(estimate.starts_with(expected), "{estimate}");
        assert!(estimate.contains("memory: unknown, for the same reason\n"), "{estimate}");
        let missing = Forecasts { lacks_machine: true, ..refused };
        assert!(text(&plan, &missing).contains("; irqlab sweep prepare makes machines, and"));
    }

    /// Nothing is known of a task that was not asked.
    #[test]
    fn an_extrapolated_mean_is_no_upper_bound() {
        let lengths: Vec<String> = (1..=100).map(|length| format!("'{length}ms'")).collect();
        let lengths = lengths.join(", ");
        let plan =
            plan(&format!("command = ['handlers', '--on=sim']\n[axes]\n'-d' = [{lengths}]\n"));
        let mut forecasts = Forecasts {
            task_count: 100,
            asked_count: 8,
            core_time_s: Ok(100.0),
            lacks_machine: false,
            is_upper_bound: true,
            machine_memory_mib: Some(1_024),
        };
        let estimate = text(&plan, &forecasts);
        let expected = "core-hours: about 0.028, if no window ends early, by the times of earlier runs (8 of 100 tasks \
                        asked by --dry-run)";
        assert!(estimate.starts_with(expected), "{estimate}");
        assert!(
            estimate.contains("memory: 1024 MiB for the largest machine of the asked"),
            "{estimate}"
        );
        (forecasts.task_count, forecasts.asked_count) = (8, 8);
        let estimate = text(&plan, &forecasts);
        assert!(estimate.starts_with("core-hours: at most 0.028, by the times"), "{estimate}");
    }

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
