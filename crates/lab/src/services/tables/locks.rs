//! Tables `locks` and `service_locks`: which places of the kernel take locks, and which services they are for;
//! how long each waits.

use std::collections::BTreeMap;

use record::limits::ROWS_MAX;
use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::super::sample::{LockStats, ServiceStats, ServicesSample};
use super::{key_columns, key_values, ratio};

/// What is in both tables.
#[derive(Clone, Copy, Default)]
struct Sums {
    acquires: u64,
    contended: u64,
    waited_ticks: u64,
    held_ticks: Option<u64>,
}

impl Sums {
    fn add(&mut self, one: &LockStats) {
        self.acquires += one.acquires;
        self.contended += one.contended;
        self.waited_ticks += one.waited_ticks;
        self.held_ticks = one.held_ticks.map(|ticks| ticks + self.held_ticks.unwrap_or(0));
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
        uint("acquire_count", "How often it takes a lock.").title("acquires").priority(95),
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

fn kind_column() -> Column {
    Column::new("kind", Kind::Text, "The kind of lock.").priority(98).key()
}

/// Sums over what has the same key, in the order in which the keys come first.
fn summed<'a, K: Ord + Copy>(
    locks: &'a [LockStats],
    key: impl Fn(&'a LockStats) -> K,
) -> Vec<(K, Sums)> {
    let mut found: Vec<(K, Sums)> = Vec::new();
    let mut positions: BTreeMap<K, usize> = BTreeMap::new();
    for one in locks {
        let key = key(one);
        let at = *positions.entry(key).or_insert(found.len());
        if at == found.len() {
            found.push((key, Sums::default()));
        }
        found[at].1.add(one);
    }
    found
}

/// One row for each place.
pub(in super::super) fn locks(sample: &ServicesSample, locks: &[LockStats]) -> Table {
    let mut columns = vec![
        kind_column(),
        Column::new("place", Kind::Text, "The function that takes it, and how far in it.")
            .priority(100)
            .key(),
        Column::new(
            "lock",
            Kind::Text,
            "The lock, if the place takes one only and it has a name in the kernel.",
        )
        .priority(70),
    ];
    columns.extend(sum_columns());
    let doc = "Places of the kernel that take locks.";
    let display = TableDisplay {
        sort_by: Some("waited_total_ns".to_owned()),
        headline: "longest waits: {place}, {contended_count} of {acquire_count}".to_owned(),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let mut table = Table::new("locks", doc, columns).displayed(display);
    let places = summed(locks, |one| (one.kind.as_str(), one.place.as_str(), one.lock.as_deref()));
    for ((kind, place, lock), sums) in places {
        let mut row: Vec<Value> = vec![kind.into(), place.into(), lock.map(str::to_owned).into()];
        row.extend(sums.values(sample));
        table.push(row);
    }
    table
}

/// One row for each service and the locks of one name that it takes, in whichever place.
pub(in super::super) fn service_locks(sample: &ServicesSample, locks: &[LockStats]) -> Table {
    let mut columns = key_columns().to_vec();
    columns.extend([
        kind_column().priority(90),
        Column::new("lock", Kind::Text, "The lock; absent where its name is not known.")
            .priority(97)
            .key(),
        Column::new(
            "acquires_per_request",
            Kind::Real,
            "acquire_count over the requests of the service; absent where it has none.",
        )
        .title("per request")
        .priority(85),
    ]);
    columns.extend(sum_columns());
    let doc = "Locks by the service for which the kernel takes them, and waits for them.";
    let display = TableDisplay {
        sort_by: Some("waited_total_ns".to_owned()),
        headline: "longest waits: {service} for {lock}, {contended_count} of {acquire_count}"
            .to_owned(),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let mut table = Table::new("service_locks", doc, columns).displayed(display);
    let rows = summed(locks, |one| {
        (one.class, one.service.as_str(), one.kind.as_str(), one.lock.as_deref())
    });
    for ((class, service, kind, lock), sums) in rows {
        let is_it = |one: &&ServiceStats| one.class == class && one.name == service;
        let requests = sample.services.iter().find(is_it).and_then(|one| one.requests);
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
