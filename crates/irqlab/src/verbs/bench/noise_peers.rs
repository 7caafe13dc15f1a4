//! `irqlab bench noise-peers`: compares the detour loop with other tools.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use live::selfbench::noise_peers::{Compared, NoisePeers, Seen, Tool, measure};
use record::{Columns, Table, column};
use serde_json::{Map, json};

use super::spread::{Spread, spread_columns};
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
    let Some(housekeeping) = usable.iter().copied().find(|other| *other != cpu) else {
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
    let run = run_of("bench-noise-peers", open.started(), measured(&settings, compared));
    open.finish(&run, &[])
}

fn measured(settings: &NoisePeers, compared: Compared) -> Measured {
    let mut run_settings = Map::new();
    run_settings.insert("cpu".into(), json!(settings.cpu));
    run_settings.insert("housekeeping".into(), json!(settings.housekeeping));
    run_settings.insert("duration_ns".into(), json!(settings.seconds * 1_000_000_000));
    run_settings.insert("rounds".into(), json!(settings.rounds));
    Measured {
        settings: run_settings,
        tables: vec![peers(settings, &compared.seen), windows(&compared.seen)],
        absent: compared.absent,
        interrupted: compared.interrupted,
        ..Measured::default()
    }
}

/// The gaps above a threshold that a tool found.
struct PeerRates {
    threshold_ns: u64,
    tool: Tool,
    /// Gaps per second.
    rates: Option<Spread>,
    /// Gaps per second by irqlab.
    irqlab: Option<Spread>,
}

impl PeerRates {
    /// The median over irqlab's median. `None` for irqlab itself, and if irqlab found no gaps.
    fn over_irqlab(&self) -> Option<f64> {
        let irqlab = self.irqlab.filter(|irqlab| self.tool != Tool::Irqlab && irqlab.median > 0.0);
        Some(self.rates?.median / irqlab?.median)
    }

    /// Whether the rounds' range overlaps irqlab's range. Only oslat counts the same gaps.
    fn overlaps_irqlab(&self) -> Option<bool> {
        let (rates, irqlab) = self.rates.filter(|_| self.tool == Tool::Oslat).zip(self.irqlab)?;
        Some(rates.min <= irqlab.max && rates.max >= irqlab.min)
    }
}

/// Gaps per second above the threshold with this index, over the rounds of a tool.
fn rates(seen: &[Seen], tool: Tool, index: usize) -> Option<Spread> {
    let windows = seen.iter().filter(|seen| seen.tool == tool && seen.window_ns > 0);
    let rate = |seen: &Seen| seen.above[index] as f64 * 1e9 / seen.window_ns as f64;
    Spread::of(windows.map(rate).collect())
}

/// Table `noise_peers`: gaps per second that each tool found above each threshold, over the rounds.
fn peers(settings: &NoisePeers, seen: &[Seen]) -> Table {
    let rows = settings.thresholds_us.iter().enumerate().flat_map(|(index, us)| {
        let irqlab = rates(seen, Tool::Irqlab, index);
        [Tool::Irqlab, Tool::Oslat, Tool::Cyclictest].map(|tool| PeerRates {
            threshold_ns: us * 1000,
            tool,
            rates: rates(seen, tool, index),
            irqlab,
        })
    });
    let columns = Columns::all([
        column("threshold_ns", "Gaps (or wake-up latencies) longer than this are counted.")
            .uint(|row: &PeerRates| row.threshold_ns),
        column("tool", "Tool that counted.").text(|row: &PeerRates| row.tool.word()),
        spread_columns("rate", "hz", "Gaps per second; median of the rounds.")
            .of_ref(|row: &PeerRates| &row.rates),
        column("over_irqlab_ratio", "Median over irqlab's median.").real(PeerRates::over_irqlab),
        column(
            "overlaps",
            "Whether the range of the tool's rounds, minimum to maximum, overlaps irqlab's range.",
        )
        .bool(PeerRates::overlaps_irqlab),
    ]);
    let doc = "Gaps above a common threshold. cyclictest counts late wake-ups, which are not gaps.";
    columns.table("noise_peers", doc, rows.filter(|row| row.rates.is_some()))
}

fn windows(seen: &[Seen]) -> Table {
    let columns = Columns::all([
        column("round", "Round, from 1.").uint(|window: &Seen| window.round + 1),
        column("tool", "Tool that measured.").text(|window: &Seen| window.tool.word()),
        column("window_ns", "Length of the tool's window.").uint(|window: &Seen| window.window_ns),
        column("sample_count", "Readings of the clock, or wake-ups.")
            .uint(|window: &Seen| window.looks),
        column("max_ns", "The longest gap, or the longest wake-up latency.")
            .uint(|window: &Seen| window.max_ns),
    ]);
    columns.table("windows", "The tools' windows, in order of time.", seen)
}
