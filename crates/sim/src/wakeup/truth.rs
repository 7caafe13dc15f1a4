//! The exact parts of wake-ups, from the simulator, in a guest in which the live bench's probes run. A probe reads the clock
//! some time after its event; here each event has its own time.
//!
//! A context lasts from the call of the BPF programs at its entry to the call of those at its exit. The kernel wakes the
//! thread, and switches to a task, when it calls the programs of these tracepoints. The plugin follows these calls, and
//! knows from the kernel's own functions which interrupt, softirq or task is concerned.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::wakeup::probe_check::Instant;
use lab::wakeup::{Part, Stage};
use plugin_interface::symbols::{
    BODY_FIRST, ENTRY_LOOP, GATE_PROBE, PROBE_FIRST, SWITCH_PROBE, WAKE_FIRST, WAKE_PROBE,
};

use super::join::Names;
use crate::accounting::{Accounting, ContextTransition, CpuUse, RegionUse, SpanUse};

/// The positions in [`plugin_interface::symbols::probe_name`] of the probes at the entry and the exit of contexts.
const IRQ_ENTRY_PROBE: u32 = 0;
const IRQ_EXIT_PROBE: u32 = 1;
const SOFTIRQ_PROBE: u32 = 2;
const VECTOR_PROBE: u32 = 3;
/// The vector of the local timer's interrupt.
const LOCAL_TIMER: u8 = 0xec;

/// Time from a start to an end (exclusive), by the simulated time-stamp counter, which counts nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Interval {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Interval {
    fn contains(self, tsc: u64) -> bool {
        self.start <= tsc && tsc < self.end
    }

    /// The time that both intervals have.
    fn overlap_ns(self, other: Interval) -> u64 {
        self.end.min(other.end).saturating_sub(self.start.max(other.start))
    }
}

/// The position of the probe whose programs run in a context; all wake-ups have one position. `None` for other contexts
/// and for the gate of windows.
pub(super) fn probe_position(context: KernelContext) -> Option<u32> {
    match context {
        KernelContext::Function(number) if number >= WAKE_FIRST => Some(WAKE_PROBE),
        KernelContext::Function(number) if number >= PROBE_FIRST => {
            Some(number - PROBE_FIRST).filter(|position| *position != GATE_PROBE)
        }
        _ => None,
    }
}

/// What happened on a CPU.
pub(super) struct CpuTruth<'a> {
    transitions: &'a [ContextTransition],
    /// When BPF programs ran.
    probes: Vec<Interval>,
    /// When the host withheld the CPU.
    withheld: Vec<Interval>,
    /// The contexts between their probes, sorted by start.
    contexts: Vec<TracedContext>,
    /// The tasks that had the CPU, in order.
    tasks: Vec<TaskStart>,
}

/// A context between its probes.
struct TracedContext {
    interval: Interval,
    context: KernelContext,
    /// The latest end of this context and all contexts that start before it.
    latest_end: u64,
}

/// A task gets the CPU.
struct TaskStart {
    /// The time-stamp counter.
    tsc: u64,
    task: KernelContext,
}

/// A part of a wake-up, with its exact length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakeUpPart {
    pub(super) part: Part,
    pub(super) length_ns: u64,
    /// Time of BPF programs in the part.
    pub(super) probes_ns: u64,
    /// Time in the part for which the host withheld the CPU.
    pub(super) host_ns: u64,
}

/// The times of a wake-up that can be divided into parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct WakeUpTimes {
    /// From the due time to the thread's reading of the clock.
    pub(super) interval: Interval,
    /// The kernel's number of the thread.
    pub(super) thread: u32,
    /// When the kernel woke the thread; `None` if it did not sleep.
    pub(super) woken_tsc: Option<u64>,
}

