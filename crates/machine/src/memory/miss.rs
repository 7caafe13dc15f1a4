//! Watching misses: classes, who did it, and where.

use std::collections::HashMap;

use super::classes::{
    CONTEXTS_MAX, ClassCounts, Context, DEVICE, EVICTED, IN, INVALIDATED, MissClass, Mode, NEVER,
    Notes,
};
use super::sharing::Sharing;
use super::system::{Access, MemorySystem};
use super::twin::Twin;
use crate::hash::NumberMap;

/// A sort of cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheName {
    /// L1 of instructions.
    L1i,
    /// L1 of data.
    L1d,
    /// L2.
    L2,
    /// L3.
    L3,
}

impl CacheName {
    pub(super) fn outer(k: usize) -> Self {
        if k == 0 { CacheName::L2 } else { CacheName::L3 }
    }
}

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassifierConfig {
    /// Whether capacity and conflict are told apart. That needs a second cache beside each.
    pub shadow_caches: bool,
    /// Misses that are kept one by one until [`MemorySystem::take_misses`]; what is more is not kept. 0 for
    /// none.
    pub misses_kept: usize,
    /// Room for notes of lines, bytes.
    pub history_bytes: u64,
}

impl Default for ClassifierConfig {
    /// 640 MiB of notes, no shadow_caches, no single misses.
    fn default() -> Self {
        ClassifierConfig { shadow_caches: false, misses_kept: 0, history_bytes: 640 << 20 }
    }
}

/// A miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The processor.
    pub cpu: usize,
    /// The cache.
    pub cache: CacheName,
    /// The instruction.
    pub pc: u64,
    /// The address that was asked for.
    pub virtual_address: u64,
    /// The same in memory.
    pub physical: u64,
    /// Why.
    pub class: MissClass,
    /// For whom the line had left, if it had left for somebody.
    pub evicted_by: Option<Context>,
}

/// How often something was at each of some places, as functions or data, which the caller numbers. Room
/// is bounded: what comes when it is full is counted as elsewhere.
#[derive(Clone, Debug)]
pub struct LocationCounts {
    counts: NumberMap<u64>,
    room: usize,
    elsewhere: u64,
}

impl LocationCounts {
    /// With room for so many places.
    #[must_use]
    pub fn new(room: usize) -> Self {
        LocationCounts { counts: NumberMap::default(), room, elsewhere: 0 }
    }

    /// Once more at a place.
    pub fn add(&mut self, place: u64) {
        let full = self.counts.len() >= self.room;
        match self.counts.get_mut(&place) {
            Some(count) => *count += 1,
            None if full => self.elsewhere += 1,
            None => drop(self.counts.insert(place, 1)),
        }
    }

    /// The places and their counts, the most frequent first, then by number.
    #[must_use]
    pub fn sorted(&self) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = self.counts.iter().map(|(place, count)| (*place, *count)).collect();
        all.sort_by_key(|(place, count)| (std::cmp::Reverse(*count), *place));
        all
    }

    /// What had no room.
    #[must_use]
    pub fn other(&self) -> u64 {
        self.elsewhere
    }
}

/// What is known of one cache.
#[derive(Clone, Debug, Default)]
struct Watched {
    notes: Notes,
    twin: Option<Twin>,
    counts: ClassCounts,
    /// By the number of the context.
    evicted_by: NumberMap<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Watcher {
    watch: ClassifierConfig,
    caches: [Vec<Watched>; 4],
    budget_bytes: u64,
    contexts: Vec<Context>,
    numbers: HashMap<Context, u16, std::hash::BuildHasherDefault<crate::hash::Mix>>,
    /// The context of each processor.
    now: Vec<u16>,
    sharing: Sharing,
    misses: Vec<Miss>,
    not_kept: u64,
}

impl Watcher {
    fn cache(&mut self, name: CacheName, at: usize) -> &mut Watched {
        &mut self.caches[name as usize][at]
    }

