//! When the loads of an instruction issue, and when their values are ready.

use super::OutOfOrderCore;
use super::parts::{AllParts, Parts};
use crate::address::VirtualAddress;
use crate::core::instruction::{Instruction, Unit};
use crate::core::retirement::CycleRange;
use crate::core::store_buffer::{Source, crosses_pages, is_split, next_access};
use crate::core::{Access, AccessMode, Memory, wait_parts};
use crate::cycle::Cycle;

/// The times of the loads of an instruction.
#[derive(Clone, Copy)]
pub(super) struct LoadTimes {
    /// When the last of them issues.
    pub(super) issued: Cycle,
    /// When all values are ready.
    pub(super) cycle: Cycle,
    /// When they waited for a line.
    pub(super) wait: CycleRange,
}

impl LoadTimes {
    /// The times of these loads and of another load of the instruction.
    fn and(self, other: LoadTimes) -> LoadTimes {
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
        if P::RARE && accesses.iter().any(|access| access.physical.is_none()) {
            // A load from a device is not speculative: all before it has retired.
            earliest = earliest.max(self.common.retirement.cycle());
        }
        match accesses {
            [load, ..] if !P::RARE => self.load_part::<P, M>(instruction, load, earliest, memory),
            _ => self.load_parts(instruction, accesses, earliest, memory),
        }
    }

    /// The loads of an instruction with any accesses, which issue at `earliest` or later.
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
            loaded = loaded.and(part);
        }
        if crosses {
            self.splits_from = loaded.issued + self.page_split_cycles;
        }
        loaded
    }

    /// One load of an instruction.
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
            // Each line is read by itself.
            issued = self.ports.reserve_load(issued, is_wide);
        } else if self.banks.is_some() {
            issued = self.in_bank(load, issued, is_wide);
        }
        if splits && self.line_split_cycles > 0 {
            self.splits_from = issued + self.line_split_cycles;
        }
        self.common.retirement.counts.loads += 1;
        let how = if P::RARE { AccessMode::load_of(instruction.special) } else { AccessMode::Load };
        let wait = memory.access(load, how, issued);
        // The copy with all parts takes no shortcut: tests compare the others with it.
        if !P::RARE
            && wait == 0
            && self.alias == 0
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

    /// The time at which a load starts whose unit is reserved at `issued`: a later cycle if its bank is taken.
    /// The slot of the earlier cycle is lost.
    #[inline(never)]
    fn in_bank(&mut self, load: &Access, issued: Cycle, wide: bool) -> Cycle {
        let Some(banks) = &mut self.banks else { return issued };
        let mut issued = issued;
        while !banks.take(load, issued) {
            issued = self.ports.reserve_load(issued.next(), wide);
        }
        issued
    }

    /// When the value of a load is ready, and whether it waited for a line. It issues at `issued`, and memory delays it
    /// by `wait` cycles.
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
                Some(known) => issued.max(known) + self.alias,
                None => issued,
            },
            Source::CacheAfter(left) => issued.max(left + self.forward_fail),
            Source::Renamed(known) => {
                self.common.retirement.counts.forwarded_loads += 1;
                return (known, false);
            }
            Source::Store(known) => {
                self.common.retirement.counts.forwarded_loads += 1;
                let forward = match instruction.loads_vector() {
                    true if load.bytes > 16 => self.forward_wide,
                    true => self.forward_vector,
                    false => self.common.latencies.forward,
                };
                let start = issued.max(known);
                let again = self.tries_again(load, issued);
                return (
                    (start + forward).max(again.map_or(Cycle::START, |retry| retry + forward)),
                    false,
                );
            }
        };
        if load.physical.is_none() {
            // Devices have no lines.
            return (issued + wait + latency, true);
        }
        let present = self.ports.now();
        let address = VirtualAddress(load.virtual_address);
        let served = self.common.fill_buffers.serve(address, start, (wait, parts), present);
        (served.cycle + latency, served.missed)
    }

    /// The time at which a load retries that issued at most a cycle after the address of the store that it
    /// depends on was known. It retries
    /// [`DataModel::forward_again_cycles`](super::DataModel::forward_again_cycles) after its issue. Its value
    /// is ready at least that many cycles after the store's address.
    ///
    /// Measured on a Golden Cove: the result is ready 12 cycles after the issue of the load if the address of
    /// the store comes up to three cycles after it, 13 cycles if it comes after six, and 7 cycles after that
    /// address.
    #[inline(never)]
    fn tries_again(&self, load: &Access, issued: Cycle) -> Option<Cycle> {
        let address = self.common.stores.address_known(load)?;
        let forward = self.common.latencies.forward;
        let after_address = (address + self.forward_again).earlier_by(forward);
        (issued < address + 2).then(|| (issued + self.forward_again).max(after_address))
    }
}
