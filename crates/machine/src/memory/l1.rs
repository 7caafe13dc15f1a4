//! The L1 caches: instruction fetches, loads and stores, and their prefetchers.

use super::classification::{CacheName, Leaves, MissedLine, ShadowUse};
use super::fill::{FillRequest, FillResponse, Purpose};
use super::{Access, AccessKind, CacheId, Core, MemorySystem, PageSize, Response, SupplyingLevel};
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::system_model::Prefetch;
use crate::tag_array::{DIRTY, PREFETCHED, Slot, WRITABLE, flag_if};

impl MemorySystem {
    /// Fetches code line by line. Code in the line of the last fetch was fetched with it.
    #[inline]
    pub(super) fn fetch(&mut self, access: &Access) -> Response {
        let shift = self.config.l1i_shift;
        let end = access.physical.plus(access.bytes.into());
        // A trace starts where it is entered.
        let start = if self.config.trace {
            access.physical
        } else {
            PhysicalAddress::of_line(access.physical.line(shift), shift)
        };
        let mut response = Response::hit(access.now_cycles);
        let mut address = start;
        while address < end {
            let virtual_address = access.virtual_address.plus(address.bytes_after(access.physical));
            let now_cycles = response.ready_cycles;
            let part = Access { virtual_address, physical: address, now_cycles, ..*access };
            response = response.then(self.fetch_line(&part));
            address = address.plus(1 << shift);
        }
        response
    }

    #[inline]
    fn fetch_line(&mut self, access: &Access) -> Response {
        let line = self.code_line(access.physical.0);
        let page = access.virtual_address.page();
        let cpu = &mut self.cpus[access.cpu];
        if cpu.last_fetch == Some((page, line)) {
            return Response::hit(access.now_cycles);
        }
        let same_page = cpu.last_fetch.is_some_and(|(last, _)| last == page);
        cpu.last_fetch = Some((page, line));
        cpu.counts.basic.fetches += 1;
        let core = cpu.core;
        let mut now = access.now_cycles;
        if !same_page || self.config.trace {
            now = self.translate_fetch(access);
        }
        let index =
            if self.config.l1i_virtual { self.code_line(access.virtual_address.0) } else { line };
        self.classifier.accessed(CacheId { name: CacheName::L1i, number: core }, line);
        let Core { l1i, code_arrivals, .. } = &mut self.cores[core];
        if let Some(slot) = l1i.lookup(index, line) {
            let ready_cycles = code_arrivals.ready_cycles(line, now);
            if l1i.flags(slot) & PREFETCHED != 0 {
                l1i.set_flags(slot, 0);
                self.cpus[access.cpu].counts.prefetches_used += 1;
                self.prefetch_code(access, now);
            }
            return Response { under_way: ready_cycles > now, ..Response::hit(ready_cycles) };
        }
        self.fetch_miss(access, index, line, now)
    }

    /// A virtually indexed L1I holds a line once: evicts it from the set of another address.
    fn evict_code_alias(&mut self, cpu: usize, line: u64) {
        let l1i = &mut self.cores[self.cpus[cpu].core].l1i;
        if let Some(slot) = l1i.find_physical(line) {
            let alias = l1i.remove(slot);
            self.evict_l1i(cpu, alias);
        }
    }

    /// The number of code in L1I: that of its line, or the address where a trace starts, whose low
    /// bits are moved to the top.
    fn code_line(&self, address: u64) -> u64 {
        let shift = self.config.l1i_shift;
        if self.config.trace {
            let low = address & ((1 << shift) - 1);
            (low << (64 - shift)) | address >> shift
        } else {
            address >> shift
        }
    }

