//! Checks of a run: [`crate::writer`] calls them before it writes, and [`crate::reader`] before it trusts what it read.
//! Both use the same limits, so that the writer refuses whatever the reader would refuse.

use crate::display::TableDisplay;
use crate::hints;
use crate::limits::{
    CELLS_MAX, COLUMNS_MAX, NAME_BYTES_MAX, ROWS_MAX, TABLE_TEXT_BYTES_MAX, TABLES_MAX,
    TEXT_BYTES_MAX, is_name,
};
use crate::run::Run;
use crate::table::{Column, Table, Value};

/// The description of a table, and its number of rows.
pub(crate) struct Shape<'a> {
    pub name: &'a str,
    pub columns: &'a [Column],
    pub display: &'a TableDisplay,
    pub rows: u64,
}

/// Checks names, counts and display hints of all tables of a run.
pub(crate) fn check_shape<'a>(tables: impl Iterator<Item = Shape<'a>>) -> Result<(), String> {
    let mut names = Vec::new();
    let mut cells = 0_u64;
    for Shape { name, columns, display, rows } in tables {
        check_name("table", name, &names)?;
        names.push(name);
        if names.len() > TABLES_MAX {
            return Err(format!("more than {TABLES_MAX} tables"));
        }
        if columns.len() > COLUMNS_MAX {
            return Err(format!(
                "table {name}: {} columns, more than {COLUMNS_MAX}",
                columns.len()
            ));
        }
        if columns.is_empty() {
            return Err(format!("table {name}: no columns"));
        }
        let in_table = |error: String| format!("table {name}: {error}");
        let mut column_names = Vec::new();
        for column in columns {
            check_name("column", &column.name, &column_names).map_err(in_table)?;
            column_names.push(column.name.as_str());
        }
        hints::check(columns, display).map_err(in_table)?;
        if rows > ROWS_MAX {
            return Err(format!("table {name}: {rows} rows, more than {ROWS_MAX}"));
        }
        cells += rows * columns.len() as u64;
        if cells > CELLS_MAX {
            return Err(format!("table {name}: more than {CELLS_MAX} cells in the run"));
        }
    }
    Ok(())
}

/// Checks that `name` is a valid name and is not one of the `names_before`. `noun`: `table` or `column`, for the error.
fn check_name(noun: &str, name: &str, names_before: &[&str]) -> Result<(), String> {
    if !is_name(name) {
        return Err(format!(
            "{noun} name {name:?}: must be 1 to {NAME_BYTES_MAX} of a-z, 0-9 and _"
        ));
    }
    if names_before.contains(&name) {
        return Err(format!("{noun} name {name:?} occurs twice"));
    }
    Ok(())
}

/// Checks a whole run before it is written.
pub(crate) fn check_run(run: &Run) -> Result<(), String> {
    check_shape(run.tables.iter().map(shape))?;
    run.tables.iter().try_for_each(check_cells)
}

fn shape(table: &Table) -> Shape<'_> {
    let Table { name, columns, display, .. } = table;
    Shape { name, columns, display, rows: table.rows().len() as u64 }
}

fn check_cells(table: &Table) -> Result<(), String> {
    let mut budget = TextBudget::new(TABLE_TEXT_BYTES_MAX);
    for (index, row) in table.rows().iter().enumerate() {
        for (value, column) in row.iter().zip(&table.columns) {
            budget.check(value).map_err(|error| {
                format!("table {} column {} row {index}: {error}", table.name, column.name)
            })?;
        }
    }
    Ok(())
}

/// Checks the cells of a table one by one, and limits the sum of their text.
pub(crate) struct TextBudget {
    bytes_max: usize,
    bytes_left: usize,
    is_exceeded: bool,
}

impl TextBudget {
    /// The budget of a table with at most `bytes_max` bytes of text.
    pub(crate) fn new(bytes_max: usize) -> Self {
        TextBudget { bytes_max, bytes_left: bytes_max, is_exceeded: false }
    }

    /// Sum of the bytes of all texts that were checked.
    pub(crate) fn bytes_used(&self) -> usize {
        self.bytes_max - self.bytes_left
    }

    /// Whether the last text was longer than the remaining budget.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Fails if a text is too long, the texts together exceed the budget, or a number is not finite.
    pub(crate) fn check(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::Text(text) if text.len() > TEXT_BYTES_MAX => {
                Err(format!("text of {} bytes, more than {TEXT_BYTES_MAX}", text.len()))
            }
            Value::Text(text) => {
                let remaining = self.bytes_left.checked_sub(text.len());
                self.is_exceeded = remaining.is_none();
                let error = || format!("more than {} bytes of text in the table", self.bytes_max);
                self.bytes_left = remaining.ok_or_else(error)?;
                Ok(())
            }
            Value::Real(real) if !real.is_finite() => Err(format!("{real} is not finite")),
            _ => Ok(()),
        }
    }
}
