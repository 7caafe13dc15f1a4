//! `irqlab reproduce`: a paper's tables, next to simulated ones.

mod footprint_1999;
mod parts;

use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;

use crate::options::{ResultArgs, duration, help_with_exit_codes};
use crate::simulated::JobsArgs;

/// Reproduce a paper's tables in simulated machines
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes("Examples:
  irqlab reproduce footprint-1999                                       five models; some ten minutes each
  irqlab reproduce footprint-1999 --models origin-200,ultra-1 --out paper
  irqlab show paper statements                                          which findings hold"))]
pub struct ReproduceArgs {
    /// The paper
    paper: PaperName,
    /// Models of machines, in order
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "origin-200,ultra-1,r4400-1994,p3-600,zen3"
    )]
    models: Vec<String>,
    /// Maximum number of treatment repetitions of each series, and of control repetitions; some are not accepted;
    /// 24 to 100000
    #[arg(long, value_parser = clap::value_parser!(u32).range(24..=100_000), default_value_t = 32,
        value_name = "N")]
    repetitions: u32,
    /// Chooses the order of lines and the times of interrupts
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Kill a machine after this time on the host's clock
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1h")]
    limit: Duration,
    #[command(flatten)]
    jobs: JobsArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// Papers whose tables can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PaperName {
    /// What an interrupt evicts (Tables 2 to 9)
    #[value(name = "footprint-1999")]
    Footprint1999,
}

/// Measures, prints, records.
pub fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    match args.paper {
        PaperName::Footprint1999 => footprint_1999::run(args),
    }
}
