//! The measurements of all conditions: the result of measuring a plan, and the input of its tables.

use super::bench::{Pass, ProbeOverhead};
use super::condition::Condition;
use super::sample::WindowSample;

/// All passes of one condition.
#[derive(Debug)]
pub struct ConditionSamples {
    pub condition: Condition,
    /// The window of the first pass, which reads no events.
    pub timing: WindowSample,
    /// The windows of the passes with events, each with the pass's index in [`Samples::passes`]. Passes that failed,
    /// or that the end of the run left out, have none.
    pub events: Vec<(usize, WindowSample)>,
}

/// All measured conditions of a run, and the facts that their tables need.
#[derive(Debug, Default)]
pub struct Samples {
    pub conditions: Vec<ConditionSamples>,
    /// The bench's passes over each condition.
    pub passes: Vec<Pass>,
    pub overhead: ProbeOverhead,
}

impl crate::experiment::Samples for Samples {
    fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }
}

impl ConditionSamples {
    /// The windows of all passes, the timing pass first.
    pub(super) fn windows(&self) -> impl Iterator<Item = &WindowSample> {
        std::iter::once(&self.timing).chain(self.events.iter().map(|(_, window)| window))
    }

    /// Whether every measured pass was measured to the end of its window on every CPU.
    pub(super) fn is_complete(&self) -> bool {
        self.windows().all(|window| !window.interrupted && window.has_all_cpus())
    }
}
