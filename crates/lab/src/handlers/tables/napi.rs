//! Table `napi`: polls, and packets per poll.

use record::{Column, Kind, RowFilter, Table, TableDisplay, Value};
use stats::Distribution;

use super::super::sample::Timing;
use super::super::samples::ConditionSamples;
use super::{display, groups, key_columns, key_values, offline_column, rate_hz};
use crate::amounts::{interval_columns, interval_link, interval_values, rate_values};
use crate::quantiles::{p50_p99_section_columns, p50_p99_section_values, section_link};

/// Table `napi`: one row per NAPI instance and CPU, and one per instance over all CPUs.
pub fn napi(measured: &[ConditionSamples]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        Column::new(
            "poll_count",
            Kind::Uint,
            "Polls (tracepoint napi_poll, which has no entry event: polls have no duration).",
        )
        .title("polls")
        .priority(90),
        Column::new("rate_hz", Kind::Real, "Polls per second of the window.")
            .interval(interval_link("rate_hz"))
            .priority(60),
        Column::new("packet_count", Kind::Uint, "Packets that these polls handled.")
            .title("packets")
            .priority(70),
        Column::new("packets_per_poll_mean", Kind::Real, "Mean number of packets per poll.")
            .title("packets/poll")
            .interval(interval_link("packets_per_poll_mean"))
            .plus_minus("packets_per_poll_mean_ci95")
            .priority(80),
        Column::new(
            "packets_per_poll_p50",
            Kind::Uint,
            "Median of the packets per poll; within 1/16.",
        )
        .interval(section_link("packets_per_poll_p50"))
        .title("p50")
        .priority(40),
        Column::new("packets_per_poll_p99", Kind::Uint, "99th percentile; within 1/16.")
            .interval(section_link("packets_per_poll_p99"))
            .title("p99")
            .priority(45),
        Column::new("packets_per_poll_max", Kind::Uint, "Maximum number of packets in one poll.")
            .title("max")
            .priority(50),
        Column::new(
            "budget_exhausted_count",
            Kind::Uint,
            "Polls that handled as many packets as their budget allows.",
        )
        .title("budget exhausted")
        .priority(30),
    ]);
    columns.extend(p50_p99_section_columns(["packets_per_poll_p50", "packets_per_poll_p99"]));
    columns.extend(interval_columns("packets_per_poll_mean"));
    columns.extend(interval_columns("rate_hz"));
    columns.push(offline_column(measured));
    let doc = "One row per NAPI instance and CPU, and one for the sum over the CPUs (`all`).";
    let display = TableDisplay {
        sort_by: Some("packet_count".to_owned()),
        filter: Some(RowFilter::sums_over_cpus()),
        ..display("polls of the network devices, and packets per poll")
    };
    let mut table = Table::new("napi", doc, columns).displayed(display);
    for condition in measured {
        let label = condition.condition.label();
        for group in groups(&condition.timing) {
            if group.samples.iter().any(|sample| sample.timing != Timing::Packets) {
                continue;
            }
            let mut packets = Distribution::default();
            group.samples.iter().for_each(|sample| packets.merge(&sample.own));
            let budget_exhausted: u64 =
                group.samples.iter().map(|sample| sample.special_count).sum();
            let mut row: Vec<Value> = key_values(&label, &group);
            row.extend([
                packets.count.into(),
                rate_hz(packets.count, group.length_ns).into(),
                packets.sum.into(),
                packets.mean().into(),
                packets.quantile(50_000).into(),
                packets.quantile(99_000).into(),
                packets.peak.value.into(),
                budget_exhausted.into(),
            ]);
            row.extend(p50_p99_section_values(&packets));
            row.extend(interval_values(packets.interval()));
            row.extend(rate_values(&packets, group.length_ns, group.cpu_time_ns));
            row.push(group.offline_after_ns.into());
            table.push(row);
        }
    }
    table
}
