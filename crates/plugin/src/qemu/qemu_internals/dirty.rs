//! Reports writes to memory that do not take a vCPU's fast path: above all DMA of devices. `devices/dma.rs` uses it.
//!
//! The plugin API has no callback for such writes. QEMU writes the guest's memory for a device in several ways: through
//! the bus, at the end of a mapping, or to a cached descriptor ring. Each way calls the exported function
//! `physical_memory_set_dirty_range` with the address and the exact length. The function marks pages for migration and
//! displays. QEMU calls it directly, so there is no pointer to exchange. The plugin replaces the start of the function
//! by a jump.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use crate::qemu::ffi;

/// QEMU's function. Its arguments: the offset in QEMU's RAM, the length in bytes, and the clients whose pages become
/// dirty.
type SetDirty = extern "C" fn(u64, u64, u8);

/// The clients that QEMU passes for a vCPU's store to a clean page: displays and migration (`DIRTY_CLIENTS_NOCODE`).
/// For DMA, QEMU passes only the clients that follow the page, and displays follow no RAM.
const VCPU_STORE_CLIENTS: u8 = 1 << 0 | 1 << 2;

/// The length of `movabs $on_dirty, %rax; jmp *%rax`. The function has three arguments, and none is in `rax`.
const JUMP_BYTES: usize = 12;
/// `jmp *0(%rip)`, which the address of the target follows.
const LONG_JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
/// The length of the longest instruction of x86.
const INSTRUCTION_BYTES_MAX: usize = 15;

/// The original function: a copy of its first instructions, which then jumps to the rest.
static ORIGINAL: OnceLock<SetDirty> = OnceLock::new();
static CALLBACK: OnceLock<fn(Written)> = OnceLock::new();

/// Memory that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The offset in QEMU's RAM.
    pub(crate) ram: u64,
    pub(crate) bytes: u64,
    /// Whether a device wrote. Otherwise a vCPU stored to a page from which QEMU has translated code.
    pub(crate) by_device: bool,
}

/// Makes QEMU call `callback`, in any thread, whenever a device has written memory or a vCPU has stored to a page with
/// code. Returns whether this QEMU allows the change. Call it while QEMU loads the plugin, before any vCPU or device
/// exists.
pub(crate) fn on_write(callback: fn(Written)) -> bool {
    if ORIGINAL.get().is_some() {
        return true; // A second recording in one process, as in tests.
    }
    let found = ffi::find(c"physical_memory_set_dirty_range").cast::<u8>();
    if found.is_null() {
        return false;
    }
    // SAFETY: the code of a function that is longer than this; QEMU's code is readable.
    let code = unsafe { std::slice::from_raw_parts(found, JUMP_BYTES + INSTRUCTION_BYTES_MAX) };
    let Some(moved) = movable_bytes(code) else { return false };
    // SAFETY: `moved` bytes are whole instructions that work the same at any address.
    let Some(original) = (unsafe { copied(found, moved) }) else { return false };
    let _ = CALLBACK.set(callback);
    let _ = ORIGINAL.set(original);
    let mut jump = [0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0];
    jump[2..10].copy_from_slice(&(on_dirty as SetDirty as usize).to_le_bytes());
    // SAFETY: the replaced instructions are in the copy. No other thread calls the function so early.
    unsafe { patch(found, &jump) }
}

/// The length in bytes of the first instructions of `code` that the jump replaces, at least in part. `None` if one of
/// them depends on its address, so that it cannot be moved.
fn movable_bytes(code: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut bytes = 0;
    while bytes < JUMP_BYTES {
        let instruction = decoder.decode();
        let depends_on_address = instruction.is_ip_rel_memory_operand()
            || instruction.flow_control() != FlowControl::Next;
        if instruction.is_invalid() || depends_on_address {
            return None;
        }
        bytes += instruction.len();
    }
    Some(bytes)
}

