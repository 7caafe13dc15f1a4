//! Commands and idling.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;
use std::{fs, io};

use crate::root::Root;

/// Where the image has busybox.
pub const BUSYBOX: &str = "/bin/busybox";
/// The shell of a root file system.
pub const ROOT_SHELL: &str = "/bin/sh";

/// Exit status of a command that cannot be started, as in shells.
pub const CANNOT_START: u8 = 127;
/// Exit status of a command that a signal ended, less the number of the signal, as in shells.
const BY_SIGNAL: u8 = 128;

/// Time since the boot after which no deferred work of the boot has been seen: some of it came within the
/// first two seconds.
const BOOT_WORK: Duration = Duration::from_secs(3);

/// Waits until the kernel has done the work that it deferred at its boot. That work would come into a
/// measurement, and the length of the boot would decide into which. Idle guest time costs the host little.
pub fn wait_for_boot_work() {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime = text.split_whitespace().next().and_then(|seconds| seconds.parse().ok());
    let uptime = uptime.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    thread::sleep(BOOT_WORK.saturating_sub(uptime.unwrap_or_default()));
}

/// Whether the image has busybox.
pub fn has_busybox() -> bool {
    Path::new(BUSYBOX).exists()
}

/// Runs a command and returns its exit status: by the shell of the root file system, else by busybox's;
/// directly if there is neither.
pub fn run(command: &str, root: &Root) -> u8 {
    if root.is_mounted() {
        let mut process = Command::new(ROOT_SHELL);
        process.args(["-c", command]);
        root.enter(&mut process);
        return status_of(process);
    }
    let mut process;
    if has_busybox() {
        process = Command::new(BUSYBOX);
        process.args(["sh", "-c", command]);
    } else {
        let mut words = command.split_whitespace();
        process = Command::new(words.next().unwrap_or_default());
        process.args(words);
    }
    set_environment(&mut process);
    status_of(process)
}

/// Sets where programs and libraries are found.
pub fn set_environment(process: &mut Command) {
    process.env("PATH", "/bin:/irqlab").env("LD_LIBRARY_PATH", "/irqlab/lib").env("HOME", "/");
}

/// Runs a process to its end; returns its exit status.
pub fn status_of(mut process: Command) -> u8 {
    match process.status() {
        Ok(status) => code_of(Ok(status)),
        Err(error) => {
            println!("{}: {error}", process.get_program().to_string_lossy());
            CANNOT_START
        }
    }
}

/// Returns the exit status of a process that has ended, as in shells.
pub fn code_of(status: io::Result<ExitStatus>) -> u8 {
    let Ok(status) = status else { return BY_SIGNAL };
    let by_signal = || BY_SIGNAL + status.signal().map_or(0, |signal| (signal & 0x7f) as u8);
    status.code().map_or_else(by_signal, |code| code as u8)
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
