//! `irqlab bench compare`: how often does `irqlab compare` report a difference that does not exist, and how often
//! does it find a planted difference?
//!
//! Starts this program for each run of a pair, or reads an earlier series with `--again`. `lab::compare::error_rates`
//! compares the pairs and makes the tables.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use lab::compare::PAIRS_MIN;
use lab::compare::error_rates::ErrorRates;
use record::read_run;
use serde_json::{Map, json};

use super::{Measured, open, run_of};
use crate::console::{ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, Usage, percent};
use crate::run::stop_on_signals;

/// Command line of the default experiment.
const DEFAULT_EXPERIMENT: [&str; 5] = ["handlers", "--stimulus", "timer", "--rate", "high"];

/// How often compare reports a false difference, and how often it finds a planted one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo irqlab bench compare --keep series                100 pairs of runs
  sudo irqlab bench compare --keep series --again --runs 8
  sudo irqlab bench compare --keep quiet --pairs 20 -- noise -c 1 -d 2s")]
pub struct CompareBenchArgs {
    /// Pairs of runs of the same thing
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pairs: u64,
    /// Runs on each side of a comparison: 1, or 3 and more. Each N pairs that follow one another are compared as series
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000), value_name = "N")]
    runs: u64,
    /// Change that is planted into the means of the second run of each pair
    #[arg(long, value_parser = percent, default_value = "5%", value_name = "PERCENT")]
    plant: f64,
    /// New directory for the runs; with --again, the directory of an earlier series
    #[arg(long, value_name = "DIR")]
    keep: PathBuf,
    /// Measure nothing: compare the runs in the directory of --keep again
    #[arg(long)]
    again: bool,
    /// Verb and options of an experiment on the live bench [default: handlers --stimulus timer --rate high]
    #[arg(last = true, value_name = "VERB")]
    experiment: Vec<String>,
    #[command(flatten)]
    results: OptionalResultArgs,
}

/// Measures and compares the pairs, and prints the error rates.
pub fn run(args: &CompareBenchArgs) -> anyhow::Result<ExitCode> {
    let open = open(&args.results)?;
    let default = DEFAULT_EXPERIMENT.map(str::to_owned);
    let experiment = if args.experiment.is_empty() { &default[..] } else { &args.experiment };
    let runs = args.runs as usize;
    if runs > 1 && runs < PAIRS_MIN {
        bail!(Usage(format!(
            "--runs {runs} says too little of how much runs differ: take 1, or {PAIRS_MIN} and more"
        )));
    }
    if !args.again {
        std::fs::create_dir(&args.keep)
            .with_context(|| format!("cannot create {} (--keep)", args.keep.display()))?;
    }
    let stop = stop_on_signals()?;
    let mut progress = ProgressLine::new(Redraw::EachStep);
    let mut error_rates = ErrorRates::default();
    // The last `runs` runs of each side: pairs that follow one another are compared as series.
    let (mut base, mut new) = (VecDeque::new(), VecDeque::new());
    let mut measured_pairs = 0;
    for pair in 1..=args.pairs {
        if stop.is_requested() {
            break;
        }
        progress.step(pair as usize, args.pairs as usize, "a pair of runs");
        let directories = ["a", "b"].map(|run| args.keep.join(format!("{pair}-{run}")));
        if args.again && !directories.iter().all(|directory| directory.exists()) {
            break;
        }
        if !args.again {
            directories.iter().try_for_each(|directory| measure(experiment, directory))?;
        }
        base.push_back(read_run(&directories[0])?);
        new.push_back(read_run(&directories[1])?);
        measured_pairs = pair;
        if base.len() > runs {
            base.pop_front();
            new.pop_front();
        }
        if base.len() == runs {
            error_rates.add(pair, base.make_contiguous(), new.make_contiguous(), args.plant)?;
        }
    }
    drop(progress);
    if error_rates.comparisons() == 0 {
        bail!(Usage(format!("{} has fewer than {runs} pairs of runs", args.keep.display())));
    }
    let mut settings = Map::new();
    settings.insert("experiment".into(), json!(experiment.join(" ")));
    settings.insert("runs_on_each_side".into(), json!(args.runs));
    settings.insert("planted_change_ratio".into(), json!(args.plant));
    let measured = Measured {
        settings,
        // An earlier series may have fewer pairs.
        interrupted: measured_pairs < args.pairs && (stop.is_requested() || !args.again),
        tables: error_rates.tables(),
        ..Measured::default()
    };
    open.finish(&run_of("bench-compare", open.started(), measured), &[])
}

/// Runs the experiment in a process of this program, and records it in `directory`.
fn measure(experiment: &[String], directory: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find irqlab's own file")?;
    let mut command = Command::new(program);
    command.args(experiment).arg("--quiet").arg("--out").arg(directory).stdout(Stdio::null());
    let status = command.status().map_err(live::spawn::with_reached_limit);
    let status = status.context("cannot start irqlab")?;
    if !status.success() {
        bail!("irqlab {} ended with {status}", experiment.join(" "));
    }
    Ok(())
}
