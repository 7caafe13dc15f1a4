//! Runs the plan on a bench and puts the run together.

use record::{Absence, Run, SCHEMA};
use serde_json::{Map, Value as Json, json};

use super::bench::{BenchError, BenchFacts, HandlersBench, Pass};
use super::condition::Condition;
use super::sample::WindowSample;
use super::tables;

/// What to measure, and what the caller knows of the run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The conditions, in order.
    pub conditions: Vec<Condition>,
    /// When the run began, UTC, RFC 3339.
    pub started_utc: String,
    /// The machine.
    pub host: Map<String, Json>,
    /// What was asked for on the command line.
    pub settings: Map<String, Json>,
    /// Also write the histograms' buckets.
    pub histograms: bool,
}

/// All passes of one condition.
pub(super) struct Measured {
    pub condition: Condition,
    /// The timing pass.
    pub timing: WindowSample,
    /// The passes with events, by their position in the bench's list.
    pub events: Vec<(usize, WindowSample)>,
}

impl Measured {
    /// Whether every pass was measured to its end.
    fn is_complete(&self, passes: usize) -> bool {
        let windows = || std::iter::once(&self.timing).chain(self.events.iter().map(|(_, w)| w));
        windows().count() == passes && windows().all(|window| !window.interrupted)
    }
}

/// What came of a plan.
#[derive(Debug)]
pub enum Outcome {
    /// A run; perhaps cut short, perhaps with rows absent.
    Ran(Box<Run>),
    /// No condition could be measured.
    Nothing {
        /// Why.
        reason: String,
        /// The line that unlocks it.
        remedy: Option<String>,
    },
}

/// Measures every condition of the plan. `progress` is told each condition before it starts.
///
/// # Errors
/// When the bench breaks; a condition that it cannot have is an absence in the run.
pub fn run(
    plan: &Plan,
    bench: &mut dyn HandlersBench,
    progress: &mut dyn FnMut(&str),
) -> Result<Outcome, BenchError> {
    let passes = bench.passes();
    let (mut measured, mut absent) = (Vec::new(), Vec::new());
    let (mut complete, mut failed) = (true, None);
    for &condition in &plan.conditions {
        if bench.stop_requested() {
            complete = false;
            break;
        }
        match all_passes(condition, &passes, bench, progress) {
            Ok(one) => {
                complete &= one.is_complete(passes.len());
                // Stopped before its window opened: there is nothing to show.
                if !one.timing.windows.is_empty() {
                    measured.push(one);
                }
            }
            Err(BenchError::Unavailable { reason, remedy }) => {
                absent.push(Absence {
                    table: "handlers".to_owned(),
                    what: condition.label(),
                    reason,
                    remedy,
                });
            }
            Err(BenchError::NothingMeasurable { reason, remedy }) => {
                return Ok(Outcome::Nothing { reason, remedy });
            }
            // What other conditions gave is not thrown away.
            Err(BenchError::Failed(reason)) => {
                let what = condition.label();
                failed.get_or_insert_with(|| BenchError::Failed(format!("{what}: {reason}")));
                absent.push(Absence { table: "handlers".to_owned(), what, reason, remedy: None });
            }
        }
    }
    let has_failed = failed.is_some();
    match (failed, absent.first()) {
        (Some(error), _) if measured.is_empty() => Err(error),
        (_, Some(first)) if measured.is_empty() => Ok(Outcome::Nothing {
            reason: format!("{}: {}", first.what, first.reason),
            remedy: first.remedy.clone(),
        }),
        _ => {
            let facts = bench.facts();
            let mut run = assemble(plan, &facts, &passes, &measured, absent);
            run.complete = complete && !has_failed;
            Ok(Outcome::Ran(Box::new(run)))
        }
    }
}

fn all_passes(
    condition: Condition,
    passes: &[Pass],
    bench: &mut dyn HandlersBench,
    progress: &mut dyn FnMut(&str),
) -> Result<Measured, BenchError> {
    progress(&condition.label());
    let timing = bench.measure(condition, 0)?;
    let mut events = Vec::new();
    for (position, pass) in passes.iter().enumerate().skip(1) {
        if timing.interrupted || bench.stop_requested() {
            break;
        }
        progress(&format!("{}, events {}", condition.label(), pass.events.join(" ")));
        let window = bench.measure(condition, position)?;
        if window.windows.is_empty() {
            break; // stopped before it opened
        }
        events.push((position, window));
    }
    Ok(Measured { condition, timing, events })
}

