//! Why lines miss: for each miss its class, the context that evicted the line, and where it
//! happened. The plugin turns this on for regions that record misses (`--misses`, level `ooo`).
//!
//! A line of memory has a history in each cache: never filled; present; or absent, with the reason
//! for its removal: evicted by some context, invalidated by another core's store, or written by a
//! device. At the next miss that reason is the class. An exclusive cache also lacks the lines that
//! caches above hold in its place. `l1`, `fill`, `evict` and `coherence` report each event here.
//!
//! Invariant: the classifier only observes. Counts and cycles are equal with and without it, so
//! nothing here may change tags or return something that a lookup reads.

use std::collections::hash_map::Entry;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::coherence::CoherenceGranule;
use super::tags::CacheId;
use super::{Access, AccessKind, SupplyingLevel};
use crate::address::{LineAddress, LineRange, PhysicalAddress, VirtualAddress};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheName {
    /// The L1 instruction cache.
    L1i,
    L1d,
    L2,
    L3,
}

impl CacheName {
    /// The name of a level below L1, from 0 for L2.
    pub(super) fn outer(level: usize) -> Self {
        if level == 0 { CacheName::L2 } else { CacheName::L3 }
    }
}

/// Options of the classifier: how much it distinguishes and how much memory it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassifierConfig {
    /// Whether capacity and conflict misses are distinguished, which needs a fully associative
    /// shadow cache for each cache. It starts with the lines that the cache holds.
    pub shadow_caches: bool,
    /// Maximum number of single misses that are kept until [`take_misses`]. Further misses are only counted.
    ///
    /// [`take_misses`]: super::MemorySystem::take_misses
    pub misses_kept: usize,
    /// Memory for the histories of lines, in bytes. A line without room becomes [`MissClass::Untracked`].
    pub history_bytes: u64,
}

impl Default for ClassifierConfig {
    /// 640 MiB of histories, no shadow caches, no single misses.
    fn default() -> Self {
        ClassifierConfig { shadow_caches: false, misses_kept: 0, history_bytes: 640 << 20 }
    }
}

/// A privilege mode of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    #[default]
    Kernel,
    User,
}

/// The context that a processor executes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    pub mode: Mode,
    /// The process, by a number that the caller chooses.
    pub process: u32,
    /// The caller's number of the service that executes, such as an interrupt.
    pub service: Option<u32>,
}

impl Context {
    /// Whether both are the kernel, or the same process in user mode.
    fn is_same(self, other: Context) -> bool {
        self.mode == other.mode && (self.mode == Mode::Kernel || self.process == other.process)
    }
}

/// Why a line was absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissClass {
    /// The classifier has not seen the line in the cache before. For an exclusive cache: nor in the caches above that
    /// hold lines in its place.
    Cold,
    /// The context that now misses the line had evicted it: the kernel, or one process in user mode.
    SameSelf,
    /// Another context evicted the line: the kernel for a process, or a process for another process or the
    /// kernel.
    Other,
    /// Another core wrote the bytes that are accessed.
    TrueSharing,
    /// Another core wrote other bytes of the coherence granule.
    FalseSharing,
    /// A device wrote the line after the cache had filled it. An eviction before that write does not count,
    /// because a larger cache would have lost the line, too. Or the last level evicted the line to make room
    /// for a line that a device wrote.
    Device,
    /// There was no room to keep the reason, or to distinguish the evicting process. Or an exclusive cache that cores
    /// share lacks the line because caches of other cores hold it.
    Untracked,
}

impl MissClass {
    /// All classes, in the order of [`ClassCounts::by_mode`]. Records and tables use this order.
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

/// The misses of a cache by class. Each miss of a processor's access has one class. Page walks and
/// prefetches are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Misses by mode (kernel, user), then by class in the order of [`MissClass::ALL`]. Example: the kernel's
    /// [`MissClass::SameSelf`] is `by_mode[0][1]`.
    pub by_mode: [[u64; 7]; 2],
    /// Misses of evicted lines that a fully associative LRU cache of equal size would also have. Zero without
    /// shadow caches.
    pub capacity: u64,
    /// Misses of evicted lines that the fully associative cache would hit: the real cache has too few ways.
    pub conflict: u64,
    /// Misses of evicted lines by the context that evicted them.
    pub evicted_by: Vec<(Context, u64)>,
}

