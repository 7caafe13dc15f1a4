//! The front end of a core with one thread: fetches up to `width` instructions per cycle, in program
//! order, along predicted branches. It computes only when each instruction is fetched; `code_tags`
//! says where the code comes from and how branches are predicted.

use super::CoreCounts;
use super::Memory;
use super::code_tags::{FoundCode, PredictedBranch};
use super::instruction::{CODE_LINE_SHIFT, Instruction, Template};
use super::model::{CoreModel, DecodedModel};
use super::retirement::CycleRange;
use super::stages::{EntryQueue, FetchLimiter};
use crate::address::VirtualAddress;
use crate::cycle::Cycle;
use crate::predict::{BranchKind, Prediction};

/// The branch predictor of a front end that runs ahead of fetch. Per cycle, it produces a line of code or the target of
/// a branch. A line is requested when it is produced. See [`FrontModel::ahead_lines`](super::FrontModel::ahead_lines).
#[derive(Clone, Debug)]
struct RunAhead {
    /// When the last line or target was produced.
    cycle: Cycle,
    /// Whether the next line is the line of a branch target, which was already produced.
    is_at_target: bool,
    /// The fetch times of the last lines and targets: the predictor waits for the oldest before it produces another.
    fetched: EntryQueue<Cycle>,
}

impl RunAhead {
    fn new(lines: u32) -> RunAhead {
        RunAhead { cycle: Cycle::START, is_at_target: false, fetched: EntryQueue::new(lines) }
    }

    /// Produces the next line or target, with a delay of `bubble_cycles`, not before cycle `earliest`. The line or
    /// branch before is fetched at `fetched`. Returns the cycle; nothing of the new line is fetched earlier.
    #[inline]
    fn next(&mut self, bubble_cycles: u64, earliest: Cycle, fetched: Cycle) -> Cycle {
        self.cycle = (self.cycle + 1 + bubble_cycles).max(self.fetched.oldest()).max(earliest);
        self.fetched.push(fetched);
        self.cycle
    }

    /// Delays the predictor by `cycles`. Returns the predictor's cycle, or `earliest` if that is later. The core
    /// fetches no further line before the returned cycle.
    #[inline]
    fn delay(&mut self, cycles: u64, earliest: Cycle) -> Cycle {
        self.cycle += cycles;
        self.cycle.max(earliest)
    }
}

/// The widths of fetch in a core with a cache of decoded instructions.
#[derive(Clone, Debug)]
struct DecodedWidths {
    /// Maximum number of instructions per cycle that miss the cache, and of their bytes.
    miss_width: u32,
    miss_bytes: u32,
    /// Maximum number of instructions per cycle that the cache supplies.
    hit_width: u32,
    one_line_per_cycle: bool,
    /// The line of code where the last line of decoded instructions started.
    last_line: u64,
    /// Whether lines continue after taken branches, as in a trace cache.
    traces: bool,
}

impl DecodedWidths {
    fn new(model: &DecodedModel, core_width: u32) -> DecodedWidths {
        DecodedWidths {
            miss_width: model.decode_width,
            miss_bytes: model.decode_bytes.unwrap_or(u32::MAX),
            hit_width: model.width.unwrap_or(core_width),
            one_line_per_cycle: model.one_line_per_cycle,
            last_line: u64::MAX,
            traces: model.traces,
        }
    }

    /// Enters the line of decoded instructions that the instruction at `address` starts. Returns whether the line must
    /// come in a later cycle than the instructions before it. Instructions after a not-taken branch are in the branch's
    /// line.
    #[inline]
    fn enter_line(&mut self, is_first_of_block: bool, address: VirtualAddress) -> bool {
        let line = std::mem::replace(&mut self.last_line, address.block_number(CODE_LINE_SHIFT));
        self.one_line_per_cycle && !(is_first_of_block && line == self.last_line)
    }
}

/// Whether the target of a branch is in a register or in memory. A return never counts, even if no return stack
/// predicts it.
fn is_indirect(kind: BranchKind) -> bool {
    matches!(kind, BranchKind::IndirectJump | BranchKind::IndirectCall)
}

/// When an instruction is fetched and when it is done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InstructionTimes {
    pub(super) fetched: Cycle,
    pub(super) done: Cycle,
}

/// When an instruction was fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    pub(super) cycle: Cycle,
    /// The cycles while it waited for its line.
    pub(super) wait: CycleRange,
}

