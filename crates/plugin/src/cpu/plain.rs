//! The callbacks of machines without a model. They count blocks and their instructions.

use std::ffi::{c_uint, c_void};

use super::{BeforeBlock, running, with};
use crate::qemu::block::Block;

/// A block starts, on a machine with one vCPU.
pub(crate) extern "C" fn on_block<B: BeforeBlock>(_: c_uint, block: *mut c_void) {
    begin::<B>(0, block.cast_const().cast());
}

/// A block starts, on a machine with several vCPUs.
pub(crate) extern "C" fn on_block_of_slice<B: BeforeBlock>(_: c_uint, block: *mut c_void) {
    begin::<B>(running(), block.cast_const().cast());
}

#[inline(always)]
pub(super) fn begin<B: BeforeBlock>(vcpu: u32, block: *const Block) {
    // SAFETY: the arena keeps the block while there is code that passes it.
    let known = unsafe { &*block };
    if with(vcpu, |cpu| cpu.is_due(known, cpu.instructions)) {
        B::before_block(vcpu, known);
    }
    with(vcpu, |cpu| {
        cpu.instructions += u64::from(known.length);
        cpu.block = block;
    });
}

/// The only instruction of a block has accessed memory. Not called for repeated string instructions.
///
/// QEMU can count time only at the end of a block. If an instruction in the middle accesses a device, QEMU leaves the
/// block before it, executes the instruction in a block of its own, and continues with the rest. QEMU calls the memory
/// callbacks of such a single-instruction block, but no callback at its start. A memory callback without a start
/// therefore shows that QEMU has left the previous block.
pub(crate) extern "C" fn on_single_access(_: c_uint, _: u32, _: u64, block: *mut c_void) {
    let block = block.cast_const().cast::<Block>();
    with(running(), |cpu| {
        if cpu.block != block {
            // SAFETY: the arena keeps the block while there is code that passes it.
            let address = unsafe { (*block).address };
            cpu.left_after(address);
            cpu.block = block;
        }
    });
}
