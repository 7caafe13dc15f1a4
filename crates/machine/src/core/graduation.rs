//! Graduation in the order of the program, and whom lost slots are charged to.
//!
//! The rule is the paper's (`simos-1995`, section 3.3). Where less than a full load graduates, the
//! first instruction that does not says why: a load or store that missed, or nothing there as a line
//! of instructions was waited for. All else is the pipeline's.

use super::counts::CoreCounts;

/// A time: from the first cycle to before the second; empty if the second is not later.
pub(super) type Interval = (u64, u64);

/// In which cycles an instruction could not graduate for what it waited for. They don't overlap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// For its line of instructions, before it entered.
    pub(super) fetch: Interval,
    /// For a place behind stores that missed.
    pub(super) full: Interval,
    /// For its own data.
    pub(super) data: Interval,
    /// For other threads, which had the core.
    pub(super) shared: Interval,
}

#[derive(Clone, Debug)]
pub(super) struct Graduation {
    width: u64,
    /// The cycle in which the last instruction graduated.
    cycle: u64,
    /// How many did in that cycle.
    used: u64,
    /// Cycles that are not counted.
    skipped: u64,
    pub(super) counts: CoreCounts,
}

impl Graduation {
    pub(super) fn new(width: u32) -> Graduation {
        let width = u64::from(width);
        // Cycles are counted from the first in which an instruction can graduate.
        Graduation { width, cycle: 0, used: width, skipped: 0, counts: CoreCounts::default() }
    }

    #[inline]
    pub(super) fn cycle(&self) -> u64 {
        self.cycle
    }

    /// The next instruction graduates, no earlier than in cycle `done`. Returns when.
    #[inline]
    pub(super) fn graduate(&mut self, done: u64, waits: &Waits) -> u64 {
        self.counts.instructions += 1;
        if done <= self.cycle && self.used < self.width {
            self.used += 1;
            return self.cycle;
        }
        let cycle = done.max(self.cycle + 1);
        let lost = self.width - self.used + (cycle - self.cycle - 1) * self.width;
        if lost > 0 {
            self.charge(cycle, lost, waits);
        }
        self.cycle = cycle;
        self.used = 1;
        cycle
    }

    /// Nothing graduates before `cycle` has passed, as a miss is waited for.
    pub(super) fn wait_for_data(&mut self, cycle: u64) {
        if cycle > self.cycle {
            let lost = self.width - self.used + (cycle - self.cycle) * self.width;
            self.counts.data_stall_slots += lost;
            self.cycle = cycle;
            self.used = self.width;
        }
    }

    /// Cycles until `cycle` are not counted, with the slots that are open.
    pub(super) fn skip_to(&mut self, cycle: u64) {
        if cycle > self.cycle {
            // What is open of the last cycle was lost before.
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
    fn charge(&mut self, until: u64, lost: u64, waits: &Waits) {
        let data = self.slots(waits.data, until);
        let full = self.slots(waits.full, until);
        let fetch = self.slots(waits.fetch, until);
        let shared = self.slots(waits.shared, until);
        self.counts.data_stall_slots += data + full;
        self.counts.fetch_stall_slots += fetch;
        self.counts.shared_slots += shared;
        self.counts.pipeline_stall_slots += lost - data - full - fetch - shared;
    }

    /// Slots of `interval` that are lost, up to the cycle `until`.
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
