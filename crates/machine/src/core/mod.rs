//! Cores: what instructions cost beyond their cache misses.
//!
//! A block of instructions is decoded once into a [`Template`]: registers read and written, unit,
//! branch, special effects. It then executes any number of times, each time with the accesses that
//! it made and the address that came after it. The core asks a [`Memory`], such as the
//! [`MemoryPort`](crate::memory::MemoryPort) of a memory system, how long each access waits.
//!
//! - [`OutOfOrderCore`] has a reorder buffer.
//! - [`InOrderCore`] issues in order; a blocking one waits for each miss.
//! - [`AnyCore`] is the one that its model asks for.
//! - [`MultithreadedCore`] issues in each cycle from one of several threads.
//!
//! No core loops over cycles. Instructions come in program order, and each gets its times at once:
//! when it is fetched, issues, is done, and retires. Lost issue slots are charged by the rule of
//! `simos-1995`, section 3.3; see [`CoreCounts`].

mod chase;
mod code_tags;
mod fill_buffers;
mod forwarding;
mod front_end;
mod in_order;
mod instruction;
mod load_banks;
mod model;
mod multithreaded;
mod out_of_order;
mod ports;
mod ready_time;
mod retirement;
mod single_thread;
mod stages;
mod store_buffer;
mod strings;

pub use chase::chase_cycles;
pub use in_order::InOrderCore;
pub use instruction::{
    Instruction, Layout, Operation, Register, Special, StringOperation, Template, Unit,
};
pub use model::{
    CoreModel, DataModel, DecodedModel, EventsModel, FrontModel, OperationLatencies, SingleCosts,
    StringsModel, UnitModel, UnitsModel, WindowModel,
};
pub use multithreaded::MultithreadedCore;
pub use out_of_order::{OutOfOrderCore, Warmed};
pub use single_thread::{AnyCore, SingleThreadCore};

use crate::address::{PhysicalAddress, VirtualAddress};
use crate::cycle::Cycle;
pub(crate) use instruction::ADDRESS_HAS_INDEX;
use instruction::{OPERATIONS, SPECIALS, UNITS};

/// An access to memory that an instruction has made. It lies in one page: an access to two pages is
/// two accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The virtual address of the first byte.
    pub virtual_address: u64,
    /// The physical address of the first byte; absent for a device.
    pub physical: Option<u64>,
    /// The instruction of the block that made it, from 0.
    pub instruction: u16,
    /// The length in bytes.
    pub bytes: u8,
    pub write: bool,
}

/// How an instruction accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    Load,
    /// The load of a locked instruction, which stores to the same place: the line comes with the right to write it.
    LoadLocked,
    Store,
    /// A non-temporal store: a combining buffer collects the stores to a line, and writes the line to memory.
    StoreAround,
}

impl AccessMode {
    /// Whether such an access to a line that the core holds may have nothing more to do than to touch the line.
    #[inline(always)]
    pub(crate) fn may_hit_at_once(self) -> bool {
        matches!(self, AccessMode::Load | AccessMode::Store)
    }

    /// How an instruction of an effect loads.
    #[inline(always)]
    fn load_of(special: Special) -> AccessMode {
        if special == Special::Atomic { AccessMode::LoadLocked } else { AccessMode::Load }
    }
}

/// The caches, TLBs and memory of a core.
///
/// Each access comes once, in program order. What it finds in caches and TLBs follows from this order alone. Only how
/// long it waits depends on the cycle of its start. Out of order, this cycle may be earlier than the cycle of the
/// previous access.
///
/// The wait is that beyond an L1 hit: zero for a hit. A line that was requested may count as present for later
/// accesses, because the core knows itself until when it waits for a line.
pub trait Memory {
    /// Looks up an instruction line, without times. Both addresses are addresses of the line's first byte.
    fn look_up_fetch(&mut self, virtual_address: VirtualAddress, physical: PhysicalAddress);

    /// Looks up the line of a load or store, or its lines, without times.
    fn look_up(&mut self, access: &Access, how: AccessMode);

    /// Fetches an instruction line. Both addresses are addresses of the line's first byte. Returns how many cycles it
    /// waits.
    fn fetch(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
        now: Cycle,
    ) -> u64;

    /// Names the instruction whose lines are fetched next, by the addresses of its first byte. A line may also hold
    /// other instructions, and start in another function.
    fn set_fetched_instruction(
        &mut self,
        _virtual_address: VirtualAddress,
        _physical: PhysicalAddress,
    ) {
    }

