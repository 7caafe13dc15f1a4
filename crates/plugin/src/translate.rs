//! What is done when a block is translated: its description is prepared, and the instructions that
//! mean something are annotated.

use std::ffi::c_void;

use machine::{CodeBlock, CodeSpan};

use crate::block::{BesideBlock, Block, Kind, OooBlock, Point};
use crate::cpu::{self, beside, ooo, timed};
use crate::ffi::{
    MemoryCallback, READS, READS_AND_WRITES, READS_REGISTERS, VcpuCallback, WRITES,
    WRITES_REGISTERS,
};
use crate::notes;
use crate::physical;
use crate::pmu::msr;
use crate::qemu::{TranslatedBlock, TranslatedInstruction};
use crate::session::Session;
use crate::settle::{self, Rings};
use crate::symbols::Action;
use crate::template::template;
use crate::tracker::is_kernel;
use simrecord::marker;
use simrecord::record::Detail;

/// The pages of the guest.
const PAGE_BYTES: u64 = 4_096;

/// What the bytes of an instruction say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Decoded {
    action: Option<Action>,
    /// A software interrupt: `int3`, `int N`.
    trap: bool,
    /// A string instruction that repeats itself. Each repetition is a block of its own.
    repeats: bool,
    /// A call, return or jump.
    branch: bool,
    /// It changes translations of addresses: `mov` to cr0, cr3 or cr4, `invlpg`, `invpcid`.
    flushes: bool,
}

fn decode(bytes: &[u8], in_kernel: bool) -> Decoded {
    let mut decoded = Decoded::default();
    match *bytes {
        [0xcc] | [0xcd, _] => decoded.trap = true,
        // In the kernel, returns have an operand of 64 bits; in firmware they mean nothing to us.
        [0x48, 0xcf] if in_kernel => decoded.action = Some(Action::InterruptReturn),
        [0x48, 0x0f, 0x07] | [0x0f, 0x07] | [0x48, 0x0f, 0x35] | [0x0f, 0x35] if in_kernel => {
            decoded.action = Some(Action::SyscallReturn);
        }
        [0x0f, 0x31] | [0x0f, 0x01, 0xf9] => decoded.action = Some(Action::ReadClock),
        // Firmware halts, too.
        [0xf4] => decoded.action = Some(Action::Halt),
        [0x0f, 0x22, modrm, ..] | [0x41, 0x0f, 0x22, modrm, ..] => {
            decoded.flushes = matches!(modrm >> 3 & 7, 0 | 3 | 4)
        }
        [0x0f, 0x01, modrm, ..] => decoded.flushes = modrm >> 6 != 3 && modrm >> 3 & 7 == 7,
        [0x66, 0x0f, 0x38, 0x82, ..] => decoded.flushes = true,
        _ if bytes == marker::BYTES => decoded.action = Some(Action::Marker),
        _ => decode_prefixed(bytes, &mut decoded),
    }
    decoded
}

/// Skips prefixes, and looks for branches and repeated string instructions.
fn decode_prefixed(bytes: &[u8], decoded: &mut Decoded) {
    let is_prefix =
        |byte: &u8| matches!(byte, 0xf0 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64..=0x67);
    let prefixes = bytes.iter().take_while(|byte| is_prefix(byte)).count();
    let repeated = bytes[..prefixes].iter().any(|byte| matches!(byte, 0xf2 | 0xf3));
    let rest = match bytes[prefixes..] {
        [0x40..=0x4f, ref rest @ ..] => rest,
        ref rest => rest,
    };
    match *rest {
        [0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf, ..] => decoded.repeats = repeated,
        [0x70..=0x7f | 0xc2 | 0xc3 | 0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb, ..] => decoded.branch = true,
        [0x0f, 0x80..=0x8f, ..] => decoded.branch = true,
        [0xff, modrm, ..] => decoded.branch = matches!(modrm >> 3 & 7, 2..=5),
        _ => {}
    }
}

/// An instruction of a block that is being translated.
struct Instruction {
    handle: TranslatedInstruction,
    address: u64,
    code: ([u8; 16], usize),
    decoded: Decoded,
    rings: Rings,
    pmu: Option<msr::Use>,
}

