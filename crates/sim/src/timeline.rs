//! The timeline of a simulated window (`--trace`). Transitions between contexts become nested intervals. Recorded spans
//! tell which intervals the tables count. Delays, function calls to other CPUs and reschedule interrupts become arrows.
//!
//! ```text
//! transitions   task A | vector | softirq | vector | task A | task B
//! on top        A        V        S         V        A        B
//! intervals     |A---------------------------------------| |B--
//!                        |V-------------------|
//!                                 |S--------|
//! ```
//!
//! Each recorded span becomes exactly one event that is counted. Its self time is that of the tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use attribution::context::SOFTIRQS;
use attribution::{Context, KernelContext, SYSCALL_32};
use lab::noise::ContextName;
use lab::services::syscall_name;
use lab::timeline::{
    Activity, CpuEvents, EVENT_BYTES, Event, Request, RequestKind, Target, Timeline,
};
use simrecord::counters::TIME;
use simrecord::record::DelayEvents;

use crate::Symbols;
use crate::accounting::{Accounting, ContextTransition, CpuUse, SendersUse, SentUse, SpanUse};
use crate::contexts::{callback_of, context_of, irq_thread_of, source_name};

/// The first letters of the names of both vectors for function calls.
const CALL_FUNCTION: &str = "call_function";
/// The vector of reschedule interrupts.
const RESCHEDULE: &str = "reschedule";
/// The function that wakes the tasks whose wake-up another CPU has queued.
const WAKE_UP_FUNCTION: &str = "sched_ttwu_pending";

/// Makes a timeline of `cpus` with at most `bytes_max` bytes of events, with the calls and reschedule interrupts of `senders`. `ns` converts cycles. `symbols` name the functions of
/// timers, work items, tasklets and RCU.
pub(crate) fn timeline_of<'a>(
    cpus: impl Iterator<Item = &'a CpuUse> + Clone,
    senders: &SendersUse,
    accounting: &Accounting,
    symbols: Option<&Symbols>,
    bytes_max: u64,
    ns: impl Fn(u64) -> u64,
) -> Timeline {
    let opened = cpus.clone().filter_map(|cpu| cpu.transitions.first());
    let opened_tsc = opened.map(|first| first.tsc).min().unwrap_or(0);
    let share = bytes_max / EVENT_BYTES / cpus.clone().count().max(1) as u64;
    let mut names =
        Names { accounting, symbols, contexts: BTreeMap::new(), others: BTreeMap::new() };
    let events = cpus.map(|cpu| {
        let clock = CpuClock { cpu, opened_tsc, ns: &ns };
        let mut events = Intervals::new(clock, &mut names).events();
        let sent = senders.sent.iter().filter(|sent| sent.target == cpu.cpu);
        events.requests.extend(sent.filter_map(|sent| request_of(sent, symbols, opened_tsc, &ns)));
        events.keep_latest(usize::try_from(share).unwrap_or(usize::MAX));
        events
    });
    Timeline::new(events.collect(), bytes_max, None)
}

/// The arrow of a function call from its queueing to its run, or of a reschedule interrupt from its sending to its entry; `None`
/// without a run or entry. The clocks of two CPUs can differ by a time slice: a call is not queued after its run.
fn request_of(
    sent: &SentUse,
    symbols: Option<&Symbols>,
    opened_tsc: u64,
    ns: impl Fn(u64) -> u64,
) -> Option<Request> {
    let run = sent.run?;
    let served_ns = run.tsc.saturating_sub(opened_tsc);
    let (kind, name, vector) = if sent.kind.is_call() {
        (RequestKind::Call, called_function(sent.function, symbols).into(), CALL_FUNCTION)
    } else {
        (RequestKind::Send, RESCHEDULE.into(), RESCHEDULE)
    };
    Some(Request {
        kind,
        cpu: sent.cpu,
        at_ns: served_ns.saturating_sub(ns(run.delay_cycles)),
        name,
        target_cpu: sent.target,
        served_ns,
        target: Target::Vector(vector),
    })
}

/// The name of the function of a queued call. A wake-up has no address.
pub(crate) fn called_function(function: u64, symbols: Option<&Symbols>) -> String {
    match symbols {
        _ if function == 0 => WAKE_UP_FUNCTION.to_owned(),
        Some(symbols) => symbols.code_name(function),
        None => format!("{function:#x}"),
    }
}

