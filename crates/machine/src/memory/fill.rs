//! Fills: an L1 miss becomes a [`FillRequest`], which is served level by level and answered by a
//! [`FillResponse`]. `l1` makes the requests; `evict` handles the victims.
//!
//! Each fill writes its steps between [`Step::Fill`] and [`Step::Filled`]. A fill may contain one
//! nested prefetch into L2. `times` relies on this order.

use super::SupplyingLevel;
use super::classification::{LineAfter, ShadowUse};
use super::outcome::{FillEnd, FillStart, Step};
use super::tags::Tags;
use crate::address::{LineAddress, PhysicalAddress};
use crate::system_model::{Inclusion, Prefetch};
use crate::tag_array::{DIRTY, PREFETCHED, flag_if};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An instruction fetch.
    Fetch,
    Data,
    PageWalk,
    /// The processor does not wait for the line.
    Prefetch,
}

/// A request for a line from the levels below L1.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillRequest {
    pub(super) cpu: usize,
    pub(super) physical: PhysicalAddress,
    /// The parts of the coherence granule that are accessed.
    pub(super) mask: u64,
    /// Whether the core will write the line, so other cores must give it up.
    pub(super) is_exclusive: bool,
    /// The first level that is looked up: 0 for L2. 1: a prefetch into L2, which L2 has missed already.
    pub(super) first_level: usize,
    pub(super) purpose: Purpose,
    pub(super) start: FillStart,
    pub(super) end: FillEnd,
}

/// A hit of a level below L1.
#[derive(Clone, Copy, Debug)]
struct LevelHit {
    /// [`DIRTY`] if the level gives up the line and the line is dirty, else 0.
    dirty: u8,
    /// Cycles until the line arrives, by the processor's progress. 0 unless it was prefetched.
    remaining_cycles: u64,
}

/// The answer to a [`FillRequest`].
#[derive(Clone, Copy, Debug)]
pub(super) struct FillResponse {
    pub(super) supplier: SupplyingLevel,
    /// The latency of the supplier, without waits for MSHRs and buses.
    pub(super) latency_cycles: u64,
    /// Whether the core owns the line and may write it without a request.
    pub(super) is_writable: bool,
    /// [`DIRTY`] if L1D has to keep the line dirty: it comes from an exclusive level or another core. Else 0.
    pub(super) flags: u8,
    /// A bit for each level below L1 that missed.
    pub(super) missed_levels: u8,
}

impl FillResponse {
    /// The response to a write that `supplier`, L2 or memory, takes while the processor goes on.
    pub(super) fn posted(supplier: SupplyingLevel) -> Self {
        FillResponse { supplier, latency_cycles: 0, is_writable: false, flags: 0, missed_levels: 0 }
    }
}

