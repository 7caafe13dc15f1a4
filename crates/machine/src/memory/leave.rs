//! Lines that leave a cache for others: where they go, and what goes with them.

use super::bring::{Bringing, For};
use super::miss::CacheName;
use super::store::{DIRTY, Held, Slot};
use super::system::{Access, MemorySystem};
use crate::schema::Inclusion;

impl MemorySystem {
    /// A line left L1D, whose place is `slot`.
    pub(super) fn leave_l1d(&mut self, cpu: usize, slot: Slot, held: Held) {
        let core = self.core_of(cpu);
        let physical = held.line << self.plan.l1d_shift;
        self.tell_written(core, slot, physical);
        self.evicted(cpu, CacheName::L1d, core, held.line);
        let dirty = held.flags & DIRTY;
        if dirty != 0 || self.outer[0].inclusion == Inclusion::Exclusive {
            self.put(0, cpu, physical, dirty);
        }
        self.gone(core, physical);
    }

    /// A line left L1I. What it held of a level that gives lines away is there still.
    pub(super) fn leave_l1i(&mut self, cpu: usize, held: Held) {
        let core = self.core_of(cpu);
        self.evicted(cpu, CacheName::L1i, core, held.line);
        if !self.plan.trace {
            self.gone(core, held.line << self.plan.l1i_shift);
        }
    }

    /// A line left a level below L1.
    pub(super) fn leave_outer(&mut self, k: usize, cpu: usize, held: Held) {
        let core = self.core_of(cpu);
        let (shift, content) = (self.outer[k].shift, self.outer[k].inclusion);
        let physical = held.line << shift;
        self.evicted(cpu, CacheName::outer(k), self.outer[k].at(core), held.line);
        let mut dirty = held.flags & DIRTY;
        let cores = if self.outer[k].shared { 0..self.cores.len() } else { core..core + 1 };
        if content == Inclusion::Inclusive {
            for core in cores.clone() {
                dirty |= self.back_invalidate(k, cpu, core, physical);
            }
        }
        if k == 0 && dirty != 0 {
            self.cpus[cpu].counts.basic.l2_writebacks += 1;
        }
        let next = self.outer.get(k + 1).map(|outer| outer.inclusion);
        match next {
            Some(Inclusion::Exclusive) => self.put(k + 1, cpu, physical, dirty),
            Some(_) if dirty != 0 => self.put(k + 1, cpu, physical, dirty),
            None if dirty != 0 => self.write_memory(cpu),
            _ => {}
        }
        // Only now, as it may have gone to another private level.
        if k < self.plan.private_levels || content == Inclusion::Inclusive {
            for unit in (physical..physical + (1 << shift)).step_by(1 << self.plan.unit_shift) {
                cores.clone().for_each(|core| self.gone(core, unit));
            }
        }
    }

    /// Takes what lies in a line of level `k` out of all levels above, of one core; returns whether
    /// something of it was dirty.
    fn back_invalidate(&mut self, k: usize, cpu: usize, core: usize, physical: u64) -> u8 {
        let bytes = 1u64 << self.outer[k].shift;
        let mut dirty = 0;
        let mut number = 0;
        for at in (physical..physical + bytes).step_by(1 << self.plan.l1d_shift) {
            if let Some(held) = self.take_l1d(core, at) {
                self.evicted(cpu, CacheName::L1d, core, held.line);
                dirty |= held.flags & DIRTY;
                number += 1;
            }
        }
        if !self.plan.trace {
            for at in (physical..physical + bytes).step_by(1 << self.plan.l1i_shift) {
                if let Some(held) = self.take_l1i(core, at) {
                    self.evicted(cpu, CacheName::L1i, core, held.line);
                    number += 1;
                }
            }
        }
        for above in 0..k {
            let step = 1usize << self.outer[above].shift;
            for at in (physical..physical + bytes).step_by(step) {
                if let Some(held) = self.take_outer(above, core, at) {
                    self.evicted(cpu, CacheName::outer(above), core, held.line);
                    dirty |= held.flags & DIRTY;
                    number += 1;
                }
            }
        }
        self.cpus[cpu].counts.back_invalidated += number;
        dirty
    }

    /// Puts a line that comes from above into level `k`.
    pub(super) fn put(&mut self, k: usize, cpu: usize, physical: u64, dirty: u8) {
        let core = self.core_of(cpu);
        let line = physical >> self.outer[k].shift;
        self.seen_outer(k, core, line);
        let store = self.outer[k].of(core);
        if let Some(slot) = store.used(line, line) {
            store.set_flags(slot, store.flags(slot) | dirty);
            return;
        }
        let (_, old) = store.place(line, line, dirty);
        self.filled_outer(k, core, line);
        if let Some(old) = old {
            self.leave_outer(k, cpu, old);
        }
    }

    /// A dirty line goes to memory.
    pub(super) fn write_memory(&mut self, cpu: usize) {
        let now = self.cpus[cpu].now_cycles;
        self.bus.take(now);
        self.cpus[cpu].counts.memory_writes += 1;
    }

    /// Passes a store of a write-through cache on to L2, which gets the line if it has not. Nobody
    /// waits. Returns a bit for each level that missed.
    pub(super) fn pass_on(&mut self, access: &Access) -> u8 {
        let core = self.core_of(access.cpu);
        let line = access.physical >> self.outer[0].shift;
        let store = self.outer[0].of(core);
        if let Some(slot) = store.used(line, line) {
            store.set_flags(slot, store.flags(slot) | DIRTY);
            self.seen_outer(0, core, line);
            self.own(access.cpu, access.physical, self.plan.mask(access.physical, access.bytes));
            return 0;
        }
        let brought = self.bring(&Bringing {
            cpu: access.cpu,
            physical: access.physical,
            mask: self.plan.mask(access.physical, access.bytes),
            exclusive: true,
            from: 0,
            what: For::Data,
            at_cycles: access.now_cycles,
        });
        self.put(0, access.cpu, access.physical, DIRTY);
        brought.missed
    }

    /// Takes a line out of L1D, wherever it is.
    pub(super) fn take_l1d(&mut self, core: usize, physical: u64) -> Option<Held> {
        let shift = self.plan.l1d_shift;
        let slot = self.cores[core].l1d.find_physical(physical >> shift, shift)?;
        self.tell_written(core, slot, physical);
        Some(self.cores[core].l1d.remove(slot))
    }

    pub(super) fn take_l1i(&mut self, core: usize, physical: u64) -> Option<Held> {
        let shift = self.plan.l1i_shift;
        let store = &mut self.cores[core].l1i;
        let slot = store.find_physical(physical >> shift, shift)?;
        Some(store.remove(slot))
    }

    pub(super) fn take_outer(&mut self, k: usize, core: usize, physical: u64) -> Option<Held> {
        let line = physical >> self.outer[k].shift;
        let store = self.outer[k].of(core);
        let slot = store.find(line, line)?;
        Some(store.remove(slot))
    }

    /// A cache that is indexed by virtual addresses has a line once: where it is under another, it
    /// leaves.
    pub(super) fn drop_alias(&mut self, cpu: usize, line: u64) {
        let core = self.core_of(cpu);
        let shift = self.plan.l1d_shift;
        if let Some(slot) = self.cores[core].l1d.find_physical(line, shift) {
            let held = self.cores[core].l1d.remove(slot);
            self.leave_l1d(cpu, slot, held);
        }
    }
}
