//! Prepares a block when QEMU translates it: decodes its instructions, makes its description, and registers the
//! callbacks of the block, its accesses, and the instructions at which the plugin acts.
//!
//! QEMU calls it through `callbacks.rs`, in the vCPUs' thread. A block is translated rarely and executed often. So
//! everything that can be decided here is decided here, and the executed callbacks stay short.

use std::ffi::c_void;
use std::ops::Range;

use machine::block_trace::BlockCode;
use machine::decode::{Decoded, Operation};
use machine::{CodeBlock, CodeSpan, PhysicalAddress, VirtualAddress};

use crate::cpu::{ooo, plain, shadow_caches, timed};
use crate::devices::drain;
use crate::guest::annotations;
use crate::guest::identity::{self, Question};
use crate::guest::tracker::is_kernel;
use crate::models::physical;
use crate::models::template::template;
use crate::models::translation_points;
use crate::pmu::msr;
use crate::qemu::before_block::DueWork;
use crate::qemu::block::{ActionPoint, Block, BlockProperties, OooBlock, ShadowBlock};
use crate::qemu::ffi::{
    AccessCallbacks, READS, READS_AND_WRITES, READS_REGISTERS, VcpuCallback, WRITES,
    WRITES_REGISTERS,
};
use crate::qemu::{TranslatedBlock, TranslatedInstruction};
use crate::session::Session;
use crate::time::pause;
use plugin_interface::symbols::Action;
use simrecord::marker;
use simrecord::record::Detail;

/// The size of the guest's pages, as a power of two.
const PAGE_SHIFT: u32 = 12;

/// An instruction of a block that is being translated.
struct Instruction {
    handle: TranslatedInstruction,
    address: VirtualAddress,
    bytes: u8,
    decoded: Decoded,
    /// The plugin takes this action before the instruction executes.
    action: Option<Action>,
    /// How the instruction uses the guest's PMU, if the guest has one.
    pmu: Option<msr::Use>,
    /// The instruction's question about the processor, if the plugin has answers of this kind.
    question: Option<Question>,
}

/// Prepares a block that QEMU is about to translate. `on_point`: the callback of instructions at which the plugin acts.
pub(crate) fn prepare(session: &mut Session, block: TranslatedBlock, on_point: VcpuCallback) {
    let instructions = decode(session, block);
    annotate(session, &instructions, on_point);
    annotate_questions(session, &instructions);
    annotate_pmu(session, &instructions);
    let Some((first, last)) = instructions.first().zip(instructions.last()) else { return };
    // With several vCPUs, blocks are counted also while only markers are recorded: time slices need it.
    if !session.level.is_counting() && session.cpus == 1 {
        return;
    }
    let properties = BlockProperties {
        in_kernel: is_kernel(first.address.0),
        ends_in_branch: last.decoded.is_branch(),
        ends_in_trap: last.decoded.operation() == Operation::SoftwareInterrupt,
        acts_outside: instructions.iter().any(|instruction| instruction.decoded.may_act_outside()),
    };
    let addresses: Vec<_> = instructions.iter().map(|instruction| instruction.address).collect();
    let range = first.address..last.address.plus(last.bytes.into());
    let code = session.models.fetch_line_shift().map_or_else(CodeBlock::default, |shift| {
        let (first, second) = spans(&range);
        CodeBlock::new(shift, instructions.len() as u32, first, second)
    });
    let description = Block::new(&addresses, properties, code);
    let has_shadow_caches =
        session.level.current() == Detail::Count && session.models.has_shadow_caches();
    let prepared = match session.models.layout() {
        Some(layout) if session.level.current() == Detail::Ooo => {
            let code =
                instructions.iter().map(|instruction| (&instruction.decoded, instruction.bytes));
            let template = template(&mut session.decoder, layout, spans(&range), code);
            let kept_block = session.arena.keep_template(OooBlock { description, template });
            trace(session, kept_block, spans(&range), &instructions);
            kept_block.cast()
        }
        _ if has_shadow_caches => {
            session.arena.keep_spans(ShadowBlock { description, spans: spans(&range) }).cast()
        }
        _ => session.arena.keep_block(description),
    };
    let on_block = match session.level.current() {
        Detail::Timed if session.cpus > 1 => timed::on_block::<DueWork, false>,
        Detail::Timed => timed::on_block::<DueWork, true>,
        Detail::Ooo if session.cpus > 1 => ooo::on_block::<DueWork, false>,
        Detail::Ooo => ooo::on_block::<DueWork, true>,
        _ if has_shadow_caches && session.cpus > 1 => shadow_caches::on_block::<DueWork, false>,
        _ if has_shadow_caches => shadow_caches::on_block::<DueWork, true>,
        _ if session.cpus > 1 => plain::on_block_of_several_vcpus::<DueWork>,
        _ => plain::on_block::<DueWork>,
    };
    let register_access =
        if session.clock.follows_model() { WRITES_REGISTERS } else { READS_REGISTERS };
    let prepared = prepared.cast_mut().cast();
    session.qemu.on_block(block, on_block, register_access, prepared);
    match session.level.current() {
        Detail::Timed => watch(session, &instructions, timed::access_callbacks(session.cpus)),
        _ if has_shadow_caches => {
            watch(session, &instructions, shadow_caches::access_callbacks(session.cpus));
        }
        Detail::Ooo => watch_ooo(session, &instructions, prepared),
        _ => {}
    }
    // A repeated string instruction ends its block, so QEMU never leaves a block early to execute one alone.
    if matches!(session.level.current(), Detail::Count | Detail::Timed)
        && let [single] = &instructions[..]
        && !single.decoded.is_repeated_string()
    {
        session.qemu.on_memory(single.handle, READS_AND_WRITES, plain::on_single_access, prepared);
    }
}

