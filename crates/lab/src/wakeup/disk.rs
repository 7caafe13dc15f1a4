//! Splits the lateness of a wake-up by a disk. A thread reads the disk, and sleeps until the read is over. The lateness begins
//! when the handler of the disk's interrupt begins: the disk's own time is before that.
//!
//! ```text
//!            read begins            disk's interrupt      W                     S         the thread reads the clock
//! interrupted CPU:  |                    | virtio0-req.0 | BLOCK |
//! thread's CPU:     | (the disk's time)  |                        | idle | vector | idle | the thread  |
//! stage:                                 |----- waking -----------|----- scheduling -----|-- return ---|
//! ```
//!
//! The marks are W: the kernel wakes the thread, S: the switch to the thread. The interrupt may come to any CPU. If another CPU
//! than the interrupted one wakes the thread, the parts of the stage `waking` are from the interrupted CPU until the handler
//! ends there, and then from the CPU that wakes.

use stats::Distribution;

use super::split::{CpuState, Part, Running, Stage, Wakeup, push};
use crate::noise::{Mark, What};

/// Sums over the reads of a thread whose end the kernel's marks show.
#[derive(Clone, Debug, Default)]
pub struct DiskReads {
    /// From the time before the thread's system call to the disk's interrupt, ns.
    pub until_interrupt: Distribution,
    /// Number of reads during which the disk interrupted several times. Their lateness begins with the last interrupt
    /// before the thread is woken.
    pub several_interrupts: u64,
    /// Number of reads without an interrupt of the disk before the thread was woken, or without the event of the
    /// wake-up. They have no lateness.
    pub no_interrupt: u64,
}

impl DiskReads {
    /// Adds a read. `interrupts`: the number of interrupts of the disk before the thread was woken, at least 1.
    pub fn add(&mut self, until_interrupt_ns: u64, interrupts: u64, began_ns: u64) {
        self.until_interrupt.record(until_interrupt_ns, began_ns);
        self.several_interrupts += u64::from(interrupts > 1);
    }
}

/// A CPU that the disk may interrupt, with the CPU's marks since the start of a read, in the order of time.
#[derive(Clone, Copy, Debug)]
pub struct WatchedCpu<'a> {
    pub cpu: u32,
    /// The state of the CPU at the start of the read.
    pub state: &'a CpuState,
    pub marks: &'a [Mark],
}

/// The marks of all watched CPUs during a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadMarks<'a> {
    /// CPU of the thread, and its marks in the order of time.
    pub cpu: u32,
    pub marks: &'a [Mark],
    /// The CPUs without the thread that the disk may interrupt.
    pub watched_cpus: &'a [WatchedCpu<'a>],
    /// Numbers of the contexts of the disk's interrupts.
    pub disk_contexts: &'a [u32],
}

/// The interrupt that ended a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// When the interrupt's handler began, ns.
    pub interrupt_ns: u64,
    /// Number of the disk's interrupts from the start of the read until the kernel woke the thread.
    pub interrupts: u64,
    /// Whether the marks show the switch to the thread.
    pub is_seen: bool,
}

/// An interrupt of the disk.
#[derive(Clone, Copy)]
struct Interrupt {
    entered_ns: u64,
    /// When its handler ended. `None` if no mark shows the end before the wake-up.
    left_ns: Option<u64>,
    cpu: u32,
}

