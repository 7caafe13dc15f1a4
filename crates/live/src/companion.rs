//! The user's command that runs concurrently with the measuring loops or threads of `noise` and `wakeup`. Its process
//! waits before it executes the program, until the first loop runs on every CPU.

use std::process::ExitStatus;

use lab::experiment::BenchError;

use crate::clock::monotonic_ns;
use crate::window::{HeldCommand, RunningCommand};

/// The command, from the start of the waiting process to the command's end.
pub struct Companion {
    state: State,
    /// Time of the release, ns of the process's CLOCK_MONOTONIC; `None` while the command waits.
    released_ns: Option<u64>,
}

enum State {
    Held(HeldCommand),
    Running(RunningCommand),
    Ended(ExitStatus),
    Failed(BenchError),
}

impl Companion {
    /// Starts the process of the command, which waits for its release.
    ///
    /// Fails if the program is not found, or no process can be started.
    pub fn hold(words: &[String], to_stderr: bool) -> Result<Companion, BenchError> {
        let state = State::Held(HeldCommand::new(words, to_stderr)?);
        Ok(Companion { state, released_ns: None })
    }

    /// Whether the command waits.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Held(_))
    }

    /// Time of the release, ns of the process's CLOCK_MONOTONIC; `None` while the command waits.
    #[must_use]
    pub fn released_ns(&self) -> Option<u64> {
        self.released_ns
    }

    /// Starts the command if it waits. [`Companion::status`] returns an error of the start.
    #[must_use]
    pub fn released(self) -> Companion {
        let State::Held(held) = self.state else { return self };
        let released_ns = Some(monotonic_ns());
        let started = held.release().and_then(|running| {
            running.wait_for_start()?;
            Ok(running)
        });
        Companion { state: started.map_or_else(State::Failed, State::Running), released_ns }
    }

    /// The command's process, while it runs.
    #[must_use]
    pub fn running(&self) -> Option<&RunningCommand> {
        match &self.state {
            State::Running(running) => Some(running),
            State::Held(_) | State::Ended(_) | State::Failed(_) => None,
        }
    }

    /// The exit status, if the command has ended by itself.
    ///
    /// Fails if the program could not be executed, or the kernel does not report the status.
    pub fn status(&mut self) -> Result<Option<ExitStatus>, BenchError> {
        let status = match &mut self.state {
            State::Held(_) => Ok(None),
            State::Running(running) => running.status(),
            State::Ended(status) => Ok(Some(*status)),
            State::Failed(error) => Err(error.clone()),
        };
        match &status {
            Ok(Some(status)) => self.state = State::Ended(*status),
            Ok(None) => {}
            Err(error) => self.state = State::Failed(error.clone()),
        }
        status
    }

    /// Ends the command. Returns its status if it had ended by itself, and `None` if it still ran.
    ///
    /// Fails if the program could not be executed, or the kernel does not report the status.
    pub fn end(self) -> Result<Option<ExitStatus>, BenchError> {
        match self.state {
            State::Held(_) => Ok(None),
            State::Running(running) => running.end(),
            State::Ended(status) => Ok(Some(status)),
            State::Failed(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_runs_and_ends() {
        let words_of = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let mut companion = Companion::hold(&words_of("sleep 1000"), true).unwrap();
        assert!(companion.is_held() && companion.status().unwrap().is_none());
        companion = companion.released();
        assert!(!companion.is_held() && companion.released_ns().is_some());
        assert!(companion.status().unwrap().is_none());
        assert_eq!(companion.end().unwrap(), None);

        let mut companion = Companion::hold(&words_of("false"), true).unwrap().released();
        while companion.status().unwrap().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(companion.end().unwrap().and_then(|status| status.code()), Some(1));
        assert!(Companion::hold(&words_of("/no/such/program"), true).is_err());
    }
}
