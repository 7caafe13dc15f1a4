//! Display hints: how a table looks to people.
//!
//! The hints belong to the definition of the columns and are written into the manifest, so that a
//! run made elsewhere, by a version with other tables, still displays as its author meant. They
//! never change what a table holds: JSON, Parquet and CSV have every column.

use serde::{Deserialize, Serialize};

use crate::limits::{self, GROUP_COLUMNS_MAX, NOTES_MAX, TEMPLATE_BYTES_MAX, TITLE_BYTES_MAX};
use crate::table::{Column, Table, Value};

/// The priority of a column that has no hint.
pub const PRIORITY_DEFAULT: u8 = 50;

/// Maximum number of significant digits of a number.
const DIGITS_MAX: u8 = 15;

/// How people see a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnDisplay {
    /// The heading; when empty, the column's name without its unit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// 0: shown only on request (a detail). Otherwise, on a narrow terminal, the columns of least
    /// priority are left out first.
    pub priority: u8,
    /// In which unit numbers are shown.
    #[serde(skip_serializing_if = "Format::is_auto")]
    pub format: Format,
    /// Significant digits of a number; 0: three.
    #[serde(skip_serializing_if = "is_zero")]
    pub digits: u8,
    /// Other columns that are part of the same cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combine: Option<Combine>,
}

/// In which unit a column's numbers are shown. Text and yes/no are shown as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The suffix of the column's name decides: times, rates and sizes have the unit that suits
    /// most of their rows, `_ratio` is in per cent.
    #[default]
    Auto,
    /// A time, in nanoseconds.
    Nanoseconds,
    /// A time, in microseconds.
    Microseconds,
    /// A time, in milliseconds.
    Milliseconds,
    /// A time, in seconds.
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
    /// `≤ 714`: `sign` before the number in rows in which the column `flag` is true.
    Bound {
        /// A column of yes or no.
        flag: String,
        /// What is written before the number.
        sign: String,
    },
    /// `36 virtio1-req.0`: the column `prefix` before the text in rows in which the column `when`
    /// holds the text `equals`.
    Prefix {
        /// The column that is written first.
        prefix: String,
        /// The column that decides.
        when: String,
        /// What it must hold.
        equals: String,
    },
}

impl Combine {
    /// The other columns.
    #[must_use]
    pub fn columns(&self) -> Vec<&str> {
        match self {
            Combine::PlusMinus(column) | Combine::UpTo(column) => vec![column],
            Combine::Bound { flag, .. } => vec![flag],
            Combine::Prefix { prefix, when, .. } => vec![prefix, when],
        }
    }
}

/// How people see a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableDisplay {
    /// What the table shows, in the line above it; when empty, the table's `doc`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// A [`Template`], filled from the first row of each group (after sorting): the answer to the
    /// question that a reader asks first.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub headline: String,
    /// Columns whose values form groups of rows, each under a heading of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group_by: Vec<String>,
    /// The column by which the rows of a group are sorted, largest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_by: Option<String>,
    /// The rows to show unless all are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<RowFilter>,
    /// Maximum number of rows to show unless all are requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_max: Option<u64>,
    /// [`Template`]s that say how the numbers were measured; one with a value that the run does
    /// not have is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Which rows to show unless all are asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowFilter {
    /// The column that decides.
    pub column: String,
    /// What it must hold.
    pub keep: Keep,
    /// What the other rows are, as in `12 rows per CPU`.
    pub others: String,
}

/// What a [`RowFilter`] keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Rows that hold this text. The other rows are parts of these (the CPUs of a sum): CSV, too,
    /// leaves them out by default.
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

impl RowFilter {
    /// Whether it keeps a row of `table`. A number that is not known is not below a limit.
    #[must_use]
    pub fn keeps(&self, table: &Table, row: &[Value]) -> bool {
        match (&self.keep, table.get(row, &self.column)) {
            (Keep::Text(wanted), Some(Value::Text(text))) => wanted == text,
            (Keep::Bool(wanted), Some(Value::Bool(value))) => wanted == value,
            (Keep::AtLeast(least), value) => {
                value.and_then(Value::number).is_none_or(|number| number >= *least)
            }
            (Keep::Text(_) | Keep::Bool(_), _) => false,
        }
    }
}

