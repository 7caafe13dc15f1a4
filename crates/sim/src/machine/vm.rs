//! A running machine: QEMU as a child process, its console, its monitor, and the guest's messages.
//!
//! QEMU's first serial port is the console, its second carries the guest's messages. The third and the fourth carry the
//! standard output and the standard error of a command. All are pipes, and the monitor is a socket pair, all made before
//! QEMU starts: they have no path, and end with the process. The monitor is silent while the guest runs, except for the
//! reply to a command. [`crate::boot`] and [`crate::checkpoint`] drive a machine by [`Vm::next_event`] and
//! [`Vm::command`], both on the thread that started QEMU.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use super::agent::{Message, Messages};
use super::channel::{self, Serial};
use super::devices::{self, DiskFile, hand_over};
use super::found::RequestedDevices;
use super::held::{Held, HeldLines};
use super::monitor::{Qmp, Reply};
use super::{Machine, doubled_commas};
use crate::guest::loaded::LoadedModule;
use crate::process::{dies_with_parent, with_reached_limit};
use crate::qemu::Qemu;
use crate::text::Tail;
use crate::{Result, SimError};

const CONSOLE_TAIL_BYTES: usize = 64 * 1024;
const QEMU_TAIL_BYTES: usize = 16 * 1024;
const READ_BYTES: usize = 64 * 1024;
/// Maximum time that QEMU may take to quit.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream of text from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The console: what the firmware, the kernel and the first process print.
    Console,
    /// The standard output of the command of the request `run`, byte for byte.
    Stdout,
    /// The standard error of the command of the request `run`, byte for byte.
    Stderr,
}

/// Bytes of a stream of text from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestText<'a> {
    pub stream: Stream,
    pub bytes: &'a [u8],
}

/// An event of a running machine.
#[derive(Debug)]
pub enum VmEvent {
    /// A stream of text has these bytes.
    Text(Stream, Vec<u8>),
    /// The guest's first process sent a message.
    Guest(GuestEvent),
    /// The plugin holds the machine for a checkpoint.
    Held(Held),
    /// QEMU ended, and all its output was read.
    Ended(ExitStatus),
}

/// A message of the guest's first process. Only this crate reads its content.
#[derive(Debug)]
pub struct GuestEvent(pub(crate) Message);

/// A running machine. Dropping it kills QEMU.
///
/// The kernel also kills QEMU when the *thread* that started it ends.
#[derive(Debug)]
pub struct Vm {
    child: Child,
    qemu_stderr: ChildStderr,
    /// Becomes readable when QEMU ends.
    pidfd: OwnedFd,
    disks: Vec<DiskFile>,
    /// The disks and cards that the guest must find.
    requested: RequestedDevices,
    /// The modules that the guest has loaded.
    modules: Vec<LoadedModule>,
    console: Serial,
    /// The serial port of the guest's first process.
    agent: Serial,
    /// The serial ports of a command's standard output and standard error.
    command_output: [(Stream, File); 2],
    monitor: UnixStream,
    qmp: Qmp,
    /// Replies of the monitor that no command has taken yet.
    replies: VecDeque<Reply>,
    messages: Messages,
    /// Events that [`Vm::next_event`] has not returned yet.
    events: VecDeque<VmEvent>,
    console_tail: Tail,
    qemu_tail: Tail,
    held: HeldLines,
    /// The kernel's command line, and the request in the firmware.
    started: (String, String),
    is_restored: bool,
    shutdown_reason: Option<String>,
    /// QEMU's exit status, after all its output was read.
    ended: Option<ExitStatus>,
}

/// Settings for the start of a machine, in addition to its hardware.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartConfig<'a> {
    /// The kernel's command line.
    pub(crate) command_line: String,
    /// The request in the firmware.
    pub(crate) request: String,
    /// The state that it starts from, instead of its firmware.
    pub(crate) state: Option<&'a Path>,
    /// The plugin that observes the machine, with its files.
    pub(crate) instrumentation: Instrumentation<'a>,
}

