//! The views of what annotations of a simulated machine found.

use super::is_sum;
use crate::view::{Filter, View, ViewColumn};

/// What the view of `annotations` cannot do without.
pub(super) const NEEDS: [&str; 4] = ["annotation", "place", "cpu", "hits"];
/// What the view of `annotation_values` cannot do without.
pub(super) const NEEDS_OF_VALUES: [&str; 4] = ["annotation", "recorded", "values", "hits"];

/// The view of `annotations`.
pub(super) fn view() -> View {
    View {
        title: Some(|_| "how often the guest came to each, and what its spans used".to_owned()),
        group_by: vec!["region"],
        filter: Some(Filter { keeps: is_sum, others: "per CPU" }),
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::text("annotation", "annotation", 100),
            ViewColumn::text("at", "place", 70),
            ViewColumn { all_rows_only: true, ..ViewColumn::text("cpu", "cpu", 95) },
            ViewColumn::number("hits", "hits", 99),
            ViewColumn::number("spans", "spans", 90),
            ViewColumn::number("self", "self_instructions", 89),
            ViewColumn::number("inclusive", "incl_instructions", 88),
            ViewColumn::number("cycles", "self_cycles", 86),
            ViewColumn::number("incl cycles", "incl_cycles", 85),
            ViewColumn::number("refused", "refused", 40),
            ViewColumn::text("span", "span", 30),
            ViewColumn::text("address", "address", 20),
        ],
    }
}

/// The view of `annotation_values`.
pub(super) fn view_of_values() -> View {
    View {
        title: Some(|_| "what was recorded together, and how often".to_owned()),
        group_by: vec!["region"],
        filter: None,
        rows_max: 100,
        columns: vec![
            ViewColumn::text("annotation", "annotation", 100),
            ViewColumn::text("recorded", "recorded", 80),
            ViewColumn::text("values", "values", 99),
            ViewColumn::number("hits", "hits", 98),
            ViewColumn::text("at", "place", 20),
        ],
    }
}
