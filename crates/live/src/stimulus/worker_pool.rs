//! The worker pool of a stimulus process: pinned threads with counters. Each stimulus starts its threads here
//! ([`WorkerPool::spawn`]); `helper.rs` waits until they run, and stops them.
//!
//! A flag stops the workers, and a signal wakes them from blocking system calls.

use std::io::PipeReader;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::error::WorkerError;
use super::facts::{Facts, facts};
use super::system;
use super::wire::Report;
use crate::spawn::spawn_thread;
use crate::threads::{is_pinned_to, runs_on};

/// Pause between two wake-up signals to threads that have not yet seen the stop flag.
const STOP_RETRY: Duration = Duration::from_millis(2);

/// All threads of one stimulus.
pub(super) struct WorkerPool {
    shared: Arc<Shared>,
    alarm: PipeReader,
    threads: Vec<PoolThread>,
    event_sender: Sender<WorkerEvent>,
    events: Receiver<WorkerEvent>,
    /// When all workers were ready.
    ready_at: Instant,
    /// Sums of the counters when all workers were ready.
    sum_when_ready: Report,
    /// Warnings from workers before all were ready.
    early_warnings: Vec<String>,
}

/// The state that the pool shares with its workers.
struct Shared {
    stop: AtomicBool,
    /// A worker that fails writes a byte.
    alarm: std::io::PipeWriter,
}

struct PoolThread {
    thread: JoinHandle<()>,
    counters: Arc<Counters>,
    /// The thread's role and CPU.
    placement: Facts,
}

/// What a worker tells the pool.
enum WorkerEvent {
    Ready(Facts),
    /// The worker with this role lost this CPU, and ended.
    LostCpu(String, u32),
    /// What a reader of the statistics must know.
    Warning(String),
    Failed(WorkerError),
}

/// A worker's counters, see [`Report`]. The alignment keeps the counters of two workers off each other's cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Counters {
    operations: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

/// What the body of a worker's thread may use of the pool.
pub(super) struct Worker {
    /// The thread's CPU, if it is pinned.
    cpu: Option<u32>,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    events: Sender<WorkerEvent>,
}

