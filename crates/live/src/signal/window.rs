//! The threads of one measured window: a sender on one CPU, a receiver on another, and perhaps a CPU-bound job
//! on the receiver's CPU. All rigs run their windows here, by [`WindowSetup::run`].
//!
//! The result has the measurements of sender and receiver, and the activity of the receiver's CPU in the window. Before
//! the window, a shorter control measures the job without events.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lab::experiment::BenchError;
use lab::signal::{Activity, Leftover, Load};

use super::arrivals::{now_ns, spin_until};
use super::background::BackgroundJob;
use super::counts::{KernelCounts, PollCounter};
use crate::host::Root;
use crate::spawn::{no_thread, spawn_scoped};
use crate::threads::{CpuClock, check_pinned, pin, switches_of_thread};
use crate::window::{BenchPhase, WindowEdge};

/// The control lasts for the window's length divided by this. It measures the job without events.
const CONTROL_PART: u32 = 3;
/// Time between the receiver's start and the window. The receiver reaches its first wait meanwhile.
const START_UP_NS: u64 = 2_000_000;
/// After the window, the missing events count as dropped if none is handled for this time.
const NO_PROGRESS_NS: u64 = 50_000_000;
/// Time between two attempts to wake the receiver.
const WAKE_NS: u64 = 1_000;

/// The configuration that windows of all kinds have: of events, bulk data and round trips.
#[derive(Clone)]
pub struct WindowSetup {
    pub sender_cpu: u32,
    /// CPU of the receiver and of the job.
    pub receiver_cpu: u32,
    /// The load on the receiver's CPU.
    pub load: Load,
    /// Length of the window.
    pub length: Duration,
    /// The kernel's threads that handle packets on the receiver's CPU: ksoftirqd, and NAPI's
    /// threads if NAPI is threaded. Threads that were not found are absent.
    pub softirq_threads: Vec<CpuClock>,
    /// Counter of the NAPI polls on the receiver's CPU; `None` if they cannot be counted.
    pub polls: Option<Arc<PollCounter>>,
    /// Interrupt lines of the disk, by the kernel's numbers; `None` without a disk, or if they are unknown.
    pub disk_irqs: Option<Arc<[u32]>>,
    /// Root of the files with the kernel's counts.
    pub root: Root,
    /// The simulator's observer of the window; `None` on a real machine.
    pub observer: Option<Observer>,
    /// Extra time between the control and the window, ns. A simulated machine is deterministic; the delay
    /// makes its repetitions start at different phases of the kernel's tick.
    pub delay_ns: u64,
}

/// Marks control and window for the simulator that runs this machine. With an observer, the control always runs,
/// even without a job: the simulator expects it as the first window.
#[derive(Clone, Copy, Debug)]
pub struct Observer {
    /// Called at both edges of the control and of the window.
    pub at_edge: fn(WindowEdge),
    /// Called before the warm-up and the control, and after the window.
    pub at_phase: fn(BenchPhase),
}

/// A counter with one writer, on a separate cache line.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, number: u64) {
        // Load and store suffice, because only one thread writes.
        self.0.store(self.0.load(Relaxed) + number, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The state that sender and receiver share in a window. Only the receiver counts; the sender's thread closes.
#[derive(Default)]
pub struct SharedCounts {
    handled: Counter,
    signals: Counter,
    closed: AtomicBool,
}

impl SharedCounts {
    /// The receiver has handled this number of further events, or bytes.
    pub fn handled(&self, number: u64) {
        self.handled.add(number);
    }

    /// A signal (an interrupt or a clock tick) has reached the receiver.
    pub fn signalled(&self) {
        self.signals.add(1);
    }

    /// Whether the sender has ended, so that the receiver must end too.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Events or bytes that were handled so far.
    pub fn handled_so_far(&self) -> u64 {
        self.handled.get()
    }

    /// Wakes the receiver until it has handled `sent` events or bytes, or makes no more progress.
    fn drain(&self, sent: u64, wake: impl Fn()) {
        let mut handled = self.handled_so_far();
        let mut give_up_ns = now_ns() + NO_PROGRESS_NS;
        while handled < sent {
            wake();
            let now = spin_until(now_ns() + WAKE_NS, |_| {});
            let handled_now = self.handled_so_far();
            if handled_now != handled {
                (handled, give_up_ns) = (handled_now, now + NO_PROGRESS_NS);
            } else if now >= give_up_ns {
                return;
            }
        }
    }
}

/// Closes the counts when it is dropped, so that the receiver ends, also after a panic of the sender's thread.
struct CloseOnDrop<'a>(&'a SharedCounts);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.closed.store(true, Relaxed);
    }
}

