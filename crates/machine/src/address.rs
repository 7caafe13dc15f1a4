//! Addresses of a guest's memory. Virtual and physical addresses have types of their own, so that a call cannot
//! exchange them.

use std::fmt;

/// An address as instructions name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct VirtualAddress(pub u64);

/// An address in the guest's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PhysicalAddress(pub u64);

impl PhysicalAddress {
    /// The first byte of a line of `1 << line_shift` bytes.
    #[inline(always)]
    #[must_use]
    pub fn of_line(line: u64, line_shift: u32) -> Self {
        PhysicalAddress(line << line_shift)
    }
}

macro_rules! functions_of {
    ($($address:ident)*) => {$(
        impl $address {
            /// The number of the line of `1 << line_shift` bytes that the address lies in.
            #[inline(always)]
            #[must_use]
            pub fn line(self, line_shift: u32) -> u64 {
                self.0 >> line_shift
            }

            /// The offset of the address in its line of `1 << line_shift` bytes.
            #[inline(always)]
            #[must_use]
            pub fn offset_in_line(self, line_shift: u32) -> u64 {
                self.0 & ((1 << line_shift) - 1)
            }

            /// The number of the page of 4 KiB that the address lies in.
            #[inline(always)]
            #[must_use]
            pub fn page(self) -> u64 {
                self.line(12)
            }

            /// The address `bytes` after this one. The address after the last one is 0.
            #[inline(always)]
            #[must_use]
            pub fn plus(self, bytes: u64) -> Self {
                $address(self.0.wrapping_add(bytes))
            }

            /// How many bytes this address is after `start`, by wrapping subtraction.
            #[inline(always)]
            #[must_use]
            pub fn bytes_after(self, start: Self) -> u64 {
                self.0.wrapping_sub(start.0)
            }
        }

        impl fmt::LowerHex for $address {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, out)
            }
        }
    )*};
}

functions_of! { VirtualAddress PhysicalAddress }
