//! The out-of-order core.
//!
//! Each instruction gets its times in program order: fetch, entry into the reorder buffer, issue, completion,
//! retirement. Everything that a time depends on is known at that point: operands from the ready times of
//! registers, entries of queues from the times at which they became free, units from the scheduler of the issue
//! ports.

use super::CoreCounts;
use super::fill_buffers::LineFillBuffers;
use super::forwarding::Forwarding;
use super::front_end::{Fetched, FrontEnd};
use super::instruction::Template;
use super::instruction::{
    Class, Instruction, Operation, REGISTERS, Register, Special, Unit, register_index,
};
use super::load_banks::LoadBanks;
use super::model::{CoreModel, WindowModel};
use super::ports::PortScheduler;
use super::retirement::{Interval, Retirement, StallCauses};
use super::stages::{EntryQueue, WidthLimiter};
use super::store_buffer::{Known, Source, StoreBuffer, crosses_pages, is_split, next_access};
use super::strings::{Repetition, Strings};
use super::{Access, Memory};
use super::{Accesses, ExecutedBlock, Latencies, load_as, wait_parts};
use crate::predict::BranchKind;

#[derive(Clone, Debug)]
pub struct OutOfOrderCore {
    loads_pass_stores: bool,
    stores_hold_retirement: bool,
    pub(super) access_bytes: u8,
    has_wide_limit: bool,
    splits_take_two: bool,
    /// Cycles from one load that crosses lines to the next, and from one that crosses pages.
    split_loads: [u64; 2],
    /// No load that crosses lines issues before.
    splits_from: u64,
    banks: Option<Box<LoadBanks>>,
    /// Extra cycles of a store that crosses a page boundary.
    page_split: u64,
    /// Cycles that a load waits for a store with the same offset in another page (4K aliasing).
    alias: u64,
    renames_memory: bool,
    renames_without_index: bool,
    /// Latencies of loads, by [`Instruction::load_form`].
    load_latencies: [u64; 4],
    forwarding: Option<Box<Forwarding>>,
    /// Cycles that a square root occupies its unit. `None`: the interval of a division.
    root_interval: Option<u32>,
    /// Cycles that a flag-setting comparison occupies its unit. `None`: the interval of an addition.
    flags_interval: Option<u32>,
    forward_vector: u64,
    /// Latency of forwarding more than 16 bytes.
    forward_wide: u64,
    /// After how many cycles a load tries again that was too early for the address of a store; 0: none is.
    forward_again: u64,
    forward_fail: u64,
    latencies: Latencies,
    pub(super) front: FrontEnd,
    entering: WidthLimiter,
    ports: PortScheduler,
    reorder: EntryQueue,
    loads: EntryQueue,
    stores: StoreBuffer,
    fill_buffers: LineFillBuffers,
    /// When each of the branches that can be unresolved at a time is resolved; empty without a
    /// limit.
    unresolved: Box<[u64]>,
    ready: Box<[u64; REGISTERS]>,
    /// No load issues before.
    loads_from: u64,
    /// When the addresses of all stores are known.
    addresses_known: u64,
    pub(super) retirement: Retirement,
    pub(super) strings: Option<Strings>,
    /// Instructions that kept the core's state warm and got no times.
    pub(super) warmed: u64,
}

/// Bits that tell [`OutOfOrderCore::quick`] what an instruction does. 0: it only operates on registers.
const OPERATES: u8 = 0;
const LOADS: u8 = 2;
const STORES: u8 = 4;

/// Whether an access is common: to memory, of at most 16 bytes, and within one line.
#[inline(always)]
fn is_common(access: &Access) -> bool {
    let last = (access.virtual_address & 63) + u64::from(access.bytes);
    (last <= 64) & (access.bytes <= 16) & access.physical.is_some()
}

/// Takes the access of instruction `index`, if it has one of the common sort and no other.
#[inline(always)]
fn own_access<'a>(accesses: &mut &'a [Access], index: usize, write: bool) -> Option<&'a [Access]> {
    let (own, rest) = accesses.split_at_checked(1)?;
    let is_of_it = usize::from(own[0].instruction) == index && own[0].write == write;
    let more = rest.first().is_some_and(|next| usize::from(next.instruction) <= index);
    if !is_of_it || more || !is_common(&own[0]) {
        return None;
    }
    *accesses = rest;
    Some(own)
}

/// Takes the accesses of instruction `index`, if they are a load and a store of the common sort.
#[inline(always)]
fn own_pair<'a>(accesses: &mut &'a [Access], index: usize) -> Option<&'a [Access]> {
    let (pair, remaining) = accesses.split_at_checked(2)?;
    let are_of_it =
        pair.iter().all(|access| usize::from(access.instruction) == index && is_common(access));
    let more = remaining.first().is_some_and(|next| usize::from(next.instruction) <= index);
    if !are_of_it || pair[0].write || !pair[1].write || more {
        return None;
    }
    *accesses = remaining;
    Some(pair)
}

