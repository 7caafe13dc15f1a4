//! The trait of benches that can run this experiment.

use super::loops::Loop;
use super::sample::NoiseSample;
use crate::experiment::{Bench, BenchError};

/// The events that a bench sees in addition to the loop's own gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// The bench sees only gaps, without causes.
    #[default]
    Gaps,
    /// The bench sees the kernel's events by probes that cost time.
    KernelEvents,
    /// The bench sees every cycle from outside, at no cost.
    EveryCycle,
}

/// A machine whose CPUs can run the loops.
pub trait NoiseBench: Bench {
    fn visibility(&self) -> Visibility;

    /// Whether a loop was measured together with another one. It is reported even if a stop was requested since.
    fn is_measured(&self, _looping: Loop) -> bool {
        false
    }

    /// Runs a loop on every measured CPU for one window. `traced` asks for the causes of gaps.
    ///
    /// Fails if the loop cannot run.
    fn measure(&mut self, looping: Loop, traced: bool) -> Result<NoiseSample, BenchError>;

    /// Runs the detour loop like [`NoiseBench::measure`], for one of `parts` equal parts of a window. Only a bench
    /// with [`Visibility::KernelEvents`] needs its own implementation.
    ///
    /// Fails if the loop cannot run.
    fn measure_part(&mut self, traced: bool, parts: u32) -> Result<NoiseSample, BenchError> {
        let _ = parts;
        self.measure(Loop::Detour, traced)
    }
}
