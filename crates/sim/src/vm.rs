//! A running machine: QEMU as a child, its console, its monitor, and the guest's messages.
//!
//! Pipes, made before QEMU starts, are its first and second serial port, and a socket pair is its
//! monitor: there is no path to guess or to clean up, and all end with the process. The monitor is
//! silent while the guest runs, except when a command is given.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::agent::{Message, Messages};
use crate::channel::{self, Serial};
use crate::devices::hand_over;
use crate::held::{Held, HeldLines};
use crate::machine::Machine;
use crate::process::dies_with_us;
use crate::qemu::Qemu;
use crate::qmp::{Qmp, Reply};
use crate::tail::Tail;
use crate::{Result, SimError};

const CONSOLE_TAIL_BYTES: usize = 64 * 1024;
const QEMU_TAIL_BYTES: usize = 16 * 1024;
const READ_BYTES: usize = 64 * 1024;
/// Longest wait for the end of a process that was told to end.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// What happened.
#[derive(Debug)]
pub enum VmEvent {
    /// The console printed this.
    Console(Vec<u8>),
    /// The guest's first process said something.
    Guest(GuestEvent),
    /// The plugin holds the machine, to be saved.
    Held(Held),
    /// QEMU ended, and everything that it wrote was read.
    Ended(ExitStatus),
}

/// What the guest's first process said; its parts are this crate's own.
#[derive(Debug)]
pub struct GuestEvent(pub(crate) Message);

/// A running machine. Dropping it kills QEMU.
///
/// The kernel also kills QEMU when the *thread* that started it ends.
#[derive(Debug)]
pub struct Vm {
    child: Child,
    stderr: ChildStderr,
    pidfd: OwnedFd,
    console: Serial,
    agent: Serial,
    monitor: UnixStream,
    qmp: Qmp,
    replies: VecDeque<Reply>,
    messages: Messages,
    events: VecDeque<VmEvent>,
    console_tail: Tail,
    qemu_tail: Tail,
    held: HeldLines,
    started: (String, String),
    shutdown_reason: Option<String>,
    ended: Option<ExitStatus>,
}

/// What a machine is started with, beside what it is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start<'a> {
    /// The kernel's command line.
    pub(crate) command_line: String,
    /// The order in the firmware.
    pub(crate) order: String,
    /// Further arguments, such as `-incoming`.
    pub(crate) more: More<'a>,
}

/// What QEMU gets that neither is the machine nor changes it: what watches it.
#[derive(Clone, Debug, Default)]
pub struct More<'a> {
    /// Arguments.
    pub(crate) arguments: Vec<String>,
    /// Files that it inherits under their numbers.
    pub(crate) files: Vec<BorrowedFd<'a>>,
    /// Whether guest time follows a model, by which a boot takes longer.
    pub(crate) is_timed: bool,
}

impl More<'_> {
    /// One more option for the plugin, if there is one.
    pub(crate) fn add_option(&mut self, name: &str, value: &str) {
        let at = self.arguments.iter().position(|argument| argument == "-plugin");
        if let Some(plugin) = at.and_then(|at| self.arguments.get_mut(at + 1)) {
            // In QEMU's options a comma is written twice.
            *plugin += &format!(",{name}={}", value.replace(',', ",,"));
        }
    }
}

