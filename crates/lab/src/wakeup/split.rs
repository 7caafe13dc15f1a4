//! Splits the lateness of a wake-up into its causes, by the kernel's marks. The ledger (`ledger.rs`) calls
//! [`CpuState::split`] for each wake-up. An invariant: the parts add up to the lateness, to the nanosecond.
//!
//! ```text
//!       due                                                             the thread reads the clock
//!        |<---------------------------- lateness ------------------------------>|
//!  idle  |  late   | local_timer |  local_timer |  NET_RX  | idle | the thread  |
//! marks:           E             W              L/E        L      S
//! stage: |------- expiry --------|----------- scheduling ---------|-- return ---|
//! ```
//!
//! The marks are E: enter a context, L: leave a context, W: the thread is woken, S: switch to the thread. Each nanosecond
//! goes to the stage of the wake-up, and to the innermost context or the task that ran at that time.
//!
//! If another thread, the waker, wakes the thread, [`CpuState::split_sent`] divides the wake-up. The due time is then the
//! time at which the waker sent the wake-up. The first stage is `waking`, and its parts are from the waker's CPU:
//!
//! ```text
//!      sent                       W                                 S         the thread reads the clock
//! waker's CPU:  | the waker | vector | the waker |
//! thread's CPU:                               | idle | vector | idle | the thread  |
//! stage:        |------------- waking --------|----- scheduling -----|-- return ---|
//! ```

use crate::noise::{Mark, What};

/// A wake-up of a thread, by the kernel's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// When the thread asked to run again, or when its waker sent the wake-up, ns.
    pub due_ns: u64,
    /// The thread's first reading of the clock after that, ns. Not before `due_ns`.
    pub woke_ns: u64,
}

impl Wakeup {
    /// How late the thread read the clock, ns.
    #[must_use]
    pub fn late_ns(&self) -> u64 {
        self.woke_ns.saturating_sub(self.due_ns)
    }
}

/// How far a wake-up has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// From the due time until the kernel wakes the thread.
    Expiry,
    /// From the time at which the waker sent the wake-up, or the disk's interrupt began, until the kernel wakes the thread.
    Waking,
    /// From the kernel's wake-up of the thread until the switch to it.
    Scheduling,
    /// From the switch to the thread until it reads the clock.
    Return,
}

impl Stage {
    /// Name of the stage in tables. It is part of the run's format.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Stage::Expiry => "expiry",
            Stage::Waking => "waking",
            Stage::Scheduling => "scheduling",
            Stage::Return => "return",
        }
    }
}

/// What ran on the CPU. A number represents a context or a task: see [`super::WakeupSample::names`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Running {
    Context(u32),
    Task(u32),
    /// The measured thread.
    Thread,
    /// The thread that wakes the measured thread, from its reading of the clock until it loses its CPU.
    Waker,
    /// No mark shows it: the CPU had none before, or marks are missing.
    #[default]
    Unknown,
}

/// A part of the lateness of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    pub stage: Stage,
    pub running: Running,
}

/// Maximum depth of nested contexts. The time of deeper contexts counts for their outer context.
const DEPTH_MAX: usize = 32;

/// What runs on a CPU, from its marks so far.
#[derive(Clone, Debug, Default)]
pub struct CpuState {
    /// The task that runs outside of contexts.
    task: Running,
    /// The open contexts, the innermost last.
    contexts: Vec<u32>,
}

impl CpuState {
    pub(super) fn running(&self) -> Running {
        self.contexts.last().map_or(self.task, |context| Running::Context(*context))
    }

    /// Applies a mark. A task switch ends all contexts, so a lost mark distorts the state only until then.
    pub fn apply(&mut self, what: What) {
        match what {
            What::Enter(context) if self.contexts.len() < DEPTH_MAX => self.contexts.push(context),
            What::Leave(context) => {
                if let Some(position) = self.contexts.iter().rposition(|open| *open == context) {
                    self.contexts.truncate(position);
                }
            }
            What::SwitchTo(task) => self.switch(Running::Task(task)),
            What::SwitchBack => self.switch(Running::Thread),
            What::Enter(_) | What::Fault | What::Wake(_) => {}
        }
    }

    pub(super) fn switch(&mut self, task: Running) {
        self.contexts.clear();
        self.task = task;
    }

