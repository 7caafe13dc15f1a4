//! Joins the records of a loop with the kernel's marks while both arrive: attributes the time of each gap or quantum to
//! the kernel's contexts. The observer (`runner.rs`) feeds one [`Join`] per CPU.

use lab::exceedances::Exceedance;
use lab::noise::{
    AttributionParameters, BusyIntervals, Fixed, Gap, GapLedger, Loop, LoopResult, Mark, Part,
    Quantum, split,
};

use crate::clock::ClockMap;
use crate::ring::Record;

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
    /// Number of marks that arrived.
    pub marks_taken: u64,
    /// Number of marks in the window that are within no record.
    pub outside: u64,
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
            marks_taken: 0,
            outside: 0,
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
        let before = self.marks.len();
        self.marks.extend(new_marks);
        self.marks_taken += (self.marks.len() - before) as u64;
        // The marks arrive almost in order; noise.bpf.c has the reason.
        self.marks.sort_by_key(|mark| mark.at_ns);
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
        for mark in self.marks.drain(..used) {
            self.busy.mark(&mark);
        }
    }

    /// Adds a gap or quantum with its marks. The search for its marks starts at index `from`. Returns the index of the
    /// first mark after the gap.
    fn add_gap(&mut self, gap: Gap, from: usize) -> usize {
        let first = from + self.marks[from..].partition_point(|mark| mark.at_ns < gap.start_ns);
        let end = first + self.marks[first..].partition_point(|mark| mark.at_ns < gap.end_ns);
        let start_ns = self.start_ns.unwrap_or(u64::MAX);
        let skipped = &self.marks[from..first];
        self.outside += skipped.iter().filter(|mark| mark.at_ns >= start_ns).count() as u64;
        let marks = &self.marks[first..end];
        match &mut self.result {
            LoopResult::Gaps(ledger) if self.has_marks => ledger.add(gap, marks),
            LoopResult::Gaps(ledger) => ledger.add_bare(gap),
            LoopResult::Quanta(fixed) => {
                let mut quantum = Quantum {
                    start_ns: gap.start_ns,
                    time_ns: gap.length_ns(),
                    named_ns: None,
                    main: None,
                    faulted: None,
                };
                if self.has_marks {
                    attribute(&mut quantum, gap, marks, self.parameters, &mut self.parts);
                }
                fixed.add(quantum, self.quanta_per_block);
            }
            LoopResult::Slots(_) => {}
        }
        end
    }

    /// Ends the window, and adds the slots without work at its end.
    pub fn finish(&mut self, window_ns: u64, slot_ns: u64) {
        if let LoopResult::Slots(slots) = &mut self.result {
            slots.finish(window_ns, slot_ns);
        }
    }
}

/// Fills the fields of a quantum that come from marks: the time in known contexts, whether there was a page fault, and
/// the part that took the most time. `parts` is a buffer.
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
    quantum.named_ns = Some(parts.iter().map(|part| part.1).sum());
    quantum.faulted = Some(parts.iter().any(|part| part.0 == Part::Fault));
    parts.sort_unstable();
    let sums = parts.chunk_by(|a, b| a.0 == b.0);
    let sums = sums.map(|equal| (equal.iter().map(|part| part.1).sum::<u64>(), equal[0].0));
    quantum.main = sums.max().map(|(_, part)| part);
}
