//! The unit of a core that executes an instruction, and operations whose latency differs from that of their unit.

use iced_x86::{Instruction as X86, Mnemonic, OpKind, Register as X86Register};

use super::registers::UsedRegisters;
use super::vector::vector_class;
use crate::core::{Operation, Register, Unit};

/// The execution unit. `None` if the instruction only loads, only stores, or does nothing. `accesses_memory`: whether
/// it loads or stores. `registers`: the registers that it uses.
pub(super) fn execution_unit(
    decoded: &X86,
    is_branch: bool,
    accesses_memory: bool,
    registers: &UsedRegisters,
) -> Option<Unit> {
    if is_branch {
        return Some(Unit::Branch);
    }
    let only_moves = is_move(decoded.mnemonic());
    match decoded.mnemonic() {
        Mnemonic::Imul | Mnemonic::Mul | Mnemonic::Mulx => Some(Unit::Multiply),
        Mnemonic::Div | Mnemonic::Idiv => Some(Unit::Divide),
        // From memory, they have no vector register as operand.
        Mnemonic::Cvtsd2si
        | Mnemonic::Cvttsd2si
        | Mnemonic::Cvtss2si
        | Mnemonic::Cvttss2si
        | Mnemonic::Vcvtsd2si
        | Mnemonic::Vcvttsd2si
        | Mnemonic::Vcvtss2si
        | Mnemonic::Vcvttss2si => Some(Unit::FloatAdd),
        // A prefetch takes a load unit, and nothing waits for it.
        _ if is_prefetch(decoded.mnemonic()) => Some(Unit::Load),
        _ if accesses_memory && only_moves => None,
        _ if accesses_memory && is_broadcast_load(decoded.mnemonic()) => None,
        _ if has_vector_register(decoded) || uses_x87(registers) => {
            Some(vector_class(decoded).unit)
        }
        _ if registers.written.is_empty() && !accesses_memory && decoded.rflags_modified() == 0 => {
            None
        }
        _ => Some(integer_unit(decoded)),
    }
}

/// Whether an instruction operates on the x87 stack. Most such instructions have no x87 register as operand.
fn uses_x87(registers: &UsedRegisters) -> bool {
    registers.read.contains(&Register::X87) || registers.written.contains(&Register::X87)
}

/// Whether an operand is a vector, MMX, mask or x87 register.
pub(super) fn has_vector_register(decoded: &X86) -> bool {
    (0..decoded.op_count()).any(|operand| {
        let name = decoded.op_register(operand);
        decoded.op_kind(operand) == OpKind::Register
            && (name.is_vector_register() || name.is_mm() || name.is_k() || name.is_st())
    })
}

fn is_prefetch(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Prefetch, Prefetchnta, Prefetcht0, Prefetcht1, Prefetcht2, Prefetchw, Prefetchwt1,
    };
    let all = [Prefetch, Prefetchnta, Prefetcht0, Prefetcht1, Prefetcht2, Prefetchw, Prefetchwt1];
    all.contains(&mnemonic)
}

/// Whether the instruction copies a value of 32 bits or more to all parts of a vector register. Load units copy a value
/// from memory on the way.
fn is_broadcast_load(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Vbroadcastf128, Vbroadcasti128, Vbroadcastsd, Vbroadcastss, Vpbroadcastd, Vpbroadcastq,
    };
    let all =
        [Vbroadcastf128, Vbroadcasti128, Vbroadcastsd, Vbroadcastss, Vpbroadcastd, Vpbroadcastq];
    all.contains(&mnemonic)
}

/// The unit of an integer operation.
fn integer_unit(decoded: &X86) -> Unit {
    match decoded.mnemonic() {
        Mnemonic::Shl
        | Mnemonic::Shr
        | Mnemonic::Sar
        | Mnemonic::Rol
        | Mnemonic::Ror
        | Mnemonic::Rorx
        | Mnemonic::Shlx
        | Mnemonic::Shrx
        | Mnemonic::Sarx
        | Mnemonic::Bt
        | Mnemonic::Btc
        | Mnemonic::Btr
        | Mnemonic::Bts => Unit::Shift,
        Mnemonic::Lea if lea_parts(decoded) == 3 => Unit::Shift,
        _ if decoded.condition_code() != iced_x86::ConditionCode::None => Unit::Select,
        _ => Unit::Integer,
    }
}

