//! Fills: an L1 miss becomes a [`FillRequest`], which is served level by level and answered by a
//! [`FillResponse`].

use super::SupplyingLevel;
use super::classification::{Leaves, ShadowUse};
use super::outcome::{FillEnd, FillStart, Step};
use super::tags::Tags;
use crate::address::{LineAddress, PhysicalAddress};
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
    pub(super) start: FillStart,
    pub(super) end: FillEnd,
}

/// A line that a level below L1 has.
#[derive(Clone, Copy, Debug)]
struct LevelHit {
    /// [`DIRTY`] if the level gives the line up and it is dirty.
    dirty: u8,
    /// How long the line is still under way, if it was prefetched.
    remaining_cycles: u64,
}

/// The answer to a [`FillRequest`].
#[derive(Clone, Copy, Debug)]
pub(super) struct FillResponse {
    pub(super) supplier: SupplyingLevel,
    /// The latency of the supplier.
    pub(super) latency_cycles: u64,
    /// Whether no other core holds the line.
    pub(super) writable: bool,
    /// [`DIRTY`] if the line comes dirty, from an exclusive level or another core.
    pub(super) flags: u8,
    /// A bit for each level below L1 that missed.
    pub(super) missed_levels: u8,
}

impl FillResponse {
    /// The response to a write that L2 takes without a wait.
    pub(super) fn posted() -> Self {
        FillResponse {
            supplier: SupplyingLevel::L2,
            latency_cycles: 0,
            writable: false,
            flags: 0,
            missed_levels: 0,
        }
    }
}