/// The times of the loads of an instruction.
#[derive(Clone, Copy)]
struct Loaded {
    /// When the last of them issues.
    issued: u64,
    /// When all values are ready.
    cycle: u64,
    /// When they waited for a line.
    wait: Interval,
}

impl OutOfOrderCore {
    /// Returns a core that has executed nothing, of a model that [`CoreModel::check`] has accepted,
    /// or none if the model executes in order. `data_line_bytes` is the line size of its L1D, a
    /// power of two.
    #[must_use]
    pub fn new(model: &CoreModel, data_line_bytes: u64) -> Option<OutOfOrderCore> {
        let window: &WindowModel = model.window.as_ref()?;
        let forward = u64::from(model.data.forward_cycles);
        let forward_vector = model.data.forward_vector_cycles.map_or(forward, u64::from);
        Some(OutOfOrderCore {
            loads_pass_stores: window.loads_pass_stores,
            stores_hold_retirement: window.stores_hold_retirement,
            access_bytes: model.data.access_bytes,
            has_wide_limit: model.data.wide_loads.is_some(),
            splits_take_two: model.data.splits_take_two,
            split_loads: [model.data.split_load_cycles, model.data.page_split_load_cycles]
                .map(u64::from),
            splits_from: 0,
            banks: model.data.bank_loads.map(|loads_max| Box::new(LoadBanks::new(loads_max))),
            page_split: model.data.page_split_store_cycles.into(),
            alias: model.data.alias_cycles.into(),
            renames_memory: model.data.renames_memory,
            renames_without_index: model.data.renames_without_index,
            load_latencies: [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(scaled, vector)| {
                u64::from(
                    model.units.load.latency_cycles
                        + scaled * model.data.scaled_index_cycles
                        + vector * model.data.vector_load_cycles,
                )
            }),
            forwarding: Forwarding::new(model),
            root_interval: model.units.of.float_root_interval_cycles,
            flags_interval: model.units.of.float_flags_interval_cycles,
            forward_vector,
            forward_wide: model.data.forward_wide_cycles.map_or(forward_vector, u64::from),
            forward_again: model.data.forward_again_cycles.into(),
            forward_fail: model.data.forward_fail_cycles.into(),
            latencies: Latencies::new(model),
            front: FrontEnd::new(model),
            entering: WidthLimiter::new(model.width),
            ports: PortScheduler::new(model),
            reorder: EntryQueue::new(window.reorder_entries),
            loads: EntryQueue::new(model.data.load_entries),
            stores: StoreBuffer::new(model.data.store_entries, model.units.store.count)
                .one_line_per_cycle(
                    model.data.stores_one_line_per_cycle,
                    model.data.stores_any_of_line,
                )
                .with_vector_limit(model.data.vector_stores)
                .with_aliases(model.data.alias_cycles > 0)
                .with_addresses(model.data.forward_again_cycles > 0),
            fill_buffers: LineFillBuffers::new(model.data.mshrs, data_line_bytes),
            unresolved: vec![0; window.unresolved_branches.unwrap_or(0) as usize].into(),
            ready: Box::new([0; REGISTERS]),
            loads_from: 0,
            addresses_known: 0,
            retirement: Retirement::new(model.width),
            strings: model.strings.map(Strings::new),
            warmed: 0,
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
        // A core without such results has no code for them on its way.
        match self.forwarding {
            None => self.run_quickly_from::<false, M>(first, block, executed, memory),
            Some(_) => self.run_quickly_from::<true, M>(first, block, executed, memory),
        }
    }

    /// [`OutOfOrderCore::run_from`] of a core that has [`Forwarding`] or not.
    #[inline(always)]
    fn run_quickly_from<const FORWARDS: bool, M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        let number = block.len().min(executed.instructions as usize);
        let is_complete = number == block.len();
        let Some(instructions) = block.instructions.get(first..number) else { return };
        let mut accesses = executed.accesses;
        let mut times = (0, 0);
        for (index, instruction) in (first..).zip(instructions) {
            times = match instruction.class {
                Class::Operation => {
                    self.quick::<FORWARDS, M>(OPERATES, block, instruction, &[], memory)
                }
                Class::Load => match own_access(&mut accesses, index, false) {
                    Some(load) => {
                        self.quick_memory::<FORWARDS, M>(LOADS, block, instruction, load, memory)
                    }
                    None => self.slow(block, (index, instruction), &mut accesses, memory),
                },
                Class::Store => match own_access(&mut accesses, index, true) {
                    Some(store) => {
                        self.quick_memory::<FORWARDS, M>(STORES, block, instruction, store, memory)
                    }
                    None => self.slow(block, (index, instruction), &mut accesses, memory),
                },
                Class::LoadAndStore => match own_pair(&mut accesses, index) {
                    Some(both) => self.quick_memory::<FORWARDS, M>(
                        LOADS | STORES,
                        block,
                        instruction,
                        both,
                        memory,
                    ),
                    None => self.slow(block, (index, instruction), &mut accesses, memory),
                },
                Class::Fused => self.fused(block, instruction, memory),
                Class::Any | Class::Repetition => {
                    self.slow(block, (index, instruction), &mut accesses, memory)
                }
            };
        }
        let last = instructions.last().filter(|_| is_complete);
        if let Some(kind) = last.and_then(|last| last.branch) {
            self.branch(block, kind, executed.next, times);
        }
    }

    /// [`OutOfOrderCore::run_from`] without fast paths. Times and counts are equal; tests compare both.
    pub fn run_slowly_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        let number = block.len().min(executed.instructions as usize);
        let is_complete = number == block.len();
        let mut accesses = executed.accesses;
        for (index, instruction) in block.instructions[..number].iter().enumerate().skip(first) {
            let times = self.slow(block, (index, instruction), &mut accesses, memory);
            if let Some(kind) = instruction.branch.filter(|_| is_complete && index + 1 == number) {
                self.branch(block, kind, executed.next, times);
            }
        }
    }

