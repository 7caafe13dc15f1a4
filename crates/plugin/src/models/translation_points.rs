//! Registers and handles the callbacks of instructions that change address translations or flush a cache line.
//! `translate.rs` calls [`watch`] and [`watch_flush`] for such instructions, where the level has caches.

use std::ffi::{c_uint, c_void};

use machine::decode::{FlushedLine, TranslationChange};

use crate::cpu;
use crate::models::translations;
use crate::qemu::TranslatedInstruction;
use crate::session::{self, Session};

/// An instruction of a block that changes address translations.
#[derive(Debug)]
struct ChangePoint {
    change: TranslationChange,
    /// How many instructions of the block are still to execute, this one included.
    remaining: u32,
}

/// Makes the caches of this level follow an instruction that changes address translations.
pub(crate) fn watch(
    session: &mut Session,
    instruction: TranslatedInstruction,
    change: TranslationChange,
    remaining: u32,
) {
    let point = session.arena.keep_instruction(ChangePoint { change, remaining });
    session.qemu.on_instruction(instruction, on_change, point.cast_mut().cast());
}

/// An instruction of a block that flushes a cache line.
#[derive(Debug)]
struct FlushPoint {
    flush: FlushedLine,
    /// How many instructions of the block are still to execute, this one included.
    remaining: u32,
}

/// Makes the caches of this level follow an instruction that flushes a cache line.
pub(crate) fn watch_flush(
    session: &mut Session,
    instruction: TranslatedInstruction,
    flush: FlushedLine,
    remaining: u32,
) {
    let point = session.arena.keep_instruction(FlushPoint { flush, remaining });
    session.qemu.on_instruction(instruction, on_flush, point.cast_mut().cast());
}

/// Called before an instruction that flushes a cache line.
extern "C" fn on_flush(_: c_uint, point: *mut c_void) {
    let vcpu = cpu::running_vcpu();
    // SAFETY: the arena keeps the point while there is code that passes it.
    let point = unsafe { &*point.cast_const().cast::<FlushPoint>() };
    let (address, vcpus) = {
        let mut guard = session::lock();
        let Some(session) = guard.as_mut() else { return };
        let Some(registers) = session.registers else { return };
        let address = translations::address(&mut session.qemu, registers, point.flush.at);
        (address, session.cpus)
    };
    let Some(address) = address else { return };
    let flushed = cpu::with_vcpu(vcpu, |cpu| cpu.flush_line(point.flush, point.remaining, address));
    if let Some(physical) = flushed {
        (0..vcpus).for_each(|vcpu| cpu::with_vcpu(vcpu, |cpu| cpu.forget_code(physical.clone())));
    }
}

/// Called before an instruction that changes address translations.
extern "C" fn on_change(_: c_uint, point: *mut c_void) {
    let vcpu = cpu::running_vcpu();
    // SAFETY: the arena keeps the point while there is code that passes it.
    let point = unsafe { &*point.cast_const().cast::<ChangePoint>() };
    let change = {
        let mut guard = session::lock();
        let Some(session) = guard.as_mut() else { return };
        translations::next_change(&mut session.qemu, session.registers, point.change)
    };
    cpu::with_vcpu(vcpu, |cpu| {
        // Earlier instructions of the block have used the old translations.
        cpu.retire_pending(point.remaining);
        cpu.change_translations(vcpu, change);
    });
}
