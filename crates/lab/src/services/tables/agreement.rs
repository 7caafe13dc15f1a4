//! Table `agreement`: counts of the bench next to the kernel's own counts.

use record::{Column, Kind, Table, TableDisplay, Value};

use super::super::sample::ServicesSample;

/// One row for each count that the kernel keeps, too.
pub(in super::super) fn agreement(sample: &ServicesSample) -> Table {
    let columns = vec![
        Column::new("what", Kind::Text, "The events.").priority(100).key(),
        Column::new("counted_count", Kind::Uint, "Count by irqlab.").title("irqlab").priority(95),
        Column::new(
            "kernel_count",
            Kind::Uint,
            "Count by the kernel itself; absent if the kernel does not count these events.",
        )
        .title("kernel")
        .priority(94),
        Column::new(
            "edge_max_count",
            Kind::Uint,
            "Largest allowed difference: events between the edges of the window and the nearest \
             readings of the kernel's count.",
        )
        .title("edge")
        .priority(50),
        Column::new("agrees", Kind::Bool, "Whether the counts differ by at most edge_max_count.")
            .priority(90),
        Column::new("source", Kind::Text, "Where the kernel's count comes from.").priority(60),
    ];
    let doc = "Counts of this run next to the measured kernel's own counts.";
    let mut table = Table::new("agreement", doc, columns).displayed(TableDisplay::default());
    for count in &sample.agreement {
        let agrees = count.kernel.map(|kernel| kernel.abs_diff(count.counted) <= count.edge_max);
        let row: Vec<Value> = vec![
            count.what.as_str().into(),
            count.counted.into(),
            count.kernel.into(),
            count.edge_max.into(),
            agrees.into(),
            count.source.as_str().into(),
        ];
        table.push(row);
    }
    table
}
