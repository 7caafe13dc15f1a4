//! What was measured, of all conditions.

use super::bench::{Pass, ProbeOverhead};
use super::condition::Condition;
use super::sample::WindowSample;

/// All passes of one condition.
#[derive(Debug)]
pub struct ConditionSamples {
    pub condition: Condition,
    /// The timing pass.
    pub timing: WindowSample,
    /// The passes with events, by their position in the bench's list.
    pub events: Vec<(usize, WindowSample)>,
}

/// What was measured.
#[derive(Debug, Default)]
pub struct Samples {
    /// The conditions that were measured.
    pub conditions: Vec<ConditionSamples>,
    /// The passes that the bench makes over each of them.
    pub passes: Vec<Pass>,
    /// What the probes cost.
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

    /// Whether every pass was measured to its end on every CPU.
    pub(super) fn is_complete(&self, passes: usize) -> bool {
        let is_whole = |window: &WindowSample| !window.interrupted && window.has_all_cpus();
        self.windows().count() == passes && self.windows().all(is_whole)
    }
}
