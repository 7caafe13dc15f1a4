//! Why a line misses: a state machine for each line of memory and each cache.
//!
//! A line was never in the cache; or it is in; or it left, and then it is noted why and for whom: for a
//! line of some context, for another core's store, for a device. When it is asked for again, that is the
//! class of the miss.

use std::collections::hash_map::Entry;

use crate::hash::NumberMap;

/// Whose code an access is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The kernel's.
    #[default]
    Kernel,
    /// A process's.
    User,
}

/// For whom a processor executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// Kernel or user.
    pub mode: Mode,
    /// The process, by any number of the caller's.
    pub process: u32,
    /// The interrupt that it serves, by any number of the caller's.
    pub interrupt: Option<u32>,
}

/// Why a line was not in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissClass {
    /// It never was. What happened before the watch began is not known.
    Cold,
    /// It left for a line of the same: the kernel's for the kernel, a process's for that process.
    SameSelf,
    /// It left for a line of another: the kernel's for a process, a process's for another or the kernel.
    Other,
    /// Another core wrote what is asked for.
    TrueSharing,
    /// Another core wrote something else in the unit of coherence.
    FalseSharing,
    /// A device wrote it.
    Device,
    /// There was no room to note why.
    Untracked,
}

impl MissClass {
    /// All of them, in the order of [`ClassCounts::by_mode`].
    pub const ALL: [MissClass; 7] = [
        MissClass::Cold,
        MissClass::SameSelf,
        MissClass::Other,
        MissClass::TrueSharing,
        MissClass::FalseSharing,
        MissClass::Device,
        MissClass::Untracked,
    ];
}

/// Misses of a cache, by class. Each miss of a processor's accesses is in one class; walks and prefetches
/// are not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// By who missed, kernel and user, and by class, in the order of [`MissClass::ALL`]: KERN-self is
    /// `by_mode[0][1]`, USER-other `by_mode[1][2]`.
    pub by_mode: [[u64; 7]; 2],
    /// Of those that left for others: how many a fully associative LRU cache of the same size would
    /// have had, too. Zero without shadow_caches.
    pub capacity: u64,
    /// And how many it would not have had: there were too few ways.
    pub conflict: u64,
    /// Of those that left for others: for whom, by context.
    pub evicted_by: Vec<(Context, u64)>,
}

impl ClassCounts {
    /// All misses.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_mode.iter().flatten().sum()
    }

    /// Misses of a class.
    #[must_use]
    pub fn of(&self, class: MissClass) -> u64 {
        self.by_mode.iter().map(|mode| mode[class as usize]).sum()
    }

    /// Misses of lines that were evicted while an interrupt was served.
    #[must_use]
    pub fn evicted_by_interrupt(&self, interrupt: u32) -> u64 {
        let by = self.evicted_by.iter().filter(|(who, _)| who.interrupt == Some(interrupt));
        by.map(|(_, number)| number).sum()
    }

    pub(super) fn add(&mut self, other: &ClassCounts) {
        for (mode, others) in self.by_mode.iter_mut().zip(&other.by_mode) {
            mode.iter_mut().zip(others).for_each(|(count, more)| *count += more);
        }
        self.capacity += other.capacity;
        self.conflict += other.conflict;
        for (who, number) in &other.evicted_by {
            match self.evicted_by.iter_mut().find(|(same, _)| same == who) {
                Some((_, count)) => *count += number,
                None => self.evicted_by.push((*who, *number)),
            }
        }
    }
}

/// What is noted of a line; from [`EVICTED`] on it is the number of the context that it left for.
pub(super) const NEVER: u16 = 0;
pub(super) const IN: u16 = 1;
pub(super) const INVALIDATED: u16 = 2;
pub(super) const DEVICE: u16 = 3;
pub(super) const EVICTED: u16 = 4;
/// Contexts that are told apart; the last number is for all that come later.
pub(super) const CONTEXTS_MAX: usize = 4096;

/// Notes of lines are kept in pages of so many lines.
const PAGE_LINES: u64 = 256;
/// A page with its place in the map, bytes.
pub(super) const PAGE_COST_BYTES: u64 = PAGE_LINES * 2 + 48;

/// The notes of all lines of a cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    pages: NumberMap<Box<[u16]>>,
}

impl Notes {
    /// What is noted of a line.
    pub(super) fn get(&self, line: u64) -> u16 {
        let page = self.pages.get(&(line / PAGE_LINES));
        page.map_or(NEVER, |page| page[(line % PAGE_LINES) as usize])
    }

    /// Notes something; false when there is no room within `budget_bytes`, of which is taken what is
    /// needed.
    pub(super) fn set(&mut self, line: u64, note: u16, budget_bytes: &mut u64) -> bool {
        let page = match self.pages.entry(line / PAGE_LINES) {
            Entry::Occupied(page) => page.into_mut(),
            Entry::Vacant(free) => {
                let Some(left) = budget_bytes.checked_sub(PAGE_COST_BYTES) else { return false };
                *budget_bytes = left;
                free.insert(vec![NEVER; PAGE_LINES as usize].into())
            }
        };
        page[(line % PAGE_LINES) as usize] = note;
        true
    }
}
