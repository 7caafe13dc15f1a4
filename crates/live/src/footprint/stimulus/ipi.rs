//! The IPI stimulus: membarrier(2) on another CPU interrupts the loop's CPU with a function call.

use lab::experiment::BenchError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use super::super::interrupt_line::CountedAs;
use super::RaiseInterrupt;
use crate::spawn::spawn_thread;
use crate::threads::{is_pinned_to, pin};

/// Longest delay of a request.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// A thread on another CPU that interrupts the loop's CPU on request.
#[derive(Debug)]
pub struct Ipi {
    shared: Arc<Shared>,
    caller: Option<JoinHandle<()>>,
    /// CPU of the thread that interrupts.
    cpu: u32,
}

#[derive(Debug, Default)]
struct Shared {
    /// The requested delay, ns, plus 1. 0: no request.
    delay_plus_1_ns: AtomicU64,
    stop: AtomicBool,
    failed: AtomicBool,
}

impl Ipi {
    /// Starts the interrupting thread on CPU `caller_cpu`.
    ///
    /// Fails if there is no other CPU, or the kernel refuses.
    pub fn new(caller_cpu: Option<u32>) -> Result<Self, BenchError> {
        let cpu = caller_cpu.ok_or_else(|| {
            BenchError::unavailable(
                "an inter-processor interrupt needs two CPUs, and this process may use one",
            )
        })?;
        membarrier(MembarrierCommand::RegisterPrivateExpedited).map_err(|error| {
            BenchError::unavailable(format!("membarrier(PRIVATE_EXPEDITED) failed: {error}"))
        })?;
        let shared = Arc::new(Shared::default());
        let callers_share = Arc::clone(&shared);
        let caller =
            spawn_thread("irqlab-ipi", move || call(&callers_share, cpu)).map_err(|error| {
                BenchError::unavailable(format!("starting a thread failed: {error}"))
            })?;
        Ok(Ipi { shared, caller: Some(caller), cpu })
    }
}

/// The interrupting thread: sleeps until a request, spins for the delay, calls membarrier.
fn call(shared: &Shared, cpu: u32) {
    if pin(cpu).is_err() {
        shared.failed.store(true, Ordering::Release);
    }
    while !shared.stop.load(Ordering::Acquire) {
        let delay_plus_1_ns = shared.delay_plus_1_ns.load(Ordering::Acquire);
        if delay_plus_1_ns == 0 {
            std::thread::park_timeout(Duration::from_millis(100));
            continue;
        }
        let start = Instant::now();
        while start.elapsed().as_nanos() < u128::from(delay_plus_1_ns - 1) {
            std::hint::spin_loop();
        }
        // If the kernel moved this thread to the loop's own CPU, membarrier interrupts nothing.
        let called = membarrier(MembarrierCommand::PrivateExpedited);
        if called.is_err() || !is_pinned_to(cpu) {
            shared.failed.store(true, Ordering::Release);
        }
        shared.delay_plus_1_ns.store(0, Ordering::Release);
    }
}

impl RaiseInterrupt for Ipi {
    fn counted_as(&self) -> CountedAs {
        CountedAs::Line("CAL")
    }

    fn schedule(&mut self, delay: Duration) -> io::Result<()> {
        let delay_ns = delay.min(DELAY_MAX).as_nanos() as u64;
        self.shared.delay_plus_1_ns.store(delay_ns + 1, Ordering::Release);
        if let Some(caller) = &self.caller {
            caller.thread().unpark();
        }
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        while self.shared.delay_plus_1_ns.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
        let failed = self.shared.failed.load(Ordering::Acquire);
        if failed {
            Err(io::Error::other(
                "membarrier failed, or its thread could not be pinned or lost its CPU",
            ))
        } else {
            Ok(())
        }
    }

    fn comes_in_window(&self) -> bool {
        true
    }

    fn method(&self) -> String {
        format!("membarrier PRIVATE_EXPEDITED on CPU {}", self.cpu)
    }
}

impl Drop for Ipi {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(caller) = self.caller.take() {
            caller.thread().unpark();
            let _ = caller.join(); // An error is a panic, whose message was printed.
        }
    }
}
