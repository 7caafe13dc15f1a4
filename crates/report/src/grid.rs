//! A table for people: the rows and columns that its display hints choose, as cells of text in groups, fitted to a
//! width.

use std::cmp::Reverse;

use record::{Column, Keep, Kind, Table, Value};
use unicode_width::UnicodeWidthStr;

use crate::escape;
use crate::human::{self, Unit};
use crate::row::Row;

/// Spaces between columns.
const GAP: usize = 2;

/// Text columns are cut to this width or more, in columns of the terminal.
const TEXT_WIDTH_MIN: usize = 16;

/// The maximum number of shown rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLimits {
    /// For a table whose hints have no limit.
    pub usual: usize,
    /// Upper bound for the limit in a table's hints.
    pub most: usize,
}

/// The limits on a terminal, where nobody reads more than 10,000 rows.
const ON_TERMINAL: RowLimits = RowLimits { usual: 100, most: 10_000 };

/// Side of a column at which cells are aligned: text at the left, numbers at the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under one heading.
pub(crate) struct Group {
    /// Such as `condition idle/low/disk`. `None` if the table has no groups.
    pub heading: Option<String>,
    /// The main result of the group.
    pub headline: Option<String>,
    pub rows: Vec<Vec<String>>,
}

/// The shown cells of a table.
pub(crate) struct Grid {
    pub names: Vec<String>,
    pub headings: Vec<String>,
    /// The unit of each column; empty if it has none.
    pub units: Vec<String>,
    pub aligns: Vec<Align>,
    priorities: Vec<u8>,
    pub groups: Vec<Group>,
    /// Headings of the columns left out for width.
    pub dropped: Vec<String>,
    /// Number of columns that are shown only on request.
    pub details: usize,
    /// Descriptions of omitted rows, such as `4 rows per CPU`.
    pub hidden: Vec<String>,
}

impl Grid {
    /// The grid of a table on a terminal. With `all_rows`, it also has the rows that the display hints hide.
    pub fn new(table: &Table, all_rows: bool) -> Grid {
        Grid::limited(table, all_rows, ON_TERMINAL)
    }

    /// The grid of a table with at most `limits` rows, or with every row if `all_rows`.
    pub fn limited(table: &Table, all_rows: bool, limits: RowLimits) -> Grid {
        let columns: Vec<&Column> =
            table.columns.iter().filter(|column| is_shown(table, column, all_rows)).collect();
        let mut hidden = Vec::new();
        let groups = groups(table, all_rows, limits, &mut hidden);
        let units: Vec<Unit> = columns
            .iter()
            .map(|column| {
                let rows = groups.iter().flatten();
                human::unit_of(column, rows.filter_map(|row| row.number(&column.name)))
            })
            .collect();
        let group = |rows: &Vec<Row<'_>>| Group {
            heading: rows.first().and_then(|row| heading(table, row)),
            headline: rows.first().and_then(|row| headline(table, row)),
            rows: rows
                .iter()
                .map(|row| columns.iter().zip(&units).map(|(column, unit)| row.cell(column, *unit)))
                .map(Iterator::collect)
                .collect(),
        };
        Grid {
            names: columns.iter().map(|column| column.name.clone()).collect(),
            headings: columns.iter().map(|column| human::heading(column)).collect(),
            units: units.iter().map(|unit| unit.label.to_owned()).collect(),
            aligns: columns.iter().map(|column| align(column)).collect(),
            priorities: columns.iter().map(|column| column.display.priority).collect(),
            groups: groups.iter().map(group).collect(),
            dropped: Vec::new(),
            details: table.columns.iter().filter(|column| is_detail(table, column)).count(),
            hidden,
        }
    }

    /// Drops columns and cuts text until lines fit. Gives the widths of the columns.
    pub fn fit(&mut self, width: Option<u16>) -> Vec<usize> {
        let order = self.headings.clone();
        let mut widths = self.natural_widths();
        let Some(width) = width.map(usize::from) else { return widths };
        let text_width_max = TEXT_WIDTH_MIN.max(width / 4);
        for (column, align) in widths.iter_mut().zip(&self.aligns) {
            if *align == Align::Left {
                *column = text_width_max.min(*column);
            }
        }
        while widths.len() > 1 && widths.iter().sum::<usize>() + GAP * (widths.len() - 1) > width {
            let index = self.least_important();
            widths.remove(index);
            let heading = self.remove(index);
            self.dropped.push(heading);
        }
        self.dropped.sort_by_key(|dropped| order.iter().position(|heading| heading == dropped));
        if let [only] = widths.as_mut_slice() {
            *only = width.max(1).min(*only);
        }
        widths
    }

    fn natural_widths(&self) -> Vec<usize> {
        let headings = self.headings.iter().zip(&self.units);
        let mut widths: Vec<_> =
            headings.map(|(heading, unit)| heading.width().max(unit.width())).collect();
        for row in self.groups.iter().flat_map(|group| &group.rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.width().max(*width);
            }
        }
        widths
    }

    /// Index of the column with the lowest priority; among equals, the last one.
    fn least_important(&self) -> usize {
        let ranked =
            self.priorities.iter().enumerate().rev().min_by_key(|(_, priority)| **priority);
        ranked.map_or(0, |(index, _)| index)
    }

    fn remove(&mut self, index: usize) -> String {
        self.aligns.remove(index);
        self.priorities.remove(index);
        self.units.remove(index);
        self.names.remove(index);
        for row in self.groups.iter_mut().flat_map(|group| &mut group.rows) {
            row.remove(index);
        }
        self.headings.remove(index)
    }
}

