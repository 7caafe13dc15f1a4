//! The distribution of a stream of durations: exact sums, peak, histogram, batches, sections.
//!
//! All benches return durations in this form, and the tables of `lab` read means, quantiles and their intervals from
//! it. The unit of values and times is the bench's, mostly ns.

use crate::histogram::LogLinear;
use crate::interval::{self, Batches, Interval};
use crate::sections::{Inflation, Sections, inflation_at};

/// The largest value of a stream and its time. The order of the fields matters: peaks compare by value first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peak {
    pub value: u64,
    /// The time stamp of the value, in the clock of the measurement.
    pub at: u64,
}

/// The distribution of a stream of durations. Sums are exact; quantiles have a relative error of at most 1/16.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    pub count: u64,
    pub sum: u64,
    /// The sum of the squared values. 0 if it was not computed.
    pub sum_of_squares: u128,
    pub peak: Peak,
    pub histogram: LogLinear,
    /// Sums of batches of equal length in time. Without cells if the bench kept no batches.
    pub batches: Batches,
    /// Histograms of the sections of the window. Without cells if the bench kept no sections.
    pub sections: Sections,
}

/// How the intervals of quantiles were computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantileMethod {
    /// From the order of the values, widened by the differences between the sections of the window.
    Sections,
    /// Like `Sections`, but neighbouring sections correlate: the interval may be too narrow.
    SectionsCorrelated,
    /// From the order of the values alone, as if they were independent.
    Order,
}

impl QuantileMethod {
    /// The name used in tables: `sections`, `sections-correlated` or `order`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            QuantileMethod::Sections => "sections",
            QuantileMethod::SectionsCorrelated => "sections-correlated",
            QuantileMethod::Order => "order",
        }
    }

    /// The method that a known inflation allows.
    #[must_use]
    pub fn for_inflation(inflation: Option<Inflation>) -> QuantileMethod {
        match inflation {
            None => QuantileMethod::Order,
            Some(inflation) if inflation.is_correlated => QuantileMethod::SectionsCorrelated,
            Some(_) => QuantileMethod::Sections,
        }
    }
}

impl Distribution {
    /// Adds one value with the time `at`, except to the batches and the sections: the caller adds to these.
    pub fn record(&mut self, value: u64, at: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        let square = u128::from(value) * u128::from(value);
        self.sum_of_squares = self.sum_of_squares.saturating_add(square);
        self.peak = self.peak.max(Peak { value, at });
        self.histogram.record(value);
    }

    /// The smallest value, largest value and count of each filled bucket, in ascending order. No recorded value is larger
    /// than the largest value of its bucket.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.histogram.filled_up_to(self.peak.value)
    }

    /// Adds another stream of the same window, such as another CPU's. Batches or sections that one of the two streams
    /// lacks are dropped: they would not contain all values.
    pub fn merge(&mut self, other: &Distribution) {
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        if other.count == 0 {
            return;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_of_squares = self.sum_of_squares.saturating_add(other.sum_of_squares);
        self.peak = self.peak.max(other.peak);
        self.histogram.merge(&other.histogram);
        if self.batches.cells.is_empty() || other.batches.cells.is_empty() {
            self.batches = Batches::default();
        } else {
            self.batches.merge(&other.batches);
        }
        if self.sections.cells.is_empty() || other.sections.cells.is_empty() {
            self.sections = Sections::default();
        } else {
            self.sections.merge(&other.sections);
        }
    }

    /// The mean; `None` without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The 95 % confidence interval of the mean. It comes from the batches if there are enough, and otherwise from the
    /// sample variance. `None` with neither.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        let from_variance = || {
            (self.sum_of_squares > 0 || self.sum == 0)
                .then(|| interval::from_moments(self.count, self.sum, self.sum_of_squares))
                .flatten()
        };
        interval::from_batches(&self.batches.cells).or_else(from_variance)
    }

    /// The quantile at `per_100k` of 100,000 values, at most the largest value. `None` as in [`LogLinear::quantile`].
    #[must_use]
    pub fn quantile(&self, per_100k: u32) -> Option<u64> {
        self.histogram.quantile(per_100k).map(|value| value.min(self.peak.value))
    }

    /// The factor by which the quantile's variance exceeds the variance of independent values. `None` if the
    /// sections do not determine it.
    #[must_use]
    pub fn quantile_inflation(&self, per_100k: u32) -> Option<Inflation> {
        inflation_at(&self.sections, self.histogram.quantile_slot(per_100k)?)
    }

    /// The 95 % interval of a quantile. It uses the inflation if the sections determine it, and otherwise only the
    /// order of the values ([`LogLinear::quantile_interval`]).
    #[must_use]
    pub fn quantile_interval(&self, per_100k: u32) -> (Option<u64>, Option<u64>) {
        self.quantile_interval_by(per_100k, self.quantile_inflation(per_100k))
    }

    /// The 95 % interval of a quantile with a given inflation, or from the order of the values alone.
    #[must_use]
    pub fn quantile_interval_by(
        &self,
        per_100k: u32,
        inflation: Option<Inflation>,
    ) -> (Option<u64>, Option<u64>) {
        match inflation {
            Some(inflation) => self.quantile_bounds(per_100k, inflation, 0.025),
            None => {
                let (low, high) = self.histogram.quantile_interval(per_100k);
                (low, high.map(|value| value.min(self.peak.value)))
            }
        }
    }

    /// The interval of a quantile with error probability `tail` at each end; see
    /// [`LogLinear::quantile_interval_inflated`].
    #[must_use]
    pub fn quantile_bounds(
        &self,
        per_100k: u32,
        inflation: Inflation,
        tail: f64,
    ) -> (Option<u64>, Option<u64>) {
        let (low, high) = self.histogram.quantile_interval_inflated(per_100k, inflation, tail);
        (low, high.map(|value| value.min(self.peak.value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::Batch;

    fn distribution_of(values: &[u64]) -> Distribution {
        let mut d = Distribution::default();
        d.batches.cells = vec![Batch::default(); 2];
        for (at, &value) in values.iter().enumerate() {
            d.record(value, at as u64);
            d.batches.cells[at % 2].count += 1;
            d.batches.cells[at % 2].sum += value;
        }
        d
    }

    #[test]
    fn merging_two_cpus_is_the_same_as_seeing_both_streams() {
        let (a, b) = (distribution_of(&[10, 20, 30]), distribution_of(&[5, 400]));
        let mut both = a.clone();
        both.merge(&b);
        assert_eq!((both.count, both.sum, both.peak.value), (5, 465, 400));
        assert_eq!(both.batches.cells.iter().map(|batch| batch.sum).sum::<u64>(), 465);
        assert_eq!(both.histogram.total(), 5);
        let mut empty = Distribution::default();
        empty.merge(&a);
        assert_eq!(empty, a);
    }

    #[test]
    fn a_quantile_never_exceeds_the_peak() {
        assert_eq!(distribution_of(&[1000; 1_000]).quantile(99_900), Some(1000));
        assert_eq!(distribution_of(&[1000, 1023]).quantile(100_000), Some(1007));
        assert_eq!(Distribution::default().quantile(50_000), None);
    }
}
