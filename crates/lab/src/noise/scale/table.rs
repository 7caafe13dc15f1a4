//! Makes the run that `noise scale` writes.

use record::{Absence, IntervalColumns, Kind, Run, SCHEMA, Table};
use serde_json::{Map, Value as Json, json};

use super::job::{Job, Row, scale};
use super::trace::{Arrivals, ScaleError, Trace, traces};
use crate::cpu_warnings::{CpuWarning, CpuWarnings};
use crate::noise::tables::{all_rows, column};

/// Scales the detours of the run `measured`. The result is a run with table `scale`, and includes the caller's own
/// settings.
///
/// # Errors
/// Fails if the run has no detours, contradicts itself, or is too short for a granularity.
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
    settings.insert("granularities_ns".into(), json!(job.granularities_ns));
    settings.insert("latency_ns".into(), json!(job.latency_ns));
    settings.insert("seed".into(), json!(job.seed));
    settings.insert("arrivals".into(), json!(arrivals_word(&traces)));
    let cpus: Vec<u64> = traces.iter().map(|trace| trace.cpu).collect();
    settings.insert("cpus".into(), json!(cpus));
    settings.insert("measured_utc".into(), json!(measured.started_utc));
    settings.insert("measured_detour_max_ns".into(), json!(longest_ns(&traces)));
    let has_no_interval = rows.iter().any(|row| row.interval.is_none());
    let absence = Absence {
        table: "scale".to_owned(),
        what: "intervals".to_owned(),
        reason: "fewer than 8 blocks of ten work intervals were measured".to_owned(),
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
        absent: has_no_interval.then_some(absence).into_iter().collect(),
        tables: vec![table(&rows)],
    })
}

fn arrivals_word(traces: &[Trace]) -> &'static str {
    let is_random = traces.iter().any(|trace| trace.arrivals == Arrivals::Random);
    if is_random { Arrivals::Random.word() } else { Arrivals::Measured.word() }
}

fn longest_ns(traces: &[Trace]) -> u64 {
    traces.iter().map(|trace| trace.max_ns).max().unwrap_or(0)
}

fn warnings(traces: &[Trace], rows: &[Row]) -> Vec<String> {
    let mut cpu_warnings = CpuWarnings::default();
    let random = traces.iter().filter(|trace| trace.arrivals == Arrivals::Random);
    for trace in random {
        let cpu = u32::try_from(trace.cpu).unwrap_or(u32::MAX); // Linux has fewer CPUs
        let problem = "detours come at random, independent times here: periods and bursts are lost";
        cpu_warnings.add("", CpuWarning::new(cpu, problem).counted(trace.count, "detours"));
        let taken = trace.detours.len() as u64;
        if taken < trace.count {
            let problem = "only a sample of the detours is used, evenly by length; some of the \
                           longest are missing";
            let extent = format!("{taken} of {} detours", trace.count);
            cpu_warnings.add("", CpuWarning::new(cpu, problem).with_extent(taken as f64, extent));
        }
    }
    let mut warnings = cpu_warnings.lines();
    if rows.iter().any(|row| row.is_lower_bound) {
        let longest_ns = longest_ns(traces);
        warnings.push(format!(
            "rows with '≥' are lower bounds: they depend on delays that are too rare to be \
             measured (fewer than 10 expected in the run), and detours longer than the longest \
             measured ({longest_ns} ns) are unknown"
        ));
    }
    warnings
}

fn table(rows: &[Row]) -> Table {
    use Kind::{Bool, Real, Text, Uint};
    let columns = vec![
        column("granularity_ns", Uint, "Work of each node between two barriers.").priority(100),
        column(
            "detour_times",
            Text,
            "independent: each node has its detours at its own times; coscheduled: all nodes have \
             their detours at the same times.",
        )
        .title("detours")
        .priority(99),
        column("node_count", Uint, "Number of nodes, each with one CPU.")
            .title("nodes")
            .priority(98),
        column(
            "barrier_latency_ns",
            Uint,
            "Latency of the barrier without detours: log2(nodes) rounds of one message each.",
        )
        .title("barrier")
        .priority(60),
        column("delay_mean_ns", Real, "Mean delay of the slowest node between two barriers.")
            .title("delay")
            .priority(90),
        column("delay_p50_ns", Real, "Median delay of the slowest node.").title("p50").priority(40),
        column("delay_p99_ns", Real, "99th percentile of the delay of the slowest node.")
            .title("p99")
            .priority(70),
        column(
            "slowdown_ratio",
            Real,
            "delay_mean_ns over the sum of granularity_ns and barrier_latency_ns.",
        )
        .interval(IntervalColumns::bounds("slowdown_ci95_low_ratio", "slowdown_ci95_high_ratio"))
        .bound("is_lower_bound", "≥")
        .priority(97),
        column(
            "slowdown_ci95_low_ratio",
            Real,
            "Lower end of the slowdown's 95 % confidence interval (block bootstrap).",
        )
        .title("ci95")
        .up_to("slowdown_ci95_high_ratio")
        .priority(95),
        column(
            "slowdown_ci95_high_ratio",
            Real,
            "Upper end of the slowdown's 95 % confidence interval; absent if it is unknown.",
        )
        .detail(),
        column(
            "is_lower_bound",
            Bool,
            "Whether detours longer than all measured detours would matter. Then the figures are \
             lower bounds.",
        )
        .detail(),
    ];
    let doc = "A bulk-synchronous program under the measured detours: its nodes work and meet at a \
         barrier.";
    let mut table = Table::new("scale", doc, columns).displayed(all_rows());
    for row in rows {
        let [p50, p99] = row.delay_quantiles_ns;
        table.push(vec![
            row.granularity_ns.into(),
            if row.coscheduled { "coscheduled" } else { "independent" }.into(),
            row.nodes.into(),
            row.barrier_ns.into(),
            row.delay_ns.into(),
            p50.into(),
            p99.into(),
            row.slowdown_ratio.into(),
            row.interval.map(|(low, _)| low).into(),
            row.interval.and_then(|(_, high)| high).into(),
            row.is_lower_bound.into(),
        ]);
    }
    table
}
