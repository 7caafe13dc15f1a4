//! `irqlab bench noise-peers`: measures one CPU with the detour loop, oslat and cyclictest in turn, and compares how
//! many gaps above each threshold they find.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use live::selfbench::noise_peers::{Compared, NoisePeers, measure};
use live_tables::noise_peers::tables;
use serde_json::{Map, json};

use super::{Measured, open, run_of};
use crate::console;
use crate::options::{OptionalResultArgs, Usage, duration_between, one_cpu, usable_cpus};
use crate::run::{stop_on_signals, with_remedy_for_rights};

/// Compare the detour loop with oslat and cyclictest on the same CPU
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo irqlab bench noise-peers
  sudo irqlab bench noise-peers -c 1 -d 30s --thresholds-us 5,100")]
pub struct NoisePeersArgs {
    /// The CPU to measure: exactly one [default: the last usable CPU]
    #[arg(short = 'c', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// Length of each tool's window, in whole seconds; 1s to 1h
    #[arg(short = 'd', long, value_parser = duration_between("1s", "1h"), default_value = "5s",
          value_name = "TIME")]
    duration: Duration,
    /// How often to measure each tool
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000), value_name = "N")]
    rounds: u64,
    /// Thresholds above which gaps are counted, microseconds; each 2 to 1023
    #[arg(long, value_delimiter = ',', default_value = "2,5,10,20,50,100,200,500,1000",
          value_parser = clap::value_parser!(u64).range(2..=NoisePeers::THRESHOLD_US_MAX), value_name = "LIST")]
    thresholds_us: Vec<u64>,
    #[command(flatten)]
    results: OptionalResultArgs,
}

pub fn run(args: &NoisePeersArgs) -> anyhow::Result<ExitCode> {
    let usable = usable_cpus(None)?;
    let list = args.cpus.as_deref();
    let cpu = one_cpu(list, &usable_cpus(list)?)?;
    let Some(housekeeping) = usable.iter().copied().find(|usable_cpu| *usable_cpu != cpu) else {
        bail!(Usage(
            "this bench needs two CPUs: one to measure, one for the tools' own threads".to_owned()
        ));
    };
    let settings = NoisePeers {
        cpu,
        housekeeping,
        seconds: args.duration.as_secs(),
        rounds: args.rounds,
        thresholds_us: args.thresholds_us.clone(),
        stop: stop_on_signals()?,
    };
    let open = open(&args.results)?;
    let compared = measure(&settings, &console::say_more).map_err(with_remedy_for_rights)?;
    let run = run_of("bench-noise-peers", open.started(), settings_and_tables(&settings, compared));
    open.finish(&run, &[])
}

/// The settings and tables of the run, from the comparison's results.
fn settings_and_tables(settings: &NoisePeers, compared: Compared) -> Measured {
    let mut run_settings = Map::new();
    run_settings.insert("cpu".into(), json!(settings.cpu));
    run_settings.insert("housekeeping".into(), json!(settings.housekeeping));
    run_settings.insert("duration_ns".into(), json!(settings.seconds * 1_000_000_000));
    run_settings.insert("rounds".into(), json!(settings.rounds));
    Measured {
        settings: run_settings,
        tables: tables(&settings.thresholds_us, &compared.seen),
        absent: compared.absent,
        interrupted: compared.interrupted,
        ..Measured::default()
    }
}
