//! Builds the file of a task, such as the kernel of a commit: starts the command of the specification, and waits for it.

use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use live::spawn::{end_with_this_thread, with_reached_limit};
use live::window::Stop;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, kill_process_group};
use sweep::{BuildExecution, BuildStart, Execution, SweepDirectory, Task};

use super::execute::wait;
use super::usage;

/// Time between two looks at a file that another process builds.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Time that a stopped build has to end, before it is killed.
const TO_END: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

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

/// Builds the file of a task, unless it is built already. Waits while another process builds it. The output of the command
/// goes to the log of the task.
///
/// Fails if the system refuses.
pub fn build(
    sweep: &SweepDirectory,
    task: &Task,
    execution: &Execution,
    stop: &Stop,
) -> anyhow::Result<Built> {
    let Some(build) = sweep.build_of(task) else { return Ok(Built::NotNeeded) };
    loop {
        if stop.is_requested() {
            return Ok(Built::Stopped);
        }
        match build.start().map_err(usage)? {
            BuildStart::Done(path) => return Ok(Built::File(path.display().to_string())),
            BuildStart::Ready(ready) => return execute(ready, execution, stop),
            BuildStart::Elsewhere => {
                let stopped = PollFd::from_borrowed_fd(stop.descriptor(), PollFlags::IN);
                retry_on_intr(|| poll(&mut [stopped.clone()], Some(&LOOK_AGAIN)))?;
            }
        }
    }
}

fn execute(ready: BuildExecution, execution: &Execution, stop: &Stop) -> anyhow::Result<Built> {
    let command = ready.command();
    let mut child = match start(&command, execution)? {
        Ok(child) => child,
        Err(reason) => return Ok(Built::Failed { exit_code: None, reason }),
    };
    let group = Pid::from_child(&child);
    let waited = wait(&mut child, stop, |command| end_group(command, group));
    let (status, was_stopped) = waited.context("cannot wait for a build")?;
    if was_stopped {
        return Ok(Built::Stopped);
    }
    if !status.success() {
        let reason = format!("the build failed ({status})");
        return Ok(Built::Failed { exit_code: status.code(), reason });
    }
    Ok(match ready.finish().map_err(usage)? {
        Ok(path) => Built::File(path.display().to_string()),
        Err(reason) => Built::Failed { exit_code: None, reason },
    })
}

/// Starts the command of a build. Returns why the system does not start it.
fn start(command: &[String], execution: &Execution) -> anyhow::Result<Result<Child, String>> {
    let log = execution.open_log()?;
    let (program, arguments) = command.split_first().context("a build without a command")?;
    let mut started = Command::new(program);
    started.args(arguments).stdin(Stdio::null());
    started.stderr(log.try_clone().context("cannot write a log")?).stdout(log);
    // A group of its own, which is ended as a whole: a build starts further processes.
    started.process_group(0);
    end_with_this_thread(&mut started);
    let child = started.spawn().map_err(with_reached_limit);
    Ok(child.map_err(|error| format!("the build {program} does not start: {error}")))
}

/// Ends the processes of a build. They get SIGTERM, and after some time SIGKILL.
fn end_group(command: BorrowedFd<'_>, group: Pid) {
    // A signal fails only if the processes have ended.
    let _ = kill_process_group(group, Signal::TERM);
    let ended = PollFd::from_borrowed_fd(command, PollFlags::IN);
    let _ = retry_on_intr(|| poll(&mut [ended.clone()], Some(&TO_END)));
    let _ = kill_process_group(group, Signal::KILL);
}
