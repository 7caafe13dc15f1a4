//! A machine that is observed while the irqlab in its guest executes a request.
//!
//! All simulated benches of experiments use it. [`GuestRun::run`] starts a machine with a [`Request`], reports its
//! progress, and returns the guest's [`Response`] together with the plugin's record. A stop by the user or a limit may
//! end the machine early: the record then has the window so far, and the response may be absent.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::experiment::BenchError;
use lab::guest_protocol::{Request, Response, decode};
use simrecord::progress::GuestProgress;

use crate::boot::{self, EarlyEnd, EarlyReason, Ended, GuestExit, Limits};
use crate::checkpoint::Start;
use crate::forecast::MachineWork;
use crate::guest::kernel::Kernel;
use crate::guest::loaded::{LoadedModule, with_modules};
use crate::machine_times::{MachineTimes, TimedMachine};
use crate::qemu::Qemu;
use crate::watch::{KernelFiles, Recording, Watch};
use crate::{Accounting, Cache, Machine, Result, Symbols, checkpoint};

/// Returns whether the user asked to stop.
pub type StopRequest = Arc<dyn Fn() -> bool + Send + Sync>;

/// Guest time that a guest has to respond after its irqlab was asked to stop at the limit of guest time, seconds.
/// The plugin ends the machine then.
const RESPONSE_S_MAX: u32 = 30;

/// Phase of the run of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachinePhase {
    /// Its kernel boots.
    Boots,
    /// It runs without a plugin, so its progress is unknown.
    Unobserved,
    /// It executes its request, before the warm-up and the first window.
    #[default]
    Starts,
    /// The stimulus runs, and the first window is about to open.
    WarmUp,
    /// This window is open, from 1.
    Window(u32),
    /// This window is closed, and another one follows or may follow.
    After(u32),
    /// All windows are closed; it ends.
    Drains,
    /// It has ended, and its record is read.
    Analysis,
}

/// The progress of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineState {
    pub phase: MachinePhase,
    /// The finished part of the phase, 0 to 1; `None` if unknown.
    pub fraction: Option<f64>,
    /// Guest time since the open window was opened, or since the warm-up began, ns; `None` in other phases.
    pub elapsed_ns: Option<u64>,
    /// Instructions of all vCPUs since the open window was opened; `None` in other phases.
    pub instructions: Option<u64>,
}

impl MachineState {
    /// Returns a state with a phase and no further values.
    #[must_use]
    pub fn of_phase(phase: MachinePhase) -> MachineState {
        MachineState { phase, ..MachineState::default() }
    }
}

/// The machines that an experiment is about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMachines {
    /// The experiment's name as a verb.
    pub experiment: &'static str,
    pub count: usize,
    /// How many of them run at the same time.
    pub at_once: usize,
}

/// Receives the progress of machines that run at the same time.
pub trait MachineProgress: Send + Sync {
    /// Announces machines before the first of them starts.
    fn plan(&self, machines: PlannedMachines);

    /// The machine named `machine` starts.
    fn start(&self, machine: &str, work: MachineWork);

    /// Reports how far the machine is.
    fn update(&self, machine: &str, state: MachineState);

    /// The machine is to end before its request is executed. `phase` is its phase at this time.
    fn ends_early(&self, machine: &str, phase: MachinePhase, reason: EarlyReason);

    /// The machine has ended, and its outcome is known.
    fn done(&self, machine: &str);
}

/// A limit on the host's clock for all machines of a command together.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    ends_at: Instant,
    limit: Duration,
}

impl Deadline {
    /// Returns the deadline that comes `limit` from now.
    #[must_use]
    pub fn after(limit: Duration) -> Deadline {
        let now = Instant::now();
        // A limit that the clock cannot express is never reached.
        Deadline {
            ends_at: now.checked_add(limit).unwrap_or(now + Duration::from_secs(1 << 32)),
            limit,
        }
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.ends_at
    }

    /// Returns the reason for the end of a run that reached the deadline, as a message.
    #[must_use]
    pub fn reason(&self) -> String {
        format!("the command reached its limit of {:?} on the host's clock (--limit)", self.limit)
    }
}

/// The outcome of a machine that has ended.
#[derive(Debug)]
pub(crate) struct GuestOutcome<R> {
    /// `None` if the machine ended early and the guest did not respond.
    pub(crate) response: Option<R>,
    /// Why there is no response; empty if there is one.
    pub(crate) no_response: String,
    pub(crate) account: Accounting,
    /// Host time from the start of the machine to its end.
    pub(crate) wall: Duration,
    /// The modules that the guest loaded; empty unless it booted for this run.
    pub(crate) modules: Vec<LoadedModule>,
    /// Why the machine ended before its request was executed.
    pub(crate) early: Option<EarlyReason>,
}

