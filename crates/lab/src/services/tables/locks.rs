//! Tables `locks`, `service_locks` and `cgroup_locks`: the call sites of the kernel that take locks, their services,
//! control groups and waits. Users' programs read the columns: names and order must not change.

use std::collections::BTreeMap;

use record::limits::ROWS_MAX;
use record::{Columns, Format, Table, TableDisplay, column};

use super::super::class::Class;
use super::super::misses::ServiceName;
use super::super::sample::{LockMethod, LockStats, LockWaiter, ServiceStats, ServicesSample};
use super::{key_columns, ratio};
use crate::handlers::Cgroup;

/// Sums that all tables of locks show.
#[derive(Clone, Copy, Default)]
struct Sums {
    acquires: Option<u64>,
    contended: u64,
    interrupted: Option<u64>,
    unfinished: Option<u64>,
    waited_ticks: u64,
    waited_max_ticks: Option<u64>,
    /// `None` if the kernel does not say whether the CPU spins. Summed locks are of one kind, so all or none of them have
    /// these times.
    spun_ticks: Option<u64>,
    /// How often the release of a taken lock was seen.
    releases: Option<u64>,
    /// `None` for the read side of a lock: several readers can hold it at once. Summed locks are of one kind, so all or
    /// none of them have held times.
    held_ticks: Option<u64>,
}

impl Sums {
    fn add(&mut self, lock: &LockStats) {
        let plus = |sum: &mut Option<u64>, part: Option<u64>| {
            *sum = part.map(|part| part + sum.unwrap_or(0));
        };
        plus(&mut self.acquires, lock.acquires);
        self.contended += lock.contended;
        plus(&mut self.interrupted, lock.interrupted);
        plus(&mut self.unfinished, lock.unfinished);
        self.waited_ticks += lock.waited_ticks;
        self.waited_max_ticks = self.waited_max_ticks.max(lock.waited_max_ticks);
        plus(&mut self.spun_ticks, lock.spun_ticks);
        plus(&mut self.releases, lock.releases);
        plus(&mut self.held_ticks, lock.held_ticks);
    }
}

/// The columns of the sums, which all tables of locks share.
fn sum_columns(sample: &ServicesSample) -> Columns<'_, Sums> {
    // Without a release, a lock was held for an unknown time, not for none.
    let held_ns = |sums: &Sums| {
        let ticks = sums.held_ticks.filter(|_| sums.releases > Some(0))?;
        Some(sample.ns_of(ticks as f64))
    };
    Columns::all([
        column("acquire_count", "How often the kernel takes a lock here. Absent if only waits are seen.")
            .shown_as("acquires", 95)
            .uint(|sums: &Sums| sums.acquires),
        column(
            "contended_count",
            "How often another context holds the lock at that moment. On a live machine: the waits that ended in the window.",
        )
        .shown_as("contended", 94)
        .uint(|sums: &Sums| sums.contended),
        column("contended_ratio", "contended_count over acquire_count.")
            .shown_as("% contended", 80)
            .real(|sums: &Sums| ratio(Some(sums.contended), sums.acquires)),
        column("waited_total_ns", "Total time of waiting for the lock, spinning or asleep.")
            .title("waited")
            .format(Format::Microseconds)
            .cost()
            .priority(93)
            .real(|sums: &Sums| sample.ns_of(sums.waited_ticks as f64)),
        column(
            "held_total_ns",
            "Total time that the lock is held, over release_count: a lock whose release irqlab did not see adds nothing. \
             Absent if release_count is 0 or absent, and for readers, because several can hold a lock at once.",
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
        .real(move |sums: &Sums| Some(held_ns(sums)? / sums.releases? as f64)),
        column(
            "release_count",
            "How often irqlab saw the release of a lock that was taken here in the window. Absent if no releases are seen.",
        )
        .detail()
        .uint(|sums: &Sums| sums.releases),
        column("waited_mean_ns", "waited_total_ns over contended_count.")
            .title("mean wait")
            .format(Format::Microseconds)
            .priority(88)
            .real(|sums: &Sums| {
                let waits = (sums.contended > 0).then_some(sums.contended as f64)?;
                Some(sample.ns_of(sums.waited_ticks as f64) / waits)
            }),
        column("waited_max_ns", "The longest wait. Absent on a simulated machine.")
            .title("max wait")
            .format(Format::Microseconds)
            .priority(87)
            .real(|sums: &Sums| {
                let ticks = sums.waited_max_ticks.filter(|_| sums.contended > 0)?;
                Some(sample.ns_of(ticks as f64))
            }),
        column(
            "spinning_total_ns",
            "The part of waited_total_ns in which the CPU spins. Absent for locks that sleep, but for mutexes of a live \
             machine, whose spinning the kernel marks.",
        )
        .title("spinning")
        .format(Format::Microseconds)
        .priority(70)
        .real(|sums: &Sums| Some(sample.ns_of(sums.spun_ticks? as f64))),
        column(
            "interrupted_count",
            "How many of contended_count ended without the lock, because of a signal or a timeout. Absent on a simulated \
             machine.",
        )
        .detail()
        .uint(|sums: &Sums| sums.interrupted),
        column(
            "unfinished_count",
            "Waits that had not ended when the window closed. No other column has them. Absent on a simulated machine.",
        )
        .detail()
        .uint(|sums: &Sums| sums.unfinished),
    ])
}