    /// Loads from one line or more, or stores to it. Returns how many cycles it waits.
    fn access(&mut self, access: &Access, how: AccessMode, now: Cycle) -> u64;

    /// The parts of the last load's or store's wait. Valid only if it waited.
    fn last_wait(&self) -> WaitParts {
        WaitParts::default()
    }
}

/// The counts of a core. All are sums since the start; the counts of a region are the difference of two
/// readings.
///
/// Each cycle offers one issue slot per unit of the core's width. An instruction that retires uses a slot. Other
/// slots are lost to one of the causes, or open: more instructions may still retire in the last cycle.
/// [`CoreCounts::instructions`] and all `_slots` add up to `cycles` times the width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreCounts {
    /// Cycles until the last instruction retired.
    pub cycles: u64,
    /// Instructions that used a slot.
    pub instructions: u64,
    /// Instructions that used no slot: repetitions of string instructions whose work a wide access did, and
    /// operations that were fused with the branch after them.
    pub slotless_instructions: u64,
    /// Slots lost because the core waited for an instruction line.
    pub fetch_stall_slots: u64,
    /// Slots lost because the core waited for a load or store that missed.
    pub data_stall_slots: u64,
    /// Slots lost for any other reason, such as dependences and mispredicted branches.
    pub pipeline_stall_slots: u64,
    /// Slots that went to other threads of the core.
    pub shared_slots: u64,
    /// Slots of the last cycle that are still open.
    pub open_slots: u64,
    pub branches: u64,
    pub mispredicted_branches: u64,
    /// Taken direct branches whose target was not in the BTB: fetch is resteered at decode.
    pub btb_misses: u64,
    pub loads: u64,
    pub stores: u64,
    /// Loads that waited for a line.
    pub load_misses: u64,
    /// Stores that waited for a line.
    pub store_misses: u64,
    /// Loads that an earlier store forwarded its value to.
    pub forwarded_loads: u64,
    /// Instruction lines that the core waited for.
    pub fetch_misses: u64,
    /// Interrupts and exceptions.
    pub interrupts: u64,
}

impl CoreCounts {
    /// All slots: the cycles times the width.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.instructions
            + self.fetch_stall_slots
            + self.data_stall_slots
            + self.pipeline_stall_slots
            + self.shared_slots
            + self.open_slots
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ExecutedBlock<'a> {
    /// How many of its instructions executed, from the first: fewer than all if an exception ended
    /// it.
    pub instructions: u32,
    /// Their loads and stores, in program order.
    pub accesses: &'a [Access],
    /// The address that executed next; if an interrupt came there, the address that it returns to.
    pub next: u64,
}

/// The parts of an access's wait beyond an L1 hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitParts {
    /// The part of the wait that is for its translation, at its start. No fill buffer is taken for
    /// it.
    pub translation_cycles: u64,
    /// Whether the line was under way before, as after a late prefetch: it arrives when it does,
    /// also if the access starts later, for want of a fill buffer.
    pub under_way: bool,
}

/// The parts of the last load's or store's wait, which is `wait` cycles in all.
#[inline(always)]
fn wait_parts<M: Memory>(memory: &M, wait: u64) -> WaitParts {
    if wait == 0 { WaitParts::default() } else { memory.last_wait() }
}

/// The accesses of a block, instruction by instruction.
#[derive(Debug)]
pub(super) struct Accesses<'a>(&'a [Access]);

impl<'a> Accesses<'a> {
    pub(super) fn new(accesses: &'a [Access]) -> Accesses<'a> {
        Accesses(accesses)
    }

    /// The accesses that were not taken yet.
    #[inline]
    pub(super) fn remaining(&self) -> &'a [Access] {
        self.0
    }

    /// The accesses of instruction `index`. The accesses of earlier instructions were taken already.
    #[inline]
    pub(super) fn next(&mut self, index: usize) -> &'a [Access] {
        let of_it = |access: &&Access| usize::from(access.instruction) <= index;
        // None or one is the common case.
        let number = match self.0 {
            [] => 0,
            [first, ..] if !of_it(&first) => 0,
            [_, rest @ ..] => 1 + rest.iter().take_while(of_it).count(),
        };
        let (of_it, rest) = self.0.split_at(number);
        self.0 = rest;
        of_it
    }
}

