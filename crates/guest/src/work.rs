//! Commands, and doing nothing.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Where the image has busybox.
pub const BUSYBOX: &str = "/bin/busybox";

/// Exit status of a command that cannot be started, as shells have it.
const CANNOT_START: u8 = 127;
/// Exit status of a command that a signal ended.
const BY_SIGNAL: u8 = 128;

/// Whether the image has busybox.
pub fn has_busybox() -> bool {
    Path::new(BUSYBOX).exists()
}

/// Runs a command by busybox's shell; without one, its words as they are. Its exit status.
pub fn run(command: &str) -> u8 {
    let mut process;
    if has_busybox() {
        process = Command::new(BUSYBOX);
        process.args(["sh", "-c", command]).env("PATH", "/bin");
    } else {
        let mut words = command.split_whitespace();
        process = Command::new(words.next().unwrap_or_default());
        process.args(words);
    }
    status_of(process)
}

/// Runs a process to its end.
pub fn status_of(mut process: Command) -> u8 {
    match process.status() {
        Ok(status) => status.code().map_or(BY_SIGNAL, |code| code as u8),
        Err(error) => {
            println!("{}: {error}", process.get_program().to_string_lossy());
            CANNOT_START
        }
    }
}

/// Sleeps in guest time.
pub fn idle(seconds: Option<u32>) -> u8 {
    match seconds {
        Some(seconds) => thread::sleep(Duration::from_secs(seconds.into())),
        // The alarm ends this.
        None => loop {
            thread::park();
        },
    }
    0
}
