//! Causes of interrupts: the tasks that sent the function calls that run in an interrupt, or the reschedule interrupt itself,
//! and the tasks that submitted the block requests which complete in an interrupt or softirq.

use std::collections::{BTreeMap, BTreeSet};

use attribution::{Context, ContextKind, KernelContext};
use lab::handlers::Party;

use super::parties::Parties;
use crate::accounting::{CompletionUse, CpuUse, QueuedRunUse, SpanUse};

const RESCHEDULE: KernelContext = KernelContext::Interrupt(0xfd);
const BLOCK: u8 = 4;
const CALL_FUNCTION: [KernelContext; 2] =
    [KernelContext::Interrupt(0xfc), KernelContext::Interrupt(0xfb)];

/// How the causes of a context are found, in words for the table. `None`: they are not. `completes_requests`: whether block
/// requests complete in a span of the context.
pub(super) fn cause_method(context: &Context, completes_requests: bool) -> Option<&'static str> {
    match (context.kind, &*context.name) {
        (ContextKind::Softirq | ContextKind::HardIrq, _) if completes_requests => Some(
            "who submitted the block requests that complete in the span (simulator), by their number",
        ),
        (ContextKind::Vector, "call_function" | "call_function_single") => {
            Some("senders of the function calls in the span (simulator), by their number")
        }
        (ContextKind::Vector, "reschedule") => {
            Some("the sender of the interrupt (simulator), if there is one only")
        }
        _ => None,
    }
}

/// The causes of the spans of a CPU.
pub(super) struct Causes {
    /// The causes of a span, by its position in [`CpuUse::spans`]. A span with function calls or completed block requests has
    /// causes, which may be unknown.
    by_span: BTreeMap<usize, Vec<Party>>,
    /// Positions of spans with completed block requests.
    with_requests: BTreeSet<usize>,
}

impl Causes {
    pub(super) fn on_cpu(cpu: &CpuUse, parties: &Parties<'_>) -> Causes {
        let senders = &parties.region.senders;
        let calls = Starts::find(cpu, |context| CALL_FUNCTION.contains(&context));
        let reschedules = Starts::find(cpu, |context| context == RESCHEDULE);
        let mut by_span: BTreeMap<usize, Vec<Party>> = BTreeMap::new();
        let mut add = |span: Option<usize>, cause| {
            if let Some(span) = span {
                by_span.entry(span).or_default().push(cause);
            }
        };
        let is_here = |run: &&QueuedRunUse| run.cpu == cpu.cpu;
        for sent in &senders.sent {
            let Some(run) = sent.run.as_ref().filter(is_here) else { continue };
            let span = if sent.kind.is_call() {
                calls.containing(run.at_cycles)
            } else {
                reschedules.entered(run.at_cycles)
            };
            add(span, parties.sender(sent));
        }
        for run in senders.unjoined_runs.iter().filter(is_here) {
            add(calls.containing(run.at_cycles), Party::Unknown);
        }
        let has_one_sender = |causes: &[Party]| causes.iter().all(|cause| *cause == causes[0]);
        for (span, causes) in &mut by_span {
            if cpu.spans[*span].context == RESCHEDULE && !has_one_sender(causes) {
                *causes = vec![Party::Unknown];
            }
        }
        let mut with_requests = BTreeSet::new();
        for ((span, _), completion) in completed_requests(cpu) {
            with_requests.insert(span);
            by_span.entry(span).or_default().push(parties.submitter(completion));
        }
        Causes { by_span, with_requests }
    }

    /// Whether block requests complete in a span.
    pub(super) fn completes_requests(&self, span: usize) -> bool {
        self.with_requests.contains(&span)
    }

    /// The time of a span, divided among its causes by the number of their calls. A span without a known cause has the cause
    /// [`Party::Unknown`]. The parts add up to `self_ns`.
    pub(super) fn divide(&self, span: usize, self_ns: u64) -> Vec<(Party, u64)> {
        let Some(causes) = self.by_span.get(&span) else { return vec![(Party::Unknown, self_ns)] };
        let mut counts: BTreeMap<&Party, u64> = BTreeMap::new();
        causes.iter().for_each(|cause| *counts.entry(cause).or_default() += 1);
        let (mut left_ns, mut left_count) = (self_ns, causes.len() as u64);
        let parts = counts.into_iter().map(|(cause, count)| {
            let share = u128::from(left_ns) * u128::from(count) / u128::from(left_count);
            let share_ns = u64::try_from(share).unwrap_or(left_ns);
            (left_ns, left_count) = (left_ns - share_ns, left_count - count);
            (cause.clone(), share_ns)
        });
        parts.collect()
    }
}

