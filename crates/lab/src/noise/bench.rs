//! The trait of benches that can run `noise`. The live bench, the simulated bench, and the simulated machine without a
//! kernel (`sim/src/bare`) implement it. `experiment.rs` calls it.

use std::time::Duration;

use super::loops::Loop;
use super::sample::NoiseSample;
use crate::experiment::{Bench, BenchError};

/// The events that a bench can observe in addition to the gaps of its loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// The bench sees only gaps, without causes.
    #[default]
    Gaps,
    /// The bench sees the kernel's events, by probes that cost time.
    KernelEvents,
    /// The bench sees every cycle from outside, at no cost.
    EveryCycle,
}

/// A machine whose CPUs can run the loops.
pub trait NoiseBench: Bench {
    fn visibility(&self) -> Visibility;

    /// Whether the bench already measured this loop, together with another loop. Its sample is then reported even if a
    /// stop was requested in the meantime.
    fn is_measured(&self, _looping: Loop) -> bool {
        false
    }

    /// Runs a loop on every measured CPU for one window. If `traced`, the bench also finds the causes of gaps.
    ///
    /// Fails if the loop cannot run.
    fn measure(&mut self, looping: Loop, traced: bool) -> Result<NoiseSample, BenchError>;

    /// Returns how long [`NoiseBench::measure_part`] takes; `None` if that is unknown before it starts.
    fn expected_part(&self, _parts: u32) -> Option<Duration> {
        None
    }

    /// Runs the detour loop like [`NoiseBench::measure`], but only for one of `parts` equal parts of a window. Only
    /// benches with [`Visibility::KernelEvents`] are asked for parts, so only they need their own implementation.
    ///
    /// Fails if the loop cannot run.
    fn measure_part(&mut self, traced: bool, parts: u32) -> Result<NoiseSample, BenchError> {
        let _ = parts;
        self.measure(Loop::Detour, traced)
    }
}
