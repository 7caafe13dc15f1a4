//! Emulates the guest's instructions that use its PMU: `rdmsr`, `wrmsr`, `rdpmc` and `cpuid`. `translate.rs` calls
//! [`annotate`] for each of them.
//!
//! QEMU's own `rdmsr` reads zero from registers that it does not know, and its `wrmsr` ignores them. So the plugin only
//! observes `wrmsr`. After `rdmsr` and `cpuid` it puts the result into the registers before the next instruction.
//!
//! At the end of a block there is no next instruction, and QEMU has no `rdpmc`. In both cases the plugin sets the
//! result itself, and makes QEMU continue after the instruction (`qemu_plugin_set_pc`). That call does not return to
//! the callback, so the callback must hold no lock and no value with a destructor at that time.

use std::ffi::{c_uint, c_void};

use machine::decode::Operation;
use machine::{Instructions, VirtualAddress};

use super::layout::{PmuRegister, RegisterLayout};
use super::machine::Answer;
use crate::cpu;
use crate::guest::tracker::is_kernel;
use crate::qemu::ffi::{READS_REGISTERS, VcpuCallback, WRITES_PC, WRITES_REGISTERS};
use crate::qemu::leaving::leaving_callback;
use crate::qemu::qemu_internals::MiddleOfBlock;
use crate::qemu::{Registers, TranslatedInstruction};
use crate::session::{self, Session};

/// The leaf of `cpuid` that reports AMD's core performance counter extensions.
const FEATURES_LEAF: u64 = 0x8000_0001;
/// The bit of `ecx` in this leaf that reports the extensions.
const FEATURE_SIX_COUNTERS: u64 = 1 << 23;
/// The bit of CR4 that lets user mode read counters.
const USER_READS_COUNTERS: u64 = 1 << 8;

/// An instruction's use of the PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// `rdmsr`.
    Read,
    /// `wrmsr`.
    Write,
    /// `rdpmc`.
    ReadCounter,
    /// `cpuid`.
    Identify,
}

/// An instruction that may use the PMU.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) pmu_use: Use,
    pub(crate) address: VirtualAddress,
    /// The length of the instruction.
    pub(crate) bytes: u8,
    /// How many instructions of the block are still to execute, this one included.
    pub(crate) remaining: u32,
}

/// How an operation uses a PMU with these registers. `None`: it does not.
pub(crate) fn use_of(layout: RegisterLayout, operation: Operation, in_kernel: bool) -> Option<Use> {
    match operation {
        Operation::WriteMsr if in_kernel => Some(Use::Write),
        Operation::ReadMsr if in_kernel => Some(Use::Read),
        Operation::ReadPmc => Some(Use::ReadCounter),
        Operation::Cpuid if layout.is_announced_by_a_bit() => Some(Use::Identify),
        _ => None,
    }
}

/// Registers callbacks for an instruction that uses the PMU, and for the `next` instruction of its block.
pub(crate) fn annotate(
    session: &mut Session,
    instruction: TranslatedInstruction,
    next: Option<TranslatedInstruction>,
    access: Access,
) {
    let (before, flags): (VcpuCallback, _) = match (access.pmu_use, next) {
        (Use::Write, _) => (on_write, READS_REGISTERS),
        (Use::Read, Some(_)) => (on_read, READS_REGISTERS),
        (Use::Identify, Some(_)) => (on_identify, READS_REGISTERS),
        (Use::ReadCounter | Use::Read, _) => (on_read_and_leave, WRITES_PC),
        (Use::Identify, None) => (on_identify_at_end, WRITES_PC),
    };
    let is_answered_after = matches!(access.pmu_use, Use::Read | Use::Identify);
    let access = session.arena.keep_instruction(access).cast_mut().cast();
    session.qemu.on_instruction_with(instruction, before, flags, access);
    if is_answered_after && let Some(next) = next {
        session.qemu.on_instruction_with(next, on_answer, WRITES_REGISTERS, access);
    }
}

