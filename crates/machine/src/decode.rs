//! Decodes x86-64 instructions into descriptions for the simulator. The plugin decodes each instruction once, when QEMU
//! translates its block; a replay of a block trace does the same.
//!
//! [`Decoder::decode`] tells the kind of an instruction: whether it is a branch, whether it can write to a device,
//! whether the simulator must act on it. [`Decoder::core_instruction`] describes it for a core: registers, memory
//! accesses, execution unit, special effect. iced-x86 knows the registers and the memory that an instruction uses; this
//! module adds the execution unit and the special effect. For flushes of cache lines and changes of address translations,
//! [`MemoryOperand`] says how the plugin computes the address from the guest's registers.
//!
//! The bytes come from a guest, so they may be anything: no bytes may cause a panic.

mod vector;

use std::ops::Range;

use iced_x86::{
    Code, Decoder as BytesDecoder, DecoderOptions, FlowControl, Instruction as X86,
    InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register as X86Register,
    RflagsBits, UsedMemory,
};

use crate::address::VirtualAddress;
use crate::core::{self, ADDRESS_HAS_INDEX, Instruction, Register, Special, StringOperation, Unit};
use crate::predict::BranchKind;
use vector::vector_class;

/// Maximum length of an instruction, in bytes.
const BYTES_MAX: usize = 15;

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

/// The fixmap of a Linux kernel: addresses that are constant when the kernel is compiled. Devices are mapped there, the
/// local APIC among them (arch/x86/include/asm/fixmap.h). `native_apic_mem_write` stores to the page's address plus the
/// register's number.
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
    pub keeps: bool,
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
    /// Not at all. Calls and pushes store to a stack, and repeated string instructions copy memory: no program uses
    /// them for devices.
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
    x86: X86,
    /// The instruction as 64-, 32- or 16-bit code: the first mode that decodes it. Firmware and the first code of a
    /// kernel are not 64-bit code.
    valid: X86,
    /// The number of bytes that were available for decoding, at most [`BYTES_MAX`].
    available_bytes: u8,
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
        let keeps = match self.valid.mnemonic() {
            Mnemonic::Clflush | Mnemonic::Clflushopt => false,
            Mnemonic::Clwb => true,
            _ => return None,
        };
        Some(FlushedLine { at: MemoryOperand::of_instruction(&self.valid)?, keeps })
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

    /// Whether the instruction is a repeated string instruction (`rep`). QEMU executes each repetition as a separate
    /// block.
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

    /// For an `or` of a register to memory of the segment `gs` at a fixed address: the number of the register, by the
    /// order of the processor's encoding, and the address without the segment's base. `None` for all other
    /// instructions.
    #[must_use]
    pub fn or_to_gs_segment(&self) -> Option<(u8, u64)> {
        let has_fixed_address = matches!(
            (self.x86.memory_base(), self.x86.memory_index()),
            (X86Register::None | X86Register::RIP, X86Register::None)
        );
        let is_or = self.x86.mnemonic() == Mnemonic::Or
            && self.x86.op0_kind() == OpKind::Memory
            && self.x86.op1_kind() == OpKind::Register
            && self.x86.memory_segment() == X86Register::GS;
        let register = self.x86.op1_register().full_register();
        (is_or && has_fixed_address && register.is_gpr64())
            .then(|| (register.number() as u8, self.x86.memory_displacement64()))
    }

    /// The address of the called function, if it is in the instruction. `None` for all other instructions, and for
    /// indirect calls.
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

/// Decodes instructions. Keep it between instructions: it holds buffers of iced-x86.
pub struct Decoder {
    info: InstructionInfoFactory,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { info: InstructionInfoFactory::new() }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Decoder")
    }
}

impl Decoder {
    /// Decodes the instruction at the start of `bytes`, whose address is `address`.
    ///
    /// Decodes 64-bit code first. An instruction that is invalid there is decoded as 32-bit or 16-bit code,
    /// except for [`Decoder::core_instruction`].
    #[must_use]
    pub fn decode(&self, bytes: &[u8], address: VirtualAddress) -> Decoded {
        let bytes = &bytes[..bytes.len().min(BYTES_MAX)];
        let decode_as =
            |bits| BytesDecoder::with_ip(bits, bytes, address.0, DecoderOptions::NONE).decode();
        let x86 = decode_as(64);
        let valid = if x86.is_invalid() {
            let other_modes = [32, 16].into_iter().map(decode_as);
            other_modes.into_iter().find(|candidate| !candidate.is_invalid()).unwrap_or(x86)
        } else {
            x86
        };
        Decoded { x86, valid, available_bytes: bytes.len() as u8 }
    }

    /// The description of the instruction for a core, as 64-bit code. An invalid instruction has no effect, but waits
    /// for all earlier instructions; its length is the number of available bytes.
    pub fn core_instruction(&mut self, decoded: &Decoded) -> Instruction {
        let x86 = &decoded.x86;
        if x86.is_invalid() {
            return Instruction::nothing(decoded.available_bytes).doing(Special::Fence);
        }
        describe(x86, self.info.info(x86)).with_bytes(x86.len() as u8)
    }

    /// Whether the instruction certainly writes to memory when it completes. Masked and conditional stores do not
    /// count, nor do addresses that are only computed (`lea`).
    #[must_use]
    pub fn stores(&mut self, decoded: &Decoded) -> bool {
        let is_written =
            |memory: &UsedMemory| matches!(memory.access(), OpAccess::Write | OpAccess::ReadWrite);
        !decoded.valid.is_invalid()
            && !decoded.is_repeated_string()
            && self.info.info(&decoded.valid).used_memory().iter().any(is_written)
    }
}

