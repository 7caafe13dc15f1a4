//! Divides the interrupts that a CPU gets from other CPUs by their senders, and names the senders like the live bench.
//!
//! The record has the start of each function that another CPU has queued, and the entry of each reschedule interrupt. An
//! interrupt for function calls belongs to the sender of its first function until the second function starts, and so on. The
//! end of the interrupt belongs to the sender of the last function.
//!
//! ```text
//! transitions   task | vector                    | softirq | vector | task
//! starts               first call    second call
//! senders            |-- first -----|-- second --|         | second |
//! ```

use std::collections::{BTreeMap, BTreeSet};

use attribution::{Context, KernelContext};
use lab::noise::sent::{OtherSenders, SENDERS_MAX, reason};
use lab::noise::{ContextName, IDLE, InterruptSender, Processes, SentInterrupt};
use lab::services::syscall_name;

use crate::Symbols;
use crate::accounting::{
    Accounting, ContextTransition, CpuUse, QueuedRunUse, RegionUse, SendersUse, SentUse,
};
use crate::contexts::context_of;
use crate::timeline::called_function;

const RESCHEDULE: u8 = 0xfd;
const CALL_FUNCTION: [u8; 2] = [0xfc, 0xfb];

/// The vector of an interrupt that another CPU sends: function calls, or reschedule.
fn sent_vector(context: KernelContext) -> Option<u8> {
    match context {
        KernelContext::Interrupt(vector)
            if vector == RESCHEDULE || CALL_FUNCTION.contains(&vector) =>
        {
            Some(vector)
        }
        _ => None,
    }
}

/// A sender of interrupts. All tasks of a name that do the same are one sender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sender {
    /// The interrupt or softirq that sends. `None`: the task does.
    interrupt: Option<KernelContext>,
    /// Name of the task. Empty for interrupts.
    task: String,
    /// Address of the called function; 0 for wake-ups. `None`: no function is called.
    function: Option<u64>,
    system_call: Option<u16>,
}

/// The sender of a call or an interrupt. `None` if the record does not show it.
fn sender_of(sent: &SentUse) -> Option<Sender> {
    let (interrupt, task) = match sent.sender {
        KernelContext::Task(0) => (None, IDLE.to_owned()),
        KernelContext::Task(_) if sent.task.is_empty() => return None,
        KernelContext::Task(_) if sent.task == IDLE => (None, format!("{IDLE} (a program)")),
        KernelContext::Task(_) => (None, sent.task.clone()),
        interrupt => (Some(interrupt), String::new()),
    };
    let function = sent.kind.is_call().then_some(sent.function);
    Some(Sender { interrupt, task, function, system_call: sent.system_call })
}

/// A part of an interrupt that has one sender, by the time-stamp counter of its CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SentSpan {
    from_tsc: u64,
    to_tsc: u64,
    /// Positions in [`SendersUse::sent`]. Several of them have the same sender. Empty: the sender is not known, or several
    /// senders share this part.
    sent: Vec<usize>,
}

/// The interrupts of a CPU from other CPUs, divided by their senders. Empty without senders.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentOnCpu<'a> {
    /// In the order of time. They do not overlap.
    spans: &'a [SentSpan],
}

/// Positions in [`SendersUse::sent`], and the time of a context that these calls or interrupts started. No positions: the
/// sender is not known, or there is none.
type SentPart<'a> = (&'a [usize], u64);

