//! What the measuring process and the stimulus process say to each other: one JSON argument down,
//! lines of JSON up.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::running::Report;
use super::settings::{LoadSettings, StimulusSettings};

/// The argument of the hidden verb.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// Process that must be our parent; if it isn't any more, it died before we looked.
    pub parent_pid: u32,
    /// What to do.
    pub job: Job,
}

/// What a stimulus process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Job {
    Source(StimulusSettings),
    Load(LoadSettings),
}

/// A line from the stimulus process: first `Ready` or a trouble, last `Report` or a trouble.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    Ready { facts: Map<String, Value> },
    Report(Report),
    Trouble(Trouble),
}

/// Why a source cannot start or go on, as seen inside its process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Trouble {
    /// A property of the machine or of our rights.
    Unavailable { reason: String, remedy: String },
    /// Anything else.
    Failed { message: String },
}

impl Trouble {
    pub fn unavailable(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Trouble::Unavailable { reason: reason.into(), remedy: remedy.into() }
    }

    /// The reason, and what would help, which may be nothing.
    pub fn into_words(self) -> (String, String) {
        match self {
            Trouble::Unavailable { reason, remedy } => (reason, remedy),
            Trouble::Failed { message } => (message, String::new()),
        }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Trouble::Failed { message: message.into() }
    }
}

/// Settings in force, as [`Running::facts`](super::Running::facts) gives them.
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
