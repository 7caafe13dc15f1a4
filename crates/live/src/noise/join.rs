//! Joins the records of a loop with the kernel's marks while both arrive: attributes the time of each gap or quantum to
//! the kernel's contexts. The observer (`runner.rs`) feeds one [`Join`] per CPU.

use std::collections::BTreeMap;

use lab::exceedances::Exceedance;
use lab::noise::{
    AttributionParameters, BusyIntervals, Fixed, Gap, GapLedger, Loop, LoopResult, Mark, Part,
    Quantum, What, split,
};

use crate::clock::ClockMap;
use crate::ring::Record;

/// Maximum number of marks of a CPU that wait for a later record. Beyond it, the oldest half is counted and forgotten.
const MARKS_MAX: usize = 1 << 20;
/// FTQ's marks wait for this long: the window may have ended since the last poll.
const SLOT_MARKS_NS: u64 = 2_500_000_000;

/// Marks that were forgotten together.
struct Forgotten {
    /// The time of the last one, ns.
    until_ns: u64,
    count: u64,
    /// Number of those in the window, which count as outside of records.
    outside: u64,
}

/// Joins the records of one CPU with its marks, and turns them into gaps, quanta or slots.
pub struct Join {
    /// Whether marks are recorded during the loop.
    has_marks: bool,
    parameters: AttributionParameters,
    result: LoopResult,
    /// The records of the last poll. They wait for the next poll, when all marks within them have arrived.
    waiting: Vec<Record>,
    /// Marks within the waiting records and later ones, by time.
    marks: Vec<Mark>,
    /// Busy intervals of the CPU, from the marks used so far.
    pub busy: BusyIntervals,
    /// Number of quanta that are added up to one block.
    quanta_per_block: u64,
    /// When the window opened, ns: earlier marks belong to the warm-up. `None` before.
    pub start_ns: Option<u64>,
    /// Number of marks in the window.
    pub marks_in_window: u64,
    /// Number of marks in the window that are within no record.
    pub outside: u64,
    /// How often each context started in the window while the loop had the CPU, by its number.
    pub entries: BTreeMap<u32, u64>,
    /// Number of forgotten marks within records. For each record, the number is too high by at most [`MARKS_MAX`].
    pub forgotten_in_records: u64,
    /// The marks that were forgotten since the last record.
    forgotten: Vec<Forgotten>,
    /// Number of records whose times could not be converted to the kernel's clock. They are lost.
    pub timeless: u64,
    /// A buffer for [`attribute`], kept to avoid an allocation per quantum.
    parts: Vec<(Part, u64)>,
}

impl Join {
    /// A join for the records of `looping`. `ledger`: takes the gaps of the detour loop.
    pub fn new(
        looping: Loop,
        has_marks: bool,
        parameters: AttributionParameters,
        ledger: GapLedger,
        expected_quanta: u64,
    ) -> Self {
        let result = match looping {
            Loop::Detour => LoopResult::Gaps(Box::new(ledger)),
            Loop::Fwq => LoopResult::Quanta(Box::default()),
            Loop::Ftq => LoopResult::Slots(Box::default()),
        };
        Join {
            has_marks,
            parameters,
            result,
            waiting: Vec::new(),
            marks: Vec::new(),
            busy: BusyIntervals::default(),
            quanta_per_block: Fixed::quanta_per_block(expected_quanta),
            start_ns: None,
            marks_in_window: 0,
            outside: 0,
            entries: BTreeMap::new(),
            forgotten_in_records: 0,
            forgotten: Vec::new(),
            timeless: 0,
            parts: Vec::new(),
        }
    }

    /// The start of the oldest waiting record, cycles; `None` if no record waits.
    pub fn oldest_start(&self) -> Option<u64> {
        self.waiting.first().map(|record| record[0])
    }

    /// The longest of the gaps over the threshold since the last call. `None` if there is none.
    pub fn take_over_threshold(&mut self) -> Option<Exceedance<Part>> {
        match &mut self.result {
            LoopResult::Gaps(ledger) => ledger.over_threshold.take_longest(),
            LoopResult::Quanta(_) | LoopResult::Slots(_) => None,
        }
    }

    pub fn into_result(self) -> LoopResult {
        self.result
    }

    /// Adds the new marks of this CPU.
    pub fn add_marks(&mut self, new_marks: impl Iterator<Item = Mark>) {
        self.marks.extend(new_marks);
        // The marks arrive almost in order; noise.bpf.c has the reason.
        self.marks.sort_by_key(|mark| mark.at_ns);
        if self.marks.len() > MARKS_MAX && self.waiting.is_empty() {
            let count = self.marks.len() - MARKS_MAX / 2;
            let until_ns = self.marks[count - 1].at_ns;
            let outside_before = self.outside;
            self.take_outside(count, u64::MAX);
            let outside = self.outside - outside_before;
            self.forgotten.push(Forgotten { until_ns, count: count as u64, outside });
        }
    }

