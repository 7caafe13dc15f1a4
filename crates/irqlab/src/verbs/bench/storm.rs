//! `irqlab bench storm`: raises interrupts at a high rate on all CPUs, and checks that irqlab loses none.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use lab::handlers::{Agreement, Timing};
use live::selfbench::storm::{Storm, StormSettings, measure};
use record::{Kind, Table, Value};
use serde_json::{Map, json};

use super::{Measured, columns, open, run_of};
use crate::console::{ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, duration, duration_between, usable_cpus};
use crate::run::{stop_on_signals, with_remedy_for_rights};

/// Maximum growth of the process during the window. A few pages are not a leak.
const GROWTH_BYTES_MAX: u64 = 256 << 10;
/// Maximum share of a CPU that the process may use.
const USER_SHARE_MAX: f64 = 0.01;

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
        tables: vec![storm_table(storm), sources_table(storm), counts_table(storm)],
        interrupted: storm.sample.interrupted,
    }
}

fn storm_table(storm: &Storm) -> Table {
    let columns = columns(&[
        ("quantity", Kind::Text, "The measured quantity, with its unit."),
        ("value", Kind::Real, "Measured value."),
        ("limit", Kind::Real, "Largest value that meets the target."),
        ("met", Kind::Bool, "Whether the target is met."),
    ]);
    let mut table = Table::new("storm", "The whole window, all CPUs together.", columns);
    let sample = &storm.sample;
    let seconds = sample.length_ns() as f64 / 1e9;
    let mut push = |what: &str, value: Option<f64>, limit: Option<f64>| {
        let met = value.zip(limit).map(|(value, limit)| value <= limit);
        table.push(vec![what.into(), value.into(), limit.into(), met.into()]);
    };
    push("length, s", Some(seconds), None);
    push("entry and exit events", Some(sample.events() as f64), None);
    push("events per second", Some(sample.events() as f64 / seconds), None);
    push("interrupts and softirqs per second", Some(storm.spans() as f64 / seconds), None);
    push("events lost", Some(sample.lost() as f64), Some(0.0));
    push("interrupts not handed to BPF by the kernel", Some(sample.undelivered() as f64), None);
    let (first, last) = (storm.resident_bytes.first(), storm.resident_bytes.last());
    let growth = first.zip(last).map(|(first, last)| last.saturating_sub(*first) as f64);
    push("resident set at the start, bytes", first.map(|bytes| *bytes as f64), None);
    push("growth of the resident set, bytes", growth, Some(GROWTH_BYTES_MAX as f64));
    push("user-space share of a CPU", Some(storm.user_share()), Some(USER_SHARE_MAX));
    table
}

fn sources_table(storm: &Storm) -> Table {
    let columns = columns(&[
        ("kind", Kind::Text, "Kind of context."),
        ("name", Kind::Text, "Name of the action, vector or softirq."),
        ("count", Kind::Uint, "Spans on all CPUs together."),
        ("rate_hz", Kind::Real, "Spans per second."),
        ("mean_ns", Kind::Real, "Mean self time."),
    ]);
    let mut table = Table::new("contexts", "Interrupts and softirqs that were counted.", columns);
    let mut sums: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for source in storm.sample.contexts.iter().filter(|source| source.timing == Timing::Probes) {
        let sum = sums.entry(source.context.clone()).or_default();
        sum.0 += source.count;
        sum.1 += source.own.sum;
    }
    let seconds = storm.sample.length_ns() as f64 / 1e9;
    for (context, (count, ns)) in sums {
        let mean = Value::real(ns as f64 / count as f64);
        table.push(vec![
            context.kind.label().into(),
            context.name.into(),
            count.into(),
            (count as f64 / seconds).into(),
            mean,
        ]);
    }
    table
}

/// Table `counts`: irqlab's counts and the kernel's own. Leaves out lines without interrupts.
fn counts_table(storm: &Storm) -> Table {
    let columns = columns(&[
        ("cpu", Kind::Uint, "CPU."),
        ("line", Kind::Text, "Line of /proc/interrupts or /proc/softirqs."),
        ("name", Kind::Text, "Name of the line's interrupt or softirq."),
        ("irqlab_count", Kind::Uint, "Entries that irqlab counted."),
        ("kernel_count", Kind::Uint, "The kernel's counter, read at the edges of the window."),
        ("kernel_min_count", Kind::Uint, "Lower bound by the files in /proc."),
        ("kernel_max_count", Kind::Uint, "Upper bound by the files in /proc."),
        ("missing_count", Kind::Int, "kernel_count minus irqlab_count."),
    ]);
    let mut table =
        Table::new("counts", "irqlab's counts compared with the kernel's own.", columns);
    let was_raised =
        |line: &&Agreement| line.counted.unwrap_or(0) > 0 && line.kernel_max != Some(0);
    for line in storm.sample.agreement.iter().filter(was_raised) {
        let missing = line.counted.zip(line.kernel_exact);
        let missing = missing.map(|(counted, kernel)| kernel as i64 - counted as i64);
        table.push(vec![
            u64::from(line.cpu).into(),
            line.line.as_str().into(),
            line.name.as_str().into(),
            line.counted.into(),
            line.kernel_exact.into(),
            line.kernel_min.into(),
            line.kernel_max.into(),
            missing.map_or(Value::Absent, Value::Int),
        ]);
    }
    table
}