    #[inline(never)]
    fn fetch_miss(&mut self, access: &Access, index: u64, line: u64, now: u64) -> Response {
        let core = self.core_of(access.cpu);
        let cache = CacheId { name: CacheName::L1i, number: core };
        self.cpus[access.cpu].counts.basic.l1i_misses += 1;
        self.classifier.absent(cache, line, true);
        if self.config.l1i_virtual {
            self.evict_code_alias(access.cpu, line);
        }
        let response = self.fill(&FillRequest {
            cpu: access.cpu,
            physical: access.physical,
            mask: self.config.granule_mask(access.physical, 1),
            exclusive: false,
            first_level: 0,
            purpose: Purpose::Fetch,
            start_cycles: now,
        });
        if let (_, Some(victim)) = self.cores[core].l1i.insert(index, line, 0) {
            self.evict_l1i(access.cpu, victim);
        }
        self.classify_miss(access, cache, now, &response);
        self.cores[core].code_arrivals.note(line, response.ready_cycles);
        self.prefetch_code(access, now);
        response.to_access()
    }

    /// Prefetches a line into L1I that follows one which was asked for at `now`. It arrives when
    /// memory delivers it.
    fn prefetch_code(&mut self, access: &Access, now: u64) {
        let (shift, distance) = (self.config.l1i_shift, self.config.l1i_prefetch_distance);
        let next = access.physical.plus(distance << shift);
        if self.config.l1i_prefetch == Prefetch::None || next.page() != access.physical.page() {
            return;
        }
        let core = self.core_of(access.cpu);
        let line = next.line(shift);
        let index = if self.config.l1i_virtual {
            (access.virtual_address.line(shift)) + distance
        } else {
            line
        };
        let Core { l1i, code_arrivals, .. } = &mut self.cores[core];
        if l1i.contains(line) || !code_arrivals.has_room_for_prefetch(now) {
            return;
        }
        self.cpus[access.cpu].counts.prefetches += 1;
        let ready_cycles = self.fill(&prefetch_request(access.cpu, next, now)).ready_cycles;
        let arrivals = &mut self.cores[core].code_arrivals;
        arrivals.note(line, ready_cycles);
        arrivals.note_prefetch(ready_cycles);
        if let (_, Some(victim)) = self.cores[core].l1i.insert(index, line, PREFETCHED) {
            self.evict_l1i(access.cpu, victim);
        }
        self.classifier.filled(CacheId { name: CacheName::L1i, number: core }, line);
    }

    /// A load, or a store if `write`, that waits for nothing and has nothing more to do than to touch its
    /// page and its line: the common case. Returns whether it is that. If not, [`MemorySystem::access`]
    /// makes the access: at most, page and line were touched already.
    #[inline(always)]
    pub(super) fn hits_at_once(
        &mut self,
        cpu: usize,
        (virtual_address, physical): (VirtualAddress, PhysicalAddress),
        (bytes, write): (u8, bool),
        page_size: impl FnOnce(VirtualAddress) -> PageSize,
        now_cycles: u64,
    ) -> bool {
        let shift = self.config.l1d_shift;
        let last = physical.plus(u64::from(bytes.max(1)) - 1);
        let processor = &self.cpus[cpu];
        let page = virtual_address.page() | processor.thread << 58;
        let number = processor.core;
        let line = physical.line(shift);
        if last.line(shift) != line || !self.may_hit_at_once {
            return false;
        }
        if self.cores[number].last_data_page != page
            && !self.translates_at_once(
                cpu,
                virtual_address,
                page,
                page_size(virtual_address),
                now_cycles,
            )
        {
            return false;
        }
        let core = &mut self.cores[number];
        let Some(slot) = core.l1d.lookup(line, line) else { return false };
        // A store to a line that is not dirty yet has more to do.
        let needed = if write { WRITABLE | DIRTY } else { 0 };
        if core.l1d.flags(slot) & (needed | PREFETCHED) != needed
            || core.mshrs.ready_cycles(line, now_cycles) > now_cycles
        {
            return false;
        }
        let counts = &mut self.cpus[cpu].counts.basic;
        *(if write { &mut counts.stores } else { &mut counts.loads }) += 1;
        true
    }

    /// A load or store. One that crosses lines is one access to each, one after the other.
    #[inline]
    pub(super) fn data(&mut self, access: &Access, write: bool) -> Response {
        let (last, shift) =
            (access.physical.plus(u64::from(access.bytes - 1)), self.config.l1d_shift);
        if access.physical.line(shift) != last.line(shift) {
            return self.data_across_lines(access, write);
        }
        self.data_in_line(access, write)
    }

