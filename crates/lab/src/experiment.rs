//! The common parts of all experiments: plan, bench, progress, a request to stop, errors, absences, and the
//! assembly of a [`Run`].
//!
//! An experiment implements [`Experiment`] for its plan. [`Experiment::measure`] measures samples on a bench.
//! [`Experiment::report`] makes tables from samples and is a pure function. [`run`] does both. A part of a plan
//! that fails leaves an absence with its reason, and the other parts stay.

use std::time::Duration;

pub use record::Absence;
use record::{Run, SCHEMA, Table, keys};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::cpus::add_once;

/// Facts of a run that the caller knows before the measurement.
#[derive(Clone, Debug, Default)]
pub struct RunContext {
    /// When the run started, UTC, RFC 3339.
    pub started_utc: String,
    /// The machine that is measured.
    pub host: Map<String, Json>,
    /// The settings from the command line, or their defaults.
    pub settings: Map<String, Json>,
    /// Tables about the machine, which come after those of the experiment.
    pub tables: Vec<Table>,
}

/// Facts of a bench that hold for all samples of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BenchFacts {
    /// `live` or `sim`.
    pub bench: String,
    /// Settings that only the bench knows.
    pub settings: Map<String, Json>,
    /// The overhead that the measurement adds to the machine.
    pub observer: Map<String, Json>,
    /// Tables or parts that the bench cannot measure, with reason and remedy.
    pub absent: Vec<Absence>,
    /// Warnings for the reader of the numbers.
    pub warnings: Vec<String>,
}

/// Why a bench could not measure. The names of the variants and fields are keys in a guest's response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchError {
    /// This part of the plan is not available here. Other parts may be available.
    #[error("{reason}")]
    Unavailable {
        reason: String,
        /// The command that makes the part available; `None` if there is none.
        remedy: Option<String>,
    },
    /// Nothing can be measured here.
    #[error("{reason}")]
    NothingMeasurable {
        reason: String,
        /// The command that makes the bench work; `None` if there is none.
        remedy: Option<String>,
    },
    /// An operation of the bench failed.
    #[error("{0}")]
    Failed(String),
    /// The measured machine reached the time limit that the user can set.
    #[error("{0}")]
    TimeLimit(String),
}

impl BenchError {
    /// Nothing can be measured here, and no command helps.
    pub fn nothing_measurable(reason: impl Into<String>) -> BenchError {
        BenchError::NothingMeasurable { reason: reason.into(), remedy: None }
    }

    /// This part of the plan is not available here, and no command helps.
    pub fn unavailable(reason: impl Into<String>) -> BenchError {
        BenchError::Unavailable { reason: reason.into(), remedy: None }
    }

    /// The absence of the column or row `what` of `table` because of this error.
    pub fn absence(self, table: impl Into<String>, what: impl Into<String>) -> Absence {
        let (reason, remedy) = match self {
            BenchError::Unavailable { reason, remedy }
            | BenchError::NothingMeasurable { reason, remedy } => (reason, remedy),
            BenchError::Failed(reason) | BenchError::TimeLimit(reason) => (reason, None),
        };
        Absence::new(table, what, reason).with_remedy(remedy)
    }

    /// The command that helps; `None` if there is none.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        match self {
            BenchError::Unavailable { remedy, .. }
            | BenchError::NothingMeasurable { remedy, .. } => remedy.as_deref(),
            BenchError::Failed(_) | BenchError::TimeLimit(_) => None,
        }
    }
}

/// A machine that an experiment measures. Each experiment adds its own abilities in a trait of its module `bench`.
pub trait Bench {
    /// Facts of the bench, including facts that it learned while it measured.
    fn facts(&self) -> BenchFacts;

    /// Whether the user asked to stop.
    fn stop_requested(&self) -> bool;

    /// The time limit that ended the measurement early, in words; `None` if none did.
    fn limit_reached(&self) -> Option<String> {
        None
    }

    /// Duration of the next step of the plan; `None` if it is unknown before the step starts.
    fn expected_step(&self) -> Option<Duration> {
        None
    }
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the step, from 1.
    pub number: usize,
    /// Number of steps in the plan.
    pub count: usize,
    /// The measured part of the plan, in words.
    pub label: String,
    /// Duration of the step; `None` if unknown.
    pub expected: Option<Duration>,
}

/// Receives the progress of a plan.
pub trait Progress {
    fn start(&mut self, step: &Step);

    /// Reports the completed fraction of the current step, from 0 to 1.
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
    /// `count`: number of steps in the plan.
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

    /// Continues after step `number`, even if earlier steps never started.
    pub fn skip_to(&mut self, number: usize) {
        self.number = self.number.max(number);
    }
}

/// The result of [`Experiment::measure`] and the input of [`Experiment::report`].
pub trait Samples {
    /// Whether there is nothing to report.
    fn is_empty(&self) -> bool;
}

