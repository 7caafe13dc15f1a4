//! Splits the lateness of a wake-up in the guest by the contexts that the CPU executed.
//!
//! The thread reads CLOCK_MONOTONIC between two readings of the time-stamp counter, which the simulator knows. Both advance
//! at the same rate, so the due time on the counter is the lateness before the middle of these readings. The parts add up to the lateness.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::noise::{ContextName, IDLE, Mark, What};
use lab::wakeup::split::push;
use lab::wakeup::{Part, Running, Stage};

use crate::accounting::{Accounting, ContextTransition, CpuUse};
use crate::contexts::source_name;
use crate::sent_interrupts::{SentNames, SentOnCpu};

/// The vector of the local timer's interrupt.
const LOCAL_TIMER: u8 = 0xec;

/// Maximum number of contexts and tasks that get numbers of their own. All later ones share a number.
const NAMES_MAX: usize = 400;
/// Name of the contexts and tasks that share a number.
const OTHERS: &str = "others";

/// The contexts and tasks that occurred, by number. Those of one kind and name have one number.
#[derive(Default)]
pub(super) struct Names<'a> {
    pub(super) list: Vec<ContextName>,
    numbers: BTreeMap<KernelContext, u32>,
    /// The names of interrupts with their senders. `None`: interrupts are named without senders.
    sent: Option<SentNames<'a>>,
}

