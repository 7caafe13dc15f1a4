//! Registers and handles the callbacks of instructions that change address translations or flush a cache line.
//! `translate.rs` calls [`watch`] and [`watch_flush`] for such instructions, where the level has caches.

use std::ffi::{c_uint, c_void};

use machine::VirtualAddress;
use machine::decode::{FlushedLine, TranslationChange};
use machine::memory::GlobalPages;

use crate::cpu;
use crate::models::isolation::PageTablesWrite;
use crate::models::translations;
use crate::qemu::TranslatedInstruction;
use crate::session::{self, Session};

/// An instruction of a block that changes address translations.
#[derive(Debug)]
struct ChangePoint {
    change: TranslationChange,
    address: VirtualAddress,
    /// How many instructions of the block are still to execute, this one included.
    remaining: u32,
}

/// Makes the caches of this level follow an instruction that changes address translations.
pub(crate) fn watch(
    session: &mut Session,
    instruction: TranslatedInstruction,
    (change, address): (TranslationChange, VirtualAddress),
    remaining: u32,
) {
    let point = session.arena.keep_instruction(ChangePoint { change, address, remaining });
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
    let (change, global_pages) = {
        let mut guard = session::lock();
        let Some(session) = guard.as_mut() else { return };
        let change = translations::next_change(&mut session.qemu, session.registers, point.change);
        (change, global_pages(session, point))
    };
    cpu::with_vcpu(vcpu, |cpu| {
        // Earlier instructions of the block have used the old translations.
        cpu.retire_pending(point.remaining);
        if let Some(pages) = global_pages {
            cpu.set_global_pages(vcpu, pages);
        }
        cpu.change_translations(vcpu, change);
    });
}

/// The kernel's global pages, if it isolates page tables and its entry code is about to write cr3. Needs symbols.
fn global_pages(session: &mut Session, point: &ChangePoint) -> Option<GlobalPages> {
    let TranslationChange::PageTables { from } = point.change else { return None };
    let Session { qemu, registers, tracker, isolation, .. } = session;
    let code = tracker.symbols.code.as_ref()?;
    let (old_cr3, new_cr3) = translations::cr3_before_and_after(qemu, (*registers)?, from)?;
    let write = PageTablesWrite { instruction: point.address, old_cr3, new_cr3 };
    isolation.pages_at(write, code, qemu)
}
