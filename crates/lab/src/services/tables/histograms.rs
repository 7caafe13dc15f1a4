//! Table `histograms`: the buckets of latency and computation. Only with `--histograms`. Users' programs read the
//! columns: names and order must not change.

use record::limits::ROWS_MAX;
use record::{Table, TableDisplay, column};

use super::super::sample::{ServiceStats, ServicesSample};
use super::key_columns;

/// One row for each bucket that is not empty.
pub(in super::super) fn histograms(sample: &ServicesSample) -> Table {
    /// A service, the name of a time, and a bucket: its ends in ticks, and the requests in it.
    type Row<'a> = (&'a ServiceStats, &'static str, (u64, u64, u64));
    let columns = key_columns().of(|(service, ..): &Row<'_>| service.service_name()).and([
        column("time", "latency or computation.").priority(99).key().text(|row: &Row<'_>| row.1),
        column("low_ns", "Lowest time of the bucket.")
            .key()
            .uint(|(.., (low, ..)): &Row<'_>| sample.whole_ns(*low)),
        column("high_ns", "Highest time of the bucket.")
            .uint(|(.., (_, high, _)): &Row<'_>| sample.whole_ns(*high)),
        column("count", "Completed requests in the bucket.")
            .uint(|(.., (.., count)): &Row<'_>| *count),
    ]);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for service in &sample.services {
        let Some(times) = &service.times else { continue };
        let distributions =
            [("latency", Some(&times.latency)), ("computation", times.computation.as_ref())];
        for (time, distribution) in distributions {
            let buckets = distribution.iter().flat_map(|times| times.buckets());
            rows.extend(buckets.map(|bucket| (service, time, bucket)));
        }
    }
    let doc = "Completed requests by time; a bucket is at most 1/16 of its lower bound wide.";
    let display = TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() };
    columns.table("histograms", doc, rows).displayed(display)
}