impl<'a> Names<'a> {
    pub(super) fn with_senders(sent: Option<SentNames<'a>>) -> Names<'a> {
        Names { sent, ..Names::default() }
    }

    /// The names of all contexts and tasks, by number, and a warning if senders share a name.
    pub(super) fn finish(mut self) -> (Vec<ContextName>, Option<String>) {
        let warning = self.sent.and_then(|sent| sent.finish(&mut self.list));
        (self.list, warning)
    }

    /// The number of the name of an interrupt with this sender: see [`SentNames::number`].
    fn sent_number(&mut self, context: KernelContext, sent: &[usize]) -> Option<u32> {
        self.sent.as_mut()?.number(context, sent, &mut self.list)
    }

    /// The number of a context's name; a name that occurs for the first time is added to the list.
    fn number(&mut self, context: KernelContext, account: &Accounting) -> u32 {
        if let Some(number) = self.numbers.get(&context) {
            return *number;
        }
        let name = match context {
            _ if self.list.len() >= NAMES_MAX => ContextName::Task(OTHERS.to_owned()),
            KernelContext::Idle => ContextName::Task(IDLE.to_owned()),
            other => source_name(other, other, account),
        };
        let position = self.list.iter().position(|candidate| *candidate == name);
        let number = position.unwrap_or_else(|| {
            self.list.push(name);
            self.list.len() - 1
        });
        // Bounds the memory for contexts without a name of their own.
        if self.numbers.len() < 10 * NAMES_MAX {
            self.numbers.insert(context, number as u32);
        }
        number as u32
    }

    /// What runs in a context: the task in [`KernelContext::Scheduler`], where the return path of an interrupt gives way.
    /// `task`: the task at the bottom of the stack; `thread`: the measured thread.
    pub(super) fn running(
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

/// Number of wake-ups before and after one, whose clocks show how far the counter is ahead.
const NEIGHBOURS: usize = 16;

/// Returns the records of a thread (due time, time of the reading, time-stamp counter) with the counter at the time of the
/// reading: the median difference of both clocks over the neighbouring wake-ups determines it.
///
/// The thread reads the clock between two readings of the counter. A task that takes the CPU between them makes the
/// recorded counter wrong by half of its time, in this wake-up.
pub(super) fn with_counter_at_reading(records: &[[u64; 3]]) -> Vec<[u64; 3]> {
    let ahead = |record: &[u64; 3]| record[2].wrapping_sub(record[1]).cast_signed();
    let with_median = |(number, record): (usize, &[u64; 3])| {
        let end = records.len().min(number + NEIGHBOURS + 1);
        let mut near: Vec<i64> =
            records[number.saturating_sub(NEIGHBOURS)..end].iter().map(ahead).collect();
        let middle = near.len() / 2;
        let (_, median, _) = near.select_nth_unstable(middle);
        [record[0], record[1], record[1].wrapping_add_signed(*median)]
    };
    records.iter().enumerate().map(with_median).collect()
}

/// The changes of a CPU's contexts as marks of a flight record, in order. `clock_offset_ns`: what is added to the
/// time-stamp counter to get the guest's CLOCK_MONOTONIC, modulo 2^64.
///
/// There is no mark of the thread's wake-up: the simulator does not see at which instruction the thread is woken. An interrupt
/// that serves several senders has the name of the first one.
pub(super) fn marks(
    ThreadOnCpu { transitions, thread, interrupts }: ThreadOnCpu<'_>,
    clock_offset_ns: u64,
    names: &mut Names<'_>,
    account: &Accounting,
) -> Vec<Mark> {
    let mut marks = Vec::new();
    let mut current_task = None;
    let mut open_contexts: Vec<(KernelContext, u32)> = Vec::new();
    for (index, transition) in transitions.iter().enumerate() {
        let at_ns = transition.tsc.wrapping_add(clock_offset_ns);
        let mut mark = |what| marks.push(Mark { at_ns, what });
        let task_mark = match names.running((transition.task, transition.task), thread, account) {
            Running::Thread => What::SwitchBack,
            Running::Context(number) | Running::Task(number) => What::SwitchTo(number),
            Running::Unknown | Running::Waker => {
                What::SwitchTo(names.number(KernelContext::Unknown, account))
            }
        };
        if current_task != Some(task_mark) {
            // A switch of tasks ends all contexts.
            open_contexts.clear();
            current_task = Some(task_mark);
            mark(task_mark);
        }
        if !transition.context.is_interrupt_or_exception() {
            if let Some((_, outermost)) = open_contexts.first() {
                mark(What::Leave(*outermost));
            }
            open_contexts.clear();
            continue;
        }
        let context = transition.context;
        match open_contexts.iter().rposition(|(open, _)| *open == context) {
            Some(position) => {
                if let Some((_, interrupting)) = open_contexts.get(position + 1) {
                    mark(What::Leave(*interrupting));
                }
                open_contexts.truncate(position + 1);
            }
            None => {
                let next_tsc = transitions.get(index + 1).map_or(u64::MAX, |next| next.tsc);
                let sent = interrupts.first_sent(context, transition.tsc, next_tsc);
                let number = names.sent_number(context, sent);
                let number = number.unwrap_or_else(|| names.number(context, account));
                open_contexts.push((context, number));
                mark(What::Enter(number));
            }
        }
    }
    marks
}

/// The transitions of a CPU, and the kernel's number of the thread on it.
#[derive(Clone, Copy)]
pub(super) struct ThreadOnCpu<'a> {
    pub(super) transitions: &'a [ContextTransition],
    pub(super) thread: u32,
    /// The interrupts of the CPU from other CPUs. Empty unless causes name senders.
    pub(super) interrupts: SentOnCpu<'a>,
}

impl<'a> ThreadOnCpu<'a> {
    /// The transitions after `start_tsc` and before `end_tsc`.
    fn within(self, start_tsc: u64, end_tsc: u64) -> impl Iterator<Item = &'a ContextTransition> {
        let first = self.transitions.partition_point(|transition| transition.tsc <= start_tsc);
        self.transitions[first..].iter().take_while(move |transition| transition.tsc < end_tsc)
    }

    /// Whether the thread is the task at the bottom of the stack.
    fn is_task(self, task: KernelContext) -> bool {
        matches!(task, KernelContext::User(pid) | KernelContext::Task(pid) if pid == self.thread)
    }
}

/// Time in which one context runs.
struct Piece {
    running: Running,
    /// Whether the local timer's interrupt runs.
    is_timer: bool,
    length_ns: u64,
}

/// A timer's interrupt that begins this soon after another one is the thread's; the first one was a tick, ns.
const SECOND_TIMER_NS: u64 = 20_000;

/// Returns the parts of the time from `due_tsc` to `woke_tsc` in the order of time, with their lengths in ns, by the
/// transitions of the thread's CPU. They add up to this time, also if the transitions do not cover it.
///
/// The stages follow each other: expiry, scheduling, return. The stage `expiry` ends with the local timer's interrupt that
/// wakes the thread: the simulator does not see at which of its instructions. The stage `return` starts when the kernel
/// switches to the thread; if the thread loses the CPU again, that time counts as scheduling.
pub(super) fn parts(
    window: (u64, u64),
    on_cpu: ThreadOnCpu<'_>,
    names: &mut Names<'_>,
    account: &Accounting,
) -> Vec<(Part, u64)> {
    let pieces = split_into_pieces(window, on_cpu, names, account);
    let is_task = |piece: &Piece| matches!(piece.running, Running::Task(_));
    let is_thread = |piece: &Piece| piece.running == Running::Thread;
    // Where the kernel switches to the thread. `None` for a thread that did not sleep yet and kept the CPU.
    let first_task = pieces.iter().position(is_task);
    let switch_index = first_task
        .and_then(|first_task| Some(first_task + pieces[first_task..].iter().position(is_thread)?));
    let last_timer_piece = woken_after(&pieces[..switch_index.unwrap_or(pieces.len())]);
    let mut parts = Vec::new();
    let mut has_cpu = true;
    for (index, piece) in pieces.iter().enumerate() {
        let is_after_timer = last_timer_piece.is_some_and(|timer_piece| index > timer_piece);
        let is_after_switch = match switch_index {
            Some(switch_index) => index >= switch_index,
            None => is_after_timer && first_task.is_none(),
        };
        // After the switch, the thread may lose the CPU again.
        has_cpu = if is_thread(piece) { true } else { has_cpu && !is_task(piece) };
        let is_woken = is_after_switch || is_after_timer;
        let stage = match (is_woken, is_after_switch && has_cpu) {
            (_, true) => Stage::Return,
            (true, false) => Stage::Scheduling,
            (false, false) => Stage::Expiry,
        };
        push(&mut parts, Part { stage, running: piece.running }, piece.length_ns);
    }
    parts
}

/// The vectors of the interrupts that a wake-up sends to a halted CPU: reschedule, and a call of a function.
const WAKE_VECTORS: [u8; 2] = [0xfd, 0xfb];

/// Returns the parts of a wake-up that a waker sent, like [`parts`]. `due_tsc` is when the waker sent it. `waker` and
/// `sleeper`: the waker and the woken thread, each with the transitions of its CPU.
///
/// The simulator does not see at which instruction of its system call the waker wakes the thread. The stage `waking`
/// ends with the first of these: the waker returns from its system call, an interrupt of the wake-up begins on the thread's
/// CPU, or the kernel switches to the thread.
pub(super) fn sent_parts(
    (due_tsc, woke_tsc): (u64, u64),
    waker: ThreadOnCpu<'_>,
    sleeper: ThreadOnCpu<'_>,
    names: &mut Names<'_>,
    account: &Accounting,
) -> Vec<(Part, u64)> {
    let woken_tsc = waking_end((due_tsc, woke_tsc), waker, sleeper);
    let mut parts = Vec::new();
    let waking_pieces = split_into_pieces((due_tsc, woken_tsc), waker, names, account);
    for piece in waking_pieces {
        let is_waker = piece.running == Running::Thread;
        let running = if is_waker { Running::Waker } else { piece.running };
        push(&mut parts, Part { stage: Stage::Waking, running }, piece.length_ns);
    }
    push_after_waking((woken_tsc, woke_tsc), sleeper, &mut parts, names, account);
    parts
}

/// A read of a disk, by the time-stamp counter.
#[derive(Clone, Copy)]
pub(super) struct Read<'a> {
    /// The time before the thread's system call.
    pub(super) began_tsc: u64,
    /// When the thread read the clock after it.
    pub(super) woke_tsc: u64,
    /// The kernel's numbers of the disk's interrupts.
    pub(super) irqs: &'a [u32],
}

