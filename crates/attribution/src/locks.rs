//! Locks of the kernel by the place that takes them: how often, how often another has it, how long that
//! is waited for, and how long it is held.
//!
//! The places are return addresses. A lock that is free is taken where the function is called, one that
//! another has when the slow path returns.

use std::collections::BTreeMap;

/// Maximum number of places.
pub const PLACES_MAX: usize = 16_384;
/// Maximum number of locks that are held, and of tasks that wait, at the same time.
const HELD_MAX: usize = 65_536;

/// The sort of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LockKind {
    /// A spin lock.
    Spin = 0,
    /// A spinning lock of readers and writers, taken to read.
    SpinRead = 1,
    /// The same, taken to write.
    SpinWrite = 2,
    /// A mutex.
    Mutex = 3,
    /// A semaphore of readers and writers, taken to read.
    SemaphoreRead = 4,
    /// The same, taken to write.
    SemaphoreWrite = 5,
}

impl LockKind {
    /// All kinds, by their numbers.
    pub const ALL: [LockKind; 6] = [
        LockKind::Spin,
        LockKind::SpinRead,
        LockKind::SpinWrite,
        LockKind::Mutex,
        LockKind::SemaphoreRead,
        LockKind::SemaphoreWrite,
    ];

    /// The name in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            LockKind::Spin => "spin lock",
            LockKind::SpinRead => "rwlock read",
            LockKind::SpinWrite => "rwlock write",
            LockKind::Mutex => "mutex",
            LockKind::SemaphoreRead => "rwsem read",
            LockKind::SemaphoreWrite => "rwsem write",
        }
    }

    /// The kind with this number.
    #[must_use]
    pub fn of_number(number: u32) -> Option<LockKind> {
        LockKind::ALL.get(number as usize).copied()
    }

    /// Whether several can have it at the same time.
    fn is_shared(self) -> bool {
        matches!(self, LockKind::SpinRead | LockKind::SemaphoreRead)
    }

    /// Whether who waits for it may leave the CPU.
    #[must_use]
    pub fn sleeps(self) -> bool {
        !matches!(self, LockKind::Spin | LockKind::SpinRead | LockKind::SpinWrite)
    }
}

/// A place that takes locks of one kind and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockPlace {
    /// The kind.
    pub kind: LockKind,
    /// Where the function that takes the lock returns to.
    pub return_to: u64,
    /// The lock's name, by the caller's number: locks in the same member of a structure have one name.
    pub name: u32,
}

/// What a place took, in the unit of the caller's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockRow {
    /// How often it took one.
    pub acquires: u64,
    /// How often it went the slow way, because another had it.
    pub contended: u64,
    /// How long that took.
    pub waited: u64,
    /// How often a lock that it took was released.
    pub releases: u64,
    /// How long those were held.
    pub held: u64,
}

/// Who takes a lock, in the slow way.
#[derive(Clone, Copy, Debug)]
struct Taking {
    place: LockPlace,
    lock: u64,
    /// When the slow way started; absent before.
    since: Option<u64>,
}

/// The locks of a machine in a region.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    rows: BTreeMap<LockPlace, LockRow>,
    /// Who has a lock since when; none of those that are shared.
    held: BTreeMap<u64, (LockPlace, u64)>,
    /// What each task takes, and whether it may sleep for it: an interrupt may spin meanwhile.
    taking: BTreeMap<(u64, bool), Taking>,
    refused: u64,
}

impl Locks {
    /// A task is about to take a lock.
    pub fn take(&mut self, place: LockPlace, task: u64, lock: u64, now: u64) {
        let is_known = self.rows.contains_key(&place);
        if !is_known && self.rows.len() >= PLACES_MAX {
            self.refused += 1;
            return;
        }
        self.rows.entry(place).or_default().acquires += 1;
        if self.taking.len() < HELD_MAX {
            let taking = Taking { place, lock, since: None };
            self.taking.insert((task, place.kind.sleeps()), taking);
        }
        if !self.held.contains_key(&lock) {
            self.hold(place, lock, now);
        }
    }

    fn hold(&mut self, place: LockPlace, lock: u64, now: u64) {
        if !place.kind.is_shared() && self.held.len() < HELD_MAX {
            self.held.insert(lock, (place, now));
        }
    }

