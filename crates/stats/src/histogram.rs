//! A log-linear histogram with a fixed layout: 16 buckets per power of two.
//!
//! The BPF programs of the live bench count into equal slots (`slot_of_value` in `crates/live/bpf/distribution_slots.h`).
//! Both must change together: a test of the live bench compares them slot by slot.
//!
//! Each value below 32 has a bucket. A bucket of larger values is at most 1/16 of its lower bound wide. Therefore any
//! value in a bucket has a relative error of at most 1/16. The midpoint, which quantiles report, has at most 1/32.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::interval::{quantile_ranks, quantile_ranks_95, t_quantile};
use crate::rank::quantile_rank;
use crate::sections::Inflation;

/// Number of slots, each of which counts one bucket of values.
pub const SLOTS: usize = 512;
/// The relative error of any value in a bucket is at most 1 over this number.
pub const ERROR_DENOMINATOR: u64 = 16;
/// Values from here on share the last bucket. In ns, the limit is 34 s.
pub const VALUE_LIMIT: u64 = 1 << 35;

/// Each power of two has 2 to this power buckets.
const SUB_BITS: u32 = 4;

/// The slot that counts `value`.
#[must_use]
pub fn slot_of(value: u64) -> usize {
    if value >= VALUE_LIMIT {
        return SLOTS - 1;
    }
    if value < 1 << SUB_BITS {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    (shift as usize) * 16 + (value >> shift) as usize
}

/// The smallest and the largest value that `slot` counts. The last slot also counts all larger values. Panics if `slot`
/// is not below [`SLOTS`].
#[must_use]
pub fn bounds_of(slot: usize) -> (u64, u64) {
    assert!(slot < SLOTS, "slot {slot} of {SLOTS}");
    if slot < 32 {
        return (slot as u64, slot as u64);
    }
    let shift = slot / 16 - 1;
    let low = ((slot % 16 + 16) as u64) << shift;
    (low, low + (1 << shift) - 1)
}

/// Counts of values in the layout of this module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLinear {
    counts: Vec<u64>,
}

impl Default for LogLinear {
    fn default() -> Self {
        LogLinear { counts: vec![0; SLOTS] }
    }
}

impl LogLinear {
    /// A histogram from existing counts. `None` unless `counts` has [`SLOTS`] elements.
    #[must_use]
    pub fn from_counts(counts: Vec<u64>) -> Option<Self> {
        (counts.len() == SLOTS).then_some(LogLinear { counts })
    }

    pub fn record(&mut self, value: u64) {
        self.counts[slot_of(value)] += 1;
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &LogLinear) {
        for (count, added) in self.counts.iter_mut().zip(&other.counts) {
            *count += added;
        }
    }

    /// The counts that were added since `earlier`, an earlier reading of this histogram.
    #[must_use]
    pub fn since(&self, earlier: &LogLinear) -> LogLinear {
        let added = |(count, earlier_count): (&u64, &u64)| count.saturating_sub(*earlier_count);
        LogLinear { counts: self.counts.iter().zip(&earlier.counts).map(added).collect() }
    }

    /// Number of values below `limit`. Exact if `limit` is the lower bound of a bucket, such as a power of two.
    /// Otherwise, the values in the bucket of `limit` do not count.
    #[must_use]
    pub fn below(&self, limit: u64) -> u64 {
        let end = if limit >= VALUE_LIMIT { SLOTS } else { slot_of(limit) };
        self.counts[..end].iter().sum()
    }

    /// Number of values counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The quantile at `per_100k` of 100,000 values: the midpoint of the bucket with the nearest rank. For 100,000,
    /// this is the bucket of the largest value.
    ///
    /// `None` if less than one value is expected above the quantile, which would only repeat the largest value: a 99th
    /// percentile needs 100 values. `None` also if `per_100k` is 0 or above 100,000, or if the quantile is
    /// [`VALUE_LIMIT`] or more.
    #[must_use]
    pub fn quantile(&self, per_100k: u32) -> Option<u64> {
        let (low, high) = self.bucket_of(self.quantile_rank(per_100k)?)?;
        (high < VALUE_LIMIT - 1).then_some(low + (high - low) / 2)
    }

    /// The rank of a quantile among the sorted values, from 1. `None` if there are too few values for it.
    #[must_use]
    pub fn quantile_rank(&self, per_100k: u32) -> Option<u64> {
        quantile_rank(self.total(), per_100k)
    }