fn method_column<'a>() -> Columns<'a, LockMethod> {
    column("method", "How the bench finds the locks, and names them and their call sites.")
        .detail()
        .text(|method: &LockMethod| method.label())
}

/// The headline of a table of locks whose rows begin with `subject`.
fn headline(subject: &str, locks: &[LockStats]) -> String {
    let are_calls_seen = locks.iter().all(|lock| lock.acquires.is_some());
    let of_calls = if are_calls_seen { " of {acquire_count}" } else { " waits" };
    format!("longest waits: {subject}, {{contended_count}}{of_calls}")
}

/// The call site, for a lock without any other name.
fn place_of_nameless(lock: &LockStats) -> Option<&str> {
    (lock.method == LockMethod::WaitsByCaller).then_some(lock.place.as_str())
}

fn nameless_place_column<'a>() -> Columns<'a, Option<&'a str>> {
    column("place", "The call site, if only that names the lock on a live machine.")
        .priority(96)
        .key()
        .text(|place: &Option<&str>| place.map(str::to_owned))
}

fn kind_column<'a>(priority: u8) -> Columns<'a, &'a str> {
    column("kind", "The kind of lock.")
        .priority(priority)
        .key()
        .text(|kind: &&str| (*kind).to_owned())
}

/// Sums of the locks with equal keys. Keys keep the order of their first occurrence.
fn sum_by_key<'a, K: Ord + Copy>(
    locks: &'a [LockStats],
    key: impl Fn(&'a LockStats) -> K,
) -> Vec<(K, Sums)> {
    let mut sums: Vec<(K, Sums)> = Vec::new();
    let mut positions: BTreeMap<K, usize> = BTreeMap::new();
    for lock in locks {
        let key = key(lock);
        let position = *positions.entry(key).or_insert_with(|| {
            sums.push((key, Sums::default()));
            sums.len() - 1
        });
        sums[position].1.add(lock);
    }
    sums
}

