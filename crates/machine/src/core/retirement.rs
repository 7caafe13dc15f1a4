//! Retirement in program order, and the causes of lost issue slots. All cores use it; the counts of the level `ooo`
//! come from here.
//!
//! The rule comes from `simos-1995`, section 3.3. In a cycle with fewer retirements than the core is wide, the first
//! instruction that does not retire gives the cause: it waits for data that missed, or for its instruction line. All
//! other lost slots are charged to the pipeline. The slots while the pipeline refills after a mispredicted branch are
//! also counted apart. Invariant: the slots add up, see [`CoreCounts`].

use super::CoreCounts;
use super::stages::WidthLimiter;
use crate::cycle::Cycle;

/// Cycles from `start` to before `end`. Empty if the end is not later than the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CycleRange {
    pub(super) start: Cycle,
    pub(super) end: Cycle,
}

impl CycleRange {
    pub(super) const EMPTY: CycleRange = CycleRange { start: Cycle::START, end: Cycle::START };

    #[inline(always)]
    pub(super) fn new(start: Cycle, end: Cycle) -> CycleRange {
        CycleRange { start, end }
    }

    /// The cycles from the earlier start to the later end of two ranges.
    pub(super) fn spanning(self, other: CycleRange) -> CycleRange {
        CycleRange { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The cycles of the range before `end`.
    fn part_before(self, end: Cycle) -> CycleRange {
        CycleRange { start: self.start, end: self.end.min(end) }
    }

    /// Whether the range is not [`CycleRange::EMPTY`].
    #[inline(always)]
    pub(super) fn is_set(self) -> bool {
        self.end != Cycle::START
    }
}

/// Cycles that an instruction waited, by cause. The causes must not overlap, or slots are charged twice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallCauses {
    /// The instruction waited for its instruction line.
    pub(super) fetch: CycleRange,
    /// The instruction waited for an entry of the store buffer, which was full of stores that missed.
    pub(super) store_buffer_full: CycleRange,
    /// The instruction waited for its data.
    pub(super) load_data: CycleRange,
    /// Other threads used the core.
    pub(super) shared: CycleRange,
}

impl StallCauses {
    #[inline(always)]
    fn is_any_set(&self) -> bool {
        let StallCauses { fetch, store_buffer_full, load_data, shared } = self;
        fetch.end.0 | store_buffer_full.end.0 | load_data.end.0 | shared.end.0 != 0
    }

    fn ranges(&self) -> [CycleRange; 4] {
        let StallCauses { fetch, store_buffer_full, load_data, shared } = *self;
        [fetch, store_buffer_full, load_data, shared]
    }
}

/// The refill of the pipeline after a mispredicted branch: no instruction retires from the branch to before `end`.
#[derive(Clone, Copy, Debug)]
struct Refill {
    /// The retirement of the branch.
    branch: WidthLimiter,
    end: Cycle,
}

#[derive(Clone, Debug)]
pub(super) struct Retirement {
    width: u32,
    /// The cycle of the last retirement, and the number of retirements in it.
    last: WidthLimiter,
    /// Cycles that are not counted, because the thread was halted.
    skipped_cycles: u64,
    /// The last refill, whose slots `counts` does not yet contain.
    refill: Refill,
    /// All counts except `pipeline_stall_slots`, which is the remainder.
    pub(super) counts: CoreCounts,
}

impl Retirement {
    pub(super) fn new(width: u32) -> Retirement {
        // Cycles are counted from the first possible retirement.
        let mut last = WidthLimiter::new(width);
        last.fill_until(Cycle::START);
        let refill = Refill { branch: last, end: Cycle::START };
        Retirement { width, last, skipped_cycles: 0, refill, counts: CoreCounts::default() }
    }

    /// The cycle of the last retirement.
    #[inline(always)]
    pub(super) fn cycle(&self) -> Cycle {
        self.last.cycle()
    }

