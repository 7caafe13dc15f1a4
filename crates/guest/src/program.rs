//! Paths, environment and exit statuses of the programs that this program starts in the guest.
//! `work`, `shell`, `root` and `irqlab` start programs with it.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Path of busybox in the image.
pub const BUSYBOX: &str = "/bin/busybox";
/// Path of the shell in the root file system of commands.
pub const ROOT_SHELL: &str = "/bin/sh";

/// Exit status of a command that cannot be started, as in shells.
pub const CANNOT_START: u8 = 127;
/// Exit status of a command that a signal has ended, as in shells: this plus the signal's number.
const BY_SIGNAL: u8 = 128;

pub fn has_busybox() -> bool {
    Path::new(BUSYBOX).exists()
}

/// Sets the search paths of programs and libraries.
pub fn set_environment(process: &mut Command) {
    process.env("PATH", "/bin:/irqlab").env("LD_LIBRARY_PATH", "/irqlab/lib").env("HOME", "/");
}

/// Runs a program to its end, and returns its exit status as shells do. Prints an error if it cannot be started.
pub fn status_of(mut process: Command) -> u8 {
    match process.status() {
        Ok(status) => code_of(Ok(status)),
        Err(error) => {
            println!("{}: {error}", process.get_program().to_string_lossy());
            CANNOT_START
        }
    }
}

/// Converts the status of a program that has ended to an exit status as in shells.
pub fn code_of(status: io::Result<ExitStatus>) -> u8 {
    let Ok(status) = status else { return BY_SIGNAL };
    let by_signal = || BY_SIGNAL + status.signal().map_or(0, |signal| (signal & 0x7f) as u8);
    status.code().map_or_else(by_signal, |code| code as u8)
}
