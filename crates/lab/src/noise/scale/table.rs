//! The run that `noise scale` writes.

use record::{Absence, Kind, Run, SCHEMA, Table};
use serde_json::{Map, Value as Json, json};

use super::job::{Job, Row, scale};
use super::trace::{Arrivals, ScaleError, Trace, traces};
use crate::noise::tables::column;

/// Scales the detours of `measured`; the result is a run with table `scale`. `settings`: what was
/// asked for, of the caller.
///
/// # Errors
/// When the run has no detours, contradicts itself, or is too short for a grain.
pub fn run(
    measured: &Run,
    job: &Job,
    arrivals: Option<Arrivals>,
    started_utc: String,
    mut settings: Map<String, Json>,
) -> Result<Run, ScaleError> {
    let traces = traces(measured, arrivals, job.seed)?;
    let rows = scale(&traces, job)?;
    settings.insert("nodes".into(), json!(job.nodes));
    settings.insert("grains_ns".into(), json!(job.grains_ns));
    settings.insert("latency_ns".into(), json!(job.latency_ns));
    settings.insert("seed".into(), json!(job.seed));
    settings.insert("arrivals".into(), json!(word(&traces)));
    settings.insert("cpus".into(), json!(traces.iter().map(|it| it.cpu).collect::<Vec<_>>()));
    settings.insert("measured_utc".into(), json!(measured.started_utc));
    settings.insert("measured_detour_max_ns".into(), json!(longest_ns(&traces)));
    let without = rows.iter().any(|row| row.interval.is_none());
    let absence = Absence {
        table: "scale".to_owned(),
        what: "intervals".to_owned(),
        reason: "fewer than 8 stretches of ten grains were measured".to_owned(),
        remedy: Some("a longer irqlab noise, -d".to_owned()),
    };
    Ok(Run {
        schema: SCHEMA.to_owned(),
        experiment: "scale".to_owned(),
        bench: measured.bench.clone(),
        started_utc,
        complete: measured.complete,
        host: measured.host.clone(),
        settings,
        observer: Map::new(),
        warnings: warnings(&traces, &rows),
        absent: without.then_some(absence).into_iter().collect(),
        tables: vec![table(&rows)],
    })
}

fn word(traces: &[Trace]) -> &'static str {
    let is_random = traces.iter().any(|trace| trace.arrivals == Arrivals::Random);
    if is_random { Arrivals::Random.word() } else { Arrivals::Measured.word() }
}

fn longest_ns(traces: &[Trace]) -> u64 {
    traces.iter().map(|trace| trace.max_ns).max().unwrap_or(0)
}

fn warnings(traces: &[Trace], rows: &[Row]) -> Vec<String> {
    let mut warnings = Vec::new();
    let random = traces.iter().filter(|trace| trace.arrivals == Arrivals::Random);
    for trace in random {
        let (cpu, count) = (trace.cpu, trace.count);
        warnings.push(format!(
            "CPU {cpu}: its {count} detours come at random times here, independent of one another: \
             periods and bursts are lost"
        ));
        let taken = trace.detours.len() as u64;
        if taken < count {
            warnings.push(format!(
                "CPU {cpu}: {taken} of its {count} detours are looked at, evenly by length; of the \
                 few longest some are not among them"
            ));
        }
    }
    if rows.iter().any(|row| row.is_least) {
        let longest_ns = longest_ns(traces);
        warnings.push(format!(
            "rows with 'least' ask for delays rarer than one in a tenth of the grains measured. Of \
             detours beyond the longest measured ({longest_ns} ns) nothing is known: those figures \
             are the least, and have no upper end"
        ));
    }
    warnings
}

fn table(rows: &[Row]) -> Table {
    use Kind::{Bool, Real, Text, Uint};
    let columns = vec![
        column("grain_ns", Uint, "Work of each node between two barriers."),
        column(
            "detours",
            Text,
            "own: of each node at its own times; same: of all at the same times.",
        ),
        column("node_count", Uint, "Nodes, each one CPU."),
        column(
            "barrier_ns",
            Uint,
            "The barrier without detours: log2 rounds, a message's time each.",
        ),
        column("delay_mean_ns", Real, "Mean delay of the slowest node in a grain."),
        column("delay_p50_ns", Real, "Median of that over the grains."),
        column("delay_p99_ns", Real, "Its 99th percentile."),
        column("slowdown_ratio", Real, "delay_mean_ns over grain_ns and barrier_ns."),
        column("slowdown_low_ratio", Real, "Lower end of its 95 % interval (block bootstrap)."),
        column("slowdown_high_ratio", Real, "Upper end; absent where it is not known."),
        column(
            "is_least",
            Bool,
            "Whether delays beyond all measured ones would count: the figures are then lower bounds.",
        ),
    ];
    let doc = "Grains of work with a barrier behind each: what the measured detours do to them.";
    let mut table = Table::new("scale", doc, columns);
    for row in rows {
        let [p50, p99] = row.delay_quantiles_ns;
        table.push(vec![
            row.grain_ns.into(),
            if row.coscheduled { "same" } else { "own" }.into(),
            row.nodes.into(),
            row.barrier_ns.into(),
            row.delay_ns.into(),
            p50.into(),
            p99.into(),
            row.slowdown_ratio.into(),
            row.interval.map(|(low, _)| low).into(),
            row.interval.and_then(|(_, high)| high).into(),
            row.is_least.into(),
        ]);
    }
    table
}
