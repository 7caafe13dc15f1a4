//! What a bench must be able to do for this experiment.

use serde_json::{Map, Value as Json};

use super::loops::Loop;
use super::sample::NoiseSample;
use crate::handlers::BenchError;

/// What is the same for all windows of a bench.
#[derive(Clone, Debug, Default)]
pub struct NoiseFacts {
    /// `live` or `sim`.
    pub bench: String,
    /// Whether the kernel's side can be watched.
    pub can_trace: bool,
    /// Whether every cycle is seen, from outside: nothing is watched that would cost anything.
    pub sees_whole: bool,
    /// Settings in force, for the manifest.
    pub settings: Map<String, Json>,
    /// The cost of measuring, for the manifest.
    pub observer: Map<String, Json>,
    /// What cannot be had: table, what, reason, remedy.
    pub absent: Vec<(String, String, String, Option<String>)>,
    /// What a reader must know.
    pub warnings: Vec<String>,
}

/// A machine whose CPUs can run the loops.
pub trait NoiseBench {
    /// What is the same for all windows.
    fn facts(&self) -> NoiseFacts;

    /// Runs a loop on every measured CPU for one window; `traced`: with the kernel's side watched.
    ///
    /// # Errors
    /// When the bench breaks, or cannot do it.
    fn measure(&mut self, looping: Loop, traced: bool) -> Result<NoiseSample, BenchError>;

    /// Whether the user asked to stop.
    fn stop_requested(&self) -> bool;
}
