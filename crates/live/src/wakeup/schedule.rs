//! The times of a window, for each thread.

use std::time::Duration;

use super::settings::Length;
use crate::clock::monotonic_ns;

/// Time from the release of the threads to their first due time.
const START_NS: u64 = 20_000_000;

/// The times of a window, ns of the process's CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The thread's first due time.
    pub first_due_ns: u64,
    /// Wake-ups due before this time belong to the warm-up.
    pub window_ns: u64,
    /// The thread ends when it is not due before this time.
    pub end_ns: u64,
}

impl Schedule {
    /// Number of the times `first_ns`, `first_ns + period_ns`, ... before `next_ns` that are in the window.
    pub fn due_in_window(&self, first_ns: u64, next_ns: u64, period_ns: u64) -> u64 {
        // Rounded up: due times before the window do not count.
        let before = |end_ns: u64| end_ns.saturating_sub(first_ns).div_ceil(period_ns);
        before(next_ns.min(self.end_ns)).saturating_sub(before(self.window_ns))
    }
}

/// The schedule of each of `count` threads that begin now. `aligned`: all are due at the same time; otherwise their due
/// times are spread over the period.
pub fn schedules(
    count: usize,
    length: Length,
    warm_up: Duration,
    period_ns: u64,
    aligned: bool,
) -> Vec<Schedule> {
    let start_ns = monotonic_ns() + START_NS;
    let window_ns = start_ns.saturating_add(nanoseconds(warm_up));
    let end_ns = match length {
        Length::Time(time) => window_ns.saturating_add(nanoseconds(time)),
        Length::Command => u64::MAX,
    };
    let phase = |thread: usize| {
        if aligned { 0 } else { period_ns * thread as u64 / count.max(1) as u64 }
    };
    (0..count)
        .map(|thread| Schedule { first_due_ns: start_ns + phase(thread), window_ns, end_ns })
        .collect()
}

/// A time in ns, at most `u64::MAX`.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
