//! The traits of benches that can run `footprint`. [`FootprintBench`] is what the experiment needs: `live` and `sim`
//! implement it. [`SeriesBench`] is what [`super::measure_series`] needs: only `live` implements it, on this machine
//! and in the guest of the simulated machine.

use super::plan::Plan;
use super::sample::Repetition;
use super::samples::Samples;
use super::series::Ready;
use super::trace::Trace;
use super::what::{Level, Method, Stimulus};
use crate::experiment::{Bench, BenchError, Measured, Progress};

/// A machine on which footprints can be measured.
pub trait FootprintBench: Bench {
    /// Measures the plan: see [`super::measure_series`].
    ///
    /// Fails with [`BenchError::NothingMeasurable`] if the bench can measure no series at all.
    fn measure(
        &mut self,
        plan: &Plan,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Samples>, BenchError>;
}

/// A machine on which this process itself runs the loop, and raises the interrupts. The order of calls for a level and
/// a stimulus: `ready`, then `repeat` several times, and `trace` if the plan asks for it. `forget` comes after each
/// round of the plan, and after a failure.
pub trait SeriesBench: Bench {
    /// Frequency of the clock that counts cycles, Hz.
    fn clock_hz(&self) -> f64;

    /// Prepares memory and loop of `level` with their calibration curve, and the source of the interrupts of
    /// `stimulus`. May keep memory, loop and curve if they were prepared for this level already.
    ///
    /// Fails if the level or the stimulus is not available here.
    fn ready(&mut self, level: Level, stimulus: Stimulus) -> Result<Ready, BenchError>;

    /// Runs `number` repetitions with the loop that [`SeriesBench::ready`] prepared last. If `is_treatment`, each
    /// repetition raises the interrupt. Otherwise they are control repetitions, without the interrupt.
    ///
    /// Fails if the bench breaks.
    fn repeat(
        &mut self,
        method: Method,
        is_treatment: bool,
        number: usize,
    ) -> Result<Vec<Repetition>, BenchError>;

    /// Runs one treatment repetition with the loop that was prepared last, and records which contexts ran when.
    ///
    /// Fails if the bench cannot observe which contexts run, or breaks.
    fn trace(&mut self, stimulus: Stimulus, method: Method) -> Result<Trace, BenchError>;

    /// Discards memory, loop, curve and stimulus, so that the next [`SeriesBench::ready`] prepares all of them.
    fn forget(&mut self);
}
