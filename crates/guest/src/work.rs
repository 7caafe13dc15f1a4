//! Runs commands, waits until the boot is over, and idles, for the requests that `execute` gets.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::output::Output;
use crate::program::{
    BUSYBOX, CANNOT_START, ROOT_SHELL, code_of, has_busybox, set_environment, status_of,
};
use crate::root::Root;

/// Time since boot after which the kernel's deferred boot work is done. In measurements, kernels did some of this work
/// within the first two seconds, and none later.
const BOOT_WORK: Duration = Duration::from_secs(3);

/// Waits until the kernel has done the work that it has deferred during boot. Otherwise this work would disturb a
/// measurement, and the duration of the boot would determine which measurement. Idle guest time costs the host little.
pub fn wait_for_boot_work() {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime = text.split_whitespace().next().and_then(|seconds| seconds.parse().ok());
    let uptime = uptime.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    thread::sleep(BOOT_WORK.saturating_sub(uptime.unwrap_or_default()));
}

/// Runs a command with its output on the console, and returns its exit status.
pub fn run(command: &str, root: &Root) -> u8 {
    status_of(process_of(command, root))
}

/// Runs a command with its output on `output`, and returns its exit status.
pub fn run_to(command: &str, root: &Root, output: &Output) -> u8 {
    let mut process = process_of(command, root);
    match output.connect(&mut process).and_then(|()| process.status()) {
        Ok(status) => code_of(Ok(status)),
        Err(error) => {
            output.error(&format!("{}: {error}\n", process.get_program().to_string_lossy()));
            CANNOT_START
        }
    }
}

/// Returns the process of a command. The shell of the root file system runs it, or else the shell of busybox. Without
/// any shell, the command is split at blanks and started directly.
fn process_of(command: &str, root: &Root) -> Command {
    if root.is_mounted() {
        let mut process = Command::new(ROOT_SHELL);
        process.args(["-c", command]);
        root.enter(&mut process);
        return process;
    }
    let mut process;
    if has_busybox() {
        process = Command::new(BUSYBOX);
        process.args(["sh", "-c", command]);
    } else {
        let mut arguments = command.split_whitespace();
        process = Command::new(arguments.next().unwrap_or_default());
        process.args(arguments);
    }
    set_environment(&mut process);
    process
}

/// Sleeps for some guest seconds, and returns the exit status 0. `None`: sleeps until the alarm ends the machine.
pub fn idle(seconds: Option<u32>) -> u8 {
    match seconds {
        Some(seconds) => thread::sleep(Duration::from_secs(seconds.into())),
        None => loop {
            thread::park();
        },
    }
    0
}