/// The disk's interrupt that ended a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskInterrupt {
    pub(super) cpu: u32,
    /// When its handler began.
    pub(super) entered_tsc: u64,
    /// Number of the disk's interrupts in the read, until the kernel switched to the thread.
    pub(super) count: u64,
}

/// The last interrupt of the disk before the kernel switched to the thread. `None` without an interrupt in the read, or if the
/// thread did not lose its CPU in it.
pub(super) fn disk_interrupt(
    read: Read<'_>,
    sleeper: ThreadOnCpu<'_>,
    cpus: &[CpuUse],
) -> Option<DiskInterrupt> {
    let mut switched_tsc = None;
    let mut has_cpu = true;
    for transition in sleeper.within(read.began_tsc, read.woke_tsc) {
        let had_cpu = std::mem::replace(&mut has_cpu, sleeper.is_task(transition.task));
        if has_cpu && !had_cpu {
            switched_tsc = Some(transition.tsc);
        }
    }
    let switched_tsc = switched_tsc?;
    let mut found: Option<DiskInterrupt> = None;
    for cpu in cpus {
        let mut before = None;
        let first = cpu.transitions.partition_point(|transition| transition.tsc < read.began_tsc);
        let in_read = cpu.transitions[first..].iter();
        for transition in in_read.take_while(|transition| transition.tsc < switched_tsc) {
            // A handler that an NMI interrupted does not begin again.
            let is_entry =
                !matches!(before, Some(KernelContext::Nmi | KernelContext::Exception(_)));
            let is_disk =
                matches!(transition.context, KernelContext::Irq(irq) if read.irqs.contains(&irq));
            before = Some(transition.context);
            if is_disk && is_entry {
                let count = found.map_or(0, |interrupt| interrupt.count) + 1;
                let latest = found.filter(|interrupt| interrupt.entered_tsc > transition.tsc);
                let this = DiskInterrupt { cpu: cpu.cpu, entered_tsc: transition.tsc, count };
                found = Some(latest.map_or(this, |latest| DiskInterrupt { count, ..latest }));
            }
        }
    }
    found
}

