//! A compared cell with its difference, interval and verdict.

use super::cells::{Figure, Pair};
use super::judge::Exactness;
use super::{Method, Verdict};

/// Rows with fewer spans than this are marked, and come last.
pub const FEW_SPANS: u64 = 30;

/// The difference of a cell in two runs, and its verdict.
#[derive(Clone, Debug)]
pub struct Difference<'a> {
    pub pair: Pair<'a>,
    /// Second figure less first, in the unit of the column. `None` if one of the runs lacks the figure. If a figure is only a
    /// bound, this is no measurement: see [`Difference::measured_change`].
    pub change: Option<f64>,
    /// Lower and upper end of the simultaneous interval of `change`. If the runs are exact, both are `change` itself;
    /// for a histogram's quantiles, they are the ends of the changes that the buckets allow. An end is infinite where a
    /// bound leaves the change open.
    pub interval: Option<(f64, f64)>,
    pub method: Method,
    pub verdict: Verdict,
    /// The probability that the true difference is beyond one given end of `interval`.
    pub tail: f64,
    pub(super) exactness: Exactness,
}

impl Difference<'_> {
    /// The values of the row's key columns, separated by spaces.
    #[must_use]
    pub fn row_name(&self) -> String {
        row_name(&self.pair)
    }

    /// `difference` as a part of the first figure. `None` if the first figure is 0 or missing.
    #[must_use]
    pub fn ratio(&self, difference: f64) -> Option<f64> {
        let base = self.pair.base?.value;
        (base != 0.0).then(|| difference / base.abs())
    }

    /// Whether a figure is only a bound.
    #[must_use]
    pub fn has_bound(&self) -> bool {
        let is_bound = |figure: Option<Figure>| figure.is_some_and(|figure| figure.bound.is_some());
        is_bound(self.pair.base) || is_bound(self.pair.new)
    }

    /// Second figure less first, in the unit of the column. `None` if a figure is missing, or only a bound.
    #[must_use]
    pub fn measured_change(&self) -> Option<f64> {
        if self.has_bound() { None } else { self.change }
    }

    /// Whether the row has too few spans in one of the runs for its figures to mean much.
    #[must_use]
    pub fn has_few_spans(&self) -> bool {
        self.pair.span_count.is_some_and(|count| count < FEW_SPANS)
    }

    /// The effect on CPU time: the relative change, times the share of CPU time of the row's context. The relative change
    /// itself if no table has such a share: only such changes are compared with each other.
    pub(super) fn effect(&self) -> f64 {
        let ratio =
            self.change.and_then(|change| self.ratio(change)).map_or(f64::INFINITY, f64::abs);
        match self.pair.context_share {
            Some(share) if ratio.is_finite() => ratio * share,
            Some(share) => share,
            None => ratio,
        }
    }
}

/// The values of the row's key columns, separated by spaces; empty values are left out.
pub(crate) fn row_name(pair: &Pair<'_>) -> String {
    let values = pair.row.iter().map(|(_, value)| value.as_str());
    values.filter(|value| !value.is_empty()).collect::<Vec<_>>().join(" ")
}
