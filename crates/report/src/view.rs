//! Views: which part of a table people see, as data.
//!
//! A table has every column that was measured, for programs; a view has those that a person reads
//! first, under short headings, and says which to leave out when the terminal is narrow.

use record::{Kind, Table, Value};

use crate::{human, tables};

/// A row of a table, with its columns' names.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: &'a Table,
    values: &'a [Value],
}

impl<'a> Row<'a> {
    pub(crate) fn new(table: &'a Table, values: &'a [Value]) -> Self {
        Row { table, values }
    }

    /// The value in that column; absent when there is no such column.
    #[must_use]
    pub fn get(&self, column: &str) -> &'a Value {
        self.table.get(self.values, column).unwrap_or(&Value::Absent)
    }

    /// The number in that column.
    #[must_use]
    pub fn number(&self, column: &str) -> Option<f64> {
        match self.get(column) {
            Value::Real(value) => Some(*value),
            Value::Uint(value) => Some(*value as f64),
            Value::Int(value) => Some(*value as f64),
            Value::Absent | Value::Bool(_) | Value::Text(_) => None,
        }
    }

    /// The value in that column as people read it.
    #[must_use]
    pub fn cell(&self, column: &str) -> String {
        human::cell(column, self.get(column))
    }
}

/// Side of its column on which a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// What a cell of a view shows. It is one line of [`crate::escape::plain`] text.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A column of the table, formatted by its unit.
    Column(String),
    /// Made from several columns; left out of tables that lack one of these.
    Made {
        /// The columns it is made from.
        from: &'static [&'static str],
        /// Makes it.
        make: fn(&Row<'_>) -> String,
    },
}

/// A column of a view.
#[derive(Clone, Debug)]
pub struct ViewColumn {
    /// What stands above it.
    pub heading: String,
    /// Where its cells stand.
    pub align: Align,
    /// What its cells show.
    pub cell: Cell,
    /// When the terminal is too narrow, the columns of least value go first, and among equals those
    /// on the right.
    pub keep: u8,
    /// Shown only together with the rows that the filter leaves out.
    pub all_rows_only: bool,
}

/// Rows to show unless all are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Which rows to show.
    pub keeps: fn(&Row<'_>) -> bool,
    /// What the other rows are, as in `12 rows per CPU not shown`.
    pub others: &'static str,
}

/// A view of a table.
#[derive(Clone, Debug)]
pub struct View {
    /// What the table says, in a line above it; by default its own doc.
    pub title: Option<fn(&Table) -> String>,
    /// Columns whose values, where they change from one row to the next, begin a group with a line
    /// of its own.
    pub group_by: Vec<&'static str>,
    /// The rows to show.
    pub filter: Option<Filter>,
    /// The most rows to show, unless all are asked for.
    pub rows_max: usize,
    /// The columns, from left to right.
    pub columns: Vec<ViewColumn>,
}

/// Rows that a view shows unless it says otherwise.
const ROWS_MAX: usize = 100;

impl View {
    /// The view made for this table, or the generic one, with all columns.
    #[must_use]
    pub fn of(table: &Table) -> View {
        tables::view_of(table).unwrap_or_else(|| View::generic(table))
    }

    fn generic(table: &Table) -> View {
        let column = |column: &record::Column| {
            let short = human::without_unit(&column.name);
            let same = |other: &&record::Column| human::without_unit(&other.name) == short;
            let is_unique = table.columns.iter().filter(same).count() == 1;
            ViewColumn {
                heading: if is_unique { short } else { &column.name }.to_owned(),
                align: match column.kind {
                    Kind::Text | Kind::Bool => Align::Left,
                    Kind::Uint | Kind::Int | Kind::Real => Align::Right,
                },
                cell: Cell::Column(column.name.clone()),
                keep: 0,
                all_rows_only: false,
            }
        };
        let columns = table.columns.iter().map(column).collect();
        View { title: None, group_by: Vec::new(), filter: None, rows_max: ROWS_MAX, columns }
    }
}

impl ViewColumn {
    /// A column of text.
    #[must_use]
    pub fn text(heading: &str, column: &str, keep: u8) -> Self {
        let cell = Cell::Column(column.to_owned());
        let heading = heading.to_owned();
        ViewColumn { heading, align: Align::Left, cell, keep, all_rows_only: false }
    }

    /// A column of numbers.
    #[must_use]
    pub fn number(heading: &str, column: &str, keep: u8) -> Self {
        ViewColumn { align: Align::Right, ..ViewColumn::text(heading, column, keep) }
    }

    /// The same, made from several columns.
    #[must_use]
    pub fn made(self, from: &'static [&'static str], make: fn(&Row<'_>) -> String) -> Self {
        ViewColumn { cell: Cell::Made { from, make }, ..self }
    }

    /// Whether the table has what this column shows.
    pub(crate) fn is_in(&self, table: &Table) -> bool {
        match &self.cell {
            Cell::Column(name) => table.column(name).is_some(),
            Cell::Made { from, .. } => from.iter().all(|name| table.column(name).is_some()),
        }
    }

    pub(crate) fn show(&self, row: &Row<'_>) -> String {
        match &self.cell {
            Cell::Column(name) => row.cell(name),
            Cell::Made { make, .. } => make(row),
        }
    }
}
