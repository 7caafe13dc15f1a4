//! The state of a vCPU that every executed block touches: its counts, and when the plugin has to act next.
//!
//! Each level of detail has its own callbacks of blocks and accesses: `plain` counts without a model, `timed` and
//! `ooo` pass accesses to the model of the level of that name, and `shadow_caches` passes them to shadow caches.
//! `level` is the level in use now.

mod engine;
pub(crate) mod level;

pub(crate) mod ooo;
pub(crate) mod plain;
pub(crate) mod shadow_caches;
pub(crate) mod timed;

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;

use attribution::KernelContext;
use machine::decode::FlushedLine;
use machine::memory::TlbFlush;
use machine::{BlockingMachine, Cycle, Instructions, VirtualAddress};

pub(crate) use engine::Engine;

use crate::models::accesses::{OwnAccess, Write};
use crate::models::counters;
use crate::models::pipeline::Pipeline;
use crate::models::sampling::{Scope, UnitPart};
use crate::models::translations::Change;
use crate::qemu::block::Block;
use crate::qemu::qemu_internals::CurrentCpu;
use plugin_interface::sampling::Sampling;
use simrecord::counters::{
    BRANCHES, COUNTERS, CYCLES, Counts, INSTRUCTIONS, PIPELINE_STALL_CYCLES, TIME,
};
use simrecord::record::{CPUS_MAX, Detail};

/// The work that is due before a block: see [`Cpu::is_due`]. It needs all parts of a recording, and this module must
/// not import them. So the callbacks of blocks take it as a parameter: [`crate::qemu::before_block::WhatIsDue`].
pub(crate) trait BeforeBlock {
    /// `block` is about to start on a vCPU.
    fn before_block(vcpu: u32, block: &Block);
}

/// The place of a vCPU in the block that it executes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockPosition {
    pub(crate) vcpu: u32,
    /// How many instructions of the block have not executed.
    pub(crate) remaining: u32,
}

/// No block starts at this address.
const NOWHERE: u64 = u64::MAX;

/// Counts of one vCPU. Aligned to a cache line of the host, so that two vCPUs never share a line.
#[repr(align(64))]
pub(crate) struct Cpu {
    /// Instructions of all started blocks, minus those known not to have executed. The model of the level `timed`
    /// counts in place of this field.
    instructions: u64,
    /// The block that was started last. Null once its executed part is known.
    block: *const Block,
    /// The address to which a followed function returns, or [`NOWHERE`] if no function is followed.
    awaits: u64,
    /// The count of cycles at which the time slice ends.
    slice_end: u64,
    /// The count of cycles from which on a counter of the guest's PMU may have overflowed.
    pmu_deadline: u64,
    /// The count of cycles, by the model or core, from which on work is due before a block: the earlier of `slice_end`
    /// and `pmu_deadline`. 0 if work is due at once: see [`Cpu::set_due`].
    due_at: u64,
    /// The correction to the time that the guest has just read from the clock, ns.
    clock_ahead: Option<i64>,
    /// Whether a device has written memory that caches may hold.
    device_wrote: bool,
    /// Whether the running block is the last of its time slice, and QEMU was to stay in its loop after it.
    in_last_block: bool,
    /// Branches of the started blocks. Counted only with a model.
    branches: u64,
    /// The model of the vCPU, in use now or not.
    engine: Engine,
    /// Whether the idle task runs, and no interrupt handler above it.
    idles: bool,
    /// Whether cycles are counted by the engine. Otherwise each instruction is one cycle, if instructions are counted at
    /// all.
    engine_counts: bool,
    /// Whether the kernel runs.
    in_kernel: bool,
    /// Whether an exception was raised whose handler is not entered yet.
    raising: bool,
    /// Whether QEMU abandoned the block and re-executes one of its instructions alone. Only at the level `ooo`.
    has_abandoned_block: bool,
    /// The address of QEMU's description of the vCPU. It identifies the running vCPU.
    handle: *mut c_void,
    /// Cycles during which the vCPU was halted.
    halted_cycles: u64,
    /// Cycles that the vCPU's model or core does not count: waits at a `pause` until other vCPUs had caught up.
    waited_cycles: u64,
    /// The counts in user mode up to the last change of the mode.
    user: Counts,
    /// The counts at the last change of the mode.
    changed_at: Counts,
}

/// All vCPUs, and which of them runs.
struct Machine {
    cpus: [UnsafeCell<Cpu>; CPUS_MAX],
    running: UnsafeCell<Running>,
}

