//! What a bench must be able to do for this experiment.

use super::condition::Condition;
use super::sample::WindowSample;
use crate::experiment::{Bench, BenchError};

/// One pass over a condition: the timing pass reads no events, the others one group each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Names of the events, as in `perf list`; empty in the timing pass.
    pub events: Vec<String>,
}

/// What a pair of probes adds to a span, and the clock that cycles are counted by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeOverhead {
    /// Frequency of the time-stamp counter, Hz, measured against the clock in this run.
    pub tsc_hz: Option<f64>,
    /// The part of the overhead that lies inside the span, ns; already subtracted.
    pub in_span_ns: u64,
    /// The whole overhead of a pair of probes, ns.
    pub total_ns: u64,
    /// What reading adds to each event's own count, per pass and event; the tables subtract it.
    pub events: Vec<Vec<f64>>,
}

/// A machine on which handlers can be measured.
pub trait HandlersBench: Bench {
    /// The passes that each condition takes; the first one is the timing pass.
    fn passes(&self) -> Vec<Pass>;

    /// What the probes cost.
    fn probe_overhead(&self) -> ProbeOverhead;

    /// Receives the conditions that are to be measured, before the first [`HandlersBench::measure`]: a bench whose
    /// conditions do not disturb each other may measure them at the same time, now.
    fn prepare(&mut self, _conditions: &[Condition]) {}

    /// Creates the condition, measures one window of it in the given pass, and undoes it.
    ///
    /// # Errors
    /// [`BenchError::Unavailable`] when this condition is not available here.
    fn measure(&mut self, condition: Condition, pass: usize) -> Result<WindowSample, BenchError>;
}
