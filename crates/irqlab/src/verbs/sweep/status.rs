//! `irqlab sweep status` and `retry`: the tasks that are done, that failed (with reasons), and that are missing.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use report::escape;
use serde_json::json;
use sweep::{MeasuredCosts, Status, SweepDirectory, index_ranges};

use super::estimate::core_hours;
use super::{open, usage, values_text};
use crate::console;
use crate::simulated::size_text;

/// Number of failures that are printed for people.
const PRINTED_FAILURES: usize = 20;

/// Count the tasks that are done, failed, running and missing
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep status caches
  irqlab sweep status caches --json | jq -r .missing_indexes    for sbatch --array")]
pub struct StatusArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR")]
    sweep: PathBuf,
    /// Print the status as one JSON document
    #[arg(long)]
    json: bool,
}

/// Forget failures, so that run executes these tasks again
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep retry caches
  irqlab sweep run caches")]
pub struct RetryArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR")]
    sweep: PathBuf,
}

pub fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let sweep = open(&args.sweep)?;
    let status = Status::read(&sweep).map_err(usage)?;
    let costs = MeasuredCosts::read(&sweep, &status.done);
    let text = if args.json {
        json_text(&sweep, &status, &costs)
    } else {
        text(&sweep, &status) + &cost_text(&status, &costs)
    };
    console::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn retry(args: &RetryArgs) -> anyhow::Result<ExitCode> {
    let sweep = open(&args.sweep)?;
    sweep.remove_leftovers();
    let status = Status::read(&sweep).map_err(usage)?;
    for (index, _) in &status.failed {
        sweep.forget_failure(&sweep.plan().tasks[*index])?;
    }
    let path = args.sweep.display();
    let count = status.failed.len();
    console::say(&format!(
        "forgotten failures: {count} (irqlab sweep run {path} executes these tasks)"
    ));
    Ok(ExitCode::SUCCESS)
}

fn text(sweep: &SweepDirectory, status: &Status) -> String {
    let plan = sweep.plan();
    let mut text = format!("done: {} of {} tasks\n", status.done.len(), plan.tasks.len());
    for (name, indexes) in [("running", &status.running), ("missing", &status.missing)] {
        if !indexes.is_empty() {
            let _ = writeln!(text, "{name}: {} (index {})", indexes.len(), index_ranges(indexes));
        }
    }
    if !status.failed.is_empty() {
        let _ = writeln!(text, "failed: {}", status.failed.len());
    }
    for (index, failure) in status.failed.iter().take(PRINTED_FAILURES) {
        let values = values_text(plan, &plan.tasks[*index]);
        let _ = writeln!(text, "  {index} ({values}): {}", failure.reason);
    }
    if status.failed.len() > PRINTED_FAILURES {
        let more = status.failed.len() - PRINTED_FAILURES;
        let _ = writeln!(text, "  and {more} more (--json lists all)");
    }
    if let Some((_, failure)) = status.failed.first() {
        let path = sweep.path().display();
        let _ = writeln!(
            text,
            "logs: {path}/failed/ID/log.txt, as in {path}/failed/{}/log.txt",
            failure.id
        );
    }
    text.lines().map(|line| escape::plain(line) + "\n").collect()
}

/// Estimates the tasks without a result by the mean of the results. Empty if there is no such task, or no result.
fn cost_text(status: &Status, costs: &MeasuredCosts) -> String {
    let open = status.missing.len() + status.running.len();
    if open == 0 {
        return String::new();
    }
    let Some(mean_bytes) = costs.mean_bytes() else { return String::new() };
    let core_hours = costs.mean_cpu_time_s().map_or("unknown core-hours".to_owned(), |mean_s| {
        format!("about {} core-hours", core_hours(mean_s * open as f64))
    });
    let disk = size_text(mean_bytes.saturating_mul(open as u64));
    format!(
        "to do: {core_hours} and {disk} of disk, by the mean of {} results; memory: unknown\n",
        costs.result_count
    )
}

fn json_text(sweep: &SweepDirectory, status: &Status, costs: &MeasuredCosts) -> String {
    let plan = sweep.plan();
    let failed = status.failed.iter().map(|(index, failure)| {
        let task = &plan.tasks[*index];
        let values: serde_json::Map<_, _> =
            plan.named_values(task).map(|(name, value)| (name.to_owned(), value.into())).collect();
        json!({ "index": index, "id": task.id, "axes": values, "exit_code": failure.exit_code,
            "reason": failure.reason, "log_end": failure.log_end })
    });
    let document = json!({
        "tasks": plan.tasks.len(),
        "done": status.done.len(),
        "running": status.running.len(),
        "missing": status.missing.len(),
        "failed": failed.collect::<Vec<_>>(),
        "result_mean_cpu_time_s": costs.mean_cpu_time_s(),
        "result_mean_bytes": costs.mean_bytes(),
        "running_indexes": index_ranges(&status.running),
        "missing_indexes": index_ranges(&status.missing),
    });
    format!("{document:#}\n")
}