    #[inline(never)]
    fn data_across_lines(&mut self, access: &Access, write: bool) -> Response {
        let shift = self.config.l1d_shift;
        let (start, end) = (access.physical, access.physical.plus(access.bytes.into()));
        let mut response = Response::hit(access.now_cycles);
        let mut address = start;
        while address < end {
            let next = PhysicalAddress::of_line(address.line(shift) + 1, shift);
            let part = Access {
                virtual_address: access.virtual_address.plus(address.bytes_after(start)),
                physical: address,
                bytes: next.min(end).bytes_after(address) as u32,
                now_cycles: response.ready_cycles,
                ..*access
            };
            response = response.then(self.data_in_line(&part, write));
            address = next;
        }
        response
    }

    #[inline]
    fn data_in_line(&mut self, access: &Access, write: bool) -> Response {
        let cpu = &mut self.cpus[access.cpu];
        *(if write { &mut cpu.counts.basic.stores } else { &mut cpu.counts.basic.loads }) += 1;
        let number = cpu.core;
        let page = access.virtual_address.page() | cpu.thread << 58;
        let mut now = access.now_cycles;
        if self.cores[number].last_data_page != page {
            now = self.translate_data(access, page);
        }
        let translation_cycles = now - access.now_cycles;
        let line = access.physical.line(self.config.l1d_shift);
        let index = if self.config.l1d_virtual {
            access.virtual_address.line(self.config.l1d_shift)
        } else {
            line
        };
        let is_filled = !write || self.config.write_allocate;
        let leaves = if is_filled { Leaves::Present } else { Leaves::AsItWas };
        let how = ShadowUse { is_access: true, leaves };
        self.classifier.looked_up(CacheId { name: CacheName::L1d, number }, line, how);
        let core = &mut self.cores[number];
        let Some(slot) = core.l1d.lookup(index, line) else {
            let response = self.data_miss(access, index, now, write);
            return Response { translation_cycles, ..response };
        };
        let flags = core.l1d.flags(slot);
        let owns = flags & WRITABLE != 0 || !write && access.kind != AccessKind::LoadLocked;
        if flags & PREFETCHED != 0 || self.slow_stores || !owns {
            let response = self.slow_hit(access, slot, now, write);
            return Response { translation_cycles, ..response };
        }
        if write && flags & DIRTY == 0 {
            core.l1d.set_flags(slot, flags | DIRTY);
        }
        let ready_cycles = core.mshrs.ready_cycles(line, now);
        Response {
            under_way: ready_cycles > now,
            translation_cycles,
            ..Response::hit(ready_cycles)
        }
    }

    /// A hit that has more to do than to mark the line dirty.
    #[inline(never)]
    fn slow_hit(&mut self, access: &Access, slot: Slot, now: u64, write: bool) -> Response {
        let core = self.core_of(access.cpu);
        let line = access.physical.line(self.config.l1d_shift);
        let sub_block = self.config.sub_block_bit(access.physical);
        let core_state = &mut self.cores[core];
        if core_state.valid_sub_blocks.get(slot).is_some_and(|valid| valid & sub_block == 0) {
            return self.sub_block_miss(access, slot, now, write);
        }
        let mut ready_cycles = core_state.mshrs.ready_cycles(line, now);
        let under_way = ready_cycles > now;
        let flags = core_state.l1d.flags(slot);
        if flags & PREFETCHED != 0 {
            core_state.l1d.set_flags(slot, flags & !PREFETCHED);
            self.cpus[access.cpu].counts.prefetches_used += 1;
            self.prefetch_data(access, now);
        }
        if write {
            ready_cycles += self.store_in_line(access, slot);
        } else if access.kind == AccessKind::LoadLocked && flags & WRITABLE == 0 {
            ready_cycles += self.own_line(access, slot);
        }
        Response { under_way, ..Response::hit(ready_cycles) }
    }

