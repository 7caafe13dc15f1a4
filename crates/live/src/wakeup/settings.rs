//! The configuration of the live bench for `wakeup`. The command line sets it.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use lab::noise::KeepDetours;
use lab::wakeup::WakeBy;
use signalling::{TimeText, parse_time_ns};

use super::disk::DiskFile;
use crate::marks::Senders;
use crate::threads::{deadline, lowest_priority, real_time, round_robin, usual_class};
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
    /// SCHED_DEADLINE, which the kernel prefers to all real-time priorities.
    Deadline(DeadlineTimes),
    /// SCHED_IDLE, which runs only if no other thread wants the CPU. For wakers only.
    Idle,
}

impl Policy {
    /// Whether Linux holds back threads of this class that wake every `period_ns`: one that wakes after its DEADLINE, and
    /// before PERIOD has passed since its last activation, waits for the latter (kernel/sched/deadline.c,
    /// `dl_check_constrained_dl`).
    #[must_use]
    pub fn holds_back_threads_of_period(self, period_ns: u64) -> bool {
        matches!(self, Policy::Deadline(times)
            if times.deadline_ns < times.period_ns && times.period_ns >= period_ns)
    }

    /// Whether this is SCHED_DEADLINE.
    #[must_use]
    pub fn is_deadline(self) -> bool {
        matches!(self, Policy::Deadline(_))
    }

    /// The next lower class: a thread of this class takes the CPU from a thread of the lower class.
    #[must_use]
    pub fn lower(self) -> Policy {
        match self {
            Policy::Fifo(priority @ 2..) => Policy::Fifo(priority - 1),
            Policy::RoundRobin(priority @ 2..) => Policy::RoundRobin(priority - 1),
            Policy::Deadline(_) => Policy::Fifo(PRIORITY_MAX),
            Policy::Fifo(_) | Policy::RoundRobin(_) => Policy::Other,
            Policy::Other | Policy::Idle => Policy::Idle,
        }
    }

    /// Whether this thread has a real-time class.
    pub(super) fn is_real_time_now() -> bool {
        // SAFETY: the call takes a number, and changes nothing.
        let class = unsafe { libc::sched_getscheduler(0) };
        matches!(class, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
    }

    /// The word of the command line.
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Policy::Other => "other".to_owned(),
            Policy::Idle => "idle".to_owned(),
            Policy::Fifo(priority) => format!("fifo:{priority}"),
            Policy::RoundRobin(priority) => format!("rr:{priority}"),
            Policy::Deadline(times) => format!("deadline:{times}"),
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
            Policy::Deadline(times) => {
                deadline(times.runtime_ns, times.deadline_ns, times.period_ns)
            }
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
            Policy::Deadline(times) => write!(formatter, "SCHED_DEADLINE {times}"),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    /// The reverse of [`Policy::word`], but for `idle`, which users cannot ask for: only wakers have it.
    ///
    /// Fails for a priority outside of 1 to 99, and for times that `DeadlineTimes` does not accept.
    fn from_str(text: &str) -> Result<Policy, String> {
        let allowed = || {
            "allowed: other, fifo:PRIO or rr:PRIO, as in fifo:95 (PRIO is 1 to 99), or deadline:RUNTIME,DEADLINE,PERIOD, \
             as in deadline:200us,1ms,1ms"
                .to_owned()
        };
        if text == "other" {
            return Ok(Policy::Other);
        }
        let (class, argument) = text.split_once(':').ok_or_else(allowed)?;
        if class == "deadline" {
            return argument.parse().map(Policy::Deadline);
        }
        let is_allowed = |priority: &u32| (1..=PRIORITY_MAX).contains(priority);
        let priority = argument.parse().ok().filter(is_allowed);
        match (class, priority) {
            ("fifo", Some(priority)) => Ok(Policy::Fifo(priority)),
            ("rr", Some(priority)) => Ok(Policy::RoundRobin(priority)),
            _ => Err(allowed()),
        }
    }
}

/// The highest real-time priority.
const PRIORITY_MAX: u32 = 99;
/// The shortest runtime that the kernel accepts, ns.
const RUNTIME_NS_MIN: u64 = 1_024;
/// The longest period that irqlab accepts, ns. The kernel's own limit is a setting.
const DEADLINE_PERIOD_NS_MAX: u64 = 10_000_000_000;

/// The times of SCHED_DEADLINE: in each period, a thread may run for the runtime, and gets it before the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineTimes {
    pub runtime_ns: u64,
    pub deadline_ns: u64,
    pub period_ns: u64,
}

impl fmt::Display for DeadlineTimes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeadlineTimes { runtime_ns, deadline_ns, period_ns } = *self;
        let [runtime, deadline, period] = [runtime_ns, deadline_ns, period_ns].map(TimeText);
        write!(formatter, "{runtime},{deadline},{period}")
    }
}

