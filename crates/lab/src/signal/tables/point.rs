//! The windows of one point of the sweep: a load, a rate and a scheme.

use super::super::sample::{RatePoint, RateWindow};
use super::columns::{Median, Values, grouped, per_second};

/// The windows of one point.
pub(super) struct Point<'w> {
    /// What was measured.
    pub at: RatePoint,
    /// Its repetitions: those that are not contaminated, or all where all are.
    pub windows: Vec<&'w RateWindow>,
    /// How many were contaminated.
    pub contaminated: usize,
}

impl Point<'_> {
    /// Part of the CPU's time that signalling and handling took, median of the windows; absent where it was
    /// not measured.
    pub fn cpu_ratio(&self) -> Option<Median> {
        Values::of(&self.windows, |window| window.activity.cpu_ratio(self.at.load)).median()
    }

    /// Mean latency, ns, median of the windows: a pause of the host is in few of them, and in their means.
    pub fn latency_mean_ns(&self) -> Option<Median> {
        Values::of(&self.windows, |window| window.latency.mean()).median()
    }

    /// Events handled per second.
    pub fn delivered_hz(&self) -> Option<f64> {
        Values::of(&self.windows, |window| per_second(window.delivered, &window.activity)).mean()
    }

    /// Events that were due, per second.
    pub fn offered_hz(&self) -> Option<f64> {
        Values::of(&self.windows, |window| per_second(window.offered, &window.activity)).mean()
    }

    /// Signals per second.
    pub fn signals_hz(&self) -> Option<f64> {
        let rate = |window: &&RateWindow| per_second(window.activity.signals?, &window.activity);
        Values::of(&self.windows, rate).mean()
    }
}

/// The points, by load, rate and scheme.
pub(super) fn points(windows: &[RateWindow]) -> Vec<Point<'_>> {
    let key = |window: &RateWindow| (window.point.load, window.point.rate_hz, window.point.scheme);
    grouped(windows, key)
        .into_iter()
        .map(|((load, rate_hz, scheme), all)| {
            let (accepted, contaminated): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|window| window.contamination().is_none());
            let at = RatePoint { scheme, load, rate_hz };
            let number = contaminated.len();
            let windows = if accepted.is_empty() { contaminated } else { accepted };
            Point { at, windows, contaminated: number }
        })
        .collect()
}
