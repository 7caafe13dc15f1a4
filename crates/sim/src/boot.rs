//! Starts a machine with a request for its first process, and follows it to its end.

use std::fmt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use lab::guest_protocol::{RESPONSE_BYTES_MAX, RESPONSE_LINES_MAX};

use crate::machine::agent::{GuestReport, Message};
use crate::machine::vm::{GuestEvent, Instrumentation, StartConfig, Vm, VmEvent, describe_exit};
use crate::machine::{Held, Machine, NO_REQUEST};
use crate::qemu::Qemu;
use crate::{Result, SimError};

/// Exit status of a guest that reached its own time limit.
pub const STATUS_LIMIT: u8 = 124;
/// Maximum time that a machine may take to power off after it has reported its exit status.
const POWER_OFF_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time that a guest may take to respond after it was asked to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// How often the stop request is checked.
pub(crate) const STOP_POLL: Duration = Duration::from_millis(100);

/// How long a machine may run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limit on the host's clock, at which the machine is killed.
    pub wall: Duration,
    /// Limit on the guest's clock, in seconds from the start of its first process. The guest powers itself off
    /// then.
    pub guest_s: u32,
}

impl Default for Limits {
    /// Ten minutes in the guest, half an hour outside.
    fn default() -> Limits {
        Limits { wall: Duration::from_secs(1800), guest_s: 600 }
    }
}

/// The end of a machine that executed its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestExit {
    /// Exit status of the request: the status of a command (128 plus the number of the signal that ended it),
    /// 0, or [`STATUS_LIMIT`].
    pub status: u8,
    /// Whether the guest reached its time limit.
    pub reached_limit: bool,
    /// The failed step of a workload; `None` if no step failed, or if the request is no workload.
    pub failed: Option<Step>,
    /// Page faults of the region of interest of a workload, as the guest's kernel counts them.
    pub faults: Option<GuestFaults>,
    /// The guest's report about its kernel. Absent after a restore: the guest reports only once, after its
    /// boot.
    pub report: Option<GuestReport>,
    /// The output of the guest's irqlab, line by line.
    pub output: Vec<String>,
    /// Host time from the start of the machine to its end.
    pub wall: Duration,
}

/// Page faults of all CPUs, from `/proc/vmstat` of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestFaults {
    /// Minor and major faults.
    pub all: u64,
    /// Faults that waited for a disk.
    pub major: u64,
}

/// A step of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Mounting the root file system.
    Root,
    /// The preparation of the workload, after which the machine is saved.
    SetUp,
    /// The region of interest.
    Region,
    /// The check of what the region has done.
    Check,
}

impl Step {
    /// Returns the step with the name that the guest's first process uses; `None` for an unknown name.
    fn named(name: &str) -> Option<Step> {
        Some(match name {
            "root" => Step::Root,
            "set-up" => Step::SetUp,
            "region" => Step::Region,
            "check" => Step::Check,
            _ => return None,
        })
    }
}

/// Returns the message for a failed step. `name` is the name that the guest's first process uses.
pub(crate) fn step_failed(name: &str, status: u8) -> String {
    let step = Step::named(name).map_or_else(|| "a step".to_owned(), |step| step.to_string());
    match status {
        STATUS_LIMIT => format!("{step} reached the guest's time limit (--guest-limit)"),
        status => format!("{step} failed in the guest with status {status}"),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Step::Root => "mounting the root file system",
            Step::SetUp => "the set-up",
            Step::Region => "the region of interest",
            Step::Check => "the check",
        })
    }
}

/// Output of the guest's irqlab in bounded memory. Lines beyond the bounds of the guest protocol are dropped.
/// The response then lacks its end.
#[derive(Default)]
struct Output {
    lines: Vec<String>,
    bytes: usize,
}

impl Output {
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        if self.lines.len() <= RESPONSE_LINES_MAX && self.bytes <= RESPONSE_BYTES_MAX {
            self.lines.push(line);
        }
    }
}

/// Starts a machine with a request: `shell`, `probe`, `idle`, `idle:SECONDS`, `run:COMMAND`,
/// `irqlab:ARGUMENTS`, `ready` or `poweroff`.
///
/// Fails when QEMU does not start, or the kernel's command line cannot hold the request.
pub fn start(qemu: &Qemu, machine: &Machine, request: &str, limits: Limits) -> Result<Vm> {
    start_with(qemu, machine, request, limits, Instrumentation::default())
}

