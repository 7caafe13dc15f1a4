//! A block's summary for functional warming, which looks up code and data without times. A [`Template`] has a summary
//! next to its instructions, because in code that rarely repeats the instructions are not in the host's caches.
//!
//! [`Template`]: super::instruction::Template

use super::instruction::{Instruction, Special, StringOperation};
use crate::address::VirtualAddress;
use crate::predict::BranchKind;
use crate::tag_array::Tag;

/// How many of a block's instructions a [`BlockSummary`] has a bit for.
const INSTRUCTIONS_MAX: usize = 64;

/// An instruction that starts a line of code, or of decoded instructions: where code is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeStart {
    /// The number of the instruction in its block.
    pub(super) number: u16,
    /// Where its first and its last byte lie, from the start of the block.
    pub(super) first_byte: u16,
    pub(super) last_byte: u16,
    /// Whether it is the first of its block in a line of L1I.
    pub(super) starts_line: bool,
    /// Whether it is the first of a line of decoded instructions.
    pub(super) starts_decoded: bool,
    /// The tag of that line.
    pub(super) decoded_tag: Tag,
}

impl CodeStart {
    /// `number`: of the instruction in its block. `decoded_tag`: of a line of decoded instructions that it starts.
    #[inline(always)]
    pub(super) fn new(number: u16, instruction: &Instruction, decoded_tag: Tag) -> CodeStart {
        CodeStart {
            number,
            first_byte: instruction.offset,
            last_byte: instruction.offset + u16::from(instruction.bytes().max(1)) - 1,
            starts_line: instruction.starts_line(),
            starts_decoded: instruction.starts_decoded(),
            decoded_tag,
        }
    }
}

/// How a block is warmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// At most 64 instructions, and none is a repetition of a string instruction.
    Simple,
    /// A single repetition of a string instruction.
    Repetition(StringOperation),
    Any,
}

/// The instructions of a block whose accesses are ordinary loads and stores: neither locked nor non-temporal. The block
/// has at most 64 instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainAccesses {
    /// Bit N is set if the loads of instruction N are plain.
    loads: u64,
    /// Bit N is set if the stores of instruction N are plain.
    stores: u64,
}

impl PlainAccesses {
    /// Whether the loads, or the stores if `write`, of the instruction with this number are plain.
    #[inline(always)]
    pub(crate) fn contains(self, number: usize, write: bool) -> bool {
        let plain = if write { self.stores } else { self.loads };
        plain >> (number % INSTRUCTIONS_MAX) & 1 == 1
    }
}

/// What functional warming needs to know of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockSummary {
    pub(super) kind: BlockKind,
    /// In the order of their instructions.
    pub(super) starts: Box<[CodeStart]>,
    /// The plain accesses of the first 64 instructions.
    pub(super) plain: PlainAccesses,
    /// The number of the instruction that is fused with the branch after it. It takes no issue slot.
    pub(super) fused: Option<u16>,
    /// The branch at the end of the block, with its address.
    pub(super) branch: Option<(BranchKind, VirtualAddress)>,
}

impl BlockSummary {
    /// `address`: where the block starts. `decoded_tag` maps an instruction to the tag of the line of decoded
    /// instructions that it would start.
    pub(super) fn new(
        instructions: &[Instruction],
        address: VirtualAddress,
        decoded_tag: impl Fn(&Instruction) -> Tag,
    ) -> BlockSummary {
        let numbered = || instructions.iter().enumerate();
        let starts = numbered().filter(|(_, instruction)| instruction.starts());
        let bits = |is_set: &dyn Fn(&Instruction) -> bool| {
            numbered()
                .take(INSTRUCTIONS_MAX)
                .map(|(number, instruction)| u64::from(is_set(instruction)) << number)
                .fold(0, |bits, bit| bits | bit)
        };
        let branch = |last: &Instruction| Some((last.branch?, address.plus(last.offset.into())));
        BlockSummary {
            kind: kind_of(instructions),
            starts: starts
                .map(|(number, start)| CodeStart::new(number as u16, start, decoded_tag(start)))
                .collect(),
            plain: PlainAccesses {
                loads: bits(&|instruction| {
                    instruction.loads() && instruction.special != Special::Atomic
                }),
                stores: bits(&|instruction| instruction.stores() && !instruction.streams()),
            },
            fused: instructions.iter().position(Instruction::is_fused).map(|index| index as u16),
            branch: instructions.last().and_then(branch),
        }
    }
}

fn kind_of(instructions: &[Instruction]) -> BlockKind {
    if !instructions.iter().any(Instruction::repeats) {
        let is_short = instructions.len() <= INSTRUCTIONS_MAX;
        return if is_short { BlockKind::Simple } else { BlockKind::Any };
    }
    match instructions {
        [only] => only.repetition_of().map_or(BlockKind::Any, BlockKind::Repetition),
        _ => BlockKind::Any,
    }
}
