//! `irqlab bench overhead`: compares the overhead of irqlab's entry and exit probes with that of other tools, on one
//! loop of system calls.

use std::process::ExitCode;

use live::selfbench::overhead::{Overhead, OverheadSettings, measure};
use live_tables::overhead::tables;
use record::keys;
use serde_json::{Map, json};

use super::{Measured, open, run_of};
use crate::console::{ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, one_cpu, usable_cpus};
use crate::run::{stop_on_signals, with_remedy_for_rights};

/// Measure the overhead of an entry/exit pair of probes, compared with other tools on the same loop
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo irqlab bench overhead             compared with ftrace, bpftrace and perf
  sudo irqlab bench overhead -c 1 --rounds 15")]
pub struct OverheadArgs {
    /// The CPU of the system call loop: exactly one [default: the last usable CPU]
    #[arg(short = 'c', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// How often to measure each tool
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Number of system calls in a loop; each round has 25 loops for each tool
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    calls: u32,
    #[command(flatten)]
    results: OptionalResultArgs,
}

pub fn run(args: &OverheadArgs) -> anyhow::Result<ExitCode> {
    let open = open(&args.results)?;
    let list = args.cpus.as_deref();
    let cpu = one_cpu(list, &usable_cpus(list)?)?;
    let settings =
        OverheadSettings { rounds: args.rounds, calls: args.calls, ..OverheadSettings::new(cpu) };
    let stop = stop_on_signals()?;
    let mut progress = ProgressLine::new(Redraw::EachStep);
    let measured = measure(&settings, &stop, &mut |round: u32| {
        progress.step(round as usize + 1, args.rounds as usize, "round");
    });
    drop(progress);
    let overhead = measured.map_err(with_remedy_for_rights)?;
    open.finish(&run_of("bench-overhead", open.started(), run_parts(&settings, &overhead)), &[])
}

/// The result as parts of a run: settings, lost events, and the tables `overhead` and `targets`.
fn run_parts(settings: &OverheadSettings, overhead: &Overhead) -> Measured {
    let mut run_settings = Map::new();
    run_settings.insert("cpu".into(), json!(settings.cpu));
    run_settings.insert("rounds".into(), json!(settings.rounds));
    run_settings.insert("loops_per_round".into(), json!(settings.loops));
    run_settings.insert("calls_per_loop".into(), json!(settings.calls));
    let mut observer = Map::new();
    observer.insert(keys::EVENTS_LOST_COUNT.into(), json!(overhead.missed));
    Measured {
        settings: run_settings,
        observer,
        absent: overhead.absent.clone(),
        tables: tables(settings.cpu, overhead),
        interrupted: overhead.interrupted,
        ..Measured::default()
    }
}
