//! The out-of-order core. The plugin calls it as [`AnyCore`](super::AnyCore), at the level `ooo`.
//!
//! Each instruction gets all its times when it comes, in program order: fetch, entry into the reorder buffer, issue,
//! completion, retirement. Everything that a time depends on is known then. Operands are ready at the ready times of
//! registers. Queues keep the times at which their entries become free. The port scheduler knows which units are free.
//!
//! `step` has the timing rule; `load` and `store` are its stages for accesses; `parts` specialises the rule for common
//! instructions; `repeat` has string instructions; `warming` updates caches and predictors without times.
//!
//! Invariant: all specialised copies give the times of [`OutOfOrderCore::run_slowly_from`], to the cycle. Tests compare
//! them.

mod load;
mod parts;
mod repeat;
mod step;
mod store;
mod warming;

use super::forwarding::Forwarding;
use super::front_end::InstructionTimes;
use super::instruction::{
    Class, Instruction, OPERATIONS_WITH_INTERVAL, REGISTERS, Register, Template, UNITS,
    register_index,
};
use super::load_banks::LoadBanks;
use super::model::{CoreModel, WindowModel};
use super::ports::PortScheduler;
use super::single_thread::{CommonParts, SingleThreadCore};
use super::stages::{EntryQueue, WidthLimiter};
use super::store_buffer::StoreBuffer;
use super::strings::Strings;
use super::{Access, Accesses, ExecutedBlock, LATENCIES, Memory};
use crate::counts::Instructions;
use crate::cycle::Cycle;
pub use warming::Warmed;

use parts::{AllParts, CommonAccesses, Operations, take_common, take_common_pair};

/// An out-of-order core. Fields without a comment are the values of its [`CoreModel`].
#[derive(Clone, Debug)]
pub struct OutOfOrderCore {
    pub(super) common: CommonParts,
    loads_pass_stores: bool,
    stores_hold_retirement: bool,
    access_bytes: u8,
    has_wide_limit: bool,
    splits_take_two: bool,
    /// Minimum cycles from a load that crosses lines to the next such load.
    line_split_cycles: u64,
    /// Minimum cycles from a load that crosses pages to the next such load.
    page_split_cycles: u64,
    /// No load that crosses lines or pages issues before this cycle.
    splits_from: Cycle,
    banks: Option<Box<LoadBanks>>,
    /// Cycles that a store that crosses pages delays the drain.
    page_split_store_cycles: u64,
    /// Cycles that a load waits for a store with the same offset in another page (4K aliasing).
    alias_cycles: u64,
    renames_memory: bool,
    renames_without_index: bool,
    /// Latencies of loads, by [`Instruction::load_form`].
    load_latencies: [u64; 4],
    forwarding: Option<Box<Forwarding>>,
    /// Cycles that an operation occupies its unit, by the number of its latency. `None`: the interval of the unit.
    operation_intervals: [Option<u32>; LATENCIES],
    /// Latency of forwarding into a vector register, cycles.
    forward_vector: u64,
    /// Latency of forwarding more than 16 bytes, cycles.
    forward_wide: u64,
    /// Cycles after which a load retries that issued before the address of its store was known. 0: no load retries.
    forward_again: u64,
    /// Cycles that a load waits where no single store can forward the whole value.
    forward_fail: u64,
    entering: WidthLimiter,
    ports: PortScheduler,
    reorder: EntryQueue<Cycle>,
    loads: EntryQueue<Cycle>,
    /// One entry for each branch that can be unresolved at a time: when its last branch is resolved. Empty without a
    /// limit.
    unresolved: Box<[Cycle]>,
    /// When the value of each register is ready.
    ready: Box<[Cycle; REGISTERS]>,
    /// When the addresses of all stores so far are known.
    addresses_known: Cycle,
    strings: Option<Strings>,
    /// Number of instructions that only warmed the core's state and got no times.
    warmed: Instructions,
}

/// Cycles that each operation occupies its unit, by the number of its latency. `None`: the interval of the unit.
fn operation_intervals(model: &CoreModel) -> [Option<u32>; LATENCIES] {
    let mut intervals = [None; LATENCIES];
    for (operation, (_, cycles)) in OPERATIONS_WITH_INTERVAL.iter().zip(model.units.of.intervals())
    {
        intervals[UNITS + *operation as usize] = cycles;
    }
    intervals
}

