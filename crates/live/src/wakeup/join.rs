//! Joins the wake-ups of a thread with the kernel's marks while both arrive. The observer (`bench.rs`) feeds one [`Join`]
//! per CPU.

use std::collections::VecDeque;

use lab::noise::Mark;
use lab::wakeup::{Wakeup, WakeupLedger};

/// Marks of a CPU arrive out of order by less than this, ns: an interrupt's marks may come before a mark that the
/// interrupt delayed.
const UNORDERED_NS_MAX: u64 = 10_000_000;

/// Joins the wake-ups of one CPU with its marks.
pub struct Join {
    /// Whether marks are recorded.
    has_marks: bool,
    /// The sums of all wake-ups so far.
    ledger: WakeupLedger,
    /// The wake-ups of the last poll. They wait for the next poll, when all marks within them have arrived.
    waiting: Vec<Wakeup>,
    /// Marks that came after the last wake-up, by time.
    marks: VecDeque<Mark>,
    /// The earliest time at which the next wake-up can be due, ns.
    next_due_ns: u64,
    period_ns: u64,
    /// Number of marks that arrived.
    pub marks_taken: u64,
}

impl Join {
    /// `first_due_ns`: no wake-up is due before.
    pub fn new(ledger: WakeupLedger, has_marks: bool, first_due_ns: u64, period_ns: u64) -> Self {
        Join {
            has_marks,
            ledger,
            waiting: Vec::new(),
            marks: VecDeque::new(),
            next_due_ns: first_due_ns,
            period_ns,
            marks_taken: 0,
        }
    }

    pub fn into_ledger(self) -> WakeupLedger {
        self.ledger
    }

    /// Adds the new marks of this CPU, and the new wake-ups, which wait until the next call. Adds the wake-ups of the last
    /// call to the ledger.
    pub fn advance(&mut self, marks: impl Iterator<Item = Mark>, new_wakeups: Vec<Wakeup>) {
        let before = self.marks.len();
        self.marks.extend(marks);
        self.marks_taken += (self.marks.len() - before) as u64;
        self.marks.make_contiguous().sort_by_key(|mark| mark.at_ns);
        for wakeup in std::mem::replace(&mut self.waiting, new_wakeups) {
            self.next_due_ns = wakeup.due_ns.saturating_add(self.period_ns);
            if self.has_marks {
                self.pass_until(wakeup.due_ns);
                let marks = self.take_until(wakeup.woke_ns);
                self.ledger.add(wakeup, &marks);
            } else {
                self.ledger.add_bare(wakeup);
            }
        }
        // A thread with a long period has many marks between its wake-ups. They only change what runs on the CPU.
        let newest_ns = self.marks.back().map_or(0, |mark| mark.at_ns);
        let next_due_ns = self.waiting.first().map_or(self.next_due_ns, |wakeup| wakeup.due_ns);
        self.pass_until(next_due_ns.min(newest_ns.saturating_sub(UNORDERED_NS_MAX)));
    }

    /// Passes all marks before this time to the ledger.
    fn pass_until(&mut self, end_ns: u64) {
        let marks = self.take_until(end_ns);
        self.ledger.pass(&marks);
    }

    /// Removes the marks before this time.
    fn take_until(&mut self, end_ns: u64) -> Vec<Mark> {
        let end = self.marks.partition_point(|mark| mark.at_ns < end_ns);
        self.marks.drain(..end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::noise::{KeepDetours, What};
    use lab::wakeup::{Part, Running, Stage};

    fn mark(at_ns: u64, what: What) -> Mark {
        Mark { at_ns, what }
    }

    #[test]
    fn marks_that_arrive_later_and_between_wake_ups_count() {
        let ledger = WakeupLedger::new(KeepDetours::new(8, 1, 0));
        let mut join = Join::new(ledger, true, 1_000, 100_000_000);
        join.advance([mark(10, What::SwitchTo(7))].into_iter(), Vec::new());
        let wakeup = Wakeup { due_ns: 1_000, woke_ns: 1_500 };
        join.advance([mark(1_300, What::Wake)].into_iter(), vec![wakeup]);
        join.advance([mark(1_400, What::SwitchBack)].into_iter(), Vec::new());
        // The thread sleeps for long. Another task runs meanwhile, and at the next due time.
        for number in 0..50_000 {
            let task = if number % 2 == 0 { 8 } else { 7 };
            let marks = [mark(2_000 + number * 1_000, What::SwitchTo(task))];
            join.advance(marks.into_iter(), Vec::new());
        }
        assert!(join.marks.len() < 20_000, "{}", join.marks.len());
        let second = Wakeup { due_ns: 100_001_000, woke_ns: 100_001_200 };
        join.advance(std::iter::empty(), vec![second]);
        join.advance(std::iter::empty(), Vec::new());
        let ledger = join.into_ledger();
        let total =
            |stage, running| ledger.parts.get(&Part { stage, running }).map(|times| times.sum);
        assert_eq!(total(Stage::Expiry, Running::Task(7)), Some(300 + 200));
        assert_eq!(total(Stage::Scheduling, Running::Task(7)), Some(100));
        assert_eq!(total(Stage::Return, Running::Thread), Some(100));
        assert_eq!((ledger.late.count, ledger.unbalanced), (2, 0));
    }
}