    /// Acquires the right to write a line that is in, for a locked load. Returns how long the core
    /// waits for it.
    fn own_line(&mut self, access: &Access, slot: Slot) -> u64 {
        let core = self.core_of(access.cpu);
        let mask = self.config.granule_mask(access.physical, access.bytes);
        let wait = self.acquire_ownership(access.cpu, access.physical, mask);
        let l1d = &mut self.cores[core].l1d;
        l1d.set_flags(slot, l1d.flags(slot) | WRITABLE);
        wait
    }

    /// Stores into a line that is in. Returns how long the core waits for the right to do so.
    fn store_in_line(&mut self, access: &Access, slot: Slot) -> u64 {
        let core = self.core_of(access.cpu);
        let mask = self.config.granule_mask(access.physical, access.bytes);
        let mut wait = 0;
        if self.cores[core].l1d.flags(slot) & WRITABLE == 0 {
            wait = self.acquire_ownership(access.cpu, access.physical, mask);
        }
        let core_state = &mut self.cores[core];
        if let Some(written) = core_state.written.get_mut(slot) {
            *written |= mask;
        }
        let flags = core_state.l1d.flags(slot) | WRITABLE;
        if self.config.write_through {
            core_state.l1d.set_flags(slot, flags);
            self.write_through(access);
        } else {
            core_state.l1d.set_flags(slot, flags | DIRTY);
        }
        wait
    }

    #[inline(never)]
    fn data_miss(&mut self, access: &Access, index: u64, now: u64, write: bool) -> Response {
        let core = self.core_of(access.cpu);
        let cache = CacheId { name: CacheName::L1d, number: core };
        let line = access.physical.line(self.config.l1d_shift);
        self.count_data_miss(access, write);
        self.classifier.absent(cache, line, !write || self.config.write_allocate);
        if write && !self.config.write_allocate {
            let passed_on = self.write_through(access);
            self.release(core, self.config.granule(access.physical));
            self.classify_miss(access, cache, now, &passed_on);
            return Response::hit(now);
        }
        if self.config.l1d_virtual {
            self.evict_alias(access.cpu, line);
        }
        let response = self.fill_data(access, now, write);
        let flags = response.flags | flag_if(response.writable, WRITABLE);
        let slot = self.insert_l1d(access.cpu, index, access.physical, flags);
        self.classify_miss(access, cache, now, &response);
        self.cores[core].mshrs.allocate(line, response.ready_cycles);
        if write {
            // The fill has acquired ownership, if that is needed.
            self.store_in_line(access, slot);
        }
        self.prefetch_data(access, now);
        response.to_access()
    }

    /// The line is in, but not the sub-block that is accessed.
    fn sub_block_miss(&mut self, access: &Access, slot: Slot, now: u64, write: bool) -> Response {
        let core = self.core_of(access.cpu);
        let cache = CacheId { name: CacheName::L1d, number: core };
        let line = access.physical.line(self.config.l1d_shift);
        self.count_data_miss(access, write);
        self.classifier.absent(cache, line, true);
        if write && !self.config.write_allocate {
            let passed_on = self.write_through(access);
            self.classify_miss(access, cache, now, &passed_on);
            return Response::hit(now);
        }
        let response = self.fill_data(access, now, write);
        self.classify_miss(access, cache, now, &response);
        let core_state = &mut self.cores[core];
        // The fill may have evicted the line itself, from an inclusive level.
        if core_state.l1d.find_physical(line) == Some(slot) {
            core_state.valid_sub_blocks[slot] |= self.config.sub_block_bit(access.physical);
            // An exclusive level has given the line up, so its dirty state moves to L1D.
            let flags = (response.flags & DIRTY) | flag_if(response.writable, WRITABLE);
            core_state.l1d.set_flags(slot, core_state.l1d.flags(slot) | flags);
            core_state.mshrs.allocate(line, response.ready_cycles);
            if write {
                self.store_in_line(access, slot);
            }
        } else if response.flags & DIRTY != 0 {
            self.insert_victim(0, access.cpu, access.physical, DIRTY);
        }
        response.to_access()
    }

