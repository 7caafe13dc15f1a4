//! What a bench must be able to do for this experiment.

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
    /// # Errors
    /// Where nothing can be measured.
    fn measure(
        &mut self,
        plan: &Plan,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Samples>, BenchError>;
}

/// A machine whose caches this process can fill, and that can interrupt it meanwhile.
pub trait SeriesBench: Bench {
    /// Frequency of the clock that cycles are counted by, Hz.
    fn clock_hz(&self) -> f64;

    /// Prepares the loop of a level and a stimulus.
    ///
    /// # Errors
    /// Where one of them is not available here.
    fn ready(&mut self, level: Level, stimulus: Stimulus) -> Result<Ready, BenchError>;

    /// Repeats with what was prepared last; `treatment`: with the interrupt, else the control.
    ///
    /// # Errors
    /// When the bench breaks.
    fn repeat(
        &mut self,
        method: Method,
        treatment: bool,
        number: usize,
    ) -> Result<Vec<Repetition>, BenchError>;

    /// One repetition with the interrupt, of the series that was prepared last, and the contexts that ran in it.
    ///
    /// # Errors
    /// Where it is not visible who runs, or no repetition was undisturbed.
    fn trace(&mut self, stimulus: Stimulus, method: Method) -> Result<Trace, BenchError>;

    /// Discards memory, loop, curve and stimulus: the next series prepares them again.
    fn forget(&mut self);
}
