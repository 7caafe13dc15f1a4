//! Starts a machine with an order for its first process, and follows it to its end.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::agent::{GuestReport, Message};
use crate::held::Held;
use crate::machine::{Machine, NO_ORDER};
use crate::qemu::Qemu;
use crate::vm::{GuestEvent, More, Start, Vm, VmEvent, ending};
use crate::{Result, SimError};

/// Exit status of a guest that reached its own time limit.
pub const STATUS_LIMIT: u8 = 124;
/// Most lines that are kept of what irqlab in the guest says.
const SAID_LINES_MAX: usize = 256;
/// How long a machine that said how it ended may take to power off.
const POWER_OFF_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a machine is asked whether it is still wanted.
pub(crate) const STOP_POLL: Duration = Duration::from_millis(100);

/// How long a machine may run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// On the host's clock; the machine is killed then.
    pub wall: Duration,
    /// On the guest's clock, in seconds from its first process on; it powers itself off then.
    pub guest_s: u32,
}

impl Default for Limits {
    /// Ten minutes in the guest, half an hour outside.
    fn default() -> Limits {
        Limits { wall: Duration::from_secs(1800), guest_s: 600 }
    }
}

/// How a machine ended that did what it was started for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Exit status of the order: that of a command, 0, or [`STATUS_LIMIT`].
    pub status: u8,
    /// Whether the guest ended itself because its time was up.
    pub reached_limit: bool,
    /// What the kernel said about itself; `None` after a restore, when it was said before.
    pub report: Option<GuestReport>,
    /// What irqlab in the guest said, line by line.
    pub said: Vec<String>,
    /// From the start of QEMU to the end.
    pub wall: Duration,
}

/// Starts a machine with an order: `shell`, `probe`, `idle`, `idle:SECONDS`, `run:COMMAND`,
/// `irqlab:ARGUMENTS`, `ready` or `poweroff`.
///
/// # Errors
/// When QEMU does not start, or the order can't be told to the kernel.
pub fn start(qemu: &Qemu, machine: &Machine, order: &str, limits: Limits) -> Result<Vm> {
    start_with(qemu, machine, order, limits, More::default())
}

/// [`start`], with what watches the machine.
///
/// # Errors
/// As [`start`].
pub fn start_with(
    qemu: &Qemu,
    machine: &Machine,
    order: &str,
    limits: Limits,
    more: More<'_>,
) -> Result<Vm> {
    // What the kernel's command line cannot hold waits in the firmware when the guest is ready.
    let (on_line, in_firmware) =
        if is_for_firmware(order) { ("ready", order) } else { (order, NO_ORDER) };
    let command_line = machine.command_line(on_line, limits.guest_s)?;
    Vm::start(qemu, machine, &Start { command_line, order: in_firmware.to_owned(), more })
}

fn is_for_firmware(order: &str) -> bool {
    order.starts_with("irqlab:") || order.chars().any(|sign| sign == '"' || sign.is_control())
}

/// Follows a machine to its end; what its console prints goes to `console`.
///
/// # Errors
/// [`SimError::Machine`] with the last lines of the console when the kernel panics, resets or does
/// not end in time, when its first process never speaks, or QEMU ends by itself.
pub fn follow(vm: &mut Vm, limits: Limits, console: &mut dyn FnMut(&[u8])) -> Result<Ending> {
    // Nobody asks it to stop.
    let ending = follow_unless(vm, limits, console, &|| false)?;
    ending.ok_or_else(|| vm.failure("the machine was stopped"))
}

/// [`follow`], unless `stop` says that the machine is not wanted any more: it is killed then, and
/// nothing comes of it.
///
/// # Errors
/// As [`follow`].
pub fn follow_unless(
    vm: &mut Vm,
    limits: Limits,
    console: &mut dyn FnMut(&[u8]),
    stop: &dyn Fn() -> bool,
) -> Result<Option<Ending>> {
    let nobody = |_: &mut Vm, _| Err(SimError::Invalid("nobody saves checkpoints here".to_owned()));
    follow_saving(vm, limits, console, stop, &mut { nobody })
}

