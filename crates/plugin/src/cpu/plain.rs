//! The callbacks of machines without a model: they count instructions. QEMU calls them in the vCPUs' thread.
//! `shadow_caches` and `translate.rs` use them.

use std::ffi::{c_uint, c_void};

use machine::Instructions;

use super::{BeforeBlock, due_at, running_vcpu, with_vcpu};
use crate::qemu::block::Block;

/// A block starts, on a machine with one vCPU.
pub(crate) extern "C" fn on_block<B: BeforeBlock>(_: c_uint, block: *mut c_void) {
    begin::<B>(0, block.cast_const().cast());
}

/// A block starts, on a machine with several vCPUs.
pub(crate) extern "C" fn on_block_of_several_vcpus<B: BeforeBlock>(_: c_uint, block: *mut c_void) {
    begin::<B>(running_vcpu(), block.cast_const().cast());
}

/// Does the work that is due, and counts the instructions of `block`.
#[inline(always)]
pub(super) fn begin<B: BeforeBlock>(vcpu: u32, block: *const Block) {
    // SAFETY: the arena keeps the block while there is code that passes it.
    let description = unsafe { &*block };
    let is_due = with_vcpu(vcpu, |cpu| {
        let executed = (cpu.instructions, Instructions(cpu.instructions));
        cpu.is_due(description, executed, due_at(vcpu))
    });
    if is_due {
        B::before_block(vcpu, description);
    }
    with_vcpu(vcpu, |cpu| {
        cpu.instructions += u64::from(description.length);
        cpu.block = block;
    });
}

/// The only instruction of a block has accessed memory. Not called for repeated string instructions.
///
/// QEMU can count time only at the end of a block. If an instruction in the middle of a block accesses a device, QEMU
/// leaves the block before this instruction. It executes the instruction alone, in a block of one instruction, and
/// continues with the rest. QEMU calls the memory callbacks of that block, but no callback at its start. So a memory
/// callback of a block that was not started shows that QEMU has left the previous block.
pub(crate) extern "C" fn on_single_access(_: c_uint, _: u32, _: u64, block: *mut c_void) {
    let block = block.cast_const().cast::<Block>();
    with_vcpu(running_vcpu(), |cpu| {
        if cpu.block != block {
            // SAFETY: the arena keeps the block while there is code that passes it.
            let address = unsafe { (*block).address };
            cpu.leave_block_after(address);
            cpu.block = block;
        }
    });
}