/// The running vCPU. It is remembered, because it changes only at the end of a slice.
struct Running {
    current: CurrentCpu,
    handle: *mut c_void,
    index: u32,
}

// SAFETY: all vCPUs run in one thread, which `on_vcpu` checks; at exit they are stopped.
unsafe impl Sync for Machine {}

static MACHINE: Machine = Machine {
    cpus: [const { UnsafeCell::new(Cpu::NEW) }; CPUS_MAX],
    running: UnsafeCell::new(Running {
        current: CurrentCpu::UNKNOWN,
        handle: ptr::null_mut(),
        index: 0,
    }),
};

/// Runs `use_it` on the state of a vCPU. `use_it` must not call `with` again, not even through a callback from QEMU.
#[inline(always)]
pub(crate) fn with<R>(vcpu: u32, use_it: impl FnOnce(&mut Cpu) -> R) -> R {
    let cell = &MACHINE.cpus[vcpu as usize % CPUS_MAX];
    // SAFETY: one thread runs all vCPUs, and no use is nested in another.
    use_it(unsafe { &mut *cell.get() })
}

/// The running vCPU.
///
/// QEMU passes a number to callbacks of blocks and instructions. Where one thread runs all vCPUs, this number
/// is a constant in the code: the vCPU that *translated* the block.
#[inline(always)]
pub(crate) fn running() -> u32 {
    // SAFETY: one thread runs all vCPUs; this reference does not outlive the function.
    let running = unsafe { &mut *MACHINE.running.get() };
    let handle = running.current.get();
    if handle != running.handle {
        running.changed(handle);
    }
    running.index
}

/// The running vCPU, if it is known at once. A machine with a single vCPU (`ALONE`) always knows it. Other machines
/// know it while the running vCPU is the same as at the last call of [`running`].
#[inline(always)]
fn known_running<const ALONE: bool>() -> Option<u32> {
    if ALONE {
        return Some(0);
    }
    // SAFETY: as above.
    let running = unsafe { &*MACHINE.running.get() };
    (running.current.get() == running.handle).then_some(running.index)
}

/// Sets how to find out which of several vCPUs runs.
pub(crate) fn watch(current: CurrentCpu) {
    // SAFETY: as above.
    unsafe { (*MACHINE.running.get()).current = current };
}

impl Running {
    #[cold]
    fn changed(&mut self, handle: *mut c_void) {
        let runs = |vcpu: &u32| with(*vcpu, |cpu| cpu.handle == handle);
        if let Some(vcpu) = (0..CPUS_MAX as u32).find(runs) {
            self.index = vcpu;
            self.handle = handle;
        }
    }
}

impl Cpu {
    const NEW: Cpu = Cpu {
        instructions: 0,
        block: ptr::null(),
        awaits: NOWHERE,
        slice_end: u64::MAX,
        pmu_deadline: u64::MAX,
        due_at: u64::MAX,
        clock_ahead: None,
        device_wrote: false,
        in_last_block: false,
        branches: 0,
        engine: Engine::Absent,
        idles: false,
        engine_counts: false,
        in_kernel: false,
        raising: false,
        has_abandoned_block: false,
        handle: ptr::null_mut(),
        halted_cycles: 0,
        waited_cycles: 0,
        user: [0; COUNTERS],
        changed_at: [0; COUNTERS],
    };

    /// Whether something is to be done before `block` starts.
    #[inline(always)]
    fn is_due(&self, block: &Block, cycles: u64) -> bool {
        (block.in_kernel != self.in_kernel)
            | (block.address == self.awaits)
            | (cycles >= self.due_at)
    }

    pub(crate) fn slice_is_over(&mut self) -> bool {
        self.cycles() >= self.slice_end
    }

    /// Ends the slice in `cycles`.
    pub(crate) fn set_slice(&mut self, cycles: u64) {
        self.slice_end = self.cycles().saturating_add(cycles);
        self.set_due();
    }

    /// Sets when work is due before a block: at once, at the end of the slice, or when the PMU must be checked.
    fn set_due(&mut self) {
        let at_once = self.has_read_clock() || self.device_wrote || self.in_last_block;
        let due_at = self.slice_end.min(self.pmu_deadline);
        self.due_at = if at_once { 0 } else { due_at.saturating_sub(self.waited_cycles) };
    }