/// Converts times on the axis of a CPU to ns since the window opened, by the time-stamp counter, which all CPUs share.
struct CpuClock<'a> {
    cpu: &'a CpuUse,
    opened_tsc: u64,
    ns: &'a dyn Fn(u64) -> u64,
}

impl CpuClock<'_> {
    /// The time of `at_cycles`. Between two transitions the counter advances with the CPU's time.
    fn ns_at(&self, at_cycles: u64) -> u64 {
        let transitions = &self.cpu.transitions;
        let after = transitions.partition_point(|change| change.at_cycles <= at_cycles);
        let Some(last) = after.checked_sub(1).map(|last| &transitions[last]) else { return 0 };
        let tsc = last.tsc + (self.ns)(at_cycles - last.at_cycles);
        let next_tsc = transitions.get(after).map_or(u64::MAX, |next| next.tsc);
        tsc.min(next_tsc).saturating_sub(self.opened_tsc)
    }

    /// When the window closed for the CPU, in cycles on its axis.
    fn closed_at(&self) -> u64 {
        let last = self.cpu.transitions.last().map_or(0, |last| last.at_cycles);
        let closed = self.cpu.opened_at_cycles.saturating_add(self.cpu.used[TIME]);
        self.cpu.offline_at_cycles.unwrap_or(closed).max(last)
    }
}

/// Names of contexts. Each is made once.
struct Names<'a> {
    accounting: &'a Accounting,
    symbols: Option<&'a Symbols>,
    contexts: BTreeMap<KernelContext, Option<Arc<Context>>>,
    others: BTreeMap<(KernelContext, KernelContext), (&'static str, Arc<str>)>,
}

impl Names<'_> {
    /// The context as table `handlers` names it; `None` if the table has no such row.
    fn context(&mut self, context: KernelContext) -> Option<Arc<Context>> {
        let (accounting, symbols) = (self.accounting, self.symbols);
        let name = || {
            context_of(context, accounting)
                .or_else(|| irq_thread_of(context, accounting))
                .or_else(|| callback_of(context, symbols))
                .map(Arc::new)
        };
        self.contexts.entry(context).or_insert_with(name).clone()
    }

    /// Kind and name of any other context of a task.
    fn other_name(
        &mut self,
        context: KernelContext,
        task: KernelContext,
    ) -> (&'static str, Arc<str>) {
        let accounting = self.accounting;
        let name = || match source_name(context, task, accounting) {
            ContextName::Other(kind, name) => (kind, syscall_of(context).unwrap_or(name).into()),
            ContextName::Task(name) => ("task", name.into()),
            ContextName::Context(context) => (context.kind.label(), context.name.into()),
            ContextName::Sent(sent) => (sent.context.kind.label(), sent.name().into()),
        };
        self.others.entry((context, task)).or_insert_with(name).clone()
    }
}

/// Name of a system call of 64-bit code.
fn syscall_of(context: KernelContext) -> Option<String> {
    match context {
        KernelContext::Syscall(number) if number & SYSCALL_32 == 0 => {
            Some(syscall_name(number as usize))
        }
        _ => None,
    }
}

/// The task, whether it runs in user mode or in the kernel.
fn whole_task(task: KernelContext) -> KernelContext {
    match task {
        KernelContext::Task(pid) => KernelContext::User(pid),
        other => other,
    }
}

/// An interval that has not ended.
#[derive(Clone, Copy)]
struct Open {
    context: KernelContext,
    /// Cycles on the CPU's axis.
    start: u64,
}

/// Makes the intervals of a CPU.
struct Intervals<'a, 'b> {
    clock: CpuClock<'a>,
    names: &'a mut Names<'b>,
    /// The recorded spans that have no event yet, by context and end.
    spans: BTreeMap<(KernelContext, u64), Vec<&'a SpanUse>>,
    /// The task that runs. `None` before the first transition.
    task: Option<Open>,
    /// The contexts above the task, the innermost last.
    stack: Vec<Open>,
    /// The contexts of tasks that were switched out in the middle of them.
    switched_out: BTreeMap<KernelContext, Vec<KernelContext>>,
    events: Vec<Event>,
}

