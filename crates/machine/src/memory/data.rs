//! Loads and stores.

use super::bring::{Bringing, For};
use super::miss::CacheName;
use super::store::{DIRTY, PREFETCHED, Slot, WRITABLE, only_if};
use super::system::{Access, MemorySystem, Response, SupplyingLevel};
use crate::schema::Prefetch;

impl MemorySystem {
    /// A load or store.
    #[inline]
    pub(super) fn data(&mut self, access: &Access, write: bool) -> Response {
        let last = access.physical + u64::from(access.bytes - 1);
        if (access.physical ^ last) >> self.plan.l1d_shift != 0 {
            return self.data_across(access, write);
        }
        self.data_in_line(access, write)
    }

    /// An access that crosses lines is one to each, one behind the other.
    #[inline(never)]
    fn data_across(&mut self, access: &Access, write: bool) -> Response {
        let (start, end) = (access.physical, access.physical + u64::from(access.bytes));
        let mut answer = Response { ready_cycles: access.now_cycles, supplier: SupplyingLevel::L1 };
        let mut at = start;
        while at < end {
            let next = ((at >> self.plan.l1d_shift) + 1) << self.plan.l1d_shift;
            let bytes = (next.min(end) - at) as u32;
            let part = Access {
                virtual_address: access.virtual_address.wrapping_add(at - start),
                physical: at,
                bytes,
                now_cycles: answer.ready_cycles,
                ..*access
            };
            let supplier = self.data_in_line(&part, write);
            let farther = supplier.supplier as u8 > answer.supplier as u8;
            answer.ready_cycles = supplier.ready_cycles;
            answer.supplier = if farther { supplier.supplier } else { answer.supplier };
            at = next;
        }
        answer
    }

    #[inline]
    fn data_in_line(&mut self, access: &Access, write: bool) -> Response {
        let cpu = &mut self.cpus[access.cpu];
        *(if write { &mut cpu.counts.basic.stores } else { &mut cpu.counts.basic.loads }) += 1;
        let core = cpu.core;
        let page = access.virtual_address >> 12 | cpu.thread << 58;
        let mut now_cycles = access.now_cycles;
        if self.cores[core].last_page != page {
            now_cycles = self.page_of_data(access, page);
        }
        let line = access.physical >> self.plan.l1d_shift;
        let index = if self.plan.l1d_virtual {
            access.virtual_address >> self.plan.l1d_shift
        } else {
            line
        };
        if self.watcher.is_some() {
            self.seen(CacheName::L1d, core, line);
        }
        let l1d = &mut self.cores[core];
        let Some(slot) = l1d.l1d.used(index, line) else {
            return self.data_miss(access, index, now_cycles, write);
        };
        let flags = l1d.l1d.flags(slot);
        if flags & PREFETCHED != 0 || self.slow_stores || write && flags & WRITABLE == 0 {
            return self.slow_hit(access, slot, now_cycles, write);
        }
        if write && flags & DIRTY == 0 {
            l1d.l1d.set_flags(slot, flags | DIRTY);
        }
        Response { ready_cycles: l1d.flights.ready(line, now_cycles), supplier: SupplyingLevel::L1 }
    }

    /// A line that is in, with which there is more to do.
    #[inline(never)]
    fn slow_hit(&mut self, access: &Access, slot: Slot, now: u64, write: bool) -> Response {
        let core = self.core_of(access.cpu);
        let line = access.physical >> self.plan.l1d_shift;
        let of = &mut self.cores[core];
        if !of.parts.is_empty() && of.parts[slot] & self.plan.part(access.physical) == 0 {
            return self.part_miss(access, slot, now, write);
        }
        let mut ready_cycles = of.flights.ready(line, now);
        let flags = of.l1d.flags(slot);
        if flags & PREFETCHED != 0 {
            of.l1d.set_flags(slot, flags & !PREFETCHED);
            self.cpus[access.cpu].counts.prefetches_used += 1;
            self.prefetch_data(access, ready_cycles);
        }
        if write {
            ready_cycles += self.store_in_line(access, slot);
        }
        Response { ready_cycles, supplier: SupplyingLevel::L1 }
    }

    /// Stores into a line that is in; returns what it takes to be allowed to.
    fn store_in_line(&mut self, access: &Access, slot: Slot) -> u64 {
        let core = self.core_of(access.cpu);
        let mask = self.plan.mask(access.physical, access.bytes);
        let mut wait = 0;
        if self.cores[core].l1d.flags(slot) & WRITABLE == 0 {
            wait = self.own(access.cpu, access.physical, mask);
        }
        let of = &mut self.cores[core];
        if let Some(written) = of.written.get_mut(slot) {
            *written |= mask;
        }
        let flags = of.l1d.flags(slot) | WRITABLE;
        if self.plan.through {
            of.l1d.set_flags(slot, flags);
            self.pass_on(access);
        } else {
            of.l1d.set_flags(slot, flags | DIRTY);
        }
        wait
    }