/// The PMU's register that `rdmsr`, `wrmsr` or `rdpmc` accesses. `None` for other registers, and if the guest may not
/// access it.
fn accessed_register(
    session: &mut Session,
    access: &Access,
    registers: Registers,
) -> Option<PmuRegister> {
    let layout = session.pmus.as_ref()?.layout();
    let number = session.qemu.register_value(registers.rcx) & 0xffff_ffff;
    if access.pmu_use != Use::ReadCounter {
        return layout.register_of_msr(number);
    }
    let is_allowed = is_kernel(access.address.0)
        || session.qemu.register_value(registers.cr4?) & USER_READS_COUNTERS != 0;
    if is_allowed { layout.register_of_rdpmc(number) } else { None }
}

/// Calls `use_it` with the session, the running vCPU and the instruction, with the session locked. `None` if `use_it` returns `None`, and without a session or its registers.
fn with_access<R>(
    access: *mut c_void,
    use_it: impl FnOnce(&mut Session, u32, &Access, Registers) -> Option<R>,
) -> Option<R> {
    let vcpu = cpu::running_vcpu();
    // SAFETY: the arena keeps the access while there is code that passes it.
    let access = unsafe { &*access.cast_const().cast::<Access>() };
    let mut guard = session::lock();
    let session = guard.as_mut()?;
    let registers = session.registers?;
    use_it(session, vcpu, access, registers)
}

/// Sets the result that the next instruction of a vCPU must see. `None` if the vCPU has no PMU.
fn set_answer(session: &mut Session, vcpu: u32, answer: Option<Answer>) -> Option<()> {
    session.pmus.as_mut()?.of_vcpu(vcpu)?.answer = answer;
    Some(())
}

/// Reads a register of a vCPU's PMU. `None` if the vCPU has no PMU, or the PMU no such register. `remaining`: instructions
/// of the block from the reading instruction on.
fn read(session: &mut Session, vcpu: u32, register: PmuRegister, remaining: u32) -> Option<u64> {
    let counts = session.pmu_counts(vcpu, remaining);
    session.pmus.as_mut()?.read(vcpu, register, &counts)
}

/// Called before `wrmsr`.
extern "C" fn on_write(_: c_uint, access: *mut c_void) {
    with_access(access, |session, vcpu, access, registers| {
        let register = accessed_register(session, access, registers)?;
        let low = session.qemu.register_value(registers.rax) & 0xffff_ffff;
        let high = session.qemu.register_value(registers.rdx) << 32;
        let now = session.pmu_counts(vcpu, access.remaining);
        let Session { pmus, writer, .. } = session;
        pmus.as_mut()?.write(vcpu, (register, high | low), &now, writer);
        Some(())
    });
}

/// Called before an `rdmsr` that another instruction of its block follows.
extern "C" fn on_read(_: c_uint, access: *mut c_void) {
    with_access(access, |session, vcpu, access, registers| {
        let value = accessed_register(session, access, registers)
            .and_then(|register| read(session, vcpu, register, access.remaining));
        set_answer(session, vcpu, value.map(Answer::Register))
    });
}

/// Called before a `cpuid` that another instruction of its block follows.
extern "C" fn on_identify(_: c_uint, access: *mut c_void) {
    with_access(access, |session, vcpu, _, registers| {
        let features = session.qemu.register_value(registers.rax) & 0xffff_ffff == FEATURES_LEAF;
        set_answer(session, vcpu, features.then_some(Answer::SixCounters))
    });
}

/// Called before the instruction that follows `rdmsr` or `cpuid`. Puts the result into the registers.
extern "C" fn on_answer(_: c_uint, access: *mut c_void) {
    with_access(access, |session, vcpu, _, registers| {
        let vcpu_pmu = session.pmus.as_mut()?.of_vcpu(vcpu)?;
        match vcpu_pmu.answer.take()? {
            Answer::Register(value) => session.qemu.put_edx_eax(registers, value),
            Answer::SixCounters => {
                vcpu_pmu.retried_at = None;
                let features = session.qemu.register_value(registers.rcx) | FEATURE_SIX_COUNTERS;
                session.qemu.set_register(registers.rcx, features).then_some(())
            }
        }
    });
}

