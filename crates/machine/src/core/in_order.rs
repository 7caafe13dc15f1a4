//! The in-order core: it issues one or more instructions per cycle, and stalls at each miss
//! (blocking) or at the first use of missing data (stall on use).

use super::front_end::Fetched;
use super::instruction::{Instruction, REGISTERS, Special, Template, UNITS, Unit, register_index};
use super::model::CoreModel;
use super::ports::{Cycle, Limits};
use super::retirement::StallCauses;
use super::single_thread::{CommonParts, SingleThreadCore};
use super::store_buffer::{Known, Source, StoreBuffer};
use super::{Access, AccessMode, Accesses, ExecutedBlock, Memory, wait_parts};

/// When a value is ready, and whether it waits for a miss: in one number, which orders by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadyTime(u64);

impl ReadyTime {
    #[inline]
    pub(super) fn new(cycle: u64, missed: bool) -> ReadyTime {
        ReadyTime(cycle << 1 | u64::from(missed))
    }

    #[inline]
    pub(super) fn cycle(self) -> u64 {
        self.0 >> 1
    }

    #[inline]
    pub(super) fn missed(self) -> bool {
        self.0 & 1 == 1
    }

    /// The later of both; the reason stays.
    #[inline]
    pub(super) fn at_least(self, cycle: u64) -> ReadyTime {
        self.max(ReadyTime::new(cycle.max(self.cycle()), self.missed()))
    }

    #[inline]
    pub(super) fn latest_of(registers: &[u8], ready: &[ReadyTime; REGISTERS]) -> ReadyTime {
        let times = registers.iter().map(|register| ready[register_index(*register)]);
        times.fold(ReadyTime::default(), ReadyTime::max)
    }
}

/// An in-order core. An instruction issues in the cycle of its predecessor or later, and gives its issue slot
/// back in that cycle. A late result delays only the instructions that need it.
#[derive(Clone, Debug)]
pub struct InOrderCore {
    common: CommonParts,
    /// Whether it stalls at each miss. Otherwise it stalls at the first use of missing data.
    blocking: bool,
    limits: Limits,
    /// The operations that have issued in the current cycle.
    cycle: Cycle,
    /// When units that operations occupy for several cycles are free.
    free: [u64; UNITS],
    intervals: [u64; UNITS],
    ready: Box<[ReadyTime; REGISTERS]>,
    /// Nothing issues before this time.
    earliest: ReadyTime,
    /// The time at which all issued instructions are done.
    all_done: ReadyTime,
}

impl InOrderCore {
    /// Returns a core that has executed nothing, of a model that [`CoreModel::check`] has accepted,
    /// or none if the model executes out of order or has threads. `data_line_bytes` is the line
    /// size of its L1D, a power of two.
    #[must_use]
    pub fn new(model: &CoreModel, data_line_bytes: u64) -> Option<InOrderCore> {
        if model.window.is_some() || model.threads.is_some() {
            return None;
        }
        let limits = Limits::new(model, model.width.min(model.issue_width));
        let stores = StoreBuffer::new(model.data.store_entries, model.units.store.count);
        Some(InOrderCore {
            common: CommonParts::new(model, data_line_bytes, stores),
            blocking: model.data.blocking,
            limits,
            cycle: limits.cycle(0),
            free: [0; UNITS],
            intervals: model.units.all().map(|(_, unit)| unit.interval_cycles.into()),
            ready: Box::new([ReadyTime::default(); REGISTERS]),
            earliest: ReadyTime::default(),
            all_done: ReadyTime::default(),
        })
    }

    /// Gives an instruction its times. Returns when it is fetched and when it is done.
    fn step<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> (u64, u64) {
        let fetched = self.common.fetch(block, instruction, memory);
        let waits_for = self.operands(instruction);
        let issued = self.issue(instruction, fetched, waits_for);
        self.common.front.entered(issued);
        self.retire(fetched, waits_for, issued);
        let loaded = self.load((instruction.special, accesses), issued, memory);
        let done = self.execute(instruction, issued, loaded);
        let stored = self.store(instruction, accesses, (issued, done.cycle()), memory);
        for register in instruction.writes {
            self.ready[register_index(register)] = done;
        }
        for register in instruction.moves {
            self.ready[register_index(register)] = ReadyTime::new(issued + 1, false);
        }
        self.all_done = self.all_done.max(done);
        if self.blocking {
            self.stall_until_filled(issued, loaded, stored);
        }
        self.common.finish_special(instruction.special, issued, done.cycle());
        (fetched.cycle, done.cycle())
    }

    /// The time at which all operands of an instruction are ready.
    fn operands(&self, instruction: &Instruction) -> ReadyTime {
        let addresses = ReadyTime::latest_of(&instruction.addresses, &self.ready);
        let mut until =
            ReadyTime::latest_of(&instruction.reads, &self.ready).max(addresses).max(self.earliest);
        if instruction.special.drains() {
            until = until.max(self.all_done);
        }
        if instruction.stores() {
            let (cycle, missed) = self.common.stores.next_entry();
            until = until.max(ReadyTime::new(cycle, missed));
        }
        if instruction.special.orders_memory() || instruction.special.drains_stores() {
            until = until.at_least(self.common.stores.all_left());
        }
        if instruction.loads() {
            until = until.at_least(self.common.loads_from);
        }
        until
    }

