//! The request for one window in a guest, and the response. `sim` sends the request to the irqlab in the guest, which
//! measures the window with the code of the live bench.
//!
//! The names of variants and fields are the wire format. The checks of the response do not trust the guest.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::plan::Window;
use super::rig::Rig;
use super::sample::{RateWindow, RoundTripWindow, TransferWindow};
use crate::guest_protocol::response::Response;

/// Name of the fact that lists the interrupt lines of the receiving card or of the disk, by the kernel's numbers.
pub const DEVICE_IRQS: &str = "device_irqs";

/// A request to measure one window. Times are on the guest's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// The rig that carries the events.
    pub rig: Rig,
    pub window: Window,
    pub sender_cpu: u32,
    /// CPU of the receiver. It differs from the sender's CPU.
    pub receiver_cpu: u32,
    /// Length of the window, ns.
    pub length_ns: u64,
    /// Work for each event: number of dependent additions.
    pub work_additions: u64,
    /// Determines when events are due, and the delay between the set-up and the opening of the window.
    pub seed: u64,
}

/// The measured window of the response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredWindow {
    /// A window of the sweep over event rates.
    Rate(RateWindow),
    /// A window of the sweep over socket buffers.
    Transfer(TransferWindow),
    RoundTrip(RoundTripWindow),
}

impl MeasuredWindow {
    /// The window that was measured.
    #[must_use]
    pub fn window(&self) -> Window {
        match self {
            MeasuredWindow::Rate(window) => Window::Rate(window.point),
            MeasuredWindow::Transfer(window) => Window::Transfer(window.point),
            MeasuredWindow::RoundTrip(window) => Window::RoundTrip(window.point),
        }
    }
}

/// The item of the response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestWindow {
    pub measured: MeasuredWindow,
    /// Settings that only the guest knows: interfaces and their offloads.
    pub facts: Map<String, Json>,
}

/// The response to a [`SignalRequest`]: exactly one window.
#[derive(Debug, Default)]
pub struct SignalResponse {
    /// The window. `None` until it was read.
    pub window: Option<GuestWindow>,
}

impl Response for SignalResponse {
    type Item = GuestWindow;

    fn add(&mut self, item: GuestWindow) -> Result<(), String> {
        match self.window.replace(item) {
            Some(_) => Err("it has two windows".to_owned()),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.window.is_some() { Ok(()) } else { Err("it has no window".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use stats::Distribution;

    use super::*;
    use crate::experiment::BenchError;
    use crate::guest_protocol::{decode, encode};
    use crate::signal::{Activity, Load, RatePoint};

    fn window() -> GuestWindow {
        let mut latency = Distribution::default();
        for (position, value) in [0, 17, 400_000, 400_001, 1 << 40].into_iter().enumerate() {
            latency.record(value, position as u64);
        }
        let point = RatePoint {
            scheme: "coalesced:8,1ms".parse().unwrap(),
            load: Load::Background,
            rate_hz: 5,
        };
        let activity = Activity {
            window_ns: 7,
            polls: Some(0),
            job_thread: Some(99),
            leftover: Some(Default::default()),
            ..Activity::default()
        };
        let measured = MeasuredWindow::Rate(RateWindow {
            point,
            offered: 6,
            delivered: 5,
            dropped: 1,
            latency,
            lateness: Distribution::default(),
            activity,
        });
        GuestWindow { measured, facts: Map::new() }
    }

    fn read(lines: &[String]) -> Result<GuestWindow, BenchError> {
        let response = decode::<SignalResponse>(lines.iter().map(String::as_str))?;
        Ok(response.window.unwrap())
    }

    #[test]
    fn a_window_reads_back() {
        assert_eq!(read(&encode(Ok(vec![window()]))).unwrap(), window());
        assert!(read(&encode(Ok(vec![window(), window()]))).is_err());
        assert!(read(&encode::<GuestWindow>(Ok(vec![]))).is_err());
    }

    #[test]
    fn a_histogram_that_does_not_fit_is_refused() {
        let lines = encode(Ok(vec![window()]));
        for (from, to, words) in [
            (r#""count":5"#, r#""count":4"#, "other values"),
            (r#"[17,1]"#, r#"[512,1]"#, "no such slot"),
            ("coalesced:8,1ms", "iopoll", "no such scheme"),
        ] {
            let changed: Vec<String> = lines.iter().map(|line| line.replace(from, to)).collect();
            assert_ne!(changed, lines, "{from}");
            let error = read(&changed).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
