//! The L1 caches: instruction fetches, loads and stores, and their prefetchers.
//!
//! Entered once per access, from [`MemorySystem`](super::MemorySystem) and the ports. Finds the page
//! (`translation`) and the line, asks `fill` for a line that misses, and writes down each step in
//! [`Tags::outcome`]. Nothing here may depend on times.

use super::classification::{CacheName, LineAfter, MissedLine, ShadowUse};
use super::fill::{FillRequest, FillResponse, Purpose};
use super::outcome::{FillEnd, FillStart, Step};
use super::tags::{CacheId, Core, Tags};
use super::translation::ThreadPage;
use super::{Access, AccessKind, PageSize, SupplyingLevel};
use crate::address::{LineAddress, PhysicalAddress, VirtualAddress};
use crate::system_model::Prefetch;
use crate::tag_array::{DIRTY, PREFETCHED, SetIndex, Slot, WRITABLE, flag_if};

/// The length of a page table entry.
const TABLE_ENTRY_BYTES: u32 = 8;

impl Tags {
    /// Looks up an access in TLBs and caches. Returns the level that supplies its line. If the access touches
    /// several lines, returns the farthest level.
    #[inline]
    pub(super) fn look_up(&mut self, access: &Access) -> SupplyingLevel {
        self.outcome.start();
        let supplier = match access.kind {
            AccessKind::Fetch => self.fetch(access),
            AccessKind::Load | AccessKind::LoadLocked => self.data(access, false),
            AccessKind::Store => self.data(access, true),
        };
        self.outcome.end();
        supplier
    }

    /// Looks up a load or store of a device: counts and translates it. The access bypasses the caches.
    pub(super) fn look_up_device(&mut self, access: &Access) {
        self.outcome.start();
        let is_store = access.kind == AccessKind::Store;
        let cpu = &mut self.cpus[access.cpu];
        let counts = &mut cpu.counts.basic;
        *(if is_store { &mut counts.stores } else { &mut counts.loads }) += 1;
        counts.device_accesses += 1;
        let page = ThreadPage::new(access.virtual_address, cpu.thread);
        self.translate_data(access, page);
        let is_local = access.virtual_address.page() == self.local_device_page;
        self.outcome.push(Step::Device { is_local, is_store });
        let config = &self.config;
        let latency_cycles = match config.device_write_cycles {
            Some(_) if is_store => 0,
            _ if is_local => config.local_device_cycles,
            _ => config.device_read_cycles,
        };
        self.add_latency(access.cpu, latency_cycles);
        self.outcome.end();
    }

    /// The fast path of a fetch that gets no time: from another line of the page of the last fetch, without a trace
    /// cache. Returns whether the line hits, and only had to be touched; the fetch is then complete and counted.
    /// Otherwise the caller must call [`Tags::look_up`]; the line may already be touched, which changes no result.
    #[inline(always)]
    pub(super) fn fetch_hits_at_once(
        &mut self,
        cpu: usize,
        (virtual_address, physical): (VirtualAddress, PhysicalAddress),
    ) -> bool {
        let config = &self.config;
        let processor = &mut self.cpus[cpu];
        let page = virtual_address.page();
        let line = physical.line(config.l1i_shift);
        let is_same_page = processor.last_fetch.is_some_and(|(last, _)| last == page);
        let is_same_line = processor.last_fetch.is_some_and(|(_, last)| last == line);
        if !is_same_page
            || is_same_line
            || config.is_l1i_trace_cache
            || config.is_l1i_virtual
            || self.classifier.is_on()
        {
            return false;
        }
        let l1i = &mut self.cores[processor.core].l1i;
        let Some(slot) = l1i.lookup_line(line) else { return false };
        if l1i.flags(slot) & PREFETCHED != 0 {
            return false;
        }
        processor.last_fetch = Some((page, line));
        processor.counts.basic.fetches += 1;
        true
    }

