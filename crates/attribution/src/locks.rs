//! Kernel locks, by the service that takes them and the call site. The rows say how often the service takes a lock, how
//! often it waits, how long it waits, and how long it holds the lock. The plugin (`plugin/src/guest/services.rs`) calls
//! this at the kernel's lock functions.
//!
//! A call site is the return address of a lock function. A free lock is taken when the function is called. A lock that
//! another CPU or task holds is taken when the function's slow path returns.
//!
//! Not every release is seen: compilers inline some. A task that takes a lock without the slow path shows that the
//! earlier holder has released the lock. The time of that holder is then unknown, and is charged to nobody.

use std::collections::BTreeMap;

use crate::fault::FaultKind;
use crate::kernel_context::KernelContext;
use crate::lock_kind::LockKind;

/// Maximum number of pairs of a call site and a service that takes locks there.
pub const PLACES_MAX: usize = 65_536;
/// Maximum number of locks that are held at the same time, and of tasks that take a lock at the same time.
const HELD_MAX: usize = 65_536;

/// A call site that takes locks of one kind and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockPlace {
    pub kind: LockKind,
    /// The return address of the function that takes the lock.
    pub return_to: u64,
    /// The caller's number of the lock's name. Locks in the same member of a structure have one name.
    pub name: u32,
}

/// The service for which a lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockClient {
    Service(KernelContext),
    /// A page fault that has not ended. Its service is known only at its end.
    Fault {
        task: u64,
        /// How many frames are below it in the task's stack.
        depth: usize,
    },
}

impl LockClient {
    /// The service. For a page fault that has not ended, its kind is unclassified.
    fn service(self) -> KernelContext {
        match self {
            LockClient::Service(service) => service,
            LockClient::Fault { .. } => KernelContext::Fault(FaultKind::Unclassified),
        }
    }
}

/// The locks that a service takes at a call site. Times are in the unit of the caller's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockRow {
    /// How often the service takes a lock here.
    pub acquires: u64,
    /// How often the slow path runs, because another task or CPU holds the lock.
    pub contended: u64,
    /// Total time in the slow path.
    pub waited: u64,
    /// How often the release of a lock that was taken here was seen.
    pub releases: u64,
    /// Total time from taking to release, of the locks in `releases`.
    pub held: u64,
}

impl LockRow {
    fn add(&mut self, other: &LockRow) {
        self.acquires += other.acquires;
        self.contended += other.contended;
        self.waited += other.waited;
        self.releases += other.releases;
        self.held += other.held;
    }
}

/// The key of a row: the service and the call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    client: LockClient,
    place: LockPlace,
}
/// The smallest call site in their order: the start of a range of all call sites of a client.
const PLACE_MIN: LockPlace = LockPlace { kind: LockKind::Spin, return_to: 0, name: 0 };

/// The holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    key: RowKey,
    task: u64,
    /// When the task took the lock.
    since: u64,
}

/// How a wait for a lock ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The task has the lock.
    Obtained,
    /// A signal has ended the wait: the task does not have the lock.
    Interrupted,
}

impl WaitEnd {
    /// The largest error number of the kernel.
    const ERRNO_MAX: u64 = 4_095;

    /// How the slow path of a lock of this kind ended, by the value in `rax` at its return. Slow paths that can sleep
    /// return an error if a signal has ended the wait: that of mutexes as a 32-bit number, those of semaphores in place of
    /// an address. Spinning slow paths return nothing and always obtain the lock.
    #[must_use]
    pub fn of_return_value(kind: LockKind, rax: u64) -> WaitEnd {
        let value = match kind {
            LockKind::Mutex => i64::from(rax as i32).cast_unsigned(),
            LockKind::SemaphoreRead | LockKind::SemaphoreWrite => rax,
            LockKind::Spin | LockKind::SpinRead | LockKind::SpinWrite => 0,
        };
        if value >= WaitEnd::ERRNO_MAX.wrapping_neg() {
            WaitEnd::Interrupted
        } else {
            WaitEnd::Obtained
        }
    }
}

