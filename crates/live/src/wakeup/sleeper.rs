//! Sleeps until the due times of a schedule: the measured thread, or the waker that wakes it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::schedule::{DueGap, MissedPeriods, Schedule};
use super::settings::Wait;
use crate::clock::monotonic_ns;
use crate::ring::{Ring, Verdict};

/// A thread whose due time is more than twice this time away sleeps in parts of this length, ns, so that it sees a request
/// to stop.
const SLEEP_PART_NS: u64 = 100_000_000;

/// The due times of a schedule, one after the other. The next due time is a whole number of periods after the last one,
/// and after the present time. A thread that is late by several periods therefore counts the others as missed.
pub(super) struct DueTimes {
    schedule: Schedule,
    period_ns: u64,
    sleeper: Sleeper,
    /// The present due time, ns.
    due_ns: u64,
    /// The due times in the window that were left out so far.
    pub(super) missed: MissedPeriods,
}

impl DueTimes {
    /// Fails if the kernel has no timer.
    pub(super) fn new(schedule: Schedule, period_ns: u64, wait: Wait) -> io::Result<DueTimes> {
        let (sleeper, due_ns) = (Sleeper::new(wait)?, schedule.first_due_ns);
        let missed = MissedPeriods::none(schedule, period_ns);
        Ok(DueTimes { schedule, period_ns, sleeper, due_ns, missed })
    }

    /// Sleeps until the present due time, and returns it. `None` at the end of the schedule, or if the observer asks for
    /// the end.
    ///
    /// Fails if the kernel refuses.
    pub(super) fn sleep(&mut self, ring: &Ring) -> io::Result<Option<u64>> {
        let is_due = self.is_before_end() && sleep_until(&mut self.sleeper, self.due_ns, ring)?;
        Ok(is_due.then_some(self.due_ns))
    }

    /// Whether the present due time is in the window.
    pub(super) fn is_in_window(&self) -> bool {
        self.due_ns >= self.schedule.window_ns
    }

    /// Whether the schedule has a due time that was not slept for.
    pub(super) fn is_before_end(&self) -> bool {
        self.due_ns < self.schedule.end_ns
    }

    /// Goes on to the next due time after now.
    pub(super) fn advance(&mut self, ring: &Ring) {
        let now_ns = monotonic_ns();
        let late_ns = now_ns.saturating_sub(self.due_ns);
        let periods = (late_ns / self.period_ns).saturating_add(1);
        let from_ns = self.due_ns.saturating_add(self.period_ns);
        self.due_ns = self.due_ns.saturating_add(periods.saturating_mul(self.period_ns));
        let gap = DueGap { from_ns, to_ns: self.due_ns };
        // The observer requests the end, and then reads the clock for the end of the window. Without a request yet, the
        // window ends after `now_ns`.
        if ring.verdict(now_ns) == Verdict::Continue {
            self.missed.add(gap);
        } else {
            self.missed.add_after_request(gap);
        }
    }
}

/// Sleeps until `due_ns`, in parts if that is far away. Returns false if the observer asks for the end.
pub(super) fn sleep_until(sleeper: &mut Sleeper, due_ns: u64, ring: &Ring) -> io::Result<bool> {
    loop {
        let now_ns = monotonic_ns();
        if ring.verdict(now_ns) != Verdict::Continue {
            return Ok(false);
        }
        let is_last = due_ns.saturating_sub(now_ns) <= 2 * SLEEP_PART_NS;
        sleeper.sleep_until(if is_last { due_ns } else { now_ns + SLEEP_PART_NS })?;
        if is_last {
            return Ok(true);
        }
    }
}

/// Sleeps until absolute times of CLOCK_MONOTONIC.
pub(super) enum Sleeper {
    Nanosleep,
    TimerFd(OwnedFd),
}

impl Sleeper {
    pub(super) fn new(wait: Wait) -> io::Result<Sleeper> {
        Ok(match wait {
            Wait::Nanosleep => Sleeper::Nanosleep,
            Wait::TimerFd => {
                Sleeper::TimerFd(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?)
            }
        })
    }

    /// Fails if the kernel refuses.
    fn sleep_until(&mut self, due_ns: u64) -> io::Result<()> {
        let due = Timespec {
            tv_sec: (due_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (due_ns % 1_000_000_000) as _,
        };
        match self {
            Sleeper::Nanosleep => loop {
                match clock_nanosleep_absolute(ClockId::Monotonic, &due) {
                    Err(rustix::io::Errno::INTR) => {}
                    result => return Ok(result?),
                }
            },
            Sleeper::TimerFd(timer) => {
                let once =
                    Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: due };
                timerfd_settime(&*timer, TimerfdTimerFlags::ABSTIME, &once)?;
                let mut expirations = [0; 8];
                loop {
                    match rustix::io::read(&*timer, &mut expirations) {
                        Err(rustix::io::Errno::INTR) => {}
                        result => return Ok(result.map(drop)?),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread with a period of 1 ms is late by 3 s. A command ends the window 1 s after the due time.
    #[test]
    fn periods_after_a_window_that_was_ended_are_not_missed() {
        let second = 1_000_000_000;
        let ring = Ring::new(1);
        let first_due_ns = monotonic_ns() - 3 * second;
        let schedule = Schedule { first_due_ns, window_ns: first_due_ns, end_ns: u64::MAX };
        let mut due_times = DueTimes::new(schedule, 1_000_000, Wait::Nanosleep).unwrap();
        assert_eq!(due_times.sleep(&ring).unwrap(), Some(first_due_ns));
        ring.stop();
        due_times.advance(&ring);
        assert_eq!(due_times.sleep(&ring).unwrap(), None);
        assert_eq!(due_times.missed.count(Some(first_due_ns + second)), 999);
        assert!(due_times.missed.count(None) >= 3_000);
    }

    #[test]
    fn periods_before_a_request_to_stop_are_missed() {
        let ring = Ring::new(1);
        let first_due_ns = monotonic_ns() - 500_500_000;
        let schedule =
            Schedule { first_due_ns, window_ns: first_due_ns, end_ns: first_due_ns + 400_000_000 };
        let mut due_times = DueTimes::new(schedule, 1_000_000, Wait::Nanosleep).unwrap();
        due_times.sleep(&ring).unwrap();
        due_times.advance(&ring);
        ring.stop();
        assert_eq!(due_times.missed.count(Some(monotonic_ns())), 399);
        assert_eq!(due_times.missed.count(None), 399);
    }
}