    /// Fetches code line by line.
    #[inline]
    fn fetch(&mut self, access: &Access) -> SupplyingLevel {
        let shift = self.config.l1i_shift;
        let end = access.physical.plus(access.bytes.into());
        // A trace starts where code enters it. Other lines start at their first byte.
        let start = if self.config.is_l1i_trace_cache {
            access.physical
        } else {
            PhysicalAddress::of_line(access.physical.line(shift), shift)
        };
        let mut supplier = SupplyingLevel::L1;
        let mut address = start;
        while address < end {
            if address > start {
                self.outcome.push(Step::NextLine);
            }
            let virtual_address = access.virtual_address.plus(address.bytes_after(access.physical));
            let part = Access { virtual_address, physical: address, ..*access };
            supplier = supplier.farther(self.fetch_line(&part));
            address = address.plus(1 << shift);
        }
        supplier
    }

    /// Fetches one line. A further fetch from the line of the last fetch counts nothing.
    #[inline]
    fn fetch_line(&mut self, access: &Access) -> SupplyingLevel {
        let line = self.config.code_line(access.physical);
        let page = access.virtual_address.page();
        let cpu = &mut self.cpus[access.cpu];
        if cpu.last_fetch == Some((page, line)) {
            self.outcome.push(Step::CodeHit(line));
            return SupplyingLevel::L1;
        }
        let is_same_page = cpu.last_fetch.is_some_and(|(last, _)| last == page);
        cpu.last_fetch = Some((page, line));
        cpu.counts.basic.fetches += 1;
        let core = cpu.core;
        if !is_same_page || self.config.is_l1i_trace_cache {
            self.translate_fetch(access);
        }
        let index = if self.config.is_l1i_virtual {
            self.config.code_index(access.virtual_address)
        } else {
            line.into()
        };
        self.classifier.accessed(CacheId { name: CacheName::L1i, number: core }, line);
        let progress = self.progress(access.cpu);
        let Core { l1i, .. } = &mut self.cores[core];
        let Some(slot) = l1i.lookup(index, line.into()) else {
            return self.fetch_miss(access, index, line);
        };
        self.outcome.push(Step::CodeHit(line));
        if l1i.flags(slot) & PREFETCHED != 0 {
            l1i.set_flags(slot, 0);
            let remaining_cycles = self.cpus[access.cpu].code_prefetches.remaining(line, progress);
            self.add_latency(access.cpu, remaining_cycles);
            self.cpus[access.cpu].counts.prefetches_used += 1;
            self.prefetch_code(access);
        }
        SupplyingLevel::L1
    }

    /// Evicts a line that a virtually indexed L1I holds in the set of another virtual address: each line is in one set.
    fn evict_code_alias(&mut self, cpu: usize, line: LineAddress) {
        let l1i = &mut self.cores[self.cpus[cpu].core].l1i;
        if let Some(slot) = l1i.find_physical(line) {
            let alias = l1i.remove(slot);
            self.evict_l1i(cpu, alias);
        }
    }

    #[inline(never)]
    fn fetch_miss(
        &mut self,
        access: &Access,
        index: SetIndex,
        line: LineAddress,
    ) -> SupplyingLevel {
        let core = self.core_of(access.cpu);
        let cache = CacheId { name: CacheName::L1i, number: core };
        self.cpus[access.cpu].counts.basic.l1i_misses += 1;
        self.classifier.absent(cache, line, true);
        if self.config.is_l1i_virtual {
            self.evict_code_alias(access.cpu, line);
        }
        let response = self.fill(&FillRequest {
            cpu: access.cpu,
            physical: access.physical,
            mask: self.config.granule_mask(access.physical, 1),
            is_exclusive: false,
            first_level: 0,
            purpose: Purpose::Fetch,
            start: FillStart::Translated,
            end: FillEnd::Code(line),
        });
        if let (_, Some(victim)) = self.cores[core].l1i.insert(index, line.into(), 0) {
            self.evict_l1i(access.cpu, victim);
        }
        self.classify_miss(access, cache, &response);
        self.prefetch_code(access);
        response.supplier
    }

