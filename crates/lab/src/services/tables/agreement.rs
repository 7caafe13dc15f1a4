//! Table `agreement`: counts of the bench next to the kernel's own counts. Users' programs read the
//! columns: names and order must not change.

use record::{Columns, Table, column};

use super::super::sample::{Agreement, ServicesSample};

/// One row for each count that the kernel keeps, too.
pub(in super::super) fn agreement(sample: &ServicesSample) -> Table {
    let columns = Columns::all([
        column("what", "The events.")
            .priority(100)
            .key()
            .text(|count: &Agreement| count.what.clone()),
        column("counted_count", "Count by irqlab.")
            .shown_as("irqlab", 95)
            .uint(|count: &Agreement| count.counted),
        column(
            "kernel_count",
            "Count by the kernel itself; absent if the kernel does not count these events.",
        )
        .shown_as("kernel", 94)
        .uint(|count: &Agreement| count.kernel),
        column(
            "edge_max_count",
            "Largest allowed difference: events between the edges of the window and the nearest \
             readings of the kernel's count.",
        )
        .shown_as("edge", 50)
        .uint(|count: &Agreement| count.edge_max),
        column("agrees", "Whether the counts differ by at most edge_max_count.").priority(90).bool(
            |count: &Agreement| {
                count.kernel.map(|kernel| kernel.abs_diff(count.counted) <= count.edge_max)
            },
        ),
        column("source", "Where the kernel's count comes from.")
            .priority(60)
            .text(|count: &Agreement| count.source.clone()),
    ]);
    let doc = "Counts of this run next to the measured kernel's own counts.";
    columns.table("agreement", doc, &sample.agreement)
}
