//! Prepares a block when QEMU translates it: decodes its instructions, makes its description, and registers callbacks
//! for the instructions on which the plugin acts.

use std::ffi::c_void;
use std::ops::Range;

use machine::block_trace::BlockCode;
use machine::decode::{Decoded, Operation};
use machine::{CodeBlock, CodeSpan, VirtualAddress};

use crate::cpu::{ooo, plain, shadow_caches, timed};
use crate::devices::drain;
use crate::guest::annotations;
use crate::guest::tracker::is_kernel;
use crate::models::physical;
use crate::models::template::template;
use crate::models::translation_points;
use crate::pmu::msr;
use crate::qemu::before_block::WhatIsDue;
use crate::qemu::block::{Block, Kind, OooBlock, Point, ShadowBlock};
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

/// The pages of the guest.
const PAGE_BYTES: u64 = 4_096;

/// An instruction of a block that is being translated.
struct Instruction {
    handle: TranslatedInstruction,
    address: u64,
    bytes: u8,
    decoded: Decoded,
    /// The action before the instruction executes.
    action: Option<Action>,
    /// How it uses the guest's PMU.
    pmu: Option<msr::Use>,
}

/// Prepares a block that is about to be translated.
pub(crate) fn prepare(session: &mut Session, block: TranslatedBlock, on_point: VcpuCallback) {
    let instructions = decode(session, block);
    annotate(session, &instructions, on_point);
    annotate_pmu(session, &instructions);
    let Some((first, last)) = instructions.first().zip(instructions.last()) else { return };
    if !session.level.counts() && session.cpus == 1 {
        return;
    }
    let kind = Kind {
        in_kernel: is_kernel(first.address),
        ends_in_branch: last.decoded.is_branch(),
        ends_in_trap: last.decoded.operation() == Operation::SoftwareInterrupt,
        acts_outside: instructions.iter().any(|instruction| instruction.decoded.may_act_outside()),
    };
    let addresses: Vec<u64> = instructions.iter().map(|instruction| instruction.address).collect();
    let range = first.address..last.address + u64::from(last.bytes);
    let code = session.models.fetch_line_shift().map_or_else(CodeBlock::default, |shift| {
        let (first, second) = spans(&range);
        CodeBlock::new(shift, instructions.len() as u32, first, second)
    });
    let known = Block::new(&addresses, kind, code);
    let has_shadow_caches =
        session.level.now() == Detail::Count && session.models.has_shadow_caches();
    let prepared = match session.models.layout() {
        Some(layout) if session.level.now() == Detail::Ooo => {
            let code =
                instructions.iter().map(|instruction| (&instruction.decoded, instruction.bytes));
            let template = template(&mut session.decoder, layout, spans(&range), code);
            let kept = session.arena.keep_template(OooBlock { known, template });
            trace(session, kept, spans(&range), &instructions);
            kept.cast()
        }
        _ if has_shadow_caches => {
            session.arena.keep_spans(ShadowBlock { known, spans: spans(&range) }).cast()
        }
        _ => session.arena.keep_block(known),
    };
    let on_block = match session.level.now() {
        Detail::Timed if session.cpus > 1 => timed::on_block::<WhatIsDue, false>,
        Detail::Timed => timed::on_block::<WhatIsDue, true>,
        Detail::Ooo if session.cpus > 1 => ooo::on_block::<WhatIsDue, false>,
        Detail::Ooo => ooo::on_block::<WhatIsDue, true>,
        _ if has_shadow_caches && session.cpus > 1 => shadow_caches::on_block::<WhatIsDue, false>,
        _ if has_shadow_caches => shadow_caches::on_block::<WhatIsDue, true>,
        _ if session.cpus > 1 => plain::on_block_of_slice::<WhatIsDue>,
        _ => plain::on_block::<WhatIsDue>,
    };
    let right = if session.clock.follows_model() { WRITES_REGISTERS } else { READS_REGISTERS };
    let prepared = prepared.cast_mut().cast();
    session.qemu.on_block(block, on_block, right, prepared);
    match session.level.now() {
        Detail::Timed => watch(session, &instructions, timed::accesses(session.cpus)),
        _ if has_shadow_caches => {
            watch(session, &instructions, shadow_caches::accesses(session.cpus));
        }
        Detail::Ooo => watch_ooo(session, &instructions, prepared),
        _ => {}
    }
    // A repeated instruction is the last of its block, so that block is never left early at it.
    if matches!(session.level.now(), Detail::Count | Detail::Timed)
        && let [single] = &instructions[..]
        && !single.decoded.is_repeated_string()
    {
        session.qemu.on_memory(single.handle, READS_AND_WRITES, plain::on_single_access, prepared);
    }
}

/// Passes the code of a block to the trace, if there is a trace.
fn trace(
    session: &mut Session,
    kept: *const OooBlock,
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
    trace.translated(unsafe { &raw const (*kept).template }, code);
}

/// Registers callbacks that pass accesses to caches.
fn watch(session: &mut Session, instructions: &[Instruction], callbacks: AccessCallbacks) {
    for instruction in instructions {
        session.qemu.on_memory(instruction.handle, READS, callbacks.on_load, std::ptr::null_mut());
        session.qemu.on_memory(
            instruction.handle,
            WRITES,
            callbacks.on_store,
            std::ptr::null_mut(),
        );
    }
    watch_translations(session, instructions);
}

