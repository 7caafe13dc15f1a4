//! The state of each vCPU that every executed block touches: its counts, and when the plugin has to act next.
//!
//! QEMU calls the callbacks here at each block and memory access, in the one thread that runs all vCPUs. Each
//! level of detail has its own callbacks: `plain` counts without a model, `timed` and `ooo` pass accesses to the
//! model of that level, and `shadow_caches` passes accesses to shadow caches. `level` is the level in use now.
//! `engine` is a vCPU's model.
//!
//! The callbacks of a block or access that needs no further work must not lock, allocate or hash: they take
//! most of a simulation's time.

mod engine;
pub(crate) mod level;

pub(crate) mod ooo;
pub(crate) mod plain;
pub(crate) mod shadow_caches;
pub(crate) mod timed;

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use attribution::KernelContext;
use machine::decode::FlushedLine;
use machine::memory::{GlobalPages, TlbFlush};
use machine::{BlockingMachine, Cycle, HostExits, Instructions, PhysicalAddress, VirtualAddress};

pub(crate) use engine::Engine;

use crate::guest::tracker::{Discontinuity, is_kernel};
use crate::models::accesses::{ProcessorAccess, Write};
use crate::models::counters;
use crate::models::physical;
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

/// The work that may be due before a block: see [`Cpu::is_due`]. This work needs all parts of a recording, which this
/// module must not import. So callbacks take the work as a type parameter: [`crate::qemu::before_block::DueWork`].
pub(crate) trait BeforeBlock {
    /// Does the due work. `block` is about to start on `vcpu`.
    fn before_block(vcpu: u32, block: &Block);
}

/// How far a vCPU has executed its block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockPosition {
    pub(crate) vcpu: u32,
    /// How many instructions of the block have not executed.
    pub(crate) remaining: u32,
}

/// No block starts at this address.
const NO_ADDRESS: VirtualAddress = VirtualAddress(u64::MAX);

/// The length of a time slice. It ends at the first block that starts after `cycles`, or that has at least as many
/// instructions as are left of `instructions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) cycles: u64,
    /// QEMU's clock advances by instructions within a slice. Each repetition of a repeated string instruction counts as one,
    /// and a core executes up to 64 repetitions in a cycle.
    pub(crate) instructions: u64,
}

/// When work is due before a block of a vCPU. Any thread may use it: QEMU's main loop also writes memory for devices.
struct Due {
    /// The count of cycles, by the model or core, from which on work is due before a block. 0: work is due at once.
    at: AtomicU64,
    /// Whether a device has written memory, and the caches have not seen the write yet.
    device_wrote: AtomicBool,
}

impl Due {
    /// Sets the count of cycles from which on work is due. Work stays due at once while a device's write waits.
    fn set(&self, cycles: u64) {
        self.at.store(cycles, Ordering::SeqCst);
        // Checked after the store: a write that another thread notes between the two must not be overwritten.
        if self.device_wrote.load(Ordering::SeqCst) {
            self.at.store(0, Ordering::SeqCst);
        }
    }

    /// Notes that a device has written memory: work is due at once.
    fn note_device_write(&self) {
        self.device_wrote.store(true, Ordering::SeqCst);
        self.at.store(0, Ordering::SeqCst);
    }
}