    /// Prefetches into L1I the line `l1i_prefetch_distance` lines after the fetched line, if both are in one page.
    fn prefetch_code(&mut self, access: &Access) {
        let (shift, distance) = (self.config.l1i_shift, self.config.l1i_prefetch_distance);
        let next = access.physical.plus(distance << shift);
        if self.config.l1i_prefetch == Prefetch::None || next.page() != access.physical.page() {
            return;
        }
        let core = self.core_of(access.cpu);
        let line = next.line(shift);
        let index = if self.config.is_l1i_virtual {
            SetIndex::of_virtual(access.virtual_address, shift).plus(distance)
        } else {
            line.into()
        };
        let progress = self.progress(access.cpu);
        let Core { l1i, .. } = &mut self.cores[core];
        if l1i.contains(line) || !self.cpus[access.cpu].code_prefetches.has_room(progress) {
            return;
        }
        self.cpus[access.cpu].counts.prefetches += 1;
        let end = FillEnd::CodePrefetch(line);
        let response = self.fill(&prefetch_request(access.cpu, next, end));
        self.cpus[access.cpu].code_prefetches.add(line, progress + response.latency_cycles);
        if let (_, Some(victim)) = self.cores[core].l1i.insert(index, line.into(), PREFETCHED) {
            self.evict_l1i(access.cpu, victim);
        }
        self.classifier.filled(CacheId { name: CacheName::L1i, number: core }, line);
    }

    /// The fast path of a load, or of a store if `write`. Returns whether the access hits the first TLB and L1D, and
    /// only had to touch its page and its line; it is then complete and counted. Otherwise the caller must call
    /// [`Tags::look_up`]; page and line may already be touched, which changes no result.
    #[inline(always)]
    pub(super) fn hits_at_once(
        &mut self,
        cpu: usize,
        (virtual_address, physical): (VirtualAddress, PhysicalAddress),
        (bytes, write): (u8, bool),
        page_size: impl FnOnce(VirtualAddress) -> PageSize,
    ) -> bool {
        let Tags { config, cpus, cores, may_hit_at_once, .. } = self;
        let Some(processor) = cpus.get_mut(cpu) else { return false };
        let Some(core) = cores.get_mut(processor.core) else { return false };
        let last = physical.plus(u64::from(bytes.max(1)) - 1);
        let line = physical.line(config.l1d_shift);
        if last.line(config.l1d_shift) != line || !*may_hit_at_once {
            return false;
        }
        let page = ThreadPage::new(virtual_address, processor.thread);
        if core.last_data_page != page
            && !core.holds_known_page(page)
            && !core.holds_page(processor, virtual_address, page, page_size(virtual_address))
        {
            return false;
        }
        let Some(slot) = core.l1d.lookup_line(line) else { return false };
        // The slow path makes a line dirty, and handles the first use of a prefetched line.
        let needed = if write { WRITABLE | DIRTY } else { 0 };
        if core.l1d.flags(slot) & (needed | PREFETCHED) != needed {
            return false;
        }
        let counts = &mut processor.counts.basic;
        *(if write { &mut counts.stores } else { &mut counts.loads }) += 1;
        true
    }

    /// A load, or a store if `write`.
    #[inline]
    fn data(&mut self, access: &Access, write: bool) -> SupplyingLevel {
        let (last, shift) =
            (access.physical.plus(u64::from(access.bytes - 1)), self.config.l1d_shift);
        if access.physical.line(shift) != last.line(shift) {
            return self.data_across_lines(access, write);
        }
        self.data_in_line(access, write)
    }

    /// Splits a load or store that crosses lines into one access per line, one after the other. Returns the farthest
    /// supplier.
    #[inline(never)]
    fn data_across_lines(&mut self, access: &Access, write: bool) -> SupplyingLevel {
        let shift = self.config.l1d_shift;
        let (start, end) = (access.physical, access.physical.plus(access.bytes.into()));
        let mut supplier = SupplyingLevel::L1;
        let mut address = start;
        while address < end {
            if address > start {
                self.outcome.push(Step::NextLine);
            }
            let next = PhysicalAddress::of_line(address.line(shift).plus(1), shift);
            let part = Access {
                virtual_address: access.virtual_address.plus(address.bytes_after(start)),
                physical: address,
                bytes: next.min(end).bytes_after(address) as u32,
                ..*access
            };
            supplier = supplier.farther(self.data_in_line(&part, write));
            address = next;
        }
        supplier
    }