impl ClassCounts {
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_mode.iter().flatten().sum()
    }

    #[must_use]
    pub fn misses_of_class(&self, class: MissClass) -> u64 {
        self.by_mode.iter().map(|mode| mode[class as usize]).sum()
    }

    /// Misses of lines that an execution of this service had evicted.
    #[must_use]
    pub fn evicted_by_service(&self, service: u32) -> u64 {
        let evictions =
            self.evicted_by.iter().filter(|(evictor, _)| evictor.service == Some(service));
        evictions.map(|(_, number)| number).sum()
    }

    /// Adds the counts of another cache.
    fn add(&mut self, other: &ClassCounts) {
        for (mode, others) in self.by_mode.iter_mut().zip(&other.by_mode) {
            mode.iter_mut().zip(others).for_each(|(count, added)| *count += added);
        }
        self.capacity += other.capacity;
        self.conflict += other.conflict;
        for (evictor, number) in &other.evicted_by {
            match self.evicted_by.iter_mut().find(|(known, _)| known == evictor) {
                Some((_, count)) => *count += number,
                None => self.evicted_by.push((*evictor, *number)),
            }
        }
    }
}

/// One classified miss of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    pub cpu: usize,
    pub cache: CacheName,
    /// The address of the instruction.
    pub pc: VirtualAddress,
    /// The physical address of the instruction, if it is known.
    pub code_physical: Option<PhysicalAddress>,
    /// Addresses of the access.
    pub virtual_address: VirtualAddress,
    pub physical: PhysicalAddress,
    pub class: MissClass,
    /// The context that evicted the line, if one did.
    pub evicted_by: Option<Context>,
    /// `true` for a conflict miss, `false` for a capacity miss: whether a fully associative cache of equal size
    /// would have hit. `None` without shadow caches, and for a line that was not evicted.
    pub is_conflict: Option<bool>,
    /// Whether the access is an instruction fetch.
    pub is_fetch: bool,
    pub supplier: SupplyingLevel,
    /// Cycles from the end of the translation until the line was ready. If an access misses several caches,
    /// each of its misses has the whole wait.
    pub wait_cycles: u64,
}

/// A location, and how many events happened there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocationCount {
    pub location: u64,
    pub count: u64,
}

/// Counts events by location, such as a function or a datum. The caller numbers the locations. Room is
/// bounded: events at further locations are counted together.
#[derive(Clone, Debug)]
pub struct LocationCounts {
    counts: FxHashMap<u64, u64>,
    /// Maximum number of locations with a count of their own.
    room: usize,
    /// Events at all other locations.
    other: u64,
}

impl LocationCounts {
    /// Returns empty counts with room for `room` locations.
    #[must_use]
    pub fn new(room: usize) -> Self {
        LocationCounts { counts: FxHashMap::default(), room, other: 0 }
    }

    pub fn add(&mut self, location: u64) {
        let is_full = self.counts.len() >= self.room;
        match self.counts.get_mut(&location) {
            Some(count) => *count += 1,
            None if is_full => self.other += 1,
            None => drop(self.counts.insert(location, 1)),
        }
    }

    /// The locations and their counts. Locations with equal counts are in the order of their numbers.
    #[must_use]
    pub fn most_frequent_first(&self) -> Vec<LocationCount> {
        let counted =
            |(location, count): (&u64, &u64)| LocationCount { location: *location, count: *count };
        let mut all: Vec<_> = self.counts.iter().map(counted).collect();
        all.sort_by_key(|counted| (std::cmp::Reverse(counted.count), counted.location));
        all
    }

    /// Number of events at locations that had no room.
    #[must_use]
    pub fn overflow_count(&self) -> u64 {
        self.other
    }
}

/// The state of a line in a cache. `EVICTED + n`: evicted by the context with number `n`.
type LineState = u16;
const NEVER_FILLED: LineState = 0;
const PRESENT: LineState = 1;
const INVALIDATED: LineState = 2;
const DEVICE_WROTE: LineState = 3;
/// Absent from an exclusive cache, because a cache above holds the line.
const HELD_ABOVE: LineState = 4;
const EVICTED: LineState = 5;
/// Maximum number of contexts that have a number of their own.
const CONTEXTS_MAX: usize = 4096;
/// The number of the kernel when it executes no known service, and of all services beyond [`CONTEXTS_MAX`].
const KERNEL_NUMBER: u16 = 0;
/// The number of all processes beyond [`CONTEXTS_MAX`].
const FURTHER_PROCESSES: u16 = 1;
/// The context with the number [`FURTHER_PROCESSES`].
const FURTHER_PROCESSES_CONTEXT: Context =
    Context { mode: Mode::User, process: u32::MAX, service: None };

