//! `irqlab bench noise-peers`: compares the detour loop with other tools.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use live::selfbench::noise_peers::{Compared, NoisePeers, Seen, Tool, measure};
use record::{Kind, Table};
use serde_json::{Map, json};

use super::{Measured, columns, open, run_of};
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

/// Median, minimum and maximum of the values, each `None` if there are no values.
fn spread(mut values: Vec<f64>) -> [Option<f64>; 3] {
    values.sort_by(f64::total_cmp);
    let median = values.get(values.len() / 2).copied();
    [median, values.first().copied(), values.last().copied()]
}

/// Table `noise_peers`: gaps per second that each tool found above each threshold, over the rounds.
fn peers(settings: &NoisePeers, seen: &[Seen]) -> Table {
    let columns = columns(&[
        ("threshold_ns", Kind::Uint, "Gaps (or wake-up latencies) longer than this are counted."),
        ("tool", Kind::Text, "Tool that counted."),
        ("rate_hz", Kind::Real, "Gaps per second; median of the rounds."),
        ("rate_min_hz", Kind::Real, "Minimum of the rounds."),
        ("rate_max_hz", Kind::Real, "Maximum of the rounds."),
        ("over_irqlab_ratio", Kind::Real, "Median over irqlab's median."),
        (
            "overlaps",
            Kind::Bool,
            "Whether the range of the tool's rounds, minimum to maximum, overlaps irqlab's range.",
        ),
    ]);
    let doc = "Gaps above a common threshold. cyclictest counts late wake-ups, which are not gaps.";
    let mut table = Table::new("noise_peers", doc, columns);
    for (index, us) in settings.thresholds_us.iter().enumerate() {
        let rates = |tool: Tool| {
            let windows = seen.iter().filter(|seen| seen.tool == tool && seen.window_ns > 0);
            let rate = |seen: &Seen| seen.above[index] as f64 * 1e9 / seen.window_ns as f64;
            spread(windows.map(rate).collect())
        };
        let [irqlab, irqlab_min, irqlab_max] = rates(Tool::Irqlab);
        for tool in [Tool::Irqlab, Tool::Oslat, Tool::Cyclictest] {
            let [median, min, max] = rates(tool);
            if median.is_none() {
                continue;
            }
            let irqlab = if tool == Tool::Irqlab { None } else { irqlab };
            let positive = irqlab.filter(|irqlab| *irqlab > 0.0);
            let ratio = median.zip(positive).map(|(median, irqlab)| median / irqlab);
            let overlaps = (tool == Tool::Oslat)
                .then(|| Some(min? <= irqlab_max? && max? >= irqlab_min?))
                .flatten();
            table.push(vec![
                (us * 1000).into(),
                tool.word().into(),
                median.into(),
                min.into(),
                max.into(),
                ratio.into(),
                overlaps.into(),
            ]);
        }
    }
    table
}

fn windows(seen: &[Seen]) -> Table {
    let columns = columns(&[
        ("round", Kind::Uint, "Round, from 1."),
        ("tool", Kind::Text, "Tool that measured."),
        ("window_ns", Kind::Uint, "Length of the tool's window."),
        ("sample_count", Kind::Uint, "Readings of the clock, or wake-ups."),
        ("max_ns", Kind::Uint, "The longest gap, or the longest wake-up latency."),
    ]);
    let mut table = Table::new("windows", "The tools' windows, in order of time.", columns);
    for window in seen {
        table.push(vec![
            (window.round + 1).into(),
            window.tool.word().into(),
            window.window_ns.into(),
            window.looks.into(),
            window.max_ns.into(),
        ]);
    }
    table
}
