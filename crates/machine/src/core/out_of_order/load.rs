//! When the loads of an instruction issue, and when their values are ready: a stage of the timing rule in `step`. On
//! the hot path; the common case ends in [`OutOfOrderCore::load_part`] without a further call.

use super::OutOfOrderCore;
use super::parts::{AllParts, Parts};
use crate::core::instruction::{Instruction, Unit};
use crate::core::retirement::CycleRange;
use crate::core::store_buffer::{Source, crosses_pages, is_split, next_access};
use crate::core::{Access, AccessMode, Memory, wait_parts};
use crate::cycle::Cycle;

/// The times of the loads of an instruction.
#[derive(Clone, Copy)]
pub(super) struct LoadTimes {
    /// When the last load issues.
    pub(super) issued: Cycle,
    /// When all values are ready.
    pub(super) cycle: Cycle,
    /// The cycles while the loads waited for a line.
    pub(super) wait: CycleRange,
}

impl LoadTimes {
    /// Combines the times of some loads with the times of other loads of the instruction.
    fn combined_with(self, other: LoadTimes) -> LoadTimes {
        let wait = if !other.wait.is_set() {
            self.wait
        } else if !self.wait.is_set() {
            other.wait
        } else {
            self.wait.spanning(other.wait)
        };
        LoadTimes {
            issued: self.issued.max(other.issued),
            cycle: self.cycle.max(other.cycle),
            wait,
        }
    }
}

