//! The system clock, related to the kernel's monotonic clock.

use lab::wall_clock::WallClock;
use rustix::time::{ClockId, clock_gettime};

use super::{KernelClock, monotonic_ns};

/// Number of pairs of readings that are tried. The narrowest is used.
const READINGS: usize = 16;

/// The system clock and CLOCK_MONOTONIC of this process, read at almost the same instant.
#[derive(Clone, Copy, Debug)]
pub struct WallReading {
    /// UTC since 1970 minus CLOCK_MONOTONIC, ns.
    offset_ns: i128,
    /// Time between the two readings of CLOCK_MONOTONIC around the reading of the system clock, ns.
    width_ns: u64,
}

impl WallReading {
    #[must_use]
    pub fn now() -> WallReading {
        let reading = || {
            let before_ns = monotonic_ns();
            let utc = clock_gettime(ClockId::Realtime);
            let after_ns = monotonic_ns();
            let utc_ns = i128::from(utc.tv_sec) * 1_000_000_000 + i128::from(utc.tv_nsec);
            WallReading {
                offset_ns: utc_ns - i128::from(before_ns.midpoint(after_ns)),
                width_ns: after_ns.saturating_sub(before_ns),
            }
        };
        let narrowest = (0..READINGS).map(|_| reading()).min_by_key(|reading| reading.width_ns);
        narrowest.unwrap_or_else(reading)
    }

    /// The difference in a window that began at this reading and ended at `after`, for times of `kernel_clock`.
    #[must_use]
    pub fn until(self, after: WallReading, kernel_clock: KernelClock) -> WallClock {
        let change_ns = self.offset_ns.abs_diff(after.offset_ns);
        let change_ns = u64::try_from(change_ns).unwrap_or(u64::MAX);
        WallClock {
            offset_ns: self.offset_ns + i128::from(kernel_clock.offset_ns()),
            error_max_ns: (self.width_ns.div_ceil(2).max(after.width_ns.div_ceil(2)))
                .saturating_add(change_ns)
                .saturating_add(kernel_clock.error_max_ns()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_system_clock_is_in_the_error() {
        let before = WallReading { offset_ns: 1_000, width_ns: 10 };
        let after = WallReading { offset_ns: 1_700, width_ns: 31 };
        let clock = before.until(after, KernelClock::default());
        assert_eq!(clock, WallClock { offset_ns: 1_000, error_max_ns: 716 });
    }

    #[test]
    fn the_readings_agree_with_the_system_clock() {
        let clock = WallReading::now().until(WallReading::now(), KernelClock::default());
        let utc = clock.utc(monotonic_ns()).unwrap();
        // 1970 would be a clock that was not read.
        assert!(!utc.starts_with("1970"), "{utc}");
    }
}
