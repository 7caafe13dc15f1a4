//! Table `histograms`: the buckets behind the quantiles.

use record::{Column, Kind, Table, Value};
use stats::Distribution;

use super::super::experiment::Measured;
use super::super::sample::Timing;
use super::{groups, key_columns, key_values};

/// One row a filled bucket, summed over the CPUs.
pub fn histograms(measured: &[Measured]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        Column::new("of", Kind::Text, "self or incl (times in ns), or packets."),
        Column::new("low", Kind::Uint, "Smallest value of the bucket."),
        Column::new("high", Kind::Uint, "Largest value of the bucket."),
        Column::new("count", Kind::Uint, "Values in it."),
    ]);
    let doc =
        "Filled buckets; 16 to each power of two, so a bucket is at most 1/16 of its value wide.";
    let mut table = Table::new("histograms", doc, columns);
    for one in measured {
        for group in groups(&one.timing).iter().filter(|group| group.cpu.is_none()) {
            let (mut own, mut inclusive) = (Distribution::default(), Distribution::default());
            for sample in &group.samples {
                own.merge(&sample.own);
                inclusive.merge(&sample.inclusive);
            }
            let packets = group.samples.iter().any(|sample| sample.timing == Timing::Packets);
            let kinds = [(if packets { "packets" } else { "self" }, own), ("incl", inclusive)];
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