/// Passes the code of a block to the trace, if there is a trace.
fn trace(
    session: &mut Session,
    kept_block: *const OooBlock,
    spans: (CodeSpan, Option<CodeSpan>),
    instructions: &[Instruction],
) {
    let processors = session.models.processors();
    let Some(trace) = processors.and_then(|processors| processors.trace()) else { return };
    let bytes = |instruction: &Instruction| {
        let (bytes, length) = session.qemu.bytes(instruction.handle);
        bytes[..length].to_vec()
    };
    let code = BlockCode { spans, instructions: instructions.iter().map(bytes).collect() };
    // SAFETY: the arena keeps the block; only an address is taken, and nothing is read.
    trace.translated(unsafe { &raw const (*kept_block).template }, code);
}

/// Registers callbacks that pass each access of the instructions to caches. Their argument is the instruction's address.
fn watch(session: &mut Session, instructions: &[Instruction], callbacks: AccessCallbacks) {
    for instruction in instructions {
        let address = std::ptr::without_provenance_mut(instruction.address.0 as usize);
        session.qemu.on_memory(instruction.handle, READS, callbacks.on_load, address);
        session.qemu.on_memory(instruction.handle, WRITES, callbacks.on_store, address);
    }
    watch_translations(session, instructions);
}

/// Registers callbacks for the instructions that change address translations or flush a cache line.
fn watch_translations(session: &mut Session, instructions: &[Instruction]) {
    for (index, instruction) in instructions.iter().enumerate() {
        if let Some(change) = instruction.decoded.translation_change() {
            let remaining = (instructions.len() - index) as u32;
            let change_and_address = (change, instruction.address);
            translation_points::watch(session, instruction.handle, change_and_address, remaining);
        }
        if session.level.current().has_model()
            && let Some(flush) = instruction.decoded.flushed_line()
        {
            let remaining = (instructions.len() - index) as u32;
            translation_points::watch_flush(session, instruction.handle, flush, remaining);
        }
    }
}