/// The name of a machine and the expected lengths of its phases, to report and forecast its progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// Its name for the user.
    pub(crate) label: &'a str,
    /// Cycles of guest time of a window; `None` if unknown.
    pub(crate) window_cycles: Option<u64>,
    /// Number of windows; `None` if unknown.
    pub(crate) windows: Option<u32>,
    /// Cycles of guest time of the warm-up before the first window; `None` if there is none, or it is not recorded.
    pub(crate) warm_up_cycles: Option<u64>,
}

impl Expected<'_> {
    /// Returns the state of a machine whose plugin reports this progress.
    pub(crate) fn state(&self, progress: GuestProgress, clock_hz: u64) -> MachineState {
        let GuestProgress { regions, is_open, opened_at, now, instructions, .. } = progress;
        let elapsed_cycles = now.saturating_sub(opened_at) as f64;
        if let (0, 1.., Some(warm_up_cycles)) = (regions, now, self.warm_up_cycles) {
            return MachineState {
                phase: MachinePhase::WarmUp,
                fraction: Some((now as f64 / warm_up_cycles.max(1) as f64).min(1.0)),
                elapsed_ns: Some((now as f64 * 1e9 / clock_hz.max(1) as f64) as u64),
                instructions: None,
            };
        }
        let elapsed_ns = is_open.then(|| (elapsed_cycles * 1e9 / clock_hz.max(1) as f64) as u64);
        let (phase, fraction) = self.phase(regions, is_open, elapsed_cycles);
        MachineState { phase, fraction, elapsed_ns, instructions: is_open.then_some(instructions) }
    }

    /// Returns the phase of a machine that has opened `regions` regions, and the finished part of the phase, 0 to 1.
    /// `elapsed`: cycles since the last region was opened.
    fn phase(&self, regions: u32, is_open: bool, elapsed: f64) -> (MachinePhase, Option<f64>) {
        let fraction = |cycles: u64| (elapsed / cycles.max(1) as f64).min(1.0);
        match (regions, is_open) {
            (0, _) => (MachinePhase::Starts, None),
            (number, true) => (MachinePhase::Window(number), self.window_cycles.map(fraction)),
            (number, false) if self.windows.is_some_and(|windows| number >= windows) => {
                (MachinePhase::Drains, None)
            }
            (number, false) => (MachinePhase::After(number), None),
        }
    }
}

/// A machine, its start, and how it is observed. Each run starts a new machine, so runs are independent and may
/// be concurrent.
#[derive(Clone)]
pub struct GuestRun {
    /// Where everything is kept.
    pub cache: Cache,
    /// The simulator.
    pub qemu: Qemu,
    /// The machine; its image holds irqlab.
    pub machine: Machine,
    /// Its kernel, with the files of modules.
    pub kernel: Kernel,
    /// Symbols and offsets of its kernel, for the plugin.
    pub kernel_files: KernelFiles,
    /// Start of each machine: a boot or a saved state.
    pub start: Start,
    /// How long each machine may run.
    pub limits: Limits,
    /// When all machines of the command must have ended; `None` without such a limit.
    pub deadline: Option<Deadline>,
    /// How each machine is observed.
    pub watch: Watch,
    /// Whether the user asked to stop.
    pub stop: StopRequest,
    /// Receives the progress of each machine.
    pub progress: Arc<dyn MachineProgress>,
}

