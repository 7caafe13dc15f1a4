//! Measures one window inside a simulated machine. The guest's irqlab calls [`execute`] for a request of `sim`. The load
//! and the stimulus are those of the live bench; the simulator measures the window, and learns its edges from marks.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::experiment::{Absence, Bench, BenchError};
use lab::handlers::in_guest::{
    GuestWindow, HandlersItem, HandlersRequest, Probed, ProbedContext, ProbedDelays, items,
};
use lab::handlers::{Condition, ContextStats, HandlersBench, SENDERS, SenderRow, Stimulus};
use lab::keys;
use serde_json::json;

use super::bench::{LiveBench, own_cpu_ns};
use super::settings::LiveSettings;
use super::stimuli::Stimuli;
use crate::host::{
    Root, first_disk, has_paired_cards, is_online, last_level_cache_bytes, offline_cpus,
    parse_cpu_list,
};
use crate::probe_overhead::CALLS_SIMULATED;
use crate::window::{
    BenchPhase, HeldCommand, Stop, WaitOutcome, WindowEdge, WindowEnd, shell_status, wait,
};

/// Command line that starts the guest's shell.
pub(crate) const SHELL: [&str; 3] = ["/bin/busybox", "sh", "-c"];

/// Creates the condition of a request and measures its window. Calls `mark` at the window's edges, and `at_phase` where
/// a phase starts; the first phase is set-up. A stop request closes the window early, or prevents it.
///
/// Fails if the condition is not available, or something breaks.
pub fn execute(
    request: &HandlersRequest,
    mark: fn(WindowEdge),
    at_phase: fn(BenchPhase),
    stop: &Stop,
) -> Result<Vec<HandlersItem>, BenchError> {
    let window = if request.probed {
        probed(request, mark, at_phase, stop)
    } else {
        window(request, mark, at_phase, stop)
    };
    window.map(items)
}

