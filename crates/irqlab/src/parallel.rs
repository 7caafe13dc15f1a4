//! Work on several items at the same time, each on a thread.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use live::spawn::spawn_scoped;

/// Calls `work` with each number below `count`, in order, on at most `jobs` threads. After a break, no further call
/// starts; calls that run then still end.
///
/// Fails if the system refuses even the first thread.
pub fn for_each(
    count: usize,
    jobs: usize,
    work: impl Fn(usize) -> ControlFlow<()> + Sync,
) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let take = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            if work(number).is_break() {
                next.store(count, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|threads| {
        let mut started = Vec::new();
        for number in 0..jobs.clamp(1, count.max(1)) {
            match spawn_scoped(threads, &format!("task {number}"), take) {
                Ok(thread) => started.push(thread),
                Err(error) if started.is_empty() => return Err(error),
                // The threads that started do all work.
                Err(_) => break,
            }
        }
        Ok(())
    })
}