impl fmt::Debug for GuestRun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GuestRun").field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl GuestRun {
    /// Cycles of guest time per second.
    pub(crate) fn clock_hz(&self) -> u64 {
        self.watch.clock_hz(self.machine.timing)
    }

    /// Returns everything that determines how long a request takes.
    pub(crate) fn timed(&self) -> TimedMachine<'_> {
        let GuestRun { cache, qemu, machine, start, watch, .. } = self;
        TimedMachine { cache, qemu, machine, start, watch: Some(watch) }
    }

    /// Adds the limits of a machine to its work, if the length of the work is unknown.
    pub(crate) fn bounded(&self, work: MachineWork) -> MachineWork {
        let limits = work.window_ns.is_none().then_some(self.limits);
        MachineWork { limits, ..work }
    }

    /// Returns whether the user or the deadline ends the run: no machine starts, and each running machine ends.
    pub(crate) fn is_stopped(&self) -> bool {
        (self.stop)() || self.deadline.is_some_and(|deadline| deadline.is_over())
    }

    /// Returns the message of the deadline if the deadline ended the run; `None` if the user did, or nothing.
    pub(crate) fn reached_deadline(&self) -> Option<String> {
        let reached = self.deadline.filter(|deadline| deadline.is_over() && !(self.stop)());
        reached.map(|deadline| deadline.reason())
    }

    /// Returns the message for an early end by a limit; `None` if the user ended the run.
    pub(crate) fn limit_text(&self, early: EarlyReason) -> Option<String> {
        match early {
            EarlyReason::Stopped => None,
            EarlyReason::GuestLimit => {
                Some("the guest reached its time limit (--guest-limit)".to_owned())
            }
            EarlyReason::HostLimit => Some(self.deadline.map_or_else(
                || format!("the machine ran for {:?} (--limit)", self.limits.wall),
                |deadline| deadline.reason(),
            )),
        }
    }

    /// Returns the work of a machine with this request, with the times of an earlier run. Starts no machine.
    pub(crate) fn work(
        &self,
        request: &Request,
        expected: &Expected<'_>,
    ) -> std::result::Result<MachineWork, BenchError> {
        let text = request.encode()?;
        Ok(MachineTimes::new(&self.timed(), request.experiment(), &text, expected).work())
    }

    /// Starts the machine with a request and reports its progress. Returns the outcome at its end. The user or a
    /// limit may end it early. `None` if the user asked to stop before a window opened.
    ///
    /// Fails with [`BenchError::TimeLimit`] if it reached a limit before a window opened. The machine is killed before the
    /// record is read, so that QEMU has written all of it.
    pub(crate) fn run<R: Response>(
        &self,
        request: &Request,
        expected: Expected<'_>,
    ) -> std::result::Result<Option<GuestOutcome<R>>, BenchError> {
        let (cache, qemu) = (&self.cache, &self.qemu);
        // The guest is asked to stop at its limit. The plugin ends a guest that does not respond then.
        let stop_after_s = self.limits.guest_s;
        let clock_hz = self.clock_hz();
        let text = request.encode()?;
        let times = MachineTimes::new(&self.timed(), request.experiment(), &text, &expected);
        self.progress.start(expected.label, self.bounded(times.work()));
        let request = format!("irqlab:{stop_after_s} {text}");
        let limits = Limits { guest_s: stop_after_s.saturating_add(RESPONSE_S_MAX), ..self.limits };
        let mut last_phase = MachinePhase::Starts;
        // The closure kills the machine when it returns. Its error is handled after the final reports of progress.
        let mut run_machine = || -> Result<_> {
            let recording =
                Recording::new(cache, qemu, &self.machine, &self.kernel_files, &self.watch, None)?;
            let mut vm = checkpoint::start(
                cache,
                qemu,
                &self.machine,
                &self.start,
                &request,
                limits,
                recording.instrumentation(),
            )?;
            let report = || {
                let state = expected.state(recording.progress(), clock_hz);
                times.observe(state);
                self.progress.update(expected.label, state);
                state.phase
            };
            let stop = || {
                let phase = report();
                let is_over = self.deadline.is_some_and(|deadline| deadline.is_over());
                let reason = if (self.stop)() {
                    EarlyReason::Stopped
                } else if is_over {
                    EarlyReason::HostLimit
                } else {
                    return false;
                };
                self.progress.ends_early(expected.label, phase, reason);
                true
            };
            let mut refuse = boot::refuse_to_save();
            // Before a window opens, the guest has nothing to respond with.
            let early_end = || match recording.progress().regions {
                0 => EarlyEnd::EndRecord,
                _ => EarlyEnd::AskGuest,
            };
            let end =
                boot::follow_to_end(&mut vm, limits, &early_end, &mut |_| {}, &stop, &mut refuse)?;
            last_phase = expected.state(recording.progress(), clock_hz).phase;
            Ok((recording, end))
        };
        let run_end = run_machine();
        self.progress.update(expected.label, MachineState::of_phase(MachinePhase::Analysis));
        let outcome = self.outcome_of(run_end, last_phase);
        if let Ok(Some(GuestOutcome { early: None, wall, .. })) = &outcome {
            times.keep(&self.cache, *wall);
        }
        self.progress.done(expected.label);
        outcome
    }

    /// Reads the response and the record of a machine that has ended. `last_phase`: the last phase that it reported.
    fn outcome_of<R: Response>(
        &self,
        run_end: Result<(Recording, Ended)>,
        last_phase: MachinePhase,
    ) -> std::result::Result<Option<GuestOutcome<R>>, BenchError> {
        let (recording, Ended { exit, early, wall }) = run_end?;
        // For `follow_to_end`, an early end at the request of this run is a stop, also if the deadline was the cause.
        let early_reason = match early {
            Some(EarlyReason::Stopped) if self.reached_deadline().is_some() => {
                Some(EarlyReason::HostLimit)
            }
            early_reason => early_reason,
        };
        // The guest's error comes first: it says more than the broken record of a guest that failed.
        let (response, no_response) = match (exit.as_ref().map(response), early_reason) {
            (Some(Ok(response)), _) => (Some(response), String::new()),
            (Some(Err(error)), None) => return Err(error),
            (Some(Err(error)), Some(_)) => (None, no_response(Some(error))),
            (None, _) => (None, no_response(None)),
        };
        let account = match (recording.accounting(), early_reason) {
            (Ok(account), Some(reason)) if account.regions.is_empty() => {
                return self.outcome_without_data(reason, last_phase);
            }
            (Err(_), Some(reason)) => return self.outcome_without_data(reason, last_phase),
            (account, _) => account?,
        };
        let modules =
            exit.and_then(|exit| exit.report).map_or_else(Vec::new, |report| report.modules);
        Ok(Some(GuestOutcome {
            response,
            no_response,
            account,
            wall,
            modules,
            early: early_reason,
        }))
    }

    /// Returns the outcome of a machine that ended early without a usable record: `None` if the user stopped it, an
    /// error if a limit did. `last_phase`: the last phase that the machine reported.
    fn outcome_without_data<T>(
        &self,
        reason: EarlyReason,
        last_phase: MachinePhase,
    ) -> std::result::Result<Option<T>, BenchError> {
        let Some(limit) = self.limit_text(reason) else { return Ok(None) };
        let when = match last_phase {
            MachinePhase::Boots
            | MachinePhase::Unobserved
            | MachinePhase::Starts
            | MachinePhase::WarmUp => "before its first window opened",
            MachinePhase::Window(_)
            | MachinePhase::After(_)
            | MachinePhase::Drains
            | MachinePhase::Analysis => "and the record cannot be read",
        };
        Err(BenchError::TimeLimit(format!("{limit} {when}")))
    }
}

