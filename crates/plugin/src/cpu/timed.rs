//! The callbacks of the level `timed`, which QEMU calls at each block and access in the vCPUs' thread. They pass each
//! block and each access to the vCPU's model, which is in order and blocking.
//!
//! `translate.rs` registers them. They take most of the level's time.

use std::ffi::{c_uint, c_void};

use machine::{BlockingMachine, VirtualAddress};

use super::{BeforeBlock, due_at, known_running_vcpu, running_vcpu, with_vcpu};
use crate::models::physical;
use crate::qemu::block::Block;
use crate::qemu::ffi::AccessCallbacks;

/// A block starts. `SINGLE_VCPU`: the machine has one vCPU.
///
/// This function and [`on_access`] handle only the common case, and jump to a complete version otherwise. Keep them
/// free of other calls: then they need not save registers.
pub(crate) extern "C" fn on_block<B: BeforeBlock, const SINGLE_VCPU: bool>(
    _: c_uint,
    block: *mut c_void,
) {
    let block = block.cast_const().cast::<Block>();
    match known_running_vcpu::<SINGLE_VCPU>() {
        // SAFETY: the arena keeps the block while there is code that passes it.
        Some(vcpu) if !is_due(vcpu, unsafe { &*block }) => begin(vcpu, block),
        _ => begin_after_due_work::<B>(block),
    }
}

/// The complete version of [`on_block`]: finds the running vCPU and does the due work first.
#[inline(never)]
fn begin_after_due_work<B: BeforeBlock>(block: *const Block) {
    let vcpu = running_vcpu();
    // SAFETY: the arena keeps the block while there is code that passes it.
    let description = unsafe { &*block };
    if is_due(vcpu, description) {
        B::before_block(vcpu, description);
    }
    begin(vcpu, block);
}

/// See [`super::Cpu::is_due`], with the counts of the model.
#[inline(always)]
fn is_due(vcpu: u32, block: &Block) -> bool {
    with_vcpu(vcpu, |cpu| {
        // SAFETY: these callbacks are registered only when there is this model.
        let model = unsafe { cpu.engine.timed_unchecked() };
        let executed = (model.cycles(), model.instructions());
        cpu.is_due(block, executed, due_at(vcpu))
    })
}

/// Passes the block to the model, which fetches and counts its instructions.
#[inline(always)]
fn begin(vcpu: u32, block: *const Block) {
    with_vcpu(vcpu, |cpu| {
        // SAFETY: the arena keeps the block. These callbacks are registered only when there is this model.
        let (description, model) = unsafe { (&*block, cpu.engine.timed_unchecked()) };
        cpu.block = block;
        cpu.branches += u64::from(description.ends_in_branch);
        model.execute_block(&description.code);
    });
}

/// The callbacks of loads and of stores, on a machine with `cpus` vCPUs.
pub(crate) fn access_callbacks(cpus: u32) -> AccessCallbacks {
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

/// An instruction has loaded or, if `IS_STORE`, stored.
pub(crate) extern "C" fn on_access<const SINGLE_VCPU: bool, const IS_STORE: bool>(
    _: c_uint,
    access: u32,
    address: u64,
    _: *mut c_void,
) {
    let was_fast = match (known_running_vcpu::<SINGLE_VCPU>(), physical::known_bytes(access)) {
        (Some(vcpu), Some(bytes)) => with_vcpu(vcpu, |cpu| {
            // SAFETY: these callbacks are registered only when there is this model.
            let model = unsafe { cpu.engine.timed_unchecked() };
            if IS_STORE {
                model.store_fast(VirtualAddress(address), bytes)
            } else {
                model.load_fast(VirtualAddress(address), bytes)
            }
        }),
        _ => false,
    };
    if !was_fast {
        access_slow_path::<IS_STORE>(access, VirtualAddress(address));
    }
}

/// The complete version of [`on_access`].
#[inline(never)]
fn access_slow_path<const IS_STORE: bool>(access: u32, address: VirtualAddress) {
    with_vcpu(running_vcpu(), |cpu| {
        // SAFETY: these callbacks are registered only when there is this model.
        let model = unsafe { cpu.engine.timed_unchecked() };
        let translate = |address| physical::address_of_access(access, address);
        if IS_STORE {
            model.store(address, translate);
        } else {
            model.load(address, translate);
        }
        let bytes = physical::access_bytes(access);
        if model.crosses(address, bytes) {
            access_further_lines(model, access, (address, bytes), IS_STORE);
        }
    });
}

/// Accesses the second and further lines of an access that spans several lines.
#[inline(never)]
fn access_further_lines(
    model: &mut BlockingMachine,
    access: u32,
    (address, bytes): (VirtualAddress, u64),
    write: bool,
) {
    for line in model.data_lines(address, bytes).skip(1) {
        // QEMU's last lookup was for the page of `address`. A line in the next page needs a lookup of its own.
        let translate = |line: VirtualAddress| {
            if line.page() == address.page() {
                physical::address_of_access(access, line)
            } else {
                physical::translate(line)
            }
        };
        if write {
            model.store(line, translate);
        } else {
            model.load(line, translate);
        }
    }
}
