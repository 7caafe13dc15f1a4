//! What a bench must be able to do for this experiment.

use super::sample::{
    RatePoint, RateWindow, RoundTripPoint, RoundTripWindow, TransferPoint, TransferWindow,
};
use crate::experiment::{Bench, BenchError};

/// A machine on which one CPU sends events and another one receives them.
pub trait SignalBench: Bench {
    /// One window of events at a rate. `seed` determines when they are due.
    ///
    /// # Errors
    /// [`BenchError::Unavailable`] where the rig has no such scheme.
    fn rate_window(&mut self, point: &RatePoint, seed: u64) -> Result<RateWindow, BenchError>;

    /// One window of bulk transfer.
    ///
    /// # Errors
    /// As [`SignalBench::rate_window`].
    fn transfer_window(&mut self, point: &TransferPoint) -> Result<TransferWindow, BenchError>;

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
