//! What a bench must be able to do for this experiment.

use super::sample::ServicesSample;
use crate::experiment::{Bench, BenchError};

/// A machine on which the services of a kernel can be measured.
pub trait ServicesBench: Bench {
    /// Runs the command and measures what the services took meanwhile; none if the user asked to stop
    /// before anything was measured.
    ///
    /// # Errors
    /// When the command cannot be run, or nothing can be measured.
    fn measure(&mut self) -> Result<Option<ServicesSample>, BenchError>;
}
