//! What was measured, of all series.

use super::contexts::Windows;
use super::series::{Round, Series};
use super::trace::Trace;

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Frequency of the clock that cycles are counted by, Hz.
    pub clock_hz: f64,
    /// Series, in the order of the plan.
    pub series: Vec<Series>,
    /// One traced repetition of each series, where the plan asks for it.
    pub traces: Vec<Trace>,
    /// The windows as the simulator saw them; empty on the live bench.
    pub windows: Windows,
}

impl crate::experiment::Samples for Samples {
    fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

impl Samples {
    /// Appends a round's series to those of the rounds before. Whether it was the first.
    pub(super) fn add(&mut self, mut one: Series, of_many: bool) -> bool {
        let round =
            |treatment, control| Round { curve: one.ready.curve.clone(), treatment, control };
        let same = |other: &&mut Series| {
            (other.level, other.stimulus, other.method) == (one.level, one.stimulus, one.method)
        };
        if let Some(all) = self.series.iter_mut().find(same) {
            let (treatment, control) =
                (all.treatment.len() + one.treatment.len(), all.control.len() + one.control.len());
            all.rounds.push(round(treatment, control));
            all.treatment.append(&mut one.treatment);
            all.control.append(&mut one.control);
            return false;
        }
        if of_many {
            one.rounds = vec![round(one.treatment.len(), one.control.len())];
        }
        self.series.push(one);
        true
    }
}
