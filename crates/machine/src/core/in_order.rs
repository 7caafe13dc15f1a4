//! The in-order core: it issues one or more instructions per cycle, and stalls at each miss
//! (blocking) or at the first use of missing data (stall on use). Used through
//! [`AnyCore`](super::AnyCore). Each instruction gets all its times when it comes, in program order.

use super::front_end::{Fetched, InstructionTimes};
use super::instruction::{
    Instruction, REGISTERS, Register, Special, Template, UNITS, Unit, register_index,
};
use super::model::CoreModel;
use super::ports::{IssueCycle, Limits};
use super::ready_time::ReadyTime;
use super::retirement::{CycleRange, StallCauses};
use super::single_thread::{CommonParts, SingleThreadCore};
use super::stages::EntryQueue;
use super::store_buffer::{Known, Source, StoreBuffer};
use super::{Access, AccessMode, Accesses, ExecutedBlock, Memory, wait_parts};
use crate::cycle::Cycle;

/// An in-order core. An instruction issues in the cycle of its predecessor or later, and retires in the next cycle,
/// before its result is ready. A late result delays only the instructions that need it.
#[derive(Clone, Debug)]
pub struct InOrderCore {
    common: CommonParts,
    /// Whether the core stalls at each miss. Otherwise it stalls at the first use of missing data.
    is_blocking: bool,
    limits: Limits,
    /// The current cycle, and the operations that have issued in it.
    cycle: IssueCycle,
    /// For each kind of unit that operations occupy for several cycles, when it is free.
    free: [Cycle; UNITS],
    interval_cycles: [u64; UNITS],
    /// When the value of each register is ready.
    ready: Box<[ReadyTime; REGISTERS]>,
    /// Nothing issues before this time.
    earliest: ReadyTime,
    /// The time at which all issued instructions are done.
    all_done: ReadyTime,
    /// When the data of all issued loads has arrived.
    all_loaded: ReadyTime,
    /// The entries of the load queue. Loads leave it in program order, when their data has arrived.
    loads: EntryQueue<ReadyTime>,
}

/// The results of an instruction's loads.
#[derive(Clone, Copy)]
struct Loaded {
    /// When all loaded data is ready, and whether the last data waited for a miss. The issue, without loads.
    data: ReadyTime,
    /// When the last line that a load missed is filled. The issue, without misses.
    lines_filled: Cycle,
    /// When the last load that waited for a fill buffer got one. The issue, if no load waited.
    buffer_free: Cycle,
}

/// The times that an instruction's stores depend on.
struct IssuedStore {
    issued: Cycle,
    /// When the last line that a load of the instruction missed is filled. The issue, without misses.
    loads_filled: Cycle,
    /// When the stored value is known.
    known: Cycle,
}

impl InOrderCore {
    /// Returns a core that has executed nothing, of a model that [`CoreModel::check`] has accepted. `None` if the model
    /// executes out of order or has threads. `data_line_bytes` is the line size of its L1D, a power of two.
    #[must_use]
    pub fn new(model: &CoreModel, data_line_bytes: u64) -> Option<InOrderCore> {
        if model.window.is_some() || model.threads.is_some() {
            return None;
        }
        let limits = Limits::new(model, model.issue_width());
        let stores = StoreBuffer::new(model.data.store_entries, model.units.store.count);
        Some(InOrderCore {
            common: CommonParts::new(model, data_line_bytes, stores),
            is_blocking: model.data.blocking,
            limits,
            cycle: limits.cycle(Cycle::START),
            free: [Cycle::START; UNITS],
            interval_cycles: model.units.named_units().map(|(_, unit)| unit.interval_cycles.into()),
            ready: Box::new([ReadyTime::default(); REGISTERS]),
            earliest: ReadyTime::default(),
            all_done: ReadyTime::default(),
            all_loaded: ReadyTime::default(),
            loads: EntryQueue::new(model.data.load_entries.unwrap_or(1)),
        })
    }

