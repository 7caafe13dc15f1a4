//! The frequency of the time-stamp counter, against the clock that the probes read.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Least time between the two readings of a calibration.
const APART_MIN: Duration = Duration::from_millis(50);

/// A reading of both clocks at (almost) the same instant.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    cycles: u64,
    ns: u64,
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

impl Reading {
    /// Reads the clock between two readings of the counter, and keeps the closest of 16 brackets.
    /// `None` on a processor without a time-stamp counter that runs at a constant rate.
    #[must_use]
    pub fn now() -> Option<Self> {
        let bracket = || {
            let before = cycles()?;
            let ns = monotonic_ns();
            let after = cycles()?;
            Some((after.wrapping_sub(before), Reading { cycles: before.midpoint(after), ns }))
        };
        (0..16)
            .filter_map(|_| bracket())
            .min_by_key(|(width, _)| *width)
            .map(|(_, reading)| reading)
    }

    /// The counter.
    #[must_use]
    pub fn cycles(self) -> u64 {
        self.cycles
    }

    /// The clock that the probes read, ns.
    #[must_use]
    pub fn ns(self) -> u64 {
        self.ns
    }

    /// Cycles per second since this reading, waiting until it is long enough ago to tell.
    #[must_use]
    pub fn frequency_hz(self) -> Option<f64> {
        let age = Duration::from_nanos(monotonic_ns().saturating_sub(self.ns));
        std::thread::sleep(APART_MIN.saturating_sub(age));
        let now = Reading::now()?;
        let cycles = now.cycles.checked_sub(self.cycles)?;
        let ns = now.ns.checked_sub(self.ns)?;
        (ns > 0).then(|| cycles as f64 * 1e9 / ns as f64)
    }
}

#[cfg(target_arch = "x86_64")]
fn cycles() -> Option<u64> {
    // SAFETY: RDTSC has no effect but its result; it is part of every x86-64 processor.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn cycles() -> Option<u64> {
    None
}
