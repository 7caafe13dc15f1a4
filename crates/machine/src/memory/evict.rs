//! Evictions: lines that leave a cache, write-backs, flushes, and lines that a device reads or writes.
//!
//! Called by `l1` and `fill` for the victims of a fill, and by [`MemorySystem`](super::MemorySystem)
//! for devices, flushes and written code. Each removal must reach the classifier (why the line is
//! absent) and the directory ([`Tags::release`]).

use std::ops::Range;

use super::classification::{CacheName, Classifier, LineAfter, ShadowUse};
use super::fill::{FillRequest, FillResponse, Purpose};
use super::outcome::{FillEnd, FillStart, Step};
use super::tags::{CacheId, Tags};
use super::translation::ThreadPage;
use super::{Access, SupplyingLevel};
use crate::address::{LineAddress, LineRange, PhysicalAddress};
use crate::core::CODE_LINE_SHIFT;
use crate::system_model::{Dma, Inclusion};
use crate::tag_array::{DIRTY, Evicted, Slot, Tag};

/// Effects of DMA on caches. All counts are sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaCounts {
    /// Lines that a device wrote and a cache dropped.
    pub dropped: u64,
    /// Lines that a device wrote and a cache kept, with the new content.
    pub updated: u64,
    /// Dirty lines that a cache supplied to a device.
    pub supplied: u64,
    /// Lines that a device wrote and the last level allocated.
    pub allocated: u64,
    /// Dirty lines that were written to memory to make room for allocated lines.
    pub written_back: u64,
}

/// The longest transfer of a device, in bytes, whose lines are looked up. Lines beyond are ignored.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 1 << 30;

/// No line of L1I has this number.
const NO_LINE: LineAddress = LineAddress(u64::MAX);

/// Summary of the lines that were removed from a cache.
pub(super) struct RemovedLines {
    /// The number of removed lines.
    pub(super) lines: u64,
    /// [`DIRTY`] if any removed line was dirty, else 0.
    pub(super) dirty: u8,
}

impl Tags {
    /// Handles the line that L1D evicted from `slot`. L2 takes the line if it is dirty, or if L2 is exclusive. Without an
    /// L2, memory takes a dirty line.
    pub(super) fn evict_l1d(&mut self, cpu: usize, slot: Slot, victim: Evicted) {
        let core = self.core_of(cpu);
        let physical = PhysicalAddress::of_line(victim.line, self.config.l1d_shift);
        self.report_written(core, slot, physical);
        let cache = CacheId { name: CacheName::L1d, number: core };
        self.classifier.evicted(cpu, cache, victim.line);
        let dirty = victim.flags & DIRTY;
        match self.outer.first().map(|l2| l2.inclusion) {
            Some(Inclusion::Exclusive) => self.insert_victim(0, cpu, physical, dirty),
            Some(_) if dirty != 0 => self.insert_victim(0, cpu, physical, dirty),
            None if dirty != 0 => self.write_memory(cpu),
            Some(_) | None => {}
        }
        self.release(core, self.config.granule(physical));
    }

    /// Handles a line that L1I evicted. L2 does not take the line: code is clean, and an exclusive L2 keeps the
    /// lines that it supplies to L1I.
    pub(super) fn evict_l1i(&mut self, cpu: usize, victim: Evicted) {
        let core = self.core_of(cpu);
        self.classifier.evicted(cpu, CacheId { name: CacheName::L1i, number: core }, victim.line);
        if !self.config.is_l1i_trace_cache {
            self.release(
                core,
                self.config.granule(PhysicalAddress::of_line(victim.line, self.config.l1i_shift)),
            );
        }
    }

    /// Handles a line that a level below L1 evicted. If the level is inclusive, the levels above
    /// lose the line, too. A dirty line goes to the next level or to memory. An exclusive next level takes clean lines,
    /// too.
    pub(super) fn evict_outer(&mut self, level: usize, cpu: usize, victim: Evicted) {
        let core = self.core_of(cpu);
        let (shift, inclusion) = (self.outer[level].line_shift, self.outer[level].inclusion);
        let physical = PhysicalAddress::of_line(victim.line, shift);
        self.classifier.evicted(cpu, self.outer_id(level, core), victim.line);
        let mut dirty = victim.flags & DIRTY;
        let cores = if self.outer[level].is_shared { 0..self.cores.len() } else { core..core + 1 };
        if inclusion == Inclusion::Inclusive {
            for core in cores.clone() {
                dirty |= self.back_invalidate(level, cpu, core, physical);
            }
        }
        if level == 0 && dirty != 0 {
            self.cpus[cpu].counts.basic.l2_writebacks += 1;
        }
        match self.outer.get(level + 1).map(|outer| outer.inclusion) {
            Some(Inclusion::Exclusive) => self.insert_victim(level + 1, cpu, physical, dirty),
            Some(_) if dirty != 0 => self.insert_victim(level + 1, cpu, physical, dirty),
            None if dirty != 0 => self.write_memory(cpu),
            _ => {}
        }
        // Last, because the next level may also be private and hold the line now.
        if level < self.config.private_levels || inclusion == Inclusion::Inclusive {
            for granule in self.config.granules(physical, 1 << shift) {
                cores.clone().for_each(|core| self.release(core, granule));
            }
        }
    }