/// The samples of a plan, and the parts that have no samples.
#[derive(Clone, Debug)]
pub struct Measured<S> {
    /// The samples of the parts that were measured.
    pub samples: S,
    /// Whether every available part of the plan was measured completely.
    pub complete: bool,
    /// The parts that were not measured, with reasons.
    pub absent: Vec<Absence>,
    /// The first part that failed, with the reason.
    pub failure: Option<String>,
    /// The first part that reached the time limit of the measured machine, with the reason.
    pub time_limit: Option<String>,
    /// The parts that a request to stop, or a limit, left out or cut short, in words. Empty if `complete`.
    pub missing: Vec<String>,
}

impl<S> Measured<S> {
    /// A complete measurement without absences.
    pub fn new(samples: S) -> Self {
        Measured {
            samples,
            complete: true,
            absent: Vec::new(),
            failure: None,
            time_limit: None,
            missing: Vec::new(),
        }
    }
}

impl<S: Default> Default for Measured<S> {
    fn default() -> Self {
        Measured::new(S::default())
    }
}

impl<S> Measured<S> {
    /// Records that a part of the plan was not measured, because the run ended before it.
    pub fn left_out(&mut self, what: impl Into<String>) {
        self.complete = false;
        self.missing.push(what.into());
    }
}

impl<S: Samples> Measured<S> {
    /// Records the limit that ended the bench, if the measurement is incomplete and no part names a limit. A complete
    /// measurement reached no limit, even if the bench reaches one after it.
    pub fn note_limit<B: Bench + ?Sized>(&mut self, bench: &B) {
        if self.complete || self.time_limit.is_some() {
            return;
        }
        let limit = bench.limit_reached();
        self.time_limit = if self.samples.is_empty() {
            limit.map(|limit| format!("{limit} before anything was measured"))
        } else {
            limit
        };
    }

    /// Records that a part of the plan has no samples because of `error`. The samples of other parts stay.
    ///
    /// Fails with [`BenchError::NothingMeasurable`] if there are no samples yet. The other parts
    /// cannot be measured either.
    pub fn part_failed(
        &mut self,
        table: &str,
        what: String,
        error: BenchError,
    ) -> Result<(), BenchError> {
        match &error {
            BenchError::NothingMeasurable { .. } if self.samples.is_empty() => return Err(error),
            BenchError::Unavailable { .. } => {}
            BenchError::NothingMeasurable { .. } => self.complete = false,
            BenchError::Failed(reason) => {
                self.complete = false;
                self.failure.get_or_insert_with(|| format!("{what}: {reason}"));
            }
            BenchError::TimeLimit(reason) => {
                self.complete = false;
                self.time_limit.get_or_insert_with(|| format!("{what}: {reason}"));
            }
        }
        add_once(&mut self.absent, [error.absence(table, what)]);
        Ok(())
    }
}

/// The result of [`Experiment::report`].
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The tables, the most important one first.
    pub tables: Vec<Table>,
    /// Settings that were in force during the measurement.
    pub settings: Map<String, Json>,
    /// The overhead of the measurement, computed from the samples.
    pub observer: Map<String, Json>,
    /// Warnings for the reader of the numbers.
    pub warnings: Vec<String>,
    /// Rows and values that the tables lack, with reasons.
    pub absent: Vec<Absence>,
}

/// An experiment. Its plan implements this.
pub trait Experiment {
    /// The name in `irqlab NAME` and in [`Run::experiment`].
    const NAME: &'static str;
    /// The machine that can measure the plan.
    type Bench: Bench + ?Sized;
    type Samples: Samples;

    /// Measures every part of the plan.
    ///
    /// Fails only if no part can be measured. A single part that fails becomes an absence.
    fn measure(
        &self,
        bench: &mut Self::Bench,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Self::Samples>, BenchError>;

    /// Makes tables from the samples. A pure function.
    fn report(&self, samples: &Self::Samples) -> Report;
}

/// How a plan ended.
#[derive(Debug)]
pub enum Outcome<S> {
    /// A run. It may be incomplete (`complete: false`) and may lack rows.
    Run {
        run: Box<Run>,
        /// The samples behind the tables, for attachments such as traces.
        samples: S,
    },
    /// Nothing can be measured here.
    NothingMeasurable {
        reason: String,
        /// The command that makes the bench work; `None` if there is none.
        remedy: Option<String>,
    },
    /// The user stopped the plan before the first sample.
    Stopped,
}

/// Measures a plan on a bench and assembles the run.
///
/// Fails with [`BenchError::Failed`] or [`BenchError::TimeLimit`] if they left no samples.
pub fn run<E: Experiment>(
    plan: &E,
    context: RunContext,
    bench: &mut E::Bench,
    progress: &mut dyn Progress,
) -> Result<Outcome<E::Samples>, BenchError> {
    match plan.measure(bench, progress) {
        Ok(mut measured) => {
            measured.note_limit(bench);
            finish(plan, context, bench.facts(), measured)
        }
        Err(
            BenchError::NothingMeasurable { reason, remedy }
            | BenchError::Unavailable { reason, remedy },
        ) => Ok(Outcome::NothingMeasurable { reason, remedy }),
        Err(error) => Err(error),
    }
}

/// Assembles the run of a measured plan, or explains why there are no samples.
///
/// Fails with [`BenchError::Failed`] or [`BenchError::TimeLimit`] if they left no samples.
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
        // Parts that are missing for one reason are named once, by the first part.
        if !reasons.iter().any(|known| known.ends_with(reason.as_str())) {
            reasons.push(format!("{what}: {reason}"));
        }
    }
    let remedy = measured.absent.iter().find_map(|absence| absence.remedy.clone());
    if reasons.is_empty() {
        return Ok(Outcome::Stopped);
    }
    Ok(Outcome::NothingMeasurable { reason: reasons.join("; "), remedy })
}

