//! `irqlab bench trace-agreement`: compares irqlab's times with the kernel's own trace of the same interrupts.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use live::selfbench::trace_agreement::{LineSums, TraceAgreement, TraceAgreementSettings, measure};
use record::{Columns, Table, column};
use serde_json::{Map, json};

use super::{Measured, open, run_of};
use crate::console::{ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, duration_between, usable_cpus};
use crate::run::{stop_on_signals, with_remedy_for_rights};

/// Largest difference of the two means' ratio from 1.
const LIMIT: f64 = 0.1;
/// Smallest number of interrupts of a line that is compared.
const COUNT_MIN: u64 = 100;

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
    open.finish(&run_of("bench-trace-agreement", open.started(), measured(&settings, &seen)), &[])
}

fn measured(settings: &TraceAgreementSettings, seen: &TraceAgreement) -> Measured {
    let mut run_settings = Map::new();
    run_settings.insert("cpus".into(), json!(settings.cpus));
    run_settings.insert("rounds".into(), json!(settings.rounds));
    run_settings.insert("window_ns".into(), json!(settings.window.as_nanos() as u64));
    run_settings.insert("stimulus".into(), json!("disk high"));
    let mut observer = Map::new();
    observer.insert("events_lost".into(), json!(seen.lost));
    observer.insert("probe_overhead_in_span_ns".into(), json!(seen.probe_overhead_in_span_ns));
    let clamped: u64 = seen.lines.values().map(|line| line.clamped).sum();
    let warning = (clamped > 0)
        .then(|| format!("{clamped} spans were shorter than the probe overhead and count as 0 ns"));
    Measured {
        settings: run_settings,
        observer,
        warnings: warning.into_iter().collect(),
        tables: vec![lines_table(seen), corrections_table(seen), rounds_table(seen)],
        interrupted: seen.interrupted,
        ..Measured::default()
    }
}

/// An interrupt line and the sums of its interrupts.
#[derive(Clone, Copy)]
struct Line<'a> {
    irq: u32,
    sums: &'a LineSums,
}

impl Line<'_> {
    fn agrees(&self) -> bool {
        let is_close = (self.sums.ratio() - 1.0).abs() <= LIMIT;
        self.sums.counted == self.sums.trace.count && is_close
    }
}

/// The lines with at least [`COUNT_MIN`] interrupts in all rounds.
fn compared(seen: &TraceAgreement) -> impl Iterator<Item = Line<'_>> {
    let lines = seen.lines.iter().map(|(irq, sums)| Line { irq: *irq, sums });
    lines.filter(|line| line.sums.counted >= COUNT_MIN)
}

fn irq_column<'a>() -> Columns<'a, Line<'a>> {
    column("irq", "Interrupt line.").uint(|line: &Line<'_>| line.irq)
}

fn ratio_column<'a>() -> Columns<'a, Line<'a>> {
    column("irqlab_over_trace_ratio", "irqlab_mean_ns over trace_mean_ns.")
        .real(|line: &Line<'_>| line.sums.ratio())
}

