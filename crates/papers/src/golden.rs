//! Golden texts of the papers' tables: each verdict with the paper's figures and the reason, and the number of empty cells
//! of each column. The tables are made from samples like the paper's figures. A change of a claim, of a limit or of a table
//! shows as a difference of a file in `tests/golden/`. `INSTA_UPDATE=always cargo test -p papers` writes the files.

use std::fmt::Write;

use record::{Table, Value};

/// Columns of the table `findings` in a golden text. Columns that a table lacks are left out.
const FINDING_COLUMNS: [&str; 8] = [
    "verdict",
    "published_verdict",
    "agreement",
    "finding",
    "model",
    "subject",
    "published_evidence",
    "reason",
];

/// Compares the verdicts and the empty cells of a paper's tables with the file `tests/golden/PAPER.snap`.
///
/// # Panics
/// If they differ, or if no table is named `findings`.
pub(crate) fn check(paper: &str, tables: &[Table]) {
    let findings = tables.iter().find(|table| table.name == "findings").expect("findings");
    let text = tables.iter().fold(verdicts(findings), |text, table| text + &empty_cells(table));
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../tests/golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(paper, text));
}

/// A line for each finding.
fn verdicts(findings: &Table) -> String {
    let cell = |row: &[Value], column: &&str| match findings.get(row, column)? {
        Value::Text(text) => Some(text.to_string()),
        _ => Some("-".to_owned()),
    };
    let line = |row: &Vec<Value>| {
        let cells: Vec<String> =
            FINDING_COLUMNS.iter().filter_map(|column| cell(row, column)).collect();
        cells.join(" | ") + "\n"
    };
    findings.rows().iter().map(line).collect()
}

/// The number of rows of a table, and a line for each column with empty cells.
fn empty_cells(table: &Table) -> String {
    let mut text = format!("\n{}: {} rows; empty cells:\n", table.name, table.rows().len());
    for (position, column) in table.columns.iter().enumerate() {
        let empty = table.rows().iter().filter(|row| row[position] == Value::Absent).count();
        if empty > 0 {
            writeln!(text, "  {}: {empty}", column.name).expect("a string takes all text");
        }
    }
    text
}