    /// A load or store within one line.
    #[inline]
    fn data_in_line(&mut self, access: &Access, write: bool) -> SupplyingLevel {
        let cpu = &mut self.cpus[access.cpu];
        *(if write { &mut cpu.counts.basic.stores } else { &mut cpu.counts.basic.loads }) += 1;
        let number = cpu.core;
        let page = ThreadPage::new(access.virtual_address, cpu.thread);
        if self.cores[number].last_data_page == page {
            self.outcome.push(Step::Page(page));
        } else {
            self.translate_data(access, page);
        }
        let line = access.physical.line(self.config.l1d_shift);
        let index = if self.config.is_l1d_virtual {
            SetIndex::of_virtual(access.virtual_address, self.config.l1d_shift)
        } else {
            line.into()
        };
        let is_filled = !write || self.config.allocates_on_write;
        let line_after = if is_filled { LineAfter::Present } else { LineAfter::Unchanged };
        let shadow_use = ShadowUse { is_access: true, line_after };
        self.classifier.looked_up(CacheId { name: CacheName::L1d, number }, line, shadow_use);
        let core = &mut self.cores[number];
        let Some(slot) = core.l1d.lookup(index, line.into()) else {
            return self.data_miss(access, index, write);
        };
        let flags = core.l1d.flags(slot);
        let owns = flags & WRITABLE != 0 || !write && access.kind != AccessKind::LoadLocked;
        if flags & PREFETCHED != 0 || self.slow_stores || !owns {
            return self.slow_hit(access, slot, write);
        }
        if write && flags & DIRTY == 0 {
            core.l1d.set_flags(slot, flags | DIRTY);
        }
        self.outcome.push(Step::Hit(line));
        SupplyingLevel::L1
    }

    /// A hit that may miss its sub-block, uses a prefetched line, needs the right to write, or writes through.
    #[inline(never)]
    fn slow_hit(&mut self, access: &Access, slot: Slot, write: bool) -> SupplyingLevel {
        let core = self.core_of(access.cpu);
        let line = access.physical.line(self.config.l1d_shift);
        let sub_blocks = self.config.sub_block_mask(access.physical, access.bytes);
        let progress = self.progress(access.cpu);
        let core_state = &mut self.cores[core];
        let valid = core_state.valid_sub_blocks.get(slot);
        if valid.is_some_and(|valid| valid & sub_blocks != sub_blocks) {
            return self.sub_block_miss(access, slot, write);
        }
        self.outcome.push(Step::Hit(line));
        let flags = core_state.l1d.flags(slot);
        if flags & PREFETCHED != 0 {
            core_state.l1d.set_flags(slot, flags & !PREFETCHED);
            let remaining_cycles = self.cpus[access.cpu].data_prefetches.remaining(line, progress);
            self.add_latency(access.cpu, remaining_cycles);
            self.cpus[access.cpu].counts.prefetches_used += 1;
            self.prefetch_data(access);
        }
        let waits = if write {
            // The core does not wait for a store that is written through.
            self.store_in_line(access, slot) && !self.config.writes_through
        } else {
            access.kind == AccessKind::LoadLocked
                && flags & WRITABLE == 0
                && self.acquire_line(access, slot)
        };
        if waits {
            self.outcome.push(Step::Upgrade);
            self.add_latency(access.cpu, self.config.upgrade_cycles);
        }
        SupplyingLevel::L1
    }

    /// Acquires the right to write the line in `slot`, for a locked load. Returns whether the core
    /// waits for that right.
    fn acquire_line(&mut self, access: &Access, slot: Slot) -> bool {
        let core = self.core_of(access.cpu);
        let mask = self.config.granule_mask(access.physical, access.bytes);
        let waits = self.acquire_ownership(access.cpu, access.physical, mask);
        let l1d = &mut self.cores[core].l1d;
        l1d.set_flags(slot, l1d.flags(slot) | WRITABLE);
        waits
    }

