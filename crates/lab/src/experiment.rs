//! What every experiment has, once: a plan that is measured on a bench, progress, a request to stop,
//! errors, absences, and the assembly of a [`Run`].
//!
//! An experiment implements [`Experiment`] for its plan. [`Experiment::measure`] turns a bench into
//! samples; [`Experiment::report`] turns samples into tables and is a pure function. [`run`] does
//! both. A part of a plan that fails leaves an absence with its reason; the other parts stay.

use std::time::Duration;

pub use record::Absence;
use record::{Run, SCHEMA, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// What the caller knows of a run before anything is measured.
#[derive(Clone, Debug, Default)]
pub struct RunContext {
    /// When the run started, UTC, RFC 3339.
    pub started_utc: String,
    /// The machine that is measured.
    pub host: Map<String, Json>,
    /// The settings that were given on the command line, or their defaults.
    pub settings: Map<String, Json>,
}

/// What a bench knows of itself. It holds for all samples of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BenchFacts {
    /// `live` or `sim`.
    pub bench: String,
    /// The settings in force that only the bench knows.
    pub settings: Map<String, Json>,
    /// What measuring itself costs.
    pub observer: Map<String, Json>,
    /// What this bench cannot measure, with the reason and the remedy.
    pub absent: Vec<Absence>,
    /// What a reader must know before using a number.
    pub warnings: Vec<String>,
}

/// Why a bench could not measure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchError {
    /// This part of the plan is not available here; other parts may be.
    #[error("{reason}")]
    Unavailable {
        /// Why.
        reason: String,
        /// The command that makes it available, where there is one.
        remedy: Option<String>,
    },
    /// Nothing can be measured here.
    #[error("{reason}")]
    NothingMeasurable {
        /// Why.
        reason: String,
        /// The command that unlocks it, where there is one.
        remedy: Option<String>,
    },
    /// Something broke.
    #[error("{0}")]
    Failed(String),
    /// A limit that the user can set on the time of the measured machine was reached.
    #[error("{0}")]
    TimeLimit(String),
}

impl BenchError {
    /// The command that helps, where there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        match self {
            BenchError::Unavailable { remedy, .. }
            | BenchError::NothingMeasurable { remedy, .. } => remedy.as_deref(),
            BenchError::Failed(_) | BenchError::TimeLimit(_) => None,
        }
    }
}

/// What every bench can do.
pub trait Bench {
    /// What the bench knows of itself, including all that it learned while it measured.
    fn facts(&self) -> BenchFacts;

    /// Whether the user asked to stop.
    fn stop_requested(&self) -> bool;

    /// How long one step of the plan takes, where that is known before it starts.
    fn expected_step(&self) -> Option<Duration> {
        None
    }
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number, from 1.
    pub number: usize,
    /// How many steps the plan has.
    pub count: usize,
    /// What is measured in it, in words.
    pub label: String,
    /// How long it takes, where that is known.
    pub expected: Option<Duration>,
}

/// Receives progress.
pub trait Progress {
    fn start(&mut self, step: &Step);

    /// This fraction of the current step is done.
    fn advance(&mut self, _fraction: f64) {}
}

impl<F: FnMut(&Step)> Progress for F {
    fn start(&mut self, step: &Step) {
        self(step);
    }
}

/// Numbers the steps of a plan.
pub struct Steps<'a> {
    progress: &'a mut dyn Progress,
    number: usize,
    count: usize,
}

impl<'a> Steps<'a> {
    /// The steps of a plan that has `count` of them.
    #[must_use]
    pub fn new(count: usize, progress: &'a mut dyn Progress) -> Self {
        Steps { progress, number: 0, count }
    }

    /// Announces the next step.
    pub fn start<B: Bench + ?Sized>(&mut self, bench: &B, label: String) {
        self.number += 1;
        let expected = bench.expected_step();
        self.progress.start(&Step { number: self.number, count: self.count, label, expected });
    }

    /// Skips to the end of step `number`, whether or not each step was started.
    pub fn skip_to(&mut self, number: usize) {
        self.number = self.number.max(number);
    }
}

/// What an experiment hands from [`Experiment::measure`] to [`Experiment::report`].
pub trait Samples {
    /// Whether there is nothing to report.
    fn is_empty(&self) -> bool;
}

/// The outcome of a plan.
#[derive(Clone, Debug)]
pub struct Measured<S> {
    /// The samples of the parts that were measured.
    pub samples: S,
    /// Whether every part was measured to its end; a part that is unavailable does not count.
    pub complete: bool,
    /// The parts that were not measured, with the reason.
    pub absent: Vec<Absence>,
    /// The first part that failed.
    pub failure: Option<String>,
    /// The first part that reached the limit on the time of the measured machine, if one did.
    pub time_limit: Option<String>,
}

impl<S> Measured<S> {
    /// Nothing has been measured yet, and nothing is lacking.
    pub fn new(samples: S) -> Self {
        Measured { samples, complete: true, absent: Vec::new(), failure: None, time_limit: None }
    }
}

impl<S: Default> Default for Measured<S> {
    fn default() -> Self {
        Measured::new(S::default())
    }
}

