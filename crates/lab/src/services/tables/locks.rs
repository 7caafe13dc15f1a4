//! Tables `locks` and `service_locks`: the call sites of the kernel that take locks, their services and waits.

use std::collections::BTreeMap;

use record::limits::ROWS_MAX;
use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::super::sample::{LockStats, ServiceStats, ServicesSample};
use super::{key_columns, key_values, ratio};

/// Sums that both tables show.
#[derive(Clone, Copy, Default)]
struct Sums {
    acquires: u64,
    contended: u64,
    waited_ticks: u64,
    held_ticks: Option<u64>,
}

impl Sums {
    fn add(&mut self, lock: &LockStats) {
        self.acquires += lock.acquires;
        self.contended += lock.contended;
        self.waited_ticks += lock.waited_ticks;
        self.held_ticks = lock.held_ticks.map(|ticks| ticks + self.held_ticks.unwrap_or(0));
    }

    fn values(&self, sample: &ServicesSample) -> [Value; 6] {
        let held = self.held_ticks.map(|ticks| sample.ns_of(ticks as f64));
        [
            self.acquires.into(),
            self.contended.into(),
            ratio(Some(self.contended), Some(self.acquires)).into(),
            sample.ns_of(self.waited_ticks as f64).into(),
            held.into(),
            held.map(|ns| ns / self.acquires.max(1) as f64).into(),
        ]
    }
}

fn sum_columns() -> [Column; 6] {
    let real = |name: &str, doc: &str| Column::new(name, Kind::Real, doc);
    let uint = |name: &str, doc: &str| Column::new(name, Kind::Uint, doc);
    [
        uint("acquire_count", "How often the kernel takes a lock here.")
            .title("acquires")
            .priority(95),
        uint("contended_count", "How often another context holds the lock at that moment.")
            .title("contended")
            .priority(94),
        real("contended_ratio", "contended_count over acquire_count.")
            .title("% contended")
            .priority(80),
        real("waited_total_ns", "Total time of waiting for the lock, spinning or asleep.")
            .title("waited")
            .format(Format::Microseconds)
            .cost()
            .priority(93),
        real(
            "held_total_ns",
            "Total time that the lock is held; absent for readers, because several can hold a \
             lock at once.",
        )
        .title("held")
        .format(Format::Microseconds)
        .priority(90),
        real("held_mean_ns", "Mean time that the lock is held.")
            .title("mean")
            .format(Format::Microseconds)
            .priority(60),
    ]
}

fn kind_column() -> Column {
    Column::new("kind", Kind::Text, "The kind of lock.").priority(98).key()
}

/// Sums of the locks with equal keys. Keys keep the order of their first occurrence.
fn summed<'a, K: Ord + Copy>(
    locks: &'a [LockStats],
    key: impl Fn(&'a LockStats) -> K,
) -> Vec<(K, Sums)> {
    let mut found: Vec<(K, Sums)> = Vec::new();
    let mut positions: BTreeMap<K, usize> = BTreeMap::new();
    for lock in locks {
        let key = key(lock);
        let position = *positions.entry(key).or_insert(found.len());
        if position == found.len() {
            found.push((key, Sums::default()));
        }
        found[position].1.add(lock);
    }
    found
}

/// One row for each call site, kind and name of lock.
pub(in super::super) fn locks(sample: &ServicesSample, locks: &[LockStats]) -> Table {
    let mut columns = vec![
        kind_column(),
        Column::new("place", Kind::Text, "The call site: a function and an offset in it.")
            .priority(100)
            .key(),
        Column::new(
            "lock",
            Kind::Text,
            "The lock, if the call site takes only one lock and the lock has a name in the kernel.",
        )
        .priority(70),
    ];
    columns.extend(sum_columns());
    let doc = "Call sites in the kernel that take locks.";
    let display = TableDisplay {
        sort_by: Some("waited_total_ns".to_owned()),
        headline: "longest waits: {place}, {contended_count} of {acquire_count}".to_owned(),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let mut table = Table::new("locks", doc, columns).displayed(display);
    let call_sites =
        summed(locks, |lock| (lock.kind.as_str(), lock.place.as_str(), lock.lock.as_deref()));
    for ((kind, place, lock), sums) in call_sites {
        let mut row: Vec<Value> = vec![kind.into(), place.into(), lock.map(str::to_owned).into()];
        row.extend(sums.values(sample));
        table.push(row);
    }
    table
}

/// One row for each service and name of lock, over all call sites.
pub(in super::super) fn service_locks(sample: &ServicesSample, locks: &[LockStats]) -> Table {
    let mut columns = key_columns().to_vec();
    columns.extend([
        kind_column().priority(90),
        Column::new("lock", Kind::Text, "The lock; absent if its name is not known.")
            .priority(97)
            .key(),
        Column::new(
            "acquires_per_request",
            Kind::Real,
            "acquire_count over the requests of the service; absent if the service has no \
             requests.",
        )
        .title("per request")
        .priority(85),
    ]);
    columns.extend(sum_columns());
    let doc = "Locks that the kernel takes and waits for, by service.";
    let display = TableDisplay {
        sort_by: Some("waited_total_ns".to_owned()),
        headline: "longest waits: {service} for {lock}, {contended_count} of {acquire_count}"
            .to_owned(),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let mut table = Table::new("service_locks", doc, columns).displayed(display);
    let rows = summed(locks, |lock| {
        (lock.class, lock.service.as_str(), lock.kind.as_str(), lock.lock.as_deref())
    });
    for ((class, service, kind, lock), sums) in rows {
        let is_named = |stats: &&ServiceStats| stats.class == class && stats.name == service;
        let requests = sample.services.iter().find(is_named).and_then(|stats| stats.requests);
        let requests = requests.filter(|count| *count > 0);
        let mut row: Vec<Value> = key_values(class, service).to_vec();
        row.extend([
            kind.into(),
            lock.map(str::to_owned).into(),
            requests.map(|count| sums.acquires as f64 / count as f64).into(),
        ]);
        row.extend(sums.values(sample));
        table.push(row);
    }
    table
}