    /// Whether the running block is the last of its time slice, and QEMU was to stay in its loop after it.
    pub(crate) fn is_in_last_block(&self) -> bool {
        self.in_last_block
    }

    /// Sets whether the starting block is the last of its time slice, and QEMU stays in its loop after it.
    pub(crate) fn set_in_last_block(&mut self, is_last: bool) {
        self.in_last_block = is_last;
        self.set_due();
    }

    /// QEMU's description of the vCPU, which identifies it.
    pub(crate) fn set_handle(&mut self, handle: *mut c_void) {
        self.handle = handle;
    }

    /// Sets the address to which a followed function returns. `None`: no function is followed.
    pub(crate) fn await_at(&mut self, address: Option<u64>) {
        self.awaits = address.unwrap_or(NOWHERE);
    }

    /// Whether a followed function returns to `address`.
    pub(crate) fn awaits(&self, address: u64) -> bool {
        self.awaits == address
    }

    pub(crate) fn add_halted(&mut self, cycles: u64) {
        self.halted_cycles += cycles;
    }

    /// The code cache is about to be emptied.
    pub(crate) fn forget_block(&mut self) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.forget_block();
        }
        self.block = ptr::null();
    }

    /// Gives the vCPU its model. A former model is never freed: translated code may still use it.
    pub(crate) fn set_engine(&mut self, engine: Engine) {
        std::mem::forget(std::mem::replace(&mut self.engine, engine));
    }

    /// The vCPU is halted, or no longer is.
    pub(crate) fn set_halted(&mut self, halted: bool) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.set_halted(halted);
        }
    }

    /// Makes the vCPU wait `cycles` before its next instruction.
    pub(crate) fn wait(&mut self, cycles: u64) {
        let is_thread = self.pipeline().is_some_and(|pipeline| pipeline.wait_as_thread(cycles));
        if !is_thread {
            self.waited_cycles += cycles;
            self.set_due();
        }
    }

    /// Has the threads of its core issue all their instructions, and continue at a common time.
    pub(crate) fn issue_all_threads(&mut self) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.issue_all_threads();
        }
    }

    /// Sets the common time of all vCPUs, in cycles.
    pub(crate) fn set_time(&mut self, cycles: u64) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.set_time(Cycle(cycles));
        }
    }

    /// Counts at this level of detail from now on.
    pub(crate) fn set_level(&mut self, level: Detail) {
        self.engine_counts = match self.engine {
            Engine::Timed(_) => level == Detail::Timed,
            Engine::Ooo(_) => level == Detail::Ooo,
            Engine::Absent | Engine::ShadowCaches(_) => false,
        };
        // The previous level may not have followed changes of translations.
        match &mut self.engine {
            Engine::Timed(model) => model.flush_tlbs(TlbFlush::All),
            Engine::Ooo(pipeline) => pipeline.forget_translations(TlbFlush::All),
            Engine::Absent | Engine::ShadowCaches(_) => {}
        }
    }

    /// The address translations of this vCPU change.
    pub(crate) fn change_translations(&mut self, vcpu: u32, change: Change) {
        match &mut self.engine {
            Engine::Timed(model) => {
                // This model knows one address space, so it drops all translations of the old one.
                let space = change.space.map(|(space, _)| TlbFlush::Space(space));
                if let Some(flush) = change.flush.or(space) {
                    model.flush_tlbs(flush);
                }
            }
            Engine::Ooo(pipeline) => pipeline.change_translations(change),
            Engine::Absent => {}
            Engine::ShadowCaches(_) => {
                if let Some(shadow_caches) = self.engine.shadow_caches() {
                    shadow_caches.change_translations(vcpu as usize, change);
                }
            }
        }
    }

    /// Tells the shadow caches that address translations have changed.
    pub(crate) fn forget_shadow_translations(&mut self, vcpu: u32) {
        if let Some(shadow_caches) = self.engine.shadow_caches() {
            shadow_caches.forget_translations(vcpu as usize);
        }
    }

    /// Whether the idle task runs.
    pub(crate) fn set_idles(&mut self, idles: bool) {
        self.idles = idles;
    }

    /// Tells the sampler which context executes from now on.
    pub(crate) fn set_sampled_context(&mut self, context: KernelContext) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.set_context(context.code());
        }
    }

    /// Tells the sampler that a region of interest opens or closes.
    pub(crate) fn set_sampled_region(&mut self, region: Option<u32>) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.set_sampled_region(region);
        }
    }

    /// Sets what the core executes in detail.
    pub(crate) fn set_scope(&mut self, scope: Scope, sampling: Sampling) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.set_scope(scope, sampling);
        }
    }

    /// The parts of sampled units that have ended since the last call.
    pub(crate) fn take_sampled(&mut self) -> Vec<UnitPart> {
        self.pipeline().map_or_else(Vec::new, Pipeline::take_sampled)
    }

    /// Whether cycles are counted by a model.
    pub(crate) fn counts_with_model(&self) -> bool {
        self.engine_counts
    }

    /// The core of the level `ooo`, in use now or not.
    fn pipeline(&mut self) -> Option<&mut Pipeline> {
        self.engine.pipeline()
    }

    /// The core of the level `ooo`, if it is in use now.
    fn pipeline_in_use(&mut self) -> Option<&mut Pipeline> {
        if self.engine_counts { self.engine.pipeline() } else { None }
    }

    /// The model of the level `timed`, if it is in use now.
    fn timed_in_use(&mut self) -> Option<&mut BlockingMachine> {
        if self.engine_counts { self.engine.timed() } else { None }
    }

    /// Executed cycles, in the unit of time slices. Values before and after a change of the level cannot be compared.
    pub(crate) fn cycles(&self) -> u64 {
        let counted = match &self.engine {
            Engine::Timed(model) if self.engine_counts => model.cycles(),
            Engine::Ooo(pipeline) if self.engine_counts => pipeline.cycles(),
            _ => self.instructions,
        };
        counted + self.waited_cycles
    }

    /// Instructions executed, if the block that was started last ran to its end.
    pub(crate) fn instructions(&self) -> Instructions {
        // Cheaper than `counts`: clocks ask each vCPU for this number at every slice.
        match &self.engine {
            Engine::Timed(model) => model.instructions(),
            _ => Instructions(self.instructions),
        }
    }

    /// Instructions executed, as the current level counts them. Values before and after a change of the level cannot be
    /// compared.
    pub(crate) fn executed(&self) -> Instructions {
        if self.engine_counts { self.instructions() } else { Instructions(self.instructions) }
    }

    /// The counts, if the last started block ran to its end.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = [0; COUNTERS];
        counts[INSTRUCTIONS] = self.instructions;
        counts[CYCLES] = self.instructions;
        match &self.engine {
            Engine::Timed(model) => counters::put_model_counts(&model.counts(), &mut counts),
            Engine::Ooo(pipeline) => {
                pipeline.add_to(&mut counts);
                counts[CYCLES] = pipeline.cycles();
                counts[INSTRUCTIONS] = self.instructions;
                counts[PIPELINE_STALL_CYCLES] += self.waited_cycles;
            }
            Engine::Absent | Engine::ShadowCaches(_) => {}
        }
        counts[CYCLES] += self.waited_cycles;
        if self.engine.is_model() {
            counts[BRANCHES] = self.branches;
        }
        counts[TIME] = counts[CYCLES] + self.halted_cycles;
        counts
    }

    /// The counts, where `remaining` instructions of the last started block have not executed.
    pub(crate) fn counts_before(&mut self, remaining: u32) -> Counts {
        self.retire_pending(remaining);
        let mut counts = self.counts();
        // A core has not received the remaining instructions yet, so their cycles are not in its counts.
        let instruction_cycles = match &self.engine {
            Engine::Timed(model) => model.instruction_cycles(),
            Engine::Ooo(_) => 0,
            Engine::Absent | Engine::ShadowCaches(_) => 1,
        };
        let cycles = u64::from(remaining) * instruction_cycles;
        counts[INSTRUCTIONS] -= u64::from(remaining);
        counts[CYCLES] -= cycles;
        counts[TIME] -= cycles;
        // SAFETY: null, or kept by the arena until a flush, which clears it.
        let block = unsafe { self.block.as_ref() };
        let has_pending_branch = block.is_some_and(|block| block.ends_in_branch && remaining > 0);
        counts[BRANCHES] -= u64::from(has_pending_branch && self.engine.is_model());
        counts
    }

    /// Has the core execute the block's instructions up to its last `remaining` ones, which the vCPU has not executed
    /// yet.
    pub(crate) fn retire_pending(&mut self, remaining: u32) {
        if let Some(pipeline) = self.pipeline_in_use() {
            pipeline.retire_pending(remaining);
        }
    }

    /// The part of `counts` from user mode.
    pub(crate) fn user_counts(&self, counts: &Counts) -> Counts {
        let mut user = self.user;
        if !self.in_kernel {
            for (position, user) in user.iter_mut().enumerate() {
                *user += counts[position] - self.changed_at[position];
            }
        }
        user
    }

    /// Switches between user mode and kernel, if `in_kernel` differs from the current mode.
    pub(crate) fn set_mode(&mut self, in_kernel: bool) {
        if in_kernel != self.in_kernel {
            let counts = self.counts();
            self.user = self.user_counts(&counts);
            self.changed_at = counts;
            self.in_kernel = in_kernel;
        }
    }

    /// An exception is raised.
    pub(crate) fn raise(&mut self) {
        self.raising = true;
    }

    /// A handler is entered instead of the instruction at `address`. Returns whether the handler is that of an
    /// exception. Otherwise the previous block ran to its end.
    pub(crate) fn deliver(&mut self, address: u64) -> bool {
        let exception = std::mem::take(&mut self.raising);
        if exception {
            self.interrupted_at(address);
        }
        if let Some(pipeline) = self.pipeline_in_use() {
            pipeline.interrupt(address);
        }
        exception
    }

    /// The vCPU makes these accesses itself as it enters a handler.
    pub(crate) fn enter_handler(&mut self, vcpu: u32, accesses: &[OwnAccess], in_kernel: bool) {
        // These accesses count for the handler, not for the interrupted context.
        self.set_mode(in_kernel);
        if let Some(model) = self.timed_in_use() {
            accesses.iter().for_each(|access| access.execute(model));
        }
        if let Some(pipeline) = self.pipeline_in_use() {
            pipeline.enter_handler(accesses);
        }
        if let Some(shadow_caches) = self.engine.shadow_caches() {
            for access in accesses {
                let addresses = (access.virtual_address, access.physical);
                shadow_caches.data(vcpu as usize, access.write, addresses, access.bytes.into());
            }
        }
    }

    /// An exception occurred at `address`. The block's instructions from that address on were not executed.
    fn interrupted_at(&mut self, address: u64) {
        // SAFETY: null, or kept by the arena until a flush, which clears it.
        let Some(block) = (unsafe { self.block.as_ref() }) else { return };
        if let Some(index) = block.index_of(address) {
            let last = index + 1 == block.length();
            if !(last && block.ends_in_trap) {
                self.take_back(block, block.length() - index);
            }
            self.block = ptr::null();
        }
    }

    /// The block was left after the instruction at `address`.
    fn left_after(&mut self, address: u64) {
        // SAFETY: as above.
        let Some(block) = (unsafe { self.block.as_ref() }) else { return };
        if let Some(index) = block.index_of(address) {
            self.take_back(block, block.length() - index - 1);
        }
    }

    /// The last `count` instructions of the block were not executed.
    fn take_back(&mut self, block: &Block, count: u32) {
        let branches = u64::from(block.ends_in_branch && count > 0);
        match &mut self.engine {
            Engine::Timed(model) if self.engine_counts => {
                model.uncount_instructions(count);
                self.branches -= branches;
            }
            Engine::Ooo(pipeline) if self.engine_counts => {
                pipeline.leave(block.length() - count);
                self.instructions -= u64::from(count);
                self.branches -= branches;
            }
            _ => self.instructions -= u64::from(count),
        }
    }

    /// Sets the count of cycles from which on the guest's PMU is checked.
    pub(crate) fn set_pmu_deadline(&mut self, cycles: u64) {
        self.pmu_deadline = cycles;
        self.set_due();
    }

    /// Returns whether the guest's PMU is to be checked.
    pub(crate) fn pmu_is_due(&mut self) -> bool {
        self.cycles() >= self.pmu_deadline
    }

    /// The guest reads the clock. `ahead_ns` is added to the time before the next block.
    pub(crate) fn read_clock(&mut self, ahead_ns: i64) {
        self.clock_ahead = Some(ahead_ns);
        self.set_due();
    }

    /// Whether the guest has just read the clock.
    pub(crate) fn has_read_clock(&self) -> bool {
        self.clock_ahead.is_some()
    }

    /// The correction to the time that the guest has just read.
    pub(crate) fn take_clock_ahead(&mut self) -> Option<i64> {
        let ahead_ns = self.clock_ahead.take()?;
        self.set_due();
        Some(ahead_ns)
    }

    /// Whether a device has written memory since the last block.
    pub(crate) fn device_wrote(&self) -> bool {
        self.device_wrote
    }

    /// A device has written memory, or the caches have seen that.
    pub(crate) fn set_device_wrote(&mut self, wrote: bool) {
        self.device_wrote = wrote;
        self.set_due();
    }

    /// Memory was written. The caches of the vCPU's model at the level `timed` see the write. At the level `ooo` its
    /// core drops the instructions that it has decoded from this memory.
    pub(crate) fn written(&mut self, write: Write) {
        match &mut self.engine {
            Engine::Timed(model) if write.by_device => {
                model.dma_write(write.physical, write.bytes);
            }
            Engine::Ooo(pipeline) => pipeline.forget_code(write.physical, write.bytes),
            _ => {}
        }
    }

    /// The vCPU executes an instruction that flushes the line of an address. `remaining`: instructions of the block
    /// that have not executed yet, this one included.
    pub(crate) fn flush_line(
        &mut self,
        flush: FlushedLine,
        remaining: u32,
        address: VirtualAddress,
    ) {
        if let Some(pipeline) = self.pipeline_in_use() {
            pipeline.retire_pending(remaining);
            pipeline.flush_line(address, flush.keeps);
        }
    }

    /// The block that was started last is left before its last `count` instructions.
    pub(crate) fn leave_block(&mut self, count: u32) {
        // SAFETY: null, or kept by the arena until a flush, which clears it.
        if let Some(block) = unsafe { self.block.as_ref() } {
            self.take_back(block, count);
            self.retire_pending(0);
            self.block = ptr::null();
        }
    }
}

