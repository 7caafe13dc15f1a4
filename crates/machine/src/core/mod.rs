//! Cores: what instructions cost beyond their cache misses, at the level `ooo`.
//!
//! A block of instructions is decoded once into a [`Template`]: registers read and written, unit,
//! branch, special effects. The plugin then executes it any number of times, each time with the
//! accesses that the guest made and the address that followed. The core asks a [`Memory`], such as
//! the [`MemoryPort`](crate::memory::MemoryPort) of a memory system, how long each access waits.
//!
//! - [`OutOfOrderCore`] has a reorder buffer.
//! - [`InOrderCore`] issues in order; a blocking one waits for each miss.
//! - [`AnyCore`] is an out-of-order or an in-order core, as its model says.
//! - [`MultithreadedCore`] issues in each cycle from one of several threads.
//!
//! No core loops over cycles. Instructions come in program order, and each gets all its times at
//! once: when it is fetched, issues, is done, and retires. Lost issue slots are charged by the rule
//! of `simos-1995`, section 3.3; see [`CoreCounts`]. This code runs for each instruction of a guest,
//! in QEMU's vCPU threads: a change may cost simulation speed (`cargo bench -p machine`).

mod chase;
mod code_tags;
mod fill_buffers;
mod flags;
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
mod summary;

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
pub use summary::PlainAccesses;

use crate::address::{PhysicalAddress, VirtualAddress};
use crate::cycle::Cycle;
pub(crate) use instruction::{ADDRESS_HAS_INDEX, CODE_LINE_SHIFT};
use instruction::{OPERATIONS, SPECIALS, UNITS};
use store_buffer::{crosses_pages, is_split};

/// An access to memory that an instruction has made. It lies in one page: an access to two pages is
/// two accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The virtual address of the first byte.
    pub virtual_address: VirtualAddress,
    /// The physical address of the first byte. `None` for a device.
    pub physical: Option<PhysicalAddress>,
    /// The number of the instruction in its block, from 0.
    pub instruction: u16,
    pub bytes: u8,
    pub write: bool,
}

impl Access {
    /// Whether the access is to a device, which has no line in a cache.
    #[inline(always)]
    pub(super) fn is_of_device(&self) -> bool {
        self.physical.is_none()
    }

    /// The virtual address after the last byte.
    #[inline(always)]
    pub(super) fn end(&self) -> VirtualAddress {
        self.virtual_address.plus(self.bytes.into())
    }

    /// The virtual address of the last byte. An access without bytes counts as one byte.
    #[inline(always)]
    pub(super) fn last_byte(&self) -> VirtualAddress {
        self.virtual_address.plus(u64::from(self.bytes.max(1)) - 1)
    }
}

/// How an instruction accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    Load,
    /// The load of a locked instruction, which then stores to the same address: the core acquires the line with the
    /// right to write it.
    LoadLocked,
    Store,
    /// A non-temporal store: a combining buffer collects the stores to a line, and writes the line to memory.
    StoreAround,
}

impl AccessMode {
    /// Whether a hit in this mode can be complete by touching its line and page: the memory's fast path may try it.
    #[inline(always)]
    pub(crate) fn may_hit_at_once(self) -> bool {
        matches!(self, AccessMode::Load | AccessMode::Store)
    }

    /// The mode of the loads of an instruction with this special effect.
    #[inline(always)]
    fn load_of(special: Special) -> AccessMode {
        if special == Special::Atomic { AccessMode::LoadLocked } else { AccessMode::Load }
    }

    /// The mode of the stores of an instruction.
    #[inline(always)]
    fn store_of(instruction: &Instruction) -> AccessMode {
        if instruction.streams() { AccessMode::StoreAround } else { AccessMode::Store }
    }
}

/// The caches, TLBs and memory of a core.
///
/// Each access comes once, in program order. What the access finds in caches and TLBs follows from this order alone.
/// Only its wait depends on the cycle of its start. In an out-of-order core, an access may start earlier than the
/// previous access.
///
/// A wait is in cycles beyond an L1 hit: zero for a hit. A requested line may count as present for later accesses,
/// because the core itself remembers until when the line is under way.
pub trait Memory {
    /// Looks up an instruction line, without times. Both addresses name the line's first byte.
    fn look_up_fetch(&mut self, virtual_address: VirtualAddress, physical: PhysicalAddress);

    /// Looks up the lines of a load or store, without times.
    fn look_up(&mut self, access: &Access, mode: AccessMode);

    /// Looks up the leading accesses of a block, without times. Stops before an access that only [`Memory::look_up`] can
    /// handle. Returns how many accesses it has looked up, with the effects of [`Memory::look_up`].
    #[inline(always)]
    fn filter(&mut self, _accesses: &[Access], _plain: &PlainAccesses) -> usize {
        0
    }