fn lines_table(seen: &TraceAgreement) -> Table {
    let hot_loop_ns = |line: &Line<'_>| seen.work_by_loop_ns(line.sums);
    let columns = Columns::all([
        irq_column(),
        column("name", "Name of the line's action.").text(|line: &Line<'_>| line.sums.name.clone()),
        column("irqlab_count", "Interrupts that irqlab counted in its windows.")
            .uint(|line: &Line<'_>| line.sums.counted),
        column("trace_count", "Interrupts in the kernel's trace within the same windows.")
            .uint(|line: &Line<'_>| line.sums.trace.count),
        column(
            "undelivered_count",
            "Further interrupts, in threads of PID 1, that the kernel did not deliver to irqlab.",
        )
        .uint(|line: &Line<'_>| line.sums.undelivered),
        column(
            "irqlab_mean_ns",
            "Mean time of the action by irqlab, minus the trace's overhead and \
             probe_overhead_in_span_in_situ_ns.",
        )
        .real(|line: &Line<'_>| line.sums.work_ns()),
        column("trace_mean_ns", "Mean time of the action by the trace, minus its own overhead.")
            .real(|line: &Line<'_>| line.sums.trace.work_ns()),
        ratio_column(),
        column("agrees", "Whether the counts are equal and the ratio is within 0.9 to 1.1.")
            .bool(|line: &Line<'_>| line.agrees()),
        column(
            "hot_loop_mean_ns",
            "irqlab_mean_ns with probe_overhead_in_span_ns (calibrated in a hot loop) subtracted \
             instead.",
        )
        .real(hot_loop_ns),
        column("hot_loop_over_trace_ratio", "hot_loop_mean_ns over trace_mean_ns.")
            .real(move |line: &Line<'_>| hot_loop_ns(line) / line.sums.trace.work_ns()),
    ]);
    let doc = "The same interrupts measured by irqlab and by the kernel's trace events.";
    columns.table("trace_agreement", doc, compared(seen))
}

fn corrections_table(seen: &TraceAgreement) -> Table {
    let mean = |sum: u64, count: u64| sum as f64 / count as f64;
    let columns = Columns::all([
        irq_column(),
        column("irqlab_raw_mean_ns", "Mean span by irqlab, including the trace's probes.")
            .real(|line: &Line<'_>| mean(line.sums.span, line.sums.counted)),
        column(
            "irqlab_correction_ns",
            "Overhead of the trace's four probe runs in the span; subtracted.",
        )
        .real(|line: &Line<'_>| 2.0 * line.sums.trace.gaps_ns()),
        column("trace_raw_mean_ns", "Mean time from entry to exit in trace instance H.")
            .real(|line: &Line<'_>| mean(line.sums.trace.span, line.sums.trace.count)),
        column(
            "trace_between_mean_ns",
            "Mean time from the entry in trace instance I to the exit in H.",
        )
        .real(|line: &Line<'_>| mean(line.sums.trace.between, line.sums.trace.count)),
        column(
            "trace_correction_ns",
            "Overhead of one trace probe within trace_raw_mean_ns; subtracted.",
        )
        .real(|line: &Line<'_>| line.sums.trace.gaps_ns() / 2.0),
        column(
            "probe_overhead_in_situ_ns",
            "Overhead of irqlab's two probes, calibrated in situ.",
        )
        .real(|line: &Line<'_>| line.sums.trace.pair_ns()),
        column(
            "probe_overhead_ns",
            "Overhead of irqlab's two probes, calibrated in a hot loop.",
        )
        .uint(|_: &Line<'_>| seen.probe_overhead_ns),
        column(
            "probe_overhead_in_span_ns",
            "The part of probe_overhead_ns within a span; subtracted in hot_loop_mean_ns.",
        )
        .uint(|_: &Line<'_>| seen.probe_overhead_in_span_ns),
        column(
            "probe_overhead_in_span_in_situ_ns",
            "The part of the in-situ overhead within a span; the programs subtract it from irqlab_raw_mean_ns.",
        )
        .real(|line: &Line<'_>| line.sums.probe_overhead_ns()),
        column(
            "untraced_mean_ns",
            "Mean time of the action by irqlab in windows without any trace.",
        )
        .real(|line: &Line<'_>| mean(line.sums.alone_span, line.sums.alone_counted)),
        column("untraced_count", "Interrupts in these windows.")
            .uint(|line: &Line<'_>| line.sums.alone_counted),
    ]);
    let doc = "The means as measured, and the overheads that were subtracted from them.";
    columns.table("corrections", doc, compared(seen))
}

fn rounds_table(seen: &TraceAgreement) -> Table {
    /// The number of the round, from 1, and an interrupt line in this round.
    type Row<'a> = (usize, Line<'a>);
    let columns = Columns::all([
        column("round", "Number of the round.").uint(|(round, _): &Row<'_>| *round),
        Columns::all([
            irq_column(),
            column("irqlab_count", "Interrupts that irqlab counted.")
                .uint(|line: &Line<'_>| line.sums.counted),
            column("trace_count", "Interrupts in the trace.")
                .uint(|line: &Line<'_>| line.sums.trace.count),
            column("irqlab_mean_ns", "Mean time of the action by irqlab, as in trace_agreement.")
                .real(|line: &Line<'_>| line.sums.work_ns()),
            column("trace_mean_ns", "Mean time of the action by the trace.")
                .real(|line: &Line<'_>| line.sums.trace.work_ns()),
            ratio_column(),
        ])
        .of(|(_, line): &Row<'_>| *line),
    ]);
    let rows = (1..).zip(&seen.rounds).flat_map(|(round, lines)| {
        compared(seen).filter_map(move |Line { irq, .. }| {
            let sums = lines.get(&irq).filter(|sums| sums.counted > 0)?;
            Some((round, Line { irq, sums }))
        })
    });
    columns.table("rounds", "The comparison of trace_agreement by round.", rows)
}
