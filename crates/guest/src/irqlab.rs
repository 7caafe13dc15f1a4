//! Runs the irqlab in the guest's image with a request, and passes its response to the host. The experiments of the
//! simulated bench use this.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::facts::quoted;
use crate::program::{self, CANNOT_START};
use crate::sys;

const PROGRAM: &str = "/irqlab/irqlab";
/// The verb of irqlab that executes requests.
const VERB: &str = "__in-guest";
/// Maximum length of the program's output. The rest is cut off.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// A descriptor that never has input.
const NO_DESCRIPTOR: i32 = -1;

/// Runs irqlab with a request, and returns its exit status. Sends the program's output to the host only after the
/// program has ended, so that nothing else runs during a measurement.
///
/// Asks irqlab at most once to stop: `stop_after_s` guest seconds after its start, or when the host sends a line.
/// irqlab then ends its measurement, and responds with the results so far.
pub fn execute(request: &str, stop_after_s: Option<u32>, agent: &mut Agent) -> u8 {
    let mut process = Command::new(PROGRAM);
    process.args([VERB, request]).stdin(Stdio::null()).stdout(Stdio::piped());
    program::set_environment(&mut process);
    let mut child = match process.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("guest: {PROGRAM}: {error}");
            return CANNOT_START;
        }
    };
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let limit = stop_after_s.map(|seconds| Duration::from_secs(seconds.into()));
        output = read_until_end(&child, stdout, limit, agent);
    }
    let status = child.wait();
    for line in String::from_utf8_lossy(&output).lines() {
        agent.send(&format!(r#"{{"event":"output","line":{}}}"#, quoted(line)));
    }
    program::code_of(status)
}

/// Reads the program's output until the program ends. Asks the program once to stop: at the limit or at a line of the
/// host, whichever comes first.
fn read_until_end(
    child: &Child,
    mut stdout: ChildStdout,
    limit: Option<Duration>,
    agent: &mut Agent,
) -> Vec<u8> {
    let mut output = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let mut deadline = limit.map(|limit| Instant::now() + limit);
    let mut host = agent.descriptor();
    loop {
        let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // Rounded up, so that the deadline has passed when poll(2) returns.
        let timeout_ms = remaining
            .map_or(-1, |remaining| i32::try_from(remaining.as_millis() + 1).unwrap_or(i32::MAX));
        let input = sys::wait_for_input(stdout.as_raw_fd(), host, timeout_ms);
        if input.is_none() && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            // A second signal would end the program before it responds.
            (deadline, host) = (None, NO_DESCRIPTOR);
            agent.send(r#"{"event":"limit"}"#);
            sys::terminate(child.id());
        }
        if input.is_second {
            // The host sends one line. A port that cannot be read is not read again.
            host = NO_DESCRIPTOR;
            if agent.wait_for_line() {
                // The limit does not end this run any more.
                deadline = None;
                sys::terminate(child.id());
            }
        }
        if input.is_first {
            match stdout.read(&mut buffer) {
                Ok(1..) if output.len() > OUTPUT_BYTES_MAX => {}
                Ok(count @ 1..) => output.extend_from_slice(&buffer[..count]),
                _ => return output,
            }
        }
    }
}