    fn note(&mut self, name: CacheName, at: usize, line: u64, note: u16) {
        let watched = &mut self.caches[name as usize][at];
        watched.notes.set(line, note, &mut self.budget_bytes);
    }
}

impl MemorySystem {
    /// Watches misses from now on; what was counted before by an earlier watch is forgotten.
    pub fn classify_misses(&mut self, watch: ClassifierConfig) {
        let twin = |lines: usize| watch.shadow_caches.then(|| Twin::new(lines));
        let watched = |lines: usize| Watched { twin: twin(lines), ..Watched::default() };
        let outer = |k: usize| -> Vec<Watched> {
            let level = self.outer.get(k);
            level.map_or(Vec::new(), |level| {
                level.stores.iter().map(|store| watched(store.slots())).collect()
            })
        };
        let caches = [
            self.cores.iter().map(|core| watched(core.l1i.slots())).collect(),
            self.cores.iter().map(|core| watched(core.l1d.slots())).collect(),
            outer(0),
            outer(1),
        ];
        let several = self.cores.len() > 1;
        for core in &mut self.cores {
            core.written = vec![0; if several { core.l1d.slots() } else { 0 }];
        }
        self.slow_stores |= several;
        self.watcher = Some(Box::new(Watcher {
            watch,
            caches,
            budget_bytes: watch.history_bytes,
            contexts: vec![Context::default()],
            numbers: [(Context::default(), 0)].into_iter().collect(),
            now: vec![0; self.cpus.len()],
            sharing: Sharing::new(self.cores.len()),
            misses: Vec::new(),
            not_kept: 0,
        }));
    }

    /// For whom a processor executes from now on.
    pub fn set_context(&mut self, cpu: usize, context: Context) {
        let Some(watcher) = &mut self.watcher else { return };
        let next = watcher.contexts.len().min(CONTEXTS_MAX - 1) as u16;
        let number = *watcher.numbers.entry(context).or_insert(next);
        if usize::from(number) == watcher.contexts.len() {
            watcher.contexts.push(context);
        }
        watcher.now[cpu] = number;
    }

    /// Classes of all misses of a sort of cache, of all cores.
    #[must_use]
    pub fn class_counts(&self, name: CacheName) -> ClassCounts {
        let mut sum = ClassCounts::default();
        let Some(watcher) = &self.watcher else { return sum };
        for watched in &watcher.caches[name as usize] {
            let mut counts = watched.counts.clone();
            let mut by: Vec<_> = watched.evicted_by.iter().collect();
            by.sort();
            let who = |number: u64| watcher.contexts[number as usize];
            counts.evicted_by = by.into_iter().map(|(by, number)| (who(*by), *number)).collect();
            sum.add(&counts);
        }
        sum
    }

    /// The misses since the last call, and how many more there were than are kept.
    pub fn take_misses(&mut self) -> (Vec<Miss>, u64) {
        let Some(watcher) = &mut self.watcher else { return (Vec::new(), 0) };
        (std::mem::take(&mut watcher.misses), std::mem::take(&mut watcher.not_kept))
    }

    /// A line is asked for of a cache.
    #[inline(never)]
    pub(super) fn seen(&mut self, name: CacheName, at: usize, line: u64) {
        let Some(watcher) = &mut self.watcher else { return };
        if let Some(twin) = &mut watcher.cache(name, at).twin {
            twin.access(line);
        }
    }

    pub(super) fn seen_outer(&mut self, k: usize, core: usize, line: u64) {
        if self.watcher.is_some() {
            self.seen(CacheName::outer(k), self.outer[k].at(core), line);
        }
    }

    /// A line is in a cache now, and nobody asked for it.
    pub(super) fn filled(&mut self, name: CacheName, at: usize, line: u64) {
        if let Some(watcher) = &mut self.watcher {
            watcher.note(name, at, line, IN);
        }
    }

    /// As [`MemorySystem::filled`], of a level below L1.
    pub(super) fn filled_outer(&mut self, k: usize, core: usize, line: u64) {
        self.filled(CacheName::outer(k), self.outer[k].at(core), line);
    }

    /// A line left a cache for what a processor does.
    pub(super) fn evicted(&mut self, cpu: usize, name: CacheName, at: usize, line: u64) {
        if let Some(watcher) = &mut self.watcher {
            let note = EVICTED + watcher.now[cpu];
            watcher.note(name, at, line, note);
        }
    }

    /// A line left a cache for another core's store.
    pub(super) fn invalidated(&mut self, name: CacheName, at: usize, line: u64) {
        if let Some(watcher) = &mut self.watcher {
            watcher.note(name, at, line, INVALIDATED);
        }
    }