/// The front end of a core, with its state. The costs `*_cycles` and `taken_ends_cycle` are those of
/// [`FrontModel`](super::FrontModel), and [`FrontEnd::branch`] applies them.
#[derive(Clone, Debug)]
pub(super) struct FrontEnd {
    mispredict_cycles: u64,
    btb_miss_cycles: u64,
    btb_second_cycles: u64,
    overruled_cycles: u64,
    indirect_cycles: u64,
    indirect_overruled_cycles: u64,
    return_cycles: u64,
    taken_ends_cycle: bool,
    /// `None`: the core requests a line when it fetches it.
    ahead: Option<RunAhead>,
    /// The cycle of the last fetch of undecoded instructions, and the bytes fetched in it.
    bytes: (Cycle, u32),
    fetching: FetchLimiter,
    /// When the entries of the fetch queue become free.
    queue: EntryQueue<Cycle>,
    /// Nothing is fetched before this cycle.
    earliest: Cycle,
    decoded: Option<DecodedWidths>,
    /// Maximum number of instructions per cycle in the current part of the block. Only a core with `decoded` changes
    /// this and the two fields below.
    block_width: u32,
    /// Maximum number of bytes per cycle in the current part of the block. `u32::MAX`: no limit.
    block_bytes: u32,
    /// Whether the cache of decoded instructions supplies the current part of the block.
    is_block_decoded: bool,
}

impl FrontEnd {
    /// A front end before its first instruction.
    pub(super) fn new(model: &CoreModel) -> FrontEnd {
        let front = &model.front;
        let decoded = front.decoded.as_ref();
        FrontEnd {
            mispredict_cycles: front.mispredict_cycles.into(),
            btb_miss_cycles: front.btb_miss_cycles.into(),
            btb_second_cycles: front.btb_second_cycles.into(),
            overruled_cycles: front.overruled_cycles.into(),
            indirect_cycles: front.indirect_cycles.into(),
            indirect_overruled_cycles: front.indirect_overruled_cycles.into(),
            return_cycles: front.return_cycles.into(),
            taken_ends_cycle: front.taken_ends_cycle,
            ahead: (front.ahead_lines > 0).then(|| RunAhead::new(front.ahead_lines)),
            bytes: (Cycle::START, 0),
            fetching: FetchLimiter::default(),
            queue: EntryQueue::new(front.queue_entries.unwrap_or(1)),
            earliest: Cycle::START,
            decoded: decoded.map(|decoded| DecodedWidths::new(decoded, model.width)),
            block_width: model.width,
            block_bytes: u32::MAX,
            is_block_decoded: false,
        }
    }

    /// Fetches the next instruction, which starts no line. Returns its cycle.
    #[inline(always)]
    pub(super) fn fetch_next(&mut self, instruction: &Instruction) -> Cycle {
        self.take(instruction, self.earliest.max(self.queue.oldest()))
    }