impl Tags {
    /// Serves a request: finds the line, and fills the levels that missed.
    pub(super) fn fill(&mut self, request: &FillRequest) -> FillResponse {
        let core = self.core_of(request.cpu);
        self.outcome.push(Step::Fill(request.start));
        let levels = self.outer.len();
        let (mut hit_level, mut missed_levels, mut flags) = (levels, 0u8, 0);
        let mut remaining_cycles = 0;
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
                Some(hit) => {
                    (hit_level, flags) = (level, hit.dirty);
                    remaining_cycles = hit.remaining_cycles;
                    break;
                }
                None => {
                    missed_levels |= 1 << level;
                    self.note_absent(level, core, request);
                }
            }
        }
        let latency_cycles = match from_core {
            Some(_) => self.config.cache_to_cache_cycles,
            None if hit_level == levels => self.config.memory_cycles,
            None => self.config.hit_cycles[hit_level].max(remaining_cycles),
        };
        // The processor does not wait for prefetches, nor for stores that are written through.
        let is_waited_for = request.purpose != Purpose::Prefetch && request.end != FillEnd::Below;
        if is_waited_for {
            self.add_latency(request.cpu, latency_cycles);
        }
        match from_core {
            Some(dirty) => {
                flags |= dirty;
                self.outcome.push(Step::FromCore);
            }
            None if hit_level == levels => self.read_memory(request),
            None => {
                let line = request.physical.line(self.outer[hit_level].line_shift);
                self.outcome.push(Step::FromLevel { level: hit_level as u8, line });
            }
        }
        if request.exclusive
            && !snooped
            && self.acquire_ownership(request.cpu, request.physical, request.mask)
        {
            self.outcome.push(Step::FillUpgrade);
            if is_waited_for {
                self.add_latency(request.cpu, self.config.upgrade_cycles);
            }
        }
        self.count_misses(request, missed_levels);
        let flags = self.fill_levels(request, hit_level, flags);
        if request.purpose == Purpose::Prefetch && request.first_level > 0 {
            let until = self.progress(request.cpu) + latency_cycles;
            let line = request.physical.line(self.outer[0].line_shift);
            self.cpus[request.cpu].l2_prefetches.add(line, until);
        }
        let is_prefetch = request.purpose == Purpose::Prefetch;
        let follows_streams = self.outer[0].prefetch == Prefetch::Stream;
        if request.first_level == 0 && follows_streams || !is_prefetch && missed_levels & 1 != 0 {
            self.prefetch_l2(request);
        }
        self.outcome.push(Step::Filled(request.end));
        let supplier = match (from_core, hit_level) {
            (Some(_), _) => SupplyingLevel::OtherCore,
            (None, level) if level == levels => SupplyingLevel::Memory,
            (None, 0) => SupplyingLevel::L2,
            (None, _) => SupplyingLevel::L3,
        };
        let writable = self.is_owner(core, request.physical);
        FillResponse { supplier, latency_cycles, writable, flags, missed_levels }
    }

    /// Looks a level up. `None` if it misses.
    fn look_up_level(
        &mut self,
        level: usize,
        core: usize,
        request: &FillRequest,
    ) -> Option<LevelHit> {
        let line = request.physical.line(self.outer[level].line_shift);
        let gives_up = self.outer[level].inclusion == Inclusion::Exclusive
            && request.purpose != Purpose::Fetch;
        let is_access = matches!(request.purpose, Purpose::Fetch | Purpose::Data);
        let leaves = if gives_up { Leaves::Absent } else { Leaves::Present };
        let how = ShadowUse { is_access, leaves };
        self.classifier.looked_up(self.outer_id(level, core), line, how);
        let cache = self.outer[level].cache_for(core);
        let slot = cache.lookup_line(line)?;
        let flags = cache.flags(slot);
        let mut hit = LevelHit { dirty: 0, remaining_cycles: 0 };
        if flags & PREFETCHED != 0 {
            let progress = self.progress(request.cpu);
            hit.remaining_cycles = self.cpus[request.cpu].l2_prefetches.remaining(line, progress);
        }
        if flags & PREFETCHED != 0 && request.purpose != Purpose::Prefetch {
            let cache = self.outer[level].cache_for(core);
            cache.set_flags(slot, flags & !PREFETCHED);
            self.cpus[request.cpu].counts.prefetches_used += 1;
            if level == 0 && self.outer[0].prefetch != Prefetch::Stream {
                self.prefetch_l2(request);
            }
        }
        if gives_up {
            // The prefetch may have evicted it.
            if let Some(slot) = self.outer[level].cache_for(core).find_line(line) {
                self.outer[level].cache_for(core).remove(slot);
            }
            // If other cores also hold the line, no other core may write it back later.
            if flags & DIRTY != 0 && !self.is_owner(core, request.physical) {
                self.write_memory(request.cpu);
                return Some(hit);
            }
            return Some(LevelHit { dirty: flags & DIRTY, ..hit });
        }
        Some(hit)
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

    fn read_memory(&mut self, request: &FillRequest) {
        self.cpus[request.cpu].counts.memory_reads += 1;
        let is_prefetch = request.purpose == Purpose::Prefetch;
        self.outcome.push(Step::FromMemory { is_prefetch });
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
    fn fill_levels(&mut self, request: &FillRequest, hit_level: usize, mut flags: u8) -> u8 {
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
            self.outcome.push(Step::IntoLevel { level: level as u8, line });
            let cache = self.outer[level].cache_for(core);
            if let Some(slot) = cache.find_line(line) {
                cache.set_flags(slot, cache.flags(slot) | flags);
            } else if let (_, Some(victim)) = cache.insert_line(line, new_flags) {
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
        match l2.prefetch {
            Prefetch::NextLine => self.prefetch_line_l2(request, line.plus(distance)),
            Prefetch::Stream => {
                let (core, line_shift) = (self.core_of(request.cpu), l2.line_shift);
                for line in self.cores[core].streams.next(line, line_shift, distance) {
                    self.prefetch_line_l2(request, line);
                }
            }
            Prefetch::None | Prefetch::Stride => {}
        }
    }

    /// Prefetches a line into L2, if it lies in the page of the request.
    fn prefetch_line_l2(&mut self, request: &FillRequest, line: LineAddress) {
        let (core, progress) = (self.core_of(request.cpu), self.progress(request.cpu));
        let l2 = &mut self.outer[0];
        let (next, number) = (PhysicalAddress::of_line(line, l2.line_shift), l2.number_for(core));
        if next.page() != request.physical.page()
            || l2.caches[number].find_line(line).is_some()
            || !self.cpus[request.cpu].l2_prefetches.has_room(progress)
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
            start: FillStart::WithOuter,
            end: FillEnd::Below,
            ..*request
        });
    }
}
