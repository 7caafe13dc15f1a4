//! What a report of a sweep is about: the combinations (`--where`), and the table, column and row of each run.

use record::{Column, Kind, Role, Run, Table, Value, display};
use report::escape::plain;
use report::shell_word;
use sweep::{Plan, PlannedAxis, Task, nearest};

use crate::options::Usage;

/// Number of names that an error lists.
const LISTED_MAX: usize = 40;
/// The key column that differs between runs with different load or stimulus. A row of another condition is the same row.
const CONDITION: &str = "condition";

/// A condition on an axis: combinations with this value of the axis are reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisValue {
    axis: usize,
    value: u32,
}

impl AxisValue {
    /// Parses the conditions of `--where`: see [`AxisValue::parse`].
    pub fn parse_all(texts: &[String], plan: &Plan) -> Result<Vec<AxisValue>, Usage> {
        texts.iter().map(|text| AxisValue::parse(text, plan)).collect()
    }

    /// Position of the axis.
    pub fn axis(&self) -> usize {
        self.axis
    }

    /// Parses `AXIS=VALUE`. The axis may be named as in the specification, without dashes, or by its column.
    pub fn parse(text: &str, plan: &Plan) -> Result<AxisValue, Usage> {
        // The name of an axis may contain the sign: the longest name that fits counts.
        let splits =
            text.match_indices('=').map(|(at, _)| (text[..at].trim(), text[at + 1..].trim()));
        let splits: Vec<(&str, &str)> = splits.collect();
        let Some((first_name, _)) = splits.first() else {
            return Err(Usage(format!("--where {text:?}: write AXIS=VALUE")));
        };
        let found = splits.iter().rev().find_map(|(name, value)| {
            let axis = plan.axes.iter().position(|axis| is_named(axis, name))?;
            Some((axis, *value))
        });
        let Some((axis, value)) = found else {
            return Err(unknown_axis("--where", first_name, plan));
        };
        let PlannedAxis { name, values, .. } = &plan.axes[axis];
        let position = values.iter().position(|candidate| candidate == value);
        let Some(position) = position.and_then(|position| u32::try_from(position).ok()) else {
            let all = listed(values.iter().map(String::as_str));
            return Err(Usage(format!(
                "--where: axis {name} has no value {value:?}; it has {all}"
            )));
        };
        Ok(AxisValue { axis, value: position })
    }

    pub fn selects(&self, task: &Task) -> bool {
        task.values.get(self.axis) == Some(&self.value)
    }
}

/// Position of the axis that the user means. `option`: the option with its name.
///
/// Fails if there is no such axis. The error names the most similar axes.
pub fn axis_position(option: &str, name: &str, plan: &Plan) -> Result<usize, Usage> {
    let position = plan.axes.iter().position(|axis| is_named(axis, name));
    position.ok_or_else(|| unknown_axis(option, name, plan))
}

fn unknown_axis(option: &str, name: &str, plan: &Plan) -> Usage {
    let names = || plan.axes.iter().map(|axis| axis.name.as_str());
    let near = near_or(&nearest(name, names()), &format!("; the axes: {}", listed(names())));
    Usage(format!("{option}: there is no axis {name:?}{near}"))
}

/// Whether the user means this axis: by its name in the specification, without dashes, or by its column.
fn is_named(axis: &PlannedAxis, name: &str) -> bool {
    let plain_name = axis.name.trim_start_matches('-');
    let field = plain_name.split_once(' ').map_or(plain_name, |(_, field)| field);
    let column = axis.column.as_str();
    [axis.name.as_str(), plain_name, field, column].contains(&name)
        || column.strip_prefix("axis_") == Some(name)
}

/// A part of the choice of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowPart {
    /// A key column has this value.
    Key(String, String),
    /// Any key column has this value.
    Name(String),
}

impl RowPart {
    /// Parses `NAME` or `KEY=VALUE`. A text with `=` whose start is no key column of the table is a name.
    fn parse(text: &str, table: &Table) -> RowPart {
        let is_key = |name: &str| keys(table).any(|(_, column)| column.name == name);
        match text.split_once('=') {
            Some((key, value)) if is_key(key.trim()) => {
                RowPart::Key(key.trim().to_owned(), value.trim().to_owned())
            }
            _ => RowPart::Name(text.to_owned()),
        }
    }