impl<'a> CpuTruth<'a> {
    /// Reads the record of a CPU. It needs the spans of the probes and of interrupts.
    pub(super) fn new(cpu: &'a CpuUse) -> CpuTruth<'a> {
        let transitions = &cpu.transitions[..];
        let mut spans: Vec<(Interval, KernelContext)> =
            cpu.spans.iter().map(|span| (interval_of(span, transitions), span.context)).collect();
        spans.sort_by_key(|(interval, _)| (interval.start, std::cmp::Reverse(interval.end)));
        // The calls of the probes with these positions.
        let calls_of = |positions: &[u32]| -> Vec<Interval> {
            let has_position = |context: KernelContext| {
                probe_position(context).is_some_and(|position| positions.contains(&position))
            };
            spans
                .iter()
                .filter(|(_, context)| has_position(*context))
                .map(|(time, _)| *time)
                .collect()
        };
        let probes = spans.iter().filter(|(_, context)| probe_position(*context).is_some());
        CpuTruth {
            transitions,
            probes: probes.map(|(interval, _)| *interval).collect(),
            withheld: withheld_times(cpu).collect(),
            contexts: traced_contexts(&spans, &calls_of),
            tasks: task_starts(transitions, &calls_of(&[SWITCH_PROBE])),
        }
    }

    /// Divides a wake-up into parts, in the order of time; they add up to its length. Neighbours with the same stage and the
    /// same runner are one part. Adds contexts and tasks to `names`.
    pub(super) fn parts(
        &self,
        wake_up: WakeUpTimes,
        names: &mut Names<'_>,
        account: &Accounting,
    ) -> Vec<WakeUpPart> {
        let overlapping = self.overlapping(wake_up.interval);
        let mut parts: Vec<WakeUpPart> = Vec::new();
        for boundary_pair in self.boundaries(wake_up, &overlapping).windows(2) {
            let piece = Interval { start: boundary_pair[0], end: boundary_pair[1] };
            let runner = overlapping.context_at(piece.start);
            let task = self.task_at(piece.start);
            let context = runner.map_or(task, |(_, context)| context);
            let running = names.running((context, task), wake_up.thread, account);
            let length_ns = piece.end - piece.start;
            let context_start = runner.map_or(0, |(interval, _)| interval.start);
            let is_probe = overlapping.is_probe_at(piece.start, context_start);
            push_or_merge(
                &mut parts,
                WakeUpPart {
                    part: Part { stage: self.stage(piece.start, wake_up), running },
                    length_ns,
                    probes_ns: if is_probe { length_ns } else { 0 },
                    host_ns: overlapping.withheld_ns(piece),
                },
            );
        }
        parts
    }

    fn overlapping(&self, interval: Interval) -> Overlapping<'_> {
        let withheld = self.withheld.iter().filter(|withheld| withheld.overlap_ns(interval) > 0);
        Overlapping {
            contexts: self.contexts_in(interval).collect(),
            probes: overlapping_probes(&self.probes, interval),
            withheld: withheld.copied().collect(),
        }
    }

    /// The times in a wake-up at which its stage or runner may change, ascending, each once: its start and its end, where a
    /// context, a probe or a task starts or ends, and where the kernel wakes the thread.
    fn boundaries(&self, wake_up: WakeUpTimes, overlapping: &Overlapping<'_>) -> Vec<u64> {
        let Interval { start, end } = wake_up.interval;
        let mut boundaries = vec![start, end];
        let contexts = overlapping.contexts.iter().map(|(interval, _)| interval);
        for interval in contexts.chain(overlapping.probes) {
            boundaries.extend([interval.start, interval.end]);
        }
        let first = self.tasks.partition_point(|task| task.tsc < start);
        let tasks = self.tasks[first..].iter().map(|task| task.tsc);
        boundaries.extend(tasks.take_while(|tsc| *tsc < end));
        boundaries.extend(wake_up.woken_tsc);
        boundaries.retain(|tsc| start <= *tsc && *tsc <= end);
        boundaries.sort_unstable();
        boundaries.dedup();
        boundaries
    }

    /// How often the host began to withhold the CPU from the first due time of `wake_ups` to the end of the last wake-up.
    pub(super) fn withheld_count(&self, wake_ups: &[(u64, WakeUpTimes)]) -> u64 {
        let times = wake_ups.first().zip(wake_ups.last());
        let time = times.map(|((_, first), (_, last))| Interval {
            start: first.interval.start,
            end: last.interval.end,
        });
        let in_time = |withheld: &&Interval| time.is_some_and(|time| time.contains(withheld.start));
        self.withheld.iter().filter(in_time).count() as u64
    }

