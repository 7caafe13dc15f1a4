//! Port input and output, for `firmware.rs`. Guests are x86 only; on other processors this program only has to compile.
//!
//! Test guests of the crate `plugin` include this file. So it must use no other crate.

use std::io;

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn iopl(level: std::ffi::c_int) -> std::ffi::c_int;
}

/// Lets this thread use I/O ports.
#[cfg(target_arch = "x86_64")]
pub fn allow() -> io::Result<()> {
    // SAFETY: iopl(2) takes no pointers. From now on port instructions do not fault.
    if unsafe { iopl(3) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads a byte from a port. The thread must have called [`allow`].
#[cfg(target_arch = "x86_64")]
pub fn read_u8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: accesses no memory. Faults, which ends the program, if ports are not allowed.
    unsafe {
        std::arch::asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack));
    }
    value
}

/// Writes 16 bits to a port. The thread must have called [`allow`].
#[cfg(target_arch = "x86_64")]
pub fn write_u16(port: u16, value: u16) {
    // SAFETY: accesses no memory. Faults, which ends the program, if ports are not allowed. The callers
    // write only to the ports of the firmware configuration.
    unsafe { std::arch::asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack)) }
}

/// Always fails: this processor has no ports.
#[cfg(not(target_arch = "x86_64"))]
pub fn allow() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Never reached: [`allow`] fails.
#[cfg(not(target_arch = "x86_64"))]
pub fn read_u8(_port: u16) -> u8 {
    0
}

/// Never reached: [`allow`] fails.
#[cfg(not(target_arch = "x86_64"))]
pub fn write_u16(_port: u16, _value: u16) {}
