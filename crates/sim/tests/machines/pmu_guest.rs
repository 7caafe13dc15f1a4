//! The first process of the guest of `pmu.rs`, which compiles this file by itself: it leaves a
//! child that counts its own instructions, and becomes the first process of irqlab's image.

#[allow(dead_code)]
#[path = "../../../plugin/tests/guests/events.rs"]
mod events;
#[allow(dead_code)]
#[path = "../../../plugin/tests/guests/init.rs"]
mod init;
#[allow(dead_code)]
#[path = "../../../simrecord/src/marker.rs"]
mod marker;

use std::os::unix::process::CommandExt;
use std::process::Command;

/// File in which the child leaves the counted and the expected numbers.
const RESULT: &str = "/counted";
const YIELD: u64 = 24;
/// Iterations of a loop, and system calls: the checkpoint is in the middle.
const ITERATIONS: u64 = 1_000_000;
const TURNS: u64 = 1_000;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("count") {
        init::run_on_cpu(1);
        let counter = events::Counter::off(events::INSTRUCTIONS);
        let expected = events::rounds(&counter, ITERATIONS, TURNS, YIELD, [0; 2]);
        let line = format!("counted {} expected {expected}", counter.read());
        std::fs::write("/aside", line).unwrap();
        return std::fs::rename("/aside", RESULT).unwrap();
    }
    Command::new("/counter").arg("count").spawn().unwrap();
    panic!("{}", Command::new("/init").exec());
}
