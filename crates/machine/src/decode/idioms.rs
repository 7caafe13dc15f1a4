//! Forms of instructions that cores execute in fewer steps than others.

use iced_x86::{Instruction as X86, Mnemonic, Register as X86Register};

use super::unit::is_move;

/// Whether the instruction moves a whole register to another register of the same kind.
pub(super) fn is_register_move(decoded: &X86) -> bool {
    let [to, from] = [decoded.op0_register(), decoded.op1_register()];
    let is_whole_register =
        |name: X86Register| name.is_gpr32() || name.is_gpr64() || name.is_vector_register();
    decoded.op_count() == 2
        && is_whole_register(to)
        && is_whole_register(from)
        && from.size() == to.size()
        && from.is_vector_register() == to.is_vector_register()
        && is_move(decoded.mnemonic())
        && !matches!(decoded.mnemonic(), Mnemonic::Movss | Mnemonic::Movsd | Mnemonic::Movbe)
}

/// Whether both sources are the same register, and the whole destination is written.
fn has_equal_sources(decoded: &X86) -> bool {
    let operands = decoded.op_count();
    let to = decoded.op0_register();
    (to.is_gpr32() || to.is_gpr64() || to.is_vector_register() || to.is_mm())
        && !decoded.has_op_mask()
        && operands >= 2
        && decoded.op_register(operands - 1) != X86Register::None
        && decoded.op_register(operands - 1) == decoded.op_register(operands - 2)
}

/// Whether the result is always zero, such as `xor %eax, %eax`. Only idioms of both Intel's and AMD's cores, which do not
/// eliminate operations of 8 and 16 bits.
pub(super) fn is_zeroing(decoded: &X86) -> bool {
    use Mnemonic::{
        Pcmpgtb, Pcmpgtd, Pcmpgtq, Pcmpgtw, Psubb, Psubd, Psubq, Psubw, Pxor, Sub, Vpcmpgtb,
        Vpcmpgtd, Vpcmpgtq, Vpcmpgtw, Vpsubb, Vpsubd, Vpsubq, Vpsubw, Vpxor, Vxorpd, Vxorps, Xor,
        Xorpd, Xorps,
    };
    let idioms = [
        Xor, Sub, Pxor, Xorps, Xorpd, Vpxor, Vxorps, Vxorpd, Psubb, Psubw, Psubd, Psubq, Vpsubb,
        Vpsubw, Vpsubd, Vpsubq, Pcmpgtb, Pcmpgtw, Pcmpgtd, Pcmpgtq, Vpcmpgtb, Vpcmpgtw, Vpcmpgtd,
        Vpcmpgtq,
    ];
    has_equal_sources(decoded) && idioms.contains(&decoded.mnemonic())
}

/// Whether all bits of the result are always one: a comparison of a register with itself. It
/// needs a unit, but no operand.
pub(super) fn sets_all_bits(decoded: &X86) -> bool {
    use Mnemonic::{Pcmpeqb, Pcmpeqd, Pcmpeqq, Pcmpeqw, Vpcmpeqb, Vpcmpeqd, Vpcmpeqq, Vpcmpeqw};
    let idioms = [Pcmpeqb, Pcmpeqw, Pcmpeqd, Pcmpeqq, Vpcmpeqb, Vpcmpeqw, Vpcmpeqd, Vpcmpeqq];
    has_equal_sources(decoded) && idioms.contains(&decoded.mnemonic())
}

/// Whether the instruction adds a constant from -1,024 to 1,023 to a 64-bit register.
pub(super) fn adds_constant(decoded: &X86) -> bool {
    let is_small = |constant: u64| (-1024..1024).contains(&(constant as i64));
    decoded.op0_register().is_gpr64()
        && match decoded.mnemonic() {
            Mnemonic::Inc | Mnemonic::Dec => true,
            Mnemonic::Add | Mnemonic::Sub => decoded.try_immediate(1).is_ok_and(is_small),
            Mnemonic::Lea => {
                decoded.memory_base().is_gpr64()
                    && decoded.memory_index() == X86Register::None
                    && is_small(decoded.memory_displacement64())
            }
            _ => false,
        }
}

/// Whether some cores fuse the instruction with a conditional branch after it: arithmetic that sets flags.
pub(super) fn is_fusible(decoded: &X86) -> bool {
    use Mnemonic::{Add, And, Cmp, Dec, Inc, Or, Sub, Test, Xor};
    let arithmetic = [Add, And, Cmp, Dec, Inc, Or, Sub, Test, Xor];
    arithmetic.contains(&decoded.mnemonic())
}
