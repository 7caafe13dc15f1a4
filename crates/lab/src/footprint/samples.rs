//! The measurements of all series: the result of a bench, and the input of the tables.

use super::contexts::Windows;
use super::series::{Round, Series};
use super::trace::Trace;

#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Frequency of the clock that counts cycles, Hz.
    pub clock_hz: f64,
    /// The series, in the order of the plan.
    pub series: Vec<Series>,
    /// One traced repetition of each series. Empty unless the plan asks for traces.
    pub traces: Vec<Trace>,
    /// The misses that the simulator counted in each window. Empty on the live bench.
    pub windows: Windows,
}

impl crate::experiment::Samples for Samples {
    fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

impl Samples {
    /// Appends one round's repetitions to the series with the same level, stimulus and method. Returns whether this
    /// round is the first of the series. `has_rounds`: whether the plan has several rounds.
    pub(super) fn add(&mut self, mut new: Series, has_rounds: bool) -> bool {
        let round =
            |treatment, control| Round { curve: new.ready.curve.clone(), treatment, control };
        let is_same_series = |series: &&mut Series| {
            (series.level, series.stimulus, series.method) == (new.level, new.stimulus, new.method)
        };
        if let Some(series) = self.series.iter_mut().find(is_same_series) {
            series.treatment.append(&mut new.treatment);
            series.control.append(&mut new.control);
            series.rounds.push(round(series.treatment.len(), series.control.len()));
            return false;
        }
        if has_rounds {
            new.rounds = vec![round(new.treatment.len(), new.control.len())];
        }
        self.series.push(new);
        true
    }
}