/// The state of one vCPU that only the thread of all vCPUs uses.
pub(crate) struct Cpu {
    /// The number of the vCPU.
    number: u32,
    /// Instructions of all started blocks, minus the instructions that are known not to have executed. At the level
    /// `timed` the model counts instead of this field.
    instructions: u64,
    /// The block that was started last. Null once its executed part is known.
    block: *const Block,
    /// The return address of the followed function on top of the stack, or [`NO_ADDRESS`] if none is followed.
    awaited_address: VirtualAddress,
    /// The counts at which the time slice ends: the first that is reached ends it.
    slice_end: Slice,
    /// The count of cycles from which on a counter of the guest's PMU may have overflowed.
    pmu_deadline: u64,
    /// The count of cycles from which on the session records each block that starts.
    blocks_from: u64,
    /// The correction in ns to the time that the guest has just read from the clock. `None`: it has read no clock.
    clock_ahead: Option<i64>,
    /// Whether the running block is the last of its time slice, and QEMU stays in its loop after the block.
    is_in_last_block: bool,
    /// Branches of the started blocks. Counted only with a model.
    branches: u64,
    /// The model of the vCPU, in use now or not.
    engine: Engine,
    /// Whether the guest's idle task runs, and no interrupt handler has interrupted it.
    runs_idle_task: bool,
    /// Whether the engine counts cycles at the current level. Otherwise each counted instruction is one cycle.
    engine_counts_cycles: bool,
    /// Whether the vCPU executes the kernel, not user mode.
    in_kernel: bool,
    /// Whether the vCPU executes a return whose context ends with it: see [`crate::guest::tracker::Tracker`].
    has_event_at_block_end: bool,
    /// Whether the vCPU has raised an exception and has not entered its handler yet.
    has_raised_exception: bool,
    /// Whether QEMU abandoned the block and re-executes one of its instructions alone. Only at the level `ooo`.
    has_abandoned_block: bool,
    /// The address of QEMU's description of the vCPU. It identifies the running vCPU.
    handle: *mut c_void,
    /// Cycles during which the vCPU was halted.
    halted_cycles: u64,
    /// Cycles that the vCPU's model or core does not count: exits to a hypervisor, and waits at
    /// a `pause` for other vCPUs.
    waited_cycles: u64,
    /// The costs of exits to a hypervisor. `None`: there is no hypervisor.
    exits: Option<HostExits>,
    /// The counts in user mode at the last switch between user mode and kernel.
    user_at_mode_change: Counts,
    /// The counts in both modes at that switch.
    all_at_mode_change: Counts,
}

/// The state of one vCPU. Aligned to a cache line of the host, so that two vCPUs never share a line.
#[repr(align(64))]
struct Vcpu {
    due: Due,
    cpu: UnsafeCell<Cpu>,
}

impl Vcpu {
    const fn new() -> Vcpu {
        Vcpu {
            due: Due { at: AtomicU64::new(u64::MAX), device_wrote: AtomicBool::new(false) },
            cpu: UnsafeCell::new(Cpu::NEW),
        }
    }
}

/// All vCPUs, with their numbers.
const fn new_vcpus() -> [Vcpu; CPUS_MAX] {
    let mut vcpus = [const { Vcpu::new() }; CPUS_MAX];
    let mut number = 0;
    while number < CPUS_MAX {
        vcpus[number].cpu.get_mut().number = number as u32;
        number += 1;
    }
    vcpus
}

/// The states of all vCPUs, and which vCPU runs.
struct Machine {
    vcpus: [Vcpu; CPUS_MAX],
    running: UnsafeCell<Running>,
}

/// The running vCPU, as [`running_vcpu`] found it last. The vCPU changes only at the end of a time slice.
struct Running {
    /// QEMU's variable that names the running vCPU.
    current: CurrentCpu,
    /// The value of the variable when the vCPU was found.
    handle: *mut c_void,
    /// The number of the vCPU.
    index: u32,
}

// SAFETY: all vCPUs run in one thread, which `on_vcpu` checks; at exit they are stopped. Other threads use `Due` alone.
unsafe impl Sync for Machine {}

static MACHINE: Machine = Machine {
    vcpus: new_vcpus(),
    running: UnsafeCell::new(Running {
        current: CurrentCpu::UNKNOWN,
        handle: ptr::null_mut(),
        index: 0,
    }),
};

/// Runs `use_it` on the state of a vCPU. `use_it` must not call `with_vcpu` again, not even through a callback from
/// QEMU. Call it in the thread of all vCPUs, or while no vCPU runs.
#[inline(always)]
pub(crate) fn with_vcpu<R>(vcpu: u32, use_it: impl FnOnce(&mut Cpu) -> R) -> R {
    let cell = &MACHINE.vcpus[vcpu as usize % CPUS_MAX].cpu;
    // SAFETY: one thread runs all vCPUs, and no use is nested in another.
    use_it(unsafe { &mut *cell.get() })
}

