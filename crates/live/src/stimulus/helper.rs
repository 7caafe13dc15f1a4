//! The stimulus process: the body of `irqlab __stimulus JSON`. `running.rs` starts it. It starts the workers of one
//! stimulus or load, and stops them when the measuring process closes stdin.
//!
//! Stdout carries the protocol of `wire.rs`, so nothing else may print there.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::error::WorkerError;
use super::facts::Facts;
use super::wire::{HelperRequest, Job, Message};
use super::worker_pool::WorkerPool;
use super::{Stimulus, StimulusSettings};
use super::{disk, ipi, load, net, system, timer};

/// Runs the stimulus that `json` describes until stdin closes, and reports on stdout. Returns the exit code: 0 after
/// a requested stop, 1 for an error (reported on stdout), 2 if `json` is not a request.
#[must_use]
pub fn helper_main(json: &str) -> i32 {
    let request: HelperRequest = match serde_json::from_str(json) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("{}: not a request: {error}", super::HELPER_VERB);
            return 2;
        }
    };
    match run(&request) {
        Ok(()) => 0,
        Err(error) => {
            send(&Message::Error(error));
            1
        }
    }
}

fn run(request: &HelperRequest) -> Result<(), WorkerError> {
    die_with_parent(request.parent_pid)?;
    system::ignore_terminal_signals();
    let mut pool =
        WorkerPool::new().map_err(|e| WorkerError::failed(format!("cannot make a pipe: {e}")))?;
    let mut facts = match &request.job {
        Job::Source(settings) => start_source(settings, &mut pool, request.parent_pid)?,
        Job::Load(settings) => load::start(settings, &mut pool)?,
    };
    facts.extend(pool.wait_ready()?);
    send(&Message::Ready { facts });
    wait_for_end(&pool);
    let report = pool.stop()?;
    send(&Message::Report(report));
    Ok(())
}

fn start_source(
    settings: &StimulusSettings,
    pool: &mut WorkerPool,
    parent_pid: u32,
) -> Result<Facts, WorkerError> {
    settings.validate().map_err(|error| WorkerError::failed(error.to_string()))?;
    match settings.stimulus {
        Stimulus::Disk => disk::start(settings, pool),
        Stimulus::Net => {
            let facts = net::start(settings, pool);
            // `net` entered a user namespace. That changes the credentials, which clears the
            // parent-death signal.
            die_with_parent(parent_pid)?;
            facts
        }
        Stimulus::Timer => timer::start(settings, pool),
        Stimulus::Ipi => ipi::start(settings, pool),
        Stimulus::None => Err(WorkerError::failed("the stimulus 'none' needs no process")),
    }
}

/// Requests SIGKILL at the parent's death. Fails if the measuring process is not the parent any more: it may have
/// died before the request took effect.
fn die_with_parent(parent_pid: u32) -> Result<(), WorkerError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| WorkerError::failed(format!("PR_SET_PDEATHSIG: {e}")))?;
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if i64::from(parent) != i64::from(parent_pid) {
        return Err(WorkerError::failed("the measuring process is gone"));
    }
    Ok(())
}

/// Blocks until the measuring process closes stdin, or until a worker fails.
fn wait_for_end(pool: &WorkerPool) {
    let stdin = io::stdin();
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(pool.alarm(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// Writes one line. Errors are ignored: a parent that no longer reads is about to end this process.
fn send(message: &Message) {
    let Ok(mut line) = serde_json::to_vec(message) else { return };
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
}
