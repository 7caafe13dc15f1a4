//! Sums up all wake-ups of a thread: exact totals, and the worst wake-ups with all their parts.
//!
//! A bench makes a [`WakeupLedger`] for each CPU and adds each wake-up while the threads run. Memory is bounded.

use std::collections::BTreeMap;

use stats::{Distribution, Largest};

use super::disk::{DiskReads, ReadMarks};
use super::split::{CpuState, Part, Wakeup};
use super::wakers::Waker;
use crate::exceedances::Exceedances;
use crate::noise::ledger::merge_equal_parts;
use crate::noise::{KeepDetours, Mark};

/// Maximum number of first wake-ups of a CPU whose lateness is stored one by one, for an exact median of a short window.
pub const FIRST_MAX: usize = 1 << 16;

/// A wake-up with all its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeWakeup {
    pub wakeup: Wakeup,
    /// The parts in the order of time, at most [`KeepDetours::parts_max`]. Empty without tracing.
    pub parts: Vec<(Part, u64)>,
    /// The sums of all later parts, by cause. Together with `parts` they add up to the lateness.
    pub later: Vec<(Part, u64)>,
    /// Who woke the thread, who woke that waker, and so on. Empty if no event shows it, and for a
    /// thread that was not asleep.
    pub wakers: Vec<Waker>,
}

impl WholeWakeup {
    /// The part that took the most time of the wake-up, and this time. `None` without tracing.
    #[must_use]
    pub fn largest_part(&self) -> Option<(Part, u64)> {
        largest_part(self.parts.iter().chain(&self.later).copied().collect())
    }
}

/// The part with the most time, and this time. `None` without parts.
fn largest_part(mut parts: Vec<(Part, u64)>) -> Option<(Part, u64)> {
    merge_equal_parts(&mut parts);
    parts.into_iter().max_by_key(|part| part.1)
}

/// The wake-ups of a thread on one CPU.
#[derive(Clone, Debug)]
pub struct WakeupLedger {
    keep: KeepDetours,
    state: CpuState,
    /// How late the thread ran, ns, of all wake-ups.
    pub late: Distribution,
    /// For each part: its times in the wake-ups that contain the part, ns.
    pub parts: BTreeMap<Part, Distribution>,
    /// Number of wake-ups without a mark of the switch to the thread, or of the wake-up that a
    /// waker sent: marks are missing.
    pub unseen: u64,
    /// How late the thread ran in the first wake-ups, at most [`FIRST_MAX`], ns.
    pub first_late_ns: Vec<u64>,
    /// Number of wake-ups whose parts do not add up to the lateness: a bug of irqlab.
    pub unbalanced: u64,
    /// The reads of a thread that a disk wakes.
    pub reads: DiskReads,
    /// The worst wake-ups.
    pub worst: Largest<WholeWakeup>,
    /// The wake-ups that reach the threshold of `--on-threshold`.
    pub over_threshold: Exceedances<Part>,
    /// Buffer for the parts of a wake-up. Each wake-up reuses it, to allocate less.
    parts_buffer: Vec<(Part, u64)>,
}

impl WakeupLedger {
    #[must_use]
    pub fn new(keep: KeepDetours) -> Self {
        WakeupLedger {
            keep,
            state: CpuState::default(),
            late: Distribution::default(),
            parts: BTreeMap::new(),
            unseen: 0,
            first_late_ns: Vec::new(),
            unbalanced: 0,
            reads: DiskReads::default(),
            worst: Largest::new(keep.longest),
            over_threshold: Exceedances::new(None),
            parts_buffer: Vec::new(),
        }
    }

    /// This ledger, which also counts the wake-ups that are late by at least `threshold_ns`. `None`: counts none.
    #[must_use]
    pub fn with_threshold(self, threshold_ns: Option<u64>) -> Self {
        WakeupLedger { over_threshold: Exceedances::new(threshold_ns), ..self }
    }

    /// Takes marks between two wake-ups, in the order of time.
    pub fn apply_marks(&mut self, marks: &[Mark]) {
        marks.iter().for_each(|mark| self.state.apply(mark.what));
    }

    /// Adds a wake-up with the marks in it, which must be in the order of time, and with its chain of wakers.
    pub fn add(&mut self, wakeup: Wakeup, marks: &[Mark], wakers: &[Waker]) {
        self.add_with(wakeup, wakers, |state, parts| state.split(wakeup, marks, parts));
    }

    /// Adds a wake-up that a waker sent, with the marks of the waker's CPU and of the thread's CPU in it, both in the
    /// order of time, and with its chain of wakers.
    pub fn add_sent(
        &mut self,
        wakeup: Wakeup,
        waker_marks: &[Mark],
        marks: &[Mark],
        wakers: &[Waker],
    ) {
        self.add_with(wakeup, wakers, |state, parts| {
            state.split_sent(wakeup, waker_marks, marks, parts)
        });
    }

    /// Adds the end of a disk's read, with the marks in the read, and with the chain of wakers. `read`: from the time before
    /// the thread's system call to its reading of the clock after it. A read without an interrupt of the disk is counted
    /// in [`WakeupLedger::reads`] only.
    pub fn add_read(&mut self, read: Wakeup, marks: &ReadMarks<'_>, wakers: &[Waker]) {
        let mut parts = std::mem::take(&mut self.parts_buffer);
        parts.clear();
        match marks.split(&mut self.state, read, &mut parts) {
            None => self.reads.no_interrupt += 1,
            Some(completion) => {
                self.unseen += u64::from(!completion.is_seen);
                self.reads.add(
                    completion.interrupt_ns - read.due_ns,
                    completion.interrupts,
                    read.due_ns,
                );
                let wakeup = Wakeup { due_ns: completion.interrupt_ns, ..read };
                self.add_whole(wakeup, &mut parts, wakers);
            }
        }
        self.parts_buffer = parts;
    }