/// The result of the sender's part of a window.
pub struct Sent<T> {
    /// Events or bytes that were sent, in the unit of [`SharedCounts::handled`].
    pub number: u64,
    /// The sender's measurement.
    pub result: T,
}

/// The results of a window.
pub struct WindowOutcome<S, R> {
    /// The sender's measurement.
    pub sender: S,
    /// The receiver's measurement.
    pub receiver: R,
    /// Events or bytes that were handled within the window.
    pub handled: u64,
    /// Events or bytes that were handled within the window and after it.
    pub handled_in_all: u64,
    /// The activity of the receiver's CPU in the window.
    pub activity: Activity,
}

/// What the sender's thread needs to read the receiver's counts.
struct ReceiverThread {
    clock: CpuClock,
    tid: rustix::thread::Pid,
}

/// The readings at an edge of the window that are quick to take. The slow ones are [`KernelCounts`].
struct EdgeReadings {
    /// CLOCK_MONOTONIC.
    at_ns: u64,
    /// Iterations of the job.
    iterations: u64,
    /// CPU time of the job.
    job_ns: u64,
    /// CPU time of all softirq threads; `None` if none is known.
    softirq_thread_ns: Option<u64>,
    /// Events or bytes that were handled.
    handled: u64,
    /// Signals that the receiver got.
    signals: u64,
    /// CPU time of the receiver.
    receiver_ns: u64,
}

fn failed(what: &str, error: &io::Error) -> BenchError {
    BenchError::Failed(format!("{what}: {error}"))
}

impl WindowSetup {
    /// Runs the window. All closures but `wake` run once.
    ///
    /// - `enter` runs first, on the sender's thread, before the control.
    /// - `receive` runs on the receiver's CPU until the [`SharedCounts`] are closed.
    /// - `send` runs on the sender's CPU until the given time, ns of CLOCK_MONOTONIC.
    /// - `wake` makes a waiting receiver check whether the counts are closed. It may run at any time.
    ///
    /// Fails with the error of a thread; the receiver's error comes first.
    pub fn run<S: Send, R: Send>(
        &self,
        enter: impl FnOnce() -> Result<(), BenchError> + Send,
        send: impl FnOnce(&SharedCounts, u64) -> io::Result<Sent<S>> + Send,
        receive: impl FnOnce(&SharedCounts) -> io::Result<R> + Send,
        wake: impl Fn() + Sync,
    ) -> Result<WindowOutcome<S, R>, BenchError> {
        let shared = SharedCounts::default();
        let job = BackgroundJob::default();
        let (ready, ready_receiver) = mpsc::channel();
        let (go, go_receiver) = mpsc::channel();
        let (shared, job, wake) = (&shared, &job, &wake);
        std::thread::scope(|scope| {
            let receiver = spawn_scoped(scope, "irqlab-receiver", move || {
                let prepared = pin(self.receiver_cpu).and_then(|()| CpuClock::of_this_thread());
                let clock = prepared.map_err(|error| failed("the receiver's thread", &error))?;
                let receiver = ReceiverThread { clock, tid: rustix::thread::gettid() };
                // The default timer slack of 50 us would make every tick of a clocked scheme late.
                let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
                let _ = ready.send(receiver);
                drop(ready);
                if go_receiver.recv().is_err() {
                    return Ok(None); // The sender failed, and its error has the reason.
                }
                let received = receive(shared).map_err(|error| failed("receiving", &error))?;
                check_pinned(self.receiver_cpu).map_err(|error| failed("receiving", &error))?;
                Ok(Some(received))
            });
            let receiver = receiver.map_err(no_thread)?;
            // From here on each error drops `go`, which makes the receiver end without receiving.
            let work = move || job.run(self.receiver_cpu, self.load);
            let worker = (self.load != Load::Idle)
                .then(|| spawn_scoped(scope, "irqlab-job", work).map_err(no_thread))
                .transpose()?;
            let sender = spawn_scoped(scope, "irqlab-sender", move || {
                let _close = CloseOnDrop(shared);
                self.send(shared, job, enter, &ready_receiver, &go, (send, wake))
            });
            let sender = sender.map_err(|error| {
                job.stop();
                no_thread(error)
            })?;
            let sent = sender.join().unwrap_or_else(|_| Err(panicked("sender")));
            while !receiver.is_finished() {
                wake();
                std::thread::sleep(Duration::from_millis(1));
            }
            job.stop();
            let received = receiver.join().unwrap_or_else(|_| Err(panicked("receiver")));
            if let Some(worker) = worker {
                let ended = worker.join().map_err(|_| panicked("background job"))?;
                ended.map_err(|error| failed("the background job", &error))?;
            }
            // The receiver's error first, because it may have caused the sender's error.
            let received = received?;
            let (sender, handled, activity) = sent?;
            let receiver = received.ok_or_else(|| ended_early("sender"))?;
            let handled_in_all = shared.handled_so_far();
            Ok(WindowOutcome { sender, receiver, handled, handled_in_all, activity })
        })
    }