/// Registers callbacks that pass each access of the instructions to the pipeline of the level `ooo`.
fn watch_ooo(session: &mut Session, instructions: &[Instruction], block: *mut c_void) {
    let is_single = matches!(instructions, [single] if !single.decoded.is_repeated_string());
    let AccessCallbacks { on_load, on_store } = ooo::access_callbacks(session.cpus, is_single);
    for (number, instruction) in instructions.iter().enumerate() {
        let data = if is_single { block } else { std::ptr::without_provenance_mut(number) };
        session.qemu.on_memory(instruction.handle, READS, on_load, data);
        session.qemu.on_memory(instruction.handle, WRITES, on_store, data);
    }
    watch_translations(session, instructions);
}

/// Decodes the instructions of a block, and finds out how the plugin acts on them.
fn decode(session: &Session, block: TranslatedBlock) -> Vec<Instruction> {
    let symbols = &session.tracker.symbols;
    let decode_instruction = |(handle, address): (TranslatedInstruction, VirtualAddress)| {
        let (bytes, length) = session.qemu.bytes(handle);
        let decoded = session.decoder.decode(&bytes[..length], address);
        let (in_kernel, bytes) = (is_kernel(address.0), length as u8);
        let action = action_of(decoded.operation(), in_kernel).or_else(|| {
            let kernel = in_kernel.then_some(symbols)?;
            if kernel.calls_irq_handler(address.0, &decoded) {
                Some(Action::IrqCall { bytes })
            } else if let Some(raise) = kernel.softirq_raise_action(address.0, &decoded) {
                Some(raise)
            } else if let Some(call) = kernel.queued_call_action(address.0, &decoded, bytes) {
                Some(call)
            } else if let Some((kind, register)) = kernel.callback_call(address.0, &decoded) {
                Some(Action::CallbackCall { kind, register, bytes })
            } else {
                kernel.action_at(address.0)
            }
        });
        let pmu = session
            .pmus
            .as_ref()
            .and_then(|pmus| msr::use_of(pmus.layout(), decoded.operation(), in_kernel));
        let question = identity::question_of(decoded.operation(), in_kernel, &session.options);
        Instruction { handle, address, bytes, decoded, action, pmu, question }
    };
    session.qemu.instructions(block).map(decode_instruction).collect()
}

/// The action at an operation, wherever the instruction is. `None`: the operation alone needs no action. Returns of
/// firmware do not matter.
fn action_of(operation: Operation, in_kernel: bool) -> Option<Action> {
    match operation {
        Operation::InterruptReturn if in_kernel => Some(Action::InterruptReturn),
        Operation::SyscallReturn if in_kernel => Some(Action::SyscallReturn),
        Operation::ReadTsc => Some(Action::ReadClock),
        Operation::WriteLocalApic if in_kernel => Some(Action::WriteLocalApic),
        Operation::Halt => Some(Action::Halt),
        Operation::Cpuid => Some(Action::Cpuid),
        Operation::Pause => Some(Action::Pause),
        Operation::LongNop(marker::DISPLACEMENT) => Some(Action::Marker),
        _ => None,
    }
}

/// Registers callbacks for the instructions at which the plugin acts: devices, pauses, followed
/// instructions and annotations.
fn annotate(session: &mut Session, instructions: &[Instruction], on_point: VcpuCallback) {
    for (index, instruction) in instructions.iter().enumerate() {
        let is_last = index + 1 == instructions.len();
        let Session { qemu, decoder, .. } = session;
        drain::watch((qemu, decoder), instruction.handle, &instruction.decoded, is_last);
        if session.level.current() == Detail::Fast
            && instruction.decoded.operation() == Operation::Pause
        {
            pause::watch(&session.qemu, instruction.handle);
        }
        let remaining = (instructions.len() - index) as u32;
        let has_own_clock = session.level.current().has_model() && session.clock.follows_model();
        let is_wanted = |action: &Action| match action {
            Action::Marker | Action::Halt => true,
            Action::Pause => session.pauses_wait(),
            Action::ReadClock | Action::WriteLocalApic => has_own_clock,
            Action::Cpuid => {
                session.level.current().has_model() && session.models.exits().is_some()
            }
            _ => session.level.is_counting(),
        };
        if let Some(action) = instruction.action.filter(is_wanted) {
            let point = ActionPoint { action, address: instruction.address, remaining };
            let point = session.arena.keep_instruction(point);
            session.qemu.on_instruction(instruction.handle, on_point, point.cast_mut().cast());
        }
        annotations::watch(session, instruction.handle, instruction.address, remaining);
    }
}

