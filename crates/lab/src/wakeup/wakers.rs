//! The chain of wakers of a wake-up: who woke the measured thread, who woke that waker, and so on.
//!
//! ```text
//! time   |  local_timer  |      task A      |  task B  |   the measured thread
//!                 wakes A ->        wakes B ->  wakes the thread
//! chain: B < A < local_timer
//! ```
//!
//! A chain ends with an interrupt, because nobody wakes an interrupt. It also ends where a wake-up was not seen.

use std::collections::VecDeque;

use super::split::Wakeup;
use crate::noise::{ContextName, IDLE};

/// Largest number of steps of a chain.
pub const STEPS_MAX: usize = 4;

/// Who woke a task. Numbers of tasks and contexts represent names: see [`super::WakeupSample::names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    /// When it woke the task, ns.
    pub at_ns: u64,
    /// The CPU that ran it.
    pub cpu: u32,
    /// The task that ran on the CPU. It is the waker, unless `context` is.
    pub task: u32,
    /// The kernel's number of this task.
    pub pid: u32,
    /// The interrupt or softirq that ran. `None`: the task itself woke the other task.
    pub context: Option<u32>,
}

/// Why a chain goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainEnd {
    /// An interrupt or a softirq is the origin.
    Interrupt,
    /// The idle task is the origin: nobody wakes it.
    Idle,
    /// The chain has [`STEPS_MAX`] steps.
    StepsMax,
    /// No event shows who woke the last waker.
    NotSeen,
}

impl ChainEnd {
    /// The word in tables. It is part of the run's format.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            ChainEnd::Interrupt => "interrupt",
            ChainEnd::Idle => "idle",
            ChainEnd::StepsMax => "steps",
            ChainEnd::NotSeen => "not seen",
        }
    }

    /// The reason why this chain ends. `None` for a chain without steps.
    #[must_use]
    pub fn of(chain: &[Waker], names: &[ContextName]) -> Option<ChainEnd> {
        let last = chain.last()?;
        let is_idle = last.pid == 0
            && matches!(names.get(last.task as usize), Some(ContextName::Task(name)) if name == IDLE);
        Some(if last.context.is_some() && !is_softirq_thread(last, names) {
            ChainEnd::Interrupt
        } else if is_idle {
            ChainEnd::Idle
        } else if chain.len() >= STEPS_MAX {
            ChainEnd::StepsMax
        } else {
            ChainEnd::NotSeen
        })
    }
}

/// Whether a softirq ran in a kernel thread that executes softirqs as its own work. The thread itself was woken for this
/// work, so a chain goes on. The BPF programs (`live/bpf/wakers.h`) have the same rule.
fn is_softirq_thread(waker: &Waker, names: &[ContextName]) -> bool {
    let is_softirq = waker.context.and_then(|context| names.get(context as usize)).is_some_and(
        |context| matches!(context, ContextName::Context(context) if context.kind == attribution::ContextKind::Softirq),
    );
    let prefixes = ["ksoftirqd/", "ktimers/", "irq/"];
    is_softirq
        && matches!(names.get(waker.task as usize), Some(ContextName::Task(name))
            if prefixes.iter().any(|prefix| name.starts_with(prefix)))
}

/// A chain as text, the latest waker first, as in `irqlab-waker/123 on CPU 0 < local_timer on CPU 0`. `None`
/// for a chain without steps.
#[must_use]
pub fn chain_text(chain: &[Waker], names: &[ContextName]) -> Option<String> {
    let mut texts: Vec<String> = chain.iter().map(|waker| waker_text(waker, names)).collect();
    match ChainEnd::of(chain, names)? {
        ChainEnd::Interrupt | ChainEnd::Idle => {}
        ChainEnd::StepsMax => texts.push("...".to_owned()),
        ChainEnd::NotSeen => texts.push("not seen".to_owned()),
    }
    Some(texts.join(" < "))
}

fn waker_text(waker: &Waker, names: &[ContextName]) -> String {
    let name_of = |number: u32| names.get(number as usize).map(ContextName::kind_and_name);
    let task = || {
        let name = name_of(waker.task).map_or_else(|| "?".to_owned(), |(_, name)| name);
        if waker.pid == 0 { name } else { format!("{name}/{}", waker.pid) }
    };
    let who = match waker.context.and_then(name_of) {
        None => task(),
        Some(("softirq", softirq)) => format!("{softirq} in {}", task()),
        Some((_, interrupt)) => interrupt,
    };
    format!("{who} on CPU {}", waker.cpu)
}

/// Takes the chain of a wake-up: that of the first wake-up event in it, which also ends its first stage. Removes it and
/// all earlier chains. `chains`: those of the thread, in the order of time.
pub fn take_chain(chains: &mut VecDeque<Vec<Waker>>, wakeup: Wakeup) -> Vec<Waker> {
    take_chains(chains, wakeup).next().unwrap_or_default()
}

