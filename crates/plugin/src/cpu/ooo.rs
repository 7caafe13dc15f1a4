//! The callbacks of the level `ooo`. They collect the accesses of a block. When the next block starts, they pass the
//! finished block to the vCPU's core.

use std::ffi::{c_uint, c_void};

use machine::core::Access;
use machine::{PhysicalAddress, VirtualAddress};

use super::{BeforeBlock, known_running, running, with};
use crate::models::pages::bytes_in_first;
use crate::models::physical;
use crate::models::pipeline::Pipeline;
use crate::qemu::block::{Block, OooBlock};
use crate::qemu::ffi::AccessCallbacks;

/// A block starts; on a machine with one vCPU, if `ALONE`.
pub(crate) extern "C" fn on_block<B: BeforeBlock, const ALONE: bool>(
    _: c_uint,
    block: *mut c_void,
) {
    let vcpu = known_running::<ALONE>().unwrap_or_else(running);
    // SAFETY: the arena keeps the block while there is code that passes it.
    let block = unsafe { &*block.cast_const().cast::<OooBlock>() };
    let due = with(vcpu, |cpu| {
        // SAFETY: these callbacks are registered only when there is a pipeline.
        let pipeline = unsafe { cpu.engine.pipeline_unchecked() };
        pipeline.finish(block.known.address);
        let cycles = pipeline.cycles();
        cpu.is_due(&block.known, cycles)
    });
    if due {
        B::before_block(vcpu, &block.known);
    }
    with(vcpu, |cpu| {
        cpu.instructions += u64::from(block.known.length);
        cpu.branches += u64::from(block.known.ends_in_branch);
        cpu.block = &raw const block.known;
        cpu.has_abandoned_block = false;
        // SAFETY: as above.
        unsafe { cpu.engine.pipeline_unchecked() }.begin(&block.template);
    });
}

/// The callbacks of loads and of stores, on a machine with `cpus` vCPUs. An instruction in a block of several
/// gets its number as the argument; a single-instruction block gets the block.
pub(crate) fn accesses(cpus: u32, alone_in_block: bool) -> AccessCallbacks {
    match (cpus, alone_in_block) {
        (1, false) => {
            AccessCallbacks { on_load: on_access::<true, false>, on_store: on_access::<true, true> }
        }
        (_, false) => AccessCallbacks {
            on_load: on_access::<false, false>,
            on_store: on_access::<false, true>,
        },
        (1, true) => AccessCallbacks {
            on_load: on_single_access::<true, false>,
            on_store: on_single_access::<true, true>,
        },
        (_, true) => AccessCallbacks {
            on_load: on_single_access::<false, false>,
            on_store: on_single_access::<false, true>,
        },
    }
}

/// Instruction `number` of the block has loaded or, if `STORES`, stored.
extern "C" fn on_access<const ALONE: bool, const STORES: bool>(
    _: c_uint,
    access: u32,
    address: u64,
    number: *mut c_void,
) {
    let vcpu = known_running::<ALONE>().unwrap_or_else(running);
    keep::<STORES>(vcpu, number.addr() as u16, (access, VirtualAddress(address)));
}

/// The only instruction of a block has loaded or stored. If that block was not started, QEMU has left the started block
/// to execute one of its instructions alone: see [`super::plain::on_single_access`].
extern "C" fn on_single_access<const ALONE: bool, const STORES: bool>(
    _: c_uint,
    access: u32,
    address: u64,
    block: *mut c_void,
) {
    let vcpu = known_running::<ALONE>().unwrap_or_else(running);
    let single = block.cast_const().cast::<Block>();
    let number = with(vcpu, |cpu| {
        // SAFETY: the arena keeps blocks while there is code that passes them. The started block is null if the arena
        // was emptied.
        let (single, known) = unsafe { (&*single, cpu.block.as_ref()) };
        match known {
            Some(known) if !std::ptr::eq(known, single) => {
                let number = known.index_of(single.address);
                let last = known.length() - 1;
                if number.is_some_and(|number| number < last) && !cpu.has_abandoned_block {
                    cpu.left_after(single.address);
                    cpu.has_abandoned_block = true;
                }
                number.unwrap_or(last)
            }
            _ => 0,
        }
    });
    keep::<STORES>(vcpu, number as u16, (access, VirtualAddress(address)));
}

#[inline(always)]
fn keep<const STORES: bool>(vcpu: u32, number: u16, (access, address): (u32, VirtualAddress)) {
    with(vcpu, |cpu| {
        // SAFETY: as above.
        let pipeline = unsafe { cpu.engine.pipeline_unchecked() };
        match (physical::known_bytes(access), pipeline.pages.get(address)) {
            (Some(bytes), Some(physical)) if bytes_in_first(address, bytes) == bytes => {
                pipeline.push(Access {
                    virtual_address: address.0,
                    physical: Some(physical.0),
                    instruction: number,
                    bytes: bytes as u8,
                    write: STORES,
                });
            }
            _ => keep_late(pipeline, number, (access, address), STORES),
        }
    });
}

/// Whether a device's physical address is in the page of the local APIC, where all kernels leave it
/// (Intel SDM, volume 3, 11.4.1).
fn is_local_apic(physical: PhysicalAddress) -> bool {
    physical.page() == 0xfee00
}

/// Keeps an access of a new kind, an access to an unknown page, or an access to two pages.
#[inline(never)]
fn keep_late(
    pipeline: &mut Pipeline,
    number: u16,
    (access, address): (u32, VirtualAddress),
    write: bool,
) {
    let bytes = physical::access_bytes(access);
    let first = bytes_in_first(address, bytes);
    let access_of = |address: VirtualAddress, physical: Option<PhysicalAddress>, bytes: u64| {
        let (virtual_address, physical) = (address.0, physical.map(|physical| physical.0));
        let bytes = bytes.min(u8::MAX.into()) as u8;
        Access { virtual_address, physical, instruction: number, bytes, write }
    };
    let physical = pipeline.pages.get(address).or_else(|| {
        let physical = physical::of_access(access, address)?;
        pipeline.pages.put(address, physical);
        Some(physical)
    });
    if physical.is_none() && physical::of_device(access, address).is_some_and(is_local_apic) {
        pipeline.map_local_apic(address);
    }
    pipeline.push(access_of(address, physical, first));
    if first < bytes {
        let next_page = address.plus(first);
        // QEMU's last lookup was for the first page. The physical address of an unknown page is taken to be its virtual
        // address.
        let physical = pipeline.pages.get(next_page).or_else(|| physical::of_address(next_page));
        let physical = physical.unwrap_or(PhysicalAddress(next_page.0));
        pipeline.push(access_of(next_page, Some(physical), bytes - first));
    }
}