/// Runs the window of a request without probes: the simulator alone measures.
fn window(
    request: &HandlersRequest,
    mark: fn(WindowEdge),
    at_phase: fn(BenchPhase),
    stop: &Stop,
) -> Result<GuestWindow, BenchError> {
    let root = Root::default();
    let settings = settings(request, &root, stop)?;
    let mut stimuli = Stimuli::start(request.condition, &settings, last_level_cache_bytes(&root))?;
    let mut window = GuestWindow { facts: stimuli.facts(), ..GuestWindow::default() };
    at_phase(if request.warms_in_samples { BenchPhase::WarmUp } else { BenchPhase::Measurement });
    if request.condition != Condition::Command {
        wait(Some(Instant::now() + settings.warm_up), None, &settings.stop);
    }
    if stop.is_requested() {
        at_phase(BenchPhase::SetUp);
        window.interrupted = true;
        return Ok(window);
    }
    let (length, held) = match &settings.until {
        WindowEnd::Elapsed(length) => (Some(*length), None),
        WindowEnd::CommandEnds { words, to_stderr } => {
            (None, Some(HeldCommand::new(words, *to_stderr)?))
        }
    };
    window.offline_cpus = offline_cpus(&root);
    let cpu_before = own_cpu_ns();
    mark(WindowEdge::Open);
    let opened = Instant::now();
    let command = held.map(HeldCommand::release).transpose()?;
    let outcome = wait(length.map(|length| opened + length), command.as_ref(), &settings.stop);
    window.interrupted = outcome == WaitOutcome::Stopped;
    let ended = command.map(|command| command.finish(outcome)).transpose()?;
    window.length_ns = u64::try_from(opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
    mark(WindowEdge::Close);
    at_phase(BenchPhase::SetUp);
    window.user_cpu_ns = Some(own_cpu_ns().saturating_sub(cpu_before));
    window.came_online = window.offline_cpus.clone();
    window.came_online.retain(|cpu| is_online(&root, *cpu));
    if let Some(status) = ended.filter(|_| !window.interrupted) {
        if !status.success() {
            window.warnings.push(format!("the command failed: {status}"));
        }
        window.facts.insert(keys::COMMAND_ENDED.to_owned(), json!(status.to_string()));
        window.facts.insert(keys::COMMAND_STATUS.to_owned(), json!(shell_status(status)));
    }
    let still_run = stimuli.check();
    let finished = stimuli.stop();
    if !window.interrupted {
        still_run?;
    }
    (window.load_work, window.stimulus_work) = (finished.load, finished.stimulus);
    if !window.interrupted {
        window.warnings.extend(finished.warnings);
    }
    Ok(window)
}

/// Measures the window of a request with the live bench's probes, inside the simulated machine. The simulator measures,
/// too, so both can be compared. With events, a second window measures them.
fn probed(
    request: &HandlersRequest,
    mark: fn(WindowEdge),
    at_phase: fn(BenchPhase),
    stop: &Stop,
) -> Result<GuestWindow, BenchError> {
    let mut settings = settings(request, &Root::default(), stop)?;
    settings.at_edge = Some(mark);
    settings.at_phase = Some(at_phase);
    settings.calibration_calls = CALLS_SIMULATED;
    settings.events.clone_from(&request.events);
    settings.senders = request.senders;
    settings.delays = request.delays;
    let mut bench = LiveBench::new(settings)?;
    let sample = bench.measure(request.condition, 0)?;
    let overhead = bench.probe_overhead();
    let mut contexts: Vec<ProbedContext> =
        sample.contexts.iter().filter_map(ProbedContext::of).collect();
    let mut warnings = sample.warnings.clone();
    let is_sender = |absence: &&Absence| absence.table == SENDERS;
    let absent = bench.facts().absent;
    let absent = absent.iter().filter(is_sender).filter(|_| sample.senders.is_none());
    warnings.extend(absent.map(|absence| format!("{}: {}", absence.what, absence.reason)));
    let senders =
        sample.senders.as_ref().map(|senders| senders.iter().map(SenderRow::from).collect());
    if !sample.interrupted
        && let Some(pass) = bench.passes().get(1).cloned()
    {
        let events = bench.measure(request.condition, 1)?;
        let overheads = overhead.events.get(1).map_or(&[][..], Vec::as_slice);
        for context in &mut contexts {
            let has_same_context = |sample: &&ContextStats| context.is_of(sample);
            if let Some(sample) = events.contexts.iter().find(has_same_context) {
                context.add_events(sample, &pass.events, overheads);
            }
        }
        warnings.extend(events.warnings);
    }
    let probed = Probed {
        in_span_ns: overhead.in_span_ns,
        total_ns: overhead.total_ns,
        lost: sample.lost(),
        contexts,
        senders,
        delays: sample.delays.iter().flatten().map(ProbedDelays::of).collect(),
    };
    Ok(GuestWindow {
        length_ns: sample.length_ns(),
        user_cpu_ns: sample.user_cpu_ns,
        load_work: sample.load_work,
        stimulus_work: sample.stimulus_work,
        facts: sample.facts,
        offline_cpus: sample.unmeasured.iter().map(|cpu| cpu.cpu).collect(),
        came_online: sample.came_online,
        warnings,
        interrupted: sample.interrupted,
        probed: Some(probed),
    })
}

/// The live bench's settings for a request.
fn settings(
    request: &HandlersRequest,
    root: &Root,
    stop: &Stop,
) -> Result<LiveSettings, BenchError> {
    let failed = BenchError::Failed;
    let online = root.text("sys/devices/system/cpu/online");
    let online = online.ok_or_else(|| failed("the guest does not say which CPUs it has".into()))?;
    let cpus = parse_cpu_list(online.trim()).map_err(|error| failed(error.to_string()))?;
    let until = match &request.command {
        Some(command) => {
            let command_line = SHELL.iter().copied().chain([command.as_str()]);
            WindowEnd::CommandEnds {
                words: command_line.map(str::to_owned).collect(),
                to_stderr: true,
            }
        }
        None => WindowEnd::Elapsed(Duration::from_nanos(request.duration_ns)),
    };
    let mut settings = LiveSettings::new(cpus, until, stop.clone());
    settings.warm_up = Duration::from_nanos(request.warm_up_ns);
    settings.low_interval = Some(Duration::from_nanos(request.low_interval_ns));
    settings.housekeeping.clone_from(&request.housekeeping);
    settings.cards = has_paired_cards(root);
    settings.disk_file = match &request.disk_file {
        None => guest_disk(request.condition, root)?,
        requested => requested.clone(),
    };
    Ok(settings)
}

/// The guest's first disk, which the disk stimulus reads. `None` if the condition has another stimulus.
///
/// Fails if the guest has no disk.
pub(crate) fn guest_disk(condition: Condition, root: &Root) -> Result<Option<PathBuf>, BenchError> {
    if !matches!(condition, Condition::Made { stimulus: Stimulus::Disk, .. }) {
        return Ok(None);
    }
    let absent = BenchError::unavailable("the guest has no disk".to_owned());
    first_disk(root).ok_or(absent).map(Some)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use lab::handlers::{Load, Rate};

    use super::*;

    fn request(condition: Condition) -> HandlersRequest {
        HandlersRequest {
            condition,
            warm_up_ns: 0,
            warms_in_samples: true,
            duration_ns: 2_000_000,
            command: None,
            low_interval_ns: 1_000_000,
            housekeeping: Vec::new(),
            disk_file: None,
            probed: false,
            senders: false,
            events: Vec::new(),
            delays: false,
        }
    }

    #[test]
    fn a_window_is_opened_and_closed_once() {
        static EDGES: Mutex<Vec<WindowEdge>> = Mutex::new(Vec::new());
        static PHASES: Mutex<Vec<BenchPhase>> = Mutex::new(Vec::new());
        let mark = |edge| EDGES.lock().unwrap().push(edge);
        let at_phase = |phase| PHASES.lock().unwrap().push(phase);
        let made = Condition::Made { load: Load::Idle, rate: Rate::Low, stimulus: Stimulus::None };
        for condition in [Condition::Ambient, made] {
            let stop = Stop::new().unwrap();
            let items = execute(&request(condition), mark, at_phase, &stop).unwrap();
            let [HandlersItem::Window(window)] = &items[..] else { panic!("{items:?}") };
            assert!(window.length_ns >= 2_000_000 && !window.interrupted, "{window:?}");
        }
        assert_eq!(
            *EDGES.lock().unwrap(),
            [WindowEdge::Open, WindowEdge::Close, WindowEdge::Open, WindowEdge::Close]
        );
        let phases = [BenchPhase::WarmUp, BenchPhase::SetUp];
        assert_eq!(*PHASES.lock().unwrap(), [phases, phases].concat());
    }

    #[test]
    fn a_request_to_stop_before_the_window_leaves_it_unopened() {
        let stop = Stop::new().unwrap();
        stop.request();
        let mark = |edge| panic!("{edge:?}");
        let items = execute(&request(Condition::Ambient), mark, |_| {}, &stop).unwrap();
        let [HandlersItem::Window(window)] = &items[..] else { panic!("{items:?}") };
        assert!(window.interrupted && window.length_ns == 0, "{window:?}");
    }
}
