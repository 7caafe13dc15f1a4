//! Table `agreement`: the counts against the kernel's own.

use record::{Column, Kind, Table, TableDisplay, Value};

use super::super::sample::ServicesSample;

/// One row for each count that the kernel keeps, too.
pub(in super::super) fn agreement(sample: &ServicesSample) -> Table {
    let columns = vec![
        Column::new("what", Kind::Text, "What is counted.").priority(100).key(),
        Column::new("counted_count", Kind::Uint, "By irqlab.").title("irqlab").priority(95),
        Column::new(
            "kernel_count",
            Kind::Uint,
            "By the kernel itself; absent where it does not say.",
        )
        .title("kernel")
        .priority(94),
        Column::new(
            "edge_max_count",
            Kind::Uint,
            "By how much they may differ: what was counted between reading the kernel's count and the window's \
             edge next to it.",
        )
        .title("edge")
        .priority(50),
        Column::new("agrees", Kind::Bool, "Whether they differ by no more than that.").priority(90),
        Column::new("source", Kind::Text, "Where the kernel's count comes from.").priority(60),
    ];
    let doc = "Counts of this run against those that the measured kernel keeps itself.";
    let mut table = Table::new("agreement", doc, columns).displayed(TableDisplay::default());
    for one in &sample.agreement {
        let agrees = one.kernel.map(|kernel| kernel.abs_diff(one.counted) <= one.edge_max);
        let row: Vec<Value> = vec![
            one.what.as_str().into(),
            one.counted.into(),
            one.kernel.into(),
            one.edge_max.into(),
            agrees.into(),
            one.source.as_str().into(),
        ];
        table.push(row);
    }
    table
}
