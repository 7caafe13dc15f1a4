//! The callbacks of the level `count` with shadow caches: see [`crate::models::shadow_caches`]. QEMU calls them at each
//! block and access in the vCPUs' thread; `translate.rs` registers them.

use std::ffi::{c_uint, c_void};

use machine::{Instructions, PhysicalAddress, VirtualAddress};

use super::{BeforeBlock, known_running_vcpu, running_vcpu, with_vcpu};
use crate::models::pages::bytes_in_first;
use crate::models::physical;
use crate::qemu::block::ShadowBlock;
use crate::qemu::ffi::AccessCallbacks;
use simrecord::record::Group;

/// A block starts. `SINGLE_VCPU`: the machine has one vCPU.
pub(crate) extern "C" fn on_block<B: BeforeBlock, const SINGLE_VCPU: bool>(
    _: c_uint,
    block: *mut c_void,
) {
    let vcpu = known_running_vcpu::<SINGLE_VCPU>().unwrap_or_else(running_vcpu);
    // SAFETY: the arena keeps the block while there is code that passes it.
    let block = unsafe { &*block.cast_const().cast::<ShadowBlock>() };
    super::plain::begin::<B>(vcpu, &raw const block.description);
    with_vcpu(vcpu, |cpu| {
        let group = match (block.description.in_kernel, cpu.runs_idle_task) {
            (false, _) => Group::User,
            (true, false) => Group::Kernel,
            (true, true) => Group::Idle,
        };
        // SAFETY: these callbacks are registered only when there are shadow caches.
        let shadow_caches = unsafe { cpu.engine.shadow_caches_unchecked() };
        shadow_caches.block(
            vcpu as usize,
            group,
            Instructions(block.description.length.into()),
            block.spans,
        );
    });
}

/// The callbacks of loads and of stores, on a machine with `cpus` vCPUs. Their argument is the instruction's address.
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

/// The instruction at `instruction` has loaded or, if `IS_STORE`, stored.
extern "C" fn on_access<const SINGLE_VCPU: bool, const IS_STORE: bool>(
    _: c_uint,
    access: u32,
    address: u64,
    instruction: *mut c_void,
) {
    let pc = VirtualAddress(instruction.addr() as u64);
    let vcpu = known_running_vcpu::<SINGLE_VCPU>().unwrap_or_else(running_vcpu);
    with_vcpu(vcpu, |cpu| {
        // SAFETY: these callbacks are registered only when there are shadow caches.
        let shadow_caches = unsafe { cpu.engine.shadow_caches_unchecked() };
        let (cpu, bytes) = (vcpu as usize, physical::access_bytes(access));
        let address = VirtualAddress(address);
        let first = bytes_in_first(address, bytes);
        let physical = shadow_caches.pages(cpu).get(address).or_else(|| {
            let physical = physical::address_of_access(access, address)?;
            shadow_caches.pages(cpu).put(address, physical);
            Some(physical)
        });
        let Some(physical) = physical else {
            return shadow_caches.device(cpu, IS_STORE, pc, address);
        };
        shadow_caches.data(cpu, IS_STORE, pc, (address, physical), first as u32);
        if first < bytes {
            let next_page = address.plus(first);
            let physical =
                shadow_caches.pages(cpu).get(next_page).or_else(|| physical::translate(next_page));
            let addresses = (next_page, physical.unwrap_or(PhysicalAddress(next_page.0)));
            shadow_caches.data(cpu, IS_STORE, pc, addresses, (bytes - first) as u32);
        }
    });
}