    /// The stage of a wake-up at an instant.
    fn stage(&self, tsc: u64, wake_up: WakeUpTimes) -> Stage {
        let is_thread = |task: KernelContext| is_task(task, wake_up.thread);
        let has_cpu = is_thread(self.task_at(tsc));
        let had_cpu = is_thread(self.task_at(wake_up.interval.start));
        let switches = self.tasks.partition_point(|start| start.tsc <= wake_up.interval.start);
        let switched = self.tasks[switches..].iter().find(|start| is_thread(start.task));
        let is_switched = switched.is_some_and(|start| start.tsc <= tsc);
        match wake_up.woken_tsc {
            Some(woken_tsc) if tsc < woken_tsc => Stage::Expiry,
            // A thread that kept the CPU needs no switch.
            _ if has_cpu && is_switched => Stage::Return,
            Some(_) => Stage::Scheduling,
            None if had_cpu && !has_cpu => Stage::Scheduling,
            None if is_switched => Stage::Scheduling,
            None => Stage::Expiry,
        }
    }

    /// The instants of a wake-up that occurred, each in ns after the due time. Empty if the thread did not sleep.
    pub(super) fn instants(&self, wake_up: WakeUpTimes) -> Vec<(Instant, u64)> {
        let Some(woken_tsc) = wake_up.woken_tsc else { return Vec::new() };
        let timer = KernelContext::Interrupt(LOCAL_TIMER);
        let seen_tsc = self
            .contexts_in(wake_up.interval)
            .filter(|(interval, context)| *context == timer && interval.contains(woken_tsc))
            .map(|(interval, _)| interval.start)
            .max();
        let entered_tsc = seen_tsc.and_then(|seen_tsc| self.timer_entry(seen_tsc));
        let is_in_window = |tsc: u64| woken_tsc <= tsc && tsc < wake_up.interval.end;
        let switched_tsc = self
            .tasks
            .iter()
            .rev()
            .find(|start| is_in_window(start.tsc) && is_task(start.task, wake_up.thread))
            .map(|start| start.tsc);
        let first_instruction_tsc = switched_tsc.and_then(|switched_tsc| {
            let after =
                self.transitions.partition_point(|transition| transition.tsc < switched_tsc);
            let user = KernelContext::User(wake_up.thread);
            let first_instruction_tsc =
                self.transitions[after..].iter().find(|transition| transition.context == user);
            first_instruction_tsc.map(|transition| transition.tsc).filter(|tsc| is_in_window(*tsc))
        });
        let instants = [
            (Instant::InterruptEntered, entered_tsc),
            (Instant::InterruptSeen, seen_tsc),
            (Instant::Woken, Some(woken_tsc)),
            (Instant::Switched, switched_tsc),
            (Instant::FirstInstruction, first_instruction_tsc),
        ];
        // An interrupt may run already when the timer is due.
        let after_due = |tsc: u64| tsc.saturating_sub(wake_up.interval.start);
        instants.into_iter().filter_map(|(instant, tsc)| Some((instant, after_due(tsc?)))).collect()
    }

    /// When the local timer's interrupt began whose first tracepoint is at `seen_tsc`. Only an NMI can come in between.
    ///
    /// The span of the interrupt does not tell: if its return path gives way to another task, it ends when the
    /// interrupted task has the CPU again.
    fn timer_entry(&self, seen_tsc: u64) -> Option<u64> {
        let timer = KernelContext::Interrupt(LOCAL_TIMER);
        let last_timer = |transitions: &[ContextTransition]| {
            transitions.iter().rposition(|transition| transition.context == timer)
        };
        let end = self.transitions.partition_point(|transition| transition.tsc <= seen_tsc);
        let mut entry = last_timer(&self.transitions[..end])?;
        while entry > 0
            && self.transitions[entry - 1].context == KernelContext::Nmi
            && let Some(earlier) = last_timer(&self.transitions[..entry])
        {
            entry = earlier;
        }
        Some(self.transitions[entry].tsc)
    }

    /// The task that has the CPU at a time. Unknown before the first one.
    fn task_at(&self, tsc: u64) -> KernelContext {
        let following = self.tasks.partition_point(|start| start.tsc <= tsc);
        following.checked_sub(1).map_or(KernelContext::Unknown, |last| self.tasks[last].task)
    }

