//! `irqlab signal`: interrupt, poll or clock? `run` measures schemes; `model`, `fit` and `advise` compute, and
//! measure nothing. A file here has the options of a verb; `lab::signal` and `signalling` do the work.

mod advise;
mod apply;
mod costs;
mod fit;
mod model;
mod nic;
mod observations;
pub mod rates;
pub mod run;

use std::process::ExitCode;

use lab::signal::Computed;
use record::{Run, SCHEMA};
use serde_json::{Map, Value as Json};

use crate::run::OpenRun;

/// Interrupt, poll or clock? The CPU use and latency of each scheme
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab signal run                      measures schemes on this machine
  irqlab signal model                    computes them
  irqlab signal advise --rate 50k --latency-bound 200us --interrupt-cost 4us --event-cost 500ns")]
pub struct SignalArgs {
    #[command(subcommand)]
    verb: SignalVerb,
}

#[derive(Debug, clap::Subcommand)]
enum SignalVerb {
    Run(Box<run::RunArgs>),
    Model(Box<model::ModelArgs>),
    Fit(fit::FitArgs),
    Advise(Box<advise::AdviseArgs>),
    Undo(apply::UndoArgs),
}

pub fn run(args: &SignalArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        SignalVerb::Run(args) => run::run(args),
        SignalVerb::Model(args) => model::run(args),
        SignalVerb::Fit(args) => fit::run(args),
        SignalVerb::Advise(args) => advise::run(args),
        SignalVerb::Undo(args) => apply::undo(args),
    }
}

/// Puts `leading` in front of the settings of `computed`, because readers see those first. If both have a key, the value of
/// `computed` stays.
fn with_leading_settings(
    leading: impl IntoIterator<Item = Map<String, Json>>,
    mut computed: Computed,
) -> Computed {
    let leading = leading.into_iter().flatten();
    computed.settings = leading.chain(computed.settings).collect();
    computed
}

/// Makes the run of a verb that computes and does not measure.
fn run_of(experiment: &str, open: &OpenRun, computed: Computed) -> Run {
    let mut settings = Map::new();
    settings.extend(crate::run::made_by());
    settings.extend(computed.settings);
    Run {
        schema: SCHEMA.to_owned(),
        experiment: experiment.to_owned(),
        bench: "model".to_owned(),
        started_utc: open.started().to_string(),
        complete: true,
        host: Map::new(),
        settings,
        observer: Map::new(),
        warnings: computed.warnings,
        absent: computed.absent,
        tables: computed.tables,
    }
}
