//! A machine that is observed while the irqlab in its guest executes a request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use lab::experiment::BenchError;
use lab::guest_protocol::{Request, Response, decode};
use simrecord::progress::GuestProgress;

use crate::boot::{self, GuestExit, Limits};
use crate::checkpoint::Start;
use crate::guest::kernel::Kernel;
use crate::guest::loaded::{LoadedModule, with_modules};
use crate::qemu::Qemu;
use crate::watch::{KernelFiles, Recording, Watch};
use crate::{Accounting, Cache, Machine, Result, Symbols, checkpoint};

/// Tells whether the user asked to stop.
pub type StopRequest = Arc<dyn Fn() -> bool + Send + Sync>;

/// Phase of the run of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachinePhase {
    /// Its kernel boots.
    Boots,
    /// It starts, and goes to the first window.
    Starts,
    /// This window is open, from 1.
    Window(u32),
    /// All windows are closed; it ends.
    Drains,
    /// It has ended, and its record is read.
    Analysis,
}

/// Receives the progress of machines that run at the same time.
pub trait MachineProgress: Send + Sync {
    /// Reports the phase of the machine named `machine`. `fraction`: the finished part of the phase, 0 to 1;
    /// `None` if unknown.
    fn update(&self, machine: &str, phase: MachinePhase, fraction: Option<f64>);

    /// The machine has ended, and its outcome is known.
    fn done(&self, machine: &str);
}

/// Label and window length of a machine, to report its progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// Its name for the user.
    pub(crate) label: &'a str,
    /// Cycles of guest time of a window, where that is known.
    pub(crate) window_cycles: Option<u64>,
}

impl Expected<'_> {
    fn state(&self, progress: GuestProgress) -> (MachinePhase, Option<f64>) {
        let GuestProgress { regions, is_open, opened_at, now } = progress;
        let elapsed = now.saturating_sub(opened_at) as f64;
        let fraction = |cycles: u64| (elapsed / cycles.max(1) as f64).min(1.0);
        match (regions, is_open) {
            (0, _) => (MachinePhase::Starts, None),
            (number, true) => (MachinePhase::Window(number), self.window_cycles.map(fraction)),
            (_, false) => (MachinePhase::Drains, None),
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
    /// How long each may run.
    pub limits: Limits,
    /// How it is observed.
    pub watch: Watch,
    /// Whether the user asked to stop.
    pub stop: StopRequest,
    /// Receives the progress of each machine.
    pub progress: Arc<dyn MachineProgress>,
}

impl fmt::Debug for GuestRun {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("GuestRun").field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl GuestRun {
    /// Starts the machine with a request and reports its progress. Returns the guest's response, the end of the
    /// machine and the plugin's record; `None` if the user asked to stop.
    pub(crate) fn run<R: Response>(
        &self,
        request: &Request,
        expected: Expected<'_>,
    ) -> std::result::Result<Option<(R, GuestExit, Accounting)>, BenchError> {
        let (cache, qemu) = (&self.cache, &self.qemu);
        let request = format!("irqlab:{}", request.encode()?);
        let start = || -> Result<_> {
            let recording =
                Recording::new(cache, qemu, &self.machine, &self.kernel_files, &self.watch, None)?;
            let mut vm = checkpoint::start(
                cache,
                qemu,
                &self.machine,
                &self.start,
                &request,
                self.limits,
                recording.instrumentation(),
            )?;
            let stop = || {
                let (phase, fraction) = expected.state(recording.progress());
                self.progress.update(expected.label, phase, fraction);
                (self.stop)()
            };
            let exit = boot::follow_unless(&mut vm, self.limits, &mut |_| {}, &stop)?;
            Ok((recording, exit))
        };
        let started = start();
        self.progress.update(expected.label, MachinePhase::Analysis, None);
        let outcome = outcome(started);
        self.progress.done(expected.label);
        outcome
    }
}

impl GuestRun {
    /// Adds the symbols of the modules that a machine loaded while it booted for a run. A restored machine has
    /// no `modules`: `symbols` includes the symbols of its modules, and is returned unchanged.
    pub(crate) fn with_modules_of_boot<'a>(
        &self,
        symbols: Option<&'a Symbols>,
        modules: &[LoadedModule],
    ) -> std::result::Result<Option<Cow<'a, Symbols>>, BenchError> {
        let Some(symbols) = symbols else { return Ok(None) };
        if modules.is_empty() {
            return Ok(Some(Cow::Borrowed(symbols)));
        }
        let all = with_modules(symbols, &self.kernel, modules)?;
        Ok(Some(Cow::Owned(all)))
    }
}

/// Reads the response and the record of a machine that has ended.
fn outcome<R: Response>(
    started: Result<(Recording, Option<GuestExit>)>,
) -> std::result::Result<Option<(R, GuestExit, Accounting)>, BenchError> {
    let (recording, exit) = started?;
    let Some(exit) = exit else { return Ok(None) };
    if exit.reached_limit {
        return response(&GuestExit { status: boot::STATUS_LIMIT, ..exit }).map(|_: R| None);
    }
    // The record of a guest that failed is broken, too: its own error says more.
    let response = response(&exit)?;
    let account = recording.accounting()?;
    Ok(Some((response, exit, account)))
}

/// Reads the response from the output of the guest's irqlab, whose exit status is 0 if it has sent one.
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