    fn selects(&self, table: &Table, row: &[Value]) -> bool {
        match self {
            RowPart::Key(key, value) => {
                table.get(row, key).is_some_and(|cell| key_text(cell) == *value)
            }
            RowPart::Name(name) => keys(table).any(|(index, _)| key_text(&row[index]) == *name),
        }
    }

    fn key(&self) -> Option<&str> {
        match self {
            RowPart::Key(key, _) => Some(key),
            RowPart::Name(_) => None,
        }
    }
}

/// The row of a run that `--row` chooses. `None` if the run has no such row.
///
/// Fails if several rows fit. The error lists what tells them apart.
pub fn chosen_row<'t>(table: &'t Table, choice: &[String]) -> Result<Option<&'t [Value]>, Usage> {
    let parts: Vec<RowPart> = choice.iter().map(|text| RowPart::parse(text, table)).collect();
    let names_filter = |column: &str| parts.iter().any(|part| part.key() == Some(column));
    let filter = table.display.filter.as_ref().filter(|filter| !names_filter(&filter.column));
    let fits = |row: &&Vec<Value>| {
        filter.is_none_or(|filter| filter.keeps(table, row))
            && parts.iter().all(|part| part.selects(table, row))
    };
    let rows: Vec<&[Value]> = table.rows().iter().filter(fits).map(Vec::as_slice).collect();
    match rows[..] {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        _ => Err(Usage(format!(
            "{} rows of table {} fit: choose one with --row. {}",
            rows.len(),
            plain(&table.name),
            distinctions(table, &rows)
        ))),
    }
}

/// What a run offers for `--row`, for the error about a choice that fits no row.
pub fn offered_rows(table: &Table) -> String {
    let keeps = |row: &&Vec<Value>| {
        table.display.filter.as_ref().is_none_or(|filter| filter.keeps(table, row))
    };
    let rows: Vec<&[Value]> = table.rows().iter().filter(keeps).map(Vec::as_slice).collect();
    if rows.is_empty() { "the table has no rows".to_owned() } else { distinctions(table, &rows) }
}

/// The names of rows: the values of one key column if they tell the rows apart, else `KEY=VALUE` of all key columns that
/// differ.
fn distinctions(table: &Table, rows: &[&[Value]]) -> String {
    let differs = |index: usize| rows.iter().any(|row| row[index] != rows[0][index]);
    let differing: Vec<(usize, &Column)> =
        keys(table).filter(|(index, _)| differs(*index)).collect();
    let tells_apart = |(index, column): &&(usize, &Column)| {
        let mut texts: Vec<String> = rows.iter().map(|row| key_text(&row[*index])).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.len() == rows.len() && column.name != CONDITION && column.kind == Kind::Text
    };
    if let Some((index, column)) = differing.iter().find(tells_apart) {
        let names: Vec<String> = rows.iter().map(|row| key_text(&row[*index])).collect();
        return format!("By {}: {}", column.name, listed(names.iter().map(String::as_str)));
    }
    if differing.is_empty() {
        return "No key column tells them apart: such a table cannot be reported".to_owned();
    }
    let names: Vec<String> = rows
        .iter()
        .map(|row| {
            let parts = differing.iter().map(|(index, column)| {
                format!("--row {}={}", column.name, shell_word(&key_text(&row[*index])))
            });
            parts.collect::<Vec<_>>().join(" ")
        })
        .collect();
    listed(names.iter().map(String::as_str))
}

/// The key columns of a table with their positions.
pub fn keys(table: &Table) -> impl Iterator<Item = (usize, &Column)> {
    table.columns.iter().enumerate().filter(|(_, column)| column.role == Role::Key)
}

pub fn key_text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        value => value.number().map(|number| number.to_string()).unwrap_or_default(),
    }
}

/// The name of a row, for the title: the values of its key columns except the condition and the sum over CPUs.
pub fn row_name(table: &Table, row: &[Value], choice: &[String]) -> String {
    if !choice.is_empty() {
        return choice.iter().map(|text| plain(text)).collect::<Vec<_>>().join(", ");
    }
    let names = keys(table)
        .filter(|(_, column)| column.name != CONDITION)
        .map(|(index, _)| key_text(&row[index]))
        .filter(|text| !text.is_empty() && text != "all");
    plain(&names.collect::<Vec<_>>().join(" "))
}