#[cfg(test)]
mod tests {
    use machine::CodeBlock;

    use super::*;
    use crate::qemu::block::Kind;
    use simrecord::counters::INSTRUCTIONS;

    fn cpu(block: &Block) -> Cpu {
        Cpu { instructions: 1_000, block, ..Cpu::NEW }
    }

    fn block(addresses: &[u64], ends_in_trap: bool) -> Block {
        Block::new(addresses, Kind { ends_in_trap, ..Kind::default() }, CodeBlock::default())
    }

    #[test]
    fn an_exception_in_the_middle_takes_back_what_was_not_executed() {
        let block = block(&[0x10, 0x12, 0x15, 0x1a], false);
        let mut cpu = cpu(&block);
        cpu.interrupted_at(0x12);
        assert_eq!(cpu.instructions, 997);
        cpu.interrupted_at(0x12); // once only
        assert_eq!(cpu.instructions, 997);
    }

    #[test]
    fn an_interrupt_takes_back_nothing() {
        let block = block(&[0x10, 0x12], false);
        let mut cpu = cpu(&block);
        assert!(!cpu.deliver(0x10)); // the block is a loop
        assert_eq!(cpu.instructions, 1_000);
        cpu.raise();
        assert!(cpu.deliver(0x12));
        assert_eq!(cpu.instructions, 999);
        assert!(!cpu.deliver(0x12));
    }

