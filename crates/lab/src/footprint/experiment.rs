//! Runs a plan on a bench, and puts a run together of what came of it.

use record::{Absence, Run, SCHEMA};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::bench::{FootprintBench, FootprintFacts, Missing, Ready};
use super::estimate::{excess, kept, user_misses, wants_more};
use super::sample::Repetition;
use super::tables;
use super::what::{Level, Method, Source};
use crate::handlers::BenchError;

/// Repetitions of each sort before the interval is looked at again.
const BATCH: usize = 8;

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FootprintPlan {
    /// Levels, in order.
    pub levels: Vec<Level>,
    /// Sources, in order.
    pub sources: Vec<Source>,
    /// Methods, in order.
    pub methods: Vec<Method>,
    /// Most repetitions with the interrupt, and as many without, of each series.
    pub repetitions_max: usize,
}

/// What the caller knows of the run.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// When the run began, UTC, RFC 3339.
    pub started_utc: String,
    /// The machine.
    pub host: Map<String, Json>,
    /// What was asked for on the command line.
    pub settings: Map<String, Json>,
}

/// What came of a plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Series, in the order of the plan.
    pub series: Vec<Series>,
    /// What can't be had: the level and source, and why.
    pub missing: Vec<(Level, Source, Missing)>,
    /// Whether it was stopped.
    pub stopped: bool,
}

/// One level, source and method: all repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// What was filled.
    pub level: Level,
    /// What interrupted.
    pub source: Source,
    /// How.
    pub method: Method,
    /// What the bench made ready.
    pub ready: Ready,
    /// With the interrupt.
    pub raised: Vec<Repetition>,
    /// Without.
    pub idle: Vec<Repetition>,
}

/// Runs every series of the plan. Repetitions with and without the interrupt alternate in small
/// batches, so that what changes slowly changes both.
///
/// # Errors
/// When the bench breaks.
pub fn measure(
    plan: &FootprintPlan,
    bench: &mut dyn FootprintBench,
    progress: &mut dyn FnMut(&str),
) -> Result<Measured, BenchError> {
    let mut measured = Measured::default();
    for &level in &plan.levels {
        for &source in &plan.sources {
            if bench.stop_requested() {
                break;
            }
            match bench.ready(level, source) {
                Ok(ready) => {
                    for &method in &plan.methods {
                        progress(&format!("{level}, {source}, {method}"));
                        let one = series(plan, bench, (level, source, method), &ready)?;
                        measured.series.push(one);
                    }
                }
                Err(missing) => measured.missing.push((level, source, missing)),
            }
        }
    }
    measured.stopped = bench.stop_requested();
    Ok(measured)
}

fn series(
    plan: &FootprintPlan,
    bench: &mut dyn FootprintBench,
    (level, source, method): (Level, Source, Method),
    ready: &Ready,
) -> Result<Series, BenchError> {
    let (mut raised, mut idle) = (Vec::new(), Vec::new());
    while raised.len() < plan.repetitions_max && !bench.stop_requested() {
        let number = BATCH.min(plan.repetitions_max - raised.len());
        raised.extend(bench.repeat(method, true, number)?);
        idle.extend(bench.repeat(method, false, number)?);
        let value = if ready.start_misses.is_some() { user_misses } else { excess };
        if !wants_more(&kept(&raised, value), &kept(&idle, value)) {
            break;
        }
    }
    Ok(Series { level, source, method, ready: ready.clone(), raised, idle })
}

/// Puts the run together.
#[must_use]
pub fn assemble(about: &About, facts: FootprintFacts, measured: &Measured) -> Run {
    let mut absent = absences(&facts, measured);
    let all = &measured.series;
    let mut tables = vec![
        tables::footprint(all, facts.clock_hz, &mut absent),
        tables::curves(all),
        tables::sums(all),
    ];
    tables.retain(|table| !table.rows().is_empty());
    let mut settings = about.settings.clone();
    settings.extend(facts.settings);
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "footprint".to_owned(),
        bench: facts.bench,
        started_utc: about.started_utc.clone(),
        complete: !measured.stopped,
        host: about.host.clone(),
        settings,
        observer: facts.observer,
        warnings: facts.warnings,
        absent,
        tables,
    }
}

fn absences(facts: &FootprintFacts, measured: &Measured) -> Vec<Absence> {
    let absence = |what: String, reason: &str, remedy: Option<String>| Absence {
        table: "footprint".to_owned(),
        what,
        reason: reason.to_owned(),
        remedy,
    };
    let missing = measured.missing.iter().map(|(level, source, missing)| {
        absence(format!("{level}, {source}"), &missing.reason, missing.remedy.clone())
    });
    let counters = facts.no_counters.iter();
    let counters =
        counters.map(|(level, reason)| absence(format!("{level}: misses"), reason, None));
    missing.chain(counters).collect()
}