/// A task's last call of a function that takes a lock.
#[derive(Clone, Copy, Debug)]
struct Acquisition {
    key: RowKey,
    /// Address of the lock.
    lock: u64,
    /// When the function was called.
    called_at: u64,
    /// The holder that was known at the call. [`Locks::take`] has assumed that this holder has released the lock unseen.
    holder_before: Option<Holder>,
    /// When the slow path started. `None` if it did not start (yet).
    slow_since: Option<u64>,
}

/// The locks of a machine in a region.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    rows: BTreeMap<RowKey, LockRow>,
    /// The holder of each lock, by the lock's address. Locks held by readers are not listed.
    held: BTreeMap<u64, Holder>,
    /// Addresses of the locks that each open page fault took. Some may have been released.
    held_by_faults: BTreeMap<LockClient, Vec<u64>>,
    /// The acquisition of each task. The flag: whether the task may sleep for the lock. A task can have two
    /// acquisitions: while it takes a sleeping lock, an interrupt on its stack can take a spinning lock.
    taking: BTreeMap<(u64, bool), Acquisition>,
    refused: u64,
}

impl Locks {
    /// The task calls a function that takes the lock at address `lock`, for `client`, at the time `now`. Assumes that the lock
    /// is free, even if a holder is known; [`Locks::contend`] corrects this. Does not count a call for which there is no room.
    pub fn take(&mut self, place: LockPlace, client: LockClient, task: u64, lock: u64, now: u64) {
        let key = RowKey { client, place };
        let is_known = self.rows.contains_key(&key);
        if !is_known && self.rows.len() >= PLACES_MAX {
            self.refused += 1;
            return;
        }
        self.rows.entry(key).or_default().acquires += 1;
        let task_and_sleeps = (task, place.kind.sleeps());
        if self.taking.len() >= HELD_MAX && !self.taking.contains_key(&task_and_sleeps) {
            // The slow path could not correct the holder.
            return;
        }
        let holder_before = self.held.get(&lock).copied();
        let acquisition =
            Acquisition { key, lock, called_at: now, holder_before, slow_since: None };
        self.taking.insert(task_and_sleeps, acquisition);
        self.hold(lock, Holder { key, task, since: now });
    }

    /// `holder` holds the lock from now on. Does nothing for readers: several can hold a lock at once.
    fn hold(&mut self, lock: u64, holder: Holder) {
        let RowKey { client, place } = holder.key;
        if place.kind.is_shared() || self.held.len() >= HELD_MAX && !self.held.contains_key(&lock) {
            return;
        }
        self.held.insert(lock, holder);
        if matches!(client, LockClient::Fault { .. }) {
            self.held_by_faults.entry(client).or_default().push(lock);
        }
    }

    /// The task takes the slow path at the time `now`, because another task or CPU holds the lock. `sleeps`: whether the slow
    /// path can sleep. Returns the kind of the lock, or `None` if the task is not known to take this lock.
    ///
    /// Gives the lock back to the holder before this task, because [`Locks::take`] has assumed too early that
    /// this task holds the lock.
    pub fn contend(&mut self, task: u64, sleeps: bool, lock: u64, now: u64) -> Option<LockKind> {
        let acquisition = self.taking.get_mut(&(task, sleeps))?;
        if acquisition.lock != lock {
            return None;
        }
        acquisition.slow_since = Some(now);
        let Acquisition { key, called_at, .. } = *acquisition;
        let holder_before = acquisition.holder_before.take();
        self.rows.get_mut(&key)?.contended += 1;
        // `take` assumed that the lock was free, and noted this task as the holder since then.
        let assumed_holder = Holder { key, task, since: called_at };
        if self.held.get(&lock) == Some(&assumed_holder) {
            match holder_before {
                Some(holder) => self.held.insert(lock, holder),
                None => self.held.remove(&lock),
            };
        } else if let Some(later_acquisition) = self
            .taking
            .values_mut()
            .find(|later_acquisition| later_acquisition.holder_before == Some(assumed_holder))
        {
            // Another task called after this one, and assumed that this one held the lock.
            later_acquisition.holder_before = holder_before;
        }
        Some(key.place.kind)
    }

