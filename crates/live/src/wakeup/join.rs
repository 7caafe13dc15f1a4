//! Joins the wake-ups of a thread with the kernel's marks while both arrive. The observer (`bench.rs`)
//! feeds one [`Join`] per CPU.

use std::collections::VecDeque;

use lab::noise::Mark;
use lab::wakeup::disk::{ReadMarks, WatchedCpu};
use lab::wakeup::wakers::{take_chain, take_last_chain};
use lab::wakeup::{CpuState, Waker, Wakeup, WakeupLedger};

/// Marks of a CPU arrive out of order by less than this, ns: an interrupt's marks may come before a mark
/// that the interrupt delayed.
const UNORDERED_NS_MAX: u64 = 10_000_000;

/// The due times of a CPU's thread: `first_due_ns`, and every `period_ns` after it.
#[derive(Clone, Copy, Debug)]
pub struct DueGrid {
    pub first_due_ns: u64,
    pub period_ns: u64,
}

impl DueGrid {
    /// The first due time after a time.
    fn next_after(self, time_ns: u64) -> u64 {
        let periods = time_ns.saturating_sub(self.first_due_ns) / self.period_ns.max(1);
        self.first_due_ns.saturating_add((periods + 1).saturating_mul(self.period_ns))
    }
}

/// The interrupts of the disk that wakes the thread.
pub struct DiskMarks {
    /// The CPU that the thread runs on.
    cpu: u32,
    /// Numbers of the contexts of the disk's interrupts.
    contexts: Vec<u32>,
    /// The CPUs without the thread that the disk may interrupt.
    watched_cpus: Vec<WatchedCpuMarks>,
}

/// A CPU without the thread, with its marks that the ledger does not need yet, by time.
struct WatchedCpuMarks {
    cpu: u32,
    state: CpuState,
    marks: VecDeque<Mark>,
}

impl DiskMarks {
    /// `interrupted`: the CPUs that the disk may interrupt.
    pub fn new(cpu: u32, contexts: Vec<u32>, interrupted: &[u32]) -> DiskMarks {
        let watched_cpus = interrupted.iter().filter(|watched| **watched != cpu);
        let watched = |cpu: &u32| WatchedCpuMarks {
            cpu: *cpu,
            state: CpuState::default(),
            marks: VecDeque::new(),
        };
        DiskMarks { cpu, contexts, watched_cpus: watched_cpus.map(watched).collect() }
    }

    /// Applies the marks of the other CPUs before this time.
    fn pass_until(&mut self, end_ns: u64) {
        for watched in &mut self.watched_cpus {
            let marks = take_until(&mut watched.marks, end_ns);
            marks.iter().for_each(|mark| watched.state.apply(mark.what));
        }
    }

    /// Adds a read to the ledger. `marks`: the marks of the thread's CPU during the read.
    fn add(
        &mut self,
        ledger: &mut WakeupLedger,
        read: Wakeup,
        marks: &[Mark],
        chains: &mut VecDeque<Vec<Waker>>,
    ) {
        self.pass_until(read.due_ns);
        let wakers = take_last_chain(chains, read);
        let watched_cpus = self.watched_cpus.iter_mut().map(|watched| {
            let end = watched.marks.partition_point(|mark| mark.at_ns < read.woke_ns);
            let marks = &watched.marks.make_contiguous()[..end];
            WatchedCpu { cpu: watched.cpu, state: &watched.state, marks }
        });
        let watched_cpus: Vec<_> = watched_cpus.collect();
        let disk_contexts = &self.contexts;
        ledger.add_read(
            read,
            &ReadMarks { cpu: self.cpu, marks, watched_cpus: &watched_cpus, disk_contexts },
            &wakers,
        );
    }
}

/// Joins the wake-ups of one CPU with its marks.
pub struct Join {
    /// Whether marks are recorded.
    has_marks: bool,
    /// The sums of all wake-ups so far.
    pub ledger: WakeupLedger,
    /// Wake-ups that wait until all marks within them have arrived, each with the number of polls since it came.
    waiting: VecDeque<(Wakeup, u32)>,
    /// Marks that the ledger has not received, by time.
    marks: VecDeque<Mark>,
    /// Marks of the waker's CPU that the ledger does not need yet, by time. `None` if a timer wakes the thread.
    waker_marks: Option<VecDeque<Mark>>,
    /// The disk that wakes the thread. `None` if something else does.
    disk: Option<DiskMarks>,
    /// Chains of wakers of the thread that no wake-up has taken, by time.
    chains: VecDeque<Vec<Waker>>,
    /// The earliest time at which the next wake-up can be due, ns.
    next_due_ns: u64,
    due_grid: DueGrid,
    /// Start of the window, ns.
    window_ns: u64,
    /// Number of marks in the window.
    pub marks_in_window: u64,
    /// Number of marks that were dropped because a thread waited for too long.
    pub dropped: u64,
}

