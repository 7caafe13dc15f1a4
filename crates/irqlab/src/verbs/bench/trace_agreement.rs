//! `irqlab bench trace-agreement`: irqlab's times compared with the kernel's own trace of the same
//! interrupts.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use live::selfbench::trace_agreement::{LineSums, TraceAgreement, TraceAgreementSettings, measure};
use record::{Kind, Table, Value};
use serde_json::{Map, json};

use super::{Measured, columns, open, run_of};
use crate::console::{Progress, Redraw};
use crate::options::{OptionalResultArgs, duration_between, online_cpus};
use crate::run::{stop_on_signals, with_remedy_for_rights};

/// How far apart the two means may be.
const LIMIT: f64 = 0.1;
/// Lines with fewer interrupts are not compared.
const COUNT_MIN: u64 = 100;

/// irqlab's times compared with the kernel's own trace of the same interrupts
#[derive(Debug, clap::Args)]
pub struct TraceAgreementArgs {
    /// CPUs to watch [default: all online]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// Windows with the trace, and as many without
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

/// Measures, prints, records.
pub fn run(args: &TraceAgreementArgs) -> anyhow::Result<ExitCode> {
    let settings = TraceAgreementSettings {
        cpus: online_cpus(args.cpus.as_deref())?,
        rounds: args.rounds,
        window: args.duration,
        disk_file: args.disk_file.clone(),
        helper: None,
    };
    let open = open(&args.results)?;
    let stop = stop_on_signals()?;
    let mut progress = Progress::new(args.rounds as usize, None, Redraw::EachStep);
    let seen = measure(&settings, &stop, &mut |round: u32| progress.step(round as usize, "round"));
    drop(progress);
    let seen = seen.map_err(with_remedy_for_rights)?;
    open.finish(&run_of("bench-trace-agreement", open.started(), measured(&settings, &seen)), &[])
}

fn measured(settings: &TraceAgreementSettings, seen: &TraceAgreement) -> Measured {
    let mut of = Map::new();
    of.insert("cpus".into(), json!(settings.cpus));
    of.insert("rounds".into(), json!(settings.rounds));
    of.insert("window_ns".into(), json!(settings.window.as_nanos() as u64));
    of.insert("source".into(), json!("disk high"));
    let mut observer = Map::new();
    observer.insert("events_lost".into(), json!(seen.lost));
    observer.insert("inside_ns_per_span".into(), json!(seen.inside_ns));
    let clamped: u64 = seen.lines.values().map(|line| line.clamped).sum();
    let warning = (clamped > 0)
        .then(|| format!("{clamped} spans were shorter than what the probes add: counted as 0 ns"));
    Measured {
        settings: of,
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
        ("name", Kind::Text, "Its action."),
        ("counted", Kind::Uint, "Interrupts that irqlab counted in its windows."),
        ("traced", Kind::Uint, "Interrupts in the kernel's trace within the same windows."),
        ("undelivered", Kind::Uint, "Further ones, in threads of PID 1, not told to irqlab."),
        ("irqlab_ns", Kind::Real, "Mean work by irqlab: less the trace, and inside_in_place_ns."),
        ("trace_ns", Kind::Real, "Mean work by the trace, its own cost subtracted."),
        ("ratio", Kind::Real, "irqlab_ns over trace_ns."),
        ("agrees", Kind::Bool, "Counts are equal, and the ratio is within 0.9 to 1.1."),
        ("hot_loop_ns", Kind::Real, "irqlab_ns, had inside_ns been subtracted instead."),
        ("hot_loop_ratio", Kind::Real, "hot_loop_ns over trace_ns."),
    ]);
    let doc = "The same interrupts measured by irqlab and by the kernel's trace events.";
    let mut table = Table::new("trace_agreement", doc, columns);
    for (irq, line) in compared(seen) {
        let work_ns = seen.work_in_place_ns(line);
        let ratio = work_ns / line.trace.work_ns();
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
            line.work_ns().into(),
            line.ratio().into(),
        ]);
    }
    table
}

fn corrections_table(seen: &TraceAgreement) -> Table {
    let columns = columns(&[
        ("irq", Kind::Uint, "Interrupt line."),
        ("irqlab_raw_ns", Kind::Real, "Mean span of irqlab with the trace inside."),
        ("irqlab_correction_ns", Kind::Real, "The trace's four probe runs in it; subtracted."),
        ("trace_raw_ns", Kind::Real, "Mean time from entry to exit in instance H."),
        ("trace_between_ns", Kind::Real, "Mean time from instance I's entry to H's exit."),
        ("trace_correction_ns", Kind::Real, "One trace probe, which that holds; subtracted."),
        ("pair_ns", Kind::Real, "irqlab's two programs, in place."),
        ("calibrated_ns", Kind::Uint, "The same by irqlab's calibration in a hot loop."),
        ("inside_ns", Kind::Uint, "The part of it inside a span; subtracted in irqlab_raw_ns."),
        (
            "inside_in_place_ns",
            Kind::Real,
            "The same in place, by spans without work; irqlab_ns has it.",
        ),
        ("alone_ns", Kind::Real, "Mean work by irqlab in windows without any trace."),
        ("alone_counted", Kind::Uint, "Interrupts in those."),
    ]);
    let mut table = Table::new("corrections", "What was subtracted, and raw means.", columns);
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
            seen.added_ns.into(),
            seen.inside_ns.into(),
            seen.inside_in_place_ns().into(),
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
        ("counted", Kind::Uint, "Interrupts that irqlab counted."),
        ("traced", Kind::Uint, "Interrupts in the trace."),
        ("irqlab_ns", Kind::Real, "Mean work by irqlab, as in trace_agreement."),
        ("trace_ns", Kind::Real, "Mean work by the trace."),
        ("ratio", Kind::Real, "irqlab_ns over trace_ns."),
    ]);
    let mut table = Table::new("rounds", "The same, round by round.", columns);
    for (round, lines) in seen.rounds.iter().enumerate() {
        for (irq, _) in compared(seen) {
            let Some(line) = lines.get(&irq).filter(|line| line.counted > 0) else { continue };
            table.push(vec![
                (round as u64 + 1).into(),
                u64::from(irq).into(),
                line.counted.into(),
                line.trace.count.into(),
                seen.work_in_place_ns(line).into(),
                line.trace.work_ns().into(),
                (seen.work_in_place_ns(line) / line.trace.work_ns()).into(),
            ]);
        }
    }
    table
}
