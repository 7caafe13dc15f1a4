//! The request to measure series in a guest, and the response. `sim` sends the request to the irqlab in the guest,
//! which measures with the code of the live bench. The host then adds what only the simulator knows.
//!
//! The names of variants and fields are the wire format. The checks of the response do not trust the guest.

use record::Absence;
use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::sample::Repetition;
use super::samples::Samples;
use super::series::Ready;
use super::series::Series;
use super::trace::Trace;
use super::what::{Geometry, Level, Method, Stimulus};
use crate::experiment::{BenchFacts, Measured};
use crate::guest_protocol::response::Response;

/// Maximum number of repetitions in an item.
const REPETITIONS_PER_ITEM: usize = 128;
/// Maximum number of repetitions in a response.
const REPETITIONS_MAX: usize = 1 << 20;
/// Maximum number of series, traces and absences in a response.
const PARTS_MAX: usize = 4096;

/// Name of the setting that lists the network interfaces of the stimuli. The setting is present only if the interfaces
/// are network cards.
pub const NETWORK: &str = "network";

/// The plan and settings for the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FootprintRequest {
    pub plan: Plan,
    pub cpu: u32,
    /// Geometries of the simulated levels, because the guest's CPUID describes another machine.
    pub geometry: Vec<(Level, Geometry)>,
    /// Maximum time that a window waits for the interrupt, ns.
    pub window_ns: u64,
    /// Seed of the order of lines and of the times of interrupts.
    pub seed: u64,
    /// Whether to use only counters. The guest then measures no curves.
    pub counters_only: bool,
    /// Whether windows may contain ticks.
    pub ticks: bool,
}

/// An item of the response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FootprintItem {
    Series(Level, Stimulus, Method, Ready),
    /// Repetitions of the last series. `true` for treatment repetitions, `false` for control repetitions.
    Repetitions(bool, Vec<Repetition>),
    /// A traced repetition. The host adds the tasks and handlers that ran.
    Trace(Trace),
    /// A part that was not measured.
    Absent(Absence),
    /// The last item of a response.
    End(GuestEnd),
}

/// Facts about all series, and how the plan ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GuestEnd {
    /// Facts of the bench in the guest.
    pub facts: BenchFacts,
    /// Frequency of the loop's clock, Hz.
    pub clock_hz: f64,
    /// Whether the guest measured every part completely.
    pub complete: bool,
    /// The first part that failed, with its error. `None` if no part failed.
    pub failure: Option<String>,
    /// The parts that a request to stop left out or cut short.
    pub missing: Vec<String>,
}

/// Converts measured samples to the items of the guest's response, in order. The repetitions of a series follow its
/// item.
#[must_use]
pub fn items(measured: Measured<Samples>, facts: BenchFacts) -> Vec<FootprintItem> {
    let mut items = Vec::new();
    let Measured { samples, complete, absent, failure, missing, .. } = measured;
    for series in samples.series {
        let Series { level, stimulus, method, ready, treatment, control, .. } = series;
        items.push(FootprintItem::Series(level, stimulus, method, ready));
        for (is_treatment, repetitions) in [(true, treatment), (false, control)] {
            let chunks = repetitions.chunks(REPETITIONS_PER_ITEM);
            items.extend(
                chunks.map(|chunk| FootprintItem::Repetitions(is_treatment, chunk.to_vec())),
            );
        }
    }
    items.extend(absent.into_iter().map(FootprintItem::Absent));
    items.extend(samples.traces.into_iter().map(FootprintItem::Trace));
    let clock_hz = samples.clock_hz;
    items.push(FootprintItem::End(GuestEnd { facts, clock_hz, complete, failure, missing }));
    items
}

/// The guest's response.
#[derive(Debug, Default)]
pub struct FootprintResponse {
    pub measured: Measured<Samples>,
    /// Facts of the bench in the guest. `None` until the last item was read.
    pub facts: Option<BenchFacts>,
    /// Number of repetitions read so far.
    repetitions: usize,
}

impl Response for FootprintResponse {
    type Item = FootprintItem;

