//! Registers by what dependences treat as one.

use iced_x86::Register as Name;

use crate::core::Register;

/// The register that `name` is, or is a part of; absent for what nothing waits for in practice:
/// segments, and the instruction pointer.
pub(super) fn named(name: Name) -> Option<Register> {
    let full = name.full_register();
    let number = full.number() as u8;
    if full.is_gpr() {
        Some(Register::general(number))
    } else if full.is_vector_register() {
        Some(Register::vector(number))
    } else if full.is_k() {
        Some(Register::mask(number))
    } else if full.is_mm() {
        Some(Register::mmx(number))
    } else if full.is_st() {
        Some(Register::X87)
    } else {
        None
    }
}
