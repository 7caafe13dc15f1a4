//! The view of the table of experiment `scale`.

use super::plain;
use crate::human;
use crate::view::{Row, View, ViewColumn};

/// What the view cannot do without.
pub(super) const NEEDS: [&str; 3] = ["grain_ns", "node_count", "slowdown_ratio"];

pub(super) fn view() -> View {
    plain(
        usize::MAX,
        vec![
            ViewColumn::number("grain", "grain_ns", 100),
            ViewColumn::text("detours", "detours", 99),
            ViewColumn::number("nodes", "node_count", 98),
            ViewColumn::number("barrier", "barrier_ns", 60),
            ViewColumn::number("delay", "delay_mean_ns", 90),
            ViewColumn::number("p50", "delay_p50_ns", 40),
            ViewColumn::number("p99", "delay_p99_ns", 70),
            ViewColumn::number("slowdown", "slowdown_ratio", 97),
            ViewColumn::text("ci95", "", 95)
                .made(&["slowdown_low_ratio", "slowdown_high_ratio"], interval),
            ViewColumn::text("", "", 94).made(&["is_least"], least),
        ],
    )
}

fn interval(row: &Row<'_>) -> String {
    let Some(low) = row.number("slowdown_low_ratio") else { return human::ABSENT.to_owned() };
    let high = row.number("slowdown_high_ratio").map_or("?".to_owned(), human::percent);
    format!("{} to {high}", human::percent(low))
}

fn least(row: &Row<'_>) -> String {
    if row.cell("is_least") == "yes" { "least".to_owned() } else { String::new() }
}