/// Has the caches follow instructions that change translations.
fn watch_translations(session: &mut Session, instructions: &[Instruction]) {
    for (index, instruction) in instructions.iter().enumerate() {
        if let Some(change) = instruction.decoded.translation_change() {
            let remaining = (instructions.len() - index) as u32;
            translation_points::watch(session, instruction.handle, change, remaining);
        }
        if session.level.now() == Detail::Ooo
            && let Some(flush) = instruction.decoded.flushed_line()
        {
            let remaining = (instructions.len() - index) as u32;
            translation_points::watch_flush(session, instruction.handle, flush, remaining);
        }
    }
}

/// Registers callbacks that pass accesses to the pipeline of the level `ooo`.
fn watch_ooo(session: &mut Session, instructions: &[Instruction], block: *mut c_void) {
    let is_single = matches!(instructions, [single] if !single.decoded.is_repeated_string());
    let AccessCallbacks { on_load, on_store } = ooo::accesses(session.cpus, is_single);
    for (number, instruction) in instructions.iter().enumerate() {
        let data = if is_single { block } else { std::ptr::without_provenance_mut(number) };
        session.qemu.on_memory(instruction.handle, READS, on_load, data);
        session.qemu.on_memory(instruction.handle, WRITES, on_store, data);
    }
    watch_translations(session, instructions);
}

fn decode(session: &Session, block: TranslatedBlock) -> Vec<Instruction> {
    let symbols = &session.tracker.symbols;
    let decode_one = |(handle, address): (TranslatedInstruction, u64)| {
        let (bytes, length) = session.qemu.bytes(handle);
        let decoded = session.decoder.decode(&bytes[..length], address);
        let (in_kernel, bytes) = (is_kernel(address), length as u8);
        let action = action_of(decoded.operation(), in_kernel).or_else(|| {
            let kernel = in_kernel.then_some(symbols)?;
            if kernel.calls_irq_handler(address, &decoded) {
                Some(Action::IrqCall { bytes })
            } else {
                kernel.action_at(address)
            }
        });
        let has_pmu = session.pmus.is_some();
        let pmu = if has_pmu { msr::use_of(decoded.operation(), in_kernel) } else { None };
        Instruction { handle, address, bytes, decoded, action, pmu }
    };
    session.qemu.instructions(block).map(decode_one).collect()
}

/// The meaning of an operation by itself, wherever it is. Firmware has no returns that matter here.
fn action_of(operation: Operation, in_kernel: bool) -> Option<Action> {
    match operation {
        Operation::InterruptReturn if in_kernel => Some(Action::InterruptReturn),
        Operation::SyscallReturn if in_kernel => Some(Action::SyscallReturn),
        Operation::ReadTsc => Some(Action::ReadClock),
        Operation::WriteLocalApic if in_kernel => Some(Action::WriteLocalApic),
        Operation::Halt => Some(Action::Halt),
        Operation::Pause => Some(Action::Pause),
        Operation::LongNop(marker::DISPLACEMENT) => Some(Action::Marker),
        _ => None,
    }
}

/// Registers the callback for the instructions on which the plugin acts.
fn annotate(session: &mut Session, instructions: &[Instruction], on_point: VcpuCallback) {
    for (index, instruction) in instructions.iter().enumerate() {
        let is_last = index + 1 == instructions.len();
        let Session { qemu, decoder, .. } = session;
        drain::watch((qemu, decoder), instruction.handle, &instruction.decoded, is_last);
        if session.level.now() == Detail::Fast
            && instruction.decoded.operation() == Operation::Pause
        {
            pause::watch(&session.qemu, instruction.handle);
        }
        let remaining = (instructions.len() - index) as u32;
        let has_own_clock = session.level.now().has_model() && session.clock.follows_model();
        let wanted = |action: &Action| match action {
            Action::Marker | Action::Halt => true,
            Action::Pause => session.pauses_wait(),
            Action::ReadClock | Action::WriteLocalApic => has_own_clock,
            _ => session.level.counts(),
        };
        let action = instruction.action.filter(wanted);
        // Counts must not decrease. So a return, which charges the instruction to another context, comes last.
        let annotations_come_last = !action.is_some_and(Action::is_return);
        if !annotations_come_last {
            annotations::watch(session, instruction.handle, instruction.address, remaining);
        }
        if let Some(action) = action {
            let point = Point { action, address: instruction.address, remaining };
            let point = session.arena.keep_instruction(point);
            session.qemu.on_instruction(instruction.handle, on_point, point.cast_mut().cast());
        }
        if annotations_come_last {
            annotations::watch(session, instruction.handle, instruction.address, remaining);
        }
    }
}

/// Registers the guest's PMU for the instructions that use it.
fn annotate_pmu(session: &mut Session, instructions: &[Instruction]) {
    for (index, instruction) in instructions.iter().enumerate() {
        if let Some(what) = instruction.pmu {
            let next = instructions.get(index + 1).map(|next| next.handle);
            let remaining = (instructions.len() - index) as u32;
            let access = msr::Access {
                what,
                address: instruction.address,
                bytes: instruction.bytes,
                remaining,
            };
            msr::annotate(session, instruction.handle, next, access);
        }
    }
}

/// The one or two pages that a block at these addresses lies in.
fn spans(&Range { start, end }: &Range<u64>) -> (CodeSpan, Option<CodeSpan>) {
    let border = (start | (PAGE_BYTES - 1)).wrapping_add(1);
    let span = |from: u64, to: u64| CodeSpan {
        virtual_address: from,
        // A translated block is mapped. If QEMU cannot translate its address, the virtual address is used.
        physical: physical::of_address(VirtualAddress(from)).map_or(from, |physical| physical.0),
        bytes: (to - from) as u32,
    };
    if end <= border || border == 0 {
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
        action_of(Decoder::default().decode(bytes, 0).operation(), in_kernel)
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
