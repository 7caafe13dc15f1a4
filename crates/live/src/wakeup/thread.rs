//! The measured thread of a CPU. It sleeps until a due time, reads the clock, and writes both times to a ring, with the
//! time-stamp counter, which the simulator knows.
//!
//! After each wake-up the next due time is a whole number of periods later, and after the clock's reading. A thread that
//! is late by several periods therefore has one wake-up, and counts the others as missed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use lab::experiment::BenchError;
use rustix::thread::{
    ClockId, clock_nanosleep_absolute, current_timer_slack, set_current_timer_slack,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::schedule::Schedule;
use super::settings::{Policy, Wait};
use crate::bpf::CallerProgram;
use crate::clock::{monotonic_ns, now};
use crate::marks::loop_thread;
use crate::ring::{Ring, Verdict};
use crate::spawn::{no_thread, spawn_thread};
use crate::threads::{ThreadCounts, is_pinned_to, pin, runs_on};

/// A thread whose due time is more than twice this time away sleeps in parts of this length, ns, so that it sees a request
/// to stop.
const SLEEP_PART_NS: u64 = 100_000_000;

/// Configuration of a thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadConfig {
    pub cpu: u32,
    pub policy: Policy,
    pub wait: Wait,
    pub period_ns: u64,
    /// Capacity of the ring, in wake-ups.
    pub ring_records: usize,
}

/// The result that a thread returns.
#[derive(Clone, Copy, Debug)]
pub struct ThreadOutcome {
    /// Number of periods in the window that were over before the thread ran again.
    pub missed: u64,
    /// Page faults and context switches of the thread in the window.
    pub counts: Option<ThreadCounts>,
    /// Whether the thread stayed on its CPU.
    pub stay: Stay,
    /// Whether the thread ended before its schedule's end.
    pub ended_early: bool,
    /// How late the kernel may let the thread's timers expire, ns. 0 in a real-time class.
    pub timer_slack_ns: u64,
}

/// Whether a thread stayed on its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    ToTheEnd,
    /// It left the CPU within the window, and ended then. Its records are from its CPU.
    UntilItLeft,
    /// It may have left and come back: its records may be from another CPU.
    Unknown,
}

/// A thread that waits for its schedule, or runs.
pub struct MeasuredThread {
    pub cpu: u32,
    pub ring: Arc<Ring>,
    /// The thread's number in marks.
    pub number: u32,
    /// The thread's scheduling class.
    pub policy: Policy,
    /// Why this is not the class of the configuration; `None` if it is.
    pub policy_error: Option<String>,
    go: Sender<Schedule>,
    handle: JoinHandle<Option<io::Result<ThreadOutcome>>>,
}

/// What a thread reports when it is ready: its number, and why it has not its scheduling class.
type Ready = Result<(u32, Option<String>), BenchError>;