    /// The slow path returns. A task that has not obtained the lock only has the time of its wait.
    pub fn end_wait(&mut self, task: u64, sleeps: bool, end: WaitEnd, now: u64) {
        let Some(acquisition) = self.taking.remove(&(task, sleeps)) else { return };
        let Acquisition { key, lock, slow_since, .. } = acquisition;
        let (Some(since), Some(row)) = (slow_since, self.rows.get_mut(&key)) else {
            return;
        };
        row.waited += now.saturating_sub(since);
        if end == WaitEnd::Obtained {
            self.hold(lock, Holder { key, task, since: now });
        }
    }

    /// The task releases the lock at this address at the time `now`, or keeps it only to read. The held time is charged to the
    /// row of the known holder, if there is one. `is_running`: whether the task at an address runs on a CPU.
    pub fn release(&mut self, task: u64, lock: u64, now: u64, is_running: impl Fn(u64) -> bool) {
        let Some(known_holder) = self.held.get(&lock).copied() else { return };
        let task_before = self.holder_before(known_holder, task, lock);
        let other_holder =
            task_before.or_else(|| self.switched_out_holder(known_holder, task, is_running));
        let holder = other_holder.unwrap_or_else(|| {
            self.held.remove(&lock);
            known_holder
        });
        if let Some(row) = self.rows.get_mut(&holder.key) {
            row.releases += 1;
            row.held += now.saturating_sub(holder.since);
        }
    }

    /// The holder of the lock, if it is `task` and not `known`: tasks that were about to take the lock were assumed to
    /// hold it. The machine may switch to another CPU between the call of the function that takes a lock and its slow
    /// path. `None` if no such task is known.
    fn holder_before(&mut self, known: Holder, task: u64, lock: u64) -> Option<Holder> {
        if known.task == task {
            return None;
        }
        let mut taking = self.taking.values_mut().filter(|acquisition| acquisition.lock == lock);
        let is_holder = |holder: Option<Holder>| holder.is_some_and(|holder| holder.task == task);
        taking.find(|acquisition| is_holder(acquisition.holder_before))?.holder_before.take()
    }

    /// The holder of a spinning lock that a task switch has handed over to `task`, if `known` is only about to take the
    /// lock. The scheduler takes its lock in the task that leaves the CPU, and releases the lock in the task that arrives.
    /// No other task is switched out while it holds a spinning lock.
    fn switched_out_holder(
        &mut self,
        known: Holder,
        task: u64,
        is_running: impl Fn(u64) -> bool,
    ) -> Option<Holder> {
        if known.task == task || known.key.place.kind.sleeps() {
            return None;
        }
        let mut assumed_holder = known;
        // Each assumed holder called while the one before it was known. The bound ends a circle.
        for _ in 0..self.taking.len() {
            if !is_running(assumed_holder.task) {
                return None;
            }
            let acquisition = self.taking.get_mut(&(assumed_holder.task, false))?;
            let is_of_holder = (acquisition.key, acquisition.called_at)
                == (assumed_holder.key, assumed_holder.since);
            if !is_of_holder || acquisition.slow_since.is_some() {
                return None;
            }
            assumed_holder = acquisition.holder_before?;
            if !is_running(assumed_holder.task) {
                return acquisition.holder_before.take();
            }
        }
        None
    }

    /// A page fault of a task has ended, and its service is now known: charges all locks that the fault took to `service`.
    /// `depth`: how many frames are below the fault in the task's stack.
    pub fn end_fault(&mut self, task: u64, depth: usize, service: KernelContext) {
        let (fault, client) = (LockClient::Fault { task, depth }, LockClient::Service(service));
        let fault_start = RowKey { client: fault, place: PLACE_MIN };
        let fault_keys = self
            .rows
            .range(fault_start..)
            .map(|(key, _)| *key)
            .take_while(|key| key.client == fault);
        for key in fault_keys.collect::<Vec<RowKey>>() {
            if let Some(row) = self.rows.remove(&key) {
                self.rows.entry(RowKey { client, ..key }).or_default().add(&row);
            }
        }
        for lock in self.held_by_faults.remove(&fault).unwrap_or_default() {
            if let Some(holder) =
                self.held.get_mut(&lock).filter(|holder| holder.key.client == fault)
            {
                holder.key.client = client;
            }
        }
        for sleeps in [false, true] {
            if let Some(acquisition) = self.taking.get_mut(&(task, sleeps))
                && acquisition.key.client == fault
            {
                acquisition.key.client = client;
            }
        }
    }

