//! What a simulated bench asks of the irqlab in its guest, and what that answers: the plan, carried out by
//! the code of the live bench.
//!
//! The answer is lines of JSON, one [`FootprintLine`] each. Nothing in them is believed: what is out of
//! order or beyond bounds is refused.

use record::Absence;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::bench::Ready;
use super::experiment::{Plan, Samples, Series};
use super::sample::Repetition;
use super::trace::Trace;
use super::what::{Geometry, Level, Method, Stimulus};
use crate::experiment::{BenchError, BenchFacts, Measured};

/// Repetitions of a line.
const REPETITIONS_OF_A_LINE: usize = 128;
/// The most repetitions of an answer.
const REPETITIONS_MAX: usize = 1 << 20;

/// The most traces of an answer.
const TRACES_MAX: usize = 1024;

/// What to measure in the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FootprintOrder {
    /// What.
    pub plan: Plan,
    /// CPU of the loop.
    pub cpu: u32,
    /// Sizes of the machine's levels: the guest's own words are of another machine.
    pub geometry: Vec<(Level, Geometry)>,
    /// How long an interrupt is waited for, ns.
    pub window_ns: u64,
    /// Chooses the order of lines and the times of interrupts.
    pub seed: u64,
    /// Whether counters are enough, so that no curves are measured.
    #[serde(default)]
    pub counters_only: bool,
    /// Whether ticks may come in windows.
    #[serde(default)]
    pub ticks: bool,
}

/// A line of the answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FootprintLine {
    /// A series begins.
    Series(Level, Stimulus, Method, Ready),
    /// Repetitions of the series that began last; whether with the interrupt.
    Repetitions(bool, Vec<Repetition>),
    /// One repetition of which it is to be said who ran.
    Trace(Level, Stimulus, Result<Trace, Missing>),
    /// What can't be had.
    Missing(Level, Stimulus, Missing),
    /// The same, as a run has it.
    Absent(Absence),
    /// All is said; what is the same for all.
    Done(FootprintFacts),
    /// The guest can't do it.
    Unavailable(String),
    /// Something broke.
    Failed(String),
}

/// What is the same for all series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FootprintFacts {
    bench: String,
    clock_hz: f64,
    settings: Map<String, Json>,
    observer: Map<String, Json>,
    no_counters: Vec<(String, String)>,
    warnings: Vec<String>,
    #[serde(default)]
    complete: Option<bool>,
}

/// Why there is nothing to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    reason: String,
    remedy: Option<String>,
}

impl Missing {
    fn absence(self, what: String) -> Absence {
        let Missing { reason, remedy } = self;
        Absence { table: "footprint".to_owned(), what, reason, remedy }
    }
}

/// What was measured, in lines.
#[must_use]
pub fn lines(measured: Measured<Samples>, facts: BenchFacts) -> Vec<FootprintLine> {
    let mut lines = Vec::new();
    let Measured { samples, complete, absent, .. } = measured;
    for one in &samples.series {
        lines.push(FootprintLine::Series(one.level, one.stimulus, one.method, one.ready.clone()));
        for (treatment, all) in [(true, &one.treatment), (false, &one.control)] {
            let pieces = all.chunks(REPETITIONS_OF_A_LINE);
            lines.extend(pieces.map(|some| FootprintLine::Repetitions(treatment, some.to_vec())));
        }
    }
    for trace in samples.traces {
        lines.push(FootprintLine::Trace(trace.level, trace.stimulus, Ok(trace)));
    }
    lines.extend(absent.into_iter().chain(facts.absent).map(FootprintLine::Absent));
    lines.push(FootprintLine::Done(FootprintFacts {
        bench: facts.bench,
        clock_hz: samples.clock_hz,
        settings: facts.settings,
        observer: facts.observer,
        no_counters: Vec::new(),
        warnings: facts.warnings,
        complete: Some(complete),
    }));
    lines
}

