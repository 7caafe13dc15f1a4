//! The measurements of all conditions.

use super::bench::{Pass, ProbeOverhead};
use super::condition::Condition;
use super::sample::WindowSample;

/// All passes of one condition.
#[derive(Debug)]
pub struct ConditionSamples {
    pub condition: Condition,
    pub timing: WindowSample,
    /// The windows of the passes with events, each with the pass's index in [`Samples::passes`].
    pub events: Vec<(usize, WindowSample)>,
}

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
    pub(super) fn windows(&self) -> impl Iterator<Item = &WindowSample> {
        std::iter::once(&self.timing).chain(self.events.iter().map(|(_, window)| window))
    }

    /// Whether every pass was measured to the end of its window on every CPU.
    pub(super) fn is_complete(&self, passes: usize) -> bool {
        let is_complete = |window: &WindowSample| !window.interrupted && window.has_all_cpus();
        self.windows().count() == passes && self.windows().all(is_complete)
    }
}