    /// Removes a line that an inclusive level evicted from all levels above, of one core. Returns
    /// [`DIRTY`] if one of the levels held the line dirty.
    fn back_invalidate(
        &mut self,
        level: usize,
        cpu: usize,
        core: usize,
        physical: PhysicalAddress,
    ) -> u8 {
        let bytes = 1u64 << self.outer[level].line_shift;
        let mut dirty = 0;
        for cache in self.caches_of(core, level) {
            let lines = LineRange::touched_by(physical, bytes, self.line_shift(cache.name));
            let report = |classifier: &mut Classifier, line| classifier.evicted(cpu, cache, line);
            let removed = self.remove_lines(cache, lines, report);
            self.cpus[cpu].counts.back_invalidated += removed.lines;
            dirty |= removed.dirty;
        }
        dirty
    }

    /// Inserts a line that a level above evicted or writes back. `dirty`: [`DIRTY`] or 0. May evict another line.
    pub(super) fn insert_victim(
        &mut self,
        level: usize,
        cpu: usize,
        physical: PhysicalAddress,
        dirty: u8,
    ) {
        let core = self.core_of(cpu);
        let line = physical.line(self.outer[level].line_shift);
        let id = self.outer_id(level, core);
        let shadow_use = ShadowUse { is_access: false, line_after: LineAfter::Present };
        self.classifier.looked_up(id, line, shadow_use);
        let cache = self.outer[level].cache_for(core);
        if let Some(slot) = cache.lookup_line(line) {
            cache.set_flags(slot, cache.flags(slot) | dirty);
            return;
        }
        let (_, victim) = cache.insert_line(line, dirty);
        self.classifier.filled(id, line);
        if let Some(victim) = victim {
            self.evict_outer(level, cpu, victim);
        }
    }

    /// Counts a dirty line that is written to memory.
    pub(super) fn write_memory(&mut self, cpu: usize) {
        self.outcome.push(Step::WriteBack);
        self.cpus[cpu].counts.memory_writes += 1;
    }

    /// Writes a store of a write-through L1D to L2, which fills the line if it is absent. Without an L2, memory takes
    /// the store. The processor does not wait.
    pub(super) fn write_through(&mut self, access: &Access) -> FillResponse {
        let core = self.core_of(access.cpu);
        let mask = self.config.granule_mask(access.physical, access.bytes);
        let Some(l2) = self.outer.first_mut() else {
            self.acquire_ownership(access.cpu, access.physical, mask);
            self.outcome.push(Step::Fill(FillStart::Asked));
            self.write_memory(access.cpu);
            self.outcome.push(Step::Filled(FillEnd::Below));
            return FillResponse::posted(SupplyingLevel::Memory);
        };
        let line = access.physical.line(l2.line_shift);
        let l2 = l2.cache_for(core);
        if let Some(slot) = l2.lookup_line(line) {
            l2.set_flags(slot, l2.flags(slot) | DIRTY);
            self.classifier.accessed(self.outer_id(0, core), line);
            self.acquire_ownership(access.cpu, access.physical, mask);
            return FillResponse::posted(SupplyingLevel::L2);
        }
        let response = self.fill(&FillRequest {
            cpu: access.cpu,
            physical: access.physical,
            mask,
            is_exclusive: true,
            first_level: 0,
            purpose: Purpose::Data,
            start: FillStart::Asked,
            end: FillEnd::Below,
        });
        self.insert_victim(0, access.cpu, access.physical, DIRTY);
        response
    }

