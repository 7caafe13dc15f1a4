//! Retirement in program order, and the causes that lost issue slots are charged to.
//!
//! The rule is that of `simos-1995`, section 3.3. In a cycle in which fewer instructions retire
//! than the core is wide, the first one that does not retire gives the cause: it waits for data
//! that missed, or its instruction line was waited for. All other slots are charged to the
//! pipeline.

use super::CoreCounts;

/// An interval of cycles, without its end; empty if the end is not later than the start.
pub(super) type Interval = (u64, u64);

/// The cycles in which an instruction could not retire, by cause. They do not overlap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallCauses {
    /// It waited for its instruction line.
    pub(super) fetch: Interval,
    /// It waited for an entry of the store buffer, which was full of stores that missed.
    pub(super) full: Interval,
    /// It waited for its data.
    pub(super) data: Interval,
    /// Other threads had the core.
    pub(super) shared: Interval,
}

#[derive(Clone, Debug)]
pub(super) struct Retirement {
    width: u64,
    /// The cycle in which the last instruction retired.
    cycle: u64,
    /// How many retired in that cycle.
    used: u64,
    /// Cycles that are not counted, because the thread was halted.
    skipped: u64,
    pub(super) counts: CoreCounts,
}

impl Retirement {
    pub(super) fn new(width: u32) -> Retirement {
        let width = u64::from(width);
        // Cycles are counted from the first in which an instruction can retire.
        Retirement { width, cycle: 0, used: width, skipped: 0, counts: CoreCounts::default() }
    }

    #[inline]
    pub(super) fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Retires the next instruction, not before cycle `done`. Returns the cycle. `waits` is asked only
    /// if slots were lost.
    #[inline(always)]
    pub(super) fn retire(&mut self, done: u64, waits: impl FnOnce() -> StallCauses) -> u64 {
        self.counts.instructions += 1;
        if done <= self.cycle && self.used < self.width {
            self.used += 1;
            return self.cycle;
        }
        let cycle = done.max(self.cycle + 1);
        let lost = self.width - self.used + (cycle - self.cycle - 1) * self.width;
        if lost > 0 {
            self.charge(cycle, lost, &waits());
        }
        self.cycle = cycle;
        self.used = 1;
        cycle
    }

    /// Nothing retires until `cycle` has passed, because the core waits for a miss.
    pub(super) fn wait_for_data(&mut self, cycle: u64) {
        if cycle > self.cycle {
            let lost = self.width - self.used + (cycle - self.cycle) * self.width;
            self.counts.data_stall_slots += lost;
            self.cycle = cycle;
            self.used = self.width;
        }
    }

    /// Does not count the cycles until `cycle`.
    pub(super) fn skip_to(&mut self, cycle: u64) {
        if cycle > self.cycle {
            // The open slots of the last cycle were lost before.
            self.counts.pipeline_stall_slots += self.width - self.used;
            self.used = self.width;
            self.skipped += cycle - self.cycle;
            self.cycle = cycle;
        }
    }

    /// Cycles that are not counted.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    #[inline(never)]
    fn charge(&mut self, until: u64, lost: u64, waits: &StallCauses) {
        let data = self.slots(waits.data, until);
        let full = self.slots(waits.full, until);
        let fetch = self.slots(waits.fetch, until);
        let shared = self.slots(waits.shared, until);
        self.counts.data_stall_slots += data + full;
        self.counts.fetch_stall_slots += fetch;
        self.counts.shared_slots += shared;
        self.counts.pipeline_stall_slots += lost - data - full - fetch - shared;
    }

    /// The lost slots of an interval, up to cycle `until`.
    fn slots(&self, (from, to): Interval, until: u64) -> u64 {
        let (from, to) = (from.max(self.cycle), to.min(until));
        if from >= to {
            return 0;
        }
        let used = if from == self.cycle { self.used } else { 0 };
        (to - from) * self.width - used
    }

    pub(super) fn counts(&self) -> CoreCounts {
        let open_slots = self.width - self.used;
        CoreCounts { cycles: self.cycle - self.skipped, open_slots, ..self.counts }
    }
}