impl<'a> SentOnCpu<'a> {
    /// Divides the time of a context by the senders of its interrupt. The lengths add up to the time.
    pub(crate) fn split(
        self,
        context: KernelContext,
        from_tsc: u64,
        to_tsc: u64,
    ) -> Vec<SentPart<'a>> {
        let whole: SentPart<'a> = (&[], to_tsc.saturating_sub(from_tsc));
        if sent_vector(context).is_none() {
            return vec![whole];
        }
        let first = self.spans.partition_point(|span| span.to_tsc <= from_tsc);
        let inside = self.spans[first..].iter().take_while(|span| span.from_tsc < to_tsc);
        let (mut parts, mut at_tsc) = (Vec::new(), from_tsc);
        for span in inside {
            let (from, to) = (span.from_tsc.max(at_tsc), span.to_tsc.min(to_tsc));
            parts.extend([(&[][..], from - at_tsc), (&*span.sent, to - from)]);
            at_tsc = to;
        }
        parts.push((&[], to_tsc.saturating_sub(at_tsc)));
        parts.retain(|part| part.1 > 0);
        if parts.is_empty() { vec![whole] } else { parts }
    }

    /// The senders of the first part of this time: see [`SentOnCpu::split`].
    pub(crate) fn first_sent(
        self,
        context: KernelContext,
        from_tsc: u64,
        to_tsc: u64,
    ) -> &'a [usize] {
        self.split(context, from_tsc, to_tsc).first().map_or(&[], |part| part.0)
    }
}

/// The interrupts of all CPUs of a region from other CPUs, divided by their senders.
pub(crate) struct SentInterrupts {
    by_cpu: BTreeMap<u32, Vec<SentSpan>>,
}

impl SentInterrupts {
    /// Without senders in the record, there are no interrupts.
    pub(crate) fn of_region(region: &RegionUse) -> SentInterrupts {
        let starts = starts_by_cpu(&region.senders);
        let spans_of = |cpu: &CpuUse| {
            let starts = starts.get(&cpu.cpu)?;
            Some((cpu.cpu, spans(&cpu.transitions, starts, &region.senders.sent)))
        };
        SentInterrupts { by_cpu: region.cpus.iter().filter_map(spans_of).collect() }
    }

    pub(crate) fn on_cpu(&self, cpu: u32) -> SentOnCpu<'_> {
        SentOnCpu { spans: self.by_cpu.get(&cpu).map_or(&[], |spans| spans) }
    }
}

/// The start of a queued function on a CPU, or the entry of a reschedule interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    tsc: u64,
    is_reschedule: bool,
    /// The position in [`SendersUse::sent`]. `None`: the call was not seen.
    sent: Option<usize>,
}

/// The starts on each CPU, in the order of time.
fn starts_by_cpu(senders: &SendersUse) -> BTreeMap<u32, Vec<Start>> {
    let mut by_cpu: BTreeMap<u32, Vec<Start>> = BTreeMap::new();
    let mut add = |run: &QueuedRunUse, is_reschedule, sent| {
        by_cpu.entry(run.cpu).or_default().push(Start { tsc: run.tsc, is_reschedule, sent });
    };
    for (position, sent) in senders.sent.iter().enumerate() {
        if let Some(run) = &sent.run {
            add(run, !sent.kind.is_call(), Some(position));
        }
    }
    senders.unjoined_runs.iter().for_each(|run| add(run, false, None));
    by_cpu.values_mut().for_each(|starts| starts.sort_by_key(|start| start.tsc));
    by_cpu
}

/// An interrupt from another CPU that a CPU handles.
#[derive(Default)]
struct OpenInterrupt {
    /// The times before the first start. They belong to its sender.
    before_start: Vec<(u64, u64)>,
    /// The sender of the last start. `None` before the first one.
    sent: Option<Vec<usize>>,
}

/// A context of a task on a CPU that has not ended.
struct OpenContext {
    context: KernelContext,
    interrupt: OpenInterrupt,
}

