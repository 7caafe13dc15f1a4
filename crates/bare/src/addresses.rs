//! Where the program is in the virtual address space.

/// The offset of the program's addresses from physical addresses.
pub const HIGH: u64 = 0xffff_ffff_8000_0000;
