//! Table `round_trips`: latency of small requests, alone and against a bulk transfer (section 8.3 of the
//! paper).

use record::{Column, Format, Kind, Table, Value};

use super::super::sample::RoundTripWindow;
use super::ROUND_TRIPS;
use super::columns::{
    activity_columns, activity_values, column, grouped, grouped_by_load, key_columns,
    latency_columns, latency_values,
};

fn columns() -> Vec<Column> {
    let mut columns = key_columns();
    columns.extend([
        column(
            "bulk",
            Kind::Bool,
            "Whether a bulk transfer to the same receiver ran in the meantime.",
        )
        .priority(98)
        .key(),
        column("rate_hz", Kind::Uint, "Requested requests per second; Poisson arrivals.")
            .title("rate")
            .key()
            .detail(),
        column("repetitions", Kind::Uint, "Windows that were measured.").detail(),
        column("sent_count", Kind::Uint, "Requests that were due.").detail(),
        column("answered_count", Kind::Uint, "Requests whose answer was received.")
            .shown_as("answers", 50),
        column("round_trip_min_ns", Kind::Uint, "Minimum of the round trips; exact within 1/16.")
            .title("min")
            .format(Format::Microseconds)
            .priority(93),
    ]);
    columns.extend(latency_columns(
        "round_trip",
        "the time from when a request was due until its answer was received",
    ));
    columns.extend(activity_columns());
    columns
}

/// One row for each load, scheme, and with and without bulk transfer.
pub(super) fn round_trips(windows: &[RoundTripWindow]) -> Table {
    let doc = "Round-trip latency of small requests, alone and during a bulk transfer.";
    let mut table =
        Table::new(ROUND_TRIPS, doc, columns()).displayed(grouped_by_load("Round trips", vec![]));
    for ((load, bulk, scheme), windows) in
        grouped(windows, |window| (window.point.load, window.point.bulk, window.point.scheme))
    {
        let sum = |count: fn(&RoundTripWindow) -> u64| {
            windows.iter().map(|window| count(window)).sum::<u64>()
        };
        let min = windows
            .iter()
            .filter_map(|window| window.round_trip.histogram.filled().next())
            .map(|(low, _, _)| low)
            .min();
        let mut row: Vec<Value> = vec![
            load.word().into(),
            scheme.to_string().into(),
            bulk.into(),
            windows[0].point.rate_hz.into(),
            (windows.len() as u64).into(),
            sum(|window| window.sent).into(),
            sum(|window| window.round_trip.count).into(),
            min.into(),
        ];
        row.extend(latency_values(&windows, |window| &window.round_trip));
        row.extend(activity_values(&windows, load, |window| &window.activity));
        table.push(row);
    }
    table
}