    fn add(&mut self, item: FootprintItem) -> Result<(), String> {
        let Measured { samples, complete, absent, failure, missing, .. } = &mut self.measured;
        match item {
            FootprintItem::Series(level, stimulus, method, ready) => {
                let (treatment, control, rounds) = (Vec::new(), Vec::new(), Vec::new());
                let series = Series { level, stimulus, method, ready, treatment, control, rounds };
                samples.series.push(series);
            }
            FootprintItem::Repetitions(is_treatment, repetitions) => {
                self.repetitions += repetitions.len();
                let series = samples.series.last_mut().ok_or("it has repetitions of no series")?;
                let kind = if is_treatment { &mut series.treatment } else { &mut series.control };
                kind.extend(repetitions);
            }
            FootprintItem::Trace(trace) => samples.traces.push(trace),
            FootprintItem::Absent(absence) => absent.push(absence),
            FootprintItem::End(end) => {
                samples.clock_hz = end.clock_hz;
                (*complete, *failure, *missing) = (end.complete, end.failure, end.missing);
                self.facts = Some(end.facts);
            }
        }
        let parts = samples.series.len() + samples.traces.len() + absent.len();
        if parts > PARTS_MAX {
            return Err(format!("it has more than {PARTS_MAX} parts"));
        }
        if self.repetitions > REPETITIONS_MAX {
            return Err(format!("it has more than {REPETITIONS_MAX} repetitions"));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let hz = self.measured.samples.clock_hz;
        match self.facts {
            None => Err("it has no facts of the bench".to_owned()),
            Some(_) if !(hz.is_finite() && hz > 0.0) => {
                Err("it has a clock without a frequency".to_owned())
            }
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::BenchError;
    use crate::footprint::curve::Curve;
    use crate::footprint::sample::Verdict;
    use crate::guest_protocol::{decode, encode};

    fn measured() -> Measured<Samples> {
        let geometry = Geometry { size_bytes: 1024, line_bytes: 64, ways: 2 };
        let repetition = Repetition {
            verdict: Verdict::Accepted,
            excess_cycles: Some(-3),
            stalled_cycles: None,
            user_misses: Some(7),
            kernel_misses: None,
            window: Some(3),
        };
        let series = Series {
            level: Level::L1d,
            stimulus: Stimulus::Timer,
            method: Method::Refined,
            ready: Ready {
                geometry,
                pages: "4 KiB".to_owned(),
                raised_by: "a test".to_owned(),
                curve: Some(Curve::new([(0, vec![0, -1]), (16, vec![90, 100, 95])])),
                pass_cycles: 5,
                chunk_lines: 1,
                start_misses: Some(1),
            },
            treatment: vec![repetition; 300],
            control: vec![repetition; 5],
            rounds: Vec::new(),
        };
        let absence = Absence::new("footprint", "l2, net", "no card");
        let samples = Samples { clock_hz: 1e9, series: vec![series], ..Samples::default() };
        Measured { absent: vec![absence], ..Measured::new(samples) }
    }

    fn read(items: Vec<FootprintItem>) -> Result<FootprintResponse, BenchError> {
        let lines = encode(Ok(items));
        decode(lines.iter().map(String::as_str))
    }

    #[test]
    fn a_response_reads_back() {
        let facts = BenchFacts { warnings: vec!["slow".to_owned()], ..BenchFacts::default() };
        let mut sent = measured();
        (sent.complete, sent.failure) = (false, Some("l2: broke".to_owned()));
        let response = read(items(sent.clone(), facts)).unwrap();
        let back = response.measured;
        let (series, expected) = (&back.samples.series[0], &sent.samples.series[0]);
        assert_eq!(series.ready, expected.ready);
        assert_eq!((&series.treatment, &series.control), (&expected.treatment, &expected.control));
        assert_eq!((back.samples.clock_hz, back.complete), (1e9, false));
        assert_eq!((back.absent, back.failure), (sent.absent, sent.failure));
        assert_eq!(response.facts.unwrap().warnings, ["slow"]);
    }

    #[test]
    fn a_response_is_complete_and_bounded() {
        let all = items(measured(), BenchFacts::default());
        let absent = FootprintItem::Absent(measured().absent[0].clone());
        let without_clock = vec![FootprintItem::End(GuestEnd::default())];
        for (items, words) in [
            (all[..2].to_vec(), "no facts"),
            (all[1..].to_vec(), "repetitions of no series"),
            (without_clock, "without a frequency"),
            (vec![absent; PARTS_MAX + 1], "more than 4096 parts"),
        ] {
            let error = read(items).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
        // Encoded items with this many repetitions are too long, so this test adds them directly.
        let mut response = FootprintResponse::default();
        let repetition = measured().samples.series[0].treatment[0];
        let add = |item: &FootprintItem| response.add(item.clone());
        let many = FootprintItem::Repetitions(true, vec![repetition; REPETITIONS_MAX]);
        let accepted = [&all[0], &many, &all[1]].map(add).map(|result| result.is_ok());
        assert_eq!(accepted, [true, true, false]);
    }
}
