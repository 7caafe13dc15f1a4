//! `irqlab bench trace-agreement`: compares irqlab's times with the kernel's own trace of the same interrupts.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use live::selfbench::trace_agreement::{LineSums, TraceAgreement, TraceAgreementSettings, measure};
use record::{Kind, Table, Value};
use serde_json::{Map, json};

use super::{Measured, columns, open, run_of};
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

fn compared(seen: &TraceAgreement) -> impl Iterator<Item = (u32, &LineSums)> {
    seen.lines.iter().filter(|(_, line)| line.counted >= COUNT_MIN).map(|(irq, line)| (*irq, line))
}

fn lines_table(seen: &TraceAgreement) -> Table {
    let columns = columns(&[
        ("irq", Kind::Uint, "Interrupt line."),
        ("name", Kind::Text, "Name of the line's action."),
        ("irqlab_count", Kind::Uint, "Interrupts that irqlab counted in its windows."),
        ("trace_count", Kind::Uint, "Interrupts in the kernel's trace within the same windows."),
        (
            "undelivered_count",
            Kind::Uint,
            "Further interrupts, in threads of PID 1, that the kernel did not deliver to irqlab.",
        ),
        (
            "irqlab_mean_ns",
            Kind::Real,
            "Mean time of the action by irqlab, minus the trace's overhead and \
             probe_overhead_in_span_in_situ_ns.",
        ),
        (
            "trace_mean_ns",
            Kind::Real,
            "Mean time of the action by the trace, minus its own overhead.",
        ),
        ("irqlab_over_trace_ratio", Kind::Real, "irqlab_mean_ns over trace_mean_ns."),
        ("agrees", Kind::Bool, "Whether the counts are equal and the ratio is within 0.9 to 1.1."),
        (
            "hot_loop_mean_ns",
            Kind::Real,
            "irqlab_mean_ns with probe_overhead_in_span_ns (calibrated in a hot loop) subtracted \
             instead.",
        ),
        ("hot_loop_over_trace_ratio", Kind::Real, "hot_loop_mean_ns over trace_mean_ns."),
    ]);
    let doc = "The same interrupts measured by irqlab and by the kernel's trace events.";
    let mut table = Table::new("trace_agreement", doc, columns);
    for (irq, line) in compared(seen) {
        let (work_ns, ratio) = (line.work_ns(), line.ratio());
        let by_loop_ns = seen.work_by_loop_ns(line);
        table.push(vec![
            u64::from(irq).into(),
            line.name.as_str().into(),
            line.counted.into(),
            line.trace.count.into(),
            line.undelivered.into(),
            work_ns.into(),
            line.trace.work_ns().into(),
            ratio.into(),
            (line.counted == line.trace.count && (ratio - 1.0).abs() <= LIMIT).into(),
            by_loop_ns.into(),
            (by_loop_ns / line.trace.work_ns()).into(),
        ]);
    }
    table
}

fn corrections_table(seen: &TraceAgreement) -> Table {
    let columns = columns(&[
        ("irq", Kind::Uint, "Interrupt line."),
        ("irqlab_raw_mean_ns", Kind::Real, "Mean span by irqlab, including the trace's probes."),
        (
            "irqlab_correction_ns",
            Kind::Real,
            "Overhead of the trace's four probe runs in the span; subtracted.",
        ),
        ("trace_raw_mean_ns", Kind::Real, "Mean time from entry to exit in trace instance H."),
        (
            "trace_between_mean_ns",
            Kind::Real,
            "Mean time from the entry in trace instance I to the exit in H.",
        ),
        (
            "trace_correction_ns",
            Kind::Real,
            "Overhead of one trace probe within trace_raw_mean_ns; subtracted.",
        ),
        (
            "probe_overhead_in_situ_ns",
            Kind::Real,
            "Overhead of irqlab's two probes, calibrated in situ.",
        ),
        (
            "probe_overhead_ns",
            Kind::Uint,
            "Overhead of irqlab's two probes, calibrated in a hot loop.",
        ),
        (
            "probe_overhead_in_span_ns",
            Kind::Uint,
            "The part of probe_overhead_ns within a span; subtracted in hot_loop_mean_ns.",
        ),
        (
            "probe_overhead_in_span_in_situ_ns",
            Kind::Real,
            "The part of the in-situ overhead within a span; the programs subtract it from irqlab_raw_mean_ns.",
        ),
        (
            "untraced_mean_ns",
            Kind::Real,
            "Mean time of the action by irqlab in windows without any trace.",
        ),
        ("untraced_count", Kind::Uint, "Interrupts in these windows."),
    ]);
    let doc = "The means as measured, and the overheads that were subtracted from them.";
    let mut table = Table::new("corrections", doc, columns);
    for (irq, line) in compared(seen) {
        let mean = |sum: u64, count: u64| Value::real(sum as f64 / count as f64);
        table.push(vec![
            u64::from(irq).into(),
            mean(line.span, line.counted),
            (2.0 * line.trace.gaps_ns()).into(),
            mean(line.trace.span, line.trace.count),
            mean(line.trace.between, line.trace.count),
            (line.trace.gaps_ns() / 2.0).into(),
            line.trace.pair_ns().into(),
            seen.probe_overhead_ns.into(),
            seen.probe_overhead_in_span_ns.into(),
            line.probe_overhead_ns().into(),
            mean(line.alone_span, line.alone_counted),
            line.alone_counted.into(),
        ]);
    }
    table
}

fn rounds_table(seen: &TraceAgreement) -> Table {
    let columns = columns(&[
        ("round", Kind::Uint, "Number of the round."),
        ("irq", Kind::Uint, "Interrupt line."),
        ("irqlab_count", Kind::Uint, "Interrupts that irqlab counted."),
        ("trace_count", Kind::Uint, "Interrupts in the trace."),
        ("irqlab_mean_ns", Kind::Real, "Mean time of the action by irqlab, as in trace_agreement."),
        ("trace_mean_ns", Kind::Real, "Mean time of the action by the trace."),
        ("irqlab_over_trace_ratio", Kind::Real, "irqlab_mean_ns over trace_mean_ns."),
    ]);
    let mut table = Table::new("rounds", "The comparison of trace_agreement by round.", columns);
    for (round, lines) in seen.rounds.iter().enumerate() {
        for (irq, _) in compared(seen) {
            let Some(line) = lines.get(&irq).filter(|line| line.counted > 0) else { continue };
            table.push(vec![
                (round as u64 + 1).into(),
                u64::from(irq).into(),
                line.counted.into(),
                line.trace.count.into(),
                line.work_ns().into(),
                line.trace.work_ns().into(),
                line.ratio().into(),
            ]);
        }
    }
    table
}
