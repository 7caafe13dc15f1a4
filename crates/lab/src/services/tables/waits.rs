//! Table `waits`: for what services were blocked.

use record::limits::ROWS_MAX;
use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::super::sample::ServicesSample;
use super::{key_columns, key_values};

/// One row for each service and what it waited for.
pub(in super::super) fn waits(sample: &ServicesSample) -> Table {
    let mut columns = key_columns().to_vec();
    columns.extend([
        Column::new(
            "wait",
            Kind::Text,
            "What its tasks waited for; absent where that is not known.",
        )
        .priority(99)
        .key(),
        Column::new("wait_count", Kind::Uint, "How often a task left the CPU for it.")
            .title("count")
            .priority(90),
        Column::new("blocked_total_ns", Kind::Real, "How long, sum; until the wake-up.")
            .title("blocked")
            .format(Format::Milliseconds)
            .priority(95),
        Column::new("blocked_mean_ns", Kind::Real, "How long each time, mean.")
            .title("mean")
            .format(Format::Microseconds)
            .priority(80),
    ]);
    let doc = "For what tasks were blocked while they were in a service. A fault that blocks in a system call \
               is in both rows.";
    let display = TableDisplay {
        sort_by: Some("blocked_total_ns".to_owned()),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let mut table = Table::new("waits", doc, columns).displayed(display);
    for one in &sample.waits {
        let mut row: Vec<Value> = key_values(one.class, &one.service).to_vec();
        let mean = one.blocked_ticks as f64 / one.count.max(1) as f64;
        row.extend([
            one.wait.clone().into(),
            one.count.into(),
            sample.ns_of(one.blocked_ticks as f64).into(),
            sample.ns_of(mean).into(),
        ]);
        table.push(row);
    }
    table
}