    /// Adds a wake-up. `split` appends the wake-up's parts, and returns whether the marks show them.
    fn add_with(
        &mut self,
        wakeup: Wakeup,
        wakers: &[Waker],
        split: impl FnOnce(&mut CpuState, &mut Vec<(Part, u64)>) -> bool,
    ) {
        let mut parts = std::mem::take(&mut self.parts_buffer);
        parts.clear();
        let is_seen = split(&mut self.state, &mut parts);
        self.unseen += u64::from(!is_seen);
        self.add_whole(wakeup, &mut parts, wakers);
        self.parts_buffer = parts;
    }

    /// Adds a wake-up with its parts in the order of time. Leaves the parts in another order.
    pub fn add_split(&mut self, wakeup: Wakeup, parts: &mut Vec<(Part, u64)>) {
        self.add_whole(wakeup, parts, &[]);
    }

    fn add_whole(&mut self, wakeup: Wakeup, parts: &mut Vec<(Part, u64)>, wakers: &[Waker]) {
        if parts.iter().map(|part| part.1).sum::<u64>() != wakeup.late_ns() {
            self.unbalanced += 1;
        }
        self.keep(wakeup, parts, wakers);
        merge_equal_parts(parts);
        for &(part, length_ns) in parts.iter() {
            self.parts.entry(part).or_default().record(length_ns, wakeup.due_ns);
        }
    }

    /// Adds a wake-up without tracing.
    pub fn add_bare(&mut self, wakeup: Wakeup) {
        self.keep(wakeup, &[], &[]);
    }

    fn keep(&mut self, wakeup: Wakeup, parts: &[(Part, u64)], wakers: &[Waker]) {
        self.late.record(wakeup.late_ns(), wakeup.due_ns);
        if self.first_late_ns.len() < FIRST_MAX {
            self.first_late_ns.push(wakeup.late_ns());
        }
        let cause = || largest_part(parts.to_vec());
        self.over_threshold.offer(wakeup.late_ns(), wakeup.woke_ns, cause);
        self.worst.offer(wakeup.late_ns(), || {
            let (parts, later_parts) = parts.split_at(parts.len().min(self.keep.parts_max));
            let mut later = later_parts.to_vec();
            merge_equal_parts(&mut later);
            WholeWakeup { wakeup, parts: parts.to_vec(), later, wakers: wakers.to_vec() }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::split::{Running, Stage};
    use super::*;
    use crate::noise::What;

    fn mark(at_ns: u64, what: What) -> Mark {
        Mark { at_ns, what }
    }

    /// Most wake-ups are 3 to 9 us late. One of them waits 5 ms for a task.
    #[test]
    fn the_worst_wake_up_is_whole_whenever_it_comes() {
        let mut ledger = WakeupLedger::new(KeepDetours::new(2, 1, 0));
        for number in 1..=30_000_u64 {
            let due_ns = number * 1_000_000;
            let task_ns = if number == 17_003 { 5_000_000 } else { 0 };
            let switch_ns = due_ns + 2_500 + number % 7_000 + task_ns;
            let marks = [
                mark(due_ns + 500, What::Enter(1)),
                mark(due_ns + 1_000, What::Wake(1)),
                mark(due_ns + 2_000, What::Leave(1)),
                mark(switch_ns, What::SwitchBack),
            ];
            ledger.add(Wakeup { due_ns, woke_ns: switch_ns + 300 }, &marks, &[]);
            ledger.apply_marks(&[mark(switch_ns + 800, What::SwitchTo(4))]);
        }
        assert_eq!((ledger.late.count, ledger.unbalanced), (30_000, 0));
        let total: u64 = ledger.parts.values().map(|times| times.sum).sum();
        assert_eq!(total, ledger.late.sum);
        let worst = ledger.worst.sorted();
        let waited = Part { stage: Stage::Scheduling, running: Running::Task(4) };
        let (main, main_ns) = worst[0].largest_part().unwrap();
        assert_eq!(main, waited);
        assert_eq!(main_ns, 5_000_000 + 500 + 17_003 % 7_000);
        assert!(worst[1].wakeup.late_ns() < 10_000);
    }

    #[test]
    fn parts_beyond_the_limit_are_summed_up_and_nothing_is_missing() {
        let keep = KeepDetours { longest: 1, parts_max: 16, seed: 0 };
        let mut ledger = WakeupLedger::new(keep);
        let marks: Vec<Mark> = (0..1_000)
            .map(|number| {
                let what = if number % 2 == 0 { What::Enter(1) } else { What::Leave(1) };
                mark(100 + number * 7, what)
            })
            .collect();
        ledger.add(Wakeup { due_ns: 0, woke_ns: 10_000 }, &marks, &[]);
        let worst = ledger.worst.sorted()[0];
        assert_eq!((worst.parts.len(), worst.later.len()), (16, 2));
        let kept: u64 = worst.parts.iter().chain(&worst.later).map(|part| part.1).sum();
        assert_eq!(kept, 10_000);
    }
}