    /// Splits `wakeup` by the marks between its due time and its end, which must be in the order of time. Appends its
    /// parts to `out` in the order of time, and applies the marks. Leaves out parts of length 0.
    ///
    /// The state must be that of the due time. Returns whether the marks show the switch to the thread. If they do not,
    /// marks are missing (some kernels call no BPF program while a thread of process 1 runs), and the time after the last
    /// mark is [`Running::Unknown`].
    pub fn split(&mut self, wakeup: Wakeup, marks: &[Mark], out: &mut Vec<(Part, u64)>) -> bool {
        // Without a mark of the wake-up (the thread was still awake), the stage stays `Expiry` until the switch.
        self.split_from(Stage::Expiry, wakeup, marks, out)
    }

    /// Like [`CpuState::split`], for a wake-up that a waker sent. `waker_marks`: the marks of the waker's CPU from the due
    /// time on, in the order of time.
    ///
    /// Without a mark of the wake-up itself, the whole time is [`Running::Unknown`], and the result is false.
    pub fn split_sent(
        &mut self,
        wakeup: Wakeup,
        waker_marks: &[Mark],
        marks: &[Mark],
        out: &mut Vec<(Part, u64)>,
    ) -> bool {
        let Some(wake) = marks.iter().position(|mark| matches!(mark.what, What::Wake(_))) else {
            push(out, Part { stage: Stage::Waking, running: Running::Unknown }, wakeup.late_ns());
            self.switch(Running::Thread);
            return false;
        };
        let within = |at_ns: u64, from_ns: u64| at_ns.clamp(from_ns, wakeup.woke_ns.max(from_ns));
        let woken_ns = within(marks[wake].at_ns, wakeup.due_ns);
        // The waker reads the clock in user mode, so no context is open on its CPU.
        let mut waker = CpuState { task: Running::Waker, contexts: Vec::new() };
        let mut now_ns = wakeup.due_ns;
        for mark in waker_marks.iter().take_while(|mark| mark.at_ns < woken_ns) {
            let at_ns = within(mark.at_ns, now_ns);
            push(out, Part { stage: Stage::Waking, running: waker.running() }, at_ns - now_ns);
            now_ns = at_ns;
            waker.apply(mark.what);
        }
        push(out, Part { stage: Stage::Waking, running: waker.running() }, woken_ns - now_ns);
        let (before, after) = marks.split_at(wake + 1);
        before.iter().for_each(|mark| self.apply(mark.what));
        self.split_from(Stage::Scheduling, Wakeup { due_ns: woken_ns, ..wakeup }, after, out)
    }

    /// Splits a wake-up that starts in `stage`: see [`CpuState::split`].
    pub(super) fn split_from(
        &mut self,
        mut stage: Stage,
        wakeup: Wakeup,
        marks: &[Mark],
        out: &mut Vec<(Part, u64)>,
    ) -> bool {
        let mut now_ns = wakeup.due_ns;
        // Where the parts begin in which the thread, which still ran at its due time, had lost the CPU.
        let mut left_at = None;
        for mark in marks {
            let at_ns = mark.at_ns.clamp(now_ns, wakeup.woke_ns.max(now_ns));
            push(out, Part { stage, running: self.running() }, at_ns - now_ns);
            now_ns = at_ns;
            match mark.what {
                What::SwitchTo(_) if self.task == Running::Thread => left_at = Some(out.len()),
                What::Wake(_) => left_at = None,
                // Not woken, so it never slept: it was ready to run all the time.
                What::SwitchBack => {
                    let ready = left_at.take().and_then(|from| out.get_mut(from..));
                    let ready = ready.into_iter().flatten();
                    ready.for_each(|(part, _)| part.stage = part.stage.max(Stage::Scheduling));
                }
                _ => {}
            }
            self.apply(mark.what);
            stage = match mark.what {
                What::Wake(_) => stage.max(Stage::Scheduling),
                What::SwitchBack => Stage::Return,
                // The thread lost the CPU again before it read the clock.
                What::SwitchTo(_) if stage == Stage::Return => Stage::Scheduling,
                _ => stage,
            };
        }
        // At the end the thread runs, outside of contexts. Any other state means missing marks.
        let is_seen = self.running() == Running::Thread;
        if !is_seen {
            self.switch(Running::Unknown);
        }
        let rest_ns = wakeup.woke_ns.saturating_sub(now_ns);
        push(out, Part { stage, running: self.running() }, rest_ns);
        self.switch(Running::Thread);
        is_seen
    }
}

