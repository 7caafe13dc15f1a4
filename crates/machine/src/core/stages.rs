//! The limits of a core's stages: instructions per cycle, and entries of queues.

use std::marker::PhantomData;

use crate::cycle::Cycle;

/// Limits how many instructions pass a stage per cycle, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct WidthLimiter {
    /// The cycle of the last instruction, and in the low bits its place in the cycle. The last place has all
    /// bits set, so that an increment gives the next cycle. One number lets one comparison cover cycle and
    /// place.
    last: u64,
    /// The first place of a cycle.
    first: u64,
}

/// The bits that a place in a cycle has, and the most that a width is.
const PASSED_BITS: u32 = 4;
const PASSED: u64 = (1 << PASSED_BITS) - 1;

impl WidthLimiter {
    /// Up to `width`, at least one and at most 15, pass per cycle.
    pub(super) fn new(width: u32) -> WidthLimiter {
        let first = PASSED + 1 - u64::from(width);
        WidthLimiter { last: first - 1, first }
    }

    /// Lets the next instruction pass in the first cycle from `earliest` on that has room. Returns the cycle.
    #[inline(always)]
    pub(super) fn take(&mut self, earliest: Cycle) -> Cycle {
        let next = self.last + 1;
        let next = if next & PASSED == 0 { next + self.first } else { next };
        self.last = next.max((earliest.0 << PASSED_BITS) + self.first);
        self.cycle()
    }

    /// The cycle that [`WidthLimiter::take`] would return.
    pub(super) fn next(mut self, earliest: Cycle) -> Cycle {
        self.take(earliest)
    }

    /// The cycle of the last instruction.
    #[inline(always)]
    pub(super) fn cycle(&self) -> Cycle {
        Cycle(self.last >> PASSED_BITS)
    }

    /// How many have passed in that cycle, or could have.
    #[inline(always)]
    pub(super) fn passed(&self) -> u64 {
        (self.last & PASSED) + 1 - self.first
    }

    /// Nothing more passes in this cycle.
    #[inline(always)]
    pub(super) fn end_cycle(&mut self) {
        self.last |= PASSED;
    }

    /// Nothing more passes until `cycle` is over.
    pub(super) fn fill_until(&mut self, cycle: Cycle) {
        self.last = cycle.0 << PASSED_BITS | PASSED;
    }
}

/// A [`WidthLimiter`] whose width may change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FetchLimiter {
    /// The cycle of the last fetch, and in the low bits the number of instructions in it.
    last: u64,
}

impl FetchLimiter {
    /// The next place for a fetch, where at most `width` instructions are fetched per cycle.
    #[inline(always)]
    fn next_position(&self, earliest: Cycle, width: u32) -> u64 {
        let is_full = self.last & PASSED >= u64::from(width);
        let next = if is_full { (self.last | PASSED) + 2 } else { self.last + 1 };
        next.max(earliest.0 << PASSED_BITS | 1)
    }

    /// The first cycle from `earliest` on with fewer than `width` fetched instructions. `width` is at most 15.
    #[inline(always)]
    pub(super) fn next(&self, earliest: Cycle, width: u32) -> Cycle {
        Cycle(self.next_position(earliest, width) >> PASSED_BITS)
    }

    /// Fetches the next instruction in that cycle. Returns it.
    #[inline(always)]
    pub(super) fn take(&mut self, earliest: Cycle, width: u32) -> Cycle {
        self.last = self.next_position(earliest, width);
        Cycle(self.last >> PASSED_BITS)
    }

    /// Nothing more is fetched in this cycle.
    #[inline(always)]
    pub(super) fn end_cycle(&mut self) {
        self.last |= PASSED;
    }
}

/// Maximum entries of a queue: the entries of a reorder buffer, see
/// [`CoreModel::check`](super::CoreModel::check).
const ENTRIES_MAX: usize = 4096;

/// A time that is kept as one number.
pub(super) trait PackedTime: Copy {
    fn pack(self) -> u64;
    fn unpack(packed: u64) -> Self;
}

impl PackedTime for Cycle {
    #[inline(always)]
    fn pack(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn unpack(packed: u64) -> Cycle {
        Cycle(packed)
    }
}

/// A queue that is filled in program order, as the times at which its entries become free.
#[derive(Clone, Debug)]
pub(super) struct EntryQueue<T> {
    /// Packed times. The size is fixed, so that no index needs a check; the host backs only the pages that are used.
    times: Box<[u64; ENTRIES_MAX]>,
    /// The place of the first.
    last: usize,
    next: usize,
    kind: PhantomData<T>,
}

impl<T: PackedTime> EntryQueue<T> {
    pub(super) fn new(entries: u32) -> EntryQueue<T> {
        let Ok(times) = vec![0; ENTRIES_MAX].into_boxed_slice().try_into() else {
            unreachable!("the length is that of the array")
        };
        let last = entries as usize - 1;
        EntryQueue { times, last, next: last, kind: PhantomData }
    }

    /// When the entry is free that the next instruction takes.
    #[inline(always)]
    pub(super) fn oldest(&self) -> T {
        T::unpack(self.times[self.next % ENTRIES_MAX])
    }

    /// The next instruction takes its entry until `time`.
    #[inline(always)]
    pub(super) fn push(&mut self, time: T) {
        self.times[self.next % ENTRIES_MAX] = time.pack();
        // Downwards: the end is where the host's own subtraction says so.
        let (next, is_over) = self.next.overflowing_sub(1);
        self.next = if is_over { self.last } else { next };
    }
}
