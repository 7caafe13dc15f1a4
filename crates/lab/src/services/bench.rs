//! The bench trait of the experiment `services`. `live/src/services/bench.rs` and
//! `sim/src/services/bench.rs` implement it.

use super::sample::ServicesSample;
use crate::experiment::{Bench, BenchError};

/// A machine that can measure the services of a kernel.
pub trait ServicesBench: Bench {
    /// Runs the command and measures the services of the kernel until the command ends. Returns `None` if the user
    /// asked to stop before the bench measured anything.
    ///
    /// Fails if the command cannot run, or if the bench cannot measure.
    fn measure(&mut self) -> Result<Option<ServicesSample>, BenchError>;
}
