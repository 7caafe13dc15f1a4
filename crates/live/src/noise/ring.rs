//! A ring of fixed size from a loop to its reader: one writer, one reader, no locks and no system calls.
//! When it is full, the writer drops records and counts them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Three numbers, whose meaning depends on the loop.
pub type Record = [u64; 3];

/// The ring, and the flags between its two sides.
pub struct Ring {
    slots: Vec<[AtomicU64; 3]>,
    written: AtomicU64,
    read: AtomicU64,
    lost: AtomicU64,
    /// When the loop started, cycles; 0 before.
    pub started: AtomicU64,
    /// Set by the reader: requests the loop to end.
    pub stop: AtomicBool,
}

impl Ring {
    /// A ring for at least `slots` records, rounded up to a power of two. All of it is written once, so
    /// that the loop raises no page fault in it.
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
            stop: AtomicBool::new(false),
        }
    }

    /// Writes a record, or counts it as lost. Only the one writer calls it.
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

    /// Takes all records. Only the one reader calls it.
    pub fn drain(&self, mut each: impl FnMut(Record)) {
        let written = self.written.load(Ordering::Acquire);
        let read = self.read.load(Ordering::Relaxed);
        for at in read..written {
            let slot = &self.slots[at as usize & (self.slots.len() - 1)];
            each([0, 1, 2].map(|cell: usize| slot[cell].load(Ordering::Relaxed)));
            self.read.store(at + 1, Ordering::Release);
        }
    }

    /// Records dropped because the ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
