//! The callbacks of the level `timed`. Each block and each access to memory goes through the model's caches.

use std::ffi::{c_uint, c_void};

use machine::{BlockingMachine, VirtualAddress};

use super::{BeforeBlock, known_running, running, with};
use crate::models::physical;
use crate::qemu::block::Block;
use crate::qemu::ffi::AccessCallbacks;

/// A block starts; on a machine with one vCPU, if `ALONE`.
///
/// This function and [`on_access`] take most of the level's time. They handle the common case, and jump to a complete
/// version otherwise. No call returns to them, so they save no registers.
pub(crate) extern "C" fn on_block<B: BeforeBlock, const ALONE: bool>(
    _: c_uint,
    block: *mut c_void,
) {
    let block = block.cast_const().cast::<Block>();
    match known_running::<ALONE>() {
        // SAFETY: the arena keeps the block while there is code that passes it.
        Some(vcpu) if !is_due(vcpu, unsafe { &*block }) => begin(vcpu, block),
        _ => begin_late::<B>(block),
    }
}

#[inline(never)]
fn begin_late<B: BeforeBlock>(block: *const Block) {
    let vcpu = running();
    // SAFETY: as above.
    let known = unsafe { &*block };
    if is_due(vcpu, known) {
        B::before_block(vcpu, known);
    }
    begin(vcpu, block);
}

#[inline(always)]
fn is_due(vcpu: u32, block: &Block) -> bool {
    with(vcpu, |cpu| {
        // SAFETY: these callbacks are registered only when there is this model.
        let cycles = unsafe { cpu.engine.timed_unchecked() }.cycles();
        cpu.is_due(block, cycles)
    })
}

#[inline(always)]
fn begin(vcpu: u32, block: *const Block) {
    with(vcpu, |cpu| {
        // SAFETY: as above.
        let (known, model) = unsafe { (&*block, cpu.engine.timed_unchecked()) };
        cpu.block = block;
        cpu.branches += u64::from(known.ends_in_branch);
        model.execute_block(&known.code);
    });
}

/// The callbacks of loads and of stores, on a machine with `cpus` vCPUs.
pub(crate) fn accesses(cpus: u32) -> AccessCallbacks {
    match cpus {
        1 => {
            AccessCallbacks { on_load: on_access::<true, false>, on_store: on_access::<true, true> }
        }
        _ => AccessCallbacks {
            on_load: on_access::<false, false>,
            on_store: on_access::<false, true>,
        },
    }
}

/// An instruction has loaded or, if `STORES`, stored.
pub(crate) extern "C" fn on_access<const ALONE: bool, const STORES: bool>(
    _: c_uint,
    access: u32,
    address: u64,
    _: *mut c_void,
) {
    let done = match (known_running::<ALONE>(), physical::known_bytes(access)) {
        (Some(vcpu), Some(bytes)) => with(vcpu, |cpu| {
            // SAFETY: as above.
            let model = unsafe { cpu.engine.timed_unchecked() };
            if STORES {
                model.store_fast(VirtualAddress(address), bytes)
            } else {
                model.load_fast(VirtualAddress(address), bytes)
            }
        }),
        _ => false,
    };
    if !done {
        access_late::<STORES>(access, VirtualAddress(address));
    }
}

#[inline(never)]
fn access_late<const STORES: bool>(access: u32, address: VirtualAddress) {
    with(running(), |cpu| {
        // SAFETY: as above.
        let model = unsafe { cpu.engine.timed_unchecked() };
        let translate = |address| physical::of_access(access, address);
        if STORES {
            model.store(address, translate);
        } else {
            model.load(address, translate);
        }
        let bytes = physical::access_bytes(access);
        if model.crosses(address, bytes) {
            beyond(model, access, (address, bytes), STORES);
        }
    });
}

/// Accesses the second and further lines of an access that spans several lines.
#[inline(never)]
fn beyond(
    model: &mut BlockingMachine,
    access: u32,
    (address, bytes): (VirtualAddress, u64),
    write: bool,
) {
    for line in model.data_lines(address, bytes).skip(1) {
        // QEMU's last lookup was for the page of `address`. A line in the next page needs a lookup of its own.
        let translate = |line: VirtualAddress| {
            if line.page() == address.page() {
                physical::of_access(access, line)
            } else {
                physical::of_address(line)
            }
        };
        if write {
            model.store(line, translate);
        } else {
            model.load(line, translate);
        }
    }
}