/// Whether the column only completes another column's cell or filters rows.
fn is_auxiliary(table: &Table, column: &Column) -> bool {
    let in_filter = table.display.filter.iter().any(|filter| filter.column == column.name);
    let in_cell = |completed: &Column| {
        let combine = completed.display.combine.as_ref();
        combine.is_some_and(|combine| combine.columns().contains(&column.name.as_str()))
    };
    in_filter || table.columns.iter().any(in_cell)
}

fn is_detail(table: &Table, column: &Column) -> bool {
    column.display.priority == 0 && !is_auxiliary(table, column)
}

fn is_shown(table: &Table, column: &Column, all_rows: bool) -> bool {
    let in_heading = table.display.group_by.contains(&column.name);
    // If the filter keeps only one value of a column, the column is not shown.
    let says_which = table.display.filter.as_ref().is_some_and(|filter| {
        !all_rows && filter.column == column.name && !matches!(filter.keep, Keep::AtLeast(_))
    });
    column.display.priority > 0 && !in_heading && !says_which
}

fn align(column: &Column) -> Align {
    match column.kind {
        Kind::Text | Kind::Bool => Align::Left,
        Kind::Uint | Kind::Int | Kind::Real => Align::Right,
    }
}

/// The rows that are shown, in groups. Describes the rows that are left out in `hidden`.
fn groups<'a>(
    table: &'a Table,
    all_rows: bool,
    limits: RowLimits,
    hidden: &mut Vec<String>,
) -> Vec<Vec<Row<'a>>> {
    let display = &table.display;
    let filter = if all_rows { None } else { display.filter.as_ref() };
    let mut groups: Vec<Vec<Row<'a>>> = Vec::new();
    let (mut key, mut others): (Option<Vec<&Value>>, usize) = (None, 0);
    for values in table.rows() {
        if filter.is_some_and(|filter| !filter.keeps(table, values)) {
            others += 1;
            continue;
        }
        let row = Row::new(table, values);
        let row_key: Vec<_> = display.group_by.iter().map(|column| row.get(column)).collect();
        if key.as_ref() != Some(&row_key) {
            groups.push(Vec::new());
            key = Some(row_key);
        }
        groups.last_mut().into_iter().for_each(|group| group.push(row));
    }
    if let Some(column) = &display.sort_by {
        let size = |row: &Row<'_>| row.number(column).map(|number| Reverse(Total(number)));
        // Rows without a number come last.
        groups.iter_mut().for_each(|group| {
            group.sort_by_key(|row| (row.number(column).is_none(), size(row)));
        });
    }
    if others > 0
        && let Some(filter) = filter
    {
        hidden.push(format!("{} {}", rows_of(others), escape::plain(&filter.others)));
    }
    if !all_rows {
        let asked = display.rows_max.map(|max| usize::try_from(max).unwrap_or(usize::MAX));
        let mut room = asked.map_or(limits.usual, |max| max.min(limits.most));
        let mut more = 0;
        for group in &mut groups {
            more += group.len().saturating_sub(room);
            group.truncate(room);
            room -= group.len();
        }
        groups.retain(|group| !group.is_empty());
        more += usize::try_from(table.row_count()).unwrap_or(usize::MAX) - table.rows().len();
        hidden.extend((more > 0).then(|| format!("{} more", rows_of(more))));
    }
    groups
}

/// A number with a total order.
#[derive(PartialEq)]
struct Total(f64);

impl Eq for Total {}

impl Ord for Total {
    fn cmp(&self, other: &Total) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Total {
    fn partial_cmp(&self, other: &Total) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn heading(table: &Table, row: &Row<'_>) -> Option<String> {
    let column = |name: &String| table.columns.iter().find(|column| column.name == *name);
    let columns = table.display.group_by.iter().filter_map(column);
    let parts =
        columns.map(|column| format!("{} {}", human::heading(column), row.alone(&column.name)));
    let heading = parts.collect::<Vec<_>>().join(", ");
    Some(heading).filter(|heading| !heading.is_empty())
}

fn headline(table: &Table, row: &Row<'_>) -> Option<String> {
    row.fill(&table.display.headline).filter(|headline| !headline.is_empty())
}

pub(crate) fn rows_of(number: usize) -> String {
    let unit = if number == 1 { "row" } else { "rows" };
    format!("{} {unit}", human::count(number as u64))
}

/// A line of cells, each padded or cut to the width of its column.
pub(crate) fn line(cells: &[String], aligns: &[Align], widths: &[usize]) -> String {
    let mut out = String::new();
    for (at, ((cell, align), &width)) in cells.iter().zip(aligns).zip(widths).enumerate() {
        if at > 0 {
            out.push_str(&" ".repeat(GAP));
        }
        let cell = cut(cell, width);
        let padding = " ".repeat(width.saturating_sub(cell.width()));
        match align {
            Align::Left => out.extend([cell, padding]),
            Align::Right => out.extend([padding, cell]),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// The text, cut to `width` columns with an ellipsis if it is longer.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    // Characters without width would never reach the limit: their number is limited, too.
    for character in text.chars().take(4 * width) {
        out.push(character);
        // Measures the whole text: some characters change the width of the one before.
        if out.width() + 1 > width {
            out.pop();
            break;
        }
    }
    out.push('…');
    out
}
