//! What to measure: parts, their points, and windows.

use serde::{Deserialize, Serialize};
use signalling::Scheme;

use super::sample::{Load, RatePoint, RoundTripPoint, TransferPoint};

/// A part of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// CPU use and latency against the rate of events.
    Rates,
    /// TCP throughput against the size of the socket buffers (Tables 1 to 3 of the paper).
    Transfers,
    /// Round-trip latency, alone and against a bulk transfer (section 8.3 of the paper).
    RoundTrips,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::Rates, Part::Transfers, Part::RoundTrips];

    /// Its name on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Part::Rates => "rates",
            Part::Transfers => "throughput",
            Part::RoundTrips => "round-trips",
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    pub parts: Vec<Part>,
    pub schemes: Vec<Scheme>,
    pub loads: Vec<Load>,
    /// Event rates of the sweep, per second.
    pub rates_hz: Vec<u64>,
    /// Requests of the round trips, per second.
    pub request_rate_hz: u64,
    /// Sizes of socket buffers of the sweep, bytes.
    pub socket_buffers_bytes: Vec<u64>,
    /// How often each point is measured; the points of a repetition in random order. Windows of the sweep
    /// over event rates that are contaminated are repeated, up to as often again.
    pub repetitions: u32,
    /// Determines the order of points, and when events are due.
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// A point of the sweep over event rates.
    Rate(RatePoint),
    /// A point of the sweep over socket buffers.
    Transfer(TransferPoint),
    RoundTrip(RoundTripPoint),
}

impl Window {
    /// How the receiver learns of events.
    #[must_use]
    pub fn scheme(self) -> Scheme {
        match self {
            Window::Rate(RatePoint { scheme, .. })
            | Window::Transfer(TransferPoint { scheme, .. })
            | Window::RoundTrip(RoundTripPoint { scheme, .. }) => scheme,
        }
    }

    /// What else runs on the receiving CPU.
    #[must_use]
    pub fn load(self) -> Load {
        match self {
            Window::Rate(RatePoint { load, .. })
            | Window::Transfer(TransferPoint { load, .. })
            | Window::RoundTrip(RoundTripPoint { load, .. }) => load,
        }
    }

    /// What is measured, without the numbers that do not change whether it is available.
    pub(super) fn what(self) -> String {
        let bulk = match self {
            Window::RoundTrip(RoundTripPoint { bulk: true, .. }) => ", during a bulk transfer",
            _ => "",
        };
        format!("{}, {}{bulk}", self.scheme(), self.load().word())
    }

    /// What is measured, in words.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Window::Rate(point) => format!("{}, {} events/s", self.what(), point.rate_hz),
            Window::Transfer(point) => {
                format!("{}, socket buffers of {} bytes", self.what(), point.socket_buffer_bytes)
            }
            Window::RoundTrip(_) => format!("{}, round trips", self.what()),
        }
    }
}
