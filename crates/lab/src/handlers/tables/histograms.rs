//! Table `histograms`: the distributions from which the quantiles are computed.

use record::{Column, Kind, Table, Value};
use stats::Distribution;

use super::super::sample::Timing;
use super::super::samples::ConditionSamples;
use super::{display, groups, key_columns, key_values};

/// Table `histograms`: one row per filled bucket, summed over the CPUs.
pub fn histograms(measured: &[ConditionSamples]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        Column::new(
            "quantity",
            Kind::Text,
            "Quantity of the distribution: self or inclusive (times in ns), or packets (per poll).",
        ),
        Column::new("bucket_min", Kind::Uint, "Smallest value of the bucket."),
        Column::new("bucket_max", Kind::Uint, "Largest value of the bucket."),
        Column::new("count", Kind::Uint, "Values in the bucket."),
    ]);
    let doc = "Filled buckets of the distributions, summed over the CPUs. A power of two has 16 buckets: a \
               bucket's width is at most 1/16 of its value.";
    let mut table = Table::new("histograms", doc, columns).displayed(display(""));
    // The table has thousands of rows: programs read it, a terminal shows none.
    table.display.rows_max = Some(0);
    for condition in measured {
        let label = condition.condition.label();
        for group in groups(&condition.timing).iter().filter(|group| group.cpu.is_none()) {
            let mut self_or_packets = Distribution::default();
            let mut inclusive = Distribution::default();
            for sample in &group.samples {
                self_or_packets.merge(&sample.own);
                inclusive.merge(&sample.inclusive);
            }
            let has_packets = group.samples.iter().any(|sample| sample.timing == Timing::Packets);
            let quantity = if has_packets { "packets" } else { "self" };
            for (quantity, distribution) in [(quantity, self_or_packets), ("inclusive", inclusive)]
            {
                for (low, high, count) in distribution.histogram.filled() {
                    let mut row: Vec<Value> = key_values(&label, group);
                    row.extend([quantity.into(), low.into(), high.into(), count.into()]);
                    table.push(row);
                }
            }
        }
    }
    table
}