    /// Fills for a load or store, once an MSHR is free.
    fn fill_data(&mut self, access: &Access, now: u64, write: bool) -> FillResponse {
        let core = self.core_of(access.cpu);
        let start_cycles = self.cores[core].mshrs.free_cycles(now);
        self.cpus[access.cpu].counts.mshr_wait_cycles += start_cycles - now;
        self.fill(&FillRequest {
            cpu: access.cpu,
            physical: access.physical,
            mask: self.config.granule_mask(access.physical, access.bytes),
            exclusive: write || access.kind == AccessKind::LoadLocked,
            first_level: 0,
            purpose: Purpose::Data,
            start_cycles,
        })
    }

    /// Inserts a line into L1D, with the sub-block of `physical`, and evicts the victim.
    fn insert_l1d(&mut self, cpu: usize, index: u64, physical: PhysicalAddress, flags: u8) -> Slot {
        let core = self.core_of(cpu);
        let line = physical.line(self.config.l1d_shift);
        let (slot, victim) = self.cores[core].l1d.insert(index, line, flags);
        if let Some(victim) = victim {
            self.evict_l1d(cpu, slot, victim);
        }
        let sub_block = self.config.sub_block_bit(physical);
        let core_state = &mut self.cores[core];
        if let Some(valid) = core_state.valid_sub_blocks.get_mut(slot) {
            *valid = sub_block;
        }
        if let Some(written) = core_state.written.get_mut(slot) {
            *written = 0;
        }
        slot
    }

    /// A virtually indexed L1D holds a line once: evicts it from the set of another address.
    fn evict_alias(&mut self, cpu: usize, line: u64) {
        let core = self.core_of(cpu);
        if let Some(slot) = self.cores[core].l1d.find_physical(line) {
            let alias = self.cores[core].l1d.remove(slot);
            self.evict_l1d(cpu, slot, alias);
        }
    }

    /// Loads a page table entry, through L1D like other loads. Returns when it is ready.
    pub(super) fn load_table_entry(
        &mut self,
        cpu: usize,
        physical: PhysicalAddress,
        now: u64,
    ) -> u64 {
        let core = self.core_of(cpu);
        self.cpus[cpu].counts.walk_loads += 1;
        let hit_cycles = now + self.config.l1_hit_cycles;
        let line = physical.line(self.config.l1d_shift);
        let sub_block = self.config.sub_block_bit(physical);
        let how = ShadowUse { is_access: false, leaves: Leaves::Present };
        self.classifier.looked_up(CacheId { name: CacheName::L1d, number: core }, line, how);
        let core_state = &mut self.cores[core];
        if let Some(slot) = core_state.l1d.lookup(line, line)
            && core_state.valid_sub_blocks.get(slot).is_none_or(|valid| valid & sub_block != 0)
        {
            // It may be under way, for another walk or a load.
            return core_state.mshrs.ready_cycles(line, hit_cycles);
        }
        let response = self.fill(&FillRequest {
            cpu,
            physical,
            mask: self.config.granule_mask(physical, 8),
            exclusive: false,
            first_level: 0,
            purpose: Purpose::PageWalk,
            start_cycles: hit_cycles,
        });
        let core_state = &mut self.cores[core];
        core_state.mshrs.note_walk(line, response.ready_cycles);
        if let Some(slot) = core_state.l1d.find(line, line) {
            if let Some(valid) = core_state.valid_sub_blocks.get_mut(slot) {
                *valid |= sub_block;
            }
        } else {
            // An exclusive level has given the line up, so its dirty state moves to L1D.
            let flags = (response.flags & DIRTY) | flag_if(response.writable, WRITABLE);
            self.insert_l1d(cpu, line, physical, flags);
            self.classifier.filled(CacheId { name: CacheName::L1d, number: core }, line);
        }
        response.ready_cycles
    }

    fn count_data_miss(&mut self, access: &Access, write: bool) {
        let counts = &mut self.cpus[access.cpu].counts.basic;
        *(if write { &mut counts.l1d_store_misses } else { &mut counts.l1d_load_misses }) += 1;
    }