    /// Removes lines from a cache, whichever sets hold them. `report` tells the classifier of each removed line. For an
    /// exclusive level it also reports the lines that levels above hold in its place: the caller removes them there.
    pub(super) fn remove_lines(
        &mut self,
        cache: CacheId,
        mut lines: LineRange,
        report: impl Fn(&mut Classifier, LineAddress),
    ) -> RemovedLines {
        if self.classifier.is_on() && self.is_exclusive(cache.name) {
            for line in lines.clone() {
                if self.classifier.is_held_above(cache, line) {
                    report(&mut self.classifier, line);
                }
            }
        }
        let mut removed = RemovedLines { lines: 0, dirty: 0 };
        while let Some((line, slot)) = self.cache(cache).find_first(lines.clone()) {
            lines.skip_through(line);
            if cache.name == CacheName::L1d {
                self.report_written(
                    cache.number,
                    slot,
                    PhysicalAddress::of_line(line, self.config.l1d_shift),
                );
            }
            removed.dirty |= self.cache_mut(cache).remove(slot).flags & DIRTY;
            removed.lines += 1;
            report(&mut self.classifier, line);
        }
        removed
    }

    /// Whether the caches with this name are an exclusive level.
    fn is_exclusive(&self, name: CacheName) -> bool {
        let level = match name {
            CacheName::L1i | CacheName::L1d => return false,
            CacheName::L2 => 0,
            CacheName::L3 => 1,
        };
        self.outer[level].inclusion == Inclusion::Exclusive
    }

    /// Reports to the classifier the parts of a line that were written while L1D held the line.
    pub(super) fn report_written(&mut self, core: usize, slot: Slot, physical: PhysicalAddress) {
        if let Some(written) = self.cores[core].written.get_mut(slot) {
            let mask = std::mem::take(written);
            if mask != 0 {
                self.classifier.wrote(core, self.config.granule(physical), mask);
            }
        }
    }

    /// See [`MemorySystem::dma_write`](super::MemorySystem::dma_write).
    pub(super) fn dma_write(&mut self, physical: PhysicalAddress, bytes: u64) {
        let bytes = bytes.min(TRANSFER_BYTES_MAX);
        for cache in self.all_caches() {
            let lines = LineRange::touched_by(physical, bytes, self.line_shift(cache.name));
            if self.config.dma == Dma::Update {
                let is_in = |line: &LineAddress| self.cache(cache).contains(*line);
                self.dma.updated += lines.filter(is_in).count() as u64;
            } else if self.config.dma == Dma::Allocate && Some(cache.name) == self.last_level() {
                lines.for_each(|line| self.dma_allocate(cache, line));
            } else {
                let report =
                    |classifier: &mut Classifier, line| classifier.device_wrote(cache, line);
                self.dma.dropped += self.remove_lines(cache, lines.clone(), report).lines;
                self.classifier.device_wrote_absent(cache, lines);
            }
        }
        if self.config.dma != Dma::Update {
            self.forget_last_fetch(physical, bytes);
            self.dma.dropped += self.drop_traces(physical, bytes, Classifier::device_wrote);
            for granule in self.config.granules(physical, bytes) {
                (0..self.cores.len()).for_each(|core| self.release(core, granule));
            }
        }
    }

    /// The last level below L1. `None` if there is none.
    fn last_level(&self) -> Option<CacheName> {
        self.outer.len().checked_sub(1).map(CacheName::outer)
    }

    /// The last level takes a line that a device has written, in one of the first `dma_ways` ways of its set.
    fn dma_allocate(&mut self, cache: CacheId, line: LineAddress) {
        let ways = self.config.dma_ways;
        let tags = self.cache_mut(cache);
        if let Some(slot) = tags.find_physical(line) {
            tags.set_flags(slot, tags.flags(slot) | DIRTY);
            self.dma.updated += 1;
            return;
        }
        let victim = tags.insert_within(line, DIRTY, ways);
        self.dma.allocated += 1;
        self.classifier.filled(cache, line);
        let Some(victim) = victim else { return };
        let level = self.outer.len() - 1;
        let physical = PhysicalAddress::of_line(victim.line, self.outer[level].line_shift);
        let bytes = 1 << self.outer[level].line_shift;
        let mut dirty = victim.flags & DIRTY;
        self.classifier.device_wrote(cache, victim.line);
        if self.outer[level].inclusion == Inclusion::Inclusive {
            let above = (0..self.cores.len()).flat_map(|core| self.caches_of(core, level));
            for above in above.collect::<Vec<_>>() {
                let lines = LineRange::touched_by(physical, bytes, self.line_shift(above.name));
                let report =
                    |classifier: &mut Classifier, line| classifier.device_wrote(above, line);
                dirty |= self.remove_lines(above, lines, report).dirty;
            }
            for granule in self.config.granules(physical, bytes) {
                (0..self.cores.len()).for_each(|core| self.release(core, granule));
            }
        }
        self.dma.written_back += u64::from(dirty != 0);
    }

