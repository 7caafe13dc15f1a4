//! A block, prepared for the cores of one layout.

use super::{
    ADDS_CONSTANT, Class, FUSED, FUSIBLE, Instruction, MOVES_REGISTER, NEW_DECODED_LINE, NEW_LINE,
    PLAIN, Register, STACK, Special, Unit, ZEROES,
};
use crate::CodeSpan;
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::core::ExecutedBlock;
use crate::core::code_tags::decoded_tag;
use crate::core::flags::{ResolvedFlags, resolve_flags};
use crate::core::summary::{BlockSummary, CodeStart};
use crate::predict::BranchKind;

/// The size of a line of code, as a power of two, whose decoded instructions share a set of the
/// cache of decoded instructions.
pub(crate) const CODE_LINE_SHIFT: u32 = 6;

/// The properties of a core that templates depend on. A template serves only cores with an equal layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Size of a line of L1I, as a power of two.
    pub line_shift: u32,
    /// See [`FrontModel::follows_stack`](crate::core::FrontModel::follows_stack).
    pub follows_stack: bool,
    /// See [`FrontModel::eliminates_moves`](crate::core::FrontModel::eliminates_moves).
    pub eliminates_moves: bool,
    /// See [`FrontModel::eliminates_zeroing`](crate::core::FrontModel::eliminates_zeroing).
    pub eliminates_zeroing: bool,
    /// See [`FrontModel::eliminates_constants`](crate::core::FrontModel::eliminates_constants).
    pub eliminates_constants: bool,
    /// See [`FrontModel::fuses_branches`](crate::core::FrontModel::fuses_branches).
    pub fuses_branches: bool,
    /// See [`UnitsModel::shuffle`](crate::core::UnitsModel::shuffle).
    pub has_shuffle_unit: bool,
    /// See [`UnitsModel::ports`](crate::core::UnitsModel::ports).
    pub binds_to_ports: bool,
    /// Whether `cld` and `std` take longer than other integer operations; see
    /// [`SingleCosts::cld_cycles`](crate::core::SingleCosts::cld_cycles).
    pub sets_direction_slowly: bool,
    /// Maximum instructions in a line of the cache of decoded instructions; 0 without this cache.
    pub decoded_instructions: u32,
    /// Whether lines of decoded instructions end where a line of code of 64 bytes ends. Traces do not.
    pub decoded_by_lines: bool,
}

impl Layout {
    /// Whether renaming registers executes an instruction with these flags.
    fn eliminates(self, flags: u16) -> bool {
        match flags & ADDS_CONSTANT {
            ADDS_CONSTANT => self.eliminates_constants,
            MOVES_REGISTER => self.eliminates_moves,
            ZEROES => self.eliminates_zeroing,
            _ => false,
        }
    }
}

/// A block of instructions that execute one after the other, prepared for one [`Layout`]. Only the last instruction may
/// be a branch. The block lies in one page or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub(in crate::core) instructions: Box<[Instruction]>,
    /// The part of the block in its first page.
    first: CodeSpan,
    /// The part of the block in its second page.
    second: Option<CodeSpan>,
    line_shift: u32,
    /// Whether lines of decoded instructions are traces.
    has_traces: bool,
    /// The address after the block.
    pub(in crate::core) fall_through: VirtualAddress,
    /// The target of the branch at its end, if the branch is direct.
    pub(in crate::core) target: Option<VirtualAddress>,
    /// The register with the condition flags but the carry at its end. [`Register::EARLIER_FLAGS`] if the
    /// block does not write them.
    pub(in crate::core) flags_but_carry: Register,
    pub(in crate::core) summary: BlockSummary,
}

impl Template {
    /// The address of the instruction with this number, or the block's address if it has fewer instructions.
    #[inline]
    #[must_use]
    pub fn address_at(&self, number: u16) -> VirtualAddress {
        let offset =
            self.instructions.get(usize::from(number)).map_or(0, |instruction| instruction.offset);
        self.first.virtual_address.plus(offset.into())
    }

