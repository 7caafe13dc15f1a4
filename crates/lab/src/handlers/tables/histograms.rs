//! Table `histograms`: the distributions from which the quantiles are computed.

use record::{Column, Kind, Table, Value};
use stats::Distribution;

use super::super::sample::Timing;
use super::super::samples::ConditionSamples;
use super::{display, groups, key_columns, key_values};

/// One row per filled bucket, summed over the CPUs.
pub fn histograms(measured: &[ConditionSamples]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        Column::new(
            "quantity",
            Kind::Text,
            "What was counted: self or inclusive (times in ns), or packets (per poll).",
        ),
        Column::new("bucket_min", Kind::Uint, "Smallest value of the bucket."),
        Column::new("bucket_max", Kind::Uint, "Largest value of the bucket."),
        Column::new("count", Kind::Uint, "Values in the bucket."),
    ]);
    let doc = "Filled buckets of the distributions, summed over the CPUs; 16 buckets per power of two, \
               so that a bucket is at most 1/16 of its value wide.";
    let mut table = Table::new("histograms", doc, columns).displayed(display(""));
    // Thousands of rows: for programs.
    table.display.rows_max = Some(0);
    for one in measured {
        for group in groups(&one.timing).iter().filter(|group| group.cpu.is_none()) {
            let (mut own, mut inclusive) = (Distribution::default(), Distribution::default());
            for sample in &group.samples {
                own.merge(&sample.own);
                inclusive.merge(&sample.inclusive);
            }
            let packets = group.samples.iter().any(|sample| sample.timing == Timing::Packets);
            let kinds = [(if packets { "packets" } else { "self" }, own), ("inclusive", inclusive)];
            for (of, distribution) in kinds {
                for (low, high, count) in distribution.histogram.filled() {
                    let mut row: Vec<Value> = key_values(&one.condition.label(), group);
                    row.extend([of.into(), low.into(), high.into(), count.into()]);
                    table.push(row);
                }
            }
        }
    }
    table
}