    /// See [`MemorySystem::code_written`](super::MemorySystem::code_written).
    pub(super) fn code_written(&mut self, cpu: usize, physical: PhysicalAddress, bytes: u64) {
        self.forget_last_fetch(physical, bytes);
        if self.config.is_l1i_trace_cache {
            let report = |classifier: &mut Classifier, cache, trace| {
                classifier.evicted(cpu, cache, trace);
            };
            self.drop_traces(physical, bytes, report);
            return;
        }
        for core in 0..self.cores.len() {
            let cache = CacheId { name: CacheName::L1i, number: core };
            let lines = LineRange::touched_by(physical, bytes, self.line_shift(cache.name));
            let report = |classifier: &mut Classifier, line| classifier.evicted(cpu, cache, line);
            self.remove_lines(cache, lines, report);
            for granule in self.config.granules(physical, bytes) {
                self.release(core, granule);
            }
        }
    }

    /// Removes the traces that start in these lines of code from the trace caches of all cores. `report` tells the
    /// classifier of each removed trace. Returns the number of removed traces: 0 without trace caches.
    fn drop_traces(
        &mut self,
        physical: PhysicalAddress,
        bytes: u64,
        report: impl Fn(&mut Classifier, CacheId, LineAddress),
    ) -> u64 {
        if !self.config.is_l1i_trace_cache {
            return 0;
        }
        let lines = LineRange::touched_by(physical, bytes, CODE_LINE_SHIFT);
        let mut removed = 0;
        for core in 0..self.cores.len() {
            let (config, mut dropped) = (&self.config, Vec::new());
            self.cores[core].l1i.remove_if(|Tag(trace)| {
                let start = config.code_address(LineAddress(trace)).line(CODE_LINE_SHIFT);
                let is_dropped = lines.holds(start);
                if is_dropped {
                    dropped.push(LineAddress(trace));
                }
                is_dropped
            });
            removed += dropped.len() as u64;
            let cache = CacheId { name: CacheName::L1i, number: core };
            dropped.into_iter().for_each(|trace| report(&mut self.classifier, cache, trace));
        }
        removed
    }

    /// Makes the next fetch of each processor from one of these lines a fetch of its own, even if the processor has
    /// fetched last from the line: L1I no longer holds it.
    fn forget_last_fetch(&mut self, physical: PhysicalAddress, bytes: u64) {
        let config = &self.config;
        let shift = if config.is_l1i_trace_cache { CODE_LINE_SHIFT } else { config.l1i_shift };
        let lines = LineRange::touched_by(physical, bytes, shift);
        for cpu in &mut self.cpus {
            if let Some((_, last)) = &mut cpu.last_fetch
                && lines.holds(config.code_address(*last).line(shift))
            {
                *last = NO_LINE;
            }
        }
    }

    /// The memory that a flush of an address's line removes from the caches: a line of the longest size, so that no
    /// level keeps a part of a line that another level drops.
    pub(super) fn flushed_range(&self, physical: PhysicalAddress) -> Range<PhysicalAddress> {
        let shift = self.config.memory_line_shift;
        let start = physical.block_start(shift);
        start..start.plus(1 << shift)
    }

    /// Removes a line from all caches, or only makes it clean if `keeps_line`. Returns whether it was dirty; the write to
    /// memory is then counted, and the caller must give it a time.
    pub(super) fn flush_line(
        &mut self,
        cpu: usize,
        physical: PhysicalAddress,
        keeps_line: bool,
    ) -> bool {
        let flushed = self.flushed_range(physical);
        let (start, bytes) = (flushed.start, flushed.end.bytes_after(flushed.start));
        let mut was_dirty = false;
        for cache in self.all_caches() {
            let lines = LineRange::touched_by(start, bytes, self.line_shift(cache.name));
            if keeps_line {
                let tags = self.cache_mut(cache);
                for slot in lines.filter_map(|line| tags.find_physical(line)).collect::<Vec<_>>() {
                    was_dirty |= tags.flags(slot) & DIRTY != 0;
                    tags.set_flags(slot, tags.flags(slot) & !DIRTY);
                }
            } else {
                let report = |classifier: &mut Classifier, line| {
                    classifier.evicted(cpu, cache, line);
                };
                was_dirty |= self.remove_lines(cache, lines, report).dirty != 0;
            }
        }
        self.cpus[cpu].counts.memory_writes += u64::from(was_dirty);
        if !keeps_line {
            self.forget_last_fetch(start, bytes);
            let report = |classifier: &mut Classifier, cache, trace| {
                classifier.evicted(cpu, cache, trace);
            };
            self.drop_traces(start, bytes, report);
            for granule in self.config.granules(start, bytes) {
                (0..self.cores.len()).for_each(|core| self.release(core, granule));
            }
        }
        was_dirty
    }

