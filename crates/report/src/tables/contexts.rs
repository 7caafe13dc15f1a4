//! The view of table `contexts`: what each context of a simulated machine executed.

use super::is_sum;
use crate::view::{Filter, View, ViewColumn};

/// What the view cannot do without.
pub(super) const NEEDS: [&str; 3] = ["cpu", "context", "self_instructions"];

/// The view.
pub(super) fn view() -> View {
    View {
        title: Some(|_| "instructions by what they were executed for".to_owned()),
        group_by: vec!["region"],
        filter: Some(Filter { keeps: is_sum, others: "per CPU" }),
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::text("context", "context", 100),
            ViewColumn { all_rows_only: true, ..ViewColumn::text("cpu", "cpu", 95) },
            ViewColumn::number("self", "self_instructions", 99),
            ViewColumn::number("share", "share_ratio", 80),
            ViewColumn::number("cycles", "self_cycles", 85),
            ViewColumn::number("inclusive", "incl_instructions", 60),
            ViewColumn::number("entries", "entries", 90),
            ViewColumn::number("completed", "completed", 50),
        ],
    }
}