    /// Fetches the next instruction. `found`: where its code comes from.
    #[inline(always)]
    pub(super) fn fetch<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        found: FoundCode,
        memory: &mut M,
        counts: &mut CoreCounts,
    ) -> Fetched {
        if instruction.starts_decoded()
            && let Some(decoded) = &mut self.decoded
        {
            self.is_block_decoded = found.is_decoded();
            (self.block_width, self.block_bytes) = if self.is_block_decoded {
                (decoded.hit_width, u32::MAX)
            } else {
                (decoded.miss_width, decoded.miss_bytes)
            };
            if decoded.enter_line(instruction.offset == 0, block.address_of(instruction))
                && self.is_block_decoded
            {
                self.fetching.end_cycle();
            }
        }
        let mut earliest = self.earliest.max(self.queue.oldest());
        let mut wait = CycleRange::EMPTY;
        if found.is_fetched() {
            earliest = self.fetching.next(earliest, self.block_width);
            let waited_cycles = self.fetch_lines(block, instruction, (found, earliest), memory);
            if waited_cycles > 0 {
                counts.fetch_misses += 1;
                // An instruction retires in the cycle after it enters, at the earliest.
                wait = CycleRange::new(earliest.next(), earliest.next() + waited_cycles);
                earliest += waited_cycles;
            }
        }
        if instruction.is_fused() {
            // The branch after it takes the slot of the fused pair.
            return Fetched { cycle: self.fetching.next(earliest, self.block_width), wait };
        }
        Fetched { cycle: self.take(instruction, earliest), wait }
    }

    /// Takes a fetch slot for an instruction whose line has arrived at `earliest`. Returns the cycle.
    #[inline(always)]
    fn take(&mut self, instruction: &Instruction, earliest: Cycle) -> Cycle {
        let mut cycle = self.fetching.take(earliest, self.block_width);
        if self.block_bytes < u32::MAX {
            let (is_same_cycle, bytes) = (self.bytes.0 == cycle, u32::from(instruction.bytes()));
            let used = if is_same_cycle { self.bytes.1 + bytes } else { bytes };
            self.bytes = (cycle, used);
            if is_same_cycle && used > self.block_bytes {
                self.fetching.end_cycle();
                cycle = self.fetching.take(earliest, self.block_width);
                self.bytes = (cycle, bytes);
            }
        }
        cycle
    }

    /// Fetches the lines of an instruction that would be fetched at `now`. Returns how many cycles it waits for them.
    #[inline(never)]
    fn fetch_lines<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        (found, now): (FoundCode, Cycle),
        memory: &mut M,
    ) -> u64 {
        let mut arrived = now;
        memory
            .set_fetched_instruction(block.address_of(instruction), block.physical_of(instruction));
        for line in found.lines(block, &block.code_start(0, instruction)) {
            let asked = match &mut self.ahead {
                Some(ahead) => {
                    if !std::mem::take(&mut ahead.is_at_target) {
                        self.earliest = ahead.next(0, self.earliest, now);
                    }
                    ahead.cycle.min(now)
                }
                None => arrived,
            };
            arrived = arrived.max(asked + memory.fetch(line.0, line.1, asked));
        }
        arrived - now
    }

    /// Notes that the last fetched instruction leaves the fetch queue at `cycle`.
    #[inline]
    pub(super) fn entered(&mut self, cycle: Cycle) {
        self.queue.push(cycle);
    }

    /// The earliest cycle of the next fetch.
    pub(super) fn resumes(&self) -> Cycle {
        self.earliest
    }

    /// Stops fetch until `cycle`.
    #[inline]
    pub(super) fn resume_at(&mut self, cycle: Cycle) {
        self.earliest = self.earliest.max(cycle);
    }

    /// Delays the next fetch by `cycles`, after a `resume_at` that did not include them.
    pub(super) fn delay(&mut self, cycles: u64) {
        self.earliest += cycles;
    }

    /// Applies the cost of the branch at the end of a block to later fetches. A misprediction ends when the branch is
    /// done.
    #[inline]
    pub(super) fn branch(
        &mut self,
        kind: BranchKind,
        predicted: PredictedBranch,
        times: InstructionTimes,
    ) {
        let InstructionTimes { fetched, done } = times;
        let mut bubble_cycles = 0;
        match predicted.prediction {
            Prediction::Predicted if kind == BranchKind::Return => {
                bubble_cycles = self.return_cycles
            }
            Prediction::Predicted if is_indirect(kind) => bubble_cycles = self.indirect_cycles,
            Prediction::Predicted => {}
            Prediction::Overruled if is_indirect(kind) => {
                bubble_cycles = self.indirect_cycles + self.indirect_overruled_cycles;
            }
            Prediction::PredictedLate => bubble_cycles = self.btb_second_cycles,
            Prediction::Overruled => bubble_cycles = self.overruled_cycles,
            Prediction::BtbMiss => self.resume_at(fetched + 1 + self.btb_miss_cycles),
            Prediction::Mispredicted => self.resume_at(done + self.mispredict_cycles),
        }
        match &mut self.ahead {
            Some(ahead) if predicted.is_taken => {
                self.earliest = ahead.next(bubble_cycles, self.earliest, fetched);
                ahead.is_at_target = true;
            }
            Some(ahead) if bubble_cycles > 0 => {
                self.earliest = ahead.delay(bubble_cycles, self.earliest);
            }
            None if bubble_cycles > 0 => self.resume_at(fetched + 1 + bubble_cycles),
            _ => {}
        }
        let trace_continues =
            self.is_block_decoded && self.decoded.as_ref().is_some_and(|decoded| decoded.traces);
        if self.taken_ends_cycle && predicted.is_taken && !trace_continues {
            self.fetching.end_cycle();
        }
    }
}
