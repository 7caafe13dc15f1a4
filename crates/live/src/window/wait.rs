//! Sleeps until a window ends. While a window of `handlers` is open, irqlab's process does nothing else.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::command::RunningCommand;
use super::outcome::WaitOutcome;
use super::stop::Stop;

/// Time between two attempts to poll, if poll(2) fails: the limit of open files is below the number of descriptors, or a
/// filter of system calls refuses. Without a pause, the attempts would take a CPU's time from the window.
const RETRY: Duration = Duration::from_millis(10);

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
            Err(Errno::INTR) => {}
            Err(_) if time_left == Some(Duration::ZERO) => return WaitOutcome::Completed,
            Err(_) => std::thread::sleep(time_left.map_or(RETRY, |time_left| time_left.min(RETRY))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;
    use crate::window::HeldCommand;

    /// Not a test of its own: the next test starts this as a process, because the limit applies to all threads.
    #[test]
    #[ignore = "a process of the next test"]
    fn child_whose_poll_fails() {
        let stop = Stop::new().unwrap();
        let words = ["sleep".to_owned(), "1000".to_owned()];
        let command = HeldCommand::new(&words, true).unwrap().release().unwrap();
        command.wait_for_start().unwrap();
        let limits = getrlimit(Resource::Nofile);
        // poll(2) refuses more descriptors than this.
        setrlimit(Resource::Nofile, Rlimit { current: Some(1), ..limits }).unwrap();
        let deadline = Instant::now() + Duration::from_millis(50);
        let outcome = wait(Some(deadline), Some(&command), &stop);
        setrlimit(Resource::Nofile, limits).unwrap();
        assert_eq!(outcome, WaitOutcome::Completed);
        assert_eq!(command.end().unwrap(), None);
    }

    #[test]
    fn a_poll_that_fails_does_not_outlast_the_deadline() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["window::wait::tests::child_whose_poll_fails", "--exact", "--ignored"]);
        let mut child = child.spawn().unwrap();
        let give_up = Instant::now() + Duration::from_secs(20);
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > give_up => break None,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        if status.is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }
}
