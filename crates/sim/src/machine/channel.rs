//! Makes the channels to a machine, before QEMU starts: its serial ports and QEMU's monitor. QEMU inherits its ends of
//! the channels; the caller closes its copies after the start.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::{Result, SimError};

/// Buffer of a serial port, bytes: the maximum without privileges. While it is full QEMU waits, and the
/// guest can observe that its port is slow.
const PIPE_BYTES: usize = 1 << 20;

/// The host's ends of a serial port.
#[derive(Debug)]
pub(crate) struct Serial {
    /// The guest's output.
    pub(crate) from_guest: File,
    /// The guest's input.
    pub(crate) to_guest: File,
}

/// Adds a serial port with input and output as a character device of QEMU. Adds the descriptors for QEMU to `inherited`.
///
/// It uses pipes instead of sockets: QEMU writes byte by byte, and each write to a socket takes some 800 bytes of its
/// buffer. The buffer of a socket would be full after a line or two.
pub(crate) fn serial(
    command: &mut Command,
    inherited: &mut Vec<OwnedFd>,
    id: &str,
) -> Result<Serial> {
    let make = || -> io::Result<_> {
        let (from_guest, qemu_output) = output_pipe()?;
        let (qemu_input, to_guest) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((from_guest, qemu_output, qemu_input, to_guest))
    };
    let (from_guest, qemu_output, qemu_input, to_guest) = make().map_err(failed)?;
    let (output_path, input_path) = (descriptor_path(&qemu_output), descriptor_path(&qemu_input));
    let device = format!("file,id={id},path={output_path},input-path={input_path}");
    command.arg("-chardev").arg(device);
    inherited.extend([qemu_output, qemu_input]);
    Ok(Serial { from_guest: from_guest.into(), to_guest: to_guest.into() })
}

/// Adds a serial port that the guest only writes to, as a character device of QEMU. Adds QEMU's descriptor to
/// `inherited`; returns the host's end.
pub(crate) fn output(
    command: &mut Command,
    inherited: &mut Vec<OwnedFd>,
    id: &str,
) -> Result<File> {
    let (from_guest, qemu_output) = output_pipe().map_err(failed)?;
    let path = descriptor_path(&qemu_output);
    command.arg("-chardev").arg(format!("file,id={id},path={path}"));
    inherited.push(qemu_output);
    Ok(from_guest.into())
}

/// Makes a pipe from QEMU.
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (from_guest, qemu_output) = pipe_with(PipeFlags::CLOEXEC)?;
    // A smaller pipe is sufficient on a host that is not overloaded.
    let _ = fcntl_setpipe_size(&qemu_output, PIPE_BYTES);
    Ok((from_guest, qemu_output))
}

/// The path of an inherited descriptor, for QEMU.
fn descriptor_path(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// Adds a socket pair as a character device of QEMU. Returns the host's end; adds QEMU's end to `inherited`.
pub(crate) fn socket(
    command: &mut Command,
    inherited: &mut Vec<OwnedFd>,
    id: &str,
) -> Result<UnixStream> {
    let (host_end, qemu_end) = UnixStream::pair().map_err(failed)?;
    command.arg("-chardev").arg(format!("socket,id={id},fd={}", qemu_end.as_raw_fd()));
    inherited.push(qemu_end.into());
    Ok(host_end)
}

fn failed(error: io::Error) -> SimError {
    SimError::system("making a channel to QEMU")(error)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_serial_port_buffers_much_output() {
        let mut command = Command::new("true");
        let mut inherited = Vec::new();
        let mut serial = serial(&mut command, &mut inherited, "x").unwrap();
        let [qemu_output, qemu_input] = <[OwnedFd; 2]>::try_from(inherited).unwrap();
        rustix::io::ioctl_fionbio(&qemu_output, true).unwrap();
        let (mut qemu_output, mut qemu_input) = (File::from(qemu_output), File::from(qemu_input));
        // As QEMU does: byte by byte, without waiting.
        let written = (0..100_000_u32)
            .map_while(|index| qemu_output.write(&[index as u8]).ok())
            .sum::<usize>();
        assert!(written >= 65_536, "{written}");
        let mut first = [0; 300];
        serial.from_guest.read_exact(&mut first).unwrap();
        assert_eq!((first[1], first[299]), (1, 43));
        serial.to_guest.write_all(b"\n").unwrap();
        qemu_input.read_exact(&mut first[..1]).unwrap();
        assert_eq!(first[0], b'\n');
    }
}
