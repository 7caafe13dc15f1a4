//! The plan, how it is measured, and what is reported.

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use signalling::Scheme;
use stats::Random;

use super::bench::SignalBench;
use super::sample::{Load, RatePoint, RoundTripPoint, Samples, TransferPoint};
use super::tables;
use crate::experiment::{BenchError, Experiment, Measured, Progress, Report, Steps};

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
    /// All parts.
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
    /// The parts.
    pub parts: Vec<Part>,
    /// The schemes.
    pub schemes: Vec<Scheme>,
    /// The loads.
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

/// One window of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// A point of the sweep over event rates.
    Rate(RatePoint),
    /// A point of the sweep over socket buffers.
    Transfer(TransferPoint),
    /// A point of the round trips.
    RoundTrip(RoundTripPoint),
}

impl Window {
    fn table(self) -> &'static str {
        match self {
            Window::Rate(_) => tables::RATES,
            Window::Transfer(_) => tables::THROUGHPUT,
            Window::RoundTrip(_) => tables::ROUND_TRIPS,
        }
    }

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
    fn what(self) -> String {
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

    fn measure(
        self,
        bench: &mut dyn SignalBench,
        seed: u64,
        samples: &mut Samples,
    ) -> Result<(), BenchError> {
        match self {
            Window::Rate(point) => samples.rates.push(bench.rate_window(&point, seed)?),
            Window::Transfer(point) => samples.transfers.push(bench.transfer_window(&point, seed)?),
            Window::RoundTrip(point) => {
                samples.round_trips.push(bench.round_trip_window(&point, seed)?);
            }
        }
        Ok(())
    }
}

impl Plan {
    /// The windows of one repetition, in the order of the tables.
    fn windows(&self) -> Vec<Window> {
        let mut windows = Vec::new();
        for &part in &self.parts {
            for &load in &self.loads {
                for &scheme in &self.schemes {
                    match part {
                        Part::Rates => windows.extend(
                            self.rates_hz
                                .iter()
                                .map(|&rate_hz| Window::Rate(RatePoint { scheme, load, rate_hz })),
                        ),
                        Part::Transfers => {
                            windows.extend(self.socket_buffers_bytes.iter().map(|&bytes| {
                                let socket_buffer_bytes = bytes;
                                Window::Transfer(TransferPoint {
                                    scheme,
                                    load,
                                    socket_buffer_bytes,
                                })
                            }))
                        }
                        Part::RoundTrips => windows.extend([false, true].map(|bulk| {
                            let rate_hz = self.request_rate_hz;
                            Window::RoundTrip(RoundTripPoint { scheme, load, rate_hz, bulk })
                        })),
                    }
                }
            }
        }
        windows
    }

    /// Number of windows of one repetition.
    #[must_use]
    pub fn window_count(&self) -> usize {
        self.windows().len()
    }

    /// Whether a point of the sweep over event rates has fewer windows that are not contaminated than it
    /// should.
    fn lacks(&self, window: Window, samples: &Samples) -> bool {
        let Window::Rate(point) = window else { return false };
        let accepted =
            samples.rates.iter().filter(|one| one.point == point && one.contamination().is_none());
        accepted.count() < self.repetitions as usize
    }
}

impl Experiment for Plan {
    const NAME: &'static str = "signal";
    type Bench = dyn SignalBench;
    type Samples = Samples;

    fn measure(
        &self,
        bench: &mut Self::Bench,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Samples>, BenchError> {
        let mut measured = Measured::<Samples>::default();
        let mut random = Random::new(self.seed);
        let windows = self.windows();
        let count = windows.len() * self.repetitions as usize;
        let mut steps = Steps::new(count, progress);
        // What is unavailable once is so in every repetition.
        let mut unavailable: Vec<(&str, String)> = Vec::new();
        for round in 0..2 * self.repetitions {
            let mut order = windows.clone();
            if round >= self.repetitions {
                order.retain(|window| self.lacks(*window, &measured.samples));
            }
            if round >= self.repetitions && !bench.has_chance() {
                break;
            }
            random.shuffle(&mut order);
            order.retain(|window| !unavailable.contains(&(window.table(), window.what())));
            let order: Vec<(Window, u64)> =
                order.into_iter().map(|window| (window, random.next())).collect();
            bench.prepare(&order);
            for (window, seed) in order {
                if bench.stop_requested() {
                    break;
                }
                let key = (window.table(), window.what());
                if round < self.repetitions {
                    steps.start(bench, window.label());
                }
                if unavailable.contains(&key) {
                    continue;
                }
                if let Err(error) = window.measure(bench, seed, &mut measured.samples) {
                    if bench.stop_requested() {
                        break; // it may be that which failed
                    }
                    unavailable.push(key.clone());
                    measured.part_failed(key.0, key.1, error)?;
                }
            }
        }
        measured.complete &= !bench.stop_requested();
        Ok(measured)
    }

    fn report(&self, samples: &Samples) -> Report {
        let (mut tables, absent) = tables::all(self, samples);
        tables.retain(|table| !table.rows().is_empty());
        let settings = [
            ("repetitions", json!(self.repetitions)),
            ("seed", json!(self.seed)),
            ("arrivals", json!("Poisson")),
        ];
        Report {
            tables,
            settings: Map::from_iter(settings.map(|(key, value)| (key.to_owned(), value))),
            warnings: tables::warnings(samples),
            absent,
            ..Report::default()
        }
    }
}
