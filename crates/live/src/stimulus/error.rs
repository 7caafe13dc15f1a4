//! What can go wrong with a stimulus.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a source or a load does not run, or stopped running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StimulusError {
    /// This machine, or these rights, cannot raise the source. The rest of an experiment can go
    /// on; the row is absent with this reason.
    #[error("{reason}")]
    Unavailable {
        /// What stands in the way.
        reason: String,
        /// What would unlock it, as a sentence or a command line.
        remedy: String,
    },
    /// Settings that cannot be meant (no CPU, a CPU number out of range, an absurd interval).
    #[error("{0}")]
    Invalid(String),
    /// The helper program could not be started.
    #[error("cannot start the stimulus helper {program}: {source}")]
    Spawn {
        /// The program that was to be executed.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The stimulus failed in a way that is not a property of the machine.
    #[error("stimulus {name}: {message}")]
    Failed {
        /// Source and rate.
        name: String,
        /// What its process said.
        message: String,
    },
    /// The stimulus process ended without being asked.
    #[error("stimulus {name} ended on its own: {status}")]
    Died {
        /// Source and rate.
        name: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// The stimulus process did not answer in time, and was killed.
    #[error("stimulus {name} did not answer within {timeout:?}")]
    Timeout {
        /// Source and rate.
        name: String,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// Reading from or waiting for the stimulus process failed.
    #[error("stimulus {name}: {source}")]
    Channel {
        /// Source and rate.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}
