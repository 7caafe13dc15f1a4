//! One window: a sender on one CPU, a receiver on another, and perhaps a CPU-bound job on the
//! receiver's CPU. Also measures what the receiver's CPU did meanwhile.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lab::experiment::BenchError;
use lab::signal::{Activity, Leftover, Load};

use super::arrivals::{now_ns, spin_until};
use super::background::Job;
use super::counts::{KernelCounts, PollCounter};
use crate::host::Root;
use crate::spawn::{no_thread, spawn_scoped};
use crate::threads::{CpuClock, ThreadCounts, check_pinned, pin};
use crate::window::{BenchPhase, WindowEdge};

/// The control, which is the job without events, lasts for the window's length divided by this.
const CONTROL_PART: u32 = 3;
/// Time between the receiver's start and the window. The receiver reaches its first wait meanwhile.
const START_UP_NS: u64 = 2_000_000;
/// After the last event, the rest counts as dropped if there is no progress for this time.
const NO_PROGRESS_NS: u64 = 50_000_000;
/// Time between two attempts to wake the receiver.
const WAKE_NS: u64 = 1_000;

/// The fields that all windows have, whatever is sent in them.
#[derive(Clone)]
pub struct Frame {
    pub sender_cpu: u32,
    /// CPU of the receiver and of the job.
    pub receiver_cpu: u32,
    /// The load that runs on the receiver's CPU.
    pub load: Load,
    /// Length of the window.
    pub length: Duration,
    /// The kernel's threads that handle packets on the receiver's CPU: ksoftirqd, and NAPI's
    /// threads if NAPI is threaded. Threads that were not found are absent.
    pub softirq_threads: Vec<CpuClock>,
    /// Counter of the NAPI polls on the receiver's CPU; `None` if they cannot be counted.
    pub polls: Option<Arc<PollCounter>>,
    /// Root of the files with the kernel's counts.
    pub root: Root,
    /// The simulator's observer of the window; `None` on a real machine.
    pub observer: Option<Observer>,
    /// Time from the control to the window, ns, in addition to the time that the receiver needs. On
    /// a machine without chance, it puts repetitions at different times of the kernel's clocks.
    pub delay_ns: u64,
}

/// Marks control and window for the simulator that runs this machine. The simulator sees the
/// control as the first window, even without a job.
#[derive(Clone, Copy, Debug)]
pub struct Observer {
    /// Called at both edges of the control and of the window.
    pub at_edge: fn(WindowEdge),
    /// Called before the warm-up and the control, and after the window.
    pub at_phase: fn(BenchPhase),
}