/// Maximum number of marks that are kept of a CPU. A thread that gets no CPU time for seconds may have more in one wake-up.
const MARKS_MAX: usize = 1 << 22;

/// Maximum number of chains of wakers that wait for their wake-up. A thread is woken once in most wake-ups.
const CHAINS_MAX: usize = 1 << 19;

/// After this many polls, a wake-up no longer waits for a later mark of its CPU.
const POLLS_MAX: u32 = 3;

impl Join {
    /// No wake-up is due before `window_ns`, the start of the window.
    pub fn new(
        ledger: WakeupLedger,
        has_marks: bool,
        has_waker: bool,
        window_ns: u64,
        due_grid: DueGrid,
    ) -> Self {
        Join {
            has_marks,
            ledger,
            waiting: VecDeque::new(),
            marks: VecDeque::new(),
            waker_marks: has_waker.then(VecDeque::new),
            disk: None,
            chains: VecDeque::new(),
            next_due_ns: window_ns,
            due_grid,
            window_ns,
            marks_in_window: 0,
            dropped: 0,
        }
    }

    /// This join, whose thread a disk wakes. Its wake-ups are reads: from the time at which the read begins.
    pub fn with_disk(self, disk: Option<DiskMarks>) -> Self {
        Join { disk, ..self }
    }

    /// The sums of all wake-ups, also of those that still wait.
    pub fn into_ledger(mut self) -> WakeupLedger {
        while let Some((wakeup, _)) = self.waiting.pop_front() {
            self.add(wakeup);
        }
        self.ledger
    }

    /// Takes new marks of the waker's CPU. Call it before [`Join::advance`] gets the marks of the same time.
    pub fn take_waker_marks(&mut self, marks: impl Iterator<Item = Mark>) {
        let Some(waker_marks) = &mut self.waker_marks else { return };
        waker_marks.extend(marks);
        let excess = waker_marks.len().saturating_sub(MARKS_MAX);
        waker_marks.drain(..excess);
        self.dropped += excess as u64;
        waker_marks.make_contiguous().sort_by_key(|mark| mark.at_ns);
    }

    /// Takes new marks of all CPUs for a thread that a disk wakes, each with its CPU. Call it before [`Join::advance`] gets the
    /// marks of the same time.
    pub fn take_disk_marks(&mut self, marks: &[(u32, Mark)]) {
        let Some(disk) = &mut self.disk else { return };
        for watched in &mut disk.watched_cpus {
            let of_cpu = marks.iter().filter(|(cpu, _)| *cpu == watched.cpu);
            watched.marks.extend(of_cpu.map(|(_, mark)| *mark));
            let excess = watched.marks.len().saturating_sub(MARKS_MAX);
            watched.marks.drain(..excess);
            self.dropped += excess as u64;
            watched.marks.make_contiguous().sort_by_key(|mark| mark.at_ns);
        }
    }

    /// Takes new chains of wakers of this CPU's thread, in the order of time. Call it before [`Join::advance`] gets the
    /// marks of the same time.
    pub fn take_chains(&mut self, chains: impl Iterator<Item = Vec<Waker>>) {
        self.chains.extend(chains);
        let excess = self.chains.len().saturating_sub(CHAINS_MAX);
        self.chains.drain(..excess);
    }