    /// Number of the marks with these positions that are in the window. `end_ns`: the end of the window.
    fn count_in_window(&self, from: usize, to: usize, end_ns: u64) -> u64 {
        let start_ns = self.start_ns.unwrap_or(u64::MAX);
        let marks = self.marks[from..to].iter();
        marks.filter(|mark| (start_ns..end_ns).contains(&mark.at_ns)).count() as u64
    }

    /// Takes the first `count` marks, which are within no record. The slots of FTQ have no marks of their own.
    fn take_outside(&mut self, count: usize, end_ns: u64) {
        if !matches!(self.result, LoopResult::Slots(_)) {
            self.outside += self.count_in_window(0, count, end_ns);
        }
        self.take(count, end_ns);
    }

    /// Counts the first `count` marks, and removes them. `end_ns`: the end of the window.
    fn take(&mut self, count: usize, end_ns: u64) {
        self.marks_in_window += self.count_in_window(0, count, end_ns);
        let start_ns = self.start_ns.unwrap_or(u64::MAX);
        for mark in self.marks.drain(..count) {
            if !(start_ns..end_ns).contains(&mark.at_ns) {
                continue;
            }
            self.busy.mark(&mark);
            if let What::Enter(context) = mark.what
                && !self.busy.is_in_task()
            {
                *self.entries.entry(context).or_default() += 1;
            }
        }
    }

    /// Processes the waiting records, whose marks have all arrived. `new_records` wait until the next call.
    pub fn advance(&mut self, new_records: Vec<Record>, clocks: &ClockMap) {
        let complete_records = std::mem::replace(&mut self.waiting, new_records);
        let mut used = 0;
        for record in complete_records {
            match &mut self.result {
                LoopResult::Slots(slots) => slots.add(record[0], record[1]),
                LoopResult::Gaps(_) | LoopResult::Quanta(_) => {
                    let times = clocks.ns_at(record[0]).zip(clocks.ns_at(record[1]));
                    let Some((start_ns, end_ns)) = times else {
                        self.timeless += 1;
                        continue;
                    };
                    let gap = Gap { start_ns, end_ns: end_ns.max(start_ns) };
                    used = self.add_gap(gap, used);
                }
            }
        }
        if let (LoopResult::Slots(_), Some(newest)) = (&self.result, self.marks.last()) {
            // No slot needs marks.
            let old_ns = newest.at_ns.saturating_sub(SLOT_MARKS_NS);
            used = self.marks.partition_point(|mark| mark.at_ns < old_ns);
        }
        self.take(used, u64::MAX);
    }

    /// Adds a gap or quantum with its marks. The search for its marks starts at index `from`. Returns the index of the
    /// first mark after the gap.
    fn add_gap(&mut self, gap: Gap, from: usize) -> usize {
        let first = from + self.marks[from..].partition_point(|mark| mark.at_ns < gap.start_ns);
        let end = first + self.marks[first..].partition_point(|mark| mark.at_ns < gap.end_ns);
        self.outside += self.count_in_window(from, first, u64::MAX);
        for forgotten in self.forgotten.drain(..).filter(|round| round.until_ns >= gap.start_ns) {
            self.forgotten_in_records += forgotten.count;
            self.outside -= forgotten.outside;
        }
        let marks = &self.marks[first..end];
        match &mut self.result {
            LoopResult::Gaps(ledger) if self.has_marks => ledger.add(gap, marks),
            LoopResult::Gaps(ledger) => ledger.add_bare(gap),
            LoopResult::Quanta(fixed) => {
                let mut quantum = Quantum::untraced(gap.start_ns, gap.length_ns());
                if self.has_marks {
                    attribute(&mut quantum, gap, marks, self.parameters, &mut self.parts);
                }
                fixed.add(quantum, self.quanta_per_block);
            }
            LoopResult::Slots(_) => {}
        }
        end
    }

    /// Ends the window at `end_ns`. `slots_passed` and `slot_length_ns`: see [`Slots::finish`](lab::noise::Slots::finish).
    pub fn finish(&mut self, end_ns: u64, slots_passed: u64, slot_length_ns: f64) {
        self.take_outside(self.marks.len(), end_ns);
        if let LoopResult::Slots(slots) = &mut self.result {
            slots.finish(slots_passed, slot_length_ns);
        }
    }
}

