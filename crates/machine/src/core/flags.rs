//! Dependences through condition flags. An `inc` between two `adc` must not delay the second `adc`: it leaves the carry as
//! it is. Therefore the flags are two registers: the carry, and all other flags. The decoder names what each instruction
//! reads and writes. When a block's [`Template`](super::instruction::Template) is prepared, this file decides where each
//! reader finds its flags. No core does that again at each execution.
//!
//! Nearly all arithmetic sets all flags. Such an instruction writes a single register, [`Register::FLAGS`], so that it
//! needs no further entry in its list of written registers. The other flags are in [`Register::FLAGS`] or in
//! [`Register::FLAGS_BUT_CARRY`], depending on which instruction of the block wrote them last. A reader before the first
//! writer of its block reads [`Register::EARLIER_FLAGS`], to which cores copy the other flags at the end of each block.

use super::instruction::{Instruction, Register};

/// The flags that an instruction writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WrittenFlags {
    None,
    All,
    AllButCarry,
    Carry,
}

fn written_flags(instruction: &Instruction) -> WrittenFlags {
    if instruction.writes_register(Register::FLAGS) {
        WrittenFlags::All
    } else if instruction.writes_register(Register::FLAGS_BUT_CARRY) {
        WrittenFlags::AllButCarry
    } else if instruction.writes_register(Register::CARRY) {
        WrittenFlags::Carry
    } else {
        WrittenFlags::None
    }
}

/// For each instruction, whether a later instruction of the block overwrites the carry before any instruction overwrites
/// the other flags. False if no later instruction writes flags.
fn carry_overwritten_first(instructions: &[Instruction]) -> Vec<bool> {
    let mut is_overwritten = false;
    let mut backwards: Vec<bool> = Vec::with_capacity(instructions.len());
    for instruction in instructions.iter().rev() {
        backwards.push(is_overwritten);
        match written_flags(instruction) {
            WrittenFlags::None => {}
            WrittenFlags::Carry => is_overwritten = true,
            WrittenFlags::All | WrittenFlags::AllButCarry => is_overwritten = false,
        }
    }
    backwards.reverse();
    backwards
}

/// A block after its flags were resolved.
pub(super) struct ResolvedFlags {
    /// The instructions, with the flag registers that they read and write in a core.
    pub(super) instructions: Vec<Instruction>,
    /// The register that has the flags other than the carry at the end of the block.
    pub(super) flags_but_carry_at_end: Register,
}

/// Decides for each instruction of a block which registers it reads and writes for its flags.
pub(super) fn resolve_flags(instructions: &[Instruction]) -> ResolvedFlags {
    let mut flags_but_carry = Register::EARLIER_FLAGS;
    let mut resolved_instructions = Vec::with_capacity(instructions.len());
    for (instruction, is_carry_overwritten) in
        instructions.iter().zip(carry_overwritten_first(instructions))
    {
        let mut resolved =
            instruction.with_read_replaced(Register::FLAGS_BUT_CARRY, flags_but_carry);
        match written_flags(instruction) {
            WrittenFlags::None => {}
            WrittenFlags::AllButCarry => flags_but_carry = Register::FLAGS_BUT_CARRY,
            WrittenFlags::Carry => resolved = resolved.with_carry_as_flags(),
            WrittenFlags::All => {
                flags_but_carry = Register::FLAGS;
                // A writer of the carry alone will overwrite FLAGS, so the other flags need a copy in FLAGS_BUT_CARRY.
                // Without room for a further written register there is no copy. Readers of the other flags then also
                // wait for that writer.
                if is_carry_overwritten
                    && let Some(with_both) = resolved.also_writing(Register::FLAGS_BUT_CARRY)
                {
                    (resolved, flags_but_carry) = (with_both, Register::FLAGS_BUT_CARRY);
                }
            }
        }
        resolved_instructions.push(resolved);
    }
    ResolvedFlags { instructions: resolved_instructions, flags_but_carry_at_end: flags_but_carry }
}