/// Puts the lines of an answer together.
///
/// # Errors
/// What the guest says of itself, and an answer that is not one.
pub fn read<'a>(
    answer: impl Iterator<Item = &'a str>,
) -> Result<(BenchFacts, Measured<Samples>), BenchError> {
    let broken = |what: &str| BenchError::Failed(format!("the guest's answer: {what}"));
    let (mut measured, mut count) = (Measured::<Samples>::default(), 0);
    for line in answer {
        let line = serde_json::from_str(line).map_err(|error| broken(&error.to_string()))?;
        let samples = &mut measured.samples;
        match line {
            FootprintLine::Series(level, stimulus, method, ready) => {
                let (treatment, control, rounds) = (Vec::new(), Vec::new(), Vec::new());
                samples.series.push(Series {
                    level,
                    stimulus,
                    method,
                    ready,
                    treatment,
                    control,
                    rounds,
                });
            }
            FootprintLine::Repetitions(treatment, some) => {
                count += some.len();
                if count > REPETITIONS_MAX {
                    return Err(broken("too many repetitions"));
                }
                let series = samples.series.last_mut();
                let series = series.ok_or_else(|| broken("repetitions of no series"))?;
                if treatment { &mut series.treatment } else { &mut series.control }.extend(some);
            }
            FootprintLine::Trace(..) if samples.traces.len() >= TRACES_MAX => {
                return Err(broken("too many traces"));
            }
            FootprintLine::Trace(level, stimulus, trace) => match trace {
                Ok(trace) => samples.traces.push(trace),
                Err(why) => {
                    let what = format!("trace of {level}, {stimulus}");
                    measured.absent.push(why.absence(what));
                }
            },
            FootprintLine::Missing(level, stimulus, why) => {
                measured.absent.push(why.absence(format!("{level}, {stimulus}")));
            }
            FootprintLine::Absent(absence) => measured.absent.push(absence),
            FootprintLine::Done(facts) => {
                samples.clock_hz = facts.clock_hz;
                measured.complete = facts.complete.unwrap_or(true);
                let absent = facts.no_counters.into_iter().map(|(level, reason)| {
                    Missing { reason, remedy: None }.absence(format!("{level}: misses"))
                });
                let FootprintFacts { bench, settings, observer, warnings, .. } = facts;
                let absent = absent.collect();
                return Ok((BenchFacts { bench, settings, observer, absent, warnings }, measured));
            }
            FootprintLine::Unavailable(reason) => {
                return Err(BenchError::NothingMeasurable { reason, remedy: None });
            }
            FootprintLine::Failed(reason) => return Err(BenchError::Failed(reason)),
        }
    }
    Err(broken("it has no end"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::sample::Verdict;

    fn measured() -> Measured<Samples> {
        let geometry = Geometry { size_bytes: 1024, line_bytes: 64, ways: 2 };
        let one = Repetition {
            verdict: Verdict::Accepted,
            excess_cycles: Some(-3),
            stopped_cycles: None,
            user_misses: Some(7),
            kernel_misses: None,
            window: Some(3),
        };
        let series = Series {
            level: Level::L1d,
            stimulus: Stimulus::Timer,
            method: Method::Refined,
            ready: Ready {
                geometry,
                pages: "4 KiB".to_owned(),
                raised_by: "a test".to_owned(),
                curve: None,
                pass_cycles: 5,
                chunk_lines: 1,
                start_misses: Some(1),
            },
            treatment: vec![one; 300],
            control: vec![one; 5],
            rounds: Vec::new(),
        };
        let missing = Missing { reason: "none".to_owned(), remedy: None };
        let samples = Samples { series: vec![series], ..Samples::default() };
        Measured { absent: vec![missing.absence("l2".to_owned())], ..Measured::new(samples) }
    }

    #[test]
    fn an_answer_comes_back_whole() {
        let said: Vec<String> = lines(measured(), BenchFacts::default())
            .iter()
            .map(|line| serde_json::to_string(line).unwrap())
            .collect();
        assert!(said.iter().all(|line| line.len() < 60_000));
        let (_, back) = read(said.iter().map(String::as_str)).unwrap();
        assert_eq!(back.samples.series[0].treatment, measured().samples.series[0].treatment);
        assert_eq!((back.samples.series[0].control.len(), back.absent.len()), (5, 1));
        assert!(read(said[..2].iter().map(String::as_str)).is_err());
        assert!(read(said[1..].iter().map(String::as_str)).is_err());
        assert!(read(["{}"].into_iter()).is_err());
    }
}
