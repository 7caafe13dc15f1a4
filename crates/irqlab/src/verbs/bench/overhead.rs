//! `irqlab bench overhead`: compares the overhead of a pair of probes with other tools.

use std::process::ExitCode;

use live::bpf::Flavour;
use live::selfbench::overhead::{Attached, Cost, Overhead, OverheadSettings, measure};
use live::syscall_loop::median;
use record::{Columns, Table, column};
use serde_json::{Map, json};

use super::spread::{Spread, spread_columns};
use super::target::{Target, target_columns};
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

fn table(cpu: u32, overhead: &Overhead) -> Table {
    let columns = Columns::all([
        column("probe", "Probes that were attached to the entry and exit of a system call.")
            .text(|cost: &Cost| cost.attached.label()),
        spread_columns(
            "probe_overhead",
            "ns",
            "Time that the probes add to a call: median of the rounds.",
        )
        .of(|cost: &Cost| Spread::of(cost.added_ns.clone())),
        column(
            "over_empty_ratio",
            "Overhead over the overhead of the empty tp_btf pair: median of the rounds' ratios.",
        )
        .real(|cost: &Cost| median(cost.ratio.clone())),
        column("call_ns", "Duration of a call with the probes: median of the rounds.")
            .real(|cost: &Cost| median(cost.call_ns.clone())),
        column("round_count", "Number of measured rounds.").uint(|cost: &Cost| cost.call_ns.len()),
        column("span_count", "Spans that the tool itself counted in these rounds.")
            .uint(|cost: &Cost| cost.counted.map(|(spans, _)| spans)),
        column(
            "call_count",
            "Calls that the loops made in these rounds; other programs on the CPU add to span_count.",
        )
        .uint(|cost: &Cost| cost.counted.map(|(_, calls)| calls)),
        column("method", "How the probes were attached.")
            .text(move |cost: &Cost| cost.attached.method(cpu)),
    ]);
    columns.table("overhead", "Overhead of each tool per system call.", &overhead.costs)
}

/// Table `targets`: the limits on the overhead, and whether they are met.
fn targets(overhead: &Overhead) -> Table {
    let irqlab = overhead.cost(Attached::Irqlab(Flavour::Btf));
    let target = |name, other: Attached, limit: f64| {
        let ratio = irqlab.zip(overhead.cost(other));
        let value = ratio.and_then(|(irqlab, other)| median_ratio(irqlab, other));
        Target::limited(name, value, limit)
    };
    let rows = [
        target("irqlab / empty pair", Attached::Empty(Flavour::Btf), 1.3),
        target("irqlab / two clock readings", Attached::Clocks(Flavour::Btf), 1.15),
        target("irqlab / bpftrace", Attached::Bpftrace, 1.0 / 3.0),
    ];
    let columns = target_columns(
        column("target", "The two overheads that the target compares."),
        column("measured_ratio", "Measured: median of the rounds' ratios."),
        column("limit_ratio", "The largest ratio that meets the target."),
    );
    columns.table("targets", "Targets for the overhead of irqlab's probes.", rows)
}

/// Median over the rounds of the ratio of two overheads.
fn median_ratio(cost: &Cost, other: &Cost) -> Option<f64> {
    let pairs = cost.added_ns.iter().zip(&other.added_ns);
    median(pairs.map(|(added, other)| added / other).collect())
}
