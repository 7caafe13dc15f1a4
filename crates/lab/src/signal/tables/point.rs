//! The windows of one point of the sweep: a load, a rate and a scheme.

use super::super::sample::{RatePoint, RateWindow};
use super::columns::{Median, Values, grouped, per_second};

/// The windows of one point.
pub(super) struct Point<'w> {
    pub at: RatePoint,
    /// The uncontaminated repetitions, or all repetitions if all are contaminated.
    pub windows: Vec<&'w RateWindow>,
    /// Number of contaminated repetitions.
    pub contaminated: usize,
}

impl Point<'_> {
    /// Share of the CPU's time that signalling and handling took: median of the windows. `None` if it is unknown.
    pub fn cpu_ratio(&self) -> Option<Median> {
        Values::from_windows(&self.windows, |window| window.activity.cpu_ratio(self.at.load))
            .median()
    }

    /// Mean latency in ns: median of the windows. A pause of the host affects the means of a few windows only.
    pub fn latency_mean_ns(&self) -> Option<Median> {
        Values::from_windows(&self.windows, |window| window.latency.mean()).median()
    }

    /// Events handled per second.
    pub fn delivered_hz(&self) -> Option<f64> {
        Values::from_windows(&self.windows, |window| per_second(window.delivered, &window.activity))
            .mean()
    }

    /// Events that were due, per second.
    pub fn offered_hz(&self) -> Option<f64> {
        Values::from_windows(&self.windows, |window| per_second(window.offered, &window.activity))
            .mean()
    }

    pub fn signals_hz(&self) -> Option<f64> {
        let rate = |window: &&RateWindow| per_second(window.activity.signals?, &window.activity);
        Values::from_windows(&self.windows, rate).mean()
    }
}

/// Groups the windows into points, sorted by load, rate and scheme.
pub(super) fn points(windows: &[RateWindow]) -> Vec<Point<'_>> {
    let key = |window: &RateWindow| (window.point.load, window.point.rate_hz, window.point.scheme);
    grouped(windows, key)
        .into_iter()
        .map(|((load, rate_hz, scheme), all)| {
            let (accepted, contaminated): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|window| window.contamination().is_none());
            let contaminated_count = contaminated.len();
            Point {
                at: RatePoint { scheme, load, rate_hz },
                windows: if accepted.is_empty() { contaminated } else { accepted },
                contaminated: contaminated_count,
            }
        })
        .collect()
}
