//! Requests for the irqlab in the guest's image.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::agent::Agent;
use crate::facts::quoted;
use crate::program::{self, CANNOT_START};

const PROGRAM: &str = "/irqlab/irqlab";
/// The verb of irqlab that executes requests.
const VERB: &str = "__in-guest";
/// Maximum length of the program's output. The rest is cut off.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Runs irqlab with a request, and returns its exit status. Sends the program's output to the host after the
/// program has ended, so that nothing else runs during a measurement.
pub fn execute(request: &str, agent: &mut Agent) -> u8 {
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
        let lines = BufReader::new(stdout.take(OUTPUT_BYTES_MAX)).lines();
        output.extend(lines.map_while(Result::ok));
    }
    let status = child.wait();
    for line in output {
        agent.send(&format!(r#"{{"event":"output","line":{}}}"#, quoted(&line)));
    }
    program::code_of(status)
}