    /// Retires the next instruction in cycle `done` or later, and returns that cycle. Charges the slots that were lost since
    /// the last retirement; `waits` is called only if there may be such slots.
    #[inline(always)]
    pub(super) fn retire(&mut self, done: Cycle, waits: impl FnOnce() -> StallCauses) -> Cycle {
        let previous = self.last;
        let cycle = self.retire_unhindered(done);
        if cycle > previous.cycle() {
            let waits = waits();
            if waits.is_any_set() {
                self.charge(previous, cycle, &waits);
            }
        }
        cycle
    }

    /// [`Retirement::retire`] for an instruction whose lost slots go to the pipeline.
    #[inline(always)]
    pub(super) fn retire_unhindered(&mut self, done: Cycle) -> Cycle {
        self.counts.instructions += 1;
        self.last.take(done)
    }

    /// Lets nothing retire until `cycle` has passed, and charges the lost slots to data: the core waits for a miss.
    pub(super) fn wait_for_data(&mut self, cycle: Cycle) {
        if cycle > self.cycle() {
            self.refill.end = self.refill.end.min(self.cycle());
            let width = u64::from(self.width);
            let lost = width - self.last.passed() + (cycle - self.cycle()) * width;
            self.counts.data_stall_slots += lost;
            self.last.fill_until(cycle);
        }
    }

    /// Notes that the instruction that retired last is a mispredicted branch. Fetch resumes in cycle `resumed` at the
    /// correct address.
    pub(super) fn mispredicted(&mut self, resumed: Cycle) {
        self.counts.branch_stall_slots += self.refill_slots();
        // An instruction retires in the cycle after its fetch, at the earliest.
        self.refill = Refill { branch: self.last, end: resumed.next() };
    }

    /// The slots that the last refill has cost so far.
    fn refill_slots(&self) -> u64 {
        let Refill { branch, end } = self.refill;
        self.slots(branch, CycleRange::new(Cycle::START, end), self.cycle())
    }

    /// Skips the cycles until `cycle` without counting them.
    pub(super) fn skip_to(&mut self, cycle: Cycle) {
        if cycle > self.cycle() {
            // A refill that nothing has ended yet passes during the skipped cycles.
            self.refill.end = self.refill.end.min(self.cycle());
            // The open slots of the last cycle count as lost to the pipeline.
            self.skipped_cycles += cycle - self.cycle();
            self.last.fill_until(cycle);
        }
    }

    pub(super) fn skipped_cycles(&self) -> u64 {
        self.skipped_cycles
    }

    /// Charges the slots between the retirement `previous` and cycle `until` to their causes. Ends a refill that lasted longer than
    /// the retirement `previous`.
    #[inline(never)]
    fn charge(&mut self, previous: WidthLimiter, until: Cycle, waits: &StallCauses) {
        // A slot in which the first instruction after a misprediction also waits for something else goes to that cause.
        let refill_end = self.refill.end;
        if refill_end > previous.cycle() {
            let slots_in_refill =
                |range: CycleRange| self.slots(previous, range.part_before(refill_end), until);
            let slots_with_another_cause: u64 =
                waits.ranges().into_iter().map(slots_in_refill).sum();
            let refill_slots = slots_in_refill(CycleRange::new(Cycle::START, refill_end));
            self.counts.branch_stall_slots += refill_slots.saturating_sub(slots_with_another_cause);
            self.refill.end = Cycle::START;
        }
        let slots_of = |range| self.slots(previous, range, until);
        let (data, store_buffer_full) =
            (slots_of(waits.load_data), slots_of(waits.store_buffer_full));
        let (fetch, shared) = (slots_of(waits.fetch), slots_of(waits.shared));
        self.counts.data_stall_slots += data + store_buffer_full;
        self.counts.fetch_stall_slots += fetch;
        self.counts.shared_slots += shared;
    }