    /// Classifies a miss of L1 and of the levels that missed, too. The line was asked for at `now`.
    fn classify_miss(&mut self, access: &Access, l1: CacheId, now: u64, response: &FillResponse) {
        if !self.classifier.is_on() {
            return;
        }
        let core = self.core_of(access.cpu);
        let granule = self.config.granule(access.physical);
        let mask = self.config.granule_mask(access.physical, access.bytes.min(64));
        let FillResponse { supplier, missed_levels, ready_cycles, .. } = *response;
        let wait_cycles = ready_cycles.saturating_sub(now);
        let missed = MissedLine { cache: l1, core, granule, mask, supplier, wait_cycles };
        self.classifier.missed(access, &missed);
        for level in (0..self.outer.len()).filter(|level| missed_levels >> level & 1 == 1) {
            let cache = self.outer_id(level, core);
            self.classifier.missed(access, &MissedLine { cache, ..missed });
        }
    }

    /// Prefetches the lines that an access predicts. The prefetch starts at `now`, with the access, not when
    /// the access's line is ready.
    fn prefetch_data(&mut self, access: &Access, now: u64) {
        let next = match self.config.l1d_prefetch {
            Prefetch::None => None,
            Prefetch::NextLine => Some(
                access.physical.plus(self.config.l1d_prefetch_distance << self.config.l1d_shift),
            ),
            Prefetch::Stride => {
                let core = self.core_of(access.cpu);
                let distance = self.config.l1d_prefetch_distance;
                self.cores[core].strides.next(access.pc, access.physical, distance)
            }
            // Levels below L1 follow streams.
            Prefetch::Stream => None,
        };
        if let Some(next) = next {
            self.prefetch_l1d(access, next, now);
        }
    }

    /// Prefetches the line of `physical` into L1D, if it lies in the page of the access.
    fn prefetch_l1d(&mut self, access: &Access, physical: PhysicalAddress, now: u64) {
        let core = self.core_of(access.cpu);
        let shift = self.config.l1d_shift;
        let line = physical.line(shift);
        let core_state = &mut self.cores[core];
        if physical.page() != access.physical.page()
            || core_state.l1d.contains(line)
            || !core_state.mshrs.has_room_for_prefetch(now)
        {
            return;
        }
        self.cpus[access.cpu].counts.prefetches += 1;
        let response = self.fill(&prefetch_request(access.cpu, physical, now));
        let index = match self.config.l1d_virtual {
            // The prefetched line is in the page of the access, so both have the same colour.
            true => {
                let distance = physical.bytes_after(access.physical);
                access.virtual_address.plus(distance).line(shift)
            }
            false => line,
        };
        let flags = response.flags | PREFETCHED | flag_if(response.writable, WRITABLE);
        self.insert_l1d(access.cpu, index, physical, flags);
        self.cores[core].mshrs.allocate_prefetch(line, response.ready_cycles);
        self.classifier.filled(CacheId { name: CacheName::L1d, number: core }, line);
    }
}

impl Response {
    #[inline]
    fn hit(ready_cycles: u64) -> Response {
        let supplier = SupplyingLevel::L1;
        Response { ready_cycles, supplier, under_way: false, translation_cycles: 0 }
    }

    /// The response to two accesses. The second access started when the first was ready.
    #[inline]
    fn then(self, second: Response) -> Response {
        let farther = second.supplier as u8 > self.supplier as u8;
        let supplier = if farther { second.supplier } else { self.supplier };
        let under_way = self.under_way | second.under_way;
        // The parts of the wait come from the first access only.
        let translation_cycles = self.translation_cycles;
        Response { ready_cycles: second.ready_cycles, supplier, under_way, translation_cycles }
    }
}

/// A prefetch into L1, which looks up all levels below.
fn prefetch_request(cpu: usize, physical: PhysicalAddress, start_cycles: u64) -> FillRequest {
    FillRequest {
        cpu,
        physical,
        mask: 0,
        exclusive: false,
        first_level: 0,
        purpose: Purpose::Prefetch,
        start_cycles,
    }
}
