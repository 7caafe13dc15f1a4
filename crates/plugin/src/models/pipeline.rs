//! The pipeline of a vCPU at the level `ooo`: a core of the model, and the block that the vCPU is executing. The core
//! gets a block once the block's accesses and the next address are known.

use machine::block_trace::Event;
use machine::core::{Access, AccessMode, ExecutedBlock, Memory, Template};
use machine::memory::{LinuxPort, MemoryPort, MemorySystem, PageSize, TlbFlush};
use machine::{Cycle, Instructions, PhysicalAddress, VirtualAddress};

use crate::models::accesses::OwnAccess;
use crate::models::block_trace::BlockTrace;
use crate::models::cores::Core;
use crate::models::counters::{add_core, add_memory};
use crate::models::pages::Pages;
use crate::models::physical;
use crate::models::sampling::{Edge, Moment, Sampler, Scope, UnitPart};
use crate::models::translations::{self, Change};
use plugin_interface::sampling::Sampling;
use simrecord::counters::{COUNTERS, CYCLES, Counts};

/// Size of a line of code that is flushed, on all x86 processors.
const LINE_BYTES: u64 = 64;
/// The most accesses of one block that are collected. Each iteration of a repeated instruction
/// is a block of its own.
const ACCESSES_MAX: usize = 4_096;

/// A vCPU's core, and the block that it executes.
pub(crate) struct Pipeline {
    core: Core,
    /// Issue slots per cycle.
    width: u64,
    /// The memory system of all vCPUs.
    system: *mut MemorySystem,
    cpu: usize,
    /// The last started block, or null once the core has executed it.
    block: *const Template,
    /// How many instructions of `block` the core has executed.
    ran: u32,
    /// How many instructions of `block` the vCPU executes: all, unless it left the block early.
    executes: u32,
    /// Accesses of `block` that the core has not received yet.
    accesses: Vec<Access>,
    /// The vCPU's known physical pages.
    pub(crate) pages: Pages,
    /// Offset from the core's time to the common time of all vCPUs.
    skew_cycles: u64,
    /// Chooses the instructions that the core executes in detail. `None`: all.
    sampler: Option<Box<Sampler>>,
    /// Estimated cycles of the instructions that the core did not execute. They are not in the core's own clock.
    estimated_cycles: u64,
    /// The trace of executed blocks; null without one.
    trace: *mut BlockTrace,
}

const HOST_LINE: usize = 64;
/// How many of a block's lines are prefetched at most. Later lines follow while the first are executed.
const PREFETCHED_LINES: usize = 4;

/// Prefetches the template of a block, which the core reads once the vCPU has executed the block. Few blocks repeat
/// soon, so a template is rarely in the host's caches.
#[inline(always)]
fn prefetch(block: &Template) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let of_block = std::ptr::from_ref(block).cast::<i8>();
    let of_instructions = block.host_range();
    let bytes = of_instructions.end.addr() - of_instructions.start.addr();
    // SAFETY: a prefetch reads nothing, whatever the address is.
    unsafe {
        for line in 0..size_of::<Template>().div_ceil(HOST_LINE) {
            _mm_prefetch::<_MM_HINT_T0>(of_block.wrapping_add(line * HOST_LINE));
        }
        for line in 0..bytes.div_ceil(HOST_LINE).min(PREFETCHED_LINES) {
            let address = of_instructions.start.wrapping_add(line * HOST_LINE);
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
    }
}

impl Pipeline {
    /// Makes the pipeline of vCPU `cpu`, on the memory system of all.
    pub(crate) fn new(
        core: Core,
        width: u32,
        system: *mut MemorySystem,
        cpu: usize,
        sampler: Option<Sampler>,
        trace: *mut BlockTrace,
    ) -> Pipeline {
        Pipeline {
            core,
            width: width.into(),
            system,
            cpu,
            block: std::ptr::null(),
            ran: 0,
            executes: 0,
            accesses: Vec::with_capacity(ACCESSES_MAX),
            pages: Pages::new(),
            skew_cycles: 0,
            sampler: sampler.map(Box::new),
            estimated_cycles: 0,
            trace,
        }
    }