/// Fills the fields of a quantum that come from marks: the time in known contexts, and whether there was a page fault.
/// With a page fault, the time in known contexts is unknown: the kernel does not report the fault's end, so its part is the
/// rest of the quantum, the loop's own time included. `parts` is a buffer.
fn attribute(
    quantum: &mut Quantum,
    gap: Gap,
    marks: &[Mark],
    parameters: AttributionParameters,
    parts: &mut Vec<(Part, u64)>,
) {
    parts.clear();
    split(gap, marks, parameters, parts);
    parts.retain(|(part, _)| matches!(part, Part::Context(_) | Part::Fault));
    quantum.faulted = Some(parts.iter().any(|part| part.0 == Part::Fault));
    let is_switched = marks.iter().any(|mark| matches!(mark.what, What::SwitchTo(_)));
    let entered = marks.iter().filter_map(|mark| match mark.what {
        What::Enter(context) => Some(context),
        _ => None,
    });
    quantum.attribute(parts, (!is_switched).then_some(entered));
    if quantum.faulted == Some(true) {
        (quantum.attributed_ns, quantum.main) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use lab::noise::KeepDetours;

    use super::*;
    use crate::clock::KernelClock;

    /// A join whose window opened at 1,000 ns, with marks every 10 ns from 500 ns on.
    fn join_with_marks(count: u64) -> Join {
        let parameters = AttributionParameters::default();
        let ledger = GapLedger::new(parameters, KeepDetours::with_seed(1));
        let mut join = Join::new(Loop::Detour, true, parameters, ledger, 1);
        join.start_ns = Some(1_000);
        let what = |number| if number % 2 == 0 { What::Enter(7) } else { What::Leave(7) };
        let mark = |number| Mark { at_ns: 500 + 10 * number, what: what(number) };
        join.add_marks((0..count).map(mark));
        join
    }

    #[test]
    fn events_are_those_of_the_window_also_after_the_last_detour() {
        let mut join = join_with_marks(100);
        join.advance(Vec::new(), &ClockMap::new(KernelClock::default()));
        join.finish(1_200, 0, 0.0);
        assert_eq!((join.marks_in_window, join.outside), (20, 20));
        assert_eq!(join.entries, BTreeMap::from([(7, 10)]));
    }

    #[test]
    fn interrupts_of_other_tasks_do_not_interrupt_the_loop() {
        let mut join = join_with_marks(0);
        let marks = [
            (1_010, What::Enter(7)),
            (1_020, What::Leave(7)),
            (1_030, What::SwitchTo(9)),
            (1_040, What::Enter(7)),
            (1_050, What::Leave(7)),
            (1_060, What::SwitchBack),
        ];
        join.add_marks(marks.into_iter().map(|(at_ns, what)| Mark { at_ns, what }));
        join.finish(1_200, 0, 0.0);
        assert_eq!(join.entries, BTreeMap::from([(7, 1)]));
    }

    #[test]
    fn a_quantum_with_a_page_fault_has_no_attributed_time() {
        let attributed_with = |what| {
            let mut quantum = Quantum::untraced(0, 1_000_000);
            let marks = [
                Mark { at_ns: 10_000, what },
                Mark { at_ns: 500_000, what: What::Enter(7) },
                Mark { at_ns: 520_000, what: What::Leave(7) },
            ];
            let gap = Gap { start_ns: 0, end_ns: 1_000_000 };
            let parameters = AttributionParameters::default();
            attribute(&mut quantum, gap, &marks, parameters, &mut Vec::new());
            (quantum.faulted, quantum.attributed_ns, quantum.main)
        };
        assert_eq!(attributed_with(What::Fault), (Some(true), None, None));
        let tick_alone = (Some(false), Some(20_000), Some(Part::Context(7)));
        assert_eq!(attributed_with(What::Wake(0)), tick_alone);
    }

    #[test]
    fn marks_that_no_record_needs_are_forgotten_and_counted() {
        let count = MARKS_MAX as u64 + 101;
        let forgotten = count - MARKS_MAX as u64 / 2;
        let last_forgotten_ns = 500 + 10 * (forgotten - 1);
        for (start_ns, lost) in [(last_forgotten_ns, forgotten), (last_forgotten_ns + 1, 0)] {
            let mut join = join_with_marks(count);
            assert!(join.marks.len() <= MARKS_MAX / 2);
            join.add_gap(Gap { start_ns, end_ns: u64::MAX }, 0);
            assert_eq!(join.forgotten_in_records, lost);
            // 50 marks are from before the window.
            assert_eq!(join.outside, if lost > 0 { 0 } else { forgotten - 50 });
            let remaining = join.marks.len();
            join.take(remaining, u64::MAX);
            assert_eq!(join.marks_in_window, count - 50);
        }
    }

    #[test]
    fn slots_need_no_marks() {
        let parameters = AttributionParameters::default();
        let ledger = GapLedger::new(parameters, KeepDetours::with_seed(1));
        let mut join = Join::new(Loop::Ftq, true, parameters, ledger, 1);
        join.start_ns = Some(0);
        let marks = (0..60).map(|second| Mark { at_ns: second * 1_000_000_000, what: What::Fault });
        join.add_marks(marks);
        join.advance(vec![[0, 1, 0]], &ClockMap::new(KernelClock::default()));
        assert_eq!((join.marks_in_window, join.marks.len()), (57, 3));
        join.finish(59_000_000_000, 0, 0.0);
        assert_eq!((join.marks_in_window, join.outside), (59, 0));
    }
}