/// Divides the interrupts in the transitions of a CPU by the senders of their functions. `starts`: in the order of time.
fn spans(transitions: &[ContextTransition], starts: &[Start], sent: &[SentUse]) -> Vec<SentSpan> {
    let (reschedules, calls): (Vec<Start>, Vec<Start>) =
        starts.iter().partition(|start| start.is_reschedule);
    let (mut reschedules, mut calls) = (&reschedules[..], &calls[..]);
    let mut open_by_task: BTreeMap<u64, Vec<OpenContext>> = BTreeMap::new();
    let mut spans = Vec::new();
    for (index, transition) in transitions.iter().enumerate() {
        let open = open_by_task.entry(transition.task.code()).or_default();
        if !transition.context.is_interrupt_or_exception() {
            open.clear();
            continue;
        }
        let (from_tsc, to_tsc) =
            (transition.tsc, transitions.get(index + 1).map_or(u64::MAX, |next| next.tsc));
        let vector = sent_vector(transition.context);
        let starts = match vector {
            Some(RESCHEDULE) => take_until(&mut reschedules, 0, to_tsc),
            Some(_) => take_until(&mut calls, from_tsc, to_tsc),
            None => &[],
        };
        let position = open.iter().rposition(|outer| outer.context == transition.context);
        // An interrupt calls its functions before its softirqs. A function after them is that of another interrupt.
        let is_second = |position: usize| {
            let is_softirq =
                |nested: &OpenContext| matches!(nested.context, KernelContext::Softirq(_));
            !starts.is_empty() && open[position + 1..].iter().any(is_softirq)
        };
        match position.filter(|position| !is_second(*position)) {
            Some(position) => open.truncate(position + 1),
            None => open.push(OpenContext {
                context: transition.context,
                interrupt: OpenInterrupt::default(),
            }),
        }
        if let (Some(_), Some(innermost)) = (vector, open.last_mut()) {
            innermost.interrupt.add_time((from_tsc, to_tsc), starts, sent, &mut spans);
        }
    }
    spans.sort_by_key(|span: &SentSpan| span.from_tsc);
    spans
}

/// Removes the starts up to `to_tsc`, and returns those from `from_tsc` on. Earlier ones did not start in an interrupt.
fn take_until<'a>(starts: &mut &'a [Start], from_tsc: u64, to_tsc: u64) -> &'a [Start] {
    let (taken, left) = starts.split_at(starts.partition_point(|start| start.tsc <= to_tsc));
    *starts = left;
    &taken[taken.partition_point(|start| start.tsc < from_tsc)..]
}

impl OpenInterrupt {
    /// Adds a period in which the interrupt runs. `starts`: the functions that start in this period.
    fn add_time(
        &mut self,
        (from_tsc, to_tsc): (u64, u64),
        starts: &[Start],
        sent: &[SentUse],
        spans: &mut Vec<SentSpan>,
    ) {
        let mut at_tsc = from_tsc;
        // A function that serves several senders has several starts at one time.
        for together in starts.chunk_by(|first, second| first.tsc == second.tsc) {
            let start_tsc = together[0].tsc.clamp(at_tsc, to_tsc);
            let next = senders_of(together, sent);
            let before = self.sent.replace(next.clone());
            let earlier = std::mem::take(&mut self.before_start).into_iter();
            let times = earlier.chain([(at_tsc, start_tsc)]);
            let owner = before.unwrap_or(next);
            spans.extend(times.map(|(from_tsc, to_tsc)| {
                let sent = owner.clone();
                SentSpan { from_tsc, to_tsc, sent }
            }));
            at_tsc = start_tsc;
        }
        match &self.sent {
            Some(sent) => spans.push(SentSpan { from_tsc: at_tsc, to_tsc, sent: sent.clone() }),
            None => self.before_start.push((at_tsc, to_tsc)),
        }
    }
}

/// Positions in `sent` of what started together. Empty if a sender is not known, or if the senders differ.
fn senders_of(starts: &[Start], sent: &[SentUse]) -> Vec<usize> {
    let positions: Option<Vec<usize>> = starts.iter().map(|start| start.sent).collect();
    let positions = positions.unwrap_or_default();
    let sender = |position: &usize| sent.get(*position).and_then(sender_of);
    let first = positions.first().and_then(sender);
    let has_one_sender =
        first.is_some() && positions.iter().all(|position| sender(position) == first);
    if has_one_sender { positions } else { Vec::new() }
}

/// A sender of a vector that has a name.
struct NamedSender {
    /// The position of the name in the list.
    number: u32,
    processes: BTreeSet<u32>,
    cpus: BTreeSet<u32>,
}

