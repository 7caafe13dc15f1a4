//! The tables of a page, with the meaning of their columns, how they were measured, and the command that prints them.

use maud::{Markup, html};
use record::{Run, Table};
use serde_json::{Map, Value as Json};

use crate::escape::plain;
use crate::grid::{Align, Grid, RowLimits};
use crate::words;

/// Limits of a page's tables. 1,000 rows take 300 KB.
const LIMITS: RowLimits = RowLimits { default: 400, max: 1_000 };
/// Minimum number of rows of a table that gets a filter.
const FILTER_ROWS_MIN: usize = 8;
/// Longest text of a setting, characters.
const FACT_CHARS_MAX: usize = 2_000;

/// The HTML id of a table. `run_index`: index of its run on the page.
pub fn id(run_index: usize, table: &str) -> String {
    format!("run-{}-{}", run_index + 1, plain(table))
}

/// A table with its title, filter, rows and notes. `prefix`: start of its HTML id. `command`: the command that prints
/// it.
pub fn table(run: &Run, table: &Table, prefix: &str, command: &str) -> Markup {
    let name = plain(&table.name);
    let id = format!("{prefix}-{name}");
    let grid = Grid::with_limits(table, false, LIMITS);
    let rows: usize = grid.groups.iter().map(|group| group.rows.len()).sum();
    let title = plain(words::table_title(table));
    let method = words::method(run, table);
    let columns = shown_columns(table, &grid);
    html! {
        div.table id=(id) {
            h3 { (name) }
            p { (sentence(&title)) }
            @if rows == 0 {
                p.note { (hidden_rows_note(&grid)) }
            } @else {
                @if rows >= FILTER_ROWS_MIN {
                    div.filter hidden {
                        label { "Filter " (name) " " input type="search" data-filter=(id) autocomplete="off"; }
                        output aria-live="polite" {}
                    }
                }
                div.scroll role="group" aria-label=(format!("table {name}, to scroll")) tabindex="0" {
                    table data-sortable {
                        caption { (name) ": " (title) }
                        thead {
                            tr {
                                @for (index, heading) in grid.headings.iter().enumerate() {
                                    th.number[grid.aligns[index] == Align::Right] scope="col" title=[columns[index].map(|column| plain(&column.doc))] {
                                        span.heading { (heading) }
                                        @if !grid.units[index].is_empty() { " " span.unit { (grid.units[index]) } }
                                    }
                                }
                            }
                        }
                        @for group in &grid.groups {
                            tbody {
                                @if group.heading.is_some() || group.headline.is_some() {
                                    tr.group {
                                        th scope="rowgroup" colspan=(grid.headings.len()) {
                                            @if let Some(heading) = &group.heading { (heading) }
                                            @if let Some(headline) = &group.headline {
                                                " " span.headline { (headline) }
                                            }
                                        }
                                    }
                                }
                                @for row in &group.rows {
                                    tr {
                                        @for (index, cell) in row.iter().enumerate() {
                                            td.number[grid.aligns[index] == Align::Right] { (cell) }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
                @if !grid.hidden.is_empty() { p.note { (hidden_rows_note(&grid)) } }
            }
            @if !method.is_empty() { p.note { (sentence(&method)) } }
            p.note { "Printed by " code { (command) } }
            (columns_list(table))
        }
    }
}

/// The title and columns of a table whose rows are not on the page, and the command that prints them.
pub fn outline(table: &Table, prefix: &str, command: &str) -> Markup {
    let name = plain(&table.name);
    html! {
        div.outline id=(format!("{prefix}-{name}")) {
            p {
                strong { (name) } ": " (sentence(&plain(words::table_title(table)))) " "
                (crate::grid::rows_of(usize::try_from(table.row_count()).unwrap_or(usize::MAX))) ", printed by " code { (command) }
            }
            (columns_list(table))
        }
    }
}

/// A list of the table's columns with their documentation, closed at first.
fn columns_list(table: &Table) -> Markup {
    html! {
        details.columns {
            summary { "What the columns of " (plain(&table.name)) " mean, and how they were measured" }
            dl {
                @for column in &table.columns {
                    dt { code { (plain(&column.name)) } }
                    dd { (plain(&column.doc)) }
                }
            }
        }
    }
}

/// The text with a full stop at its end.
pub fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

/// The note about the rows that are not shown.
fn hidden_rows_note(grid: &Grid) -> String {
    if grid.hidden.is_empty() {
        "No rows are shown.".to_owned()
    } else {
        format!("Not shown: {}.", grid.hidden.join("; "))
    }
}

/// The column of each heading of the grid.
fn shown_columns<'t>(table: &'t Table, grid: &Grid) -> Vec<Option<&'t record::Column>> {
    grid.names.iter().map(|name| table.columns.iter().find(|column| column.name == *name)).collect()
}

/// Facts as a list of names and values.
pub fn facts(name: &str, facts: &Map<String, Json>) -> Markup {
    if facts.is_empty() {
        return html! {};
    }
    html! {
        h4 { (name) }
        dl.facts {
            @for (key, value) in facts {
                dt { (plain(key)) }
                dd { (text(value)) }
            }
        }
    }
}

/// A setting as text, cut to [`FACT_CHARS_MAX`].
fn text(value: &Json) -> String {
    let text = match value {
        Json::String(text) => plain(text),
        Json::Null => crate::human::ABSENT.to_owned(),
        other => plain(&other.to_string()),
    };
    match text.char_indices().nth(FACT_CHARS_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