    /// Takes the new wake-ups and the new marks of this CPU. Adds the wake-ups whose marks have all arrived to the ledger:
    /// after a wake-up, the thread goes to sleep again, and a task switch has a mark. `is_over`: the thread has ended, and
    /// these are its last wake-ups.
    pub fn advance(
        &mut self,
        marks: impl Iterator<Item = Mark>,
        new_wakeups: Vec<Wakeup>,
        is_over: bool,
    ) {
        let before = self.marks.len();
        self.marks.extend(marks);
        if self.marks.len() > MARKS_MAX {
            let excess: Vec<Mark> = self.marks.drain(..self.marks.len() - MARKS_MAX).collect();
            self.dropped += excess.len() as u64;
            self.ledger.apply_marks(&excess);
        }
        let before = before.min(self.marks.len());
        let new = self.marks.range(before..);
        self.marks_in_window += new.filter(|mark| mark.at_ns >= self.window_ns).count() as u64;
        self.marks.make_contiguous().sort_by_key(|mark| mark.at_ns);
        let newest_ns = self.marks.back().map_or(0, |mark| mark.at_ns);
        self.waiting.iter_mut().for_each(|(_, polls)| *polls += 1);
        self.waiting.extend(new_wakeups.into_iter().map(|wakeup| (wakeup, 0)));
        let is_complete = |wakeup: &Wakeup, polls: u32| {
            !self.has_marks || polls >= POLLS_MAX || (polls > 0 && newest_ns > wakeup.woke_ns)
        };
        let complete =
            self.waiting.iter().take_while(|(wakeup, polls)| is_complete(wakeup, *polls));
        for _ in 0..complete.count() {
            if let Some((wakeup, _)) = self.waiting.pop_front() {
                self.add(wakeup);
            }
        }
        // A thread with a long period has many marks between its wake-ups. They only change what runs on the CPU.
        let next_due_ns = match self.waiting.front() {
            Some((wakeup, _)) => wakeup.due_ns,
            None if is_over => u64::MAX,
            None => self.next_due_ns,
        };
        self.pass_until(next_due_ns.min(newest_ns.saturating_sub(UNORDERED_NS_MAX)));
    }

    /// Adds a wake-up with its marks to the ledger.
    fn add(&mut self, wakeup: Wakeup) {
        self.next_due_ns = self.due_grid.next_after(wakeup.due_ns);
        if !self.has_marks {
            self.ledger.add_bare(wakeup);
            return;
        }
        self.pass_until(wakeup.due_ns);
        let marks = take_until(&mut self.marks, wakeup.woke_ns);
        if let Some(disk) = &mut self.disk {
            disk.add(&mut self.ledger, wakeup, &marks, &mut self.chains);
            return;
        }
        let wakers = take_chain(&mut self.chains, wakeup);
        match &mut self.waker_marks {
            None => self.ledger.add(wakeup, &marks, &wakers),
            Some(waker_marks) => {
                let waker_marks = take_until(waker_marks, wakeup.woke_ns);
                self.ledger.add_sent(wakeup, &waker_marks, &marks, &wakers);
            }
        }
    }

    /// Passes all marks before this time to the ledger. The ledger needs no marks of the waker's CPU between wake-ups.
    fn pass_until(&mut self, end_ns: u64) {
        let marks = take_until(&mut self.marks, end_ns);
        self.ledger.apply_marks(&marks);
        if let Some(waker_marks) = &mut self.waker_marks {
            take_until(waker_marks, end_ns);
        }
        if let Some(disk) = &mut self.disk {
            disk.pass_until(end_ns);
        }
    }
}

