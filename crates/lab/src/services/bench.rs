//! The trait of benches that can run this experiment.

use super::sample::ServicesSample;
use crate::experiment::{Bench, BenchError};

/// A machine that can measure the services of a kernel.
pub trait ServicesBench: Bench {
    /// Runs the command and measures what the services take in the meantime. Returns `None` if the user asked to
    /// stop before the bench measured anything.
    ///
    /// Fails if the command cannot run, or if the bench cannot measure.
    fn measure(&mut self) -> Result<Option<ServicesSample>, BenchError>;
}
