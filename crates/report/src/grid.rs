//! A table for people, as cells of text: the rows and columns that its display hints choose, in groups, fitted to a
//! width. `terminal`, `markdown` and the HTML page print it.

use std::cmp::Reverse;

use record::{Column, Keep, Kind, Role, Table, Value};
use unicode_width::UnicodeWidthStr;

use crate::escape;
use crate::human::{self, Unit};
use crate::row::Row;

/// Spaces between columns.
const GAP: usize = 2;

/// Minimum width to which a text column is cut, in columns of the terminal.
const TEXT_WIDTH_MIN: usize = 16;

/// Limits on the number of shown rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLimits {
    /// Limit for a table whose hints state none.
    pub default: usize,
    /// Maximum of the limit that a table's hints state.
    pub max: usize,
}

/// The limits on a terminal, where nobody reads more than 10,000 rows.
const ON_TERMINAL: RowLimits = RowLimits { default: 100, max: 10_000 };

/// The side of a column to which its cells are aligned: text to the left, numbers to the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// How a table treats text that is too long for the width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongText {
    /// It is cut, or wrapped in columns that say so.
    #[default]
    Fitted,
    /// It is printed whole, so that lines are longer than the width.
    Whole,
}

/// Rows under one heading.
pub(crate) struct Group {
    /// Heading of the group, such as `condition idle/low/disk`. `None` if the table has no groups.
    pub heading: Option<String>,
    /// The main result of the group as a sentence. `None` if the table's hints have none.
    pub headline: Option<String>,
    pub rows: Vec<Vec<String>>,
}

/// The shown cells of a table.
pub(crate) struct Grid {
    pub names: Vec<String>,
    pub headings: Vec<String>,
    /// The unit of each column. Empty for a column without a unit.
    pub units: Vec<String>,
    pub aligns: Vec<Align>,
    /// Whether the text of each column is never cut, unless it is the only column.
    uncut: Vec<bool>,
    /// Whether a text of each column that is wider than the column continues on the next line.
    wrapped: Vec<bool>,
    priorities: Vec<u8>,
    pub groups: Vec<Group>,
    /// Headings of the columns that [`Grid::fit`] left out, because the width has no room for them.
    pub dropped: Vec<String>,
    /// Number of columns that are shown only on request.
    pub details: usize,
    /// Descriptions of the rows that are not shown, such as `4 rows per CPU`.
    pub hidden: Vec<String>,
}

impl Grid {
    /// The grid of a table on a terminal. With `all_rows`, it also has the rows that the display hints hide.
    pub fn new(table: &Table, all_rows: bool) -> Grid {
        Grid::with_limits(table, all_rows, ON_TERMINAL)
    }

