//! The highest interrupt rate that this machine raises: does irqlab count it all, in constant
//! memory and without CPU time of its own?
//!
//! Timer, inter-processor and disk interrupts are raised at once, each by its stimulus at the high
//! rate, while the probes of `irqlab handlers` count in one window. A thread reads the resident set
//! of this process a few times meanwhile; that and the end of the window are all that user space
//! does.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use lab::experiment::{Bench, BenchError, BenchFacts};
use lab::handlers::{Condition, HandlersBench, ProbeOverhead, WindowSample};

use super::{failed, stimulus_error};
use crate::handlers::{LiveBench, LiveSettings};
use crate::spawn::spawn_thread;
use crate::stimulus::{
    Helper, Rate, Report, Running, Stimulus, StimulusError, StimulusSettings, start,
};
use crate::window::{Stop, WindowEnd};

/// Readings of the resident set during the window.
const MEMORY_READINGS: u32 = 8;
/// How long the stimuli run before the window opens.
const WARM_UP: Duration = Duration::from_millis(500);

/// Configuration.
#[derive(Clone, Debug)]
pub struct StormSettings {
    /// CPUs to measure, and to raise interrupts on.
    pub cpus: Vec<u32>,
    /// Length of the window.
    pub duration: Duration,
    /// Time between two expirations of the timer stimulus.
    pub timer_period: Duration,
    /// The program that serves the stimulus; by default this one.
    pub helper: Option<PathBuf>,
    /// The request to stop early.
    pub stop: Stop,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Storm {
    pub sample: WindowSample,
    /// What the bench knows of itself.
    pub facts: BenchFacts,
    /// What a pair of probes costs.
    pub overhead: ProbeOverhead,
    /// Resident set of this process, bytes: through the window, in order.
    pub resident_bytes: Vec<u64>,
    /// The stimuli that ran, with their statistics.
    pub done: Vec<(String, Report)>,
    /// Unavailable stimuli: name, reason, remedy.
    pub absent: Vec<(String, String, Option<String>)>,
}

impl Storm {
    /// Device interrupts, vectors and softirqs, each with an entry and an exit.
    #[must_use]
    pub fn spans(&self) -> u64 {
        let timed =
            |one: &&lab::handlers::ContextStats| one.timing == lab::handlers::Timing::Probes;
        self.sample.contexts.iter().filter(timed).map(|stats| stats.count).sum()
    }

    /// Share of one CPU that this process took while the window was open.
    #[must_use]
    pub fn user_share(&self) -> f64 {
        self.sample.user_cpu_ns as f64 / self.sample.length_ns() as f64
    }
}

/// Raises the storm and counts it.
///
/// # Errors
/// [`BenchError::NothingMeasurable`] without the rights, [`BenchError::Unavailable`] when no
/// stimulus is available.
pub fn measure(settings: &StormSettings) -> Result<Storm, BenchError> {
    let until = WindowEnd::Elapsed(settings.duration);
    let live = LiveSettings::new(settings.cpus.clone(), until, settings.stop.clone());
    let mut bench = LiveBench::new(live)?;
    let mut storm = Storm::default();
    let mut running = start_sources(settings, &mut storm)?;
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
    for source in &mut running {
        source.check().map_err(stimulus_error)?;
    }
    for source in running {
        let name = source.name().to_owned();
        storm.done.push((name, source.stop().map_err(stimulus_error)?));
    }
    Ok(storm)
}

fn start_sources(settings: &StormSettings, storm: &mut Storm) -> Result<Vec<Running>, BenchError> {
    let helper = match &settings.helper {
        Some(program) => Helper::new(program),
        None => Helper::current_exe().map_err(|error| failed("finding this program", error))?,
    };
    let mut running = Vec::new();
    // The disk first: it starts slowly, and the others would slow it down further.
    for one in [Stimulus::Disk, Stimulus::Timer, Stimulus::Ipi] {
        let mut stimulus = StimulusSettings::new(one, Rate::High, settings.cpus.clone());
        stimulus.timer_period = settings.timer_period;
        match start(&stimulus, &helper) {
            Ok(started) => running.push(started),
            Err(StimulusError::Unavailable { reason, remedy }) => {
                let remedy = (!remedy.is_empty()).then_some(remedy);
                storm.absent.push((format!("stimulus {one}"), reason, remedy));
            }
            Err(error) => return Err(stimulus_error(error)),
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

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}
