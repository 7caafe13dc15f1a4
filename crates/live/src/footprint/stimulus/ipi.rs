//! A function-call interrupt: `membarrier` on another CPU.

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
    cpu: u32,
}

#[derive(Debug, Default)]
struct Shared {
    /// The requested delay, ns, plus 1; 0: no request.
    requested: AtomicU64,
    stop: AtomicBool,
    failed: AtomicBool,
}

impl Ipi {
    /// Starts the thread on the CPU `from`, which interrupts.
    ///
    /// Fails if there is no other CPU, or the kernel refuses.
    pub fn new(from: Option<u32>) -> Result<Self, BenchError> {
        let cpu = from.ok_or_else(|| {
            BenchError::unavailable(
                "an inter-processor interrupt needs two CPUs, and this process may use one",
            )
        })?;
        membarrier(MembarrierCommand::RegisterPrivateExpedited).map_err(|error| {
            BenchError::unavailable(format!("membarrier(PRIVATE_EXPEDITED) failed: {error}"))
        })?;
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let caller = spawn_thread("irqlab-ipi", move || call(&its, cpu)).map_err(|error| {
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
        let requested = shared.requested.load(Ordering::Acquire);
        if requested == 0 {
            std::thread::park_timeout(Duration::from_millis(100));
            continue;
        }
        let start = Instant::now();
        while start.elapsed().as_nanos() < u128::from(requested - 1) {
            std::hint::spin_loop();
        }
        // If the kernel moved this thread to the loop's own CPU, membarrier interrupts nothing.
        let called = membarrier(MembarrierCommand::PrivateExpedited);
        if called.is_err() || !is_pinned_to(cpu) {
            shared.failed.store(true, Ordering::Release);
        }
        shared.requested.store(0, Ordering::Release);
    }
}

impl RaiseInterrupt for Ipi {
    fn counted_as(&self) -> CountedAs {
        CountedAs::Line("CAL")
    }

    fn schedule(&mut self, delay: Duration) -> io::Result<()> {
        let delay_ns = delay.min(DELAY_MAX).as_nanos() as u64;
        self.shared.requested.store(delay_ns + 1, Ordering::Release);
        if let Some(caller) = &self.caller {
            caller.thread().unpark();
        }
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        while self.shared.requested.load(Ordering::Acquire) != 0 {
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
            let _ = caller.join(); // it returns nothing
        }
    }
}
