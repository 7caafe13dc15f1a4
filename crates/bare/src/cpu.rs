//! Instructions that `core` has no function for, and the C functions that the compiler calls.

use core::arch::asm;
use core::arch::x86_64::{_mm_lfence, _rdtsc};

/// ACPI's PM1a control register of QEMU's machine `pc`, at the port that its firmware assigns.
const PM1A_CONTROL: u16 = 0x604;
/// SLP_EN with the sleep type of power off.
const OFF: u16 = 0x2000;

/// Reads the time-stamp counter.
#[inline]
pub fn now() -> u64 {
    // SAFETY: RDTSC only returns a value.
    unsafe { _rdtsc() }
}

/// Reads the counter after all previous instructions have completed, like `touch_loop::clock`.
#[inline]
pub fn now_after_work() -> u64 {
    // SAFETY: LFENCE only orders instructions.
    unsafe { _mm_lfence() };
    now()
}

pub fn read_port(port: u16) -> u8 {
    let value: u8;
    // SAFETY: this program owns the machine; reading these ports changes no memory.
    unsafe { asm!("in al, dx", out("al") value, in("dx") port, options(nomem, nostack)) };
    value
}

pub fn write_port(port: u16, value: u8) {
    // SAFETY: this program owns the machine, and no device has an address of memory from it.
    unsafe { asm!("out dx, al", in("al") value, in("dx") port, options(nomem, nostack)) };
}

/// Writes a model-specific register.
pub fn write_msr(register: u32, value: u64) {
    // SAFETY: called only for performance counters, which affect nothing else.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nomem, nostack, preserves_flags));
    }
}

/// Reads a performance counter.
#[inline]
pub fn read_counter(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the counter exists where its event was set before; reading has no other effect.
    unsafe {
        asm!("rdpmc", in("ecx") number, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

pub fn allow_interrupts() {
    // SAFETY: the table of handlers is set up before.
    unsafe { asm!("sti", options(nostack)) };
}

pub fn forbid_interrupts() {
    // SAFETY: pending interrupts are only delayed.
    unsafe { asm!("cli", options(nostack)) };
}

/// Powers the machine off.
pub fn power_off() -> ! {
    // SAFETY: this program owns the machine, and writing this port changes no memory.
    unsafe { asm!("out dx, ax", in("ax") OFF, in("dx") PM1A_CONTROL, options(nomem, nostack)) };
    // Spins instead of halting: the clock of a halted machine skips to its next timer, which may be the time
    // limit, before QEMU has powered the machine off.
    loop {
        core::hint::spin_loop();
    }
}

// The compiler emits calls of `memcpy`, `memset` and `memcmp`, and no library provides them.

/// # Safety
/// Both ranges of `bytes` bytes must be valid, and must not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the caller promises both ranges.
    unsafe {
        asm!("rep movsb", inout("rcx") bytes => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// The range of `bytes` bytes must be valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
    // SAFETY: the caller promises the range.
    unsafe {
        asm!("rep stosb", inout("rcx") bytes => _, inout("rdi") to => _, in("al") value as u8,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// Both ranges of `bytes` bytes must be valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(first: *const u8, second: *const u8, bytes: usize) -> i32 {
    for index in 0..bytes {
        // SAFETY: the caller promises both ranges.
        // Volatile, because the compiler could replace the loop by a call of `memcmp`.
        let (first_byte, second_byte) =
            unsafe { (first.add(index).read_volatile(), second.add(index).read_volatile()) };
        if first_byte != second_byte {
            return i32::from(first_byte) - i32::from(second_byte);
        }
    }
    0
}
