//! Causes of interrupts from other CPUs: the tasks that sent the function calls that run in an interrupt, or the
//! reschedule interrupt itself.

use std::collections::BTreeMap;

use attribution::{Context, ContextKind, KernelContext};
use lab::handlers::Party;

use super::parties::Parties;
use crate::accounting::{CpuUse, QueuedRunUse, SpanUse};

const RESCHEDULE: KernelContext = KernelContext::Interrupt(0xfd);
const CALL_FUNCTION: [KernelContext; 2] =
    [KernelContext::Interrupt(0xfc), KernelContext::Interrupt(0xfb)];

/// How the causes of a context are found, in words for the table. `None`: they are not.
pub(super) fn cause_method(context: &Context) -> Option<&'static str> {
    match (context.kind, &*context.name) {
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
    /// By the span's position in [`CpuUse::spans`]. Each span of a function call has a cause, which may be unknown.
    by_span: BTreeMap<usize, Vec<Party>>,
}

impl Causes {
    pub(super) fn on_cpu(cpu: &CpuUse, parties: &Parties<'_>) -> Causes {
        let senders = &parties.region.senders;
        let calls = Starts::of(cpu, |context| CALL_FUNCTION.contains(&context));
        let reschedules = Starts::of(cpu, |context| context == RESCHEDULE);
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
        Causes { by_span }
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

/// The start, the end and the position of spans of some contexts, in the order of the starts.
struct Starts {
    spans: Vec<(u64, u64, usize)>,
}

impl Starts {
    fn of(cpu: &CpuUse, is_wanted: impl Fn(KernelContext) -> bool) -> Starts {
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
        let by = VictimsBy::Task;
        Causes::on_cpu(cpu, &Parties { by, accounting: &accounting, region: &region })
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
