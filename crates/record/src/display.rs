//! Display hints: how the crate `report` shows a table to people.
//!
//! The hints belong to the definition of the columns and are written into the manifest. A run of another version, with
//! other tables, is therefore shown as its author intended. Hints never change the content of a table: JSON, Parquet
//! and CSV have every column. Names of fields and variants are keys of the manifest.

use serde::{Deserialize, Serialize};

use crate::limits;

/// The priority of a column that has no hint.
pub const PRIORITY_DEFAULT: u8 = 50;

/// Maximum number of significant digits of a number.
pub(crate) const DIGITS_MAX: u8 = 15;

/// How a column is shown to people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnDisplay {
    /// The heading; when empty, the column's name without its unit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// 0: shown only on request (a detail). A narrow terminal leaves out the columns with the lowest priority first.
    pub priority: u8,
    /// The unit or notation of numbers.
    #[serde(skip_serializing_if = "Format::is_auto")]
    pub format: Format,
    /// Significant digits of a number. 0 stands for the default, three.
    #[serde(skip_serializing_if = "is_zero")]
    pub digits: u8,
    /// Other columns that are shown in the same cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combine: Option<Combine>,
    /// Name of a column of yes or no. If its value in a row is true, the number is below the detection limit. If the number
    /// has an interval in its cell, the upper end is then shown instead (`< 0.23`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below_limit: Option<String>,
    /// Whether a narrow terminal shows fewer columns rather than a part of this column's text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_uncut: bool,
    /// Whether a terminal wraps this column's text instead of cutting it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_wrapped: bool,
}

/// The unit or notation of a column's numbers. It does not change text and yes/no.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The suffix of the column's name decides. Times, rates and sizes have the unit that suits
    /// most of their rows; `_ratio` is in per cent.
    #[default]
    Auto,
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    /// A ratio that is a factor, not a part of a whole: `1.18`.
    Factor,
    /// A number that identifies something: no thousands separators.
    Identifier,
}

/// How other columns complete a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Combine {
    /// `1.28 ± 0.02`: the column that holds the half width of the interval.
    PlusMinus(String),
    /// `1.20 to 1.36`: the column that holds the upper end.
    UpTo(String),
    /// `≤ 714`: `sign` before the number if the row's column `flag` is true.
    Bound {
        /// A column of yes or no.
        flag: String,
        sign: String,
    },
    /// `36 virtio1-req.0`: the column `prefix` before the text if the row's column `when` holds the text
    /// `equals`, or a text that starts with `equals` and `_`: `irq_thread` is a kind of `irq`.
    Prefix { prefix: String, when: String, equals: String },
}

impl Combine {
    /// Names of the columns that complete the cell.
    #[must_use]
    pub fn columns(&self) -> Vec<&str> {
        match self {
            Combine::PlusMinus(column) | Combine::UpTo(column) => vec![column],
            Combine::Bound { flag, .. } => vec![flag],
            Combine::Prefix { prefix, when, .. } => vec![prefix, when],
        }
    }
}

/// How a table is shown to people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableDisplay {
    /// The line above the table; when empty, the table's `doc`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// A [`Template`] with the main result of a group: it is filled from the group's first row after sorting.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub headline: String,
    /// Columns whose values form groups of rows, each under a heading of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group_by: Vec<String>,
    /// Sorts the rows of a group by this column, largest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_by: Option<String>,
    /// The rows to show by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<RowFilter>,
    /// Maximum number of rows to show unless all are requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_max: Option<u64>,
    /// [`Template`]s that explain how the numbers were measured. A template is left out if the run lacks one of its
    /// values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Selects the rows to show by default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowFilter {
    pub column: String,
    /// The values of `column` in shown rows.
    pub keep: Keep,
    /// Describes the hidden rows, such as `per CPU` in `12 rows per CPU`.
    pub others: String,
}

/// The values that a [`RowFilter`] keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Rows that hold this text. All other rows are parts of these rows, such as the CPUs of a sum. CSV also leaves
    /// them out by default.
    Text(String),
    /// Rows that hold this truth value.
    Bool(bool),
    /// Rows that hold at least this number.
    AtLeast(f64),
}

impl RowFilter {
    /// Keeps the sums over all CPUs of a table that also has a row for each CPU.
    #[must_use]
    pub fn sums_over_cpus() -> RowFilter {
        let keep = Keep::Text("all".to_owned());
        RowFilter { column: "cpu".to_owned(), keep, others: "per CPU".to_owned() }
    }
}

/// Text with placeholders for values of a run: `{COLUMN}`, `{settings.KEY}` and `{observer.KEY}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template<'a>(pub Vec<Piece<'a>>);

/// A part of a [`Template`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    /// The row's value in the column of this name.
    Column(&'a str),
    /// The run's setting of this name.
    Setting(&'a str),
    /// The value of this name in the run's observer block.
    Observer(&'a str),
}

impl<'a> Template<'a> {
    /// Splits a template into its parts. Fails if a `{` has no `}` after it, or if the text between them is not a name.
    pub fn parse(text: &'a str) -> Result<Template<'a>, String> {
        let mut pieces = Vec::new();
        let mut remaining = text;
        while let Some((before, after)) = remaining.split_once('{') {
            let (name, after) =
                after.split_once('}').ok_or_else(|| format!("{text:?}: '{{' without '}}'"))?;
            pieces.extend((!before.is_empty()).then_some(Piece::Text(before)));
            let (key, piece) = match name.split_once('.') {
                None => (name, Piece::Column(name)),
                Some(("settings", key)) => (key, Piece::Setting(key)),
                Some(("observer", key)) => (key, Piece::Observer(key)),
                // An empty key is not a name: the check below refuses the template.
                Some(_) => ("", Piece::Text("")),
            };
            if !limits::is_name(key) {
                return Err(format!("{text:?}: {name:?} is no name"));
            }
            pieces.push(piece);
            remaining = after;
        }
        pieces.extend((!remaining.is_empty()).then_some(Piece::Text(remaining)));
        Ok(Template(pieces))
    }
}

impl Default for ColumnDisplay {
    fn default() -> Self {
        ColumnDisplay {
            title: String::new(),
            priority: PRIORITY_DEFAULT,
            format: Format::Auto,
            digits: 0,
            combine: None,
            below_limit: None,
            is_uncut: false,
            is_wrapped: false,
        }
    }
}

impl ColumnDisplay {
    pub(crate) fn is_default(&self) -> bool {
        *self == ColumnDisplay::default()
    }
}

impl TableDisplay {
    pub(crate) fn is_default(&self) -> bool {
        *self == TableDisplay::default()
    }
}

impl Format {
    fn is_auto(&self) -> bool {
        *self == Format::Auto
    }
}

fn is_zero(digits: &u8) -> bool {
    *digits == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_text_and_names() {
        let Template(pieces) = Template::parse("a {b} of {settings.c_d}{observer.e}.").unwrap();
        let expected = [
            Piece::Text("a "),
            Piece::Column("b"),
            Piece::Text(" of "),
            Piece::Setting("c_d"),
            Piece::Observer("e"),
            Piece::Text("."),
        ];
        assert_eq!(pieces, expected);
        assert_eq!(Template::parse("").unwrap().0, []);
        for wrong in ["{", "a {b", "{}", "{A}", "{host.kernel}", "{settings.}", "{{a}}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
