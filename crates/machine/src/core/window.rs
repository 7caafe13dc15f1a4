//! A core that executes out of order.
//!
//! There is no loop over cycles. Instructions come in the order of the program, and each is given its
//! times at once: when it is fetched, enters the window, begins, is done, and graduates. What a time
//! depends on was given its own before: operands by the times of registers, places in queues by the
//! times at which those that held them left, units by a calendar.

use super::calendar::Calendar;
use super::counts::CoreCounts;
use super::execution::{Accesses, ExecutedBlock, Latencies};
use super::front::{Fetched, Front, Pace};
use super::graduation::{Graduation, Interval, Waits};
use super::instruction::{Instruction, REGISTERS, Special, Unit, place};
use super::memory::{Access, Memory};
use super::misses::Misses;
use super::model::{CoreModel, WindowModel};
use super::ring::Ring;
use super::stores::{Source, Stores};
use super::template::Template;
use crate::predict::BranchKind;

/// A core with a window.
#[derive(Clone, Debug)]
pub struct OutOfOrderCore {
    width: u32,
    scheduler_entries: u32,
    loads_pass_stores: bool,
    stores_hold_retirement: bool,
    latencies: Latencies,
    front: Front,
    entering: Pace,
    calendar: Calendar,
    reorder: Ring,
    loads: Ring,
    stores: Stores,
    misses: Misses,
    /// When each branch that may be unresolved is resolved; empty without a limit.
    unresolved: Box<[u64]>,
    /// When each register can be read.
    ready: Box<[u64; REGISTERS]>,
    /// No load begins before.
    loads_from: u64,
    /// When the addresses of all stores are known.
    addresses_known: u64,
    graduation: Graduation,
}

/// What became of the loads of an instruction.
#[derive(Clone, Copy)]
struct Loaded {
    /// When the last of them begins.
    begins: u64,
    /// When all can be used.
    cycle: u64,
    /// For how long a line was waited for.
    wait: Interval,
}

