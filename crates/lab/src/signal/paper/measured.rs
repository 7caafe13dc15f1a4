//! The measured counterparts of the figures that the paper has.

use signalling::Scheme;
use stats::interval::from_values;

use super::super::sample::{Load, RateWindow, RoundTripWindow, Samples, TransferWindow};
use crate::judge::{Figure, Known};

/// Bits of a Mbit.
const MBIT: f64 = 1e6;

/// The measured counterparts of the figures that the paper has.
pub(super) struct Measured<'a> {
    /// The windows.
    pub samples: &'a Samples,
}

/// Mean and interval over repetitions.
fn over(values: Vec<f64>) -> Known {
    match (from_values(&values), values.first()) {
        (Some(interval), _) => Ok(Figure { mean: interval.mean, half_width: interval.half_width }),
        // One repetition has no interval, and so is beyond none.
        (None, Some(one)) => Ok(Figure { mean: *one, half_width: f64::INFINITY }),
        (None, None) => Err("not measured".to_owned()),
    }
}

impl Measured<'_> {
    /// Throughput, Mbit/s.
    pub fn mbit_per_s(&self, load: Load, scheme: Scheme, bytes: u64) -> Known {
        let of = self.samples.transfers.iter().filter(|window| {
            let point = window.point;
            (point.load, point.scheme, point.socket_buffer_bytes) == (load, scheme, bytes)
        });
        over(of.filter_map(mbit_per_s).collect())
    }

    /// A figure of the round trips without a CPU-bound job, ns.
    pub fn round_trip_ns(
        &self,
        scheme: Scheme,
        bulk: bool,
        figure: fn(&RoundTripWindow) -> Option<f64>,
    ) -> Known {
        let of = self.samples.round_trips.iter().filter(|window| {
            let point = window.point;
            (point.load, point.scheme, point.bulk) == (Load::Idle, scheme, bulk)
        });
        over(of.filter_map(figure).collect())
    }

    /// CPU use of a scheme, 0 to 1, by the job of the lowest priority.
    pub fn cpu_ratio(&self, scheme: Scheme) -> Known {
        let is_accepted = |window: &&RateWindow| window.contamination().is_none();
        let accepted = self.samples.rates.iter().filter(is_accepted);
        let of = accepted.filter(|window| window.point.scheme == scheme);
        let used = |window: &RateWindow| window.activity.cpu_ratio(window.point.load);
        over(of.filter_map(used).collect())
    }
}

/// The smallest round trip of a window, ns; within 1/16.
pub(super) fn least(window: &RoundTripWindow) -> Option<f64> {
    window.round_trip.histogram.filled().next().map(|(low, _, _)| low as f64)
}

/// The mean of a window, ns.
pub(super) fn mean(window: &RoundTripWindow) -> Option<f64> {
    window.round_trip.mean()
}

/// The largest round trip of a window, ns.
pub(super) fn most(window: &RoundTripWindow) -> Option<f64> {
    (window.round_trip.count > 0).then_some(window.round_trip.peak.value as f64)
}

/// The throughput of a window, Mbit/s.
fn mbit_per_s(window: &TransferWindow) -> Option<f64> {
    let ns = window.activity.window_ns;
    (ns > 0).then(|| window.bytes as f64 * 8.0 / MBIT * 1e9 / ns as f64)
}
