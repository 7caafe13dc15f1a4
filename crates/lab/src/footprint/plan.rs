//! The plan of the experiment `footprint`: which series to measure, and how often. The verb `footprint` makes the plan
//! from the command line. Its fields are a wire format, because the request to a guest contains the plan
//! (`in_guest.rs`).

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
    /// Number of rounds. Each round prepares memory, loop and curve again. 0 means 1.
    pub rounds: usize,
    /// Seed of the random order of treatment and control repetitions.
    pub seed: u64,
}
