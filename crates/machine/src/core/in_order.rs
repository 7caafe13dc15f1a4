//! Cores that execute in order: of one instruction a cycle or several, which wait for each miss or
//! only for what is used of it.

use super::calendar::{Cycle, Limits};
use super::counts::CoreCounts;
use super::execution::{Accesses, ExecutedBlock, Latencies};
use super::front::{Fetched, Front};
use super::graduation::{Graduation, Waits};
use super::instruction::{Instruction, REGISTERS, Special, UNITS, Unit, place};
use super::memory::{Access, Memory};
use super::misses::Misses;
use super::model::CoreModel;
use super::stores::{Source, Stores};
use super::template::Template;

/// A time, and whether it is a miss that it is waited for: in one number, of which the greater is the
/// later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Until(u64);

impl Until {
    #[inline]
    pub(super) fn new(cycle: u64, missed: bool) -> Until {
        Until(cycle << 1 | u64::from(missed))
    }

    #[inline]
    pub(super) fn cycle(self) -> u64 {
        self.0 >> 1
    }

    #[inline]
    pub(super) fn missed(self) -> bool {
        self.0 & 1 == 1
    }

    /// The later of both: if it is `cycle`, whatever was waited for before.
    #[inline]
    pub(super) fn at_least(self, cycle: u64) -> Until {
        self.max(Until::new(cycle.max(self.cycle()), self.missed()))
    }

    /// The last of all that `registers` wait for.
    #[inline]
    pub(super) fn of(registers: &[u8], ready: &[Until; REGISTERS]) -> Until {
        let times = registers.iter().map(|register| ready[place(*register)]);
        times.fold(Until::default(), Until::max)
    }
}

/// A core in order. An instruction begins in the cycle of the one before it or later, and as far as
/// slots are concerned it graduates then: what it is done with later holds up what needs it.
#[derive(Clone, Debug)]
pub struct InOrderCore {
    blocking: bool,
    latencies: Latencies,
    front: Front,
    limits: Limits,
    /// What begins in the cycle of the last instruction.
    cycle: Cycle,
    /// When units that are taken for several cycles are free.
    free: [u64; UNITS],
    intervals: [u64; UNITS],
    stores: Stores,
    misses: Misses,
    ready: Box<[Until; REGISTERS]>,
    /// Nothing begins before.
    earliest: Until,
    loads_from: u64,
    /// When all that has begun is done.
    all_done: Until,
    graduation: Graduation,
}

impl InOrderCore {
    /// A core that has executed nothing, of a model that [`CoreModel::check`] has accepted; lines of
    /// its first data cache have `data_line_bytes`, a power of two. Absent if the model has a window
    /// or threads.
    #[must_use]
    pub fn new(model: &CoreModel, data_line_bytes: u64) -> Option<InOrderCore> {
        if model.window.is_some() || model.threads.is_some() {
            return None;
        }
        let limits = Limits::new(model, model.width.min(model.issue_width));
        Some(InOrderCore {
            blocking: model.data.blocking,
            latencies: Latencies::new(model),
            front: Front::new(model),
            limits,
            cycle: limits.cycle(0),
            free: [0; UNITS],
            intervals: model.units.all().map(|(_, unit)| unit.interval_cycles.into()),
            stores: Stores::new(model.data.store_entries, model.units.store.count),
            misses: Misses::new(model.data.mshrs, data_line_bytes),
            ready: Box::new([Until::default(); REGISTERS]),
            earliest: Until::default(),
            loads_from: 0,
            all_done: Until::default(),
            graduation: Graduation::new(model.width),
        })
    }

    /// Executes a block, or as much of it as was executed.
    pub fn run<M: Memory>(&mut self, block: &Template, executed: &ExecutedBlock, memory: &mut M) {
        self.run_from(0, block, executed, memory);
    }