impl Tags {
    /// Serves a request: finds the line, counts misses, fills the levels that missed, and prefetches into L2. The
    /// caller fills L1.
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
        // The processor does not wait for prefetches and for stores that are written through.
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
        if request.is_exclusive
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
        let follows_streams = self.outer.first().is_some_and(|l2| l2.prefetch == Prefetch::Stream);
        if request.first_level == 0 && follows_streams || !is_prefetch && missed_levels & 1 != 0 {
            self.prefetch_predicted_lines(request);
        }
        self.outcome.push(Step::Filled(request.end));
        let supplier = match (from_core, hit_level) {
            (Some(_), _) => SupplyingLevel::OtherCore,
            (None, level) if level == levels => SupplyingLevel::Memory,
            (None, 0) => SupplyingLevel::L2,
            (None, _) => SupplyingLevel::L3,
        };
        let is_writable = self.is_owner(core, request.physical);
        FillResponse { supplier, latency_cycles, is_writable, flags, missed_levels }
    }

    /// Looks up the line of a request in a level. `None`: a miss. An exclusive level gives up the line, except to a
    /// fetch. The first use of a prefetched line of L2 prefetches further lines.
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
        let line_after = if gives_up { LineAfter::Absent } else { LineAfter::Present };
        let shadow_use = ShadowUse { is_access, line_after };
        self.classifier.looked_up(self.outer_id(level, core), line, shadow_use);
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
                self.prefetch_predicted_lines(request);
            }
        }
        if gives_up {
            // Not `slot`: the prefetch may have evicted the line.
            if let Some(slot) = self.outer[level].cache_for(core).find_line(line) {
                self.outer[level].cache_for(core).remove(slot);
            }
            self.classifier.taken_above(self.outer_id(level, core), line);
            // Other cores share the line, so L1D must not hold it dirty: memory gets the content now.
            if flags & DIRTY != 0 && !self.is_owner(core, request.physical) {
                self.write_memory(request.cpu);
                return Some(hit);
            }
            return Some(LevelHit { dirty: flags & DIRTY, ..hit });
        }
        Some(hit)
    }

    /// Tells the classifier that a level missed an access, before the fill changes the line's state.
    fn note_absent(&mut self, level: usize, core: usize, request: &FillRequest) {
        if matches!(request.purpose, Purpose::Fetch | Purpose::Data) {
            let line = request.physical.line(self.outer[level].line_shift);
            let is_exclusive = self.outer[level].inclusion == Inclusion::Exclusive;
            let is_filled = !is_exclusive || request.purpose == Purpose::Fetch;
            self.classifier.absent(self.outer_id(level, core), line, is_filled);
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

    /// Fills the levels that missed, the outermost first. Exclusive levels take no line, except for a fetch. The first
    /// level that takes the line also takes its dirty flag. Returns the flags that no level has taken.
    fn fill_levels(&mut self, request: &FillRequest, hit_level: usize, mut flags: u8) -> u8 {
        let core = self.core_of(request.cpu);
        for level in (0..hit_level.min(self.outer.len())).rev() {
            let line = request.physical.line(self.outer[level].line_shift);
            if self.outer[level].inclusion == Inclusion::Exclusive
                && request.purpose != Purpose::Fetch
            {
                self.classifier.taken_above(self.outer_id(level, core), line);
                continue;
            }
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

    /// Prefetches into L2 the lines that L2's prefetcher predicts from a request. An exclusive L2 prefetches nothing. The
    /// machine has an L2.
    fn prefetch_predicted_lines(&mut self, request: &FillRequest) {
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
            Prefetch::NextLine => self.prefetch_into_l2(request, line.plus(distance)),
            Prefetch::Stream => {
                let (core, line_shift) = (self.core_of(request.cpu), l2.line_shift);
                for line in self.cores[core].streams.next(line, line_shift, distance) {
                    self.prefetch_into_l2(request, line);
                }
            }
            Prefetch::None | Prefetch::Stride => {}
        }
    }

    /// Prefetches `line` into the L2 of the request's core. Does nothing if the line is in another page than the request, if
    /// this L2 holds it, or if no prefetch buffer is free.
    fn prefetch_into_l2(&mut self, request: &FillRequest, line: LineAddress) {
        let cpu = request.cpu;
        let (core, progress_cycles) = (self.core_of(cpu), self.progress(cpu));
        let l2 = &mut self.outer[0];
        let (line_address, cache_index) =
            (PhysicalAddress::of_line(line, l2.line_shift), l2.number_for(core));
        if line_address.page() != request.physical.page()
            || l2.caches[cache_index].find_line(line).is_some()
            || !self.cpus[cpu].l2_prefetches.has_room(progress_cycles)
        {
            return;
        }
        self.cpus[cpu].counts.prefetches += 1;
        self.fill(&FillRequest {
            cpu,
            physical: line_address,
            // No instruction accesses the line yet.
            mask: 0,
            is_exclusive: false,
            // L2 was looked up above.
            first_level: 1,
            purpose: Purpose::Prefetch,
            start: FillStart::WithOuter,
            end: FillEnd::Below,
        });
    }
}