    /// Gives instruction `index` of a block its times, whatever it needs. Returns when it is fetched and when
    /// it is done.
    #[inline(never)]
    fn slow<M: Memory>(
        &mut self,
        block: &Template,
        (index, instruction): (usize, &Instruction),
        accesses: &mut &[Access],
        memory: &mut M,
    ) -> (u64, u64) {
        // Skips the accesses of earlier instructions.
        while let [first, rest @ ..] = *accesses
            && usize::from(first.instruction) < index
        {
            *accesses = rest;
        }
        let mut of_block = Accesses::new(accesses);
        let own_accesses = of_block.next(index);
        *accesses = of_block.remaining();
        match instruction.class {
            Class::Repetition => self.repeat(block, instruction, own_accesses, memory),
            Class::Fused => self.fused(block, instruction, memory),
            _ => self.step(block, instruction, own_accesses, memory),
        }
    }

    /// A fast path of [`OutOfOrderCore::step`] for an instruction without special effects, which does `what`.
    /// Its accesses, a load before a store, are common: see [`own_access`].
    #[inline(always)]
    fn quick<const FORWARDS: bool, M: Memory>(
        &mut self,
        what: u8,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> (u64, u64) {
        let mut waited = (0, 0);
        let fetched = if instruction.starts() {
            let fetched = self.fetch_first(block, instruction, memory);
            waited = fetched.wait;
            fetched.cycle
        } else {
            self.front.fetch_next(instruction)
        };
        let mut earliest = fetched.max(self.reorder.oldest());
        let mut full = (0, 0);
        if what & LOADS != 0 {
            earliest = earliest.max(self.loads.oldest());
        }
        if what & STORES != 0 {
            let (free, missed) = self.stores.next_entry();
            if missed && free > earliest {
                full = (earliest + 1, free + 1);
            }
            earliest = earliest.max(free);
        }
        if !self.unresolved.is_empty() && instruction.branch.is_some() {
            earliest = earliest.max(self.next_resolved());
        }
        let mut entered = self.entering.take(earliest);
        self.ports.advance(entered);
        if self.ports.is_full(instruction.unit) {
            entered = self.entering.take(self.ports.until_room(instruction.unit));
        }
        self.front.entered(entered);
        let [addresses, reads, writes] = instruction.first_registers();
        let two = |ready: &[u64; REGISTERS], [first, second]: [u8; 2]| {
            ready[register_index(first)].max(ready[register_index(second)])
        };
        let mut operands = entered.max(two(&self.ready, reads));
        let mut address = entered;
        if what & (LOADS | STORES) != 0 {
            address = address.max(two(&self.ready, addresses));
        }
        let has_many = instruction.has_many();
        if has_many {
            (address, operands) = self.ready_of_all(instruction, entered);
        }
        let mut loaded = Loaded { issued: operands, cycle: entered, wait: (0, 0) };
        if what & LOADS != 0
            && let [load, ..] = accesses
        {
            loaded = self.quick_load(instruction, load, address, memory);
        }
        let executed = match instruction.unit {
            None => {
                // If it does nothing more, renaming registers executes it.
                if what != OPERATES {
                    self.ports.wait_until(loaded.issued, None);
                }
                operands.max(loaded.cycle).max(entered + 1)
            }
            Some(unit) => {
                if FORWARDS && let Some(forwarding) = &self.forwarding {
                    operands = forwarding.operands(instruction, &self.ready, (entered, operands));
                }
                let issued = self.ports.reserve_quickly(operands.max(loaded.cycle), unit);
                self.ports.wait_until(issued, Some(unit));
                let executed = issued + self.latencies.executed(instruction);
                match &mut self.forwarding {
                    Some(forwarding) if FORWARDS => {
                        forwarding.result(instruction, &self.ready, executed)
                    }
                    _ => executed,
                }
            }
        };
        let waits = || StallCauses { fetch: waited, full, data: loaded.wait, shared: (0, 0) };
        let retired = if what & STORES != 0
            && let [.., store] = accesses
        {
            self.quick_store(instruction, store, (address, executed), waits, memory)
        } else if what & LOADS == 0 && waited.1 == 0 {
            self.retirement.retire_unhindered(executed)
        } else {
            self.retirement.retire(executed, waits)
        };
        self.reorder.push(retired);
        if what & LOADS != 0 {
            self.loads.push(retired);
        }
        for register in writes {
            self.ready[register_index(register)] = executed;
        }
        if has_many {
            self.write_all(instruction, executed, address + 1);
        }
        if FORWARDS && what == OPERATES && instruction.unit.is_none() && instruction.adds_constant()
        {
            self.added_constant(instruction, executed);
        }
        (fetched, executed)
    }

    /// [`OutOfOrderCore::quick`] of an instruction that loads or stores. One copy serves three classes, so that
    /// little code is executed per instruction: the host's L1I also holds QEMU and the translated code.
    #[inline(never)]
    fn quick_memory<const FORWARDS: bool, M: Memory>(
        &mut self,
        what: u8,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> (u64, u64) {
        self.quick::<FORWARDS, M>(what, block, instruction, accesses, memory)
    }

    /// The time at which one of the unresolved branches resolves, so that another branch may enter.
    #[inline(never)]
    fn next_resolved(&self) -> u64 {
        self.unresolved.iter().copied().min().unwrap_or(0)
    }

    /// Fetches an instruction that starts a line.
    #[inline(never)]
    fn fetch_first<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        memory: &mut M,
    ) -> Fetched {
        self.front.fetch(block, instruction, memory, &mut self.retirement.counts)
    }

    /// When the address of an instruction is known and its operands are ready, which has entered.
    #[inline(never)]
    fn ready_of_all(&self, instruction: &Instruction, entered: u64) -> (u64, u64) {
        let ready = |registers: &[u8]| {
            let times = registers.iter().map(|register| self.ready[register_index(*register)]);
            times.fold(entered, u64::max)
        };
        (ready(&instruction.addresses), ready(&instruction.reads))
    }

    /// Renaming has added a constant to a register.
    #[inline(never)]
    fn added_constant(&mut self, instruction: &Instruction, executed: u64) {
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.constant_added(instruction, &mut self.ready, executed);
        }
    }

