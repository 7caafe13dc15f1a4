//! The experiment `signal run` as [`Experiment`]: measures the windows of the plan, and makes the report from the
//! samples.

use serde_json::{Map, json};
use stats::Random;

use super::bench::SignalBench;
use super::plan::{Part, Plan, Window};
use super::sample::{Activity, RatePoint, RoundTripPoint, Samples, TransferPoint};
use super::tables;
use crate::experiment::{BenchError, Experiment, Measured, Progress, Report, Steps};

impl Plan {
    /// The windows of one repetition, in the order of the tables: all parts with all loads and schemes.
    #[must_use]
    pub fn windows(&self) -> Vec<Window> {
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
                        Part::Transfers => windows.extend(self.socket_buffers_bytes.iter().map(
                            |&socket_buffer_bytes| {
                                Window::Transfer(TransferPoint {
                                    scheme,
                                    load,
                                    socket_buffer_bytes,
                                })
                            },
                        )),
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

    /// Whether a window is a point of the sweep over event rates that has fewer uncontaminated windows than
    /// repetitions.
    fn needs_more(&self, window: Window, samples: &Samples) -> bool {
        let Window::Rate(point) = window else { return false };
        let accepted = samples
            .rates
            .iter()
            .filter(|window| window.point == point && window.contamination().is_none());
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
        // Table and subject of unavailable windows. They are unavailable in every repetition, so they fail only once.
        let mut unavailable: Vec<(&str, String)> = Vec::new();
        let mut left_out = 0;
        // Windows with contaminated samples that were not measured again because of a stop.
        let mut not_repeated: Vec<Window> = Vec::new();
        // The first `repetitions` rounds measure all windows. Later rounds measure contaminated points again.
        for round in 0..2 * self.repetitions {
            let mut order = windows.clone();
            if round >= self.repetitions {
                order.retain(|window| self.needs_more(*window, &measured.samples));
            }
            if round >= self.repetitions && !bench.has_chance() {
                break;
            }
            random.shuffle(&mut order);
            order.retain(|window| !unavailable.contains(&(table_name(*window), window.subject())));
            let order: Vec<(Window, u64)> =
                order.into_iter().map(|window| (window, random.next())).collect();
            bench.prepare(&order, self.repetitions.saturating_sub(round + 1));
            for (window, seed) in order {
                let mut leave_out = || {
                    if round < self.repetitions {
                        left_out += 1;
                    } else if !not_repeated.contains(&window) {
                        not_repeated.push(window);
                    }
                };
                if bench.stop_requested() && !bench.is_measured(window, seed) {
                    leave_out();
                    continue;
                }
                let key = (table_name(window), window.subject());
                if round < self.repetitions {
                    steps.start(bench, window.label());
                }
                if unavailable.contains(&key) {
                    continue;
                }
                if let Err(error) = measure_window(window, bench, seed, &mut measured.samples) {
                    if bench.stop_requested() {
                        leave_out(); // stopping may have caused the failure
                        continue;
                    }
                    unavailable.push(key.clone());
                    measured.part_failed(key.0, key.1, error)?;
                }
            }
        }
        if left_out > 0 {
            measured.left_out(format!("{left_out} of {count} windows"));
        } else if !not_repeated.is_empty() {
            let points = not_repeated.len();
            measured.left_out(format!("further windows of {points} contaminated points"));
        }
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
            warnings: tables::warnings(samples)
                .into_iter()
                .chain(tables::fit_warning(self, samples))
                .collect(),
            absent,
            ..Report::default()
        }
    }
}

/// Measures a window, and adds the result to the samples.
fn measure_window(
    window: Window,
    bench: &mut dyn SignalBench,
    seed: u64,
    samples: &mut Samples,
) -> Result<(), BenchError> {
    let excludes_interrupts = bench.thread_clocks_exclude_interrupts();
    samples.thread_clocks_exclude_interrupts |= excludes_interrupts;
    let remove_unknown_use = |activity: &mut Activity| {
        if excludes_interrupts {
            activity.leftover = None;
        }
    };
    match window {
        Window::Rate(point) => {
            let mut measured = bench.rate_window(&point, seed)?;
            remove_unknown_use(&mut measured.activity);
            samples.rates.push(measured);
        }
        Window::Transfer(point) => {
            let mut measured = bench.transfer_window(&point, seed)?;
            remove_unknown_use(&mut measured.activity);
            samples.transfers.push(measured);
        }
        Window::RoundTrip(point) => {
            let mut measured = bench.round_trip_window(&point, seed)?;
            remove_unknown_use(&mut measured.activity);
            samples.round_trips.push(measured);
        }
    }
    Ok(())
}

/// Name of the table that has the row of a window.
fn table_name(window: Window) -> &'static str {
    match window {
        Window::Rate(_) => tables::RATES,
        Window::Transfer(_) => tables::THROUGHPUT,
        Window::RoundTrip(_) => tables::ROUND_TRIPS,
    }
}
