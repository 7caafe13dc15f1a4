//! When a value is ready, and whether it waits for a miss: the in-order and multithreaded cores charge lost slots by
//! it.

use super::instruction::{REGISTERS, register_index};
use super::stages::PackedTime;
use crate::cycle::Cycle;

/// When a value is ready, and whether it waits for a miss. Packed as `cycle << 1 | missed`, so that the order is the
/// order of time; of two equal cycles, the one with a miss is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(super) struct ReadyTime(u64);

impl ReadyTime {
    #[inline]
    pub(super) fn new(cycle: Cycle, missed: bool) -> ReadyTime {
        ReadyTime(cycle.0 << 1 | u64::from(missed))
    }

    /// The time of a value that waits for no miss.
    #[inline]
    pub(super) fn without_miss(cycle: Cycle) -> ReadyTime {
        ReadyTime::new(cycle, false)
    }

    /// The time of a value that waits for a miss.
    #[inline]
    pub(super) fn after_miss(cycle: Cycle) -> ReadyTime {
        ReadyTime::new(cycle, true)
    }

    #[inline]
    pub(super) fn cycle(self) -> Cycle {
        Cycle(self.0 >> 1)
    }

    #[inline]
    pub(super) fn missed(self) -> bool {
        self.0 & 1 == 1
    }

    /// The later of both times. The reason stays that of `self`.
    #[inline]
    pub(super) fn at_least(self, cycle: Cycle) -> ReadyTime {
        self.max(ReadyTime::new(cycle.max(self.cycle()), self.missed()))
    }

    /// The latest ready time of some registers.
    #[inline]
    pub(super) fn latest_of(registers: &[u8], ready: &[ReadyTime; REGISTERS]) -> ReadyTime {
        let times = registers.iter().map(|register| ready[register_index(*register)]);
        times.fold(ReadyTime::default(), ReadyTime::max)
    }
}

impl PackedTime for ReadyTime {
    #[inline(always)]
    fn pack(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn unpack(packed: u64) -> ReadyTime {
        ReadyTime(packed)
    }
}