    /// The 95 % interval of [`LogLinear::quantile`], from the order of the values alone ([`quantile_ranks_95`]). The
    /// interval includes the whole buckets at both ends. An end that the values do not bound is `None`.
    #[must_use]
    pub fn quantile_interval(&self, per_100k: u32) -> (Option<u64>, Option<u64>) {
        if self.quantile_rank(per_100k).is_none() {
            return (None, None);
        }
        let (low, high) = quantile_ranks_95(self.total(), per_100k);
        let bucket = |rank: Option<u64>| self.bucket_of(rank?);
        (bucket(low).map(|(low, _)| low), bucket(high).and_then(upper_end))
    }

    /// The interval of [`LogLinear::quantile`] for dependent values, with error probability `tail` at each end. The
    /// values count as fewer independent values: their number divided by the inflation of the variance. An end that the
    /// values do not bound is `None`.
    #[must_use]
    pub fn quantile_interval_inflated(
        &self,
        per_100k: u32,
        inflation: Inflation,
        tail: f64,
    ) -> (Option<u64>, Option<u64>) {
        let total = self.total();
        let student_quantile = t_quantile(inflation.degrees_of_freedom as f64, tail);
        let (Some(student_quantile), Some(_)) = (student_quantile, self.quantile_rank(per_100k))
        else {
            return (None, None);
        };
        // The inflation is only an estimate, so the interval must be wider: Student's quantile replaces the normal one.
        let tail = Normal::standard().cdf(-student_quantile);
        let independent = ((total as f64 / inflation.variance_ratio) as u64).clamp(1, total);
        let (low, high) = quantile_ranks(independent, per_100k, tail);
        // Converts ranks among the independent values to ranks among all values. Each independent value stands for a
        // sequence of neighbours. The lower end is the first of its sequence, and the upper end the last of its sequence,
        // so that the interval becomes wider.
        let scale = |rank: u64| u128::from(rank) * u128::from(total);
        let low = low.map(|rank| (scale(rank - 1) / u128::from(independent)) as u64 + 1);
        let high = high.map(|rank| scale(rank).div_ceil(u128::from(independent)) as u64);
        let bucket = |rank: Option<u64>| self.bucket_of(rank?);
        (bucket(low).map(|(low, _)| low), bucket(high).and_then(upper_end))
    }

    /// The slot that counts the quantile at `per_100k` of 100,000. `None` if [`LogLinear::quantile`] has no value.
    #[must_use]
    pub fn quantile_slot(&self, per_100k: u32) -> Option<usize> {
        self.quantile(per_100k).map(slot_of)
    }

    /// The bounds of the bucket that counts the value of this rank, from 1. `None` if fewer values were counted.
    fn bucket_of(&self, rank: u64) -> Option<(u64, u64)> {
        let mut seen = 0;
        let slot = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(bounds_of(slot))
    }

    /// The lower bound, upper bound and count of each slot that is not empty, in ascending order. The last slot has no
    /// upper bound: its values are at most `largest`, which is the largest recorded value or any larger value.
    pub fn filled_up_to(&self, largest: u64) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.filled().map(move |(low, high, count)| {
            let is_open = high == VALUE_LIMIT - 1;
            (low, if is_open { high.max(largest) } else { high }, count)
        })
    }

    /// The lower bound, upper bound and count of each slot that is not empty, in ascending order. Values in the last slot
    /// can exceed its upper bound: [`LogLinear::filled_up_to`] has a bound that they do not exceed.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(slot, &count)| {
            let (low, high) = bounds_of(slot);
            (low, high, count)
        })
    }
}

