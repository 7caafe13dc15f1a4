//! The trait of benches that can run this experiment.

use super::plan::Window;
use super::sample::{
    RatePoint, RateWindow, RoundTripPoint, RoundTripWindow, TransferPoint, TransferWindow,
};
use crate::experiment::{Bench, BenchError};

/// A machine on which one CPU sends events and another one receives them.
pub trait SignalBench: Bench {
    /// Announces the next windows in order, each with its seed. A bench may measure several of them ahead.
    /// `further_rounds`: how many rounds of as many windows are to follow.
    fn prepare(&mut self, _windows: &[(Window, u64)], _further_rounds: u32) {}

    /// Whether a window was measured ahead. It is reported even if a stop was requested since.
    fn is_measured(&self, _window: Window, _seed: u64) -> bool {
        false
    }

    /// Whether to measure contaminated windows again. `false` on a deterministic machine.
    fn has_chance(&self) -> bool {
        true
    }

    /// Measures a window of events at a rate. `seed` determines when the events are due.
    ///
    /// Fails with [`BenchError::Unavailable`] if the rig lacks the scheme.
    fn rate_window(&mut self, point: &RatePoint, seed: u64) -> Result<RateWindow, BenchError>;

    /// Measures a window of bulk transfer. On a deterministic machine, `seed` determines the start of the transfer.
    ///
    /// Fails with [`BenchError::Unavailable`] if the rig lacks the scheme.
    fn transfer_window(
        &mut self,
        point: &TransferPoint,
        seed: u64,
    ) -> Result<TransferWindow, BenchError>;

    /// Measures a window of round trips. `seed` determines when the requests are due.
    ///
    /// Fails with [`BenchError::Unavailable`] if the rig lacks the scheme.
    fn round_trip_window(
        &mut self,
        point: &RoundTripPoint,
        seed: u64,
    ) -> Result<RoundTripWindow, BenchError>;
}