/// Lines in a page of states. A page is allocated with the first state that it holds.
const PAGE_LINES: u64 = 256;
/// Memory of a page of states with its entry in the map, in bytes.
const PAGE_COST_BYTES: u64 = PAGE_LINES * 2 + 48;

/// The states of all lines in a cache.
#[derive(Clone, Debug, Default)]
struct LineStates {
    pages: FxHashMap<u64, Box<[LineState]>>,
}

impl LineStates {
    fn get(&self, LineAddress(line): LineAddress) -> LineState {
        let page = self.pages.get(&(line / PAGE_LINES));
        page.map_or(NEVER_FILLED, |page| page[(line % PAGE_LINES) as usize])
    }

    /// Keeps a state. Takes the memory of a new page from `budget_bytes`. If that is too small, drops the state.
    fn set(&mut self, LineAddress(line): LineAddress, state: LineState, budget_bytes: &mut u64) {
        let page = match self.pages.entry(line / PAGE_LINES) {
            Entry::Occupied(page) => page.into_mut(),
            Entry::Vacant(free) => {
                let Some(remaining) = budget_bytes.checked_sub(PAGE_COST_BYTES) else { return };
                *budget_bytes = remaining;
                free.insert(vec![NEVER_FILLED; PAGE_LINES as usize].into())
            }
        };
        page[(line % PAGE_LINES) as usize] = state;
    }
}

/// Maximum number of granules that are tracked for sharing. Each takes about 8 bytes per core.
const GRANULES_MAX: usize = 1 << 20;

/// For each granule and each core: the parts that other cores wrote since that core lost the granule. An access
/// to a written part is true sharing, an access to another part is false sharing.
#[derive(Clone, Debug)]
struct SharingTracker {
    cores: usize,
    /// For each core a mask, with a bit per part as in [`Config::granule_mask`](super::config::Config::granule_mask).
    granules: FxHashMap<CoherenceGranule, Box<[u64]>>,
}

impl SharingTracker {
    /// Core `core` loses a granule because core `writer` writes the parts in `mask`.
    fn lost(&mut self, core: usize, granule: CoherenceGranule, writer: usize, mask: u64) {
        if !self.granules.contains_key(&granule) {
            if self.granules.len() == GRANULES_MAX {
                return;
            }
            self.granules.insert(granule, vec![0; self.cores].into());
        }
        self.wrote(writer, granule, mask);
        if let Some(masks) = self.granules.get_mut(&granule) {
            masks[core] = mask;
        }
    }

    /// Core `writer` writes the parts in `mask`. Granules that no core has lost are not tracked.
    fn wrote(&mut self, writer: usize, granule: CoherenceGranule, mask: u64) {
        if let Some(masks) = self.granules.get_mut(&granule) {
            for (core, written) in masks.iter_mut().enumerate() {
                *written |= if core == writer { 0 } else { mask };
            }
        }
    }

    /// Whether other cores wrote some part of `mask` since this core lost the granule. `None` if the granule is not
    /// tracked.
    fn is_true_sharing(&self, core: usize, granule: CoherenceGranule, mask: u64) -> Option<bool> {
        Some(self.granules.get(&granule)?[core] & mask != 0)
    }
}

/// Stands for no entry of a [`ShadowCache`].
const NO_ENTRY: u32 = u32::MAX;

/// A fully associative LRU cache with the size of a real cache. It separates the real cache's misses: a miss
/// that hits here is a conflict miss (too few ways), a miss here as well is a capacity miss (too few lines).
///
/// A doubly linked list through `entries` keeps the order of use, so an access takes constant time.
#[derive(Clone, Debug)]
struct ShadowCache {
    entries: Vec<ShadowEntry>,
    /// Index of each line in `entries`.
    by_line: FxHashMap<LineAddress, u32>,
    /// Index of the most recently used line in `entries`, or [`NO_ENTRY`].
    newest: u32,
    /// Index of the least recently used line in `entries`, or [`NO_ENTRY`].
    oldest: u32,
    /// Maximum number of lines.
    lines: usize,
    /// Entries of removed lines, which a new line may use.
    free: Vec<u32>,
    /// Whether the last look-up for an access hit. Write-backs, prefetches and page walks do not change this,
    /// because they may come between the access and the classification of its miss.
    last_access_hit: bool,
}

