//! The configuration of the live bench for `wakeup`. The command line sets it.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use lab::noise::KeepDetours;
use lab::wakeup::WakeBy;

use crate::threads::{lowest_priority, real_time, round_robin, usual_class};
use crate::window::Stop;

/// The scheduling class of the measured threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// SCHED_OTHER, the class of usual threads.
    Other,
    /// SCHED_FIFO at a priority.
    Fifo(u32),
    /// SCHED_RR at a priority.
    RoundRobin(u32),
    /// SCHED_IDLE, which runs only if no other thread wants the CPU. For wakers only.
    Idle,
}

impl Policy {
    /// The next lower class: a thread of this class takes the CPU from a thread of the lower class.
    #[must_use]
    pub fn lower(self) -> Policy {
        match self {
            Policy::Fifo(priority @ 2..) => Policy::Fifo(priority - 1),
            Policy::RoundRobin(priority @ 2..) => Policy::RoundRobin(priority - 1),
            Policy::Fifo(_) | Policy::RoundRobin(_) => Policy::Other,
            Policy::Other | Policy::Idle => Policy::Idle,
        }
    }

    /// Whether this thread has a real-time class.
    pub(super) fn is_real_time_now() -> bool {
        // SAFETY: the call takes a number, and changes nothing.
        let class = unsafe { libc::sched_getscheduler(0) };
        matches!(class, libc::SCHED_FIFO | libc::SCHED_RR)
    }

    /// The word of the command line.
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Policy::Other => "other".to_owned(),
            Policy::Idle => "idle".to_owned(),
            Policy::Fifo(priority) => format!("fifo:{priority}"),
            Policy::RoundRobin(priority) => format!("rr:{priority}"),
        }
    }

    /// Gives this thread the class.
    ///
    /// Fails without the rights for a real-time class.
    pub(super) fn apply(self) -> io::Result<()> {
        match self {
            Policy::Other => usual_class(),
            Policy::Idle => lowest_priority(),
            Policy::Fifo(priority) => real_time(priority),
            Policy::RoundRobin(priority) => round_robin(priority),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Other => formatter.write_str("SCHED_OTHER"),
            Policy::Idle => formatter.write_str("SCHED_IDLE"),
            Policy::Fifo(priority) => write!(formatter, "SCHED_FIFO {priority}"),
            Policy::RoundRobin(priority) => write!(formatter, "SCHED_RR {priority}"),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let allowed =
            || "allowed: other, fifo:PRIO or rr:PRIO, as in fifo:95; PRIO is 1 to 99".to_owned();
        if text == "other" {
            return Ok(Policy::Other);
        }
        let (class, priority) = text.split_once(':').ok_or_else(allowed)?;
        let priority = priority.parse().ok().filter(|priority| (1..=99).contains(priority));
        match (class, priority) {
            ("fifo", Some(priority)) => Ok(Policy::Fifo(priority)),
            ("rr", Some(priority)) => Ok(Policy::RoundRobin(priority)),
            _ => Err(allowed()),
        }
    }
}

/// How the thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// clock_nanosleep(2) until an absolute time.
    Nanosleep,
    /// read(2) of a timerfd(2) that expires at an absolute time.
    TimerFd,
}

impl Wait {
    /// The word of the command line and of the settings.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Wait::Nanosleep => "nanosleep",
            Wait::TimerFd => "timerfd",
        }
    }
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Wait, String> {
        [Wait::Nanosleep, Wait::TimerFd]
            .into_iter()
            .find(|wait| wait.word() == text)
            .ok_or_else(|| "allowed: nanosleep, timerfd".to_owned())
    }
}

/// Where a waker runs, and how it wakes its measured thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakerPlace {
    pub cpu: u32,
    pub policy: Policy,
    /// Not [`WakeBy::Timer`].
    pub wake_by: WakeBy,
}

impl WakerPlace {
    /// The place of wakers on `waker_cpu` that wake threads of class `policy` on `cpus`. `None` without a waker. On a
    /// measured CPU, wakers have a lower class, so that the measured thread takes the CPU from them.
    #[must_use]
    pub fn choose(
        wake_by: WakeBy,
        waker_cpu: Option<u32>,
        policy: Policy,
        cpus: &[u32],
    ) -> Option<WakerPlace> {
        let cpu = waker_cpu.filter(|_| wake_by.has_waker())?;
        let policy = if cpus.contains(&cpu) { policy.lower() } else { policy };
        Some(WakerPlace { cpu, policy, wake_by })
    }
}

/// What ends a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The window lasts this long.
    Time(Duration),
    /// The window lasts until the end of the user's command.
    Command,
}

/// Configuration of [`LiveWakeup`](super::LiveWakeup).
#[derive(Clone, Debug)]
pub struct WakeupSettings {
    /// CPUs on which a thread runs.
    pub cpus: Vec<u32>,
    /// CPUs for the observer, irqlab's own thread. Empty: the usable CPUs without a measured thread.
    pub housekeeping: Vec<u32>,
    /// Time between two due times of a thread, ns.
    pub period_ns: u64,
    pub length: Length,
    /// How long the threads run before the window opens.
    pub warm_up: Duration,
    pub policy: Policy,
    /// How the threads or their wakers sleep until a due time.
    pub wait: Wait,
    /// The wakers of the threads. `None` if timers wake the threads.
    pub waker: Option<WakerPlace>,
    /// Whether all threads are due at the same time. Otherwise their due times are spread over the period.
    pub aligned: bool,
    /// Longest exit latency of the idle states that the kernel may use, us; `None`: no limit.
    pub idle_exit_max_us: Option<u32>,
    /// Whether to record the kernel's marks.
    pub trace: bool,
    /// Which single wake-ups of each CPU the sample keeps.
    pub keep: KeepDetours,
    /// Whether the sample has the thread's own readings, to check the bench. Memory grows with the window.
    pub keeps_readings: bool,
    /// The command that runs concurrently with the threads, and its arguments; empty: none.
    pub command: Vec<String>,
    /// Whether the command's output goes to stderr, because the results go to stdout.
    pub command_to_stderr: bool,
    /// The user's request to stop early.
    pub stop: Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_a_class_and_a_priority() {
        assert_eq!("other".parse(), Ok(Policy::Other));
        assert_eq!("fifo:95".parse(), Ok(Policy::Fifo(95)));
        assert_eq!("rr:1".parse(), Ok(Policy::RoundRobin(1)));
        let lower = ["fifo:95", "rr:2", "fifo:1", "other"]
            .map(|text| text.parse::<Policy>().unwrap().lower().to_string());
        assert_eq!(lower, ["SCHED_FIFO 94", "SCHED_RR 1", "SCHED_OTHER", "SCHED_IDLE"]);
        for nonsense in ["", "fifo", "fifo:0", "fifo:100", "rr:x", "deadline:1", "other:1"] {
            assert!(nonsense.parse::<Policy>().is_err(), "{nonsense}");
        }
    }
}