impl Vm {
    /// Starts QEMU.
    pub(crate) fn start(qemu: &Qemu, machine: &Machine, start: &Start<'_>) -> Result<Vm> {
        let mut command = machine.command(qemu, &start.command_line, &start.order)?;
        let mut inherited = Vec::new();
        let console = channel::serial(&mut command, &mut inherited, "console")?;
        let agent = channel::serial(&mut command, &mut inherited, "agent")?;
        let monitor = channel::socket(&mut command, &mut inherited, "monitor")?;
        inherited.extend(hand_over(&machine.disks, &mut command)?);
        command.args(["-serial", "chardev:console", "-serial", "chardev:agent"]);
        command.args(["-mon", "chardev=monitor,mode=control"]).args(&start.more.arguments);
        dies_with_us(&mut command);
        let others = start.more.files.iter().map(AsRawFd::as_raw_fd);
        pass_on(&mut command, inherited.iter().map(AsRawFd::as_raw_fd).chain(others).collect());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| SimError::Program {
            program: qemu.program().display().to_string(),
            detail: error.to_string(),
        })?;
        drop(inherited);
        let pidfd = pidfd(&child);
        let (Ok(pidfd), Some(stderr)) = (pidfd, child.stderr.take()) else {
            // It is ours alone and has done nothing yet.
            let _ = child.kill();
            let _ = child.wait();
            return Err(SimError::Invalid("this kernel has no pidfd_open(2)".to_owned()));
        };
        let mut qmp = Qmp::default();
        // Opens the session; without it QEMU reports no events.
        let (_, line) = qmp.command("qmp_capabilities", &Value::Null);
        let _ = (&monitor).write_all(&line);
        Ok(Vm {
            child,
            stderr,
            pidfd,
            console,
            agent,
            monitor,
            qmp,
            replies: VecDeque::new(),
            messages: Messages::default(),
            events: VecDeque::new(),
            console_tail: Tail::new(CONSOLE_TAIL_BYTES),
            qemu_tail: Tail::new(QEMU_TAIL_BYTES),
            held: HeldLines::default(),
            started: (start.command_line.clone(), start.order.clone()),
            shutdown_reason: None,
            ended: None,
        })
    }

    /// The kernel's command line, and the order in the firmware.
    pub(crate) fn started_with(&self) -> (&str, &str) {
        (&self.started.0, &self.started.1)
    }

    /// Process of QEMU.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The console's other end, to type into it.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn console_input(&self) -> Result<File> {
        self.console.to_guest.try_clone().map_err(SimError::system("duplicating the console"))
    }

    /// The next event; `None` when `deadline` comes first. After [`VmEvent::Ended`] there is none.
    ///
    /// # Errors
    /// When the monitor does not speak its protocol, or a system call fails.
    pub fn next(&mut self, deadline: Instant) -> Result<Option<VmEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.ended.is_some() || !self.pump(deadline)? {
                return Ok(None);
            }
        }
    }

    /// Gives the monitor a command and waits for its answer.
    pub(crate) fn command(
        &mut self,
        name: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Value> {
        let deadline = Instant::now() + timeout;
        let (wanted, line) = self.qmp.command(name, arguments);
        // A monitor that is gone shows itself as the end of the process.
        let _ = (&self.monitor).write_all(&line);
        loop {
            while let Some(reply) = self.replies.pop_front() {
                match reply {
                    Reply::Return(id, value) if id == wanted => return Ok(value),
                    Reply::Error(id, words) if id == wanted => {
                        return Err(SimError::Monitor(format!("{name}: {words}")));
                    }
                    _ => {}
                }
            }
            if self.ended.is_some() {
                return Err(self.failure(&format!("QEMU ended at the command {name}")));
            }
            if !self.pump(deadline)? {
                return Err(SimError::Monitor(format!("no answer to {name} in time")));
            }
        }
    }

    /// Answers the guest's first process with an empty line.
    pub(crate) fn answer_guest(&mut self) -> Result<()> {
        (&self.agent.to_guest).write_all(b"\n").map_err(SimError::system("answering the guest"))
    }

    /// Ends QEMU, first by asking.
    pub(crate) fn quit(&mut self) -> Result<()> {
        if self.ended.is_none() && self.command("quit", &Value::Null, QUIT_TIMEOUT).is_ok() {
            let deadline = Instant::now() + QUIT_TIMEOUT;
            while self.ended.is_none() && self.pump(deadline)? {}
        }
        self.kill();
        Ok(())
    }

    /// Kills QEMU and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Why the machine went down, as QEMU names it: `guest-shutdown`, `guest-reset`.
    pub(crate) fn shutdown_reason(&self) -> Option<&str> {
        self.shutdown_reason.as_deref()
    }

    /// What the console said lately behind these words, on the same line.
    pub(crate) fn console_said(&self, words: &str) -> Option<String> {
        self.console_tail.behind(words)
    }

    /// Whether the plugin ended the guest because its time was up.
    pub(crate) fn reached_limit(&self) -> bool {
        self.qemu_tail.behind(plugin::LIMIT_REACHED).is_some()
    }

    /// An error with the last lines of the console and of QEMU, without what it says at each start.
    pub(crate) fn failure(&self, what: &str) -> SimError {
        let qemu = self.qemu_tail.lines();
        let lines: Vec<&str> = qemu.lines().filter(|line| !line.contains(": warning: ")).collect();
        let console = self.console_tail.lines();
        SimError::Machine { what: what.to_owned(), console, qemu: lines.join("\n") }
    }

    /// Waits for something and takes it in; `false` when `deadline` came first.
    fn pump(&mut self, deadline: Instant) -> Result<bool> {
        let is_ended = self.wait(deadline)?;
        if is_ended {
            let status = self.child.wait().map_err(SimError::system("waiting for QEMU"))?;
            // What it wrote before it ended is still in the sockets.
            while self.read_all()? {}
            self.ended = Some(status);
            self.events.push_back(VmEvent::Ended(status));
            return Ok(true);
        }
        if self.read_all()? { Ok(true) } else { Ok(Instant::now() < deadline) }
    }

    /// Waits until there is something to read; `true` when the process ended.
    fn wait(&mut self, deadline: Instant) -> Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // A closed stream is readable forever: it is left out, the process ends soon.
            let fd = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let mut fds = [
                fd(self.pidfd.as_fd()),
                fd(self.console.from_guest.as_fd()),
                fd(self.agent.from_guest.as_fd()),
                fd(self.monitor.as_fd()),
                fd(self.stderr.as_fd()),
            ];
            match poll(&mut fds, Some(&left)) {
                Ok(_) => return Ok(fds[0].revents().contains(PollFlags::IN)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(SimError::system("poll")(error.into())),
            }
        }
    }

    /// Reads what is there; whether there was anything.
    fn read_all(&mut self) -> Result<bool> {
        let console = read_ready(&self.console.from_guest)?;
        let agent = read_ready(&self.agent.from_guest)?;
        let monitor = read_ready(&self.monitor)?;
        let stderr = read_ready(&self.stderr)?;
        self.qemu_tail.push(&stderr);
        self.events.extend(self.held.push(&stderr).into_iter().map(VmEvent::Held));
        for reply in self.qmp.push(&monitor)? {
            match reply {
                Reply::Event(name, data) if name == "SHUTDOWN" => {
                    self.shutdown_reason = data["reason"].as_str().map(str::to_owned);
                }
                Reply::Event(..) | Reply::Greeting => {}
                reply => self.replies.push_back(reply),
            }
        }
        let messages = self.messages.push(&agent);
        self.events.extend(messages.into_iter().map(|it| VmEvent::Guest(GuestEvent(it))));
        let any = [&console, &agent, &monitor, &stderr].iter().any(|bytes| !bytes.is_empty());
        if !console.is_empty() {
            self.console_tail.push(&console);
            self.events.push_back(VmEvent::Console(console));
        }
        Ok(any)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
        }
    }
}

/// How a process ended, in words.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Lets the child inherit these descriptors under their numbers.
fn pass_on(command: &mut Command, numbers: Vec<i32>) {
    // SAFETY: between fork and exec only fcntl(2) is called; the vector was made before.
    unsafe {
        command.pre_exec(move || {
            for &number in &numbers {
                if libc::fcntl(number, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

/// What can be read without waiting; empty when nothing can, or the other end is closed.
fn read_ready(stream: &impl AsFd) -> Result<Vec<u8>> {
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut bytes = Vec::new();
    if poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0) {
        let mut buffer = vec![0; READ_BYTES];
        match rustix::io::read(stream, &mut buffer).map_err(io::Error::from) {
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(SimError::system("reading from QEMU")(error)),
        }
    }
    Ok(bytes)
}