/// A table and a column of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenColumn {
    pub table: String,
    pub column: String,
    /// Whether neither the table nor the column was named, so that the report must say which was taken.
    pub is_default: bool,
}

/// The table and the column that a report is about. Without names, it is the experiment's headline column: the first
/// cost or benefit in the headline of its first table for people.
///
/// Fails if there is no such table or column, with the nearest names.
pub fn chosen_column(
    run: &Run,
    table: Option<&str>,
    column: Option<&str>,
) -> Result<ChosenColumn, Usage> {
    let table_names = || run.tables.iter().map(|table| table.name.as_str());
    if let Some(name) = table
        && run.table(name).is_none()
    {
        let all = format!("; the tables: {}", listed(table_names()));
        let near = near_or(&nearest(name, table_names()), &all);
        return Err(Usage(format!("the runs have no table {name:?}{near}")));
    }
    let tables: Vec<&Table> = match table {
        Some(name) => run.table(name).into_iter().collect(),
        None => run.tables.iter().collect(),
    };
    if let Some(column) = column {
        let has_column = |candidate: &&&Table| candidate.column(column).is_some();
        let for_people = tables.iter().filter(|table| is_for_people(table)).find(has_column);
        let Some(found) = for_people.or_else(|| tables.iter().find(has_column)) else {
            let figures =
                || tables.iter().flat_map(|table| &table.columns).filter(|c| is_number(c));
            let names = || figures().map(|column| column.name.as_str());
            let near =
                near_or(&nearest(column, names()), &format!("; it has: {}", listed(names())));
            let place =
                table.map_or("the runs have".to_owned(), |table| format!("table {table} has"));
            return Err(Usage(format!("{place} no column {column:?}{near}")));
        };
        check_number(found, column)?;
        let (table, column) = (found.name.clone(), column.to_owned());
        return Ok(ChosenColumn { table, column, is_default: false });
    }
    let headline =
        |table: &&Table| Some((table.name.clone(), headline_column(table)?.name.clone()));
    let found = tables.iter().filter(|table| is_for_people(table)).find_map(headline);
    let found = found.or_else(|| tables.iter().find_map(headline));
    let Some((table, column)) = found else {
        return Err(Usage(format!(
            "the runs have no cost and no benefit: choose a figure with --column (the tables: {})",
            listed(table_names())
        )));
    };
    Ok(ChosenColumn { table, column, is_default: true })
}

fn is_for_people(table: &Table) -> bool {
    table.display.rows_max != Some(0)
}

fn is_number(column: &Column) -> bool {
    matches!(column.kind, Kind::Uint | Kind::Int | Kind::Real)
}

fn check_number(table: &Table, name: &str) -> Result<(), Usage> {
    let column = table.columns.iter().find(|column| column.name == name);
    match column {
        Some(column) if !is_number(column) => {
            Err(Usage(format!("column {name} of table {} has no numbers", table.name)))
        }
        _ => Ok(()),
    }
}

/// The column that a table's headline names first among its costs and benefits. Without one in the headline: the cost
/// or benefit that a narrow terminal keeps longest. `None` if the table has no numbers that are costs or benefits.
fn headline_column(table: &Table) -> Option<&Column> {
    let is_judged =
        |column: &&Column| matches!(column.role, Role::Cost | Role::Benefit) && is_number(column);
    let template = display::Template::parse(&table.display.headline).ok();
    let named = template.iter().flat_map(|template| &template.0).find_map(|piece| match piece {
        display::Piece::Column(name) => {
            table.columns.iter().filter(is_judged).find(|column| column.name == *name)
        }
        _ => None,
    });
    named.or_else(|| {
        let judged = table.columns.iter().filter(is_judged).rev();
        judged.max_by_key(|column| (column.display.priority, column.interval.is_some()))
    })
}

/// The most similar names, or another text if no name is similar.
pub fn near_or(similar: &[&str], other: &str) -> String {
    if similar.is_empty() { other.to_owned() } else { format!("; near: {}", similar.join(", ")) }
}

/// Names with commas between them, at most [`LISTED_MAX`].
pub fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut unique: Vec<&str> = Vec::new();
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    let left_out = unique.len().saturating_sub(LISTED_MAX);
    unique.truncate(LISTED_MAX);
    let text = plain(&unique.join(", "));
    if left_out == 0 { text } else { format!("{text}, and {left_out} more") }
}