impl<'a, 'b> Intervals<'a, 'b> {
    fn new(clock: CpuClock<'a>, names: &'a mut Names<'b>) -> Self {
        let mut spans: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let cpu = clock.cpu;
        for span in &cpu.spans {
            spans.entry((span.context, span.ended_at_cycles)).or_default().push(span);
        }
        let switched_out = BTreeMap::new();
        Intervals {
            clock,
            names,
            spans,
            task: None,
            stack: Vec::new(),
            switched_out,
            events: Vec::new(),
        }
    }

    fn events(mut self) -> CpuEvents {
        let cpu = self.clock.cpu;
        for change in &cpu.transitions {
            self.apply(change);
        }
        let closed_at = self.clock.closed_at();
        self.close_down_to(0, closed_at);
        self.end_task(closed_at);
        self.add_spans_without_interval();
        let requests = cpu.delays.iter().filter_map(|delay| {
            let KernelContext::Softirq(number) = delay.context else { return None };
            let is_joined = delay.events == DelayEvents::Joined;
            let name = SOFTIRQS.get(usize::from(number)).filter(|_| is_joined)?;
            Some(Request {
                kind: RequestKind::Raise,
                cpu: cpu.cpu,
                at_ns: self.clock.ns_at(delay.at_cycles.saturating_sub(delay.cycles)),
                name: (*name).into(),
                target_cpu: cpu.cpu,
                served_ns: self.clock.ns_at(delay.at_cycles),
                target: Target::Softirq(u32::from(number)),
            })
        });
        let requests = requests.collect();
        CpuEvents { cpu: cpu.cpu, events: self.events, requests, ..CpuEvents::default() }
    }

    fn apply(&mut self, change: &ContextTransition) {
        let (at, task) = (change.at_cycles, whole_task(change.task));
        let is_it = |open: &Open| open.context == change.context;
        if self.task.is_none_or(|open| open.context != task) {
            self.switch_to(task, at);
            // The task goes on in the context in which it was switched out.
            if self.stack.last().is_some_and(is_it) {
                return;
            }
        }
        if whole_task(change.context) == task {
            return self.close_down_to(0, at);
        }
        if let Some(position) = self.stack.iter().rposition(is_it) {
            if position + 1 < self.stack.len() {
                return self.close_down_to(position + 1, at);
            }
            // A context follows the same context: one of the two has ended, or the second is nested in the first.
            if self.has_ended_span(change.context, at) {
                self.close_down_to(position, at);
                if self.stack.last().is_some_and(is_it) {
                    return;
                }
            }
        } else if matches!(change.context, KernelContext::Syscall(_)) {
            // A system call starts in user mode. So it was below the contexts on top, which came with the task from another
            // CPU and have ended.
            self.close_down_to(0, at);
        }
        self.stack.push(Open { context: change.context, start: at });
    }

    fn has_ended_span(&self, context: KernelContext, at: u64) -> bool {
        self.spans.get(&(context, at)).is_some_and(|spans| !spans.is_empty())
    }

    /// Ends the intervals of the old task, and opens those of the new task.
    fn switch_to(&mut self, task: KernelContext, at: u64) {
        let contexts = self.stack.iter().map(|open| open.context).collect();
        self.close_down_to(0, at);
        if let Some(last) = self.task {
            self.switched_out.insert(last.context, contexts);
        }
        self.end_task(at);
        self.task = Some(Open { context: task, start: at });
        let contexts = self.switched_out.remove(&task).unwrap_or_default();
        self.stack = contexts.into_iter().map(|context| Open { context, start: at }).collect();
    }

    fn end_task(&mut self, at: u64) {
        let Some(open) = self.task.take() else { return };
        let name = match open.context {
            KernelContext::Idle => None,
            context => Some(self.names.other_name(context, context).1),
        };
        self.emit(open.start, at, Activity::Task { name, runnable: None });
    }

    /// Ends the contexts from this position on, the innermost first.
    fn close_down_to(&mut self, position: usize, at: u64) {
        while self.stack.len() > position
            && let Some(open) = self.stack.pop()
        {
            self.close(open, at);
        }
    }

