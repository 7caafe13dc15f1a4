//! A view applied to a table: cells of text in groups, fitted to a width.

use record::{Table, Value};
use unicode_width::UnicodeWidthStr;

use crate::escape;
use crate::human;
use crate::view::{Align, Row, View, ViewColumn};

/// Spaces between columns.
const GAP: usize = 2;

/// The least that a text column is cut to.
const TEXT_WIDTH_MIN: usize = 16;

/// Rows under one heading.
pub(crate) struct Group {
    /// `condition idle/low/disk`; none when the view has no groups.
    pub heading: Option<String>,
    pub rows: Vec<Vec<String>>,
}

/// What a view shows of a table.
pub(crate) struct Grid {
    pub headings: Vec<String>,
    pub aligns: Vec<Align>,
    keeps: Vec<u8>,
    pub groups: Vec<Group>,
    /// Headings of the columns left out for width.
    pub dropped: Vec<String>,
    /// How many rows are left out, and what they are (`rows per CPU`).
    pub hidden: Vec<String>,
}

impl Grid {
    pub fn new(table: &Table, view: &View, all_rows: bool) -> Grid {
        let is_shown =
            |column: &&ViewColumn| column.is_in(table) && (all_rows || !column.all_rows_only);
        let columns: Vec<_> = view.columns.iter().filter(is_shown).collect();
        let mut grid = Grid {
            headings: columns.iter().map(|column| escape::plain(&column.heading)).collect(),
            aligns: columns.iter().map(|column| column.align).collect(),
            keeps: columns.iter().map(|column| column.keep).collect(),
            groups: Vec::new(),
            dropped: Vec::new(),
            hidden: Vec::new(),
        };
        let rows = grid.select(table, view, all_rows);
        let mut current: Option<Vec<&Value>> = None;
        for row in rows {
            let key: Vec<_> = view.group_by.iter().map(|column| row.get(column)).collect();
            if current.as_ref() != Some(&key) {
                grid.groups.push(Group { heading: heading(view, &row), rows: Vec::new() });
                current = Some(key);
            }
            if let Some(group) = grid.groups.last_mut() {
                group.rows.push(columns.iter().map(|column| column.show(&row)).collect());
            }
        }
        if !all_rows {
            grid.remove_empty_columns();
        }
        grid
    }

    /// A column without a value in any row says nothing; why it is so is among the absences.
    fn remove_empty_columns(&mut self) {
        for index in (0..self.headings.len()).rev() {
            let mut rows = self.groups.iter().flat_map(|group| &group.rows).peekable();
            if rows.peek().is_some() && rows.all(|row| row[index] == human::ABSENT) {
                self.remove(index);
            }
        }
    }

    fn select<'a>(&mut self, table: &'a Table, view: &View, all_rows: bool) -> Vec<Row<'a>> {
        let rows = table.rows().iter().map(|values| Row::new(table, values));
        if all_rows {
            return rows.collect();
        }
        let is_wanted = |row: &Row<'_>| view.filter.is_none_or(|filter| (filter.keeps)(row));
        let (mut shown, mut wanted) = (Vec::new(), 0);
        for row in rows.filter(is_wanted) {
            wanted += 1;
            if wanted <= view.rows_max {
                shown.push(row);
            }
        }
        let others = table.rows().len() - wanted;
        if let Some(filter) = view.filter.filter(|_| others > 0) {
            self.hidden.push(format!("{} {}", rows_of(others), filter.others));
        }
        if wanted > shown.len() {
            self.hidden.push(format!("{} more", rows_of(wanted - shown.len())));
        }
        shown
    }

    /// Leaves out columns, and cuts text, until lines fit; gives the widths of the columns.
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
            let index = self.least();
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
        let mut widths: Vec<_> = self.headings.iter().map(|heading| heading.width()).collect();
        for row in self.groups.iter().flat_map(|group| &group.rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.width().max(*width);
            }
        }
        widths
    }

    /// The column to leave out first.
    fn least(&self) -> usize {
        let ranked = self.keeps.iter().enumerate().rev().min_by_key(|(_, keep)| **keep);
        ranked.map_or(0, |(index, _)| index)
    }

    fn remove(&mut self, index: usize) -> String {
        self.aligns.remove(index);
        self.keeps.remove(index);
        for row in self.groups.iter_mut().flat_map(|group| &mut group.rows) {
            row.remove(index);
        }
        self.headings.remove(index)
    }
}

fn heading(view: &View, row: &Row<'_>) -> Option<String> {
    let parts = view.group_by.iter().map(|column| format!("{column} {}", row.cell(column)));
    let heading = parts.collect::<Vec<_>>().join(", ");
    Some(heading).filter(|heading| !heading.is_empty())
}

fn rows_of(number: usize) -> String {
    let unit = if number == 1 { "row" } else { "rows" };
    format!("{} {unit}", human::count(number as u64))
}

/// A line of cells in columns of those widths.
pub(crate) fn line(cells: &[String], aligns: &[Align], widths: &[usize]) -> String {
    let mut out = String::new();
    for ((cell, align), &width) in cells.iter().zip(aligns).zip(widths) {
        if !out.is_empty() {
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

/// The text, or as much of it as fits with an ellipsis.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    // Characters without width do not count, so they have a limit of their own.
    for character in text.chars().take(4 * width) {
        out.push(character);
        // Of the text so far and not of the character: some change the width of the one before.
        if out.width() + 1 > width {
            out.pop();
            break;
        }
    }
    out.push('…');
    out
}