impl Worker {
    /// Whether the worker must return. Check this after every operation and every interrupted system call.
    ///
    /// A worker must also return if its CPU went offline and the kernel moved the thread. It would interrupt or load
    /// another CPU, which may have a worker already.
    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed) || self.cpu.is_some_and(|cpu| !runs_on(cpu))
    }

    /// The worker's CPU if the thread is no longer pinned to it. `None` if the worker is pinned, or was never pinned.
    fn lost_cpu(&self) -> Option<u32> {
        self.cpu.filter(|cpu| !is_pinned_to(*cpu))
    }

    /// Reports that the worker runs, with the facts that only the worker knows. A worker must call this once.
    pub fn report_ready(&self, facts: Facts) {
        // The receiver lives until the pool ends, and the pool outlives its threads.
        let _ = self.events.send(WorkerEvent::Ready(facts));
    }

    /// Adds a warning to the report.
    pub fn warn(&self, warning: String) {
        // As above.
        let _ = self.events.send(WorkerEvent::Warning(warning));
    }

    pub fn count(&self, operations: u64, bytes: u64) {
        self.counters.operations.fetch_add(operations, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn count_error(&self) {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Sleeps until the next period, or until the worker is stopped.
    pub fn sleep_to_next(&self, ticker: &mut system::Ticker) {
        let next = ticker.next_deadline();
        while !self.is_stopped() && !system::sleep_until(next) {}
    }
}

impl WorkerPool {
    pub fn new() -> std::io::Result<Self> {
        // Without its handler the signal that `stop` sends would end the process.
        system::install_wake_up_signal();
        let (alarm, writer) = std::io::pipe()?;
        let (event_sender, events) = channel();
        Ok(WorkerPool {
            shared: Arc::new(Shared { stop: AtomicBool::new(false), alarm: writer }),
            alarm,
            threads: Vec::new(),
            event_sender,
            events,
            ready_at: Instant::now(),
            sum_when_ready: Report::default(),
            early_warnings: Vec::new(),
        })
    }

    /// A descriptor that becomes readable when a worker has failed.
    pub fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    /// Starts a thread, pinned to `cpu` unless it is `None`. `body` must call [`Worker::report_ready`]
    /// once, and return when [`Worker::is_stopped`] is true.
    pub fn spawn<F>(&mut self, role: &str, cpu: Option<u32>, body: F) -> Result<(), WorkerError>
    where
        F: FnOnce(&Worker) -> Result<(), WorkerError> + Send + 'static,
    {
        let counters = Arc::new(Counters::default());
        let role_name = role.to_owned();
        let worker = Worker {
            cpu,
            shared: Arc::clone(&self.shared),
            counters: Arc::clone(&counters),
            events: self.event_sender.clone(),
        };
        let name = format!("irqlab-{role}");
        let thread = spawn_thread(&name, move || run_worker(&worker, &role_name, body))
            .map_err(|e| WorkerError::failed(format!("starting a thread failed: {e}")))?;
        let placement = facts! { "role": role, "cpu": cpu };
        self.threads.push(PoolThread { thread, counters, placement });
        Ok(())
    }

    /// Waits until every worker runs. Returns their facts, and the role and CPU of each thread. Fails if a worker
    /// fails first.
    pub fn wait_ready(&mut self) -> Result<Facts, WorkerError> {
        let mut facts = Facts::new();
        let mut ready_threads = 0;
        while ready_threads < self.threads.len() {
            match self.events.recv() {
                Ok(WorkerEvent::Ready(more)) => {
                    facts.extend(more);
                    ready_threads += 1;
                }
                Ok(WorkerEvent::Warning(warning)) => self.early_warnings.push(warning),
                Ok(WorkerEvent::Failed(error)) => return Err(error),
                Ok(WorkerEvent::LostCpu(role, cpu)) => {
                    let reason = format!("CPU {cpu} was lost while its {role} thread started");
                    return Err(WorkerError::failed(reason));
                }
                Err(_) => return Err(WorkerError::failed("a worker died without an error")),
            }
        }
        let threads: Vec<Facts> =
            self.threads.iter().map(|worker| worker.placement.clone()).collect();
        facts.extend(facts! { "threads": threads });
        self.ready_at = Instant::now();
        self.sum_when_ready = self.sum();
        Ok(facts)
    }

    /// Stops and joins all workers. Returns the sums of their counters since they were ready.
    pub fn stop(mut self) -> Result<Report, WorkerError> {
        self.shared.stop.store(true, Ordering::SeqCst);
        let elapsed = self.ready_at.elapsed();
        // Repeats the signal: a worker may have checked the flag just before, and then block.
        while self.threads.iter().any(|worker| !worker.thread.is_finished()) {
            for worker in self.threads.iter().filter(|worker| !worker.thread.is_finished()) {
                system::wake_up(worker.thread.as_pthread_t());
            }
            std::thread::sleep(STOP_RETRY);
        }
        let after = self.sum();
        for worker in self.threads.drain(..) {
            if worker.thread.join().is_err() {
                return Err(WorkerError::failed("a worker panicked"));
            }
        }
        let (mut lost_cpus, mut warnings) = (Vec::new(), self.early_warnings);
        for event in self.events.try_iter() {
            match event {
                WorkerEvent::Failed(error) => return Err(error),
                WorkerEvent::LostCpu(role, cpu) => lost_cpus.push((role, cpu)),
                WorkerEvent::Warning(warning) => warnings.push(warning),
                WorkerEvent::Ready(_) => {}
            }
        }
        Ok(Report {
            operations: after.operations - self.sum_when_ready.operations,
            bytes: after.bytes - self.sum_when_ready.bytes,
            errors: after.errors - self.sum_when_ready.errors,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            lost_cpus,
            warnings,
        })
    }

    fn sum(&self) -> Report {
        let mut sum = Report::default();
        for worker in &self.threads {
            sum.operations += worker.counters.operations.load(Ordering::SeqCst);
            sum.bytes += worker.counters.bytes.load(Ordering::SeqCst);
            sum.errors += worker.counters.errors.load(Ordering::SeqCst);
        }
        sum
    }
}

/// A worker's main function: pins the thread and runs `body`. Raises the alarm if `body` fails, panics, or returns
/// without a stop. A lost CPU raises no alarm: the other workers continue.
fn run_worker<F>(worker: &Worker, role: &str, body: F)
where
    F: FnOnce(&Worker) -> Result<(), WorkerError>,
{
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if let Some(cpu) = worker.cpu {
            system::pin(cpu)?;
        }
        body(worker)
    }));
    if let (Ok(Ok(())), Some(cpu)) = (&outcome, worker.lost_cpu()) {
        let _ = worker.events.send(WorkerEvent::LostCpu(role.to_owned(), cpu));
        return;
    }
    let error = match outcome {
        Ok(Ok(())) if worker.is_stopped() => return,
        Ok(Ok(())) => WorkerError::failed("a worker ended early"),
        Ok(Err(error)) => error,
        Err(_) => WorkerError::failed("a worker panicked"),
    };
    let _ = worker.events.send(WorkerEvent::Failed(error));
    // Each failed worker writes one byte, so the pipe cannot fill up. Its reader outlives this thread.
    let _ = std::io::Write::write(&mut &worker.shared.alarm, &[1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happens_after_ready_is_counted() {
        let mut pool = WorkerPool::new().unwrap();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        pool.spawn("test", None, move |worker| {
            worker.count(5, 50);
            worker.report_ready(facts! { "a": 1 });
            gone.recv().unwrap();
            worker.warn("late".to_owned());
            worker.count(2, 20);
            while !worker.is_stopped() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
        .unwrap();
        let facts = pool.wait_ready().unwrap();
        assert_eq!(facts["a"], 1);
        assert_eq!(facts["threads"][0]["role"], "test");
        go.send(()).unwrap();
        let report = pool.stop().unwrap();
        assert_eq!((report.operations, report.bytes, report.errors), (2, 20, 0));
        assert_eq!(report.warnings, ["late"]);
    }

    /// Simulates what the kernel does when the CPU goes offline: it lets the thread run anywhere.
    #[test]
    fn a_worker_that_lost_its_cpu_is_named_and_does_not_fail() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        if allowed.count() < 2 {
            return needs::not_run(needs::Need::Cpus, "there is one CPU");
        }
        let cpu = (0..1024).find(|cpu| allowed.is_set(*cpu)).unwrap() as u32;
        let mut pool = WorkerPool::new().unwrap();
        pool.spawn("test", Some(cpu), move |worker| {
            worker.report_ready(Facts::new());
            let mut elsewhere = allowed;
            elsewhere.unset(cpu as usize);
            rustix::thread::sched_setaffinity(None, &elsewhere).unwrap();
            while !worker.is_stopped() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
        .unwrap();
        pool.wait_ready().unwrap();
        while !pool.threads[0].thread.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(pool.stop().unwrap().lost_cpus, [("test".to_owned(), cpu)]);
    }

    #[test]
    fn a_worker_that_ends_early_or_panics_is_a_failure() {
        for panics in [false, true] {
            let mut pool = WorkerPool::new().unwrap();
            pool.spawn("test", None, move |worker| {
                worker.report_ready(Facts::new());
                assert!(!panics, "on purpose");
                Ok(())
            })
            .unwrap();
            pool.wait_ready().unwrap();
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                pool.alarm(),
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, None).unwrap();
            assert!(matches!(pool.stop(), Err(WorkerError::Failed { .. })));
        }
    }
}