    /// The physical address of the instruction with this number. `None` if the block has fewer instructions.
    #[inline]
    #[must_use]
    pub fn instruction_physical(&self, number: u16) -> Option<PhysicalAddress> {
        self.instructions.get(usize::from(number)).map(|instruction| self.physical_of(instruction))
    }

    /// Prepares a block for cores with this layout. The spans are its parts in one page or two. `target` is the target
    /// of the branch at its end, if the branch is direct.
    #[must_use]
    pub fn new(
        layout: Layout,
        (first, second): (CodeSpan, Option<CodeSpan>),
        instructions: &[Instruction],
        target: Option<VirtualAddress>,
    ) -> Template {
        let address = first.virtual_address;
        let line = |offset: u64| address.plus(offset).block_number(layout.line_shift);
        let line_of_code = |offset: u64| address.plus(offset).block_number(CODE_LINE_SHIFT);
        let (mut offset, mut last_line, mut in_decoded) = (0_u16, None, (0, 0));
        let fuses = layout.fuses_branches && ends_in_pair(instructions);
        let ResolvedFlags { instructions: resolved, flags_but_carry_at_end: flags_but_carry } =
            resolve_flags(instructions);
        let mut prepare = |(number, mut instruction): (usize, Instruction)| {
            let is_second = fuses && number + 1 == instructions.len();
            if layout.follows_stack && instruction.flags & STACK != 0 {
                instruction = instruction.without_stack_pointer();
            }
            if instruction.special == Special::Direction && !layout.sets_direction_slowly {
                instruction.special = Special::None;
            }
            if layout.eliminates(instruction.flags) {
                instruction.unit = None;
            }
            if !layout.binds_to_ports {
                instruction.unit = instruction.unit.map(Unit::kind_in_model);
            }
            if instruction.unit == Some(Unit::Shuffle) && !layout.has_shuffle_unit {
                instruction.unit = Some(Unit::Vector);
            }
            instruction.offset = offset;
            // `in_decoded`: the line of code where the last line of decoded instructions starts, and its number of
            // instructions.
            let code_line = line_of_code(offset.into());
            if layout.decoded_instructions > 0
                && !is_second
                && (in_decoded.1 == 0
                    || in_decoded.1 == layout.decoded_instructions
                    || layout.decoded_by_lines && in_decoded.0 != code_line)
            {
                instruction.flags |= NEW_DECODED_LINE;
                in_decoded = (code_line, 0);
            }
            in_decoded.1 += u32::from(!is_second);
            offset = offset.saturating_add(instruction.bytes.into());
            // Where the instruction ends: one that crosses lines starts a line, too.
            let end_line = Some(line(u64::from(offset.max(1)) - 1));
            instruction.flags |= if end_line == last_line { 0 } else { NEW_LINE };
            last_line = end_line;
            instruction.classified()
        };
        let mut instructions: Box<[Instruction]> =
            resolved.into_iter().enumerate().map(&mut prepare).collect();
        if fuses && let [.., before, _] = &mut *instructions {
            // A fused operation must not take the fast path of plain instructions.
            before.flags = before.flags & !PLAIN | FUSED;
            before.class = Class::Fused;
        }
        let decoded_tag = |instruction: &Instruction| {
            let physical = physical_at(&first, second.as_ref(), instruction.offset);
            decoded_tag(physical, !layout.decoded_by_lines)
        };
        Template {
            summary: BlockSummary::new(&instructions, address, decoded_tag),
            has_traces: !layout.decoded_by_lines,
            instructions,
            fall_through: address.plus(offset.into()),
            first,
            second,
            line_shift: layout.line_shift,
            target,
            flags_but_carry,
        }
    }

    /// The bytes of the host's memory that hold the instructions, so that a caller can prefetch them.
    #[inline(always)]
    #[must_use]
    pub fn host_range(&self) -> std::ops::Range<*const u8> {
        let instructions = self.instructions.as_ptr_range();
        instructions.start.cast()..instructions.end.cast()
    }

