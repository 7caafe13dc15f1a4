//! The callbacks of the level `ooo`, which QEMU calls at each block and access in the vCPUs' thread. They collect the
//! accesses of a block. When the next block starts, they pass the finished block to the vCPU's core.
//!
//! `translate.rs` registers them. They are among the hottest code of the plugin: rare cases go to functions that are
//! not inlined.

use std::ffi::{c_uint, c_void};

use machine::core::Access;
use machine::{HostExits, Instructions, PhysicalAddress, VirtualAddress};

use super::{BeforeBlock, due_at, known_running_vcpu, running_vcpu, with_vcpu};
use crate::models::pages::bytes_in_first;
use crate::models::physical;
use crate::models::pipeline::Pipeline;
use crate::qemu::block::{Block, OooBlock};
use crate::qemu::ffi::AccessCallbacks;

/// A block starts, and the block before it is finished. `SINGLE_VCPU`: the machine has one vCPU.
///
/// The order matters: the pipeline finishes the previous block, then due work is done between the blocks, then the counts and
/// the pipeline take over the new block.
pub(crate) extern "C" fn on_block<B: BeforeBlock, const SINGLE_VCPU: bool>(
    _: c_uint,
    block: *mut c_void,
) {
    let vcpu = known_running_vcpu::<SINGLE_VCPU>().unwrap_or_else(running_vcpu);
    // SAFETY: the arena keeps the block while there is code that passes it.
    let block = unsafe { &*block.cast_const().cast::<OooBlock>() };
    let is_due = with_vcpu(vcpu, |cpu| {
        // SAFETY: these callbacks are registered only when there is a pipeline.
        let pipeline = unsafe { cpu.engine.pipeline_unchecked() };
        pipeline.finish_block(block.description.address);
        let executed = (pipeline.cycles(), Instructions(cpu.instructions));
        cpu.is_due(&block.description, executed, due_at(vcpu))
    });
    if is_due {
        B::before_block(vcpu, &block.description);
    }
    with_vcpu(vcpu, |cpu| {
        cpu.instructions += u64::from(block.description.length);
        cpu.branches += u64::from(block.description.ends_in_branch);
        cpu.block = &raw const block.description;
        cpu.has_abandoned_block = false;
        // SAFETY: these callbacks are registered only when there is a pipeline.
        unsafe { cpu.engine.pipeline_unchecked() }.start_block(&block.template);
    });
}

