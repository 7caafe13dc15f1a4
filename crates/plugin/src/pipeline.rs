//! The pipeline of a vCPU at the level `ooo`: a core of the model, given blocks once it is known
//! what they accessed and where they led.

use machine::core::{Access, ExecutedBlock, Memory, Template};
use machine::memory::{MemoryPort, MemorySystem, PageSize};

use crate::cores::Core;
use crate::counters::{add_core, add_memory};
use crate::pages::Pages;
use simrecord::counters::Counts;

/// Accesses of one block that are kept. An instruction that repeats itself without end is a block each
/// time, and so has none.
const ACCESSES_MAX: usize = 4_096;

/// A vCPU's core, and the block that it executes.
pub(crate) struct Pipeline {
    core: Core,
    /// Slots of a cycle.
    width: u64,
    /// Of all vCPUs.
    system: *mut MemorySystem,
    cpu: usize,
    /// The block that was started last; null if it was handed in whole.
    block: *const Template,
    /// How many of its instructions were handed in.
    ran: u32,
    /// How many of them execute, as far as it is known.
    executes: u32,
    /// What they accessed and was not handed in.
    accesses: Vec<Access>,
    /// Where pages are.
    pub(crate) pages: Pages,
    /// From the core's time to that which all vCPUs have in common.
    skew_cycles: u64,
}

/// The way of a core into the memory of the machine, on the time that all vCPUs have in common.
struct PipelinePort<'s> {
    port: MemoryPort<'s>,
    skew_cycles: u64,
}

impl Memory for PipelinePort<'_> {
    fn fetch(&mut self, virtual_address: u64, physical: u64, now_cycles: u64) -> u64 {
        self.port.page = page_size(virtual_address);
        self.port.fetch(virtual_address, physical, now_cycles + self.skew_cycles)
    }

    fn load(&mut self, access: &Access, now_cycles: u64) -> u64 {
        self.port.page = page_size(access.virtual_address);
        self.port.load(access, now_cycles + self.skew_cycles)
    }

    fn store(&mut self, access: &Access, now_cycles: u64) -> u64 {
        self.port.page = page_size(access.virtual_address);
        self.port.store(access, now_cycles + self.skew_cycles)
    }
}

/// The size of the page that an address lies in, by Linux's map of its half of the addresses
/// (Documentation/arch/x86/x86_64/mm.rst, four levels): all memory, the array of its pages, and the
/// kernel's image are in pages of 2 MiB. QEMU doesn't tell.
#[inline(always)]
pub(crate) fn page_size(address: u64) -> PageSize {
    const LARGE: [std::ops::Range<u64>; 3] = [
        0xffff_8880_0000_0000..0xffff_c880_0000_0000,
        0xffff_ea00_0000_0000..0xffff_eb00_0000_0000,
        0xffff_ffff_8000_0000..0xffff_ffff_a000_0000,
    ];
    let large = address >> 63 == 1 && LARGE.iter().any(|range| range.contains(&address));
    if large { PageSize::Large } else { PageSize::Small }
}

