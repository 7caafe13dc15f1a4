//! The callbacks of a machine with a model: a block and each access to memory go through the model's
//! caches.

use std::ffi::{c_uint, c_void};

use machine::InOrder;

use super::{running, with};
use crate::block::Block;
use crate::callbacks;
use crate::physical;

/// A block starts.
pub(crate) extern "C" fn on_block(_: c_uint, block: *mut c_void) {
    let vcpu = running();
    let block = block.cast_const().cast::<Block>();
    // SAFETY: the arena keeps the block while there is code that passes it.
    let known = unsafe { &*block };
    // SAFETY: these callbacks are registered when there is a model only.
    if with(vcpu, |cpu| cpu.is_due(known, unsafe { (*cpu.model).cycles() })) {
        callbacks::before_block(vcpu, known);
    }
    with(vcpu, |cpu| {
        cpu.block = block;
        cpu.branches += u64::from(known.ends_in_branch);
        // SAFETY: as above.
        unsafe { (*cpu.model).block(&known.code) };
    });
}

/// An instruction has loaded.
pub(crate) extern "C" fn on_load(_: c_uint, access: u32, address: u64, _: *mut c_void) {
    with(running(), |cpu| {
        // SAFETY: as above.
        let model = unsafe { &mut *cpu.model };
        model.load(address, |address| physical::of_access(access, address));
        let bytes = physical::access_bytes(access);
        if model.crosses(address, bytes) {
            beyond(model, access, (address, bytes), false);
        }
    });
}

/// An instruction has stored.
pub(crate) extern "C" fn on_store(_: c_uint, access: u32, address: u64, _: *mut c_void) {
    with(running(), |cpu| {
        // SAFETY: as above.
        let model = unsafe { &mut *cpu.model };
        model.store(address, |address| physical::of_access(access, address));
        let bytes = physical::access_bytes(access);
        if model.crosses(address, bytes) {
            beyond(model, access, (address, bytes), true);
        }
    });
}

/// The further lines of an access that lies in more than one.
#[inline(never)]
fn beyond(model: &mut InOrder, access: u32, (address, bytes): (u64, u64), write: bool) {
    for line in model.data_lines(address, bytes).skip(1) {
        // The page behind is not the one that QEMU has just looked up.
        let translate = |line: u64| {
            if line >> 12 == address >> 12 {
                physical::of_access(access, line)
            } else {
                physical::of_address(line)
            }
        };
        match write {
            true => model.store(line, translate),
            false => model.load(line, translate),
        }
    }
}

/// Translations of the vCPU are no longer what they were.
pub(crate) extern "C" fn on_flush(_: c_uint, _: *mut c_void) {
    with(running(), |cpu| {
        if let Some(model) = cpu.model() {
            model.flush_tlbs();
        }
    });
}