impl OutOfOrderCore {
    /// Issues the loads of an instruction whose address is known at `address`.
    #[inline(always)]
    pub(super) fn load<P: Parts, M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        address: Cycle,
        memory: &mut M,
    ) -> LoadTimes {
        let mut earliest = address.max(self.common.loads_from);
        if !self.loads_pass_stores {
            earliest = earliest.max(self.addresses_known);
        }
        if P::RARE && instruction.special.orders_memory() {
            earliest = earliest.max(self.common.stores.all_left());
        }
        if P::RARE && accesses.iter().any(Access::is_of_device) {
            // A load from a device is not speculative: it issues after all earlier instructions have retired.
            earliest = earliest.max(self.common.retirement.cycle());
        }
        match accesses {
            [load, ..] if !P::RARE => self.load_part::<P, M>(instruction, load, earliest, memory),
            _ => self.load_parts(instruction, accesses, earliest, memory),
        }
    }

    /// [`OutOfOrderCore::load`] for an instruction with any accesses. They issue at `earliest` or later.
    #[inline(never)]
    fn load_parts<M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        mut earliest: Cycle,
        memory: &mut M,
    ) -> LoadTimes {
        let mut loaded =
            LoadTimes { issued: earliest, cycle: Cycle::START, wait: CycleRange::EMPTY };
        if accesses.is_empty() {
            loaded.cycle = earliest + self.common.latencies.of_unit(Unit::Load);
            return loaded;
        }
        let crosses = self.page_split_cycles > 0 && crosses_pages(accesses, false);
        if crosses {
            earliest = earliest.max(self.splits_from);
        }
        let mut remaining = accesses;
        while let Some(access) = next_access(&mut remaining, false, self.access_bytes) {
            let part = self.load_part::<AllParts, M>(instruction, &access, earliest, memory);
            loaded = loaded.combined_with(part);
        }
        if crosses {
            self.splits_from = loaded.issued + self.page_split_cycles;
        }
        loaded
    }

    /// Issues a single load of an instruction, at `earliest` or later.
    #[inline(always)]
    fn load_part<P: Parts, M: Memory>(
        &mut self,
        instruction: &Instruction,
        load: &Access,
        mut earliest: Cycle,
        memory: &mut M,
    ) -> LoadTimes {
        let is_wide = P::RARE && load.bytes > 16 && self.has_wide_limit;
        let splits = P::RARE && is_split(load);
        if splits {
            earliest = earliest.max(self.splits_from);
        }
        let mut issued = self.ports.reserve_load(earliest, is_wide);
        if splits && self.splits_take_two {
            // The second line needs a load unit of its own.
            issued = self.ports.reserve_load(issued, is_wide);
        } else if self.banks.is_some() {
            issued = self.reserve_bank(load, issued, is_wide);
        }
        if splits && self.line_split_cycles > 0 {
            self.splits_from = issued + self.line_split_cycles;
        }
        self.common.retirement.counts.loads += 1;
        let mode =
            if P::RARE { AccessMode::load_of(instruction.special) } else { AccessMode::Load };
        let wait = memory.access(load, mode, issued);
        // A shortcut, which the copy with all parts does not take: tests compare the other copies with it.
        if !P::RARE
            && wait == 0
            && self.alias_cycles == 0
            && !self.common.stores.may_be_source(load, issued)
            && self.common.fill_buffers.are_filled(issued)
        {
            let cycle = issued + self.load_latencies[instruction.load_form()];
            return LoadTimes { issued, cycle, wait: CycleRange::EMPTY };
        }
        let (cycle, missed) = self.loaded_at(instruction, load, (issued, wait), memory);
        let mut loaded = LoadTimes { issued, cycle, wait: CycleRange::EMPTY };
        if missed {
            self.common.retirement.counts.load_misses += 1;
            loaded.wait = CycleRange::new(issued.max(self.ports.now().next()), cycle);
        }
        loaded
    }

    /// When a load starts whose unit is reserved at `issued`: in a later cycle if its bank is taken. The slot of the
    /// earlier cycle is lost.
    #[inline(never)]
    fn reserve_bank(&mut self, load: &Access, issued: Cycle, is_wide: bool) -> Cycle {
        let Some(banks) = &mut self.banks else { return issued };
        let mut issued = issued;
        while !banks.take(load, issued) {
            issued = self.ports.reserve_load(issued.next(), is_wide);
        }
        issued
    }

    /// When the value of a load is ready, and whether the load waited for a line. It issues at `issued`, and memory
    /// delays it by `wait` cycles. The value may come from an earlier store instead.
    #[inline(never)]
    fn loaded_at<M: Memory>(
        &mut self,
        instruction: &Instruction,
        load: &Access,
        (issued, wait): (Cycle, u64),
        memory: &mut M,
    ) -> (Cycle, bool) {
        let parts = wait_parts(memory, wait);
        let latency = self.load_latencies[instruction.load_form()];
        let is_renamed =
            self.renames_memory && !(self.renames_without_index && instruction.address_has_index());
        let form = if is_renamed { instruction.address_form } else { 0 };
        let start = match self.common.stores.source(load, form, issued) {
            Source::Cache => match self.common.stores.aliased(load, issued) {
                Some(known) => issued.max(known) + self.alias_cycles,
                None => issued,
            },
            Source::CacheAfter(drained) => issued.max(drained + self.forward_fail),
            Source::Renamed(known) => {
                self.common.retirement.counts.forwarded_loads += 1;
                return (known, false);
            }
            Source::Store(known) => {
                self.common.retirement.counts.forwarded_loads += 1;
                let forward = if !instruction.loads_vector() {
                    self.common.latencies.forward
                } else if load.bytes > 16 {
                    self.forward_wide
                } else {
                    self.forward_vector
                };
                let start = issued.max(known);
                let retried = self.retried_at(load, issued);
                return (
                    (start + forward).max(retried.map_or(Cycle::START, |retry| retry + forward)),
                    false,
                );
            }
        };
        let present = self.ports.now();
        let fill_buffers = &mut self.common.fill_buffers;
        let served = fill_buffers.serve_delayed(load, (issued, start), (wait, parts), present);
        (served.cycle + latency, served.missed)
    }

    /// The time at which a load retries, if it issued too early: at most a cycle after the address of the store that
    /// forwards its value was known. `None`: it does not retry. The load retries `forward_again_cycles` after its
    /// issue, and its value is ready at least `forward_again_cycles` after the store's address.
    ///
    /// Measured on a Golden Cove: if the address of the store comes up to three cycles after the issue of the load, the
    /// value is ready 12 cycles after that issue. If the address comes six cycles after the issue, it is 13 cycles: 7
    /// cycles after the address.
    #[inline(never)]
    fn retried_at(&self, load: &Access, issued: Cycle) -> Option<Cycle> {
        let address = self.common.stores.address_known(load)?;
        let forward = self.common.latencies.forward;
        let after_address = (address + self.forward_again).earlier_by(forward);
        (issued < address + 2).then(|| (issued + self.forward_again).max(after_address))
    }
}
