//! `irqlab fleet host`: the end of a conversation on a host. Standard input and output are the connection.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ::fleet::conversation::{Ended, Greeting, HostSide, Request};
use anyhow::Context;
use live::program_rights;
use live::spawn::{end_with_this_thread, spawn_thread, with_reached_limit};
use live::window::Stop;
use outputs::NewDirectory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Signal, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};

use super::super::sweep::command_line::with_options;
use crate::VERSION;
use crate::child::{ChildEnd, running_program, wait};
use crate::run::stop_on_signals;

/// Bytes at the end of irqlab's messages that are sent.
const LOG_END_BYTES: u64 = 4 << 10;
const LOG: &str = "log.txt";
const RUN: &str = "run";
/// Time that the measurement has to end after a stop. The collector waits longer.
const KILL_AFTER: Duration = Duration::from_secs(45);

pub fn run() -> anyhow::Result<ExitCode> {
    let as_file = |descriptor: io::Result<OwnedFd>| descriptor.map(File::from);
    let reader = as_file(io::stdin().as_fd().try_clone_to_owned()).context("no standard input")?;
    let writer =
        as_file(io::stdout().as_fd().try_clone_to_owned()).context("no standard output")?;
    let watched = reader.try_clone().context("no standard input")?;
    let mut side = HostSide { reader, writer };
    side.greet(&Greeting { version: VERSION.to_owned(), address: own_address() })?;
    let Some(request) = side.request(utc_ns)? else { return Ok(ExitCode::SUCCESS) };
    let stop = stop_on_signals()?;
    stop_with_connection(watched, &stop, Duration::from_nanos(request.limit_ns))?;
    let name = std::env::temp_dir().join(outputs::temporary_name());
    let directory = NewDirectory::create(&name).map_err(io::Error::from).with_context(|| {
        format!("cannot make a directory in {}", std::env::temp_dir().display())
    })?;
    let ended = measure(&request, &directory, &stop)?;
    let run = directory.hidden_path().join(RUN);
    let has_run = record::is_run_directory(&run);
    side.finish(ended, has_run.then_some(&*run)).context("cannot send the run")?;
    Ok(ExitCode::SUCCESS)
}

/// This host's clock, ns since 1970.
pub fn utc_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// This host's address of the connection, from the variable that sshd sets: client, its port, address, port.
fn own_address() -> Option<IpAddr> {
    std::env::var("SSH_CONNECTION").ok()?.split(' ').nth(2)?.parse().ok()
}

/// Requests a stop when the connection ends, or after the limit of time.
fn stop_with_connection(mut input: File, stop: &Stop, limit: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    let stop_writer = File::from(stop.writer().context("cannot create a pipe")?);
    let watch = move || {
        let mut buffer = [0; 256];
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(remaining.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(remaining.subsec_nanos()),
            };
            let mut polled = [PollFd::new(&input, PollFlags::IN)];
            let is_ready = matches!(retry_on_intr(|| poll(&mut polled, Some(&timeout))), Ok(1..));
            if !is_ready || !matches!(input.read(&mut buffer), Ok(1..)) {
                // A reader of the pipe waits for this process at most until the stop.
                let _ = io::Write::write_all(&mut &stop_writer, &[0]);
                return;
            }
        }
    };
    spawn_thread("connection", watch).context("cannot watch the connection")?;
    Ok(())
}

/// Executes the command, with its messages in a log.
fn measure(request: &Request, directory: &NewDirectory, stop: &Stop) -> anyhow::Result<Ended> {
    let log = directory.create_file(LOG).map_err(io::Error::from).context("cannot write a log")?;
    let program = std::env::current_exe().context("cannot find irqlab's own file")?;
    let out = format!("--out={}", directory.hidden_path().join(RUN).display());
    let mut command = Command::new(running_program(program));
    command.args(with_options(&request.arguments, [out])).stdin(Stdio::null());
    // The run has the results, so their print is not sent.
    command.stdout(Stdio::null()).stderr(log);
    command.process_group(0);
    program_rights::give_to_helper(&mut command);
    end_with_this_thread(&mut command);
    let mut child = command.spawn().map_err(with_reached_limit).context("cannot start irqlab")?;
    let (status, end) = wait(&mut child, stop, |task, end| {
        if end == ChildEnd::Stopped {
            // Fails only if it has ended since.
            let _ = pidfd_send_signal(task, Signal::TERM);
            let Ok(task) = task.try_clone_to_owned() else { return };
            // Without the thread, this process waits for the measurement without a limit.
            let _ = spawn_thread("killer", move || {
                std::thread::sleep(KILL_AFTER);
                let _ = pidfd_send_signal(&task, Signal::KILL); // fails if it has ended
            });
        }
    })
    .context("cannot wait for irqlab")?;
    Ok(ended(status, end, log_end(directory)))
}

fn ended(status: ExitStatus, end: ChildEnd, log_end: String) -> Ended {
    let reason = match (status.signal(), end) {
        (Some(signal), _) => Some(format!("signal {signal} ended irqlab there")),
        (None, ChildEnd::Stopped) => Some("the limit of time ended the measurement".to_owned()),
        (None, ChildEnd::Itself) => None,
    };
    Ended { exit_code: status.code(), reason, log_end, archive_bytes: None }
}

/// The end of the log, or why it cannot be read.
fn log_end(directory: &NewDirectory) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(directory.hidden_path().join(LOG))?;
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_END_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LOG_END_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("the log cannot be read: {error}"))
}
