//! What the parts of a reproduction give, each on machines of its own, and the run of all together.

use anyhow::anyhow;
use record::{Absence, Run, SCHEMA, Table, Timestamp};
use serde_json::{Map, Value as Json, json};

use crate::console;
use crate::run::STOPPED;

/// The results of the parts that were measured so far; those of `R` are compared with the paper.
pub struct Gathered<R> {
    /// What the tables of the paper are made from.
    pub runs: Vec<R>,
    /// Tables of the parts themselves.
    pub tables: Vec<Table>,
    /// What could not be measured.
    pub absent: Vec<Absence>,
    /// Facts of the host.
    pub host: Map<String, Json>,
    warnings: Vec<String>,
    machines: Map<String, Json>,
    complete: bool,
    /// Why the first part that failed did.
    failure: Option<anyhow::Error>,
}

/// What a reproduction adds to its parts.
pub struct Reproduction<'a> {
    /// The experiment that measured them.
    pub experiment: &'a str,
    /// Settings of all parts, as an object.
    pub settings: Json,
    /// In which respects the machine and its programs are others than the paper's; warnings of the run.
    pub cautions: &'a [&'a str],
    /// The paper's tables and findings, which come before the parts' own.
    pub tables: Vec<Table>,
    pub started: Timestamp,
}

impl<R> Default for Gathered<R> {
    fn default() -> Gathered<R> {
        Gathered {
            runs: Vec::new(),
            tables: Vec::new(),
            absent: Vec::new(),
            host: Map::new(),
            warnings: Vec::new(),
            machines: Map::new(),
            complete: true,
            failure: None,
        }
    }
}

impl<R> Gathered<R> {
    /// Describes the machine of a part.
    pub fn machine(&mut self, part: &str, description: Json) {
        self.machines.insert(part.to_owned(), description);
    }

    /// Adds warnings of a part, each once.
    pub fn warn(&mut self, part: &str, warnings: impl IntoIterator<Item = String>) {
        for warning in warnings {
            let words = format!("{part}: {warning}");
            if !self.warnings.contains(&words) {
                self.warnings.push(words);
            }
        }
    }

    /// A part failed; the results of the others are kept. `table` lacks its rows.
    pub fn fail(&mut self, table: &str, part: &str, error: anyhow::Error) {
        let reason = format!("{error:#}");
        console::warn(&format!("{part}: {reason}"));
        let (table, what) = (table.to_owned(), part.to_owned());
        self.absent.push(Absence { table, what, reason, remedy: None });
        self.incomplete();
        self.failure.get_or_insert(error);
    }

    /// A part was not measured, or not to its end.
    pub fn incomplete(&mut self) {
        self.complete = false;
    }

    /// Where nothing was measured: why the first part failed, or that the user stopped all.
    pub fn into_failure(self) -> anyhow::Error {
        self.failure.unwrap_or_else(|| anyhow!(STOPPED))
    }

    /// The run of all parts. Tables without rows are left out.
    pub fn into_run(self, of: Reproduction<'_>) -> Run {
        let mut tables = of.tables;
        tables.extend(self.tables);
        tables.retain(|table| !table.rows().is_empty());
        let mut settings = json!({ "version": env!("CARGO_PKG_VERSION") });
        if let (Some(all), Json::Object(own)) = (settings.as_object_mut(), of.settings) {
            all.extend(own);
            all.insert("guests".to_owned(), Json::Object(self.machines));
        }
        let mut warnings: Vec<String> = of.cautions.iter().map(|one| (*one).to_owned()).collect();
        warnings.extend(self.warnings);
        Run {
            schema: SCHEMA.to_owned(),
            experiment: of.experiment.to_owned(),
            bench: "sim".to_owned(),
            started_utc: of.started.to_string(),
            complete: self.complete,
            host: self.host,
            settings: settings.as_object().cloned().unwrap_or_default(),
            observer: Map::new(),
            warnings,
            absent: self.absent,
            tables,
        }
    }
}