    #[test]
    fn an_exception_elsewhere_takes_back_nothing() {
        let block = block(&[0x10, 0x12], false);
        let mut cpu = cpu(&block);
        cpu.interrupted_at(0x20);
        assert_eq!(cpu.instructions, 1_000);
    }

    #[test]
    fn user_mode_keeps_its_counts_while_the_kernel_runs() {
        let mut cpu = Cpu::NEW;
        let add = |cpu: &mut Cpu, in_kernel, amount| {
            cpu.set_mode(in_kernel);
            cpu.instructions += amount;
            let counts = cpu.counts();
            cpu.user_counts(&counts)[INSTRUCTIONS]
        };
        assert_eq!(add(&mut cpu, false, 5), 5);
        assert_eq!(add(&mut cpu, true, 100), 5);
        assert_eq!(add(&mut cpu, false, 7), 12);
        assert_eq!(add(&mut cpu, true, 1), 12);
    }

    #[test]
    fn a_software_interrupt_is_executed() {
        let block = block(&[0x10, 0x12], true);
        let mut cpu = cpu(&block);
        cpu.interrupted_at(0x12);
        assert_eq!(cpu.instructions, 1_000);
    }

    #[test]
    fn a_block_left_at_a_device_access_has_executed_it() {
        let block = block(&[0x10, 0x12, 0x15, 0x1a], false);
        let mut cpu = cpu(&block);
        cpu.left_after(0x12);
        assert_eq!(cpu.instructions, 998);
    }
}