    /// Issues an instruction in the first cycle with all its units free, at the earliest in the cycle
    /// of the previous instruction.
    fn issue(&mut self, instruction: &Instruction, fetched: Fetched, waits_for: ReadyTime) -> u64 {
        let mut earliest = fetched.cycle.max(waits_for.cycle());
        if let Some(unit) = instruction.unit {
            earliest = earliest.max(self.free[unit as usize]);
        }
        let load = instruction.loads().then_some(Unit::Load);
        let store = instruction.stores().then_some(Unit::Store);
        let units = [load, instruction.unit, store];
        if earliest > self.cycle.cycle {
            self.cycle = self.limits.cycle(earliest);
        }
        while !self.cycle.try_issue(units) {
            self.cycle = self.limits.cycle(self.cycle.cycle + 1);
        }
        let issued = self.cycle.cycle;
        if let Some(unit) = instruction.unit.filter(|unit| self.intervals[*unit as usize] > 1) {
            self.free[unit as usize] = issued + self.intervals[unit as usize];
        }
        issued
    }

    fn retire(&mut self, fetched: Fetched, waits_for: ReadyTime, issued: u64) {
        // An instruction frees its slot at the end of the cycle of its issue.
        let until = waits_for.cycle() + 1;
        let data = if waits_for.missed() { (0, until) } else { (0, 0) };
        // Where it waits for both, the slots are charged to data.
        let fetch = (fetched.wait.0.max(data.1), fetched.wait.1);
        let waits = || StallCauses { fetch, data, ..StallCauses::default() };
        self.common.retirement.retire(issued + 1, waits);
    }

    /// Returns the cycle at which all loaded data of an instruction is ready, and whether the last of it waits for a miss.
    /// Without loads, that is `issued`. Counts the loads. Each load accesses `memory`, also one that gets its data from a store.
    /// A time from the cache includes the load latency; [`Self::stall_until_filled`] subtracts it.
    fn load<M: Memory>(
        &mut self,
        (special, accesses): (Special, &[Access]),
        issued: u64,
        memory: &mut M,
    ) -> ReadyTime {
        let mut loaded = ReadyTime::new(issued, false);
        let latency = self.common.latencies.of_unit(Unit::Load);
        for load in accesses.iter().filter(|access| !access.write) {
            self.common.retirement.counts.loads += 1;
            let wait = memory.access(load, AccessMode::load_of(special), issued);
            let parts = wait_parts(memory, wait);
            let start = match self.common.stores.source(load, 0, issued) {
                Source::Cache => issued,
                Source::CacheAfter(left) => issued.max(left),
                Source::Store(known) | Source::Renamed(known) => {
                    self.common.retirement.counts.forwarded_loads += 1;
                    let cycle = issued.max(known) + self.common.latencies.forward;
                    loaded = loaded.max(ReadyTime::new(cycle, false));
                    continue;
                }
            };
            let served =
                self.common.fill_buffers.serve(load.virtual_address, start, (wait, parts), issued);
            self.common.retirement.counts.load_misses += u64::from(served.missed);
            let until = ReadyTime::new(served.cycle + latency, served.missed);
            loaded = loaded.max(until);
        }
        loaded
    }

    /// When the result of an instruction is ready.
    fn execute(&self, instruction: &Instruction, issued: u64, loaded: ReadyTime) -> ReadyTime {
        let latency = instruction.unit.map_or(0, |_| self.common.latencies.executed(instruction));
        let latency = latency + self.common.latencies.executing(instruction.special);
        let earliest = issued + 1;
        ReadyTime::new((loaded.cycle() + latency).max(earliest), loaded.missed())
    }

    /// Moves the stores of an instruction to the store buffer. Returns when their lines are filled.
    fn store<M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        (issued, known): (u64, u64),
        memory: &mut M,
    ) -> ReadyTime {
        let mut filled = ReadyTime::new(issued, false);
        if !instruction.stores() {
            return filled;
        }
        for store in accesses.iter().filter(|access| access.write) {
            let served = self.common.store(store, issued, issued, memory);
            filled = filled.max(ReadyTime::new(served.cycle, served.missed));
        }
        let leaves = self.common.stores.leave(known.max(filled.cycle()), filled.missed());
        for store in accesses.iter().filter(|access| access.write) {
            self.common.stores.remember(store, 0, Known { value: known, address: known }, leaves);
        }
        filled
    }

    /// Stalls issue, fetch and retirement of a blocking core until the misses of the instruction that issued at
    /// `issued` are filled: first those of its loads, then those of its stores.
    fn stall_until_filled(&mut self, issued: u64, loaded: ReadyTime, stored: ReadyTime) {
        let line_filled = loaded.cycle().saturating_sub(self.common.latencies.of_unit(Unit::Load));
        let for_loads = if loaded.missed() { line_filled.saturating_sub(issued) } else { 0 };
        let for_stores = if stored.missed() { stored.cycle() - issued } else { 0 };
        let waited = for_loads + for_stores;
        if waited > 0 {
            let cycle = issued + 1 + waited;
            self.earliest = self.earliest.max(ReadyTime::new(cycle, true));
            self.common.front.resume_at(cycle);
            self.common.retirement.wait_for_data(cycle);
        }
    }
}

impl SingleThreadCore for InOrderCore {
    fn run_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        let (instructions, branch) = block.executed_from(first, executed);
        let mut accesses = Accesses::new(executed.accesses);
        let mut times = (0, 0);
        for (index, instruction) in (first..).zip(instructions) {
            times = self.step(block, instruction, accesses.next(index), memory);
        }
        if branch.is_some() {
            self.common.branch(block, executed.next, times);
        }
    }

    #[inline(always)]
    fn common(&self) -> &CommonParts {
        &self.common
    }

    #[inline(always)]
    fn common_mut(&mut self) -> &mut CommonParts {
        &mut self.common
    }
}
