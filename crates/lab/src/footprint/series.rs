//! A series: all repetitions of one level, stimulus and method. The names of fields are a wire format (`in_guest.rs`).

use serde::{Deserialize, Serialize};

use super::curve::Curve;
use super::sample::Repetition;
use super::what::{Geometry, Level, Method, Stimulus};

/// All repetitions of one level, stimulus and method.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub level: Level,
    pub stimulus: Stimulus,
    pub method: Method,
    pub ready: Ready,
    /// Repetitions with the interrupt.
    pub treatment: Vec<Repetition>,
    /// Repetitions without the interrupt.
    pub control: Vec<Repetition>,
    /// The rounds, in order. Empty if memory, loop and curve were prepared only once.
    pub rounds: Vec<Round>,
}

/// A part of a series. Each round starts with new memory, a new loop and a new curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The round's number in the plan, from 1. A round that failed has no entry.
    pub number: u64,
    /// The round's calibration curve. `None` if only counters are used.
    pub curve: Option<Curve>,
    /// Number of the series' treatment repetitions up to and including this round.
    pub treatment: usize,
    /// Number of the series' control repetitions up to and including this round.
    pub control: usize,
}

/// The loop that a bench has prepared for one level and stimulus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    pub geometry: Geometry,
    /// Size of the pages that hold the loop's lines, in words.
    pub pages: String,
    /// How the interrupt is raised, in words.
    pub raised_by: String,
    /// The calibration curve. `None` if only counters are used.
    pub curve: Option<Curve>,
    /// Duration of a pass with no line displaced, cycles.
    pub pass_cycles: u64,
    /// Number of lines that the loop touches between two readings of the clock.
    pub chunk_lines: u64,
    /// Number of the loop's misses that starting the counters causes. `None` without counters.
    pub start_misses: Option<u64>,
}
