//! `irqlab bench trace-agreement`: compares irqlab's times with the kernel's own trace of the same interrupts.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use live::selfbench::trace_agreement::{TraceAgreement, TraceAgreementSettings, measure};
use live_tables::trace_agreement::tables;
use record::keys;
use serde_json::{Map, json};

use super::{Measured, open, run_of};
use crate::console::{ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, duration_between, usable_cpus};
use crate::run::{stop_on_signals, with_remedy_for_rights};

/// Compare irqlab's times with the kernel's own trace of the same interrupts
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo irqlab bench trace-agreement
  sudo irqlab bench trace-agreement --rounds 9 --disk-file /dev/sda")]
pub struct TraceAgreementArgs {
    /// CPUs to measure [default: all usable]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// Number of rounds; each has a window with the trace and a window without it
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of a window, up to 3s: the trace must fit into its buffer
    #[arg(short = 'd', long, value_parser = duration_between("1us", "3s"), default_value = "1s",
          value_name = "TIME")]
    duration: Duration,
    /// File or block device to read, instead of a scratch file
    #[arg(long, value_name = "FILE")]
    disk_file: Option<PathBuf>,
    #[command(flatten)]
    results: OptionalResultArgs,
}

pub fn run(args: &TraceAgreementArgs) -> anyhow::Result<ExitCode> {
    let settings = TraceAgreementSettings {
        cpus: usable_cpus(args.cpus.as_deref())?,
        rounds: args.rounds,
        window: args.duration,
        disk_file: args.disk_file.clone(),
        helper: None,
    };
    let open = open(&args.results)?;
    let stop = stop_on_signals()?;
    let mut progress = ProgressLine::new(Redraw::EachStep);
    let seen = measure(&settings, &stop, &mut |round: u32| {
        progress.step(round as usize + 1, args.rounds as usize, "round")
    });
    drop(progress);
    let seen = seen.map_err(with_remedy_for_rights)?;
    open.finish(
        &run_of("bench-trace-agreement", open.started(), settings_and_tables(&settings, &seen)),
        &[],
    )
}

/// The settings, observer facts and tables of the run, from the spans that both observers saw.
fn settings_and_tables(settings: &TraceAgreementSettings, seen: &TraceAgreement) -> Measured {
    let mut run_settings = Map::new();
    run_settings.insert("cpus".into(), json!(settings.cpus));
    run_settings.insert("rounds".into(), json!(settings.rounds));
    run_settings.insert("window_ns".into(), json!(settings.window.as_nanos() as u64));
    run_settings.insert("stimulus".into(), json!("disk high"));
    run_settings.insert("stimulus_operations".into(), json!(seen.disk.operations));
    run_settings.insert("stimulus_errors".into(), json!(seen.disk.errors));
    run_settings.insert("stimulus_elapsed_ns".into(), json!(seen.disk.elapsed_ns));
    let mut observer = Map::new();
    observer.insert(keys::EVENTS_LOST_COUNT.into(), json!(seen.lost));
    observer.insert("probe_overhead_in_span_ns".into(), json!(seen.probe_overhead_in_span_ns));
    let clamped: u64 = seen.lines.values().map(|line| line.clamped).sum();
    let warning = (clamped > 0)
        .then(|| format!("{clamped} spans were shorter than the probe overhead and count as 0 ns"));
    Measured {
        settings: run_settings,
        observer,
        warnings: warning.into_iter().chain(seen.warnings.iter().cloned()).collect(),
        tables: tables(seen),
        interrupted: seen.interrupted,
        ..Measured::default()
    }
}
