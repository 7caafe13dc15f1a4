//! The views of the tables of experiment `footprint`.

use super::plain;
use crate::human;
use crate::view::{Row, View, ViewColumn};

/// What the views cannot do without.
pub(super) const NEEDS: [&str; 3] = ["level", "source", "limit_lines"];

pub(super) fn view() -> View {
    plain(
        usize::MAX,
        vec![
            ViewColumn::text("level", "level", 100),
            ViewColumn::text("source", "source", 100),
            ViewColumn::text("method", "method", 90),
            ViewColumn::number("user misses", "user_misses", 98),
            ViewColumn::number("± user", "user_misses_ci95", 72),
            ViewColumn::number("kernel misses", "kernel_misses", 97),
            ViewColumn::number("lines", "", 99).made(&["lines", "at_most"], lines),
            ViewColumn::number("ci95", "", 95).made(&["lines_low", "lines_high"], interval),
            ViewColumn::number("limit", "limit_lines", 80).made(&["limit_lines"], limit),
            ViewColumn::number("of level", "level_ratio", 85),
            ViewColumn::number("bytes", "displaced_bytes", 60),
            ViewColumn::number("aftermath", "aftermath_ns", 92),
            ViewColumn::number("± ci95", "aftermath_ci95_ns", 70),
            ViewColumn::number("stopped p50", "stopped_p50_ns", 88),
            ViewColumn::number("kept", "kept_count", 75),
            ViewColumn::number("idle", "idle_kept_count", 50),
            ViewColumn::number("others", "others_count", 40),
            ViewColumn::number("missed", "not_interrupted_count", 38),
            ViewColumn::number("paused", "paused_count", 36),
            ViewColumn::text("pages", "pages", 30),
        ],
    )
}

fn tenths(row: &Row<'_>, column: &str) -> String {
    row.number(column).map_or_else(|| human::ABSENT.to_owned(), |lines| format!("{lines:.1}"))
}

/// `≤ 714.1` where it is an upper bound.
fn lines(row: &Row<'_>) -> String {
    let bound = if row.cell("at_most") == "yes" { "≤ " } else { "" };
    format!("{bound}{}", tenths(row, "lines"))
}

fn limit(row: &Row<'_>) -> String {
    tenths(row, "limit_lines")
}

fn interval(row: &Row<'_>) -> String {
    match row.number("lines_low") {
        None => human::ABSENT.to_owned(),
        Some(_) => format!("{} to {}", tenths(row, "lines_low"), tenths(row, "lines_high")),
    }
}