    /// Sets the ready time of an instruction's results to `executed`, and of the registers that it changes as a
    /// side effect to `moved`.
    #[inline(never)]
    fn write_all(&mut self, instruction: &Instruction, executed: u64, moved: u64) {
        for register in instruction.writes {
            self.ready[register_index(register)] = executed;
        }
        for register in instruction.moves {
            self.ready[register_index(register)] = moved;
        }
    }

    /// The load of an instruction, see [`own_access`].
    #[inline(always)]
    fn quick_load<M: Memory>(
        &mut self,
        instruction: &Instruction,
        load: &Access,
        address: u64,
        memory: &mut M,
    ) -> Loaded {
        let mut earliest = address.max(self.loads_from);
        if !self.loads_pass_stores {
            earliest = earliest.max(self.addresses_known);
        }
        let mut issued = self.ports.reserve_quickly(earliest, Unit::Load);
        if self.banks.is_some() {
            issued = self.in_bank(load, issued, false);
        }
        self.retirement.counts.loads += 1;
        let wait = memory.load(load, issued);
        let is_alone = !self.stores.may_be_source(load, issued) && self.alias == 0;
        let cycle = issued + self.load_latencies[instruction.load_form()];
        if wait == 0 && is_alone && self.fill_buffers.are_filled(issued) {
            return Loaded { issued, cycle, wait: (0, 0) };
        }
        let (cycle, missed) = self.loaded_at(instruction, load, (issued, wait), memory);
        let mut loaded = Loaded { issued, cycle, wait: (0, 0) };
        if missed {
            self.retirement.counts.load_misses += 1;
            loaded.wait = (issued.max(self.ports.now() + 1), cycle);
        }
        loaded
    }

