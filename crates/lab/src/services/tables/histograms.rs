//! Table `histograms`: the buckets of latency and computation.

use record::limits::ROWS_MAX;
use record::{Column, Kind, Table, TableDisplay, Value};

use super::super::sample::ServicesSample;
use super::{key_columns, key_values};

/// One row for each bucket that is not empty.
pub(in super::super) fn histograms(sample: &ServicesSample) -> Table {
    let mut columns = key_columns().to_vec();
    columns.extend([
        Column::new("time", Kind::Text, "latency or computation.").priority(99).key(),
        Column::new("low_ns", Kind::Uint, "Lowest time of the bucket.").key(),
        Column::new("high_ns", Kind::Uint, "Highest time of the bucket."),
        Column::new("count", Kind::Uint, "Completed requests in the bucket."),
    ]);
    let doc = "Completed requests by time; a bucket is at most 1/16 of its lower bound wide.";
    let display = TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() };
    let mut table = Table::new("histograms", doc, columns).displayed(display);
    for service in &sample.services {
        let Some(times) = &service.times else { continue };
        let both = [("latency", Some(&times.latency)), ("computation", times.computation.as_ref())];
        for (time, distribution) in both {
            let Some(distribution) = distribution else { continue };
            for (low, high, count) in distribution.histogram.filled() {
                let mut row: Vec<Value> = key_values(service.class, &service.name).to_vec();
                let (low, high) = (sample.whole_ns(low), sample.whole_ns(high));
                row.extend([time.into(), low.into(), high.into(), count.into()]);
                table.push(row);
            }
        }
    }
    table
}