    /// The bytes of the host's memory, apart from the template itself, that functional warming needs for most blocks.
    #[inline(always)]
    #[must_use]
    pub fn warming_range(&self) -> std::ops::Range<*const u8> {
        let starts = self.summary.starts.as_ptr_range();
        starts.start.cast()..starts.end.cast()
    }

    /// The executed instructions from number `first` on, and the kind of the branch at the end of the
    /// block if it has executed.
    #[inline(always)]
    pub(in crate::core) fn executed_from(
        &self,
        first: usize,
        executed: &ExecutedBlock,
    ) -> (&[Instruction], Option<BranchKind>) {
        let number = self.len().min(executed.instructions as usize);
        let instructions = self.instructions.get(first..number).unwrap_or_default();
        let last = if number == self.len() { instructions.last() } else { None };
        (instructions, last.and_then(|last| last.branch))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    #[must_use]
    pub fn ends_in_branch(&self) -> bool {
        self.instructions.last().is_some_and(|last| last.branch.is_some())
    }

    #[must_use]
    pub fn address(&self) -> VirtualAddress {
        self.first.virtual_address
    }

    pub(in crate::core) fn address_of(&self, instruction: &Instruction) -> VirtualAddress {
        self.first.virtual_address.plus(instruction.offset.into())
    }

    /// The lines of an instruction's first and last byte, each as a virtual and a physical address.
    #[inline]
    pub(in crate::core) fn lines_of(
        &self,
        start: &CodeStart,
    ) -> [(VirtualAddress, PhysicalAddress); 2] {
        [self.line_at(start.first_byte), self.line_at(start.last_byte)]
    }

    /// The line of L1I of the byte at an offset, as a virtual and a physical address.
    fn line_at(&self, offset: u16) -> (VirtualAddress, PhysicalAddress) {
        let virtual_address = self.first.virtual_address.plus(offset.into());
        let physical = self.physical_at(offset);
        (virtual_address.block_start(self.line_shift), physical.block_start(self.line_shift))
    }

    #[inline]
    pub(in crate::core) fn physical_of(&self, instruction: &Instruction) -> PhysicalAddress {
        self.physical_at(instruction.offset)
    }

    /// The virtual and the physical address of the byte at an offset.
    #[inline]
    pub(in crate::core) fn addresses_at(&self, offset: u16) -> (VirtualAddress, PhysicalAddress) {
        (self.first.virtual_address.plus(offset.into()), self.physical_at(offset))
    }

    /// The physical address of the byte at an offset.
    #[inline(always)]
    pub(in crate::core) fn physical_at(&self, offset: u16) -> PhysicalAddress {
        physical_at(&self.first, self.second.as_ref(), offset)
    }

    /// The instruction, as a start of a line of code or of decoded instructions. `number`: of the instruction.
    #[inline(always)]
    pub(in crate::core) fn code_start(&self, number: u16, instruction: &Instruction) -> CodeStart {
        let decoded_tag = decoded_tag(self.physical_of(instruction), self.has_traces);
        CodeStart::new(number, instruction, decoded_tag)
    }
}

/// Whether a block ends in an operation on registers and a conditional branch that some cores fuse. They decode and
/// execute the pair as one instruction. No core fuses `loop` or `jrcxz`.
fn ends_in_pair(instructions: &[Instruction]) -> bool {
    let [.., before, branch] = instructions else { return false };
    let before = before.classified();
    branch.branch == Some(BranchKind::Conditional)
        && branch.tests_only_flags()
        && before.flags & (FUSIBLE | PLAIN) == FUSIBLE | PLAIN
}

/// The physical address of the byte at an offset of a block with these parts.
#[inline(always)]
fn physical_at(first: &CodeSpan, second: Option<&CodeSpan>, offset: u16) -> PhysicalAddress {
    let offset = u64::from(offset);
    match second {
        Some(second) if offset >= u64::from(first.bytes) => {
            second.physical.plus(offset - u64::from(first.bytes))
        }
        _ => first.physical.plus(offset),
    }
}
