//! The thread that wakes a measured thread, with `--wake-by futex`, `eventfd` and `packet`. It sleeps until a due time, reads the
//! clock, and wakes the measured thread. A waker that is late itself does not make the measured thread late: the lateness
//! begins when the waker reads the clock.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use lab::experiment::BenchError;

use super::channel::WakeChannel;
use super::schedule::{MissedPeriods, Schedule};
use super::settings::{Policy, Wait};
use super::sleeper::DueTimes;
use super::thread_class::{apply_policy, timer_slack_now_ns};
use crate::marks::loop_thread;
use crate::ring::Ring;
use crate::spawn::{no_thread, spawn_thread};
use crate::threads::{is_pinned_to, pin, runs_on};

/// Name of the waker's thread. The tables have it if the waker loses its CPU and gets it back.
const NAME: &str = "irqlab-waker";

/// Configuration of a waker.
#[derive(Clone, Copy, Debug)]
pub(super) struct WakerConfig {
    pub(super) cpu: u32,
    pub(super) policy: Policy,
    pub(super) wait: Wait,
    pub(super) period_ns: u64,
}

/// The result that a waker returns.
#[derive(Clone, Copy, Debug)]
pub struct WakerOutcome {
    /// Number of signals in the window that found the channel full. Their times are unknown.
    pub(super) untimed: u64,
    /// Due times in the window without a signal, because the waker was late itself.
    pub(super) missed: MissedPeriods,
    /// Whether the waker ended before its schedule's end.
    pub(super) ended_early: bool,
    pub(super) timer_slack_ns: u64,
    /// Whether the waker left its CPU, and ended then.
    pub(super) has_left: bool,
    /// Whether the waker may run only on its CPU at its end.
    pub is_pinned: bool,
}

/// A waker that waits for its schedule, or runs.
pub struct Waker {
    pub cpu: u32,
    /// The kernel's number of the thread, in this process's PID namespace.
    pub number: u32,
    /// The waker's scheduling class.
    pub policy: Policy,
    /// Why this is not the class of the configuration; `None` if it is.
    pub policy_error: Option<String>,
    go: Sender<Schedule>,
    handle: JoinHandle<Option<io::Result<WakerOutcome>>>,
}

type Ready = Result<(u32, Option<String>), BenchError>;

impl Waker {
    /// Starts the waker, and waits until it is pinned. `ring`: the ring of the measured thread, which carries the
    /// observer's request to end.
    ///
    /// Fails if the waker may not run on its CPU.
    pub(super) fn start(
        config: WakerConfig,
        to_thread: Arc<WakeChannel>,
        ring: Arc<Ring>,
    ) -> Result<Waker, BenchError> {
        let (ready, ready_receiver) = channel();
        let (go, go_receiver) = channel();
        let body = move || main(config, &to_thread, &ring, &ready, &go_receiver);
        let handle = spawn_thread(NAME, body).map_err(no_thread)?;
        let cpu = config.cpu;
        match ready_receiver.recv() {
            Ok(Ok((number, policy_error))) => {
                let policy = if policy_error.is_some() { Policy::Other } else { config.policy };
                Ok(Waker { cpu, number, policy, policy_error, go, handle })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(died(cpu)),
        }
    }

    /// Lets the waker run. If it has died, [`Waker::join`] reports that.
    pub(super) fn begin(&self, schedule: Schedule) {
        let _ = self.go.send(schedule);
    }

    pub(super) fn is_over(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits for the end of the waker.
    ///
    /// Fails if it died, could not sleep, or could not wake the thread.
    pub(super) fn join(self) -> Result<WakerOutcome, BenchError> {
        let cpu = self.cpu;
        let outcome = self.handle.join().ok().flatten().ok_or_else(|| died(cpu))?;
        outcome.map_err(|error| BenchError::Failed(format!("the waker on CPU {cpu}: {error}")))
    }
}

fn died(cpu: u32) -> BenchError {
    BenchError::Failed(format!("the waker on CPU {cpu} died"))
}

/// The main function of a waker. Returns `None` if nobody lets it run.
fn main(
    config: WakerConfig,
    to_thread: &WakeChannel,
    ring: &Ring,
    ready: &Sender<Ready>,
    go: &Receiver<Schedule>,
) -> Option<io::Result<WakerOutcome>> {
    let _closing = to_thread.closing();
    let placed = pin(config.cpu).map_err(|error| BenchError::Unavailable {
        reason: error.to_string(),
        remedy: Some("--waker-cpu with a CPU of this process's cpuset".to_owned()),
    });
    let policy_error = apply_policy(config.policy);
    let number = placed.and_then(|()| Ok((loop_thread(None)?, policy_error)));
    ready.send(number).ok()?;
    let schedule = go.recv().ok()?;
    Some(run(&config, schedule, to_thread, ring))
}

/// Wakes the measured thread at each due time, until the schedule's end, or until the observer or the measured thread
/// ends it.
fn run(
    config: &WakerConfig,
    schedule: Schedule,
    to_thread: &WakeChannel,
    ring: &Ring,
) -> io::Result<WakerOutcome> {
    let mut due_times = DueTimes::new(schedule, config.period_ns, config.wait)?;
    let (mut untimed, mut untimed_before, mut has_left) = (0, 0, false);
    while let Some(due_ns) = due_times.sleep(ring)? {
        has_left = !runs_on(config.cpu);
        if has_left || to_thread.is_closed() {
            break;
        }
        to_thread.send(due_ns)?;
        let untimed_now = to_thread.untimed();
        if due_times.is_in_window() {
            untimed += untimed_now - untimed_before;
        }
        untimed_before = untimed_now;
        due_times.advance(ring);
    }
    Ok(WakerOutcome {
        untimed,
        missed: due_times.missed,
        ended_early: due_times.is_before_end(),
        timer_slack_ns: timer_slack_now_ns(),
        has_left,
        is_pinned: is_pinned_to(config.cpu),
    })
}
