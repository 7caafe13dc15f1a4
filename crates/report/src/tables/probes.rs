//! The views of tables `probes` and `probe_costs`: the live bench beside the truth.

use crate::view::{View, ViewColumn};

use super::source;

/// What the view of `probes` cannot do without.
pub(super) const NEEDS: [&str; 4] =
    ["condition", "kind", "probed_self_mean_ns", "true_self_mean_ns"];
/// What the view of `probe_costs` cannot do without.
pub(super) const NEEDS_OF_COSTS: [&str; 3] = ["condition", "function", "calls"];

pub(super) fn view() -> View {
    View {
        title: Some(|_| "what the probes said, and what was".to_owned()),
        group_by: vec!["condition"],
        filter: None,
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::text("kind", "kind", 90),
            ViewColumn::text("source", "", 100).made(&["kind", "number", "name"], source),
            ViewColumn::number("probed", "probed_count", 80),
            ViewColumn::number("true", "true_count", 79),
            ViewColumn::number("probed mean", "probed_self_mean_ns", 98),
            ViewColumn::number("true mean", "true_self_mean_ns", 97),
            ViewColumn::number("error", "error_ratio", 99),
            ViewColumn::number("instructions", "true_self_mean_instructions", 60),
        ],
    }
}

pub(super) fn view_of_costs() -> View {
    View {
        title: Some(|_| "what a call of the probes used".to_owned()),
        group_by: vec!["condition"],
        filter: None,
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::text("function", "function", 100),
            ViewColumn::number("calls", "calls", 90),
            ViewColumn::number("instructions", "mean_instructions", 80),
            ViewColumn::number("cycles", "mean_cycles", 85),
            ViewColumn::number("time", "mean_ns", 95),
        ],
    }
}