    /// The lost slots of a range: after the retirement `previous`, and before cycle `until`.
    fn slots(&self, previous: WidthLimiter, range: CycleRange, until: Cycle) -> u64 {
        let (start, end) = (range.start.max(previous.cycle()), range.end.min(until));
        if start >= end {
            return 0;
        }
        let used = if start == previous.cycle() { previous.passed() } else { 0 };
        (end - start) * u64::from(self.width) - used
    }

    /// The counted cycles from the start to the last retirement.
    #[inline(always)]
    pub(super) fn counted_cycles(&self) -> u64 {
        (self.cycle() - Cycle::START) - self.skipped_cycles
    }

    pub(super) fn counts(&self) -> CoreCounts {
        let (cycles, width) = (self.counted_cycles(), u64::from(self.width));
        let open_slots = width - self.last.passed();
        let branch_stall_slots = self.counts.branch_stall_slots + self.refill_slots();
        let counts = CoreCounts {
            cycles,
            open_slots,
            pipeline_stall_slots: 0,
            branch_stall_slots,
            ..self.counts
        };
        CoreCounts { pipeline_stall_slots: cycles * width - counts.slots(), ..counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with a list of all slots, each with what it was used for or lost to.
        #[test]
        fn each_slot_is_used_or_lost_to_what_the_first_instruction_waits_for(
            width in 1u32..7,
            retired in prop::collection::vec((0u64..12, 0u64..9, 0u64..10, 0u8..7, 0u64..20), 1..80),
        ) {
            let mut retirement = Retirement::new(width);
            let mut slots: Vec<char> = Vec::new();
            let mut last = 1;
            // The end of the refill after a mispredicted branch. 0: the instruction before is no such branch.
            let mut refilled = 0;
            for (later, starts, waits, cause, resumes) in retired {
                let done = (last + later).saturating_sub(5).max(refilled);
                // A wait may start before the last retirement, as on in-order cores.
                let starts_at = if starts == 8 { 1 } else { last + starts };
                let interval = (starts_at, last + starts + waits);
                let range = CycleRange::new(Cycle(interval.0), Cycle(interval.1));
                let mut causes = StallCauses::default();
                match cause {
                    0 => causes.load_data = range,
                    1 => causes.fetch = range,
                    2 => causes.store_buffer_full = range,
                    _ => {}
                }
                if cause == 6 && waits > 0 {
                    // The core waits for data before the next instruction.
                    retirement.wait_for_data(Cycle(last + waits));
                    slots.resize(((last + waits) * u64::from(width)) as usize, 'd');
                    refilled = 0;
                }
                // Slot by slot until the instruction has retired.
                loop {
                    let cycle = 1 + slots.len() as u64 / u64::from(width);
                    if cycle >= done {
                        slots.push('i');
                        last = cycle;
                        break;
                    }
                    let waits = (interval.0..interval.1).contains(&cycle);
                    slots.push(match cause {
                        0 | 2 if waits => 'd',
                        1 if waits => 'f',
                        _ if cycle < refilled => 'b',
                        _ => 'p',
                    });
                }
                prop_assert_eq!(retirement.retire(Cycle(done), || causes), Cycle(last));
                let counts = retirement.counts();
                let slots_of = |letter| slots.iter().filter(|slot| **slot == letter).count() as u64;
                prop_assert_eq!(counts.instructions, slots_of('i'));
                prop_assert_eq!(counts.data_stall_slots, slots_of('d'));
                prop_assert_eq!(counts.fetch_stall_slots, slots_of('f'));
                prop_assert_eq!(counts.branch_stall_slots, slots_of('b'));
                prop_assert_eq!(counts.pipeline_stall_slots, slots_of('p') + slots_of('b'));
                prop_assert_eq!(counts.slots(), counts.cycles * u64::from(width));
                refilled = 0;
                if resumes > 9 {
                    let resumed = last + resumes - 10;
                    retirement.mispredicted(Cycle(resumed));
                    refilled = resumed + 1;
                }
            }
        }
    }
}
