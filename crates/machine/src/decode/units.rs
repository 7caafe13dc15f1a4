//! Which unit executes an instruction, and what it does besides.

use iced_x86::{Code, Instruction, Mnemonic, OpKind};

use super::has_vector;
use crate::core::{Register, Special, Unit};

/// What an instruction does besides.
pub(super) fn special(decoded: &Instruction) -> Special {
    match decoded.mnemonic() {
        Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq => Special::InterruptReturn,
        Mnemonic::Syscall
        | Mnemonic::Sysenter
        | Mnemonic::Int
        | Mnemonic::Int1
        | Mnemonic::Int3
        | Mnemonic::Into => Special::SystemCall,
        Mnemonic::Sysret | Mnemonic::Sysretq | Mnemonic::Sysexit | Mnemonic::Sysexitq => {
            Special::SystemReturn
        }
        // Intel's manual, volume 3, section 9.3: serialising instructions.
        Mnemonic::Cpuid
        | Mnemonic::Invd
        | Mnemonic::Invept
        | Mnemonic::Invlpg
        | Mnemonic::Invpcid
        | Mnemonic::Invvpid
        | Mnemonic::Lgdt
        | Mnemonic::Lidt
        | Mnemonic::Lldt
        | Mnemonic::Lmsw
        | Mnemonic::Ltr
        | Mnemonic::Rsm
        | Mnemonic::Serialize
        | Mnemonic::Wbinvd
        | Mnemonic::Wrmsr => Special::Serialise,
        Mnemonic::Mov if moves_to_control(decoded) => Special::Serialise,
        Mnemonic::Lfence => Special::Fence,
        Mnemonic::Mfence => Special::Barrier,
        Mnemonic::Pause => Special::Pause,
        Mnemonic::Xchg if writes_memory(decoded) => Special::Atomic,
        _ if decoded.has_lock_prefix() => Special::Atomic,
        _ if decoded.is_save_restore_instruction() || has_many_steps(decoded) => Special::Microcode,
        _ => Special::None,
    }
}

fn moves_to_control(decoded: &Instruction) -> bool {
    use Code::{Mov_cr_r32, Mov_cr_r64, Mov_dr_r32, Mov_dr_r64};
    matches!(decoded.code(), Mov_cr_r32 | Mov_cr_r64 | Mov_dr_r32 | Mov_dr_r64)
}

fn writes_memory(decoded: &Instruction) -> bool {
    decoded.op0_kind() == OpKind::Memory || decoded.op1_kind() == OpKind::Memory
}

fn has_many_steps(decoded: &Instruction) -> bool {
    matches!(
        decoded.mnemonic(),
        Mnemonic::Rdtsc
            | Mnemonic::Rdtscp
            | Mnemonic::Rdpmc
            | Mnemonic::Rdmsr
            | Mnemonic::In
            | Mnemonic::Out
            | Mnemonic::Insb
            | Mnemonic::Insw
            | Mnemonic::Insd
            | Mnemonic::Outsb
            | Mnemonic::Outsw
            | Mnemonic::Outsd
            | Mnemonic::Rdrand
            | Mnemonic::Rdseed
            | Mnemonic::Xgetbv
            | Mnemonic::Xsetbv
            | Mnemonic::Swapgs
            | Mnemonic::Emms
    )
}

/// The unit; absent for what only loads, only stores, or does nothing.
pub(super) fn unit(
    decoded: &Instruction,
    is_branch: bool,
    accesses: bool,
    written: &[Register],
) -> Option<Unit> {
    if is_branch {
        return Some(Unit::Branch);
    }
    let moves = is_move(decoded.mnemonic());
    match decoded.mnemonic() {
        Mnemonic::Imul | Mnemonic::Mul | Mnemonic::Mulx => Some(Unit::Multiply),
        Mnemonic::Div | Mnemonic::Idiv => Some(Unit::Divide),
        _ if accesses && moves => None,
        _ if has_vector(decoded) || written.contains(&Register::X87) => Some(of_vectors(decoded)),
        _ if written.is_empty() && !accesses => None,
        _ => Some(Unit::Integer),
    }
}

/// Whether it only moves a value.
fn is_move(mnemonic: Mnemonic) -> bool {
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

/// Operations of vector, mask and x87 registers, by what their names begin with: there are a
/// thousand.
fn of_vectors(decoded: &Instruction) -> Unit {
    let name = format!("{:?}", decoded.mnemonic());
    let name = name.strip_prefix('V').unwrap_or(&name).to_ascii_lowercase();
    let begins = |with: &[&str]| with.iter().any(|with| name.starts_with(with));
    if begins(&["div", "sqrt", "fdiv", "fsqrt", "fidiv", "rsqrt14", "fprem"]) {
        Unit::FloatDivide
    } else if begins(&[
        "mul", "fmul", "fimul", "fmadd", "fmsub", "fnmadd", "fnmsub", "pmul", "pmadd",
    ]) {
        Unit::FloatMultiply
    } else if begins(&[
        "add", "sub", "fadd", "fsub", "fiadd", "fisub", "cvt", "min", "max", "cmpp", "cmps",
        "comi", "ucomi", "fcom", "fucom", "round", "hadd", "hsub", "fild", "fist",
    ]) {
        Unit::FloatAdd
    } else {
        Unit::Vector
    }
}