    fn close(&mut self, open: Open, at: u64) {
        let spans = self.spans.get_mut(&(open.context, at));
        let span = spans.and_then(Vec::pop);
        let activity = match (self.names.context(open.context), span) {
            (Some(context), Some(span)) => {
                Activity::Span { context, self_ns: (self.clock.ns)(span.self_cycles) }
            }
            // Without a length it is no part of anything.
            (_, None) if open.start == at => return,
            (Some(context), None) => Activity::Part { context },
            (None, _) => {
                let task = self.task.map_or(KernelContext::Unknown, |task| task.context);
                let (kind, name) = self.names.other_name(open.context, task);
                Activity::Other(kind, name)
            }
        };
        self.emit(open.start, at, activity);
    }

    /// Adds the spans that ended together with a span of the same context, and the runs of threads of IRQ lines.
    fn add_spans_without_interval(&mut self) {
        let spans = std::mem::take(&mut self.spans);
        for span in spans.into_values().flatten() {
            let Some(context) = self.names.context(span.context) else { continue };
            let start = span.ended_at_cycles.saturating_sub(span.inclusive_cycles);
            let activity = Activity::Span { context, self_ns: (self.clock.ns)(span.self_cycles) };
            self.emit(start, span.ended_at_cycles, activity);
        }
    }

