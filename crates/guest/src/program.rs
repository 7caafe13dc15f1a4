//! Where the programs of the guest are, and how one ends.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Where the image has busybox.
pub const BUSYBOX: &str = "/bin/busybox";
/// The shell of a root file system.
pub const ROOT_SHELL: &str = "/bin/sh";

/// Exit status of a command that cannot be started, as in shells.
pub const CANNOT_START: u8 = 127;
/// Exit status of a command that a signal ended, less the number of the signal, as in shells.
const BY_SIGNAL: u8 = 128;

/// Whether the image has busybox.
pub fn has_busybox() -> bool {
    Path::new(BUSYBOX).exists()
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
