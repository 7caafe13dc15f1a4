//! `irqlab reproduce`: measures or simulates the tables of a paper, and compares them with the published tables.
//!
//! Each paper has a file here that plans and measures, and a module in the crate `papers` with its figures and
//! findings. The reproductions share [`ReproduceArgs`]; [`ReproduceArgs::check`] refuses options that a paper does
//! not use.

mod footprint_1999;
mod gathered;
mod handlers_ia32;
mod noise_t1;
mod parts;
mod signal_afterburner;
mod simos_1995;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use papers::Selection;

use crate::options::{On, ResultArgs, Usage, duration, duration_between, help_with_exit_codes};
use crate::pictures::PictureArgs;
use crate::simulated::JobsArgs;

/// Reproduce a paper's tables, in simulated machines or on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes(&[], "Examples:
  irqlab reproduce footprint-1999                                       five models; about ten minutes each
  irqlab reproduce footprint-1999 --models origin-200,ultra-1 --out paper
  irqlab show paper findings                                            which findings hold
  irqlab reproduce handlers-ia32 --models p3-1266,p4-1800               two of its six machines; minutes each
  sudo irqlab reproduce signal-afterburner                              on this machine; some minutes
  irqlab reproduce noise-t1                                             seven machines with eight CPUs; minutes
  irqlab reproduce signal-afterburner --on sim:r4400-1994               in simulated machines; half an hour
  irqlab reproduce simos-1995 --workload database --short               a shorter workload; about ten minutes
  irqlab reproduce simos-1995                                           three workloads on all machines; hours"))]
pub struct ReproduceArgs {
    /// Paper to reproduce
    paper: PaperName,
    /// Models to simulate. footprint-1999, handlers-ia32: in this order [default: the paper's machines; for
    /// footprint-1999 also r4400-1994,p3-600,zen3]. noise-t1: one model [default: t1]. simos-1995: some of its
    /// four machines [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    models: Vec<String>,
    /// footprint-1999: maximum number of treatment repetitions of each series, and of control repetitions,
    /// accepted or not; 24 to 100000 [default: 32]. signal-afterburner: how often to measure each point, 2 to
    /// 1000 [default: 5; throughput on sim 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=100_000), value_name = "N")]
    repetitions: Option<u32>,
    /// signal-afterburner: where to measure: live or sim:MODEL [default: live]
    #[arg(long, value_name = "BENCH")]
    on: Option<On>,
    /// signal-afterburner, handlers-ia32: length of a window [default: 200ms; signal-afterburner on sim: 100ms]
    #[arg(short = 'd', long, allow_hyphen_values = true, value_parser = duration_between("10ms", "1h"),
          value_name = "TIME")]
    duration: Option<Duration>,
    /// signal-afterburner: the receiving CPU, exactly one [default: the last CPU]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// Seed of the order of lines and points, and of the times of interrupts and events
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// End each machine after this time on the host's clock; exit code 124 if one reaches it [default: 1h; simos-1995:
    /// 6h]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    limit: Option<Duration>,
    /// simos-1995: workloads, in this order [default: progdev,database,engineering]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    workload: Vec<String>,
    /// simos-1995: measure the short forms of the workloads, which do less of the same work
    #[arg(long)]
    short: bool,
    /// simos-1995: parts to measure: the machines; in-order cores with the caches of later machines (Figure
    /// 4.5); caches of several sizes with classes of misses (Figures 4.6, 4.7, 5.3) [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    parts: Vec<simos_1995::Part>,
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
    /// Cache lines that an interrupt evicts (Tables 2 to 9)
    #[value(name = "footprint-1999")]
    Footprint1999,
    /// Cost of interrupt handlers on six machines (Figures 1 to 3 and 5, Table 2)
    #[value(name = "handlers-ia32")]
    HandlersIa32,
    /// Peaks of the tick by placement and operating system (Figures 1 and 2)
    #[value(name = "noise-t1")]
    NoiseT1,
    /// Interrupt, poll or clock (Tables 1 to 3, section 8.3)
    #[value(name = "signal-afterburner")]
    SignalAfterburner,
    /// Where kernel time goes on machines of three years and on eight CPUs (Tables 4.2, 4.8, 5.2, 5.4,
    /// Figures 4.1, 4.3 to 4.7, 5.1, 5.3)
    #[value(name = "simos-1995")]
    Simos1995,
}

