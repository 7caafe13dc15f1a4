//! Table `waits`: the events that blocked tasks of a service waited for. Users' programs read the
//! columns: names and order must not change.

use record::limits::ROWS_MAX;
use record::{Format, Table, TableDisplay, column};

use super::super::misses::ServiceName;
use super::super::sample::{ServicesSample, WaitStats};
use super::key_columns;

/// One row for each service and event.
pub(in super::super) fn waits(sample: &ServicesSample) -> Table {
    let name = |wait: &WaitStats| ServiceName { class: wait.class, name: wait.service.clone() };
    let columns = key_columns().of(name).and([
        column("wait", "The event that the tasks waited for; absent if it is not known.")
            .priority(99)
            .key()
            .text(|wait: &WaitStats| wait.wait.clone()),
        column("wait_count", "How often a task left the CPU to wait.")
            .shown_as("count", 90)
            .uint(|wait: &WaitStats| wait.count),
        column("blocked_total_ns", "Total time until the wake-ups.")
            .title("blocked")
            .format(Format::Milliseconds)
            .priority(95)
            .real(|wait: &WaitStats| sample.ns_of(wait.blocked_ticks as f64)),
        column("blocked_mean_ns", "Mean time until the wake-up.")
            .title("mean")
            .format(Format::Microseconds)
            .priority(80)
            .real(|wait: &WaitStats| {
                sample.ns_of(wait.blocked_ticks as f64 / wait.count.max(1) as f64)
            }),
    ]);
    let doc = "Waits of tasks that were blocked in a service. A fault that blocks in a system \
               call counts in both rows.";
    let display = TableDisplay {
        sort_by: Some("blocked_total_ns".to_owned()),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    columns.table("waits", doc, &sample.waits).displayed(display)
}
