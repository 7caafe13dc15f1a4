//! The trait of benches that can run `signal run`. `live` and `sim` implement it, and `experiment.rs` calls it: first
//! `prepare` for the windows of a round, then one method for each window.

use super::plan::Window;
use super::sample::{
    RatePoint, RateWindow, RoundTripPoint, RoundTripWindow, TransferPoint, TransferWindow,
};
use crate::experiment::{Bench, BenchError};

/// A machine on which one CPU sends events and another CPU receives them.
pub trait SignalBench: Bench {
    /// Announces the windows of a round, in order, each with its seed. A bench may measure several windows ahead.
    /// `further_rounds`: how many more rounds with equally many windows are planned.
    fn prepare(&mut self, _windows: &[(Window, u64)], _further_rounds: u32) {}

    /// Whether the bench measured this window ahead. Its result is then reported even if a stop was requested in the
    /// meantime.
    fn is_measured(&self, _window: Window, _seed: u64) -> bool {
        false
    }

    /// Whether another measurement of a window could give another result. `false` on a deterministic machine:
    /// contaminated windows are then not measured again.
    fn has_chance(&self) -> bool {
        true
    }

    /// Whether the CPU time of threads (`CLOCK_THREAD_CPUTIME_ID`, `/proc/PID/schedstat`) leaves out interrupts and softirqs
    /// that came while they ran: on kernels with `IRQ_TIME_ACCOUNTING`, unless they are started with `tsc=noirqtime`
    /// (`sched_clock_irqtime` in Linux's kernel/sched/cputime.c). CPU use by the progress of a job is then unknown.
    fn thread_clocks_exclude_interrupts(&self) -> bool {
        false
    }

    /// Measures a window of events at a rate. `seed` determines when the events are due.
    ///
    /// Fails with [`BenchError::Unavailable`] if the rig lacks the scheme.
    fn rate_window(&mut self, point: &RatePoint, seed: u64) -> Result<RateWindow, BenchError>;

    /// Measures a window of bulk transfer. On a deterministic machine, `seed` determines when the transfer starts.
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
