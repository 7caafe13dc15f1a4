//! The plan of `signal run`: parts, their points, and windows. The verb makes the plan from the command line.
//! [`Window`] is part of the wire format (`in_guest.rs`).

use serde::{Deserialize, Serialize};
use signalling::Scheme;

use super::rig::Rig;
use super::sample::{Load, RatePoint, RoundTripPoint, TransferPoint};

/// A part of the experiment, with a table of its own.
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

    /// The part's name on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Part::Rates => "rates",
            Part::Transfers => "throughput",
            Part::RoundTrips => "round-trips",
        }
    }
}

/// The points to measure: each part with each load and scheme.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The rig of the bench.
    pub rig: Rig,
    pub parts: Vec<Part>,
    pub schemes: Vec<Scheme>,
    pub loads: Vec<Load>,
    /// Event rates of the sweep, per second.
    pub rates_hz: Vec<u64>,
    /// Requests of the round trips, per second.
    pub request_rate_hz: u64,
    /// Sizes of socket buffers of the sweep, bytes.
    pub socket_buffers_bytes: Vec<u64>,
    /// How often each point is measured. Each repetition measures all points in random order. Contaminated windows of
    /// the sweep over event rates are measured again, in up to `repetitions` further rounds.
    pub repetitions: u32,
    /// Seed of the order of points, and of the times when events are due.
    pub seed: u64,
}

/// A window to measure: one point, once.
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

    /// The competing load on the receiving CPU.
    #[must_use]
    pub fn load(self) -> Load {
        match self {
            Window::Rate(RatePoint { load, .. })
            | Window::Transfer(TransferPoint { load, .. })
            | Window::RoundTrip(RoundTripPoint { load, .. }) => load,
        }
    }

    /// Scheme, load and kind of the window, in words. They decide whether the window is available. Rate and size do not
    /// matter.
    pub(super) fn subject(self) -> String {
        let bulk = match self {
            Window::RoundTrip(RoundTripPoint { bulk: true, .. }) => ", during a bulk transfer",
            _ => "",
        };
        format!("{}, {}{bulk}", self.scheme(), self.load().word())
    }

    /// A description of the window, in words.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Window::Rate(point) => format!("{}, {} events/s", self.subject(), point.rate_hz),
            Window::Transfer(point) => {
                format!("{}, socket buffers of {} bytes", self.subject(), point.socket_buffer_bytes)
            }
            Window::RoundTrip(_) => format!("{}, round trips", self.subject()),
        }
    }
}