/// Removes the marks before this time.
fn take_until(marks: &mut VecDeque<Mark>, end_ns: u64) -> Vec<Mark> {
    let end = marks.partition_point(|mark| mark.at_ns < end_ns);
    marks.drain(..end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::noise::{KeepDetours, What};
    use lab::wakeup::{Part, Running, Stage};

    fn mark(at_ns: u64, what: What) -> Mark {
        Mark { at_ns, what }
    }

    fn grid(first_due_ns: u64, period_ns: u64) -> DueGrid {
        DueGrid { first_due_ns, period_ns }
    }

    /// Takes marks and wake-ups while the thread runs.
    fn take(join: &mut Join, marks: &[Mark], wakeups: &[Wakeup]) {
        join.advance(marks.iter().copied(), wakeups.to_vec(), false);
    }

    #[test]
    fn marks_that_arrive_later_and_between_wake_ups_count() {
        let ledger = WakeupLedger::new(KeepDetours::new(8, 1, 0));
        let mut join = Join::new(ledger, true, false, 1_000, grid(1_000, 100_000_000));
        take(&mut join, &[mark(10, What::SwitchTo(7))], &[]);
        let wakeup = Wakeup { due_ns: 1_000, woke_ns: 1_500 };
        take(&mut join, &[mark(1_300, What::Wake(0))], &[wakeup]);
        take(&mut join, &[], &[]);
        take(&mut join, &[mark(1_400, What::SwitchBack)], &[]);
        // The thread sleeps for long. Another task runs meanwhile, and at the next due time.
        for number in 0..50_000 {
            let task = if number % 2 == 0 { 8 } else { 7 };
            take(&mut join, &[mark(2_000 + number * 1_000, What::SwitchTo(task))], &[]);
        }
        assert!(join.marks.len() < 20_000, "{}", join.marks.len());
        let second = Wakeup { due_ns: 100_001_000, woke_ns: 100_001_200 };
        take(&mut join, &[mark(100_001_150, What::SwitchBack)], &[second]);
        assert_eq!(join.marks_in_window, 50_003);
        let ledger = join.into_ledger();
        let total =
            |stage, running| ledger.parts.get(&Part { stage, running }).map(|times| times.sum);
        assert_eq!(total(Stage::Expiry, Running::Task(7)), Some(300 + 150));
        assert_eq!(total(Stage::Scheduling, Running::Task(7)), Some(100));
        assert_eq!(total(Stage::Return, Running::Thread), Some(150));
        assert_eq!((ledger.late.count, ledger.unbalanced, ledger.unseen), (2, 0, 0));
    }

    /// The waker sends late in its period. Its next signal is in time, so it comes less than a period later.
    #[test]
    fn marks_of_the_wakers_cpu_are_kept_until_the_wake_up_that_they_belong_to() {
        let ledger = WakeupLedger::new(KeepDetours::new(8, 1, 0));
        let mut join = Join::new(ledger, true, true, 0, grid(0, 100_000_000));
        let mut give = |waker_marks: &[(u64, What)], marks: &[(u64, What)], wakeups: &[Wakeup]| {
            join.take_waker_marks(waker_marks.iter().map(|&(at_ns, what)| mark(at_ns, what)));
            let marks: Vec<Mark> = marks.iter().map(|&(at_ns, what)| mark(at_ns, what)).collect();
            take(&mut join, &marks, wakeups);
        };
        let (idle, waker_task) = (7, 8);
        let late = Wakeup { due_ns: 190_000_000, woke_ns: 190_000_900 };
        let in_time = Wakeup { due_ns: 200_000_100, woke_ns: 200_001_000 };
        for (number, wakeup) in [late, in_time].into_iter().enumerate() {
            let at = wakeup.due_ns;
            give(
                &[
                    (at - 500, What::SwitchTo(waker_task)),
                    (at + 100, What::Enter(3)),
                    (at + 150, What::Leave(3)),
                    (at + 500, What::SwitchTo(idle)),
                ],
                &[
                    (at - 100_000, What::SwitchTo(idle)),
                    (at + 200, What::Wake(0)),
                    (at + 600, What::SwitchBack),
                ],
                &[wakeup],
            );
            // Marks of much later times arrive before the next wake-up.
            let later = if number == 0 { 199_999_000 } else { 290_000_000 };
            give(&[(later, What::SwitchTo(idle))], &[(later, What::SwitchTo(idle))], &[]);
        }
        let ledger = join.into_ledger();
        let total =
            |stage, running| ledger.parts.get(&Part { stage, running }).map(|times| times.sum);
        assert_eq!(total(Stage::Waking, Running::Waker), Some(2 * 150));
        assert_eq!(total(Stage::Waking, Running::Context(3)), Some(2 * 50));
        assert_eq!(total(Stage::Scheduling, Running::Task(idle)), Some(2 * 400));
        assert_eq!(total(Stage::Return, Running::Thread), Some(300 + 300));
        assert_eq!((ledger.late.count, ledger.unbalanced, ledger.unseen), (2, 0, 0));
    }

    #[test]
    fn memory_is_bounded_before_the_window_and_after_the_thread_has_ended() {
        let ledger = WakeupLedger::new(KeepDetours::new(8, 1, 0));
        let mut join = Join::new(ledger, true, false, 200_000_000, grid(0, 1_000_000));
        for number in 0..100_000 {
            take(&mut join, &[mark(number * 1_000, What::SwitchTo(7))], &[]);
        }
        assert!(join.marks.len() < 20_000, "{}", join.marks.len());
        assert_eq!(join.marks_in_window, 0);
        for number in 200_000..300_000 {
            let marks = [mark(number * 1_000, What::SwitchTo(7))];
            join.advance(marks.into_iter(), Vec::new(), true);
        }
        assert!(join.marks.len() < 20_000, "{}", join.marks.len());
    }
}