/// Prepares a block that is about to be translated.
pub(crate) fn prepare(session: &mut Session, block: TranslatedBlock, on_point: VcpuCallback) {
    let instructions = decoded(session, block);
    annotate(session, &instructions, on_point);
    annotate_pmu(session, &instructions);
    let Some((first, last)) = instructions.first().zip(instructions.last()) else { return };
    if !session.counts() && session.cpus == 1 {
        return;
    }
    let kind = Kind {
        in_kernel: is_kernel(first.address),
        ends_in_branch: last.decoded.branch,
        ends_in_trap: last.decoded.trap,
    };
    let addresses: Vec<u64> = instructions.iter().map(|one| one.address).collect();
    let range = (first.address, last.address + last.code.1 as u64);
    let code = session.fetch_line_shift.map_or_else(CodeBlock::default, |shift| {
        let (first, second) = spans(range);
        CodeBlock::new(shift, instructions.len() as u32, first, second)
    });
    let known = Block::new(&addresses, kind, code);
    let has_beside = session.level == Detail::Count && !session.beside.is_null();
    let prepared = match session.processors.as_ref().map(|of| of.layout) {
        Some(layout) if session.level == Detail::Ooo => {
            let code = instructions.iter().map(|one| (&one.code.0[..one.code.1], one.address));
            let template = template(&mut session.decoder, layout, spans(range), code);
            session.arena.keep_template(OooBlock { known, template }).cast()
        }
        _ if has_beside => {
            session.arena.keep_spans(BesideBlock { known, spans: spans(range) }).cast()
        }
        _ => session.arena.keep_block(known),
    };
    let on_block = match session.level {
        Detail::Timed if session.cpus > 1 => timed::on_block::<false>,
        Detail::Timed => timed::on_block::<true>,
        Detail::Ooo if session.cpus > 1 => ooo::on_block::<false>,
        Detail::Ooo => ooo::on_block::<true>,
        _ if has_beside && session.cpus > 1 => beside::on_block::<false>,
        _ if has_beside => beside::on_block::<true>,
        _ if session.cpus > 1 => cpu::on_block_of_slice,
        _ => cpu::on_block,
    };
    let right = if session.clock.follows_model() { WRITES_REGISTERS } else { READS_REGISTERS };
    let prepared = prepared.cast_mut().cast();
    session.qemu.on_block(block, on_block, right, prepared);
    match session.level {
        Detail::Timed => {
            watch(session, &instructions, timed::accesses(session.cpus), timed::on_flush)
        }
        _ if has_beside => {
            watch(session, &instructions, beside::accesses(session.cpus), beside::on_flush);
        }
        Detail::Ooo => watch_ooo(session, &instructions, prepared),
        _ => {}
    }
    // A repeated instruction is the last of its block, and so never leaves one.
    if matches!(session.level, Detail::Count | Detail::Timed)
        && let [lone] = &instructions[..]
        && !lone.decoded.repeats
    {
        session.qemu.on_memory(lone.handle, READS_AND_WRITES, cpu::on_lone_access, prepared);
    }
}

/// Has caches told of accesses.
fn watch(
    session: &Session,
    instructions: &[Instruction],
    (on_load, on_store): (MemoryCallback, MemoryCallback),
    on_flush: VcpuCallback,
) {
    for one in instructions {
        session.qemu.on_memory(one.handle, READS, on_load, std::ptr::null_mut());
        session.qemu.on_memory(one.handle, WRITES, on_store, std::ptr::null_mut());
        if one.decoded.flushes {
            session.qemu.on_instruction(one.handle, on_flush, std::ptr::null_mut());
        }
    }
}

/// Has the core of the level `ooo` told of accesses.
fn watch_ooo(session: &Session, instructions: &[Instruction], block: *mut c_void) {
    let lone = matches!(instructions, [lone] if !lone.decoded.repeats);
    let (on_load, on_store) = ooo::accesses(session.cpus, lone);
    for (number, one) in instructions.iter().enumerate() {
        let data = if lone { block } else { std::ptr::without_provenance_mut(number) };
        session.qemu.on_memory(one.handle, READS, on_load, data);
        session.qemu.on_memory(one.handle, WRITES, on_store, data);
        if one.decoded.flushes {
            session.qemu.on_instruction(one.handle, ooo::on_flush, std::ptr::null_mut());
        }
    }
}

fn decoded(session: &Session, block: TranslatedBlock) -> Vec<Instruction> {
    let annotations = &session.tracker.annotations;
    let decode_one = |(handle, address): (TranslatedInstruction, u64)| {
        let (code, length) = session.qemu.bytes(handle);
        let bytes = &code[..length];
        let in_kernel = is_kernel(address);
        let mut decoded = decode(bytes, in_kernel);
        if in_kernel && decoded.action.is_none() {
            decoded.action = if annotations.calls_irq_handler(address, bytes) {
                Some(Action::IrqCall { bytes: length as u8 })
            } else {
                annotations.action_at(address)
            };
        }
        let (pmu, rings) = (msr::decode(bytes, in_kernel), settle::rings(bytes));
        let pmu = pmu.filter(|_| session.pmus.is_some());
        Instruction { handle, address, code: (code, length), decoded, rings, pmu }
    };
    session.qemu.instructions(block).map(decode_one).collect()
}

/// Has the callback called before the instructions that mean something.
fn annotate(session: &mut Session, instructions: &[Instruction], on_point: VcpuCallback) {
    for (index, one) in instructions.iter().enumerate() {
        settle::watch(session, one.handle, one.rings, index + 1 == instructions.len());
        let remaining = (instructions.len() - index) as u32;
        let wanted = |action: &Action| match action {
            Action::Marker | Action::Halt => true,
            Action::ReadClock => session.level.has_model() && session.clock.follows_model(),
            _ => session.counts(),
        };
        let action = one.decoded.action.filter(wanted);
        // Counts must not decrease: what counts the instruction for another context is done last.
        let notes_last = !action.is_some_and(Action::is_return);
        if !notes_last {
            notes::watch(session, one.handle, one.address, remaining);
        }
        if let Some(action) = action {
            let point = Point { action, address: one.address, remaining };
            let point = session.arena.keep_point(point);
            session.qemu.on_instruction(one.handle, on_point, point.cast_mut().cast());
        }
        if notes_last {
            notes::watch(session, one.handle, one.address, remaining);
        }
    }
}