    /// Executes a non-temporal store. All caches drop the line, and a combining buffer collects the stores to the line.
    /// The number of buffers is the number of MSHRs. A buffer writes its line to memory when the line is complete, or
    /// when another line needs the buffer. All caches then drop the line again. A store to a line that is being written
    /// waits for the write.
    pub(super) fn store_around(&mut self, access: &Access) {
        self.outcome.start();
        self.cpus[access.cpu].counts.basic.stores += 1;
        let page = ThreadPage::new(access.virtual_address, self.cpus[access.cpu].thread);
        self.translate_data(access, page);
        self.outcome.push(Step::Posted);
        let core = self.core_of(access.cpu);
        let shift = self.config.memory_line_shift;
        let (mut physical, end) = (access.physical, access.physical.plus(access.bytes.into()));
        while physical < end {
            let line = physical.line(shift);
            let part_end = end.min(PhysicalAddress::of_line(line.plus(1), shift));
            let buffer = match self.cores[core].combining.find(line) {
                Some(buffer) => {
                    self.outcome.push(Step::Combine(buffer));
                    buffer
                }
                None => self.open_combining(access.cpu, physical),
            };
            let start = PhysicalAddress::of_line(line, shift);
            let bytes = physical.bytes_after(start)..part_end.bytes_after(start);
            if self.cores[core].combining.store(buffer, bytes) {
                // Loads may have filled the line since the buffer got it.
                self.drop_combined(access.cpu, line);
                self.cpus[access.cpu].counts.memory_writes += 1;
                self.outcome.push(Step::CloseCombining(buffer));
            }
            physical = part_end;
        }
        self.outcome.end();
    }

    /// Flushes the line of an address from all caches and gives it a combining buffer. Returns the buffer's number.
    fn open_combining(&mut self, cpu: usize, physical: PhysicalAddress) -> u8 {
        let line = physical.line(self.config.memory_line_shift);
        self.drop_combined(cpu, line);
        let core = self.core_of(cpu);
        let (buffer, incomplete) = self.cores[core].combining.open(line);
        if let Some(written) = incomplete {
            self.drop_combined(cpu, written);
            self.cpus[cpu].counts.memory_writes += 1;
        }
        self.outcome.push(Step::OpenCombining { buffer, writes: incomplete.is_some() });
        buffer
    }

    /// Makes all caches drop a line that a combining buffer takes, or that it writes to memory.
    fn drop_combined(&mut self, cpu: usize, line: LineAddress) {
        let start = PhysicalAddress::of_line(line, self.config.memory_line_shift);
        if self.flush_line(cpu, start, false) {
            self.outcome.push(Step::WriteBack);
        }
    }

    /// See [`MemorySystem::dma_read`](super::MemorySystem::dma_read).
    pub(super) fn dma_read(&mut self, physical: PhysicalAddress, bytes: u64) {
        let bytes = bytes.min(TRANSFER_BYTES_MAX);
        for cache in self.all_caches() {
            let lines = LineRange::touched_by(physical, bytes, self.line_shift(cache.name));
            let tags = self.cache(cache);
            let slots = lines.filter_map(|line| tags.find_physical(line));
            let dirty = slots.filter(|slot| tags.flags(*slot) & DIRTY != 0).count();
            self.dma.supplied += dirty as u64;
        }
    }

    /// All caches of the machine, without trace caches.
    pub(super) fn all_caches(&self) -> Vec<CacheId> {
        let l1 = (0..self.cores.len()).flat_map(|core| self.caches_of(core, 0));
        let outer = self.outer.iter().enumerate().flat_map(|(level, outer)| {
            let name = CacheName::outer(level);
            (0..outer.caches.len()).map(move |number| CacheId { name, number })
        });
        l1.chain(outer).collect()
    }
}