    /// Fetches an instruction line. Both addresses name the line's first byte. Returns the wait.
    fn fetch(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
        now: Cycle,
    ) -> u64;

    /// Tells which instruction the next fetches are for, by the addresses of its first byte. The line alone does not
    /// tell: it may also hold other instructions, and start in another function.
    fn set_fetched_instruction(
        &mut self,
        _virtual_address: VirtualAddress,
        _physical: PhysicalAddress,
    ) {
    }

    /// Loads or stores, in one line or more. Returns the wait.
    fn access(&mut self, access: &Access, mode: AccessMode, now: Cycle) -> u64;

    /// The parts of the wait of the last load or store. Valid only if its wait was not zero.
    fn last_wait(&self) -> WaitParts {
        WaitParts::default()
    }
}

/// The counts of a core. All are sums since the start; the counts of a region are the difference of two
/// readings.
///
/// A core of width N offers N issue slots per cycle. An instruction that retires uses a slot. Every other slot is lost
/// to one of the causes, or open: more instructions may still retire in the last cycle.
/// [`CoreCounts::instructions`] and all `_slots`, but for the part `branch_stall_slots`, add up to `cycles` times the
/// width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreCounts {
    /// Cycles until the last instruction retired.
    pub cycles: u64,
    /// Instructions that used a slot.
    pub instructions: u64,
    /// Instructions that used no slot: repetitions of string instructions that an earlier wide access included, and
    /// operations that were fused with the branch after them.
    pub slotless_instructions: u64,
    /// Slots lost because the core waited for an instruction line.
    pub fetch_stall_slots: u64,
    /// Slots lost because the core waited for a load or store that missed.
    pub data_stall_slots: u64,
    /// Slots lost for any other reason, such as dependences and mispredicted branches.
    pub pipeline_stall_slots: u64,
    /// The part of `pipeline_stall_slots` from a mispredicted branch to the first instruction at the correct address.
    pub branch_stall_slots: u64,
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
    /// Loads that got their value from an earlier store.
    pub forwarded_loads: u64,
    /// Fetches that waited for an instruction line.
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

/// The part of a block that the guest executed.
#[derive(Clone, Copy, Debug)]
pub struct ExecutedBlock<'a> {
    /// The number of executed instructions, from the block's first. An exception may end a block early.
    pub instructions: u32,
    /// The loads and stores of the executed instructions, in program order.
    pub accesses: &'a [Access],
    /// The address of the next executed instruction. If an interrupt comes first, its return address.
    pub next: VirtualAddress,
}

/// The parts of an access's wait beyond an L1 hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitParts {
    /// The first part of the wait, for the translation. It takes no fill buffer.
    pub translation_cycles: u64,
    /// Whether the line was already under way, as after a late prefetch. Its arrival does not depend on a free fill
    /// buffer.
    pub under_way: bool,
}

/// The parts of the wait of the last load or store. `wait`: the whole wait, in cycles.
#[inline(always)]
fn wait_parts<M: Memory>(memory: &M, wait: u64) -> WaitParts {
    if wait == 0 { WaitParts::default() } else { memory.last_wait() }
}

/// The accesses of a block that are still to be taken, instruction by instruction.
#[derive(Debug)]
pub(super) struct Accesses<'a>(&'a [Access]);

impl<'a> Accesses<'a> {
    pub(super) fn new(accesses: &'a [Access]) -> Accesses<'a> {
        Accesses(accesses)
    }

    /// The accesses that [`Accesses::next`] has not taken yet.
    #[inline]
    pub(super) fn remaining(&self) -> &'a [Access] {
        self.0
    }

    /// Takes the accesses of instruction `index`. The accesses of earlier instructions must have been taken.
    #[inline]
    pub(super) fn next(&mut self, index: usize) -> &'a [Access] {
        let is_taken = |access: &&Access| usize::from(access.instruction) <= index;
        // No access or a single one is the common case.
        let number = match self.0 {
            [] => 0,
            [first, ..] if !is_taken(&first) => 0,
            [_, rest @ ..] => 1 + rest.iter().take_while(is_taken).count(),
        };
        let (taken, rest) = self.0.split_at(number);
        self.0 = rest;
        taken
    }
}

/// Length of the table of latencies of units and operations. A power of two, so that no index needs a check.
const LATENCIES: usize = (UNITS + OPERATIONS).next_power_of_two();

/// The latencies of a core model, in cycles, with its defaults filled in.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    /// Latencies by [`Unit`], then by [`Operation`]: see [`Instruction::latency`].
    operations: [u64; LATENCIES],
    /// Extra cycles by [`Special`].
    specials: [u64; SPECIALS],
    /// Extra cycles of a locked instruction whose access crosses lines.
    split_lock: u64,
    pub(super) forward: u64,
    pub(super) interrupt: u64,
    pub(super) interrupt_drains_stores: bool,
}

