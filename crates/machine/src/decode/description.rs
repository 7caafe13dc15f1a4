//! Describes an instruction for a core: registers, memory accesses, execution unit and special effect.

use iced_x86::{
    Instruction as X86, InstructionInfo, Mnemonic, OpAccess, Register as X86Register, UsedMemory,
};

use super::decoded::branch_kind;
use super::idioms::{adds_constant, is_fusible, is_register_move, is_zeroing};
use super::registers::{is_read, is_written, register_of, used_registers};
use super::special::special_effect;
use super::unit::{core_operation, execution_unit, has_vector_register};
use crate::core::{ADDRESS_HAS_INDEX, Instruction, Register, Special, StringOperation, Unit};

/// Describes an instruction for a core.
pub(super) fn describe(decoded: &X86, info: &InstructionInfo) -> Instruction {
    let special = special_effect(decoded);
    // A return from an interrupt is not a branch: it is not predicted.
    let branch = if special.ends_flow() { None } else { branch_kind(decoded.flow_control()) };
    let mut instruction = Instruction::nothing(0).doing(special);
    if matches!(special, Special::StoreFence | Special::FlushLine) {
        // Store fences and line flushes take an entry of the store buffer.
        instruction = instruction.storing(&[]);
    }
    let mut addresses = Vec::new();
    for memory in info.used_memory().iter().filter(is_accessed) {
        let registers = [memory.base(), memory.index()];
        let registers: Vec<Register> = registers.into_iter().filter_map(register_of).collect();
        if is_read(memory.access()) && memory.access() != OpAccess::CondWrite {
            instruction = instruction.loading(&registers);
        }
        if is_written(memory.access()) {
            instruction = instruction.storing(&registers);
        }
        addresses.extend(registers);
    }
    if is_streaming(decoded) {
        instruction = instruction.streaming();
    }
    let registers = used_registers(decoded, info, &addresses);
    instruction =
        instruction.reading(&registers.read).writing(&registers.written).moving(&registers.moved);
    if decoded.is_stack_instruction() {
        instruction = instruction.moving_stack();
    }
    if let Some(kind) = branch {
        instruction = instruction.branching(kind);
    }
    if let Some(operation) = string_operation(decoded) {
        instruction = instruction.repeating(operation);
    }
    if has_vector_register(decoded) {
        instruction = instruction.loading_vector();
    } else if (instruction.loads() || instruction.stores())
        && (decoded.is_stack_instruction() || matches!(memory_bytes(decoded), 4 | 8))
    {
        instruction = instruction.with_address_form(address_form(decoded));
    }
    if instruction.loads()
        && decoded.memory_index() != X86Register::None
        && decoded.memory_index_scale() > 1
    {
        instruction = instruction.with_scaled_index();
    }
    if is_register_move(decoded) {
        instruction = instruction.moving_register();
    }
    if is_zeroing(decoded) {
        instruction = instruction.zeroing();
    }
    if adds_constant(decoded) {
        instruction = instruction.adding_constant();
    }
    if is_fusible(decoded) {
        instruction = instruction.fusible();
    }
    match execution_unit(
        decoded,
        branch.is_some(),
        instruction.loads() || instruction.stores(),
        &registers,
    ) {
        Some(unit) => match core_operation(decoded, unit) {
            Some(operation) => instruction.executed_by(unit).as_operation(operation),
            None => instruction.executed_by(unit),
        },
        None => instruction,
    }
}

/// Whether memory is accessed. `lea`, prefetches and long NOPs have memory operands without an access.
fn is_accessed(memory: &&UsedMemory) -> bool {
    memory.access() != OpAccess::NoMemAccess && memory.access() != OpAccess::None
}

/// Whether the instruction's stores bypass the caches (non-temporal stores).
fn is_streaming(decoded: &X86) -> bool {
    use Mnemonic::{Movntdq, Movnti, Movntpd, Movntps, Movntq, Vmovntdq, Vmovntpd, Vmovntps};
    let streaming = [Movntdq, Movnti, Movntpd, Movntps, Movntq, Vmovntdq, Vmovntpd, Vmovntps];
    streaming.contains(&decoded.mnemonic())
}

/// The operation of a repeated string instruction. `None` for other instructions, and for port input and output.
fn string_operation(decoded: &X86) -> Option<StringOperation> {
    let is_repeated = decoded.has_rep_prefix() || decoded.has_repne_prefix();
    match decoded.mnemonic() {
        _ if !is_repeated || !decoded.is_string_instruction() => None,
        Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq => {
            Some(StringOperation::Copy)
        }
        Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => {
            Some(StringOperation::Fill)
        }
        Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq => {
            Some(StringOperation::Load)
        }
        Mnemonic::Scasb | Mnemonic::Scasw | Mnemonic::Scasd | Mnemonic::Scasq => {
            Some(StringOperation::Scan)
        }
        Mnemonic::Cmpsb | Mnemonic::Cmpsw | Mnemonic::Cmpsd | Mnemonic::Cmpsq => {
            Some(StringOperation::Compare)
        }
        _ => None,
    }
}

/// The size of the memory operand, in bytes.
fn memory_bytes(decoded: &X86) -> usize {
    decoded.memory_size().size()
}

/// A number for how the instruction's address is formed, never zero: see `Instruction::address_form`. All
/// addresses with the stack pointer as base count as one form, because a front end tracks the stack pointer.
/// Different forms may collide.
fn address_form(decoded: &X86) -> u16 {
    let base = decoded.memory_base().full_register();
    if decoded.is_stack_instruction() || base == X86Register::RSP {
        return 1;
    }
    let parts = [
        base.number() as u64,
        decoded.memory_index().full_register() as u64,
        decoded.memory_index_scale().into(),
        decoded.memory_displacement64(),
    ];
    let mix = |mixed: u64, part: u64| (mixed ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let has_index = decoded.memory_index() != X86Register::None;
    let index = if has_index { ADDRESS_HAS_INDEX } else { 0 };
    (parts.into_iter().fold(base as u64, mix) >> 48) as u16 & !ADDRESS_HAS_INDEX | index | 2
}

impl Instruction {
    /// Sets the executing unit, and with it the latency.
    fn executed_by(mut self, unit: Unit) -> Instruction {
        let latency = Instruction::of_unit(unit);
        self.unit = Some(unit);
        self.with_latency_of(latency)
    }
}