    /// A region opens: counts start at zero. Locks that are already held have no known
    /// holder, so their release counts nowhere.
    pub fn restart(&mut self) {
        *self = Locks::default();
    }

    /// The rows, by service and call site. A page fault that has not ended counts as [`FaultKind::Unclassified`].
    #[must_use]
    pub fn rows(&self) -> BTreeMap<(KernelContext, LockPlace), LockRow> {
        let mut rows: BTreeMap<_, LockRow> = BTreeMap::new();
        for (RowKey { client, place }, row) in &self.rows {
            rows.entry((client.service(), *place)).or_default().add(row);
        }
        rows
    }

    /// How often an acquisition was not counted because there was no room for its row.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: LockPlace = LockPlace { kind: LockKind::Spin, return_to: 0x10, name: 0 };
    const OTHER: LockPlace = LockPlace { kind: LockKind::Spin, return_to: 0x20, name: 0 };

    const READ: LockClient = LockClient::Service(KernelContext::Syscall(0));

    /// No task is switched out.
    const ALL_RUN: fn(u64) -> bool = |_| true;

    fn row(locks: &Locks, place: LockPlace) -> LockRow {
        locks.rows()[&(KernelContext::Syscall(0), place)]
    }

    #[test]
    fn who_waits_has_the_lock_from_when_it_obtains_it() {
        let mut locks = Locks::default();
        locks.take(PLACE, READ, 1, 0xa0, 10);
        locks.take(OTHER, READ, 2, 0xa0, 12);
        assert_eq!(locks.contend(2, false, 0xa0, 13), Some(LockKind::Spin));
        locks.release(1, 0xa0, 20, ALL_RUN);
        locks.end_wait(2, false, WaitEnd::Obtained, 22);
        locks.release(2, 0xa0, 25, ALL_RUN);
        let first = LockRow { acquires: 1, releases: 1, held: 10, ..LockRow::default() };
        assert_eq!(row(&locks, PLACE), first);
        let second = LockRow { contended: 1, waited: 22 - 13, held: 25 - 22, ..first };
        assert_eq!(row(&locks, OTHER), second);
    }

    #[test]
    fn a_holder_that_was_not_seen_is_not_the_one_that_waits() {
        let mut locks = Locks::default();
        locks.take(PLACE, READ, 1, 0xa0, 10);
        // The slow path starts some cycles after the call.
        assert_eq!(locks.contend(1, false, 0xa0, 12), Some(LockKind::Spin));
        locks.release(9, 0xa0, 15, ALL_RUN); // by the one that was not seen
        locks.end_wait(1, false, WaitEnd::Obtained, 16);
        locks.release(1, 0xa0, 18, ALL_RUN);
        assert_eq!((row(&locks, PLACE).held, row(&locks, PLACE).releases), (2, 1));
    }

    /// `mutex_lock_interruptible` returned `-EINTR`: the other task has the lock all the time.
    #[test]
    fn who_is_interrupted_in_a_wait_does_not_hold_the_lock() {
        let mut locks = Locks::default();
        let [holds, waits] =
            [0x10, 0x20].map(|return_to| LockPlace { kind: LockKind::Mutex, return_to, name: 0 });
        locks.take(holds, READ, 1, 0xa0, 10);
        locks.take(waits, READ, 2, 0xa0, 20);
        assert_eq!(locks.contend(2, true, 0xa0, 21), Some(LockKind::Mutex));
        locks.end_wait(2, true, WaitEnd::Interrupted, 30);
        locks.release(1, 0xa0, 50, ALL_RUN);
        let first = LockRow { acquires: 1, releases: 1, held: 40, ..LockRow::default() };
        assert_eq!(row(&locks, holds), first);
        let second = LockRow { acquires: 1, contended: 1, waited: 9, ..LockRow::default() };
        assert_eq!(row(&locks, waits), second);
    }