    /// A block starts. The previous block is finished.
    #[inline(always)]
    pub(crate) fn begin(&mut self, block: &Template) {
        self.block = block;
        self.ran = 0;
        self.executes = block.len() as u32;
        prefetch(block);
    }

    /// The block is over; the vCPU goes on at `next`.
    #[inline(always)]
    pub(crate) fn finish(&mut self, next: u64) {
        if self.block.is_null() {
            return self.drain();
        }
        if self.ran < self.executes {
            self.run(self.executes, next);
        }
        self.drain();
        self.block = std::ptr::null();
    }

    /// Passes the instructions to the core that have executed when `remaining` are still to
    /// execute, except for a branch at the end, whose target is not known yet. An instruction that
    /// has not executed yet is assumed to have no accesses.
    #[inline(never)]
    pub(crate) fn retire_pending(&mut self, remaining: u32) {
        // SAFETY: null, or of a block that the arena keeps until a flush, before which it is
        // finished.
        if let Some(block) = unsafe { self.block.as_ref() } {
            let waits_for_next =
                remaining == 0 && self.executes as usize == block.len() && block.ends_in_branch();
            let pending = remaining.max(u32::from(waits_for_next));
            let until = self.executes.saturating_sub(pending);
            if until > self.ran {
                self.run(until, 0);
            }
        }
        self.core.advance();
    }

    /// The code cache is about to be emptied.
    pub(crate) fn forget_block(&mut self) {
        self.retire_pending(0);
        self.drain();
        self.block = std::ptr::null();
    }

    /// The block was left: `count` of its instructions were executed.
    pub(crate) fn leave(&mut self, count: u32) {
        self.executes = count;
    }

    /// An interrupt or exception is taken where the vCPU would continue at `next`.
    pub(crate) fn interrupt(&mut self, next: u64) {
        self.finish(next);
        self.trace(&Event::Interrupt);
        self.core.interrupt();
    }

    /// The processor makes these accesses itself as it enters a handler, after [`Pipeline::interrupt`]. It waits for
    /// loads. A load whose address depends on the previous load starts after it. Stores are buffered.
    pub(crate) fn enter_handler(&mut self, accesses: &[OwnAccess]) {
        let now = self.core.time();
        let (mut started, mut ready) = (now, now);
        let mut port = self.port(None);
        for entry_access in accesses {
            let access = Access {
                virtual_address: entry_access.virtual_address.0,
                physical: Some(entry_access.physical.0),
                instruction: 0,
                bytes: entry_access.bytes,
                write: entry_access.write,
            };
            if entry_access.depends {
                started = ready;
            }
            if access.write {
                port.access(&access, AccessMode::Store, ready);
            } else {
                ready = ready.max(started + port.access(&access, AccessMode::Load, started));
            }
        }
        self.core.delay_entry(ready - now);
    }

    /// The address translations have changed.
    pub(crate) fn forget_translations(&mut self, flush: TlbFlush) {
        self.change_translations(Change { flush: Some(flush), space: None });
    }

    /// The address translations change.
    pub(crate) fn change_translations(&mut self, change: Change) {
        self.pages.change(change);
        if let Some((space, page_tables)) = change.space {
            self.trace(&Event::Space(space, page_tables));
        }
        if let Some(flush) = change.flush {
            self.trace(&Event::Flush(flush));
        }
        self.core.forget_translations();
        // SAFETY: never freed; one thread uses it, and no use is nested in another.
        translations::apply(change, unsafe { &mut *self.system }, self.cpu);
    }

    /// Code may have changed: the core drops the decoded instructions.
    pub(crate) fn forget_code(&mut self, physical: PhysicalAddress, bytes: u64) {
        let end = PhysicalAddress(physical.0.saturating_add(bytes));
        self.core.forget_code(physical..end);
    }

    /// The vCPU flushes the line of an address from all caches, or has it written back.
    pub(crate) fn flush_line(&mut self, virtual_address: VirtualAddress, keeps: bool) {
        let known = self.pages.get(virtual_address);
        let Some(physical) = known.or_else(|| physical::of_address(virtual_address)) else {
            return;
        };
        // SAFETY: as above.
        unsafe { (*self.system).flush_line(self.cpu, physical, keeps) };
        if !keeps {
            self.forget_code(PhysicalAddress(physical.0 / LINE_BYTES * LINE_BYTES), LINE_BYTES);
        }
    }

