//! The ports for a command's output: standard output goes to the third serial port, standard error to the fourth. The
//! kernel prints nothing there, and `sim` passes the bytes on as they are.
//!
//! The command has the ports themselves as its files, so no other process of the guest runs while the command writes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use crate::sys;

const STDOUT_PORT: &str = "/dev/ttyS2";
const STDERR_PORT: &str = "/dev/ttyS3";

/// The open ports of a command's output.
#[derive(Debug)]
pub struct Output {
    stdout: File,
    stderr: File,
}

impl Output {
    /// Opens both ports. They pass bytes unchanged: no carriage return is added to a newline.
    ///
    /// Fails if the kernel has fewer than four serial ports.
    pub fn open() -> Result<Output, String> {
        let open = |path: &str| open_raw(path).map_err(|error| format!("{path}: {error}"));
        Ok(Output { stdout: open(STDOUT_PORT)?, stderr: open(STDERR_PORT)? })
    }

    /// Makes the ports the output of a command.
    pub fn connect(&self, command: &mut Command) -> io::Result<()> {
        command.stdout(self.stdout.try_clone()?).stderr(self.stderr.try_clone()?);
        Ok(())
    }

    /// Writes an error message to the command's standard error.
    pub fn error(&self, message: &str) {
        // If the host cannot read, it ends this machine.
        let _ = (&self.stderr).write_all(message.as_bytes());
    }

    /// Waits until the ports have sent every written byte.
    pub fn drain(&self) {
        sys::drain(&self.stdout);
        sys::drain(&self.stderr);
    }
}

/// Opens a serial port for output.
fn open_raw(path: &str) -> io::Result<File> {
    let port = OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open(path)?;
    // Fails for a port without hardware.
    sys::make_raw(&port)?;
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_serial_port_can_be_opened() {
        assert_eq!(open_raw("/no/such/port").unwrap_err().kind(), io::ErrorKind::NotFound);
        let no_terminal = open_raw("/dev/null").unwrap_err();
        assert_eq!(no_terminal.raw_os_error(), Some(libc::ENOTTY));
    }
}
