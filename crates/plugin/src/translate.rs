//! What is done when a block is translated: its description is prepared, and the instructions that
//! mean something are annotated.

use crate::block::{Block, Point};
use crate::cpu;
use crate::ffi::VcpuCallback;
use crate::marker;
use crate::options::Detail;
use crate::qemu::{TranslatedBlock, TranslatedInstruction};
use crate::session::Session;
use crate::symbols::Action;
use crate::tracker::is_kernel;

/// What the bytes of an instruction say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Decoded {
    action: Option<Action>,
    /// A software interrupt: `int3`, `int N`.
    trap: bool,
    /// A string instruction that repeats itself. Each repetition is a block of its own.
    repeats: bool,
}

fn decode(bytes: &[u8], in_kernel: bool) -> Decoded {
    let mut decoded = Decoded::default();
    match *bytes {
        [0xcc] | [0xcd, _] => decoded.trap = true,
        [0xf2 | 0xf3, ref rest @ ..] => {
            let opcode = match *rest {
                [0x40..=0x4f | 0x66, opcode, ..] | [opcode, ..] => opcode,
                [] => 0,
            };
            decoded.repeats = matches!(opcode, 0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf);
        }
        // In the kernel, returns have an operand of 64 bits; in firmware they mean nothing to us.
        [0x48, 0xcf] if in_kernel => decoded.action = Some(Action::InterruptReturn),
        [0x48, 0x0f, 0x07] | [0x0f, 0x07] | [0x48, 0x0f, 0x35] | [0x0f, 0x35] if in_kernel => {
            decoded.action = Some(Action::SyscallReturn);
        }
        _ if bytes == marker::BYTES => decoded.action = Some(Action::Marker),
        _ => {}
    }
    decoded
}

/// Prepares a block that is about to be translated.
pub(crate) fn prepare(session: &mut Session, block: TranslatedBlock, on_point: VcpuCallback) {
    let instructions: Vec<(TranslatedInstruction, u64)> =
        session.qemu.instructions(block).collect();
    let Some((_, first)) = instructions.first().copied() else { return };
    let in_kernel = is_kernel(first);
    let counts = session.options.detail == Detail::Count;
    let mut last = Decoded::default();
    for (index, (instruction, address)) in instructions.iter().enumerate() {
        let (bytes, length) = session.qemu.bytes(*instruction);
        let mut decoded = decode(&bytes[..length], in_kernel);
        if in_kernel && decoded.action.is_none() {
            decoded.action = session.tracker.annotations.action_at(*address, index == 0);
        }
        if !counts && decoded.action != Some(Action::Marker) {
            decoded.action = None;
        }
        if let Some(action) = decoded.action {
            let remaining = (instructions.len() - index) as u32;
            let point = Point { action, address: *address, remaining };
            let point = session.arena.keep_point(point);
            session.qemu.on_instruction(*instruction, on_point, point.cast_mut().cast());
        }
        last = decoded;
    }
    if !counts && session.cpus == 1 {
        return;
    }
    let addresses: Vec<u64> = instructions.iter().map(|(_, address)| *address).collect();
    let prepared = session.arena.keep_block(Block::new(&addresses, last.trap));
    let prepared = prepared.cast_mut().cast();
    let on_block = if session.cpus > 1 { cpu::on_block_of_slice } else { cpu::on_block };
    session.qemu.on_block(block, on_block, prepared);
    // A repeated instruction is the last of its block, and so never leaves one.
    if counts
        && let [(instruction, _)] = instructions[..]
        && !last.repeats
    {
        session.qemu.on_memory(instruction, cpu::on_lone_access, prepared);
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
}
