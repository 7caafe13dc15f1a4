//! A run on a terminal: warnings, tables that fit its width, the observer, the absences.

use record::{Run, Table};

use crate::escape::plain;
use crate::grid::{Grid, cut, line};
use crate::view::View;
use crate::words::{self, unbroken, wrap};

/// How to write for a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Columns of the terminal; `None` when it is none, and lines may be as long as they get.
    pub width: Option<u16>,
    /// Whether to use colours and bold.
    pub color: bool,
    /// Every row: also those that a view leaves out, such as one per CPU, or beyond the first 100.
    pub all_rows: bool,
}

#[derive(Clone, Copy)]
enum Style {
    Strong,
    Quiet,
    Alarm,
}

impl TerminalOptions {
    /// Every line in that style: a pager shows each line rightly.
    fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Strong => "1",
            Style::Quiet => "2",
            Style::Alarm => "33",
        };
        let lines = text.lines().map(|line| match self.color {
            true => format!("\x1b[{code}m{line}\x1b[0m\n"),
            false => format!("{line}\n"),
        });
        lines.collect()
    }
}

/// The run as text for a terminal.
#[must_use]
pub fn terminal(run: &Run, options: TerminalOptions) -> String {
    let mut blocks = Vec::new();
    let warnings = words::warnings(run).into_iter().map(|warning| {
        let text = wrap(&format!("warning: {warning}"), "", options.width);
        options.paint(Style::Alarm, &text)
    });
    blocks.push(warnings.collect::<String>());
    blocks.push(options.paint(Style::Strong, &wrap(&words::title(run), "", options.width)));
    blocks.extend(run.tables.iter().map(|table| self::table(table, options)));
    blocks.push(observer(run, options));
    blocks.push(missing(run, options));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

fn table(table: &Table, options: TerminalOptions) -> String {
    let mut grid = Grid::new(table, &View::of(table), options.all_rows);
    let widths = grid.fit(options.width);
    let title = plain(&format!("{}: {}", table.name, table.doc));
    let mut out = options.paint(Style::Quiet, &wrap(&title, "", options.width));
    if !grid.groups.is_empty() {
        let headings = line(&grid.headings, &grid.aligns, &widths);
        out.push_str(&options.paint(Style::Strong, &headings));
    } else if table.rows().is_empty() {
        out.push_str("(no rows)\n");
    }
    for (index, group) in grid.groups.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if let Some(heading) = &group.heading {
            let width = options.width.map_or(usize::MAX, usize::from);
            out.push_str(&options.paint(Style::Strong, &cut(heading, width)));
        }
        for row in &group.rows {
            out.push_str(&line(row, &grid.aligns, &widths));
            out.push('\n');
        }
    }
    out.push_str(&options.paint(Style::Quiet, &wrap(&left_out(table, &grid), "", options.width)));
    out
}

/// What of the table is not to be seen, and how to see it; empty when all is.
fn left_out(table: &Table, grid: &Grid) -> String {
    let mut parts = grid.hidden.clone();
    if !grid.dropped.is_empty() {
        parts.insert(0, grid.dropped.join(", "));
    }
    if parts.is_empty() {
        return String::new();
    }
    let name = plain(&table.name);
    let command = unbroken(&format!("irqlab show RUN {name} --format csv"));
    format!("not shown: {}; see {command}", parts.join("; "))
}

fn observer(run: &Run, options: TerminalOptions) -> String {
    let words = words::observer(run);
    if words.is_empty() {
        return String::new();
    }
    wrap(&format!("observer: {words}"), "", options.width) + "\n"
}

fn missing(run: &Run, options: TerminalOptions) -> String {
    let mut out = String::new();
    for missing in words::missing(run) {
        if out.is_empty() {
            out.push_str(&options.paint(Style::Strong, "not measured"));
        }
        let words = format!("{}: {}", missing.what, missing.reason);
        out.push_str(&wrap(&words, "  ", options.width));
        out.push('\n');
        if let Some(remedy) = missing.remedy {
            // On a line of its own and never wrapped: it is there to be copied.
            out.push_str(&format!("    {remedy}\n"));
        }
    }
    out
}
