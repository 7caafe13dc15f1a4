//! GitHub Markdown of a run or a table, for issues and pull requests: `--format markdown`. All text passes through
//! [`escape::markdown`].

use record::{Run, Table};

use crate::escape;
use crate::grid::{Align, Grid};
use crate::words;

/// The table as GitHub tables, one per group.
#[must_use]
pub fn markdown(table: &Table) -> String {
    let grid = Grid::new(table, false);
    let mut blocks = Vec::new();
    for group in &grid.groups {
        if let Some(heading) = &group.heading {
            blocks.push(format!("**{}**\n", escape::markdown(heading)));
        }
        if let Some(headline) = &group.headline {
            blocks.push(escape::markdown_line(&headline.replace('\u{a0}', " ")) + "\n");
        }
        let alignments = grid.aligns.iter().map(|align| match align {
            Align::Left => "---".to_owned(),
            Align::Right => "---:".to_owned(),
        });
        let headings = grid.headings.iter().zip(&grid.units).map(|(heading, unit)| {
            let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
            escape::markdown(&format!("{heading}{unit}"))
        });
        let mut block = row(headings);
        block.push_str(&row(alignments));
        for cells in &group.rows {
            block.push_str(&row(cells.iter().map(|cell| escape::markdown(cell))));
        }
        blocks.push(block);
    }
    if table.row_count() == 0 {
        blocks.push("(no rows)\n".to_owned());
    }
    if !grid.hidden.is_empty() {
        blocks.push(format!("Not shown: {}.\n", escape::markdown(&grid.hidden.join("; "))));
    }
    blocks.join("\n")
}

/// The whole run as Markdown: host, warnings, tables, observer, and what was not measured.
#[must_use]
pub fn markdown_run(run: &Run) -> String {
    let mut blocks = vec![format!("# {}\n", escape::markdown(&words::title(run)))];
    let host = words::host(run);
    if !host.is_empty() {
        blocks.push(format!("Host: {}.\n", escape::markdown(&host)));
    }
    let warnings = words::warnings(run);
    let warning_items = warnings.iter().map(|text| format!("- **{}**\n", escape::markdown(text)));
    blocks.push(warning_items.collect());
    for table in run.tables.iter().filter(|table| table.row_count() > 0) {
        blocks.push(format!("## {}\n", escape::markdown(&table.name)));
        blocks.push(escape::markdown_line(words::table_title(table)) + "\n");
        blocks.push(markdown(table));
        let method = words::method(run, table).replace('\u{a0}', " ");
        if !method.is_empty() {
            blocks.push(escape::markdown_line(&method) + "\n");
        }
    }
    let observer = words::observer(run);
    if !observer.is_empty() {
        let observer = escape::markdown(&observer.replace('\u{a0}', " "));
        blocks.push(format!("Observer: {observer}.\n"));
    }
    let missing = words::grouped_absences(run);
    if !missing.is_empty() {
        blocks.push("## Not measured\n".to_owned());
        blocks.push(missing.iter().map(list_item).collect());
    }
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

/// A list item with what is missing, its reason, and its remedy.
fn list_item(missing: &words::Missing) -> String {
    let reason = missing.reason.lines().collect::<Vec<_>>().join("; ");
    let subject_and_reason = escape::markdown(&format!("{}: {reason}", missing.what));
    match &missing.remedy {
        None => format!("- {subject_and_reason}\n"),
        // A code span has no escapes, so it cannot hold a command with a backtick.
        Some(remedy) if !remedy.contains('`') => format!("- {subject_and_reason}: `{remedy}`\n"),
        Some(remedy) => format!("- {subject_and_reason}: {}\n", escape::markdown(remedy)),
    }
}

/// A line of a table, from the text of its cells.
fn row(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}
