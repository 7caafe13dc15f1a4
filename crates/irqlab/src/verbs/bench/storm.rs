//! `irqlab bench storm`: raises timer, inter-processor and disk interrupts at a high rate on all CPUs. It reports
//! lost events, irqlab's memory and its CPU time.

use std::process::ExitCode;
use std::time::Duration;

use live::selfbench::storm::{Storm, StormSettings, measure};
use live_tables::storm::tables;
use serde_json::{Map, json};

use super::{Measured, open, run_of};
use crate::console::{ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, duration, duration_between, usable_cpus};
use crate::run::{stop_on_signals, with_remedy_for_rights};

/// Raise timer, inter-processor and disk interrupts at once: is nothing lost, memory constant, user space idle?
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo irqlab bench storm -d 60s
  sudo irqlab bench storm -d 10s --timer-period 50us")]
pub struct StormArgs {
    /// CPUs to measure [default: all usable]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// How long to measure
    #[arg(short = 'd', long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    duration: Duration,
    /// Time between two timer interrupts on each CPU, 10us to 100ms
    #[arg(long, value_parser = duration_between("10us", "100ms"), default_value = "20us",
          value_name = "TIME")]
    timer_period: Duration,
    #[command(flatten)]
    results: OptionalResultArgs,
}

pub fn run(args: &StormArgs) -> anyhow::Result<ExitCode> {
    let settings = StormSettings {
        cpus: usable_cpus(args.cpus.as_deref())?,
        duration: args.duration,
        timer_period: args.timer_period,
        helper: None,
        stop: stop_on_signals()?,
    };
    let open = open(&args.results)?;
    let mut progress = ProgressLine::new(Redraw::EverySecond);
    progress.step(1, 1, "timer, inter-processor and disk interrupts");
    let storm = measure(&settings).map_err(with_remedy_for_rights)?;
    drop(progress);
    open.finish(&run_of("bench-storm", open.started(), measured(&settings, &storm)), &[])
}

/// The settings and tables of the run, from the storm's reports.
fn measured(settings: &StormSettings, storm: &Storm) -> Measured {
    let mut run_settings = Map::new();
    run_settings.insert("cpus".into(), json!(settings.cpus));
    run_settings.insert("duration_ns".into(), json!(settings.duration.as_nanos() as u64));
    run_settings.insert("timer_period_ns".into(), json!(settings.timer_period.as_nanos() as u64));
    for (name, report) in &storm.done {
        run_settings.insert(
            name.clone(),
            json!({ "operations": report.operations, "errors": report.errors }),
        );
    }
    let mut observer = storm.facts.observer.clone();
    observer.insert("probe_overhead_ns".into(), json!(storm.overhead.total_ns));
    observer.insert("probe_overhead_in_span_ns".into(), json!(storm.overhead.in_span_ns));
    observer.insert("resident_bytes".into(), json!(storm.resident_bytes));
    observer.insert("user_cpu_share_ratio".into(), json!(storm.user_share()));
    observer.insert("events_lost".into(), json!(storm.sample.lost()));
    Measured {
        settings: run_settings,
        observer,
        warnings: storm.sample.warnings.clone(),
        absent: storm.absent.clone(),
        tables: tables(storm),
        interrupted: storm.sample.interrupted,
        ..Measured::default()
    }
}
