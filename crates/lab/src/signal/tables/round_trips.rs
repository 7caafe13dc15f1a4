//! Table `round_trips`: latency of small requests, alone and against a bulk transfer (section 8.3 of the paper). Names
//! and order of the columns are public.

use record::{Columns, Format, Table, column};
use signalling::Scheme;

use super::super::sample::{Load, RoundTripWindow};
use super::ROUND_TRIPS;
use super::columns::{
    Activities, Latency, activity_columns, grouped, grouped_by_load, key_columns, latency_columns,
};

/// A row: all windows with one load and scheme, with or without a bulk transfer.
struct Row<'w> {
    load: Load,
    /// Whether a bulk transfer ran in the meantime.
    bulk: bool,
    scheme: Scheme,
    windows: Vec<&'w RoundTripWindow>,
}

impl Row<'_> {
    /// The sum of a count over all windows.
    fn sum(&self, count: fn(&RoundTripWindow) -> u64) -> u64 {
        self.windows.iter().map(|window| count(window)).sum()
    }

    /// The lower bound of the lowest filled bucket, ns. `None` without round trips.
    fn min_ns(&self) -> Option<u64> {
        let filled = self.windows.iter().map(|window| window.round_trip.histogram.filled());
        filled.filter_map(|mut buckets| buckets.next()).map(|(low, _, _)| low).min()
    }
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    let meaning = "the time from when a request was due until its answer was received";
    Columns::all([
        key_columns().of(|row: &Row<'_>| (row.load, row.scheme)),
        column("bulk", "Whether a bulk transfer to the same receiver ran in the meantime.")
            .priority(98)
            .key()
            .bool(|row: &Row<'_>| row.bulk),
        column("rate_hz", "Requested requests per second; Poisson arrivals.")
            .title("rate")
            .key()
            .detail()
            .uint(|row: &Row<'_>| row.windows[0].point.rate_hz),
        column("repetitions", "Windows that were measured.")
            .detail()
            .uint(|row: &Row<'_>| row.windows.len()),
        column("sent_count", "Requests that were due.")
            .detail()
            .uint(|row: &Row<'_>| row.sum(|window| window.sent)),
        column("answered_count", "Requests whose answer was received.")
            .shown_as("answers", 50)
            .uint(|row: &Row<'_>| row.sum(|window| window.round_trip.count)),
        column("round_trip_min_ns", "Minimum of the round trips; exact within 1/16.")
            .title("min")
            .format(Format::Microseconds)
            .priority(93)
            .uint(|row: &Row<'_>| row.min_ns()),
        latency_columns("round_trip", meaning).of(|row: &Row<'_>| {
            Latency::from_windows(row.windows.iter().map(|window| &window.round_trip))
        }),
        activity_columns().of(|row: &Row<'_>| Activities {
            load: row.load,
            windows: row.windows.iter().map(|window| &window.activity).collect(),
        }),
    ])
}

/// Table `round_trips`: one row for each load and scheme, with and without a bulk transfer.
pub(super) fn round_trips(windows: &[RoundTripWindow]) -> Table {
    let doc = "Round-trip latency of small requests, alone and during a bulk transfer.";
    let key =
        |window: &RoundTripWindow| (window.point.load, window.point.bulk, window.point.scheme);
    let rows = grouped(windows, key).into_iter().map(|((load, bulk, scheme), windows)| Row {
        load,
        bulk,
        scheme,
        windows,
    });
    columns().table(ROUND_TRIPS, doc, rows).displayed(grouped_by_load("Round trips", vec![]))
}
