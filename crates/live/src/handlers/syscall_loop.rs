//! A pinned loop of cheap system calls: the ruler by which probes are measured.

use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins the calling thread to one CPU.
///
/// # Errors
/// When the CPU does not exist, is offline or is not allowed.
pub fn pin_this_thread(cpu: u32) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set)
}

/// Makes `calls` getppid(2) calls on `cpu`, from a thread of its own, and returns the time of one
/// in ns.
///
/// # Errors
/// When the thread cannot be pinned or started.
pub fn ns_per_call(cpu: u32, calls: u32) -> std::io::Result<f64> {
    let work = move || -> std::io::Result<f64> {
        pin_this_thread(cpu)?;
        let start = Instant::now();
        for _ in 0..calls {
            // SAFETY: getppid has no arguments and no effect. Not libc's wrapper, as that may one
            // day answer without entering the kernel.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(calls.max(1)))
    };
    let handle = thread::Builder::new().name("syscall-loop".into()).spawn(work)?;
    handle.join().unwrap_or_else(|_| Err(std::io::Error::other("the loop's thread panicked")))
}

/// The middle one of `values`; `None` when there is none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
