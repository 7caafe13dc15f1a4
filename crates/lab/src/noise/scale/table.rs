//! Makes the run that `noise scale` writes: its settings, warnings and table `scale`. Names and order
//! of the columns are public.

use record::{Absence, Columns, IntervalColumns, Run, SCHEMA, Table, column};
use serde_json::{Map, Value as Json, json};

use super::job::{Job, Row, has_few_detours, scale};
use super::trace::{Arrivals, ScaleError, Trace, traces};
use crate::cpu_warnings::{CpuWarning, CpuWarnings};
use crate::noise::tables::all_rows;

/// Applies the detours of the run `measured` to `job`. The result is a run with table `scale`, and with the caller's
/// `settings`. `arrivals` as in [`traces`].
///
/// Fails if the run has no detours, contradicts itself, or is too short for a granularity, or if a
/// context cannot be left out.
pub fn run(
    measured: &Run,
    job: &Job,
    arrivals: Option<Arrivals>,
    started_utc: String,
    mut settings: Map<String, Json>,
) -> Result<Run, ScaleError> {
    let all_detours = traces(measured, arrivals, None, job.seed)?;
    let mut rows = scale(&all_detours, job)?;
    let mut has_few = has_few_detours(&all_detours);
    for cause in &job.without {
        let without = Some(cause.clone());
        let traces = traces(measured, arrivals, Some(cause), job.seed)?;
        has_few |= has_few_detours(&traces);
        rows.extend(
            scale(&traces, job)?.into_iter().map(|row| Row { without: without.clone(), ..row }),
        );
    }
    let traces = all_detours;
    settings.insert("nodes".into(), json!(job.nodes));
    settings.insert("granularities_ns".into(), json!(job.granularities_ns));
    settings.insert("latency_ns".into(), json!(job.latency_ns));
    settings.insert("without".into(), json!(job.without));
    settings.insert("seed".into(), json!(job.seed));
    settings.insert("arrivals".into(), json!(arrivals_word(&traces)));
    let cpus: Vec<u64> = traces.iter().map(|trace| trace.cpu).collect();
    settings.insert("cpus".into(), json!(cpus));
    settings.insert("measured_utc".into(), json!(measured.started_utc));
    settings.insert("measured_detour_max_ns".into(), json!(longest_ns(&traces)));
    let has_no_interval = rows.iter().any(|row| row.interval.is_none());
    let reason =
        "fewer than 16 blocks of ten work intervals were measured, or fewer than 4 on a CPU";
    let absence =
        Absence::new("scale", "intervals", reason).with_remedy(Some("a longer irqlab noise, -d"));
    Ok(Run {
        schema: SCHEMA.to_owned(),
        experiment: "scale".to_owned(),
        bench: measured.bench.clone(),
        started_utc,
        complete: measured.complete,
        host: measured.host.clone(),
        settings,
        observer: Map::new(),
        warnings: warnings(&traces, &rows, has_few),
        absent: has_no_interval.then_some(absence).into_iter().chain(absent_p99(&rows)).collect(),
        tables: vec![table(&rows)],
    })
}

/// The setting `arrivals`: `random` if the times of any CPU are random.
fn arrivals_word(traces: &[Trace]) -> &'static str {
    let is_random = traces.iter().any(|trace| trace.arrivals == Arrivals::Random);
    if is_random { Arrivals::Random.word() } else { Arrivals::Measured.word() }
}

/// Says why rows lack the 99th percentile, if any row does. `None` if no row does.
fn absent_p99(rows: &[Row]) -> Option<Absence> {
    let count = rows.iter().filter(|row| row.delay_p99_ns.is_none()).count();
    let subject = format!("delay_p99_ns of {count} of {} rows", rows.len());
    let reason = "fewer than 10 measured delays are expected above it: all nodes together spend more than a \
                  thousandth of the measured time from one barrier to the next";
    let absence =
        Absence::new("scale", subject, reason).with_remedy(Some("a longer irqlab noise, -d"));
    (count > 0).then_some(absence)
}

fn longest_ns(traces: &[Trace]) -> u64 {
    traces.iter().map(|trace| trace.max_ns).max().unwrap_or(0)
}

