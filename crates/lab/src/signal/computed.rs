//! Results that are computed, not measured: `signal model`, `signal advise` and `signal fit` return them. The verb adds
//! them to its run.

use record::{Absence, Table, TableDisplay};
use serde_json::{Map, Value as Json};

/// The parts of a run that a computation contributes.
#[derive(Clone, Debug, Default)]
pub struct Computed {
    pub settings: Map<String, Json>,
    /// Warnings for the reader of the numbers.
    pub warnings: Vec<String>,
    pub absent: Vec<Absence>,
    /// The tables, the most important one first.
    pub tables: Vec<Table>,
}

/// Display hints: the title. The rows keep their order.
pub(super) fn titled(title: &str) -> TableDisplay {
    TableDisplay { title: title.to_owned(), ..TableDisplay::default() }
}
