//! Tags of a core's front end: the cache of decoded instructions, the line of the last fetch, and the branch predictor.
//! `front_end` computes times from the results of the lookups. Functional warming (`out_of_order/warming.rs`) uses
//! the tags alone. Invariant: tags depend on program order, never on times.

use std::ops::Range;

use super::CoreCounts;
use super::instruction::{CODE_LINE_SHIFT, Template};
use super::model::{CoreModel, DecodedModel};
use super::summary::CodeStart;
use crate::address::{LineAddress, PhysicalAddress, VirtualAddress};
use crate::predict::{Branch, BranchKind, Prediction, Predictor};
use crate::tag_array::{Tag, TagArray};

/// Where the code comes from, for an instruction that starts a line of code or of decoded instructions. Bits 0 and 1:
/// whether the lines of its first and its last byte must be fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundCode(u8);

impl FoundCode {
    /// The code comes from L1I, not from the cache of decoded instructions.
    const FETCHED: u8 = 1 << 2;
    const DECODED: u8 = 1 << 3;

    /// Whether the cache of decoded instructions supplies the code.
    pub(super) fn is_decoded(self) -> bool {
        self.0 & FoundCode::DECODED != 0
    }

    /// Whether L1I supplies the code: from lines that are fetched now, or from the line of the last fetch.
    pub(super) fn is_fetched(self) -> bool {
        self.0 & FoundCode::FETCHED != 0
    }

    /// The lines that must be fetched, each as a virtual and a physical address.
    #[inline]
    pub(super) fn lines(
        self,
        block: &Template,
        start: &CodeStart,
    ) -> impl Iterator<Item = (VirtualAddress, PhysicalAddress)> + use<> {
        let lines = block.lines_of(start).into_iter().enumerate();
        lines.filter(move |(number, _)| self.0 >> number & 1 != 0).map(|(_, line)| line)
    }
}

/// How a branch was predicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PredictedBranch {
    pub(super) prediction: Prediction,
    pub(super) is_taken: bool,
}

/// A cache of decoded instructions: a trace cache or a micro-operation cache.
#[derive(Clone, Debug)]
struct DecodedCache {
    cache: TagArray,
    /// Whether lines continue after taken branches, as in a trace cache.
    traces: bool,
}

impl DecodedCache {
    fn new(model: &DecodedModel) -> DecodedCache {
        DecodedCache { cache: TagArray::without_mru(&model.as_cache()), traces: model.traces }
    }

    /// Drops the lines of decoded instructions that start in the lines of code of `physical`, which is not empty.
    fn forget(&mut self, physical: &Range<PhysicalAddress>) {
        let last = PhysicalAddress(physical.end.0 - 1);
        let lines = physical.start.line(CODE_LINE_SHIFT)..=last.line(CODE_LINE_SHIFT);
        let traces = self.traces;
        self.cache.remove_if(|tag| lines.contains(&code_line_of(tag, traces)));
    }

    /// Looks up a line, and fills it on a miss. Returns whether it hit.
    #[inline]
    fn touch_or_fill(&mut self, tag: Tag) -> bool {
        self.cache.touch_or_fill(tag)
    }
}

/// The tag of a line of decoded instructions that starts at a physical address. Its low bits select the set. `traces`:
/// see [`DecodedModel::traces`].
#[inline(always)]
pub(super) fn decoded_tag(address: PhysicalAddress, traces: bool) -> Tag {
    Tag(if traces {
        // The lowest bit moves up, so that neighbours have different sets. No tag equals the tag of an empty way,
        // because addresses have fewer bits.
        address.0 >> 1 ^ (address.0 & 1) << 62
    } else {
        // All lines of decoded instructions of one line of code share a set. The top bits distinguish them.
        address.line(CODE_LINE_SHIFT).0 ^ address.offset_in_block(CODE_LINE_SHIFT) << 56
    })
}

/// The line of code of a tag: the inverse of [`decoded_tag`].
fn code_line_of(Tag(tag): Tag, traces: bool) -> LineAddress {
    LineAddress(if traces {
        (tag & !(1 << 62)) << 1 >> CODE_LINE_SHIFT
    } else {
        tag & ((1 << 56) - 1)
    })
}

/// The line of the last fetch after the code at physical addresses has changed. `None` if the line may hold some of
/// that code: then the next line is fetched in any case. Lines have at most 64 bytes.
pub(super) fn last_line_after_change(
    last_line: Option<(VirtualAddress, PhysicalAddress)>,
    changed: &Range<PhysicalAddress>,
) -> Option<(VirtualAddress, PhysicalAddress)> {
    let line_bytes = 1 << CODE_LINE_SHIFT;
    last_line.filter(|(_, line)| *line >= changed.end || line.0 + line_bytes <= changed.start.0)
}

