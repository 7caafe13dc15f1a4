//! Builds the file of a task, such as the kernel of a commit: starts the command of the specification, and waits for it.

use std::io;
use std::os::fd::BorrowedFd;
use std::process::{Child, Command};

use anyhow::{Context, bail};
use live::window::Stop;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, kill_process_group};
use sweep::{BuildExecution, BuildStart, Execution, SweepDirectory, Task};

use super::execute::start_with_log;
use super::usage;
use crate::child::{ChildEnd, wait};
use crate::options::Usage;

/// Time between two looks whether another build has ended.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Time that a stopped build has to end, before it is killed.
const TERMINATION_GRACE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// The file of a task.
pub enum Built {
    /// The sweep builds no files.
    NotNeeded,
    /// The path of the file.
    File(String),
    Failed {
        exit_code: Option<i32>,
        reason: String,
    },
    /// The sweep was stopped.
    Stopped,
}

/// Builds the file of a task, unless it is built already. Waits while another build of the sweep is under way. The output of
/// the command goes to the log of the task.
///
/// Fails if the working directory is not that of the planning, if a built file has changed, or if the system refuses.
pub fn build(
    sweep: &SweepDirectory,
    task: &Task,
    execution: &Execution,
    stop: &Stop,
) -> anyhow::Result<Built> {
    let Some(build) = sweep.build_of(task) else { return Ok(Built::NotNeeded) };
    let planned_in = &sweep.plan().directory;
    let directory = std::env::current_dir().context("cannot find the working directory")?;
    if directory.display().to_string() != *planned_in {
        // The words of the command may name other files here.
        bail!(Usage(format!(
            "files are built in the directory where the sweep was planned: {planned_in}"
        )));
    }
    loop {
        if stop.is_requested() {
            return Ok(Built::Stopped);
        }
        match build.start().map_err(usage)? {
            BuildStart::Done(path) => return Ok(Built::File(path.display().to_string())),
            BuildStart::Ready(ready) => return execute(ready, execution, stop),
            BuildStart::Busy => {
                let mut stopped = [PollFd::from_borrowed_fd(stop.descriptor(), PollFlags::IN)];
                retry_on_intr(|| poll(&mut stopped, Some(&POLL_INTERVAL)))?;
            }
        }
    }
}

fn execute(ready: BuildExecution, execution: &Execution, stop: &Stop) -> anyhow::Result<Built> {
    let mut child = match start(&ready, execution)? {
        Ok(child) => child,
        Err(error) => {
            let reason = format!("the build does not start: {error}");
            return Ok(Built::Failed { exit_code: None, reason });
        }
    };
    let group = Pid::from_child(&child);
    let waited = wait(&mut child, stop, |leader, end| end_group(leader, group, end));
    let (status, end) = waited.context("cannot wait for a build")?;
    if end == ChildEnd::Stopped {
        return Ok(Built::Stopped);
    }
    if !status.success() {
        let how =
            status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"));
        return Ok(Built::Failed {
            exit_code: status.code(),
            reason: format!("the build failed, {how}"),
        });
    }
    Ok(match ready.finish().map_err(usage)? {
        Ok(path) => Built::File(path.display().to_string()),
        Err(reason) => Built::Failed { exit_code: None, reason },
    })
}

/// Starts the command. The inner error says why the system does not start it.
fn start(ready: &BuildExecution, execution: &Execution) -> anyhow::Result<io::Result<Child>> {
    let command = ready.command().map_err(usage)?;
    let (program, arguments) = command.split_first().context("a build without a command")?;
    let mut started = Command::new(program);
    // The input is empty, and keeps other builds waiting while any process of this one lives.
    started.args(arguments).stdin(ready.lock()?);
    start_with_log(&mut started, execution)
}

/// Ends the processes that a build has started, all in one group. After a stop, they get SIGTERM first.
fn end_group(leader: BorrowedFd<'_>, group: Pid, end: ChildEnd) {
    // A signal fails only if all of these processes have ended.
    if end == ChildEnd::Stopped {
        let _ = kill_process_group(group, Signal::TERM);
        let mut ended = [PollFd::from_borrowed_fd(leader, PollFlags::IN)];
        let _ = retry_on_intr(|| poll(&mut ended, Some(&TERMINATION_GRACE)));
    }
    let _ = kill_process_group(group, Signal::KILL);
}