    /// The time at which a load starts whose unit is reserved at `issued`: a later cycle if its bank is taken.
    /// The slot of the earlier cycle is lost.
    #[inline(never)]
    fn in_bank(&mut self, load: &Access, issued: u64, wide: bool) -> u64 {
        let Some(banks) = &mut self.banks else { return issued };
        let mut issued = issued;
        while !banks.take(load, issued) {
            issued = self.ports.reserve_load(issued + 1, wide);
        }
        issued
    }

    /// The store of an instruction, see [`own_access`]; as [`OutOfOrderCore::store`].
    #[inline(always)]
    fn quick_store<M: Memory>(
        &mut self,
        instruction: &Instruction,
        store: &Access,
        (address, executed): (u64, u64),
        waits: impl Fn() -> StallCauses,
        memory: &mut M,
    ) -> u64 {
        let issued = self.ports.reserve_quickly(address, Unit::Store);
        self.addresses_known = self.addresses_known.max(issued);
        let filled = self.store_part(instruction, store, issued, memory);
        let done = executed.max(issued + self.latencies.of_unit(Unit::Store));
        let retired = if self.stores_hold_retirement && filled > done {
            self.retire_held(issued, filled, &waits())
        } else {
            self.retirement.retire(done, waits)
        };
        let earliest = self.stores.after_vectors(retired.max(filled), instruction.stores_vector());
        let leaves = self.stores.leave_alone(store, earliest, filled > issued);
        let known = Known { value: executed, address: issued };
        self.stores.remember_one(store, instruction.address_form, known, leaves);
        retired
    }

    /// A store that was issued at `issued` holds up retirement until its line is filled.
    #[inline(never)]
    fn retire_held(&mut self, issued: u64, filled: u64, waits: &StallCauses) -> u64 {
        let from = issued.max(self.ports.now() + 1);
        let from = if waits.data.1 == 0 { from } else { waits.data.0 };
        self.retirement.retire(filled, || StallCauses { data: (from, filled), ..*waits })
    }

    /// An interrupt or exception comes after the last instruction: the front end is flushed.
    pub fn interrupt(&mut self) {
        self.retirement.counts.interrupts += 1;
        let (retired, left) = (self.retirement.cycle(), self.stores.all_left());
        self.front.resume_at(self.latencies.interrupted(retired, left));
        self.front.forget_line();
    }

    /// Delays the first instruction of an interrupt handler by `cycles`: the processor itself reads memory at
    /// the entry. Call it after [`OutOfOrderCore::interrupt`].
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

    /// The cycle of the last retirement.
    #[must_use]
    #[inline]
    pub fn cycles(&self) -> u64 {
        self.retirement.cycle()
    }

    #[must_use]
    pub fn counts(&self) -> CoreCounts {
        self.retirement.counts()
    }

    /// Instructions and interrupts so far.
    pub(super) fn progress(&self) -> (u64, u64) {
        let counts = &self.retirement.counts;
        (counts.instructions + counts.slotless_instructions + self.warmed, counts.interrupts)
    }

    /// A repetition of a string instruction.
    #[inline]
    fn repeat<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> (u64, u64) {
        let operation = instruction.repetition_of();
        let (Some(mut strings), Some(operation)) = (self.strings, operation) else {
            return self.step(block, instruction, accesses, memory);
        };
        if !strings.executes(operation) {
            return self.step(block, instruction, accesses, memory);
        }
        let address = block.address_of(instruction);
        let which = strings.next(operation, address, accesses, self.progress());
        let mut times = (self.retirement.cycle(), self.retirement.cycle());
        if which == Repetition::Within {
            self.retirement.counts.slotless_instructions += 1;
        } else {
            times = self.step(block, instruction, accesses, memory);
            if strings.ends_cycle() {
                self.entering.end_cycle();
            }
        }
        if let Some(wait) = strings.wait_cycles(operation, which) {
            self.front.resume_at(self.entering.cycle() + wait);
        }
        strings.executed(self.progress());
        self.strings = Some(strings);
        times
    }