/// Takes the chain of the last wake-up event in a wake-up, like [`take_chain`]: a thread that reads a disk may also sleep before
/// the read reaches the disk.
pub fn take_last_chain(chains: &mut VecDeque<Vec<Waker>>, wakeup: Wakeup) -> Vec<Waker> {
    take_chains(chains, wakeup).last().unwrap_or_default()
}

/// Removes all chains that precede the end of a wake-up. Returns the chains of the wake-up.
fn take_chains(
    chains: &mut VecDeque<Vec<Waker>>,
    wakeup: Wakeup,
) -> impl Iterator<Item = Vec<Waker>> {
    let woken_ns = |chain: &Vec<Waker>| chain.first().map_or(0, |waker| waker.at_ns);
    let end = chains.partition_point(|chain| woken_ns(chain) < wakeup.woke_ns);
    chains.drain(..end).filter(move |chain| woken_ns(chain) >= wakeup.due_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attribution::{Context, ContextKind};

    const WAKER: u32 = 0;
    const IDLE_TASK: u32 = 1;
    const LOCAL_TIMER: u32 = 2;
    const NET_RX: u32 = 3;
    const KSOFTIRQD: u32 = 4;

    fn names() -> Vec<ContextName> {
        let context = |kind, name: &str| {
            ContextName::Context(Context { kind, number: 0, name: name.to_owned() })
        };
        let task = |name: &str| ContextName::Task(name.to_owned());
        vec![
            task("irqlab-waker"),
            task(IDLE),
            context(ContextKind::Vector, "local_timer"),
            context(ContextKind::Softirq, "NET_RX"),
            task("ksoftirqd/1"),
        ]
    }

    fn waker(at_ns: u64, task: u32, pid: u32, context: Option<u32>) -> Waker {
        Waker { at_ns, cpu: 1, task, pid, context }
    }

    #[track_caller]
    fn check(chain: &[Waker], end: ChainEnd, text: &str) {
        assert_eq!(ChainEnd::of(chain, &names()), Some(end));
        assert_eq!(chain_text(chain, &names()).as_deref(), Some(text));
    }

    #[test]
    fn a_chain_ends_with_an_interrupt_or_where_a_wake_up_was_not_seen() {
        let timer = waker(900, IDLE_TASK, 0, Some(LOCAL_TIMER));
        let task = waker(1_000, WAKER, 123, None);
        check(&[timer], ChainEnd::Interrupt, "local_timer on CPU 1");
        let text = "irqlab-waker/123 on CPU 1 < local_timer on CPU 1";
        check(&[task, timer], ChainEnd::Interrupt, text);
        check(&[task], ChainEnd::NotSeen, "irqlab-waker/123 on CPU 1 < not seen");
        check(&[waker(900, IDLE_TASK, 0, None)], ChainEnd::Idle, "idle on CPU 1");
        let long = [task; STEPS_MAX];
        assert_eq!(ChainEnd::of(&long, &names()), Some(ChainEnd::StepsMax));
        assert!(chain_text(&long, &names()).unwrap().ends_with(" < ..."));
        assert_eq!((ChainEnd::of(&[], &names()), chain_text(&[], &names())), (None, None));
    }

    /// Where a softirq runs in a usual task, no event shows whether the task raised it or was interrupted for it.
    #[test]
    fn a_softirq_ends_a_chain_unless_its_thread_was_woken_for_it() {
        let in_waker = waker(1_000, WAKER, 123, Some(NET_RX));
        check(&[in_waker], ChainEnd::Interrupt, "NET_RX in irqlab-waker/123 on CPU 1");
        let in_thread = waker(1_000, KSOFTIRQD, 15, Some(NET_RX));
        check(&[in_thread], ChainEnd::NotSeen, "NET_RX in ksoftirqd/1/15 on CPU 1 < not seen");
        let raised = waker(400, WAKER, 123, Some(LOCAL_TIMER));
        let text = "NET_RX in ksoftirqd/1/15 on CPU 1 < local_timer on CPU 1";
        check(&[in_thread, raised], ChainEnd::Interrupt, text);
    }

    #[test]
    fn the_chain_of_a_wake_up_is_that_of_its_first_event() {
        let chain = |at_ns| vec![waker(at_ns, WAKER, 123, None)];
        let mut chains: VecDeque<_> = [90, 110, 120, 210].map(chain).into();
        let wakeup = |due_ns, woke_ns| Wakeup { due_ns, woke_ns };
        assert_eq!(take_chain(&mut chains, wakeup(100, 200)), chain(110));
        // The thread was still awake when it was due.
        assert_eq!(take_chain(&mut chains, wakeup(200, 205)), []);
        assert_eq!(take_chain(&mut chains, wakeup(205, 300)), chain(210));
        assert_eq!(chains.len(), 0);
    }
}