#[derive(Clone, Copy, Debug)]
struct ShadowEntry {
    line: LineAddress,
    /// Index of the line that was used next, or [`NO_ENTRY`].
    newer: u32,
    /// Index of the line that was used before, or [`NO_ENTRY`].
    older: u32,
}

impl ShadowCache {
    /// Returns an empty cache of `lines`, at least one.
    fn new(lines: usize) -> Self {
        let (entries, by_line, free) = (Vec::new(), FxHashMap::default(), Vec::new());
        ShadowCache {
            entries,
            by_line,
            newest: NO_ENTRY,
            oldest: NO_ENTRY,
            lines,
            free,
            last_access_hit: false,
        }
    }

    fn holds(&self, line: LineAddress) -> bool {
        self.by_line.contains_key(&line)
    }

    /// Removes a line, if it is present.
    fn remove(&mut self, line: LineAddress) {
        if let Some(entry) = self.by_line.remove(&line) {
            self.unlink(entry);
            self.free.push(entry);
        }
    }

    /// Makes a line the most recently used one. Fills it if it is absent.
    fn touch(&mut self, line: LineAddress) {
        let known = self.by_line.get(&line).copied();
        let entry = match known {
            Some(entry) => {
                self.unlink(entry);
                entry
            }
            None if !self.free.is_empty() => {
                let entry = self.free.pop().unwrap_or(NO_ENTRY);
                self.entries[entry as usize].line = line;
                entry
            }
            None if self.entries.len() < self.lines => {
                self.entries.push(ShadowEntry { line, newer: NO_ENTRY, older: NO_ENTRY });
                (self.entries.len() - 1) as u32
            }
            None => {
                let entry = self.oldest;
                self.unlink(entry);
                let evicted = std::mem::replace(&mut self.entries[entry as usize].line, line);
                self.by_line.remove(&evicted);
                entry
            }
        };
        if known.is_none() {
            self.by_line.insert(line, entry);
        }
        self.link(entry);
    }

    /// Takes an entry out of the list.
    fn unlink(&mut self, entry: u32) {
        let ShadowEntry { newer, older, .. } = self.entries[entry as usize];
        match newer {
            NO_ENTRY => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NO_ENTRY => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    /// Puts an unlinked entry at the newest end of the list.
    fn link(&mut self, entry: u32) {
        let linked = &mut self.entries[entry as usize];
        (linked.newer, linked.older) = (NO_ENTRY, self.newest);
        match self.newest {
            NO_ENTRY => self.oldest = entry,
            newest => self.entries[newest as usize].newer = entry,
        }
        self.newest = entry;
    }
}

/// The classifier's state of one cache.
#[derive(Clone, Debug, Default)]
struct CacheState {
    lines: LineStates,
    shadow: Option<ShadowCache>,
    counts: ClassCounts,
    /// Evictions by the number of the evicting context.
    evicted_by: FxHashMap<u64, u64>,
    /// The state, before its fill, of the line that the last access missed. The fill may evict that same line
    /// again, and this must not change why the line was absent.
    last_absent: Absent,
}

/// The classifier's knowledge of a line that an access did not find.
#[derive(Clone, Copy, Debug, Default)]
struct Absent {
    before: LineState,
    /// Whether there was no room for histories of further lines: `NEVER_FILLED` may then be wrong.
    is_full: bool,
}

#[derive(Clone, Debug)]
struct State {
    config: ClassifierConfig,
    /// Indexed by the cache's name, then by its number: see [`CacheId`].
    caches: [Vec<CacheState>; 4],
    /// Memory left for the histories of lines.
    budget_bytes: u64,
    /// Contexts by their numbers, at most [`CONTEXTS_MAX`].
    contexts: Vec<Context>,
    context_numbers: FxHashMap<Context, u16>,
    /// The context of each processor, and its number.
    current: Vec<(Context, u16)>,
    sharing: SharingTracker,
    /// The instruction that makes the next access.
    instruction: Instruction,
    misses: Vec<Miss>,
    /// Misses beyond [`ClassifierConfig::misses_kept`] since the last [`Classifier::take_misses`].
    not_kept: u64,
}

/// The instruction that makes an access.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Instruction {
    /// For a fetch, the instruction's virtual address. The access itself names the line, which may start in
    /// another function. `None` for loads and stores.
    pub(super) fetched_at: Option<VirtualAddress>,
    pub(super) physical: Option<PhysicalAddress>,
}

impl State {
    /// The number of a context. Contexts beyond [`CONTEXTS_MAX`] share two numbers.
    fn number_of(&mut self, context: Context) -> u16 {
        if let Some(number) = self.context_numbers.get(&context) {
            return *number;
        }
        if self.contexts.len() >= CONTEXTS_MAX {
            return match context.mode {
                Mode::Kernel => KERNEL_NUMBER,
                Mode::User => FURTHER_PROCESSES,
            };
        }
        let number = self.contexts.len() as u16;
        self.contexts.push(context);
        self.context_numbers.insert(context, number);
        number
    }

