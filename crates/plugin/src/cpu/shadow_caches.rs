//! The callbacks of the level `count` with shadow caches: see [`crate::models::shadow_caches`].

use std::ffi::{c_uint, c_void};

use machine::{Instructions, PhysicalAddress, VirtualAddress};

use super::{BeforeBlock, known_running, running, with};
use crate::models::pages::bytes_in_first;
use crate::models::physical;
use crate::qemu::block::ShadowBlock;
use crate::qemu::ffi::AccessCallbacks;
use simrecord::record::Group;

/// A block starts; on a machine with one vCPU, if `ALONE`.
pub(crate) extern "C" fn on_block<B: BeforeBlock, const ALONE: bool>(
    _: c_uint,
    block: *mut c_void,
) {
    let vcpu = known_running::<ALONE>().unwrap_or_else(running);
    // SAFETY: the arena keeps the block while there is code that passes it.
    let block = unsafe { &*block.cast_const().cast::<ShadowBlock>() };
    super::plain::begin::<B>(vcpu, &raw const block.known);
    with(vcpu, |cpu| {
        let group = match (block.known.in_kernel, cpu.idles) {
            (false, _) => Group::User,
            (true, false) => Group::Kernel,
            (true, true) => Group::Idle,
        };
        // SAFETY: these callbacks are registered only when there are shadow caches.
        let shadow_caches = unsafe { cpu.engine.shadow_caches_unchecked() };
        shadow_caches.block(
            vcpu as usize,
            group,
            Instructions(block.known.length.into()),
            block.spans,
        );
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
extern "C" fn on_access<const ALONE: bool, const STORES: bool>(
    _: c_uint,
    access: u32,
    address: u64,
    _: *mut c_void,
) {
    let vcpu = known_running::<ALONE>().unwrap_or_else(running);
    with(vcpu, |cpu| {
        // SAFETY: as above.
        let shadow_caches = unsafe { cpu.engine.shadow_caches_unchecked() };
        let (cpu, bytes) = (vcpu as usize, physical::access_bytes(access));
        let address = VirtualAddress(address);
        let first = bytes_in_first(address, bytes);
        let physical = shadow_caches.pages(cpu).get(address).or_else(|| {
            let physical = physical::of_access(access, address)?;
            shadow_caches.pages(cpu).put(address, physical);
            Some(physical)
        });
        let Some(physical) = physical else { return shadow_caches.device(cpu, STORES, address) };
        shadow_caches.data(cpu, STORES, (address, physical), first as u32);
        if first < bytes {
            let next_page = address.plus(first);
            let physical =
                shadow_caches.pages(cpu).get(next_page).or_else(|| physical::of_address(next_page));
            let addresses = (next_page, physical.unwrap_or(PhysicalAddress(next_page.0)));
            shadow_caches.data(cpu, STORES, addresses, (bytes - first) as u32);
        }
    });
}
