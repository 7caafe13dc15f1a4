//! The time of day of an event, for tickets and logs of other programs: the system clock, related to the clock of a
//! window.

use record::Timestamp;

/// The difference between the system clock and the clock of a window's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// UTC since 1970 minus the window's clock, ns.
    pub offset_ns: i128,
    /// Largest error of `offset_ns`: how far apart the clocks were read, and how much their difference changed during the
    /// window. The error of the system clock itself is not known.
    pub error_max_ns: u64,
}

impl WallClock {
    /// UTC at a time of the window's clock, as in `2026-11-21T07:50:41.000000123Z`. `None` if there is no such date.
    #[must_use]
    pub fn utc(&self, at_ns: u64) -> Option<String> {
        let since_1970_ns = self.offset_ns.checked_add(i128::from(at_ns))?;
        Timestamp::from_nanosecond(since_1970_ns).ok().map(|time| format!("{time:.9}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_window_has_a_date() {
        let clock = WallClock { offset_ns: 1_700_000_000_000_000_000, error_max_ns: 5 };
        assert_eq!(clock.utc(123).as_deref(), Some("2023-11-14T22:13:20.000000123Z"));
        assert_eq!(WallClock { offset_ns: i128::MAX, ..clock }.utc(1), None);
    }
}