    /// The contexts that overlap a time, the latest start first.
    fn contexts_in(&self, time: Interval) -> impl Iterator<Item = (Interval, KernelContext)> + '_ {
        let end = self.contexts.partition_point(|traced| traced.interval.start < time.end);
        let before = self.contexts[..end].iter().rev();
        before
            .take_while(move |traced| traced.latest_end > time.start)
            .filter(move |traced| traced.interval.end > time.start)
            .map(|traced| (traced.interval, traced.context))
    }
}

/// The withheld times of a CPU.
fn withheld_times(cpu: &CpuUse) -> impl Iterator<Item = Interval> + '_ {
    cpu.withheld.iter().map(|time| Interval { start: time.start, end: time.end })
}

/// Calls of the probes on a CPU: position and span of each call, and its own cycles. Own cycles exclude interrupts and
/// withheld time. `clock_hz`: cycles per second of guest time.
pub(super) fn probe_calls(cpu: &CpuUse, clock_hz: u64) -> Vec<(u32, &SpanUse, u64)> {
    let calls = cpu.spans.iter().map(|span| (span, interval_of(span, &cpu.transitions)));
    let calls: Vec<(&SpanUse, Interval)> = calls.collect();
    let mut withheld_cycles: BTreeMap<usize, u64> = BTreeMap::new();
    for withheld in withheld_times(cpu) {
        let spans = calls.iter().enumerate().filter(|(_, (_, time))| time.contains(withheld.start));
        // The innermost of nested spans starts last.
        if let Some((index, _)) = spans.max_by_key(|(_, (_, time))| time.start) {
            let ns = u128::from(withheld.end - withheld.start);
            let cycles = (ns * u128::from(clock_hz) / 1_000_000_000) as u64;
            *withheld_cycles.entry(index).or_default() += cycles;
        }
    }
    let probes = calls.iter().enumerate().filter_map(|(index, (span, _))| {
        let withheld = withheld_cycles.get(&index).copied().unwrap_or(0);
        let position = probe_position(span.context)?;
        Some((position, *span, span.self_cycles.saturating_sub(withheld)))
    });
    probes.collect()
}

/// When the kernel woke a thread, on any CPU, in order.
pub(super) fn wake_ups(region: &RegionUse, thread: u32) -> Vec<u64> {
    let context = KernelContext::Function(WAKE_FIRST.saturating_add(thread));
    let starts = region.cpus.iter().flat_map(|cpu| {
        let of_thread = cpu.spans.iter().filter(|span| span.context == context);
        of_thread.map(|span| interval_of(span, &cpu.transitions).start)
    });
    let mut starts: Vec<u64> = starts.collect();
    starts.sort_unstable();
    starts
}

/// Whether a context at the bottom of the stack is the task with this number.
fn is_task(task: KernelContext, number: u32) -> bool {
    matches!(task, KernelContext::User(pid) | KernelContext::Task(pid) if pid == number)
}

/// What overlaps a wake-up on its CPU.
struct Overlapping<'a> {
    /// The contexts between their probes.
    contexts: Vec<(Interval, KernelContext)>,
    /// See [`overlapping_probes`].
    probes: &'a [Interval],
    /// When the host withheld the CPU.
    withheld: Vec<Interval>,
}

impl Overlapping<'_> {
    /// The innermost context at a time: the one that started last. `None` outside of all contexts.
    fn context_at(&self, tsc: u64) -> Option<(Interval, KernelContext)> {
        let open = self.contexts.iter().filter(|(interval, _)| interval.contains(tsc));
        open.max_by_key(|(interval, _)| interval.start).copied()
    }

    /// Whether BPF programs run at a time. A context that starts within a probe, at `context_start`, interrupts the probe.
    fn is_probe_at(&self, tsc: u64, context_start: u64) -> bool {
        self.probes.iter().any(|probe| probe.contains(tsc) && probe.start >= context_start)
    }

    /// Time in an interval for which the host withheld the CPU, ns.
    fn withheld_ns(&self, interval: Interval) -> u64 {
        self.withheld.iter().map(|withheld| withheld.overlap_ns(interval)).sum()
    }
}

/// Adds a part, or lengthens the last part if that has the same stage and the same runner.
fn push_or_merge(parts: &mut Vec<WakeUpPart>, next: WakeUpPart) {
    match parts.last_mut() {
        Some(previous) if previous.part == next.part => {
            previous.length_ns += next.length_ns;
            previous.probes_ns += next.probes_ns;
            previous.host_ns += next.host_ns;
        }
        _ => parts.push(next),
    }
}

