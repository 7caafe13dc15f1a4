//! Starts a machine with a request for its first process, and follows it to its end.
//!
//! [`crate::GuestRun`], workloads, `irqlab sim boot` and repetitions use [`follow_to_end`]: it collects the guest's
//! messages, handles stops and limits, and says how the machine ended. A machine must be followed on the thread that
//! started it: the kernel kills QEMU when that thread ends.

use std::fmt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use lab::guest_protocol::{RESPONSE_BYTES_MAX, RESPONSE_LINES_MAX};

use crate::machine::agent::{GuestReport, Message};
use crate::machine::vm::{
    GuestEvent, GuestText, Instrumentation, StartConfig, Vm, VmEvent, describe_exit,
};
use crate::machine::{Held, Machine, NO_REQUEST};
use crate::qemu::Qemu;
use crate::{Result, SimError};

/// Exit status of a guest that reached its own time limit.
pub const STATUS_LIMIT: u8 = 124;
/// Maximum time that a machine may take to power off after it has reported its exit status.
const POWER_OFF_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time that a guest may take to send the next line of its response after it was asked to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time that a guest may take for its whole response after it was asked to stop.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);
/// How often the stop request is checked.
pub(crate) const STOP_POLL: Duration = Duration::from_millis(100);

/// How long a machine may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Limit on the host's clock, at which the machine is killed.
    pub wall: Duration,
    /// Limit on the guest's clock, in seconds from the start of its first process. At the limit the guest powers off.
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
    /// The failed step of a workload; `None` if no step failed, or if the request is no workload. Never [`Step::Root`] or
    /// [`Step::Output`], without which nothing is executed: these are errors.
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

/// A step of a workload or a command.
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
    /// Opening the serial ports for a command's output.
    Output,
}