/// Arguments and files for QEMU that are not part of the machine: mainly the plugin that observes it.
#[derive(Clone, Debug, Default)]
pub struct Instrumentation<'a> {
    pub(crate) arguments: Vec<String>,
    /// Files that it inherits under their numbers.
    pub(crate) files: Vec<BorrowedFd<'a>>,
    /// Whether guest time follows a model, which makes a boot take longer in guest time.
    pub(crate) is_timed: bool,
}

impl Instrumentation<'_> {
    /// Loads another plugin: its file and options, as `-plugin` takes them.
    pub fn load(&mut self, plugin: &str) {
        self.arguments.extend(["-plugin".to_owned(), plugin.to_owned()]);
    }

    /// Adds an option for the plugin, if it is loaded.
    pub(crate) fn add_option(&mut self, name: &str, value: &str) {
        let position = self.arguments.iter().position(|argument| argument == "-plugin");
        if let Some(plugin) = position.and_then(|position| self.arguments.get_mut(position + 1)) {
            *plugin += &format!(",{name}={}", doubled_commas(value));
        }
    }
}

impl Vm {
    /// Starts QEMU. Its ends of the serial ports and of the monitor are inherited under the numbers that its arguments name;
    /// they are closed here once QEMU has them.
    ///
    /// Fails when the machine's settings are invalid, or QEMU cannot be started.
    pub(crate) fn start(qemu: &Qemu, machine: &Machine, config: &StartConfig<'_>) -> Result<Vm> {
        let mut command = machine.command(qemu, &config.command_line, &config.request)?;
        let mut qemu_ends = Vec::new();
        let console = channel::serial(&mut command, &mut qemu_ends, "console")?;
        let agent = channel::serial(&mut command, &mut qemu_ends, "agent")?;
        let stdout = channel::output(&mut command, &mut qemu_ends, "stdout")?;
        let stderr = channel::output(&mut command, &mut qemu_ends, "stderr")?;
        let monitor = channel::socket(&mut command, &mut qemu_ends, "monitor")?;
        let saved_directory = config.state.and_then(Path::parent);
        let disks = hand_over(&machine.disks, saved_directory, &mut command)?;
        for id in machine.serial_ports() {
            command.args(["-serial", &format!("chardev:{id}")]);
        }
        command
            .args(["-mon", "chardev=monitor,mode=control"])
            .args(&config.instrumentation.arguments);
        if let Some(state) = config.state {
            command.arg("-incoming").arg(format!("file:{}", state.display()));
        }
        dies_with_parent(&mut command);
        // Ctrl-C in a terminal must reach irqlab only, which ends the machine in order.
        command.process_group(0);
        let plugin_files = config.instrumentation.files.iter().map(AsRawFd::as_raw_fd);
        let disk_files = disks.iter().map(AsRawFd::as_raw_fd);
        let descriptors =
            qemu_ends.iter().map(AsRawFd::as_raw_fd).chain(disk_files).chain(plugin_files);
        inherit(&mut command, descriptors.collect());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| SimError::Program {
            program: qemu.program().display().to_string(),
            detail: with_reached_limit(error).to_string(),
        })?;
        drop(qemu_ends);
        let pidfd = open_pidfd(&child);
        let (Ok(pidfd), Some(qemu_stderr)) = (pidfd, child.stderr.take()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(SimError::Invalid("this kernel has no pidfd_open(2)".to_owned()));
        };
        let mut qmp = Qmp::new();
        // Opens the session; without it QEMU reports no events.
        let (_, line) = qmp.command("qmp_capabilities", &Value::Null);
        let _ = (&monitor).write_all(&line);
        Ok(Vm {
            child,
            qemu_stderr,
            pidfd,
            disks,
            requested: RequestedDevices::from_machine(machine),
            modules: Vec::new(),
            console,
            agent,
            command_output: [(Stream::Stdout, stdout), (Stream::Stderr, stderr)],
            monitor,
            qmp,
            replies: VecDeque::new(),
            messages: Messages::new(),
            events: VecDeque::new(),
            console_tail: Tail::new(CONSOLE_TAIL_BYTES),
            qemu_tail: Tail::new(QEMU_TAIL_BYTES),
            held: HeldLines::new(),
            started: (config.command_line.clone(), config.request.clone()),
            is_restored: config.state.is_some(),
            shutdown_reason: None,
            ended: None,
        })
    }

    /// Returns the kernel's command line and the request in the firmware.
    pub(crate) fn started_with(&self) -> (&str, &str) {
        (&self.started.0, &self.started.1)
    }

    /// Saves what the guest has written to its disks, in a directory. The machine is stopped.
    pub(crate) fn save_disks(&self, staging: &Path) -> Result<()> {
        devices::save(&self.disks, staging)
    }

    /// Returns whether the machine started from a saved state. Its guest was up then.
    pub(crate) fn is_restored(&self) -> bool {
        self.is_restored
    }

    /// Returns the modules that the guest has loaded.
    pub(crate) fn modules(&self) -> &[LoadedModule] {
        &self.modules
    }

    /// Sets the modules of a restored machine, which reported them before it was saved.
    pub(crate) fn set_modules(&mut self, modules: Vec<LoadedModule>) {
        self.modules = modules;
    }

    /// Returns the process id of QEMU.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the input of the console.
    ///
    /// Fails when no descriptor is left.
    pub fn console_input(&self) -> Result<File> {
        self.console.to_guest.try_clone().map_err(SimError::system("duplicating the console"))
    }

    /// Waits for the next event; `None` if `deadline` comes first, and after [`VmEvent::Ended`].
    ///
    /// Fails if the monitor does not speak its protocol, or a system call fails. Fails with [`SimError::Missing`]
    /// if the guest does not find a disk or a card of the machine.
    pub fn next_event(&mut self, deadline: Instant) -> Result<Option<VmEvent>> {
        loop {
            match self.events.pop_front() {
                Some(VmEvent::Guest(GuestEvent(Message::Modules { modules }))) => {
                    self.modules = modules;
                    continue;
                }
                Some(VmEvent::Guest(GuestEvent(Message::Facts(mut facts)))) => {
                    self.requested.check(&facts.devices, &facts.modules_failed)?;
                    facts.modules.clone_from(&self.modules);
                    return Ok(Some(VmEvent::Guest(GuestEvent(Message::Facts(facts)))));
                }
                Some(event) => return Ok(Some(event)),
                None => {}
            }
            if self.ended.is_some() || !self.pump(deadline)? {
                return Ok(None);
            }
        }
    }

    /// Sends the monitor a command and waits for its reply.
    pub(crate) fn command(
        &mut self,
        name: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Value> {
        let deadline = Instant::now() + timeout;
        let (number, line) = self.qmp.command(name, arguments);
        // The error of a closed monitor is ignored: the loop below notices that QEMU has ended.
        let _ = (&self.monitor).write_all(&line);
        loop {
            while let Some(reply) = self.replies.pop_front() {
                match reply {
                    Reply::Return(id, value) if id == number => return Ok(value),
                    Reply::Error(id, reason) if id == number => {
                        return Err(SimError::Monitor(format!("{name}: {reason}")));
                    }
                    _ => {}
                }
            }
            if self.ended.is_some() {
                return Err(self.failure(&format!("QEMU ended during the command {name}")));
            }
            if !self.pump(deadline)? {
                return Err(SimError::Monitor(format!("no reply to {name} in time")));
            }
        }
    }

    /// Sends the guest's first process an empty line: the answer that it waits for, or the request to stop.
    pub(crate) fn answer_guest(&mut self) -> Result<()> {
        (&self.agent.to_guest).write_all(b"\n").map_err(SimError::system("answering the guest"))
    }

    /// Ends QEMU: by a command, and by a signal if it does not quit in time.
    pub(crate) fn quit(&mut self) -> Result<()> {
        if self.ended.is_none() && self.command("quit", &Value::Null, QUIT_TIMEOUT).is_ok() {
            let deadline = Instant::now() + QUIT_TIMEOUT;
            while self.ended.is_none() && self.pump(deadline)? {}
        }
        self.kill();
        Ok(())
    }

    /// Kills QEMU and waits until it has ended.
    pub fn kill(&mut self) {
        // Both calls fail only if QEMU has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns why the machine shut down, as QEMU names it: `guest-shutdown`, `guest-reset`.
    pub(crate) fn shutdown_reason(&self) -> Option<&str> {
        self.shutdown_reason.as_deref()
    }

    /// Returns the rest of the first kept console line that contains `text`, after `text`.
    pub(crate) fn console_line_after(&self, text: &str) -> Option<String> {
        self.console_tail.after(text)
    }

    /// Returns whether the plugin ended the guest because it reached its time limit.
    pub(crate) fn reached_limit(&self) -> bool {
        self.qemu_tail.after(simrecord::messages::LIMIT_REACHED).is_some()
    }

    /// Returns an error with the last lines of the console and of QEMU, without QEMU's usual warnings.
    pub(crate) fn failure(&self, problem: &str) -> SimError {
        let (console, qemu) = self.last_lines();
        SimError::Machine { what: problem.to_owned(), console, qemu }
    }

    /// Like [`Vm::failure`], for a machine that reached a time limit.
    pub(crate) fn time_limit(&self, problem: &str) -> SimError {
        let (console, qemu) = self.last_lines();
        SimError::TimeLimit { what: problem.to_owned(), console, qemu }
    }

    /// Returns the last lines of the console and of QEMU.
    fn last_lines(&self) -> (String, String) {
        let qemu = self.qemu_tail.lines();
        let lines: Vec<&str> = qemu.lines().filter(|line| !line.contains(": warning: ")).collect();
        (self.console_tail.lines(), lines.join("\n"))
    }

    /// Waits for input and reads it; `false` if `deadline` came first.
    fn pump(&mut self, deadline: Instant) -> Result<bool> {
        let is_ended = self.wait(deadline)?;
        if is_ended {
            let status = self.child.wait().map_err(SimError::system("waiting for QEMU"))?;
            // QEMU's last output is still in the pipes and the socket.
            while self.read_all()? {}
            self.ended = Some(status);
            self.events.push_back(VmEvent::Ended(status));
            return Ok(true);
        }
        if self.read_all()? { Ok(true) } else { Ok(Instant::now() < deadline) }
    }

    /// Waits until there is input or `deadline` comes. Returns `true` if the process ended.
    fn wait(&mut self, deadline: Instant) -> Result<bool> {
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: remaining.as_secs() as i64,
                tv_nsec: remaining.subsec_nanos().into(),
            };
            let input = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let [(_, stdout), (_, stderr)] = &self.command_output;
            let mut fds = [
                input(self.pidfd.as_fd()),
                input(self.console.from_guest.as_fd()),
                input(self.agent.from_guest.as_fd()),
                input(stdout.as_fd()),
                input(stderr.as_fd()),
                input(self.monitor.as_fd()),
                input(self.qemu_stderr.as_fd()),
            ];
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) => return Ok(fds[0].revents().contains(PollFlags::IN)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(SimError::system("poll")(error.into())),
            }
        }
    }

    /// Reads the available input; returns whether there was any.
    fn read_all(&mut self) -> Result<bool> {
        let console = read_ready(&self.console.from_guest)?;
        let agent = read_ready(&self.agent.from_guest)?;
        let monitor = read_ready(&self.monitor)?;
        let stderr = read_ready(&self.qemu_stderr)?;
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
        self.events.extend(messages.into_iter().map(|message| VmEvent::Guest(GuestEvent(message))));
        let mut has_input =
            [&console, &agent, &monitor, &stderr].iter().any(|bytes| !bytes.is_empty());
        if !console.is_empty() {
            self.console_tail.push(&console);
            self.events.push_back(VmEvent::Text(Stream::Console, console));
        }
        for (stream, from_guest) in &self.command_output {
            let bytes = read_ready(from_guest)?;
            if !bytes.is_empty() {
                has_input = true;
                self.events.push_back(VmEvent::Text(*stream, bytes));
            }
        }
        Ok(has_input)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
        }
    }
}

/// Describes how a process ended.
pub(crate) fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Lets the child inherit the descriptors with these numbers, under the same numbers.
fn inherit(command: &mut Command, numbers: Vec<i32>) {
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

/// A descriptor that becomes readable when the process ends.
fn open_pidfd(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

/// Reads without waiting; empty if there is no input, or the other end is closed.
fn read_ready(stream: &impl AsFd) -> Result<Vec<u8>> {
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut bytes = Vec::new();
    if poll(&mut fds, Some(&no_wait)).is_ok_and(|ready_count| ready_count > 0) {
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
