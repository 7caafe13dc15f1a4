//! The registers that an instruction reads, writes and moves.

use iced_x86::{
    Instruction as X86, InstructionInfo, Mnemonic, OpAccess, OpKind, Register as X86Register,
    RflagsBits,
};

use super::idioms::{is_zeroing, sets_all_bits};
use crate::core::Register;

/// The registers that an instruction uses.
#[derive(Default)]
pub(super) struct UsedRegisters {
    /// Registers that are read for the operation, without registers that only form addresses.
    pub(super) read: Vec<Register>,
    pub(super) written: Vec<Register>,
    /// Address registers that change as a side effect, such as the stack pointer.
    pub(super) moved: Vec<Register>,
}

/// The registers that an instruction uses. `addresses`: the registers that form its addresses.
pub(super) fn used_registers(
    decoded: &X86,
    info: &InstructionInfo,
    addresses: &[Register],
) -> UsedRegisters {
    let mut registers = UsedRegisters::default();
    if matches!(decoded.mnemonic(), Mnemonic::Vzeroupper | Mnemonic::Vzeroall) {
        // It clears the upper halves of more registers than an instruction can list, and nothing depends on them.
        return registers;
    }
    let is_constant = is_zeroing(decoded) || sets_all_bits(decoded);
    for used in info.used_registers() {
        let Some(register) = register_of(used.register()) else { continue };
        let access = used.access();
        let forms_address = addresses.contains(&register);
        if forms_address && is_written(access) && is_side_effect(decoded, register) {
            registers.moved.push(register);
            continue;
        }
        // A write of 8 or 16 bits keeps the rest of the register, so it needs the old value.
        let is_partial_write =
            is_written(access) && used.register().is_gpr() && used.register().size() < 4;
        let is_operand = !forms_address || is_read_operand(decoded, info, register);
        if (is_read(access) && is_operand && !is_constant) || is_partial_write {
            registers.read.push(register);
        }
        if is_written(access) {
            registers.written.push(register);
        }
    }
    // iced-x86 lists no operand for the register that a push on the x87 stack writes.
    if decoded.fpu_stack_increment_info().increment() < 0 {
        registers.read.push(Register::X87);
        registers.written.push(Register::X87);
    }
    add_flags(decoded, &mut registers);
    registers
}

/// The condition flags that arithmetic sets, without the carry.
const FLAGS_BUT_CARRY: u32 =
    RflagsBits::PF | RflagsBits::AF | RflagsBits::ZF | RflagsBits::SF | RflagsBits::OF;
/// The condition codes of x87, which iced-x86 reports as flags.
const X87_CONDITIONS: u32 = RflagsBits::C0 | RflagsBits::C1 | RflagsBits::C2 | RflagsBits::C3;

/// Adds the flags that an instruction uses. Nothing waits for the direction and interrupt flags.
fn add_flags(decoded: &X86, registers: &mut UsedRegisters) {
    let (read, modified) = (decoded.rflags_read(), decoded.rflags_modified());
    if read & RflagsBits::CF != 0 {
        registers.read.push(Register::FLAGS);
    }
    if read & FLAGS_BUT_CARRY != 0 {
        registers.read.push(Register::FLAGS_BUT_CARRY);
    }
    // Each repetition waits for the comparison before it, which may be the last.
    if is_repeated_comparison(decoded) {
        registers.read.push(Register::FLAGS);
    }
    // An instruction that keeps the zero flag writes the carry alone, and the overflow flag at most. Almost no program
    // reads the overflow flag of a rotation.
    let defined = modified & !decoded.rflags_undefined();
    if modified & RflagsBits::CF != 0 {
        let writes_others = modified & RflagsBits::ZF != 0;
        registers.written.push(if writes_others { Register::FLAGS } else { Register::CARRY });
    } else if modified & FLAGS_BUT_CARRY != 0 {
        registers.written.push(Register::FLAGS_BUT_CARRY);
    }
    if read & X87_CONDITIONS != 0 {
        registers.read.push(Register::X87_CONDITIONS);
    }
    // Only comparisons set all of them. Other instructions leave most undefined, so no program reads them.
    if defined & X87_CONDITIONS == X87_CONDITIONS {
        registers.written.push(Register::X87_CONDITIONS);
    }
}

/// Whether the instruction is `scas` or `cmps` with a prefix that repeats it while the zero flag allows.
fn is_repeated_comparison(decoded: &X86) -> bool {
    use Mnemonic::{Cmpsb, Cmpsd, Cmpsq, Cmpsw, Scasb, Scasd, Scasq, Scasw};
    let comparisons = [Cmpsb, Cmpsd, Cmpsq, Cmpsw, Scasb, Scasd, Scasq, Scasw];
    (decoded.has_repe_prefix() || decoded.has_repne_prefix())
        && decoded.is_string_instruction()
        && comparisons.contains(&decoded.mnemonic())
}

/// The numbers of the operands that name `register` or a part of the register.
fn register_operands(decoded: &X86, register: Register) -> impl Iterator<Item = u32> + '_ {
    (0..decoded.op_count()).filter(move |operand| {
        decoded.op_kind(*operand) == OpKind::Register
            && register_of(decoded.op_register(*operand)) == Some(register)
    })
}

/// Whether a register is an operand that is read, and does not only form an address.
fn is_read_operand(decoded: &X86, info: &InstructionInfo, register: Register) -> bool {
    register_operands(decoded, register).any(|operand| is_read(info.op_access(operand)))
}

/// Whether a register that forms an address changes as a side effect: it is written, but is not an operand. `leave` and
/// `enter` are exceptions, because they write a loaded value to it.
fn is_side_effect(decoded: &X86, register: Register) -> bool {
    let is_loaded = matches!(decoded.mnemonic(), Mnemonic::Leave | Mnemonic::Enter);
    register_operands(decoded, register).next().is_none() && !is_loaded
}

/// The register that `name` names, wholly or in part. `None` for segments and the instruction pointer, because nothing
/// waits for them in practice.
pub(super) fn register_of(name: X86Register) -> Option<Register> {
    let full = name.full_register();
    let number = full.number() as u8;
    if full.is_gpr() {
        Some(Register::general(number))
    } else if full.is_vector_register() {
        Some(Register::vector(number))
    } else if full.is_k() {
        Some(Register::mask(number))
    } else if full.is_mm() {
        Some(Register::mmx(number))
    } else if full.is_st() {
        Some(Register::X87)
    } else {
        None
    }
}

/// Whether a core must wait for the old value of a register that is accessed so.
pub(super) fn is_read(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Read
            | OpAccess::CondRead
            | OpAccess::ReadWrite
            | OpAccess::ReadCondWrite
            // A conditional write may leave the old value.
            | OpAccess::CondWrite
    )
}

pub(super) fn is_written(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}