    fn set(&mut self, cache: CacheId, line: LineAddress, state: LineState) {
        let lines = &mut self.caches[cache.name as usize][cache.number].lines;
        lines.set(line, state, &mut self.budget_bytes);
    }
}

/// The meaning of a look-up of the real cache for its shadow cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShadowUse {
    /// Whether the look-up serves a fetch, load or store, whose miss may be classified.
    pub(super) is_access: bool,
    pub(super) line_after: LineAfter,
}

/// Whether the cache holds the line after a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineAfter {
    /// The cache holds the line: a hit, or a miss that fills it.
    Present,
    /// The cache gives the line up, as an exclusive level does.
    Absent,
    /// A miss does not fill the line; a hit keeps it.
    Unchanged,
}

/// A miss of one cache, for [`Classifier::missed`].
#[derive(Clone, Copy, Debug)]
pub(super) struct MissedLine {
    pub(super) cache: CacheId,
    pub(super) core: usize,
    pub(super) granule: CoherenceGranule,
    /// The parts of the granule that are accessed.
    pub(super) mask: u64,
    pub(super) supplier: SupplyingLevel,
}

/// The classifier of a memory system. `None`: classification is off, and each call returns at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Classifier(Option<Box<State>>);

impl Classifier {
    /// Returns a classifier. `lines` has the number of lines of each cache, by name and number.
    pub(super) fn new(config: ClassifierConfig, lines: [Vec<usize>; 4], cpus: usize) -> Self {
        let cores = lines[CacheName::L1d as usize].len();
        let cache = |lines: &usize| CacheState {
            shadow: config.shadow_caches.then(|| ShadowCache::new(*lines)),
            ..CacheState::default()
        };
        Classifier(Some(Box::new(State {
            config,
            caches: lines.map(|cache_lines| cache_lines.iter().map(cache).collect()),
            budget_bytes: config.history_bytes,
            contexts: vec![Context::default(), FURTHER_PROCESSES_CONTEXT],
            context_numbers: [(Context::default(), KERNEL_NUMBER)].into_iter().collect(),
            current: vec![(Context::default(), KERNEL_NUMBER); cpus],
            sharing: SharingTracker { cores, granules: FxHashMap::default() },
            instruction: Instruction::default(),
            misses: Vec::new(),
            not_kept: 0,
        })))
    }

    /// Fills the shadow cache of a cache with these lines, the least recently used line first.
    pub(super) fn fill_shadow(&mut self, cache: CacheId, lines: &[LineAddress]) {
        let Some(state) = &mut self.0 else { return };
        if let Some(shadow) = &mut state.caches[cache.name as usize][cache.number].shadow {
            lines.iter().for_each(|line| shadow.touch(*line));
        }
    }

    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Sets the context that evictions and misses of a processor are attributed to from now on.
    pub(super) fn set_context(&mut self, cpu: usize, context: Context) {
        let Some(state) = &mut self.0 else { return };
        state.current[cpu] = (context, state.number_of(context));
    }

    /// Sets the instruction that makes the next access.
    #[inline(always)]
    pub(super) fn set_instruction(&mut self, instruction: impl FnOnce() -> Instruction) {
        if let Some(state) = &mut self.0 {
            state.instruction = instruction();
        }
    }