/// `has_few`: whether few detours took half of the lost time, in the whole run or without a context.
fn warnings(traces: &[Trace], rows: &[Row], has_few: bool) -> Vec<String> {
    let mut cpu_warnings = CpuWarnings::default();
    for trace in traces.iter().filter(|trace| trace.lost > 0) {
        let cpu = u32::try_from(trace.cpu).unwrap_or(u32::MAX); // Linux has fewer CPUs
        let problem = "detours were lost in the measured run, so all figures are lower bounds";
        cpu_warnings.add("", CpuWarning::new(cpu, problem).with_count(trace.lost, "detours"));
    }
    let random = traces.iter().filter(|trace| trace.arrivals == Arrivals::Random);
    for trace in random {
        let cpu = u32::try_from(trace.cpu).unwrap_or(u32::MAX); // Linux has fewer CPUs
        let problem = "detours come at random, independent times here: periods and bursts are lost";
        cpu_warnings.add("", CpuWarning::new(cpu, problem).with_count(trace.count, "detours"));
        let used = trace.detours.len() as u64;
        if used < trace.count {
            let problem = "only a sample of the detours is used, evenly by length; some of the \
                           longest are missing";
            let extent = format!("{used} of {} detours", trace.count);
            cpu_warnings.add("", CpuWarning::new(cpu, problem).with_extent(used as f64, extent));
        }
    }
    let mut warnings = cpu_warnings.lines();
    if has_few {
        warnings.push(
            "rows without an upper end of the interval: fewer than 10 detours took half of the lost time (a longer run has \
             more)"
                .to_owned(),
        );
    }
    if traces.iter().all(|trace| trace.lost == 0) && rows.iter().any(|row| row.is_lower_bound) {
        let longest_ns = longest_ns(traces);
        warnings.push(format!(
            "rows with '≥' are lower bounds: they depend on delays that are too rare to be \
             measured (fewer than 10 expected in the run), and detours longer than the longest \
             measured ({longest_ns} ns) are unknown"
        ));
    }
    warnings
}

/// Table `scale`: one row for each granularity, number of nodes, kind of detour times and context left out.
fn table(rows: &[Row]) -> Table {
    let columns = Columns::all([
        column("granularity_ns", "Work of each node between two barriers.")
            .key()
            .priority(100)
            .uint(|row: &Row| row.granularity_ns),
        column(
            "detour_times",
            "independent: each node has its detours at its own times; coscheduled: all nodes have \
             their detours at the same times.",
        )
        .key()
        .shown_as("detours", 99)
        .text(|row: &Row| if row.coscheduled { "coscheduled" } else { "independent" }),
        column(
            "without",
            "Detours that begin with this context are left out, with all that happens in them. Absent: all detours count.",
        )
        .key()
        .priority(96)
        .text(|row: &Row| row.without.clone()),
        column("node_count", "Number of nodes, each with one CPU.")
            .key()
            .shown_as("nodes", 98)
            .uint(|row: &Row| row.nodes),
        column(
            "barrier_latency_ns",
            "Latency of the barrier without detours: log2(nodes) rounds of one message each.",
        )
        .shown_as("barrier", 60)
        .uint(|row: &Row| row.barrier_ns),
        column("delay_mean_ns", "Mean delay of the slowest node between two barriers.")
            .bound("is_lower_bound", "≥")
            .shown_as("delay", 90)
            .real(|row: &Row| row.delay_ns),
        column("delay_p50_ns", "Median delay of the slowest node.")
            .bound("is_lower_bound", "≥")
        .shown_as("p50", 40)
            .real(|row: &Row| row.delay_p50_ns),
        column(
            "delay_p99_ns",
            "99th percentile of the delay of the slowest node. Absent if fewer than 10 measured \
             delays are expected above it: it would be no more than the longest measured delay.",
        )
        .bound("is_lower_bound", "≥")
        .shown_as("p99", 70)
        .real(|row: &Row| row.delay_p99_ns),
        column(
            "slowdown_ratio",
            "delay_mean_ns over the sum of granularity_ns and barrier_latency_ns.",
        )
        .interval(IntervalColumns::bounds("slowdown_ci95_low_ratio", "slowdown_ci95_high_ratio"))
        .bound("is_lower_bound", "≥")
        .priority(97)
        .real(|row: &Row| row.slowdown_ratio),
        column(
            "slowdown_ci95_low_ratio",
            "Lower end of the slowdown's 95 % confidence interval (block bootstrap).",
        )
        .title("ci95")
        .up_to("slowdown_ci95_high_ratio")
        .priority(95)
        .real(|row: &Row| row.interval.map(|(low, _)| low)),
        column(
            "slowdown_ci95_high_ratio",
            "Upper end of the slowdown's 95 % confidence interval; absent if it is unknown.",
        )
        .detail()
        .real(|row: &Row| row.interval.and_then(|(_, high)| high)),
        column(
            "is_lower_bound",
            "Whether detours longer than all measured detours would matter, or detours were lost. \
             Then the figures are lower bounds.",
        )
        .detail()
        .bool(|row: &Row| row.is_lower_bound),
    ]);
    let doc = "A bulk-synchronous program under the measured detours: its nodes work and meet at a \
         barrier.";
    columns.table("scale", doc, rows).displayed(all_rows())
}