    /// Stores into the line in `slot`. Returns whether the core waits for the right to write.
    fn store_in_line(&mut self, access: &Access, slot: Slot) -> bool {
        let core = self.core_of(access.cpu);
        let mask = self.config.granule_mask(access.physical, access.bytes);
        let waits = self.cores[core].l1d.flags(slot) & WRITABLE == 0
            && self.acquire_ownership(access.cpu, access.physical, mask);
        let core_state = &mut self.cores[core];
        if let Some(written) = core_state.written.get_mut(slot) {
            *written |= mask;
        }
        let flags = core_state.l1d.flags(slot) | WRITABLE;
        if self.config.writes_through {
            core_state.l1d.set_flags(slot, flags);
            self.write_through(access);
        } else {
            core_state.l1d.set_flags(slot, flags | DIRTY);
        }
        waits
    }

    /// A load or store that missed L1D: fills the line, unless the store does not allocate.
    #[inline(never)]
    fn data_miss(&mut self, access: &Access, index: SetIndex, write: bool) -> SupplyingLevel {
        let core = self.core_of(access.cpu);
        let cache = CacheId { name: CacheName::L1d, number: core };
        let line = access.physical.line(self.config.l1d_shift);
        self.count_data_miss(access, write);
        self.classifier.absent(cache, line, !write || self.config.allocates_on_write);
        if write && !self.config.allocates_on_write {
            let response = self.write_through(access);
            self.report_store(access);
            // L1D does not take the line. If no other private cache holds it, the directory forgets the core.
            self.release(core, self.config.granule(access.physical));
            self.outcome.push(Step::Posted);
            self.classify_miss(access, cache, &response);
            return SupplyingLevel::L1;
        }
        if self.config.is_l1d_virtual {
            self.evict_alias(access.cpu, line);
        }
        let response = self.fill_data(access, write);
        let flags = response.flags | flag_if(response.is_writable, WRITABLE);
        let place = (access.physical, access.bytes);
        let slot = self.insert_l1d(access.cpu, index, place, flags);
        self.classify_miss(access, cache, &response);
        self.outcome.push(Step::IntoL1d(line));
        if write {
            // Waits for nothing: the fill has acquired ownership.
            self.store_in_line(access, slot);
        }
        self.prefetch_data(access);
        response.supplier
    }

    /// A load or store whose line is in `slot`, but without the accessed sub-block: fills the sub-block.
    fn sub_block_miss(&mut self, access: &Access, slot: Slot, write: bool) -> SupplyingLevel {
        let core = self.core_of(access.cpu);
        let cache = CacheId { name: CacheName::L1d, number: core };
        let line = access.physical.line(self.config.l1d_shift);
        self.count_data_miss(access, write);
        self.classifier.absent(cache, line, true);
        if write && !self.config.allocates_on_write {
            let response = self.write_through(access);
            self.report_store(access);
            self.outcome.push(Step::Posted);
            self.classify_miss(access, cache, &response);
            return SupplyingLevel::L1;
        }
        let response = self.fill_data(access, write);
        self.classify_miss(access, cache, &response);
        let core_state = &mut self.cores[core];
        // The fill may have evicted this very line, if an inclusive level evicted it.
        if core_state.l1d.find_physical(line) == Some(slot) {
            core_state.valid_sub_blocks[slot] |=
                self.config.sub_block_mask(access.physical, access.bytes);
            // An exclusive level has given the line up, so its dirty state moves to L1D.
            let flags = (response.flags & DIRTY) | flag_if(response.is_writable, WRITABLE);
            core_state.l1d.set_flags(slot, core_state.l1d.flags(slot) | flags);
            self.outcome.push(Step::IntoL1d(line));
            if write {
                self.store_in_line(access, slot);
            }
        } else if response.flags & DIRTY != 0 {
            self.insert_victim(0, access.cpu, access.physical, DIRTY);
        }
        response.supplier
    }