/// The block requests that complete in softirq BLOCK and in handlers of IRQ lines, by the position of the span and by the
/// request. An interrupt may ask for the completion of a request and complete it, too: this counts once.
fn completed_requests(cpu: &CpuUse) -> BTreeMap<(usize, u64), &CompletionUse> {
    let is_interrupt = |context| {
        matches!(
            context,
            KernelContext::Interrupt(_) | KernelContext::Irq(_) | KernelContext::Softirq(_)
        )
    };
    let starts = Starts::find(cpu, is_interrupt);
    let nested = starts.nested();
    let mut completed = BTreeMap::new();
    for completion in &cpu.completions {
        let span = starts.innermost(&nested, completion.at_cycles);
        if let Some(span) = span.filter(|span| completes(cpu.spans[*span].context)) {
            completed.entry((span, completion.request)).or_insert(completion);
        }
    }
    completed
}

/// Whether the completion of a block request is a cause of this context. The vector around a device's handler is not: a task
/// that its return path switches to may run in the middle of its span, so its recorded start is not the real one.
fn completes(context: KernelContext) -> bool {
    matches!(context, KernelContext::Irq(_) | KernelContext::Softirq(BLOCK))
}

/// The start, the end and the position of spans of some contexts, in the order of the starts.
struct Starts {
    spans: Vec<(u64, u64, usize)>,
}

impl Starts {
    fn find(cpu: &CpuUse, is_wanted: impl Fn(KernelContext) -> bool) -> Starts {
        let wanted = cpu.spans.iter().enumerate().filter(|(_, span)| is_wanted(span.context));
        let times = |(index, span): (usize, &SpanUse)| {
            let end = span.ended_at_cycles;
            (end.saturating_sub(span.inclusive_cycles), end, index)
        };
        let mut spans: Vec<_> = wanted.map(times).collect();
        spans.sort_unstable();
        Starts { spans }
    }

    /// The innermost span at a time. `None` outside of all spans.
    ///
    /// While an interrupt calls its functions, no other interrupt comes: that happens only in its softirqs, which run later.
    /// The innermost span at the start of a function is therefore the last one that started.
    fn containing(&self, at_cycles: u64) -> Option<usize> {
        let after = self.spans.partition_point(|(start, _, _)| *start <= at_cycles);
        let (_, end, index) = self.spans[..after].last()?;
        (*end >= at_cycles).then_some(*index)
    }

    /// For each span, the position in `self.spans` of the span around it, if there is one.
    fn nested(&self) -> Vec<Option<usize>> {
        let mut open: Vec<usize> = Vec::new();
        let around = |(position, (start, ..)): (usize, &(u64, u64, usize))| {
            while open.last().is_some_and(|outer| self.spans[*outer].1 <= *start) {
                open.pop();
            }
            let outer = open.last().copied();
            open.push(position);
            outer
        };
        self.spans.iter().enumerate().map(around).collect()
    }

    /// The innermost span at a time, also after spans within it. `nested`: the result of [`Starts::nested`].
    fn innermost(&self, nested: &[Option<usize>], at_cycles: u64) -> Option<usize> {
        let after = self.spans.partition_point(|(start, _, _)| *start <= at_cycles);
        let mut position = after.checked_sub(1)?;
        while self.spans[position].1 < at_cycles {
            position = nested[position]?;
        }
        Some(self.spans[position].2)
    }

    /// The span that starts at a time. On a core of several threads, the time may be before the start that the span has.
    fn entered(&self, at_cycles: u64) -> Option<usize> {
        let after = self.spans.partition_point(|(start, _, _)| *start < at_cycles);
        self.spans.get(after).map(|(_, _, index)| *index)
    }
}

#[cfg(test)]
mod tests {
    use lab::handlers::VictimsBy;
    use simrecord::record::SentKind;

    use super::*;
    use crate::Accounting;
    use crate::accounting::{RegionUse, SendersUse, SentUse};

    fn sent(kind: SentKind, task: &str, at_cycles: u64) -> SentUse {
        SentUse {
            kind,
            cpu: 0,
            target: 1,
            function: 7,
            call_site: 0,
            sender: KernelContext::Task(7),
            task: task.to_owned(),
            process: 7,
            system_call: None,
            tsc: 0,
            run: Some(QueuedRunUse {
                cpu: 1,
                function: 7,
                delay_cycles: 0,
                at_cycles,
                cycles: Some(1),
                tsc: 0,
            }),
        }
    }

