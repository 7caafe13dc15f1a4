//! The callbacks of instructions that change translations or flush a line.

use std::ffi::{c_uint, c_void};

use machine::VirtualAddress;
use machine::decode::{FlushedLine, TranslationChange};

use crate::cpu;
use crate::models::translations;
use crate::qemu::TranslatedInstruction;
use crate::session::{self, Session};

/// An instruction of a block that changes translations.
#[derive(Debug)]
pub(crate) struct Point {
    change: TranslationChange,
    /// How many instructions of the block, with itself, are still to execute.
    remaining: u32,
}

/// Has the caches of this level follow an instruction that changes translations.
pub(crate) fn watch(
    session: &mut Session,
    instruction: TranslatedInstruction,
    change: TranslationChange,
    remaining: u32,
) {
    let point = session.arena.keep_instruction(Point { change, remaining });
    session.qemu.on_instruction(instruction, on_change, point.cast_mut().cast());
}

/// An instruction that flushes a line, in a block.
#[derive(Debug)]
pub(crate) struct FlushPoint {
    flush: FlushedLine,
    remaining: u32,
}

/// Has the caches of this level follow an instruction that flushes a line.
pub(crate) fn watch_flush(
    session: &mut Session,
    instruction: TranslatedInstruction,
    flush: FlushedLine,
    remaining: u32,
) {
    let point = session.arena.keep_instruction(FlushPoint { flush, remaining });
    session.qemu.on_instruction(instruction, on_flush, point.cast_mut().cast());
}

/// The instruction is about to execute.
extern "C" fn on_flush(_: c_uint, point: *mut c_void) {
    let vcpu = cpu::running();
    // SAFETY: the arena keeps the point while there is code that passes it.
    let point = unsafe { &*point.cast_const().cast::<FlushPoint>() };
    let address = {
        let mut guard = session::lock();
        let Some(session) = guard.as_mut() else { return };
        let Some(registers) = session.registers else { return };
        translations::address(&mut session.qemu, registers, point.flush.at)
    };
    if let Some(address) = address {
        cpu::with(vcpu, |cpu| {
            cpu.flush_line(point.flush, point.remaining, VirtualAddress(address))
        });
    }
}

/// The instruction is about to execute.
extern "C" fn on_change(_: c_uint, point: *mut c_void) {
    let vcpu = cpu::running();
    // SAFETY: the arena keeps the point while there is code that passes it.
    let point = unsafe { &*point.cast_const().cast::<Point>() };
    let change = {
        let mut guard = session::lock();
        let Some(session) = guard.as_mut() else { return };
        translations::next_change(&mut session.qemu, session.registers, point.change)
    };
    cpu::with(vcpu, |cpu| {
        // Accesses before it were made with the translations before it.
        cpu.retire_pending(point.remaining);
        cpu.change_translations(vcpu, change);
    });
}
