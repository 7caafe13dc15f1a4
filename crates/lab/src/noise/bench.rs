//! What a bench must be able to do for this experiment.

use super::loops::Loop;
use super::sample::NoiseSample;
use crate::experiment::{Bench, BenchError};

/// What a bench sees in addition to the loop's own gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// Nothing: gaps have no causes.
    #[default]
    Gaps,
    /// The kernel's events, by probes that cost time.
    KernelEvents,
    /// Every cycle, from outside and at no cost.
    EveryCycle,
}

/// A machine whose CPUs can run the loops.
pub trait NoiseBench: Bench {
    /// What it sees in addition to the loop's own gaps.
    fn visibility(&self) -> Visibility;

    /// Runs a loop on every measured CPU for one window; `traced`: with causes.
    ///
    /// # Errors
    /// When the loop cannot be run.
    fn measure(&mut self, looping: Loop, traced: bool) -> Result<NoiseSample, BenchError>;

    /// As [`NoiseBench::measure`] with the detour loop, for one of `parts` equal parts of a window. Only a
    /// bench that sees [`Visibility::KernelEvents`] needs it.
    ///
    /// # Errors
    /// When the loop cannot be run.
    fn measure_part(&mut self, traced: bool, parts: u32) -> Result<NoiseSample, BenchError> {
        let _ = parts;
        self.measure(Loop::Detour, traced)
    }
}
