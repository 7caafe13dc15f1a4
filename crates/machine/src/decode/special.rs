//! The special effect of an instruction: what a core does besides computing.

use iced_x86::{Code, Instruction as X86, Mnemonic, OpKind};

use crate::core::Special;

/// The special effect of an instruction.
pub(super) fn special_effect(decoded: &X86) -> Special {
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
        | Mnemonic::Invvpid
        | Mnemonic::Lgdt
        | Mnemonic::Lidt
        | Mnemonic::Lldt
        | Mnemonic::Lmsw
        | Mnemonic::Ltr
        | Mnemonic::Rsm
        | Mnemonic::Serialize
        | Mnemonic::Wbinvd => Special::Serialise,
        Mnemonic::Wrmsr => Special::WriteMsr,
        Mnemonic::Invlpg | Mnemonic::Invpcid => Special::InvalidatePage,
        Mnemonic::Mov if moves_to_control(decoded) => Special::WriteControl,
        Mnemonic::In
        | Mnemonic::Out
        | Mnemonic::Insb
        | Mnemonic::Insw
        | Mnemonic::Insd
        | Mnemonic::Outsb
        | Mnemonic::Outsw
        | Mnemonic::Outsd => Special::Port,
        Mnemonic::Rdtsc => Special::ReadClock,
        Mnemonic::Rdtscp => Special::ReadClockOrdered,
        Mnemonic::Rdmsr | Mnemonic::Rdpmc => Special::ReadMsr,
        Mnemonic::Xgetbv | Mnemonic::Xsetbv => Special::ExtendedControl,
        Mnemonic::Swapgs => Special::SwapGs,
        Mnemonic::Cld | Mnemonic::Std => Special::Direction,
        Mnemonic::Cli | Mnemonic::Sti | Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq => {
            Special::WriteFlags
        }
        Mnemonic::Sfence => Special::StoreFence,
        Mnemonic::Clflush | Mnemonic::Clflushopt | Mnemonic::Clwb => Special::FlushLine,
        Mnemonic::Lfence => Special::Fence,
        Mnemonic::Mfence => Special::Barrier,
        Mnemonic::Pause => Special::Pause,
        // `xchg` with memory is locked even without a prefix.
        Mnemonic::Xchg if has_memory_operand(decoded) => Special::Atomic,
        _ if decoded.has_lock_prefix() => Special::Atomic,
        _ if decoded.is_save_restore_instruction() || has_many_steps(decoded) => Special::Microcode,
        _ => Special::None,
    }
}

/// Whether a `mov` writes a control or debug register.
fn moves_to_control(decoded: &X86) -> bool {
    use Code::{Mov_cr_r32, Mov_cr_r64, Mov_dr_r32, Mov_dr_r64};
    matches!(decoded.code(), Mov_cr_r32 | Mov_cr_r64 | Mov_dr_r32 | Mov_dr_r64)
}

fn has_memory_operand(decoded: &X86) -> bool {
    decoded.op0_kind() == OpKind::Memory || decoded.op1_kind() == OpKind::Memory
}

/// Whether a core executes the instruction as microcode, besides saving and restoring state.
fn has_many_steps(decoded: &X86) -> bool {
    use Mnemonic::{
        Emms, F2xm1, Fbstp, Fcos, Fpatan, Fptan, Frndint, Fscale, Fsin, Fsincos, Fyl2x, Fyl2xp1,
        Rdrand, Rdseed,
    };
    let all = [
        Rdrand, Rdseed, Emms, F2xm1, Fbstp, Fcos, Fpatan, Fptan, Frndint, Fscale, Fsin, Fsincos,
        Fyl2x, Fyl2xp1,
    ];
    all.contains(&decoded.mnemonic())
}