/// Names for the interrupts from other CPUs, in the lists of names of `noise` and `wakeup`.
pub(crate) struct SentNames<'a> {
    accounting: &'a Accounting,
    symbols: Option<&'a Symbols>,
    sent: &'a [SentUse],
    /// By vector and sender. The sender `None` stands for all senders beyond [`SENDERS_MAX`].
    named: BTreeMap<(u8, Option<Sender>), NamedSender>,
    /// Positions in `sent` of calls and interrupts whose senders are beyond [`SENDERS_MAX`].
    sent_by_others: BTreeSet<usize>,
}

impl<'a> SentNames<'a> {
    pub(crate) fn new(
        accounting: &'a Accounting,
        region: &'a RegionUse,
        symbols: Option<&'a Symbols>,
    ) -> SentNames<'a> {
        let sent = &region.senders.sent;
        let (named, sent_by_others) = (BTreeMap::new(), BTreeSet::new());
        SentNames { accounting, symbols, sent, named, sent_by_others }
    }

    /// The number of the name of an interrupt with this sender. A name that occurs for the first time is added to `list`.
    /// `None`: the interrupt has no known sender.
    pub(crate) fn number(
        &mut self,
        context: KernelContext,
        sent: &[usize],
        list: &mut Vec<ContextName>,
    ) -> Option<u32> {
        let vector = sent_vector(context)?;
        let first = self.sent.get(*sent.first()?)?;
        let key = (vector, Some(sender_of(first)?));
        let others = (vector, None);
        let known = self.named.keys().filter(|(_, sender)| sender.is_some()).count();
        let has_name = known < SENDERS_MAX || self.named.contains_key(&key);
        if !has_name {
            self.sent_by_others.insert(*sent.first()?);
        }
        let key = if has_name { key } else { others };
        let next = NamedSender {
            number: list.len() as u32,
            processes: BTreeSet::new(),
            cpus: BTreeSet::new(),
        };
        let named = self.named.entry(key).or_insert(next);
        for sent in sent.iter().filter_map(|position| self.sent.get(*position)) {
            named.cpus.insert(sent.cpu);
            named.processes.extend(Some(sent.process).filter(|process| *process != 0));
        }
        if named.number as usize == list.len() {
            // The final name, which has all processes and CPUs, replaces this one.
            let context = context_of(context, self.accounting)?;
            list.push(ContextName::Sent(SentInterrupt {
                context,
                sender: InterruptSender::Others,
            }));
        }
        Some(named.number)
    }

    /// Gives each sender in `list` its name, with the processes and CPUs of all its interrupts that have numbers. Returns a
    /// warning if senders share a cause.
    pub(crate) fn finish(self, list: &mut [ContextName]) -> Option<String> {
        for ((_, sender), named) in &self.named {
            let Some(ContextName::Sent(sent)) = list.get_mut(named.number as usize) else {
                continue;
            };
            if let Some(sender) = sender {
                sent.sender = self.known_sender(sender, named);
            }
        }
        let beyond_names = self.sent_by_others.len() as u64;
        OtherSenders { beyond_names, ..OtherSenders::default() }.warning()
    }

    fn known_sender(&self, sender: &Sender, named: &NamedSender) -> InterruptSender {
        let name = label(sender, self.accounting);
        let processes = match named.processes.iter().collect::<Vec<_>>()[..] {
            [] => Processes::None,
            [process] => Processes::One(*process),
            [..] => Processes::Several,
        };
        // Without symbols, the function would be an address, which says nothing.
        let is_named = |function: &u64| *function == 0 || self.symbols.is_some();
        let function = sender.function.filter(is_named);
        let function = function.map(|function| called_function(function, self.symbols));
        let system_call = sender.system_call.map(|call| syscall_name(usize::from(call)));
        let reason = reason(function.as_deref(), system_call.as_deref());
        let cpus = named.cpus.iter().copied().collect();
        InterruptSender::Known { name, processes, reason, cpus }
    }
}