    /// An operation on registers that is fused with the branch after it: it takes no place of the width, of
    /// the reorder buffer and of retirement, and the branch does not wait for its flags.
    #[inline(never)]
    fn fused<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        memory: &mut M,
    ) -> (u64, u64) {
        let fetched = self.front.fetch(block, instruction, memory, &mut self.retirement.counts);
        let earliest = fetched.cycle.max(self.reorder.oldest());
        let entered = self.entering.next(earliest).max(self.ports.now());
        let ready = instruction.reads.iter().map(|register| self.ready[register_index(*register)]);
        let operands = ready.fold(entered, u64::max);
        for register in instruction.writes {
            let latency = if register == Register::FLAGS.number() { 0 } else { 1 };
            self.ready[register_index(register)] = operands + latency;
        }
        self.retirement.counts.slotless_instructions += 1;
        (fetched.cycle, operands)
    }

    /// Gives an instruction its times. Returns when it is fetched and when it is done.
    #[inline(always)]
    fn step<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> (u64, u64) {
        let fetched = self.front.fetch(block, instruction, memory, &mut self.retirement.counts);
        let (entered, full) = self.enter(instruction, fetched);
        self.front.entered(entered);
        let ready = |registers: &[u8]| {
            let times = registers.iter().map(|register| self.ready[register_index(*register)]);
            times.fold(entered, u64::max)
        };
        let (address, operands) = (ready(&instruction.addresses), ready(&instruction.reads));
        let loaded = if instruction.loads() {
            self.load(instruction, accesses, address, memory)
        } else {
            Loaded { issued: operands, cycle: entered, wait: (0, 0) }
        };
        let executed = self.execute(instruction, (entered, operands), &loaded);
        let waits = || StallCauses { fetch: fetched.wait, full, data: loaded.wait, shared: (0, 0) };
        let retired = if instruction.stores() {
            self.store(instruction, accesses, (address, executed), waits, memory)
        } else {
            self.retirement.retire(executed, waits)
        };
        self.reorder.push(retired);
        if instruction.loads() {
            self.loads.push(retired);
        }
        for register in instruction.writes {
            self.ready[register_index(register)] = executed;
        }
        for register in instruction.moves {
            self.ready[register_index(register)] = address + 1;
        }
        if instruction.unit.is_none() && instruction.adds_constant() {
            self.added_constant(instruction, executed);
        }
        if instruction.special != Special::None {
            self.finish_special(instruction.special, entered, executed.max(retired));
        }
        (fetched.cycle, executed)
    }

    /// When an instruction enters the reorder buffer, and when it waited for stores that missed.
    #[inline(always)]
    fn enter(&mut self, instruction: &Instruction, fetched: Fetched) -> (u64, Interval) {
        let mut earliest = fetched.cycle.max(self.reorder.oldest());
        let mut full = (0, 0);
        if instruction.loads() {
            earliest = earliest.max(self.loads.oldest());
        }
        if instruction.stores() {
            let (free, missed) = self.stores.next_entry();
            if missed && free > earliest {
                full = (earliest + 1, free + 1);
            }
            earliest = earliest.max(free);
        }
        if !self.unresolved.is_empty() && instruction.branch.is_some() {
            earliest = earliest.max(self.next_resolved());
        }
        if instruction.special.drains() {
            earliest = earliest.max(self.retirement.cycle());
            if instruction.special.drains_stores() {
                earliest = earliest.max(self.stores.all_left());
            }
        }
        let mut entered = self.entering.take(earliest);
        self.ports.advance(entered);
        if self.ports.is_full(instruction.unit) {
            entered = self.entering.take(self.ports.until_room(instruction.unit));
        }
        (entered, full)
    }

    /// When the result of an instruction is ready.
    #[inline(always)]
    fn execute(
        &mut self,
        instruction: &Instruction,
        (entered, operands): (u64, u64),
        loaded: &Loaded,
    ) -> u64 {
        let latency = self.latencies.executing(instruction.special);
        let Some(unit) = instruction.unit else {
            // A load or store alone, or an instruction that needs no unit.
            if !instruction.is_plain() {
                self.ports.wait_until(loaded.issued, None);
            }
            let mut ready = operands.max(loaded.cycle);
            if instruction.special == Special::Barrier {
                ready = ready.max(self.stores.all_left()).max(self.loads_from);
            }
            return ready.max(entered + 1) + latency;
        };
        let operands = match &self.forwarding {
            Some(forwarding) => forwarding.operands(instruction, &self.ready, (entered, operands)),
            None => operands,
        };
        let mut earliest = operands.max(loaded.cycle);
        if instruction.special.orders_memory() {
            earliest = earliest.max(self.stores.all_left());
        }
        let issued = match self.root_interval {
            Some(interval) if instruction.is_root() => {
                self.ports.reserve_for(earliest, unit, interval)
            }
            _ => match self.flags_interval {
                Some(interval) if instruction.is(Operation::FloatFlags) => {
                    self.ports.reserve_for(earliest, unit, interval)
                }
                _ => self.ports.reserve(earliest, unit),
            },
        };
        self.ports.wait_until(issued, Some(unit));
        let executed = issued + self.latencies.executed(instruction) + latency;
        match &mut self.forwarding {
            Some(forwarding) => forwarding.result(instruction, &self.ready, executed),
            None => executed,
        }
    }

    /// Issues the loads of an instruction whose address is known at `address`.
    #[inline(always)]
    fn load<M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        address: u64,
        memory: &mut M,
    ) -> Loaded {
        let mut earliest = address.max(self.loads_from);
        if !self.loads_pass_stores {
            earliest = earliest.max(self.addresses_known);
        }
        if instruction.special.orders_memory() {
            earliest = earliest.max(self.stores.all_left());
        }
        if accesses.iter().any(|access| access.physical.is_none()) {
            // A load from a device is not speculative: all before it has retired.
            earliest = earliest.max(self.retirement.cycle());
        }
        let mut loaded = Loaded { issued: earliest, cycle: 0, wait: (0, 0) };
        match accesses {
            // The common case.
            [only] if !only.write => {
                self.load_part(instruction, only, earliest, &mut loaded, memory)
            }
            [] => loaded.cycle = earliest + self.latencies.of_unit(Unit::Load),
            _ => loaded = self.load_parts(instruction, accesses, loaded, memory),
        }
        loaded
    }

    /// The loads of an instruction with several accesses.
    #[inline(never)]
    fn load_parts<M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        mut loaded: Loaded,
        memory: &mut M,
    ) -> Loaded {
        let mut earliest = loaded.issued;
        let crosses = self.split_loads[1] > 0 && crosses_pages(accesses, false);
        if crosses {
            earliest = earliest.max(self.splits_from);
        }
        let mut remaining = accesses;
        while let Some(access) = next_access(&mut remaining, false, self.access_bytes) {
            self.load_part(instruction, &access, earliest, &mut loaded, memory);
        }
        if crosses {
            self.splits_from = loaded.issued + self.split_loads[1];
        }
        loaded
    }

    /// One load of an instruction.
    #[inline(always)]
    fn load_part<M: Memory>(
        &mut self,
        instruction: &Instruction,
        access: &Access,
        earliest: u64,
        loaded: &mut Loaded,
        memory: &mut M,
    ) {
        let wide = access.bytes > 16 && self.has_wide_limit;
        let splits = is_split(access);
        let earliest = if splits { earliest.max(self.splits_from) } else { earliest };
        let mut issued = self.ports.reserve_load(earliest, wide);
        if self.splits_take_two && splits {
            // Each line is read by itself.
            issued = self.ports.reserve_load(issued, wide);
        } else if self.banks.is_some() {
            issued = self.in_bank(access, issued, wide);
        }
        if splits && self.split_loads[0] > 0 {
            self.splits_from = issued + self.split_loads[0];
        }
        let (cycle, missed) = self.load_one(instruction, access, issued, memory);
        self.retirement.counts.loads += 1;
        if missed {
            self.retirement.counts.load_misses += 1;
            let from = issued.max(self.ports.now() + 1);
            let from = if loaded.wait.1 == 0 { from } else { from.min(loaded.wait.0) };
            loaded.wait = (from, loaded.wait.1.max(cycle));
        }
        loaded.issued = loaded.issued.max(issued);
        loaded.cycle = loaded.cycle.max(cycle);
    }

    /// When the value of a load is ready, and whether it waited for a line.
    #[inline(always)]
    fn load_one<M: Memory>(
        &mut self,
        instruction: &Instruction,
        load: &Access,
        issued: u64,
        memory: &mut M,
    ) -> (u64, bool) {
        let wait = load_as(instruction.special, load, issued, memory);
        self.loaded_at(instruction, load, (issued, wait), memory)
    }

    /// [`OutOfOrderCore::load_one`] of a load that memory delays by `wait` cycles after `issued`.
    #[inline(never)]
    fn loaded_at<M: Memory>(
        &mut self,
        instruction: &Instruction,
        load: &Access,
        (issued, wait): (u64, u64),
        memory: &mut M,
    ) -> (u64, bool) {
        let parts = wait_parts(memory, wait);
        let latency = self.load_latencies[instruction.load_form()];
        let is_renamed =
            self.renames_memory && !(self.renames_without_index && instruction.address_has_index());
        let form = if is_renamed { instruction.address_form } else { 0 };
        let start = match self.stores.source(load, form, issued) {
            Source::Cache => match self.stores.aliased(load, issued) {
                Some(known) => issued.max(known) + self.alias,
                None => issued,
            },
            Source::CacheAfter(left) => issued.max(left + self.forward_fail),
            Source::Renamed(known) => {
                self.retirement.counts.forwarded_loads += 1;
                return (known, false);
            }
            Source::Store(known) => {
                self.retirement.counts.forwarded_loads += 1;
                let forward = match instruction.loads_vector() {
                    true if load.bytes > 16 => self.forward_wide,
                    true => self.forward_vector,
                    false => self.latencies.forward,
                };
                let start = issued.max(known);
                let again = self.tries_again(load, issued);
                return ((start + forward).max(again.map_or(0, |retry| retry + forward)), false);
            }
        };
        if load.physical.is_none() {
            // Devices have no lines.
            return (issued + wait + latency, true);
        }
        let present = self.ports.now();
        let served = self.fill_buffers.serve(load.virtual_address, start, (wait, parts), present);
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
    fn tries_again(&self, load: &Access, issued: u64) -> Option<u64> {
        let address = self.stores.address_known(load)?;
        let forward = self.latencies.forward;
        let after_address = (address + self.forward_again).saturating_sub(forward);
        (issued < address + 2).then(|| (issued + self.forward_again).max(after_address))
    }

    /// Stores a value that is ready at `executed` to an address that is known at `address`, and
    /// retires the instruction. Returns when it retires.
    #[inline(always)]
    fn store<M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        (address, executed): (u64, u64),
        waits: impl Fn() -> StallCauses,
        memory: &mut M,
    ) -> u64 {
        let issued = self.ports.reserve(address, Unit::Store);
        self.addresses_known = self.addresses_known.max(issued);
        let filled = match accesses {
            // The common case.
            [only] if only.write => self.store_part(instruction, only, issued, memory),
            _ => self.store_parts(instruction, accesses, issued, memory),
        };
        let done = executed.max(issued + self.latencies.of_unit(Unit::Store));
        let retired = if self.stores_hold_retirement && filled > done {
            let from = issued.max(self.ports.now() + 1);
            let waits = waits();
            let from = if waits.data.1 == 0 { from } else { waits.data.0 };
            self.retirement.retire(filled, || StallCauses { data: (from, filled), ..waits })
        } else {
            self.retirement.retire(done, waits)
        };
        let flushed = if instruction.special == Special::FlushLine {
            // The line is being written back, and everything that is ordered after stores waits.
            self.latencies.special(instruction.special)
        } else {
            0
        };
        let mut earliest = retired.max(filled) + flushed;
        if self.page_split > 0 && accesses.len() > 1 && crosses_pages(accesses, true) {
            earliest = earliest.max(self.stores.all_left()) + self.page_split;
        }
        let missed = filled > issued;
        let mut earliest = self.stores.after_vectors(earliest, instruction.stores_vector());
        if instruction.special == Special::StoreFence {
            earliest =
                earliest.max(self.stores.all_left()) + self.latencies.special(instruction.special);
        }
        let leaves = self.stores.leave_by_line(accesses, self.access_bytes, earliest, missed);
        let mut remaining = accesses;
        let known = Known { value: executed, address: issued };
        while let Some(store) = next_access(&mut remaining, true, self.access_bytes) {
            self.stores.remember(&store, instruction.address_form, known, leaves);
        }
        retired
    }

    /// When the lines of all stores of an instruction are there, which issue at `issued`.
    #[inline(never)]
    fn store_parts<M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        issued: u64,
        memory: &mut M,
    ) -> u64 {
        let mut filled = issued;
        let mut remaining = accesses;
        while let Some(store) = next_access(&mut remaining, true, self.access_bytes) {
            filled = filled.max(self.store_part(instruction, &store, issued, memory));
        }
        filled
    }

    /// When the line of a store is there, or the store itself issues.
    #[inline(always)]
    fn store_part<M: Memory>(
        &mut self,
        instruction: &Instruction,
        store: &Access,
        issued: u64,
        memory: &mut M,
    ) -> u64 {
        if instruction.streams() {
            // The store has a combining buffer, where the line waits until memory has it.
            self.retirement.counts.stores += 1;
            return issued + memory.store_around(store, issued);
        }
        let wait = memory.store(store, issued);
        let parts = wait_parts(memory, wait);
        let present = self.ports.now();
        let served = self.fill_buffers.serve(store.virtual_address, issued, (wait, parts), present);
        self.retirement.counts.stores += 1;
        self.retirement.counts.store_misses += u64::from(served.missed);
        issued.max(served.cycle)
    }

    fn finish_special(&mut self, special: Special, entered: u64, done: u64) {
        if special.drains() {
            self.front.resume_at(done);
        }
        if special.stops_fetch() {
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
        let counts = &mut self.retirement.counts;
        self.front.branch((block, kind), next, (fetched, done), counts);
    }
}