/// Registers callbacks for the instructions that ask about the processor.
fn annotate_questions(session: &mut Session, instructions: &[Instruction]) {
    for (index, instruction) in instructions.iter().enumerate() {
        if let Some(question) = instruction.question {
            let remaining = (instructions.len() - index) as u32;
            let bytes_and_remaining = (instruction.bytes, remaining);
            identity::watch(session, instruction.handle, question, bytes_and_remaining);
        }
    }
}

/// Registers callbacks for the instructions that use the guest's PMU.
fn annotate_pmu(session: &mut Session, instructions: &[Instruction]) {
    for (index, instruction) in instructions.iter().enumerate() {
        if let Some(pmu_use) = instruction.pmu {
            let next = instructions.get(index + 1).map(|next| next.handle);
            let remaining = (instructions.len() - index) as u32;
            let access = msr::Access {
                pmu_use,
                address: instruction.address,
                bytes: instruction.bytes,
                remaining,
            };
            msr::annotate(session, instruction.handle, next, access);
        }
    }
}

/// The parts of a block in each of the one or two pages that it covers. The argument is the range of its addresses.
fn spans(&Range { start, end }: &Range<VirtualAddress>) -> (CodeSpan, Option<CodeSpan>) {
    let border = start.block_start(PAGE_SHIFT).plus(1 << PAGE_SHIFT);
    let span = |start: VirtualAddress, end: VirtualAddress| CodeSpan {
        virtual_address: start,
        // A translated block is mapped. If QEMU cannot translate its address, the virtual address is used.
        physical: physical::translate(start).unwrap_or(PhysicalAddress(start.0)),
        bytes: end.bytes_after(start) as u32,
    };
    if end <= border || border == VirtualAddress(0) {
        (span(start, end), None)
    } else {
        (span(start, border), Some(span(border, end)))
    }
}

#[cfg(test)]
mod tests {
    use machine::decode::Decoder;

    use super::*;

    fn action(bytes: &[u8], in_kernel: bool) -> Option<Action> {
        action_of(Decoder::default().decode(bytes, VirtualAddress(0)).operation(), in_kernel)
    }

    #[test]
    fn returns_are_recognised_in_the_kernel_only() {
        assert_eq!(action(&[0x48, 0xcf], true), Some(Action::InterruptReturn));
        assert_eq!(action(&[0x48, 0x0f, 0x07], true), Some(Action::SyscallReturn));
        assert_eq!(action(&[0x48, 0xcf], false), None);
        assert_eq!(action(&[0x48, 0x0f, 0x05], true), None); // syscall
        let write = [0x89, 0xb7, 0x00, 0xc0, 0x5f, 0xff]; // native_apic_mem_write
        assert_eq!(action(&write, true), Some(Action::WriteLocalApic));
        assert_eq!(action(&write, false), None);
    }

    #[test]
    fn a_marker_is_recognised_everywhere_and_padding_is_not_one() {
        assert_eq!(action(&marker::BYTES, false), Some(Action::Marker));
        assert_eq!(action(&marker::BYTES, true), Some(Action::Marker));
        assert_eq!(action(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], true), None);
    }

    #[test]
    fn readings_of_the_clock_are_recognised_everywhere() {
        assert_eq!(action(&[0x0f, 0x31], false), Some(Action::ReadClock));
        assert_eq!(action(&[0x0f, 0x01, 0xf9], true), Some(Action::ReadClock));
        assert_eq!(action(&[0x0f, 0x01, 0xf8], true), None); // swapgs
    }
}
