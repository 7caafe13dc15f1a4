//! What a vCPU has counted at a moment, by whatever counts, and blocks that were left early.

use std::ptr;

use machine::{BlockingMachine, BlockingModel};

use super::{Counting, Cpu};
use crate::beside::Beside;
use crate::block::Block;
use crate::counters;
use crate::pipeline::Pipeline;
use simrecord::counters::{BRANCHES, COUNTERS, CYCLES, Counts, INSTRUCTIONS, TIME};
use simrecord::record::Detail;

impl Cpu {
    /// Counts with a model from now on.
    pub(crate) fn set_model(&mut self, model: &BlockingModel) {
        // Lives as long as the process, as the code that uses it may.
        self.model = Box::into_raw(Box::new(BlockingMachine::new(model)));
    }

    /// Executes on a core of a model from now on.
    pub(crate) fn set_pipeline(&mut self, pipeline: Pipeline) {
        // As above.
        self.pipeline = Box::into_raw(Box::new(pipeline));
    }

    /// The vCPU is halted, or no longer is.
    pub(crate) fn set_halted(&mut self, halted: bool) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.set_halted(halted);
        }
    }

    /// The threads of its core issue all, and go on together.
    pub(crate) fn settle_threads(&mut self) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.settle_threads();
        }
    }

    /// The time that all vCPUs have in common is `cycles` now.
    pub(crate) fn set_time(&mut self, cycles: u64) {
        if let Some(pipeline) = self.pipeline() {
            pipeline.set_time(cycles);
        }
    }

    /// Counts as this level of detail does from now on.
    pub(crate) fn set_level(&mut self, level: Detail) {
        self.counting = match level {
            Detail::Timed if !self.model.is_null() => Counting::Timed,
            Detail::Ooo if !self.pipeline.is_null() => Counting::Ooo,
            _ => Counting::Plain,
        };
        // Translations were not followed for a while.
        if let Some(model) = self.model() {
            model.flush_tlbs();
        }
        if let Some(pipeline) = self.pipeline() {
            pipeline.forget_translations();
        }
    }

    /// Has caches beside told of what it does.
    pub(crate) fn set_beside(&mut self, beside: *mut Beside) {
        self.beside = beside;
    }

    /// Translations are no longer what they were, for the caches beside.
    pub(crate) fn forget_beside(&mut self, vcpu: u32) {
        // SAFETY: null, or alive as long as the process; no use is nested in another.
        if let Some(beside) = unsafe { self.beside.as_mut() } {
            beside.forget_translations(vcpu as usize);
        }
    }

    /// Whether the idle task runs.
    pub(crate) fn set_idles(&mut self, idles: bool) {
        self.idles = idles;
    }

    /// Whether a model counts.
    pub(crate) fn counts_with_model(&self) -> bool {
        self.counting != Counting::Plain
    }

    /// Whether a model counts, or did or will.
    fn has_model(&self) -> bool {
        !(self.model.is_null() && self.pipeline.is_null())
    }

    pub(super) fn pipeline(&mut self) -> Option<&mut Pipeline> {
        // SAFETY: null, or of `set_pipeline`; no use is nested in another.
        unsafe { self.pipeline.as_mut() }
    }

    pub(super) fn model(&mut self) -> Option<&mut BlockingMachine> {
        // SAFETY: null, or of `set_model`; no use is nested in another.
        unsafe { self.model.as_mut() }
    }

    /// Cycles executed, where slices are measured; not to be compared over a change of the level.
    pub(crate) fn cycles(&mut self) -> u64 {
        let (plain, counting) = (self.instructions, self.counting);
        match counting {
            Counting::Plain => plain,
            Counting::Timed => self.model().map_or(plain, |model| model.cycles()),
            Counting::Ooo => self.pipeline().map_or(plain, |pipeline| pipeline.cycles()),
        }
    }

    /// Instructions executed, if the block that was started last ran to its end.
    pub(crate) fn instructions(&mut self) -> u64 {
        self.counts()[INSTRUCTIONS]
    }

    /// What was counted, if the block that was started last ran to its end.
    pub(crate) fn counts(&mut self) -> Counts {
        let mut counts = [0; COUNTERS];
        counts[INSTRUCTIONS] = self.instructions;
        counts[CYCLES] = self.instructions;
        if let Some(model) = self.model() {
            counters::place(&model.counts(), &mut counts);
        }
        if let Some(pipeline) = self.pipeline() {
            pipeline.add_to(&mut counts);
            counts[CYCLES] = pipeline.cycles();
            counts[INSTRUCTIONS] = self.instructions;
        }
        if self.has_model() {
            counts[BRANCHES] = self.branches;
        }
        counts[TIME] = counts[CYCLES] + self.halted_cycles;
        counts
    }

    /// What was counted when `remaining` instructions of the block that was started last are still
    /// to execute.
    pub(crate) fn counts_before(&mut self, remaining: u32) -> Counts {
        self.settle(remaining);
        let mut counts = self.counts();
        // A core has not been handed them yet.
        let of_each = self.model().map_or(1, |model| model.instruction_cycles());
        let cycles = if self.pipeline.is_null() { u64::from(remaining) * of_each } else { 0 };
        counts[INSTRUCTIONS] -= u64::from(remaining);
        counts[CYCLES] -= cycles;
        counts[TIME] -= cycles;
        // SAFETY: null, or kept by the arena until a flush, which clears it.
        let block = unsafe { self.block.as_ref() };
        let branches = block.is_some_and(|block| block.ends_in_branch && remaining > 0);
        counts[BRANCHES] -= u64::from(branches && self.has_model());
        counts
    }

    /// Has the core execute what was executed when `remaining` instructions of the block are still to
    /// come.
    pub(crate) fn settle(&mut self, remaining: u32) {
        if self.counting == Counting::Ooo
            && let Some(pipeline) = self.pipeline()
        {
            pipeline.settle(remaining);
        }
    }

    /// What user mode has counted, of `counts` in all.
    pub(crate) fn user_counts(&self, counts: &Counts) -> Counts {
        let mut user = self.user;
        if !self.in_kernel {
            for (position, user) in user.iter_mut().enumerate() {
                *user += counts[position] - self.changed_at[position];
            }
        }
        user
    }

    /// The mode changes if `in_kernel` is another than before.
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

    /// A handler is entered instead of the instruction at `address`. Returns whether it is that of
    /// an exception; else the block before ran to its end.
    pub(crate) fn deliver(&mut self, address: u64) -> bool {
        let exception = std::mem::take(&mut self.raising);
        if exception {
            self.interrupted_at(address);
        }
        if self.counting == Counting::Ooo
            && let Some(pipeline) = self.pipeline()
        {
            pipeline.interrupt(address);
        }
        exception
    }

    /// An exception came at `address`: the instruction there was not executed, nor were those behind
    /// it in the block.
    pub(super) fn interrupted_at(&mut self, address: u64) {
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
    pub(super) fn left_after(&mut self, address: u64) {
        // SAFETY: as above.
        let Some(block) = (unsafe { self.block.as_ref() }) else { return };
        if let Some(index) = block.index_of(address) {
            self.take_back(block, block.length() - index - 1);
        }
    }

    /// The last `count` instructions of the block were not executed.
    pub(super) fn take_back(&mut self, block: &Block, count: u32) {
        if self.counting != Counting::Timed {
            self.instructions -= u64::from(count);
        }
        if self.counting != Counting::Plain {
            self.branches -= u64::from(block.ends_in_branch && count > 0);
        }
        match self.counting {
            Counting::Plain => {}
            Counting::Timed => {
                if let Some(model) = self.model() {
                    model.uncount_instructions(count);
                }
            }
            Counting::Ooo => {
                if let Some(pipeline) = self.pipeline() {
                    pipeline.leave(block.length() - count);
                }
            }
        }
    }
}
