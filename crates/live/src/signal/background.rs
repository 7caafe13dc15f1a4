//! A CPU-bound job on the receiver's CPU. Its progress in a window, compared with its progress without events,
//! shows how much CPU time signalling and handling leave to others.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use lab::signal::Load;

use super::work::work;
use crate::threads::{self, CpuClock};

/// Additions of one iteration: far shorter than any window, far longer than the update of the counter.
const ITERATION_ADDITIONS: u64 = 1024;

/// The job's progress. The alignment keeps other data off its cache lines.
#[repr(align(128))]
#[derive(Default)]
pub struct BackgroundJob {
    iterations: AtomicU64,
    clock: OnceLock<CpuClock>,
    thread: OnceLock<u32>,
    stop: AtomicBool,
}

impl BackgroundJob {
    pub fn iterations(&self) -> u64 {
        self.iterations.load(Relaxed)
    }

    /// CPU time of the job so far, ns.
    pub fn cpu_ns(&self) -> u64 {
        self.clock.get().map_or(0, |clock| clock.now_ns())
    }

    /// Thread ID of the job; `None` before the job runs.
    pub fn thread(&self) -> Option<u32> {
        self.thread.get().copied()
    }

    /// Makes [`BackgroundJob::run`] return.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Runs on `cpu` until stopped, with the priority that `load` requires.
    ///
    /// Fails if the CPU or the scheduling class is refused, or the CPU goes offline.
    pub fn run(&self, cpu: u32, load: Load) -> std::io::Result<()> {
        threads::pin(cpu)?;
        if load == Load::Background {
            threads::lowest_priority()?;
        }
        let _ = self.thread.set(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        let _ = self.clock.set(CpuClock::of_this_thread()?);
        while !self.stop.load(Relaxed) {
            work(ITERATION_ADDITIONS);
            // Only this thread writes the counter, so a store suffices.
            self.iterations.store(self.iterations.load(Relaxed) + 1, Relaxed);
        }
        threads::check_pinned(cpu)
    }
}
