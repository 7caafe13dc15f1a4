//! Collects the results of the simulated machines of a reproduction (its parts), and makes one run of them. The
//! reproductions of footprint-1999, handlers-ia32 and simos-1995 use it.

use anyhow::anyhow;
use lab::experiment::{Measured, missing_warning};
use record::{Absence, Column, Kind, Run, SCHEMA, Table, Timestamp, Value, keys};
use serde_json::{Map, Value as Json, json};

use crate::console;
use crate::run::{STOPPED, command_line, is_time_limit};

/// The results of the parts that were measured so far.
pub struct Gathered<R> {
    /// Results that are compared with the paper's tables.
    pub runs: Vec<R>,
    /// Tables of the parts, which are recorded after the paper's tables.
    pub tables: Vec<Table>,
    /// Parts that could not be measured, with reasons.
    pub absent: Vec<Absence>,
    /// Facts about the simulated machine.
    pub host: Map<String, Json>,
    warnings: Vec<String>,
    machines: Map<String, Json>,
    complete: bool,
    /// Error of the first part that failed.
    failure: Option<anyhow::Error>,
    /// The first part that reached a time limit, with the limit.
    time_limit: Option<String>,
}

/// The contents of the run that do not come from its parts.
pub struct Reproduction<'a> {
    /// The experiment that measured the parts.
    pub experiment: &'a str,
    /// Settings of all parts, as an object.
    pub settings: Json,
    /// Warnings of the run: differences between the simulated machine and the paper's machine.
    pub cautions: &'a [&'a str],
    /// The paper's tables and findings, which are recorded before the tables of the parts.
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
            time_limit: None,
        }
    }
}

/// A key column for rows of several parts, and its cell for the rows of `part`.
pub fn key_cell(name: &str, doc: &str, part: &str) -> (Column, Value) {
    (Column::new(name, Kind::Text, doc).priority(101).key(), part.into())
}

/// The key column `model`, and its cell for the rows of `model`.
pub fn model_cell(model: &str) -> (Column, Value) {
    key_cell("model", "Model of the simulated machine.", model)
}

impl<R> Gathered<R> {
    /// Appends the rows of `part`, with the cells of `key` in front of each, to the table with the same name.
    pub fn add_rows(&mut self, key: &[(Column, Value)], part: Table) {
        let part = part.with_front(key);
        match self.tables.iter_mut().find(|table| table.name == part.name) {
            Some(table) => table.append(part),
            None => self.tables.push(part),
        }
    }

    /// Records the description of a part's machine. The settings of the run list it.
    pub fn machine(&mut self, part: &str, description: Json) {
        self.machines.insert(part.to_owned(), description);
    }

    /// Adds those warnings of a part that were not added before.
    pub fn warn(&mut self, part: &str, warnings: impl IntoIterator<Item = String>) {
        for warning in warnings {
            let text = format!("{part}: {warning}");
            if !self.warnings.contains(&text) {
                self.warnings.push(text);
            }
        }
    }

    /// Records the failure of a part. Its rows are missing in `table`; the results of other parts stay.
    pub fn fail(&mut self, table: &str, part: &str, error: anyhow::Error) {
        let reason = format!("{error:#}");
        console::warn(&format!("{part}: {reason}"));
        if is_time_limit(&error) {
            self.time_limit.get_or_insert_with(|| format!("{part}: {reason}"));
        }
        self.absent.push(Absence::new(table, part, reason));
        self.incomplete();
        self.failure.get_or_insert(error);
    }

    /// Records that a part ended before its plan was complete. Names the missing steps, and the limit that ended the
    /// part.
    pub fn add_early_end<S>(&mut self, part: &str, measured: &Measured<S>) {
        if measured.complete {
            return;
        }
        self.incomplete();
        self.warn(part, missing_warning(&measured.missing));
        if let Some(limit) = &measured.time_limit {
            self.time_limit.get_or_insert_with(|| format!("{part}: {limit}"));
        }
    }

    /// Marks the run as incomplete, because a part was not measured completely.
    pub fn incomplete(&mut self) {
        self.complete = false;
    }

    /// The error of a reproduction without results: the error of the first failed part, or else that the user stopped
    /// it.
    pub fn into_failure(self) -> anyhow::Error {
        self.failure.unwrap_or_else(|| anyhow!(STOPPED))
    }

    /// Makes the run of all parts. Leaves out tables without rows.
    pub fn into_run(self, reproduction: Reproduction<'_>) -> Run {
        let mut tables = reproduction.tables;
        tables.extend(self.tables);
        tables.retain(|table| !table.rows().is_empty());
        let mut settings = json!({ "version": crate::VERSION });
        if let (Some(all), Json::Object(more)) = (settings.as_object_mut(), reproduction.settings) {
            all.extend(more);
            all.extend(command_line());
            all.insert("guests".to_owned(), Json::Object(self.machines));
            if let Some(limit) = self.time_limit {
                all.insert(keys::TIME_LIMIT.to_owned(), limit.into());
            }
        }
        let mut warnings: Vec<String> =
            reproduction.cautions.iter().map(|caution| (*caution).to_owned()).collect();
        warnings.extend(self.warnings);
        Run {
            schema: SCHEMA.to_owned(),
            experiment: reproduction.experiment.to_owned(),
            bench: "sim".to_owned(),
            started_utc: reproduction.started.to_string(),
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

#[cfg(test)]
mod tests {
    use lab::experiment::BenchError;

    use super::*;

    fn run_of(all: Gathered<()>) -> Run {
        let started = record::now();
        let settings = json!({});
        let (experiment, cautions, tables) = ("noise", &[][..], Vec::new());
        all.into_run(Reproduction { experiment, settings, cautions, tables, started })
    }

    #[test]
    fn a_part_that_ended_early_makes_the_run_incomplete() {
        let mut all = Gathered::default();
        let mut measured = Measured::new(());
        all.add_early_end("zen3", &measured);
        measured.left_out("idle/high/disk");
        measured.time_limit = Some("the machine ran for 1h (--limit)".to_owned());
        all.add_early_end("t1", &measured);
        let run = run_of(all);
        assert!(!run.complete);
        assert_eq!(run.warnings, ["t1: missing, because the run ended early: idle/high/disk"]);
        assert_eq!(run.settings[keys::TIME_LIMIT], "t1: the machine ran for 1h (--limit)");
    }

    #[test]
    fn a_part_that_fails_at_a_limit_is_told_from_other_failures() {
        let mut all = Gathered::default();
        all.fail("series", "zen3", anyhow!("no machine"));
        assert!(!run_of(all).settings.contains_key(keys::TIME_LIMIT));
        let mut all = Gathered::default();
        all.fail("series", "zen3", BenchError::TimeLimit("1h are over".to_owned()).into());
        let run = run_of(all);
        assert_eq!(
            (run.complete, &run.settings[keys::TIME_LIMIT]),
            (false, &"zen3: 1h are over".into())
        );
    }
}
