//! Fills: an L1 miss becomes a [`FillRequest`], which is served level by level and answered by a
//! [`FillResponse`].

use super::classification::{Leaves, ShadowUse};
use super::{MemorySystem, Response, SupplyingLevel};
use crate::address::PhysicalAddress;
use crate::system_model::{Inclusion, Prefetch};
use crate::tag_array::{DIRTY, PREFETCHED, flag_if};

/// The purpose of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An instruction fetch.
    Fetch,
    /// A load or store.
    Data,
    PageWalk,
    /// A prefetch: nothing waits for the line.
    Prefetch,
}

/// A request for a line from the levels below L1.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillRequest {
    pub(super) cpu: usize,
    pub(super) physical: PhysicalAddress,
    /// The parts of the coherence granule that are accessed.
    pub(super) mask: u64,
    /// Whether the line is to be written.
    pub(super) exclusive: bool,
    /// The first level that is looked up: 0 for L2.
    pub(super) first_level: usize,
    pub(super) purpose: Purpose,
    pub(super) start_cycles: u64,
}

/// The answer to a [`FillRequest`].
#[derive(Clone, Copy, Debug)]
pub(super) struct FillResponse {
    pub(super) supplier: SupplyingLevel,
    pub(super) ready_cycles: u64,
    /// Whether the line was under way before.
    pub(super) under_way: bool,
    /// Whether no other core holds the line.
    pub(super) writable: bool,
    /// [`DIRTY`] if the line comes dirty, from an exclusive level or another core.
    pub(super) flags: u8,
    /// A bit for each level below L1 that missed.
    pub(super) missed_levels: u8,
}

impl FillResponse {
    /// The response to a write that L2 takes without a wait.
    pub(super) fn posted(now_cycles: u64) -> Self {
        FillResponse {
            supplier: SupplyingLevel::L2,
            ready_cycles: now_cycles,
            under_way: false,
            writable: false,
            flags: 0,
            missed_levels: 0,
        }
    }

    /// The response to the access that missed.
    pub(super) fn to_access(self) -> Response {
        let FillResponse { supplier, ready_cycles, under_way, .. } = self;
        Response { ready_cycles, supplier, under_way, translation_cycles: 0 }
    }
}

impl MemorySystem {
    /// Serves a request: finds the line, fills the levels that missed, and says when it is ready.
    pub(super) fn fill(&mut self, request: &FillRequest) -> FillResponse {
        let core = self.core_of(request.cpu);
        self.cpus[request.cpu].fill_cycles = request.start_cycles;
        let levels = self.outer.len();
        let (mut hit_level, mut missed_levels, mut flags) = (levels, 0u8, 0);
        let mut from_core = None;
        let mut snooped = false;
        for level in request.first_level..=levels {
            if level == self.config.private_levels && !snooped {
                snooped = true;
                from_core = self.snoop(request);
                if from_core.is_some() {
                    hit_level = level;
                    break;
                }
            }
            if level == levels {
                break;
            }
            match self.look_up_level(level, core, request) {
                Some(dirty) => {
                    (hit_level, flags) = (level, dirty);
                    break;
                }
                None => {
                    missed_levels |= 1 << level;
                    self.note_absent(level, core, request);
                }
            }
        }
        let mut under_way = false;
        let mut ready_cycles = match from_core {
            Some(dirty) => {
                flags |= dirty;
                request.start_cycles + self.config.cache_to_cache_cycles
            }
            None if hit_level == levels => self.read_memory(request),
            None => {
                let level = &mut self.outer[hit_level];
                let (line, number) =
                    (request.physical.line(level.line_shift), level.number_for(core));
                let start_cycles = level.ways_up[number].reserve(request.start_cycles);
                // A line that hits may be under way.
                let arrives = level.arrivals[number].ready_cycles(line, start_cycles);
                let hits = start_cycles + level.hit_cycles;
                under_way = arrives > hits;
                arrives.max(hits)
            }
        };
        if request.exclusive && !snooped {
            ready_cycles += self.acquire_ownership(request.cpu, request.physical, request.mask);
        }
        self.count_misses(request, missed_levels);
        let flags = self.fill_levels(request, (hit_level, ready_cycles), flags);
        let is_prefetch = request.purpose == Purpose::Prefetch;
        let follows_streams = self.outer[0].prefetch == Prefetch::Stream;
        if request.first_level == 0 && follows_streams || !is_prefetch && missed_levels & 1 != 0 {
            self.prefetch_l2(request);
        }
        let supplier = match (from_core, hit_level) {
            (Some(_), _) => SupplyingLevel::OtherCore,
            (None, level) if level == levels => SupplyingLevel::Memory,
            (None, 0) => SupplyingLevel::L2,
            (None, _) => SupplyingLevel::L3,
        };
        let writable = self.is_owner(core, request.physical);
        FillResponse { supplier, ready_cycles, under_way, writable, flags, missed_levels }
    }