/// The count of cycles from which on work is due before a block of a vCPU: see [`Cpu::is_due`].
#[inline(always)]
pub(crate) fn due_at(vcpu: u32) -> u64 {
    MACHINE.vcpus[vcpu as usize % CPUS_MAX].due.at.load(Ordering::Relaxed)
}

/// Notes that a device has written memory that the caches have not seen yet: a vCPU takes the write before its next
/// block. Call it in any thread.
pub(crate) fn note_device_write(vcpu: u32) {
    MACHINE.vcpus[vcpu as usize % CPUS_MAX].due.note_device_write();
}

/// The number of the running vCPU.
///
/// Do not use the number that QEMU passes to callbacks of blocks and instructions. Where one thread runs all vCPUs,
/// this number is a constant in the translated code: the vCPU that *translated* the block.
#[inline(always)]
pub(crate) fn running_vcpu() -> u32 {
    // SAFETY: one thread runs all vCPUs; this reference does not outlive the function.
    let running = unsafe { &mut *MACHINE.running.get() };
    let handle = running.current.get();
    if handle != running.handle {
        running.update(handle);
    }
    running.index
}

/// The number of the running vCPU, if it is known without a search. `SINGLE_VCPU`: the machine has one vCPU,
/// which is always known. Otherwise the vCPU is known while it is the vCPU of the last call of [`running_vcpu`].
/// `None`: a search is needed.
#[inline(always)]
fn known_running_vcpu<const SINGLE_VCPU: bool>() -> Option<u32> {
    if SINGLE_VCPU {
        return Some(0);
    }
    // SAFETY: one thread runs all vCPUs; this reference does not outlive the function.
    let running = unsafe { &*MACHINE.running.get() };
    (running.current.get() == running.handle).then_some(running.index)
}

/// Sets QEMU's variable that names the running vCPU. Needed on a machine with several vCPUs.
pub(crate) fn set_current_cpu_variable(current: CurrentCpu) {
    // SAFETY: one thread runs all vCPUs; no reference to the value is alive.
    unsafe { (*MACHINE.running.get()).current = current };
}

impl Running {
    /// Finds the vCPU that QEMU describes at `handle`.
    #[cold]
    fn update(&mut self, handle: *mut c_void) {
        let runs = |vcpu: &u32| with_vcpu(*vcpu, |cpu| cpu.handle == handle);
        if let Some(vcpu) = (0..CPUS_MAX as u32).find(runs) {
            self.index = vcpu;
            self.handle = handle;
        }
    }
}

impl Cpu {
    const NEW: Cpu = Cpu {
        number: 0,
        instructions: 0,
        block: ptr::null(),
        awaited_address: NO_ADDRESS,
        slice_end: Slice { cycles: u64::MAX, instructions: u64::MAX },
        pmu_deadline: u64::MAX,
        blocks_from: u64::MAX,
        clock_ahead: None,
        is_in_last_block: false,
        branches: 0,
        engine: Engine::Absent,
        runs_idle_task: false,
        engine_counts_cycles: false,
        in_kernel: false,
        has_event_at_block_end: false,
        has_raised_exception: false,
        has_abandoned_block: false,
        handle: ptr::null_mut(),
        halted_cycles: 0,
        waited_cycles: 0,
        exits: None,
        user_at_mode_change: [0; COUNTERS],
        all_at_mode_change: [0; COUNTERS],
    };

    /// Whether the plugin must do work before `block` starts. `executed`: the executed cycles and instructions, as the level
    /// counts them. `due_at`: the result of [`due_at`] for this vCPU.
    #[inline(always)]
    fn is_due(&self, block: &Block, executed: (u64, Instructions), due_at: u64) -> bool {
        let (cycles, instructions) = executed;
        (block.in_kernel != self.in_kernel)
            | (block.address == self.awaited_address)
            | (cycles >= due_at)
            | self.slice_ends_in(block, instructions)
    }