    /// Another has the lock: the task goes the slow way. Returns the kind of the lock that it takes.
    pub fn contend(&mut self, task: u64, sleeps: bool, lock: u64, now: u64) -> Option<LockKind> {
        let taking = self.taking.get_mut(&(task, sleeps)).filter(|taking| taking.lock == lock)?;
        taking.since = Some(now);
        let place = taking.place;
        self.rows.get_mut(&place)?.contended += 1;
        // That it was free is what was assumed.
        if self.held.get(&lock).is_some_and(|(holder, since)| (*holder, *since) == (place, now)) {
            self.held.remove(&lock);
        }
        Some(place.kind)
    }

    /// The slow way ends: the task has the lock.
    pub fn obtain(&mut self, task: u64, sleeps: bool, now: u64) {
        let Some(taking) = self.taking.remove(&(task, sleeps)) else { return };
        let (Some(since), Some(row)) = (taking.since, self.rows.get_mut(&taking.place)) else {
            return;
        };
        row.waited += now.saturating_sub(since);
        self.hold(taking.place, taking.lock, now);
    }

    /// A lock is released.
    pub fn release(&mut self, lock: u64, now: u64) {
        if let Some((place, since)) = self.held.remove(&lock)
            && let Some(row) = self.rows.get_mut(&place)
        {
            row.releases += 1;
            row.held += now.saturating_sub(since);
        }
    }

    /// A region opens: counts start at zero, and what is held then is not known.
    pub fn restart(&mut self) {
        self.rows.clear();
        self.held.clear();
        self.taking.clear();
        self.refused = 0;
    }

    /// The rows.
    pub fn rows(&self) -> impl Iterator<Item = (LockPlace, LockRow)> + '_ {
        self.rows.iter().map(|(place, row)| (*place, *row))
    }

    /// How often there was no room for a place.
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

    fn row(locks: &Locks, place: LockPlace) -> LockRow {
        locks.rows().find(|row| row.0 == place).unwrap().1
    }

    #[test]
    fn who_waits_has_the_lock_from_when_it_obtains_it() {
        let mut locks = Locks::default();
        locks.take(PLACE, 1, 0xa0, 10);
        locks.take(OTHER, 2, 0xa0, 12);
        assert_eq!(locks.contend(2, false, 0xa0, 13), Some(LockKind::Spin));
        locks.release(0xa0, 20);
        locks.obtain(2, false, 22);
        locks.release(0xa0, 25);
        let first = LockRow { acquires: 1, releases: 1, held: 10, ..LockRow::default() };
        assert_eq!(row(&locks, PLACE), first);
        let second = LockRow { contended: 1, waited: 22 - 13, held: 25 - 22, ..first };
        assert_eq!(row(&locks, OTHER), second);
    }

    #[test]
    fn a_holder_that_was_not_seen_is_not_the_one_that_waits() {
        let mut locks = Locks::default();
        locks.take(PLACE, 1, 0xa0, 10);
        assert_eq!(locks.contend(1, false, 0xa0, 10), Some(LockKind::Spin));
        locks.release(0xa0, 15); // by the one that was not seen
        locks.obtain(1, false, 16);
        locks.release(0xa0, 18);
        assert_eq!((row(&locks, PLACE).held, row(&locks, PLACE).releases), (2, 1));
    }

    #[test]
    fn readers_hold_none() {
        let mut locks = Locks::default();
        let read = LockPlace { kind: LockKind::SemaphoreRead, return_to: 0x10, name: 0 };
        locks.take(read, 1, 0xa0, 0);
        locks.take(read, 1, 0xb0, 1);
        locks.release(0xa0, 5);
        let expected = LockRow { acquires: 2, ..LockRow::default() };
        assert_eq!(row(&locks, read), expected);
        // Another function's slow path is none of theirs.
        assert_eq!(locks.contend(1, true, 0xc0, 6), None);
        assert_eq!(locks.contend(2, true, 0xa0, 6), None);
    }

    #[test]
    fn places_beyond_the_bound_are_counted() {
        let mut locks = Locks::default();
        for return_to in 0..=PLACES_MAX as u64 {
            locks.take(LockPlace { kind: LockKind::Mutex, return_to, name: 0 }, 1, 0xa0, 0);
        }
        assert_eq!((locks.rows().count(), locks.refused()), (PLACES_MAX, 1));
    }
}