/// The warning about the parts that the end of the run left out or cut short; `None` if there are no such parts.
#[must_use]
pub fn missing_warning(parts: &[String]) -> Option<String> {
    if parts.is_empty() {
        return None;
    }
    Some(format!("missing, because the run ended early: {}", parts.join("; ")))
}

/// Assembles the run from the facts of the caller and the bench, and from the samples.
#[must_use]
pub fn assemble<E: Experiment>(
    plan: &E,
    context: RunContext,
    facts: BenchFacts,
    measured: &Measured<E::Samples>,
) -> Run {
    let report = plan.report(&measured.samples);
    let RunContext { started_utc, host, mut settings, tables } = context;
    settings.extend(facts.settings);
    settings.extend(report.settings);
    if let Some(limit) = &measured.time_limit {
        settings.insert(keys::TIME_LIMIT.to_owned(), Json::from(limit.as_str()));
    }
    let mut observer = facts.observer;
    observer.extend(report.observer);
    let mut absent = measured.absent.clone();
    absent.extend(facts.absent);
    absent.extend(report.absent);
    let mut warnings: Vec<String> = missing_warning(&measured.missing).into_iter().collect();
    warnings.extend(facts.warnings);
    warnings.extend(report.warnings);
    Run {
        schema: SCHEMA.to_owned(),
        experiment: E::NAME.to_owned(),
        bench: facts.bench,
        started_utc,
        complete: measured.complete,
        host,
        settings,
        observer,
        warnings,
        absent,
        tables: report.tables.into_iter().chain(tables).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::{CpuNoise, Loop, LoopResult, NoiseSample, Plan};

    /// A bench that has reached a limit.
    struct AtLimit;

    impl Bench for AtLimit {
        fn facts(&self) -> BenchFacts {
            BenchFacts::default()
        }

        fn stop_requested(&self) -> bool {
            true
        }

        fn limit_reached(&self) -> Option<String> {
            Some("1m is over".to_owned())
        }
    }

    fn measured(samples: Vec<NoiseSample>) -> Measured<Vec<NoiseSample>> {
        Measured::new(samples)
    }

    fn sample() -> NoiseSample {
        let cpu = CpuNoise::new(0, 0, 1000, LoopResult::Slots(Box::default()));
        NoiseSample::in_exact_clock(Loop::Ftq, vec![cpu])
    }

    fn error_of(measured: Measured<Vec<NoiseSample>>) -> String {
        let plan = Plan { loops: Vec::new(), trace: false, seed: 1 };
        let finished = finish(&plan, RunContext::default(), BenchFacts::default(), measured);
        finished.unwrap_err().to_string()
    }

    #[test]
    fn a_limit_after_the_last_part_is_not_noted() {
        let mut whole = measured(vec![sample()]);
        whole.note_limit(&AtLimit);
        assert_eq!(whole.time_limit, None);
        whole.left_out("loop fwq");
        whole.note_limit(&AtLimit);
        assert_eq!(whole.time_limit.as_deref(), Some("1m is over"));
    }

    #[test]
    fn only_the_limit_of_the_bench_is_said_to_come_before_the_measurement() {
        let mut none = measured(Vec::new());
        none.left_out("loop fwq");
        none.note_limit(&AtLimit);
        assert_eq!(error_of(none), "1m is over before anything was measured");
        let mut first = measured(Vec::new());
        let limit = "10m are over before its first window opened".to_owned();
        first.part_failed("noise", "loop fwq".to_owned(), BenchError::TimeLimit(limit)).unwrap();
        first.left_out("loop detour");
        first.note_limit(&AtLimit);
        assert_eq!(error_of(first), "loop fwq: 10m are over before its first window opened");
    }
}
