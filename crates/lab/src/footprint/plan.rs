//! What to measure.

use serde::{Deserialize, Serialize};

use super::what::{Level, Method, Stimulus};

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Levels, in order.
    pub levels: Vec<Level>,
    /// Stimuli, in order.
    pub stimuli: Vec<Stimulus>,
    /// Methods, in order.
    pub methods: Vec<Method>,
    /// Maximum number of treatment repetitions, and of control repetitions, of each series.
    pub repetitions_max: usize,
    /// Whether one repetition of each series is traced: who ran when.
    pub trace: bool,
    /// In how many rounds, each with everything prepared again; 0 is 1.
    pub rounds: usize,
    /// Chooses the order of treatment and control.
    pub seed: u64,
}
