//! The bench trait of the experiment `handlers`. `live/src/handlers/bench.rs` and `sim/src/handlers/bench.rs` implement
//! it; `experiment.rs` calls it, one condition and pass at a time.

use super::condition::Condition;
use super::sample::WindowSample;
use crate::experiment::{Bench, BenchError};

/// One pass over a condition. The timing pass reads no events; each other pass reads one group of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Names of the events, as in `perf list`; empty in the timing pass.
    pub events: Vec<String>,
}

/// Overhead of a pair of probes, and the frequency of the clock that counts cycles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeOverhead {
    /// Frequency of the time-stamp counter, Hz, measured in this run.
    pub tsc_hz: Option<f64>,
    /// The part of the overhead inside the span, ns; already subtracted from all times.
    pub in_span_ns: u64,
    /// The whole overhead of a pair of probes, ns; at least `in_span_ns`.
    pub total_ns: u64,
    /// Events that reading the counters adds to a span: index of the pass, then index of the
    /// event in the pass. The tables subtract them.
    pub events: Vec<Vec<f64>>,
}

/// A machine on which handlers can be measured.
pub trait HandlersBench: Bench {
    /// The passes over each condition. The first pass is the timing pass.
    fn passes(&self) -> Vec<Pass>;

    /// The overhead of the probes, as far as it is known now. The experiment asks after the last condition.
    fn probe_overhead(&self) -> ProbeOverhead;

    /// Announces all conditions of the plan before the first [`HandlersBench::measure`]. A bench whose conditions do
    /// not disturb each other may measure all of them now, at the same time.
    fn prepare(&mut self, _conditions: &[Condition]) {}

    /// Whether [`HandlersBench::prepare`] has measured the condition. The run then reports
    /// the condition even after a request to stop.
    fn is_measured(&self, _condition: Condition) -> bool {
        false
    }

    /// Creates the condition, measures one window in the pass with this index, and undoes the condition.
    ///
    /// Fails with [`BenchError::Unavailable`] if the condition is not available here.
    fn measure(&mut self, condition: Condition, pass: usize) -> Result<WindowSample, BenchError>;
}
