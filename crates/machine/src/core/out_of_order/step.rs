//! The timing rule of an instruction: fetch, entry into the reorder buffer, issue, completion, retirement. The compiler
//! makes a copy of [`OutOfOrderCore::step`] for each [`Parts`]. It runs for each instruction of a guest: a condition of
//! `P` in front of rare work keeps that work out of the fast copies.

use super::OutOfOrderCore;
use super::load::LoadTimes;
use super::parts::Parts;
use super::store::StoreTimes;
use crate::core::front_end::{Fetched, InstructionTimes};
use crate::core::instruction::{Instruction, REGISTERS, Special, Template, register_index};
use crate::core::retirement::{CycleRange, StallCauses};
use crate::core::{Access, LATENCIES, Memory};
use crate::cycle::Cycle;

/// The ready times of the registers that an instruction reads.
#[derive(Clone, Copy)]
struct OperandTimes {
    /// When the registers that form its addresses are ready.
    address: Cycle,
    /// When all other registers that it reads are ready.
    operands: Cycle,
}

impl OutOfOrderCore {
    /// Gives an instruction its times: this is the timing rule.
    #[inline(always)]
    pub(super) fn step<P: Parts, M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> InstructionTimes {
        let loads = P::ACCESSES && instruction.loads();
        let stores = P::ACCESSES && instruction.stores();
        let fetched = if instruction.starts() {
            self.fetch_first(block, instruction, memory)
        } else {
            Fetched { cycle: self.common.front.fetch_next(instruction), wait: CycleRange::EMPTY }
        };
        let (entered, full) = self.enter::<P>(instruction, fetched.cycle);
        self.common.front.entered(entered);
        let OperandTimes { address, operands } = self.operands::<P>(instruction, entered);
        let loaded = if loads {
            self.load::<P, M>(instruction, accesses, address, memory)
        } else {
            LoadTimes { issued: operands, cycle: entered, wait: CycleRange::EMPTY }
        };
        let special_latency = if P::RARE {
            self.common.latencies.extra_latency_with(instruction.special, accesses)
        } else {
            0
        };
        let executed =
            self.execute::<P>(instruction, (entered, operands), &loaded, special_latency);
        let waits = || StallCauses {
            fetch: fetched.wait,
            store_buffer_full: full,
            load_data: loaded.wait,
            shared: CycleRange::EMPTY,
        };
        let retired = if stores {
            let known = StoreTimes { address, value: executed };
            self.store::<P, M>(instruction, accesses, known, waits, memory)
        } else if !P::ACCESSES && !fetched.wait.is_set() {
            self.common.retirement.retire_unhindered(executed)
        } else {
            self.common.retirement.retire(executed, waits)
        };
        self.reorder.push(retired);
        if loads {
            self.loads.push(retired);
        }
        self.write_results::<P>(instruction, executed, address.next());
        if P::RARE && instruction.special != Special::None {
            self.common.finish_special(instruction.special, entered, executed.max(retired));
        }
        InstructionTimes { fetched: fetched.cycle, done: executed }
    }