    #[inline(never)]
    fn data_miss(&mut self, access: &Access, index: u64, now: u64, write: bool) -> Response {
        let core = self.core_of(access.cpu);
        self.count_data_miss(access, write);
        if write && !self.plan.allocate {
            let brought = self.pass_on(access);
            self.gone(core, access.physical);
            self.missed(access, CacheName::L1d, brought, false);
            return Response { ready_cycles: now, supplier: SupplyingLevel::L1 };
        }
        let line = access.physical >> self.plan.l1d_shift;
        if self.plan.l1d_virtual {
            self.drop_alias(access.cpu, line);
        }
        let brought = self.bring_data(access, now, write);
        let flags = brought.flags | only_if(brought.writable, WRITABLE);
        let (slot, old) = self.cores[core].l1d.place(index, line, flags);
        if let Some(old) = old {
            self.leave_l1d(access.cpu, slot, old);
        }
        let of = &mut self.cores[core];
        if let Some(parts) = of.parts.get_mut(slot) {
            *parts = self.plan.part(access.physical);
        }
        if let Some(written) = of.written.get_mut(slot) {
            *written = 0;
        }
        self.missed(access, CacheName::L1d, brought.missed, true);
        self.cores[core].flights.miss(line, brought.ready_cycles);
        if write {
            // It is owned, if it has to be.
            self.store_in_line(access, slot);
        }
        self.prefetch_data(access, brought.ready_cycles);
        Response { ready_cycles: brought.ready_cycles, supplier: brought.supplier }
    }

    /// The line is in, and the part of it is not.
    fn part_miss(&mut self, access: &Access, slot: Slot, now: u64, write: bool) -> Response {
        let core = self.core_of(access.cpu);
        self.count_data_miss(access, write);
        if write && !self.plan.allocate {
            let brought = self.pass_on(access);
            self.missed(access, CacheName::L1d, brought, false);
            return Response { ready_cycles: now, supplier: SupplyingLevel::L1 };
        }
        let brought = self.bring_data(access, now, write);
        self.missed(access, CacheName::L1d, brought.missed, true);
        let of = &mut self.cores[core];
        // What was brought may have driven the line itself out of a level that includes it.
        let line = access.physical >> self.plan.l1d_shift;
        if of.l1d.find_physical(line, self.plan.l1d_shift) == Some(slot) {
            of.parts[slot] |= self.plan.part(access.physical);
            of.flights.miss(line, brought.ready_cycles);
            if write {
                self.store_in_line(access, slot);
            }
        }
        Response { ready_cycles: brought.ready_cycles, supplier: brought.supplier }
    }

    fn bring_data(&mut self, access: &Access, now: u64, write: bool) -> super::bring::Brought {
        let core = self.core_of(access.cpu);
        let at = self.cores[core].flights.admit(now);
        self.cpus[access.cpu].counts.mshr_wait_cycles += at - now;
        self.bring(&Bringing {
            cpu: access.cpu,
            physical: access.physical,
            mask: self.plan.mask(access.physical, access.bytes),
            exclusive: write,
            from: 0,
            what: For::Data,
            at_cycles: at,
        })
    }

    fn count_data_miss(&mut self, access: &Access, write: bool) {
        let counts = &mut self.cpus[access.cpu].counts.basic;
        *(if write { &mut counts.l1d_store_misses } else { &mut counts.l1d_load_misses }) += 1;
    }

    /// A load or store of a device: the caches are not asked, and it takes as long as memory.
    pub fn access_device(&mut self, access: &Access) -> Response {
        let write = access.kind == crate::AccessKind::Store;
        let cpu = &mut self.cpus[access.cpu];
        *(if write { &mut cpu.counts.basic.stores } else { &mut cpu.counts.basic.loads }) += 1;
        cpu.counts.basic.device_accesses += 1;
        let page = access.virtual_address >> 12 | cpu.thread << 58;
        let now = self.page_of_data(access, page);
        Response {
            ready_cycles: now + self.plan.latencies.memory_cycles,
            supplier: SupplyingLevel::Memory,
        }
    }

    fn prefetch_data(&mut self, access: &Access, now: u64) {
        match self.plan.l1d_prefetch {
            Prefetch::None => {}
            Prefetch::NextLine => {
                let next = access.physical + (1 << self.plan.l1d_shift);
                self.prefetch_l1d(access, next, now);
            }
            Prefetch::Stride => {
                let core = self.core_of(access.cpu);
                let next = self.cores[core].strides.next(access.pc, access.physical);
                if let Some(next) = next {
                    self.prefetch_l1d(access, next, now);
                }
            }
        }
    }
}

impl super::system::Plan {
    /// The bit of the part of a line that an address lies in.
    pub(super) fn part(&self, physical: u64) -> u64 {
        let in_line = physical & ((1 << self.l1d_shift) - 1);
        1 << (in_line >> self.part_shift)
    }

    /// A bit for each 64th of a unit of coherence, at least a byte, that an access touches.
    pub(super) fn mask(&self, physical: u64, bytes: u32) -> u64 {
        let grain_shift = self.unit_shift.saturating_sub(6);
        let in_unit = physical & ((1 << self.unit_shift) - 1);
        let first = in_unit >> grain_shift;
        let last = ((in_unit + u64::from(bytes) - 1) >> grain_shift).min(63);
        (u64::MAX >> (63 - last)) & (u64::MAX << first)
    }
}