/// The callbacks of loads and of stores, on a machine with `cpus` vCPUs. Their argument is the instruction's number in
/// its block. For the only instruction of a block (`is_single`), the argument is the block.
pub(crate) fn access_callbacks(cpus: u32, is_single: bool) -> AccessCallbacks {
    match (cpus, is_single) {
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

/// Instruction `number` of the running block has loaded or, if `IS_STORE`, stored.
extern "C" fn on_access<const SINGLE_VCPU: bool, const IS_STORE: bool>(
    _: c_uint,
    access: u32,
    address: u64,
    number: *mut c_void,
) {
    let vcpu = known_running_vcpu::<SINGLE_VCPU>().unwrap_or_else(running_vcpu);
    keep_access::<IS_STORE>(vcpu, number.addr() as u16, (access, VirtualAddress(address)));
}

/// The only instruction of a block has loaded or stored. If that block was not started, QEMU has left the started block
/// to execute one of its instructions alone: see [`super::plain::on_single_access`].
extern "C" fn on_single_access<const SINGLE_VCPU: bool, const IS_STORE: bool>(
    _: c_uint,
    access: u32,
    address: u64,
    block: *mut c_void,
) {
    let vcpu = known_running_vcpu::<SINGLE_VCPU>().unwrap_or_else(running_vcpu);
    let single_block = block.cast_const().cast::<Block>();
    let number = with_vcpu(vcpu, |cpu| {
        // SAFETY: the arena keeps blocks while there is code that passes them. The started block is null if the arena
        // was emptied.
        let (single_block, started_block) = unsafe { (&*single_block, cpu.block.as_ref()) };
        match started_block {
            Some(started_block) if !std::ptr::eq(started_block, single_block) => {
                let number = started_block.index_of(single_block.address);
                let last_instruction = started_block.length() - 1;
                if number.is_some_and(|number| number < last_instruction)
                    && !cpu.has_abandoned_block
                {
                    cpu.leave_block_after(single_block.address);
                    cpu.has_abandoned_block = true;
                }
                number.unwrap_or(last_instruction)
            }
            _ => 0,
        }
    });
    keep_access::<IS_STORE>(vcpu, number as u16, (access, VirtualAddress(address)));
}

/// Keeps an access for the core. Common case: size and page are known, and the access lies in one page.
#[inline(always)]
fn keep_access<const IS_STORE: bool>(
    vcpu: u32,
    number: u16,
    (access, address): (u32, VirtualAddress),
) {
    with_vcpu(vcpu, |cpu| {
        // SAFETY: these callbacks are registered only when there is a pipeline.
        let pipeline = unsafe { cpu.engine.pipeline_unchecked() };
        match (physical::known_bytes(access), pipeline.pages.get(address)) {
            (Some(bytes), Some(physical)) if bytes_in_first(address, bytes) == bytes => {
                pipeline.push_access(Access {
                    virtual_address: address,
                    physical: Some(physical),
                    instruction: number,
                    bytes: bytes as u8,
                    write: IS_STORE,
                });
            }
            _ => {
                let device = keep_rare_access(pipeline, number, (access, address), IS_STORE);
                if IS_STORE && device.is_some_and(is_local_apic) {
                    cpu.exit(|exits| apic_exit_cycles(exits, address));
                }
            }
        }
    });
}

/// Whether a device's physical address is in the page of the local APIC, where all kernels leave it
/// (Intel SDM, volume 3, 11.4.1).
fn is_local_apic(physical: PhysicalAddress) -> bool {
    physical.page() == 0xfee00
}

/// The cost of a store to a register of the local APIC if a hypervisor emulates the APIC. `address`: of the register.
/// The registers' places in the page: Intel SDM, volume 3, table 11-1.
fn apic_exit_cycles(exits: HostExits, address: VirtualAddress) -> u64 {
    const INTERRUPT_COMMAND: u64 = 0x300;
    const TIMER_INITIAL_COUNT: u64 = 0x380;
    match address.0 & 0xfff {
        INTERRUPT_COMMAND => exits.ipi_cycles,
        TIMER_INITIAL_COUNT => exits.timer_cycles,
        _ => 0,
    }
}

/// Keeps an access of unknown size, to an unknown page, or to two pages. Returns the physical address of a device
/// access. `None` for an access to memory. `write`: whether the access is a store.
#[inline(never)]
fn keep_rare_access(
    pipeline: &mut Pipeline,
    number: u16,
    (access, address): (u32, VirtualAddress),
    write: bool,
) -> Option<PhysicalAddress> {
    let bytes = physical::access_bytes(access);
    let bytes_in_first_page = bytes_in_first(address, bytes);
    let make_access = |virtual_address, physical, bytes: u64| {
        let bytes = bytes.min(u8::MAX.into()) as u8;
        Access { virtual_address, physical, instruction: number, bytes, write }
    };
    let physical = pipeline.pages.get(address).or_else(|| {
        let physical = physical::address_of_access(access, address)?;
        pipeline.pages.put(address, physical);
        Some(physical)
    });
    let device = match physical {
        None => physical::device_address_of_access(access, address),
        Some(_) => None,
    };
    if device.is_some_and(is_local_apic) {
        pipeline.map_local_apic(address);
    }
    pipeline.push_access(make_access(address, physical, bytes_in_first_page));
    if bytes_in_first_page < bytes {
        let next_page = address.plus(bytes_in_first_page);
        // QEMU's last lookup was for the first page. The physical address of an unknown page is taken to be its virtual
        // address.
        let known = pipeline.pages.get(next_page).or_else(|| physical::translate(next_page));
        let physical = known.unwrap_or(PhysicalAddress(next_page.0));
        pipeline.push_access(make_access(next_page, Some(physical), bytes - bytes_in_first_page));
    }
    device
}