/// The kind of a branch. `None` for other instructions.
fn branch_kind(flow: FlowControl) -> Option<BranchKind> {
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

/// Whether a core must wait for the old value of a register that is accessed so.
fn is_read(access: OpAccess) -> bool {
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

fn is_written(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Whether memory is accessed. `lea`, prefetches and long NOPs have memory operands without an access.
fn is_accessed(memory: &&UsedMemory) -> bool {
    memory.access() != OpAccess::NoMemAccess && memory.access() != OpAccess::None
}

/// Describes an instruction for a core.
fn describe(decoded: &X86, info: &InstructionInfo) -> Instruction {
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

/// A number for how the instruction's address is formed, never zero: see `Instruction::address_form`. All addresses
/// with the stack pointer as base count as one form, because a front end tracks the stack pointer. Different forms may
/// collide.
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

/// Whether the instruction moves a whole register to another register of the same kind.
fn is_register_move(decoded: &X86) -> bool {
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
fn is_zeroing(decoded: &X86) -> bool {
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

/// Whether all bits of the result are always one: a comparison of a register with itself. It needs a unit, but no
/// operand.
fn sets_all_bits(decoded: &X86) -> bool {
    use Mnemonic::{Pcmpeqb, Pcmpeqd, Pcmpeqq, Pcmpeqw, Vpcmpeqb, Vpcmpeqd, Vpcmpeqq, Vpcmpeqw};
    let idioms = [Pcmpeqb, Pcmpeqw, Pcmpeqd, Pcmpeqq, Vpcmpeqb, Vpcmpeqw, Vpcmpeqd, Vpcmpeqq];
    has_equal_sources(decoded) && idioms.contains(&decoded.mnemonic())
}

/// Whether the instruction adds a constant from -1,024 to 1,023 to a 64-bit register.
fn adds_constant(decoded: &X86) -> bool {
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
fn is_fusible(decoded: &X86) -> bool {
    use Mnemonic::{Add, And, Cmp, Dec, Inc, Or, Sub, Test, Xor};
    let arithmetic = [Add, And, Cmp, Dec, Inc, Or, Sub, Test, Xor];
    arithmetic.contains(&decoded.mnemonic())
}

/// The operation, if its latency may differ from the latency of its unit. `None` if the operation has the latency of
/// the unit.
fn core_operation(decoded: &X86, unit: Unit) -> Option<core::Operation> {
    use crate::core::Operation as CoreOperation;
    let operation = match (decoded.mnemonic(), unit) {
        (Mnemonic::Lea, _) => {
            let has_index = decoded.memory_index() != X86Register::None;
            return match lea_parts(decoded) {
                3 => Some(CoreOperation::LeaThree),
                _ if has_index && decoded.memory_index_scale() > 1 => {
                    Some(CoreOperation::LeaScaled)
                }
                _ => None,
            };
        }
        (Mnemonic::Popcnt, _) => CoreOperation::PopulationCount,
        (Mnemonic::Bswap, _) => CoreOperation::ByteSwap,
        (Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test | Mnemonic::Andn, _) => {
            CoreOperation::Logic
        }
        (Mnemonic::Shld | Mnemonic::Shrd, _) => CoreOperation::DoubleShift,
        (Mnemonic::Tzcnt | Mnemonic::Lzcnt, _) => CoreOperation::BitCount,
        (Mnemonic::Bsf | Mnemonic::Bsr, _) => CoreOperation::BitScan,
        (Mnemonic::Pdep | Mnemonic::Pext, _) => CoreOperation::BitDeposit,
        (Mnemonic::Crc32, _) => CoreOperation::Crc32,
        (_, Unit::Divide) if operand_bytes(decoded) <= 4 => CoreOperation::Divide32,
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

/// The mnemonic in lower case, without the V of vector extensions.
fn mnemonic_text(decoded: &X86) -> String {
    let name = format!("{:?}", decoded.mnemonic());
    name.strip_prefix('V').unwrap_or(&name).to_ascii_lowercase()
}

/// Whether the instruction has both a general register and a vector register as operands.
fn crosses_register_kinds(decoded: &X86) -> bool {
    let has = |is_kind: fn(X86Register) -> bool| {
        (0..decoded.op_count()).any(|operand| {
            decoded.op_kind(operand) == OpKind::Register && is_kind(decoded.op_register(operand))
        })
    };
    has(X86Register::is_gpr) && has(X86Register::is_vector_register)
}

/// The registers that an instruction uses.
#[derive(Default)]
struct UsedRegisters {
    /// Registers that are read for the operation, without registers that only form addresses.
    read: Vec<Register>,
    written: Vec<Register>,
    /// Address registers that change as a side effect, such as the stack pointer.
    moved: Vec<Register>,
}

/// The registers that an instruction uses. `addresses`: the registers that form its addresses.
fn used_registers(decoded: &X86, info: &InstructionInfo, addresses: &[Register]) -> UsedRegisters {
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

/// Whether an operand is a vector, MMX, mask or x87 register.
fn has_vector_register(decoded: &X86) -> bool {
    (0..decoded.op_count()).any(|operand| {
        let name = decoded.op_register(operand);
        decoded.op_kind(operand) == OpKind::Register
            && (name.is_vector_register() || name.is_mm() || name.is_k() || name.is_st())
    })
}

impl Instruction {
    /// Sets the executing unit, and with it the latency.
    fn executed_by(mut self, unit: Unit) -> Instruction {
        let latency = Instruction::of(unit);
        self.unit = Some(unit);
        self.with_latency_of(latency)
    }
}

/// The register that `name` names, wholly or in part. `None` for segments and the instruction pointer, because nothing
/// waits for them in practice.
fn register_of(name: X86Register) -> Option<Register> {
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

/// The special effect of an instruction.
fn special_effect(decoded: &X86) -> Special {
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

/// The execution unit. `None` if the instruction only loads, only stores, or does nothing. `accesses_memory`: whether
/// it loads or stores. `registers`: the registers that it uses.
fn execution_unit(
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RAX: Register = Register::general(0);
    const RCX: Register = Register::general(1);
    const RDX: Register = Register::general(2);
    const RBX: Register = Register::general(3);
    const RSP: Register = Register::STACK_POINTER;
    const RBP: Register = Register::general(5);
    const RSI: Register = Register::general(6);
    const RDI: Register = Register::general(7);
    const FLAGS: Register = Register::FLAGS;

    fn decoded(bytes: &[u8]) -> Decoded {
        Decoder::default().decode(bytes, VirtualAddress(0x1000))
    }

    fn decode(bytes: &[u8]) -> Instruction {
        Decoder::default().core_instruction(&decoded(bytes))
    }

    /// Registers as sets, whose order does not matter.
    fn same(bytes: &[u8], expected: Instruction) {
        let sorted = |instruction: Instruction| {
            format!("{:?}", instruction.with_bytes(0).without_hints().sorted())
        };
        let decoded = decode(bytes);
        assert_eq!(sorted(decoded), sorted(expected), "{bytes:02x?}");
    }

    #[test]
    fn operations_read_and_write_their_operands_and_flags() {
        let integer = Instruction::of(Unit::Integer);
        // add %rbx, %rax
        same(&[0x48, 0x01, 0xd8], integer.reading(&[RAX, RBX]).writing(&[RAX, FLAGS]));
        // mov %rbx, %rax
        same(&[0x48, 0x89, 0xd8], integer.reading(&[RBX]).writing(&[RAX]));
        // xor %eax, %eax: the result does not depend on the register's old value
        let logic = integer.as_operation(crate::core::Operation::Logic);
        same(&[0x31, 0xc0], logic.writing(&[RAX, FLAGS]));
        // cmp %rbx, %rax
        same(&[0x48, 0x39, 0xd8], integer.reading(&[RAX, RBX]).writing(&[FLAGS]));
        // mov $1, %al: the rest of the register stays
        same(&[0xb0, 0x01], integer.reading(&[RAX]).writing(&[RAX]));
        // cmove %rbx, %rax: it may stay
        let select = Instruction::of(Unit::Select);
        let but_carry = Register::FLAGS_BUT_CARRY;
        same(&[0x48, 0x0f, 0x44, 0xc3], select.reading(&[RAX, RBX, but_carry]).writing(&[RAX]));
        // sete %al; shr $3, %rax; bt %rbx, %rax
        same(&[0x0f, 0x94, 0xc0], select.reading(&[RAX, but_carry]).writing(&[RAX]));
        let shift = Instruction::of(Unit::Shift);
        same(&[0x48, 0xc1, 0xe8, 0x03], shift.reading(&[RAX]).writing(&[RAX, FLAGS]));
        same(&[0x48, 0x0f, 0xa3, 0xd8], shift.reading(&[RAX, RBX]).writing(&[Register::CARRY]));
        // lea 8(%rbx,%rcx), %rax
        let three = shift.as_operation(crate::core::Operation::LeaThree);
        same(&[0x48, 0x8d, 0x44, 0x0b, 0x08], three.reading(&[RBX, RCX]).writing(&[RAX]));
        // imul %rbx, %rax; div %rcx
        let multiply = Instruction::of(Unit::Multiply);
        same(&[0x48, 0x0f, 0xaf, 0xc3], multiply.reading(&[RAX, RBX]).writing(&[RAX, FLAGS]));
        let divide = Instruction::of(Unit::Divide);
        same(&[0x48, 0xf7, 0xf1], divide.reading(&[RAX, RDX, RCX]).writing(&[RAX, RDX, FLAGS]));
    }

    #[test]
    fn addresses_are_distinguished_from_operands() {
        let nothing = Instruction::nothing(0);
        // mov (%rbx,%rcx), %rax
        same(&[0x48, 0x8b, 0x04, 0x0b], nothing.loading(&[RBX, RCX]).writing(&[RAX]));
        // mov (%rax), %rax
        same(&[0x48, 0x8b, 0x00], nothing.loading(&[RAX]).writing(&[RAX]));
        // mov %rax, (%rax)
        same(&[0x48, 0x89, 0x00], nothing.storing(&[RAX]).reading(&[RAX]));
        // add %rax, (%rbx): loads and stores
        let sum = Instruction::of(Unit::Integer).loading(&[RBX]).storing(&[RBX]);
        same(&[0x48, 0x01, 0x03], sum.reading(&[RAX]).writing(&[FLAGS]));
        // lock add %rax, (%rbx)
        let atomic = sum.reading(&[RAX]).writing(&[FLAGS]).doing(Special::Atomic);
        same(&[0xf0, 0x48, 0x01, 0x03], atomic);
        // prefetcht0 (%rax), nopl (%rax): no access
        for bytes in [&[0x0f, 0x18, 0x08][..], &[0x0f, 0x1f, 0x00]] {
            assert!(!decode(bytes).loads() && !decode(bytes).stores());
        }
    }

    #[test]
    fn the_stack_pointer_changes_as_a_side_effect() {
        let nothing = Instruction::nothing(0);
        // push %rbx; pop %rbx
        let push = nothing.storing(&[RSP]).reading(&[RBX]).moving(&[RSP]).moving_stack();
        same(&[0x53], push);
        same(&[0x5b], nothing.loading(&[RSP]).writing(&[RBX]).moving(&[RSP]).moving_stack());
        // call, ret
        let branch = Instruction::of(Unit::Branch).moving(&[RSP]).moving_stack();
        same(&[0xe8, 0, 0, 0, 0], branch.storing(&[RSP]).branching(BranchKind::Call));
        same(&[0xc3], branch.loading(&[RSP]).branching(BranchKind::Return));
        // leave: the stack pointer comes from the frame's, which is loaded
        let leave = decode(&[0xc9]);
        let expected = Instruction::of(Unit::Integer).loading(&[RBP]).writing(&[RSP, RBP]);
        assert_eq!(leave.sorted().writes(), expected.sorted().writes());
        // lodsb, and rep movsb with its counter
        assert_eq!(decode(&[0xac]).moves(), [RSI]);
        let copy = decode(&[0xf3, 0xa4]);
        assert!(copy.loads() && copy.stores());
        assert_eq!(copy.sorted().moves(), [RSI, RDI]);
        assert!(copy.writes().contains(&RCX));
    }

    #[test]
    fn branches_have_their_kinds_and_targets() {
        let branch =
            |bytes: &[u8]| (decode(bytes).branch(), decoded(bytes).target().map(|target| target.0));
        assert_eq!(branch(&[0x74, 0x10]), (Some(BranchKind::Conditional), Some(0x1012)));
        assert_eq!(branch(&[0xeb, 0xfe]), (Some(BranchKind::Jump), Some(0x1000)));
        assert_eq!(branch(&[0xe8, 0, 1, 0, 0]), (Some(BranchKind::Call), Some(0x1105)));
        assert_eq!(branch(&[0xff, 0xe0]), (Some(BranchKind::IndirectJump), None));
        assert_eq!(branch(&[0xff, 0xd0]), (Some(BranchKind::IndirectCall), None));
        assert_eq!(branch(&[0xff, 0x24, 0xc5, 0, 0, 0, 0]), (Some(BranchKind::IndirectJump), None));
        assert_eq!(branch(&[0xc3]), (Some(BranchKind::Return), None));
        assert_eq!(branch(&[0x48, 0xcf]), (None, None)); // iretq
        assert_eq!(branch(&[0x48, 0x01, 0xd8]), (None, None));
    }

    #[test]
    fn special_behaviour_is_recognised() {
        let expected: [(&[u8], Special); 27] = [
            (&[0xd9, 0xfe], Special::Microcode),              // fsin
            (&[0xd9, 0xf1], Special::Microcode),              // fyl2x
            (&[0x0f, 0xa2], Special::Serialise),              // cpuid
            (&[0x0f, 0x22, 0xd8], Special::WriteControl),     // mov %rax, %cr3
            (&[0x0f, 0x20, 0xd8], Special::None),             // mov %cr3, %rax
            (&[0x0f, 0x30], Special::WriteMsr),               // wrmsr
            (&[0x0f, 0x32], Special::ReadMsr),                // rdmsr
            (&[0x0f, 0x01, 0x3f], Special::InvalidatePage),   // invlpg (%rdi)
            (&[0x0f, 0x01, 0xf8], Special::SwapGs),           // swapgs
            (&[0xfa], Special::WriteFlags),                   // cli
            (&[0x9d], Special::WriteFlags),                   // popfq
            (&[0xee], Special::Port),                         // out %al, (%dx)
            (&[0x0f, 0xae, 0xf8], Special::StoreFence),       // sfence
            (&[0x0f, 0xae, 0x3f], Special::FlushLine),        // clflush (%rdi)
            (&[0x0f, 0x01, 0xf9], Special::ReadClockOrdered), // rdtscp
            (&[0x48, 0xcf], Special::InterruptReturn),        // iretq
            (&[0x0f, 0x05], Special::SystemCall),             // syscall
            (&[0xcd, 0x80], Special::SystemCall),             // int $0x80
            (&[0x48, 0x0f, 0x07], Special::SystemReturn),     // sysretq
            (&[0x0f, 0xae, 0xe8], Special::Fence),            // lfence
            (&[0x0f, 0xae, 0xf0], Special::Barrier),          // mfence
            (&[0xf3, 0x90], Special::Pause),                  // pause
            (&[0x48, 0x87, 0x03], Special::Atomic),           // xchg %rax, (%rbx)
            (&[0x48, 0x87, 0xc3], Special::None),             // xchg %rax, %rbx
            (&[0x0f, 0x31], Special::ReadClock),              // rdtsc
            (&[0x48, 0x0f, 0xae, 0x00], Special::Microcode),  // fxsave64 (%rax)
            (&[0x06], Special::Fence),                        // none of 64-bit code
        ];
        for (bytes, special) in expected {
            assert_eq!(decode(bytes).special(), special, "{bytes:02x?}");
        }
    }

    #[test]
    fn an_instruction_has_room_for_what_it_uses() {
        let used: [&[u8]; 8] = [
            &[0xff, 0x94, 0xc3, 0xb0, 0, 0, 0],    // call *0xb0(%rbx,%rax,8)
            &[0xff, 0x74, 0x03, 0x08],             // push 8(%rbx,%rax)
            &[0xf3, 0x48, 0xa5],                   // rep movsq
            &[0xf0, 0x48, 0x0f, 0xc7, 0x0f],       // lock cmpxchg16b (%rdi)
            &[0xf0, 0x48, 0x0f, 0xb1, 0x0c, 0x03], // lock cmpxchg %rcx, (%rbx,%rax)
            &[0x48, 0x0f, 0xad, 0xd0],             // shrd %cl, %rdx, %rax
            &[0xc5, 0xf8, 0x77],                   // vzeroupper
            &[0x62, 0xf2, 0xed, 0x49, 0xb8, 0xc1], // vfmadd231pd %zmm1, %zmm2, %zmm0{%k1}
        ];
        for bytes in used {
            assert_ne!(decode(bytes).special(), Special::Fence, "{bytes:02x?}");
        }
    }

    #[test]
    fn vector_operations_have_their_units() {
        let expected: [(&[u8], Option<Unit>); 9] = [
            (&[0xf2, 0x0f, 0x58, 0xc1], Some(Unit::FloatAdd)), // addsd
            (&[0xf2, 0x0f, 0x59, 0xc1], Some(Unit::FloatMultiply)), // mulsd
            (&[0xf2, 0x0f, 0x5e, 0xc1], Some(Unit::FloatDivide)), // divsd
            (&[0xc4, 0xe2, 0xf1, 0xb8, 0xc2], Some(Unit::FloatMultiply)), // vfmadd231pd
            (&[0x66, 0x0f, 0xfe, 0xc1], Some(Unit::Vector)),   // paddd
            (&[0x0f, 0x28, 0xc1], Some(Unit::Vector)),         // movaps, registers
            (&[0x0f, 0x28, 0x00], None),                       // movaps (%rax), %xmm0
            (&[0xf2, 0x0f, 0x58, 0x00], Some(Unit::FloatAdd)), // addsd (%rax), %xmm0
            (&[0xd8, 0xc1], Some(Unit::FloatAdd)),             // fadd %st(1), %st
        ];
        for (bytes, unit) in expected {
            assert_eq!(decode(bytes).unit, unit, "{bytes:02x?}");
        }
        // pxor %xmm0, %xmm0 depends on nothing.
        assert!(decode(&[0x66, 0x0f, 0xef, 0xc0]).reads().is_empty());
    }

    #[test]
    fn x87_instructions_use_the_stack_and_a_vector_unit() {
        let (read, written) = ([Register::X87], [Register::X87]);
        // fldl (%rdi); fildl (%rdi); fld1; fldz; fld %st(1)
        let pushes: [&[u8]; 5] =
            [&[0xdd, 0x07], &[0xdb, 0x07], &[0xd9, 0xe8], &[0xd9, 0xee], &[0xd9, 0xc1]];
        for bytes in pushes {
            let push = decode(bytes);
            assert_eq!((push.reads(), push.writes()), (read.to_vec(), written.to_vec()));
        }
        // fildl (%rdi); fistpl (%rdi); fisttpl (%rdi); fld1; fcoms (%rdi)
        let units: [(&[u8], Option<Unit>); 5] = [
            (&[0xdb, 0x07], Some(Unit::FloatAdd)),
            (&[0xdb, 0x1f], Some(Unit::FloatAdd)),
            (&[0xdb, 0x0f], Some(Unit::FloatAdd)),
            (&[0xd9, 0xe8], Some(Unit::Vector)),
            (&[0xd8, 0x17], Some(Unit::FloatAdd)),
        ];
        for (bytes, unit) in units {
            assert_eq!(decode(bytes).unit, unit, "{bytes:02x?}");
        }
        // fcoms (%rdi); fnstsw %ax: neither has to do with the flags of integer arithmetic.
        assert_eq!(decode(&[0xd8, 0x17]).writes(), [Register::X87_CONDITIONS]);
        assert!(decode(&[0xdf, 0xe0]).reads().contains(&Register::X87_CONDITIONS));
    }

    #[test]
    fn flags_that_an_instruction_keeps_are_not_written() {
        let but_carry = Register::FLAGS_BUT_CARRY;
        assert_eq!(decode(&[0x48, 0xff, 0xc0]).writes(), [RAX, but_carry]); // inc %rax
        assert_eq!(decode(&[0x48, 0x11, 0xd8]).writes(), [RAX, FLAGS]); // adc %rbx, %rax
        assert!(decode(&[0x48, 0x11, 0xd8]).reads().contains(&FLAGS));
        assert_eq!(decode(&[0x72, 0x10]).reads(), [FLAGS]); // jb
        assert_eq!(decode(&[0x74, 0x10]).reads(), [but_carry]); // je
        assert_eq!(decode(&[0x77, 0x10]).reads(), [FLAGS, but_carry]); // ja
        assert!(decode(&[0xfa]).writes().is_empty()); // cli
        let carry_alone: [&[u8]; 6] = [
            &[0xf9],                               // stc
            &[0x48, 0x0f, 0xa3, 0xd8],             // bt %rbx, %rax
            &[0x48, 0xc1, 0xc0, 0x03],             // rol $3, %rax
            &[0x48, 0xd1, 0xc0],                   // rol $1, %rax
            &[0x48, 0xc1, 0xd0, 0x03],             // rcl $3, %rax
            &[0x66, 0x48, 0x0f, 0x38, 0xf6, 0xc3], // adcx %rbx, %rax
        ];
        for bytes in carry_alone {
            assert!(decode(bytes).writes().contains(&Register::CARRY), "{bytes:02x?}");
        }
        let adox = decode(&[0xf3, 0x48, 0x0f, 0x38, 0xf6, 0xc3]); // adox %rbx, %rax
        assert!(adox.writes().contains(&but_carry) && adox.reads().contains(&but_carry));
        assert_eq!(decode(&[0x48, 0xc1, 0xe0, 0x03]).writes(), [RAX, FLAGS]); // shl $3, %rax
        assert!(decode(&[0xf2, 0xae]).reads().contains(&FLAGS)); // repne scasb
        assert!(!decode(&[0xae]).reads().contains(&FLAGS)); // scasb
        assert!(!decode(&[0xf3, 0xa4]).reads().contains(&FLAGS)); // rep movsb
    }

    #[test]
    fn a_comparison_with_itself_needs_no_operand() {
        // pcmpeqd %xmm0, %xmm0; vpcmpeqd %xmm1, %xmm1, %xmm0; psubd %xmm0, %xmm0; pcmpgtb %xmm0, %xmm0
        let idioms: [(&[u8], bool); 4] = [
            (&[0x66, 0x0f, 0x76, 0xc0], false),
            (&[0xc5, 0xf1, 0x76, 0xc1], false),
            (&[0x66, 0x0f, 0xfa, 0xc0], true),
            (&[0x66, 0x0f, 0x64, 0xc0], true),
        ];
        for (bytes, is_zero) in idioms {
            assert!(decode(bytes).reads().is_empty(), "{bytes:02x?}");
            assert_eq!(decode(bytes).moves_or_zeroes(), (false, is_zero), "{bytes:02x?}");
        }
        assert_eq!(decode(&[0x66, 0x0f, 0x76, 0xc1]).reads().len(), 2);
    }

    #[test]
    fn moves_and_zeroing_idioms_are_recognised() {
        let expected: [(&[u8], (bool, bool)); 14] = [
            (&[0x0f, 0x20, 0xd8], (false, false)),       // mov %cr3, %rax
            (&[0x0f, 0x21, 0xf8], (false, false)),       // mov %db7, %rax
            (&[0x66, 0x31, 0xc0], (false, false)),       // xor %ax, %ax: a part stays
            (&[0x30, 0xc0], (false, false)),             // xor %al, %al
            (&[0x48, 0x89, 0xd8], (true, false)),        // mov %rbx, %rax
            (&[0x89, 0xd8], (true, false)),              // mov %ebx, %eax
            (&[0x66, 0x89, 0xd8], (false, false)),       // mov %bx, %ax: a part stays
            (&[0x48, 0x8b, 0x03], (false, false)),       // mov (%rbx), %rax
            (&[0x0f, 0x28, 0xc1], (true, false)),        // movaps %xmm1, %xmm0
            (&[0xf3, 0x0f, 0x10, 0xc1], (false, false)), // movss %xmm1, %xmm0: a part stays
            (&[0x66, 0x48, 0x0f, 0x6e, 0xc0], (false, false)), // movq %rax, %xmm0
            (&[0x31, 0xc0], (false, true)),              // xor %eax, %eax
            (&[0x31, 0xd8], (false, false)),             // xor %ebx, %eax
            (&[0x66, 0x0f, 0xef, 0xc0], (false, true)),  // pxor %xmm0, %xmm0
        ];
        for (bytes, which) in expected {
            assert_eq!(decode(bytes).moves_or_zeroes(), which, "{bytes:02x?}");
        }
    }

    #[test]
    fn string_operations_are_recognised() {
        use StringOperation::{Compare, Copy, Fill, Load, Scan};
        let expected: [(&[u8], Option<StringOperation>); 8] = [
            (&[0xf3, 0xa4], Some(Copy)),       // rep movsb
            (&[0xf3, 0x48, 0xa5], Some(Copy)), // rep movsq
            (&[0xf3, 0x48, 0xab], Some(Fill)), // rep stosq
            (&[0xf3, 0xac], Some(Load)),       // rep lodsb
            (&[0xf2, 0xae], Some(Scan)),       // repne scasb
            (&[0xf3, 0xa6], Some(Compare)),    // repe cmpsb
            (&[0xa4], None),                   // movsb
            (&[0xf2, 0x0f, 0x10, 0xc1], None), // movsd %xmm1, %xmm0
        ];
        for (bytes, which) in expected {
            assert_eq!(decode(bytes).string_operation(), which, "{bytes:02x?}");
        }
    }

    #[test]
    fn operations_with_latencies_of_their_own_are_recognised() {
        use crate::core::Operation as Own;
        let expected: [(&[u8], Own); 27] = [
            (&[0x66, 0x0f, 0x3a, 0x44, 0xc1, 0], Own::Aes), // pclmulqdq $0, %xmm1, %xmm0
            (&[0xf3, 0x48, 0x0f, 0xb8, 0xc0], Own::PopulationCount),
            (&[0x4a, 0x8d, 0x44, 0x90, 0x08], Own::LeaThree), // lea 8(%rax,%r10,4), %rax
            (&[0x4a, 0x8d, 0x04, 0x90], Own::LeaScaled),      // lea (%rax,%r10,4), %rax
            (&[0x66, 0x0f, 0x2f, 0xc1], Own::FloatFlags),     // comisd %xmm1, %xmm0
            (&[0xf3, 0x48, 0x0f, 0xbc, 0xc0], Own::BitCount), // tzcnt
            (&[0x48, 0x0f, 0xbc, 0xc0], Own::BitScan),
            (&[0xc4, 0xc2, 0xfb, 0xf5, 0xc2], Own::BitDeposit), // pdep
            (&[0xf2, 0x49, 0x0f, 0x38, 0xf1, 0xc2], Own::Crc32),
            (&[0xf7, 0xf1], Own::Divide32), // div %ecx
            (&[0xf2, 0x0f, 0x59, 0xc1], Own::FloatMultiplyOnly), // mulsd
            (&[0xf2, 0x0f, 0x51, 0xc0], Own::FloatRoot), // sqrtsd
            (&[0xf2, 0x48, 0x0f, 0x2a, 0xc0], Own::Convert), // cvtsi2sd %rax, %xmm0
            (&[0x66, 0x48, 0x0f, 0x7e, 0xc0], Own::Cross), // movq %xmm0, %rax
            (&[0x66, 0x0f, 0x38, 0xdc, 0xc1], Own::Aes),
            (&[0x0f, 0x38, 0xcb, 0xca], Own::Sha),
            (&[0x0f, 0x5a, 0xc1], Own::VectorConvert), // cvtps2pd %xmm1, %xmm0
            (&[0x66, 0x0f, 0x3a, 0x63, 0xc1, 0], Own::StringCompare), // pcmpistri $0, %xmm1, %xmm0
            (&[0xc4, 0xe2, 0x75, 0x36, 0xc2], Own::LanePermute), // vpermd %ymm2, %ymm1, %ymm0
            (&[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1], Own::LaneMove), // vextracti128 $1, %ymm0, %xmm1
            (&[0xf2, 0x48, 0x0f, 0x2c, 0x07], Own::Convert), // cvttsd2si (%rdi), %rax
            (&[0x66, 0x0f, 0x70, 0xc1, 1], Own::SimpleShuffle), // pshufd $1, %xmm1, %xmm0
            (&[0x66, 0x0f, 0x60, 0xc1], Own::SimpleShuffle), // punpcklbw %xmm1, %xmm0
            (&[0xc4, 0xe3, 0x79, 0x04, 0xc1, 1], Own::SimpleShuffle), // vpermilps $1, %xmm1, %xmm0
            (&[0xc4, 0xe3, 0x7d, 0x4c, 0xc1, 0x20], Own::VariableBlend), // vpblendvb, four operands
            (&[0xc4, 0xe3, 0x7d, 0x38, 0xc1, 1], Own::LaneWiden), // vinserti128 $1, %xmm1, %ymm0, %ymm0
            (&[0xc4, 0xe2, 0x7d, 0x30, 0x07], Own::LaneWiden),    // vpmovzxbw (%rdi), %ymm0
        ];
        for (bytes, own) in expected {
            assert!(decode(bytes).takes_latency_of(own), "{bytes:02x?}");
        }
        // div %rcx, lea 8(%rax), vfmadd231pd, pshufb %xmm1, %xmm0, vpermilps %xmm2, %xmm1, %xmm0,
        // pblendvb %xmm0, %xmm1, %xmm0, vinserti128 $1, (%rdi), %ymm0, %ymm0
        let others: [&[u8]; 7] = [
            &[0x48, 0xf7, 0xf1],
            &[0x48, 0x8d, 0x40, 0x08],
            &[0xc4, 0xe2, 0xed, 0xb8, 0xc1],
            &[0x66, 0x0f, 0x38, 0x00, 0xc1],
            &[0xc4, 0xe2, 0x71, 0x0c, 0xc2],
            &[0x66, 0x0f, 0x38, 0x10, 0xc1],
            &[0xc4, 0xe3, 0x7d, 0x38, 0x07, 1],
        ];
        // vbroadcastss (%rdi), %ymm0 only loads.
        assert_eq!(decode(&[0xc4, 0xe2, 0x7d, 0x18, 0x07]).unit, None);
        for bytes in others {
            assert!(!expected.iter().any(|(_, own)| decode(bytes).takes_latency_of(*own)));
        }
    }

    #[test]
    fn addresses_of_a_form_are_recognised() {
        let form = |bytes: &[u8]| decode(bytes).address_form();
        let (load, store) = ([0x48, 0x8b, 0x47, 0x10], [0x48, 0x89, 0x47, 0x10]); // 16(%rdi), %rax
        assert_eq!(form(&load), form(&store));
        assert_ne!(form(&load), 0);
        assert_ne!(form(&load), form(&[0x48, 0x8b, 0x46, 0x10])); // 16(%rsi)
        assert_ne!(form(&load), form(&[0x48, 0x8b, 0x47, 0x18])); // 24(%rdi)
        // A push and a load from the stack.
        assert_eq!(form(&[0x50]), form(&[0x48, 0x8b, 0x44, 0x24, 0x08]));
        // mov %rax, 16(%rdi,%rbx)
        let index = decode(&[0x48, 0x89, 0x44, 0x1f, 0x10]);
        assert!(index.address_has_index() && index.address_form() != 0);
        assert!(!decode(&load).address_has_index());
        // A byte, a vector, and no access: none is renamed.
        let none: [&[u8]; 3] = [&[0x8a, 0x07], &[0x0f, 0x28, 0x00], &[0x48, 0x01, 0xd8]];
        none.into_iter().for_each(|bytes| assert_eq!(form(bytes), 0, "{bytes:02x?}"));
    }

    #[test]
    fn small_constants_that_are_added_to_whole_registers_are_recognised() {
        let small: [&[u8]; 7] = [
            &[0x48, 0xff, 0xc0],                   // inc %rax
            &[0x48, 0xff, 0xc8],                   // dec %rax
            &[0x48, 0x83, 0xc0, 0x08],             // add $8, %rax
            &[0x48, 0x83, 0xe8, 0x08],             // sub $8, %rax
            &[0x48, 0x05, 0xff, 0x03, 0, 0],       // add $1023, %rax
            &[0x48, 0x05, 0x00, 0xfc, 0xff, 0xff], // add $-1024, %rax
            &[0x48, 0x8d, 0x50, 0x08],             // lea 8(%rax), %rdx
        ];
        let others: [&[u8]; 8] = [
            &[0xff, 0xc0],                         // inc %eax
            &[0x48, 0x05, 0x00, 0x04, 0, 0],       // add $1024, %rax
            &[0x48, 0x05, 0xff, 0xfb, 0xff, 0xff], // add $-1025, %rax
            &[0x48, 0x01, 0xd8],                   // add %rbx, %rax
            &[0x48, 0x03, 0x07],                   // add (%rdi), %rax
            &[0x48, 0x83, 0x07, 0x08],             // add $8, (%rdi)
            &[0x48, 0x83, 0xf8, 0x08],             // cmp $8, %rax
            &[0x48, 0x8d, 0x54, 0x18, 0x08],       // lea 8(%rax,%rbx), %rdx
        ];
        assert!(small.iter().all(|bytes| decode(bytes).adds_constant()));
        assert!(!others.iter().any(|bytes| decode(bytes).adds_constant()));
        assert_eq!(decode(small[0]).moves_or_zeroes(), (false, false));
    }

    #[test]
    fn lengths_are_those_of_the_instructions() {
        assert_eq!(decode(&[0x48, 0x01, 0xd8, 0x90, 0x90]).bytes(), 3);
        assert_eq!(decode(&[0x06]).bytes(), 1);
        assert_eq!(decode(&[]).bytes(), 0);
    }

    #[test]
    fn operations_are_recognised() {
        use Operation::*;
        let expected: [(&[u8], Operation); 32] = [
            (&[0x48, 0xcf], InterruptReturn),
            (&[0xcf], Other), // iretd
            (&[0x48, 0x0f, 0x07], SyscallReturn),
            (&[0x0f, 0x07], SyscallReturn),
            (&[0x0f, 0x35], SyscallReturn), // sysexit
            (&[0x0f, 0x05], Other),         // syscall
            (&[0x0f, 0x31], ReadTsc),
            (&[0x0f, 0x01, 0xf9], ReadTsc), // rdtscp
            (&[0x0f, 0x01, 0xf8], Other),   // swapgs
            (&[0xf4], Halt),
            (&[0xcc], SoftwareInterrupt),
            (&[0xcd, 0x80], SoftwareInterrupt),
            (&[0x0f, 0x30], WriteMsr),
            (&[0x0f, 0x32], ReadMsr),
            (&[0x0f, 0x33], ReadPmc),
            (&[0x0f, 0xa2], Cpuid),
            (&[0x89, 0xb7, 0x00, 0xc0, 0x5f, 0xff], WriteLocalApic), // mov %esi, -0xa04000(%rdi)
            (&[0x87, 0xb7, 0x00, 0xc0, 0x5f, 0xff], WriteLocalApic), // xchg %esi, -0xa04000(%rdi)
            (&[0xc7, 0x04, 0x25, 0xb0, 0xc0, 0x5f, 0xff, 0, 0, 0, 0], WriteLocalApic), // movl $0, 0xff..5fc0b0
            (&[0x8b, 0xb7, 0x00, 0xc0, 0x5f, 0xff], Other), // mov -0xa04000(%rdi), %esi
            (&[0x89, 0xb7, 0x00, 0xc0, 0x5f, 0x7f], Other), // mov %esi, 0x7f5fc000(%rdi)
            (&[0x0f, 0x22, 0xd8], FlushTranslations),       // mov %rax, %cr3
            (&[0x41, 0x0f, 0x22, 0xdc], FlushTranslations), // mov %r12, %cr3
            (&[0x0f, 0x01, 0x3f], FlushTranslations),       // invlpg (%rdi)
            (&[0x41, 0x0f, 0x01, 0x3c, 0x24], FlushTranslations), // invlpg (%r12)
            (&[0x66, 0x0f, 0x38, 0x82, 0x0c, 0x24], FlushTranslations), // invpcid (%rsp), %rcx
            (&[0x0f, 0x22, 0xd0], Other),                   // mov %rax, %cr2
            (&[0x44, 0x0f, 0x22, 0xc0], Other),             // mov %rax, %cr8
            (&[0x0f, 0x01, 0x18], Other),                   // lidt (%rax)
            (&[0x0f, 0x1f, 0x84, 0, 0x69, 0x72, 0x71, 0x6b], LongNop(0x6b71_7269)),
            (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], LongNop(0)),
            (&[0x0f, 0x1f, 0x44, 0x18, 1], Other), // nopl 1(%rax,%rbx,1)
        ];
        for (bytes, operation) in expected {
            assert_eq!(decoded(bytes).operation(), operation, "{bytes:02x?}");
        }
    }

    #[test]
    fn branches_are_recognised_after_prefixes_and_in_other_modes() {
        let branches: [&[u8]; 13] = [
            &[0xeb, 0x02],
            &[0x75, 0x10],
            &[0x0f, 0x84, 0, 0, 0, 0],
            &[0xe2, 0xfe],
            &[0xe3, 0x10],
            &[0xc3],
            &[0xf3, 0xc3],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xe3],
            &[0x2e, 0xe8, 0, 0, 0, 0],
            &[0xff, 0x25, 0, 0, 0, 0],
            &[0xe8, 0, 1],       // call, 16-bit code
            &[0x0f, 0x84, 0, 1], // je, 16-bit code
        ];
        for bytes in branches {
            assert!(decoded(bytes).is_branch(), "{bytes:02x?}");
        }
        let others: [&[u8]; 9] = [
            &[0xff, 0xc0],
            &[0xff, 0x35, 0, 0, 0, 0],
            &[0x90],
            &[0x0f, 0x44, 0xc1],
            &[0x0f, 0xa2],
            &[0x48, 0xcb], // lretq
            &[0x48, 0xcf],
            &[0x0f, 0x05],
            &[0x48], // dec %eax, 32-bit code
        ];
        for bytes in others {
            assert!(!decoded(bytes).is_branch(), "{bytes:02x?}");
        }
    }

    #[test]
    fn what_acts_outside_of_the_processor_is_recognised() {
        let acts: [&[u8]; 10] = [
            &[0xee],             // out
            &[0xe6, 0x20],       // out, immediate
            &[0xec],             // in
            &[0x6c],             // insb
            &[0x0f, 0x30],       // wrmsr
            &[0xf4],             // hlt
            &[0xf3, 0x90],       // pause
            &[0x0f, 0x01, 0xc9], // mwait
            &[0xf3, 0xa4],       // rep movsb
            &[0xf3, 0x6e],       // rep outsb
        ];
        assert!(acts.iter().all(|bytes| decoded(bytes).may_act_outside()));
        let others: [&[u8]; 5] = [&[0x90], &[0x89, 0x30], &[0xa4], &[0x0f, 0x32], &[0xfb]];
        assert!(!others.iter().any(|bytes| decoded(bytes).may_act_outside()));
    }

    #[test]
    fn repeated_string_instructions_are_recognised() {
        let repeated: [&[u8]; 4] =
            [&[0xf3, 0xa4], &[0xf3, 0x48, 0xab], &[0xf2, 0xae], &[0xf3, 0x6e]];
        assert!(repeated.iter().all(|bytes| decoded(bytes).is_repeated_string()));
        let others: [&[u8]; 5] =
            [&[0xa4], &[0xf3, 0x0f, 0x10, 0x00], &[0xf3, 0x90], &[0xf3], &[0xf3, 0xc3]];
        assert!(!others.iter().any(|bytes| decoded(bytes).is_repeated_string()));
    }

    #[test]
    fn stores_and_writes_to_ports_can_reach_a_device() {
        let expected: [(&[u8], DeviceWrite); 17] = [
            (&[0x89, 0x30], DeviceWrite::Store), // mov %esi, (%rax)
            (&[0x66, 0x89, 0x30], DeviceWrite::Store),
            (&[0xff, 0x00], DeviceWrite::Store), // incl (%rax)
            (&[0xa4], DeviceWrite::Store),       // movsb
            (&[], DeviceWrite::Store),
            (&[0xee], DeviceWrite::Port(None)),
            (&[0x66, 0xef], DeviceWrite::Port(None)),
            (&[0xf3, 0x6e], DeviceWrite::Port(None)), // rep outsb
            (&[0xe6, 0x92], DeviceWrite::Port(Some(0x92))),
            (&[0xe7, 0x20], DeviceWrite::Port(Some(0x20))),
            (&[0xe8, 0, 0, 0, 0], DeviceWrite::Never), // call
            (&[0xff, 0xd0], DeviceWrite::Never),       // call *%rax
            (&[0xff, 0x30], DeviceWrite::Never),       // push (%rax)
            (&[0x41, 0x57], DeviceWrite::Never),       // push %r15
            (&[0x9c], DeviceWrite::Never),             // pushfq
            (&[0x6a, 0x01], DeviceWrite::Never),       // push $1
            (&[0xf3, 0x48, 0xab], DeviceWrite::Never), // rep stosq
        ];
        for (bytes, device_write) in expected {
            assert_eq!(decoded(bytes).device_write(), device_write, "{bytes:02x?}");
        }
    }

    #[test]
    fn only_what_always_writes_memory_is_a_store() {
        let expected: [(&[u8], bool); 12] = [
            (&[0x89, 0x30], true),                // mov %esi, (%rax)
            (&[0xff, 0x00], true),                // incl (%rax)
            (&[0xf0, 0x0f, 0xba, 0x28, 3], true), // lock btsl $3, (%rax)
            (&[0xa4], true),                      // movsb
            (&[0xf3, 0x48, 0xab], false),         // rep stosq, perhaps not once
            (&[0x74, 0x10], false),               // je
            (&[0xc3], false),                     // ret
            (&[0x8b, 0x30], false),               // mov (%rax), %esi
            (&[0x39, 0x30], false),               // cmp %esi, (%rax)
            (&[0x48, 0x8d, 0x00], false),         // lea (%rax), %rax
            (&[0x0f, 0x1f, 0x00], false),         // nopl (%rax)
            (&[], false),
        ];
        let mut decoder = Decoder::default();
        for (bytes, stores) in expected {
            assert_eq!(decoder.stores(&decoded(bytes)), stores, "{bytes:02x?}");
        }
    }

    #[test]
    fn calls_have_a_register_or_a_function() {
        let call_of = |bytes: &[u8]| {
            let function = decoded(bytes).called_function();
            (decoded(bytes).calls_register(), function.map(|function| function.0))
        };
        assert_eq!(call_of(&[0xff, 0xd0]), (true, None));
        assert_eq!(call_of(&[0x41, 0xff, 0xd3]), (true, None));
        assert_eq!(call_of(&[0xe8, 0, 1, 0, 0]), (false, Some(0x1105)));
        assert_eq!(call_of(&[0xff, 0x10]), (false, None)); // call *(%rax)
        assert_eq!(call_of(&[0xff, 0xe0]), (false, None)); // jmp *%rax
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), address: u64) {
            let mut decoder = Decoder::default();
            let decoded = decoder.decode(&bytes, VirtualAddress(address));
            let _ = (decoded.operation(), decoded.device_write(), decoded.is_branch());
            let _ = (decoded.target(), decoded.called_function(), decoded.calls_register());
            prop_assert!(usize::from(decoder.core_instruction(&decoded).bytes()) <= bytes.len());
        }
    }
}