/// The probes, sorted by start, that overlap an interval, and up to 64 before them, which may have ended. Probes overlap each other only
/// where an interrupt has probes within a probe.
fn overlapping_probes(probes: &[Interval], interval: Interval) -> &[Interval] {
    /// Largest number of probes that are open at one time.
    const NESTED_MAX: usize = 64;
    let started = probes.partition_point(|probe| probe.start < interval.start);
    let first = started.saturating_sub(NESTED_MAX);
    let end = probes.partition_point(|probe| probe.start < interval.end);
    &probes[first.min(end)..end]
}

/// The time of a span by the time-stamp counter. Each edge of a span is a transition.
fn interval_of(span: &SpanUse, transitions: &[ContextTransition]) -> Interval {
    let tsc_at = |cycles: u64| {
        let after = transitions.partition_point(|transition| transition.at_cycles <= cycles);
        after.checked_sub(1).map_or(0, |last| transitions[last].tsc)
    };
    let start = tsc_at(span.ended_at_cycles.saturating_sub(span.inclusive_cycles));
    Interval { start, end: tsc_at(span.ended_at_cycles).max(start) }
}

/// The contexts between their probes, sorted by start. `probes_at` returns the calls of probes with these positions, sorted by
/// start. A context without a call before it, and an interrupt handler or softirq without a call after it, is left out.
fn traced_contexts(
    spans: &[(Interval, KernelContext)],
    probes_at: &dyn Fn(&[u32]) -> Vec<Interval>,
) -> Vec<TracedContext> {
    let [entries, exits, softirqs] =
        [IRQ_ENTRY_PROBE, IRQ_EXIT_PROBE, SOFTIRQ_PROBE].map(|position| probes_at(&[position]));
    let vectors = probes_at(&[VECTOR_PROBE, ENTRY_LOOP]);
    // `before`: the start of the last call that ended before a handler. `after`: the start of the first call after it.
    let before = |probes: &[Interval], start: u64| {
        let end = probes.partition_point(|probe| probe.start <= start);
        probes[..end].iter().rev().find(|probe| probe.end <= start).map(|probe| probe.start)
    };
    let after = |probes: &[Interval], end: u64| {
        probes.get(probes.partition_point(|probe| probe.start < end)).map(|probe| probe.start)
    };
    let context_of = |(interval, context): &(Interval, KernelContext)| {
        let Interval { start, end } = *interval;
        let (start, end, context) = match *context {
            // The body starts when the programs at the entry return, and ends at the call of those at the exit.
            KernelContext::Function(number) if (BODY_FIRST..PROBE_FIRST).contains(&number) => {
                let vector = u8::try_from(number - BODY_FIRST).ok()?;
                (before(&vectors, start), Some(end), KernelContext::Interrupt(vector))
            }
            KernelContext::Softirq(_) => {
                (before(&softirqs, start), after(&softirqs, end), *context)
            }
            KernelContext::Irq(_) => (before(&entries, start), after(&exits, end), *context),
            _ => return None,
        };
        Some((Interval { start: start?, end: end? }, context))
    };
    let mut intervals: Vec<_> = spans.iter().filter_map(context_of).collect();
    intervals.sort_by_key(|(interval, _)| *interval);
    let mut latest_end = 0;
    let with_latest_end = intervals.into_iter().map(|(interval, context)| {
        latest_end = interval.end.max(latest_end);
        TracedContext { interval, context, latest_end }
    });
    with_latest_end.collect()
}

