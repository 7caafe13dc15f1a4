//! Table `napi`: polls, and packets per poll.

use record::{Column, Kind, Table, Value};
use stats::Distribution;

use super::super::experiment::Measured;
use super::super::sample::Timing;
use super::{groups, key_columns, key_values, rate_hz};

/// One row a NAPI instance and CPU, and one an instance over all CPUs.
pub fn napi(measured: &[Measured]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        Column::new(
            "poll_count",
            Kind::Uint,
            "Polls (tracepoint napi_poll, which has no entry event).",
        ),
        Column::new("rate_hz", Kind::Real, "Polls per second of the window."),
        Column::new("packet_count", Kind::Uint, "Packets handled by these polls."),
        Column::new("packets_per_poll_mean", Kind::Real, "Mean number of packets of a poll."),
        Column::new("packets_per_poll_p50", Kind::Uint, "Median; within 1/16."),
        Column::new("packets_per_poll_p99", Kind::Uint, "99th percentile; within 1/16."),
        Column::new("packets_per_poll_max", Kind::Uint, "The most packets of a poll."),
        Column::new("budget_used_up_count", Kind::Uint, "Polls that handled their whole budget."),
    ]);
    let mut table = Table::new("napi", "One row for each NAPI instance that was polled.", columns);
    for one in measured {
        for group in groups(&one.timing) {
            if group.samples.iter().any(|sample| sample.timing != Timing::Packets) {
                continue;
            }
            let mut packets = Distribution::default();
            group.samples.iter().for_each(|sample| packets.merge(&sample.own));
            let used_up: u64 = group.samples.iter().map(|sample| sample.special_count).sum();
            let mut row: Vec<Value> = key_values(&one.condition.label(), &group);
            row.extend([
                packets.count.into(),
                rate_hz(packets.count, group.length_ns).into(),
                packets.sum.into(),
                packets.mean().into(),
                packets.quantile(50_000).into(),
                packets.quantile(99_000).into(),
                packets.peak.value.into(),
                used_up.into(),
            ]);
            table.push(row);
        }
    }
    table
}
