//! Executes one task: builds its file if it needs one, starts irqlab as a child, waits for it, and records the result or the
//! failure.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::Context;
use live::program_rights;
use live::spawn::{end_with_this_thread, with_reached_limit};
use live::window::Stop;
use rustix::process::{Signal, pidfd_send_signal};
use sweep::{Execution, Recorded, Start, SweepDirectory, Task, TaskCost, TaskEnd};

use super::build::{Built, build};
use super::command_line::with_options;
use super::usage;
use crate::child::{ChildEnd, running_program, wait};
use crate::run::RECORDED_CODES;

/// How the execution of a task ended.
pub enum Outcome {
    Recorded(Recorded),
    /// The result was there already.
    WasDone,
    /// Another process of this machine executes the task.
    Elsewhere,
    /// The sweep was stopped, and the task is missing.
    Stopped,
}

/// Executes a task. `options`: more options for irqlab, which do not change the results.
///
/// Fails if the system refuses: the other tasks would fail, too.
pub fn execute(
    sweep: &SweepDirectory,
    task: &Task,
    options: &[String],
    stop: &Stop,
) -> anyhow::Result<Outcome> {
    let execution = match Execution::start(sweep, task).map_err(usage)? {
        Start::Ready(execution) => execution,
        Start::Done => return Ok(Outcome::WasDone),
        Start::Elsewhere => return Ok(Outcome::Elsewhere),
    };
    if stop.is_requested() {
        return Ok(Outcome::Stopped);
    }
    let arguments = match build(sweep, task, &execution, stop)? {
        Built::NotNeeded => execution.arguments().to_vec(),
        Built::File(file) => sweep.plan().arguments_with_file(task, &file),
        Built::Stopped => return Ok(Outcome::Stopped),
        Built::Failed { exit_code, reason } => {
            let recorded = execution.finish_failed(exit_code, &reason).map_err(usage)?;
            return Ok(Outcome::Recorded(recorded));
        }
    };
    let started = Instant::now();
    let mut child = start(&execution, &arguments, options)?;
    let (pid, mut cpu_time_ns) = (child.id(), None);
    // The task's irqlab ends its own children. The signal fails only if the task has ended since.
    let end = |task: BorrowedFd<'_>, end| {
        if end == ChildEnd::Itself {
            cpu_time_ns = cpu_time_ns_of(pid);
        }
        if end == ChildEnd::Stopped {
            let _ = pidfd_send_signal(task, Signal::TERM);
        }
    };
    let (status, end) = wait(&mut child, stop, end).context("cannot wait for a task")?;
    if end == ChildEnd::Stopped {
        return Ok(Outcome::Stopped);
    }
    let wall_time_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let cost = TaskCost { wall_time_ns, cpu_time_ns };
    let recorded = execution.finish(end_of(status), &RECORDED_CODES, cost).map_err(usage)?;
    Ok(Outcome::Recorded(recorded))
}

fn start(execution: &Execution, arguments: &[String], options: &[String]) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find irqlab's own file")?;
    let mut out = OsString::from("--out=");
    out.push(execution.run_path());
    let arguments = with_options(arguments, options.iter().cloned());
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let mut command = Command::new(running_program(program));
    command.args(&arguments[..end]).arg(out).args(&arguments[end..]).stdin(Stdio::null());
    program_rights::give_to_helper(&mut command);
    let started = start_with_log(&mut command, execution)?;
    started.context("cannot start irqlab for a task")
}

/// Starts a command in a process group of its own, which ends with this thread. Its output goes to the log of the task. The
/// inner error says why the system does not start it.
///
/// Fails if the log cannot be opened.
pub fn start_with_log(
    command: &mut Command,
    execution: &Execution,
) -> anyhow::Result<io::Result<Child>> {
    let log = execution.open_log()?;
    command.stderr(log.try_clone().context("cannot write a log")?).stdout(log);
    // Ctrl-C on the terminal reaches this process alone, which then stops its children.
    command.process_group(0);
    end_with_this_thread(command);
    Ok(command.spawn().map_err(with_reached_limit))
}

/// CPU time of a process that has ended and waits for its parent, with that of the children that it waited for. `None` if
/// the system does not show it.
fn cpu_time_ns_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses and may contain spaces. utime, stime, cutime and cstime are fields 14 to 17
    // of proc_pid_stat(5).
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(4).map(|ticks| ticks.parse::<u64>().ok());
    let ticks = times.sum::<Option<u64>>()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(per_second)).ok()
}

fn end_of(status: ExitStatus) -> TaskEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => TaskEnd::Exited(code),
        (None, signal) => TaskEnd::KilledBySignal(signal.unwrap_or(0)),
    }
}
