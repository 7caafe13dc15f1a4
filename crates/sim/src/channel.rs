//! Channels to QEMU: socket pairs that it has as character devices, and reading from them without
//! waiting.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{ChildStderr, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{Result, SimError};

/// So that QEMU never has to wait for us, which the guest would see.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 64 * 1024;

/// A socket pair as a character device of QEMU: our end, which does not wait.
pub(crate) fn channel(
    command: &mut Command,
    theirs: &mut Vec<OwnedFd>,
    id: &str,
) -> Result<UnixStream> {
    let make = || -> io::Result<(UnixStream, UnixStream)> {
        let (ours, other) = UnixStream::pair()?;
        for end in [&ours, &other] {
            // A smaller buffer than asked for (net.core.wmem_max) will do.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(end, SOCKET_BUFFER_BYTES);
        }
        Ok((ours, other))
    };
    let (ours, other) = make().map_err(SimError::system("making a channel to QEMU"))?;
    let number = other.as_raw_fd();
    command.arg("-chardev").arg(format!("socket,id={id},fd={number}"));
    theirs.push(other.into());
    Ok(ours)
}

/// What can be read without waiting; empty when nothing can, or the other end is closed.
pub(crate) fn read_ready(stream: &(impl AsFd + ReadHere)) -> Result<Vec<u8>> {
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut bytes = Vec::new();
    if poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0) {
        let mut buffer = vec![0; READ_BYTES];
        match stream.read_here(&mut buffer) {
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(SimError::system("reading from QEMU")(error)),
        }
    }
    Ok(bytes)
}

/// Reading through a shared reference.
pub(crate) trait ReadHere {
    fn read_here(&self, buffer: &mut [u8]) -> io::Result<usize>;
}

impl ReadHere for UnixStream {
    fn read_here(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut stream = self;
        stream.read(buffer)
    }
}

impl ReadHere for ChildStderr {
    fn read_here(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self, buffer)?)
    }
}