    fn emit(&mut self, start: u64, end: u64, activity: Activity) {
        let (start_ns, end_ns) = (self.clock.ns_at(start), self.clock.ns_at(end));
        let cpu = self.clock.cpu.cpu;
        self.events.push(Event { cpu, start_ns: start_ns.min(end_ns), end_ns, activity });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::DelayUse;
    use simrecord::counters::{COUNTERS, Counts};

    const TASK: KernelContext = KernelContext::User(5);
    const VECTOR: KernelContext = KernelContext::Interrupt(0xec);
    const SOFTIRQ: KernelContext = KernelContext::Softirq(1);
    const FAULT: KernelContext = KernelContext::Exception(14);

    fn change(context: KernelContext, task: KernelContext, at: u64) -> ContextTransition {
        ContextTransition { context, task, at_cycles: at, cycles: at, tsc: 1_000 + 2 * at }
    }

    fn span(context: KernelContext, start: u64, end: u64, self_cycles: u64) -> SpanUse {
        let inclusive_cycles = end - start;
        let self_instructions = 0;
        SpanUse { context, ended_at_cycles: end, self_cycles, inclusive_cycles, self_instructions }
    }

    /// The events as start, end, name and self time (`None`: not counted), from a machine with 2 ns a cycle.
    fn events(cpu: &CpuUse) -> Vec<(u64, u64, String, Option<u64>)> {
        let tasks = [(5, "make".to_owned()), (7, "cc1".to_owned())].into();
        let accounting = Accounting { tasks, ..Accounting::default() };
        let timeline = timeline_of(
            [cpu].into_iter(),
            &SendersUse::default(),
            &accounting,
            None,
            1 << 20,
            |cycles| cycles * 2,
        );
        let event = |event: &Event| {
            let (name, self_ns) = match &event.activity {
                Activity::Span { context, self_ns } => (context.name.clone(), Some(*self_ns)),
                Activity::Part { context } => (context.name.clone(), None),
                Activity::Task { name, .. } => (name.as_deref().unwrap_or("idle").to_owned(), None),
                Activity::Other(_, name) => (name.as_ref().to_owned(), None),
            };
            (event.start_ns, event.end_ns, name, self_ns)
        };
        timeline.events.iter().map(event).collect()
    }

    fn used(cycles: u64) -> Counts {
        let mut used = [0; COUNTERS];
        used[TIME] = cycles;
        used
    }

    #[test]
    fn contexts_nest_in_tasks_and_spans_are_counted() {
        let cpu = CpuUse {
            used: used(100),
            transitions: vec![
                change(TASK, TASK, 0),
                change(VECTOR, TASK, 10),
                change(SOFTIRQ, TASK, 20),
                change(VECTOR, TASK, 40),
                change(TASK, TASK, 50),
                change(KernelContext::Idle, KernelContext::Idle, 60),
                change(VECTOR, KernelContext::Idle, 90),
            ],
            spans: vec![span(SOFTIRQ, 20, 40, 20), span(VECTOR, 10, 50, 20)],
            ..CpuUse::default()
        };
        let expected = [
            (0, 120, "make", None),
            (20, 100, "local_timer", Some(40)),
            (40, 80, "TIMER", Some(40)),
            (120, 200, "idle", None),
            (180, 200, "local_timer", None),
        ];
        let expected =
            expected.map(|(start, end, name, self_ns)| (start, end, name.to_owned(), self_ns));
        assert_eq!(events(&cpu), expected);
    }

    #[test]
    fn a_span_that_a_task_switch_divides_is_counted_once() {
        let second_task = KernelContext::Task(7);
        let cpu = CpuUse {
            used: used(50),
            transitions: vec![
                change(FAULT, TASK, 0),
                change(second_task, second_task, 10),
                change(FAULT, TASK, 30),
                change(TASK, TASK, 40),
            ],
            spans: vec![span(FAULT, 20, 40, 20)],
            ..CpuUse::default()
        };
        let expected = [
            (0, 20, "make", None),
            (0, 20, "page_fault", None),
            (20, 60, "cc1", None),
            (60, 100, "make", None),
            (60, 80, "page_fault", Some(40)),
        ];
        let expected =
            expected.map(|(start, end, name, self_ns)| (start, end, name.to_owned(), self_ns));
        assert_eq!(events(&cpu), expected);
    }

    #[test]
    fn a_context_within_the_same_context_is_a_span_of_its_own() {
        let cpu = CpuUse {
            used: used(60),
            transitions: vec![
                change(TASK, TASK, 0),
                change(FAULT, TASK, 10),
                change(FAULT, TASK, 20),
                change(FAULT, TASK, 30),
                change(TASK, TASK, 50),
            ],
            spans: vec![span(FAULT, 20, 30, 10), span(FAULT, 10, 50, 30)],
            ..CpuUse::default()
        };
        let faults = events(&cpu).into_iter().filter(|(_, _, name, _)| name == "page_fault");
        let faults: Vec<_> = faults.map(|(start, end, _, self_ns)| (start, end, self_ns)).collect();
        assert_eq!(faults, [(20, 100, Some(60)), (40, 60, Some(20))]);
    }

    #[test]
    fn an_arrow_reaches_from_the_raise_to_the_run() {
        let delay =
            |context, events, at_cycles, cycles| DelayUse { context, events, at_cycles, cycles };
        let cpu = CpuUse {
            used: used(50),
            transitions: vec![
                change(TASK, TASK, 0),
                change(SOFTIRQ, TASK, 20),
                change(TASK, TASK, 40),
            ],
            spans: vec![span(SOFTIRQ, 20, 40, 20)],
            delays: vec![
                delay(SOFTIRQ, DelayEvents::EndAlone, 10, 0),
                delay(SOFTIRQ, DelayEvents::Joined, 20, 15),
            ],
            ..CpuUse::default()
        };
        let record = Accounting::default();
        let timeline = timeline_of(
            [&cpu].into_iter(),
            &SendersUse::default(),
            &record,
            None,
            1 << 20,
            |cycles| cycles * 2,
        );
        let [arrow] = &timeline.arrows[..] else { panic!("{:?}", timeline.arrows) };
        let target = &timeline.events[arrow.target];
        assert_eq!((arrow.request.at_ns, target.start_ns, target.end_ns), (10, 40, 80));
    }

    #[test]
    fn a_system_call_is_not_within_a_context_that_came_from_another_cpu() {
        let cpu = CpuUse {
            used: used(50),
            transitions: vec![
                change(FAULT, TASK, 0),
                change(KernelContext::Syscall(0), TASK, 10),
                change(TASK, TASK, 30),
            ],
            ..CpuUse::default()
        };
        let intervals = events(&cpu).into_iter().map(|(start, end, name, _)| (start, end, name));
        let expected = [(0, 100, "make"), (0, 20, "page_fault"), (20, 60, "read")];
        let expected = expected.map(|(start, end, name)| (start, end, name.to_owned()));
        assert_eq!(intervals.collect::<Vec<_>>(), expected);
    }
}
