//! Regions of interest: whether a region is open, and the counts of each CPU at its start. The session has one
//! [`Regions`]; markers and options open and close regions.

use simrecord::counters::{Counts, TIME};

/// Whether a region is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionState {
    Open,
    Closed,
}

/// A start or an end of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionEdge {
    Open,
    Close,
}

/// The regions of a recording.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// The number of the region that was opened last, from 1. 0 before the first.
    number: u32,
    is_open: bool,
    /// The counts of each CPU when the last region was opened.
    opening_counts: Vec<Counts>,
    /// The counts of each CPU when it went offline in the region, which ended the region for the CPU. `None`: the CPU has
    /// not gone offline in the region.
    offline_counts: Vec<Option<Counts>>,
}

impl Regions {
    /// The number of the region that was opened last; 0 before the first.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn state(&self) -> RegionState {
        if self.is_open { RegionState::Open } else { RegionState::Closed }
    }

    /// Whether a region is open, and a CPU has not gone offline in it.
    pub(crate) fn contains_now(&self, cpu: usize) -> bool {
        self.is_open && !self.went_offline(cpu)
    }

    /// Opens the next region and returns true, unless a region is open.
    pub(crate) fn open(&mut self, counts_by_cpu: &[Counts]) -> bool {
        if self.is_open {
            return false;
        }
        self.is_open = true;
        self.number += 1;
        self.opening_counts = counts_by_cpu.to_vec();
        self.offline_counts = vec![None; counts_by_cpu.len()];
        true
    }

    /// Notes that a CPU goes offline. Returns whether this ends the open region for the CPU.
    pub(crate) fn go_offline(&mut self, cpu: usize, current: &Counts) -> bool {
        let ends_region = self.is_open && self.offline_counts.get(cpu) == Some(&None);
        if ends_region {
            self.offline_counts[cpu] = Some(*current);
        }
        ends_region
    }

    /// Whether a CPU has gone offline in the region that was opened last.
    pub(crate) fn went_offline(&self, cpu: usize) -> bool {
        self.offline_counts.get(cpu).is_some_and(Option::is_some)
    }

    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// The counts that a CPU added in the region that was opened last, open or closed. `current` is not used if the CPU
    /// went offline in the region.
    ///
    /// # Panics
    /// Panics before the first region, and for a CPU without counts in [`Regions::open`].
    pub(crate) fn counts_in_region(&self, cpu: usize, current: &Counts) -> Counts {
        let end_counts = self.offline_counts[cpu].as_ref().unwrap_or(current);
        std::array::from_fn(|counter| end_counts[counter] - self.opening_counts[cpu][counter])
    }

    /// The time of a CPU when the region was opened, in cycles.
    pub(crate) fn opening_cycle(&self, cpu: usize) -> u64 {
        self.opening_counts[cpu][TIME]
    }
}

#[cfg(test)]
mod tests {
    use simrecord::counters::COUNTERS;

    use super::*;

    #[test]
    fn a_region_ends_for_a_cpu_when_the_cpu_first_goes_offline() {
        let mut regions = Regions::default();
        let counts = |count| [count; COUNTERS];
        assert!(!regions.go_offline(1, &counts(1)) && regions.open(&[counts(1), counts(2)]));
        assert!(regions.go_offline(1, &counts(5)) && !regions.go_offline(1, &counts(7)));
        assert_eq!((regions.went_offline(0), regions.went_offline(1)), (false, true));
        assert!(regions.contains_now(0) && !regions.contains_now(1));
        assert_eq!(regions.counts_in_region(0, &counts(9)), counts(8));
        assert_eq!(regions.counts_in_region(1, &counts(9)), counts(3));
        regions.close();
        assert!(!regions.contains_now(0));
        assert!(!regions.go_offline(0, &counts(9)) && regions.open(&[counts(9), counts(9)]));
        assert!(!regions.went_offline(1));
    }
}
