//! Channels to a machine: its serial ports and QEMU's monitor.

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

/// Adds a serial port as a character device of QEMU.
///
/// It uses pipes instead of sockets: QEMU writes byte by byte, and each write to a socket takes some 800
/// bytes of its buffer, which would be full after a line or two.
pub(crate) fn serial(command: &mut Command, theirs: &mut Vec<OwnedFd>, id: &str) -> Result<Serial> {
    let make = || -> io::Result<_> {
        let (from_guest, writes) = pipe_with(PipeFlags::CLOEXEC)?;
        let (reads, to_guest) = pipe_with(PipeFlags::CLOEXEC)?;
        // A smaller pipe is sufficient on a host that is not overloaded.
        let _ = fcntl_setpipe_size(&writes, PIPE_BYTES);
        Ok((from_guest, writes, reads, to_guest))
    };
    let (from_guest, writes, reads, to_guest) = make().map_err(failed)?;
    let path = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let (writes_path, reads_path) = (path(&writes), path(&reads));
    let device = format!("file,id={id},path={writes_path},input-path={reads_path}");
    command.arg("-chardev").arg(device);
    theirs.extend([writes, reads]);
    Ok(Serial { from_guest: from_guest.into(), to_guest: to_guest.into() })
}

/// Adds a socket pair as a character device of QEMU; returns the host's end.
pub(crate) fn socket(
    command: &mut Command,
    theirs: &mut Vec<OwnedFd>,
    id: &str,
) -> Result<UnixStream> {
    let (host_end, other) = UnixStream::pair().map_err(failed)?;
    command.arg("-chardev").arg(format!("socket,id={id},fd={}", other.as_raw_fd()));
    theirs.push(other.into());
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
        let mut theirs = Vec::new();
        let mut serial = serial(&mut command, &mut theirs, "x").unwrap();
        let [writes, reads] = <[OwnedFd; 2]>::try_from(theirs).unwrap();
        rustix::io::ioctl_fionbio(&writes, true).unwrap();
        let (mut writes, mut reads) = (File::from(writes), File::from(reads));
        // As QEMU does: byte by byte, without waiting.
        let written =
            (0..100_000_u32).map_while(|index| writes.write(&[index as u8]).ok()).sum::<usize>();
        assert!(written >= 65_536, "{written}");
        let mut first = [0; 300];
        serial.from_guest.read_exact(&mut first).unwrap();
        assert_eq!((first[1], first[299]), (1, 43));
        serial.to_guest.write_all(b"\n").unwrap();
        reads.read_exact(&mut first[..1]).unwrap();
        assert_eq!(first[0], b'\n');
    }
}
