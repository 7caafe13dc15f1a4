//! Table `napi`: polls of network devices, and packets per poll. Users' programs read the
//! columns: names and order must not change.

use record::{Columns, RowFilter, Table, TableDisplay, column};
use stats::Distribution;

use super::super::sample::Timing;
use super::super::samples::ConditionSamples;
use super::{GroupRow, display, group_rows, key_columns, offline_column, rate_hz};
use crate::amounts::{interval_columns, interval_link, mean_link, method_column, rate_interval};
use crate::quantiles::{p50_p99_section_columns, section_link};

/// The polls of a NAPI instance in a condition, on one CPU or on all CPUs.
struct Row<'a> {
    group_row: GroupRow<'a>,
    /// The packets of each poll.
    packets: Distribution,
}

fn columns<'a>(measured: &[ConditionSamples]) -> Columns<'a, Row<'a>> {
    Columns::all([
        key_columns().of_ref(|row: &Row<'_>| &row.group_row),
        column(
            "poll_count",
            "Polls (tracepoint napi_poll, which has no entry event: polls have no duration).",
        )
        .shown_as("polls", 90)
        .uint(|row: &Row<'_>| row.packets.count),
        column("rate_hz", "Polls per second of the window.")
            .interval(interval_link("rate_hz"))
            .priority(60)
            .real(|row: &Row<'_>| rate_hz(row.packets.count, row.group_row.group.length_ns)),
        column("packet_count", "Packets that these polls handled.")
            .shown_as("packets", 70)
            .uint(|row: &Row<'_>| row.packets.sum),
        column("packets_per_poll_mean", "Mean number of packets per poll.")
            .title("packets/poll")
            .interval(mean_link("packets_per_poll_mean"))
            .plus_minus("packets_per_poll_mean_ci95")
            .priority(80)
            .real(|row: &Row<'_>| row.packets.mean()),
        column("packets_per_poll_p50", "Median of the packets per poll; within 1/16.")
            .interval(section_link("packets_per_poll_p50"))
            .shown_as("p50", 40)
            .uint(|row: &Row<'_>| row.packets.quantile(50_000)),
        column("packets_per_poll_p99", "99th percentile; within 1/16.")
            .interval(section_link("packets_per_poll_p99"))
            .shown_as("p99", 45)
            .uint(|row: &Row<'_>| row.packets.quantile(99_000)),
        column("packets_per_poll_max", "Maximum number of packets in one poll.")
            .shown_as("max", 50)
            .uint(|row: &Row<'_>| row.packets.peak.value),
        column(
            "budget_exhausted_count",
            "Polls that handled as many packets as their budget allows.",
        )
        .shown_as("budget exhausted", 30)
        .uint(|row: &Row<'_>| {
            row.group_row.group.samples.iter().map(|sample| sample.special_count).sum::<u64>()
        }),
        p50_p99_section_columns(["packets_per_poll_p50", "packets_per_poll_p99"])
            .of_ref(|row: &Row<'_>| &row.packets),
        interval_columns("packets_per_poll_mean").of(|row: &Row<'_>| row.packets.interval()),
        interval_columns("rate_hz").of(|row: &Row<'_>| {
            let group = &row.group_row.group;
            rate_interval(&row.packets, group.length_ns, group.cpu_time_ns)
        }),
        method_column("packets_per_poll_mean").of(|row: &Row<'_>| row.packets.interval()),
        offline_column(measured).of_ref(|row: &Row<'_>| &row.group_row),
    ])
}

/// Table `napi`: one row per NAPI instance and CPU, and one per instance over all CPUs.
pub fn napi(measured: &[ConditionSamples]) -> Table {
    let doc = "One row per NAPI instance and CPU, and one for the sum over the CPUs (`all`).";
    let display = TableDisplay {
        sort_by: Some("packet_count".to_owned()),
        filter: Some(RowFilter::sums_over_cpus()),
        ..display("polls of the network devices, and packets per poll")
    };
    let is_napi = |row: &GroupRow<'_>| {
        row.group.samples.iter().all(|sample| sample.timing == Timing::Packets)
    };
    let rows = group_rows(measured).filter(is_napi).map(|group_row| {
        let mut packets = Distribution::default();
        group_row.group.samples.iter().for_each(|sample| packets.merge(&sample.own));
        Row { group_row, packets }
    });
    columns(measured).table("napi", doc, rows).displayed(display)
}