    /// The sender's thread: the control, the window with its readings at both edges, and the wait for the last
    /// events. Returns the sender's measurement, the events or bytes handled within the window, and the activity.
    fn send<S>(
        &self,
        shared: &SharedCounts,
        job: &BackgroundJob,
        enter: impl FnOnce() -> Result<(), BenchError>,
        ready_receiver: &mpsc::Receiver<ReceiverThread>,
        go: &mpsc::Sender<()>,
        (send, wake): (impl FnOnce(&SharedCounts, u64) -> io::Result<Sent<S>>, impl Fn()),
    ) -> Result<(S, u64, Activity), BenchError> {
        pin(self.sender_cpu).map_err(|error| failed("the sender's thread", &error))?;
        enter()?;
        let receiver_gone = |_| BenchError::Failed("the receiver's thread ended early".to_owned());
        let ReceiverThread { clock, tid } = ready_receiver.recv().map_err(receiver_gone)?;
        self.at_phase(BenchPhase::Measurement);
        let control = self.run_control(job);
        go.send(())
            .map_err(|_| BenchError::Failed("the receiver's thread ended early".to_owned()))?;
        spin_until(now_ns() + START_UP_NS + self.delay_ns, |_| {});
        // The slow counts are read outside of the quick readings, so that they do not add to the window.
        let counts_before = self.kernel_counts();
        let switches_before = switches_of_thread(tid);
        self.at_edge(WindowEdge::Open);
        let before = self.read_edge(shared, job, clock);
        let length_ns = u64::try_from(self.length.as_nanos()).unwrap_or(u64::MAX);
        let sent =
            send(shared, before.at_ns + length_ns).map_err(|error| failed("sending", &error))?;
        let after = self.read_edge(shared, job, clock);
        self.at_edge(WindowEdge::Close);
        self.at_phase(BenchPhase::SetUp);
        let switches = switches_of_thread(tid).zip(switches_before);
        let increase = self.kernel_counts().since(
            &counts_before,
            self.receiver_cpu,
            self.disk_irqs.as_deref(),
        );
        check_pinned(self.sender_cpu).map_err(|error| failed("sending", &error))?;
        shared.drain(sent.number, wake);
        let window_ns = after.at_ns - before.at_ns;
        let leftover = control.map(|control| Leftover {
            iterations: after.iterations - before.iterations,
            job_ns: after.job_ns.saturating_sub(before.job_ns),
            ..control
        });
        // Without a job, only the observer has a use for the control.
        let leftover = if self.load == Load::Idle { None } else { leftover };
        let signals = after.signals - before.signals;
        let activity = Activity {
            window_ns,
            receiver_ns: after.receiver_ns.saturating_sub(before.receiver_ns),
            softirq_thread_ns: after
                .softirq_thread_ns
                .zip(before.softirq_thread_ns)
                .map(|(after, before)| after.saturating_sub(before)),
            switches: switches.map(|(after, before)| after.saturating_sub(before)),
            interrupts: increase.interrupts,
            net_rx: increase.net_rx,
            polls: increase.polls,
            // A receiver that counts no signals is signalled by NAPI, in each poll with packets.
            signals: if signals > 0 { Some(signals) } else { increase.useful_polls },
            card_interrupts: None,
            disk_interrupts: increase.of_lines,
            leftover,
            job_thread: job.thread(),
            counted: None,
        };
        Ok((sent.result, after.handled - before.handled, activity))
    }

