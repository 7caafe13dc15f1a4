//! Paths, environment and exit statuses of the guest's programs.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Path of busybox in the image.
pub const BUSYBOX: &str = "/bin/busybox";
/// Path of the shell in a root file system.
pub const ROOT_SHELL: &str = "/bin/sh";

/// Exit status of a command that cannot be started, as in shells.
pub const CANNOT_START: u8 = 127;
/// Exit status of a command that a signal ended, as in shells. The signal's number is added.
const BY_SIGNAL: u8 = 128;

pub fn has_busybox() -> bool {
    Path::new(BUSYBOX).exists()
}

/// Sets the search paths of programs and libraries.
pub fn set_environment(process: &mut Command) {
    process.env("PATH", "/bin:/irqlab").env("LD_LIBRARY_PATH", "/irqlab/lib").env("HOME", "/");
}

/// Runs a process to its end, and returns its exit status as shells do.
pub fn status_of(mut process: Command) -> u8 {
    match process.status() {
        Ok(status) => code_of(Ok(status)),
        Err(error) => {
            println!("{}: {error}", process.get_program().to_string_lossy());
            CANNOT_START
        }
    }
}

/// Converts the status of a process that has ended to an exit status as in shells.
pub fn code_of(status: io::Result<ExitStatus>) -> u8 {
    let Ok(status) = status else { return BY_SIGNAL };
    let by_signal = || BY_SIGNAL + status.signal().map_or(0, |signal| (signal & 0x7f) as u8);
    status.code().map_or_else(by_signal, |code| code as u8)
}
