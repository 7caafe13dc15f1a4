//! Injects delays to check the bench: a thread of a higher priority than the measured one takes each CPU now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::experiment::BenchError;
use stats::Random;

use crate::clock::monotonic_ns;
use crate::spawn::{no_thread, spawn_thread};
use crate::threads::{pin, real_time};

/// Name of the threads.
const NAME: &str = "irqlab-hog";
/// Priority of the threads under SCHED_FIFO: above that of the measured threads.
const PRIORITY: u32 = 98;
/// Shortest time between two delays, and the range of the time that is added at random, ns.
const PAUSE_NS: (u64, u64) = (5_000_000, 1_000_000);
/// Shortest delay, and the range of the time that is added at random, ns.
const DELAY_NS: (u64, u64) = (100_000, 400_000);

/// The threads that delay others, until they are dropped.
pub struct Hogs {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hogs {
    /// Starts a thread on each CPU.
    ///
    /// Fails if the kernel refuses a thread, its CPU or its scheduling class.
    pub fn start(cpus: &[u32], seed: u64) -> Result<Hogs, BenchError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut hogs = Hogs { is_over: Arc::clone(&is_over), threads: Vec::new() };
        for &cpu in cpus {
            let is_over = Arc::clone(&is_over);
            let (ready, is_ready) = std::sync::mpsc::channel();
            let body = move || {
                let started = pin(cpu).and_then(|()| real_time(PRIORITY));
                let has_started = started.is_ok();
                let _ = ready.send(started);
                if has_started {
                    delay_others(&is_over, Random::new(seed ^ u64::from(cpu)));
                }
            };
            hogs.threads.push(spawn_thread(NAME, body).map_err(no_thread)?);
            let failed =
                |reason: String| BenchError::Failed(format!("the hog of CPU {cpu}: {reason}"));
            is_ready
                .recv()
                .map_err(|_| failed("it died".to_owned()))?
                .map_err(|error| failed(error.to_string()))?;
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sleeps and spins in turn.
fn delay_others(is_over: &AtomicBool, mut random: Random) {
    let mut length = |(least, range): (u64, u64)| least + random.below(range);
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_nanos(length(PAUSE_NS)));
        let end_ns = monotonic_ns() + length(DELAY_NS);
        while monotonic_ns() < end_ns {
            std::hint::spin_loop();
        }
    }
}
