//! How far the rate of the kernel's monotonic clock may be from the true rate. The tables of
//! `noise` use it as a bound on the error of a period's length.
//!
//! A period is measured in nanoseconds of the kernel's clock. If the clock runs too fast, every period is too long,
//! however many events were measured. The kernel knows whether a better clock (NTP, PTP) steers its own clock, and how
//! far its own clock may be off (adjtimex(2); RFC 5905, section 11.3).

use super::Reading;

/// The accuracy of the kernel's clock as the kernel states it, and how exactly that clock and the
/// time-stamp counter were read together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockState {
    /// Whether a better clock steers the kernel's clock.
    pub is_synchronised: bool,
    /// The estimated offset from the better clock, ns.
    pub estimated_error_ns: f64,
    /// The largest relative error that the kernel assumes for the rate of an
    /// oscillator (500 millionths).
    pub tolerance: f64,
    /// Time between the two readings of the counter, between which the kernel's clock was read, ns.
    pub reading_ns: f64,
}

impl ClockState {
    /// Reads the state now. `hz`: the counter's frequency. `None` without a counter, or if adjtimex(2) fails.
    #[must_use]
    pub fn now(hz: f64) -> Option<Self> {
        let reading_ns = Reading::now()?.width_cycles as f64 * 1e9 / hz;
        // SAFETY: all-zero is a valid timex, and with its modes 0 the call changes nothing.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the structure lives until the call returns, which writes nothing else.
        if unsafe { libc::adjtimex(&raw mut timex) } < 0 {
            return None;
        }
        Some(ClockState {
            is_synchronised: timex.status & libc::STA_UNSYNC == 0,
            estimated_error_ns: timex.esterror as f64 * 1e3,
            // The kernel states millionths, with 16 bits of fraction.
            tolerance: timex.tolerance as f64 / 65_536.0 / 1e6,
            reading_ns,
        })
    }

    /// The largest relative error of the clock's mean rate between two states that are `length_ns` apart.
    ///
    /// The error of a synchronised clock is at most the sum of its offsets at both ends, divided by the time between
    /// them. The error of an unsynchronised clock is at most its tolerance. Both are read together with the counter, so
    /// half of each reading's duration adds to the error.
    #[must_use]
    pub fn rate_error(self, end: ClockState, length_ns: u64) -> f64 {
        let length_ns = length_ns.max(1) as f64;
        let tolerance = self.tolerance.max(end.tolerance);
        let steered = (self.estimated_error_ns + end.estimated_error_ns) / length_ns;
        let is_synchronised = self.is_synchronised && end.is_synchronised;
        let clock_error = if is_synchronised { steered.min(tolerance) } else { tolerance };
        clock_error + (self.reading_ns + end.reading_ns) / 2.0 / length_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    fn state(is_synchronised: bool, estimated_error_ns: f64) -> ClockState {
        ClockState { is_synchronised, estimated_error_ns, tolerance: 5e-4, reading_ns: 100.0 }
    }

    #[track_caller]
    fn near(error: f64, expected: f64) {
        assert!((error / expected - 1.0).abs() < 1e-9, "{error}, expected {expected}");
    }

    #[test]
    fn a_clock_is_as_good_as_what_steers_it_and_the_time_between() {
        let good = state(true, 1e6);
        // 2 ms in an hour, and the readings; in three seconds that says less than the tolerance
        // does.
        near(good.rate_error(good, HOUR_NS), 2e6 / 3.6e12 + 100.0 / 3.6e12);
        near(good.rate_error(good, 3_000_000_000), 5e-4 + 100.0 / 3e9);
        // A clock that loses its source in the window, or has none, is an oscillator.
        let free = state(false, 1e6);
        near(good.rate_error(free, HOUR_NS), 5e-4 + 100.0 / 3.6e12);
        near(free.rate_error(free, HOUR_NS), 5e-4 + 100.0 / 3.6e12);
    }

    #[test]
    fn this_kernel_says_how_good_its_clock_is() {
        let Some(state) = ClockState::now(1e9) else {
            return needs::not_run(needs::Need::Tsc, "the clocks cannot be read together");
        };
        assert!((1e-5..=1e-3).contains(&state.tolerance), "{state:?}");
        assert!(state.estimated_error_ns >= 0.0 && state.reading_ns > 0.0, "{state:?}");
    }
}
