//! Addresses of a guest's memory, and numbers of cache lines. Each has a separate type, so that a call cannot
//! exchange them by mistake. The types cost nothing at run time.

use std::fmt;

/// The smallest page of the guest, as a power of two.
const PAGE_SHIFT: u32 = 12;

/// An address as a guest's instructions use it, before translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct VirtualAddress(pub u64);

/// An address in the guest's memory, after translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PhysicalAddress(pub u64);

/// The number of a cache line: a physical address divided by the line size. It has a meaning only together with that
/// line size: levels with different line sizes number lines differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct LineAddress(pub u64);

impl PhysicalAddress {
    /// The first byte of a line of `1 << line_shift` bytes.
    #[inline(always)]
    #[must_use]
    pub fn of_line(line: LineAddress, line_shift: u32) -> Self {
        PhysicalAddress(line.0 << line_shift)
    }

    /// The line of `1 << line_shift` bytes that contains the address.
    #[inline(always)]
    #[must_use]
    pub fn line(self, line_shift: u32) -> LineAddress {
        LineAddress(self.block_number(line_shift))
    }
}

impl LineAddress {
    /// The line that is `lines` after this one.
    #[inline(always)]
    #[must_use]
    pub fn plus(self, lines: u64) -> Self {
        LineAddress(self.0 + lines)
    }

    /// The line that contains this one, in a cache whose lines are `1 << shift` times as long.
    #[inline(always)]
    #[must_use]
    pub fn in_longer_line(self, shift: u32) -> Self {
        LineAddress(self.0 >> shift)
    }
}

/// The functions that virtual and physical addresses share.
macro_rules! address_functions {
    ($($address:ident)*) => {$(
        impl $address {
            /// The number of the block that contains the address, if memory is divided into blocks of `1 << shift`
            /// bytes.
            #[inline(always)]
            #[must_use]
            pub fn block_number(self, shift: u32) -> u64 {
                self.0 >> shift
            }

            /// The offset of the address in its block of `1 << shift` bytes.
            #[inline(always)]
            #[must_use]
            pub fn offset_in_block(self, shift: u32) -> u64 {
                self.0 & ((1 << shift) - 1)
            }

            /// The first byte of the block of `1 << shift` bytes that contains the address.
            #[inline(always)]
            #[must_use]
            pub fn block_start(self, shift: u32) -> Self {
                $address(self.0 & !((1 << shift) - 1))
            }

            /// Whether both addresses are in one block of `1 << shift` bytes.
            #[inline(always)]
            #[must_use]
            pub fn is_in_block_of(self, other: Self, shift: u32) -> bool {
                self.block_number(shift) == other.block_number(shift)
            }

            /// The number of the 4 KiB page that contains the address.
            #[inline(always)]
            #[must_use]
            pub fn page(self) -> u64 {
                self.block_number(PAGE_SHIFT)
            }

            /// The offset of the address in its 4 KiB page.
            #[inline(always)]
            #[must_use]
            pub fn offset_in_page(self) -> u64 {
                self.offset_in_block(PAGE_SHIFT)
            }

            /// The address `bytes` after this one. Wraps: the address after the last one is 0.
            #[inline(always)]
            #[must_use]
            pub fn plus(self, bytes: u64) -> Self {
                $address(self.0.wrapping_add(bytes))
            }

            /// The distance from `start` to this address in bytes, by wrapping subtraction.
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

address_functions! { VirtualAddress PhysicalAddress }

/// Lines with consecutive numbers, from `first` to before `end`. Iterates over the lines in ascending order. The end is
/// never before the first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRange {
    first: LineAddress,
    end: LineAddress,
}

impl LineRange {
    /// `lines` lines from `first` on.
    #[must_use]
    pub fn new(first: LineAddress, lines: u64) -> LineRange {
        LineRange { first, end: first.plus(lines) }
    }

    /// The lines of `1 << line_shift` bytes that contain any of `bytes` bytes from `start` on. Bytes beyond the last
    /// address are ignored.
    #[inline]
    #[must_use]
    pub fn touched_by(start: PhysicalAddress, bytes: u64, line_shift: u32) -> LineRange {
        let first = start.line(line_shift);
        let Some(to_last) = bytes.checked_sub(1) else { return LineRange { first, end: first } };
        let last = PhysicalAddress(start.0.saturating_add(to_last)).line(line_shift);
        LineRange { first, end: last.plus(1) }
    }

    /// The first line. For an empty range, the line before which it lies.
    #[inline(always)]
    #[must_use]
    pub fn first(&self) -> LineAddress {
        self.first
    }

    /// The first line. `None` if the range is empty.
    #[inline(always)]
    #[must_use]
    pub fn peek(&self) -> Option<LineAddress> {
        (self.first != self.end).then_some(self.first)
    }

    /// The last line. The range must not be empty.
    #[inline(always)]
    #[must_use]
    pub fn last_line(&self) -> LineAddress {
        LineAddress(self.end.0 - 1)
    }

    #[inline(always)]
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.end.0 - self.first.0
    }

    /// Whether a line is one of these lines.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self, line: LineAddress) -> bool {
        self.first <= line && line < self.end
    }

    /// Drops the lines up to and including `line`, which must be in the range.
    #[inline(always)]
    pub fn skip_through(&mut self, line: LineAddress) {
        self.first = line.plus(1);
    }
}

impl Iterator for LineRange {
    type Item = LineAddress;

    #[inline(always)]
    fn next(&mut self) -> Option<LineAddress> {
        let line = self.peek()?;
        self.skip_through(line);
        Some(line)
    }
}
