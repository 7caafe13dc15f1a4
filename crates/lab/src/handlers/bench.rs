//! What a bench must be able to do for this experiment.

use serde_json::{Map, Value as Json};

use super::condition::Condition;
use super::sample::WindowSample;

/// Why a bench could not measure.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BenchError {
    /// This condition cannot be had here; the others may.
    #[error("{reason}")]
    Unavailable {
        /// Why.
        reason: String,
        /// The line that makes it available, where there is one.
        remedy: Option<String>,
    },
    /// Nothing can be measured here.
    #[error("{reason}")]
    NothingMeasurable {
        /// Why.
        reason: String,
        /// The line that unlocks it.
        remedy: Option<String>,
    },
    /// Something broke.
    #[error("{0}")]
    Failed(String),
}

/// One pass over a condition: the timing pass reads no events, the others one group each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Names of the events, as in `perf list`; empty in the timing pass.
    pub events: Vec<String>,
}

/// What is the same for all windows of a bench.
#[derive(Clone, Debug, Default)]
pub struct BenchFacts {
    /// `live` or `sim`.
    pub bench: String,
    /// Frequency of the time-stamp counter, Hz, measured against the clock in this run.
    pub tsc_hz: Option<f64>,
    /// What a probe pair adds inside its own span, ns; already subtracted.
    pub inside_ns: u64,
    /// What it adds in all, ns.
    pub added_ns: u64,
    /// What reading adds to each event's own count, per pass and event; subtracted in the tables.
    pub event_overheads: Vec<Vec<f64>>,
    /// Settings in force, for the manifest.
    pub settings: Map<String, Json>,
    /// The cost of measuring, for the manifest.
    pub observer: Map<String, Json>,
    /// What cannot be had: what, reason, remedy.
    pub absent: Vec<(String, String, Option<String>)>,
    /// What a reader must know.
    pub warnings: Vec<String>,
}

/// A machine on which handlers can be measured.
pub trait HandlersBench {
    /// What is the same for all windows.
    fn facts(&self) -> BenchFacts;

    /// The passes that each condition takes; the first one is the timing pass.
    fn passes(&self) -> Vec<Pass>;

    /// Makes the condition, measures one window of it in the given pass, and undoes it.
    ///
    /// # Errors
    /// [`BenchError::Unavailable`] when this condition cannot be had here.
    fn measure(&mut self, condition: Condition, pass: usize) -> Result<WindowSample, BenchError>;

    /// Whether the user asked to stop.
    fn stop_requested(&self) -> bool;
}