impl OutOfOrderCore {
    /// Returns a core that has executed nothing, of a model that [`CoreModel::check`] has accepted,
    /// or `None` if the model executes in order. `data_line_bytes` is the line size of its L1D, a
    /// power of two.
    #[must_use]
    pub fn new(model: &CoreModel, data_line_bytes: u64) -> Option<OutOfOrderCore> {
        let window: &WindowModel = model.window.as_ref()?;
        let forward = u64::from(model.data.forward_cycles.unwrap_or(0));
        let forward_vector = model.data.forward_vector_cycles.map_or(forward, u64::from);
        let stores = StoreBuffer::new(model.data.store_entries, model.units.store.count)
            .one_line_per_cycle(model.data.stores_one_line_per_cycle, model.data.stores_any_of_line)
            .with_vector_limit(model.data.vector_stores)
            .with_aliases(model.data.alias_cycles > 0)
            .with_addresses(model.data.forward_again_cycles > 0);
        Some(OutOfOrderCore {
            common: CommonParts::new(model, data_line_bytes, stores),
            loads_pass_stores: window.loads_pass_stores,
            stores_hold_retirement: window.stores_hold_retirement,
            access_bytes: model.data.access_bytes,
            has_wide_limit: model.data.wide_loads.is_some(),
            splits_take_two: model.data.splits_take_two,
            line_split_cycles: model.data.split_load_cycles.into(),
            page_split_cycles: model.data.page_split_load_cycles.into(),
            splits_from: Cycle::START,
            banks: model.data.bank_loads.map(|loads_max| Box::new(LoadBanks::new(loads_max))),
            page_split_store_cycles: model.data.page_split_store_cycles.into(),
            alias_cycles: model.data.alias_cycles.into(),
            renames_memory: model.data.renames_memory,
            renames_without_index: model.data.renames_without_index,
            load_latencies: [0, 1, 2, 3].map(|form| {
                let (scaled, vector) = (form & 1, form >> 1);
                u64::from(
                    model.units.load.latency_cycles
                        + scaled * model.data.scaled_index_cycles
                        + vector * model.data.vector_load_cycles,
                )
            }),
            forwarding: Forwarding::new(model),
            operation_intervals: operation_intervals(model),
            forward_vector,
            forward_wide: model.data.forward_wide_cycles.map_or(forward_vector, u64::from),
            forward_again: model.data.forward_again_cycles.into(),
            forward_fail: model.data.forward_fail_cycles.into(),
            entering: WidthLimiter::new(model.width),
            ports: PortScheduler::new(model),
            reorder: EntryQueue::new(window.reorder_entries),
            loads: EntryQueue::new(model.data.load_entries.unwrap_or(1)),
            unresolved: vec![Cycle::START; window.unresolved_branches.unwrap_or(0) as usize].into(),
            ready: Box::new([Cycle::START; REGISTERS]),
            addresses_known: Cycle::START,
            strings: model.strings.map(Strings::new),
            warmed: Instructions::default(),
        })
    }

    /// [`SingleThreadCore::run_from`] by specialised copies of the timing rule: each has only the
    /// [`Parts`](parts::Parts) that its instructions need.
    #[inline(always)]
    fn run_specialised<const FORWARDING: bool, M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        self.run_by(first, block, executed, |core, numbered, accesses| {
            let (index, instruction) = numbered;
            let common = match instruction.class {
                Class::Operation => {
                    return core.step::<Operations<FORWARDING>, M>(block, instruction, &[], memory);
                }
                Class::Load => take_common(accesses, index, false),
                Class::Store => take_common(accesses, index, true),
                Class::LoadAndStore => take_common_pair(accesses, index),
                Class::Fused => return core.fused(block, instruction, memory),
                Class::AllStages | Class::Repetition => None,
            };
            match common {
                Some(common) => {
                    core.step_common::<FORWARDING, M>(block, instruction, common, memory)
                }
                None => core.step_any(block, numbered, accesses, memory),
            }
        });
    }

    /// [`SingleThreadCore::run_from`] with all parts of the timing rule for each instruction, for tests and replays.
    /// Times and counts are equal.
    pub fn run_slowly_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        self.run_by(first, block, executed, |core, numbered, accesses| {
            core.step_any(block, numbered, accesses, memory)
        });
    }

    /// Executes a block from instruction `first` on. `step` gives an instruction its times. It gets the instruction
    /// with its number, and the remaining accesses of the block. It takes the accesses of the instruction.
    #[inline(always)]
    fn run_by<'a>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock<'a>,
        mut step: impl FnMut(&mut Self, (usize, &Instruction), &mut &'a [Access]) -> InstructionTimes,
    ) {
        let (instructions, branch) = block.executed_from(first, executed);
        let mut accesses = executed.accesses;
        let mut times = InstructionTimes::default();
        for numbered in (first..).zip(instructions) {
            times = step(self, numbered, &mut accesses);
        }
        if first + instructions.len() == block.len() {
            let flags = self.ready[register_index(block.flags_but_carry.number())];
            self.ready[register_index(Register::EARLIER_FLAGS.number())] = flags;
        }
        if branch.is_some() {
            // The branch replaces the branch that is resolved first.
            if let Some(resolved) = self.unresolved.iter_mut().min() {
                *resolved = times.done;
            }
            self.common.branch(block, executed.next, times);
        }
    }

    /// Gives an instruction with common accesses its times. Not inlined: one copy serves three classes, because the
    /// host's L1I also has to hold QEMU and the translated code.
    #[inline(never)]
    fn step_common<const FORWARDING: bool, M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> InstructionTimes {
        self.step::<CommonAccesses<FORWARDING>, M>(block, instruction, accesses, memory)
    }

    /// Gives any instruction its times. `index`: its number in the block. Takes its accesses.
    #[inline(never)]
    fn step_any<M: Memory>(
        &mut self,
        block: &Template,
        (index, instruction): (usize, &Instruction),
        accesses: &mut &[Access],
        memory: &mut M,
    ) -> InstructionTimes {
        // Skips the accesses of earlier instructions.
        while let [first, rest @ ..] = *accesses
            && usize::from(first.instruction) < index
        {
            *accesses = rest;
        }
        let mut block_accesses = Accesses::new(accesses);
        let own_accesses = block_accesses.next(index);
        *accesses = block_accesses.remaining();
        match instruction.class {
            Class::Repetition => self.repeat(block, instruction, own_accesses, memory),
            Class::Fused => self.fused(block, instruction, memory),
            _ => self.step::<AllParts, M>(block, instruction, own_accesses, memory),
        }
    }
}

impl SingleThreadCore for OutOfOrderCore {
    fn run_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        // A core without forwarding delays executes no code for them.
        match self.forwarding {
            None => self.run_specialised::<false, M>(first, block, executed, memory),
            Some(_) => self.run_specialised::<true, M>(first, block, executed, memory),
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
