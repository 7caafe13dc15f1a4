//! The view of table `napi`: polls of each device, over all CPUs.

use super::is_sum;
use crate::view::{Filter, View, ViewColumn};

/// What the view cannot do without.
pub(super) const NEEDS: [&str; 4] = ["condition", "cpu", "number", "name"];

pub(super) fn view() -> View {
    View {
        title: Some(|_| "polls of the network devices, and packets in each poll".to_owned()),
        group_by: vec!["condition"],
        filter: Some(Filter { keeps: is_sum, others: "per CPU" }),
        rows_max: usize::MAX,
        columns: vec![
            ViewColumn::text("device", "name", 100),
            ViewColumn::number("napi id", "number", 20),
            ViewColumn { all_rows_only: true, ..ViewColumn::text("cpu", "cpu", 95) },
            ViewColumn::number("polls", "poll_count", 90),
            ViewColumn::number("rate", "rate_hz", 60),
            ViewColumn::number("packets", "packet_count", 70),
            ViewColumn::number("per poll", "packets_per_poll_mean", 80),
            ViewColumn::number("p50", "packets_per_poll_p50", 40),
            ViewColumn::number("p99", "packets_per_poll_p99", 45),
            ViewColumn::number("max", "packets_per_poll_max", 50),
            ViewColumn::number("budget used up", "budget_used_up_count", 30),
        ],
    }
}
