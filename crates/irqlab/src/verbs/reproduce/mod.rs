//! `irqlab reproduce`: a paper's tables, next to simulated or measured ones.

mod footprint_1999;
mod parts;
mod signal_afterburner;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;

use crate::options::{ResultArgs, Usage, duration, duration_between, help_with_exit_codes};
use crate::pictures::PictureArgs;
use crate::simulated::JobsArgs;

/// Reproduce a paper's tables in simulated machines, or on this one
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes("Examples:
  irqlab reproduce footprint-1999                                       five models; some ten minutes each
  irqlab reproduce footprint-1999 --models origin-200,ultra-1 --out paper
  irqlab show paper findings                                            which findings hold
  sudo irqlab reproduce signal-afterburner                              on this machine; some minutes"))]
pub struct ReproduceArgs {
    /// The paper
    paper: PaperName,
    /// footprint-1999: models of machines, in order [default: origin-200,ultra-1,r4400-1994,p3-600,zen3]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    models: Vec<String>,
    /// footprint-1999: maximum number of treatment repetitions of each series, and of control repetitions;
    /// some are not accepted; 24 to 100000 [default: 32]. signal-afterburner: how often each point is
    /// measured, 2 to 1000 [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=100_000), value_name = "N")]
    repetitions: Option<u32>,
    /// signal-afterburner: length of a window [default: 200ms]
    #[arg(short = 'd', long, allow_hyphen_values = true, value_parser = duration_between("10ms", "1h"),
          value_name = "TIME")]
    duration: Option<Duration>,
    /// signal-afterburner: the receiving CPU, exactly one [default: the last one]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// Chooses the order of lines and points, and the times of interrupts and events
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Kill a machine after this time on the host's clock
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1h")]
    limit: Duration,
    #[command(flatten)]
    jobs: JobsArgs,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
}

/// Papers whose tables can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PaperName {
    /// What an interrupt evicts (Tables 2 to 9)
    #[value(name = "footprint-1999")]
    Footprint1999,
    /// Interrupt, poll or clock (Tables 1 to 3, section 8.3)
    #[value(name = "signal-afterburner")]
    SignalAfterburner,
}

/// Models that stand for the machines of footprint-1999, and newer ones.
const MODELS: &str = "origin-200,ultra-1,r4400-1994,p3-600,zen3";

impl ReproduceArgs {
    fn models(&self) -> Vec<String> {
        match self.models.is_empty() {
            true => MODELS.split(',').map(str::to_owned).collect(),
            false => self.models.clone(),
        }
    }

    /// How often each is repeated.
    fn repetitions(&self) -> anyhow::Result<u32> {
        let (range, default) = match self.paper {
            PaperName::Footprint1999 => (24..=100_000, 32),
            PaperName::SignalAfterburner => (2..=1000, 3),
        };
        let number = self.repetitions.unwrap_or(default);
        if !range.contains(&number) {
            let (low, high) = range.into_inner();
            bail!(Usage(format!("--repetitions: allowed for this paper: {low} to {high}")));
        }
        Ok(number)
    }

    /// Refuses options of another paper.
    fn check(&self) -> anyhow::Result<()> {
        let of_others = match self.paper {
            PaperName::Footprint1999 => vec![
                ("--duration", self.duration.is_some()),
                ("--cpus", self.cpus.is_some()),
                ("--pictures", self.pictures.are_wanted()),
            ],
            PaperName::SignalAfterburner => vec![("--models", !self.models.is_empty())],
        };
        match of_others.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => bail!(Usage(format!("{option} is for another paper"))),
            None => Ok(()),
        }
    }
}

/// Measures, prints, records.
pub fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    match args.paper {
        PaperName::SignalAfterburner => signal_afterburner::run(args),
        PaperName::Footprint1999 => footprint_1999::run(args),
    }
}