impl ReadMarks<'_> {
    /// Splits the end of a read: appends the parts of its lateness to `out` in the order of time. `state` must be the state of
    /// the thread's CPU at the start of the read, and is that of the end afterwards.
    ///
    /// `None` if no mark shows the wake-up, or an interrupt of the disk between the start of the read and the wake-up.
    pub(super) fn split(
        &self,
        state: &mut CpuState,
        read: Wakeup,
        out: &mut Vec<(Part, u64)>,
    ) -> Option<Completion> {
        let thread_cpu = WatchedCpu { cpu: self.cpu, state: &state.clone(), marks: self.marks };
        // The thread may also sleep before the read reaches the disk. The last wake-up ends the read.
        let wake = self.marks.iter().rposition(|mark| matches!(mark.what, What::Wake(_)));
        let split = wake.and_then(|wake| {
            let What::Wake(waking_cpu) = self.marks[wake].what else { return None };
            let woken_ns = self.marks[wake].at_ns.clamp(read.due_ns, read.woke_ns);
            let cpus = || self.watched_cpus.iter().copied().chain([thread_cpu]);
            let interrupts: Vec<Interrupt> =
                cpus().flat_map(|cpu| self.interrupts(cpu, read.due_ns, woken_ns)).collect();
            // A handler that has not ended woke the thread itself.
            let wakes =
                |interrupt: &&Interrupt| interrupt.cpu == waking_cpu && interrupt.left_ns.is_none();
            let latest = |interrupt: &&Interrupt| interrupt.entered_ns;
            let completing = interrupts.iter().filter(wakes).max_by_key(latest);
            let completing = *completing.or_else(|| interrupts.iter().max_by_key(latest))?;
            let handed_over_ns = match completing.left_ns {
                Some(left_ns) if completing.cpu != waking_cpu => left_ns,
                _ => woken_ns,
            };
            for (cpu, start_ns, end_ns) in [
                (completing.cpu, completing.entered_ns, handed_over_ns),
                (waking_cpu, handed_over_ns, woken_ns),
            ] {
                push_waking(cpus().find(|watched| watched.cpu == cpu), start_ns, end_ns, out);
            }
            Some((wake, woken_ns, completing.entered_ns, interrupts.len() as u64))
        });
        let Some((wake, woken_ns, interrupt_ns, interrupts)) = split else {
            self.marks.iter().for_each(|mark| state.apply(mark.what));
            state.switch(Running::Thread);
            return None;
        };
        let (before, after) = self.marks.split_at(wake + 1);
        before.iter().for_each(|mark| state.apply(mark.what));
        let woken = Wakeup { due_ns: woken_ns, ..read };
        let is_seen = state.split_from(Stage::Scheduling, woken, after, out);
        Some(Completion { interrupt_ns, interrupts, is_seen })
    }

    /// The interrupts of the disk on a CPU that began in a time.
    fn interrupts(&self, watched: WatchedCpu<'_>, start_ns: u64, end_ns: u64) -> Vec<Interrupt> {
        let mut interrupts: Vec<Interrupt> = Vec::new();
        let is_disk = |context: u32| self.disk_contexts.contains(&context);
        for mark in watched.marks.iter().take_while(|mark| mark.at_ns <= end_ns) {
            match mark.what {
                What::Enter(context) if is_disk(context) && mark.at_ns >= start_ns => {
                    let (entered_ns, cpu) = (mark.at_ns, watched.cpu);
                    interrupts.push(Interrupt { entered_ns, left_ns: None, cpu });
                }
                What::Leave(context) if is_disk(context) => {
                    if let Some(last) = interrupts.last_mut() {
                        last.left_ns = last.left_ns.or(Some(mark.at_ns));
                    }
                }
                _ => {}
            }
        }
        interrupts
    }
}