/// A whole number with a unit, in ns. `None` for other text.
fn whole_time_ns(text: &str) -> Option<u64> {
    parse_time_ns(text).ok().filter(|_| !text.contains('.'))
}

impl FromStr for DeadlineTimes {
    type Err = String;

    fn from_str(text: &str) -> Result<DeadlineTimes, String> {
        let times: Option<Vec<u64>> = text.split(',').map(whole_time_ns).collect();
        let Some([runtime_ns, deadline_ns, period_ns]) = times
            .as_deref()
            .and_then(|times| times.first_chunk().filter(|_| times.len() == 3))
            .copied()
        else {
            return Err("allowed: deadline:RUNTIME,DEADLINE,PERIOD with whole numbers, as in deadline:200us,1ms,1ms".to_owned());
        };
        let is_ordered = runtime_ns <= deadline_ns && deadline_ns <= period_ns;
        if runtime_ns < RUNTIME_NS_MIN || !is_ordered || period_ns > DEADLINE_PERIOD_NS_MAX {
            return Err("allowed: a RUNTIME of 1024ns or more, a DEADLINE not below it, and a PERIOD not below the DEADLINE and of \
                        at most 10s"
                .to_owned());
        }
        Ok(DeadlineTimes { runtime_ns, deadline_ns, period_ns })
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
    /// A kind that has a waker.
    pub wake_by: WakeBy,
}

impl WakerPlace {
    /// The place of wakers on `waker_cpu` that wake threads of class `policy` on `cpus`. `None` without a waker. On a
    /// measured CPU, wakers have a lower class, so that the measured thread takes the CPU from them. The wakers of threads
    /// of SCHED_DEADLINE have a lower class on any CPU: the kernel lets no thread of this class stay on one CPU of several.
    #[must_use]
    pub fn choose(
        wake_by: WakeBy,
        waker_cpu: Option<u32>,
        policy: Policy,
        cpus: &[u32],
    ) -> Option<WakerPlace> {
        let cpu = waker_cpu.filter(|_| wake_by.has_waker())?;
        let is_lower = cpus.contains(&cpu) || policy.is_deadline();
        let policy = if is_lower { policy.lower() } else { policy };
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
    /// The wakers of the threads. `None` without wakers.
    pub waker: Option<WakerPlace>,
    /// The disk that the threads read at their due times, and whose interrupts wake them. Not with wakers; needs `trace`.
    pub disk: Option<Arc<DiskFile>>,
    /// Whether all threads are due at the same time. Otherwise their due times are spread over the period.
    pub aligned: bool,
    /// Longest exit latency of the idle states that the kernel may use, us; `None`: no limit.
    pub idle_exit_max_us: Option<u32>,
    /// Whether to record the kernel's marks.
    pub trace: bool,
    /// Whether to record who woke the threads, if marks are recorded.
    pub wakers: bool,
    /// Whether the marks name the senders of interrupts.
    pub senders: Senders,
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

    #[test]
    fn a_deadline_has_three_times_in_order() {
        let policy = |text: &str| text.parse::<Policy>();
        let times =
            DeadlineTimes { runtime_ns: 200_000, deadline_ns: 500_000, period_ns: 1_000_000 };
        assert_eq!(policy("deadline:200us,500us,1ms"), Ok(Policy::Deadline(times)));
        let held_back = |period_ns| Policy::Deadline(times).holds_back_threads_of_period(period_ns);
        assert_eq!([1_000_000, 1_000_001].map(held_back), [true, false]);
        for text in ["deadline:200us,500us,1ms", "deadline:1024ns,1024ns,1s"] {
            assert_eq!(policy(text).unwrap().word(), text);
        }
        assert_eq!(
            policy("deadline:200000ns,1ms,1ms").unwrap().to_string(),
            "SCHED_DEADLINE 200us,1ms,1ms"
        );
        for nonsense in [
            "1ms,1ms",
            "1ms,1ms,1ms,1ms",
            "2ms,1ms,3ms",
            "1ms,3ms,2ms",
            "1us,1ms,1ms",
            "1ms,1ms,11s",
            "1,1,1",
            "ms,ms,ms",
            "1.5ms,2ms,2ms",
            "-1ms,1ms,1ms",
        ] {
            assert!(policy(&format!("deadline:{nonsense}")).is_err(), "{nonsense}");
        }
        let waker =
            |cpu| WakerPlace::choose(WakeBy::Futex, Some(cpu), Policy::Deadline(times), &[1]);
        assert_eq!([0, 1].map(|cpu| waker(cpu).unwrap().policy), [Policy::Fifo(99); 2]);
    }
}