/// A number with one writer, on a separate cache line.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, number: u64) {
        self.0.store(self.0.load(Relaxed) + number, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters that sender and receiver share.
#[derive(Default)]
pub struct Desk {
    handled: Counter,
    signals: Counter,
    closed: AtomicBool,
}

impl Desk {
    /// Counts `number` further events, or bytes, that the receiver has handled.
    pub fn handled(&self, number: u64) {
        self.handled.add(number);
    }

    /// Counts one signal to the receiver.
    pub fn signalled(&self) {
        self.signals.add(1);
    }

    /// Whether no more events will come.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Number of events or bytes that were handled so far.
    pub fn handled_so_far(&self) -> u64 {
        self.handled.get()
    }

    /// Wakes the receiver until `sent` events are handled, or there is no more progress.
    fn drain(&self, sent: u64, wake: impl Fn()) {
        let mut handled = self.handled_so_far();
        let mut give_up_ns = now_ns() + NO_PROGRESS_NS;
        while handled < sent {
            wake();
            let now = spin_until(now_ns() + WAKE_NS, |_| {});
            match self.handled_so_far() {
                same if same == handled && now >= give_up_ns => return,
                same if same == handled => {}
                more => (handled, give_up_ns) = (more, now + NO_PROGRESS_NS),
            }
        }
    }
}

/// The result of the sender's part of a window.
pub struct Sent<T> {
    /// Number of events or bytes that were sent, in the unit of [`Desk::handled`].
    pub number: u64,
    /// The sender's measurement.
    pub result: T,
}

/// The results of a window.
pub struct Outcome<S, R> {
    /// The sender's measurement.
    pub sender: S,
    /// The receiver's measurement.
    pub receiver: R,
    /// Number of events or bytes that were handled until the window's end.
    pub handled: u64,
    /// Number of events or bytes that were handled until no more came.
    pub handled_in_all: u64,
    /// The activity of the receiver's CPU in the window.
    pub activity: Activity,
}

/// The readings at an edge of the window that are quick to take.
struct Edge {
    at_ns: u64,
    iterations: u64,
    job_ns: u64,
    softirq_thread_ns: Option<u64>,
    handled: u64,
    signals: u64,
    receiver_ns: u64,
}

fn failed(what: &str, error: &io::Error) -> BenchError {
    BenchError::Failed(format!("{what}: {error}"))
}

impl Frame {
    /// Runs the window. `receive` runs on the receiver's CPU until the desk is closed. `send`
    /// runs on the sender's CPU until the given time, ns of CLOCK_MONOTONIC. `wake` makes a
    /// waiting receiver check the desk, and may be called repeatedly. `enter` is called first,
    /// on the sender's thread.
    /// Fails with the first error of a thread.
    pub fn run<S: Send, R: Send>(
        &self,
        enter: impl FnOnce() -> Result<(), BenchError> + Send,
        send: impl FnOnce(&Desk, u64) -> io::Result<Sent<S>> + Send,
        receive: impl FnOnce(&Desk) -> io::Result<R> + Send,
        wake: impl Fn() + Sync,
    ) -> Result<Outcome<S, R>, BenchError> {
        let desk = Desk::default();
        let job = Job::default();
        let (ready, is_ready) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let (desk, job, wake) = (&desk, &job, &wake);
        std::thread::scope(|scope| {
            let receiver = spawn_scoped(scope, "irqlab-receiver", move || {
                let prepared = pin(self.receiver_cpu).and_then(|()| CpuClock::of_this_thread());
                let clock = prepared.map_err(|error| failed("the receiver's thread", &error))?;
                // The default timer slack of 50 us would make every clock late.
                let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
                let _ = ready.send(clock);
                drop(ready);
                if may_go.recv().is_err() {
                    return Ok(None); // the sender says why
                }
                let before = ThreadCounts::now();
                let received = receive(desk).map_err(|error| failed("receiving", &error))?;
                check_pinned(self.receiver_cpu).map_err(|error| failed("receiving", &error))?;
                let switches = ThreadCounts::now().zip(before);
                Ok(Some((received, switches.map(|(now, before)| now.since(before).switches))))
            });
            let receiver = receiver.map_err(no_thread)?;
            // From here on an error drops `go`, so the receiver ends without receiving.
            let work = move || job.run(self.receiver_cpu, self.load);
            let worker = (self.load != Load::Idle)
                .then(|| spawn_scoped(scope, "irqlab-job", work).map_err(no_thread))
                .transpose()?;
            let sender = spawn_scoped(scope, "irqlab-sender", move || {
                let sent = self.send(desk, job, enter, &is_ready, &go, (send, wake));
                desk.closed.store(true, Relaxed);
                sent
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
            // Returns the receiver's error first, because it may be the cause of the sender's.
            let received = received?;
            let (sender, handled, mut activity) = sent?;
            let (receiver, switches) = received.ok_or_else(|| ended_early("sender"))?;
            activity.switches = switches;
            let handled_in_all = desk.handled_so_far();
            Ok(Outcome { sender, receiver, handled, handled_in_all, activity })
        })
    }

    fn send<S>(
        &self,
        desk: &Desk,
        job: &Job,
        enter: impl FnOnce() -> Result<(), BenchError>,
        is_ready: &mpsc::Receiver<CpuClock>,
        go: &mpsc::Sender<()>,
        (send, wake): (impl FnOnce(&Desk, u64) -> io::Result<Sent<S>>, impl Fn()),
    ) -> Result<(S, u64, Activity), BenchError> {
        pin(self.sender_cpu).map_err(|error| failed("the sender's thread", &error))?;
        enter()?;
        let receiver_gone = |_| BenchError::Failed("the receiver's thread ended early".to_owned());
        let clock = is_ready.recv().map_err(receiver_gone)?;
        self.at_phase(BenchPhase::Measurement);
        let control = self.control(job);
        go.send(())
            .map_err(|_| BenchError::Failed("the receiver's thread ended early".to_owned()))?;
        spin_until(now_ns() + START_UP_NS + self.delay_ns, |_| {});
        // Takes the slow counts outside of the quick readings.
        let counts_before = self.kernel_counts();
        self.at_edge(WindowEdge::Open);
        let before = self.edge(desk, job, clock);
        let length_ns = u64::try_from(self.length.as_nanos()).unwrap_or(u64::MAX);
        let sent =
            send(desk, before.at_ns + length_ns).map_err(|error| failed("sending", &error))?;
        let after = self.edge(desk, job, clock);
        self.at_edge(WindowEdge::Close);
        self.at_phase(BenchPhase::SetUp);
        let added = self.kernel_counts().since(&counts_before, self.receiver_cpu);
        check_pinned(self.sender_cpu).map_err(|error| failed("sending", &error))?;
        desk.drain(sent.number, wake);
        let window_ns = after.at_ns - before.at_ns;
        let leftover = control.map(|control| Leftover {
            iterations: after.iterations - before.iterations,
            job_ns: after.job_ns.saturating_sub(before.job_ns),
            ..control
        });
        let leftover = if self.load == Load::Idle { None } else { leftover };
        let signals = after.signals - before.signals;
        let activity = Activity {
            window_ns,
            receiver_ns: after.receiver_ns.saturating_sub(before.receiver_ns),
            softirq_thread_ns: after
                .softirq_thread_ns
                .zip(before.softirq_thread_ns)
                .map(|(after, before)| after.saturating_sub(before)),
            switches: None,
            interrupts: added.interrupts,
            net_rx: added.net_rx,
            polls: added.polls,
            // If the receiver counts no signals, NAPI signals it, in each poll with packets.
            signals: if signals > 0 { Some(signals) } else { added.useful_polls },
            card_interrupts: None,
            leftover,
            job_thread: job.thread(),
            counted: None,
        };
        Ok((sent.result, after.handled - before.handled, activity))
    }

    fn edge(&self, desk: &Desk, job: &Job, clock: CpuClock) -> Edge {
        Edge {
            at_ns: now_ns(),
            iterations: job.iterations(),
            job_ns: job.cpu_ns(),
            softirq_thread_ns: (!self.softirq_threads.is_empty())
                .then(|| self.softirq_threads.iter().map(|clock| clock.now_ns()).sum()),
            handled: desk.handled_so_far(),
            signals: desk.signals.get(),
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

    /// Reads the kernel's counts, unless a simulator counts. Reading them takes
    /// long at a model's speed.
    fn kernel_counts(&self) -> KernelCounts {
        match self.observer {
            None => KernelCounts::now(&self.root, self.polls.as_deref()),
            Some(_) => KernelCounts::default(),
        }
    }

    /// Measures the job without events. `None` without a job, unless an observer sees the control.
    /// The fields of the window stay empty.
    fn control(&self, job: &Job) -> Option<Leftover> {
        if self.load == Load::Idle && self.observer.is_none() {
            return None;
        }
        let length = u64::try_from((self.length / CONTROL_PART).as_nanos()).unwrap_or(u64::MAX);
        // The job may still be starting.
        spin_until(now_ns() + START_UP_NS, |_| {});
        let read = || (now_ns(), job.iterations(), job.cpu_ns());
        self.at_edge(WindowEdge::Open);
        let before = read();
        spin_until(before.0 + length, |_| {});
        let after = read();
        self.at_edge(WindowEdge::Close);
        Some(Leftover {
            control_iterations: after.1 - before.1,
            control_ns: after.0 - before.0,
            control_job_ns: after.2.saturating_sub(before.2),
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
