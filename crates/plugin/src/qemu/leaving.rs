//! Callbacks that may leave their block before its end. They need the place in translated code where they were called,
//! because QEMU restores its state by it.

/// Defines the callback `$name`, which calls `$rest` with its own two arguments and, as the third, its return address.
macro_rules! leaving_callback {
    ($(#[$attribute:meta])* $name:ident, $rest:ident) => {
        $(#[$attribute])*
        // SAFETY: passes on its two arguments, and its return address, which is in translated code, as the third.
        #[unsafe(naked)]
        extern "C" fn $name(_: std::ffi::c_uint, _: *mut std::ffi::c_void) {
            std::arch::naked_asm!("mov rdx, [rsp]", "jmp {to}", to = sym $rest)
        }
    };
}

pub(crate) use leaving_callback;
