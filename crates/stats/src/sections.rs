//! Histograms of the sections of a window, and the uncertainty of quantiles that follows from them. Tables of
//! `handlers` use it for the intervals of quantiles.
//!
//! An interval of a quantile from the order of the values alone assumes independent values. Spans of interrupts are
//! not independent: they come in bursts, and their costs drift. The share of values below a limit therefore differs
//! between the sections of the window. The size of these differences determines how much wider the interval must be
//! (the variance of an indicator by batch means: Schmeiser, Batch size effects in the analysis of simulation
//! output, Operations Research 30, 1982; quantiles: Bahadur, A note on quantiles in large samples, Annals of
//! Mathematical Statistics 37, 1966).

use crate::histogram::SLOTS;
use crate::interval::{Batches, Cell, IntervalMethod, ratio_from_batches};

/// The counts of a section for each slot of [`crate::LogLinear`]. Empty slots at the end may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SectionCounts(pub Vec<u64>);

impl Cell for SectionCounts {
    fn add(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (count, added) in self.0.iter_mut().zip(&other.0) {
            *count = count.saturating_add(*added);
        }
    }
}

impl SectionCounts {
    /// Counts one value in its slot.
    pub fn record(&mut self, slot: usize) {
        if self.0.len() <= slot {
            self.0.resize(slot + 1, 0);
        }
        self.0[slot] += 1;
    }

    /// Number of values in slots up to and including `slot`.
    fn up_to(&self, slot: usize) -> u64 {
        self.0.iter().take(slot + 1).sum()
    }
}

/// The histograms of a window's sections. All sections have equal length in time.
pub type Sections = Batches<SectionCounts>;

/// How much a quantile's variance exceeds the variance for independent values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inflation {
    /// The variance of the share of values below the quantile, divided by this variance for
    /// independent values. At least 1.
    pub variance_ratio: f64,
    /// The variance of this share between windows because of slow changes ([`crate::interval::drift`]), divided by the
    /// variance for independent values.
    pub drift_ratio: f64,
    /// Degrees of freedom of `variance_ratio`.
    pub degrees_of_freedom: u64,
    /// Whether neighbouring sections correlate. The window was then too short, and the ratio may be too small.
    pub is_correlated: bool,
}

impl Inflation {
    /// The inflation for comparing quantiles of different windows: it includes slow changes.
    #[must_use]
    pub fn between_windows(self) -> Inflation {
        Inflation { variance_ratio: self.variance_ratio + self.drift_ratio, ..self }
    }

    /// The larger of each ratio of two inflations, with the smaller number of degrees of freedom. An interval with the
    /// result is at least as wide as with either inflation.
    #[must_use]
    pub fn or_larger(self, other: Inflation) -> Inflation {
        Inflation {
            variance_ratio: self.variance_ratio.max(other.variance_ratio),
            drift_ratio: self.drift_ratio.max(other.drift_ratio),
            degrees_of_freedom: self.degrees_of_freedom.min(other.degrees_of_freedom),
            is_correlated: self.is_correlated || other.is_correlated,
        }
    }
}

/// The inflation at a quantile in the slot `quantile_slot`: the larger inflation of the shares of values below and
/// above this slot. `None` with too few sections, or if all values of the sections are in this slot.
#[must_use]
pub fn inflation_at(sections: &Sections, quantile_slot: usize) -> Option<Inflation> {
    let mut pooled = SectionCounts::default();
    sections.cells.iter().for_each(|section| pooled.add(section));
    let total: u64 = pooled.0.iter().sum();
    // A share of 0 or 1 has no variance, so a limit must have values on both sides.
    let divides_values = |slot: &usize| {
        let count_below = pooled.up_to(*slot);
        count_below > 0 && count_below < total
    };
    let slot_below = (0..quantile_slot).rev().find(divides_values);
    let slot_above = (quantile_slot..SLOTS).find(divides_values);
    let limits = [slot_below, slot_above].into_iter().flatten();
    let inflations = limits.map(|slot| inflation(sections, slot));
    inflations.reduce(|below, above| Some(below?.or_larger(above?))).flatten()
}

/// The inflation of the share of values in slots up to and including `slot`. `None` with too few sections.
fn inflation(sections: &Sections, slot: usize) -> Option<Inflation> {
    let pair =
        |section: &SectionCounts| (section.up_to(slot) as f64, section.up_to(SLOTS - 1) as f64);
    let pairs: Vec<(f64, f64)> = sections.cells.iter().map(pair).collect();
    let interval = ratio_from_batches(&pairs)?;
    let total: f64 = pairs.iter().map(|pair| pair.1).sum();
    // The binomial variance of the share.
    let independent_variance = interval.mean * (1.0 - interval.mean) / total;
    let error = interval.half_width / crate::interval::t_95(interval.degrees_of_freedom)?;
    Some(Inflation {
        variance_ratio: (error.powi(2) / independent_variance).max(1.0),
        drift_ratio: interval.drift.powi(2) / independent_variance,
        degrees_of_freedom: interval.degrees_of_freedom,
        is_correlated: interval.method == IntervalMethod::BatchMeansCorrelated,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::histogram::slot_of;

    /// 16 sections of `count` values each; `value` makes the value of a section.
    fn sections(count: u64, mut value: impl FnMut(u64) -> u64) -> Sections {
        let section = |section: u64| {
            let mut counts = SectionCounts::default();
            (0..count).for_each(|_| counts.record(slot_of(value(section))));
            counts
        };
        Sections { shift: 20, cells: (0..16).map(section).collect() }
    }

    #[test]
    fn independent_values_are_hardly_inflated_and_levels_of_sections_are() {
        let mut random = Random::new(5);
        let even = sections(200, |_| 900 + random.below(200));
        let inflation = inflation_at(&even, slot_of(1_000)).unwrap();
        assert!(inflation.variance_ratio < 2.5, "{inflation:?}");
        assert!((7..=15).contains(&inflation.degrees_of_freedom), "{inflation:?}");
        let mut random = Random::new(5);
        let levels = sections(200, |section| 800 + 200 * (section * 7 % 3) + random.below(200));
        let inflation = inflation_at(&levels, slot_of(1_000)).unwrap();
        assert!(inflation.variance_ratio > 50.0, "{inflation:?}");
    }

    #[test]
    fn what_sections_do_not_resolve_has_no_inflation() {
        assert_eq!(inflation_at(&Sections::default(), 100), None);
        assert_eq!(inflation_at(&sections(50, |_| 1_000), slot_of(1_000)), None, "one slot");
        let mut seven = sections(50, |section| 900 + 10 * section);
        seven.cells.truncate(7);
        assert_eq!(inflation_at(&seven, slot_of(950)), None, "too few sections");
    }
}
