//! Readings of the time-stamp counter (TSC), inlined into the measured loops. `live` and this crate use them.

/// Reads the counter. Returns 0 on other processors than x86-64; the benches refuse these processors earlier.
#[inline]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC has no effect but its result; it is part of every x86-64 processor.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Reads the counter after all earlier instructions have completed.
#[inline]
pub fn now_after_work() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: LFENCE has no effect but order; SSE2 is part of every x86-64 processor.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    now()
}
