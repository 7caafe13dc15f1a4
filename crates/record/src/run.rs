//! A run: the results of an experiment, how and where they were measured, and absences with
//! their reasons. The keys in JSON are public.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::table::{Table, Value};

/// The schema that this version writes.
pub const SCHEMA: &str = "irqlab.run/2";

/// A requested or usual figure that is absent from the tables, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    pub table: String,
    /// The column or row that is absent, such as `instructions` or `net`.
    pub what: String,
    pub reason: String,
    /// The command line that makes the figure available, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Absence {
    /// The absence of the column or row `what` of `table`, without a remedy.
    pub fn new(
        table: impl Into<String>,
        what: impl Into<String>,
        reason: impl Into<String>,
    ) -> Absence {
        Absence { table: table.into(), what: what.into(), reason: reason.into(), remedy: None }
    }

    /// Names the command line that makes the figure available, if there is one.
    #[must_use]
    pub fn with_remedy(self, remedy: Option<impl Into<String>>) -> Absence {
        Absence { remedy: remedy.map(Into::into), ..self }
    }
}

/// One run of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Schema of the run directory, such as `irqlab.run/2`.
    pub schema: String,
    /// Name of the experiment, such as `handlers`.
    pub experiment: String,
    /// Bench of the experiment: `live` or `sim`; `model` if the run was computed.
    pub bench: String,
    /// Start time, UTC, RFC 3339.
    pub started_utc: String,
    /// False if a request to stop (Ctrl-C) or a limit ended the run early. The
    /// tables then have the results until that time.
    pub complete: bool,
    /// The machine and its kernel.
    pub host: Map<String, Json>,
    /// All settings, including settings with default values, and the versions.
    pub settings: Map<String, Json>,
    /// Overhead and lost events of the measurement itself.
    pub observer: Map<String, Json>,
    /// Each is a sentence that a reader must know before using a number.
    pub warnings: Vec<String>,
    pub absent: Vec<Absence>,
    pub tables: Vec<Table>,
}

impl Run {
    /// A copy of the run with other tables.
    #[must_use]
    pub fn with_tables(&self, tables: Vec<Table>) -> Run {
        Run {
            schema: self.schema.clone(),
            experiment: self.experiment.clone(),
            bench: self.bench.clone(),
            started_utc: self.started_utc.clone(),
            complete: self.complete,
            host: self.host.clone(),
            settings: self.settings.clone(),
            observer: self.observer.clone(),
            warnings: self.warnings.clone(),
            absent: self.absent.clone(),
            tables,
        }
    }

    #[must_use]
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// The run as one JSON document; every row has every column, `null` where absent.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let tables = self.tables.iter().map(|table| (table.name.clone(), rows_to_json(table)));
        json!({
            "schema": self.schema,
            "experiment": self.experiment,
            "bench": self.bench,
            "started_utc": self.started_utc,
            "complete": self.complete,
            "host": self.host,
            "settings": self.settings,
            "observer": self.observer,
            "warnings": self.warnings,
            "absent": self.absent,
            "tables": tables.collect::<Map<_, _>>(),
        })
    }
}

fn rows_to_json(table: &Table) -> Json {
    let row = |row: &Vec<Value>| {
        let cells = table.columns.iter().zip(row);
        Json::Object(cells.map(|(column, value)| (column.name.clone(), value.to_json())).collect())
    };
    table.rows().iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Column, Kind};

    #[test]
    fn json_has_every_column_in_order_and_null_for_what_is_absent() {
        let columns = vec![
            Column::new("name", Kind::Text, "Name."),
            Column::new("count", Kind::Uint, "Count."),
            Column::new("mean_ns", Kind::Real, "Mean."),
            Column::new("added", Kind::Bool, "Whether."),
        ];
        let mut table = Table::new("handlers", "A row per handler.", columns);
        let real = Value::Real(1.5);
        table.push(vec!["timer".into(), u64::MAX.into(), real, true.into()]);
        table.push(vec!["disk".into(), Value::Absent, Value::Absent, Value::Absent]);
        let run = Run {
            schema: SCHEMA.to_owned(),
            experiment: "handlers".to_owned(),
            bench: "live".to_owned(),
            started_utc: "2026-11-21T07:50:41Z".to_owned(),
            complete: true,
            host: Map::new(),
            settings: Map::from_iter([("z".to_owned(), json!(1)), ("a".to_owned(), json!(2))]),
            observer: Map::new(),
            warnings: vec!["careful".to_owned()],
            absent: vec![Absence {
                table: "handlers".to_owned(),
                what: "net".to_owned(),
                reason: "no veth".to_owned(),
                remedy: None,
            }],
            tables: vec![table],
        };
        let expected = concat!(
            r#"{"schema":"irqlab.run/2","experiment":"handlers","bench":"live","#,
            r#""started_utc":"2026-11-21T07:50:41Z","complete":true,"host":{},"#,
            r#""settings":{"z":1,"a":2},"observer":{},"warnings":["careful"],"#,
            r#""absent":[{"table":"handlers","what":"net","reason":"no veth"}],"#,
            r#""tables":{"handlers":["#,
            r#"{"name":"timer","count":18446744073709551615,"mean_ns":1.5,"added":true},"#,
            r#"{"name":"disk","count":null,"mean_ns":null,"added":null}]}}"#,
        );
        assert_eq!(run.to_json().to_string(), expected);
    }
}
