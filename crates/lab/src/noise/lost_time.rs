//! The lost time in the course of a window, by cause: exact sums in a bounded number of intervals. The ledger of each
//! CPU fills it (`ledger.rs`), and table `lost_time` shows it.

use std::collections::BTreeMap;

use super::split::{Gap, Part};

/// Maximum number of intervals in a window. If a window needs more, the length of the intervals doubles.
pub const INTERVALS_MAX: usize = 512;
/// Length of the intervals in a short window, ns.
const LENGTH_NS_MIN: u64 = 100_000;

/// The lost time of a CPU by interval and cause.
#[derive(Clone, Debug)]
pub struct LostTime {
    /// Length of an interval, ns. Each interval starts at a multiple of this length.
    length_ns: u64,
    /// Number of the first interval: its start divided by `length_ns`. `None` until the first part is added.
    first: Option<u64>,
    /// The time of each cause, for each interval from `first` on.
    intervals: Vec<BTreeMap<Part, u64>>,
}

/// The time that a cause took in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostInterval {
    pub start_ns: u64,
    pub end_ns: u64,
    pub part: Part,
    pub lost_ns: u64,
}

impl Default for LostTime {
    fn default() -> Self {
        LostTime { length_ns: LENGTH_NS_MIN, first: None, intervals: Vec::new() }
    }
}

impl LostTime {
    /// Adds a gap with its parts. The parts must be in the order of time and add up to the gap. Gaps must be added in
    /// the order of time.
    pub fn add(&mut self, gap: Gap, parts: &[(Part, u64)]) {
        let mut start_ns = gap.start_ns;
        for &(part, length_ns) in parts {
            let end_ns = start_ns.saturating_add(length_ns);
            self.add_part(part, start_ns, end_ns);
            start_ns = end_ns;
        }
    }

    /// Divides the part's time among the intervals that the part overlaps.
    fn add_part(&mut self, part: Part, mut start_ns: u64, end_ns: u64) {
        if start_ns >= end_ns {
            return;
        }
        self.lengthen_intervals(start_ns, end_ns);
        while start_ns < end_ns {
            let number = start_ns / self.length_ns;
            let interval_end_ns = (number + 1).saturating_mul(self.length_ns).min(end_ns);
            let index = number.saturating_sub(self.first.unwrap_or(number)) as usize;
            if index >= self.intervals.len() {
                self.intervals.resize_with(index + 1, BTreeMap::new);
            }
            *self.intervals[index].entry(part).or_default() += interval_end_ns - start_ns;
            start_ns = interval_end_ns;
        }
    }

    /// Doubles the length of the intervals until at most [`INTERVALS_MAX`] of them reach `end_ns`. The first part
    /// determines the first interval.
    fn lengthen_intervals(&mut self, start_ns: u64, end_ns: u64) {
        let mut first = self.first.unwrap_or(start_ns / self.length_ns);
        while (end_ns / self.length_ns).saturating_sub(first) >= INTERVALS_MAX as u64 {
            let mut merged: Vec<BTreeMap<Part, u64>> = Vec::new();
            for (number, sums) in (first..).zip(std::mem::take(&mut self.intervals)) {
                // Two neighbours become one interval if the first of them has an even number.
                let index = (number / 2 - first / 2) as usize;
                merged.resize_with((index + 1).max(merged.len()), BTreeMap::new);
                for (part, lost_ns) in sums {
                    *merged[index].entry(part).or_default() += lost_ns;
                }
            }
            self.intervals = merged;
            self.length_ns = self.length_ns.saturating_mul(2);
            first /= 2;
        }
        self.first = Some(first);
    }

    /// The time that each cause took in each interval, in the order of time, then by cause. Causes without time are
    /// left out.
    pub fn intervals(&self) -> impl Iterator<Item = LostInterval> + '_ {
        let numbered = (self.first.unwrap_or(0)..).zip(&self.intervals);
        numbered.flat_map(|(number, sums)| {
            let start_ns = number.saturating_mul(self.length_ns);
            let end_ns = start_ns.saturating_add(self.length_ns);
            sums.iter().map(move |(&part, &lost_ns)| LostInterval {
                start_ns,
                end_ns,
                part,
                lost_ns,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gap_over_the_end_of_an_interval_is_divided_there() {
        let mut lost = LostTime::default();
        let gap = Gap { start_ns: 250_000, end_ns: 350_000 };
        lost.add(gap, &[(Part::Entry, 20_000), (Part::Context(7), 80_000)]);
        let found: Vec<(u64, Part, u64)> =
            lost.intervals().map(|found| (found.start_ns, found.part, found.lost_ns)).collect();
        let expected = [
            (200_000, Part::Context(7), 30_000),
            (200_000, Part::Entry, 20_000),
            (300_000, Part::Context(7), 50_000),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_gap_of_any_length_has_few_intervals() {
        for (start_ns, end_ns) in [(0, 3_600_000_000_000), (250_000, 51_500_000), (7, u64::MAX)] {
            let mut lost = LostTime::default();
            lost.add(Gap { start_ns, end_ns }, &[(Part::NoEvent, end_ns - start_ns)]);
            assert!(lost.intervals().count() <= INTERVALS_MAX, "{start_ns} {end_ns}");
            let sum: u64 = lost.intervals().map(|interval| interval.lost_ns).sum();
            assert_eq!(sum, end_ns - start_ns);
        }
    }

    proptest! {
        #[test]
        fn sums_stay_exact_and_intervals_few(
            gaps in prop::collection::vec((0u64..3_000_000_000, 1u64..60_000_000, 0u32..5), 1..200),
            start_ns in 0u64..u64::MAX / 2,
        ) {
            let mut lost = LostTime::default();
            let mut now_ns = start_ns;
            let mut expected: BTreeMap<Part, u64> = BTreeMap::new();
            for (wait_ns, length_ns, cause) in gaps {
                now_ns += wait_ns;
                let gap = Gap { start_ns: now_ns, end_ns: now_ns + length_ns };
                lost.add(gap, &[(Part::Context(cause), length_ns)]);
                *expected.entry(Part::Context(cause)).or_default() += length_ns;
                now_ns = gap.end_ns;
            }
            let mut sums: BTreeMap<Part, u64> = BTreeMap::new();
            let mut starts: Vec<u64> = Vec::new();
            for interval in lost.intervals() {
                *sums.entry(interval.part).or_default() += interval.lost_ns;
                starts.push(interval.start_ns);
                prop_assert!(interval.end_ns > start_ns && interval.start_ns < now_ns);
            }
            prop_assert_eq!(sums, expected);
            starts.dedup();
            prop_assert!(starts.len() <= INTERVALS_MAX);
            prop_assert!(starts.is_sorted());
        }
    }
}