/// Returns the parts of a wake-up by a disk, from its interrupt on, like [`parts`]. `interrupted`: the interrupted CPU.
///
/// The simulator does not see at which instruction the kernel wakes the thread. The stage `waking` ends with the first of
/// these: the interrupt and its softirqs are over, also if its return path calls the scheduler; an interrupt of the wake-up
/// begins on the thread's CPU; the kernel switches to the thread.
pub(super) fn read_parts(
    interrupt: DiskInterrupt,
    woke_tsc: u64,
    interrupted: ThreadOnCpu<'_>,
    sleeper: ThreadOnCpu<'_>,
    names: &mut Names<'_>,
    account: &Accounting,
) -> Vec<(Part, u64)> {
    let entered_tsc = interrupt.entered_tsc;
    let is_over = |transition: &&ContextTransition| !transition.context.is_interrupt_or_exception();
    let over = interrupted.within(entered_tsc, woke_tsc).find(is_over);
    let is_wake = |transition: &&ContextTransition| match transition.context {
        KernelContext::Interrupt(vector) => WAKE_VECTORS.contains(&vector),
        _ => sleeper.is_task(transition.task),
    };
    let wake = sleeper.within(entered_tsc, woke_tsc).find(is_wake);
    let ends = over.into_iter().chain(wake).map(|transition| transition.tsc);
    let woken_tsc = ends.min().unwrap_or(woke_tsc);
    let mut parts = Vec::new();
    let waking = split_into_pieces((entered_tsc, woken_tsc), interrupted, names, account);
    for piece in waking {
        push(&mut parts, Part { stage: Stage::Waking, running: piece.running }, piece.length_ns);
    }
    push_after_waking((woken_tsc, woke_tsc), sleeper, &mut parts, names, account);
    parts
}

/// Appends the parts from the kernel's wake-up of the thread on.
fn push_after_waking(
    time: (u64, u64),
    sleeper: ThreadOnCpu<'_>,
    parts: &mut Vec<(Part, u64)>,
    names: &mut Names<'_>,
    account: &Accounting,
) {
    let mut has_cpu = false;
    for piece in split_into_pieces(time, sleeper, names, account) {
        // After the switch, the thread may lose the CPU again.
        has_cpu = match piece.running {
            Running::Thread => true,
            Running::Context(_) => has_cpu,
            Running::Task(_) | Running::Waker | Running::Unknown => false,
        };
        let stage = if has_cpu { Stage::Return } else { Stage::Scheduling };
        push(parts, Part { stage, running: piece.running }, piece.length_ns);
    }
}

/// The time-stamp counter at the end of the stage `waking`: see [`sent_parts`]. `woke_tsc` if the record shows no end.
fn waking_end(
    (due_tsc, woke_tsc): (u64, u64),
    waker: ThreadOnCpu<'_>,
    sleeper: ThreadOnCpu<'_>,
) -> u64 {
    let is_call = |transition: &&ContextTransition| {
        waker.is_task(transition.task) && matches!(transition.context, KernelContext::Syscall(_))
    };
    let mut calls = waker.within(due_tsc, woke_tsc).skip_while(|transition| !is_call(transition));
    let call_tsc = calls.next().map_or(due_tsc, |call| call.tsc);
    let call_end = calls.find(|transition| transition.context == KernelContext::User(waker.thread));
    let wakes = |transition: &&ContextTransition| match transition.context {
        // An interrupt before the call is not of this wake-up.
        KernelContext::Interrupt(vector) => {
            transition.tsc >= call_tsc && WAKE_VECTORS.contains(&vector)
        }
        _ => sleeper.is_task(transition.task),
    };
    let interrupt_or_switch = sleeper.within(due_tsc, woke_tsc).find(wakes);
    let end =
        call_end.into_iter().chain(interrupt_or_switch).map(|transition| transition.tsc).min();
    end.unwrap_or(woke_tsc).clamp(due_tsc, woke_tsc.max(due_tsc))
}

/// The last piece of the timer's interrupt that wakes the thread. `None` if there is none.
///
/// The softirqs at the end of an interrupt lie between two of its pieces. Another interrupt begins
/// only after a task has run.
fn woken_after(pieces: &[Piece]) -> Option<usize> {
    let first = pieces.iter().position(|piece| piece.is_timer)?;
    let mut start_ns = 0;
    let mut woken = first;
    let mut has_returned = false;
    for (number, piece) in pieces.iter().enumerate() {
        has_returned |= number > first && !matches!(piece.running, Running::Context(_));
        if piece.is_timer && has_returned && first == 0 && start_ns < SECOND_TIMER_NS {
            woken = number;
        }
        start_ns += piece.length_ns;
    }
    Some(woken)
}