    /// Fetches an instruction that starts a line. Not inlined, because few instructions do.
    #[inline(never)]
    fn fetch_first<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        memory: &mut M,
    ) -> Fetched {
        self.common.fetch_start(block, instruction, memory)
    }

    /// When an instruction enters the reorder buffer, and the cycles while it waited for a store buffer full of
    /// stores that missed. It enters when all entries that it needs are free, and then takes a slot of the width.
    #[inline(always)]
    fn enter<P: Parts>(
        &mut self,
        instruction: &Instruction,
        fetched: Cycle,
    ) -> (Cycle, CycleRange) {
        let mut earliest = fetched.max(self.reorder.oldest());
        let mut full = CycleRange::EMPTY;
        if P::ACCESSES && instruction.loads() {
            earliest = earliest.max(self.loads.oldest());
        }
        if P::ACCESSES && instruction.stores() {
            let entry = self.common.stores.next_entry();
            let free = entry.cycle();
            if entry.missed() && free > earliest {
                full = CycleRange::new(earliest.next(), free.next());
            }
            earliest = earliest.max(free);
        }
        if !self.unresolved.is_empty() && instruction.branch.is_some() {
            earliest = earliest.max(self.next_resolved());
        }
        if P::RARE && instruction.special.drains() {
            earliest = earliest.max(self.common.retirement.cycle());
            if instruction.special.drains_stores() {
                earliest = earliest.max(self.common.stores.all_left());
            }
        }
        let mut entered = self.entering.take(earliest);
        self.ports.advance(entered);
        if self.ports.is_full(instruction.unit) {
            entered = self.entering.take(self.ports.until_room(instruction.unit));
        }
        (entered, full)
    }

    /// When another branch may enter: when the first of the unresolved branches is resolved.
    #[inline(never)]
    fn next_resolved(&self) -> Cycle {
        self.unresolved.iter().copied().min().unwrap_or(Cycle::START)
    }

    /// When the address of an instruction is known, and when its operands are ready: not before its entry at `entered`.
    #[inline(always)]
    fn operands<P: Parts>(&self, instruction: &Instruction, entered: Cycle) -> OperandTimes {
        // A shortcut, which the copy with all parts does not take: tests compare the other copies with it.
        if P::RARE || instruction.has_many() {
            return self.all_operands(instruction, entered);
        }
        let both_ready = |ready: &[Cycle; REGISTERS], [first, second]: [u8; 2]| {
            ready[register_index(first)].max(ready[register_index(second)])
        };
        let [addresses, reads, _] = instruction.first_registers();
        let operands = entered.max(both_ready(&self.ready, reads));
        let address =
            if P::ACCESSES { entered.max(both_ready(&self.ready, addresses)) } else { entered };
        OperandTimes { address, operands }
    }

    /// [`OutOfOrderCore::operands`] for an instruction with any number of registers.
    #[inline(never)]
    fn all_operands(&self, instruction: &Instruction, entered: Cycle) -> OperandTimes {
        let ready = |registers: &[u8]| {
            let times = registers.iter().map(|register| self.ready[register_index(*register)]);
            times.fold(entered, Cycle::max)
        };
        OperandTimes { address: ready(&instruction.addresses), operands: ready(&instruction.reads) }
    }

    /// Issues the operation of an instruction. Returns when its result is ready. `operands` and `loaded`: when its
    /// operands and its loaded values are ready. `special_latency`: extra cycles of a special instruction.
    #[inline(always)]
    fn execute<P: Parts>(
        &mut self,
        instruction: &Instruction,
        (entered, mut operands): (Cycle, Cycle),
        loaded: &LoadTimes,
        special_latency: u64,
    ) -> Cycle {
        let special = instruction.special;
        let Some(unit) = instruction.unit else {
            // Only a load or store, or an instruction without a unit. If it is plain, renaming executes it, and it
            // takes no entry of the scheduler.
            if P::ACCESSES && !instruction.is_plain() {
                self.ports.wait_until(loaded.issued, None);
            }
            let mut ready = operands.max(loaded.cycle);
            if P::RARE && special == Special::Barrier {
                ready = ready.max(self.common.stores.all_left()).max(self.common.loads_from);
            }
            return ready.max(entered.next()) + special_latency;
        };
        if P::FORWARDING
            && let Some(forwarding) = &self.forwarding
        {
            operands = forwarding.operands(instruction, &self.ready, entered, operands);
        }
        let mut earliest = operands.max(loaded.cycle);
        if P::RARE && special.orders_memory() {
            earliest = earliest.max(self.common.stores.all_left());
        }
        let interval = if P::RARE { self.single_interval(instruction) } else { None };
        let issued = match interval {
            Some(interval) => self.ports.reserve_for(earliest, unit, interval),
            None => self.ports.reserve(earliest, unit),
        };
        self.ports.wait_until(issued, Some(unit));
        let executed = issued + self.common.latencies.of_instruction(instruction) + special_latency;
        match &mut self.forwarding {
            Some(forwarding) if P::FORWARDING => {
                forwarding.result(instruction, &self.ready, executed)
            }
            _ => executed,
        }
    }

    /// Cycles that an instruction occupies its unit. `None`: the interval of the unit.
    fn single_interval(&self, instruction: &Instruction) -> Option<u32> {
        self.operation_intervals[usize::from(instruction.latency) % LATENCIES]
    }

    /// Sets the ready time of an instruction's results to `executed`, and of the registers that it changes as a
    /// side effect to `moved`.
    #[inline(always)]
    fn write_results<P: Parts>(
        &mut self,
        instruction: &Instruction,
        executed: Cycle,
        moved: Cycle,
    ) {
        if !P::RARE {
            let [_, _, writes] = instruction.first_registers();
            for register in writes {
                self.ready[register_index(register)] = executed;
            }
        }
        if P::RARE || instruction.has_many() {
            self.write_all(instruction, executed, moved);
        }
        if P::FORWARDING && instruction.unit.is_none() {
            self.written_without_unit(instruction, executed);
        }
    }

    /// [`OutOfOrderCore::write_results`] for an instruction with any number of registers.
    #[inline(never)]
    fn write_all(&mut self, instruction: &Instruction, executed: Cycle, moved: Cycle) {
        for register in instruction.writes {
            self.ready[register_index(register)] = executed;
        }
        for register in instruction.moves {
            self.ready[register_index(register)] = moved;
        }
    }

    /// Notes that renaming or a load has written registers. Renaming may have added a constant.
    #[inline(never)]
    fn written_without_unit(&mut self, instruction: &Instruction, executed: Cycle) {
        let Some(forwarding) = &mut self.forwarding else { return };
        forwarding.overwritten(instruction);
        if instruction.adds_constant() {
            forwarding.constant_added(instruction, &mut self.ready, executed);
        }
    }
}