    /// Reports to the classifier the parts that a store wrote whose line L1D does not take. A line that L1D holds
    /// reports its written parts when L1D gives it up.
    fn report_store(&mut self, access: &Access) {
        let core = self.core_of(access.cpu);
        let mask = self.config.granule_mask(access.physical, access.bytes);
        self.classifier.wrote(core, self.config.granule(access.physical), mask);
    }

    /// Requests the line of a load or store. The fill starts when an MSHR is free.
    fn fill_data(&mut self, access: &Access, write: bool) -> FillResponse {
        self.fill(&FillRequest {
            cpu: access.cpu,
            physical: access.physical,
            mask: self.config.granule_mask(access.physical, access.bytes),
            is_exclusive: write || access.kind == AccessKind::LoadLocked,
            first_level: 0,
            purpose: Purpose::Data,
            start: FillStart::FreeMshr,
            end: FillEnd::Access,
        })
    }

    /// Inserts a line into L1D with only the sub-blocks of `bytes` bytes from `physical` on, and evicts the victim.
    /// Returns the line's slot.
    fn insert_l1d(
        &mut self,
        cpu: usize,
        index: SetIndex,
        (physical, bytes): (PhysicalAddress, u32),
        flags: u8,
    ) -> Slot {
        let core = self.core_of(cpu);
        let line = physical.line(self.config.l1d_shift);
        let (slot, victim) = self.cores[core].l1d.insert(index, line.into(), flags);
        if let Some(victim) = victim {
            self.evict_l1d(cpu, slot, victim);
        }
        let sub_blocks = self.config.sub_block_mask(physical, bytes);
        let core_state = &mut self.cores[core];
        if let Some(valid) = core_state.valid_sub_blocks.get_mut(slot) {
            *valid = sub_blocks;
        }
        if let Some(written) = core_state.written.get_mut(slot) {
            *written = 0;
        }
        slot
    }

    /// Evicts a line that a virtually indexed L1D holds in the set of another virtual address: each line is in one set.
    fn evict_alias(&mut self, cpu: usize, line: LineAddress) {
        let core = self.core_of(cpu);
        if let Some(slot) = self.cores[core].l1d.find_physical(line) {
            let alias = self.cores[core].l1d.remove(slot);
            self.evict_l1d(cpu, slot, alias);
        }
    }

    /// Loads a page table entry, through L1D like other loads.
    pub(super) fn load_table_entry(&mut self, cpu: usize, physical: PhysicalAddress) {
        let core = self.core_of(cpu);
        self.cpus[cpu].counts.walk_loads += 1;
        self.add_latency(cpu, self.config.l1_hit_cycles);
        let line = physical.line(self.config.l1d_shift);
        let sub_blocks = self.config.sub_block_mask(physical, TABLE_ENTRY_BYTES);
        let shadow_use = ShadowUse { is_access: false, line_after: LineAfter::Present };
        self.classifier.looked_up(CacheId { name: CacheName::L1d, number: core }, line, shadow_use);
        let core_state = &mut self.cores[core];
        if let Some(slot) = core_state.l1d.lookup_line(line)
            && core_state
                .valid_sub_blocks
                .get(slot)
                .is_none_or(|valid| valid & sub_blocks == sub_blocks)
        {
            // The line may still be under way, for another walk or a load.
            return self.outcome.push(Step::TableHit(line));
        }
        let response = self.fill(&FillRequest {
            cpu,
            physical,
            mask: self.config.granule_mask(physical, TABLE_ENTRY_BYTES),
            is_exclusive: false,
            first_level: 0,
            purpose: Purpose::PageWalk,
            start: FillStart::TableMissed,
            end: FillEnd::Walk(line),
        });
        let core_state = &mut self.cores[core];
        if let Some(slot) = core_state.l1d.find_line(line) {
            if let Some(valid) = core_state.valid_sub_blocks.get_mut(slot) {
                *valid |= sub_blocks;
            }
        } else {
            // An exclusive level has given the line up, so its dirty state moves to L1D.
            let flags = (response.flags & DIRTY) | flag_if(response.is_writable, WRITABLE);
            self.insert_l1d(cpu, line.into(), (physical, TABLE_ENTRY_BYTES), flags);
            self.classifier.filled(CacheId { name: CacheName::L1d, number: core }, line);
        }
    }

