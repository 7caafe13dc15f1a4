//! Physical addresses and sizes of the guest's accesses, asked of QEMU outside of any lock.

use std::cell::UnsafeCell;
use std::sync::OnceLock;

use machine::{PhysicalAddress, VirtualAddress};

use crate::qemu::ffi::Access;

/// Entries of the table of sizes. A guest has some tens of sorts of accesses.
const SORTS: usize = 256;

static ACCESS: OnceLock<Access> = OnceLock::new();

/// The size of accesses of one sort.
#[derive(Clone, Copy)]
struct KnownSize {
    /// QEMU's description of such an access, which says its sort and not its address.
    access: u32,
    /// The length, or 0 if it is not known.
    bytes: u32,
}

/// Sizes by QEMU's descriptions of accesses.
struct Sizes(UnsafeCell<[KnownSize; SORTS]>);

// SAFETY: used by the vCPUs' thread alone.
unsafe impl Sync for Sizes {}

static SIZES: Sizes = Sizes(UnsafeCell::new([KnownSize { access: 0, bytes: 0 }; SORTS]));

/// Stores the functions that later calls use.
pub(crate) fn begin(access: Access) {
    // A second recording in one process asks the same QEMU.
    let _ = ACCESS.set(access);
}

/// The physical address of the access that has just been made at `address`. `None` if it went to a device.
#[cold]
pub(crate) fn of_access(access: u32, address: VirtualAddress) -> Option<PhysicalAddress> {
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

/// The physical address of the access at `address`, which has just been made, if a device is there.
pub(crate) fn of_device(access: u32, address: VirtualAddress) -> Option<PhysicalAddress> {
    let api = ACCESS.get()?;
    // SAFETY: called in a memory callback, for the address that was accessed.
    unsafe {
        let hardware = (api.qemu_plugin_get_hwaddr)(access, address.0);
        let is_device = !hardware.is_null() && (api.qemu_plugin_hwaddr_is_io)(hardware);
        is_device.then(|| PhysicalAddress((api.qemu_plugin_hwaddr_phys_addr)(hardware)))
    }
}

/// The physical address of `address` for the current vCPU. `None` if nothing is mapped there.
#[cold]
pub(crate) fn of_address(address: VirtualAddress) -> Option<PhysicalAddress> {
    let api = ACCESS.get()?;
    let mut physical = 0;
    // SAFETY: called in the thread of a vCPU; the pointer is valid for the call.
    let found = unsafe { (api.qemu_plugin_translate_vaddr)(address.0, &raw mut physical) };
    found.then_some(PhysicalAddress(physical))
}

/// How many bytes an access has, at least 1, if the size of this kind of access is known. Kinds can replace one another
/// in the table.
#[inline(always)]
pub(crate) fn known_bytes(access: u32) -> Option<u64> {
    // SAFETY: one thread runs all vCPUs; this reference does not outlive the function.
    let known = unsafe { &*SIZES.0.get() }[entry_of(access)];
    (known.access == access && known.bytes != 0).then_some(u64::from(known.bytes))
}

/// How many bytes an access has, at least 1.
pub(crate) fn access_bytes(access: u32) -> u64 {
    known_bytes(access).unwrap_or_else(|| {
        let bytes = ask_bytes(access);
        // SAFETY: as above.
        let sizes = unsafe { &mut *SIZES.0.get() };
        sizes[entry_of(access)] = KnownSize { access, bytes };
        u64::from(bytes)
    })
}

/// The index of an access in the table of sizes. Few bits of `access` vary, so the multiplication mixes them all.
#[inline(always)]
fn entry_of(access: u32) -> usize {
    (access.wrapping_mul(0x9e37_79b9) >> (u32::BITS - SORTS.ilog2())) as usize
}

#[cold]
fn ask_bytes(access: u32) -> u32 {
    // SAFETY: reads the description alone.
    let shift = ACCESS.get().map_or(0, |api| unsafe { (api.qemu_plugin_mem_size_shift)(access) });
    1 << shift.min(12)
}
