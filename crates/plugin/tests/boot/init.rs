//! How a first process begins and ends; a part of the guests of `tests/boot.rs`, `tests/pmu.rs` and
//! `tests/ooo.rs`.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};

unsafe extern "C" {
    fn mount(
        from: *const c_char,
        to: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn reboot(how: c_int) -> c_int;
}

const POWER_OFF: c_int = 0x4321_fedc;

/// Mounts file systems of the kernel, each a kind and a place.
pub fn mount_all<const COUNT: usize>(all: [(&CStr, &CStr); COUNT]) {
    for (kind, place) in all {
        // SAFETY: C strings; no data.
        unsafe { mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    }
}

/// Ends the machine.
pub fn power_off() {
    // SAFETY: a number alone.
    unsafe { reboot(POWER_OFF) };
}