    fn count_data_miss(&mut self, access: &Access, write: bool) {
        let counts = &mut self.cpus[access.cpu].counts.basic;
        *(if write { &mut counts.l1d_store_misses } else { &mut counts.l1d_load_misses }) += 1;
    }

    /// Classifies the miss of an L1 cache and the misses of the levels below, if classification is on.
    fn classify_miss(&mut self, access: &Access, l1: CacheId, response: &FillResponse) {
        if !self.classifier.is_on() {
            return;
        }
        let core = self.core_of(access.cpu);
        let granule = self.config.granule(access.physical);
        let mask = self.config.granule_mask(access.physical, access.bytes.min(64));
        let FillResponse { supplier, missed_levels, .. } = *response;
        let first = self.classifier.kept_misses();
        let missed = MissedLine { cache: l1, core, granule, mask, supplier };
        self.classifier.missed(access, &missed);
        for level in (0..self.outer.len()).filter(|level| missed_levels >> level & 1 == 1) {
            let cache = self.outer_id(level, core);
            self.classifier.missed(access, &MissedLine { cache, ..missed });
        }
        let (first, end) = (first as u32, self.classifier.kept_misses() as u32);
        self.outcome.push(Step::Missed { first, end });
    }

    /// Prefetches the line that L1D's prefetcher predicts from an access. The prefetch starts when the access is
    /// translated, not when the access's line is ready.
    fn prefetch_data(&mut self, access: &Access) {
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
            self.prefetch_l1d(access, next);
        }
    }

    /// Prefetches the line of `physical` into L1D, unless it lies in another page than the access, L1D holds it, or no
    /// prefetch buffer is free.
    fn prefetch_l1d(&mut self, access: &Access, physical: PhysicalAddress) {
        let core = self.core_of(access.cpu);
        let shift = self.config.l1d_shift;
        let line = physical.line(shift);
        let progress = self.progress(access.cpu);
        let core_state = &mut self.cores[core];
        if physical.page() != access.physical.page()
            || core_state.l1d.contains(line)
            || !self.cpus[access.cpu].data_prefetches.has_room(progress)
        {
            return;
        }
        self.cpus[access.cpu].counts.prefetches += 1;
        let end = FillEnd::DataPrefetch(line);
        let response = self.fill(&prefetch_request(access.cpu, physical, end));
        let index = if self.config.is_l1d_virtual {
            // Both lie in one page, so the virtual address advances with the physical one.
            let distance = physical.bytes_after(access.physical);
            SetIndex::of_virtual(access.virtual_address.plus(distance), shift)
        } else {
            line.into()
        };
        let flags = response.flags | PREFETCHED | flag_if(response.is_writable, WRITABLE);
        self.insert_l1d(access.cpu, index, (physical, 1), flags);
        self.cpus[access.cpu].data_prefetches.add(line, progress + response.latency_cycles);
        self.classifier.filled(CacheId { name: CacheName::L1d, number: core }, line);
    }
}

impl SupplyingLevel {
    /// The level that is farther from the core: the variants of [`SupplyingLevel`] are in this order.
    #[inline]
    fn farther(self, other: SupplyingLevel) -> SupplyingLevel {
        if other as u8 > self as u8 { other } else { self }
    }
}

/// A request for a prefetch into L1, which looks up all levels below.
fn prefetch_request(cpu: usize, physical: PhysicalAddress, end: FillEnd) -> FillRequest {
    FillRequest {
        cpu,
        physical,
        mask: 0,
        is_exclusive: false,
        first_level: 0,
        purpose: Purpose::Prefetch,
        start: FillStart::Translated,
        end,
    }
}
