//! A pinned loop of cheap system calls. The time of a call with and without probes gives the overhead of the probes.
//! The calibration (`probe_overhead`), the bench of `services` and `irqlab bench overhead` use it.

use crate::spawn::spawn_thread;
use crate::threads::{check_pinned, pin};

/// Calls getppid(2) `calls` times on `cpu`, from a new thread, and returns the mean CPU time of a call, ns. The time of
/// other threads on the CPU does not count.
///
/// Fails if the thread cannot be pinned or started, or the CPU goes offline.
pub fn ns_per_call(cpu: u32, calls: u32) -> std::io::Result<f64> {
    let time_calls = move || -> std::io::Result<f64> {
        pin(cpu)?;
        let start_ns = thread_cpu_ns();
        for _ in 0..calls {
            // SAFETY: getppid has no arguments and no effect. libc's wrapper is avoided, because it
            // may return a cached value without entering the kernel.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        let elapsed_ns = thread_cpu_ns().saturating_sub(start_ns);
        check_pinned(cpu)?;
        Ok(elapsed_ns as f64 / f64::from(calls.max(1)))
    };
    let handle = spawn_thread("syscall-loop", time_calls)?;
    handle.join().unwrap_or_else(|_| Err(std::io::Error::other("the loop's thread panicked")))
}

/// CPU time of the calling thread, ns.
fn thread_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// The median of `values` in any order; `None` without values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    stats::median::median(&values)
}
