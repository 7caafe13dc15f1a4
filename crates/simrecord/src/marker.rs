//! Markers: instructions that a guest executes to tell the plugin where a phase starts and ends.
//!
//! A marker is a long NOP with the displacement [`DISPLACEMENT`]. On real hardware it does nothing. The plugin
//! recognises the instruction when QEMU translates it, and acts before it executes. The marker's number is in `eax`,
//! its argument in `rdx`. Compilers and kernels pad with the same NOP, but with a displacement of zero.
//!
//! Guests execute these numbers, and the record holds them: they must not change.

use core::arch::asm;

/// The displacement of the NOP: "irqk", little-endian.
pub const DISPLACEMENT: u32 = 0x6b71_7269;

/// Machine code of the marker: `nopl DISPLACEMENT(%rax,%rax,1)`.
pub const BYTES: [u8; 8] = [0x0f, 0x1f, 0x84, 0x00, 0x69, 0x72, 0x71, 0x6b];

/// Opens the region of interest. Its rows start at zero.
pub const OPEN: u32 = 1;
/// Closes the region of interest, and writes its rows.
pub const CLOSE: u32 = 2;
/// Ends the record: nothing after it is recorded.
pub const END: u32 = 3;
/// Writes the rows of the open region so far.
pub const SNAPSHOT: u32 = 4;
/// From the next block on only markers are recorded, as at the level `fast`.
pub const FAST: u32 = 5;
/// From the next block on everything is recorded again. [`OPEN`] does the same.
pub const FULL: u32 = 6;
/// The guest's first process waits for a request. `sim` saves a checkpoint here; the marker itself does nothing.
pub const READY: u32 = 7;
/// The guest's first process has prepared a workload and waits for another request. `sim` saves a
/// checkpoint of the prepared guest here; the marker itself does nothing.
pub const PREPARED: u32 = 8;
/// The guest is about to read its kernel's own counters, or has just read them. Events between this marker and the
/// start or end of the region may be in only one of the two counts. The marker itself does nothing.
pub const READING: u32 = 9;
/// Starts a sampled warm-up, unless a region is open. Everything is recorded from the next block on. Caches, TLBs and
/// predictors are kept warm; samples estimate the time. The warm-up ends when a region opens, or at [`FULL`]. At levels
/// other than `ooo`, and with cores that cannot be sampled, nothing is sampled.
pub const WARM: u32 = 10;
/// The plugin itself writes this marker when it closes a region that has measured enough. The argument is the number of
/// the region. Guests do not execute this marker.
pub const ENOUGH: u32 = 11;
/// The first number that a guest may use freely. Such markers are recorded and do nothing else.
pub const USER_FIRST: u32 = 16;

/// Executes marker `number` with `argument`. Does nothing outside of a simulated machine. `number`: a constant of this
/// file, or [`USER_FIRST`] or more.
///
/// The compiler moves no access to memory across a marker: the simulator sees the accesses before it as done.
#[inline(always)]
pub fn mark(number: u32, argument: u64) {
    // SAFETY: a NOP: it reads no register and no memory, and changes no flag.
    unsafe {
        asm!(
            "nop dword ptr [rax + rax + {displacement}]",
            displacement = const DISPLACEMENT,
            in("eax") number,
            in("rdx") argument,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn execute_marker() {
        mark(USER_FIRST, 7);
    }

    #[test]
    fn the_assembler_emits_the_bytes_that_the_plugin_recognises() {
        execute_marker();
        let code = execute_marker as fn() as *const u8;
        // SAFETY: the code of this test is mapped well beyond the short function.
        let code = unsafe { core::slice::from_raw_parts(code, 256) };
        assert!(code.windows(BYTES.len()).any(|window| window == BYTES), "{code:x?}");
    }
}