/// The name of the task, interrupt or softirq that sends.
pub(crate) fn sender_name(sent: &SentUse, accounting: &Accounting) -> String {
    sender_of(sent).map_or("(not known)".to_owned(), |sender| label(&sender, accounting))
}

fn label(sender: &Sender, accounting: &Accounting) -> String {
    match sender.interrupt {
        None => sender.task.clone(),
        Some(interrupt) => {
            context_of(interrupt, accounting).map_or("an interrupt".to_owned(), kind_and_name)
        }
    }
}

fn kind_and_name(context: Context) -> String {
    let context = ContextName::Context(context);
    let (kind, name) = context.kind_and_name();
    format!("{kind} {name}")
}

#[cfg(test)]
mod tests {
    use simrecord::record::SentKind;

    use super::*;

    const TASK: KernelContext = KernelContext::User(7);
    const CALLS: KernelContext = KernelContext::Interrupt(0xfb);
    const RESCHEDULES: KernelContext = KernelContext::Interrupt(RESCHEDULE);
    const TIMER: KernelContext = KernelContext::Softirq(1);
    const NMI: KernelContext = KernelContext::Nmi;

    /// What task `task` of process 10 times its length sends to CPU 1, which starts at `start`.
    fn sent(kind: SentKind, task: &str, start: u64) -> SentUse {
        let run = QueuedRunUse {
            cpu: 1,
            function: 7,
            delay_cycles: 0,
            at_cycles: start,
            cycles: None,
            tsc: start,
        };
        SentUse {
            kind,
            cpu: 0,
            target: 1,
            function: 0,
            call_site: 0,
            sender: KernelContext::Task(7),
            task: task.to_owned(),
            process: 10 * task.len() as u32,
            system_call: Some(324),
            tsc: 0,
            run: Some(run),
        }
    }

    fn call(task: &str, start: u64) -> SentUse {
        sent(SentKind::SynchronousCall, task, start)
    }

    fn region(changes: &[(u64, KernelContext)], sent: Vec<SentUse>) -> RegionUse {
        let transition = |(tsc, context): &(u64, KernelContext)| ContextTransition {
            context: *context,
            task: TASK,
            at_cycles: *tsc,
            cycles: *tsc,
            tsc: *tsc,
        };
        let transitions = changes.iter().map(transition).collect();
        RegionUse {
            cpus: vec![CpuUse { cpu: 1, transitions, ..CpuUse::default() }],
            senders: SendersUse { sent, unjoined_runs: Vec::new() },
            ..RegionUse::default()
        }
    }

    /// The parts of a context's time, by the name of the sender's task.
    fn parts(
        region: &RegionUse,
        context: KernelContext,
        from_tsc: u64,
        to_tsc: u64,
    ) -> Vec<(&str, u64)> {
        let interrupts = SentInterrupts::of_region(region);
        let name =
            |sent: &[usize]| sent.first().map_or("", |first| &*region.senders.sent[*first].task);
        let mut parts: Vec<(&str, u64)> = Vec::new();
        for (sent, length) in interrupts.on_cpu(1).split(context, from_tsc, to_tsc) {
            match parts.last_mut() {
                Some(last) if last.0 == name(sent) => last.1 += length,
                _ => parts.push((name(sent), length)),
            }
        }
        parts
    }

    #[test]
    fn an_interrupt_belongs_to_each_sender_from_the_start_of_its_function_on() {
        let changes = [
            (0, TASK),
            (100, CALLS),
            (110, NMI),
            (120, CALLS),
            (200, TIMER),
            (300, CALLS),
            (310, TASK),
        ];
        let region = region(&changes, vec![call("make", 130), call("cc", 150)]);
        // The time before the first function is that of its sender, also before the NMI.
        assert_eq!(parts(&region, CALLS, 100, 110), [("make", 10)]);
        assert_eq!(parts(&region, CALLS, 120, 200), [("make", 30), ("cc", 50)]);
        assert_eq!(parts(&region, CALLS, 300, 310), [("cc", 10)]);
        assert_eq!(parts(&region, CALLS, 140, 160), [("make", 10), ("cc", 10)]);
        assert_eq!(parts(&region, TIMER, 200, 300), [("", 100)]);
        assert_eq!(parts(&region, TASK, 0, 100), [("", 100)]);
    }