    /// The grid of a table within `limits` on its rows. With `all_rows` it has all rows, also those that display hints
    /// hide.
    pub fn with_limits(table: &Table, all_rows: bool, limits: RowLimits) -> Grid {
        let columns: Vec<&Column> =
            table.columns.iter().filter(|column| is_shown(table, column, all_rows)).collect();
        let mut hidden = Vec::new();
        let groups = shown_rows_by_group(table, all_rows, limits, &mut hidden);
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
            uncut: columns.iter().map(|column| column.display.is_uncut).collect(),
            wrapped: columns.iter().map(|column| column.display.is_wrapped).collect(),
            priorities: columns.iter().map(|column| column.display.priority).collect(),
            groups: groups.iter().map(group).collect(),
            dropped: Vec::new(),
            details: table.columns.iter().filter(|column| is_detail(table, column)).count(),
            hidden,
        }
    }

    /// Limits the width of text columns, and drops the least important columns until a line fits into `width`. Returns the
    /// widths of the columns that stay, to which [`lines`] cuts or wraps their cells. `None`: no limit.
    ///
    /// With [`LongText::Whole`], the width decides only which columns stay: texts are as wide as they are.
    pub fn fit(&mut self, width: Option<u16>, long_text: LongText) -> Vec<usize> {
        let original_order = self.headings.clone();
        let mut natural_widths = self.natural_widths();
        let Some(width) = width.map(usize::from) else { return natural_widths };
        let mut widths = natural_widths.clone();
        let text_width_max = TEXT_WIDTH_MIN.max(width / 4);
        for (index, column_width) in widths.iter_mut().enumerate() {
            if self.wrapped[index] {
                *column_width = self.word_width(index).max(TEXT_WIDTH_MIN).min(*column_width);
            } else if self.aligns[index] == Align::Left && !self.uncut[index] {
                *column_width = text_width_max.min(*column_width);
            }
        }
        let line_width =
            |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        while widths.len() > 1 && line_width(&widths) > width {
            let index = self.least_important();
            widths.remove(index);
            natural_widths.remove(index);
            let heading = self.remove(index);
            self.dropped.push(heading);
        }
        self.dropped
            .sort_by_key(|dropped| original_order.iter().position(|heading| heading == dropped));
        if long_text == LongText::Whole {
            return natural_widths;
        }
        let room = width.saturating_sub(line_width(&widths));
        self.widen_wrapped_columns(&mut widths, &natural_widths, room);
        if let [single_width] = widths.as_mut_slice() {
            *single_width = width.max(1).min(*single_width);
        }
        widths
    }

    /// Gives `room` columns of the terminal to wrapped columns, one by one, each to the column that would have most lines.
    fn widen_wrapped_columns(&self, widths: &mut [usize], natural_widths: &[usize], room: usize) {
        for _ in 0..room {
            let line_count = |index: &usize| natural_widths[*index] as f64 / widths[*index] as f64;
            let narrowed_columns = (0..widths.len())
                .filter(|index| self.wrapped[*index] && widths[*index] < natural_widths[*index]);
            let longest = narrowed_columns
                .max_by(|first, second| line_count(first).total_cmp(&line_count(second)));
            match longest {
                Some(index) => widths[index] += 1,
                None => break,
            }
        }
    }

    /// The width of the longest word of a column, or of its heading if that is wider.
    fn word_width(&self, index: usize) -> usize {
        let cells = self.groups.iter().flat_map(|group| &group.rows).map(|row| &row[index]);
        let words = cells.flat_map(|cell| cell.split(' ')).map(UnicodeWidthStr::width);
        words.chain([self.headings[index].width()]).max().unwrap_or(0)
    }

    /// The lines of a row: cells of wrapped columns continue on the next line, and other cells are cut.
    pub fn lines(&self, cells: &[String], widths: &[usize]) -> Vec<String> {
        let parts: Vec<Vec<String>> = cells
            .iter()
            .zip(widths)
            .zip(&self.wrapped)
            .map(
                |((cell, width), is_wrapped)| {
                    if *is_wrapped { wrap_cell(cell, *width) } else { vec![cell.clone()] }
                },
            )
            .collect();
        let line_count = parts.iter().map(Vec::len).max().unwrap_or(0);
        let cells_of_line = |number: usize| -> Vec<String> {
            parts.iter().map(|part| part.get(number).cloned().unwrap_or_default()).collect()
        };
        (0..line_count).map(|number| line(&cells_of_line(number), &self.aligns, widths)).collect()
    }

    /// The widths of the columns without a limit.
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

    /// Index of the column that goes first where the width has no room: one without any value before the others, then
    /// the lowest priority. Of several columns with this priority, the last.
    fn least_important(&self) -> usize {
        let rank = |(index, priority): &(usize, &u8)| (self.has_values(*index), **priority);
        let ranked = self.priorities.iter().enumerate().rev().min_by_key(rank);
        ranked.map_or(0, |(index, _)| index)
    }

    /// Whether a cell of a column has a value. A table without rows counts as having values.
    fn has_values(&self, index: usize) -> bool {
        let mut cells =
            self.groups.iter().flat_map(|group| &group.rows).map(|row| &row[index]).peekable();
        let is_absent = |cell: &String| cell.chars().all(|sign| matches!(sign, '–' | '±' | ' '));
        cells.peek().is_none() || !cells.all(is_absent)
    }

    /// Removes a column. Returns its heading.
    fn remove(&mut self, index: usize) -> String {
        self.aligns.remove(index);
        self.uncut.remove(index);
        self.wrapped.remove(index);
        self.priorities.remove(index);
        self.units.remove(index);
        self.names.remove(index);
        for row in self.groups.iter_mut().flat_map(|group| &mut group.rows) {
            row.remove(index);
        }
        self.headings.remove(index)
    }
}

