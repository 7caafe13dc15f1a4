//! A ring of fixed size from a measuring loop or thread to its reader, the observer: one writer, one reader, no locks
//! and no system calls. If the ring is full, the writer drops records and counts them.
//!
//! The ring also carries the reader's stop request, and a watchdog: a loop ends if its reader does not poll.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Three numbers. Their meaning depends on the writer, see `noise/loops.rs` and `wakeup/thread.rs`.
pub type Record = [u64; 3];

/// The ring, and the flags that its two sides exchange.
pub struct Ring {
    /// The number of slots is a power of two.
    slots: Vec<[AtomicU64; 3]>,
    /// Records written so far.
    written: AtomicU64,
    /// Records read so far.
    read: AtomicU64,
    lost: AtomicU64,
    /// Time at which the loop started, by its clock; 0 before.
    pub started: AtomicU64,
    /// The loop ends when its clock reaches this value, cycles. The reader advances it while it polls, and sets it to 0
    /// to request the end. One number has both meanings, because the loop reads it in each iteration.
    run_until: Arc<AtomicU64>,
    /// Whether the loop ended because its reader did not advance `run_until`.
    starved: AtomicBool,
}

/// Whether a loop continues, or why it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The loop must not end yet.
    Continue,
    /// The reader requests the end.
    Stop,
    /// The reader has not polled for too long: the loop may leave it no CPU time.
    Starved,
}

impl Ring {
    /// Creates a ring for at least `slots` records, rounded up to a power of two. Writes all of its
    /// memory once, so that the loop raises no page fault in it.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let slots = slots.next_power_of_two();
        let slots: Vec<[AtomicU64; 3]> =
            (0..slots).map(|_| [u64::MAX; 3].map(AtomicU64::new)).collect();
        Ring {
            slots,
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            started: AtomicU64::new(0),
            run_until: Arc::new(AtomicU64::new(u64::MAX)),
            starved: AtomicBool::new(false),
        }
    }

    /// A ring for another loop of the same thread, such as its warm-up. A stop of this ring also stops that loop.
    #[must_use]
    pub fn of_other_loop(&self, slots: usize) -> Ring {
        Ring { run_until: Arc::clone(&self.run_until), ..Ring::new(slots) }
    }

    /// Lets the loop run until its clock reaches `cycles`. Without any call the loop runs to the end of its window.
    pub fn run_until(&self, cycles: u64) {
        self.run_until.store(cycles.max(1), Ordering::Relaxed);
    }

    /// Requests the end of the loop.
    pub fn stop(&self) {
        self.run_until.store(0, Ordering::Relaxed);
    }

    /// Whether the loop continues. `cycles` is the time on its clock.
    #[inline]
    pub fn verdict(&self, cycles: u64) -> Verdict {
        let until = self.run_until.load(Ordering::Relaxed);
        if cycles < until {
            return Verdict::Continue;
        }
        if until == 0 {
            return Verdict::Stop;
        }
        self.starved.store(true, Ordering::Relaxed);
        Verdict::Starved
    }

    /// Whether the loop ended because its reader did not poll.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    /// Writes a record, or counts it as lost. Only the writer may call this.
    #[inline]
    pub fn push(&self, record: Record) {
        let written = self.written.load(Ordering::Relaxed);
        if written - self.read.load(Ordering::Acquire) >= self.slots.len() as u64 {
            self.lost.store(self.lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        }
        let slot = &self.slots[written as usize & (self.slots.len() - 1)];
        for (cell, value) in slot.iter().zip(record) {
            cell.store(value, Ordering::Relaxed);
        }
        self.written.store(written + 1, Ordering::Release);
    }

    /// Passes all records to `take_record` and removes them. Only the reader may call this.
    pub fn drain(&self, mut take_record: impl FnMut(Record)) {
        let written = self.written.load(Ordering::Acquire);
        let read = self.read.load(Ordering::Relaxed);
        for position in read..written {
            let slot = &self.slots[position as usize & (self.slots.len() - 1)];
            take_record([0, 1, 2].map(|cell: usize| slot[cell].load(Ordering::Relaxed)));
            self.read.store(position + 1, Ordering::Release);
        }
    }

    /// Number of records dropped because the ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_ends_when_its_reader_says_so_or_says_nothing() {
        let ring = Ring::new(1);
        assert_eq!(ring.verdict(u64::MAX - 1), Verdict::Continue);
        ring.run_until(100);
        assert_eq!((ring.verdict(99), ring.is_starved()), (Verdict::Continue, false));
        let warm_up = ring.of_other_loop(1);
        assert_eq!((warm_up.verdict(100), warm_up.is_starved()), (Verdict::Starved, true));
        assert_eq!((ring.verdict(100), ring.is_starved()), (Verdict::Starved, true));
        ring.stop();
        assert_eq!(warm_up.verdict(0), Verdict::Stop);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let ring = Ring::new(4);
        (0..6).for_each(|n| ring.push([n, 0, 0]));
        let mut seen = Vec::new();
        ring.drain(|record| seen.push(record[0]));
        ring.push([7, 0, 0]);
        ring.drain(|record| seen.push(record[0]));
        assert_eq!((seen, ring.lost()), (vec![0, 1, 2, 3, 7], 2));
    }

    #[test]
    fn two_threads_lose_nothing_that_is_not_counted() {
        let ring = Ring::new(64);
        let (mut sum, mut number) = (0, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (1..=100_000).for_each(|n| ring.push([n, n, n])));
            let mut last = 0;
            while !writer.is_finished() || number == 0 {
                ring.drain(|record| {
                    assert!(record[0] > last && record[0] == record[2], "{record:?}");
                    last = record[0];
                    (sum, number) = (sum + 1, number + 1);
                });
            }
        });
        ring.drain(|_| number += 1);
        assert_eq!(number + ring.lost(), 100_000);
    }
}
