//! The times of the last so many.

/// A queue of so many entries as the times at which they become free, in the order of the program.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    times: Box<[u64]>,
    next: usize,
}

impl Ring {
    pub(super) fn new(entries: u32) -> Ring {
        Ring { times: vec![0; entries as usize].into(), next: 0 }
    }

    /// When the entry is free that the next takes.
    #[inline]
    pub(super) fn oldest(&self) -> u64 {
        self.times[self.next]
    }

    /// The next takes its entry until `time`.
    #[inline]
    pub(super) fn push(&mut self, time: u64) {
        self.times[self.next] = time;
        self.next = if self.next + 1 == self.times.len() { 0 } else { self.next + 1 };
    }
}
