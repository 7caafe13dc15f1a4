//! The program's position in the virtual address space. The linker script and `boot.rs` use it, too.

/// Offset of the program's virtual addresses from physical addresses.
pub const HIGH: u64 = 0xffff_ffff_8000_0000;
