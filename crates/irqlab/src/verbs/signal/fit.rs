//! `irqlab signal fit`: the costs that explain a measured sweep of schemes and rates best. `signalling::fit` fits,
//! `lab::signal` reports.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lab::signal::observations::Observations;
use lab::signal::{FitPlan, FittedCosts};
use serde_json::json;
use signalling::{FitError, Start, fit, parse_time_ns};

use super::{observations, run_of};
use crate::options::{ResultArgs, Usage};
use crate::run::OpenRun;

/// Find the costs that explain measured CPU use and latency best, with intervals and residuals
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Columns of FILE.csv, with exactly these names; columns in brackets and single cells may be absent:
  scheme, or mode                   as in irqlab signal model; put coalesced:32,50us in quotes
  rate_hz, or load_hz               events offered per second
  [cpu_ratio, or cpu_percent]       CPU time of signalling and handling, minus the CPU time of an idle run
  [latency_mean_ns, _us or _ms]     mean latency
  [throughput_hz]                   events handled per second; rows with less than 98 % of the rate
                                    are overloaded and not used
  [interrupts_hz]                   interrupts or ticks per second

Examples:
  irqlab signal fit --data measured.csv
  irqlab signal fit --data measured.csv --hold-out 0.3 --seed 7
  irqlab signal fit --data irqlab-runs/RUN"
)]
pub struct FitArgs {
    /// Measured rows: a CSV file, or a run with a table of schemes and rates
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// CPU time of a poll that finds nothing; not fitted, because a polling CPU is always busy
    #[arg(long, value_parser = parse_time_ns, default_value = "100ns", value_name = "TIME")]
    poll_cost: u64,
    /// Part of the rows that are held out: the fit does not use them, and predicts them
    #[arg(long, value_parser = ratio, default_value = "0", value_name = "RATIO")]
    hold_out: f64,
    /// Slots of the ring in simulations; rows without a closed form are simulated
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 24),
          value_name = "N")]
    ring: u32,
    /// Seed of the choice of held-out rows, and of simulations
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    results: ResultArgs,
}

/// Parses a ratio from 0 to below 0.9.
fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..0.9).contains(ratio));
    ratio.ok_or_else(|| "allowed: from 0 to below 0.9".to_owned())
}

/// Fits the costs to the measured rows of a CSV file or a run, for `advise`.
///
/// Fails when the rows cannot be read or do not determine the costs.
pub fn fitted(data: &Path) -> anyhow::Result<FittedCosts> {
    let observations = observations::read(data)?;
    let fit = fit(&observations.rows, &Start::default()).map_err(usage)?;
    let mut fitted = FittedCosts::from_fit(&fit);
    fitted.warnings.extend(observations.warnings());
    Ok(fitted)
}

/// Turns an error of a fit into an error of the command line: exit code 2.
fn usage(error: FitError) -> anyhow::Error {
    let text = match error {
        FitError::Invalid { row, reason } => {
            format!("cannot use data row {}: {reason} (correct or remove it)", row + 1)
        }
        error => error.to_string(),
    };
    Usage(text).into()
}

pub fn run(args: &FitArgs) -> anyhow::Result<ExitCode> {
    let observations = observations::read(&args.data)?;
    let warnings = observations.warnings();
    let Observations { rows, ignored, .. } = observations;
    let plan = FitPlan {
        hold_out_ratio: args.hold_out,
        poll_ns: args.poll_cost,
        ring: args.ring,
        seed: args.seed,
    };
    let fitted = plan.fit(&rows).map_err(usage)?;
    let open = OpenRun::new("signal-fit", &args.results)?;
    let mut computed = plan.report(&fitted, &rows);
    let data = ("data".to_owned(), json!(args.data.display().to_string()));
    computed.settings = [data].into_iter().chain(computed.settings).collect();
    if !ignored.is_empty() {
        computed.warnings.push(format!("ignored columns: {}", ignored.join(", ")));
    }
    computed.warnings.extend(warnings);
    open.finish(&run_of("signal-fit", &open, computed), &[])
}