    /// The local APIC is mapped at this address.
    pub(crate) fn map_local_apic(&mut self, virtual_address: VirtualAddress) {
        // SAFETY: as above.
        unsafe { (*self.system).set_local_device_page(virtual_address) };
    }

    /// An instruction of the block has made an access.
    #[inline(always)]
    pub(crate) fn push(&mut self, access: Access) {
        if self.accesses.len() < ACCESSES_MAX {
            self.accesses.push(access);
        } else {
            self.overflow(access);
        }
    }

    #[cold]
    fn overflow(&mut self, access: Access) {
        let accesses = std::mem::take(&mut self.accesses);
        for access in accesses.iter().chain([&access]) {
            self.access_alone(access);
        }
        self.accesses = accesses;
        self.accesses.clear();
    }

    /// Adds an event to the trace, if there is a trace.
    fn trace(&mut self, event: &Event) {
        // SAFETY: null, or valid until the process ends; one thread uses it, and no use is nested in another.
        if let Some(trace) = unsafe { self.trace.as_mut() } {
            trace.event(event);
        }
    }

    fn port(&mut self, code: Option<&'static Template>) -> LinuxPort<'static> {
        // SAFETY: as above; the returned port is dropped before the next use.
        let system = unsafe { &mut *self.system };
        let page = PageSize::Small;
        let port = MemoryPort { system, cpu: self.cpu, code, pc: VirtualAddress::default(), page };
        LinuxPort { port, skew_cycles: self.skew_cycles + self.estimated_cycles }
    }

    /// Passes the block to the core up to instruction `until`.
    #[inline(always)]
    fn run(&mut self, until: u32, next: u64) {
        if self.ran > 0 {
            self.run_rest();
        }
        // SAFETY: as in `retire_pending`; callers have checked that it is not null.
        let block = unsafe { &*self.block };
        // SAFETY: as in `trace`.
        if let Some(trace) = unsafe { self.trace.as_mut() } {
            trace.run(block, self.ran..until, &self.accesses, next);
        }
        let mut port = self.port(Some(block));
        let executed = ExecutedBlock { instructions: until, accesses: &self.accesses, next };
        match &mut self.sampler {
            None => self.core.run_from(self.ran as usize, block, &executed, &mut port),
            Some(sampler) => {
                let first = self.ran as usize;
                let before = port.port.system.latency_cycles(self.cpu);
                let instructions = Instructions::from(until - self.ran);
                if sampler.choose_detail(VirtualAddress(block.address()), instructions) {
                    self.core.run_from(first, block, &executed, &mut port);
                    sampler.waited(port.port.system.latency_cycles(self.cpu) - before);
                } else {
                    let warmed = self.core.warm_from(first, block, &executed, &mut port);
                    let waited_cycles = port.port.system.latency_cycles(self.cpu) - before;
                    self.estimated_cycles += sampler.estimate(
                        warmed.slots,
                        waited_cycles,
                        VirtualAddress(block.address()),
                    );
                }
                let branches = until as usize == block.len() && block.ends_in_branch();
                if let Some(edge) = sampler.executed(Instructions::from(until - self.ran), branches)
                {
                    self.pass(edge);
                }
            }
        }
        self.ran = until;
        // Accesses are in program order, so the last one decides whether any belongs to a later instruction.
        if self.accesses.last().is_none_or(|last| u32::from(last.instruction) < until) {
            self.accesses.clear();
        } else {
            self.accesses.retain(|access| u32::from(access.instruction) >= until);
        }
    }

    /// The next phase of sampling starts.
    #[cold]
    fn pass(&mut self, edge: Edge) {
        let counts = self.sampled_counts();
        if let Some(sampler) = &mut self.sampler {
            sampler.pass(edge, &counts);
        }
    }

    /// The model's counts, by the sampler's own count of instructions.
    fn sampled_counts(&self) -> Moment {
        let mut counts = [0; COUNTERS];
        self.add_to(&mut counts);
        counts[CYCLES] = self.cycles();
        if let Some(sampler) = &self.sampler {
            sampler.add_to(&mut counts);
        }
        Moment { counts, slots: self.core.counts().instructions }
    }

    /// Sets what the core executes in detail from now on; units are those of `sampling`. All instructions that have
    /// executed have retired.
    pub(crate) fn set_scope(&mut self, scope: Scope, sampling: Sampling) {
        self.sampler = match scope {
            Scope::Everything => None,
            Scope::Kernel | Scope::Units => {
                let sampler = self.sampler.take();
                let new = || Box::new(Sampler::starting_with_unit(sampling, self.cpu as u32));
                let mut sampler = sampler.unwrap_or_else(new);
                sampler.set_kernel_in_detail(scope == Scope::Kernel);
                Some(sampler)
            }
        };
    }

    /// The vCPU executes in this context from now on.
    pub(crate) fn set_context(&mut self, code: u64) {
        if self.sampler.as_ref().is_some_and(|sampler| sampler.measures_other_than(code)) {
            let counts = self.sampled_counts();
            if let Some(sampler) = &mut self.sampler {
                sampler.charge(&counts);
            }
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.enter(code);
        }
    }

    /// A region of interest opens, or closes.
    pub(crate) fn set_sampled_region(&mut self, region: Option<u32>) {
        if self.sampler.is_some() {
            let counts = self.sampled_counts();
            if let Some(sampler) = &mut self.sampler {
                sampler.set_region(region, &counts);
            }
        }
    }

    /// The parts of the units that have ended since the last call.
    pub(crate) fn take_sampled(&mut self) -> Vec<UnitPart> {
        self.sampler.as_mut().map_or_else(Vec::new, |sampler| sampler.take())
    }

    /// Makes the accesses of instructions that the core executed before the accesses were known.
    #[cold]
    fn run_rest(&mut self) {
        let is_late = |access: &&Access| u32::from(access.instruction) < self.ran;
        let late_count = self.accesses.iter().take_while(is_late).count();
        for index in 0..late_count {
            let access = self.accesses[index];
            self.access_alone(&access);
        }
        self.accesses.drain(..late_count);
    }

    /// Makes the remaining accesses. Their instructions did not complete, or the core has executed them already.
    #[inline(always)]
    fn drain(&mut self) {
        if !self.accesses.is_empty() {
            self.drain_all();
        }
    }

    #[cold]
    fn drain_all(&mut self) {
        for index in 0..self.accesses.len() {
            let access = self.accesses[index];
            self.access_alone(&access);
        }
        self.accesses.clear();
    }

    /// Makes an access that no instruction waits for.
    fn access_alone(&mut self, access: &Access) {
        let now = self.core.time();
        // SAFETY: as in `retire_pending`; null if the block is not known.
        let code = unsafe { self.block.as_ref() };
        let mut port = self.port(code);
        let how = if access.write { AccessMode::Store } else { AccessMode::Load };
        port.access(access, how, now);
    }

    /// The vCPU is halted, or no longer is.
    pub(crate) fn set_halted(&mut self, halted: bool) {
        self.core.set_halted(halted);
    }

    /// Makes a thread of a multithreaded core wait `cycles` before its next instruction. Returns whether the
    /// core is such a thread.
    pub(crate) fn wait_as_thread(&mut self, cycles: u64) -> bool {
        self.core.wait_as_thread(cycles)
    }

    /// Has the threads of its core issue all their instructions, and continue at a common time.
    pub(crate) fn issue_all_threads(&mut self) {
        self.core.issue_all_threads();
    }

    /// Cycles of the instructions that the core has executed, and those estimated for all others.
    #[inline(always)]
    pub(crate) fn cycles(&self) -> u64 {
        self.core.cycles() + self.estimated_cycles
    }

    /// Sets the common time at the core's current time to `common`.
    pub(crate) fn set_time(&mut self, common: Cycle) {
        self.skew_cycles = common.cycles_since(self.core.time() + self.estimated_cycles);
    }

    /// Adds the model's counts to `counts`.
    pub(crate) fn add_to(&self, counts: &mut Counts) {
        // SAFETY: as above.
        let memory = unsafe { (*self.system).counts(self.cpu) };
        add_memory(&memory, counts);
        add_core(&self.core.counts(), self.width, counts);
    }
}
