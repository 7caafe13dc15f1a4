//! A block of instructions, prepared once and read on each execution.

use super::instruction::{Instruction, NEW_LINE, STACK};
use crate::CodeSpan;

/// What templates of a core need to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of a line of instructions as a power of two.
    pub line_shift: u32,
    /// See [`FrontModel::follows_stack`](super::FrontModel::follows_stack).
    pub follows_stack: bool,
}

/// A block of instructions that execute one after the other; only the last may be a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub(super) instructions: Box<[Instruction]>,
    first: CodeSpan,
    second: Option<CodeSpan>,
    line_shift: u32,
    /// The address behind it.
    pub(super) fall_through: u64,
    /// Where the branch at its end leads, if that stands in it.
    pub(super) target: Option<u64>,
}

impl Template {
    /// A block in the one or two pages that it spans. `target` is where the branch at its end leads,
    /// if that stands in the instruction.
    #[must_use]
    pub fn new(
        layout: Layout,
        (first, second): (CodeSpan, Option<CodeSpan>),
        instructions: &[Instruction],
        target: Option<u64>,
    ) -> Template {
        let line = |offset: u64| first.virtual_address.wrapping_add(offset) >> layout.line_shift;
        let (mut offset, mut last_line) = (0, None);
        let mut prepare = |one: &Instruction| {
            let mut one = *one;
            if layout.follows_stack && one.flags & STACK != 0 {
                one = one.without_stack();
            }
            one.offset = offset;
            offset = offset.saturating_add(one.bytes.into());
            let ends = Some(line(u64::from(offset.max(1)) - 1));
            one.flags |= if ends == last_line { 0 } else { NEW_LINE };
            last_line = ends;
            one.classified()
        };
        Template {
            instructions: instructions.iter().map(&mut prepare).collect(),
            fall_through: first.virtual_address.wrapping_add(offset.into()),
            first,
            second,
            line_shift: layout.line_shift,
            target,
        }
    }

    /// How many instructions it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// Whether its last instruction is a branch.
    #[must_use]
    pub fn ends_in_branch(&self) -> bool {
        self.instructions.last().is_some_and(|last| last.branch.is_some())
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.first.virtual_address
    }

    /// Address of an instruction of it.
    pub(super) fn address_of(&self, one: &Instruction) -> u64 {
        self.first.virtual_address.wrapping_add(one.offset.into())
    }

    /// Lines in which an instruction of it begins and ends, each by a virtual and a physical address.
    #[inline]
    pub(super) fn lines_of(&self, one: &Instruction) -> [(u64, u64); 2] {
        let last = one.offset + u16::from(one.bytes.max(1)) - 1;
        [self.line_at(one.offset), self.line_at(last)]
    }

    fn line_at(&self, offset: u16) -> (u64, u64) {
        let offset = u64::from(offset);
        let mask = !((1 << self.line_shift) - 1);
        let physical = match &self.second {
            Some(second) if offset >= u64::from(self.first.bytes) => {
                second.physical.wrapping_add(offset - u64::from(self.first.bytes))
            }
            _ => self.first.physical.wrapping_add(offset),
        };
        (self.first.virtual_address.wrapping_add(offset) & mask, physical & mask)
    }
}
