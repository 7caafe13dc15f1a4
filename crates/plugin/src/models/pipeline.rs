//! The pipeline of a vCPU at the level `ooo`: a core of the model, and the block that the vCPU is executing.
//!
//! `cpu/ooo.rs` calls it at each block and access, in the vCPUs' thread. The core gets a block once the block's
//! accesses and the address of the next block are known. Where an event needs exact counts, it gets the executed part
//! earlier ([`Pipeline::retire_pending`]). The core passes the accesses to the memory system, which all vCPUs share.
//!
//! This is the hottest code of the level: no locks and no allocation on the way of a block.

use std::ops::Range;

use machine::block_trace::TraceEntry;
use machine::core::{Access, AccessMode, ExecutedBlock, Memory, Template};
use machine::memory::{GlobalPages, LinuxPort, MemoryPort, MemorySystem, PageSize, TlbFlush};
use machine::{Cycle, Instructions, PhysicalAddress, VirtualAddress};

use crate::models::accesses::ProcessorAccess;
use crate::models::block_trace::BlockTrace;
use crate::models::cores::Core;
use crate::models::counters::{put_core_counts, put_memory_counts};
use crate::models::pages::Pages;
use crate::models::physical;
use crate::models::sampling::{Moment, PhaseEnd, Sampler, Scope, UnitPart};
use crate::models::translations::{self, Change};
use plugin_interface::sampling::Sampling;
use simrecord::counters::{COUNTERS, CYCLES, Counts};

/// The most accesses of one block that are collected. A repeated string instruction does not exceed it: each
/// iteration is its own block.
const ACCESSES_MAX: usize = 4_096;

/// A vCPU's core, and the block that the vCPU executes.
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
    core_executed: u32,
    /// How many instructions of `block` the vCPU executes: all, unless it leaves the block early.
    vcpu_executes: u32,
    /// Accesses of `block` that the core has not received yet.
    accesses: Vec<Access>,
    /// The vCPU's known physical pages.
    pub(crate) pages: Pages,
    /// The common time of all vCPUs minus the core's time.
    skew_cycles: u64,
    /// Chooses the instructions that the core executes in detail. `None`: all.
    sampler: Option<Box<Sampler>>,
    /// Estimated cycles of the instructions that the core did not execute. They are not in the core's own clock.
    estimated_cycles: u64,
    /// The trace of executed blocks; null without one.
    trace: *mut BlockTrace,
}

/// The bytes of a cache line of the host.
const HOST_LINE: usize = 64;
/// The most lines of a template's instructions, or of what warming needs of them, that are prefetched. The host fetches
/// later lines while the core executes the first.
const PREFETCHED_LINES: usize = 4;

/// Prefetches a block's template, and the memory in `range` that the template owns. The core reads both once the vCPU has
/// executed the block. Few blocks repeat soon, so a template is rarely in the host's caches.
#[inline(always)]
fn prefetch(block: &Template, range: Range<*const u8>) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let template_start = std::ptr::from_ref(block).cast::<i8>();
    let bytes = range.end.addr() - range.start.addr();
    // SAFETY: a prefetch reads nothing, whatever the address is.
    unsafe {
        for line in 0..size_of::<Template>().div_ceil(HOST_LINE) {
            _mm_prefetch::<_MM_HINT_T0>(template_start.wrapping_add(line * HOST_LINE));
        }
        for line in 0..bytes.div_ceil(HOST_LINE).min(PREFETCHED_LINES) {
            let address = range.start.wrapping_add(line * HOST_LINE);
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
    }
}