    fn read_edge(
        &self,
        shared: &SharedCounts,
        job: &BackgroundJob,
        clock: CpuClock,
    ) -> EdgeReadings {
        EdgeReadings {
            at_ns: now_ns(),
            iterations: job.iterations(),
            job_ns: job.cpu_ns(),
            softirq_thread_ns: (!self.softirq_threads.is_empty())
                .then(|| self.softirq_threads.iter().map(|clock| clock.now_ns()).sum()),
            handled: shared.handled_so_far(),
            signals: shared.signals.get(),
            receiver_ns: clock.now_ns(),
        }
    }

    fn at_edge(&self, edge: WindowEdge) {
        if let Some(observer) = self.observer {
            (observer.at_edge)(edge);
        }
    }

    fn at_phase(&self, phase: BenchPhase) {
        if let Some(observer) = self.observer {
            (observer.at_phase)(phase);
        }
    }

    /// Reads the kernel's counts; empty if a simulator observes. The simulator counts itself, and reading the
    /// counts takes long at a model's speed.
    fn kernel_counts(&self) -> KernelCounts {
        match self.observer {
            None => KernelCounts::now(&self.root, self.polls.as_deref()),
            Some(_) => KernelCounts::default(),
        }
    }

    /// Runs the control, on the sender's thread while the receiver waits for its start: measures the job without
    /// events. The fields of the window stay 0. Without a job, but with an observer, all counts are 0. Runs no control
    /// and returns `None` if there is neither a job nor an observer.
    fn run_control(&self, job: &BackgroundJob) -> Option<Leftover> {
        if self.load == Load::Idle && self.observer.is_none() {
            return None;
        }
        let length_ns = u64::try_from((self.length / CONTROL_PART).as_nanos()).unwrap_or(u64::MAX);
        // The job may still be starting.
        spin_until(now_ns() + START_UP_NS, |_| {});
        let read = || (now_ns(), job.iterations(), job.cpu_ns());
        self.at_edge(WindowEdge::Open);
        let (start_ns, start_iterations, start_job_ns) = read();
        spin_until(start_ns + length_ns, |_| {});
        let (end_ns, end_iterations, end_job_ns) = read();
        self.at_edge(WindowEdge::Close);
        Some(Leftover {
            control_iterations: end_iterations - start_iterations,
            control_ns: end_ns - start_ns,
            control_job_ns: end_job_ns.saturating_sub(start_job_ns),
            ..Leftover::default()
        })
    }
}

fn ended_early(who: &str) -> BenchError {
    BenchError::Failed(format!("the {who}'s thread ended early"))
}

fn panicked(who: &str) -> BenchError {
    BenchError::Failed(format!("the {who}'s thread panicked"))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Ends a receiver that is not told to end, so that the test fails instead of hanging.
    const RECEIVE_MAX: Duration = Duration::from_secs(10);

    #[test]
    fn a_panic_of_the_sender_ends_the_window_with_an_error() {
        let setup = WindowSetup {
            sender_cpu: 0,
            receiver_cpu: 0,
            load: Load::Busy,
            length: Duration::from_millis(1),
            softirq_threads: Vec::new(),
            polls: None,
            disk_irqs: None,
            root: Root::default(),
            observer: None,
            delay_ns: 0,
        };
        let send = |_: &SharedCounts, _| -> io::Result<Sent<()>> { panic!("on purpose") };
        let receive = |shared: &SharedCounts| {
            let deadline = Instant::now() + RECEIVE_MAX;
            while !shared.is_closed() {
                if Instant::now() > deadline {
                    return Err(io::Error::other("the counts are not closed"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let Err(error) = setup.run(|| Ok(()), send, receive, || {}) else {
            panic!("the sender panicked")
        };
        assert_eq!(error.to_string(), "the sender's thread panicked");
    }
}
