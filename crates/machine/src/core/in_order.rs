//! The in-order core: it issues one or more instructions per cycle, and stalls at each miss
//! (blocking) or at the first use of missing data (stall on use).

use super::CoreCounts;
use super::fill_buffers::LineFillBuffers;
use super::front_end::{Fetched, FrontEnd};
use super::instruction::Template;
use super::instruction::{Instruction, REGISTERS, Special, UNITS, Unit, register_index};
use super::model::CoreModel;
use super::ports::{Cycle, Limits};
use super::retirement::{Retirement, StallCauses};
use super::store_buffer::{Known, Source, StoreBuffer};
use super::{Access, Memory};
use super::{Accesses, ExecutedBlock, Latencies, load_as, wait_parts};

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
    blocking: bool,
    latencies: Latencies,
    front: FrontEnd,
    limits: Limits,
    /// The operations that have issued in the current cycle.
    cycle: Cycle,
    /// When units that operations occupy for several cycles are free.
    free: [u64; UNITS],
    intervals: [u64; UNITS],
    stores: StoreBuffer,
    fill_buffers: LineFillBuffers,
    ready: Box<[ReadyTime; REGISTERS]>,
    /// Nothing issues before.
    earliest: ReadyTime,
    loads_from: u64,
    /// The time at which all issued instructions are done.
    all_done: ReadyTime,
    retirement: Retirement,
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
        Some(InOrderCore {
            blocking: model.data.blocking,
            latencies: Latencies::new(model),
            front: FrontEnd::new(model),
            limits,
            cycle: limits.cycle(0),
            free: [0; UNITS],
            intervals: model.units.all().map(|(_, unit)| unit.interval_cycles.into()),
            stores: StoreBuffer::new(model.data.store_entries, model.units.store.count),
            fill_buffers: LineFillBuffers::new(model.data.mshrs, data_line_bytes),
            ready: Box::new([ReadyTime::default(); REGISTERS]),
            earliest: ReadyTime::default(),
            loads_from: 0,
            all_done: ReadyTime::default(),
            retirement: Retirement::new(model.width),
        })
    }

    /// Executes a block, or the part that the guest executed.
    pub fn run<M: Memory>(&mut self, block: &Template, executed: &ExecutedBlock, memory: &mut M) {
        self.run_from(0, block, executed, memory);
    }

    /// Executes the rest of a block from instruction `first` on, with the same result as if all of
    /// it had executed at once. `executed` counts from the start of the block, and has the accesses
    /// of the rest.
    pub fn run_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        let mut accesses = Accesses::new(executed.accesses);
        let number = block.len().min(executed.instructions as usize);
        let is_complete = number == block.len();
        for (index, instruction) in block.instructions[..number].iter().enumerate().skip(first) {
            let own_accesses = accesses.next(index);
            let (fetched, done) = self.step(block, instruction, own_accesses, memory);
            if let Some(kind) = instruction.branch.filter(|_| is_complete && index + 1 == number) {
                let counts = &mut self.retirement.counts;
                self.front.branch((block, kind), executed.next, (fetched, done), counts);
            }
        }
    }

    /// An interrupt or exception comes after the last instruction.
    pub fn interrupt(&mut self) {
        self.retirement.counts.interrupts += 1;
        let (retired, left) = (self.retirement.cycle(), self.stores.all_left());
        self.front.resume_at(self.latencies.interrupted(retired, left));
        self.front.forget_line();
    }

    /// Delays the first instruction of an interrupt handler by `cycles`: the processor itself reads memory at
    /// the entry. Call it after [`InOrderCore::interrupt`].
    pub fn delay_entry(&mut self, cycles: u64) {
        self.front.delay(cycles);
    }

    /// The code at these physical addresses has changed, or has left all caches. The core drops the decoded
    /// instructions.
    pub fn forget_code(&mut self, physical: std::ops::Range<u64>) {
        self.front.forget_code(physical);
    }

    /// Translations of addresses have changed.
    pub fn flush_translations(&mut self) {
        self.front.forget_line();
    }

    /// Cycles until the last instruction has issued, and its misses if the core is blocking.
    #[must_use]
    #[inline]
    pub fn cycles(&self) -> u64 {
        self.retirement.cycle()
    }

    #[must_use]
    pub fn counts(&self) -> CoreCounts {
        self.retirement.counts()
    }

    /// Gives an instruction its times. Returns when it is fetched and when it is done.
    fn step<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> (u64, u64) {
        let fetched = self.front.fetch(block, instruction, memory, &mut self.retirement.counts);
        let waits_for = self.operands(instruction);
        let issued = self.start_block(instruction, fetched, waits_for);
        self.front.entered(issued);
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
            self.wait_for(issued, loaded, stored);
        }
        self.finish_special(instruction.special, issued, done.cycle());
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
            let (cycle, missed) = self.stores.next_entry();
            until = until.max(ReadyTime::new(cycle, missed));
        }
        if instruction.special.orders_memory() || instruction.special.drains_stores() {
            until = until.at_least(self.stores.all_left());
        }
        if instruction.loads() {
            until = until.at_least(self.loads_from);
        }
        until
    }

    /// Issues an instruction in the first cycle with all its units free, at the earliest in the cycle
    /// of the previous instruction.
    fn start_block(
        &mut self,
        instruction: &Instruction,
        fetched: Fetched,
        waits_for: ReadyTime,
    ) -> u64 {
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
        self.retirement.retire(issued + 1, waits);
    }

    fn load<M: Memory>(
        &mut self,
        (special, accesses): (Special, &[Access]),
        issued: u64,
        memory: &mut M,
    ) -> ReadyTime {
        let mut loaded = ReadyTime::new(issued, false);
        let latency = self.latencies.of_unit(Unit::Load);
        for load in accesses.iter().filter(|access| !access.write) {
            self.retirement.counts.loads += 1;
            let wait = load_as(special, load, issued, memory);
            let parts = wait_parts(memory, wait);
            let start = match self.stores.source(load, 0, issued) {
                Source::Cache => issued,
                Source::CacheAfter(left) => issued.max(left),
                Source::Store(known) | Source::Renamed(known) => {
                    self.retirement.counts.forwarded_loads += 1;
                    let cycle = issued.max(known) + self.latencies.forward;
                    loaded = loaded.max(ReadyTime::new(cycle, false));
                    continue;
                }
            };
            let served =
                self.fill_buffers.serve(load.virtual_address, start, (wait, parts), issued);
            self.retirement.counts.load_misses += u64::from(served.missed);
            let until = ReadyTime::new(served.cycle + latency, served.missed);
            loaded = loaded.max(until);
        }
        loaded
    }

    /// When the result of an instruction is ready.
    fn execute(&self, instruction: &Instruction, issued: u64, loaded: ReadyTime) -> ReadyTime {
        let latency = instruction.unit.map_or(0, |_| self.latencies.executed(instruction));
        let latency = latency + self.latencies.executing(instruction.special);
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
            let wait = memory.store(store, issued);
            let parts = wait_parts(memory, wait);
            let served =
                self.fill_buffers.serve(store.virtual_address, issued, (wait, parts), issued);
            self.retirement.counts.stores += 1;
            self.retirement.counts.store_misses += u64::from(served.missed);
            filled = filled.max(ReadyTime::new(served.cycle, served.missed));
        }
        let leaves = self.stores.leave(known.max(filled.cycle()), filled.missed());
        for store in accesses.iter().filter(|access| access.write) {
            self.stores.remember(store, 0, Known { value: known, address: known }, leaves);
        }
        filled
    }

    /// A blocking core does nothing until its misses are filled.
    fn wait_for(&mut self, issued: u64, loaded: ReadyTime, stored: ReadyTime) {
        let line = loaded.cycle().saturating_sub(self.latencies.of_unit(Unit::Load));
        let waited = if loaded.missed() { line.saturating_sub(issued) } else { 0 };
        let waited = waited + if stored.missed() { stored.cycle() - issued } else { 0 };
        if waited > 0 {
            let cycle = issued + 1 + waited;
            self.earliest = self.earliest.max(ReadyTime::new(cycle, true));
            self.front.resume_at(cycle);
            self.retirement.wait_for_data(cycle);
        }
    }

    fn finish_special(&mut self, special: Special, issued: u64, done: u64) {
        if special.drains() {
            self.front.resume_at(done);
        }
        if special.stops_fetch() {
            self.front.resume_at(issued + self.latencies.special(special));
        }
        if special.orders_memory() {
            self.loads_from = self.loads_from.max(done);
        }
    }
}
