//! The plan of the experiment `footprint`.

use serde::{Deserialize, Serialize};

use super::what::{Level, Method, Stimulus};

/// The series to measure: each level with each stimulus by each method, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub levels: Vec<Level>,
    pub stimuli: Vec<Stimulus>,
    pub methods: Vec<Method>,
    /// Maximum number of treatment repetitions in each series. Control repetitions have the same maximum.
    pub repetitions_max: usize,
    /// Whether to trace one repetition of each series: which task or handler ran when.
    pub trace: bool,
    /// Number of rounds; each prepares memory, loop and curve again. 0 means 1.
    pub rounds: usize,
    /// Seed of the order of treatment and control.
    pub seed: u64,
}
