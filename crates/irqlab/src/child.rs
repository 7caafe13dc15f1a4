//! Child processes that are irqlab itself, or that irqlab waits for until a stop is requested.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};

use live::window::Stop;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The running program. Its link in /proc stays valid if the file is replaced meanwhile.
pub fn running_program(path: PathBuf) -> PathBuf {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() { link } else { path }
}

/// Why [`wait`] has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnd {
    /// The child ended by itself.
    Itself,
    /// A stop was requested first.
    Stopped,
}

/// Waits until a child ends or a stop is requested. Then calls `end` with the child's descriptor, while the child's id still
/// is its own. After a stop, `end` must end the child.
pub fn wait(
    child: &mut Child,
    stop: &Stop,
    end: impl FnOnce(BorrowedFd<'_>, ChildEnd),
) -> io::Result<(ExitStatus, ChildEnd)> {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut polled = [
        PollFd::new(&ended, PollFlags::IN),
        PollFd::from_borrowed_fd(stop.descriptor(), PollFlags::IN),
    ];
    retry_on_intr(|| poll(&mut polled, None))?;
    let has_ended = !polled[0].revents().is_empty();
    let reason = if has_ended { ChildEnd::Itself } else { ChildEnd::Stopped };
    end(ended.as_fd(), reason);
    Ok((child.wait()?, reason))
}
