//! Errors of a stimulus: as its process reports them ([`WorkerError`]), and as the measuring process sees them
//! ([`StimulusError`]).

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use lab::experiment::BenchError;
use serde::{Deserialize, Serialize};

/// Why a stimulus or a load does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StimulusError {
    /// The machine, or the rights of this process, do not allow the stimulus. The rest of an
    /// experiment can continue, and the row is absent for this reason.
    #[error("{reason}")]
    Unavailable {
        /// Why it is unavailable.
        reason: String,
        /// The remedy, as a sentence or a command line; may be empty.
        remedy: String,
    },
    /// Invalid settings (no CPU, a CPU number out of range, an interval out of range).
    #[error("{0}")]
    Invalid(String),
    /// The helper program could not be started.
    #[error("starting the stimulus helper {program} failed: {source}")]
    Spawn { program: String, source: io::Error },
    /// The stimulus failed in a way that is not a property of the machine.
    #[error("stimulus {name} failed: {message}")]
    Failed {
        name: String,
        /// The message of the stimulus process.
        message: String,
    },
    /// The stimulus process ended without a stop.
    #[error("stimulus {name} ended early: {status}")]
    Died { name: String, status: ExitStatus },
    /// The stimulus process did not answer in time, and was killed.
    #[error("stimulus {name} did not answer within {timeout:?}")]
    Timeout {
        name: String,
        /// The time limit that passed.
        timeout: Duration,
    },
    /// Reading from or waiting for the stimulus process failed.
    #[error("talking to stimulus {name} failed: {source}")]
    Channel { name: String, source: io::Error },
}

impl From<StimulusError> for BenchError {
    fn from(error: StimulusError) -> BenchError {
        match error {
            StimulusError::Unavailable { reason, remedy } => {
                BenchError::Unavailable { reason, remedy: (!remedy.is_empty()).then_some(remedy) }
            }
            other => BenchError::Failed(other.to_string()),
        }
    }
}

/// Why a stimulus cannot start or continue, as the stimulus process reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkerError {
    /// The machine or the rights of this process do not allow it.
    Unavailable { reason: String, remedy: String },
    /// The machine allows it, but it failed.
    Failed { message: String },
}

impl WorkerError {
    pub fn unavailable(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        WorkerError::Unavailable { reason: reason.into(), remedy: remedy.into() }
    }

    /// The reason and the remedy. The remedy may be empty.
    pub fn into_parts(self) -> (String, String) {
        match self {
            WorkerError::Unavailable { reason, remedy } => (reason, remedy),
            WorkerError::Failed { message } => (message, String::new()),
        }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        WorkerError::Failed { message: message.into() }
    }
}

impl From<BenchError> for WorkerError {
    fn from(error: BenchError) -> WorkerError {
        match error {
            BenchError::Unavailable { reason, remedy }
            | BenchError::NothingMeasurable { reason, remedy } => {
                WorkerError::unavailable(reason, remedy.unwrap_or_default())
            }
            BenchError::Failed(message) | BenchError::TimeLimit(message) => {
                WorkerError::Failed { message }
            }
        }
    }
}