    #[test]
    fn errors_of_slow_paths_are_told_by_the_kind_of_the_lock() {
        let interrupted = [
            (LockKind::Mutex, 0xffff_fffc),
            (LockKind::Mutex, (-4_i64).cast_unsigned()),
            (LockKind::Mutex, (-4_095_i64).cast_unsigned()),
            (LockKind::SemaphoreRead, (-4_i64).cast_unsigned()),
            (LockKind::SemaphoreWrite, (-4_i64).cast_unsigned()),
        ];
        for (kind, rax) in interrupted {
            assert_eq!(WaitEnd::of_return_value(kind, rax), WaitEnd::Interrupted, "{rax:#x}");
        }
        let obtained = [
            (LockKind::Mutex, 0),
            // The upper half of a 32-bit number is undefined.
            (LockKind::Mutex, 0xffff_ffff_0000_0000),
            (LockKind::Mutex, (-4_096_i64).cast_unsigned()),
            (LockKind::SemaphoreWrite, 0xffff_8880_1234_5678),
            (LockKind::SemaphoreRead, 0xffff_fffc),
            (LockKind::Spin, (-4_i64).cast_unsigned()),
        ];
        for (kind, rax) in obtained {
            assert_eq!(WaitEnd::of_return_value(kind, rax), WaitEnd::Obtained, "{rax:#x}");
        }
    }

    /// Readers are not noted as holders, so a writer that waits for them was noted as the holder.
    #[test]
    fn a_writer_does_not_hold_the_lock_of_the_readers_that_it_waits_for() {
        let mut locks = Locks::default();
        let [read, write] = [LockKind::SemaphoreRead, LockKind::SemaphoreWrite]
            .map(|kind| LockPlace { kind, return_to: 0x10, name: 0 });
        locks.take(read, READ, 1, 0xa0, 0);
        locks.take(write, READ, 2, 0xa0, 100);
        assert_eq!(locks.contend(2, true, 0xa0, 107), Some(LockKind::SemaphoreWrite));
        locks.release(1, 0xa0, 1_000, ALL_RUN);
        locks.end_wait(2, true, WaitEnd::Obtained, 1_010);
        locks.release(2, 0xa0, 1_015, ALL_RUN);
        let expected = LockRow { acquires: 1, contended: 1, waited: 903, releases: 1, held: 5 };
        assert_eq!(row(&locks, write), expected);
    }

    /// A task of the same service, at the same call site, keeps the lock that it holds.
    #[test]
    fn who_waits_for_its_own_service_does_not_take_its_lock_away() {
        let mut locks = Locks::default();
        locks.take(PLACE, READ, 1, 0xa0, 10);
        locks.take(PLACE, READ, 2, 0xa0, 10);
        locks.contend(2, false, 0xa0, 10);
        locks.release(1, 0xa0, 30, ALL_RUN);
        locks.end_wait(2, false, WaitEnd::Obtained, 31);
        locks.release(2, 0xa0, 35, ALL_RUN);
        assert_eq!((row(&locks, PLACE).held, row(&locks, PLACE).releases), (24, 2));
    }

    /// A `downgrade_write` was not seen, or a compiler inlined the release.
    #[test]
    fn a_holder_whose_release_was_not_seen_is_not_charged() {
        let mut locks = Locks::default();
        let [unmap, fork] = [0x10, 0x20].map(|return_to| LockPlace {
            kind: LockKind::SemaphoreWrite,
            return_to,
            name: 0,
        });
        locks.take(unmap, READ, 1, 0xa0, 10);
        // Task 2 takes the lock without the slow path, so task 1 does not hold it.
        locks.take(fork, READ, 2, 0xa0, 1_000);
        locks.take(PLACE, READ, 2, 0xb0, 1_001);
        locks.release(2, 0xb0, 1_002, ALL_RUN);
        locks.release(2, 0xa0, 1_005, ALL_RUN);
        let once = LockRow { acquires: 1, ..LockRow::default() };
        assert_eq!(row(&locks, unmap), once);
        assert_eq!(row(&locks, fork), LockRow { releases: 1, held: 5, ..once });
        // The lock is free now.
        locks.release(1, 0xa0, 2_000, ALL_RUN);
        assert_eq!(row(&locks, unmap), once);
    }

