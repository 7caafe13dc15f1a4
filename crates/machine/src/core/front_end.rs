//! The front end: fetches up to `width` instructions per cycle, in program order, along predicted
//! branches.

use super::CoreCounts;
use super::Memory;
use super::instruction::Instruction;
use super::instruction::Template;
use super::model::{CoreModel, DecodedModel};
use super::retirement::Interval;
use super::store_buffer::EntryQueue;
use crate::predict::{Branch, BranchKind, Prediction, Predictor};
use crate::tag_array::{Outcome, TagArray};

/// Limits how many instructions pass a stage per cycle, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct WidthLimiter {
    cycle: u64,
    used: u32,
}

impl WidthLimiter {
    /// The first cycle from `earliest` on in which fewer than `width` have passed.
    #[inline]
    fn next(&self, earliest: u64, width: u32) -> u64 {
        earliest.max(self.cycle + u64::from(self.used >= width))
    }

    /// Lets the next instruction pass in the first cycle from `earliest` on in which fewer than
    /// `width` have passed. Returns the cycle.
    #[inline]
    pub(super) fn take(&mut self, earliest: u64, width: u32) -> u64 {
        let cycle = self.next(earliest, width);
        self.used = if cycle == self.cycle { self.used + 1 } else { 1 };
        self.cycle = cycle;
        cycle
    }

    /// The cycle in which the last one passed.
    pub(super) fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Nothing more passes in this cycle.
    pub(super) fn end_cycle(&mut self) {
        self.used = u32::MAX;
    }
}

/// A cache of decoded instructions: a trace cache or a micro-operation cache.
#[derive(Clone, Debug)]
struct DecodedCache {
    cache: TagArray,
    line_instructions: u64,
    width: u32,
    traces: bool,
}

impl DecodedCache {
    fn new(model: &DecodedModel) -> DecodedCache {
        DecodedCache {
            cache: TagArray::new(&model.as_cache()),
            line_instructions: model.line_instructions.into(),
            width: model.decode_width,
            traces: model.traces,
        }
    }

    /// Looks all lines of a block up and fills them. Returns whether all hit.
    fn holds(&mut self, block: &Template) -> bool {
        let lines = (block.len() as u64).div_ceil(self.line_instructions);
        let looked_up = (0..lines).map(|line| {
            // No address has this many bits, so no name is that of an empty way.
            let name = block.address().wrapping_add(line) >> 1 ^ (line & 1) << 62;
            self.cache.access(name, false) == Outcome::Hit
        });
        looked_up.fold(true, |all, hit| all & hit)
    }
}

/// When an instruction was fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    pub(super) cycle: u64,
    /// When it waited for its line.
    pub(super) wait: Interval,
}

#[derive(Clone, Debug)]
pub(super) struct FrontEnd {
    width: u32,
    mispredict_cycles: u64,
    btb_miss_cycles: u64,
    taken_ends_cycle: bool,
    fetching: WidthLimiter,
    /// When the entries of the fetch queue become free.
    queue: EntryQueue,
    /// Nothing is fetched before this cycle.
    earliest: u64,
    last_line: Option<(u64, u64)>,
    decoded: Option<DecodedCache>,
    /// How many instructions of the block are fetched per cycle.
    block_width: u32,
    /// Whether the block comes from the cache of decoded instructions.
    block_decoded: bool,
    predictor: Predictor,
}

impl FrontEnd {
    pub(super) fn new(model: &CoreModel) -> FrontEnd {
        FrontEnd {
            width: model.width,
            mispredict_cycles: model.front.mispredict_cycles.into(),
            btb_miss_cycles: model.front.btb_miss_cycles.into(),
            taken_ends_cycle: model.front.taken_ends_cycle,
            fetching: WidthLimiter::default(),
            queue: EntryQueue::new(model.front.queue_entries),
            earliest: 0,
            last_line: None,
            decoded: model.front.decoded.as_ref().map(DecodedCache::new),
            block_width: model.width,
            block_decoded: false,
            predictor: Predictor::new(&model.predictor),
        }
    }

    #[inline]
    pub(super) fn start_block(&mut self, block: &Template) {
        if let Some(decoded) = &mut self.decoded {
            self.block_decoded = decoded.holds(block);
            self.block_width = if self.block_decoded { self.width } else { decoded.width };
        }
    }

    /// Fetches the next instruction.
    #[inline(always)]
    pub(super) fn fetch<M: Memory>(
        &mut self,
        block: &Template,
        one: &Instruction,
        memory: &mut M,
        counts: &mut CoreCounts,
    ) -> Fetched {
        let mut earliest = self.earliest.max(self.queue.oldest());
        let mut wait = (0, 0);
        if one.starts_line() && !self.block_decoded {
            earliest = self.fetching.next(earliest, self.block_width);
            let waited = self.fetch_lines(block, one, earliest, memory);
            if waited > 0 {
                counts.fetch_misses += 1;
                // An instruction retires in the cycle after it enters, at the earliest.
                wait = (earliest + 1, earliest + 1 + waited);
                earliest += waited;
            }
        }
        Fetched { cycle: self.fetching.take(earliest, self.block_width), wait }
    }

    #[inline(never)]
    fn fetch_lines<M: Memory>(
        &mut self,
        block: &Template,
        one: &Instruction,
        now: u64,
        memory: &mut M,
    ) -> u64 {
        let mut waited = 0;
        for line in block.lines_of(one) {
            if self.last_line != Some(line) {
                self.last_line = Some(line);
                waited += memory.fetch(line.0, line.1, now + waited);
            }
        }
        waited
    }

    /// The instruction that was fetched last leaves the fetch queue at `cycle`.
    #[inline]
    pub(super) fn entered(&mut self, cycle: u64) {
        self.queue.push(cycle);
    }

    /// Nothing is fetched before `cycle`.
    #[inline]
    pub(super) fn resume_at(&mut self, cycle: u64) {
        self.earliest = self.earliest.max(cycle);
    }

    /// Translations have changed: the next line is looked up, whichever it is.
    pub(super) fn forget_line(&mut self) {
        self.last_line = None;
    }

    /// Predicts the branch at the end of a block, which is fetched at `fetched`, resolved at `done`
    /// and leads to `next`.
    #[inline]
    pub(super) fn branch(
        &mut self,
        (block, kind): (&Template, BranchKind),
        next: u64,
        (fetched, done): (u64, u64),
        counts: &mut CoreCounts,
    ) {
        let Some(last) = block.instructions.last() else { return };
        let (address, fall_through, target) =
            (block.address_of(last), block.fall_through, block.target);
        let branch = Branch { address, kind, fall_through, target, next };
        counts.branches += 1;
        match self.predictor.step(&branch) {
            Prediction::Predicted => {}
            Prediction::BtbMiss => {
                counts.btb_misses += 1;
                self.resume_at(fetched + 1 + self.btb_miss_cycles);
            }
            Prediction::Mispredicted => {
                counts.mispredicted_branches += 1;
                self.resume_at(done + self.mispredict_cycles);
            }
        }
        let goes_on = self.block_decoded && self.decoded.as_ref().is_some_and(|of| of.traces);
        if self.taken_ends_cycle && branch.taken() && !goes_on {
            self.fetching.end_cycle();
        }
    }
}