impl MeasuredThread {
    /// Starts the thread, and waits until it is pinned.
    ///
    /// Fails if the thread may not run on its CPU.
    pub fn start(
        config: ThreadConfig,
        caller: Option<Arc<CallerProgram>>,
    ) -> Result<MeasuredThread, BenchError> {
        let ring = Arc::new(Ring::new(config.ring_records));
        let (ready, ready_receiver) = channel();
        let (go, go_receiver) = channel();
        let (cpu, thread_ring) = (config.cpu, Arc::clone(&ring));
        let body = move || main(config, caller.as_deref(), &thread_ring, &ready, &go_receiver);
        let handle = spawn_thread("irqlab-wakeup", body).map_err(no_thread)?;
        match ready_receiver.recv() {
            Ok(Ok((number, policy_error))) => {
                let policy = if policy_error.is_some() { Policy::Other } else { config.policy };
                Ok(MeasuredThread { cpu, ring, number, policy, policy_error, go, handle })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(BenchError::Failed(format!("the thread on CPU {cpu} died"))),
        }
    }

    /// Lets the thread run. If the thread has died, [`MeasuredThread::join`] reports that.
    pub fn begin(&self, schedule: Schedule) {
        let _ = self.go.send(schedule);
    }

    pub fn is_over(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits for the end of the thread.
    ///
    /// Fails if the thread died, or could not sleep.
    pub fn join(self) -> Result<(Arc<Ring>, ThreadOutcome), BenchError> {
        let cpu = self.cpu;
        let died = || BenchError::Failed(format!("the thread on CPU {cpu} died"));
        let outcome = self.handle.join().ok().flatten().ok_or_else(died)?;
        let failed = |error| BenchError::Failed(format!("the thread on CPU {cpu}: {error}"));
        Ok((self.ring, outcome.map_err(failed)?))
    }
}

/// The main function of a thread. Returns `None` if nobody lets it run.
fn main(
    config: ThreadConfig,
    caller: Option<&CallerProgram>,
    ring: &Ring,
    ready: &Sender<Ready>,
    go: &Receiver<Schedule>,
) -> Option<io::Result<ThreadOutcome>> {
    let placed = pin(config.cpu).map_err(|error| BenchError::Unavailable {
        reason: error.to_string(),
        remedy: Some("-c with CPUs of this process's cpuset".to_owned()),
    });
    let policy_error = config.policy.apply().err().map(|error| error.to_string());
    if policy_error.is_some() {
        let _ = Policy::Other.apply(); // irqlab may have been started in a real-time class.
    }
    // A usual thread's timers may expire up to 50 us later than asked, together with others.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    let number = placed.and_then(|()| Ok((loop_thread(caller)?, policy_error)));
    ready.send(number).ok()?;
    let schedule = go.recv().ok()?;
    Some(run(&config, schedule, ring))
}

/// Sleeps and wakes until the schedule's end, or until the observer asks for the end.
fn run(config: &ThreadConfig, schedule: Schedule, ring: &Ring) -> io::Result<ThreadOutcome> {
    let mut sleeper = Sleeper::new(config.wait)?;
    let (mut due_ns, mut missed) = (schedule.first_due_ns, 0);
    let mut before = None;
    let mut stay = Stay::ToTheEnd;
    while due_ns < schedule.end_ns && sleep_until(&mut sleeper, due_ns, ring)? {
        let (woke_ns, counter) = read_clocks();
        if !runs_on(config.cpu) {
            stay = Stay::UntilItLeft;
            break;
        }
        if due_ns >= schedule.window_ns {
            ring.push([due_ns, woke_ns, counter]);
            before = before.or_else(ThreadCounts::now);
        }
        // The thread's own work counts, too: a due time that is over by now would have no sleep.
        let late_ns = monotonic_ns().saturating_sub(due_ns);
        let periods = (late_ns / config.period_ns).saturating_add(1);
        let missed_from_ns = due_ns.saturating_add(config.period_ns);
        due_ns = due_ns.saturating_add(periods.saturating_mul(config.period_ns));
        missed += schedule.due_in_window(missed_from_ns, due_ns, config.period_ns);
    }
    if stay == Stay::ToTheEnd && !is_pinned_to(config.cpu) {
        stay = Stay::Unknown;
    }
    let ended_early = due_ns < schedule.end_ns;
    let counts = ThreadCounts::now().zip(before).map(|(now, before)| now.since(before));
    // The kernel reports a slack for a real-time thread, too, and does not apply it.
    let is_real_time = Policy::is_real_time_now();
    let timer_slack_ns = if is_real_time { 0 } else { current_timer_slack().unwrap_or(0) };
    Ok(ThreadOutcome { missed, counts, stay, ended_early, timer_slack_ns })
}

/// CLOCK_MONOTONIC, ns, and the time-stamp counter at the middle of its reading.
#[inline]
fn read_clocks() -> (u64, u64) {
    let before = now();
    let ns = monotonic_ns();
    (ns, before + now().saturating_sub(before) / 2)
}

/// Sleeps until `due_ns`, in parts if that is far away. Returns false if the observer asks for the end.
fn sleep_until(sleeper: &mut Sleeper, due_ns: u64, ring: &Ring) -> io::Result<bool> {
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
enum Sleeper {
    Nanosleep,
    TimerFd(OwnedFd),
}

impl Sleeper {
    fn new(wait: Wait) -> io::Result<Sleeper> {
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
    use crate::host::process_cpus;

    const PERIOD_NS: u64 = 1_000_000;

    /// Runs a thread with this schedule, whose times are relative to now.
    fn run_thread(
        wait: Wait,
        [first_due, window, end]: [i64; 3],
    ) -> (Vec<[u64; 3]>, ThreadOutcome) {
        let cpu = process_cpus().permitted[0];
        let config = ThreadConfig {
            cpu,
            policy: Policy::Other,
            wait,
            period_ns: PERIOD_NS,
            ring_records: 1_024,
        };
        let thread = MeasuredThread::start(config, None).unwrap();
        let now_ns = monotonic_ns();
        let at = |relative: i64| now_ns.saturating_add_signed(relative);
        let schedule =
            Schedule { first_due_ns: at(first_due), window_ns: at(window), end_ns: at(end) };
        thread.begin(schedule);
        let (ring, outcome) = thread.join().unwrap();
        let mut records = Vec::new();
        ring.drain(|record| records.push(record));
        (records, outcome)
    }

    #[test]
    fn every_period_of_the_window_has_a_wake_up_or_was_missed() {
        for wait in [Wait::Nanosleep, Wait::TimerFd] {
            let (records, outcome) = run_thread(wait, [5_000_000, 7_500_000, 60_000_000]);
            assert_eq!(outcome.stay, Stay::ToTheEnd, "{wait:?}");
            assert!(records.iter().all(|[due, woke, _]| woke >= due), "{wait:?}");
            // Due at 8, 9, ... 59 ms.
            assert_eq!(records.len() as u64 + outcome.missed, 52, "{wait:?}");
        }
    }

    /// As after SIGSTOP: the thread is late by 3 s at its first due time, before, in and beyond the window.
    #[test]
    fn periods_that_are_over_are_missed_in_the_window_only() {
        let second = 1_000_000_000;
        let (records, outcome) =
            run_thread(Wait::Nanosleep, [-3 * second, -2 * second, 20_000_000]);
        assert!(records.len() <= 20, "the first one was in the warm-up: {}", records.len());
        assert_eq!(records.len() as u64 + outcome.missed, 2_020);
        let (records, outcome) = run_thread(Wait::Nanosleep, [-3 * second, -3 * second, -second]);
        assert!(records[0][1] - records[0][0] >= 3 * second as u64, "{records:?}");
        assert_eq!((records.len(), outcome.missed), (1, 1_999));
    }

    #[test]
    fn a_sleeping_thread_sees_a_request_to_stop() {
        let cpu = process_cpus().permitted[0];
        let period_ns = 1_000_000_000_000;
        let (policy, wait) = (Policy::Other, Wait::Nanosleep);
        let config = ThreadConfig { cpu, policy, wait, period_ns, ring_records: 16 };
        let thread = MeasuredThread::start(config, None).unwrap();
        let first_due_ns = monotonic_ns() + period_ns;
        thread.begin(Schedule { first_due_ns, window_ns: 0, end_ns: u64::MAX });
        thread.ring.stop();
        let (_, outcome) = thread.join().unwrap();
        assert_eq!(outcome.missed, 0);
    }
}