    /// Gives an instruction its times.
    fn step<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> InstructionTimes {
        let fetched = self.common.fetch(block, instruction, memory);
        let waits_for = self.operands(instruction);
        let issued = self.issue(instruction, fetched, waits_for);
        self.common.front.entered(issued);
        self.retire(fetched, waits_for, issued);
        let loaded = self.load((instruction.special, accesses), issued, memory);
        let operation_start = self.operation_start(instruction, issued, loaded.data);
        let done = self.execute((instruction, accesses), (issued, operation_start), loaded.data);
        let loads_filled = loaded.lines_filled;
        let issued_store = IssuedStore { issued, loads_filled, known: done.cycle() };
        let lines_filled = self.store(instruction, accesses, &issued_store, memory);
        for register in instruction.writes {
            self.ready[register_index(register)] = done;
        }
        for register in instruction.moves {
            self.ready[register_index(register)] = ReadyTime::without_miss(issued.next());
        }
        self.all_done = self.all_done.max(done);
        if instruction.loads() {
            self.all_loaded = self.all_loaded.max(loaded.data);
            self.loads.push(self.all_loaded);
        }
        self.earliest = self.earliest.max(operation_start);
        if self.is_blocking {
            self.stall_until_filled(issued, lines_filled);
        } else if loaded.buffer_free > issued {
            // A load that missed holds the pipeline until a fill buffer takes its line.
            self.earliest = self.earliest.max(ReadyTime::after_miss(loaded.buffer_free));
        }
        if instruction.special == Special::Barrier {
            self.earliest = self.earliest.max(done);
        }
        self.common.finish_special(instruction.special, issued, done.cycle());
        InstructionTimes { fetched: fetched.cycle, done: done.cycle() }
    }

    /// The time at which an instruction may issue: its operands are ready, a load or store has an entry of its queue, and
    /// everything that the instruction is ordered after is done.
    fn operands(&self, instruction: &Instruction) -> ReadyTime {
        let addresses = ReadyTime::latest_of(&instruction.addresses, &self.ready);
        let mut ready =
            ReadyTime::latest_of(&instruction.reads, &self.ready).max(addresses).max(self.earliest);
        if instruction.special.drains() {
            ready = ready.max(self.all_done);
        }
        if instruction.stores() {
            ready = ready.max(self.common.stores.next_entry());
        }
        if instruction.special.orders_memory() {
            // A locked instruction and a barrier also wait for all earlier loads (Intel's manual, volume 3, 8.2.5).
            ready = ready.max(self.all_loaded);
        }
        if instruction.special.orders_memory() || instruction.special.drains_stores() {
            ready = ready.at_least(self.common.stores.all_left());
        }
        if instruction.loads() {
            ready = ready.max(self.loads.oldest()).at_least(self.common.loads_from);
        }
        ready
    }

