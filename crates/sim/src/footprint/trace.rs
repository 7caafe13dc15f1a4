//! Fills the trace of a repetition from the simulator's context transitions: which context ran on each CPU, and when.
//! The bench calls it for each traced repetition.

use attribution::KernelContext;
use lab::footprint::trace::{LOOP, SPANS_MAX, Trace, TraceSpan, words};

use crate::accounting::{Accounting, ContextTransition, CpuUse};
use crate::contexts::source_name;

/// Fills in the spans of a trace. The guest has reported the times of the window as values of its time-stamp counter,
/// which counts ns.
///
/// Fails when no region has a context transition of the loop's CPU before the window: the context at its start would
/// be unknown.
pub(super) fn fill(trace: &mut Trace, account: &Accounting) -> Result<(), String> {
    let times = trace.times;
    let since_opened = |tsc: u64| tsc.saturating_sub(times.opened);
    trace.window_ns = since_opened(times.ended);
    trace.stalled_ns = (
        since_opened(times.resumed.saturating_sub(times.stalled_cycles)),
        since_opened(times.resumed),
    );
    let of_loop = |cpu: &&CpuUse| cpu.cpu == trace.cpu;
    let is_before = |cpu: &CpuUse| {
        cpu.transitions.first().is_some_and(|transition| transition.tsc <= times.opened)
    };
    let mut regions = account.regions.iter().rev();
    let region = regions.find(|region| region.cpus.iter().find(of_loop).is_some_and(is_before));
    let region = region.ok_or("no trace: no context transition was recorded before it")?;
    trace.spans.clear();
    for cpu in &region.cpus {
        let spans = spans(cpu, trace, account);
        trace.spans.extend(spans);
    }
    drop_later_spans(&mut trace.spans);
    Ok(())
}

/// Drops the latest spans of all CPUs if there are more than [`SPANS_MAX`].
fn drop_later_spans(spans: &mut Vec<TraceSpan>) {
    if spans.len() > SPANS_MAX {
        spans.sort_by_key(|span| span.from_ns);
        spans.truncate(SPANS_MAX);
        spans.sort_by_key(|span| (span.cpu, span.from_ns));
    }
}

/// Returns the spans of a CPU in the trace's window, in ns since it opened. Neighbours with one name are one span.
fn spans(cpu: &CpuUse, trace: &Trace, account: &Accounting) -> Vec<TraceSpan> {
    let (from, to) = (trace.times.opened, trace.times.ended);
    let mut spans: Vec<TraceSpan> = Vec::new();
    for (position, transition) in cpu.transitions.iter().enumerate() {
        let ends = cpu.transitions.get(position + 1).map_or(to, |next| next.tsc);
        let (start, end) = (transition.tsc.max(from), ends.min(to));
        if start >= end {
            continue;
        }
        let (who, kind) = who(transition, trace, account);
        let (from_ns, to_ns) = (start - from, end - from);
        match spans.last_mut() {
            Some(last) if last.who == who && last.to_ns == from_ns => last.to_ns = to_ns,
            _ => spans.push(TraceSpan { cpu: cpu.cpu, who, kind, from_ns, to_ns }),
        }
    }
    spans
}

/// Returns the name and the kind of a context, as the table of traces shows them.
fn who(transition: &ContextTransition, trace: &Trace, account: &Accounting) -> (String, String) {
    if transition.context == KernelContext::User(trace.thread) {
        return (LOOP.0.to_owned(), LOOP.1.to_owned());
    }
    words(&source_name(transition.context, transition.task, account))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::RegionUse;
    use lab::footprint::trace::TraceTimes;
    use lab::footprint::{Level, Method, Stimulus, Verdict};

    fn transition(context: KernelContext, tsc: u64) -> ContextTransition {
        ContextTransition { context, task: KernelContext::User(7), at_cycles: 0, cycles: 0, tsc }
    }

    #[test]
    fn the_latest_spans_of_all_cpus_are_dropped() {
        let span = |cpu, from_ns| TraceSpan {
            cpu,
            who: String::new(),
            kind: String::new(),
            from_ns,
            to_ns: from_ns + 1,
        };
        let all =
            (0..2).flat_map(|cpu| (0..SPANS_MAX as u64).map(move |from_ns| span(cpu, from_ns)));
        let mut spans: Vec<_> = all.collect();
        drop_later_spans(&mut spans);
        let of_cpu = |cpu| spans.iter().filter(|span| span.cpu == cpu).count();
        assert_eq!([of_cpu(0), of_cpu(1)], [SPANS_MAX / 2; 2]);
        assert!(spans.is_sorted_by_key(|span| (span.cpu, span.from_ns)));
    }

    #[test]
    fn transitions_in_the_window_become_spans_of_each_cpu() {
        let (loop_context, irq) = (KernelContext::User(7), KernelContext::Irq(30));
        let cpu = |cpu, transitions| CpuUse { cpu, transitions, ..CpuUse::default() };
        let loop_cpu = cpu(
            1,
            vec![
                transition(loop_context, 900),
                transition(irq, 1100),
                transition(loop_context, 1200),
                transition(loop_context, 1300),
            ],
        );
        let other_cpu = cpu(0, vec![transition(KernelContext::Idle, 950)]);
        let late = RegionUse {
            cpus: vec![cpu(1, vec![transition(loop_context, 5000)])],
            ..RegionUse::default()
        };
        let early = RegionUse { cpus: vec![other_cpu, loop_cpu], ..RegionUse::default() };
        let account = Accounting { regions: vec![early, late], ..Accounting::default() };
        let times = TraceTimes { opened: 1000, ended: 1500, resumed: 1210, stalled_cycles: 120 };
        let mut trace = Trace {
            level: Level::L1d,
            stimulus: Stimulus::Disk,
            method: Method::Refined,
            verdict: Verdict::Accepted,
            cpu: 1,
            thread: 7,
            times,
            window_ns: 0,
            stalled_ns: (0, 0),
            spans: Vec::new(),
        };
        fill(&mut trace, &account).unwrap();
        assert_eq!((trace.window_ns, trace.stalled_ns), (500, (90, 210)));
        let seen: Vec<_> =
            trace.spans.iter().map(|span| (span.cpu, span.from_ns, span.to_ns)).collect();
        assert_eq!(seen, [(0, 0, 500), (1, 0, 100), (1, 100, 200), (1, 200, 500)]);
        assert_eq!((trace.spans[1].who.as_str(), trace.spans[2].kind.as_str()), ("loop", "irq"));
        trace.times.opened = 10;
        assert!(fill(&mut trace, &account).is_err());
    }
}
