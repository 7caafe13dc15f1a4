//! `irqlab bench overhead`: compares the overhead of a pair of probes with other tools.

use std::process::ExitCode;

use live::bpf::Flavour;
use live::selfbench::overhead::{Attached, Cost, Overhead, OverheadSettings, measure};
use live::syscall_loop::median;
use record::{Kind, Table, Value};
use serde_json::{Map, json};

use super::{Measured, columns, open, run_of};
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
    open.finish(&run_of("bench-overhead", open.started(), record_of(&settings, &overhead)), &[])
}

/// The run's record: settings, lost events, and the tables `overhead` and `targets`.
fn record_of(settings: &OverheadSettings, overhead: &Overhead) -> Measured {
    let mut run_settings = Map::new();
    run_settings.insert("cpu".into(), json!(settings.cpu));
    run_settings.insert("rounds".into(), json!(settings.rounds));
    run_settings.insert("loops_per_round".into(), json!(settings.loops));
    run_settings.insert("calls_per_loop".into(), json!(settings.calls));
    let mut observer = Map::new();
    observer.insert("events_lost".into(), json!(overhead.missed));
    Measured {
        settings: run_settings,
        observer,
        absent: overhead.absent.clone(),
        tables: vec![table(settings.cpu, overhead), targets(overhead)],
        interrupted: overhead.interrupted,
        ..Measured::default()
    }
}

fn minimum(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

fn maximum(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}

fn table(cpu: u32, overhead: &Overhead) -> Table {
    let columns = columns(&[
        ("probe", Kind::Text, "Probes that were attached to the entry and exit of a system call."),
        (
            "probe_overhead_ns",
            Kind::Real,
            "Time that the probes add to a call: median of the rounds.",
        ),
        ("probe_overhead_min_ns", Kind::Real, "Minimum of the rounds."),
        ("probe_overhead_max_ns", Kind::Real, "Maximum of the rounds."),
        (
            "over_empty_ratio",
            Kind::Real,
            "Overhead over the overhead of the empty tp_btf pair: median of the rounds' ratios.",
        ),
        ("call_ns", Kind::Real, "Duration of a call with the probes: median of the rounds."),
        ("round_count", Kind::Uint, "Number of measured rounds."),
        ("span_count", Kind::Uint, "Spans that the tool itself counted in these rounds."),
        (
            "call_count",
            Kind::Uint,
            "Calls that the loops made in these rounds; other programs on the CPU add to span_count.",
        ),
        ("method", Kind::Text, "How the probes were attached."),
    ]);
    let mut table = Table::new("overhead", "Overhead of each tool per system call.", columns);
    for cost in &overhead.costs {
        table.push(vec![
            cost.attached.label().into(),
            median(cost.added_ns.clone()).into(),
            minimum(&cost.added_ns).into(),
            maximum(&cost.added_ns).into(),
            median(cost.ratio.clone()).into(),
            median(cost.call_ns.clone()).into(),
            (cost.call_ns.len() as u64).into(),
            cost.counted.map(|(spans, _)| spans).into(),
            cost.counted.map(|(_, calls)| calls).into(),
            cost.attached.method(cpu).into(),
        ]);
    }
    table
}

/// Table `targets`: the limits on the overhead, and whether they are met.
fn targets(overhead: &Overhead) -> Table {
    let columns = columns(&[
        ("target", Kind::Text, "The two overheads that the target compares."),
        ("measured_ratio", Kind::Real, "Measured: median of the rounds' ratios."),
        ("limit_ratio", Kind::Real, "The largest ratio that meets the target."),
        ("met", Kind::Bool, "Whether the target is met."),
    ]);
    let mut table = Table::new("targets", "Targets for the overhead of irqlab's probes.", columns);
    let irqlab = overhead.cost(Attached::Irqlab(Flavour::Btf));
    let empty = overhead.cost(Attached::Empty(Flavour::Btf));
    let clocks = overhead.cost(Attached::Clocks(Flavour::Btf));
    let bpftrace = overhead.cost(Attached::Bpftrace);
    let mut push = |target: &str, other: Option<&Cost>, limit: f64| {
        let ratio = irqlab.zip(other).and_then(|(irqlab, other)| median_ratio(irqlab, other));
        let met = ratio.map(|ratio| ratio <= limit);
        table.push(vec![target.into(), ratio.into(), Value::Real(limit), met.into()]);
    };
    push("irqlab / empty pair", empty, 1.3);
    push("irqlab / two clock readings", clocks, 1.15);
    push("irqlab / bpftrace", bpftrace, 1.0 / 3.0);
    table
}

/// Median over the rounds of the ratio of two overheads.
fn median_ratio(cost: &Cost, other: &Cost) -> Option<f64> {
    let pairs = cost.added_ns.iter().zip(&other.added_ns);
    median(pairs.map(|(added, other)| added / other).collect())
}