/// Text with the values of a run in it: `{COLUMN}`, `{settings.KEY}` and `{observer.KEY}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template<'a>(pub Vec<Piece<'a>>);

/// A part of a [`Template`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text as it is.
    Text(&'a str),
    /// The value of a row in that column.
    Column(&'a str),
    /// The run's setting of that name.
    Setting(&'a str),
    /// What the run's observer block has under that name.
    Observer(&'a str),
}

impl<'a> Template<'a> {
    /// The parts of a template, or what is wrong with it.
    ///
    /// # Errors
    /// When a brace has no counterpart, or what is between braces is no name.
    pub fn parse(text: &'a str) -> Result<Template<'a>, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) =
                after.split_once('}').ok_or_else(|| format!("{text:?}: '{{' without '}}'"))?;
            pieces.extend((!before.is_empty()).then_some(Piece::Text(before)));
            let piece = match name.split_once('.') {
                None => (name, Piece::Column(name)),
                Some(("settings", key)) => (key, Piece::Setting(key)),
                Some(("observer", key)) => (key, Piece::Observer(key)),
                Some(_) => ("", Piece::Text("")),
            };
            if !limits::is_name(piece.0) {
                return Err(format!("{text:?}: {name:?} is no name"));
            }
            pieces.push(piece.1);
            rest = after;
        }
        pieces.extend((!rest.is_empty()).then_some(Piece::Text(rest)));
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

/// The builder of a column's hints: `Column::new(...).title("p99").priority(80)`.
impl Column {
    /// Sets the heading.
    #[must_use]
    pub fn title(mut self, title: &str) -> Column {
        self.display.title = title.to_owned();
        self
    }

    /// Sets how long the column stays as the terminal gets narrower; 1 to 255.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Column {
        self.display.priority = priority;
        self
    }

    /// Shows the column on request only.
    #[must_use]
    pub fn detail(self) -> Column {
        self.priority(0)
    }

    /// Sets the unit in which numbers are shown.
    #[must_use]
    pub fn format(mut self, format: Format) -> Column {
        self.display.format = format;
        self
    }

    /// Sets the number of significant digits.
    #[must_use]
    pub fn digits(mut self, digits: u8) -> Column {
        self.display.digits = digits;
        self
    }

    /// Shows the half width of an interval in the same cell.
    #[must_use]
    pub fn plus_minus(mut self, half_width: &str) -> Column {
        self.display.combine = Some(Combine::PlusMinus(half_width.to_owned()));
        self
    }

    /// Shows this column and the upper end of an interval in one cell.
    #[must_use]
    pub fn up_to(mut self, high: &str) -> Column {
        self.display.combine = Some(Combine::UpTo(high.to_owned()));
        self
    }

    /// Writes `sign` before the number where the column `flag` is true.
    #[must_use]
    pub fn bound(mut self, flag: &str, sign: &str) -> Column {
        let (flag, sign) = (flag.to_owned(), sign.to_owned());
        self.display.combine = Some(Combine::Bound { flag, sign });
        self
    }

    /// Writes the column `prefix` before the text where the column `when` holds `equals`.
    #[must_use]
    pub fn prefixed(mut self, prefix: &str, when: &str, equals: &str) -> Column {
        let [prefix, when, equals] = [prefix, when, equals].map(str::to_owned);
        self.display.combine = Some(Combine::Prefix { prefix, when, equals });
        self
    }
}

impl Table {
    /// The same table with these hints.
    #[must_use]
    pub fn displayed(mut self, display: TableDisplay) -> Table {
        self.display = display;
        self
    }

    /// Checks the hints of the table and its columns, as writing the run does: for the tests of
    /// definitions.
    ///
    /// # Errors
    /// When a hint is too long, or names a column that the table does not have.
    pub fn check_display(&self) -> Result<(), String> {
        check(&self.columns, &self.display)
    }
}

/// Checks the hints of a table: bounded, and about columns that the table has.
pub(crate) fn check(columns: &[Column], display: &TableDisplay) -> Result<(), String> {
    let exists = |name: &str| match columns.iter().any(|column| column.name == name) {
        true => Ok(()),
        false => Err(format!("display: there is no column {name:?}")),
    };
    let is_short = |text: &str, max: usize| match text.len() <= max {
        true => Ok(()),
        false => Err(format!("display: text of {} bytes, more than {max}", text.len())),
    };
    for ColumnDisplay { title, digits, combine, .. } in columns.iter().map(|one| &one.display) {
        is_short(title, TITLE_BYTES_MAX)?;
        if *digits > DIGITS_MAX {
            return Err(format!("display: {digits} digits, more than {DIGITS_MAX}"));
        }
        if let Some(Combine::Bound { sign: text, .. } | Combine::Prefix { equals: text, .. }) =
            combine
        {
            is_short(text, TITLE_BYTES_MAX)?;
        }
        combine.iter().flat_map(Combine::columns).try_for_each(exists)?;
    }
    let TableDisplay { title, headline, group_by, sort_by, filter, notes, .. } = display;
    is_short(title, TEMPLATE_BYTES_MAX)?;
    for (what, count, max) in [
        ("columns that form groups", group_by.len(), GROUP_COLUMNS_MAX),
        ("notes", notes.len(), NOTES_MAX),
    ] {
        if count > max {
            return Err(format!("display: {count} {what}, more than {max}"));
        }
    }
    group_by.iter().chain(sort_by).try_for_each(|column| exists(column))?;
    if let Some(RowFilter { column, keep, others }) = filter {
        exists(column)?;
        is_short(others, TITLE_BYTES_MAX)?;
        match keep {
            Keep::Text(text) => is_short(text, TITLE_BYTES_MAX)?,
            Keep::AtLeast(least) if !least.is_finite() => {
                return Err(format!("display: {least} is not finite"));
            }
            Keep::Bool(_) | Keep::AtLeast(_) => {}
        }
    }
    for template in notes.iter().chain([headline]) {
        is_short(template, TEMPLATE_BYTES_MAX)?;
        let Template(pieces) =
            Template::parse(template).map_err(|what| format!("display: {what}"))?;
        for piece in pieces {
            if let Piece::Column(name) = piece {
                exists(name)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Kind;

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

    #[test]
    fn hints_are_bounded_and_about_columns_that_exist() {
        let column = || Column::new("a", Kind::Real, "A.");
        let plain = TableDisplay::default;
        let texts = || vec!["a".to_owned(); NOTES_MAX + 1];
        let long = || "x".repeat(TEMPLATE_BYTES_MAX + 1);
        assert_eq!(check(&[column().plus_minus("a").title("mean")], &plain()), Ok(()));
        for (columns, display, expected) in [
            (column().plus_minus("b"), plain(), "no column \"b\""),
            (column().bound("a", &long()), plain(), "bytes, more than"),
            (column().title(&long()), plain(), "bytes, more than"),
            (column().digits(16), plain(), "16 digits"),
            (column(), TableDisplay { title: long(), ..plain() }, "bytes, more than"),
            (column(), TableDisplay { sort_by: Some("b".to_owned()), ..plain() }, "no column"),
            (column(), TableDisplay { group_by: vec!["b".to_owned()], ..plain() }, "no column"),
            (column(), TableDisplay { group_by: texts(), ..plain() }, "form groups"),
            (column(), TableDisplay { notes: texts(), ..plain() }, "notes"),
            (column(), TableDisplay { headline: "{b}".to_owned(), ..plain() }, "no column"),
            (column(), TableDisplay { headline: "{".to_owned(), ..plain() }, "without"),
            (
                column(),
                TableDisplay { filter: Some(RowFilter::sums_over_cpus()), ..plain() },
                "no column \"cpu\"",
            ),
        ] {
            let error = check(&[columns], &display).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
