//! The measured thread of a CPU. It sleeps until a due time, reads the clock, and writes both times to a ring.
//!
//! After each wake-up the next due time is a whole number of periods later, and after the clock's reading. A thread that
//! is late by several periods therefore has one wake-up, and counts the others as missed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use lab::experiment::BenchError;
use rustix::thread::{ClockId, clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::settings::{Policy, Wait};
use crate::bpf::CallerProgram;
use crate::clock::monotonic_ns;
use crate::marks::loop_thread;
use crate::ring::{Ring, Verdict};
use crate::spawn::{no_thread, spawn_thread};
use crate::threads::{ThreadCounts, is_pinned_to, pin, runs_on};

/// Capacity of a ring, in wake-ups: five seconds of a period of 10 us.
const RING_RECORDS: usize = 1 << 19;

/// Configuration of a thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadConfig {
    pub cpu: u32,
    pub policy: Policy,
    pub wait: Wait,
    pub period_ns: u64,
}

/// The times of a window, ns of the process's CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The thread's first due time.
    pub first_due_ns: u64,
    /// Wake-ups due before this time belong to the warm-up.
    pub window_ns: u64,
    /// The thread ends at its first wake-up from this time on.
    pub end_ns: u64,
}

/// The result that a thread returns.
#[derive(Clone, Copy, Debug)]
pub struct ThreadOutcome {
    /// Number of periods in the window that were over before the thread ran again.
    pub missed: u64,
    /// Page faults and context switches of the thread in the window.
    pub counts: Option<ThreadCounts>,
    /// Whether the thread stayed on its CPU.
    pub stayed: bool,
}

/// A thread that waits for its schedule, or runs.
pub struct MeasuredThread {
    pub cpu: u32,
    pub ring: Arc<Ring>,
    /// The thread's number in marks.
    pub number: u32,
    /// Why the thread has not its scheduling class; `None` if it has.
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
        let ring = Arc::new(Ring::new(RING_RECORDS));
        let (ready, ready_receiver) = channel();
        let (go, go_receiver) = channel();
        let (cpu, thread_ring) = (config.cpu, Arc::clone(&ring));
        let body = move || main(config, caller.as_deref(), &thread_ring, &ready, &go_receiver);
        let handle = spawn_thread("irqlab-wakeup", body).map_err(no_thread)?;
        match ready_receiver.recv() {
            Ok(Ok((number, policy_error))) => {
                Ok(MeasuredThread { cpu, ring, number, policy_error, go, handle })
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
    loop {
        sleeper.sleep_until(due_ns)?;
        let woke_ns = monotonic_ns();
        if !runs_on(config.cpu) {
            return Ok(ThreadOutcome { missed, counts: None, stayed: false });
        }
        let is_measured = due_ns >= schedule.window_ns;
        if is_measured && woke_ns <= schedule.end_ns {
            ring.push([due_ns, woke_ns, 0]);
        }
        if woke_ns >= schedule.end_ns || ring.verdict(woke_ns) != Verdict::Continue {
            let counts = ThreadCounts::now().zip(before).map(|(now, before)| now.since(before));
            return Ok(ThreadOutcome { missed, counts, stayed: is_pinned_to(config.cpu) });
        }
        if is_measured && before.is_none() {
            before = ThreadCounts::now();
        }
        // The thread's own work counts, too: a due time that is over by now would have no sleep.
        let late_ns = monotonic_ns().saturating_sub(due_ns);
        let periods = late_ns / config.period_ns + 1;
        missed += if is_measured { periods - 1 } else { 0 };
        due_ns = due_ns.saturating_add(periods.saturating_mul(config.period_ns));
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

    fn config(wait: Wait) -> ThreadConfig {
        let cpu = process_cpus().permitted[0];
        ThreadConfig { cpu, policy: Policy::Other, wait, period_ns: 1_000_000 }
    }

    /// Runs a thread whose first due time is over by `late_ns`, for this time.
    fn records(wait: Wait, late_ns: u64, length_ns: u64) -> (Vec<[u64; 3]>, ThreadOutcome) {
        let thread = MeasuredThread::start(config(wait), None).unwrap();
        let now_ns = monotonic_ns();
        let first_due_ns = now_ns + 5_000_000 - late_ns;
        thread.begin(Schedule { first_due_ns, window_ns: 0, end_ns: now_ns + length_ns });
        let (ring, outcome) = thread.join().unwrap();
        let mut records = Vec::new();
        ring.drain(|record| records.push(record));
        (records, outcome)
    }

    #[test]
    fn every_period_has_a_wake_up_or_was_missed() {
        for wait in [Wait::Nanosleep, Wait::TimerFd] {
            let (records, outcome) = records(wait, 0, 60_000_000);
            let first_ns = records[0][0];
            let last_ns = records[records.len() - 1][0];
            let periods = (last_ns - first_ns) / 1_000_000 + 1;
            assert!(outcome.stayed, "{wait:?}");
            assert!(records.iter().all(|[due, woke, _]| woke >= due), "{wait:?}");
            // The thread may have missed periods after its last record, too.
            let found = records.len() as u64 + outcome.missed;
            assert!(found >= periods && records.len() as u64 <= periods, "{found} {periods}");
        }
    }

    #[test]
    fn a_thread_that_is_late_by_many_periods_has_one_wake_up() {
        let (records, outcome) = records(Wait::Nanosleep, 3_000_000_000, 20_000_000);
        assert!(records[0][1] - records[0][0] >= 2_990_000_000, "{records:?}");
        assert!(outcome.missed >= 2_990, "{outcome:?}");
        assert!(records[1][0] > records[0][1]);
    }
}
