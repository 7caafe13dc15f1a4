//! The threads of a stimulus process: pinned, counted, stopped by a flag and a signal.

use std::io::PipeReader;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::running::Report;
use super::system;
use super::wire::{Facts, Trouble, facts};

/// Pause between two wake-up signals to threads that have not yet seen the stop flag.
const STOP_RETRY: Duration = Duration::from_millis(2);

/// All threads of one source.
pub(super) struct Crew {
    shared: Arc<Shared>,
    alarm: PipeReader,
    hands: Vec<Hand>,
    news_sender: Sender<News>,
    news: Receiver<News>,
    started: Instant,
    before: Report,
}

struct Shared {
    stop: AtomicBool,
    alarm: std::io::PipeWriter,
}

struct Hand {
    thread: JoinHandle<()>,
    tally: Arc<Tally>,
    placement: Facts,
}

enum News {
    Ready(Facts),
    Trouble(Trouble),
}

/// A worker's counters, alone on their cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Tally {
    operations: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

/// What a thread gets to see of the crew.
pub(super) struct Worker {
    shared: Arc<Shared>,
    tally: Arc<Tally>,
    news: Sender<News>,
}

impl Worker {
    /// Whether to return. Look after every operation and every interrupted system call.
    pub fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Says that the source runs, once per worker, with the facts that only it knows.
    pub fn ready(&self, facts: Facts) {
        // The receiver lives as long as the crew, which outlives its threads.
        let _ = self.news.send(News::Ready(facts));
    }

    pub fn count(&self, operations: u64, bytes: u64) {
        self.tally.operations.fetch_add(operations, Ordering::Relaxed);
        self.tally.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn count_error(&self) {
        self.tally.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Sleeps, and returns early when it is time to stop.
    pub fn sleep_to_next(&self, ticker: &mut system::Ticker) {
        let next = ticker.next_deadline();
        while !self.stopped() && !system::sleep_until(next) {}
    }
}

impl Crew {
    pub fn new() -> std::io::Result<Self> {
        // Without its handler the signal that `stop` sends would end the process.
        system::install_wake_up_signal();
        let (alarm, writer) = std::io::pipe()?;
        let (news_sender, news) = channel();
        Ok(Crew {
            shared: Arc::new(Shared { stop: AtomicBool::new(false), alarm: writer }),
            alarm,
            hands: Vec::new(),
            news_sender,
            news,
            started: Instant::now(),
            before: Report::default(),
        })
    }

    /// Readable once a worker has given up.
    pub fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    /// Starts a thread, pinned to `cpu` if one is given. `body` must call [`Worker::ready`] once,
    /// and return when [`Worker::stopped`].
    pub fn spawn<F>(&mut self, role: &str, cpu: Option<u32>, body: F) -> Result<(), Trouble>
    where
        F: FnOnce(&Worker) -> Result<(), Trouble> + Send + 'static,
    {
        let tally = Arc::new(Tally::default());
        let worker = Worker {
            shared: Arc::clone(&self.shared),
            tally: Arc::clone(&tally),
            news: self.news_sender.clone(),
        };
        let thread = Builder::new()
            .name(format!("irqlab-{role}"))
            .spawn(move || work(&worker, cpu, body))
            .map_err(|e| Trouble::failed(format!("cannot start a thread: {e}")))?;
        let placement = facts! { "role": role, "cpu": cpu };
        self.hands.push(Hand { thread, tally, placement });
        Ok(())
    }

    /// Waits until every worker runs; returns their facts and their CPUs.
    pub fn wait_ready(&mut self) -> Result<Facts, Trouble> {
        let mut facts = Facts::new();
        for _ in 0..self.hands.len() {
            match self.news.recv() {
                Ok(News::Ready(more)) => facts.extend(more),
                Ok(News::Trouble(trouble)) => return Err(trouble),
                Err(_) => return Err(Trouble::failed("a worker vanished")),
            }
        }
        let threads: Vec<Facts> = self.hands.iter().map(|hand| hand.placement.clone()).collect();
        facts.extend(facts! { "threads": threads });
        self.started = Instant::now();
        self.before = self.sum();
        Ok(facts)
    }

    /// Stops every worker, waits for them, and sums what they did since they were ready.
    pub fn stop(mut self) -> Result<Report, Trouble> {
        self.shared.stop.store(true, Ordering::SeqCst);
        let elapsed = self.started.elapsed();
        while self.hands.iter().any(|hand| !hand.thread.is_finished()) {
            for hand in self.hands.iter().filter(|hand| !hand.thread.is_finished()) {
                system::wake_up(hand.thread.as_pthread_t());
            }
            std::thread::sleep(STOP_RETRY);
        }
        let after = self.sum();
        for hand in self.hands.drain(..) {
            if hand.thread.join().is_err() {
                return Err(Trouble::failed("a worker panicked"));
            }
        }
        if let Some(trouble) = self.news.try_iter().find_map(|news| match news {
            News::Trouble(trouble) => Some(trouble),
            News::Ready(_) => None,
        }) {
            return Err(trouble);
        }
        Ok(Report {
            operations: after.operations - self.before.operations,
            bytes: after.bytes - self.before.bytes,
            errors: after.errors - self.before.errors,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        })
    }

    fn sum(&self) -> Report {
        let mut sum = Report::default();
        for hand in &self.hands {
            sum.operations += hand.tally.operations.load(Ordering::SeqCst);
            sum.bytes += hand.tally.bytes.load(Ordering::SeqCst);
            sum.errors += hand.tally.errors.load(Ordering::SeqCst);
        }
        sum
    }
}

/// A thread's life: pin, work, and raise the alarm if it ends unasked.
fn work<F>(worker: &Worker, cpu: Option<u32>, body: F)
where
    F: FnOnce(&Worker) -> Result<(), Trouble>,
{
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if let Some(cpu) = cpu {
            system::pin(cpu)?;
        }
        body(worker)
    }));
    let trouble = match outcome {
        Ok(Ok(())) if worker.stopped() => return,
        Ok(Ok(())) => Trouble::failed("a worker ended early"),
        Ok(Err(trouble)) => trouble,
        Err(_) => Trouble::failed("a worker panicked"),
    };
    let _ = worker.news.send(News::Trouble(trouble));
    // One byte per dying worker: the pipe can't fill up, and its reader outlives us.
    let _ = std::io::Write::write(&mut &worker.shared.alarm, &[1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happens_after_ready_is_counted() {
        let mut crew = Crew::new().unwrap();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        crew.spawn("test", None, move |worker| {
            worker.count(5, 50);
            worker.ready(facts! { "a": 1 });
            gone.recv().unwrap();
            worker.count(2, 20);
            while !worker.stopped() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
        .unwrap();
        let facts = crew.wait_ready().unwrap();
        assert_eq!(facts["a"], 1);
        assert_eq!(facts["threads"][0]["role"], "test");
        go.send(()).unwrap();
        let report = crew.stop().unwrap();
        assert_eq!((report.operations, report.bytes, report.errors), (2, 20, 0));
    }

    #[test]
    fn a_worker_that_ends_early_or_panics_is_a_failure() {
        for panics in [false, true] {
            let mut crew = Crew::new().unwrap();
            crew.spawn("test", None, move |worker| {
                worker.ready(Facts::new());
                assert!(!panics, "on purpose");
                Ok(())
            })
            .unwrap();
            crew.wait_ready().unwrap();
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                crew.alarm(),
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, None).unwrap();
            assert!(matches!(crew.stop(), Err(Trouble::Failed { .. })));
        }
    }
}
