//! Notes to the simulator: a long NOP with a displacement that nothing else uses. The bytes and the
//! numbers are those of `plugin::marker`, on which this program can't depend; a test of `sim` looks
//! for the bytes in it.

use core::arch::asm;

/// Opens the region of interest.
pub const OPEN: u32 = 1;
/// Closes it.
pub const CLOSE: u32 = 2;
/// Ends the record.
pub const END: u32 = 3;

/// From here on all is recorded, and guest time follows the model, if there is one.
pub const FULL: u32 = 6;

/// Leaves marker `number` with `argument` in the simulator's record, if there is one.
#[inline(always)]
pub fn mark(number: u32, argument: u64) {
    // SAFETY: a NOP: it reads no register and no memory, and changes no flag.
    unsafe {
        asm!(
            "nop dword ptr [rax + rax + 0x6b717269]",
            in("eax") number,
            in("rdx") argument,
            options(nostack, preserves_flags),
        );
    }
}
