//! Regions of interest: which one is open.

use simrecord::counters::{Counts, TIME};

/// The regions of a recording.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// Counts regions from 1; 0 before the first.
    number: u32,
    is_open: bool,
    /// The counts of each CPU when the region was opened.
    opened_at: Vec<Counts>,
}

impl Regions {
    /// The number of the region that was opened last; 0 before the first.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Opens the next region, if none is open. Returns whether it does.
    pub(crate) fn open(&mut self, counted: &[Counts]) -> bool {
        if self.is_open {
            return false;
        }
        self.is_open = true;
        self.number += 1;
        self.opened_at = counted.to_vec();
        true
    }

    /// Closes the region.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// The counts of a CPU since the region was opened.
    pub(crate) fn used(&self, cpu: usize, now: &Counts) -> Counts {
        std::array::from_fn(|position| now[position] - self.opened_at[cpu][position])
    }

    /// The time of a CPU when the region was opened.
    pub(crate) fn opened_at(&self, cpu: usize) -> u64 {
        self.opened_at[cpu][TIME]
    }
}
