//! Routines of forward branches: one in each line, so that a call fetches each line once.

/// The instruction that goes to the begin of the next line, from the begin of one: `jmp rel32`.
const JUMP: u8 = 0xe9;
const JUMP_BYTES: u64 = 5;
/// `ret`.
const RETURN: u8 = 0xc3;

/// Writes a routine of `lines` lines of `line` bytes at `at`: each but the last goes to the next, the last
/// returns. Returns its address; none for no lines.
///
/// # Safety
/// The memory must be nobody else's, and `line` at least 8.
pub unsafe fn write(at: u64, lines: u64, line: u64) -> Option<u64> {
    for number in 0..lines {
        let place = at + number * line;
        let distance = (line - JUMP_BYTES) as u32;
        // SAFETY: within the memory that the caller promises.
        unsafe {
            if number + 1 < lines {
                (place as *mut u8).write_volatile(JUMP);
                ((place + 1) as *mut u32).write_unaligned(distance);
            } else {
                (place as *mut u8).write_volatile(RETURN);
            }
        }
    }
    (lines > 0).then_some(at)
}

/// Calls a routine that [`write`] wrote.
///
/// # Safety
/// It must be whole, and stay so.
#[inline]
pub unsafe fn call(routine: u64) {
    // SAFETY: the caller promises that there is a routine without arguments or results.
    unsafe { core::mem::transmute::<u64, extern "C" fn()>(routine)() };
}