leaving_callback!(
    /// Called before an `rdpmc`, or an `rdmsr` that ends its block. Sets the result, and continues after the
    /// instruction.
    on_read_and_leave,
    read_and_leave
);

/// The rest of [`on_read_and_leave`]. `return_address`: where the callback was called in translated code.
extern "C" fn read_and_leave(_: c_uint, access: *mut c_void, return_address: usize) {
    let leave = with_access(access, |session, vcpu, access, registers| {
        let register = accessed_register(session, access, registers)?;
        let value = read(session, vcpu, register, access.remaining)?;
        if !MiddleOfBlock::of_vcpu(vcpu)?.restore(return_address) {
            return None;
        }
        session.qemu.put_edx_eax(registers, value)?;
        cpu::with_vcpu(vcpu, |cpu| cpu.leave_block(access.remaining - 1));
        session.clock.unclocked += Instructions(session.level.is_counting().into());
        let address = session.qemu.instruction_pointer(registers);
        Some((session.qemu.set_pc(), address.plus(access.bytes.into())))
    });
    if let Some((set_pc, address)) = leave {
        // SAFETY: registered with `WRITES_PC`. No value with a destructor is alive: the lock was released above.
        unsafe { set_pc(address.0) };
    }
}

leaving_callback!(
    /// Called before a `cpuid` that ends its block. Leaves the block before the `cpuid`, which then starts another
    /// block. If the `cpuid` also ends that block, its result is not changed.
    on_identify_at_end,
    identify_at_end
);

/// The rest of [`on_identify_at_end`]. `return_address`: where the callback was called in translated code.
extern "C" fn identify_at_end(_: c_uint, access: *mut c_void, return_address: usize) {
    let leave = with_access(access, |session, vcpu, access, registers| {
        let features = session.qemu.register_value(registers.rax) & 0xffff_ffff == FEATURES_LEAF;
        let vcpu_pmu = session.pmus.as_mut()?.of_vcpu(vcpu)?;
        if !features || vcpu_pmu.retried_at.replace(access.address) == Some(access.address) {
            return None;
        }
        if !MiddleOfBlock::of_vcpu(vcpu)?.restore(return_address) {
            return None;
        }
        cpu::with_vcpu(vcpu, |cpu| cpu.leave_block(access.remaining));
        Some((session.qemu.set_pc(), session.qemu.instruction_pointer(registers)))
    });
    if let Some((set_pc, address)) = leave {
        // SAFETY: registered with `WRITES_PC`. No value with a destructor is alive: `with_access` has released its lock.
        unsafe { set_pc(address.0) };
    }
}

#[cfg(test)]
mod tests {
    use machine::identity::Vendor;

    use super::*;

    #[test]
    fn privileged_instructions_mean_something_in_the_kernel_only() {
        let amd = RegisterLayout::of_vendor(Vendor::Amd);
        assert_eq!(use_of(amd, Operation::WriteMsr, true), Some(Use::Write));
        assert_eq!(use_of(amd, Operation::ReadMsr, true), Some(Use::Read));
        assert_eq!(use_of(amd, Operation::WriteMsr, false), None);
        assert_eq!(use_of(amd, Operation::ReadMsr, false), None);
        assert_eq!(use_of(amd, Operation::ReadPmc, false), Some(Use::ReadCounter));
        assert_eq!(use_of(amd, Operation::Cpuid, false), Some(Use::Identify));
        assert_eq!(use_of(amd, Operation::ReadTsc, true), None);
        // The leaf of Intel's PMU is answered by `guest::identity`.
        let intel = RegisterLayout::of_vendor(Vendor::Intel);
        assert_eq!(use_of(intel, Operation::Cpuid, false), None);
    }
}
