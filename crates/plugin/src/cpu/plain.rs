//! The callbacks of machines without a model: blocks and their instructions are counted.

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

/// After an access to memory by the only instruction of a block that is not a repeated string
/// instruction.
///
/// QEMU can count time only at the end of a block. When an instruction in the middle turns out to
/// access a device, it leaves the block there, executes that instruction in a block of its own, and
/// goes on with the rest. Blocks of that sort have their memory callbacks, but not the others: so
/// this callback without the one of its block says that the block before was left.
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
