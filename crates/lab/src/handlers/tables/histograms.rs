//! Table `histograms`: the distributions from which the quantiles of table
//! `handlers` are computed. Only with `--histograms`.

use std::rc::Rc;

use record::{Table, column};
use stats::Distribution;

use super::super::sample::Timing;
use super::super::samples::ConditionSamples;
use super::{GroupRow, display, group_rows, key_columns};

/// A filled bucket of a distribution of a context.
struct Bucket<'a> {
    row: Rc<GroupRow<'a>>,
    quantity: &'static str,
    low: u64,
    high: u64,
    count: u64,
}

/// Table `histograms`: one row per filled bucket, summed over the CPUs.
pub fn histograms(measured: &[ConditionSamples]) -> Table {
    let columns = key_columns().of_ref(|bucket: &Bucket<'_>| &*bucket.row).and([
        column(
            "quantity",
            "Quantity of the distribution: self or inclusive (times in ns), or packets (per poll).",
        )
        .text(|bucket: &Bucket<'_>| bucket.quantity),
        column("bucket_min", "Smallest value of the bucket.")
            .uint(|bucket: &Bucket<'_>| bucket.low),
        column("bucket_max", "Largest value of the bucket.")
            .uint(|bucket: &Bucket<'_>| bucket.high),
        column("count", "Values in the bucket.").uint(|bucket: &Bucket<'_>| bucket.count),
    ]);
    let mut buckets = Vec::new();
    for row in group_rows(measured).filter(|row| row.group.cpu.is_none()).map(Rc::new) {
        let mut self_or_packets = Distribution::default();
        let mut inclusive = Distribution::default();
        for sample in &row.group.samples {
            self_or_packets.merge(&sample.own);
            inclusive.merge(&sample.inclusive);
        }
        let has_packets = row.group.samples.iter().any(|sample| sample.timing == Timing::Packets);
        let quantity = if has_packets { "packets" } else { "self" };
        for (quantity, distribution) in [(quantity, self_or_packets), ("inclusive", inclusive)] {
            buckets.extend(distribution.buckets().map(|(low, high, count)| Bucket {
                row: Rc::clone(&row),
                quantity,
                low,
                high,
                count,
            }));
        }
    }
    let doc = "Filled buckets of the distributions, summed over the CPUs. A power of two has 16 buckets: a \
               bucket's width is at most 1/16 of its value.";
    let mut table = columns.table("histograms", doc, buckets).displayed(display(""));
    // The table has thousands of rows: programs read it, a terminal shows none.
    table.display.rows_max = Some(0);
    table
}