    /// The sum over all caches of a name.
    pub(super) fn class_counts(&self, name: CacheName) -> ClassCounts {
        let mut sum = ClassCounts::default();
        let Some(state) = &self.0 else { return sum };
        for cache in &state.caches[name as usize] {
            let mut counts = cache.counts.clone();
            let mut evictors: Vec<_> = cache.evicted_by.iter().collect();
            evictors.sort();
            let context = |number: u64| state.contexts[number as usize];
            counts.evicted_by =
                evictors.into_iter().map(|(evictor, count)| (context(*evictor), *count)).collect();
            sum.add(&counts);
        }
        sum
    }

    /// Takes the misses that are kept, and the number of misses that were not kept.
    pub(super) fn take_misses(&mut self) -> (Vec<Miss>, u64) {
        let Some(state) = &mut self.0 else { return (Vec::new(), 0) };
        (std::mem::take(&mut state.misses), std::mem::take(&mut state.not_kept))
    }

    /// An access looks up a line in a cache that fills it on a miss.
    #[inline(always)]
    pub(super) fn accessed(&mut self, cache: CacheId, line: LineAddress) {
        if self.is_on() {
            self.look_up_shadow(
                cache,
                line,
                ShadowUse { is_access: true, line_after: LineAfter::Present },
            );
        }
    }

    /// A line is looked up in a cache, as `shadow_use` says.
    #[inline(always)]
    pub(super) fn looked_up(&mut self, cache: CacheId, line: LineAddress, shadow_use: ShadowUse) {
        if self.is_on() {
            self.look_up_shadow(cache, line, shadow_use);
        }
    }

    #[inline(never)]
    fn look_up_shadow(&mut self, cache: CacheId, line: LineAddress, shadow_use: ShadowUse) {
        let Some(state) = &mut self.0 else { return };
        let Some(shadow) = &mut state.caches[cache.name as usize][cache.number].shadow else {
            return;
        };
        if shadow_use.is_access {
            shadow.last_access_hit = shadow.holds(line);
        }
        match shadow_use.line_after {
            LineAfter::Present => shadow.touch(line),
            LineAfter::Absent => shadow.remove(line),
            LineAfter::Unchanged if shadow.holds(line) => shadow.touch(line),
            LineAfter::Unchanged => {}
        }
    }

    /// A line was filled without a miss of an access: by a page walk, a prefetch or a write-back.
    pub(super) fn filled(&mut self, cache: CacheId, line: LineAddress) {
        if let Some(state) = &mut self.0 {
            state.set(cache, line, PRESENT);
            self.look_up_shadow(
                cache,
                line,
                ShadowUse { is_access: false, line_after: LineAfter::Present },
            );
        }
    }

    /// A cache above an exclusive cache takes a line, which the exclusive cache gives up or does not fill.
    pub(super) fn taken_above(&mut self, cache: CacheId, line: LineAddress) {
        if let Some(state) = &mut self.0 {
            state.set(cache, line, HELD_ABOVE);
        }
    }

    /// Whether an exclusive cache lacks a line because a cache above holds it. `false` if classification is off.
    pub(super) fn is_held_above(&self, cache: CacheId, line: LineAddress) -> bool {
        self.0.as_ref().is_some_and(|state| {
            state.caches[cache.name as usize][cache.number].lines.get(line) == HELD_ABOVE
        })
    }

    /// An access of processor `cpu` evicted a line.
    pub(super) fn evicted(&mut self, cpu: usize, cache: CacheId, line: LineAddress) {
        if let Some(state) = &mut self.0 {
            let (_, number) = state.current[cpu];
            state.set(cache, line, EVICTED + number);
        }
    }

    /// Another core's store invalidated a line.
    pub(super) fn invalidated(&mut self, cache: CacheId, line: LineAddress) {
        if let Some(state) = &mut self.0 {
            state.set(cache, line, INVALIDATED);
            self.look_up_shadow(
                cache,
                line,
                ShadowUse { is_access: false, line_after: LineAfter::Absent },
            );
        }
    }

    /// A device wrote a line, and the cache dropped it. Or the cache evicted the line for another line that a
    /// device wrote.
    pub(super) fn device_wrote(&mut self, cache: CacheId, line: LineAddress) {
        if let Some(state) = &mut self.0 {
            state.set(cache, line, DEVICE_WROTE);
            self.look_up_shadow(
                cache,
                line,
                ShadowUse { is_access: false, line_after: LineAfter::Absent },
            );
        }
    }

