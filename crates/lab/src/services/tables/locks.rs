//! Table `locks`: which places of the kernel take locks, and wait for them.

use record::limits::ROWS_MAX;
use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::super::sample::{LockStats, ServicesSample};
use super::ratio;

fn columns() -> Vec<Column> {
    let real = |name: &str, doc: &str| Column::new(name, Kind::Real, doc);
    let uint = |name: &str, doc: &str| Column::new(name, Kind::Uint, doc);
    vec![
        Column::new("kind", Kind::Text, "The kind of lock.").priority(98).key(),
        Column::new("place", Kind::Text, "The function that takes it, and how far in it.")
            .priority(100)
            .key(),
        Column::new(
            "lock",
            Kind::Text,
            "The lock, if the place takes one only and it has a name in the kernel.",
        )
        .priority(70),
        uint("acquire_count", "How often the place takes a lock.").title("acquires").priority(95),
        uint("contended_count", "How often another has it.").title("contended").priority(94),
        real("contended_ratio", "contended_count over acquire_count.")
            .title("% contended")
            .priority(80),
        real("waited_total_ns", "How long it waits for it then, sum: spinning, and asleep.")
            .title("waited")
            .format(Format::Microseconds)
            .cost()
            .priority(93),
        real(
            "held_total_ns",
            "How long it has it, sum; absent for readers, of which there may be several.",
        )
        .title("held")
        .format(Format::Microseconds)
        .priority(90),
        real("held_mean_ns", "How long it has it, mean.")
            .title("mean")
            .format(Format::Microseconds)
            .priority(60),
    ]
}

/// One row for each place.
pub(in super::super) fn locks(sample: &ServicesSample, locks: &[LockStats]) -> Table {
    let doc = "Places of the kernel that take locks.";
    let display = TableDisplay {
        sort_by: Some("waited_total_ns".to_owned()),
        headline: "longest waits: {place}, {contended_count} of {acquire_count}".to_owned(),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let mut table = Table::new("locks", doc, columns()).displayed(display);
    for one in locks {
        let held = one.held_ticks.map(|ticks| sample.ns_of(ticks as f64));
        let row: Vec<Value> = vec![
            one.kind.as_str().into(),
            one.place.as_str().into(),
            one.lock.clone().into(),
            one.acquires.into(),
            one.contended.into(),
            ratio(Some(one.contended), Some(one.acquires)).into(),
            sample.ns_of(one.waited_ticks as f64).into(),
            held.into(),
            held.map(|ns| ns / one.acquires.max(1) as f64).into(),
        ];
        table.push(row);
    }
    table
}
