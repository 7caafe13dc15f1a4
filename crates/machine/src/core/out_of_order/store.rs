//! When the stores of an instruction issue, when the instruction retires, and when its stores leave for the cache: a
//! stage of the timing rule in `step`.

use super::OutOfOrderCore;
use super::parts::{AllParts, Parts};
use crate::core::instruction::{Instruction, Special, Unit};
use crate::core::retirement::{CycleRange, StallCauses};
use crate::core::store_buffer::{Known, crosses_pages, next_access};
use crate::core::{Access, AccessMode, Memory};
use crate::cycle::Cycle;

/// When the address and the value of a store are known.
pub(super) struct StoreTimes {
    pub(super) address: Cycle,
    pub(super) value: Cycle,
}

impl OutOfOrderCore {
    /// Issues the stores of an instruction, and retires the instruction. Returns when it retires.
    #[inline(always)]
    pub(super) fn store<P: Parts, M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        times: StoreTimes,
        waits: impl Fn() -> StallCauses,
        memory: &mut M,
    ) -> Cycle {
        let StoreTimes { address, value: executed } = times;
        let issued = self.ports.reserve(address, Unit::Store);
        self.addresses_known = self.addresses_known.max(issued);
        let filled = match accesses {
            [.., store] if !P::RARE => self.store_part::<P, M>(instruction, store, issued, memory),
            _ => self.store_parts(instruction, accesses, issued, memory),
        };
        let done = executed.max(issued + self.common.latencies.of_unit(Unit::Store));
        let retired = if self.stores_hold_retirement && filled > done {
            self.retire_held(issued, filled, &waits())
        } else {
            self.common.retirement.retire(done, waits)
        };
        let known = Known { value: executed, address: issued };
        let (earliest, missed) = (retired.max(filled), filled > issued);
        match accesses {
            [.., store] if !P::RARE => {
                let earliest =
                    self.common.stores.after_vectors(earliest, instruction.stores_vector());
                let leaves = self.common.stores.leave_alone(store, earliest, missed);
                self.common.stores.remember(store, instruction.address_form, known, leaves);
            }
            _ => self.leave_parts(instruction, accesses, (earliest, missed), known),
        }
        retired
    }

    /// Lets the stores of an instruction with any effects and accesses leave for the cache, not before `earliest`.
    #[inline(never)]
    fn leave_parts(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        (mut earliest, missed): (Cycle, bool),
        known: Known,
    ) {
        let special = instruction.special;
        if special == Special::FlushLine {
            // A flush leaves when its line is written back. Everything that is ordered after stores waits.
            earliest += self.common.latencies.special(special);
        }
        if self.page_split_store_cycles > 0 && accesses.len() > 1 && crosses_pages(accesses, true) {
            earliest = earliest.max(self.common.stores.all_left()) + self.page_split_store_cycles;
        }
        earliest = self.common.stores.after_vectors(earliest, instruction.stores_vector());
        if special == Special::StoreFence {
            earliest = earliest.max(self.common.stores.all_left())
                + self.common.latencies.special(special);
        }
        let leaves =
            self.common.stores.leave_by_line(accesses, self.access_bytes, earliest, missed);
        let mut remaining = accesses;
        while let Some(store) = next_access(&mut remaining, true, self.access_bytes) {
            self.common.stores.remember(&store, instruction.address_form, known, leaves);
        }
    }

    /// Retires an instruction whose store was issued at `issued`, only when the store's line is filled. The wait is
    /// charged to data.
    #[inline(never)]
    fn retire_held(&mut self, issued: Cycle, filled: Cycle, waits: &StallCauses) -> Cycle {
        let start = issued.max(self.ports.now().next());
        let start = if waits.load_data.is_set() { waits.load_data.start } else { start };
        let load_data = CycleRange::new(start, filled);
        self.common.retirement.retire(filled, || StallCauses { load_data, ..*waits })
    }

    /// Executes the stores of an instruction, which issue at `issued`. Returns when all their lines have arrived.
    #[inline(never)]
    fn store_parts<M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        issued: Cycle,
        memory: &mut M,
    ) -> Cycle {
        let mut filled = issued;
        let mut remaining = accesses;
        while let Some(store) = next_access(&mut remaining, true, self.access_bytes) {
            let part = self.store_part::<AllParts, M>(instruction, &store, issued, memory);
            filled = filled.max(part);
        }
        filled
    }

    /// Executes a store that issues at `issued`. Returns when its line has arrived, at the earliest `issued`.
    #[inline(always)]
    fn store_part<P: Parts, M: Memory>(
        &mut self,
        instruction: &Instruction,
        store: &Access,
        issued: Cycle,
        memory: &mut M,
    ) -> Cycle {
        if P::RARE && instruction.streams() {
            // A combining buffer takes the store, and memory says how long that takes. No line is filled.
            self.common.retirement.counts.stores += 1;
            return issued + memory.access(store, AccessMode::StoreAround, issued);
        }
        issued.max(self.common.store(store, issued, self.ports.now(), memory).cycle)
    }
}
