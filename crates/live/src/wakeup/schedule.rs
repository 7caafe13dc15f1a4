//! When each thread of `wakeup` is due, when its warm-up and its window end, and which due times it missed. The bench
//! makes the schedules, and starts the threads right after.

use std::time::Duration;

use super::settings::Length;
use crate::clock::monotonic_ns;

/// Time from making the schedules to the first due time. All threads must run by then; one that does not misses periods
/// of its warm-up.
const START_NS: u64 = 20_000_000;

/// The times of one thread's measurement, ns of the process's CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The thread's first due time.
    pub first_due_ns: u64,
    /// Start of the window. Wake-ups due before this time belong to the warm-up.
    pub window_ns: u64,
    /// End of the window. A thread that is next due at this time or later ends. `u64::MAX`: a request to stop ends it.
    pub end_ns: u64,
}

impl Schedule {
    /// Number of due times in the window: `first_ns` and every period after it, before `next_ns`.
    pub fn due_in_window(&self, first_ns: u64, next_ns: u64, period_ns: u64) -> u64 {
        // Rounded up: due times before the window do not count.
        let before = |end_ns: u64| end_ns.saturating_sub(first_ns).div_ceil(period_ns);
        before(next_ns.min(self.end_ns)).saturating_sub(before(self.window_ns))
    }
}

/// Due times that a late thread skipped: `from_ns`, and every period after it before `to_ns`.
#[derive(Clone, Copy, Debug)]
pub struct DueGap {
    pub from_ns: u64,
    pub to_ns: u64,
}

/// The number of due times in a window that a thread skipped.
#[derive(Clone, Copy, Debug)]
pub struct MissedPeriods {
    schedule: Schedule,
    period_ns: u64,
    /// The number of due times that had passed before a request to stop.
    counted: u64,
    /// The last gap that the thread noticed after a request to stop. It can begin before the end of the window, and end
    /// after it.
    after_request: Option<DueGap>,
}

impl MissedPeriods {
    pub fn none(schedule: Schedule, period_ns: u64) -> MissedPeriods {
        MissedPeriods { schedule, period_ns, counted: 0, after_request: None }
    }

    /// Adds due times that had passed before a request to stop.
    pub fn add(&mut self, gap: DueGap) {
        self.counted += self.schedule.due_in_window(gap.from_ns, gap.to_ns, self.period_ns);
    }

    /// Adds due times that had passed when a thread saw a request to stop.
    pub fn add_after_request(&mut self, gap: DueGap) {
        // Only the last gap can reach beyond the request. An earlier one had passed before it.
        if let Some(earlier) = self.after_request.replace(gap) {
            self.add(earlier);
        }
    }

    /// The number of missed periods in a window that a request ended at `stopped_ns`. `None`: the window ended by itself.
    pub fn count(&self, stopped_ns: Option<u64>) -> u64 {
        let end_ns = self.schedule.end_ns.min(stopped_ns.unwrap_or(u64::MAX));
        let schedule = Schedule { end_ns, ..self.schedule };
        let after_request = self
            .after_request
            .map_or(0, |gap| schedule.due_in_window(gap.from_ns, gap.to_ns, self.period_ns));
        self.counted + after_request
    }
}

/// Makes a schedule for each of `count` threads. The warm-up begins shortly, the window follows it, and both are the same
/// for all threads. `aligned`: all threads are due at the same times. Otherwise their first due times are spread evenly
/// over one period.
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
