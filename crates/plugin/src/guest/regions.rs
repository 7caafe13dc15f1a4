//! Regions of interest: the open region, and the counts at its start.

use simrecord::counters::{Counts, TIME};

/// The regions of a recording.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// Counts regions from 1; 0 before the first.
    number: u32,
    is_open: bool,
    /// The counts of each CPU when the region was opened.
    opened_at: Vec<Counts>,
    /// The counts of each CPU that went offline in the region. The region ended there for the CPU.
    left_at: Vec<Option<Counts>>,
}

impl Regions {
    /// The number of the region that was opened last; 0 before the first.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Opens the next region, if none is open. Returns whether a region was opened.
    pub(crate) fn open(&mut self, counted: &[Counts]) -> bool {
        if self.is_open {
            return false;
        }
        self.is_open = true;
        self.number += 1;
        self.opened_at = counted.to_vec();
        self.left_at = vec![None; counted.len()];
        true
    }

    /// A CPU goes offline. Returns whether this ends the open region for the CPU.
    pub(crate) fn leave(&mut self, cpu: usize, now: &Counts) -> bool {
        let ends = self.is_open && self.left_at.get(cpu) == Some(&None);
        if ends {
            self.left_at[cpu] = Some(*now);
        }
        ends
    }

    /// Whether a CPU has gone offline in the region that was opened last.
    pub(crate) fn has_left(&self, cpu: usize) -> bool {
        self.left_at.get(cpu).is_some_and(Option::is_some)
    }

    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// The counts of a CPU since the region was opened, until the CPU went offline if it did.
    pub(crate) fn used(&self, cpu: usize, now: &Counts) -> Counts {
        let until = self.left_at[cpu].as_ref().unwrap_or(now);
        std::array::from_fn(|position| until[position] - self.opened_at[cpu][position])
    }

    /// The time of a CPU when the region was opened.
    pub(crate) fn opened_at(&self, cpu: usize) -> u64 {
        self.opened_at[cpu][TIME]
    }
}

#[cfg(test)]
mod tests {
    use simrecord::counters::COUNTERS;

    use super::*;

    #[test]
    fn a_region_ends_for_a_cpu_where_that_first_goes_offline() {
        let mut regions = Regions::default();
        let counts = |count| [count; COUNTERS];
        assert!(!regions.leave(1, &counts(1)) && regions.open(&[counts(1), counts(2)]));
        assert!(regions.leave(1, &counts(5)) && !regions.leave(1, &counts(7)));
        assert_eq!((regions.has_left(0), regions.has_left(1)), (false, true));
        assert_eq!(regions.used(0, &counts(9)), counts(8));
        assert_eq!(regions.used(1, &counts(9)), counts(3));
        regions.close();
        assert!(!regions.leave(0, &counts(9)) && regions.open(&[counts(9), counts(9)]));
        assert!(!regions.has_left(1));
    }
}