/// Makes a function that executes a copy of the first `bytes` bytes of `function`, and continues in `function` after
/// them. `None` if the system gives no memory for code.
///
/// # Safety
/// The bytes must be whole instructions that work the same at any address.
unsafe fn copied(function: *mut u8, bytes: usize) -> Option<SetDirty> {
    let size = bytes + LONG_JUMP.len() + size_of::<usize>();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, filled within its size, and executable only then.
    unsafe {
        let room =
            libc::mmap(ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if room == libc::MAP_FAILED {
            return None;
        }
        let copy = room.cast::<u8>();
        copy.copy_from_nonoverlapping(function, bytes);
        copy.add(bytes).copy_from_nonoverlapping(LONG_JUMP.as_ptr(), LONG_JUMP.len());
        let target = (function as usize + bytes).to_le_bytes();
        copy.add(bytes + LONG_JUMP.len()).copy_from_nonoverlapping(target.as_ptr(), target.len());
        if libc::mprotect(room, size, libc::PROT_READ | libc::PROT_EXEC) != 0 {
            libc::munmap(room, size);
            return None;
        }
        Some(std::mem::transmute::<*mut c_void, SetDirty>(room))
    }
}

/// Writes `bytes` over code. Returns whether the system allows it.
///
/// # Safety
/// No other thread executes this code meanwhile.
unsafe fn patch(code: *mut u8, bytes: &[u8]) -> bool {
    // SAFETY: asks for a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = code as usize / page * page;
    let size = (code as usize + bytes.len()).div_ceil(page) * page - start;
    let protect = |protection: c_int| {
        // SAFETY: pages of QEMU's code, which stay executable.
        unsafe { libc::mprotect(start as *mut c_void, size, protection) == 0 }
    };
    if !protect(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) {
        return false;
    }
    // SAFETY: the pages are writable now. The caller promises that no thread executes the code.
    unsafe { code.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    protect(libc::PROT_READ | libc::PROT_EXEC)
}

/// Replaces QEMU's function: calls the original, and reports the write.
extern "C" fn on_dirty(start: u64, bytes: u64, clients: u8) {
    if let Some(original) = ORIGINAL.get() {
        original(start, bytes, clients);
    }
    if bytes > 0
        && let Some(callback) = CALLBACK.get()
    {
        callback(Written {
            ram: start,
            bytes,
            by_device: clients & VCPU_STORE_CLIENTS != VCPU_STORE_CLIENTS,
        });
    }
}

/// QEMU's `MemTxAttrs`, bits in one word. The plugin sets none.
type Attributes = u64;
type Map = unsafe extern "C" fn(*mut c_void, u64, *mut u64, bool, Attributes) -> *mut c_void;
type Unmap = unsafe extern "C" fn(*mut c_void, *mut c_void, u64, bool, u64);
type RamOfHost = unsafe extern "C" fn(*mut c_void) -> u64;

/// A contiguous piece of the guest's RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RamPiece {
    /// The offset in QEMU's RAM.
    pub(crate) ram: u64,
    /// The physical address in the guest.
    pub(crate) physical: u64,
    pub(crate) bytes: u64,
}

/// The physical addresses at which pieces of a PC's RAM start: 0, 1 MiB and 4 GiB.
const RAM_STARTS: [u64; 3] = [0, 1 << 20, 1 << 32];
/// The length of the mapping that is requested: more RAM than any guest has.
const RAM_BYTES_MAX: u64 = 1 << 44;

/// The pieces of RAM of the machine. Empty if QEMU does not export the needed functions. Call it with QEMU's big lock,
/// when the machine is complete.
pub(crate) fn ram_pieces() -> Vec<RamPiece> {
    let space = ffi::find(c"address_space_memory");
    let map = function!(c"address_space_map" as Map);
    let unmap = function!(c"address_space_unmap" as Unmap);
    let ram_of = function!(c"qemu_ram_addr_from_host" as RamOfHost);
    let (Some(map), Some(unmap), Some(ram_of)) = (map, unmap, ram_of) else { return Vec::new() };
    if space.is_null() {
        return Vec::new();
    }
    let piece = |physical: u64| {
        let mut bytes = RAM_BYTES_MAX;
        // SAFETY: maps QEMU's address space of all vCPUs for reading. The mapping is released at once with its own
        // length, and nothing has accessed it.
        unsafe {
            let host = map(space, physical, &raw mut bytes, false, 0);
            if host.is_null() {
                return None;
            }
            let ram = ram_of(host);
            unmap(space, host, bytes, false, 0);
            (ram != u64::MAX).then_some(RamPiece { ram, physical, bytes })
        }
    };
    RAM_STARTS.into_iter().filter_map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_moved_only_if_they_mean_the_same_elsewhere() {
        // endbr64; push %r15; pxor %xmm0,%xmm0; push %r14; push %r13
        let good = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x57, 0x66, 0x0f, 0xef, 0xc0, 0x41, 0x56, 0x41, 0x55,
            0x90,
        ];
        assert_eq!(movable_bytes(&good), Some(12));
        assert_eq!(movable_bytes(&good[2..]), None); // invalid
        let relative = [0x48, 0x8b, 0x05, 1, 2, 3, 4, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        assert_eq!(movable_bytes(&relative), None);
        let call = [0x90, 0xe8, 1, 2, 3, 4, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        assert_eq!(movable_bytes(&call), None);
        let jump = [0x90, 0x74, 1, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        assert_eq!(movable_bytes(&jump), None);
    }

    #[inline(never)]
    extern "C" fn sum(start: u64, bytes: u64, uses: u8) {
        SUM.store(start + bytes + u64::from(uses), std::sync::atomic::Ordering::SeqCst);
    }

    static SUM: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

    #[test]
    fn a_moved_start_goes_on_in_the_function() {
        let function = (sum as SetDirty as *mut c_void).cast::<u8>();
        // SAFETY: the test's own function; no instruction is moved.
        let moved = unsafe { copied(function, 0) }.unwrap();
        moved(3, 4, 5);
        assert_eq!(SUM.load(std::sync::atomic::Ordering::SeqCst), 12);
    }
}