/// The tasks that had the CPU, in order. The kernel switches when it calls the programs of this tracepoint, `switches`; a
/// task without such a call starts at its first transition.
fn task_starts(transitions: &[ContextTransition], switches: &[Interval]) -> Vec<TaskStart> {
    let pid_of = |task: KernelContext| match task {
        KernelContext::User(pid) | KernelContext::Task(pid) | KernelContext::KernelThread(pid) => {
            Some(pid)
        }
        _ => None,
    };
    let mut starts: Vec<TaskStart> = Vec::new();
    for transition in transitions {
        let Some(&TaskStart { tsc: last_tsc, task }) = starts.last() else {
            starts.push(TaskStart { tsc: transition.tsc, task: transition.task });
            continue;
        };
        let is_same = match (pid_of(task), pid_of(transition.task)) {
            (Some(last_pid), Some(pid)) => last_pid == pid,
            _ => task == transition.task,
        };
        if is_same {
            continue;
        }
        let following = switches.partition_point(|call| call.start <= transition.tsc);
        let call_tsc = following.checked_sub(1).map(|last| switches[last].start);
        let tsc = call_tsc.filter(|call_tsc| *call_tsc > last_tsc).unwrap_or(transition.tsc);
        starts.push(TaskStart { tsc, task: transition.task });
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: u32 = 7;
    const USER: KernelContext = KernelContext::User(THREAD);
    const SLEEP: KernelContext = KernelContext::Syscall(230);
    const TIMER: KernelContext = KernelContext::Interrupt(LOCAL_TIMER);
    const BODY: KernelContext = KernelContext::Function(BODY_FIRST + LOCAL_TIMER as u32);
    const VECTOR: KernelContext = KernelContext::Function(PROBE_FIRST + VECTOR_PROBE);
    const SOFTIRQ: KernelContext = KernelContext::Function(PROBE_FIRST + SOFTIRQ_PROBE);
    const SWITCH: KernelContext = KernelContext::Function(PROBE_FIRST + SWITCH_PROBE);
    const WAKE: KernelContext = KernelContext::Function(WAKE_FIRST + THREAD);
    const WAKE_OTHER: KernelContext = KernelContext::Function(WAKE_FIRST + 9);

    /// A CPU that executes nested contexts. The time-stamp counter is 1,000 ahead of the time axis.
    struct Cpu {
        cpu: CpuUse,
        open: Vec<(u64, KernelContext)>,
        task: KernelContext,
        /// Time of nested contexts by the start of the context that they interrupt.
        interrupted: BTreeMap<u64, u64>,
    }

    impl Cpu {
        fn new(task: KernelContext) -> Cpu {
            let mut cpu = Cpu {
                cpu: CpuUse::default(),
                open: Vec::new(),
                task,
                interrupted: BTreeMap::new(),
            };
            cpu.transition(0);
            cpu
        }

        fn transition(&mut self, at: u64) {
            let context = self.open.last().map_or(self.task, |(_, context)| *context);
            self.cpu.transitions.push(ContextTransition {
                context,
                task: self.task,
                at_cycles: at,
                cycles: at,
                tsc: at + 1_000,
            });
        }

        fn enter(&mut self, at: u64, context: KernelContext) -> &mut Cpu {
            self.open.push((at, context));
            self.transition(at);
            self
        }

        fn leave(&mut self, at: u64) -> &mut Cpu {
            let (start, context) = self.open.pop().unwrap();
            if let Some((outer, _)) = self.open.last() {
                *self.interrupted.entry(*outer).or_default() += at - start;
            }
            self.cpu.spans.push(SpanUse {
                context,
                ended_at_cycles: at,
                self_cycles: at - start - self.interrupted.remove(&start).unwrap_or(0),
                inclusive_cycles: at - start,
                self_instructions: 0,
            });
            self.transition(at);
            self
        }

        /// BPF programs run for 5.
        fn probe(&mut self, at: u64, context: KernelContext) -> &mut Cpu {
            self.enter(at, context).leave(at + 5)
        }

        fn switch(&mut self, at: u64, task: KernelContext, open: Vec<(u64, KernelContext)>) {
            (self.task, self.open) = (task, open);
            self.transition(at);
        }

        /// The host withholds the CPU, in the context on top.
        fn withhold(&mut self, from: u64, to: u64) -> &mut Cpu {
            self.cpu.withheld.push(from + 1_000..to + 1_000);
            self
        }

        /// Number of calls of probes, and the sum of their own cycles.
        fn probe_calls(&self) -> (usize, u64) {
            let calls = probe_calls(&self.cpu, 1_000_000_000);
            (calls.len(), calls.iter().map(|(_, _, cycles)| cycles).sum())
        }

        fn wake_up(&self, due: u64, woke: u64) -> (Vec<WakeUpPart>, Vec<(Instant, u64)>) {
            let region = RegionUse { cpus: vec![self.cpu.clone()], ..RegionUse::default() };
            let time = Interval { start: due + 1_000, end: woke + 1_000 };
            let woken_tsc = wake_ups(&region, THREAD).into_iter().find(|tsc| time.contains(*tsc));
            let wake_up = WakeUpTimes { interval: time, thread: THREAD, woken_tsc };
            let truth = CpuTruth::new(&self.cpu);
            let parts = truth.parts(wake_up, &mut Names::default(), &Accounting::default());
            (parts, truth.instants(wake_up))
        }
    }

    fn part(
        stage: Stage,
        running: lab::wakeup::Running,
        length_ns: u64,
        probes_ns: u64,
    ) -> WakeUpPart {
        WakeUpPart { part: Part { stage, running }, length_ns, probes_ns, host_ns: 0 }
    }

    /// The idle CPU is interrupted after its timer was due. The interrupt wakes another task first. A softirq runs before
    /// the interrupt returns, and another timer's interrupt in it.
    #[test]
    fn parts_end_where_the_kernel_calls_the_probes() {
        use Stage::{Expiry, Return, Scheduling};
        use lab::wakeup::Running::{Context, Task, Thread};
        let mut cpu = Cpu::new(KernelContext::Idle);
        cpu.enter(110, TIMER).probe(120, VECTOR).enter(125, BODY);
        cpu.probe(130, WAKE_OTHER).probe(140, WAKE);
        cpu.leave(150).probe(150, VECTOR);
        cpu.probe(160, SOFTIRQ).enter(170, KernelContext::Softirq(1));
        cpu.enter(180, TIMER).probe(185, VECTOR).enter(190, BODY).leave(200).probe(200, VECTOR);
        cpu.leave(210).leave(220).probe(225, SOFTIRQ).leave(240);
        cpu.probe(250, SWITCH).switch(260, USER, vec![(0, SLEEP)]);
        cpu.leave(280);
        let (parts, instants) = cpu.wake_up(100, 300);
        let (idle, timer, softirq, thread) = (Task(0), Context(1), Context(2), Thread);
        assert_eq!(
            parts,
            [
                part(Expiry, idle, 20, 0),
                part(Expiry, timer, 20, 10),
                part(Scheduling, timer, 10, 5),
                part(Scheduling, idle, 10, 5),
                part(Scheduling, softirq, 25, 5),
                part(Scheduling, timer, 15, 5),
                part(Scheduling, softirq, 25, 5),
                part(Scheduling, idle, 25, 5),
                part(Return, thread, 50, 5),
            ]
        );
        assert_eq!(parts.iter().map(|part| part.length_ns).sum::<u64>(), 200);
        let expected = [
            (Instant::InterruptEntered, 10),
            (Instant::InterruptSeen, 20),
            (Instant::Woken, 40),
            (Instant::Switched, 150),
            (Instant::FirstInstruction, 180),
        ];
        assert_eq!(instants, expected);
        assert_eq!(cpu.probe_calls(), (9, 45));
    }

    /// An NMI interrupts the entry of the timer's interrupt, whose return path gives way to the thread. The interrupt ends when the
    /// load has the CPU again: its span is as long as without the thread's time.
    #[test]
    fn the_entry_of_an_interrupt_that_gives_way_is_known() {
        let mut cpu = Cpu::new(KernelContext::User(8));
        cpu.enter(110, TIMER).enter(112, KernelContext::Nmi).leave(117);
        cpu.probe(120, VECTOR).enter(125, BODY).probe(140, WAKE).leave(150).probe(150, VECTOR);
        cpu.probe(250, SWITCH).switch(260, USER, Vec::new());
        cpu.switch(400, KernelContext::User(8), vec![(110, TIMER)]);
        cpu.leave(420);
        let timer = cpu.cpu.spans.last_mut().unwrap();
        (timer.context, timer.inclusive_cycles) = (TIMER, 420 - 110 - (400 - 260));
        let (_, instants) = cpu.wake_up(100, 300);
        let expected = [(Instant::InterruptEntered, 10), (Instant::InterruptSeen, 20)];
        assert_eq!(instants[..2], expected);
    }

    /// The timer's interrupt of the wake-up comes within a probe of another event: only the probe's own time is its cost.
    #[test]
    fn an_interrupt_within_a_probe_is_not_the_probes_time() {
        let mut cpu = Cpu::new(KernelContext::Idle);
        cpu.enter(110, WAKE_OTHER).enter(112, TIMER).probe(120, VECTOR).enter(125, BODY);
        cpu.probe(140, WAKE).leave(150).probe(150, VECTOR).leave(160).leave(163);
        cpu.probe(250, SWITCH).switch(260, USER, Vec::new());
        let (parts, _) = cpu.wake_up(100, 300);
        assert_eq!(cpu.probe_calls(), (5, 5 * 5));
        let probes_ns: u64 = parts.iter().map(|part| part.probes_ns).sum();
        // The interrupt's code before its entry probe and after its exit probe counts for what it interrupts.
        assert_eq!(probes_ns, 5 * 5 + (120 - 112) + (160 - 155));
    }

    /// The timer is due while the host withholds the CPU. The host withholds it again in a probe.
    #[test]
    fn the_time_of_the_host_is_in_the_part_that_it_interrupts() {
        use Stage::{Expiry, Return, Scheduling};
        use lab::wakeup::Running::{Context, Task, Thread};
        let mut cpu = Cpu::new(KernelContext::Idle);
        cpu.withhold(50, 190).enter(195, TIMER).probe(200, VECTOR).enter(205, BODY);
        cpu.enter(220, WAKE).withhold(222, 262).leave(265).leave(270).probe(270, VECTOR).leave(280);
        cpu.probe(290, SWITCH).switch(300, USER, Vec::new());
        let (parts, _) = cpu.wake_up(100, 320);
        let with_host = |part: WakeUpPart, host_ns| WakeUpPart { host_ns, ..part };
        assert_eq!(
            parts,
            [
                with_host(part(Expiry, Task(0), 100, 0), 90),
                part(Expiry, Context(1), 20, 5),
                with_host(part(Scheduling, Context(1), 50, 45), 40),
                part(Scheduling, Task(0), 20, 5),
                part(Return, Thread, 30, 5),
            ]
        );
        assert_eq!(cpu.probe_calls(), (4, 4 * 5), "without the time of the host");
        let window = |start, end| {
            let time = Interval { start, end };
            (0, WakeUpTimes { interval: time, thread: THREAD, woken_tsc: None })
        };
        let truth = CpuTruth::new(&cpu.cpu);
        assert_eq!(truth.withheld_count(&[window(1_100, 1_150), window(1_200, 1_320)]), 1);
        assert_eq!(
            (truth.withheld_count(&[window(1_050, 1_320)]), truth.withheld_count(&[])),
            (2, 0)
        );
    }

    #[test]
    fn a_task_of_a_higher_priority_runs_before_the_thread() {
        use lab::wakeup::Running::{Context, Task, Thread};
        let hog = KernelContext::User(8);
        let mut cpu = Cpu::new(hog);
        cpu.enter(110, TIMER).probe(120, VECTOR).enter(125, BODY).probe(140, WAKE);
        cpu.leave(150).probe(150, VECTOR).leave(160);
        cpu.probe(250, SWITCH).switch(260, USER, Vec::new());
        let (parts, _) = cpu.wake_up(100, 300);
        assert_eq!(
            parts,
            [
                part(Stage::Expiry, Task(0), 20, 0),
                part(Stage::Expiry, Context(1), 20, 5),
                part(Stage::Scheduling, Context(1), 10, 5),
                part(Stage::Scheduling, Task(0), 100, 5),
                part(Stage::Return, Thread, 50, 5),
            ]
        );
    }

    /// The thread was due while it still ran. It loses the CPU before it could sleep.
    #[test]
    fn a_thread_that_did_not_sleep_waits_only_while_it_has_no_cpu() {
        use lab::wakeup::Running::{Task, Thread};
        let mut cpu = Cpu::new(USER);
        cpu.probe(150, SWITCH).switch(160, KernelContext::KernelThread(9), Vec::new());
        cpu.probe(200, SWITCH).switch(210, USER, Vec::new());
        let (parts, instants) = cpu.wake_up(100, 300);
        assert_eq!(
            parts,
            [
                part(Stage::Expiry, Thread, 50, 0),
                part(Stage::Scheduling, Task(0), 50, 5),
                part(Stage::Return, Thread, 100, 5),
            ]
        );
        assert!(instants.is_empty());
        assert_eq!(cpu.wake_up(20, 60).0, [part(Stage::Expiry, Thread, 40, 0)]);
    }
}