impl Pipeline {
    /// Of vCPU `cpu`, on the memory of all.
    pub(crate) fn new(core: Core, width: u32, system: *mut MemorySystem, cpu: usize) -> Pipeline {
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
        }
    }

    /// A block starts. The one before is finished.
    #[inline(always)]
    pub(crate) fn begin(&mut self, block: &Template) {
        self.block = block;
        self.ran = 0;
        self.executes = block.len() as u32;
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

    /// Hands in what was executed when `remaining` instructions of those that execute are still to
    /// come; but not a branch at the end, of which it is not known where it leads. An instruction that
    /// has not executed yet is taken for one without accesses.
    #[inline(never)]
    pub(crate) fn retire_pending(&mut self, remaining: u32) {
        // SAFETY: null, or of a block that the arena keeps until a flush, before which it is finished.
        if let Some(block) = unsafe { self.block.as_ref() } {
            let waits_for_next =
                remaining == 0 && self.executes as usize == block.len() && block.ends_in_branch();
            let behind = remaining.max(u32::from(waits_for_next));
            let until = self.executes.saturating_sub(behind);
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

    /// An interrupt or exception comes where the vCPU would go on at `next`.
    pub(crate) fn interrupt(&mut self, next: u64) {
        self.finish(next);
        self.core.interrupt();
    }

    /// Translations are no longer what they were.
    pub(crate) fn forget_translations(&mut self) {
        self.pages.forget();
        self.core.forget_translations();
        // SAFETY: lives as long as the process; one thread uses it, and no use is nested in another.
        unsafe { (*self.system).flush_tlbs(self.cpu) };
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
        let kept = std::mem::take(&mut self.accesses);
        for one in kept.iter().chain([&access]) {
            self.access_alone(one);
        }
        self.accesses = kept;
        self.accesses.clear();
    }

    fn port(&mut self, pc: u64) -> PipelinePort<'static> {
        // SAFETY: as above; what is returned is used up before the next use.
        let system = unsafe { &mut *self.system };
        let port = MemoryPort { system, cpu: self.cpu, pc, page: PageSize::Small };
        PipelinePort { port, skew_cycles: self.skew_cycles }
    }

    /// Hands in the block up to instruction `until`.
    #[inline(always)]
    fn run(&mut self, until: u32, next: u64) {
        if self.ran > 0 {
            self.run_rest();
        }
        // SAFETY: as in `retire_pending`; callers have seen that it is there.
        let block = unsafe { &*self.block };
        let mut port = self.port(block.address());
        let executed = ExecutedBlock { instructions: until, accesses: &self.accesses, next };
        self.core.run_from(self.ran as usize, block, &executed, &mut port);
        self.ran = until;
        // Accesses come in the order of the program: all but those of an instruction behind.
        if self.accesses.last().is_none_or(|last| u32::from(last.instruction) < until) {
            self.accesses.clear();
        } else {
            self.accesses.retain(|access| u32::from(access.instruction) >= until);
        }
    }

    /// Accesses of instructions that were handed in before they had been made.
    #[cold]
    fn run_rest(&mut self) {
        let late = self.accesses.iter().take_while(|one| u32::from(one.instruction) < self.ran);
        let late = late.count();
        for at in 0..late {
            let access = self.accesses[at];
            self.access_alone(&access);
        }
        self.accesses.drain(..late);
    }

    /// What is left was made by instructions that were handed in, or did not execute to their end.
    #[inline(always)]
    fn drain(&mut self) {
        if !self.accesses.is_empty() {
            self.drain_all();
        }
    }

    #[cold]
    fn drain_all(&mut self) {
        for at in 0..self.accesses.len() {
            let access = self.accesses[at];
            self.access_alone(&access);
        }
        self.accesses.clear();
    }

    /// An access that nothing waits for.
    fn access_alone(&mut self, access: &Access) {
        let now = self.core.time();
        let mut port = self.port(0);
        match access.write {
            true => port.store(access, now),
            false => port.load(access, now),
        };
    }

    /// The vCPU is halted, or no longer is.
    pub(crate) fn set_halted(&mut self, halted: bool) {
        self.core.set_halted(halted);
    }

    /// Threads of its core issue all, and go on together.
    pub(crate) fn issue_all_threads(&mut self) {
        self.core.issue_all_threads();
    }

    /// Cycles of what was handed in.
    #[inline(always)]
    pub(crate) fn cycles(&self) -> u64 {
        self.core.cycles()
    }

    /// The common time is `cycles` where the core's is what it is now.
    pub(crate) fn set_time(&mut self, cycles: u64) {
        self.skew_cycles = cycles.saturating_sub(self.core.time());
    }

    /// Adds what was counted to the model's part of the counts.
    pub(crate) fn add_to(&self, counts: &mut Counts) {
        // SAFETY: as above.
        let memory = unsafe { (*self.system).counts(self.cpu) };
        add_memory(&memory, counts);
        add_core(&self.core.counts(), self.width, counts);
    }
}