    /// Executes a block from instruction `first` on, behind those before it: as if it had been handed in
    /// at once. `executed` counts from its beginning, and has the accesses of the rest.
    pub fn run_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        if first == 0 {
            self.front.begin(block);
        }
        let mut accesses = Accesses::new(executed.accesses);
        let number = block.len().min(executed.instructions as usize);
        let whole = number == block.len();
        for (index, one) in block.instructions[..number].iter().enumerate().skip(first) {
            let of_it = accesses.next(index);
            let (fetched, done) = self.step(block, one, of_it, memory);
            if let Some(kind) = one.branch.filter(|_| whole && index + 1 == number) {
                let counts = &mut self.graduation.counts;
                self.front.branch((block, kind), executed.next, (fetched, done), counts);
            }
        }
    }

    /// An interrupt or exception comes behind the last instruction.
    pub fn interrupt(&mut self) {
        self.graduation.counts.interrupts += 1;
        self.front.resume_at(self.graduation.cycle() + self.latencies.interrupt);
        self.front.forget_line();
    }

    /// Translations of addresses are no longer what they were.
    pub fn flush_translations(&mut self) {
        self.front.forget_line();
    }

    /// Cycles until the last instruction has begun, and what it is waited for if the core waits for
    /// each miss.
    #[must_use]
    #[inline]
    pub fn cycles(&self) -> u64 {
        self.graduation.cycle()
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> CoreCounts {
        self.graduation.counts()
    }

    /// Gives an instruction its times. Returns when it was fetched and when it is done.
    fn step<M: Memory>(
        &mut self,
        block: &Template,
        one: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> (u64, u64) {
        let fetched = self.front.fetch(block, one, memory, &mut self.graduation.counts);
        let waits_for = self.operands(one);
        let begins = self.begin(one, fetched, waits_for);
        self.front.entered(begins);
        self.graduate(fetched, waits_for, begins);
        let loaded = self.load(accesses, begins, memory);
        let done = self.execute(one, begins, loaded);
        let stored = self.store(one, accesses, (begins, done.cycle()), memory);
        for register in one.writes {
            self.ready[place(register)] = done;
        }
        for register in one.moves {
            self.ready[place(register)] = Until::new(begins + 1, false);
        }
        self.all_done = self.all_done.max(done);
        if self.blocking {
            self.wait_for(begins, loaded, stored);
        }
        self.finish_special(one.special, begins, done.cycle());
        (fetched.cycle, done.cycle())
    }

    /// What an instruction waits for longest before it can begin.
    fn operands(&self, one: &Instruction) -> Until {
        let addresses = Until::of(&one.addresses, &self.ready);
        let mut until = Until::of(&one.reads, &self.ready).max(addresses).max(self.earliest);
        if one.special.drains() {
            until = until.max(self.all_done);
        }
        if one.stores() {
            let (cycle, missed) = self.stores.place();
            until = until.max(Until::new(cycle, missed));
        }
        if one.special.orders_memory() {
            until = until.at_least(self.stores.all_left());
        }
        if one.loads() {
            until = until.at_least(self.loads_from);
        }
        until
    }

    /// The first cycle, from that of the instruction before on, with all units that it needs.
    fn begin(&mut self, one: &Instruction, fetched: Fetched, waits_for: Until) -> u64 {
        let mut earliest = fetched.cycle.max(waits_for.cycle());
        if let Some(unit) = one.unit {
            earliest = earliest.max(self.free[unit as usize]);
        }
        let load = one.loads().then_some(Unit::Load);
        let store = one.stores().then_some(Unit::Store);
        let units = [load, one.unit, store];
        if earliest > self.cycle.cycle {
            self.cycle = self.limits.cycle(earliest);
        }
        while !self.cycle.fits_all(units) {
            self.cycle = self.limits.cycle(self.cycle.cycle + 1);
        }
        let begins = self.cycle.cycle;
        if let Some(unit) = one.unit.filter(|unit| self.intervals[*unit as usize] > 1) {
            self.free[unit as usize] = begins + self.intervals[unit as usize];
        }
        begins
    }

    fn graduate(&mut self, fetched: Fetched, waits_for: Until, begins: u64) {
        // What begins in a cycle has its slot at the end of it.
        let until = waits_for.cycle() + 1;
        let data = if waits_for.missed() { (0, until) } else { (0, 0) };
        // Where both are waited for, the slots are those of the data.
        let fetch = (fetched.wait.0.max(data.1), fetched.wait.1);
        self.graduation.graduate(begins + 1, &Waits { fetch, data, ..Waits::default() });
    }

    fn load<M: Memory>(&mut self, accesses: &[Access], begins: u64, memory: &mut M) -> Until {
        let mut loaded = Until::new(begins, false);
        let latency = self.latencies.of(Unit::Load);
        for load in accesses.iter().filter(|access| !access.write) {
            self.graduation.counts.loads += 1;
            let wait = memory.load(load, begins);
            let start = match self.stores.source(load, begins) {
                Source::Cache => begins,
                Source::CacheAfter(left) => begins.max(left),
                Source::Store(known) => {
                    self.graduation.counts.forwarded_loads += 1;
                    let cycle = begins.max(known) + self.latencies.forward;
                    loaded = loaded.max(Until::new(cycle, false));
                    continue;
                }
            };
            let served = self.misses.serve(load.virtual_address, start, wait, begins);
            self.graduation.counts.load_misses += u64::from(served.missed);
            let until = Until::new(served.cycle + latency, served.missed);
            loaded = loaded.max(until);
        }
        loaded
    }

    /// When the result is there of an instruction that has begun.
    fn execute(&self, one: &Instruction, begins: u64, loaded: Until) -> Until {
        let latency = one.unit.map_or(0, |unit| self.latencies.of(unit));
        let latency = latency + self.latencies.special(one.special);
        let least = begins + 1;
        Until::new((loaded.cycle() + latency).max(least), loaded.missed())
    }

    /// Has stores leave for the cache. Returns when their lines are there.
    fn store<M: Memory>(
        &mut self,
        one: &Instruction,
        accesses: &[Access],
        (begins, known): (u64, u64),
        memory: &mut M,
    ) -> Until {
        let mut filled = Until::new(begins, false);
        if !one.stores() {
            return filled;
        }
        for store in accesses.iter().filter(|access| access.write) {
            let wait = memory.store(store, begins);
            let served = self.misses.serve(store.virtual_address, begins, wait, begins);
            self.graduation.counts.stores += 1;
            self.graduation.counts.store_misses += u64::from(served.missed);
            filled = filled.max(Until::new(served.cycle, served.missed));
        }
        let leaves = self.stores.leave(known.max(filled.cycle()), filled.missed());
        for store in accesses.iter().filter(|access| access.write) {
            self.stores.remember(store, known, leaves);
        }
        filled
    }

    /// A core that waits for each miss does nothing until what was asked for is there.
    fn wait_for(&mut self, begins: u64, loaded: Until, stored: Until) {
        let line = loaded.cycle().saturating_sub(self.latencies.of(Unit::Load));
        let waited = if loaded.missed() { line.saturating_sub(begins) } else { 0 };
        let waited = waited + if stored.missed() { stored.cycle() - begins } else { 0 };
        if waited > 0 {
            let cycle = begins + 1 + waited;
            self.earliest = self.earliest.max(Until::new(cycle, true));
            self.front.resume_at(cycle);
            self.graduation.wait_for_data(cycle);
        }
    }

    fn finish_special(&mut self, special: Special, begins: u64, done: u64) {
        if special.drains() {
            self.front.resume_at(done);
        }
        if special == Special::Pause {
            self.front.resume_at(begins + self.latencies.special(special));
        }
        if special.orders_memory() {
            self.loads_from = self.loads_from.max(done);
        }
    }
}