impl GuestRun {
    /// Adds the symbols of the modules that a machine loaded while it booted for a run. A restored machine has no
    /// `modules`: its `symbols` already include those modules, and are returned unchanged.
    pub(crate) fn with_modules_of_boot<'a>(
        &self,
        symbols: Option<&'a Symbols>,
        modules: &[LoadedModule],
    ) -> std::result::Result<Option<Cow<'a, Symbols>>, BenchError> {
        let Some(symbols) = symbols else { return Ok(None) };
        if modules.is_empty() {
            return Ok(Some(Cow::Borrowed(symbols)));
        }
        let all_symbols = with_modules(symbols, &self.kernel, modules)?;
        Ok(Some(Cow::Owned(all_symbols)))
    }
}

/// Returns why a machine that ended early has no response, as a message. `error`: the failure of the guest's irqlab,
/// if it ended by itself.
fn no_response(error: Option<BenchError>) -> String {
    match error {
        None | Some(BenchError::TimeLimit(_)) => "the guest did not respond in time".to_owned(),
        Some(error) => format!("the guest failed after it was asked to stop: {error}"),
    }
}

/// Reads the response from the output of the guest's irqlab. An exit status of 0 says that it has sent a response.
fn response<R: Response>(exit: &GuestExit) -> std::result::Result<R, BenchError> {
    match exit.status {
        0 => decode(exit.output.iter().map(String::as_str)),
        boot::STATUS_LIMIT => Err(BenchError::TimeLimit(
            "the guest reached its time limit (--guest-limit)".to_owned(),
        )),
        status => Err(BenchError::Failed(format!(
            "irqlab in the guest ended with status {status} and no response"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lab::guest_protocol::encode;
    use lab::handlers::in_guest::{GuestWindow, HandlersResponse, items};

    use super::*;

    fn read(status: u8, output: &[String]) -> std::result::Result<HandlersResponse, BenchError> {
        let (output, wall) = (output.to_vec(), Duration::ZERO);
        response(&GuestExit {
            status,
            reached_limit: false,
            failed: None,
            faults: None,
            report: None,
            output,
            wall,
        })
    }

    #[test]
    fn a_failure_after_the_stop_is_not_called_late() {
        let failed = BenchError::Failed("no memory".to_owned());
        let text = no_response(Some(failed));
        assert!(text.ends_with("asked to stop: no memory"), "{text}");
        assert_eq!(no_response(None), "the guest did not respond in time");
    }

    #[test]
    fn a_response_is_the_output_of_an_irqlab_that_succeeds() {
        let window = GuestWindow { length_ns: 7, ..GuestWindow::default() };
        let lines = encode(Ok(items(window.clone())));
        assert_eq!(read(0, &lines).unwrap().window, Some(window));
        for (status, lines, words) in [
            (127, &[][..], "ended with status 127 and no response"),
            (0, &["{}".to_owned()], "the guest's response: there is none"),
            (boot::STATUS_LIMIT, &lines[..1], "--guest-limit"),
        ] {
            let error = read(status, lines).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