impl OutOfOrderCore {
    /// A core that has executed nothing, of a model that [`CoreModel::check`] has accepted; lines of
    /// its first data cache have `data_line_bytes`, a power of two. Absent if the model has no
    /// window.
    #[must_use]
    pub fn new(model: &CoreModel, data_line_bytes: u64) -> Option<OutOfOrderCore> {
        let window: &WindowModel = model.window.as_ref()?;
        Some(OutOfOrderCore {
            width: model.width,
            scheduler_entries: window.scheduler_entries,
            loads_pass_stores: window.loads_pass_stores,
            stores_hold_retirement: window.stores_hold_retirement,
            latencies: Latencies::new(model),
            front: Front::new(model),
            entering: Pace::default(),
            calendar: Calendar::new(model),
            reorder: Ring::new(window.reorder_entries),
            loads: Ring::new(model.data.load_entries),
            stores: Stores::new(model.data.store_entries, model.units.store.count),
            misses: Misses::new(model.data.mshrs, data_line_bytes),
            unresolved: vec![0; window.unresolved_branches.unwrap_or(0) as usize].into(),
            ready: Box::new([0; REGISTERS]),
            loads_from: 0,
            addresses_known: 0,
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
            let (fetched, done) = if one.is_plain() {
                self.step::<true, M>(block, one, of_it, memory)
            } else {
                self.step::<false, M>(block, one, of_it, memory)
            };
            if let Some(kind) = one.branch.filter(|_| whole && index + 1 == number) {
                self.branch(block, kind, executed.next, (fetched, done));
            }
        }
    }

    /// An interrupt or exception comes behind the last instruction: what was fetched is thrown
    /// away.
    pub fn interrupt(&mut self) {
        self.graduation.counts.interrupts += 1;
        self.front.resume_at(self.graduation.cycle() + self.latencies.interrupt);
        self.front.forget_line();
    }

    /// Translations of addresses are no longer what they were.
    pub fn flush_translations(&mut self) {
        self.front.forget_line();
    }

    /// The cycle in which the last instruction graduated.
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

    /// Gives an instruction its times. Returns when it was fetched and when it is done. Half of all
    /// instructions are plain, and have a way of their own without what the others ask.
    #[inline(always)]
    fn step<const PLAIN: bool, M: Memory>(
        &mut self,
        block: &Template,
        one: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> (u64, u64) {
        let fetched = self.front.fetch(block, one, memory, &mut self.graduation.counts);
        let (entered, full) = self.enter::<PLAIN>(one, fetched);
        self.front.entered(entered);
        let ready = |registers: &[u8]| {
            let times = registers.iter().map(|register| self.ready[place(*register)]);
            times.fold(entered, u64::max)
        };
        let address = if PLAIN { entered } else { ready(&one.addresses) };
        let operands = ready(&one.reads);
        let loaded = if !PLAIN && one.loads() {
            self.load(one, accesses, address, memory)
        } else {
            Loaded { begins: operands, cycle: entered, wait: (0, 0) }
        };
        let executed = self.execute::<PLAIN>(one, (entered, operands), &loaded);
        let waits = Waits { fetch: fetched.wait, full, data: loaded.wait, shared: (0, 0) };
        let graduated = if !PLAIN && one.stores() {
            self.store(accesses, (address, executed), waits, memory)
        } else {
            self.graduation.graduate(executed, &waits)
        };
        self.reorder.push(graduated);
        if !PLAIN && one.loads() {
            self.loads.push(graduated);
        }
        for register in one.writes {
            self.ready[place(register)] = executed;
        }
        if !PLAIN {
            for register in one.moves {
                self.ready[place(register)] = address + 1;
            }
        }
        if !PLAIN && one.special != Special::None {
            self.finish_special(one.special, entered, executed.max(graduated));
        }
        (fetched.cycle, executed)
    }

    /// When an instruction enters the window; and for how long it waited for stores that missed.
    #[inline(always)]
    fn enter<const PLAIN: bool>(&mut self, one: &Instruction, fetched: Fetched) -> (u64, Interval) {
        let mut earliest = fetched.cycle.max(self.reorder.oldest());
        let mut full = (0, 0);
        if !PLAIN && one.loads() {
            earliest = earliest.max(self.loads.oldest());
        }
        if !PLAIN && one.stores() {
            let (free, missed) = self.stores.place();
            if missed && free > earliest {
                full = (earliest + 1, free + 1);
            }
            earliest = earliest.max(free);
        }
        if !PLAIN && one.branch.is_some() && !self.unresolved.is_empty() {
            earliest = earliest.max(self.unresolved.iter().copied().min().unwrap_or(0));
        }
        if !PLAIN && one.special.drains() {
            earliest = earliest.max(self.graduation.cycle());
        }
        let mut entered = self.entering.take(earliest, self.width);
        self.calendar.advance(entered);
        if self.calendar.is_full(self.scheduler_entries) {
            entered =
                self.entering.take(self.calendar.until_room(self.scheduler_entries), self.width);
        }
        (entered, full)
    }

    /// When the result of an instruction is there.
    #[inline(always)]
    fn execute<const PLAIN: bool>(
        &mut self,
        one: &Instruction,
        (entered, operands): (u64, u64),
        loaded: &Loaded,
    ) -> u64 {
        let latency = if PLAIN { 0 } else { self.latencies.special(one.special) };
        let Some(unit) = one.unit else {
            // A load or store is nothing else; what is neither is done as soon as it is there.
            self.calendar.wait_until(loaded.begins);
            return operands.max(loaded.cycle).max(entered + 1) + latency;
        };
        let mut earliest = operands.max(loaded.cycle);
        if !PLAIN && one.special.orders_memory() {
            earliest = earliest.max(self.stores.all_left());
        }
        let begins = self.calendar.book(earliest, unit);
        self.calendar.wait_until(begins);
        begins + self.latencies.of(unit) + latency
    }

    /// Loads from an address that is known at `address`.
    #[inline(always)]
    fn load<M: Memory>(
        &mut self,
        one: &Instruction,
        accesses: &[Access],
        address: u64,
        memory: &mut M,
    ) -> Loaded {
        let mut earliest = address.max(self.loads_from);
        if !self.loads_pass_stores {
            earliest = earliest.max(self.addresses_known);
        }
        if one.special.orders_memory() {
            earliest = earliest.max(self.stores.all_left());
        }
        let latency = self.latencies.of(Unit::Load);
        let mut loaded = Loaded { begins: earliest, cycle: earliest + latency, wait: (0, 0) };
        for access in accesses.iter().filter(|access| !access.write) {
            let begins = self.calendar.book(earliest, Unit::Load);
            let (cycle, missed) = self.load_one(access, begins, memory);
            self.graduation.counts.loads += 1;
            if missed {
                self.graduation.counts.load_misses += 1;
                let from = begins.max(self.calendar.now() + 1);
                let from = if loaded.wait.1 == 0 { from } else { from.min(loaded.wait.0) };
                loaded.wait = (from, loaded.wait.1.max(cycle));
            }
            loaded.begins = loaded.begins.max(begins);
            loaded.cycle = loaded.cycle.max(cycle);
        }
        loaded
    }

    /// When the value of a load that begins at `begins` can be used, and whether it waited for a
    /// line.
    #[inline(always)]
    fn load_one<M: Memory>(&mut self, load: &Access, begins: u64, memory: &mut M) -> (u64, bool) {
        let wait = memory.load(load, begins);
        let latency = self.latencies.of(Unit::Load);
        let start = match self.stores.source(load, begins) {
            Source::Cache => begins,
            Source::CacheAfter(left) => begins.max(left),
            Source::Store(known) => {
                self.graduation.counts.forwarded_loads += 1;
                return (begins.max(known) + self.latencies.forward, false);
            }
        };
        let present = self.calendar.now();
        let served = self.misses.serve(load.virtual_address, start, wait, present);
        (served.cycle + latency, served.missed)
    }

    /// Stores a value that is there at `executed` to an address that is known at `address`, and has
    /// the instruction graduate. Returns when it does.
    #[inline(always)]
    fn store<M: Memory>(
        &mut self,
        accesses: &[Access],
        (address, executed): (u64, u64),
        mut waits: Waits,
        memory: &mut M,
    ) -> u64 {
        let begins = self.calendar.book(address, Unit::Store);
        self.addresses_known = self.addresses_known.max(begins);
        let mut filled = begins;
        for store in accesses.iter().filter(|access| access.write) {
            let wait = memory.store(store, begins);
            let present = self.calendar.now();
            let served = self.misses.serve(store.virtual_address, begins, wait, present);
            self.graduation.counts.stores += 1;
            self.graduation.counts.store_misses += u64::from(served.missed);
            filled = filled.max(served.cycle);
        }
        let mut done = executed.max(begins + self.latencies.of(Unit::Store));
        if self.stores_hold_retirement && filled > done {
            let from = begins.max(self.calendar.now() + 1);
            let from = if waits.data.1 == 0 { from } else { waits.data.0 };
            waits.data = (from, filled);
            done = filled;
        }
        let graduated = self.graduation.graduate(done, &waits);
        let leaves = self.stores.leave(graduated.max(filled), filled > begins);
        for store in accesses.iter().filter(|access| access.write) {
            self.stores.remember(store, executed, leaves);
        }
        graduated
    }

    fn finish_special(&mut self, special: Special, entered: u64, done: u64) {
        if special.drains() {
            self.front.resume_at(done);
        }
        if special == Special::Pause {
            self.front.resume_at(entered + self.latencies.special(special));
        }
        if special.orders_memory() {
            self.loads_from = self.loads_from.max(done);
        }
    }

    fn branch(
        &mut self,
        block: &Template,
        kind: BranchKind,
        next: u64,
        (fetched, done): (u64, u64),
    ) {
        if let Some(free) = self.unresolved.iter_mut().min() {
            *free = done;
        }
        let counts = &mut self.graduation.counts;
        self.front.branch((block, kind), next, (fetched, done), counts);
    }
}
