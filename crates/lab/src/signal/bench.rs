//! What a bench must be able to do for this experiment.

use super::plan::Window;
use super::sample::{
    RatePoint, RateWindow, RoundTripPoint, RoundTripWindow, TransferPoint, TransferWindow,
};
use crate::experiment::{Bench, BenchError};

/// A machine on which one CPU sends events and another one receives them.
pub trait SignalBench: Bench {
    /// Announces windows that are measured next, in this order, each with its seed: a bench may measure them
    /// ahead, several at a time.
    fn prepare(&mut self, _windows: &[(Window, u64)]) {}

    /// Whether a window that is contaminated is worth another try. Not so where nothing happens by chance.
    fn has_chance(&self) -> bool {
        true
    }

    /// One window of events at a rate. `seed` determines when they are due.
    ///
    /// # Errors
    /// [`BenchError::Unavailable`] where the rig has no such scheme.
    fn rate_window(&mut self, point: &RatePoint, seed: u64) -> Result<RateWindow, BenchError>;

    /// One window of bulk transfer. A machine on which nothing happens by chance starts it at a time of its
    /// own for each `seed`.
    ///
    /// # Errors
    /// As [`SignalBench::rate_window`].
    fn transfer_window(
        &mut self,
        point: &TransferPoint,
        seed: u64,
    ) -> Result<TransferWindow, BenchError>;

    /// One window of round trips.
    ///
    /// # Errors
    /// As [`SignalBench::rate_window`].
    fn round_trip_window(
        &mut self,
        point: &RoundTripPoint,
        seed: u64,
    ) -> Result<RoundTripWindow, BenchError>;
}
