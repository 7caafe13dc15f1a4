//! Raises interrupts at the highest rate of this machine, for `irqlab bench storm`. The question: does irqlab count all
//! of them, in constant memory and without using CPU time?
//!
//! Timer, inter-processor and disk stimuli run at the same time, each at the high rate, while the probes of
//! `irqlab handlers` count in one window. A thread reads the resident set of this process a few times. irqlab does
//! nothing else in the window.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::handlers::{Condition, HandlersBench, ProbeOverhead, WindowSample};
use serde_json::{Map, Value as Json};

use super::failed;
use crate::handlers::{LiveBench, LiveSettings};
use crate::spawn::spawn_thread;
use crate::stimulus::{Helper, Rate, Report, Running, Stimulus, StimulusSettings, start};
use crate::window::{Stop, WindowEnd};

/// Number of readings of the resident set during the window.
const MEMORY_READINGS: u32 = 8;
/// How long the stimuli run before the window opens.
const WARM_UP: Duration = Duration::from_millis(500);

/// Configuration of the storm.
#[derive(Clone, Debug)]
pub struct StormSettings {
    /// CPUs on which interrupts are raised and measured.
    pub cpus: Vec<u32>,
    /// Length of the window.
    pub duration: Duration,
    /// Time between two expirations of the timer stimulus.
    pub timer_period: Duration,
    /// The program that runs the stimuli; `None`: the running program.
    pub helper: Option<PathBuf>,
    /// The user's request to stop early.
    pub stop: Stop,
}

/// The counts during the storm, and the cost of counting.
#[derive(Clone, Debug, Default)]
pub struct Storm {
    pub sample: WindowSample,
    /// The bench's facts about itself.
    pub facts: BenchFacts,
    /// The cost of a pair of probes.
    pub overhead: ProbeOverhead,
    /// Readings of this process's resident set during the window, in order, bytes.
    pub resident_bytes: Vec<u64>,
    /// The stimuli that ran.
    pub stimuli: Vec<FinishedStimulus>,
    /// Errors of stimuli when they stopped.
    pub stop_errors: Vec<String>,
    /// Unavailable stimuli: name, reason, remedy.
    pub absent: Vec<(String, String, Option<String>)>,
}

/// A stimulus that ran during the window. It started before the window opened, and stopped after it had closed.
#[derive(Clone, Debug, Default)]
pub struct FinishedStimulus {
    /// Stimulus and rate, such as `timer high`.
    pub name: String,
    /// The settings in effect, such as method and interval.
    pub facts: Map<String, Json>,
    pub report: Report,
}

impl FinishedStimulus {
    /// All warnings for the reader of the numbers.
    fn warnings(&self) -> Vec<String> {
        let fallback = self.facts.get("method_reason").and_then(Json::as_str).map(|reason| {
            let method =
                self.facts.get("method").and_then(Json::as_str).unwrap_or("another method");
            format!("it runs by {method}, which reaches lower rates: {reason}")
        });
        let warnings = fallback.into_iter().chain(self.report.all_warnings());
        warnings.map(|warning| format!("{}: {warning}", self.name)).collect()
    }
}

impl Storm {
    /// All warnings for the reader of the numbers: of the bench, its window and the stimuli.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let of_stimuli = self.stimuli.iter().flat_map(FinishedStimulus::warnings);
        let of_bench = self.facts.warnings.iter().chain(&self.sample.warnings).cloned();
        of_bench.chain(of_stimuli).chain(self.stop_errors.iter().cloned()).collect()
    }

    /// Number of spans with an entry and an exit: device interrupts, vectors and softirqs.
    #[must_use]
    pub fn spans(&self) -> u64 {
        let is_timed =
            |stats: &&lab::handlers::ContextStats| stats.timing == lab::handlers::Timing::Probes;
        self.sample.contexts.iter().filter(is_timed).map(|stats| stats.count).sum()
    }

    /// Share of one CPU that this process used while the window was open.
    #[must_use]
    pub fn user_share(&self) -> f64 {
        self.sample.user_cpu_ns.unwrap_or(0) as f64 / self.sample.length_ns() as f64
    }
}

/// Raises the storm and counts its interrupts.
///
/// Fails with [`BenchError::NothingMeasurable`] without the rights, [`BenchError::Unavailable`] if
/// no stimulus is available.
pub fn measure(settings: &StormSettings) -> Result<Storm, BenchError> {
    let until = WindowEnd::Elapsed(settings.duration);
    let live = LiveSettings::new(settings.cpus.clone(), until, settings.stop.clone());
    let mut bench = LiveBench::new(live)?;
    let mut storm = Storm::default();
    let mut running = start_stimuli(settings, &mut storm)?;
    thread::sleep(WARM_UP);
    let (window_ended, wait_for_end) = channel::<()>();
    let pause = settings.duration / MEMORY_READINGS;
    let reader = spawn_thread("memory", move || read_memory(pause, &wait_for_end))
        .map_err(|error| failed("starting a thread", error))?;
    let sample = bench.measure(Condition::Ambient, 0);
    drop(window_ended);
    storm.resident_bytes = reader.join().unwrap_or_default();
    storm.sample = sample?;
    storm.facts = bench.facts();
    storm.overhead = bench.probe_overhead();
    for stimulus in &mut running {
        stimulus.check()?;
    }
    for stimulus in running {
        let (name, facts) = (stimulus.name().to_owned(), stimulus.facts().clone());
        match stimulus.stop() {
            Ok(report) => storm.stimuli.push(FinishedStimulus { name, facts, report }),
            Err(error) => storm.stop_errors.push(error.to_string()),
        }
    }
    Ok(storm)
}

/// Starts all stimuli. Adds unavailable ones to `storm`; fails if none is available.
fn start_stimuli(settings: &StormSettings, storm: &mut Storm) -> Result<Vec<Running>, BenchError> {
    let helper = match &settings.helper {
        Some(program) => Helper::new(program),
        None => Helper::current_exe().map_err(|error| failed("finding this program", error))?,
    };
    let mut running = Vec::new();
    // The disk first: it starts slowly, and the others would slow its start down further.
    for kind in [Stimulus::Disk, Stimulus::Timer, Stimulus::Ipi] {
        let mut stimulus = StimulusSettings::new(kind, Rate::High, settings.cpus.clone());
        stimulus.timer_period = settings.timer_period;
        match start(&stimulus, &helper).map_err(BenchError::from) {
            Ok(started) => running.push(started),
            Err(BenchError::Unavailable { reason, remedy }) => {
                storm.absent.push((format!("stimulus {kind}"), reason, remedy));
            }
            Err(error) => return Err(error),
        }
    }
    match storm.absent.first() {
        Some((_, reason, remedy)) if running.is_empty() => {
            Err(BenchError::Unavailable { reason: reason.clone(), remedy: remedy.clone() })
        }
        _ => Ok(running),
    }
}

/// Reads the resident set now and after each pause, until the window has ended.
fn read_memory(pause: Duration, window_ended: &Receiver<()>) -> Vec<u64> {
    let mut readings = Vec::new();
    loop {
        readings.extend(resident_bytes());
        if window_ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return readings;
        }
    }
}

/// The resident set of this process, bytes.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}
