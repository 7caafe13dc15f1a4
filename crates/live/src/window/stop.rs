//! [`Stop`]: the request to stop early, which Ctrl-C or a signal makes. Long operations of the whole crate ask
//! [`Stop::is_requested`], or wait for [`Stop::descriptor`] together with other events.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

/// A request to stop. Any thread or signal handler may make the request, which is never withdrawn.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Read end and write end of a pipe. A byte in the pipe is the request. Nobody
    /// reads the byte, so the request stays.
    pipe: Arc<(OwnedFd, OwnedFd)>,
}

impl Stop {
    /// Creates the pipe; no stop is requested yet.
    ///
    /// Fails if the process has no free descriptors.
    pub fn new() -> io::Result<Self> {
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Stop { pipe: Arc::new(pipe) })
    }

    pub fn request(&self) {
        // An error means that the pipe is full, so it contains a request already.
        let _ = rustix::io::write(&self.pipe.1, b"x");
    }

    /// A descriptor for signal handlers: a byte written to it requests the stop.
    ///
    /// Fails if the process has no free descriptors.
    pub fn writer(&self) -> io::Result<OwnedFd> {
        self.pipe.1.try_clone()
    }

    /// A descriptor that becomes readable when the stop is requested.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.pipe.0.as_fd()
    }

    #[must_use]
    pub fn is_requested(&self) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&no_wait)).is_ok_and(|ready| ready > 0)
    }
}