    /// Looks a level up. Returns whether the line hits, and [`DIRTY`] if the level gives it up and
    /// it is dirty.
    fn look_up_level(&mut self, level: usize, core: usize, request: &FillRequest) -> Option<u8> {
        let line = request.physical.line(self.outer[level].line_shift);
        let gives_up = self.outer[level].inclusion == Inclusion::Exclusive
            && request.purpose != Purpose::Fetch;
        let is_access = matches!(request.purpose, Purpose::Fetch | Purpose::Data);
        let leaves = if gives_up { Leaves::Absent } else { Leaves::Present };
        let how = ShadowUse { is_access, leaves };
        self.classifier.looked_up(self.outer_id(level, core), line, how);
        let cache = self.outer[level].cache_for(core);
        let slot = cache.lookup(line, line)?;
        let flags = cache.flags(slot);
        if flags & PREFETCHED != 0 && request.purpose != Purpose::Prefetch {
            cache.set_flags(slot, flags & !PREFETCHED);
            self.cpus[request.cpu].counts.prefetches_used += 1;
            if level == 0 && self.outer[0].prefetch != Prefetch::Stream {
                self.prefetch_l2(request);
            }
        }
        if gives_up {
            // The prefetch may have evicted it.
            if let Some(slot) = self.outer[level].cache_for(core).find(line, line) {
                self.outer[level].cache_for(core).remove(slot);
            }
            // If other cores also hold the line, no other core may write it back later.
            if flags & DIRTY != 0 && !self.is_owner(core, request.physical) {
                self.write_memory(request.cpu);
                return Some(0);
            }
            return Some(flags & DIRTY);
        }
        Some(0)
    }

    /// Notes why a line is absent from a level, before the fill changes that.
    fn note_absent(&mut self, level: usize, core: usize, request: &FillRequest) {
        if matches!(request.purpose, Purpose::Fetch | Purpose::Data) {
            let line = request.physical.line(self.outer[level].line_shift);
            let exclusive = self.outer[level].inclusion == Inclusion::Exclusive;
            let filled = !exclusive || request.purpose == Purpose::Fetch;
            self.classifier.absent(self.outer_id(level, core), line, filled);
        }
    }

    fn read_memory(&mut self, request: &FillRequest) -> u64 {
        let start = self.bus.reserve(request.start_cycles);
        let counts = &mut self.cpus[request.cpu].counts;
        counts.memory_reads += 1;
        if request.purpose != Purpose::Prefetch {
            counts.bus_wait_cycles += start - request.start_cycles;
        }
        start + self.config.memory_cycles
    }

    fn count_misses(&mut self, request: &FillRequest, missed_levels: u8) {
        let [l2, l3] = [missed_levels & 1, missed_levels >> 1 & 1].map(u64::from);
        let counts = &mut self.cpus[request.cpu].counts;
        match request.purpose {
            Purpose::Fetch => counts.basic.l2_fetch_misses += l2,
            Purpose::Data => counts.basic.l2_data_misses += l2,
            Purpose::PageWalk | Purpose::Prefetch => return,
        }
        counts.l3_misses += l3;
    }

    /// Fills the levels that missed, the outermost first. A line that comes dirty stays dirty in
    /// the first level that takes it; the flags that are left are returned.
    fn fill_levels(
        &mut self,
        request: &FillRequest,
        (hit_level, ready_cycles): (usize, u64),
        mut flags: u8,
    ) -> u8 {
        let core = self.core_of(request.cpu);
        for level in (0..hit_level.min(self.outer.len())).rev() {
            if self.outer[level].inclusion == Inclusion::Exclusive
                && request.purpose != Purpose::Fetch
            {
                continue;
            }
            let line = request.physical.line(self.outer[level].line_shift);
            let is_l2_prefetch = request.purpose == Purpose::Prefetch && request.first_level > 0;
            let new_flags = flags | flag_if(is_l2_prefetch && level == 0, PREFETCHED);
            let number = self.outer[level].number_for(core);
            let arrivals = &mut self.outer[level].arrivals[number];
            arrivals.note(line, ready_cycles);
            if is_l2_prefetch && level == 0 {
                arrivals.note_prefetch(ready_cycles);
            }
            let cache = self.outer[level].cache_for(core);
            if let Some(slot) = cache.find(line, line) {
                cache.set_flags(slot, cache.flags(slot) | flags);
            } else if let (_, Some(victim)) = cache.insert(line, line, new_flags) {
                self.evict_outer(level, request.cpu, victim);
            }
            if matches!(request.purpose, Purpose::PageWalk | Purpose::Prefetch) {
                self.classifier.filled(self.outer_id(level, core), line);
            }
            flags = 0;
        }
        flags
    }

    /// Prefetches into L2 the lines that a request predicts.
    fn prefetch_l2(&mut self, request: &FillRequest) {
        let l2 = &self.outer[0];
        if l2.inclusion == Inclusion::Exclusive {
            return;
        }
        let line = request.physical.line(l2.line_shift);
        let distance = match request.purpose {
            Purpose::Fetch => l2.code_prefetch_distance,
            _ => l2.prefetch_distance,
        };
        let page_lines = (4096 >> l2.line_shift).max(1);
        match l2.prefetch {
            Prefetch::NextLine => self.prefetch_line_l2(request, line + distance),
            Prefetch::Stream => {
                let core = self.core_of(request.cpu);
                for line in self.cores[core].streams.next(line, distance, page_lines) {
                    self.prefetch_line_l2(request, line);
                }
            }
            Prefetch::None | Prefetch::Stride => {}
        }
    }

    /// Prefetches a line into L2, if it lies in the page of the request.
    fn prefetch_line_l2(&mut self, request: &FillRequest, line: u64) {
        let core = self.core_of(request.cpu);
        let l2 = &mut self.outer[0];
        let (next, number) = (PhysicalAddress::of_line(line, l2.line_shift), l2.number_for(core));
        if next.page() != request.physical.page()
            || l2.caches[number].find(line, line).is_some()
            || !l2.arrivals[number].has_room_for_prefetch(request.start_cycles)
        {
            return;
        }
        self.cpus[request.cpu].counts.prefetches += 1;
        self.fill(&FillRequest {
            physical: next,
            mask: 0,
            exclusive: false,
            first_level: 1,
            purpose: Purpose::Prefetch,
            ..*request
        });
    }
}