    /// A device wrote lines that the cache does not hold. The write replaces the earlier reason for their absence.
    /// [`Classifier::device_wrote`] reports the lines that the cache held.
    pub(super) fn device_wrote_absent(&mut self, cache: CacheId, lines: LineRange) {
        let Some(state) = &mut self.0 else { return };
        for line in lines {
            let before = state.caches[cache.name as usize][cache.number].lines.get(line);
            if before >= EVICTED || before == INVALIDATED {
                state.set(cache, line, DEVICE_WROTE);
            }
        }
    }

    /// Core `core` loses a granule because core `writer` writes the parts in `mask`.
    pub(super) fn lost(
        &mut self,
        core: usize,
        granule: CoherenceGranule,
        writer: usize,
        mask: u64,
    ) {
        if let Some(state) = &mut self.0 {
            state.sharing.lost(core, granule, writer, mask);
        }
    }

    /// Core `core` wrote the parts in `mask` of a granule.
    pub(super) fn wrote(&mut self, core: usize, granule: CoherenceGranule, mask: u64) {
        if let Some(state) = &mut self.0 {
            state.sharing.wrote(core, granule, mask);
        }
    }

    /// An access does not find a line: notes why, before the fill changes the line's state. `is_filled`: whether the
    /// cache fills the line. [`Classifier::missed`] follows for each such line.
    pub(super) fn absent(&mut self, cache: CacheId, line: LineAddress, is_filled: bool) {
        let Some(state) = &mut self.0 else { return };
        let is_full = state.budget_bytes < PAGE_COST_BYTES;
        let cache_state = &mut state.caches[cache.name as usize][cache.number];
        cache_state.last_absent = Absent { before: cache_state.lines.get(line), is_full };
        if is_filled {
            state.set(cache, line, PRESENT);
        }
    }

    /// The number of kept misses that [`Classifier::take_misses`] has not taken yet.
    pub(super) fn kept_misses(&self) -> usize {
        self.0.as_ref().map_or(0, |state| state.misses.len())
    }

    /// Sets the wait of the kept misses with these numbers.
    pub(super) fn set_waits(&mut self, misses: Range<u32>, wait_cycles: u64) {
        let Some(state) = &mut self.0 else { return };
        let misses = misses.start as usize..misses.end as usize;
        for miss in state.misses.get_mut(misses).into_iter().flatten() {
            miss.wait_cycles = wait_cycles;
        }
    }

