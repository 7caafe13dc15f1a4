//! Registers as dependences see them.

/// A register, or a group of registers that dependences treat as one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub(super) u8);

/// Length of the tables of ready times. Every `u8` is a valid index, so that no index needs a check.
pub(in crate::core) const REGISTERS: usize = 256;

/// The index of a register in a table of ready times.
#[inline(always)]
pub(in crate::core) fn register_index(register: u8) -> usize {
    usize::from(register)
}

impl Register {
    /// The condition flags. An instruction that reads the carry reads this register. An instruction that keeps the carry
    /// writes [`Register::FLAGS_BUT_CARRY`] instead, and one that writes the carry alone writes [`Register::CARRY`].
    pub const FLAGS: Register = Register(16);
    /// The whole x87 stack.
    pub const X87: Register = Register(17);
    /// The condition codes of x87, which comparisons set and `fnstsw` reads.
    pub const X87_CONDITIONS: Register = Register(18);
    /// The condition flags without the carry: written by instructions that keep the carry, such as `inc`. A
    /// [`Template`](super::Template) makes readers read the register where the last writer left these flags.
    pub const FLAGS_BUT_CARRY: Register = Register(19);
    /// The carry alone: written by instructions that keep the zero flag, such as `stc`, `bt` and `adcx`. A
    /// [`Template`](super::Template) makes them write [`Register::FLAGS`].
    pub const CARRY: Register = Register(20);
    /// The condition flags without the carry, as earlier blocks left them. Cores write it at the end of each block.
    pub(in crate::core) const EARLIER_FLAGS: Register = Register(21);
    pub const STACK_POINTER: Register = Register(4);

    /// The register's number in an instruction's lists.
    pub(in crate::core) fn number(self) -> u8 {
        self.0
    }

    /// A general register, 0 to 15 in the order of their encoding.
    #[must_use]
    pub const fn general(number: u8) -> Register {
        Register(number & 15)
    }

    /// A mask register, 0 to 7.
    #[must_use]
    pub const fn mask(number: u8) -> Register {
        Register(24 + (number & 7))
    }

    /// An MMX register, 0 to 7.
    #[must_use]
    pub const fn mmx(number: u8) -> Register {
        Register(32 + (number & 7))
    }

    /// A vector register of any width, 0 to 31.
    #[must_use]
    pub const fn vector(number: u8) -> Register {
        Register(64 + (number & 31))
    }
}
