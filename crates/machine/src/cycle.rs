//! Points in time of a core's clock. All cores and memory systems use them; a duration is a plain `u64`.

use std::ops::{Add, AddAssign, Sub};

/// A cycle of a core's clock: a point in time. A duration is not a `Cycle`, but a `u64` whose name ends in `_cycles`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Cycle(pub u64);

impl Cycle {
    /// The first cycle of a core.
    pub const START: Cycle = Cycle(0);
    /// A cycle that no core reaches.
    pub const NEVER: Cycle = Cycle(u64::MAX);

    #[inline(always)]
    #[must_use]
    pub fn next(self) -> Cycle {
        self + 1
    }

    /// The number of cycles from `earlier` to this one, or 0 if this one is earlier.
    #[inline(always)]
    #[must_use]
    pub fn cycles_since(self, earlier: Cycle) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The cycle that is `cycles` before this one, but not before the first cycle.
    #[inline(always)]
    #[must_use]
    pub fn earlier_by(self, cycles: u64) -> Cycle {
        Cycle(self.0.saturating_sub(cycles))
    }
}

impl Add<u64> for Cycle {
    type Output = Cycle;

    #[inline(always)]
    fn add(self, cycles: u64) -> Cycle {
        Cycle(self.0 + cycles)
    }
}

impl AddAssign<u64> for Cycle {
    #[inline(always)]
    fn add_assign(&mut self, cycles: u64) {
        self.0 += cycles;
    }
}

/// The number of cycles from `earlier` to this one, which must not be earlier.
impl Sub for Cycle {
    type Output = u64;

    #[inline(always)]
    fn sub(self, earlier: Cycle) -> u64 {
        self.0 - earlier.0
    }
}
