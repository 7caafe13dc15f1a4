//! Writes routines into memory: a chain of jumps, one in each cache line, so that a call fetches each line once. The
//! interrupt handler and `fill.rs` call them.

/// The opcode of `jmp rel32`. The distance counts from the end of the jump.
const JUMP: u8 = 0xe9;
const JUMP_BYTES: u64 = 5;
/// The opcode of a near `ret`.
const RETURN: u8 = 0xc3;

/// Writes a jump from `from` to `to`, less than 2 GiB away.
///
/// # Safety
/// Nothing else may use the memory at `from`.
pub unsafe fn jump(from: u64, to: u64) {
    let distance = to.wrapping_sub(from + JUMP_BYTES) as u32;
    // SAFETY: the caller promises the memory.
    unsafe {
        (from as *mut u8).write_volatile(JUMP);
        ((from + 1) as *mut u32).write_unaligned(distance);
    }
}

/// Writes a return at `address`.
///
/// # Safety
/// Nothing else may use the memory.
pub unsafe fn end(address: u64) {
    // SAFETY: the caller promises the memory.
    unsafe { (address as *mut u8).write_volatile(RETURN) };
}

/// Writes a routine of `lines` lines of `line` bytes at `start`: each line but the last jumps to the next line, and
/// the last returns. Returns the routine's address; `None` if `lines` is 0.
///
/// # Safety
/// Nothing else may use the memory, and `line` must be at least 8.
pub unsafe fn write(start: u64, lines: u64, line: u64) -> Option<u64> {
    for number in 0..lines {
        let address = start + number * line;
        // SAFETY: within the memory that the caller promises.
        unsafe {
            if number + 1 < lines {
                jump(address, address + line);
            } else {
                end(address);
            }
        }
    }
    (lines > 0).then_some(start)
}