/// The upper bound of a bucket. `None` for the last bucket, which has none.
fn upper_end((_, high): (u64, u64)) -> Option<u64> {
    (high < VALUE_LIMIT - 1).then_some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slots_tile_the_values_without_gap_or_overlap() {
        let mut next = 0;
        for slot in 0..SLOTS {
            let (low, high) = bounds_of(slot);
            assert_eq!(low, next, "slot {slot}");
            assert_eq!((slot_of(low), slot_of(high)), (slot, slot));
            next = high + 1;
        }
        assert_eq!(next, VALUE_LIMIT);
        assert_eq!(slot_of(u64::MAX), SLOTS - 1);
    }

    proptest! {
        #[test]
        fn a_bucket_is_within_a_sixteenth_of_its_values(value in 1u64..VALUE_LIMIT) {
            let (low, high) = bounds_of(slot_of(value));
            prop_assert!(low <= value && value <= high);
            prop_assert!((high - low) * ERROR_DENOMINATOR <= low);
        }

        #[test]
        fn quantiles_are_within_a_sixteenth_of_the_sorted_values(
            mut values in prop::collection::vec(0u64..1_000_000, 1..300),
            per_100k in 1u32..=100_000,
        ) {
            let mut histogram = LogLinear::default();
            values.iter().for_each(|v| histogram.record(*v));
            values.sort_unstable();
            let rank = (values.len() as u64 * u64::from(per_100k)).div_ceil(100_000) as usize;
            let truth = values[rank - 1];
            let above = values.len() as u64 * u64::from(100_000 - per_100k);
            let estimate = histogram.quantile(per_100k);
            prop_assert_eq!(estimate.is_some(), per_100k == 100_000 || above >= 100_000);
            let (low, high) = histogram.quantile_interval(per_100k);
            prop_assert!(low.is_none_or(|low| low <= truth) && high.is_none_or(|high| high >= truth));
            prop_assert!(estimate.is_some() || (low, high) == (None, None));
            let estimate = estimate.unwrap_or(truth);
            prop_assert!(truth.abs_diff(estimate) * ERROR_DENOMINATOR <= truth);
        }

        #[test]
        fn an_interval_of_dependent_values_contains_the_quantile(
            values in prop::collection::vec(0u64..1_000_000, 1..3_000),
            per_100k in 1u32..=100_000,
            variance_ratio in 1.0f64..200.0,
            degrees_of_freedom in 1u64..40,
        ) {
            let mut histogram = LogLinear::default();
            values.iter().for_each(|value| histogram.record(*value));
            let inflation = Inflation {
                variance_ratio,
                drift_ratio: 0.0,
                degrees_of_freedom,
                is_correlated: false,
            };
            let (low, high) = histogram.quantile_interval_inflated(per_100k, inflation, 0.025);
            let estimate = histogram.quantile(per_100k);
            prop_assert!(low.is_none_or(|low| Some(low) <= estimate), "{:?} {:?}", low, estimate);
            prop_assert!(high.is_none_or(|high| Some(high) >= estimate), "{:?} {:?}", high, estimate);
        }
    }

    #[test]
    fn quantiles_in_the_last_bucket_are_absent_and_have_a_lower_bound() {
        let mut histogram = LogLinear::default();
        (0..100).for_each(|_| histogram.record(1_000));
        (0..900).for_each(|_| histogram.record(VALUE_LIMIT * 200));
        assert_eq!(histogram.quantile(5_000), Some(1_007));
        assert_eq!(histogram.quantile(50_000), None);
        let (low, high) = histogram.quantile_interval(50_000);
        assert_eq!((low, high), (Some(bounds_of(SLOTS - 1).0), None));
    }

    #[test]
    fn the_last_bucket_reaches_to_the_largest_value() {
        let minute_ns = 60_000_000_000;
        let mut histogram = LogLinear::default();
        [7, 1_000, minute_ns].iter().for_each(|value| histogram.record(*value));
        let ends = |largest| -> Vec<u64> {
            histogram.filled_up_to(largest).map(|(_, high, _)| high).collect()
        };
        assert_eq!(ends(minute_ns), [7, 1_023, minute_ns]);
        // A largest value in an earlier bucket changes no bound.
        assert_eq!(ends(1_000), [7, 1_023, VALUE_LIMIT - 1]);
        histogram = LogLinear::default();
        histogram.record(1_000);
        assert_eq!(histogram.filled_up_to(1_000).collect::<Vec<_>>(), [(992, 1_023, 1)]);
    }

    #[test]
    fn counts_below_a_power_of_two_are_exact_and_differences_are_what_came_since() {
        let mut earlier = LogLinear::default();
        [3, 1023, 1024, 70_000].iter().for_each(|value| earlier.record(*value));
        assert_eq!([0, 4, 1024, 2048].map(|limit| earlier.below(limit)), [0, 1, 2, 3]);
        assert_eq!(earlier.below(u64::MAX), 4);
        let mut now = earlier.clone();
        now.record(5_000);
        let since = now.since(&earlier);
        assert_eq!((since.total(), since.filled().next().map(|(_, _, count)| count)), (1, Some(1)));
        assert_eq!(earlier.since(&now).total(), 0);
    }

    #[test]
    fn nothing_counted_has_no_quantile() {
        assert_eq!(LogLinear::default().quantile(50_000), None);
        let mut histogram = LogLinear::default();
        histogram.record(5);
        assert_eq!((histogram.quantile(0), histogram.quantile(100_001)), (None, None));
        assert_eq!(histogram.quantile(100_000), Some(5));
    }
}
