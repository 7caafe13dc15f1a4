//! The timer stimulus: a timer that expires while no thread waits for it. The interrupt does nothing else.

use lab::experiment::BenchError;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::super::interrupt_line::{CountedAs, TICK};
use super::RaiseInterrupt;

/// A timerfd. Its timer runs on the CPU that sets it.
#[derive(Debug)]
pub struct Timer {
    timer: OwnedFd,
}

impl Timer {
    /// Fails if the kernel has no timerfd.
    pub fn new() -> Result<Self, BenchError> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        timerfd_create(TimerfdClockId::Monotonic, flags)
            .map(|timer| Timer { timer })
            .map_err(|error| BenchError::unavailable(format!("timerfd_create failed: {error}")))
    }
}

impl RaiseInterrupt for Timer {
    fn counted_as(&self) -> CountedAs {
        CountedAs::Line(TICK)
    }

    fn schedule(&mut self, delay: Duration) -> io::Result<()> {
        let value = Timespec {
            tv_sec: delay.as_secs() as i64,
            tv_nsec: i64::from(delay.subsec_nanos().max(1)),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let disarmed = Itimerspec { it_interval: zero, it_value: zero };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &disarmed)?;
        Ok(())
    }

    fn is_timed(&self) -> bool {
        true
    }

    fn method(&self) -> String {
        "timerfd, one shot".to_owned()
    }
}