    #[test]
    fn an_interrupt_in_the_softirqs_of_another_one_has_its_own_sender() {
        let changes = [
            (0, TASK),
            (100, CALLS),
            (150, TIMER),
            (170, CALLS),
            (190, TIMER),
            (250, CALLS),
            (260, TASK),
        ];
        let region = region(&changes, vec![call("make", 120), call("cc", 180)]);
        assert_eq!(parts(&region, CALLS, 100, 150), [("make", 50)]);
        assert_eq!(parts(&region, CALLS, 170, 190), [("cc", 20)]);
    }

    #[test]
    fn an_interrupt_without_a_known_sender_is_not_given_to_another_one() {
        let changes = [
            (0, TASK),
            (100, CALLS),
            (150, TASK),
            (200, CALLS),
            (250, TASK),
            (300, RESCHEDULES),
            (350, TASK),
        ];
        // The function at 60 ran outside of interrupts, and two tasks have sent the reschedule interrupt.
        let reschedule = |task| sent(SentKind::Reschedule, task, 300);
        let all = vec![call("make", 60), call("cc", 220), reschedule("make"), reschedule("cc")];
        let region = region(&changes, all);
        assert_eq!(parts(&region, CALLS, 100, 150), [("", 50)]);
        assert_eq!(parts(&region, CALLS, 200, 250), [("cc", 50)]);
        assert_eq!(parts(&region, RESCHEDULES, 300, 350), [("", 50)]);
    }

    #[test]
    fn senders_have_the_names_of_the_live_bench() {
        let wake = SentUse {
            process: 0,
            sender: KernelContext::Softirq(1),
            system_call: None,
            ..sent(SentKind::WakeUpCall, "", 1)
        };
        let sender =
            |task, process, cpu| SentUse { process, cpu, ..sent(SentKind::Reschedule, task, 1) };
        let region = region(&[], vec![sender("make", 5, 0), sender("make", 6, 2), wake]);
        let accounting = Accounting::default();
        let mut names = SentNames::new(&accounting, &region, None);
        let mut list = Vec::new();
        let mut number = |context, position: usize| names.number(context, &[position], &mut list);
        assert_eq!([0, 1].map(|position| number(RESCHEDULES, position)), [Some(0), Some(0)]);
        assert_eq!(number(CALLS, 2), Some(1));
        assert_eq!(number(TIMER, 2), None, "no interrupt from another CPU");
        assert_eq!(names.finish(&mut list), None);
        let labels: Vec<String> = list.iter().map(|name| name.kind_and_name().1).collect();
        let expected = [
            "reschedule from make[several] (membarrier) on CPUs 0,2",
            "call_function_single from softirq TIMER (wake-up) on CPU 0",
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn senders_beyond_the_largest_number_share_a_cause_and_a_warning_says_so() {
        let task = |number: usize| sent(SentKind::Reschedule, &format!("task {number}"), 1);
        let region = region(&[], (0..=SENDERS_MAX + 1).map(task).collect());
        let accounting = Accounting::default();
        let mut names = SentNames::new(&accounting, &region, None);
        let mut list = Vec::new();
        for position in (0..=SENDERS_MAX + 1).chain([0]) {
            names.number(RESCHEDULES, &[position], &mut list);
        }
        let warning = names.finish(&mut list).unwrap_or_default();
        assert!(
            warning.starts_with("2 interrupts have the cause `from other senders`"),
            "{warning}"
        );
        assert_eq!(list.len(), SENDERS_MAX + 1);
        assert_eq!(list[SENDERS_MAX].kind_and_name().1, "reschedule from other senders");
    }
}
