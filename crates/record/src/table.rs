//! Tables of results: named, typed columns and rows of values that may be absent. Experiments build them with
//! [`crate::Columns`]; names of serialised fields and variants are keys of the manifest.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::display::{ColumnDisplay, TableDisplay};
use crate::interval::IntervalColumns;

/// One cell. Absent is not zero: a value that could not be measured is [`Value::Absent`], and the run gives the reason
/// ([`crate::Absence`]).
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Absent,
    Bool(bool),
    /// A number that is never negative, such as a count or a time.
    Uint(u64),
    /// A difference of counts or times.
    Int(i64),
    /// A statistic: mean, rate, ratio. Always finite.
    Real(f64),
    /// A name or another text.
    Text(String),
}

/// The type of a column: the variant of [`Value`] that its cells hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Bool,
    Uint,
    Int,
    Real,
    Text,
}

/// A column: its name ends in its unit (`_ns`, `_cycles`, `_bytes`, `_ratio`, `_hz`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Name, as in JSON, CSV and Parquet.
    pub name: String,
    pub kind: Kind,
    /// A sentence about the meaning of the column and how it was measured.
    pub doc: String,
    /// The meaning of the column in a comparison of two runs.
    #[serde(default, skip_serializing_if = "Role::is_figure")]
    pub role: Role,
    /// Whether the column is the share of CPU time that a row took.
    #[serde(rename = "cpu_share", default, skip_serializing_if = "is_false")]
    pub is_cpu_share: bool,
    /// The columns that hold the confidence interval of this column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<IntervalColumns>,
    #[serde(default, skip_serializing_if = "ColumnDisplay::is_default")]
    pub display: ColumnDisplay,
}

/// The meaning of a column in a comparison of two runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A figure without a better direction.
    #[default]
    Figure,
    /// A part of the row's name. Rows of two runs with the same keys are compared.
    Key,
    /// A figure that is better when it is smaller.
    Cost,
    /// A figure that is better when it is larger.
    Benefit,
}

impl Role {
    fn is_figure(&self) -> bool {
        *self == Role::Figure
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A table. Every row has one value for each column, which is absent or has the column's kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Name: lower case letters, digits and underscores; the file name in the run directory.
    pub name: String,
    /// A sentence about the meaning of a row.
    pub doc: String,
    pub display: TableDisplay,
    /// Its columns, in order.
    pub columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
    /// Number of rows that were not read.
    unread: u64,
}

impl Value {
    /// The kind of this value; `None` when absent.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Value::Absent => None,
            Value::Bool(_) => Some(Kind::Bool),
            Value::Uint(_) => Some(Kind::Uint),
            Value::Int(_) => Some(Kind::Int),
            Value::Real(_) => Some(Kind::Real),
            Value::Text(_) => Some(Kind::Text),
        }
    }

    /// A statistic; a value that is not finite is absent.
    #[must_use]
    pub fn real(value: f64) -> Value {
        if value.is_finite() { Value::Real(value) } else { Value::Absent }
    }

    /// The number; absent, text and truth values have none.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Uint(number) => Some(*number as f64),
            Value::Int(number) => Some(*number as f64),
            Value::Real(number) => Some(*number),
            Value::Absent | Value::Bool(_) | Value::Text(_) => None,
        }
    }

    /// The value in JSON; `null` when absent.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Value::Absent => Json::Null,
            Value::Bool(value) => Json::from(*value),
            Value::Uint(value) => Json::from(*value),
            Value::Int(value) => Json::from(*value),
            Value::Real(value) => Json::from(*value),
            Value::Text(value) => Json::from(value.as_str()),
        }
    }
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Bool, Kind::Uint, Kind::Int, Kind::Real, Kind::Text];
}

impl fmt::Display for Kind {
    /// The name as in the manifest.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Bool => "bool",
            Kind::Uint => "uint",
            Kind::Int => "int",
            Kind::Real => "real",
            Kind::Text => "text",
        })
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Uint(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Text(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::real(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Absent, Into::into)
    }
}