fn assemble(
    plan: &Plan,
    facts: &BenchFacts,
    passes: &[Pass],
    measured: &[Measured],
    mut absent: Vec<Absence>,
) -> Run {
    let mut tables = vec![
        tables::handlers(measured, facts),
        tables::napi(measured),
        tables::agreement(measured),
        tables::conditions(measured),
    ];
    if passes.len() > 1 {
        tables.push(tables::events(measured, passes, facts));
        tables.push(tables::ratios(measured, passes, facts));
    }
    if plan.histograms {
        tables.push(tables::histograms(measured));
    }
    absent.extend(facts.absent.iter().map(|(what, reason, remedy)| Absence {
        table: "handlers".to_owned(),
        what: what.clone(),
        reason: reason.clone(),
        remedy: remedy.clone(),
    }));
    let mut settings = plan.settings.clone();
    settings.extend(facts.settings.clone());
    settings.insert("conditions".to_owned(), conditions_in_force(measured));
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "handlers".to_owned(),
        bench: facts.bench.clone(),
        started_utc: plan.started_utc.clone(),
        complete: true,
        host: plan.host.clone(),
        settings,
        observer: observer(facts, measured),
        warnings: warnings(facts, measured),
        absent,
        tables,
    }
}

/// What each condition was made of: files, interfaces, threads and their CPUs.
fn conditions_in_force(measured: &[Measured]) -> Json {
    let of = |one: &Measured| (one.condition.label(), Json::Object(one.timing.facts.clone()));
    Json::Object(measured.iter().map(of).collect())
}

fn warnings(facts: &BenchFacts, measured: &[Measured]) -> Vec<String> {
    let mut warnings = facts.warnings.clone();
    for one in measured {
        for window in std::iter::once(&one.timing).chain(one.events.iter().map(|(_, w)| w)) {
            let label = one.condition.label();
            warnings.extend(window.warnings.iter().map(|text| format!("{label}: {text}")));
            if window.lost() > 0 {
                warnings.push(format!(
                    "{label}: {} events were lost; counts and totals are too low by that much",
                    window.lost()
                ));
            }
        }
    }
    let undelivered: u64 = measured.iter().map(|one| one.timing.undelivered()).sum();
    if undelivered > 0 {
        warnings.push(format!(
            "the kernel counted {undelivered} interrupts and softirqs that it did not hand to BPF \
             programs (table agreement); they are in none of the other tables"
        ));
    }
    warnings
}

/// The cost of measuring, over the timing passes.
fn observer(facts: &BenchFacts, measured: &[Measured]) -> Map<String, Json> {
    let windows = || measured.iter().map(|one| &one.timing);
    let events: u64 = windows().map(WindowSample::events).sum();
    let cpu_time_ns: u64 = windows().map(WindowSample::cpu_time_ns).sum();
    let length_ns: u64 = windows().map(WindowSample::length_ns).sum();
    let user_ns: u64 = windows().map(|window| window.user_cpu_ns).sum();
    let ratio = |part: f64, whole: u64| (whole > 0).then(|| part / whole as f64);
    let mut observer = facts.observer.clone();
    observer.insert("probe_overhead_ns".into(), json!(facts.added_ns));
    observer.insert("probe_overhead_in_span_ns".into(), json!(facts.inside_ns));
    observer.insert("outside_ns_per_span".into(), json!(facts.added_ns - facts.inside_ns));
    observer.insert("events".into(), json!(events));
    let per_second = ratio(events as f64 * 1e9, length_ns);
    observer.insert("events_per_second".into(), json!(per_second));
    let probe_ns = events as f64 / 2.0 * facts.added_ns as f64;
    observer.insert("cpu_share_ratio".into(), json!(ratio(probe_ns, cpu_time_ns)));
    observer.insert("user_cpu_share_ratio".into(), json!(ratio(user_ns as f64, cpu_time_ns)));
    let lost: u64 = measured
        .iter()
        .map(|one| one.timing.lost() + one.events.iter().map(|(_, w)| w.lost()).sum::<u64>())
        .sum();
    observer.insert("events_lost".into(), json!(lost));
    let undelivered: u64 = windows().map(WindowSample::undelivered).sum();
    observer.insert("events_undelivered".into(), json!(undelivered));
    observer
}