    /// The machine switches to the CPU of the holder before the other task reaches the slow path or gets the lock.
    #[test]
    fn a_holder_that_releases_between_the_call_and_the_slow_path_is_charged() {
        let expected = LockRow { acquires: 1, releases: 1, held: 4, ..LockRow::default() };
        for is_contended in [false, true] {
            let mut locks = Locks::default();
            locks.take(PLACE, READ, 1, 0xa0, 10);
            locks.take(OTHER, READ, 2, 0xa0, 12);
            locks.release(1, 0xa0, 14, ALL_RUN);
            assert_eq!(row(&locks, PLACE), expected);
            if is_contended {
                locks.contend(2, false, 0xa0, 14);
                locks.end_wait(2, false, WaitEnd::Obtained, 16);
            }
            locks.release(2, 0xa0, 20, ALL_RUN);
            let second = row(&locks, OTHER);
            let held = if is_contended { 20 - 16 } else { 20 - 12 };
            assert_eq!((second.releases, second.held), (1, held));
            assert_eq!(row(&locks, PLACE), expected);
        }
    }

    /// The scheduler took its lock in task 1 and releases it in task 2. On other CPUs tasks 3 and 4 are about to take it.
    #[test]
    fn a_lock_that_a_task_switch_hands_over_is_charged_to_the_task_that_took_it() {
        let third = LockPlace { return_to: 0x99, ..PLACE };
        for further in [false, true] {
            let mut locks = Locks::default();
            locks.take(PLACE, READ, 1, 0xa0, 10);
            locks.take(OTHER, READ, 3, 0xa0, 12);
            if further {
                locks.take(third, READ, 4, 0xa0, 13);
            }
            locks.release(2, 0xa0, 14, |task| task != 1);
            let once = LockRow { acquires: 1, releases: 1, held: 4, ..LockRow::default() };
            assert_eq!(row(&locks, PLACE), once);
            assert_eq!(row(&locks, OTHER).releases, 0);
            // The last to call is still assumed to hold the lock.
            let (last, place) = if further { (4, third) } else { (3, OTHER) };
            locks.release(last, 0xa0, 20, |task| task != 1);
            assert_eq!(row(&locks, place).releases, 1);
            assert_eq!(row(&locks, PLACE), once);
        }
    }

    /// A task that runs has not handed its lock over: its release was not seen, and the lock is that of the later caller.
    #[test]
    fn only_a_holder_that_is_switched_out_has_handed_its_lock_over() {
        let mut locks = Locks::default();
        locks.take(PLACE, READ, 1, 0xa0, 10);
        locks.take(OTHER, READ, 3, 0xa0, 12);
        locks.release(2, 0xa0, 14, ALL_RUN);
        assert_eq!((row(&locks, PLACE).releases, row(&locks, OTHER).releases), (0, 1));
    }

    /// Two tasks call while a third holds the lock, and reach their slow paths in either order.
    #[test]
    fn a_holder_is_charged_though_two_others_are_about_to_wait() {
        let third = LockPlace { return_to: 0x99, ..PLACE };
        for order in [[2, 3], [3, 2]] {
            let mut locks = Locks::default();
            locks.take(PLACE, READ, 1, 0xa0, 10);
            locks.take(OTHER, READ, 2, 0xa0, 12);
            locks.take(third, READ, 3, 0xa0, 13);
            for task in order {
                locks.contend(task, false, 0xa0, 14);
            }
            locks.release(1, 0xa0, 15, ALL_RUN);
            let held = |place| (row(&locks, place).releases, row(&locks, place).held);
            assert_eq!([held(PLACE), held(OTHER), held(third)], [(1, 5), (0, 0), (0, 0)]);
        }
        let mut locks = Locks::default();
        locks.take(PLACE, READ, 1, 0xa0, 10);
        locks.take(OTHER, READ, 2, 0xa0, 12);
        locks.take(third, READ, 3, 0xa0, 13);
        locks.release(1, 0xa0, 14, ALL_RUN);
        assert_eq!((row(&locks, PLACE).releases, row(&locks, PLACE).held), (1, 4));
        assert_eq!(row(&locks, third).releases, 0);
    }

