//! Splits the lateness of a wake-up in the guest by the contexts that the CPU executed.
//!
//! The thread reads CLOCK_MONOTONIC and then the time-stamp counter, which the simulator knows. Both advance at the same
//! rate, so the due time on the counter is the lateness before the counter's reading. The parts add up to the lateness.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::noise::{ContextName, IDLE};
use lab::wakeup::split::push;
use lab::wakeup::{Part, Running, Stage};

use crate::accounting::{Accounting, ContextTransition};
use crate::contexts::source_name;

/// The vector of the local timer's interrupt.
const LOCAL_TIMER: u8 = 0xec;

/// The contexts and tasks that occurred, by number.
#[derive(Default)]
pub(super) struct Names {
    pub(super) list: Vec<ContextName>,
    numbers: BTreeMap<KernelContext, u32>,
}

impl Names {
    fn number(&mut self, context: KernelContext, account: &Accounting) -> u32 {
        let next = self.list.len() as u32;
        let number = *self.numbers.entry(context).or_insert(next);
        if number == next {
            self.list.push(match context {
                KernelContext::Idle => ContextName::Task(IDLE.to_owned()),
                other => source_name(other, other, account),
            });
        }
        number
    }

    /// What runs in a context. `task`: the task at the bottom of the stack; `thread`: the measured thread.
    fn running(
        &mut self,
        (context, task): (KernelContext, KernelContext),
        thread: u32,
        account: &Accounting,
    ) -> Running {
        if context.is_interrupt_or_exception() {
            return Running::Context(self.number(context, account));
        }
        match task {
            KernelContext::User(pid) | KernelContext::Task(pid) if pid == thread => Running::Thread,
            KernelContext::Unknown => Running::Unknown,
            other => Running::Task(self.number(other, account)),
        }
    }
}

/// Returns the parts of the time from `due_tsc` to `woke_tsc` in the order of time, by the transitions of the CPU. They
/// add up to this time, also if the transitions do not cover it.
///
/// The stage `expiry` ends with the first interrupt of the local timer that ends in this time: the simulator does not see
/// at which instruction of the interrupt the thread is woken.
pub(super) fn parts(
    (due_tsc, woke_tsc): (u64, u64),
    transitions: &[ContextTransition],
    thread: u32,
    names: &mut Names,
    account: &Accounting,
) -> Vec<(Part, u64)> {
    let mut parts: Vec<(Part, u64)> = Vec::new();
    let mut stage = Stage::Expiry;
    let mut was_in_timer = false;
    let first = transitions.partition_point(|transition| transition.tsc <= due_tsc);
    let before = first.checked_sub(1).and_then(|index| transitions.get(index));
    let mut current = before.map_or((KernelContext::Unknown, KernelContext::Unknown), of);
    let mut now_tsc = due_tsc;
    let inside = transitions[first..].iter().take_while(|transition| transition.tsc < woke_tsc);
    let changes = inside.map(|transition| (transition.tsc, Some(of(transition))));
    for (at_tsc, next) in changes.chain([(woke_tsc, None)]) {
        let running = names.running(current, thread, account);
        // An interrupt in the timer's interrupt, such as an NMI, does not end it.
        let is_in_timer = current.0 == KernelContext::Interrupt(LOCAL_TIMER)
            || (was_in_timer && current.0 == KernelContext::Nmi);
        stage = match stage {
            _ if running == Running::Thread && is_awake(stage, current.0) => Stage::Return,
            Stage::Expiry if was_in_timer && !is_in_timer => Stage::Scheduling,
            stage => stage,
        };
        was_in_timer = is_in_timer;
        push(&mut parts, Part { stage, running }, at_tsc.saturating_sub(now_tsc));
        now_tsc = at_tsc.max(now_tsc);
        current = next.unwrap_or(current);
    }
    parts
}

/// Whether a thread that executes in this context has been woken. Before its timer's interrupt it may still be on its way
/// into the sleep, in a system call.
fn is_awake(stage: Stage, context: KernelContext) -> bool {
    stage != Stage::Expiry || matches!(context, KernelContext::User(_))
}

fn of(transition: &ContextTransition) -> (KernelContext, KernelContext) {
    (transition.context, transition.task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const THREAD: KernelContext = KernelContext::User(7);
    const TIMER: KernelContext = KernelContext::Interrupt(LOCAL_TIMER);
    const SLEEP: KernelContext = KernelContext::Syscall(230);

    fn transition(tsc: u64, context: KernelContext, task: KernelContext) -> ContextTransition {
        ContextTransition { context, task, cycles: tsc, tsc }
    }

    fn parts_of(window: (u64, u64), transitions: &[ContextTransition]) -> Vec<(Part, u64)> {
        parts(window, transitions, 7, &mut Names::default(), &Accounting::default())
    }

    #[test]
    fn an_idle_cpu_wakes_the_thread() {
        let idle = KernelContext::Idle;
        let transitions = [
            transition(10, THREAD, THREAD),
            transition(20, SLEEP, THREAD),
            transition(40, idle, idle),
            transition(103, TIMER, idle),
            transition(150, KernelContext::Softirq(3), idle),
            transition(170, idle, idle),
            transition(190, SLEEP, THREAD),
            transition(230, THREAD, THREAD),
        ];
        let part = |stage, running| Part { stage, running };
        let expected = [
            (part(Stage::Expiry, Running::Task(0)), 3),
            (part(Stage::Expiry, Running::Context(1)), 47),
            (part(Stage::Scheduling, Running::Context(2)), 20),
            (part(Stage::Scheduling, Running::Task(0)), 20),
            (part(Stage::Return, Running::Thread), 60),
        ];
        assert_eq!(parts_of((100, 250), &transitions), expected);
        // The thread had not gone to sleep when its timer was due.
        let late = parts_of((30, 250), &transitions);
        assert_eq!(late[0], (part(Stage::Expiry, Running::Thread), 10));
    }

    fn any_context() -> impl Strategy<Value = KernelContext> {
        prop_oneof![
            Just(THREAD),
            Just(TIMER),
            Just(SLEEP),
            Just(KernelContext::Idle),
            Just(KernelContext::Nmi),
            Just(KernelContext::KernelThread(9)),
            Just(KernelContext::Unknown),
        ]
    }

    proptest! {
        #[test]
        fn parts_add_up_whatever_the_transitions(
            list in prop::collection::vec((0..3_000_u64, any_context(), any_context()), 0..60),
            due in 0..3_000_u64,
            late in 0..3_000_u64,
        ) {
            let mut list = list;
            list.sort_by_key(|(tsc, _, _)| *tsc);
            let transitions: Vec<ContextTransition> = list
                .into_iter()
                .map(|(tsc, context, task)| transition(tsc, context, task))
                .collect();
            let parts = parts_of((due, due + late), &transitions);
            prop_assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), late);
        }
    }
}