/// The tags of a front end.
#[derive(Clone, Debug)]
pub(super) struct CodeTags {
    /// The line of the last fetch. `None`: the next line is fetched in any case.
    last_line: Option<(VirtualAddress, PhysicalAddress)>,
    decoded: Option<DecodedCache>,
    /// Whether the current part of the block comes from the cache of decoded instructions.
    is_decoded: bool,
    predictor: Predictor,
}

impl CodeTags {
    pub(super) fn new(model: &CoreModel) -> CodeTags {
        CodeTags {
            last_line: None,
            decoded: model.front.decoded.as_ref().map(DecodedCache::new),
            is_decoded: false,
            predictor: Predictor::new(&model.predictor),
        }
    }

    /// Looks up the code of an instruction in the cache of decoded instructions, and chooses the lines to fetch. Must
    /// be called in program order for each instruction that [`Instruction::starts`](super::instruction::Instruction::starts).
    #[inline(always)]
    pub(super) fn look_up(&mut self, block: &Template, start: &CodeStart) -> FoundCode {
        if start.starts_decoded
            && let Some(decoded) = &mut self.decoded
        {
            self.is_decoded = decoded.touch_or_fill(start.decoded_tag);
        }
        // After `forget_line` the line is fetched even if it is decoded, because its translation must be looked up.
        let found = FoundCode(if self.is_decoded { FoundCode::DECODED } else { 0 });
        if start.starts_line && (!self.is_decoded || self.last_line.is_none()) {
            return self.choose_lines(block, start, found);
        }
        found
    }

    /// Chooses the lines of the instruction that must be fetched. The line of the last fetch is skipped.
    #[inline]
    fn choose_lines(
        &mut self,
        block: &Template,
        start: &CodeStart,
        FoundCode(mut found): FoundCode,
    ) -> FoundCode {
        found |= FoundCode::FETCHED;
        for (number, line) in block.lines_of(start).into_iter().enumerate() {
            if self.last_line != Some(line) {
                self.last_line = Some(line);
                found |= 1 << number;
            }
        }
        FoundCode(found)
    }

    /// Predicts the branch at the end of a block. `next`: the virtual address of the next executed instruction. Counts
    /// the branch, and a BTB miss or a misprediction.
    #[inline]
    pub(super) fn predict(
        &mut self,
        block: &Template,
        (kind, address): (BranchKind, VirtualAddress),
        next: VirtualAddress,
        counts: &mut CoreCounts,
    ) -> PredictedBranch {
        let (fall_through, target) = (block.fall_through, block.target);
        let branch = Branch { address, kind, fall_through, target, next };
        counts.branches += 1;
        let prediction = self.predictor.step(&branch);
        match prediction {
            Prediction::BtbMiss => counts.btb_misses += 1,
            Prediction::Mispredicted => counts.mispredicted_branches += 1,
            Prediction::Predicted | Prediction::PredictedLate | Prediction::Overruled => {}
        }
        PredictedBranch { prediction, is_taken: branch.is_taken() }
    }

    /// Drops the decoded instructions at these physical addresses: the code has changed, or has left all caches.
    pub(super) fn forget_code(&mut self, physical: Range<PhysicalAddress>) {
        if physical.is_empty() {
            return;
        }
        if let Some(decoded) = &mut self.decoded {
            decoded.forget(&physical);
        }
        self.last_line = last_line_after_change(self.last_line, &physical);
    }

    /// Fetches the next line in any case, because translations have changed or the front end was flushed.
    pub(super) fn forget_line(&mut self) {
        self.last_line = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_was_written_is_decoded_again_and_its_neighbours_are_not() {
        for traces in [false, true] {
            let model = DecodedModel {
                lines: 64,
                ways: 8,
                line_instructions: 8,
                decode_width: 4,
                width: None,
                one_line_per_cycle: false,
                decode_bytes: None,
                traces,
            };
            let mut decoded = DecodedCache::new(&model);
            let starts = [0x1000, 0x1020, 0x103f, 0x1040, 0x0fff].map(PhysicalAddress);
            starts
                .into_iter()
                .for_each(|address| assert!(!decoded.touch_or_fill(decoded_tag(address, traces))));
            decoded.forget(&(PhysicalAddress(0x1010)..PhysicalAddress(0x1011)));
            let held = starts.map(|address| decoded.touch_or_fill(decoded_tag(address, traces)));
            assert_eq!(held, [false, false, false, true, true], "traces: {traces}");
        }
    }
}
