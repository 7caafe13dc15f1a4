//! A run: what was measured, where, how, and what could not be.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::table::Table;

/// The schema that this version writes.
pub const SCHEMA: &str = "irqlab.run/1";

/// Something that was asked for, or usual, and is not in the tables, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    /// Table that lacks it.
    pub table: String,
    /// The column or row that is absent, such as `instructions` or `net`.
    pub what: String,
    /// Why.
    pub reason: String,
    /// The line to type that makes it available, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// One run of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Schema it was written in, such as `irqlab.run/1`.
    pub schema: String,
    /// Name of the experiment, such as `handlers`.
    pub experiment: String,
    /// Bench it ran on: `live` or `sim`.
    pub bench: String,
    /// When it began, UTC, RFC 3339.
    pub started_utc: String,
    /// False when it was cut short (Ctrl-C); the tables then hold what was measured until then.
    pub complete: bool,
    /// The machine and its kernel.
    pub host: Map<String, Json>,
    /// Everything that was set, given or by default, and the versions.
    pub settings: Map<String, Json>,
    /// What the measurement itself cost, and what it lost.
    pub observer: Map<String, Json>,
    /// What a reader must know before using a number.
    pub warnings: Vec<String>,
    /// What is not there, and why.
    pub absent: Vec<Absence>,
    /// The results.
    pub tables: Vec<Table>,
}

impl Run {
    /// The table of that name.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }
}
