//! The measured counterparts of the figures in `signal-afterburner`, from the samples of the experiment `signal`.

use lab::signal::{Load, RateWindow, RoundTripWindow, Samples, TransferWindow};
use signalling::Scheme;
use stats::interval::from_values;

use crate::judge::{Figure, Known, Reason};

/// Bits in a Mbit.
const MBIT: f64 = 1e6;

/// Figures from the samples, as the paper defines them.
#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub samples: &'a Samples,
}

/// The mean of the repetitions, with its interval.
fn over_repetitions(values: Vec<f64>) -> Known {
    match (from_values(&values), values.first()) {
        (Some(interval), _) => Ok(Figure { mean: interval.mean, half_width: interval.half_width }),
        // A single repetition has no interval. An infinite half width decides no comparison.
        (None, Some(value)) => Ok(Figure { mean: *value, half_width: f64::INFINITY }),
        (None, None) => Err(Reason::not_measured("", "")),
    }
}

impl Measured<'_> {
    /// Throughput of a scheme under a load, Mbit/s. `bytes` is the size of the socket buffers.
    pub fn mbit_per_s(&self, load: Load, scheme: Scheme, bytes: u64) -> Known {
        let windows = self.samples.transfers.iter().filter(|window| {
            let point = window.point;
            (point.load, point.scheme, point.socket_buffer_bytes) == (load, scheme, bytes)
        });
        over_repetitions(windows.filter_map(mbit_per_s).collect())
    }

    /// A figure of the round trips without a CPU-bound job, ns.
    pub fn round_trip_ns(
        &self,
        scheme: Scheme,
        bulk: bool,
        figure: fn(&RoundTripWindow) -> Option<f64>,
    ) -> Known {
        let windows = self.samples.round_trips.iter().filter(|window| {
            let point = window.point;
            (point.load, point.scheme, point.bulk) == (Load::Idle, scheme, bulk)
        });
        over_repetitions(windows.filter_map(figure).collect())
    }

    /// CPU use of a scheme, 0 to 1, from the uncontaminated windows with known CPU use.
    pub fn cpu_ratio(&self, scheme: Scheme) -> Known {
        let is_accepted = |window: &&RateWindow| window.contamination().is_none();
        let accepted = self.samples.rates.iter().filter(is_accepted);
        let windows = accepted.filter(|window| window.point.scheme == scheme);
        let cpu_ratio = |window: &RateWindow| window.activity.cpu_ratio(window.point.load);
        over_repetitions(windows.filter_map(cpu_ratio).collect())
    }
}

/// The smallest round trip of a window, ns; exact within 1/16.
pub(super) fn min(window: &RoundTripWindow) -> Option<f64> {
    window.round_trip.histogram.filled().next().map(|(low, _, _)| low as f64)
}

/// The mean of the round trips of a window, ns. `None` with overload: the requests without an answer would count most.
pub(super) fn mean(window: &RoundTripWindow) -> Option<f64> {
    if window.is_overloaded() {
        return None;
    }
    window.round_trip.mean()
}

/// The largest round trip of a window, ns. `None` with overload, see [`mean`].
pub(super) fn max(window: &RoundTripWindow) -> Option<f64> {
    (window.round_trip.count > 0 && !window.is_overloaded())
        .then_some(window.round_trip.peak.value as f64)
}

/// The throughput of a window, Mbit/s.
fn mbit_per_s(window: &TransferWindow) -> Option<f64> {
    let ns = window.activity.window_ns;
    (ns > 0).then(|| window.bytes as f64 * 8.0 / MBIT * 1e9 / ns as f64)
}