/// Room for the latencies of units and of operations: a power of two, so that no index needs a check.
const LATENCIES: usize = (UNITS + OPERATIONS).next_power_of_two();

/// The latencies of operations, cycles.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    /// Latencies of units, then of operations.
    operations: [u64; LATENCIES],
    specials: [u64; SPECIALS],
    pub(super) forward: u64,
    pub(super) interrupt: u64,
    pub(super) interrupt_drains_stores: bool,
}

impl Latencies {
    pub(super) fn new(model: &CoreModel) -> Latencies {
        let (events, of) = (&model.events, &model.events.of);
        let rdtsc = of.rdtsc_cycles.unwrap_or(events.microcode_cycles);
        let mut specials = [0; SPECIALS];
        let all = [
            (Special::Microcode, events.microcode_cycles),
            (Special::ReadClock, rdtsc),
            (Special::ReadMsr, of.rdmsr_cycles.unwrap_or(events.microcode_cycles)),
            (Special::ExtendedControl, of.xgetbv_cycles.unwrap_or(events.microcode_cycles)),
            (Special::Direction, of.cld_cycles.unwrap_or(0)),
            (Special::SwapGs, of.swapgs_cycles.unwrap_or(events.microcode_cycles)),
            (Special::WriteFlags, of.popf_cycles.unwrap_or(0)),
            (Special::Pause, events.pause_cycles),
            (Special::StoreFence, of.sfence_cycles.unwrap_or(0)),
            (Special::FlushLine, of.clflush_cycles.unwrap_or(0)),
            (Special::Atomic, events.atomic_cycles),
            (Special::Barrier, of.mfence_cycles.unwrap_or(events.atomic_cycles)),
            (Special::Fence, of.lfence_cycles.unwrap_or(0)),
            (Special::ReadClockOrdered, of.rdtscp_cycles.unwrap_or(rdtsc)),
            (Special::Serialise, events.serialise_cycles),
            (Special::WriteControl, of.mov_cr_cycles.unwrap_or(events.serialise_cycles)),
            (Special::WriteMsr, of.wrmsr_cycles.unwrap_or(events.serialise_cycles)),
            (Special::InvalidatePage, of.invlpg_cycles.unwrap_or(events.serialise_cycles)),
            (Special::Port, of.port_cycles.unwrap_or(events.microcode_cycles)),
            (Special::SystemCall, events.system_call_cycles),
            (Special::SystemReturn, events.system_return_cycles),
            (Special::InterruptReturn, events.interrupt_return_cycles),
        ];
        for (special, cycles) in all {
            specials[special as usize] = cycles.into();
        }
        let units = model.units.all().map(|(_, unit)| u64::from(unit.latency_cycles));
        let single = model.units.of.all();
        let single = single.map(|(_, own, unit)| own.map_or(units[unit as usize], u64::from));
        let mut operations = [0; LATENCIES];
        operations[..UNITS].copy_from_slice(&units);
        operations[UNITS..UNITS + OPERATIONS].copy_from_slice(&single);
        Latencies {
            operations,
            specials,
            forward: model.data.forward_cycles.into(),
            interrupt: events.interrupt_cycles.into(),
            interrupt_drains_stores: events.interrupt_drains_stores,
        }
    }

    #[inline]
    pub(super) fn of_unit(&self, unit: Unit) -> u64 {
        self.operations[unit as usize]
    }

    /// The latency of an instruction that a unit executes.
    #[inline]
    pub(super) fn executed(&self, instruction: &Instruction) -> u64 {
        self.operations[usize::from(instruction.latency) % LATENCIES]
    }

    /// When an interrupt is taken of a core whose last instruction retired at `retired`, and whose
    /// stores had all left at `left`.
    pub(super) fn interrupted(&self, retired: Cycle, left: Cycle) -> Cycle {
        retired.max(if self.interrupt_drains_stores { left } else { Cycle::START }) + self.interrupt
    }

    /// The extra latency of a special instruction. A flushed line drains later, and so do the stores after a
    /// store fence.
    #[inline]
    pub(super) fn executing(&self, special: Special) -> u64 {
        match special {
            Special::FlushLine | Special::StoreFence => 0,
            other => self.special(other),
        }
    }

    #[inline]
    pub(super) fn special(&self, special: Special) -> u64 {
        self.specials[special as usize]
    }
}
