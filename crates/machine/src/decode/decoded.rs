//! A decoded instruction: its kind, and how it acts on devices, address translations and caches.

use std::ops::Range;

use iced_x86::{Code, FlowControl, Instruction as X86, Mnemonic, OpKind, Register as X86Register};

use crate::address::VirtualAddress;
use crate::predict::BranchKind;

/// The instructions that the simulator must act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Any other instruction.
    Other,
    /// `int3` or `int N`.
    SoftwareInterrupt,
    /// `iretq`.
    InterruptReturn,
    /// `sysret` or `sysexit`.
    SyscallReturn,
    /// `rdtsc` or `rdtscp`.
    ReadTsc,
    /// `hlt`.
    Halt,
    Pause,
    /// `rdmsr`.
    ReadMsr,
    /// `wrmsr`.
    WriteMsr,
    /// `rdpmc`.
    ReadPmc,
    Cpuid,
    /// A `mov` or `xchg` that stores to the addresses where a Linux kernel may map its local APIC.
    WriteLocalApic,
    /// Changes address translations: `mov` to cr0, cr3 or cr4, `invlpg`, `invpcid`.
    FlushTranslations,
    /// The long NOP `nopl N(%rax,%rax,1)`, with N. Programs mark points of a simulated run with it.
    LongNop(u32),
}

/// The fixmap of a Linux kernel: addresses that are constant when the kernel is compiled. Devices are mapped there,
/// the local APIC among them (arch/x86/include/asm/fixmap.h). `native_apic_mem_write` stores to the page's address
/// plus the register's number.
const FIXED_ADDRESSES: Range<u64> = 0xffff_ffff_ff40_0000..0xffff_ffff_ff80_0000;

/// Whether a `mov` or `xchg` stores to an address in the fixmap that the instruction itself contains.
fn stores_to_fixed_addresses(instruction: &X86) -> bool {
    let mut operands = [instruction.op0_kind(), instruction.op1_kind()].into_iter();
    let memory = operands.position(|kind| kind == OpKind::Memory);
    let stores =
        memory == Some(0) || (memory.is_some() && instruction.mnemonic() == Mnemonic::Xchg);
    stores && FIXED_ADDRESSES.contains(&instruction.memory_displacement64())
}

/// The line that `clflush`, `clflushopt` or `clwb` flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushedLine {
    /// The address of any byte in the line.
    pub at: MemoryOperand,
    /// Whether the caches keep the line, now clean (`clwb`).
    pub keeps_line: bool,
}

/// An operand in memory. Registers are numbered as in the instruction's encoding: 0 is rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    /// `None`: no base, or rip, which the displacement then contains.
    pub base: Option<u8>,
    pub index: Option<u8>,
    /// The factor of the index: 1, 2, 4 or 8.
    pub scale: u8,
    /// The displacement, modulo 2^64.
    pub displacement: u64,
}

impl MemoryOperand {
    /// The memory operand of an instruction that has one. `None` if its address cannot be computed from general registers of
    /// 64 bits: the segment has a base (FS, GS), or a register is shorter.
    fn of_instruction(instruction: &X86) -> Option<MemoryOperand> {
        // `Some(None)`: there is no register. iced-x86 adds rip to the displacement.
        let number = |register: X86Register| match register {
            X86Register::None | X86Register::RIP => Some(None),
            register if register.is_gpr64() => Some(Some(register.number() as u8)),
            _ => None,
        };
        let segment_has_base =
            matches!(instruction.segment_prefix(), X86Register::FS | X86Register::GS);
        if segment_has_base {
            return None;
        }
        Some(MemoryOperand {
            base: number(instruction.memory_base())?,
            index: number(instruction.memory_index())?,
            scale: instruction.memory_index_scale() as u8,
            displacement: instruction.memory_displacement64(),
        })
    }
}

/// How an instruction changes address translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TranslationChange {
    /// A write of cr0 or cr4.
    Mode,
    /// A write of cr3.
    PageTables {
        /// The number of the register with the new value.
        from: u8,
    },
    /// `invlpg` of this operand. `None` if its address cannot be computed.
    Page(Option<MemoryOperand>),
    /// `invpcid`.
    Described {
        /// The number of the register with the type.
        kind: u8,
        /// The descriptor. `None` if its address cannot be computed.
        at: Option<MemoryOperand>,
    },
}

/// How an instruction can write to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceWrite {
    /// Not at all. Calls and pushes store to a stack, and repeated string instructions copy memory: no
    /// program uses them for devices.
    Never,
    /// A store to a device's memory.
    Store,
    /// To the port with this number. `None`: `dx` holds the number.
    Port(Option<u8>),
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    /// The instruction as 64-bit code. May be invalid.
    pub(super) x86: X86,
    /// The instruction as 64-, 32- or 16-bit code: the first mode that decodes it. Firmware and the first code of a
    /// kernel are not 64-bit code.
    pub(super) valid: X86,
    /// The number of bytes that were available for decoding, at most [`super::BYTES_MAX`].
    pub(super) available_bytes: u8,
}

