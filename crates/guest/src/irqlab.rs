//! Orders that the image's irqlab carries out.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::agent::Agent;
use crate::facts::quoted;
use crate::work::{self, CANNOT_START};

/// The program.
const PROGRAM: &str = "/irqlab/irqlab";
/// Its verb for the orders.
const VERB: &str = "__in-guest";
/// Most bytes that it may say: all that loops note in a long window.
const SAID_BYTES_MAX: u64 = 16 << 20;

/// Runs irqlab with an order; what it says on stdout goes to the host, line by line, when it has
/// ended: nothing of this program runs meanwhile.
pub fn carry_out(order: &str, agent: &mut Agent) -> u8 {
    let mut process = Command::new(PROGRAM);
    process.args([VERB, order]).stdin(Stdio::null()).stdout(Stdio::piped());
    work::set_environment(&mut process);
    let mut child = match process.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("guest: {PROGRAM}: {error}");
            return CANNOT_START;
        }
    };
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let lines = BufReader::new(stdout.take(SAID_BYTES_MAX)).lines();
        said.extend(lines.map_while(Result::ok));
    }
    let status = child.wait();
    for line in said {
        agent.send(&format!(r#"{{"event":"said","line":{}}}"#, quoted(&line)));
    }
    work::code_of(status)
}
