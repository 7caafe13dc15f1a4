//! Bytes of x86-64 to what a core sees of them.
//!
//! Which registers and which memory an instruction uses is what iced-x86 says. What is added here is
//! which unit executes it, and what it does besides.

mod registers;
mod units;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, InstructionInfo, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, UsedMemory,
};

use crate::core::{Instruction, Register, Special, Unit};
use crate::predict::BranchKind;

/// Longest instruction, bytes.
const BYTES_MAX: usize = 15;

/// An instruction of a program, with what a block's template needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// As a core sees it.
    pub instruction: Instruction,
    /// Where it leads, if it is a branch whose target stands in it.
    pub target: Option<u64>,
}

/// Decodes instructions of 64-bit code. It is kept, as it has room for what iced-x86 says of one.
pub struct Instructions {
    info: InstructionInfoFactory,
}

impl Default for Instructions {
    fn default() -> Instructions {
        Instructions { info: InstructionInfoFactory::new() }
    }
}

impl std::fmt::Debug for Instructions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Instructions")
    }
}

impl Instructions {
    /// Decodes the instruction that `bytes` begin with, which lies at `address`. What is no instruction
    /// does nothing, but waits for all before it, for as many bytes as there are.
    pub fn decode(&mut self, bytes: &[u8], address: u64) -> Decoded {
        let bytes = &bytes[..bytes.len().min(BYTES_MAX)];
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let decoded = decoder.decode();
        if decoded.is_invalid() {
            let unknown = Instruction::nothing(bytes.len() as u8).doing(Special::Fence);
            return Decoded { instruction: unknown, target: None };
        }
        let branch = branch(decoded.flow_control());
        let direct =
            matches!(branch, Some(BranchKind::Conditional | BranchKind::Jump | BranchKind::Call));
        let instruction = prepare(&decoded, self.info.info(&decoded), branch);
        let target = direct.then(|| decoded.near_branch_target());
        Decoded { instruction: instruction.with_bytes(decoded.len() as u8), target }
    }
}

fn branch(flow: FlowControl) -> Option<BranchKind> {
    match flow {
        FlowControl::UnconditionalBranch => Some(BranchKind::Jump),
        FlowControl::IndirectBranch => Some(BranchKind::IndirectJump),
        FlowControl::ConditionalBranch => Some(BranchKind::Conditional),
        FlowControl::Return => Some(BranchKind::Return),
        FlowControl::Call => Some(BranchKind::Call),
        FlowControl::IndirectCall => Some(BranchKind::IndirectCall),
        // They end what executes, by what is special of them.
        FlowControl::Next
        | FlowControl::Interrupt
        | FlowControl::XbeginXabortXend
        | FlowControl::Exception => None,
    }
}

fn reads(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Read
            | OpAccess::CondRead
            | OpAccess::ReadWrite
            | OpAccess::ReadCondWrite
            // What is not written stays as it was.
            | OpAccess::CondWrite
    )
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Whether memory is accessed in fact: not by `lea`, prefetches and long NOPs.
fn is_accessed(memory: &&UsedMemory) -> bool {
    memory.access() != OpAccess::NoMemAccess && memory.access() != OpAccess::None
}

fn prepare(
    decoded: &iced_x86::Instruction,
    info: &InstructionInfo,
    branch: Option<BranchKind>,
) -> Instruction {
    let special = units::special(decoded);
    // A return from an interrupt is no branch: nothing foresees it.
    let branch = branch.filter(|_| !special.ends_flow());
    let mut one = Instruction::nothing(0).doing(special);
    let mut addresses = Vec::new();
    for memory in info.used_memory().iter().filter(is_accessed) {
        let of_it = [memory.base(), memory.index()];
        let of_it: Vec<Register> = of_it.into_iter().filter_map(registers::named).collect();
        if reads(memory.access()) && memory.access() != OpAccess::CondWrite {
            one = one.loading(&of_it);
        }
        if writes(memory.access()) {
            one = one.storing(&of_it);
        }
        addresses.extend(of_it);
    }
    let used = used(decoded, info, &addresses);
    one = one.reading(&used.read).writing(&used.written).moving(&used.moved);
    if decoded.is_stack_instruction() {
        one = one.moving_stack();
    }
    if let Some(kind) = branch {
        one = one.branching(kind);
    }
    match units::unit(decoded, branch.is_some(), one.loads() || one.stores(), &used.written) {
        Some(unit) => one.executed_by(unit),
        None => one,
    }
}

/// What an instruction does to registers.
#[derive(Default)]
struct Used {
    /// Read for the operation, without those that only form addresses.
    read: Vec<Register>,
    /// Written by it.
    written: Vec<Register>,
    /// Those that form addresses and are moved on by the way, as the stack pointer.
    moved: Vec<Register>,
}

fn used(decoded: &iced_x86::Instruction, info: &InstructionInfo, addresses: &[Register]) -> Used {
    let mut all = Used::default();
    if matches!(decoded.mnemonic(), Mnemonic::Vzeroupper | Mnemonic::Vzeroall) {
        // It clears what nobody waits for, of more registers than there is room for.
        return all;
    }
    for used in info.used_registers() {
        let Some(register) = registers::named(used.register()) else { continue };
        let access = used.access();
        let for_address = addresses.contains(&register);
        if for_address && writes(access) && moves_by_the_way(decoded, register) {
            all.moved.push(register);
            continue;
        }
        // The rest of the register stays as it was.
        let part = writes(access) && used.register().is_gpr() && used.register().size() < 4;
        let operand = !for_address || is_read_operand(decoded, info, register);
        if (reads(access) && operand) || part {
            all.read.push(register);
        }
        if writes(access) {
            all.written.push(register);
        }
    }
    if decoded.rflags_read() != 0 {
        all.read.push(Register::FLAGS);
    }
    if decoded.rflags_modified() != 0 {
        all.written.push(Register::FLAGS);
    }
    all
}

/// Operands that are that register.
fn operands(decoded: &iced_x86::Instruction, register: Register) -> impl Iterator<Item = u32> + '_ {
    (0..decoded.op_count()).filter(move |operand| {
        decoded.op_kind(*operand) == OpKind::Register
            && registers::named(decoded.op_register(*operand)) == Some(register)
    })
}

fn is_read_operand(
    decoded: &iced_x86::Instruction,
    info: &InstructionInfo,
    register: Register,
) -> bool {
    operands(decoded, register).any(|operand| reads(info.op_access(operand)))
}

/// Whether a register that forms an address and is written is none of the operands. `leave` has
/// what it loads in it.
fn moves_by_the_way(decoded: &iced_x86::Instruction, register: Register) -> bool {
    let loaded = matches!(decoded.mnemonic(), Mnemonic::Leave | Mnemonic::Enter);
    operands(decoded, register).next().is_none() && !loaded
}

/// Whether any of them is a vector register.
fn has_vector(decoded: &iced_x86::Instruction) -> bool {
    (0..decoded.op_count()).any(|operand| {
        let name = decoded.op_register(operand);
        decoded.op_kind(operand) == OpKind::Register
            && (name.is_vector_register() || name.is_mm() || name.is_k() || name.is_st())
    })
}

impl Instruction {
    /// With the unit that executes it.
    fn executed_by(mut self, unit: Unit) -> Instruction {
        self.unit = Some(unit);
        self
    }
}

#[cfg(test)]
mod tests;
