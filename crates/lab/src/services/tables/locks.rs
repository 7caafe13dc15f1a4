//! Tables `locks` and `service_locks`: the call sites of the kernel that take locks, their services and waits. Users'
//! programs read the columns: names and order must not change.

use std::collections::BTreeMap;

use record::limits::ROWS_MAX;
use record::{Columns, Format, Table, TableDisplay, column};

use super::super::class::Class;
use super::super::misses::ServiceName;
use super::super::sample::{LockStats, ServiceStats, ServicesSample};
use super::{key_columns, ratio};

/// Sums that both tables show.
#[derive(Clone, Copy, Default)]
struct Sums {
    acquires: u64,
    contended: u64,
    waited_ticks: u64,
    /// How often the release of a taken lock was seen.
    releases: u64,
    /// `None` for the read side of a lock: several readers can hold it at once. Summed locks are of one kind, so all or
    /// none of them have held times.
    held_ticks: Option<u64>,
}

impl Sums {
    fn add(&mut self, lock: &LockStats) {
        self.acquires += lock.acquires;
        self.contended += lock.contended;
        self.waited_ticks += lock.waited_ticks;
        self.releases += lock.releases;
        self.held_ticks = lock.held_ticks.map(|ticks| ticks + self.held_ticks.unwrap_or(0));
    }
}

/// The columns of the sums, which both tables share.
fn sum_columns(sample: &ServicesSample) -> Columns<'_, Sums> {
    // Without a release, a lock was held for an unknown time, not for none.
    let held_ns = |sums: &Sums| {
        let ticks = sums.held_ticks.filter(|_| sums.releases > 0)?;
        Some(sample.ns_of(ticks as f64))
    };
    Columns::all([
        column("acquire_count", "How often the kernel takes a lock here.")
            .shown_as("acquires", 95)
            .uint(|sums: &Sums| sums.acquires),
        column("contended_count", "How often another context holds the lock at that moment.")
            .shown_as("contended", 94)
            .uint(|sums: &Sums| sums.contended),
        column("contended_ratio", "contended_count over acquire_count.")
            .shown_as("% contended", 80)
            .real(|sums: &Sums| ratio(Some(sums.contended), Some(sums.acquires))),
        column("waited_total_ns", "Total time of waiting for the lock, spinning or asleep.")
            .title("waited")
            .format(Format::Microseconds)
            .cost()
            .priority(93)
            .real(|sums: &Sums| sample.ns_of(sums.waited_ticks as f64)),
        column(
            "held_total_ns",
            "Total time that the lock is held, over release_count: a lock whose release irqlab did not see adds nothing. \
             Absent if release_count is 0, and for readers, because several can hold a lock at once.",
        )
        .title("held")
        .format(Format::Microseconds)
        .priority(90)
        .real(move |sums: &Sums| held_ns(sums)),
        column(
            "held_mean_ns",
            "held_total_ns over release_count.",
        )
        .title("mean")
        .format(Format::Microseconds)
        .priority(60)
        .real(move |sums: &Sums| Some(held_ns(sums)? / sums.releases as f64)),
        column(
            "release_count",
            "How often irqlab saw the release of a lock that was taken here in the window.",
        )
        .detail()
        .uint(|sums: &Sums| sums.releases),
    ])
}

fn kind_column<'a>(priority: u8) -> Columns<'a, &'a str> {
    column("kind", "The kind of lock.")
        .priority(priority)
        .key()
        .text(|kind: &&str| (*kind).to_owned())
}

/// Sums of the locks with equal keys. Keys keep the order of their first occurrence.
fn summed<'a, K: Ord + Copy>(
    locks: &'a [LockStats],
    key: impl Fn(&'a LockStats) -> K,
) -> Vec<(K, Sums)> {
    let mut sums: Vec<(K, Sums)> = Vec::new();
    let mut positions: BTreeMap<K, usize> = BTreeMap::new();
    for lock in locks {
        let key = key(lock);
        let position = *positions.entry(key).or_insert(sums.len());
        if position == sums.len() {
            sums.push((key, Sums::default()));
        }
        sums[position].1.add(lock);
    }
    sums
}

/// One row for each call site, kind and name of lock.
pub(in super::super) fn locks(sample: &ServicesSample, locks: &[LockStats]) -> Table {
    /// Kind, call site and name of a lock.
    type Row<'a> = ((&'a str, &'a str, Option<&'a str>), Sums);
    let columns = Columns::all([
        kind_column(98).of(|((kind, ..), _): &Row<'_>| *kind),
        column("place", "The call site: a function and an offset in it.")
            .priority(100)
            .key()
            .text(|((_, place, _), _): &Row<'_>| (*place).to_owned()),
        column(
            "lock",
            "The lock, if the call site takes only one lock and the lock has a name in the kernel.",
        )
        .priority(70)
        .text(|((.., lock), _): &Row<'_>| lock.map(str::to_owned)),
        sum_columns(sample).of_ref(|(_, sums): &Row<'_>| sums),
    ]);
    let doc = "Call sites in the kernel that take locks.";
    let display = TableDisplay {
        sort_by: Some("waited_total_ns".to_owned()),
        headline: "longest waits: {place}, {contended_count} of {acquire_count}".to_owned(),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let call_sites: Vec<Row<'_>> =
        summed(locks, |lock| (lock.kind.as_str(), lock.place.as_str(), lock.lock.as_deref()));
    columns.table("locks", doc, call_sites).displayed(display)
}

/// One row for each service and name of lock, over all call sites.
pub(in super::super) fn service_locks(sample: &ServicesSample, locks: &[LockStats]) -> Table {
    /// Class and name of a service, kind and name of a lock.
    type Row<'a> = ((Class, &'a str, &'a str, Option<&'a str>), Sums);
    let per_request = |((class, service, ..), sums): &Row<'_>| {
        let is_named = |stats: &&ServiceStats| stats.class == *class && stats.name == *service;
        let requests = sample.services.iter().find(is_named)?.requests?;
        (requests > 0).then(|| sums.acquires as f64 / requests as f64)
    };
    let name = |((class, service, ..), _): &Row<'_>| ServiceName {
        class: *class,
        name: (*service).to_owned(),
    };
    let columns = key_columns().of(name).and([
        kind_column(90).of(|((_, _, kind, _), _): &Row<'_>| *kind),
        column("lock", "The lock; absent if its name is not known.")
            .priority(97)
            .key()
            .text(|((.., lock), _): &Row<'_>| lock.map(str::to_owned)),
        column(
            "acquires_per_request",
            "acquire_count over the requests of the service; absent if the service has no \
             requests.",
        )
        .shown_as("per request", 85)
        .real(per_request),
        sum_columns(sample).of_ref(|(_, sums): &Row<'_>| sums),
    ]);
    let doc = "Locks that the kernel takes and waits for, by service.";
    let display = TableDisplay {
        sort_by: Some("waited_total_ns".to_owned()),
        headline: "longest waits: {service} for {lock}, {contended_count} of {acquire_count}"
            .to_owned(),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let rows: Vec<Row<'_>> = summed(locks, |lock| {
        (lock.class, lock.service.as_str(), lock.kind.as_str(), lock.lock.as_deref())
    });
    columns.table("service_locks", doc, rows).displayed(display)
}
