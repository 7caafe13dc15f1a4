//! The views of a paper's tables with ours beside them, and of its findings as statements.

use crate::human;
use crate::view::{Row, View, ViewColumn};

/// What the views cannot do without.
pub(super) const NEEDS: [&str; 4] = ["model", "paper_table", "ours", "published"];
pub(super) const NEEDS_OF_STATEMENTS: [&str; 3] = ["statement", "verdict", "claim"];

pub(super) fn view() -> View {
    View {
        title: None,
        group_by: vec!["model"],
        filter: None,
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::number("table", "paper_table", 100),
            ViewColumn::text("level", "level", 99),
            ViewColumn::text("mode", "mode", 98),
            ViewColumn::text("what", "what", 97),
            ViewColumn::text("method", "method", 80),
            ViewColumn::text("count", "count", 79),
            ViewColumn::number("ours", "ours", 96),
            ViewColumn::number("± ci95", "ours_ci95", 90),
            ViewColumn::number("published", "published", 95),
            ViewColumn::number("ratio", "", 94).made(&["ours_over_published_ratio"], |row| {
                times(row, "ours_over_published_ratio")
            }),
        ],
    }
}

pub(super) fn view_of_statements() -> View {
    View {
        title: None,
        group_by: vec!["model"],
        filter: None,
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::text("statement", "statement", 100),
            ViewColumn::text("of", "of", 99),
            ViewColumn::text("verdict", "verdict", 98),
            ViewColumn::number("ratio", "", 97)
                .made(&["ours_ratio"], |row| times(row, "ours_ratio")),
            ViewColumn::text("published", "published_verdict", 96),
            ViewColumn::number("its ratio", "", 95)
                .made(&["published_ratio"], |row| times(row, "published_ratio")),
            ViewColumn::text("numbers", "numbers", 90),
            ViewColumn::text("claim", "claim", 70),
            ViewColumn::text("why", "why", 60),
        ],
    }
}

/// `1.18`: of two counts, not a part of a whole.
fn times(row: &Row<'_>, column: &str) -> String {
    row.number(column).map_or_else(|| human::ABSENT.to_owned(), |ratio| format!("{ratio:.2}"))
}