/// Appends what ran on a CPU from `start_ns` to `end_ns`. Unknown for a CPU without marks (`None`).
fn push_waking(
    watched: Option<WatchedCpu<'_>>,
    start_ns: u64,
    end_ns: u64,
    out: &mut Vec<(Part, u64)>,
) {
    let waking = |running| Part { stage: Stage::Waking, running };
    let Some(WatchedCpu { state, marks, .. }) = watched else {
        push(out, waking(Running::Unknown), end_ns.saturating_sub(start_ns));
        return;
    };
    let mut state = state.clone();
    let mut now_ns = start_ns;
    // Marks of one time are applied together.
    for mark in marks.iter().take_while(|mark| mark.at_ns < end_ns) {
        let at_ns = mark.at_ns.max(now_ns);
        push(out, waking(state.running()), at_ns - now_ns);
        now_ns = at_ns;
        state.apply(mark.what);
    }
    push(out, waking(state.running()), end_ns.saturating_sub(now_ns));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use What::{Enter, Leave, SwitchBack, SwitchTo, Wake};

    const DISK: u32 = 1;
    const BLOCK: u32 = 2;
    const CALL: u32 = 3;
    const IDLE: u32 = 4;
    const MAKE: u32 = 5;
    const READ: Wakeup = Wakeup { due_ns: 1_000, woke_ns: 9_000 };

    fn marks(list: &[(u64, What)]) -> Vec<Mark> {
        list.iter().map(|&(at_ns, what)| Mark { at_ns, what }).collect()
    }

    fn state(before: &[What]) -> CpuState {
        let mut state = CpuState::default();
        before.iter().for_each(|what| state.apply(*what));
        state
    }

    /// The thread runs on CPU 0 until it sleeps. CPU 1 executes `MAKE`.
    fn split(
        thread_marks: &[(u64, What)],
        second_marks: &[(u64, What)],
    ) -> (Option<Completion>, Vec<(Part, u64)>) {
        let (thread_marks, second_marks, second_state) =
            (marks(thread_marks), marks(second_marks), state(&[SwitchTo(MAKE)]));
        let watched_cpus = [WatchedCpu { cpu: 1, state: &second_state, marks: &second_marks }];
        let read_marks = ReadMarks {
            cpu: 0,
            marks: &thread_marks,
            watched_cpus: &watched_cpus,
            disk_contexts: &[DISK],
        };
        let mut parts = Vec::new();
        let completion = read_marks.split(&mut state(&[SwitchBack]), READ, &mut parts);
        (completion, parts)
    }

    fn part(stage: Stage, running: Running) -> Part {
        Part { stage, running }
    }

    fn completion(interrupt_ns: u64, interrupts: u64) -> Option<Completion> {
        Some(Completion { interrupt_ns, interrupts, is_seen: true })
    }

    /// A softirq after the interrupt wakes the thread, on the thread's own CPU.
    #[test]
    fn the_lateness_begins_with_the_disks_interrupt() {
        use Running::{Context, Task, Thread};
        let thread_marks = [
            (1_500, SwitchTo(IDLE)),
            (5_000, Enter(DISK)),
            (5_300, Leave(DISK)),
            (5_400, Enter(BLOCK)),
            (6_000, Wake(0)),
            (6_100, Leave(BLOCK)),
            (6_500, SwitchBack),
        ];
        let (found, parts) = split(&thread_marks, &[]);
        assert_eq!(found, completion(5_000, 1));
        let expected = [
            (part(Stage::Waking, Context(DISK)), 300),
            (part(Stage::Waking, Task(IDLE)), 100),
            (part(Stage::Waking, Context(BLOCK)), 600),
            (part(Stage::Scheduling, Context(BLOCK)), 100),
            (part(Stage::Scheduling, Task(IDLE)), 400),
            (part(Stage::Return, Thread), 2_500),
        ];
        assert_eq!(parts, expected);
    }

    /// The interrupt comes to CPU 1, which hands the completion over to the thread's CPU.
    #[test]
    fn a_completion_goes_from_the_interrupted_cpu_to_the_one_that_wakes() {
        use Running::{Context, Task, Thread};
        let thread_marks = [
            (1_500, SwitchTo(IDLE)),
            (5_700, Enter(CALL)),
            (5_800, Leave(CALL)),
            (5_900, Enter(BLOCK)),
            (6_000, Wake(0)),
            (6_100, Leave(BLOCK)),
            (6_500, SwitchBack),
        ];
        let second_marks = [(5_000, Enter(DISK)), (5_400, Leave(DISK)), (5_450, SwitchTo(IDLE))];
        let (found, parts) = split(&thread_marks, &second_marks);
        assert_eq!(found, completion(5_000, 1));
        let expected = [
            (part(Stage::Waking, Context(DISK)), 400),
            (part(Stage::Waking, Task(IDLE)), 300),
            (part(Stage::Waking, Context(CALL)), 100),
            (part(Stage::Waking, Task(IDLE)), 100),
            (part(Stage::Waking, Context(BLOCK)), 100),
            (part(Stage::Scheduling, Context(BLOCK)), 100),
            (part(Stage::Scheduling, Task(IDLE)), 400),
            (part(Stage::Return, Thread), 2_500),
        ];
        assert_eq!(parts, expected);
    }

    /// The interrupted CPU wakes the thread itself, after the handler, in its task.
    #[test]
    fn what_runs_on_the_interrupted_cpu_before_the_wake_up_delays_it() {
        use Running::{Context, Task, Thread};
        let thread_marks = [(1_500, SwitchTo(IDLE)), (6_000, Wake(1)), (6_500, SwitchBack)];
        let second_marks = [
            (5_000, Enter(DISK)),
            (5_400, Leave(DISK)),
            (5_800, Enter(BLOCK)),
            (6_300, Leave(BLOCK)),
        ];
        let (found, parts) = split(&thread_marks, &second_marks);
        assert_eq!(found, completion(5_000, 1));
        let expected = [
            (part(Stage::Waking, Context(DISK)), 400),
            (part(Stage::Waking, Task(MAKE)), 400),
            (part(Stage::Waking, Context(BLOCK)), 200),
            (part(Stage::Scheduling, Task(IDLE)), 500),
            (part(Stage::Return, Thread), 2_500),
        ];
        assert_eq!(parts, expected);
    }

    /// Other reads of the disk end before this one, and one after the handler that wakes the thread has begun.
    #[test]
    fn of_several_interrupts_the_one_that_wakes_or_the_last_counts() {
        let thread_marks = [
            (1_500, SwitchTo(IDLE)),
            (3_000, Enter(DISK)),
            (3_100, Leave(DISK)),
            (6_000, Wake(1)),
            (6_500, SwitchBack),
        ];
        let in_handler = [(5_000, Enter(DISK)), (6_100, Leave(DISK))];
        assert_eq!(split(&thread_marks, &in_handler).0, completion(5_000, 2));
        let after_handler = [(2_000, Enter(DISK)), (2_100, Leave(DISK))];
        assert_eq!(split(&thread_marks, &after_handler).0, completion(3_000, 2));
        let mut later = thread_marks.to_vec();
        later.splice(3..3, [(5_500, Enter(DISK)), (5_600, Leave(DISK))]);
        assert_eq!(split(&later, &in_handler).0, completion(5_000, 3));
    }

    #[test]
    fn a_read_without_an_interrupt_or_without_a_wake_up_has_no_lateness() {
        let before_read =
            [(500, Enter(DISK)), (1_000, SwitchTo(IDLE)), (6_000, Wake(1)), (6_500, SwitchBack)];
        assert_eq!(split(&before_read, &[]), (None, Vec::new()));
        let not_woken = [(1_500, SwitchTo(IDLE)), (5_000, Enter(DISK)), (6_500, SwitchBack)];
        assert_eq!(split(&not_woken, &[]), (None, Vec::new()));
    }

    fn any_marks() -> impl Strategy<Value = Vec<Mark>> {
        let any_what = (0..6_u8, 0..6_u32).prop_map(|(kind, number)| match kind {
            0 => Enter(number),
            1 => Leave(number),
            2 => SwitchTo(number),
            3 => SwitchBack,
            _ => Wake(number % 3),
        });
        prop::collection::vec((0..12_000_u64, any_what), 0..50).prop_map(|mut list| {
            list.sort_by_key(|(at_ns, _)| *at_ns);
            marks(&list)
        })
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_time_since_the_interrupt(thread_marks in any_marks(), second_marks in any_marks()) {
            let second_state = CpuState::default();
            let watched_cpus = [WatchedCpu { cpu: 1, state: &second_state, marks: &second_marks }];
            let read_marks =
                ReadMarks { cpu: 0, marks: &thread_marks, watched_cpus: &watched_cpus, disk_contexts: &[DISK] };
            let mut parts = Vec::new();
            let found = read_marks.split(&mut CpuState::default(), READ, &mut parts);
            let sum: u64 = parts.iter().map(|(_, length_ns)| length_ns).sum();
            prop_assert_eq!(sum, found.map_or(0, |found| READ.woke_ns - found.interrupt_ns));
            prop_assert!(found.is_none_or(|found| found.interrupt_ns >= READ.due_ns));
        }
    }
}
