//! The limits of a core's stages: instructions per cycle, and entries of queues. On the hot path: each instruction
//! takes several of them, so each is one or two numbers with few operations.

use std::marker::PhantomData;

use crate::cycle::Cycle;

/// Limits how many instructions pass a stage per cycle, in program order.
#[derive(Clone, Copy, Debug)]
pub(super) struct WidthLimiter {
    /// The cycle of the last instruction, and in the low bits its position in the cycle. The last position has all
    /// bits set, so that an increment leads to the next cycle. Cycle and position are packed into one number, so one
    /// comparison compares both.
    last_position: u64,
    /// The first position of a cycle: the last position minus the width, plus one.
    first: u64,
}

/// Bits of a position in a cycle.
const POSITION_BITS: u32 = 4;
/// The last position, and the maximum width.
const POSITION_MAX: u64 = (1 << POSITION_BITS) - 1;

impl WidthLimiter {
    /// Lets up to `width` instructions, 1 to 15, pass per cycle.
    pub(super) fn new(width: u32) -> WidthLimiter {
        let first = POSITION_MAX + 1 - u64::from(width);
        WidthLimiter { last_position: first - 1, first }
    }

    /// Lets the next instruction pass in the first cycle from `earliest` on that has room. Returns the cycle.
    #[inline(always)]
    pub(super) fn take(&mut self, earliest: Cycle) -> Cycle {
        let next = self.last_position + 1;
        let next = if next & POSITION_MAX == 0 { next + self.first } else { next };
        self.last_position = next.max((earliest.0 << POSITION_BITS) + self.first);
        self.cycle()
    }

    /// The cycle that [`WidthLimiter::take`] would return.
    pub(super) fn next(mut self, earliest: Cycle) -> Cycle {
        self.take(earliest)
    }

    /// The cycle of the last instruction.
    #[inline(always)]
    pub(super) fn cycle(&self) -> Cycle {
        Cycle(self.last_position >> POSITION_BITS)
    }

    /// How many positions of the last instruction's cycle are used, or were closed by [`WidthLimiter::end_cycle`].
    #[inline(always)]
    pub(super) fn passed(&self) -> u64 {
        (self.last_position & POSITION_MAX) + 1 - self.first
    }

    /// Lets no further instruction pass in the cycle of the last one.
    #[inline(always)]
    pub(super) fn end_cycle(&mut self) {
        self.last_position |= POSITION_MAX;
    }

    /// Lets no further instruction pass until `cycle` is over.
    pub(super) fn fill_until(&mut self, cycle: Cycle) {
        self.last_position = cycle.0 << POSITION_BITS | POSITION_MAX;
    }
}

/// Limits how many instructions are fetched per cycle. The limit may change from call to call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FetchLimiter {
    /// The cycle of the last fetch, and in the low bits the number of instructions in it.
    last_position: u64,
}

impl FetchLimiter {
    /// The next value of `last_position`, where at most `width` instructions are fetched per cycle.
    #[inline(always)]
    fn next_position(&self, earliest: Cycle, width: u32) -> u64 {
        let is_full = self.last_position & POSITION_MAX >= u64::from(width);
        // From the last position, one step leads to the next cycle, and one to its first instruction.
        let next =
            if is_full { (self.last_position | POSITION_MAX) + 2 } else { self.last_position + 1 };
        next.max(earliest.0 << POSITION_BITS | 1)
    }

    /// The first cycle from `earliest` on with fewer than `width` fetched instructions. `width` is at most 15.
    #[inline(always)]
    pub(super) fn next(&self, earliest: Cycle, width: u32) -> Cycle {
        Cycle(self.next_position(earliest, width) >> POSITION_BITS)
    }

    /// Fetches the next instruction in the cycle that [`FetchLimiter::next`] returns. Returns the cycle.
    #[inline(always)]
    pub(super) fn take(&mut self, earliest: Cycle, width: u32) -> Cycle {
        self.last_position = self.next_position(earliest, width);
        Cycle(self.last_position >> POSITION_BITS)
    }

    /// Lets no further instruction be fetched in the cycle of the last one.
    #[inline(always)]
    pub(super) fn end_cycle(&mut self) {
        self.last_position |= POSITION_MAX;
    }
}

/// Maximum entries of a queue: the size of the largest reorder buffer that
/// [`CoreModel::check`](super::CoreModel::check) accepts. A power of two.
const ENTRIES_MAX: usize = 4096;

/// A time that is kept as a single number.
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

/// A queue that fills in program order, kept as the times at which its entries become free. The entries form a ring.
#[derive(Clone, Debug)]
pub(super) struct EntryQueue<T> {
    /// Packed times. The size is fixed, so that no index needs a check; the host backs only the pages that are used.
    times: Box<[u64; ENTRIES_MAX]>,
    /// The last index of the ring; the ring starts there and goes down to 0.
    last_index: usize,
    /// The index of the entry that the next instruction takes.
    next: usize,
    kind: PhantomData<T>,
}

impl<T: PackedTime> EntryQueue<T> {
    pub(super) fn new(entries: u32) -> EntryQueue<T> {
        let Ok(times) = vec![0; ENTRIES_MAX].into_boxed_slice().try_into() else {
            unreachable!("the length is that of the array")
        };
        let last_index = entries as usize - 1;
        EntryQueue { times, last_index, next: last_index, kind: PhantomData }
    }

    /// When the entry that the next instruction takes is free.
    #[inline(always)]
    pub(super) fn oldest(&self) -> T {
        T::unpack(self.times[self.next % ENTRIES_MAX])
    }

    /// Lets the next instruction take its entry until `time`.
    #[inline(always)]
    pub(super) fn push(&mut self, time: T) {
        self.times[self.next % ENTRIES_MAX] = time.pack();
        // Downwards, because the host's subtraction itself shows the end of the ring.
        let (next, is_past_end) = self.next.overflowing_sub(1);
        self.next = if is_past_end { self.last_index } else { next };
    }
}