/// Whether a column serves only to complete the cells of another column, or to filter rows.
fn is_auxiliary(table: &Table, column: &Column) -> bool {
    let in_filter = table.display.filter.iter().any(|filter| filter.column == column.name);
    let in_cell = |completed: &Column| {
        let combine = completed.display.combine.as_ref();
        combine.is_some_and(|combine| combine.columns().contains(&column.name.as_str()))
    };
    in_filter || table.columns.iter().any(in_cell)
}

/// Whether a column is shown only on request.
fn is_detail(table: &Table, column: &Column) -> bool {
    column.display.priority == 0 && !is_auxiliary(table, column)
}

fn is_shown(table: &Table, column: &Column, all_rows: bool) -> bool {
    let in_heading = table.display.group_by.contains(&column.name);
    // The filter keeps only rows with one value of the column, so the column would show this value everywhere.
    let has_one_value = table.display.filter.as_ref().is_some_and(|filter| {
        !all_rows && filter.column == column.name && !matches!(filter.keep, Keep::AtLeast(_))
    });
    column.display.priority > 0 && !in_heading && !has_one_value
}

fn align(column: &Column) -> Align {
    match column.kind {
        Kind::Text | Kind::Bool => Align::Left,
        Kind::Uint | Kind::Int | Kind::Real => Align::Right,
    }
}

/// The rows that are shown, sorted, in groups. Appends descriptions of the rows that are not shown to `hidden`.
///
/// The filter comes first, then the sorting, then the removal of zeros, so that the limit leaves out the last
/// of the rows that say something.
fn shown_rows_by_group<'a>(
    table: &'a Table,
    all_rows: bool,
    limits: RowLimits,
    hidden: &mut Vec<String>,
) -> Vec<Vec<Row<'a>>> {
    let display = &table.display;
    let filter = if all_rows { None } else { display.filter.as_ref() };
    let mut groups: Vec<Vec<Row<'a>>> = Vec::new();
    let (mut group_key, mut filtered_rows): (Option<Vec<&Value>>, usize) = (None, 0);
    for values in table.rows() {
        if filter.is_some_and(|filter| !filter.keeps(table, values)) {
            filtered_rows += 1;
            continue;
        }
        let row = Row::new(table, values);
        let row_key: Vec<_> = display.group_by.iter().map(|column| row.get(column)).collect();
        if group_key.as_ref() != Some(&row_key) {
            groups.push(Vec::new());
            group_key = Some(row_key);
        }
        groups.last_mut().into_iter().for_each(|group| group.push(row));
    }
    if let Some(column) = &display.sort_by {
        let largest_first = |row: &Row<'_>| row.number(column).map(|number| Reverse(Total(number)));
        // Rows without a number come last.
        groups.iter_mut().for_each(|group| {
            group.sort_by_key(|row| (row.number(column).is_none(), largest_first(row)));
        });
    }
    if filtered_rows > 0
        && let Some(filter) = filter
    {
        hidden.push(format!("{} {}", rows_of(filtered_rows), escape::plain(&filter.others)));
    }
    if !all_rows {
        let zero_rows: usize = groups.iter_mut().map(|group| remove_zeros(table, group)).sum();
        hidden.extend((zero_rows > 0).then(|| format!("{} of zeros", rows_of(zero_rows))));
        let hinted = display.rows_max.map(|max| usize::try_from(max).unwrap_or(usize::MAX));
        let mut room = hinted.map_or(limits.default, |max| max.min(limits.max));
        let mut excess_rows = 0;
        for group in &mut groups {
            excess_rows += group.len().saturating_sub(room);
            group.truncate(room);
            room -= group.len();
        }
        groups.retain(|group| !group.is_empty());
        // Rows that were not read from the run's directory are not shown either.
        excess_rows +=
            usize::try_from(table.row_count()).unwrap_or(usize::MAX) - table.rows().len();
        hidden.extend((excess_rows > 0).then(|| format!("{} more", rows_of(excess_rows))));
    }
    groups
}

