//! What a bench must be able to do for this experiment.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::sample::{Curve, Repetition};
use super::trace::Trace;
use super::what::{Geometry, Level, Method, Source};
use crate::handlers::BenchError;

/// What is the same for all series of a bench.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FootprintFacts {
    /// `live` or `sim`.
    pub bench: String,
    /// Frequency of the clock that cycles are counted by, Hz.
    pub clock_hz: f64,
    /// Settings in force, for the manifest.
    pub settings: Map<String, Json>,
    /// The cost of measuring, for the manifest.
    pub observer: Map<String, Json>,
    /// Why misses of a level can't be counted: the level, the reason.
    pub no_counters: Vec<(String, String)>,
    /// What a reader must know.
    pub warnings: Vec<String>,
}

/// What was made ready for one level and source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Size of the level.
    pub geometry: Geometry,
    /// In what pages its lines are, in words.
    pub pages: String,
    /// How the interrupt is raised, in words.
    pub raised_by: String,
    /// What displaced lines cost; absent where the clock is not used.
    pub curve: Option<Curve>,
    /// A pass with nothing displaced, cycles.
    pub pass_cycles: u64,
    /// Lines between two readings of the clock.
    pub chunk_lines: u64,
    /// Misses that starting the counters makes; absent where there are none.
    pub start_misses: Option<u64>,
}

/// Why there is nothing to measure: the reason, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Why.
    pub reason: String,
    /// The line that unlocks it.
    pub remedy: Option<String>,
}

/// A machine whose caches can be filled, and interrupted meanwhile.
pub trait FootprintBench {
    /// What is the same for all series.
    fn facts(&self) -> FootprintFacts;

    /// Makes the loop of a level and a source of interrupts ready.
    ///
    /// # Errors
    /// Where one of them can't be had here.
    fn ready(&mut self, level: Level, source: Source) -> Result<Ready, Missing>;

    /// Repeats with what was made ready last; `raised`: with the interrupt, else idle.
    ///
    /// # Errors
    /// When the bench breaks.
    fn repeat(
        &mut self,
        method: Method,
        raised: bool,
        number: usize,
    ) -> Result<Vec<Repetition>, BenchError>;

    /// One repetition with the interrupt, of what was made ready last, and who ran meanwhile.
    ///
    /// # Errors
    /// Where who runs can't be seen, or no repetition was undisturbed.
    fn trace(&mut self, source: Source, method: Method) -> Result<Trace, Missing>;

    /// Makes everything anew when it is asked for next: memory, loop, curve, source.
    fn forget(&mut self);

    /// Whether the user asked to stop.
    fn stop_requested(&self) -> bool;
}