/// Appends a part, or adds it to the last one if that is equal. Leaves out parts of length 0.
pub fn push(parts: &mut Vec<(Part, u64)>, part: Part, length_ns: u64) {
    match parts.last_mut() {
        _ if length_ns == 0 => {}
        Some((last, sum_ns)) if *last == part => *sum_ns += length_ns,
        _ => parts.push((part, length_ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMER: u32 = 1;
    const NET_RX: u32 = 2;
    const IDLE: u32 = 3;
    const MAKE: u32 = 4;

    #[track_caller]
    fn check(before: &[What], length_ns: u64, marks: &[(u64, What)], expected: &[(Part, u64)]) {
        let mut state = CpuState::default();
        before.iter().for_each(|what| state.apply(*what));
        let marks: Vec<Mark> =
            marks.iter().map(|&(at_ns, what)| Mark { at_ns: 1_000 + at_ns, what }).collect();
        let mut parts = Vec::new();
        let wakeup = Wakeup { due_ns: 1_000, woke_ns: 1_000 + length_ns };
        state.split(wakeup, &marks, &mut parts);
        assert_eq!(parts, expected);
        assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), length_ns);
    }

    fn part(stage: Stage, running: Running) -> Part {
        Part { stage, running }
    }

    #[test]
    fn an_idle_cpu_wakes_the_thread() {
        use Running::{Context, Task, Thread};
        use Stage::{Expiry, Return, Scheduling};
        use What::{Enter, Leave, SwitchBack, SwitchTo, Wake};
        let marks = [
            (400, Enter(TIMER)),
            (700, Wake(0)),
            (900, Leave(TIMER)),
            (950, Enter(NET_RX)),
            (5_000, Leave(NET_RX)),
            (5_300, SwitchBack),
        ];
        let expected = [
            (part(Expiry, Task(IDLE)), 400),
            (part(Expiry, Context(TIMER)), 300),
            (part(Scheduling, Context(TIMER)), 200),
            (part(Scheduling, Task(IDLE)), 50),
            (part(Scheduling, Context(NET_RX)), 4_050),
            (part(Scheduling, Task(IDLE)), 300),
            (part(Return, Thread), 700),
        ];
        check(&[SwitchTo(IDLE)], 6_000, &marks, &expected);
    }

    /// The softirq began before the due time; `make` has a higher priority than the thread.
    #[test]
    fn what_ran_at_the_due_time_and_other_tasks_delay_the_thread() {
        use Running::{Context, Task, Thread};
        use Stage::{Expiry, Return, Scheduling};
        use What::{Enter, Leave, SwitchBack, SwitchTo, Wake};
        let marks = [
            (100, Leave(NET_RX)),
            (120, Enter(TIMER)),
            (150, Wake(0)),
            (160, Leave(TIMER)),
            (200, SwitchTo(IDLE)),
            (210, SwitchBack),
            (260, SwitchTo(MAKE)),
            (300, SwitchBack),
        ];
        let expected = [
            (part(Expiry, Context(NET_RX)), 100),
            (part(Expiry, Task(MAKE)), 20),
            (part(Expiry, Context(TIMER)), 30),
            (part(Scheduling, Context(TIMER)), 10),
            (part(Scheduling, Task(MAKE)), 40),
            (part(Scheduling, Task(IDLE)), 10),
            (part(Return, Thread), 50),
            (part(Scheduling, Task(MAKE)), 40),
            (part(Return, Thread), 20),
        ];
        check(&[SwitchTo(MAKE), Enter(NET_RX)], 320, &marks, &expected);
    }

    /// The thread was due while it still ran, and lost the CPU before it slept.
    #[test]
    fn a_task_that_takes_the_cpu_from_a_ready_thread_delays_it() {
        use What::{Enter, Leave, SwitchBack, SwitchTo};
        let marks =
            [(50, SwitchTo(MAKE)), (100, Enter(TIMER)), (130, Leave(TIMER)), (300, SwitchBack)];
        let expected = [
            (part(Stage::Expiry, Running::Thread), 50),
            (part(Stage::Scheduling, Running::Task(MAKE)), 50),
            (part(Stage::Scheduling, Running::Context(TIMER)), 30),
            (part(Stage::Scheduling, Running::Task(MAKE)), 170),
            (part(Stage::Return, Running::Thread), 60),
        ];
        check(&[SwitchBack], 360, &marks, &expected);
    }

    #[test]
    fn time_without_the_switch_to_the_thread_is_unknown() {
        use What::{Enter, SwitchTo};
        let marks = [(100, Enter(TIMER))];
        let expected = [
            (part(Stage::Expiry, Running::Task(MAKE)), 100),
            (part(Stage::Expiry, Running::Unknown), 700),
        ];
        check(&[SwitchTo(MAKE)], 800, &marks, &expected);
        check(&[SwitchTo(MAKE)], 800, &[], &[(part(Stage::Expiry, Running::Unknown), 800)]);
    }

    #[test]
    fn a_thread_that_does_not_sleep_yet_delays_itself() {
        check(&[What::SwitchBack], 80, &[], &[(part(Stage::Expiry, Running::Thread), 80)]);
        check(&[], 80, &[], &[(part(Stage::Expiry, Running::Unknown), 80)]);
    }

    /// An interrupt delays the waker in its system call, and another one runs on the thread's CPU before the wake-up.
    #[test]
    fn a_wake_up_that_a_waker_sends_begins_on_the_wakers_cpu() {
        use Running::{Context, Task, Thread, Waker};
        use Stage::{Return, Scheduling, Waking};
        use What::{Enter, Leave, SwitchBack, SwitchTo, Wake};
        let at = |(at_ns, what): (u64, What)| Mark { at_ns: 1_000 + at_ns, what };
        let waker_marks =
            [(300, Enter(NET_RX)), (450, Leave(NET_RX)), (900, SwitchTo(IDLE))].map(at);
        let marks = [
            (100, Enter(TIMER)),
            (200, Leave(TIMER)),
            (500, Wake(0)),
            (800, Enter(TIMER)),
            (860, Leave(TIMER)),
            (1_000, SwitchBack),
        ]
        .map(at);
        let expected = [
            (part(Waking, Waker), 300),
            (part(Waking, Context(NET_RX)), 150),
            (part(Waking, Waker), 50),
            (part(Scheduling, Task(IDLE)), 300),
            (part(Scheduling, Context(TIMER)), 60),
            (part(Scheduling, Task(IDLE)), 140),
            (part(Return, Thread), 200),
        ];
        let wakeup = Wakeup { due_ns: 1_000, woke_ns: 2_200 };
        let idle = || {
            let mut state = CpuState::default();
            state.apply(SwitchTo(IDLE));
            state
        };
        let mut parts = Vec::new();
        assert!(idle().split_sent(wakeup, &waker_marks, &marks, &mut parts));
        assert_eq!(parts, expected);

        // The event of the wake-up was lost.
        parts.clear();
        assert!(!idle().split_sent(wakeup, &waker_marks, &marks[3..], &mut parts));
        assert_eq!(parts, [(part(Waking, Running::Unknown), 1_200)]);
    }

    /// The waker has a lower class than the thread, which takes the CPU from it.
    #[test]
    fn a_waker_on_the_threads_cpu_delays_it_until_the_switch() {
        use What::{SwitchBack, SwitchTo, Wake};
        const WAKER_TASK: u32 = 9;
        let marks = [(400, Wake(0)), (700, SwitchBack)].map(|(at_ns, what)| Mark { at_ns, what });
        let mut state = CpuState::default();
        state.apply(SwitchTo(WAKER_TASK));
        let mut parts = Vec::new();
        let wakeup = Wakeup { due_ns: 0, woke_ns: 1_000 };
        assert!(state.split_sent(wakeup, &marks, &marks, &mut parts));
        let expected = [
            (part(Stage::Waking, Running::Waker), 400),
            (part(Stage::Scheduling, Running::Task(WAKER_TASK)), 300),
            (part(Stage::Return, Running::Thread), 300),
        ];
        assert_eq!(parts, expected);
    }

    fn any_what() -> impl Strategy<Value = What> {
        (0..7_u8, 0..5_u32).prop_map(|(kind, number)| match kind {
            0 => What::Enter(number),
            1 => What::Leave(number),
            2 => What::SwitchTo(number),
            3 => What::SwitchBack,
            4 => What::Fault,
            _ => What::Wake(0),
        })
    }

    proptest! {
        #[test]
        fn parts_add_up_whatever_the_marks(
            before in prop::collection::vec(any_what(), 0..40),
            marks in prop::collection::vec((0..5_000_u64, any_what()), 0..60),
            late_ns in 0..4_000_u64,
        ) {
            let mut state = CpuState::default();
            before.iter().for_each(|what| state.apply(*what));
            let mut marks: Vec<Mark> =
                marks.into_iter().map(|(at_ns, what)| Mark { at_ns, what }).collect();
            marks.sort_by_key(|mark| mark.at_ns);
            let wakeup = Wakeup { due_ns: 500, woke_ns: 500 + late_ns };
            let (mut parts, mut sent_parts) = (Vec::new(), Vec::new());
            state.clone().split(wakeup, &marks, &mut parts);
            let (waker_marks, marks) = marks.split_at(marks.len() / 2);
            state.split_sent(wakeup, waker_marks, marks, &mut sent_parts);
            for parts in [parts, sent_parts] {
                prop_assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), late_ns);
                prop_assert!(parts.iter().all(|part| part.1 > 0));
            }
        }
    }
}
