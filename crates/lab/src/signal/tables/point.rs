//! The points of the sweep over event rates, with their windows. Table `rates` has a row for each point, and the fit of
//! the model (`fit.rs`) uses each point as an observation.

use super::super::sample::{RatePoint, RateWindow, is_mostly_overloaded};
use super::columns::{Median, Values, grouped, per_second};

/// A point of the sweep over event rates: all windows with one load, rate and scheme.
pub(super) struct Point<'w> {
    /// Load, rate and scheme of the windows.
    pub key: RatePoint,
    /// The uncontaminated repetitions, or all repetitions if all are contaminated.
    pub windows: Vec<&'w RateWindow>,
    /// Number of contaminated repetitions.
    pub contaminated: usize,
}

impl Point<'_> {
    /// Whether all windows are contaminated. The figures then come from contaminated windows.
    pub fn is_contaminated(&self) -> bool {
        self.windows.iter().all(|window| window.contamination().is_some())
    }

    /// Whether the receiver does not keep up: at least half of the windows are overloaded.
    pub fn is_overloaded(&self) -> bool {
        is_mostly_overloaded(self.overloaded_count(), self.windows.len())
    }

    /// `count` of all windows, as a share of the events that were due. `None` if no event was due.
    pub fn share_of_offered(&self, count: impl Fn(&RateWindow) -> u64) -> Option<f64> {
        let offered: u64 = self.windows.iter().map(|window| window.offered).sum();
        let counted: u64 = self.windows.iter().map(|window| count(window)).sum();
        (offered > 0).then(|| counted as f64 / offered as f64)
    }

    /// Share of the CPU's time that signalling and handling took: median of the windows. `None` if it is unknown.
    pub fn cpu_ratio(&self) -> Option<Median> {
        Values::from_windows(&self.windows, |window| window.activity.cpu_ratio(self.key.load))
            .median()
    }

    /// The windows whose latency counts: those without overload. Empty if the point is overloaded.
    pub fn latency_windows(&self) -> Vec<&RateWindow> {
        if self.is_overloaded() {
            return Vec::new();
        }
        self.windows.iter().copied().filter(|window| !window.is_overloaded()).collect()
    }

    /// Number of overloaded windows.
    pub fn overloaded_count(&self) -> usize {
        self.windows.iter().filter(|window| window.is_overloaded()).count()
    }

    /// Mean latency, ns: median of the means of the windows without overload. A pause of the host affects only the means
    /// of a few windows. `None` if the point is overloaded.
    pub fn latency_mean_ns(&self) -> Option<Median> {
        Values::from_windows(&self.latency_windows(), |window| window.latency.mean()).median()
    }

    /// Events that were handled per second, mean of the windows. `None` without windows of a positive length.
    pub fn delivered_hz(&self) -> Option<f64> {
        Values::from_windows(&self.windows, |window| per_second(window.delivered, &window.activity))
            .mean()
    }

    /// Events that were due per second, mean of the windows. `None` without windows of a positive length.
    pub fn offered_hz(&self) -> Option<f64> {
        Values::from_windows(&self.windows, |window| per_second(window.offered, &window.activity))
            .mean()
    }

    /// How often handling was signalled per second, mean of the windows. `None` if nothing counts the signals.
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
        .map(|((load, rate_hz, scheme), windows)| {
            let (accepted, contaminated): (Vec<_>, Vec<_>) =
                windows.into_iter().partition(|window| window.contamination().is_none());
            let contaminated_count = contaminated.len();
            Point {
                key: RatePoint { scheme, load, rate_hz },
                windows: if accepted.is_empty() { contaminated } else { accepted },
                contaminated: contaminated_count,
            }
        })
        .collect()
}