impl Latencies {
    pub(super) fn new(model: &CoreModel) -> Latencies {
        let (events, single) = (&model.events, &model.events.of);
        let rdtsc = single.rdtsc_cycles.unwrap_or(events.microcode_cycles);
        let mut specials = [0; SPECIALS];
        let all = [
            (Special::Microcode, events.microcode_cycles),
            (Special::ReadClock, rdtsc),
            (Special::ReadMsr, single.rdmsr_cycles.unwrap_or(events.microcode_cycles)),
            (Special::ExtendedControl, single.xgetbv_cycles.unwrap_or(events.microcode_cycles)),
            (Special::Direction, single.cld_cycles.unwrap_or(0)),
            (Special::SwapGs, single.swapgs_cycles.unwrap_or(events.microcode_cycles)),
            (Special::WriteFlags, single.popf_cycles.unwrap_or(0)),
            (Special::Pause, events.pause_cycles),
            (Special::StoreFence, single.sfence_cycles.unwrap_or(0)),
            (Special::FlushLine, single.clflush_cycles.unwrap_or(0)),
            (Special::Atomic, events.atomic_cycles),
            (Special::Barrier, single.mfence_cycles.unwrap_or(events.atomic_cycles)),
            (Special::Fence, single.lfence_cycles.unwrap_or(0)),
            (Special::ReadClockOrdered, single.rdtscp_cycles.unwrap_or(rdtsc)),
            (Special::Serialise, events.serialise_cycles),
            (Special::WriteControl, single.mov_cr_cycles.unwrap_or(events.serialise_cycles)),
            (Special::WriteMsr, single.wrmsr_cycles.unwrap_or(events.serialise_cycles)),
            (Special::InvalidatePage, single.invlpg_cycles.unwrap_or(events.serialise_cycles)),
            (Special::Port, single.port_cycles.unwrap_or(events.microcode_cycles)),
            (Special::SystemCall, events.system_call_cycles),
            (Special::SystemReturn, events.system_return_cycles),
            (Special::InterruptReturn, events.interrupt_return_cycles),
        ];
        for (special, cycles) in all {
            specials[special as usize] = cycles.into();
        }
        let units = model.units.named_units().map(|(_, unit)| u64::from(unit.latency_cycles));
        let latencies = model.units.of.named_latencies();
        let latencies =
            latencies.map(|(_, cycles, unit)| cycles.map_or(units[unit as usize], u64::from));
        let mut operations = [0; LATENCIES];
        operations[..UNITS].copy_from_slice(&units);
        operations[UNITS..UNITS + OPERATIONS].copy_from_slice(&latencies);
        Latencies {
            operations,
            specials,
            split_lock: single.split_lock_cycles.unwrap_or(0).into(),
            forward: model.data.forward_cycles.unwrap_or(0).into(),
            interrupt: events.interrupt_cycles.into(),
            interrupt_drains_stores: events.interrupt_drains_stores,
        }
    }

    #[inline]
    pub(super) fn of_unit(&self, unit: Unit) -> u64 {
        self.operations[unit as usize]
    }

    /// Cycles from the start of a load that hits until the operation of the same instruction can use the data. A core
    /// with a load latency of one cycle executes each instruction with a load in a single cycle: 0.
    #[inline]
    pub(super) fn load_to_own_operation(&self) -> u64 {
        match self.of_unit(Unit::Load) {
            1 => 0,
            latency => latency,
        }
    }

    /// The latency of an instruction that a unit executes.
    #[inline]
    pub(super) fn of_instruction(&self, instruction: &Instruction) -> u64 {
        self.operations[usize::from(instruction.latency) % LATENCIES]
    }

    /// When the handler of an interrupt starts. The core's last instruction retired at `retired`, and all its stores
    /// have drained at `drained`.
    pub(super) fn interrupted(&self, retired: Cycle, drained: Cycle) -> Cycle {
        let stores_wait = if self.interrupt_drains_stores { drained } else { Cycle::START };
        retired.max(stores_wait) + self.interrupt
    }

    /// The extra latency of the result of a special instruction. Line flushes and store fences delay only the drain of
    /// stores.
    #[inline]
    pub(super) fn extra_latency(&self, special: Special) -> u64 {
        match special {
            Special::FlushLine | Special::StoreFence => 0,
            other => self.special(other),
        }
    }

    /// [`Latencies::extra_latency`] of a special instruction with these accesses.
    #[inline]
    pub(super) fn extra_latency_with(&self, special: Special, accesses: &[Access]) -> u64 {
        let is_split_lock = self.split_lock > 0
            && special == Special::Atomic
            && (accesses.iter().any(is_split) || crosses_pages(accesses, false));
        self.extra_latency(special) + if is_split_lock { self.split_lock } else { 0 }
    }

    /// The cycles that a model gives for a special effect.
    #[inline]
    pub(super) fn special(&self, special: Special) -> u64 {
        self.specials[special as usize]
    }
}
