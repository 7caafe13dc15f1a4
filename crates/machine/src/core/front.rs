//! Fetch: in the order of the program, so wide a cycle, along foreseen branches.

use super::counts::CoreCounts;
use super::graduation::Interval;
use super::instruction::Instruction;
use super::memory::Memory;
use super::model::{CoreModel, DecodedModel};
use super::ring::Ring;
use super::template::Template;
use crate::predict::{Branch, BranchKind, Prediction, Predictor};
use crate::tag_array::{Outcome, TagArray};

/// So many of something a cycle, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    cycle: u64,
    used: u32,
}

impl Pace {
    /// The first cycle from `earliest` on that has room for one of `width`.
    #[inline]
    fn next(&self, earliest: u64, width: u32) -> u64 {
        earliest.max(self.cycle + u64::from(self.used >= width))
    }

    /// The next comes in the first cycle from `earliest` on that has room for one of `width`.
    #[inline]
    pub(super) fn take(&mut self, earliest: u64, width: u32) -> u64 {
        let cycle = self.next(earliest, width);
        self.used = if cycle == self.cycle { self.used + 1 } else { 1 };
        self.cycle = cycle;
        cycle
    }

    /// Nothing more comes in this cycle.
    fn end_cycle(&mut self) {
        self.used = u32::MAX;
    }
}

/// A trace cache, or one of micro-operations.
#[derive(Clone, Debug)]
struct Decoded {
    cache: TagArray,
    line_instructions: u64,
    width: u32,
    traces: bool,
}

impl Decoded {
    fn new(model: &DecodedModel) -> Decoded {
        Decoded {
            cache: TagArray::new(&model.as_cache()),
            line_instructions: model.line_instructions.into(),
            width: model.decode_width,
            traces: model.traces,
        }
    }

    /// Whether all of a block is in it. It is then.
    fn holds(&mut self, block: &Template) -> bool {
        let lines = (block.len() as u64).div_ceil(self.line_instructions);
        let looked_up = (0..lines).map(|line| {
            // No address has this many bits, which keeps the mark of an empty way free.
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
    /// For how long a line was waited for.
    pub(super) wait: Interval,
}

#[derive(Clone, Debug)]
pub(super) struct Front {
    width: u32,
    mispredict_cycles: u64,
    btb_miss_cycles: u64,
    taken_ends_cycle: bool,
    pace: Pace,
    /// When those in the queue have left it.
    queue: Ring,
    /// Nothing is fetched before.
    earliest: u64,
    last_line: Option<(u64, u64)>,
    decoded: Option<Decoded>,
    /// Most instructions of the block a cycle.
    block_width: u32,
    /// The block comes decoded.
    block_decoded: bool,
    predictor: Predictor,
}

impl Front {
    pub(super) fn new(model: &CoreModel) -> Front {
        Front {
            width: model.width,
            mispredict_cycles: model.front.mispredict_cycles.into(),
            btb_miss_cycles: model.front.btb_miss_cycles.into(),
            taken_ends_cycle: model.front.taken_ends_cycle,
            pace: Pace::default(),
            queue: Ring::new(model.front.queue_entries),
            earliest: 0,
            last_line: None,
            decoded: model.front.decoded.as_ref().map(Decoded::new),
            block_width: model.width,
            block_decoded: false,
            predictor: Predictor::new(&model.predictor),
        }
    }

    #[inline]
    pub(super) fn begin(&mut self, block: &Template) {
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
        if one.begins_line() && !self.block_decoded {
            earliest = self.pace.next(earliest, self.block_width);
            let waited = self.fetch_lines(block, one, earliest, memory);
            if waited > 0 {
                counts.fetch_misses += 1;
                // What enters in a cycle can graduate in the one behind.
                wait = (earliest + 1, earliest + 1 + waited);
                earliest += waited;
            }
        }
        Fetched { cycle: self.pace.take(earliest, self.block_width), wait }
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

    /// The instruction that was fetched last has left the queue.
    #[inline]
    pub(super) fn entered(&mut self, cycle: u64) {
        self.queue.push(cycle);
    }

    /// Nothing is fetched before `cycle`.
    #[inline]
    pub(super) fn resume_at(&mut self, cycle: u64) {
        self.earliest = self.earliest.max(cycle);
    }

    /// Translations are no longer what they were: the next line is looked up, whichever it is.
    pub(super) fn forget_line(&mut self) {
        self.last_line = None;
    }

    /// The branch at the end of a block was fetched at `fetched`, is executed at `done` and leads to
    /// `next`.
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
            self.pace.end_cycle();
        }
    }
}
