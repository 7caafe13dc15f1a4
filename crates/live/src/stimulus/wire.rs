//! The protocol between the measuring process and the stimulus process: one JSON argument down, lines of
//! JSON up.

use lab::experiment::BenchError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::running::Report;
use super::settings::{LoadSettings, StimulusSettings};

/// The argument of the hidden verb.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HelperRequest {
    /// The measuring process. If it is no longer the parent, it has died.
    pub parent_pid: u32,
    /// What to run.
    pub job: Job,
}

/// What a stimulus process runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Job {
    Source(StimulusSettings),
    Load(LoadSettings),
}

/// A line from the stimulus process: first `Ready` or `Error`, last `Report` or `Error`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    Ready { facts: Map<String, Value> },
    Report(Report),
    Error(WorkerError),
}

/// Why a stimulus cannot start or continue, as its process sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkerError {
    /// The machine or the rights of this process do not allow it.
    Unavailable { reason: String, remedy: String },
    /// Anything else.
    Failed { message: String },
}

impl WorkerError {
    pub fn unavailable(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        WorkerError::Unavailable { reason: reason.into(), remedy: remedy.into() }
    }

    /// The reason and the remedy, which may be empty.
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

/// Settings in effect, as [`Running::facts`](super::Running::facts) gives them.
pub(super) type Facts = Map<String, Value>;

/// Builds [`Facts`] from pairs.
macro_rules! facts {
    ($($key:literal : $value:expr),* $(,)?) => {{
        let mut map = serde_json::Map::new();
        $(map.insert($key.to_owned(), serde_json::json!($value));)*
        map
    }};
}
pub(super) use facts;
