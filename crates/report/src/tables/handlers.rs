//! The view of table `handlers`: one line per source of interrupts, per condition.

use super::{is_sum, source};
use crate::human;
use crate::view::{Filter, Row, View, ViewColumn};

/// What the view cannot do without.
pub(super) const NEEDS: [&str; 4] = ["condition", "cpu", "kind", "name"];

/// The view. At 80 columns: kind, source, count, mean, p99, max and share; the rest comes with
/// width.
pub(super) fn view() -> View {
    View {
        title: Some(|_| {
            "what each source of interrupts cost; times are self times, without what was nested \
             inside"
                .to_owned()
        }),
        group_by: vec!["condition"],
        filter: Some(Filter { keeps: is_sum, others: "per CPU" }),
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::text("kind", "kind", 75),
            ViewColumn::text("source", "", 100).made(&["kind", "number", "name"], source),
            ViewColumn { all_rows_only: true, ..ViewColumn::text("cpu", "cpu", 95) },
            ViewColumn::number("count", "count", 70),
            ViewColumn::number("rate", "rate_hz", 40),
            ViewColumn::number("mean ± ci95", "", 99).made(&["self_mean_ns"], mean),
            ViewColumn::number("p50", "self_p50_ns", 50),
            ViewColumn::number("p90", "self_p90_ns", 10),
            ViewColumn::number("p99", "self_p99_ns", 80),
            ViewColumn::number("p99.9", "self_p999_ns", 15),
            ViewColumn::number("max", "self_max_ns", 90),
            ViewColumn::number("total", "self_total_ns", 30),
            ViewColumn::number("share", "self_share_ratio", 65),
            ViewColumn::number("incl mean", "incl_mean_ns", 20),
        ],
    }
}

fn mean(row: &Row<'_>) -> String {
    let half_width = row.number("self_mean_ci95_ns");
    row.number("self_mean_ns")
        .map_or(human::ABSENT.to_owned(), |mean| human::ns_with_half_width(mean, half_width))
}
