//! Table `waits`: the events that blocked tasks of a service waited for.

use record::limits::ROWS_MAX;
use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::super::sample::ServicesSample;
use super::{key_columns, key_values};

/// One row for each service and event.
pub(in super::super) fn waits(sample: &ServicesSample) -> Table {
    let mut columns = key_columns().to_vec();
    columns.extend([
        Column::new(
            "wait",
            Kind::Text,
            "The event that the tasks waited for; absent if it is not known.",
        )
        .priority(99)
        .key(),
        Column::new("wait_count", Kind::Uint, "How often a task left the CPU to wait.")
            .title("count")
            .priority(90),
        Column::new("blocked_total_ns", Kind::Real, "Total time until the wake-ups.")
            .title("blocked")
            .format(Format::Milliseconds)
            .priority(95),
        Column::new("blocked_mean_ns", Kind::Real, "Mean time until the wake-up.")
            .title("mean")
            .format(Format::Microseconds)
            .priority(80),
    ]);
    let doc = "Waits of tasks that were blocked in a service. A fault that blocks in a system \
               call counts in both rows.";
    let display = TableDisplay {
        sort_by: Some("blocked_total_ns".to_owned()),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let mut table = Table::new("waits", doc, columns).displayed(display);
    for wait in &sample.waits {
        let mut row: Vec<Value> = key_values(wait.class, &wait.service).to_vec();
        let mean = wait.blocked_ticks as f64 / wait.count.max(1) as f64;
        row.extend([
            wait.wait.clone().into(),
            wait.count.into(),
            sample.ns_of(wait.blocked_ticks as f64).into(),
            sample.ns_of(mean).into(),
        ]);
        table.push(row);
    }
    table
}