impl<S: Samples> Measured<S> {
    /// Notes that a part of the plan has no samples because of `error`. What other parts gave stays.
    ///
    /// # Errors
    /// [`BenchError::NothingMeasurable`], if nothing has been measured before: no other part is worth
    /// a try.
    pub fn part_failed(
        &mut self,
        table: &str,
        what: String,
        error: BenchError,
    ) -> Result<(), BenchError> {
        let (reason, remedy) = match error {
            BenchError::NothingMeasurable { .. } if self.samples.is_empty() => return Err(error),
            BenchError::Unavailable { reason, remedy } => (reason, remedy),
            BenchError::NothingMeasurable { reason, remedy } => {
                self.complete = false;
                (reason, remedy)
            }
            BenchError::Failed(reason) => {
                self.complete = false;
                self.failure.get_or_insert_with(|| format!("{what}: {reason}"));
                (reason, None)
            }
            BenchError::TimeLimit(reason) => {
                self.complete = false;
                self.time_limit.get_or_insert_with(|| format!("{what}: {reason}"));
                (reason, None)
            }
        };
        let absence = Absence { table: table.to_owned(), what, reason, remedy };
        if !self.absent.contains(&absence) {
            self.absent.push(absence);
        }
        Ok(())
    }
}

/// What an experiment makes of samples.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The tables, the most important one first.
    pub tables: Vec<Table>,
    /// What was in force while the samples were taken.
    pub settings: Map<String, Json>,
    /// What measuring cost, by the samples.
    pub observer: Map<String, Json>,
    /// What a reader must know before using a number.
    pub warnings: Vec<String>,
    /// What the tables lack, with the reason.
    pub absent: Vec<Absence>,
}

/// An experiment. Its plan implements this.
pub trait Experiment {
    /// Its name, as in `irqlab NAME` and in [`Run::experiment`].
    const NAME: &'static str;
    /// What a machine must be able to do for it.
    type Bench: Bench + ?Sized;
    /// What is measured.
    type Samples: Samples;

    /// Measures every part of the plan.
    ///
    /// # Errors
    /// Only where nothing can be measured: a part that fails is an absence.
    fn measure(
        &self,
        bench: &mut Self::Bench,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Self::Samples>, BenchError>;

    /// Makes tables of the samples. A pure function.
    fn report(&self, samples: &Self::Samples) -> Report;
}

/// How a plan ended.
#[derive(Debug)]
pub enum Outcome<S> {
    /// A run, perhaps cut short (`complete: false`), perhaps with rows absent.
    Run {
        run: Box<Run>,
        /// What it was made of, for attachments such as traces.
        samples: S,
    },
    /// Nothing can be measured here.
    NothingMeasurable {
        /// Why.
        reason: String,
        /// The command that unlocks it, where there is one.
        remedy: Option<String>,
    },
    /// The user stopped before there was anything to show.
    Stopped,
}

/// The setting of a run that says which part reached the limit on the time of the measured machine.
pub const TIME_LIMIT: &str = "time_limit_reached";

/// Measures a plan on a bench and assembles the run.
///
/// # Errors
/// [`BenchError::Failed`] where nothing was measured because something broke.
pub fn run<E: Experiment>(
    plan: &E,
    context: RunContext,
    bench: &mut E::Bench,
    progress: &mut dyn Progress,
) -> Result<Outcome<E::Samples>, BenchError> {
    match plan.measure(bench, progress) {
        Ok(measured) => finish(plan, context, bench.facts(), measured),
        Err(
            BenchError::NothingMeasurable { reason, remedy }
            | BenchError::Unavailable { reason, remedy },
        ) => Ok(Outcome::NothingMeasurable { reason, remedy }),
        Err(error) => Err(error),
    }
}

/// How a plan ended that has been measured.
///
/// # Errors
/// [`BenchError::Failed`] where nothing was measured because something broke.
pub fn finish<E: Experiment>(
    plan: &E,
    context: RunContext,
    facts: BenchFacts,
    measured: Measured<E::Samples>,
) -> Result<Outcome<E::Samples>, BenchError> {
    if !measured.samples.is_empty() {
        let run = Box::new(assemble(plan, context, facts, &measured));
        return Ok(Outcome::Run { run, samples: measured.samples });
    }
    if let Some(failure) = measured.failure {
        return Err(BenchError::Failed(failure));
    }
    if let Some(limit) = measured.time_limit {
        return Err(BenchError::TimeLimit(limit));
    }
    let mut reasons: Vec<String> = Vec::new();
    for Absence { what, reason, .. } in &measured.absent {
        // One part stands for all that lack for the same reason.
        if !reasons.iter().any(|other| other.ends_with(reason.as_str())) {
            reasons.push(format!("{what}: {reason}"));
        }
    }
    let remedy = measured.absent.iter().find_map(|one| one.remedy.clone());
    Ok(match reasons.is_empty() {
        true => Outcome::Stopped,
        false => Outcome::NothingMeasurable { reason: reasons.join("; "), remedy },
    })
}

/// Puts a run together.
#[must_use]
pub fn assemble<E: Experiment>(
    plan: &E,
    context: RunContext,
    facts: BenchFacts,
    measured: &Measured<E::Samples>,
) -> Run {
    let report = plan.report(&measured.samples);
    let RunContext { started_utc, host, mut settings } = context;
    settings.extend(facts.settings);
    settings.extend(report.settings);
    if let Some(limit) = &measured.time_limit {
        settings.insert(TIME_LIMIT.to_owned(), Json::from(limit.as_str()));
    }
    let mut observer = facts.observer;
    observer.extend(report.observer);
    let mut absent = measured.absent.clone();
    absent.extend(facts.absent);
    absent.extend(report.absent);
    Run {
        schema: SCHEMA.to_owned(),
        experiment: E::NAME.to_owned(),
        bench: facts.bench,
        started_utc,
        complete: measured.complete,
        host,
        settings,
        observer,
        warnings: [facts.warnings, report.warnings].concat(),
        absent,
        tables: report.tables,
    }
}