    /// Counts and classifies a miss that [`Classifier::absent`] has noted.
    pub(super) fn missed(&mut self, access: &Access, missed: &MissedLine) {
        let Some(state) = &mut self.0 else { return };
        let CacheId { name, number } = missed.cache;
        let (context, context_number) = state.current[access.cpu];
        let Absent { before, is_full } = state.caches[name as usize][number].last_absent;
        let evictor = before.checked_sub(EVICTED);
        let evicted_by = evictor.map(|evictor| state.contexts[usize::from(evictor)]);
        let is_further_process = context_number == FURTHER_PROCESSES;
        let class = match (before, evicted_by) {
            // All further processes share a number, so the evicting process is unknown.
            _ if is_further_process && evictor == Some(FURTHER_PROCESSES) => MissClass::Untracked,
            (_, Some(evictor)) if context.is_same(evictor) => MissClass::SameSelf,
            (_, Some(_)) => MissClass::Other,
            (DEVICE_WROTE, _) => MissClass::Device,
            (INVALIDATED, _) => {
                match state.sharing.is_true_sharing(missed.core, missed.granule, missed.mask) {
                    Some(true) => MissClass::TrueSharing,
                    Some(false) => MissClass::FalseSharing,
                    None => MissClass::Untracked,
                }
            }
            (NEVER_FILLED, _) if !is_full => MissClass::Cold,
            // The line is present, but the accessed sub-block was never filled.
            (PRESENT, _) => MissClass::Cold,
            // `HELD_ABOVE`: caches of other cores share the line, and no core owns it, so no core supplies it.
            _ => MissClass::Untracked,
        };
        let cache = &mut state.caches[name as usize][number];
        cache.counts.by_mode[context.mode as usize][class as usize] += 1;
        let mut is_conflict = None;
        if let Some(evictor) = evictor {
            *cache.evicted_by.entry(evictor.into()).or_default() += 1;
            is_conflict = cache.shadow.as_ref().map(|shadow| shadow.last_access_hit);
            match is_conflict {
                Some(true) => cache.counts.conflict += 1,
                Some(false) => cache.counts.capacity += 1,
                None => {}
            }
        }
        let is_fetch = access.kind == AccessKind::Fetch;
        let fetched_at = state.instruction.fetched_at;
        if state.misses.len() < state.config.misses_kept {
            state.misses.push(Miss {
                cpu: access.cpu,
                cache: name,
                pc: if is_fetch { fetched_at.unwrap_or(access.pc) } else { access.pc },
                code_physical: state.instruction.physical,
                virtual_address: access.virtual_address,
                physical: access.physical,
                class,
                evicted_by,
                is_conflict,
                is_fetch,
                supplier: missed.supplier,
                wait_cycles: 0,
            });
        } else if state.config.misses_kept > 0 {
            state.not_kept += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The class of a miss in `now`, of a line that was evicted in `before`.
    fn class(classifier: &mut Classifier, before: Context, now: Context) -> MissClass {
        let (cache, line) = (CacheId { name: CacheName::L1d, number: 0 }, LineAddress(1));
        classifier.set_context(0, before);
        classifier.evicted(0, cache, line);
        classifier.set_context(0, now);
        classifier.absent(cache, line, true);
        let access = Access {
            cpu: 0,
            kind: AccessKind::Load,
            virtual_address: VirtualAddress(64),
            physical: PhysicalAddress(64),
            bytes: 8,
            pc: VirtualAddress(0),
            page: super::super::PageSize::Small,
            start: crate::Cycle::START,
        };
        let supplier = SupplyingLevel::Memory;
        let granule = CoherenceGranule(1);
        classifier.missed(&access, &MissedLine { cache, core: 0, granule, mask: 1, supplier });
        let (misses, _) = classifier.take_misses();
        misses[0].class
    }

    #[test]
    fn contexts_beyond_the_limit_keep_their_mode_and_are_not_confused() {
        let config = ClassifierConfig { misses_kept: 1, ..ClassifierConfig::default() };
        let lines = [vec![1], vec![1], vec![1], vec![]];
        let mut classifier = Classifier::new(config, lines, 1);
        let user = |process| Context { mode: Mode::User, process, service: None };
        let kernel = |service| Context { service: Some(service), ..Context::default() };
        let processes = 2 * CONTEXTS_MAX as u32;
        (0..processes).for_each(|process| classifier.set_context(0, user(process)));
        let mut class = |before, now| class(&mut classifier, before, now);
        let (known, further, other_further) = (user(5), user(processes - 1), user(processes - 2));
        assert_eq!(class(known, known), MissClass::SameSelf);
        assert_eq!(class(further, known), MissClass::Other);
        assert_eq!(class(known, further), MissClass::Other);
        assert_eq!(class(further, other_further), MissClass::Untracked);
        assert_eq!(class(kernel(1), kernel(2)), MissClass::SameSelf);
        assert_eq!(class(kernel(1), further), MissClass::Other);
        assert_eq!(class(further, kernel(1)), MissClass::Other);
        let counts = classifier.class_counts(CacheName::L1d);
        let by_mode = counts.by_mode.map(|classes| classes.iter().sum::<u64>());
        assert_eq!(by_mode, [2, 5]);
        let state = classifier.0.unwrap();
        assert_eq!((state.contexts.len(), state.context_numbers.len()), (CONTEXTS_MAX, 4095));
    }

    proptest! {
        #[test]
        fn a_shadow_cache_holds_the_lines_that_were_used_last(
            size in 1usize..12,
            lines in prop::collection::vec(0u64..20, 1..200),
        ) {
            let mut shadow = ShadowCache::new(size);
            let mut stack: Vec<LineAddress> = Vec::new();
            for line in lines.into_iter().map(LineAddress) {
                let depth = stack.iter().position(|held| *held == line);
                prop_assert_eq!(shadow.holds(line), depth.is_some());
                depth.map(|depth| stack.remove(depth));
                if line.0 % 7 == 3 {
                    shadow.remove(line);
                    continue;
                }
                shadow.touch(line);
                stack.insert(0, line);
                stack.truncate(size);
            }
        }
    }
}