impl Column {
    /// A figure without display hints.
    pub fn new(name: &str, kind: Kind, doc: &str) -> Self {
        Column {
            name: name.to_owned(),
            kind,
            doc: doc.to_owned(),
            role: Role::default(),
            is_cpu_share: false,
            interval: None,
            display: ColumnDisplay::default(),
        }
    }

    /// Marks the column as a part of the row's name.
    #[must_use]
    pub fn key(mut self) -> Self {
        self.role = Role::Key;
        self
    }

    /// Marks the column as a cost: smaller is better.
    #[must_use]
    pub fn cost(mut self) -> Self {
        self.role = Role::Cost;
        self
    }

    /// Marks the column as a benefit: larger is better.
    #[must_use]
    pub fn benefit(mut self) -> Self {
        self.role = Role::Benefit;
        self
    }
}

impl Table {
    /// An empty table without display hints.
    pub fn new(name: &str, doc: &str, columns: Vec<Column>) -> Self {
        let (name, doc) = (name.to_owned(), doc.to_owned());
        Table { name, doc, display: TableDisplay::default(), columns, rows: Vec::new(), unread: 0 }
    }

    /// A table with `rows` rows that were not read.
    pub(crate) fn outline(name: &str, doc: &str, columns: Vec<Column>, rows: u64) -> Self {
        Table { unread: rows, ..Table::new(name, doc, columns) }
    }

    /// Adds a row. Panics unless the row has one value for each column, absent or of the column's kind:
    /// any other row is an error of the program.
    pub fn push(&mut self, row: Vec<Value>) {
        assert_eq!(row.len(), self.columns.len(), "table {}: row width", self.name);
        for (value, column) in row.iter().zip(&self.columns) {
            let fits = value.kind().is_none_or(|kind| kind == column.kind);
            assert!(fits, "table {} column {}: {value:?}", self.name, column.name);
        }
        self.rows.push(row);
    }

    /// Adds columns before the first one, each with the same value in all rows. Panics if a
    /// value does not have the kind of its column.
    #[must_use]
    pub fn with_front(self, front: &[(Column, Value)]) -> Table {
        let columns = front.iter().map(|(column, _)| column.clone()).chain(self.columns).collect();
        let mut table = Table::new(&self.name, &self.doc, columns).displayed(self.display);
        table.unread = self.unread;
        for row in self.rows {
            table.push(front.iter().map(|(_, value)| value.clone()).chain(row).collect());
        }
        table
    }

    /// Adds the rows of a table with the same columns. Panics if the columns differ in number or kinds.
    pub fn append(&mut self, other: Table) {
        self.unread += other.unread;
        other.rows.into_iter().for_each(|row| self.push(row));
    }

    /// The number of rows, including rows that were not read.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.rows.len() as u64 + self.unread
    }

    /// The rows, in order. Empty if they were not read.
    #[must_use]
    pub fn rows(&self) -> &[Vec<Value>] {
        &self.rows
    }

    /// The position of the column with this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The value of `row` in the column with this name. `None` if the table has no such column.
    #[must_use]
    pub fn get<'a>(&self, row: &'a [Value], name: &str) -> Option<&'a Value> {
        row.get(self.column(name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_in_front_have_one_value_in_all_rows() {
        let column = |name: &str, kind| Column::new(name, kind, "");
        let mut table = Table::new("misses", "", vec![column("count", Kind::Uint)]);
        table.push(vec![3.into()]);
        table.push(vec![4.into()]);
        let front = |condition: &str| [(column("condition", Kind::Text).key(), condition.into())];
        let mut all = table.clone().with_front(&front("idle"));
        all.append(table.with_front(&front("busy")));
        let names: Vec<&str> = all.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["condition", "count"]);
        let row = |condition: &str, count: u64| vec![Value::from(condition), count.into()];
        assert_eq!(all.rows(), [row("idle", 3), row("idle", 4), row("busy", 3), row("busy", 4)]);
    }
}
