//! Table `round_trips`: latency of small requests, alone and against a bulk transfer (section 8.3 of the paper). Names
//! and order of the columns are public.

use record::{Absence, Columns, Format, Table, column};
use signalling::Scheme;

use super::super::sample::{Load, RoundTripWindow, is_mostly_overloaded};
use super::ROUND_TRIPS;
use super::columns::{
    Activities, LATENCY_WITH_LOSSES, Latency, WindowLatency, activity_columns, grouped,
    grouped_by_load, key_columns, latency_columns,
};

/// A row: all windows with one load and scheme, with or without a bulk transfer.
struct Row<'w> {
    load: Load,
    /// All windows of a run request this rate.
    rate_hz: u64,
    /// Whether a bulk transfer ran in the meantime.
    is_during_bulk: bool,
    scheme: Scheme,
    windows: Vec<&'w RoundTripWindow>,
}

impl Row<'_> {
    /// The sum of a count over all windows.
    fn sum(&self, count: fn(&RoundTripWindow) -> u64) -> u64 {
        self.windows.iter().map(|window| count(window)).sum()
    }

    /// Whether at least half of the windows lack answers.
    fn is_overloaded(&self) -> bool {
        let overloaded_count = self.windows.iter().filter(|window| window.is_overloaded()).count();
        is_mostly_overloaded(overloaded_count, self.windows.len())
    }

    /// Share of the requests without an answer. `None` without requests.
    fn unanswered_ratio(&self) -> Option<f64> {
        let sent = self.sum(|window| window.sent);
        (sent > 0).then(|| self.sum(RoundTripWindow::unanswered) as f64 / sent as f64)
    }

    /// The round trips of the windows with answers to the requests. Empty if the row is overloaded.
    fn round_trips(&self) -> Latency {
        let is_row_overloaded = self.is_overloaded();
        let answered =
            self.windows.iter().filter(|window| !is_row_overloaded && !window.is_overloaded());
        Latency::from_windows(answered.map(|window| WindowLatency {
            latency: &window.round_trip,
            offered: window.sent,
            lost: window.lost(),
        }))
    }

    /// The row in words for warnings, such as `drain, load idle, during a bulk transfer`.
    fn description(&self) -> String {
        let bulk = if self.is_during_bulk { ", during a bulk transfer" } else { "" };
        format!("{}, load {}{bulk}", self.scheme, self.load.word())
    }

    /// The lower bound of the lowest filled bucket, ns. `None` without round trips.
    fn min_ns(&self) -> Option<u64> {
        let filled = self.windows.iter().map(|window| window.round_trip.histogram.filled());
        filled.filter_map(|mut buckets| buckets.next()).map(|(low, _, _)| low).min()
    }
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    // The object of the sentences in the documentation of the latency columns.
    let meaning = "the time from when a request was due until its answer was received (absent with \
                   overload)";
    Columns::all([
        key_columns().of(|row: &Row<'_>| (row.load, row.scheme)),
        column("bulk", "Whether a bulk transfer to the same receiver ran in the meantime.")
            .priority(98)
            .key()
            .bool(|row: &Row<'_>| row.is_during_bulk),
        column("rate_hz", "Requested requests per second; Poisson arrivals.")
            .title("rate")
            .key()
            .detail()
            .uint(|row: &Row<'_>| row.rate_hz),
        column("repetitions", "Number of measured windows.")
            .detail()
            .uint(|row: &Row<'_>| row.windows.len()),
        column("sent_count", "Requests that were due.")
            .detail()
            .uint(|row: &Row<'_>| row.sum(|window| window.sent)),
        column("answered_count", "Requests whose answer was received.")
            .shown_as("answers", 50)
            .uint(|row: &Row<'_>| row.sum(|window| window.round_trip.count)),
        column("unanswered_ratio", "Share of the requests whose answer was not received.")
            .shown_as("unanswered", 65)
            .real(|row: &Row<'_>| row.unanswered_ratio()),
        column(
            "is_over_capacity",
            "Whether the receiver did not keep up: in at least half of the windows, less than 98 % \
             of the requests were answered. Requests under way at the end of a window count as \
             answered. With overload, mean, quantiles and maximum are absent. Without overload, \
             mean, quantiles and maximum leave out the windows that lack answers.",
        )
        .detail()
        .bool(|row: &Row<'_>| row.is_overloaded()),
        column("round_trip_min_ns", "Minimum of the round trips; exact within 1/16.")
            .title("min")
            .format(Format::Microseconds)
            .priority(93)
            .uint(|row: &Row<'_>| row.min_ns()),
        latency_columns("round_trip", meaning).of(|row: &Row<'_>| row.round_trips()),
        activity_columns().of(|row: &Row<'_>| Activities {
            load: row.load,
            windows: row.windows.iter().map(|window| &window.activity).collect(),
        }),
    ])
}

/// The rows, sorted by load, bulk transfer and scheme.
fn rows(windows: &[RoundTripWindow]) -> Vec<Row<'_>> {
    let key =
        |window: &RoundTripWindow| (window.point.load, window.point.bulk, window.point.scheme);
    let rate_hz = windows.first().map_or(0, |window| window.point.rate_hz);
    let row = |((load, is_during_bulk, scheme), windows)| Row {
        load,
        rate_hz,
        is_during_bulk,
        scheme,
        windows,
    };
    grouped(windows, key).into_iter().map(row).collect()
}

/// Table `round_trips`: one row for each load and scheme, with and without a bulk transfer.
pub(super) fn round_trips(windows: &[RoundTripWindow]) -> Table {
    let doc = "Round-trip latency of small requests, alone and during a bulk transfer.";
    columns()
        .table(ROUND_TRIPS, doc, rows(windows))
        .displayed(grouped_by_load("Round trips", vec![]))
}

/// The absent round trips of overloaded rows.
pub(super) fn absences(windows: &[RoundTripWindow]) -> Vec<Absence> {
    let absence = |row: &Row<'_>| {
        let reason =
            "requests were not answered: the round trips would be those of the answered requests";
        Absence::new(ROUND_TRIPS, format!("round trips of {}", row.description()), reason)
    };
    rows(windows).iter().filter(|row| row.is_overloaded()).map(absence).collect()
}

/// A warning for each overloaded row, with its share of unanswered requests, and for each other row that loses requests.
pub(super) fn warnings(windows: &[RoundTripWindow]) -> Vec<String> {
    let loss_warning = |row: &Row<'_>| {
        let round_trips = row.round_trips();
        round_trips.has_losses().then(|| {
            format!(
                "round trips of {}: {:.2} % of the requests were lost. Of the round trips, {LATENCY_WITH_LOSSES}",
                row.description(),
                100.0 * round_trips.lost_ratio
            )
        })
    };
    let warning = |row: &Row<'_>| {
        Some(format!(
            "round trips of {}: {:.1} % of the requests were not answered; mean and quantiles are absent \
             (choose a lower --request-rate)",
            row.description(),
            100.0 * row.unanswered_ratio()?,
        ))
    };
    let rows = rows(windows);
    let overloaded = rows.iter().filter(|row| row.is_overloaded()).filter_map(warning);
    overloaded.chain(rows.iter().filter_map(loss_warning)).collect()
}