    fn span(context: KernelContext, start: u64, ended_at_cycles: u64) -> SpanUse {
        SpanUse {
            context,
            ended_at_cycles,
            self_cycles: 9,
            inclusive_cycles: ended_at_cycles - start,
            self_instructions: 0,
        }
    }

    fn causes(cpu: &CpuUse, sent: Vec<SentUse>) -> Causes {
        let senders = SendersUse { sent, unjoined_runs: Vec::new() };
        let region = RegionUse { senders, ..RegionUse::default() };
        let accounting = Accounting::default();
        let (accounting, region) = (&accounting, &region);
        Causes::on_cpu(cpu, &Parties { by: VictimsBy::Task, accounting, region })
    }

    #[test]
    fn calls_of_a_span_share_its_time_by_their_number() {
        let call = SentKind::SynchronousCall;
        let softirq = SentUse { sender: KernelContext::Softirq(1), ..sent(call, "", 130) };
        let sends = ["make", "cc", "make"].into_iter().zip([110, 120, 125]);
        let mut all: Vec<SentUse> = sends.map(|(task, at)| sent(call, task, at)).collect();
        all.extend([softirq, sent(call, "idle wakes", 300), sent(call, "nested", 150)]);
        let cpu = CpuUse {
            cpu: 1,
            // The second interrupt comes in the softirqs of the first one.
            spans: vec![span(CALL_FUNCTION[1], 145, 160), span(CALL_FUNCTION[1], 100, 200)],
            ..CpuUse::default()
        };
        let causes = causes(&cpu, all);
        let task = |name: &str| Party::Task(name.to_owned());
        let expected = vec![(task("cc"), 25), (task("make"), 50), (Party::Unknown, 26)];
        assert_eq!(causes.divide(1, 101), expected);
        assert_eq!(causes.divide(0, 9), [(task("nested"), 9)]);
    }

    #[test]
    fn requests_that_complete_in_a_span_share_its_time_by_their_number() {
        let disk = KernelContext::Irq(24);
        let spans = vec![
            span(disk, 110, 120),
            span(KernelContext::Softirq(1), 160, 170),
            span(KernelContext::Softirq(BLOCK), 150, 300),
            span(KernelContext::Interrupt(0x22), 100, 310),
        ];
        let completion = |request, at_cycles, task: &str| CompletionUse {
            request,
            at_cycles,
            submitter: KernelContext::Task(7),
            task: task.to_owned(),
            group: 0,
        };
        let unknown = CompletionUse { submitter: KernelContext::Unknown, ..completion(5, 290, "") };
        let completions = vec![
            // The disk's interrupt asks for the completion of a request, and completes it.
            completion(1, 112, "dd"),
            completion(1, 113, "dd"),
            completion(2, 115, "cc"),
            completion(1, 155, "dd"),
            // Requests do not complete in another softirq, or in the vector outside of its handler.
            completion(3, 165, "dd"),
            completion(3, 305, "dd"),
            completion(2, 180, "cc"),
            unknown,
        ];
        let cpu = CpuUse { cpu: 1, spans, completions, ..CpuUse::default() };
        let causes = causes(&cpu, Vec::new());
        let task = |name: &str| Party::Task(name.to_owned());
        assert_eq!(causes.divide(0, 10), [(task("cc"), 5), (task("dd"), 5)]);
        let block = [(task("cc"), 3), (task("dd"), 3), (Party::Unknown, 3)];
        assert_eq!(causes.divide(2, 9), block);
        assert_eq!(causes.divide(1, 9), [(Party::Unknown, 9)]);
        let with_requests = [0, 1, 2, 3].map(|span| causes.completes_requests(span));
        assert_eq!(with_requests, [true, false, true, false]);
    }

    #[test]
    fn a_reschedule_interrupt_of_several_tasks_has_no_known_cause() {
        let times = [("make", 100), ("cc", 100), ("make", 300), ("make", 300)];
        let sent = times.map(|(task, at)| sent(SentKind::Reschedule, task, at)).to_vec();
        let spans = vec![span(RESCHEDULE, 100, 150), span(RESCHEDULE, 300, 350)];
        let cpu = CpuUse { cpu: 1, spans, ..CpuUse::default() };
        let causes = causes(&cpu, sent);
        assert_eq!(causes.divide(0, 9), [(Party::Unknown, 9)]);
        assert_eq!(causes.divide(1, 9), [(Party::Task("make".to_owned()), 9)]);
    }
}
