//! A run on a terminal: its title and host, warnings, tables that fit the width, the observer, and what was not
//! measured. This is the default output of all verbs.

use record::{Run, Table};

use crate::escape::plain;
use crate::grid::{Grid, LongText, cut_to_width, line};
use crate::human::unbroken;
use crate::words::{self, wrap};

/// How a run is printed on a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Width of the terminal in columns. `None`: the length of lines has no limit.
    pub width: Option<u16>,
    /// Text in tables that is too long for the width. A pipe has no edge: [`LongText::Whole`].
    pub long_text: LongText,
    /// Whether to use colours and bold.
    pub color: bool,
    /// Whether to print every row and also tables without rows. By default, rows per CPU and rows beyond the first
    /// 100 are left out.
    pub all_rows: bool,
    /// The run's directory, as the printed commands name it. `None`: the run is not kept, so that no command can read it.
    pub run_dir: Option<String>,
    /// The command that prints all rows and columns of a run that is not kept. `None`: there is no such command.
    pub whole_command: Option<String>,
}

#[derive(Clone, Copy)]
enum Style {
    Strong,
    Quiet,
    Alarm,
}

impl TerminalOptions {
    /// The lines of the text in a style, if colours are on. Each line is styled alone, because a pager does not
    /// continue a style on the next line.
    fn paint(&self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Strong => "1",
            Style::Quiet => "2",
            Style::Alarm => "33",
        };
        let lines = text.lines().map(|line| {
            if self.color { format!("\x1b[{code}m{line}\x1b[0m\n") } else { format!("{line}\n") }
        });
        lines.collect()
    }
}

/// The run as text for a terminal.
#[must_use]
pub fn terminal(run: &Run, options: TerminalOptions) -> String {
    let options = &options;
    let mut blocks = vec![head(run, options)];
    let warnings = words::warnings(run).into_iter().map(|warning| {
        let text = wrap(&format!("warning: {warning}"), "", options.width);
        options.paint(Style::Alarm, &text)
    });
    blocks.push(warnings.collect::<String>());
    let is_shown = |table: &&Table| options.all_rows || table.row_count() > 0;
    blocks.extend(run.tables.iter().filter(is_shown).map(|table| self::table(run, table, options)));
    blocks.push(observer(run, options));
    blocks.push(missing_results(run, options));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

fn head(run: &Run, options: &TerminalOptions) -> String {
    let mut out = options.paint(Style::Strong, &wrap(&words::title(run), "", options.width));
    let host = words::host(run);
    if !host.is_empty() {
        out.push_str(&wrap(&format!("host: {host}"), "", options.width));
        out.push('\n');
    }
    out
}

/// The table with its title, groups and notes, cut to the width of the terminal.
fn table(run: &Run, table: &Table, options: &TerminalOptions) -> String {
    let mut grid = Grid::new(table, options.all_rows);
    let widths = grid.fit(options.width, options.long_text);
    let cut_width = match options.long_text {
        LongText::Fitted => options.width.map_or(usize::MAX, usize::from),
        LongText::Whole => usize::MAX,
    };
    let title = plain(&format!("{}: {}", table.name, words::table_title(table)));
    let mut out = options.paint(Style::Strong, &wrap(&title, "", options.width));
    if table.row_count() == 0 {
        out.push_str("(no rows)\n");
    }
    for (index, group) in grid.groups.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if let Some(heading) = &group.heading {
            out.push_str(&options.paint(Style::Strong, &cut_to_width(heading, cut_width)));
        }
        if let Some(headline) = &group.headline {
            out.push_str(&cut_to_width(&headline.replace('\u{a0}', " "), cut_width));
            out.push('\n');
        }
        // Each group has the headings above it, because those of the first group scroll out of sight in a long table.
        let headings = line(&grid.headings, &grid.aligns, &widths);
        out.push_str(&options.paint(Style::Quiet, &headings));
        let units = line(&grid.units, &grid.aligns, &widths);
        if !units.is_empty() {
            out.push_str(&options.paint(Style::Quiet, &units));
        }
        for row in &group.rows {
            for line in grid.lines(row, &widths) {
                out.push_str(&line);
                out.push('\n');
            }
        }
    }
    let notes = [words::method(run, table), left_out(table, &grid, options)];
    for note in notes.iter().filter(|note| !note.is_empty()) {
        out.push_str(&options.paint(Style::Quiet, &wrap(note, "", options.width)));
    }
    out
}

/// A note about rows and columns that are not shown, with the command that prints them. Empty if all are shown.
fn left_out(table: &Table, grid: &Grid, options: &TerminalOptions) -> String {
    let mut parts = Vec::new();
    if !grid.dropped.is_empty() {
        parts.push(grid.dropped.join(", "));
    }
    match grid.details {
        0 => {}
        1 => parts.push("1 more column".to_owned()),
        details => parts.push(format!("{details} more columns")),
    }
    // If columns are missing, the command prints CSV, the only text format with all columns.
    let format = if parts.is_empty() { "" } else { " --format csv" };
    parts.extend_from_slice(&grid.hidden);
    if parts.is_empty() {
        return String::new();
    }
    let all_rows = if grid.hidden.is_empty() { "" } else { " --all" };
    let command = |run_dir: &str| {
        unbroken(&format!("irqlab show {run_dir} {}{format}{all_rows}", plain(&table.name)))
    };
    let how = match (options.run_dir.as_deref(), options.whole_command.as_deref()) {
        (None, Some(whole)) => format!("see {}", unbroken(&plain(whole))),
        (Some(run_dir), _) => format!("see {}", command(&words::shell_word(run_dir))),
        (None, None) => {
            format!("this run is not kept: with --out DIR, {} prints them", command("DIR"))
        }
    };
    format!("not shown: {}; {how}", parts.join("; "))
}

/// A line with the overhead of the measurement and the events that it lost. Empty if neither is known.
fn observer(run: &Run, options: &TerminalOptions) -> String {
    let text = words::observer(run);
    if text.is_empty() {
        return String::new();
    }
    wrap(&format!("observer: {text}"), "", options.width) + "\n"
}

/// What was not measured, with reasons and remedies.
fn missing_results(run: &Run, options: &TerminalOptions) -> String {
    let mut out = String::new();
    for missing in words::grouped_absences(run) {
        if out.is_empty() {
            out.push_str(&options.paint(Style::Strong, "not measured"));
        }
        let reason = format!("{}: {}", missing.what, missing.reason);
        for line in reason.lines() {
            out.push_str(&wrap(line, "  ", options.width));
            out.push('\n');
        }
        if let Some(remedy) = missing.remedy {
            // The command has a line for itself that is never wrapped, so that it can be copied.
            out.push_str(&format!("    {remedy}\n"));
        }
    }
    out
}
