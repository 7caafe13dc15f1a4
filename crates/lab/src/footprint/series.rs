//! Series of repetitions.

use serde::{Deserialize, Serialize};

use super::curve::Curve;
use super::sample::Repetition;
use super::what::{Geometry, Level, Method, Stimulus};

/// One level, stimulus and method: all repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// What was filled.
    pub level: Level,
    /// What interrupted.
    pub stimulus: Stimulus,
    pub method: Method,
    /// What the bench made ready.
    pub ready: Ready,
    /// Repetitions with the interrupt.
    pub treatment: Vec<Repetition>,
    /// Repetitions without it.
    pub control: Vec<Repetition>,
    /// Where rounds end in both; empty where everything was prepared once.
    pub rounds: Vec<Round>,
}

/// A part of a series for which everything was prepared again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What displaced lines cost in it.
    pub curve: Option<Curve>,
    /// Number of treatment repetitions until its end.
    pub treatment: usize,
    /// Number of control repetitions until its end.
    pub control: usize,
}

/// What was made ready for one level and stimulus.
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
