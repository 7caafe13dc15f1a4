//! Answers `cpuid` and `rdmsr` in place of QEMU, where the guest must see the processor of the model: sizes of caches,
//! and registers that tell the kernel which bugs the processor has.
//!
//! The plugin puts the answer into the registers, and makes QEMU continue after the instruction
//! (`qemu_plugin_set_pc`). That call does not return to the callback, so the callback must hold no lock and no value
//! with a destructor at that time. Instructions without an answer execute as QEMU executes them.

use std::ffi::{c_uint, c_void};

use machine::decode::Operation;
use machine::{Instructions, VirtualAddress};
use plugin_interface::options::{CpuidLeaf, Options};

use crate::cpu;
use crate::qemu::ffi::{SetPc, WRITES_PC};
use crate::qemu::leaving::leaving_callback;
use crate::qemu::qemu_internals::MiddleOfBlock;
use crate::qemu::{Registers, TranslatedInstruction};
use crate::session::{self, Session};

/// An instruction that asks about the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Cpuid,
    /// `rdmsr`, of a register that identifies the processor.
    Msr,
}

/// A question, and where in the code it is asked.
#[derive(Debug)]
struct AskingInstruction {
    question: Question,
    /// The length of the instruction.
    bytes: u8,
    /// How many instructions of the block are still to execute, this one included.
    remaining: u32,
}

/// The question that an operation asks, if the options have an answer for some of its kind.
pub(crate) fn question_of(
    operation: Operation,
    in_kernel: bool,
    options: &Options,
) -> Option<Question> {
    match operation {
        Operation::Cpuid if !options.cpuid.is_empty() => Some(Question::Cpuid),
        Operation::ReadMsr if in_kernel && !options.msrs.is_empty() => Some(Question::Msr),
        _ => None,
    }
}

/// Checks that this QEMU has what the answers of the options need.
pub(crate) fn check(options: &Options) -> Result<(), String> {
    let has_answers = !options.cpuid.is_empty() || !options.msrs.is_empty();
    if has_answers && !MiddleOfBlock::is_exported() {
        return Err("this QEMU has no cpu_restore_state, which cpuid= and msr= need".to_owned());
    }
    Ok(())
}

/// Registers the callback of an instruction that asks. `remaining`: how many instructions of its block are still to
/// execute, this one included.
pub(crate) fn watch(
    session: &mut Session,
    instruction: TranslatedInstruction,
    question: Question,
    (bytes, remaining): (u8, u32),
) {
    let asking = AskingInstruction { question, bytes, remaining };
    let asking = session.arena.keep_instruction(asking).cast_mut().cast();
    session.qemu.on_instruction_with(instruction, on_question, WRITES_PC, asking);
}

leaving_callback!(
    /// Called before an instruction that asks.
    on_question,
    answer
);

/// The rest of [`on_question`]. `return_address`: where the callback was called in translated code.
extern "C" fn answer(_: c_uint, asking: *mut c_void, return_address: usize) {
    // SAFETY: the arena keeps the instruction while there is code that passes it.
    let asking = unsafe { &*asking.cast_const().cast::<AskingInstruction>() };
    let leave = {
        let mut guard = session::lock();
        guard.as_mut().and_then(|session| answered(session, asking, return_address))
    };
    if let Some((set_pc, next)) = leave {
        // SAFETY: registered with `WRITES_PC`. No value with a destructor is alive: the lock was released above.
        unsafe { set_pc(next.0) };
    }
}

/// Puts the answer into the registers. Returns the function that continues at another instruction, and the address after this
/// one. `None`: there is no answer, and QEMU executes the instruction.
fn answered(
    session: &mut Session,
    asking: &AskingInstruction,
    return_address: usize,
) -> Option<(SetPc, VirtualAddress)> {
    let vcpu = cpu::running_vcpu();
    let registers = session.registers?;
    let asked = session.qemu.register_value(registers.rcx) as u32;
    match asking.question {
        Question::Msr => {
            let msr = session.options.msrs.iter().find(|msr| msr.number == asked)?.value;
            restore_state(vcpu, return_address)?;
            session.qemu.put_edx_eax(registers, msr)?;
        }
        Question::Cpuid => {
            let leaf = session.qemu.register_value(registers.rax) as u32;
            let answer = leaf_of(&session.options.cpuid, leaf, asked)?;
            restore_state(vcpu, return_address)?;
            put_leaf(session, registers, answer)?;
        }
    }
    cpu::with_vcpu(vcpu, |cpu| cpu.leave_block(asking.remaining - 1));
    session.clock.unclocked += Instructions(session.level.is_counting().into());
    let address = session.qemu.instruction_pointer(registers);
    Some((session.qemu.set_pc(), address.plus(asking.bytes.into())))
}

/// Restores QEMU's state in the middle of a block, which QEMU does not always store. `None` if QEMU cannot restore it.
fn restore_state(vcpu: u32, return_address: usize) -> Option<()> {
    MiddleOfBlock::of_vcpu(vcpu)?.restore(return_address).then_some(())
}

/// The answer for a leaf and the content of `ecx`. `None` if `answers` has no such answer.
fn leaf_of(answers: &[CpuidLeaf], leaf: u32, ecx: u32) -> Option<CpuidLeaf> {
    let is_asked = |answer: &&CpuidLeaf| {
        answer.leaf == leaf && answer.subleaf.is_none_or(|subleaf| subleaf == ecx)
    };
    answers.iter().find(is_asked).copied()
}

/// Puts the answer of `cpuid` into the vCPU's registers, and zeroes their upper halves. `None` if QEMU refuses a register.
fn put_leaf(session: &mut Session, registers: Registers, answer: CpuidLeaf) -> Option<()> {
    let Registers { rax, rbx, rcx, rdx, .. } = registers;
    let CpuidLeaf { eax, ebx, ecx, edx, .. } = answer;
    let mut all_written = true;
    for (register, value) in [(rax, eax), (rbx, ebx), (rcx, ecx), (rdx, edx)] {
        all_written &= session.qemu.set_register(register, value.into());
    }
    all_written.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(leaf: u32, subleaf: Option<u32>) -> CpuidLeaf {
        CpuidLeaf { leaf, subleaf, eax: 1, ebx: 2, ecx: 3, edx: 4 }
    }

    #[test]
    fn an_answer_is_for_its_subleaf_or_for_all() {
        let answers = [leaf(4, Some(0)), leaf(4, Some(1)), leaf(0x8000_0006, None)];
        assert_eq!(leaf_of(&answers, 4, 1), Some(answers[1]));
        assert_eq!(leaf_of(&answers, 4, 2), None);
        assert_eq!(leaf_of(&answers, 0x8000_0006, 77), Some(answers[2]));
        assert_eq!(leaf_of(&answers, 5, 0), None);
    }

    #[test]
    fn without_answers_nothing_is_watched() {
        let mut options = Options::default();
        let asks = |options: &Options, operation| question_of(operation, true, options);
        assert_eq!(asks(&options, Operation::Cpuid), None);
        assert_eq!(asks(&options, Operation::ReadMsr), None);
        options.msrs.push(plugin_interface::options::MsrValue { number: 0x10a, value: 1 });
        options.cpuid.push(leaf(4, Some(0)));
        assert_eq!(asks(&options, Operation::Cpuid), Some(Question::Cpuid));
        assert_eq!(asks(&options, Operation::ReadMsr), Some(Question::Msr));
        assert_eq!(question_of(Operation::ReadMsr, false, &options), None);
    }
}