    /// When work is due before a block of this vCPU.
    fn due_work(&self) -> &'static Due {
        &MACHINE.vcpus[self.number as usize % CPUS_MAX].due
    }

    /// Whether the time slice ends before `block`, which is about to start.
    pub(crate) fn slice_is_over(&mut self, block: &Block) -> bool {
        self.cycles() >= self.slice_end.cycles || self.slice_ends_in(block, self.executed())
    }

    /// Whether the time slice ends in `block`, which is about to start.
    #[inline(always)]
    fn slice_ends_in(&self, block: &Block, executed: Instructions) -> bool {
        executed.0 + u64::from(block.length) >= self.slice_end.instructions
    }

    /// Starts a time slice of this length.
    pub(crate) fn set_slice(&mut self, slice: Slice) {
        self.slice_end = Slice {
            cycles: self.cycles().saturating_add(slice.cycles),
            instructions: self.executed().0.saturating_add(slice.instructions),
        };
        self.set_due();
    }

    /// Sets when work is due before a block: at once, at the end of the slice, when the PMU must be checked, or
    /// when blocks are recorded.
    fn set_due(&mut self) {
        let is_due_now =
            self.has_read_clock() || self.is_in_last_block || self.has_event_at_block_end;
        let due_at = self.slice_end.cycles.min(self.pmu_deadline).min(self.blocks_from);
        self.due_work().set(if is_due_now { 0 } else { due_at.saturating_sub(self.waited_cycles) });
    }

    /// Whether the running block is the last of its time slice, and QEMU stays in its loop after the block.
    pub(crate) fn is_in_last_block(&self) -> bool {
        self.is_in_last_block
    }

    /// Notes that the starting block is the last of its time slice, and that QEMU stays in its loop after it.
    pub(crate) fn enter_last_block(&mut self) {
        self.is_in_last_block = true;
        self.set_due();
    }

    /// Notes that the starting block is not the last of its time slice, or that QEMU leaves its loop after it.
    pub(crate) fn leave_last_block(&mut self) {
        self.is_in_last_block = false;
        self.set_due();
    }

    /// QEMU's description of the vCPU, which identifies it.
    pub(crate) fn set_handle(&mut self, handle: *mut c_void) {
        self.handle = handle;
    }

    /// Sets the return address of the followed function on top of the stack. `None`: no function is followed.
    pub(crate) fn set_awaited_address(&mut self, address: Option<VirtualAddress>) {
        self.awaited_address = address.unwrap_or(NO_ADDRESS);
    }

    /// Whether a followed function returns to `address`.
    pub(crate) fn is_awaited_address(&self, address: VirtualAddress) -> bool {
        self.awaited_address == address
    }

    /// Whether the running block has an event that the tracker handles once the block has ended.
    pub(crate) fn has_event_at_block_end(&self) -> bool {
        self.has_event_at_block_end
    }

    /// Sets whether the running block has an event that the tracker handles once the block has ended. If so, work is
    /// due before the next block.
    pub(crate) fn set_has_event_at_block_end(&mut self, has_event_at_block_end: bool) {
        if self.has_event_at_block_end != has_event_at_block_end {
            self.has_event_at_block_end = has_event_at_block_end;
            self.set_due();
        }
    }

    pub(crate) fn add_halted(&mut self, cycles: u64) {
        self.halted_cycles += cycles;
    }

    /// Forgets the last block, because its description is about to be dropped.
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

    /// Gives the vCPU a hypervisor with these costs, or none.
    pub(crate) fn set_exits(&mut self, exits: Option<HostExits>) {
        self.exits = exits;
    }

    /// Makes the vCPU wait for its hypervisor before its next instruction, if the model has one and counts cycles at this
    /// level. `cycles`: chooses the cost of this exit.
    ///
    /// The wait may be longer than a time slice. Meanwhile a vCPU executes one block in each round until the others
    /// have caught up, so it may be ahead of them by the whole wait.
    pub(crate) fn exit(&mut self, cycles: impl FnOnce(HostExits) -> u64) {
        if let Some(exits) = self.exits
            && self.engine_counts_cycles
        {
            self.wait(cycles(exits));
        }
    }

    /// Tells the core whether the vCPU is halted.
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

    /// Makes the threads of the vCPU's core issue all their instructions, and continue at a common time.
    pub(crate) fn issue_all_threads(&mut self) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.issue_all_threads();
        }
    }

    /// Sets the common time of all vCPUs, in cycles, at the core's current time.
    pub(crate) fn set_time(&mut self, cycles: u64) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.set_time(Cycle(cycles));
        }
    }

    /// Counts at `level` from now on.
    pub(crate) fn set_level(&mut self, level: Detail) {
        self.engine_counts_cycles = match self.engine {
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

    /// Sets this vCPU's pages that stay over a write of cr3. Call it before such a write changes translations.
    pub(crate) fn set_global_pages(&mut self, vcpu: u32, pages: GlobalPages) {
        match &mut self.engine {
            Engine::Timed(model) => model.set_global_pages(pages),
            Engine::Ooo(pipeline) => pipeline.set_global_pages(pages),
            Engine::Absent => {}
            Engine::ShadowCaches(_) => {
                if let Some(shadow_caches) = self.engine.shadow_caches() {
                    shadow_caches.set_global_pages(vcpu as usize, pages);
                }
            }
        }
    }

    /// Passes a change of this vCPU's address translations on to its model or shadow caches.
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

    /// Makes the shadow caches drop all address translations of this vCPU.
    pub(crate) fn forget_shadow_translations(&mut self, vcpu: u32) {
        if let Some(shadow_caches) = self.engine.shadow_caches() {
            shadow_caches.forget_translations(vcpu as usize);
        }
    }

    /// Sets whether the guest's idle task runs.
    pub(crate) fn set_runs_idle_task(&mut self, runs_idle_task: bool) {
        self.runs_idle_task = runs_idle_task;
    }

    /// Tells the sampler which context executes from now on.
    pub(crate) fn set_sampled_context(&mut self, context: KernelContext) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.set_context(context.code());
        }
    }

    /// Tells the sampler which region of interest is open. `None`: no region is open.
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

    /// Whether the vCPU's core has a second level of TLBs.
    pub(crate) fn has_second_tlb(&mut self) -> bool {
        self.pipeline().is_some_and(|pipeline| pipeline.has_second_tlb())
    }

    /// How many levels of caches the vCPU's core has below L1. 0 without a pipeline.
    pub(crate) fn outer_caches(&mut self) -> usize {
        self.pipeline().map_or(0, |pipeline| pipeline.outer_caches())
    }

    /// Whether a model counts cycles now.
    pub(crate) fn model_counts_cycles(&self) -> bool {
        self.engine_counts_cycles
    }

    /// The core of the level `ooo`, in use now or not. `None` if the vCPU has another model or none.
    fn pipeline(&mut self) -> Option<&mut Pipeline> {
        self.engine.pipeline()
    }

    /// The core of the level `ooo`, if it is in use now.
    fn pipeline_in_use(&mut self) -> Option<&mut Pipeline> {
        if self.engine_counts_cycles { self.engine.pipeline() } else { None }
    }

    /// The model of the level `timed`, if it is in use now.
    fn timed_in_use(&mut self) -> Option<&mut BlockingMachine> {
        if self.engine_counts_cycles { self.engine.timed() } else { None }
    }

    /// Executed cycles, as time slices count them. Do not compare values from before and after a change of the level.
    pub(crate) fn cycles(&self) -> u64 {
        let counted = match &self.engine {
            Engine::Timed(model) if self.engine_counts_cycles => model.cycles(),
            Engine::Ooo(pipeline) if self.engine_counts_cycles => pipeline.cycles(),
            _ => self.instructions,
        };
        counted + self.waited_cycles
    }

    /// Executed instructions, if the block that was started last runs to its end.
    pub(crate) fn instructions(&self) -> Instructions {
        // Cheaper than `counts`: the clock asks each vCPU for this number at every slice.
        match &self.engine {
            Engine::Timed(model) => model.instructions(),
            _ => Instructions(self.instructions),
        }
    }

    /// Executed instructions, as the current level counts them. Compare values of the same level only.
    pub(crate) fn executed(&self) -> Instructions {
        if self.engine_counts_cycles {
            self.instructions()
        } else {
            Instructions(self.instructions)
        }
    }

    /// The counts, if the block that was started last runs to its end.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = [0; COUNTERS];
        counts[INSTRUCTIONS] = self.instructions;
        counts[CYCLES] = self.instructions;
        match &self.engine {
            Engine::Timed(model) => counters::put_model_counts(&model.counts(), &mut counts),
            Engine::Ooo(pipeline) => {
                pipeline.put_counts(&mut counts);
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

    /// The counts, if the last `remaining` instructions of the block that was started last have not executed.
    pub(crate) fn counts_before(&mut self, remaining: u32) -> Counts {
        self.retire_pending(remaining);
        self.retired_counts(remaining)
    }

    /// The counts if the last `remaining` instructions of the block that was started last have not executed. Does not retire
    /// the block's executed instructions on a core: their cycles are missing.
    pub(crate) fn retired_counts(&self, remaining: u32) -> Counts {
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

    /// Makes the core execute the block's instructions that the vCPU has executed: all but the last `remaining`.
    pub(crate) fn retire_pending(&mut self, remaining: u32) {
        if let Some(pipeline) = self.pipeline_in_use() {
            pipeline.retire_pending(remaining);
        }
    }

    /// The part of `counts` that user mode caused. `counts`: the current counts of this vCPU.
    pub(crate) fn user_counts(&self, counts: &Counts) -> Counts {
        let mut user = self.user_at_mode_change;
        if !self.in_kernel {
            for (position, user) in user.iter_mut().enumerate() {
                *user += counts[position] - self.all_at_mode_change[position];
            }
        }
        user
    }

    /// Switches between user mode and kernel, if `in_kernel` differs from the current mode.
    pub(crate) fn set_mode(&mut self, in_kernel: bool) {
        if in_kernel != self.in_kernel {
            let counts = self.counts();
            self.user_at_mode_change = self.user_counts(&counts);
            self.all_at_mode_change = counts;
            self.in_kernel = in_kernel;
        }
    }

    /// Notes that the vCPU raises an exception. [`Cpu::deliver`] follows when it enters the handler.
    pub(crate) fn raise(&mut self) {
        self.has_raised_exception = true;
    }

    /// Makes the vCPU enter a handler instead of the instruction at `address`. Returns whether it handles an exception. At
    /// an interrupt the previous block has run to its end.
    pub(crate) fn deliver(&mut self, address: VirtualAddress) -> bool {
        let is_exception = std::mem::take(&mut self.has_raised_exception);
        if is_exception {
            self.leave_block_at_exception(address);
        }
        if let Some(pipeline) = self.pipeline_in_use() {
            pipeline.interrupt(address);
        }
        is_exception
    }

    /// Passes the accesses that the vCPU itself makes as it enters a handler to its caches. A hypervisor injects interrupts, so
    /// an interrupt waits for its exit; exceptions do not exit.
    pub(crate) fn enter_handler(
        &mut self,
        vcpu: u32,
        entry: Discontinuity,
        accesses: &[ProcessorAccess],
    ) {
        // These accesses count for the handler, not for the interrupted context.
        self.set_mode(is_kernel(entry.handler));
        if !entry.is_exception {
            self.exit(|exits| exits.interrupt_cycles);
        }
        if let Some(model) = self.timed_in_use() {
            accesses.iter().for_each(|access| access.execute(model));
        }
        if let Some(pipeline) = self.pipeline_in_use() {
            pipeline.enter_handler(accesses);
        }
        if let Some(shadow_caches) = self.engine.shadow_caches() {
            shadow_caches.enter_handler(vcpu as usize, accesses);
        }
    }

    /// Leaves the block in execution because of an exception at `address`. Uncounts the instructions from that address on,
    /// which have not executed.
    fn leave_block_at_exception(&mut self, address: VirtualAddress) {
        // SAFETY: null, or kept by the arena until a flush, which clears it.
        let Some(block) = (unsafe { self.block.as_ref() }) else { return };
        if let Some(index) = block.index_of(address) {
            let last = index + 1 == block.length();
            if !(last && block.ends_in_trap) {
                self.uncount_last(block, block.length() - index);
            }
            self.block = ptr::null();
        }
    }

    /// QEMU has left the block that was started last, to execute its instruction at `address` alone, as for an access to a
    /// device: see `plain::on_single_access`. Uncounts the instructions after it. Call it once for each block: it keeps
    /// `self.block`, so a second call would subtract again.
    fn leave_block_after(&mut self, address: VirtualAddress) {
        // SAFETY: null, or kept by the arena until a flush, which clears it.
        let Some(block) = (unsafe { self.block.as_ref() }) else { return };
        if let Some(index) = block.index_of(address) {
            self.uncount_last(block, block.length() - index - 1);
        }
    }

    /// Subtracts the last `count` instructions of the block, which have not executed, from the counts.
    fn uncount_last(&mut self, block: &Block, count: u32) {
        let branches = u64::from(block.ends_in_branch && count > 0);
        match &mut self.engine {
            Engine::Timed(model) if self.engine_counts_cycles => {
                model.uncount_instructions(count);
                self.branches -= branches;
            }
            Engine::Ooo(pipeline) if self.engine_counts_cycles => {
                pipeline.leave_block_after(block.length() - count);
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

    /// Sets the count of cycles from which on the session records each block that starts. `u64::MAX`: it records none.
    pub(crate) fn set_blocks_from(&mut self, cycles: u64) {
        self.blocks_from = cycles;
        self.set_due();
    }

    /// Whether the session records the block that starts.
    pub(crate) fn records_blocks(&self) -> bool {
        self.cycles() >= self.blocks_from
    }

    /// Whether the guest's PMU must be checked now.
    pub(crate) fn pmu_is_due(&mut self) -> bool {
        self.cycles() >= self.pmu_deadline
    }

    /// Notes that the guest reads the clock. Before the next block, `ahead_ns` is added to the time that it has read.
    pub(crate) fn read_clock(&mut self, ahead_ns: i64) {
        self.clock_ahead = Some(ahead_ns);
        self.set_due();
    }

    /// Whether the guest has just read the clock.
    pub(crate) fn has_read_clock(&self) -> bool {
        self.clock_ahead.is_some()
    }

    /// The correction to the time that the guest has just read. `None` if there is none.
    pub(crate) fn take_clock_ahead(&mut self) -> Option<i64> {
        let ahead_ns = self.clock_ahead.take()?;
        self.set_due();
        Some(ahead_ns)
    }

    /// Whether a device has written memory that the caches have not seen yet.
    pub(crate) fn device_wrote(&self) -> bool {
        self.due_work().device_wrote.load(Ordering::SeqCst)
    }

    /// Forgets that a device has written memory, because all its writes were taken. No other thread may call
    /// [`note_device_write`] meanwhile.
    pub(crate) fn forget_device_writes(&mut self) {
        self.due_work().device_wrote.store(false, Ordering::SeqCst);
        self.set_due();
    }

    /// Applies a device's write to memory, or a vCPU's store to a page with code. At the level `timed` the vCPU's caches
    /// see a device's write. At the level `ooo` the core drops the instructions that it has decoded from this memory.
    pub(crate) fn observe_write(&mut self, write: Write) {
        match &mut self.engine {
            Engine::Timed(model) if write.by_device => {
                model.dma_write(write.physical, write.bytes);
            }
            Engine::Ooo(_) => self.forget_code(write.range()),
            _ => {}
        }
    }

    /// The code at physical addresses may have changed, or has left all caches. At the level `ooo` the core drops the
    /// instructions that it has decoded from this memory.
    pub(crate) fn forget_code(&mut self, physical: Range<PhysicalAddress>) {
        if let Engine::Ooo(pipeline) = &mut self.engine {
            pipeline.forget_code(physical);
        }
    }

    /// Flushes the cache line of `address` from the model in use, as `clflush` and `clwb` do. Call this before the
    /// instruction executes. `remaining`: the block's instructions that have not executed yet, with the flush.
    ///
    /// Returns the memory that has left all caches: the caller makes the cores of all vCPUs forget its code. `None` if the
    /// caches keep the line or nothing is mapped at the address, and at each level but `ooo`: no core keeps decoded code there.
    /// Shadow caches keep the line.
    pub(crate) fn flush_line(
        &mut self,
        flush: FlushedLine,
        remaining: u32,
        address: VirtualAddress,
    ) -> Option<Range<PhysicalAddress>> {
        match &mut self.engine {
            // A flush that keeps the line only writes it to memory. The level `timed` neither times nor counts that.
            Engine::Timed(model) if self.engine_counts_cycles && !flush.keeps_line => {
                if let Some(physical) = physical::translate(address) {
                    model.flush_line(physical);
                }
                None
            }
            Engine::Ooo(pipeline) if self.engine_counts_cycles => {
                pipeline.retire_pending(remaining);
                pipeline.flush_line(address, flush.keeps_line)
            }
            _ => None,
        }
    }

    /// Leaves the block in execution, whose last `count` instructions do not execute.
    pub(crate) fn leave_block(&mut self, count: u32) {
        // SAFETY: null, or kept by the arena until a flush, which clears it.
        if let Some(block) = unsafe { self.block.as_ref() } {
            self.uncount_last(block, count);
            self.retire_pending(0);
            self.block = ptr::null();
        }
    }
}

#[cfg(test)]
mod tests {
    use machine::CodeBlock;

    use super::*;
    use crate::qemu::block::BlockProperties;
    use simrecord::counters::INSTRUCTIONS;

    fn cpu(block: &Block) -> Cpu {
        Cpu { instructions: 1_000, block, ..Cpu::NEW }
    }

    fn block(addresses: &[u64], ends_in_trap: bool) -> Block {
        let addresses: Vec<_> = addresses.iter().copied().map(VirtualAddress).collect();
        Block::new(
            &addresses,
            BlockProperties { ends_in_trap, ..BlockProperties::default() },
            CodeBlock::default(),
        )
    }

    #[test]
    fn an_exception_in_the_middle_takes_back_what_was_not_executed() {
        let block = block(&[0x10, 0x12, 0x15, 0x1a], false);
        let mut cpu = cpu(&block);
        cpu.leave_block_at_exception(VirtualAddress(0x12));
        assert_eq!(cpu.instructions, 997);
        cpu.leave_block_at_exception(VirtualAddress(0x12)); // once only
        assert_eq!(cpu.instructions, 997);
    }

    #[test]
    fn an_interrupt_takes_back_nothing() {
        let block = block(&[0x10, 0x12], false);
        let mut cpu = cpu(&block);
        assert!(!cpu.deliver(VirtualAddress(0x10))); // the block is a loop
        assert_eq!(cpu.instructions, 1_000);
        cpu.raise();
        assert!(cpu.deliver(VirtualAddress(0x12)));
        assert_eq!(cpu.instructions, 999);
        assert!(!cpu.deliver(VirtualAddress(0x12)));
    }

    #[test]
    fn an_exception_elsewhere_takes_back_nothing() {
        let block = block(&[0x10, 0x12], false);
        let mut cpu = cpu(&block);
        cpu.leave_block_at_exception(VirtualAddress(0x20));
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
        cpu.leave_block_at_exception(VirtualAddress(0x12));
        assert_eq!(cpu.instructions, 1_000);
    }

    #[test]
    fn a_block_left_at_a_device_access_has_executed_it() {
        let block = block(&[0x10, 0x12, 0x15, 0x1a], false);
        let mut cpu = cpu(&block);
        cpu.leave_block_after(VirtualAddress(0x12));
        assert_eq!(cpu.instructions, 998);
    }
}