/// Like [`start`], with instrumentation that observes the machine.
///
/// Fails as [`start`] does.
pub fn start_with(
    qemu: &Qemu,
    machine: &Machine,
    request: &str,
    limits: Limits,
    instrumentation: Instrumentation<'_>,
) -> Result<Vm> {
    // The guest reads a request from the firmware if the kernel's command line cannot hold it.
    let (on_line, in_firmware) =
        if is_for_firmware(request) { ("ready", request) } else { (request, NO_REQUEST) };
    let command_line = machine.command_line(on_line, limits.guest_s)?;
    let request = in_firmware.to_owned();
    Vm::start(qemu, machine, &StartConfig { command_line, request, state: None, instrumentation })
}

fn is_for_firmware(request: &str) -> bool {
    let is_refused = |character: char| character == '"' || character.is_control();
    let is_long = ["irqlab:", "prepare:", "work:"].iter().any(|kind| request.starts_with(kind));
    is_long || request.chars().any(is_refused)
}

/// Follows a machine to its end; passes the output of its console to `console`.
///
/// Fails with [`SimError::Machine`] and the last lines of the console if the kernel panics, resets or does not end
/// in time, or if QEMU ends by itself. Fails with [`SimError::TimeLimit`] if the first process has sent nothing
/// within the guest's time limit.
pub fn follow(vm: &mut Vm, limits: Limits, console: &mut dyn FnMut(&[u8])) -> Result<GuestExit> {
    let exit = follow_unless(vm, limits, console, &|| false)?;
    exit.ok_or_else(|| vm.failure("the machine was stopped"))
}

/// Like [`follow`], but kills the machine and returns `None` when `stop` returns true.
///
/// Fails as [`follow`] does.
pub fn follow_unless(
    vm: &mut Vm,
    limits: Limits,
    console: &mut dyn FnMut(&[u8]),
    stop: &dyn Fn() -> bool,
) -> Result<Option<GuestExit>> {
    let ended = follow_to_end(vm, limits, EarlyEnd::Kill, console, stop, &mut refuse_to_save())?;
    Ok(ended.exit)
}

/// A `save` of [`follow_to_end`] for machines that save no checkpoint.
pub(crate) fn refuse_to_save() -> impl FnMut(&mut Vm, Held) -> Result<()> {
    |_, _| Err(SimError::Invalid("no checkpoint is saved here".to_owned()))
}

/// How a machine is ended before its request is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyEnd {
    /// It is killed. Its record has no end and cannot be read. At the limit on the host's clock this is an error.
    Kill,
    /// QEMU quits. The plugin ends the record.
    EndRecord,
    /// The irqlab in the guest is asked to respond with what it has measured. Without a response in time, QEMU quits.
    AskGuest,
}

/// Why a machine was ended before its request was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyReason {
    /// The caller's `stop` returned true.
    Stopped,
    /// It reached [`Limits::wall`].
    HostLimit,
    /// It reached [`Limits::guest_s`].
    GuestLimit,
}

/// The end of a machine, which may have come early.
#[derive(Clone, Debug)]
pub struct Ended {
    /// `None` if the guest did not report its status.
    pub exit: Option<GuestExit>,
    /// `None` if the guest has executed its request.
    pub early: Option<EarlyReason>,
}

