//! Joins the records of a loop with the kernel's marks, while both arrive.

use lab::noise::{
    AttributionParameters, BusyIntervals, Fixed, Gap, GapLedger, Loop, LoopResult, Mark, Part,
    Quantum, split,
};

use super::ring::Record;
use crate::clock::ClockMap;

/// Joins the records of one CPU with its marks, and turns them into gaps, quanta or slots.
pub struct Join {
    /// Whether marks are recorded during the loop.
    watched: bool,
    parameters: AttributionParameters,
    result: LoopResult,
    /// Records that wait until all marks within them have arrived.
    waiting: Vec<Record>,
    /// Marks within the waiting records and later ones, by time.
    marks: Vec<Mark>,
    /// Busy intervals of the CPU, from the marks used so far.
    pub busy: BusyIntervals,
    /// Number of quanta that are added up to one block.
    quanta_per_block: u64,
    /// When the window opened, ns: earlier marks belong to the warm-up.
    pub start_ns: Option<u64>,
    /// Number of marks that arrived.
    pub marks_taken: u64,
    /// Number of marks within no record.
    pub outside: u64,
    /// Number of records that arrived before the clocks could be converted.
    pub timeless: u64,
    parts: Vec<(Part, u64)>,
}

impl Join {
    /// A join for the records of `looping`. `expected`: the number of quanta in a window.
    pub fn new(
        looping: Loop,
        watched: bool,
        parameters: AttributionParameters,
        ledger: GapLedger,
        expected: u64,
    ) -> Self {
        let result = match looping {
            Loop::Detour => LoopResult::Gaps(Box::new(ledger)),
            Loop::Fwq => LoopResult::Quanta(Box::default()),
            Loop::Ftq => LoopResult::Slots(Box::default()),
        };
        Join {
            watched,
            parameters,
            result,
            waiting: Vec::new(),
            marks: Vec::new(),
            busy: BusyIntervals::default(),
            quanta_per_block: Fixed::quanta_per_block(expected),
            start_ns: None,
            marks_taken: 0,
            outside: 0,
            timeless: 0,
            parts: Vec::new(),
        }
    }

    /// The start of the oldest waiting record, cycles.
    pub fn oldest(&self) -> Option<u64> {
        self.waiting.first().map(|record| record[0])
    }

    pub fn into_result(self) -> LoopResult {
        self.result
    }

    /// Adds the new marks of this CPU.
    pub fn add_marks(&mut self, new: impl Iterator<Item = Mark>) {
        let before = self.marks.len();
        self.marks.extend(new);
        self.marks_taken += (self.marks.len() - before) as u64;
        // The marks are nearly sorted already: see noise.bpf.c.
        self.marks.sort_by_key(|mark| mark.at_ns);
    }

    /// Processes the waiting records, whose marks have all arrived, and keeps
    /// `new` as the waiting ones.
    pub fn advance(&mut self, new: Vec<Record>, clocks: &ClockMap) {
        let due = std::mem::replace(&mut self.waiting, new);
        let mut used = 0;
        for record in due {
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

    /// Adds a gap or quantum with its marks. Its first mark is at or after position `from`. Returns
    /// the position of the first mark after the gap.
    fn add_gap(&mut self, gap: Gap, from: usize) -> usize {
        let first = from + self.marks[from..].partition_point(|mark| mark.at_ns < gap.start_ns);
        let last = first + self.marks[first..].partition_point(|mark| mark.at_ns < gap.end_ns);
        let start_ns = self.start_ns.unwrap_or(u64::MAX);
        let passed = &self.marks[from..first];
        self.outside += passed.iter().filter(|mark| mark.at_ns >= start_ns).count() as u64;
        let marks = &self.marks[first..last];
        match &mut self.result {
            LoopResult::Gaps(ledger) if self.watched => ledger.add(gap, marks),
            LoopResult::Gaps(ledger) => ledger.add_bare(gap),
            LoopResult::Quanta(fixed) => {
                let mut quantum = Quantum {
                    start_ns: gap.start_ns,
                    time_ns: gap.length_ns(),
                    named_ns: None,
                    main: None,
                    faulted: None,
                };
                if self.watched {
                    attribute(&mut quantum, gap, marks, self.parameters, &mut self.parts);
                }
                fixed.add(quantum, self.quanta_per_block);
            }
            LoopResult::Slots(_) => {}
        }
        last
    }

    /// Ends the stream, and adds slots without work at its end.
    pub fn finish(&mut self, window_ns: u64, slot_ns: u64) {
        if let LoopResult::Slots(slots) = &mut self.result {
            slots.finish(window_ns, slot_ns);
        }
    }
}

/// Attributes the time that is missing from the quantum.
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
    let sums = sums.map(|same| (same.iter().map(|part| part.1).sum::<u64>(), same[0].0));
    quantum.main = sums.max().map(|(_, part)| part);
}
