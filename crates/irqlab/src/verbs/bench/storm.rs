//! `irqlab bench storm`: raises interrupts at a high rate on all CPUs, and checks that irqlab loses none.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use attribution::Context;
use lab::handlers::{Agreement, Timing};
use live::selfbench::storm::{Storm, StormSettings, measure};
use record::{Columns, Table, column};
use serde_json::{Map, json};

use super::target::{Target, target_columns};
use super::{Measured, open, run_of};
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
    let sample = &storm.sample;
    let seconds = sample.length_ns() as f64 / 1e9;
    let (first, last) = (storm.resident_bytes.first(), storm.resident_bytes.last());
    let growth = first.zip(last).map(|(first, last)| last.saturating_sub(*first) as f64);
    let rows = [
        Target::unlimited("length, s", seconds),
        Target::unlimited("entry and exit events", sample.events() as f64),
        Target::unlimited("events per second", sample.events() as f64 / seconds),
        Target::unlimited("interrupts and softirqs per second", storm.spans() as f64 / seconds),
        Target::limited("events lost", sample.lost() as f64, 0.0),
        Target::unlimited(
            "interrupts not handed to BPF by the kernel",
            sample.undelivered() as f64,
        ),
        Target::unlimited("resident set at the start, bytes", first.map(|bytes| *bytes as f64)),
        Target::limited("growth of the resident set, bytes", growth, GROWTH_BYTES_MAX as f64),
        Target::limited("user-space share of a CPU", storm.user_share(), USER_SHARE_MAX),
    ];
    let columns = target_columns(
        column("quantity", "The measured quantity, with its unit."),
        column("value", "Measured value."),
        column("limit", "Largest value that meets the target."),
    );
    columns.table("storm", "The whole window, all CPUs together.", rows)
}

/// Spans of a context on all CPUs.
#[derive(Default)]
struct Spans {
    count: u64,
    /// Sum of the self times.
    self_ns: u64,
}

fn sources_table(storm: &Storm) -> Table {
    let mut sums: BTreeMap<&Context, Spans> = BTreeMap::new();
    for source in storm.sample.contexts.iter().filter(|source| source.timing == Timing::Probes) {
        let sum = sums.entry(&source.context).or_default();
        sum.count += source.count;
        sum.self_ns += source.own.sum;
    }
    type Row<'a> = (&'a Context, Spans);
    let seconds = storm.sample.length_ns() as f64 / 1e9;
    let columns = Columns::all([
        column("kind", "Kind of context.").text(|(context, _): &Row<'_>| context.kind.label()),
        column("name", "Name of the action, vector or softirq.")
            .text(|(context, _): &Row<'_>| context.name.clone()),
        column("count", "Spans on all CPUs together.").uint(|(_, spans): &Row<'_>| spans.count),
        column("rate_hz", "Spans per second.")
            .real(|(_, spans): &Row<'_>| spans.count as f64 / seconds),
        column("mean_ns", "Mean self time.")
            .real(|(_, spans): &Row<'_>| spans.self_ns as f64 / spans.count as f64),
    ]);
    columns.table("contexts", "Interrupts and softirqs that were counted.", sums)
}

/// Table `counts`: irqlab's counts and the kernel's own. Leaves out lines without interrupts.
fn counts_table(storm: &Storm) -> Table {
    let missing = |line: &Agreement| {
        let counts = line.counted.zip(line.kernel_exact);
        counts.map(|(counted, kernel)| kernel as i64 - counted as i64)
    };
    let columns = Columns::all([
        column("cpu", "CPU.").uint(|line: &Agreement| line.cpu),
        column("line", "Line of /proc/interrupts or /proc/softirqs.")
            .text(|line: &Agreement| line.line.clone()),
        column("name", "Name of the line's interrupt or softirq.")
            .text(|line: &Agreement| line.name.clone()),
        column("irqlab_count", "Entries that irqlab counted.")
            .uint(|line: &Agreement| line.counted),
        column("kernel_count", "The kernel's counter, read at the edges of the window.")
            .uint(|line: &Agreement| line.kernel_exact),
        column("kernel_min_count", "Lower bound by the files in /proc.")
            .uint(|line: &Agreement| line.kernel_min),
        column("kernel_max_count", "Upper bound by the files in /proc.")
            .uint(|line: &Agreement| line.kernel_max),
        column("missing_count", "kernel_count minus irqlab_count.").int(missing),
    ]);
    let was_raised =
        |line: &&Agreement| line.counted.unwrap_or(0) > 0 && line.kernel_max != Some(0);
    let rows = storm.sample.agreement.iter().filter(was_raised);
    columns.table("counts", "irqlab's counts compared with the kernel's own.", rows)
}
