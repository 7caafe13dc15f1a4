//! Sleeps until a window ends. While a window of `handlers` is open, irqlab's process does nothing else.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::command::RunningCommand;
use super::outcome::WaitOutcome;
use super::stop::Stop;

/// The planned end of a window. A request to stop may end the window earlier.
#[derive(Clone, Debug)]
pub enum WindowEnd {
    /// The window ends after this time.
    Elapsed(Duration),
    /// The window ends when the command has ended.
    CommandEnds {
        /// The program and its arguments; not empty.
        words: Vec<String>,
        /// Whether the command's output goes to stderr, because the results go to stdout.
        to_stderr: bool,
    },
}

/// Sleeps in poll(2) until `deadline`, the command's end or a request to stop, whichever comes first. `None`: there is
/// no deadline, or no command.
pub fn wait(
    deadline: Option<Instant>,
    command: Option<&RunningCommand>,
    stop: &Stop,
) -> WaitOutcome {
    loop {
        let time_left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = time_left.and_then(|time_left| Timespec::try_from(time_left).ok());
        let mut polled = vec![PollFd::from_borrowed_fd(stop.descriptor(), PollFlags::IN)];
        let command_end = command.map(RunningCommand::descriptor);
        polled.extend(command_end.map(|pidfd| PollFd::from_borrowed_fd(pidfd, PollFlags::IN)));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(0) => return WaitOutcome::Completed,
            Ok(_) if !polled[0].revents().is_empty() => return WaitOutcome::Stopped,
            Ok(_) => return WaitOutcome::Completed,
            Err(_) => {} // a signal interrupted poll
        }
    }
}
