//! Asks QEMU for physical addresses and for the sizes of accesses. Callbacks of accesses use it without a lock, in the
//! vCPUs' thread.

use std::cell::UnsafeCell;
use std::sync::OnceLock;

use machine::{PhysicalAddress, VirtualAddress};

use crate::qemu::ffi::Access;

/// Entries of the table of sizes, a power of two. A guest has some tens of kinds of accesses.
const SIZE_ENTRIES: usize = 256;

/// QEMU's functions, once [`set_functions`] has stored them.
static ACCESS: OnceLock<Access> = OnceLock::new();

/// The size of accesses of one kind.
#[derive(Clone, Copy)]
struct KnownSize {
    /// QEMU's description of such an access. It tells the kind of the access, but not its address.
    access: u32,
    /// The length in bytes, or 0 in an empty entry.
    bytes: u32,
}

/// Sizes by QEMU's descriptions of accesses.
struct Sizes(UnsafeCell<[KnownSize; SIZE_ENTRIES]>);

// SAFETY: used by the vCPUs' thread alone.
unsafe impl Sync for Sizes {}

static SIZES: Sizes = Sizes(UnsafeCell::new([KnownSize { access: 0, bytes: 0 }; SIZE_ENTRIES]));

/// Stores QEMU's functions, which all other functions here need.
pub(crate) fn set_functions(access: Access) {
    // A second recording in one process asks the same QEMU.
    let _ = ACCESS.set(access);
}

/// The physical address of the access that has just been made at `address`. `None` if it went to a device. Call it in
/// the callback of the access. `access`: QEMU's description.
#[cold]
pub(crate) fn address_of_access(access: u32, address: VirtualAddress) -> Option<PhysicalAddress> {
    let api = ACCESS.get()?;
    // SAFETY: called in a memory callback, for the address that was accessed or one in its page.
    unsafe {
        let hardware = (api.qemu_plugin_get_hwaddr)(access, address.0);
        if hardware.is_null() || (api.qemu_plugin_hwaddr_is_io)(hardware) {
            return None;
        }
        Some(PhysicalAddress((api.qemu_plugin_hwaddr_phys_addr)(hardware)))
    }
}

/// The physical address of the access to a device that has just been made at `address`. `None` if the access went to
/// memory. Call this in the callback of the access. `access`: QEMU's description.
pub(crate) fn device_address_of_access(
    access: u32,
    address: VirtualAddress,
) -> Option<PhysicalAddress> {
    let api = ACCESS.get()?;
    // SAFETY: called in a memory callback, for the address that was accessed.
    unsafe {
        let hardware = (api.qemu_plugin_get_hwaddr)(access, address.0);
        let is_device = !hardware.is_null() && (api.qemu_plugin_hwaddr_is_io)(hardware);
        is_device.then(|| PhysicalAddress((api.qemu_plugin_hwaddr_phys_addr)(hardware)))
    }
}

/// Translates a virtual address of the running vCPU. `None` if nothing is mapped there.
#[cold]
pub(crate) fn translate(address: VirtualAddress) -> Option<PhysicalAddress> {
    let api = ACCESS.get()?;
    let mut physical = 0;
    // SAFETY: called in the thread of a vCPU; the pointer is valid for the call.
    let is_mapped = unsafe { (api.qemu_plugin_translate_vaddr)(address.0, &raw mut physical) };
    is_mapped.then_some(PhysicalAddress(physical))
}

/// How many bytes an access has, at least 1, if the table of sizes has its kind. A kind can lose its entry to another
/// kind.
#[inline(always)]
pub(crate) fn known_bytes(access: u32) -> Option<u64> {
    // SAFETY: one thread runs all vCPUs; this reference does not outlive the function.
    let known = unsafe { &*SIZES.0.get() }[entry_index(access)];
    (known.access == access && known.bytes != 0).then_some(u64::from(known.bytes))
}

/// How many bytes an access has, at least 1. Asks QEMU if the table of sizes does not have its kind.
pub(crate) fn access_bytes(access: u32) -> u64 {
    known_bytes(access).unwrap_or_else(|| {
        let bytes = ask_qemu_for_bytes(access);
        // SAFETY: one thread runs all vCPUs; this reference does not outlive the closure.
        let sizes = unsafe { &mut *SIZES.0.get() };
        sizes[entry_index(access)] = KnownSize { access, bytes };
        u64::from(bytes)
    })
}

/// The index of an access in the table of sizes. Few bits of `access` vary, so the multiplication mixes them all.
#[inline(always)]
fn entry_index(access: u32) -> usize {
    (access.wrapping_mul(0x9e37_79b9) >> (u32::BITS - SIZE_ENTRIES.ilog2())) as usize
}

#[cold]
fn ask_qemu_for_bytes(access: u32) -> u32 {
    // SAFETY: reads the description alone.
    let shift = ACCESS.get().map_or(0, |api| unsafe { (api.qemu_plugin_mem_size_shift)(access) });
    1 << shift.min(12)
}
