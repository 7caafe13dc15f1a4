//! The view of table `conditions`: what each window was, and what ran in it.

use crate::human;
use crate::view::{Row, View, ViewColumn};

/// What the view cannot do without.
pub(super) const NEEDS: [&str; 2] = ["condition", "window_ns"];

pub(super) fn view() -> View {
    View {
        title: Some(|_| "what was measured, what the probes missed, what ran meanwhile".to_owned()),
        group_by: Vec::new(),
        filter: None,
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::text("condition", "condition", 100),
            ViewColumn::number("window", "window_ns", 90),
            ViewColumn::number("CPUs", "cpus", 40),
            ViewColumn::number("events", "event_count", 80),
            ViewColumn::number("lost", "lost_count", 95),
            ViewColumn::number("undelivered", "undelivered_count", 85),
            ViewColumn::number("source", "", 75)
                .made(&["stimulus_operations", "stimulus_elapsed_ns"], stimulus_rate),
            ViewColumn::number("failed", "stimulus_errors", 70),
            ViewColumn::number("load", "", 60)
                .made(&["load_operations", "load_elapsed_ns"], load_rate),
            ViewColumn::number("load data", "", 50)
                .made(&["load_bytes", "load_elapsed_ns"], load_data),
            ViewColumn::number("user CPU", "user_cpu_ns", 30),
        ],
    }
}

fn stimulus_rate(row: &Row<'_>) -> String {
    per_second(row, "stimulus_operations", "stimulus_elapsed_ns")
        .map_or(human::ABSENT.to_owned(), human::rate)
}

fn load_rate(row: &Row<'_>) -> String {
    per_second(row, "load_operations", "load_elapsed_ns")
        .map_or(human::ABSENT.to_owned(), human::rate)
}

fn load_data(row: &Row<'_>) -> String {
    per_second(row, "load_bytes", "load_elapsed_ns")
        .map_or(human::ABSENT.to_owned(), |rate| format!("{}/s", human::bytes(rate)))
}

fn per_second(row: &Row<'_>, what: &str, elapsed_ns: &str) -> Option<f64> {
    let elapsed_ns = row.number(elapsed_ns).filter(|elapsed| *elapsed > 0.0)?;
    Some(row.number(what)? * 1e9 / elapsed_ns)
}