impl Pipeline {
    /// Makes the pipeline of vCPU `cpu`. `system`, the memory system of all vCPUs, and `trace` are never freed.
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
            core_executed: 0,
            vcpu_executes: 0,
            accesses: Vec::with_capacity(ACCESSES_MAX),
            pages: Pages::new(),
            skew_cycles: 0,
            sampler: sampler.map(Box::new),
            estimated_cycles: 0,
            trace,
        }
    }

    /// A block starts. The caller has finished the previous block.
    #[inline(always)]
    pub(crate) fn start_block(&mut self, block: &Template) {
        self.block = block;
        self.core_executed = 0;
        self.vcpu_executes = block.len() as u32;
        let warms = self.sampler.as_ref().is_some_and(|sampler| sampler.warms_functionally());
        prefetch(block, if warms { block.warming_range() } else { block.host_range() });
    }

    /// Passes the rest of the block to the core, because the vCPU has executed it. `next`: where the vCPU continues.
    #[inline(always)]
    pub(crate) fn finish_block(&mut self, next: VirtualAddress) {
        if self.block.is_null() {
            return self.make_remaining_accesses();
        }
        if self.core_executed < self.vcpu_executes {
            self.run(self.vcpu_executes, next);
        }
        if let Some(phase_end) = self.sampler.as_deref().and_then(Sampler::phase_end) {
            self.start_next_phase(phase_end);
        }
        self.make_remaining_accesses();
        self.block = std::ptr::null();
    }

    /// Passes the instructions that have executed to the core: all but the last `remaining`. A branch at the end stays,
    /// because its target is not known yet.
    #[inline(never)]
    pub(crate) fn retire_pending(&mut self, remaining: u32) {
        // SAFETY: null, or a block that the arena keeps until a flush. The pipeline forgets the block before.
        if let Some(block) = unsafe { self.block.as_ref() } {
            let waits_for_next = remaining == 0
                && self.vcpu_executes as usize == block.len()
                && block.ends_in_branch();
            let pending = remaining.max(u32::from(waits_for_next));
            let end = self.vcpu_executes.saturating_sub(pending);
            if end > self.core_executed {
                self.run(end, VirtualAddress::default());
            }
        }
        self.core.advance();
    }

    /// Passes the block to the core and forgets it, because its template is about to be dropped.
    pub(crate) fn forget_block(&mut self) {
        self.retire_pending(0);
        self.make_remaining_accesses();
        self.block = std::ptr::null();
    }

    /// Ends the block in execution, which the vCPU has left after its first `count` instructions.
    pub(crate) fn leave_block_after(&mut self, count: u32) {
        self.vcpu_executes = count;
    }

    /// The vCPU takes an interrupt or exception instead of the instruction at `next`.
    pub(crate) fn interrupt(&mut self, next: VirtualAddress) {
        self.finish_block(next);
        self.add_to_trace(&TraceEntry::Interrupt);
        self.core.interrupt();
    }

    /// Makes the accesses that the processor itself makes as it enters a handler. Call it after
    /// [`Pipeline::interrupt`].
    ///
    /// The processor waits for loads. A load whose address comes from the previous load starts when that load is ready.
    /// Stores are buffered, so nothing waits for them.
    pub(crate) fn enter_handler(&mut self, accesses: &[ProcessorAccess]) {
        let now = self.core.time();
        let (mut started, mut ready_at) = (now, now);
        let mut port = self.port(None);
        for entry_access in accesses {
            let access = Access {
                virtual_address: entry_access.virtual_address,
                physical: Some(entry_access.physical),
                instruction: 0,
                bytes: entry_access.bytes,
                write: entry_access.write,
            };
            if entry_access.depends_on_previous {
                started = ready_at;
            }
            if access.write {
                port.access(&access, AccessMode::Store, ready_at);
            } else {
                ready_at = ready_at.max(started + port.access(&access, AccessMode::Load, started));
            }
        }
        self.core.delay_entry(ready_at - now);
    }

    /// Whether the core has a second level of TLBs.
    pub(crate) fn has_second_tlb(&self) -> bool {
        // SAFETY: never freed; one thread uses it, and no use is nested in another.
        unsafe { (*self.system).has_second_tlb() }
    }

    /// How many levels of caches the core has below L1.
    pub(crate) fn outer_caches(&self) -> usize {
        // SAFETY: never freed; one thread uses it, and no use is nested in another.
        unsafe { (*self.system).outer_caches() }
    }

    /// Drops address translations.
    pub(crate) fn forget_translations(&mut self, flush: TlbFlush) {
        self.change_translations(Change { flush: Some(flush), space: None });
    }

    /// Sets the vCPU's pages that stay over a write of cr3. Call it before such a write changes translations.
    pub(crate) fn set_global_pages(&mut self, pages: GlobalPages) {
        // SAFETY: never freed; one thread uses it, and no use is nested in another.
        let system = unsafe { &mut *self.system };
        if system.global_pages(self.cpu) != pages {
            system.set_global_pages(self.cpu, pages);
            self.add_to_trace(&TraceEntry::GlobalPages(pages));
        }
    }

    /// Passes a change of the vCPU's address translations on to pages, core and memory system.
    pub(crate) fn change_translations(&mut self, change: Change) {
        self.pages.change(change);
        if let Some((pcid, page_tables)) = change.space {
            self.add_to_trace(&TraceEntry::Space { pcid, page_tables });
        }
        if let Some(flush) = change.flush {
            self.add_to_trace(&TraceEntry::Flush(flush));
        }
        self.core.forget_translations();
        // SAFETY: never freed; one thread uses it, and no use is nested in another.
        translations::apply(change, unsafe { &mut *self.system }, self.cpu);
    }

    /// Makes the core drop the decoded instructions at physical addresses, because the code may have
    /// changed or has left all caches.
    pub(crate) fn forget_code(&mut self, physical: Range<PhysicalAddress>) {
        self.core.forget_code(physical);
    }

    /// Flushes the cache line of an address from all caches. `keeps_line`: the line is only written back. Returns the memory
    /// that has left the caches: the caller makes all cores drop its decoded instructions. `None` if no memory has.
    pub(crate) fn flush_line(
        &mut self,
        virtual_address: VirtualAddress,
        keeps_line: bool,
    ) -> Option<Range<PhysicalAddress>> {
        let known = self.pages.get(virtual_address);
        let physical = known.or_else(|| physical::translate(virtual_address))?;
        // SAFETY: never freed; one thread uses it, and no use is nested in another.
        let flushed = unsafe { (*self.system).flush_line(self.cpu, physical, keeps_line) };
        (!keeps_line).then_some(flushed)
    }

    /// Tells the memory system the address at which the guest has mapped the local APIC.
    pub(crate) fn map_local_apic(&mut self, virtual_address: VirtualAddress) {
        // SAFETY: never freed; one thread uses it, and no use is nested in another.
        unsafe { (*self.system).set_local_device_page(virtual_address) };
    }

    /// Keeps an access that an instruction of the block has made, until the core gets the instruction.
    #[inline(always)]
    pub(crate) fn push_access(&mut self, access: Access) {
        if self.accesses.len() < ACCESSES_MAX {
            self.accesses.push(access);
        } else {
            self.overflow(access);
        }
    }

    /// Makes all kept accesses and `access`, because there is no room for more. No instruction waits for them.
    #[cold]
    fn overflow(&mut self, access: Access) {
        let accesses = std::mem::take(&mut self.accesses);
        for access in accesses.iter().chain([&access]) {
            self.make_access(access);
        }
        self.accesses = accesses;
        self.accesses.clear();
    }

    /// Adds an entry to the trace, if there is a trace.
    fn add_to_trace(&mut self, entry: &TraceEntry) {
        // SAFETY: null, or valid until the process ends; one thread uses it, and no use is nested in another.
        if let Some(trace) = unsafe { self.trace.as_mut() } {
            trace.add(entry);
        }
    }

    /// The vCPU's port to the memory system. `code`: the block that makes the accesses. Drop it before the next use.
    fn port(&mut self, code: Option<&'static Template>) -> LinuxPort<'static> {
        // SAFETY: never freed, and one thread uses it; the returned port is dropped before the next use.
        let system = unsafe { &mut *self.system };
        let page = PageSize::Small;
        let port = MemoryPort { system, cpu: self.cpu, code, pc: VirtualAddress::default(), page };
        LinuxPort { port, skew_cycles: self.skew_cycles + self.estimated_cycles }
    }

    /// Passes the instructions up to number `end` (exclusive) to the core. `next`: the address of the next
    /// block, if the block ends there.
    #[inline(always)]
    fn run(&mut self, end: u32, next: VirtualAddress) {
        if self.core_executed > 0 {
            self.make_late_accesses();
        }
        // SAFETY: not null, as callers have checked; the arena keeps the block until a flush, before which it is forgotten.
        let block = unsafe { &*self.block };
        // SAFETY: null, or valid until the process ends; one thread uses it, and no use is nested in another.
        if let Some(trace) = unsafe { self.trace.as_mut() } {
            trace.run(block, self.core_executed..end, &self.accesses, next);
        }
        let mut port = self.port(Some(block));
        let executed = ExecutedBlock { instructions: end, accesses: &self.accesses, next };
        match &mut self.sampler {
            None => self.core.run_from(self.core_executed as usize, block, &executed, &mut port),
            Some(sampler) => {
                let first = self.core_executed as usize;
                let before = port.port.system.latency_cycles(self.cpu);
                let instructions = Instructions::from(end - self.core_executed);
                if sampler.choose_detail(block.address(), instructions) {
                    self.core.run_from(first, block, &executed, &mut port);
                    sampler.add_wait(port.port.system.latency_cycles(self.cpu) - before);
                } else {
                    let warmed = self.core.warm_from(first, block, &executed, &mut port);
                    let waited_cycles = port.port.system.latency_cycles(self.cpu) - before;
                    self.estimated_cycles +=
                        sampler.estimate(warmed.slots, waited_cycles, block.address());
                }
                let is_branch_last = end as usize == block.len() && block.ends_in_branch();
                sampler.count_executed(instructions, is_branch_last);
            }
        }
        self.core_executed = end;
        // Accesses are in program order, so the last one decides whether any belongs to a later instruction.
        if self.accesses.last().is_none_or(|last| u32::from(last.instruction) < end) {
            self.accesses.clear();
        } else {
            self.accesses.retain(|access| u32::from(access.instruction) >= end);
        }
    }

    /// Starts the next phase of sampling.
    #[cold]
    fn start_next_phase(&mut self, phase_end: PhaseEnd) {
        let counts = self.sampled_counts();
        if let Some(sampler) = &mut self.sampler {
            sampler.start_next_phase(phase_end, &counts);
        }
    }

    /// The model's counts, with the sampler's counts of instructions and branches.
    fn sampled_counts(&self) -> Moment {
        let mut counts = [0; COUNTERS];
        self.put_counts(&mut counts);
        counts[CYCLES] = self.cycles();
        if let Some(sampler) = &self.sampler {
            sampler.put_counts(&mut counts);
        }
        Moment { counts, slots: self.core.counts().instructions }
    }

    /// Sets what the core executes in detail from now on. `sampling` defines the units. The caller has retired
    /// all executed instructions.
    pub(crate) fn set_scope(&mut self, scope: Scope, sampling: Sampling) {
        self.sampler = match scope {
            Scope::Everything => None,
            Scope::Kernel | Scope::Units => {
                let sampler = self.sampler.take();
                let new_sampler =
                    || Box::new(Sampler::starting_with_unit(sampling, self.cpu as u32));
                let mut sampler = sampler.unwrap_or_else(new_sampler);
                sampler.set_kernel_in_detail(scope == Scope::Kernel);
                Some(sampler)
            }
        };
    }

    /// Sets the context that executes from now on: [`attribution::KernelContext::code`].
    pub(crate) fn set_context(&mut self, code: u64) {
        if self.sampler.as_ref().is_some_and(|sampler| sampler.measures_other_than(code)) {
            let counts = self.sampled_counts();
            if let Some(sampler) = &mut self.sampler {
                sampler.charge(&counts);
            }
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.set_context(code);
        }
    }

    /// Tells the sampler which region of interest is open. `None`: no region is open.
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
        self.sampler.as_mut().map_or_else(Vec::new, |sampler| sampler.take_ended_parts())
    }

    /// Makes the accesses of instructions that the core has executed before their accesses were known.
    #[cold]
    fn make_late_accesses(&mut self) {
        let is_late = |access: &&Access| u32::from(access.instruction) < self.core_executed;
        let late_count = self.accesses.iter().take_while(is_late).count();
        for index in 0..late_count {
            let access = self.accesses[index];
            self.make_access(&access);
        }
        self.accesses.drain(..late_count);
    }

    /// Makes the remaining accesses. Their instructions did not complete, or the core has executed them already.
    #[inline(always)]
    fn make_remaining_accesses(&mut self) {
        if !self.accesses.is_empty() {
            self.make_all_remaining_accesses();
        }
    }

    /// See [`Pipeline::make_remaining_accesses`], which handles the common case of no accesses.
    #[cold]
    fn make_all_remaining_accesses(&mut self) {
        for index in 0..self.accesses.len() {
            let access = self.accesses[index];
            self.make_access(&access);
        }
        self.accesses.clear();
    }

    /// Makes an access that no instruction waits for.
    fn make_access(&mut self, access: &Access) {
        let now = self.core.time();
        // SAFETY: null if the block is unknown, or a block that the arena keeps until a flush. The pipeline forgets the block
        // before.
        let code = unsafe { self.block.as_ref() };
        let mut port = self.port(code);
        let mode = if access.write { AccessMode::Store } else { AccessMode::Load };
        port.access(access, mode, now);
    }

    /// See [`Core::set_halted`].
    pub(crate) fn set_halted(&mut self, halted: bool) {
        self.core.set_halted(halted);
    }

    /// See [`Core::wait_as_thread`].
    pub(crate) fn wait_as_thread(&mut self, cycles: u64) -> bool {
        self.core.wait_as_thread(cycles)
    }

    /// See [`Core::issue_all_threads`].
    pub(crate) fn issue_all_threads(&mut self) {
        self.core.issue_all_threads();
    }

    /// Cycles of the instructions that the core has executed, plus the estimated cycles of all other instructions.
    #[inline(always)]
    pub(crate) fn cycles(&self) -> u64 {
        self.core.cycles() + self.estimated_cycles
    }

    /// Sets the common time of all vCPUs at the core's current time.
    pub(crate) fn set_time(&mut self, common: Cycle) {
        self.skew_cycles = common.cycles_since(self.core.time() + self.estimated_cycles);
    }

    /// Sets the counters of memory system and core in `counts`. The caller sets instructions, cycles and branches.
    pub(crate) fn put_counts(&self, counts: &mut Counts) {
        // SAFETY: never freed; one thread uses it, and no use is nested in another.
        let memory = unsafe { (*self.system).counts(self.cpu) };
        put_memory_counts(&memory, counts);
        put_core_counts(&self.core.counts(), self.width, counts);
    }
}