    /// A line left a cache for a device.
    pub(super) fn dropped(&mut self, name: CacheName, at: usize, line: u64) {
        if let Some(watcher) = &mut self.watcher {
            watcher.note(name, at, line, DEVICE);
        }
    }

    /// A core loses a unit of which another writes `mask`.
    pub(super) fn lost(&mut self, core: usize, unit: u64, by: usize, mask: u64) {
        if let Some(watcher) = &mut self.watcher {
            watcher.sharing.lost(core, unit, by, mask);
        }
    }

    /// Tells what was written into a line of L1D while it was there.
    pub(super) fn tell_written(&mut self, core: usize, slot: usize, physical: u64) {
        let Some(watcher) = &mut self.watcher else { return };
        if let Some(written) = self.cores[core].written.get_mut(slot) {
            let mask = std::mem::take(written);
            if mask != 0 {
                watcher.sharing.wrote(core, physical >> self.plan.unit_shift, mask);
            }
        }
    }

    /// An access missed L1, and the levels below of `missed`. `placed`: whether its line is in L1 now.
    pub(super) fn missed(&mut self, access: &Access, name: CacheName, missed: u8, placed: bool) {
        if self.watcher.is_none() {
            return;
        }
        let core = self.core_of(access.cpu);
        let line = match name {
            CacheName::L1i => self.code_line(access.physical),
            _ => access.physical >> self.plan.l1d_shift,
        };
        self.classify(access, name, core, line, placed);
        for k in (0..self.outer.len()).filter(|k| missed >> k & 1 == 1) {
            let line = access.physical >> self.outer[k].shift;
            self.classify(access, CacheName::outer(k), self.outer[k].at(core), line, true);
        }
    }

    fn classify(&mut self, access: &Access, name: CacheName, at: usize, line: u64, placed: bool) {
        let core = self.core_of(access.cpu);
        let unit = access.physical >> self.plan.unit_shift;
        let mask = self.plan.mask(access.physical, access.bytes.min(64));
        let Some(watcher) = &mut self.watcher else { return };
        let me = watcher.contexts[usize::from(watcher.now[access.cpu])];
        let note = watcher.cache(name, at).notes.get(line);
        let by = (note >= EVICTED).then(|| note - EVICTED);
        let evicted_by = by.map(|by| watcher.contexts[usize::from(by)]);
        let full = watcher.budget_bytes < super::classes::PAGE_COST_BYTES;
        let class = match (note, evicted_by) {
            (_, Some(other)) if is_same(me, other) => MissClass::SameSelf,
            (_, Some(_)) => MissClass::Other,
            (DEVICE, _) => MissClass::Device,
            (INVALIDATED, _) => match watcher.sharing.is_true(core, unit, mask) {
                Some(true) => MissClass::TrueSharing,
                Some(false) => MissClass::FalseSharing,
                None => MissClass::Untracked,
            },
            (NEVER, _) if !full => MissClass::Cold,
            // The line is in, and the part of it that is asked for never was.
            (IN, _) => MissClass::Cold,
            _ => MissClass::Untracked,
        };
        let watched = watcher.cache(name, at);
        watched.counts.by_mode[me.mode as usize][class as usize] += 1;
        if let Some(by) = by {
            *watched.evicted_by.entry(by.into()).or_default() += 1;
            match &watched.twin {
                Some(twin) if twin.had => watched.counts.conflict += 1,
                Some(_) => watched.counts.capacity += 1,
                None => {}
            }
        }
        if placed {
            watcher.note(name, at, line, IN);
        }
        if watcher.misses.len() < watcher.watch.misses_kept {
            watcher.misses.push(Miss {
                cpu: access.cpu,
                cache: name,
                pc: access.pc,
                virtual_address: access.virtual_address,
                physical: access.physical,
                class,
                evicted_by,
            });
        } else if watcher.watch.misses_kept > 0 {
            watcher.not_kept += 1;
        }
    }
}

/// Whether the kernel evicted its own line, or a process its own.
fn is_same(me: Context, other: Context) -> bool {
    me.mode == other.mode && (me.mode == Mode::Kernel || me.process == other.process)
}
