//! Instruction fetches.

use super::bring::{Bringing, For};
use super::miss::CacheName;
use super::store::PREFETCHED;
use super::system::{Access, MemorySystem, Response, SupplyingLevel};
use crate::schema::Prefetch;

impl MemorySystem {
    /// A fetch of some bytes of code, line by line. Code of the line of the last fetch was fetched with
    /// it.
    #[inline]
    pub(super) fn fetch(&mut self, access: &Access) -> Response {
        let step = 1u64 << self.plan.l1i_shift;
        let end = access.physical + u64::from(access.bytes);
        // A trace begins where it is entered.
        let start = if self.plan.trace { access.physical } else { access.physical & !(step - 1) };
        let mut answer = Response { ready_cycles: access.now_cycles, supplier: SupplyingLevel::L1 };
        let mut at = start;
        while at < end {
            let virtual_address =
                access.virtual_address.wrapping_add(at.wrapping_sub(access.physical));
            let part = Access {
                virtual_address,
                physical: at,
                now_cycles: answer.ready_cycles,
                ..*access
            };
            let supplier = self.fetch_line(&part);
            answer.ready_cycles = supplier.ready_cycles;
            if supplier.supplier as u8 > answer.supplier as u8 {
                answer.supplier = supplier.supplier;
            }
            at += step;
        }
        answer
    }

    #[inline]
    fn fetch_line(&mut self, access: &Access) -> Response {
        let line = self.code_line(access.physical);
        let page = access.virtual_address >> 12;
        let cpu = &mut self.cpus[access.cpu];
        if cpu.last_fetch == Some((page, line)) {
            return Response { ready_cycles: access.now_cycles, supplier: SupplyingLevel::L1 };
        }
        let same_page = cpu.last_fetch.is_some_and(|(last, _)| last == page);
        cpu.last_fetch = Some((page, line));
        cpu.counts.basic.fetches += 1;
        let core = cpu.core;
        let mut now = access.now_cycles;
        if !same_page || self.plan.trace {
            now = self.page_of_code(access);
        }
        let index = match self.plan.l1i_virtual {
            true => self.code_line(access.virtual_address),
            false => line,
        };
        if self.watcher.is_some() {
            self.seen(CacheName::L1i, core, line);
        }
        let store = &mut self.cores[core].l1i;
        if let Some(slot) = store.used(index, line) {
            if store.flags(slot) & PREFETCHED != 0 {
                store.set_flags(slot, 0);
                self.cpus[access.cpu].counts.prefetches_used += 1;
                self.prefetch_code(access);
            }
            return Response { ready_cycles: now, supplier: SupplyingLevel::L1 };
        }
        self.fetch_miss(access, index, line, now)
    }

    /// The number under which code is in L1I: that of its line, or the address where a trace begins.
    pub(super) fn code_line(&self, address: u64) -> u64 {
        if self.plan.trace {
            trace_line(address, self.plan.l1i_shift)
        } else {
            address >> self.plan.l1i_shift
        }
    }

    #[inline(never)]
    fn fetch_miss(&mut self, access: &Access, index: u64, line: u64, now: u64) -> Response {
        let core = self.core_of(access.cpu);
        self.cpus[access.cpu].counts.basic.l1i_misses += 1;
        if self.plan.l1i_virtual
            && let Some(held) = self.take_l1i(core, access.physical)
        {
            self.leave_l1i(access.cpu, held);
        }
        let brought = self.bring(&Bringing {
            cpu: access.cpu,
            physical: access.physical,
            mask: self.plan.mask(access.physical, 1),
            exclusive: false,
            from: 0,
            what: For::Code,
            at_cycles: now,
        });
        if let (_, Some(old)) = self.cores[core].l1i.place(index, line, 0) {
            self.leave_l1i(access.cpu, old);
        }
        self.missed(access, CacheName::L1i, brought.missed, true);
        self.prefetch_code(access);
        Response { ready_cycles: brought.ready_cycles, supplier: brought.supplier }
    }

    /// Brings the next line into L1I.
    fn prefetch_code(&mut self, access: &Access) {
        let next = access.physical + (1 << self.plan.l1i_shift);
        if self.plan.l1i_prefetch == Prefetch::None || (next ^ access.physical) >> 12 != 0 {
            return;
        }
        let core = self.core_of(access.cpu);
        let line = next >> self.plan.l1i_shift;
        let index = match self.plan.l1i_virtual {
            true => (access.virtual_address >> self.plan.l1i_shift) + 1,
            false => line,
        };
        if self.cores[core].l1i.find_physical(line, self.plan.l1i_shift).is_some() {
            return;
        }
        self.cpus[access.cpu].counts.prefetches += 1;
        self.bring(&Bringing {
            cpu: access.cpu,
            physical: next,
            mask: 0,
            exclusive: false,
            from: 0,
            what: For::Prefetch,
            at_cycles: access.now_cycles,
        });
        if let (_, Some(old)) = self.cores[core].l1i.place(index, line, PREFETCHED) {
            self.leave_l1i(access.cpu, old);
        }
        self.filled(CacheName::L1i, core, line);
    }
}

/// Bits of the address stay in the number, those that pick the set below.
fn trace_line(address: u64, shift: u32) -> u64 {
    let below = address & ((1 << shift) - 1);
    (below << (64 - shift)) | address >> shift
}
