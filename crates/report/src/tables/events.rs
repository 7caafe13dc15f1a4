//! The views of tables `events` and `ratios`: what the PMU counted in each source.

use super::source;
use crate::human;
use crate::view::{Row, View, ViewColumn};

/// What the view of `events` cannot do without.
pub(super) const NEEDS: [&str; 4] = ["condition", "kind", "name", "event"];
/// What the view of `ratios` cannot do without.
pub(super) const NEEDS_OF_RATIOS: [&str; 3] = ["condition", "kind", "name"];

pub(super) fn view() -> View {
    View {
        title: Some(|_| {
            "what the PMU counted in each source, all CPUs together; means less what reading adds"
                .to_owned()
        }),
        group_by: vec!["condition"],
        filter: None,
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::text("kind", "kind", 60),
            ViewColumn::text("source", "", 100).made(&["kind", "number", "name"], source),
            ViewColumn::text("event", "event", 95),
            ViewColumn::number("spans", "span_count", 70),
            ViewColumn::number("mean per span", "self_mean", 90),
            ViewColumn::number("reading adds", "read_overhead_per_span", 50),
            ViewColumn::number("sum as read", "self_sum", 30),
            ViewColumn::number("pass", "pass", 20),
        ],
    }
}

pub(super) fn view_of_ratios() -> View {
    View {
        title: Some(|_| "ratios of the mean events per span, all CPUs together".to_owned()),
        group_by: vec!["condition"],
        filter: None,
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::text("kind", "kind", 60),
            ViewColumn::text("source", "", 100).made(&["kind", "number", "name"], source),
            ViewColumn::number("IPC", "", 99).made(&["ipc_ratio"], ipc),
            ViewColumn::number("completion", "completion_ratio", 50),
            ViewColumn::number("branch miss", "branch_miss_ratio", 90),
            ViewColumn::number("L1I miss", "l1i_miss_ratio", 85),
            ViewColumn::number("L1D miss", "l1d_miss_ratio", 80),
            ViewColumn::number("LLC miss", "llc_miss_ratio", 75),
            ViewColumn::number("D-TLB miss", "dtlb_miss_ratio", 45),
            ViewColumn::number("I-TLB miss", "itlb_miss_ratio", 40),
        ],
    }
}

/// A number and not a share: it may well be above 1.
fn ipc(row: &Row<'_>) -> String {
    row.number("ipc_ratio").map_or(human::ABSENT.to_owned(), human::number)
}
