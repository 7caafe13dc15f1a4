//! Waiting, asleep, for a window to end.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lab::experiment::BenchError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::window::Stop;

/// What ends a window.
#[derive(Clone, Debug)]
pub enum WindowEnd {
    /// After this long.
    Elapsed(Duration),
    /// The command ends.
    CommandEnds {
        /// The program and its arguments; not empty.
        words: Vec<String>,
        /// Its output goes to stderr, because the results go to stdout.
        to_stderr: bool,
    },
}

/// How a window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// As planned.
    Completed,
    /// The user requested a stop.
    Stopped,
}

/// A command that has been started.
pub struct Workload {
    child: Child,
    pidfd: OwnedFd,
}

impl Workload {
    /// Starts the command.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(words: &[String], to_stderr: bool) -> Result<Self, BenchError> {
        let (program, arguments) =
            words.split_first().ok_or_else(|| BenchError::Failed("no command".to_owned()))?;
        let fail =
            |error: std::io::Error| BenchError::Failed(format!("cannot run {program:?}: {error}"));
        let mut command = Command::new(program);
        command.args(arguments);
        if to_stderr {
            command
                .stdout(Stdio::from(std::io::stderr().as_fd().try_clone_to_owned().map_err(fail)?));
        }
        // SAFETY: between fork and exec only prctl(2) is called, which is async-signal-safe.
        unsafe { command.pre_exec(die_with_parent) };
        let child = command.spawn().map_err(fail)?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| fail(error.into()))?;
        Ok(Workload { child, pidfd })
    }

    /// How it ended by itself; absent when it still ran, and was ended now.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn end(mut self) -> Result<Option<ExitStatus>, BenchError> {
        let failed = |error: std::io::Error| BenchError::Failed(error.to_string());
        if let Some(status) = self.child.try_wait().map_err(failed)? {
            return Ok(Some(status));
        }
        let _ = pidfd_send_signal(&self.pidfd, Signal::TERM); // it may have ended meanwhile
        self.child.wait().map_err(failed)?;
        Ok(None)
    }

    /// Waits for its end and returns its exit status; a stopped window terminates it first.
    ///
    /// # Errors
    /// When the kernel does not report the status.
    pub fn finish(mut self, outcome: WaitOutcome) -> Result<ExitStatus, BenchError> {
        if outcome == WaitOutcome::Stopped {
            let _ = pidfd_send_signal(&self.pidfd, Signal::TERM); // it may have ended meanwhile
        }
        self.child.wait().map_err(|error| BenchError::Failed(error.to_string()))
    }
}

/// The status as a shell gives it: the exit code, or 128 and the number of the signal.
#[must_use]
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

fn die_with_parent() -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).map_err(Into::into)
}

/// Sleeps in poll(2) until `deadline`, the workload's end or a stop request.
pub fn wait(deadline: Option<Instant>, workload: Option<&Workload>, stop: &Stop) -> WaitOutcome {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut polled = vec![PollFd::from_borrowed_fd(stop.descriptor(), PollFlags::IN)];
        polled.extend(workload.map(|workload| PollFd::new(&workload.pidfd, PollFlags::IN)));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(0) => return WaitOutcome::Completed,
            Ok(_) if !polled[0].revents().is_empty() => return WaitOutcome::Stopped,
            Ok(_) => return WaitOutcome::Completed,
            Err(_) => {} // a signal interrupted poll
        }
    }
}
