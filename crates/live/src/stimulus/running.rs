//! The measuring process's side of a stimulus: starts the stimulus process (`helper.rs`), waits until it runs, and
//! stops it. While the stimulus runs, nothing here runs.

use std::fmt;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Map, Value};

use super::HELPER_VERB;
use super::error::StimulusError;
use super::error::WorkerError;
use super::facts::{Facts, facts};
use super::wire::{HelperRequest, Job, Message, Report};
use crate::program_rights::give_to_helper;
use crate::spawn::with_reached_limit;

/// Longest wait until a stimulus runs. `disk high` takes longest, because it writes its scratch file.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Longest wait until a stimulus stops and reports.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Length limit of a line from a stimulus process.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// The program that is started as a stimulus process. It calls [`helper_main`](super::helper_main)
/// if its first argument is [`HELPER_VERB`].
#[derive(Debug, Clone)]
pub struct Helper {
    program: PathBuf,
}

impl Helper {
    /// The running program itself (`/proc/self/exe`), which stays valid if its file is replaced.
    ///
    /// Fails if neither `/proc/self/exe` nor the program's path can be found.
    pub fn current_exe() -> io::Result<Self> {
        let link = Path::new("/proc/self/exe");
        let program = if link.exists() { link.to_owned() } else { std::env::current_exe()? };
        Ok(Helper { program })
    }

    /// Another program that handles [`HELPER_VERB`]. Tests use a small example program.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Helper { program: program.into() }
    }
}

/// A running stimulus. Dropping this kills the stimulus process; [`Running::stop`] ends it
/// and returns its report.
#[derive(Debug)]
pub struct Running {
    name: String,
    process: Option<Process>,
    facts: Facts,
}

#[derive(Debug)]
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines,
}

impl Running {
    /// The stimulus `none`, which has no process.
    pub(super) fn nothing(name: String) -> Self {
        Running { name, process: None, facts: facts! { "stimulus": "none" } }
    }

    /// Starts the process and waits for its first line.
    pub(super) fn spawn(name: String, job: Job, helper: &Helper) -> Result<Self, StimulusError> {
        let request = HelperRequest { parent_pid: std::process::id(), job };
        let fail =
            |source| StimulusError::Spawn { program: helper.program.display().to_string(), source };
        let json = serde_json::to_string(&request).map_err(|e| fail(e.into()))?;
        let mut command = Command::new(&helper.program);
        command.arg(HELPER_VERB).arg(json).stdin(Stdio::piped()).stdout(Stdio::piped());
        give_to_helper(&mut command);
        let mut child = command.spawn().map_err(|error| fail(with_reached_limit(error)))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(fail(io::Error::other("no pipe to the child")));
        };
        let lines = Lines { stdout, buffer: Vec::new() };
        let process = Process { child, stdin: Some(stdin), lines };
        // From now on, dropping `running` ends the child.
        let mut running = Running { name, process: Some(process), facts: Map::new() };
        match running.next_message(START_TIMEOUT)? {
            Message::Ready { facts } => running.facts = facts,
            Message::Error(error) => return Err(running.stimulus_error(error)),
            Message::Report(_) => return Err(running.failed("reported before it was ready")),
        }
        Ok(running)
    }

    /// Stimulus and rate, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The settings in effect: file and request size, interval, interfaces and their offloads,
    /// region, method, threads and their CPUs.
    #[must_use]
    pub fn facts(&self) -> &Map<String, Value> {
        &self.facts
    }

    /// PID of the stimulus process; `None` for [`Stimulus::None`](super::Stimulus::None).
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    /// Checks, without waiting, that the stimulus still runs.
    ///
    /// If it has ended, fails with the message of the stimulus process ([`StimulusError::Failed`]), or with its exit
    /// status ([`StimulusError::Died`]).
    pub fn check(&mut self) -> Result<(), StimulusError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        match process.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) => match self.next_message(STOP_TIMEOUT)? {
                Message::Error(error) => Err(self.stimulus_error(error)),
                _ => Err(self.failed("ended without a stop")),
            },
            Err(source) => Err(self.channel(source)),
        }
    }

    /// Stops the stimulus, waits until its process has ended, and returns its statistics.
    ///
    /// Has the errors of [`Running::check`] if the process had ended before. Fails with [`StimulusError::Timeout`]
    /// if the process does not end within 30 s; then it is killed.
    pub fn stop(mut self) -> Result<Report, StimulusError> {
        let Some(process) = &mut self.process else { return Ok(Report::default()) };
        drop(process.stdin.take());
        let report = match self.next_message(STOP_TIMEOUT)? {
            Message::Report(report) => report,
            Message::Error(error) => return Err(self.stimulus_error(error)),
            Message::Ready { .. } => return Err(self.failed("was ready twice")),
        };
        // After its report the process only exits. Waiting here keeps `Process::drop` from killing it.
        if let Some(mut process) = self.process.take() {
            process.child.wait().map_err(|source| self.channel(source))?;
        }
        Ok(report)
    }

    /// Waits for the next line of the stimulus process.
    fn next_message(&mut self, timeout: Duration) -> Result<Message, StimulusError> {
        let Some(process) = &mut self.process else {
            return Err(self.failed("has no process"));
        };
        match process.lines.next_line(timeout) {
            Ok(Some(line)) => serde_json::from_slice(&line)
                .map_err(|error| self.failed(format!("sent an invalid line: {error}"))),
            Ok(None) => match process.child.wait() {
                Ok(status) => Err(StimulusError::Died { name: self.name.clone(), status }),
                Err(source) => Err(self.channel(source)),
            },
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(StimulusError::Timeout { name: self.name.clone(), timeout })
            }
            Err(source) => Err(self.channel(source)),
        }
    }

    fn stimulus_error(&self, error: WorkerError) -> StimulusError {
        match error {
            WorkerError::Unavailable { reason, remedy } => {
                StimulusError::Unavailable { reason, remedy }
            }
            WorkerError::Failed { message } => self.failed(message),
        }
    }

    fn failed(&self, message: impl fmt::Display) -> StimulusError {
        StimulusError::Failed { name: self.name.clone(), message: message.to_string() }
    }

    fn channel(&self, source: io::Error) -> StimulusError {
        StimulusError::Channel { name: self.name.clone(), source }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        // Both calls fail only if the child has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines from a pipe, with a deadline and a length limit.
#[derive(Debug)]
struct Lines {
    stdout: ChildStdout,
    buffer: Vec<u8>,
}

impl Lines {
    /// Waits for the next line, and returns it without its line feed; `None` if the pipe is closed.
    fn next_line(&mut self, timeout: Duration) -> io::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let following_lines = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, following_lines);
                line.truncate(end);
                return Ok(Some(line));
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(io::Error::other("a line is too long"));
            }
            self.wait_readable(deadline)?;
            let mut bytes = [0; 4096];
            match self.stdout.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn wait_readable(&self, deadline: Instant) -> io::Result<()> {
        loop {
            let time_left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: time_left.as_secs() as i64,
                tv_nsec: time_left.subsec_nanos().into(),
            };
            let mut fds = [PollFd::from_borrowed_fd(self.stdout.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