/// Default models of footprint-1999: the paper's machines, and newer machines.
const MODELS: &str = "origin-200,ultra-1,r4400-1994,p3-600,zen3";

impl ReproduceArgs {
    /// The models of footprint-1999.
    fn models(&self) -> Vec<String> {
        if self.models.is_empty() {
            return MODELS.split(',').map(str::to_owned).collect();
        }
        self.models.clone()
    }

    /// Whether the options leave out a part of what the paper measured.
    fn selection(&self) -> Selection {
        let has_all = self.models.is_empty()
            && self.workload.is_empty()
            && self.parts.is_empty()
            && !self.short
            && self.on.is_none();
        if has_all { Selection::All } else { Selection::Part }
    }

    /// Time limit of each machine on the host's clock.
    fn limit(&self) -> Duration {
        let hours = if self.paper == PaperName::Simos1995 { 6 } else { 1 };
        self.limit.unwrap_or(Duration::from_secs(hours * 3600))
    }

    /// The number of repetitions, by default that of the paper.
    ///
    /// Fails when `--repetitions` is outside the paper's range.
    fn repetitions(&self) -> anyhow::Result<u32> {
        let (range, default) = match self.paper {
            PaperName::Footprint1999 => (24..=100_000, 32),
            // These papers have one window for each condition. Confidence intervals come from its batches.
            PaperName::HandlersIa32 | PaperName::NoiseT1 | PaperName::Simos1995 => (1..=1, 1),
            PaperName::SignalAfterburner => (2..=1000, if self.is_simulated() { 2 } else { 5 }),
        };
        let number = self.repetitions.unwrap_or(default);
        if !range.contains(&number) {
            let (low, high) = range.into_inner();
            bail!(Usage(format!(
                "--repetitions {number}: allowed for this paper: {low} to {high}"
            )));
        }
        Ok(number)
    }

    fn is_simulated(&self) -> bool {
        matches!(self.on, Some(On::Sim(_)))
    }

    /// Refuses options that this paper does not use.
    fn check(&self) -> anyhow::Result<()> {
        use PaperName::{Footprint1999, HandlersIa32, NoiseT1, SignalAfterburner, Simos1995};
        let simulated = &[Footprint1999, HandlersIa32, NoiseT1, Simos1995];
        // Each option, whether it is given, and the papers that use it.
        let options: [(&str, bool, &[PaperName]); 9] = [
            ("--models", !self.models.is_empty(), simulated),
            ("--repetitions", self.repetitions.is_some(), &[Footprint1999, SignalAfterburner]),
            ("--duration", self.duration.is_some(), &[HandlersIa32, SignalAfterburner]),
            ("--cpus", self.cpus.is_some(), &[SignalAfterburner]),
            ("--on", self.on.is_some(), &[SignalAfterburner]),
            ("--pictures", self.pictures.are_wanted(), &[SignalAfterburner, Simos1995]),
            ("--workload", !self.workload.is_empty(), &[Simos1995]),
            ("--short", self.short, &[Simos1995]),
            ("--parts", !self.parts.is_empty(), &[Simos1995]),
        ];
        for (option, is_given, papers) in options {
            if is_given && !papers.contains(&self.paper) {
                bail!(Usage(format!("{option} does not apply to this paper")));
            }
        }
        Ok(())
    }
}

pub fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    match args.paper {
        PaperName::SignalAfterburner => signal_afterburner::run(args),
        PaperName::Footprint1999 => footprint_1999::run(args),
        PaperName::HandlersIa32 => handlers_ia32::run(args),
        PaperName::NoiseT1 => noise_t1::run(args),
        PaperName::Simos1995 => simos_1995::run(args),
    }
}