/// The pieces of the time from `due_tsc` to `woke_tsc`, in order. An interrupt has a piece for each sender. They add up to this time. Before the
/// first transition, the context is unknown.
fn split_into_pieces(
    (due_tsc, woke_tsc): (u64, u64),
    ThreadOnCpu { transitions, thread, interrupts }: ThreadOnCpu<'_>,
    names: &mut Names<'_>,
    account: &Accounting,
) -> Vec<Piece> {
    let first_inside = transitions.partition_point(|transition| transition.tsc <= due_tsc);
    let last_before = first_inside.checked_sub(1).and_then(|index| transitions.get(index));
    let (mut context, mut task) =
        last_before.map_or((KernelContext::Unknown, KernelContext::Unknown), context_and_task);
    let mut piece_start_tsc = due_tsc;
    let inside =
        transitions[first_inside..].iter().take_while(|transition| transition.tsc < woke_tsc);
    let changes = inside.map(|transition| (transition.tsc, Some(context_and_task(transition))));
    let mut pieces = Vec::new();
    for (at_tsc, next) in changes.chain([(woke_tsc, None)]) {
        for (sent, length_ns) in interrupts.split(context, piece_start_tsc, at_tsc) {
            if length_ns == 0 {
                continue;
            }
            let number = names.sent_number(context, sent);
            let running = number
                .map_or_else(|| names.running((context, task), thread, account), Running::Context);
            let is_timer = context == KernelContext::Interrupt(LOCAL_TIMER);
            pieces.push(Piece { running, is_timer, length_ns });
        }
        piece_start_tsc = at_tsc.max(piece_start_tsc);
        (context, task) = next.unwrap_or((context, task));
    }
    pieces
}