/// [`follow_unless`]; where the machine is held, `save` saves it and lets it go on. The time that
/// takes is not the machine's.
///
/// # Errors
/// As [`follow`], and those of `save`.
pub fn follow_saving(
    vm: &mut Vm,
    limits: Limits,
    console: &mut dyn FnMut(&[u8]),
    stop: &dyn Fn() -> bool,
    save: &mut dyn FnMut(&mut Vm, Held) -> Result<()>,
) -> Result<Option<Ending>> {
    let start = Instant::now();
    let mut deadline = start + limits.wall;
    let mut report = None;
    let mut status = None;
    let mut said = Vec::new();
    let mut reached_limit = false;
    let ended = loop {
        let event = vm.next(deadline.min(Instant::now() + STOP_POLL))?;
        // Ctrl-C reaches QEMU, too: its end is then no failure.
        if stop() {
            vm.kill();
            return Ok(None);
        }
        match event {
            Some(VmEvent::Console(bytes)) => console(&bytes),
            Some(VmEvent::Guest(GuestEvent(message))) => match message {
                Message::Facts(facts) => report = Some(facts),
                Message::Exit { status: said } => {
                    status = Some(said);
                    deadline = deadline.min(Instant::now() + POWER_OFF_TIMEOUT);
                }
                Message::Limit => reached_limit = true,
                Message::Said { line } if said.len() < SAID_LINES_MAX => said.push(line),
                _ => {}
            },
            Some(VmEvent::Held(held)) => {
                let began = Instant::now();
                save(vm, held)?;
                deadline += began.elapsed();
            }
            Some(VmEvent::Ended(ended)) => break Some(ended),
            None if Instant::now() < deadline => {}
            None => break None,
        }
    };
    let wall = start.elapsed();
    let has_spoken = report.is_some();
    let ending = |status| Ok(Some(Ending { status, reached_limit, report, said, wall }));
    match (status, ended) {
        (Some(status), Some(_)) => ending(status),
        // It said all that it had to say: a kernel without a way to power off.
        (Some(status), None) => vm.quit().and_then(|()| ending(status)),
        (None, Some(ended)) => Err(ended_early(vm, ended, has_spoken)),
        (None, None) => {
            vm.kill();
            let reached = if has_spoken { "" } else { "; its first process never spoke" };
            let seconds = limits.wall.as_secs_f64();
            Err(vm.failure(&format!("the machine was killed after {seconds:.0} s{reached}")))
        }
    }
}

/// Why QEMU ended before the guest said how.
fn ended_early(vm: &Vm, ended: ExitStatus, has_spoken: bool) -> SimError {
    if vm.reached_limit() {
        let hint = if has_spoken { "" } else { "; its first process has said nothing" };
        return vm.failure(&format!("the guest's time is up (--guest-limit){hint}"));
    }
    if !ended.success() {
        return vm.failure(&format!("QEMU {} before the guest did", ending(ended)));
    }
    // Its reason, before which the last lines may show but a trace of calls.
    if let Some(reason) = vm.console_said("Kernel panic - ") {
        return vm.failure(&format!("the guest's kernel panicked: {}", reason.trim()));
    }
    let how = match vm.shutdown_reason() {
        Some("guest-reset") => "reset the machine",
        Some("guest-shutdown") => "powered the machine off",
        _ => "ended",
    };
    let when = if has_spoken { "in the middle of its order" } else { "before its first process" };
    vm.failure(&format!("the guest {how} {when}"))
}

/// Boots, follows, and gives back how it ended.
///
/// # Errors
/// As [`start`] and [`follow`].
pub fn run(
    qemu: &Qemu,
    machine: &Machine,
    order: &str,
    limits: Limits,
    console: &mut dyn FnMut(&[u8]),
) -> Result<Ending> {
    let mut vm = start(qemu, machine, order, limits)?;
    follow(&mut vm, limits, console)
}