    /// Issues an instruction in the first cycle with all its units free, at the earliest in the cycle
    /// of the previous instruction.
    fn issue(
        &mut self,
        instruction: &Instruction,
        fetched: Fetched,
        waits_for: ReadyTime,
    ) -> Cycle {
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
            self.cycle = self.limits.cycle(self.cycle.cycle.next());
        }
        let issued = self.cycle.cycle;
        if let Some(unit) = instruction.unit.filter(|unit| self.interval_cycles[*unit as usize] > 1)
        {
            self.free[unit as usize] = issued + self.interval_cycles[unit as usize];
        }
        issued
    }

    /// Retires an instruction in the cycle after its issue, and charges the slots that were lost before.
    fn retire(&mut self, fetched: Fetched, waits_for: ReadyTime, issued: Cycle) {
        let data = CycleRange::new(Cycle::START, waits_for.cycle().next());
        let data = if waits_for.missed() { data } else { CycleRange::EMPTY };
        // Slots are charged to data where the instruction waits for both, because causes must not overlap.
        let fetch = CycleRange::new(fetched.wait.start.max(data.end), fetched.wait.end);
        let waits = || StallCauses { fetch, load_data: data, ..StallCauses::default() };
        self.common.retirement.retire(issued.next(), waits);
    }

    /// When an instruction's next load or store starts. A blocking core first waits until the lines that the
    /// instruction's earlier accesses missed are filled, at `lines_filled`.
    fn access_start(&self, issued: Cycle, lines_filled: Cycle) -> Cycle {
        if self.is_blocking { lines_filled } else { issued }
    }

    /// Executes and counts the loads of an instruction. Each load accesses `memory`, even if a store forwards its data.
    fn load<M: Memory>(
        &mut self,
        (special, accesses): (Special, &[Access]),
        issued: Cycle,
        memory: &mut M,
    ) -> Loaded {
        let mut loaded = Loaded {
            data: ReadyTime::without_miss(issued),
            lines_filled: issued,
            buffer_free: issued,
        };
        let latency = self.common.latencies.of_unit(Unit::Load);
        for load in accesses.iter().filter(|access| !access.write) {
            self.common.retirement.counts.loads += 1;
            let access_start = self.access_start(issued, loaded.lines_filled);
            let wait = memory.access(load, AccessMode::load_of(special), access_start);
            let parts = wait_parts(memory, wait);
            let start = match self.common.stores.source(load, 0, access_start) {
                Source::Cache => access_start,
                Source::CacheAfter(left) => access_start.max(left),
                Source::Store(known) | Source::Renamed(known) => {
                    self.common.retirement.counts.forwarded_loads += 1;
                    let cycle = access_start.max(known) + self.common.latencies.forward;
                    loaded.data = loaded.data.max(ReadyTime::without_miss(cycle));
                    continue;
                }
            };
            let fill_buffers = &mut self.common.fill_buffers;
            let times = (access_start, start);
            let served = fill_buffers.serve_delayed(load, times, (wait, parts), issued);
            self.common.retirement.counts.load_misses += u64::from(served.missed);
            loaded.data = loaded.data.max(ReadyTime::new(served.cycle + latency, served.missed));
            loaded.buffer_free = loaded.buffer_free.max(served.buffer_free);
            if served.missed {
                loaded.lines_filled = loaded.lines_filled.max(served.cycle);
            }
        }
        loaded
    }

    /// When an instruction starts to use its `loaded` data: in its unit, or as the value that it stores. The issue, if
    /// the instruction only loads or loads nothing. No later instruction issues earlier.
    fn operation_start(
        &self,
        instruction: &Instruction,
        issued: Cycle,
        loaded: ReadyTime,
    ) -> ReadyTime {
        if !instruction.uses_loaded_data() {
            return ReadyTime::without_miss(issued);
        }
        let latencies = &self.common.latencies;
        let early_cycles = latencies.of_unit(Unit::Load) - latencies.load_to_own_operation();
        ReadyTime::new(loaded.cycle().earlier_by(early_cycles).max(issued), loaded.missed())
    }

    /// When the result of an instruction is ready. `issued` and `operation_start` are the times of its issue, and of
    /// [`Self::operation_start`].
    fn execute(
        &self,
        (instruction, accesses): (&Instruction, &[Access]),
        (issued, operation_start): (Cycle, ReadyTime),
        loaded: ReadyTime,
    ) -> ReadyTime {
        let latencies = &self.common.latencies;
        let result = match instruction.unit {
            Some(_) => operation_start.cycle() + latencies.of_instruction(instruction),
            None => loaded.cycle(),
        };
        let done = result + latencies.extra_latency_with(instruction.special, accesses);
        ReadyTime::new(done.max(issued.next()), loaded.missed())
    }

    /// Moves the stores of an instruction to the store buffer. Returns when the last line that the instruction's loads
    /// and stores missed is filled.
    fn store<M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        issued_store: &IssuedStore,
        memory: &mut M,
    ) -> Cycle {
        let IssuedStore { issued, loads_filled, known } = *issued_store;
        let mut lines_filled = loads_filled;
        if !instruction.stores() {
            return lines_filled;
        }
        let mut filled = ReadyTime::without_miss(issued);
        for store in accesses.iter().filter(|access| access.write) {
            let start = self.access_start(issued, lines_filled);
            let served = self.common.store_of(instruction, store, start, issued, memory);
            filled = filled.max(ReadyTime::new(served.cycle, served.missed));
            if served.missed {
                lines_filled = lines_filled.max(served.cycle);
            }
        }
        let leaves = self.common.stores.leave(known.max(filled.cycle()), filled.missed());
        for store in accesses.iter().filter(|access| access.write) {
            self.common.stores.remember(store, 0, Known { value: known, address: known }, leaves);
        }
        lines_filled
    }

    /// Stalls issue, fetch and retirement of a blocking core until the lines are filled that the instruction missed.
    /// `lines_filled` is `issued` if the instruction missed no line.
    fn stall_until_filled(&mut self, issued: Cycle, lines_filled: Cycle) {
        if lines_filled > issued {
            let cycle = lines_filled.next();
            self.earliest = self.earliest.max(ReadyTime::after_miss(cycle));
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
        let mut times = InstructionTimes::default();
        for (index, instruction) in (first..).zip(instructions) {
            times = self.step(block, instruction, accesses.next(index), memory);
        }
        if first + instructions.len() == block.len() {
            let flags = self.ready[register_index(block.flags_but_carry.number())];
            self.ready[register_index(Register::EARLIER_FLAGS.number())] = flags;
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