    #[test]
    fn readers_hold_none() {
        let mut locks = Locks::default();
        let read = LockPlace { kind: LockKind::SemaphoreRead, return_to: 0x10, name: 0 };
        locks.take(read, READ, 1, 0xa0, 0);
        locks.take(read, READ, 1, 0xb0, 1);
        locks.release(1, 0xa0, 5, ALL_RUN);
        let expected = LockRow { acquires: 2, ..LockRow::default() };
        assert_eq!(row(&locks, read), expected);
        // A slow path of another lock or of another task is no contention of these locks.
        assert_eq!(locks.contend(1, true, 0xc0, 6), None);
        assert_eq!(locks.contend(2, true, 0xa0, 6), None);
    }

    #[test]
    fn places_beyond_the_bound_are_counted() {
        let mut locks = Locks::default();
        for return_to in 0..=PLACES_MAX as u64 {
            let lock_place = LockPlace { kind: LockKind::Mutex, return_to, name: 0 };
            locks.take(lock_place, READ, 1, 0xa0, 0);
        }
        assert_eq!((locks.rows().len(), locks.refused()), (PLACES_MAX, 1));
    }
    /// Two services take locks in one place, and each has its own row.
    #[test]
    fn a_place_has_a_row_for_each_service() {
        let mut locks = Locks::default();
        let write = LockClient::Service(KernelContext::Syscall(1));
        locks.take(PLACE, READ, 1, 0xa0, 10);
        locks.take(PLACE, write, 2, 0xa0, 12);
        locks.contend(2, false, 0xa0, 12);
        locks.release(1, 0xa0, 30, ALL_RUN);
        locks.end_wait(2, false, WaitEnd::Obtained, 31);
        locks.release(2, 0xa0, 35, ALL_RUN);
        let reads = LockRow { acquires: 1, releases: 1, held: 20, ..LockRow::default() };
        let writes = LockRow { contended: 1, waited: 19, held: 4, ..reads };
        let expected = [(0, reads), (1, writes)]
            .map(|(number, row)| ((KernelContext::Syscall(number), PLACE), row));
        assert_eq!(locks.rows(), expected.into());
    }

    /// The kind of a page fault is known at its end. It then applies to locks that the fault still holds or waits for.
    #[test]
    fn locks_of_a_page_fault_are_those_of_its_kind() {
        let mut locks = Locks::default();
        let fault = LockClient::Fault { task: 1, depth: 2 };
        let other_fault = LockClient::Fault { task: 3, depth: 2 };
        locks.take(PLACE, fault, 1, 0xa0, 10);
        locks.release(1, 0xa0, 15, ALL_RUN);
        locks.take(PLACE, other_fault, 3, 0xb0, 15);
        locks.take(OTHER, fault, 1, 0xc0, 16);
        let kind = KernelContext::Fault(FaultKind::CopyOnWrite);
        locks.end_fault(1, 2, kind);
        locks.release(1, 0xc0, 18, ALL_RUN);
        let once = LockRow { acquires: 1, releases: 1, held: 5, ..LockRow::default() };
        let rows = locks.rows();
        assert_eq!(rows[&(kind, PLACE)], once);
        assert_eq!(rows[&(kind, OTHER)], LockRow { held: 2, ..once });
        let open = KernelContext::Fault(FaultKind::Unclassified);
        assert_eq!(rows[&(open, PLACE)], LockRow { releases: 0, held: 0, ..once });
        // The next of the task at this depth is another one.
        locks.take(PLACE, fault, 1, 0xa0, 20);
        locks.contend(1, false, 0xa0, 20);
        locks.end_fault(1, 2, KernelContext::Fault(FaultKind::Minor));
        locks.end_wait(1, false, WaitEnd::Obtained, 27);
        let minor = locks.rows()[&(KernelContext::Fault(FaultKind::Minor), PLACE)];
        assert_eq!((minor.contended, minor.waited), (1, 7));
        assert_eq!(locks.rows()[&(kind, PLACE)], once);
        // The rows add up to the number of taken locks.
        assert_eq!(locks.rows().values().map(|row| row.acquires).sum::<u64>(), 4);
    }
}