/// The context that starts, and the task at the bottom of its stack.
fn context_and_task(transition: &ContextTransition) -> (KernelContext, KernelContext) {
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
        ContextTransition { context, task, at_cycles: tsc, cycles: tsc, tsc }
    }

    fn on_cpu(transitions: &[ContextTransition], thread: u32) -> ThreadOnCpu<'_> {
        ThreadOnCpu { transitions, thread, interrupts: SentOnCpu::default() }
    }

    fn parts_of(window: (u64, u64), transitions: &[ContextTransition]) -> Vec<(Part, u64)> {
        parts(window, on_cpu(transitions, 7), &mut Names::default(), &Accounting::default())
    }

    const DISK: KernelContext = KernelContext::Irq(25);
    const DISK_VECTOR: KernelContext = KernelContext::Interrupt(0x27);
    const BLOCK: KernelContext = KernelContext::Softirq(4);
    const RESCHEDULE: KernelContext = KernelContext::Interrupt(0xfd);

    fn cpu_use(cpu: u32, list: &[(u64, KernelContext, KernelContext)]) -> CpuUse {
        let transitions =
            list.iter().map(|(tsc, context, task)| transition(*tsc, *context, *task)).collect();
        CpuUse { cpu, transitions, ..CpuUse::default() }
    }

    /// A read from 100 to 900 on CPU 0, whose thread sleeps from 200 on. Returns its interrupt, and the parts after it.
    fn read_of(cpus: &[CpuUse]) -> Option<(DiskInterrupt, Vec<(Part, u64)>)> {
        let sleeper = on_cpu(&cpus[0].transitions, 7);
        let read = Read { began_tsc: 100, woke_tsc: 900, irqs: &[25] };
        let interrupt = disk_interrupt(read, sleeper, cpus)?;
        let interrupted = cpus.iter().find(|cpu| cpu.cpu == interrupt.cpu).unwrap();
        let (mut names, account) = (Names::default(), Accounting::default());
        let interrupted = on_cpu(&interrupted.transitions, 7);
        let parts = read_parts(interrupt, 900, interrupted, sleeper, &mut names, &account);
        Some((interrupt, parts))
    }

    fn lengths(parts: &[(Part, u64)]) -> Vec<(Stage, u64)> {
        parts.iter().map(|(part, length_ns)| (part.stage, *length_ns)).collect()
    }

    /// An NMI interrupts the handler. The disk interrupts again after the switch to the thread.
    #[test]
    fn a_disks_interrupt_on_the_threads_cpu_ends_the_read() {
        use KernelContext::{Idle, Nmi};
        let cpu = cpu_use(
            0,
            &[
                (50, SLEEP, THREAD),
                (200, Idle, Idle),
                (500, DISK_VECTOR, Idle),
                (510, DISK, Idle),
                (520, Nmi, Idle),
                (530, DISK, Idle),
                (540, DISK_VECTOR, Idle),
                (550, BLOCK, Idle),
                (600, DISK_VECTOR, Idle),
                (610, Idle, Idle),
                (700, SLEEP, THREAD),
                (800, DISK_VECTOR, THREAD),
                (810, DISK, THREAD),
                (820, SLEEP, THREAD),
            ],
        );
        let (interrupt, parts) = read_of(&[cpu]).unwrap();
        assert_eq!(interrupt, DiskInterrupt { cpu: 0, entered_tsc: 510, count: 1 });
        let waking = [10, 10, 10, 10, 50, 10].map(|ns| (Stage::Waking, ns));
        let later = [(Stage::Scheduling, 90), (Stage::Return, 100)];
        let interrupted = [(Stage::Return, 10), (Stage::Return, 10), (Stage::Return, 80)];
        assert_eq!(lengths(&parts), [&waking[..], &later, &interrupted].concat());
    }

    /// Another program's read causes the first interrupt. CPU 1 sends a reschedule interrupt in the second one.
    #[test]
    fn a_disks_interrupt_on_another_cpu_ends_the_read_when_the_wake_up_arrives() {
        use KernelContext::Idle;
        let thread_cpu = cpu_use(
            0,
            &[
                (50, SLEEP, THREAD),
                (200, Idle, Idle),
                (560, RESCHEDULE, Idle),
                (580, Idle, Idle),
                (700, SLEEP, THREAD),
            ],
        );
        let second_cpu = cpu_use(
            1,
            &[
                (50, Idle, Idle),
                (300, DISK_VECTOR, Idle),
                (310, DISK, Idle),
                (320, Idle, Idle),
                (500, DISK_VECTOR, Idle),
                (510, DISK, Idle),
                (590, Idle, Idle),
            ],
        );
        let (interrupt, parts) = read_of(&[thread_cpu.clone(), second_cpu]).unwrap();
        assert_eq!(interrupt, DiskInterrupt { cpu: 1, entered_tsc: 510, count: 2 });
        let expected = [
            (Stage::Waking, 50),
            (Stage::Scheduling, 20),
            (Stage::Scheduling, 120),
            (Stage::Return, 200),
        ];
        assert_eq!(lengths(&parts), expected);
        assert_eq!(read_of(&[thread_cpu]), None, "no interrupt");
    }

    /// In the third wake-up, a task ran for 600 us between the readings. The clocks drift apart by 1 ns.
    #[test]
    fn a_task_between_the_readings_does_not_move_the_due_time() {
        let mut records: Vec<[u64; 3]> = (0..60_u64)
            .map(|number| {
                let woke_ns = number * 1_000_000 + 50;
                [number * 1_000_000, woke_ns, woke_ns - 40 + number / 30]
            })
            .collect();
        let expected = records.clone();
        records[2][2] += 300_000;
        assert_eq!(with_counter_at_reading(&records)[..14], expected[..14]);
        assert_eq!(with_counter_at_reading(&records)[46..], expected[46..]);
        assert_eq!(with_counter_at_reading(&[]), [[0_u64; 3]; 0]);
        assert_eq!(with_counter_at_reading(&[[1, 2, 9]]), [[1, 2, 9]]);
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

    /// The timer's interrupt executes a softirq before it returns: this is not the interrupt of another timer.
    #[test]
    fn a_softirq_at_the_end_of_the_timers_interrupt_is_not_expiry() {
        let (idle, softirq) = (KernelContext::Idle, KernelContext::Softirq(1));
        let transitions = [
            transition(10, idle, idle),
            transition(90, TIMER, idle),
            transition(110, softirq, idle),
            transition(140, TIMER, idle),
            transition(145, idle, idle),
            transition(160, SLEEP, THREAD),
        ];
        let sum = |parts: &[(Part, u64)], stage| -> u64 {
            parts.iter().filter(|(part, _)| part.stage == stage).map(|(_, length)| length).sum()
        };
        let parts = parts_of((100, 200), &transitions);
        let stages = [Stage::Expiry, Stage::Scheduling, Stage::Return];
        assert_eq!(stages.map(|stage| sum(&parts, stage)), [10, 50, 40]);
    }

    #[test]
    fn contexts_are_marks_that_nest() {
        let (idle, softirq) = (KernelContext::Idle, KernelContext::Softirq(3));
        let transitions = [
            transition(40, idle, idle),
            transition(100, TIMER, idle),
            transition(150, softirq, idle),
            transition(160, KernelContext::Nmi, idle),
            transition(165, softirq, idle),
            transition(170, TIMER, idle),
            transition(180, idle, idle),
            transition(190, SLEEP, THREAD),
            transition(195, TIMER, THREAD),
            transition(200, idle, idle),
        ];
        let marks =
            marks(on_cpu(&transitions, 7), 1_000, &mut Names::default(), &Accounting::default());
        let marks: Vec<(u64, What)> = marks.iter().map(|mark| (mark.at_ns, mark.what)).collect();
        let expected = [
            (1_040, What::SwitchTo(0)),
            (1_100, What::Enter(1)),
            (1_150, What::Enter(2)),
            (1_160, What::Enter(3)),
            (1_165, What::Leave(3)),
            (1_170, What::Leave(2)),
            (1_180, What::Leave(1)),
            (1_190, What::SwitchBack),
            (1_195, What::Enter(1)),
            (1_200, What::SwitchTo(0)),
        ];
        assert_eq!(marks, expected);
    }

    /// The timer interrupts the thread on its way into the sleep, which the kernel then leaves out.
    #[test]
    fn a_thread_that_keeps_the_cpu_returns_after_its_timer() {
        let transitions = [
            transition(10, THREAD, THREAD),
            transition(20, SLEEP, THREAD),
            transition(100, TIMER, THREAD),
            transition(130, SLEEP, THREAD),
            transition(150, THREAD, THREAD),
        ];
        let part = |stage, running| Part { stage, running };
        let expected = [
            (part(Stage::Expiry, Running::Thread), 20),
            (part(Stage::Expiry, Running::Context(0)), 30),
            (part(Stage::Return, Running::Thread), 40),
        ];
        assert_eq!(parts_of((80, 170), &transitions), expected);
    }

    /// The timer's interrupt gives way to the thread: the time of the scheduler belongs to the task that leaves the CPU.
    /// Later the thread gives way to a task, and comes back.
    #[test]
    fn an_interrupt_ends_where_its_return_path_calls_the_scheduler() {
        let (scheduler, load) = (KernelContext::Scheduler, KernelContext::User(9));
        let transitions = [
            transition(10, load, load),
            transition(100, TIMER, load),
            transition(110, scheduler, load),
            transition(150, SLEEP, THREAD),
            transition(160, RESCHEDULE, THREAD),
            transition(170, scheduler, THREAD),
            transition(180, scheduler, load),
            transition(190, load, load),
            transition(200, scheduler, THREAD),
            transition(210, SLEEP, THREAD),
        ];
        let part = |stage, running| Part { stage, running };
        let expected = [
            (part(Stage::Expiry, Running::Task(0)), 5),
            (part(Stage::Expiry, Running::Context(1)), 10),
            (part(Stage::Scheduling, Running::Task(0)), 40),
            (part(Stage::Return, Running::Thread), 10),
            (part(Stage::Return, Running::Context(2)), 10),
            (part(Stage::Return, Running::Thread), 10),
            (part(Stage::Scheduling, Running::Task(0)), 20),
            (part(Stage::Return, Running::Thread), 30),
        ];
        assert_eq!(parts_of((95, 230), &transitions), expected);
        let marks =
            marks(on_cpu(&transitions, 7), 0, &mut Names::default(), &Accounting::default());
        let marks: Vec<(u64, What)> = marks.iter().map(|mark| (mark.at_ns, mark.what)).collect();
        let expected = [
            (10, What::SwitchTo(0)),
            (100, What::Enter(1)),
            (110, What::Leave(1)),
            (150, What::SwitchBack),
            (160, What::Enter(2)),
            (170, What::Leave(2)),
            (180, What::SwitchTo(0)),
            (200, What::SwitchBack),
        ];
        assert_eq!(marks, expected);
    }

    #[test]
    fn a_task_that_takes_the_cpu_after_the_switch_delays_the_thread() {
        let (idle, task) = (KernelContext::Idle, KernelContext::KernelThread(9));
        let transitions = [
            transition(10, idle, idle),
            transition(100, TIMER, idle),
            transition(110, SLEEP, THREAD),
            transition(120, KernelContext::Softirq(1), THREAD),
            transition(130, task, task),
            transition(160, SLEEP, THREAD),
        ];
        let part = |stage, running| Part { stage, running };
        let expected = [
            (part(Stage::Expiry, Running::Task(0)), 5),
            (part(Stage::Expiry, Running::Context(1)), 10),
            (part(Stage::Return, Running::Thread), 10),
            (part(Stage::Return, Running::Context(2)), 10),
            (part(Stage::Scheduling, Running::Task(3)), 30),
            (part(Stage::Return, Running::Thread), 20),
        ];
        assert_eq!(parts_of((95, 180), &transitions), expected);
    }

    /// A tick's interrupt runs at the due time and does not wake the thread. Later ticks do not, either.
    #[test]
    fn the_interrupt_that_wakes_the_thread_is_told_from_ticks() {
        let (idle, task) = (KernelContext::Idle, KernelContext::KernelThread(9));
        let transitions = [
            transition(10, idle, idle),
            transition(90, TIMER, idle),
            transition(110, idle, idle),
            transition(120, TIMER, idle),
            transition(130, task, task),
            transition(50_000, TIMER, task),
            transition(50_010, task, task),
            transition(60_000, SLEEP, THREAD),
        ];
        let parts = parts_of((100, 60_100), &transitions);
        let of_stage = |stage| -> u64 {
            parts.iter().filter(|(part, _)| part.stage == stage).map(|part| part.1).sum()
        };
        let stages = [Stage::Expiry, Stage::Scheduling, Stage::Return].map(of_stage);
        assert_eq!(stages, [30, 59_870, 100]);
    }

    const WAKER: KernelContext = KernelContext::User(8);
    const CALL: KernelContext = KernelContext::Syscall(202);

    fn sent_parts_of(
        window: (u64, u64),
        waker: &[ContextTransition],
        measured: &[ContextTransition],
    ) -> Vec<(Part, u64)> {
        let waker = on_cpu(waker, 8);
        let measured = on_cpu(measured, 7);
        sent_parts(window, waker, measured, &mut Names::default(), &Accounting::default())
    }

    /// An interrupt delays the waker in its system call. Then it wakes the thread's halted CPU.
    #[test]
    fn a_waker_on_another_cpu_wakes_the_thread_by_an_interrupt() {
        let idle = KernelContext::Idle;
        let waker = [
            transition(50, WAKER, WAKER),
            transition(110, CALL, WAKER),
            transition(120, KernelContext::Nmi, WAKER),
            transition(130, CALL, WAKER),
            transition(200, WAKER, WAKER),
        ];
        let measured = [
            transition(40, idle, idle),
            transition(150, KernelContext::Interrupt(0xfd), idle),
            transition(170, idle, idle),
            transition(190, CALL, THREAD),
            transition(230, THREAD, THREAD),
        ];
        let part = |stage, running| Part { stage, running };
        let expected = [
            (part(Stage::Waking, Running::Waker), 20),
            (part(Stage::Waking, Running::Context(0)), 10),
            (part(Stage::Waking, Running::Waker), 20),
            (part(Stage::Scheduling, Running::Context(1)), 20),
            (part(Stage::Scheduling, Running::Task(2)), 20),
            (part(Stage::Return, Running::Thread), 60),
        ];
        assert_eq!(sent_parts_of((100, 250), &waker, &measured), expected);
        // An interrupt before the system call is of something else.
        let early =
            [transition(105, KernelContext::Interrupt(0xfd), idle), transition(108, idle, idle)];
        let with_early = [&measured[..1], &early, &measured[1..]].concat();
        let parts = sent_parts_of((100, 250), &waker, &with_early);
        assert_eq!(parts[..3], expected[..3]);
        // The CPU polls in its idle task, and gets no interrupt. The waker returns before the switch.
        let polling = [measured[0], transition(220, CALL, THREAD)];
        let parts = sent_parts_of((100, 250), &waker, &polling);
        let expected = [
            (part(Stage::Scheduling, Running::Task(1)), 20),
            (part(Stage::Return, Running::Thread), 30),
        ];
        assert_eq!(parts[3..], expected);
    }

    #[test]
    fn a_waker_on_the_threads_cpu_loses_it_to_the_thread() {
        let transitions = [
            transition(50, WAKER, WAKER),
            transition(110, CALL, WAKER),
            transition(180, CALL, THREAD),
            transition(230, THREAD, THREAD),
        ];
        let part = |stage, running| Part { stage, running };
        let expected =
            [(part(Stage::Waking, Running::Waker), 80), (part(Stage::Return, Running::Thread), 70)];
        assert_eq!(sent_parts_of((100, 250), &transitions, &transitions), expected);
    }

    fn any_context() -> impl Strategy<Value = KernelContext> {
        prop_oneof![
            Just(THREAD),
            Just(TIMER),
            Just(SLEEP),
            Just(KernelContext::Idle),
            Just(KernelContext::Nmi),
            Just(WAKER),
            Just(CALL),
            Just(KernelContext::Interrupt(0xfd)),
            Just(KernelContext::KernelThread(9)),
            Just(KernelContext::Scheduler),
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
            let (waker, measured) = transitions.split_at(transitions.len() / 2);
            let sent = sent_parts_of((due, due + late), waker, measured);
            for parts in [parts_of((due, due + late), &transitions), sent] {
                prop_assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), late);
            }
        }
    }
}