/// How many of base, index and displacement an address has.
fn lea_parts(decoded: &X86) -> u32 {
    u32::from(decoded.memory_base() != X86Register::None)
        + u32::from(decoded.memory_index() != X86Register::None)
        + u32::from(decoded.memory_displ_size() != 0)
}

/// Whether the instruction only moves a value.
pub(super) fn is_move(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movsx
            | Mnemonic::Movsxd
            | Mnemonic::Movbe
            | Mnemonic::Movnti
            | Mnemonic::Push
            | Mnemonic::Pop
            | Mnemonic::Pushfq
            | Mnemonic::Movsb
            | Mnemonic::Movsw
            | Mnemonic::Movsd
            | Mnemonic::Movsq
            | Mnemonic::Lodsb
            | Mnemonic::Lodsw
            | Mnemonic::Lodsd
            | Mnemonic::Lodsq
            | Mnemonic::Stosb
            | Mnemonic::Stosw
            | Mnemonic::Stosd
            | Mnemonic::Stosq
            | Mnemonic::Movd
            | Mnemonic::Movq
            | Mnemonic::Movss
            | Mnemonic::Movaps
            | Mnemonic::Movapd
            | Mnemonic::Movups
            | Mnemonic::Movupd
            | Mnemonic::Movdqa
            | Mnemonic::Movdqu
            | Mnemonic::Vmovd
            | Mnemonic::Vmovq
            | Mnemonic::Vmovss
            | Mnemonic::Vmovsd
            | Mnemonic::Vmovaps
            | Mnemonic::Vmovapd
            | Mnemonic::Vmovups
            | Mnemonic::Vmovupd
            | Mnemonic::Vmovdqa
            | Mnemonic::Vmovdqu
            | Mnemonic::Fld
            | Mnemonic::Fst
            | Mnemonic::Fstp
    )
}

/// The operation, if its latency may differ from the latency of its unit. `None` if the operation
/// has the latency of the unit.
pub(super) fn core_operation(decoded: &X86, unit: Unit) -> Option<Operation> {
    let operation = match (decoded.mnemonic(), unit) {
        (Mnemonic::Lea, _) => {
            let has_index = decoded.memory_index() != X86Register::None;
            return match lea_parts(decoded) {
                3 => Some(Operation::LeaThree),
                _ if has_index && decoded.memory_index_scale() > 1 => Some(Operation::LeaScaled),
                _ => None,
            };
        }
        (Mnemonic::Popcnt, _) => Operation::PopulationCount,
        (Mnemonic::Bswap, _) => Operation::ByteSwap,
        (Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test | Mnemonic::Andn, _) => {
            Operation::Logic
        }
        (Mnemonic::Shld | Mnemonic::Shrd, _) => Operation::DoubleShift,
        (Mnemonic::Tzcnt | Mnemonic::Lzcnt, _) => Operation::BitCount,
        (Mnemonic::Bsf | Mnemonic::Bsr, _) => Operation::BitScan,
        (Mnemonic::Pdep | Mnemonic::Pext, _) => Operation::BitDeposit,
        (Mnemonic::Crc32, _) => Operation::Crc32,
        (_, Unit::Divide) if operand_bytes(decoded) <= 4 => Operation::Divide32,
        _ if unit.is_vector() => return vector_class(decoded).operation,
        _ => return None,
    };
    Some(operation)
}

/// The size, in bytes, of the operand of a division. A division has one operand, in a register or in memory.
fn operand_bytes(decoded: &X86) -> usize {
    match decoded.op0_kind() {
        OpKind::Register => decoded.op0_register().size(),
        _ => decoded.memory_size().size(),
    }
}