impl Step {
    /// Returns the step with the name that the guest's first process uses; `None` for an unknown name.
    fn named(name: &str) -> Option<Step> {
        Some(match name {
            "root" => Step::Root,
            "set-up" => Step::SetUp,
            "region" => Step::Region,
            "check" => Step::Check,
            "output" => Step::Output,
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
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Step::Root => "mounting the root file system",
            Step::SetUp => "the set-up",
            Step::Region => "the region of interest",
            Step::Check => "the check",
            Step::Output => "opening the serial ports of the command's output (ttyS2, ttyS3)",
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
    /// Keeps a line unless the output exceeds a bound.
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
    let (line_request, firmware_request) =
        if is_for_firmware(request) { ("ready", request) } else { (request, NO_REQUEST) };
    let command_line = machine.command_line(line_request, limits.guest_s)?;
    let request = firmware_request.to_owned();
    Vm::start(qemu, machine, &StartConfig { command_line, request, state: None, instrumentation })
}

/// Returns whether a request is passed in the firmware: it may be long, or has characters that the kernel refuses.
fn is_for_firmware(request: &str) -> bool {
    let is_refused = |character: char| character == '"' || character.is_control();
    let may_be_long = ["irqlab:", "prepare:", "work:"].iter().any(|kind| request.starts_with(kind));
    may_be_long || request.chars().any(is_refused)
}

/// Follows a machine to its end; passes the output of its console and of its command to `text`.
///
/// Fails with [`SimError::Machine`] and the last lines of the console if the kernel panics or resets, or if QEMU ends
/// by itself, or if the guest could not execute its request. Fails with [`SimError::TimeLimit`] at the limit on the host's clock, and if the first process has sent
/// nothing within the guest's time limit.
pub fn follow(
    vm: &mut Vm,
    limits: Limits,
    text: &mut dyn FnMut(GuestText<'_>),
) -> Result<GuestExit> {
    let exit = follow_unless(vm, limits, text, &|| false)?;
    exit.ok_or_else(|| vm.failure("the machine was stopped"))
}

/// Like [`follow`], but kills the machine and returns `None` when `stop` returns true.
///
/// Fails as [`follow`] does.
pub fn follow_unless(
    vm: &mut Vm,
    limits: Limits,
    text: &mut dyn FnMut(GuestText<'_>),
    stop: &dyn Fn() -> bool,
) -> Result<Option<GuestExit>> {
    let early_end = || EarlyEnd::Kill;
    let ended = follow_to_end(vm, limits, &early_end, text, stop, &mut refuse_to_save())?;
    Ok(ended.exit)
}

/// A `save` of [`follow_to_end`] for machines that save no checkpoint.
pub(crate) fn refuse_to_save() -> impl FnMut(&mut Vm, Held) -> Result<()> {
    |_, _| Err(SimError::Invalid("no checkpoint is saved here".to_owned()))
}

/// How to end a machine that has not executed its request yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyEnd {
    /// It is killed. Its record has no end and cannot be read. At the limit on the host's clock this is an error.
    Kill,
    /// QEMU quits. The plugin ends the record.
    EndRecord,
    /// The irqlab in the guest is asked to respond with what it has measured. Without a response in time, QEMU quits.
    AskGuest,
}

/// Why a machine was ended before it had executed its request.
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
    /// Host time from the start of the machine to its end.
    pub wall: Duration,
}

/// The time on the host's clock at which a machine must have ended. Each event that [`follow_to_end`] sees may change
/// it.
#[derive(Clone, Copy, Debug)]
struct EndDeadline {
    ends_at: Instant,
    /// When the guest was asked to stop; `None` before.
    asked_at: Option<Instant>,
}

impl EndDeadline {
    fn new(ends_at: Instant) -> EndDeadline {
        EndDeadline { ends_at, asked_at: None }
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.ends_at
    }

    /// Notes that the guest was asked to stop: it has [`STOP_TIMEOUT`] from now.
    fn note_stop_request(&mut self, now: Instant) {
        *self = EndDeadline { ends_at: now + STOP_TIMEOUT, asked_at: Some(now) };
    }

    /// Notes that the guest has sent a line of its response. Does nothing before the guest was asked to stop.
    fn note_response(&mut self, now: Instant) {
        if let Some(asked_at) = self.asked_at {
            self.ends_at = (now + STOP_TIMEOUT).min(asked_at + RESPONSE_TIMEOUT);
        }
    }

    /// Notes that the guest has reported its status, and powers off.
    fn note_power_off(&mut self, now: Instant) {
        self.ends_at = self.ends_at.min(now + POWER_OFF_TIMEOUT);
    }

    /// Adds the time during which the plugin held the machine: this time does not count.
    fn extend(&mut self, held: Duration) {
        self.ends_at += held;
    }
}

/// The reports of the guest up to now.
#[derive(Default)]
struct Reports {
    /// `None`: the guest has not booted, or was restored.
    facts: Option<GuestReport>,
    /// The exit status of the request.
    status: Option<u8>,
    output: Output,
    reached_limit: bool,
    failed_step: Option<Step>,
    faults: Option<GuestFaults>,
}

impl Reports {
    /// Keeps a message, and adapts the deadline to it.
    fn add(&mut self, message: Message, deadline: &mut EndDeadline) {
        match message {
            Message::Facts(facts) => self.facts = Some(facts),
            Message::Exit { status } => {
                self.status = Some(status);
                deadline.note_power_off(Instant::now());
            }
            Message::Limit => self.reached_limit = true,
            Message::Faults { all, major } => self.faults = Some(GuestFaults { all, major }),
            Message::Step { name, .. } => self.failed_step = Step::named(&name),
            Message::Output { line } => {
                deadline.note_response(Instant::now());
                self.output.push(line);
            }
            _ => {}
        }
    }

    /// The end of a machine whose request ended with `status`. `early`: why the machine was ended before, if it was.
    fn into_end(self, status: u8, early: Option<EarlyReason>, wall: Duration) -> Ended {
        let exit = GuestExit {
            status,
            reached_limit: self.reached_limit,
            failed: self.failed_step,
            faults: self.faults,
            report: self.facts,
            output: self.output.lines,
            wall,
        };
        let early = early.or(self.reached_limit.then_some(EarlyReason::GuestLimit));
        Ended { exit: Some(exit), early, wall }
    }
}

/// Follows a machine to its end. `stop` and the limit on the host's clock end it early; `early_end` is called then
/// and says how. Calls `save` when the plugin holds the machine. The limit does not include the time of `save`.
///
/// Handles each event before it tests `stop` and the limit: a machine that has ended by itself did not end early.
///
/// Fails as [`follow`] does, and with the errors of `save`.
pub fn follow_to_end(
    vm: &mut Vm,
    limits: Limits,
    early_end: &dyn Fn() -> EarlyEnd,
    text: &mut dyn FnMut(GuestText<'_>),
    stop: &dyn Fn() -> bool,
    save: &mut dyn FnMut(&mut Vm, Held) -> Result<()>,
) -> Result<Ended> {
    let start = Instant::now();
    let mut deadline = EndDeadline::new(start + limits.wall);
    let mut reports = Reports::default();
    let mut early = None;
    let exit_status = loop {
        match vm.next_event(deadline.ends_at.min(Instant::now() + STOP_POLL))? {
            Some(VmEvent::Text(stream, bytes)) => text(GuestText { stream, bytes: &bytes }),
            Some(VmEvent::Guest(GuestEvent(message))) => reports.add(message, &mut deadline),
            Some(VmEvent::Held(held)) => {
                let held_at = Instant::now();
                save(vm, held)?;
                deadline.extend(held_at.elapsed());
            }
            Some(VmEvent::Ended(exit_status)) => {
                if early.is_none() && reports.status.is_none() && stop() {
                    early = Some(EarlyReason::Stopped);
                }
                break Some(exit_status);
            }
            None => {}
        }
        // A guest that has reported its status only powers off.
        let reason = if early.is_some() || reports.status.is_some() {
            None
        } else if stop() {
            Some(EarlyReason::Stopped)
        } else {
            deadline.is_over(Instant::now()).then_some(EarlyReason::HostLimit)
        };
        match reason.map(|reason| (reason, early_end())) {
            None if deadline.is_over(Instant::now()) => break None,
            None => {}
            Some((EarlyReason::HostLimit, EarlyEnd::Kill)) => break None,
            Some((reason, EarlyEnd::Kill)) => {
                vm.kill();
                return Ok(Ended { exit: None, early: Some(reason), wall: start.elapsed() });
            }
            Some((reason, EarlyEnd::EndRecord)) => {
                vm.quit()?;
                return Ok(Ended { exit: None, early: Some(reason), wall: start.elapsed() });
            }
            Some((reason, EarlyEnd::AskGuest)) => {
                early = Some(reason);
                // A machine that has ended meanwhile reports its end as the next event.
                let _ = vm.answer_guest();
                deadline.note_stop_request(Instant::now());
            }
        }
    };
    let wall = start.elapsed();
    // A restored machine has reported before it was saved, and does not report again.
    let is_up = vm.is_restored() || reports.facts.is_some();
    let failed_step = (reports.status, reports.failed_step);
    if let (Some(status), Some(step @ (Step::Root | Step::Output))) = failed_step {
        vm.kill();
        return Err(vm.failure(&format!("{step} failed in the guest with status {status}")));
    }
    match (reports.status, exit_status) {
        (Some(status), Some(_)) => Ok(reports.into_end(status, early, wall)),
        // The guest has reported its status, but its kernel cannot power the machine off.
        (Some(status), None) => vm.quit().map(|()| reports.into_end(status, early, wall)),
        (None, Some(_)) if is_up && vm.reached_limit() => {
            reports.reached_limit = true;
            Ok(reports.into_end(STATUS_LIMIT, early, wall))
        }
        // The guest was asked to stop, and did not respond in time or ended meanwhile.
        (None, _) if early.is_some() => {
            vm.quit()?;
            Ok(Ended { exit: None, early, wall: start.elapsed() })
        }
        (None, Some(exit_status)) => Err(early_end_error(vm, exit_status, is_up)),
        (None, None) => {
            vm.kill();
            let detail = if is_up { "" } else { "; its first process has sent nothing" };
            let wall_limit = limits.wall;
            let problem = format!("the machine was killed after {wall_limit:?} (--limit){detail}");
            Err(vm.time_limit(&problem))
        }
    }
}

/// Returns the error for a QEMU that ended before the guest reported its status.
fn early_end_error(vm: &Vm, exit_status: ExitStatus, is_up: bool) -> SimError {
    if vm.reached_limit() {
        let reason = "the guest has reached its time limit (--guest-limit)";
        return vm.time_limit(&format!("{reason}; its first process has sent nothing"));
    }
    if !exit_status.success() {
        return vm.failure(&format!("QEMU {} before the guest did", describe_exit(exit_status)));
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
    text: &mut dyn FnMut(GuestText<'_>),
) -> Result<GuestExit> {
    let mut vm = start(qemu, machine, request, limits)?;
    follow(&mut vm, limits, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_failed_step_has_the_name_that_the_guest_uses() {
        let names = ["root", "set-up", "region", "check", "output"];
        assert!(names.iter().all(|name| Step::named(name).is_some()));
        let text = step_failed("output", 127);
        assert!(text.contains("ttyS2, ttyS3") && text.ends_with("with status 127"), "{text}");
    }

    #[test]
    fn a_guest_that_responds_has_more_time_up_to_a_maximum() {
        let start = Instant::now();
        let mut end = EndDeadline::new(start + 100 * SECOND);
        end.note_response(start + 50 * SECOND);
        assert_eq!(end.ends_at, start + 100 * SECOND, "it was not asked to stop");
        end.note_stop_request(start + 60 * SECOND);
        assert!(!end.is_over(start + 79 * SECOND) && end.is_over(start + 80 * SECOND));
        end.note_response(start + 75 * SECOND);
        assert_eq!(end.ends_at, start + 95 * SECOND);
        end.note_response(start + 350 * SECOND);
        assert_eq!(end.ends_at, start + 360 * SECOND, "five minutes after it was asked");
        end.extend(SECOND);
        end.note_power_off(start + 340 * SECOND);
        assert_eq!(end.ends_at, start + 350 * SECOND);
    }
}