/// Follows a machine to its end. `stop` and the limit on the host's clock end it early, in the way of `early_end`.
/// Calls `save` when the plugin holds the machine. The limit does not include the time of `save`.
///
/// Fails as [`follow`] does, and with the errors of `save`.
pub fn follow_to_end(
    vm: &mut Vm,
    limits: Limits,
    early_end: EarlyEnd,
    console: &mut dyn FnMut(&[u8]),
    stop: &dyn Fn() -> bool,
    save: &mut dyn FnMut(&mut Vm, Held) -> Result<()>,
) -> Result<Ended> {
    let start = Instant::now();
    let mut deadline = start + limits.wall;
    let mut report = None;
    let mut status = None;
    let mut output = Output::default();
    let mut reached_limit = false;
    let mut failed = None;
    let mut faults = None;
    let mut early = None;
    let ended = loop {
        let event = vm.next(deadline.min(Instant::now() + STOP_POLL))?;
        if early.is_none() && status.is_none() {
            early = if stop() {
                Some(EarlyReason::Stopped)
            } else if Instant::now() >= deadline && early_end != EarlyEnd::Kill {
                Some(EarlyReason::HostLimit)
            } else {
                None
            };
            match (early, early_end) {
                (None, _) => {}
                (Some(_), EarlyEnd::Kill) => {
                    vm.kill();
                    return Ok(Ended { exit: None, early });
                }
                (Some(_), EarlyEnd::EndRecord) => {
                    vm.quit()?;
                    return Ok(Ended { exit: None, early });
                }
                (Some(_), EarlyEnd::AskGuest) => {
                    // A machine that has ended meanwhile is found below.
                    let _ = vm.answer_guest();
                    deadline = Instant::now() + STOP_TIMEOUT;
                }
            }
        }
        match event {
            Some(VmEvent::Console(bytes)) => console(&bytes),
            Some(VmEvent::Guest(GuestEvent(message))) => match message {
                Message::Facts(facts) => report = Some(facts),
                Message::Exit { status: reported } => {
                    status = Some(reported);
                    deadline = deadline.min(Instant::now() + POWER_OFF_TIMEOUT);
                }
                Message::Limit => reached_limit = true,
                Message::Faults { all, major } => faults = Some(GuestFaults { all, major }),
                Message::Step { name, .. } => failed = Step::named(&name),
                Message::Output { line } => output.push(line),
                _ => {}
            },
            Some(VmEvent::Held(held)) => {
                let start = Instant::now();
                save(vm, held)?;
                deadline += start.elapsed();
            }
            Some(VmEvent::Ended(ended)) => break Some(ended),
            None if Instant::now() < deadline => {}
            None => break None,
        }
    };
    let wall = start.elapsed();
    // A restored machine has reported before, and does not report again.
    let is_up = vm.is_restored() || report.is_some();
    let exit = |status, reached_limit: bool| {
        let early = early.or(reached_limit.then_some(EarlyReason::GuestLimit));
        let exit =
            GuestExit { status, reached_limit, failed, faults, report, output: output.lines, wall };
        Ok(Ended { exit: Some(exit), early })
    };
    match (status, ended) {
        (Some(status), Some(_)) => exit(status, reached_limit),
        // The guest has reported its status, but its kernel cannot power the machine off.
        (Some(status), None) => vm.quit().and_then(|()| exit(status, reached_limit)),
        (None, Some(_)) if is_up && vm.reached_limit() => exit(STATUS_LIMIT, true),
        // A guest that does not respond in time, or ends while it is asked to stop.
        (None, _) if early.is_some() => {
            vm.quit()?;
            Ok(Ended { exit: None, early })
        }
        (None, Some(ended)) => Err(ended_early(vm, ended, is_up)),
        (None, None) => {
            vm.kill();
            let reached = if is_up { "" } else { "; its first process has sent nothing" };
            let seconds = limits.wall.as_secs_f64();
            Err(vm.failure(&format!("the machine was killed after {seconds:.0} s{reached}")))
        }
    }
}

/// Returns why QEMU ended before the guest reported its status.
fn ended_early(vm: &Vm, ended: ExitStatus, is_up: bool) -> SimError {
    if vm.reached_limit() {
        let reason = "the guest has reached its time limit (--guest-limit)";
        return vm.time_limit(&format!("{reason}; its first process has sent nothing"));
    }
    if !ended.success() {
        return vm.failure(&format!("QEMU {} before the guest did", describe_exit(ended)));
    }
    // The last lines of the console may show only the call trace that follows the reason.
    if let Some(reason) = vm.console_line_after("Kernel panic - ") {
        return vm.failure(&format!("the guest's kernel panicked: {}", reason.trim()));
    }
    let how = match vm.shutdown_reason() {
        Some("guest-reset") => "reset the machine",
        Some("guest-shutdown") => "powered the machine off",
        _ => "ended",
    };
    let when = if is_up { "during its request" } else { "before its first process" };
    vm.failure(&format!("the guest {how} {when}"))
}

/// Boots a machine, follows it, and returns how it ended.
///
/// Fails as [`start`] and [`follow`] do.
pub fn run(
    qemu: &Qemu,
    machine: &Machine,
    request: &str,
    limits: Limits,
    console: &mut dyn FnMut(&[u8]),
) -> Result<GuestExit> {
    let mut vm = start(qemu, machine, request, limits)?;
    follow(&mut vm, limits, console)
}