/// The bits that an `or` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrOperand {
    /// The bits in a register, by the register's number in the order of the processor's encoding.
    Register(u8),
    Constant(u64),
}

impl Decoded {
    /// The action that the simulator must take for the instruction. [`Operation::Other`]: none.
    #[must_use]
    pub fn operation(&self) -> Operation {
        let instruction = &self.valid;
        match instruction.mnemonic() {
            Mnemonic::Int3 | Mnemonic::Int => Operation::SoftwareInterrupt,
            Mnemonic::Iretq => Operation::InterruptReturn,
            Mnemonic::Sysret | Mnemonic::Sysretq | Mnemonic::Sysexit | Mnemonic::Sysexitq => {
                Operation::SyscallReturn
            }
            Mnemonic::Rdtsc | Mnemonic::Rdtscp => Operation::ReadTsc,
            Mnemonic::Hlt => Operation::Halt,
            Mnemonic::Pause => Operation::Pause,
            Mnemonic::Rdmsr => Operation::ReadMsr,
            Mnemonic::Wrmsr => Operation::WriteMsr,
            Mnemonic::Rdpmc => Operation::ReadPmc,
            Mnemonic::Cpuid => Operation::Cpuid,
            Mnemonic::Invlpg | Mnemonic::Invpcid => Operation::FlushTranslations,
            Mnemonic::Mov
                if matches!(
                    instruction.op0_register(),
                    X86Register::CR0 | X86Register::CR3 | X86Register::CR4
                ) =>
            {
                Operation::FlushTranslations
            }
            Mnemonic::Mov | Mnemonic::Xchg if stores_to_fixed_addresses(instruction) => {
                Operation::WriteLocalApic
            }
            Mnemonic::Nop if is_long_nop(instruction) => {
                Operation::LongNop(instruction.memory_displacement64() as u32)
            }
            _ => Operation::Other,
        }
    }

    /// How the instruction changes address translations. `None` unless its operation is
    /// [`Operation::FlushTranslations`].
    #[must_use]
    pub fn translation_change(&self) -> Option<TranslationChange> {
        if self.operation() != Operation::FlushTranslations {
            return None;
        }
        let instruction = &self.valid;
        let number = |register: X86Register| register.full_register().number() as u8;
        Some(match instruction.mnemonic() {
            Mnemonic::Invlpg => TranslationChange::Page(MemoryOperand::of_instruction(instruction)),
            Mnemonic::Invpcid => TranslationChange::Described {
                kind: number(instruction.op0_register()),
                at: MemoryOperand::of_instruction(instruction),
            },
            _ if instruction.op0_register() == X86Register::CR3 => {
                TranslationChange::PageTables { from: number(instruction.op1_register()) }
            }
            _ => TranslationChange::Mode,
        })
    }

    /// The line that the instruction flushes from all caches or writes back. `None` for other instructions, and if the
    /// address cannot be computed.
    #[must_use]
    pub fn flushed_line(&self) -> Option<FlushedLine> {
        let keeps_line = match self.valid.mnemonic() {
            Mnemonic::Clflush | Mnemonic::Clflushopt => false,
            Mnemonic::Clwb => true,
            _ => return None,
        };
        Some(FlushedLine { at: MemoryOperand::of_instruction(&self.valid)?, keeps_line })
    }

    /// Whether the instruction is a call, a jump or a near return.
    #[must_use]
    pub fn is_branch(&self) -> bool {
        let instruction = &self.valid;
        instruction.is_jcc_short_or_near()
            || instruction.is_jcx_short()
            || instruction.is_loop()
            || instruction.is_loopcc()
            || instruction.is_jmp_short_or_near()
            || instruction.is_jmp_near_indirect()
            || instruction.is_jmp_far_indirect()
            || instruction.is_call_near()
            || instruction.is_call_near_indirect()
            || instruction.is_call_far_indirect()
            || instruction.mnemonic() == Mnemonic::Ret
    }

    /// Whether the instruction is a repeated string instruction (`rep`). QEMU executes each
    /// repetition as a separate block.
    #[must_use]
    pub fn is_repeated_string(&self) -> bool {
        let instruction = &self.valid;
        instruction.is_string_instruction()
            && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
    }

    /// How the instruction can write to a device.
    #[must_use]
    pub fn device_write(&self) -> DeviceWrite {
        let instruction = &self.valid;
        match instruction.mnemonic() {
            Mnemonic::Out if instruction.op0_kind() == OpKind::Immediate8 => {
                DeviceWrite::Port(Some(instruction.immediate8()))
            }
            Mnemonic::Out | Mnemonic::Outsb | Mnemonic::Outsw | Mnemonic::Outsd => {
                DeviceWrite::Port(None)
            }
            Mnemonic::Call
            | Mnemonic::Jmp
            | Mnemonic::Push
            | Mnemonic::Pushf
            | Mnemonic::Pushfd
            | Mnemonic::Pushfq => DeviceWrite::Never,
            _ if self.is_repeated_string() => DeviceWrite::Never,
            _ => DeviceWrite::Store,
        }
    }

