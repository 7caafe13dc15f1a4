//! `irqlab fleet`: one command on each of many hosts, and what tells the hosts apart. `fleet` (the crate) keeps the runs
//! and computes scores; the files here connect to hosts, measure on a host, and print.

mod collect;
mod connection;
mod host;
mod one_host;
mod report;

use std::process::ExitCode;

use ::fleet::FleetError;
use clap::Command;

use crate::options::Usage;

/// Measure one command on many hosts by ssh, srun or kubectl; find outliers and the settings that differ there
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab fleet collect hosts.txt -o monday -- noise -d 10s
  irqlab fleet report monday
  irqlab fleet report monday --metric max:noise.detour_max_ns -o monday.html")]
pub struct FleetArgs {
    #[command(subcommand)]
    verb: FleetVerb,
}

#[derive(Debug, clap::Subcommand)]
enum FleetVerb {
    Collect(collect::CollectArgs),
    Report(report::ReportArgs),
    /// Measure on this host for an irqlab that collects
    #[command(hide = true)]
    Host,
}

impl FleetArgs {
    /// Whether an irqlab on another machine has started this one.
    pub fn is_host(&self) -> bool {
        matches!(self.verb, FleetVerb::Host)
    }
}

pub fn run(args: &FleetArgs, command: Command) -> anyhow::Result<ExitCode> {
    match &args.verb {
        FleetVerb::Collect(args) => collect::run(args, command),
        FleetVerb::Report(args) => report::run(args),
        FleetVerb::Host => host::run(),
    }
}

/// Makes an error of the request an error of the command line: exit code 2.
fn usage(error: FleetError) -> anyhow::Error {
    match error {
        FleetError::Invalid(what) => Usage(what).into(),
        error => error.into(),
    }
}