/// Removes the rows that show nothing but figures of 0, unless these are all rows of the group, or the table has no
/// names of rows: its figures then number the rows. A row with a text or a yes or no beside its name says something.
/// Returns how many were removed.
fn remove_zeros(table: &Table, group: &mut Vec<Row<'_>>) -> usize {
    let is_figure = |column: &&Column| column.role != Role::Key && column.display.priority > 0;
    let has_only_zeros = |row: &Row<'_>| {
        let figures = table.columns.iter().filter(is_figure);
        let mut values = figures
            .map(|column| row.get(&column.name))
            .filter(|value| **value != Value::Absent)
            .peekable();
        values.peek().is_some() && values.all(|value| value.number() == Some(0.0))
    };
    if !table.columns.iter().any(|column| column.role == Role::Key) {
        return 0;
    }
    let zero_rows = group.iter().filter(|row| has_only_zeros(row)).count();
    if zero_rows == group.len() {
        return 0;
    }
    group.retain(|row| !has_only_zeros(row));
    zero_rows
}

/// A number that can be a sort key.
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

/// The heading of a row's group: the values of the columns that make the groups. `None` if the table has no groups.
fn heading(table: &Table, row: &Row<'_>) -> Option<String> {
    let column = |name: &String| table.columns.iter().find(|column| column.name == *name);
    let columns = table.display.group_by.iter().filter_map(column);
    let parts = columns
        .map(|column| format!("{} {}", human::heading(column), row.value_text(&column.name)));
    let heading = parts.collect::<Vec<_>>().join(", ");
    if heading.is_empty() { None } else { Some(heading) }
}

/// The headline of a row's group, or `None` if the table's hints have none, or it needs a value that is absent.
fn headline(table: &Table, row: &Row<'_>) -> Option<String> {
    row.fill(&table.display.headline).filter(|headline| !headline.is_empty())
}

/// A number of rows in words: `1 row`, `1,200 rows`.
pub(crate) fn rows_of(number: usize) -> String {
    let unit = if number == 1 { "row" } else { "rows" };
    format!("{} {unit}", human::count(number as u64))
}

/// A line of cells, each padded or cut to the width of its column.
pub(crate) fn line(cells: &[String], aligns: &[Align], widths: &[usize]) -> String {
    let mut out = String::new();
    for (index, ((cell, align), &width)) in cells.iter().zip(aligns).zip(widths).enumerate() {
        if index > 0 {
            out.push_str(&" ".repeat(GAP));
        }
        let cell = cut_to_width(cell, width);
        let padding = " ".repeat(width.saturating_sub(cell.width()));
        match align {
            Align::Left => out.extend([cell, padding]),
            Align::Right => out.extend([padding, cell]),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// The text in lines of at most `width` columns, broken between words. A word that is longer than a line is broken, too. A
/// character that is wider than `width` has a line of its own.
fn wrap_cell(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last_line = lines.last_mut().expect("a line");
        if last_line.is_empty() {
            last_line.push_str(word);
        } else if last_line.width() + 1 + word.width() <= width {
            last_line.push(' ');
            last_line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
        while let Some(line) = lines.pop() {
            let mut line_start = String::new();
            let mut characters = line.chars().peekable();
            while let Some(character) = characters.next_if(|character| {
                line_start.is_empty() || format!("{line_start}{character}").width() <= width
            }) {
                line_start.push(character);
            }
            let line_rest: String = characters.collect();
            lines.push(line_start);
            if line_rest.is_empty() {
                break;
            }
            lines.push(line_rest);
        }
    }
    lines
}

/// The text, cut to `width` columns with an ellipsis if it is longer.
pub(crate) fn cut_to_width(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut_text = String::new();
    // Characters without width never reach the limit, so the number of characters is limited, too.
    for character in text.chars().take(4 * width) {
        cut_text.push(character);
        // Measures the whole text, because some characters change the width of their predecessor.
        if cut_text.width() + 1 > width {
            cut_text.pop();
            break;
        }
    }
    cut_text.push('…');
    cut_text
}