/// One row for each call site, kind and name of lock.
pub(in super::super) fn locks(sample: &ServicesSample, locks: &[LockStats]) -> Table {
    /// Kind, call site and name of a lock, and how it was found.
    type Row<'a> = ((&'a str, &'a str, Option<&'a str>, LockMethod), Sums);
    let columns = Columns::all([
        kind_column(98).of(|((kind, ..), _): &Row<'_>| *kind),
        column("place", "The call site: a function and an offset in it.")
            .priority(100)
            .key()
            .text(|((_, place, ..), _): &Row<'_>| (*place).to_owned()),
        column(
            "lock",
            "The lock, if it has a name in the kernel and, on a simulated machine, if the call site takes only one \
             lock.",
        )
        .priority(70)
        .key()
        .text(|((_, _, lock, _), _): &Row<'_>| lock.map(str::to_owned)),
        sum_columns(sample).of_ref(|(_, sums): &Row<'_>| sums),
        method_column().of(|((.., method), _): &Row<'_>| *method),
    ]);
    let doc = "Call sites in the kernel that take locks, or wait for them.";
    let display = TableDisplay {
        sort_by: Some("waited_total_ns".to_owned()),
        headline: headline("{place}", locks),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let call_sites: Vec<Row<'_>> = sum_by_key(locks, |lock| {
        (lock.kind.as_str(), lock.place.as_str(), lock.lock.as_deref(), lock.method)
    });
    columns.table("locks", doc, call_sites).displayed(display)
}

/// One row for each service and name of lock, over all call sites.
pub(in super::super) fn service_locks(sample: &ServicesSample, locks: &[LockStats]) -> Table {
    /// Class and name of a service, kind and name of a lock, and the call site of a lock without a name.
    type Row<'a> = ((Class, &'a str, &'a str, Option<&'a str>, Option<&'a str>), Sums);
    let per_request = |((class, service, ..), sums): &Row<'_>| {
        let is_named = |stats: &&ServiceStats| stats.class == *class && stats.name == *service;
        let requests = sample.services.iter().find(is_named)?.requests?;
        (requests > 0).then_some(sums.acquires? as f64 / requests as f64)
    };
    let name = |((class, service, ..), _): &Row<'_>| ServiceName {
        class: *class,
        name: (*service).to_owned(),
    };
    let columns = key_columns().of(name).and([
        kind_column(90).of(|((_, _, kind, ..), _): &Row<'_>| *kind),
        column("lock", "The lock; absent if its name is not known.")
            .priority(97)
            .key()
            .text(|((_, _, _, lock, _), _): &Row<'_>| lock.map(str::to_owned)),
        column(
            "acquires_per_request",
            "acquire_count over the requests of the service; absent if the service has no \
             requests, or if only waits are seen.",
        )
        .shown_as("per request", 85)
        .real(per_request),
        sum_columns(sample).of_ref(|(_, sums): &Row<'_>| sums),
        nameless_place_column().of(|((.., place), _): &Row<'_>| *place),
    ]);
    let doc = "Locks that the kernel takes and waits for, by service.";
    let display = TableDisplay {
        sort_by: Some("waited_total_ns".to_owned()),
        headline: headline("{service} for {lock}", locks),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let rows: Vec<Row<'_>> = sum_by_key(locks, |lock| {
        let (kind, name) = (lock.kind.as_str(), lock.lock.as_deref());
        (lock.class, lock.service.as_str(), kind, name, place_of_nameless(lock))
    });
    columns.table("service_locks", doc, rows).displayed(display)
}

/// One row for each control group and name of lock. `None` if the bench does not know the groups of tasks.
pub(in super::super) fn cgroup_locks(
    sample: &ServicesSample,
    locks: &[LockStats],
) -> Option<Table> {
    /// Waiter, kind and name of a lock, and the call site of a lock without a name.
    type Row<'a> = ((Option<&'a LockWaiter>, &'a str, Option<&'a str>, Option<&'a str>), Sums);
    fn group<'a>(((waiter, ..), _): &Row<'a>) -> Option<&'a Cgroup> {
        match waiter {
            Some(LockWaiter::Cgroup(group)) => Some(group),
            Some(LockWaiter::NoCgroup) | None => None,
        }
    }
    if locks.iter().all(|lock| lock.waiter.is_none()) {
        return None;
    }
    let columns = Columns::all([
        column(
            "cgroup",
            "The control group of the task that waits: its path, or its id if it has no visible path. \"(no group)\": \
             interrupts and softirqs, whose group is that of the task that they interrupt.",
        )
        .priority(100)
        .key()
        .text(|row: &Row<'_>| match group(row) {
            Some(Cgroup { path: Some(path), .. }) => path.clone(),
            Some(Cgroup { id, no_path, .. }) => format!("cgroup {id} ({no_path})"),
            None => "(no group)".to_owned(),
        }),
        column("container", "The container that the path names. Absent if the path names none.")
            .priority(95)
            .text(|row: &Row<'_>| group(row)?.container.clone()),
        kind_column(90).of(|((_, kind, ..), _): &Row<'_>| *kind),
        column("lock", "The lock; absent if its name is not known.")
            .priority(97)
            .key()
            .text(|((_, _, lock, _), _): &Row<'_>| lock.map(str::to_owned)),
        nameless_place_column().of(|((.., place), _): &Row<'_>| *place),
        sum_columns(sample).of_ref(|(_, sums): &Row<'_>| sums),
    ]);
    let doc = "Locks that the kernel waits for, by the control group of the task that waits.";
    let display = TableDisplay {
        sort_by: Some("waited_total_ns".to_owned()),
        headline: headline("{cgroup} for {lock}", locks),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let rows: Vec<Row<'_>> = sum_by_key(locks, |lock| {
        let (kind, name) = (lock.kind.as_str(), lock.lock.as_deref());
        (lock.waiter.as_ref(), kind, name, place_of_nameless(lock))
    });
    Some(columns.table("cgroup_locks", doc, rows).displayed(display))
}