    /// Whether the instruction can act outside of its processor other than by [`DeviceWrite::Store`]: by a port, a
    /// model-specific register or a repeated string instruction. Instructions that make the processor wait count, too.
    #[must_use]
    pub fn may_act_outside(&self) -> bool {
        let waits_or_writes = matches!(
            self.valid.mnemonic(),
            Mnemonic::In
                | Mnemonic::Insb
                | Mnemonic::Insw
                | Mnemonic::Insd
                | Mnemonic::Wrmsr
                | Mnemonic::Wrmsrns
                | Mnemonic::Hlt
                | Mnemonic::Pause
                | Mnemonic::Mwait
                | Mnemonic::Mwaitx
        );
        let writes_port = matches!(self.device_write(), DeviceWrite::Port(_));
        waits_or_writes || writes_port || self.is_repeated_string()
    }

    /// Whether the instruction calls the function whose address is in a register.
    #[must_use]
    pub fn calls_register(&self) -> bool {
        self.x86.is_call_near_indirect() && self.x86.op0_kind() == OpKind::Register
    }

    /// The number of the register with the address of the called function, by the order of the processor's encoding: 0
    /// is `rax`, 1 is `rcx`. `None` if the instruction does not call through a register.
    #[must_use]
    pub fn called_register(&self) -> Option<u8> {
        let register = self.x86.op0_register();
        (self.calls_register() && register.is_gpr64()).then(|| register.number() as u8)
    }

    /// For an `or` to memory of the segment `gs` at a fixed address: the bits, and the address without the segment's base.
    /// `None` for all other instructions.
    #[must_use]
    pub fn or_to_gs_segment(&self) -> Option<(OrOperand, u64)> {
        let has_fixed_address = matches!(
            (self.x86.memory_base(), self.x86.memory_index()),
            (X86Register::None | X86Register::RIP, X86Register::None)
        );
        let is_or = self.x86.mnemonic() == Mnemonic::Or
            && self.x86.op0_kind() == OpKind::Memory
            && self.x86.memory_segment() == X86Register::GS;
        if !is_or || !has_fixed_address {
            return None;
        }
        let bits = if self.x86.op1_kind() == OpKind::Register {
            let register = self.x86.op1_register().full_register();
            register.is_gpr64().then(|| OrOperand::Register(register.number() as u8))
        } else {
            self.x86.try_immediate(1).ok().map(OrOperand::Constant)
        };
        Some((bits?, self.x86.memory_displacement64()))
    }

    /// The address of the called function, if it is in the instruction. `None` for all other
    /// instructions, and for indirect calls.
    #[must_use]
    pub fn called_function(&self) -> Option<VirtualAddress> {
        self.x86.is_call_near().then(|| VirtualAddress(self.x86.near_branch_target()))
    }

    /// The target of a branch, if it is in the instruction. `None` for indirect branches and all other instructions.
    #[must_use]
    pub fn target(&self) -> Option<VirtualAddress> {
        let is_direct = matches!(
            branch_kind(self.x86.flow_control()),
            Some(BranchKind::Conditional | BranchKind::Jump | BranchKind::Call)
        );
        (is_direct && !self.x86.is_invalid()).then(|| VirtualAddress(self.x86.near_branch_target()))
    }
}

/// Whether the instruction is `nopl N(%rax,%rax,1)`, with any N.
fn is_long_nop(instruction: &X86) -> bool {
    matches!(instruction.code(), Code::Nop_rm16 | Code::Nop_rm32)
        && instruction.memory_base().full_register() == X86Register::RAX
        && instruction.memory_index().full_register() == X86Register::RAX
        && instruction.memory_index_scale() == 1
}

/// The kind of a branch. `None` for other instructions.
pub(super) fn branch_kind(flow: FlowControl) -> Option<BranchKind> {
    match flow {
        FlowControl::UnconditionalBranch => Some(BranchKind::Jump),
        FlowControl::IndirectBranch => Some(BranchKind::IndirectJump),
        FlowControl::ConditionalBranch => Some(BranchKind::Conditional),
        FlowControl::Return => Some(BranchKind::Return),
        FlowControl::Call => Some(BranchKind::Call),
        FlowControl::IndirectCall => Some(BranchKind::IndirectCall),
        // Special effects, not branches, end the flow of execution here.
        FlowControl::Next
        | FlowControl::Interrupt
        | FlowControl::XbeginXabortXend
        | FlowControl::Exception => None,
    }
}
