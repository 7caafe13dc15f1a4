//! Runs a plan on a bench, and puts a run together of what came of it.

use record::{Absence, Run, SCHEMA};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::bench::{FootprintBench, FootprintFacts, Missing, Ready};
use super::contexts::Windows;
use super::estimate::{REPETITIONS_MIN, excess, kept, user_misses, wants_more};
use super::sample::{Curve, Repetition};
use super::trace::Trace;
use super::what::{Level, Method, Source};
use super::{contexts, sums, tables};
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
    /// Whether one repetition of each series is watched: who ran when.
    #[serde(default)]
    pub trace: bool,
    /// In how many rounds, each with everything made ready anew; 0 is 1.
    #[serde(default)]
    pub rounds: usize,
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
    /// One repetition of each series with who ran meanwhile, or why there is none; empty unless asked for.
    #[serde(default)]
    pub traces: Vec<(Level, Source, Result<Trace, Missing>)>,
    /// What was seen of its windows from outside; empty on a bench that nobody watches.
    #[serde(skip)]
    pub windows: Windows,
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
    /// Where rounds end in both; empty where nothing was made anew.
    #[serde(default)]
    pub rounds: Vec<Round>,
}

/// A part of a series for which everything was made ready anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What displaced lines cost in it.
    pub curve: Option<Curve>,
    /// Repetitions with the interrupt until its end.
    pub raised: usize,
    /// And without.
    pub idle: usize,
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
    for round in 1..=plan.rounds.max(1) {
        let mut said = |words: &str| {
            progress(&if plan.rounds > 1 {
                format!("{words}, round {round}")
            } else {
                words.to_owned()
            })
        };
        one_round(plan, bench, &mut measured, &mut said)?;
        bench.forget();
    }
    measured.stopped = bench.stop_requested();
    Ok(measured)
}

fn one_round(
    plan: &FootprintPlan,
    bench: &mut dyn FootprintBench,
    measured: &mut Measured,
    progress: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    for &level in &plan.levels {
        for &source in &plan.sources {
            if bench.stop_requested() {
                return Ok(());
            }
            match bench.ready(level, source) {
                Ok(ready) => {
                    for &method in &plan.methods {
                        progress(&format!("{level}, {source}, {method}"));
                        let one = series(plan, bench, (level, source, method), &ready)?;
                        let is_first = measured.add(one, plan.rounds > 1);
                        if plan.trace && is_first {
                            measured.traces.push((level, source, bench.trace(source, method)));
                        }
                    }
                }
                Err(missing) => measured.add_missing(level, source, missing),
            }
        }
    }
    Ok(())
}

impl Measured {
    /// Puts a round's series behind those of the rounds before.
    /// Whether it was the first.
    fn add(&mut self, mut one: Series, of_many: bool) -> bool {
        let round = |raised, idle| Round { curve: one.ready.curve.clone(), raised, idle };
        let same = |other: &&mut Series| {
            (other.level, other.source, other.method) == (one.level, one.source, one.method)
        };
        if let Some(all) = self.series.iter_mut().find(same) {
            let (raised, idle) =
                (all.raised.len() + one.raised.len(), all.idle.len() + one.idle.len());
            all.rounds.push(round(raised, idle));
            all.raised.append(&mut one.raised);
            all.idle.append(&mut one.idle);
            return false;
        }
        if of_many {
            one.rounds = vec![round(one.raised.len(), one.idle.len())];
        }
        self.series.push(one);
        true
    }

    fn add_missing(&mut self, level: Level, source: Source, missing: Missing) {
        if !self.missing.iter().any(|(l, s, _)| (*l, *s) == (level, source)) {
            self.missing.push((level, source, missing));
        }
    }
}

fn series(
    plan: &FootprintPlan,
    bench: &mut dyn FootprintBench,
    (level, source, method): (Level, Source, Method),
    ready: &Ready,
) -> Result<Series, BenchError> {
    let (mut raised, mut idle) = (Vec::new(), Vec::new());
    let most = (plan.repetitions_max / plan.rounds.max(1)).max(REPETITIONS_MIN);
    while raised.len() < most && !bench.stop_requested() {
        let number = BATCH.min(most - raised.len());
        raised.extend(bench.repeat(method, true, number)?);
        idle.extend(bench.repeat(method, false, number)?);
        let value = if ready.start_misses.is_some() { user_misses } else { excess };
        if !wants_more(&kept(&raised, value), &kept(&idle, value)) {
            break;
        }
    }
    let (ready, rounds) = (ready.clone(), Vec::new());
    Ok(Series { level, source, method, ready, raised, idle, rounds })
}

/// Puts the run together.
#[must_use]
pub fn assemble(about: &About, facts: FootprintFacts, measured: &Measured) -> Run {
    let mut absent = absences(&facts, measured);
    let all = &measured.series;
    let mut tables = vec![
        tables::footprint(all, facts.clock_hz, &mut absent),
        tables::curves(all),
        sums::sums(all),
        contexts::modes(all, &measured.windows),
        contexts::by_context(all, &measured.windows),
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
    let untraced = measured.traces.iter().filter_map(|(level, source, trace)| {
        let what = format!("trace of {level}, {source}");
        match trace {
            Err(why) => Some(absence(what, &why.reason, why.remedy.clone())),
            Ok(trace) => trace.verdict.against().map(|why| {
                let reason =
                    format!("no repetition was undisturbed; of the one that is shown: {why}");
                absence(format!("{what}, undisturbed"), &reason, None)
            }),
        }
    });
    missing.chain(counters).chain(untraced).collect()
}