/// Has the guest's PMU answer the instructions that use it.
fn annotate_pmu(session: &mut Session, instructions: &[Instruction]) {
    for (index, one) in instructions.iter().enumerate() {
        if let Some(what) = one.pmu {
            let next = instructions.get(index + 1).map(|next| next.handle);
            let remaining = (instructions.len() - index) as u32;
            let access = msr::Access { what, address: one.address, remaining };
            msr::annotate(session, one.handle, next, access);
        }
    }
}

/// The one or two pages that a block from `start` to `end` lies in.
fn spans((start, end): (u64, u64)) -> (CodeSpan, Option<CodeSpan>) {
    let border = (start | (PAGE_BYTES - 1)).wrapping_add(1);
    let span = |from: u64, to: u64| CodeSpan {
        virtual_address: from,
        // A block that is translated is mapped; what QEMU can't say is taken for a place of its own.
        physical: physical::of_address(from).unwrap_or(from),
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
    use super::*;

    fn action(bytes: &[u8], in_kernel: bool) -> Option<Action> {
        decode(bytes, in_kernel).action
    }

    #[test]
    fn returns_are_recognised_in_the_kernel_only() {
        assert_eq!(action(&[0x48, 0xcf], true), Some(Action::InterruptReturn));
        assert_eq!(action(&[0x48, 0x0f, 0x07], true), Some(Action::SyscallReturn));
        assert_eq!(action(&[0x48, 0xcf], false), None);
        assert_eq!(action(&[0x48, 0x0f, 0x05], true), None); // syscall
    }

    #[test]
    fn a_marker_is_recognised_everywhere_and_padding_is_not_one() {
        assert_eq!(action(&marker::BYTES, false), Some(Action::Marker));
        assert_eq!(action(&marker::BYTES, true), Some(Action::Marker));
        assert_eq!(action(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], true), None);
    }

    #[test]
    fn repeated_string_instructions_and_software_interrupts_are_told_apart() {
        assert!(decode(&[0xf3, 0xa4], true).repeats); // rep movsb
        assert!(decode(&[0xf3, 0x48, 0xab], true).repeats); // rep stosq
        assert!(decode(&[0xf2, 0xae], false).repeats); // repne scasb
        assert!(!decode(&[0xf3, 0x0f, 0x10, 0x00], false).repeats); // movss
        assert!(!decode(&[0xf3, 0x90], false).repeats); // pause
        assert!(!decode(&[0xf3], false).repeats);
        assert!(decode(&[0xcc], true).trap && decode(&[0xcd, 0x80], false).trap);
        assert!(!decode(&[0xcc, 0], true).trap);
    }

    #[test]
    fn branches_are_recognised_behind_prefixes() {
        let branches: [&[u8]; 9] = [
            &[0xeb, 0x02],
            &[0x75, 0x10],
            &[0x0f, 0x84, 0, 0, 0, 0],
            &[0xc3],
            &[0xf3, 0xc3],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xe3],
            &[0x2e, 0xe8, 0, 0, 0, 0],
            &[0xff, 0x25, 0, 0, 0, 0],
        ];
        assert!(branches.iter().all(|bytes| decode(bytes, true).branch));
        let others: [&[u8]; 5] =
            [&[0xff, 0xc0], &[0xff, 0x35, 0, 0, 0, 0], &[0x90], &[0x0f, 0x44, 0xc1], &[0x0f, 0xa2]];
        assert!(!others.iter().any(|bytes| decode(bytes, true).branch));
    }

    #[test]
    fn readings_of_the_clock_are_recognised_everywhere() {
        assert_eq!(action(&[0x0f, 0x31], false), Some(Action::ReadClock));
        assert_eq!(action(&[0x0f, 0x01, 0xf9], true), Some(Action::ReadClock));
        assert_eq!(action(&[0x0f, 0x01, 0xf8], true), None); // swapgs
    }

    #[test]
    fn changes_of_translations_are_recognised() {
        assert!(decode(&[0x0f, 0x22, 0xd8], true).flushes); // mov %rax, %cr3
        assert!(decode(&[0x41, 0x0f, 0x22, 0xdc], true).flushes); // mov %r12, %cr3
        assert!(decode(&[0x0f, 0x01, 0x3f], true).flushes); // invlpg (%rdi)
        assert!(decode(&[0x66, 0x0f, 0x38, 0x82, 0x0c, 0x24], true).flushes); // invpcid
        assert!(!decode(&[0x0f, 0x22, 0xd0], true).flushes); // mov %rax, %cr2
        assert!(!decode(&[0x0f, 0x01, 0xf8], true).flushes); // swapgs
        assert!(!decode(&[0x0f, 0x01, 0x18], true).flushes); // lidt
    }
}
