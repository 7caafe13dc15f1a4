//! Writes spans when they end, and transitions between contexts. Notices when a region has measured enough spans. The
//! session calls [`Spans::write_ended`] after each event of a vCPU's tracker.

use attribution::{ContextTransition, KernelSpan};

use crate::guest::close_time::CloseTime;
use crate::guest::delays::DelayEnd;
use crate::guest::enough::WindowProgress;
use crate::guest::tracker::Tracker;
use crate::time::clock::Clock;
use crate::writer::Writer;
use plugin_interface::options::Options;
use simrecord::counters::{COUNTERS, CYCLES, INSTRUCTIONS, TIME};
use simrecord::record::{CountersOf, Delay, Record, SPAN_COUNTS_MAX, Span, Transition};

/// The spans of a recording.
#[derive(Debug)]
pub(crate) struct Spans {
    are_written: bool,
    /// How many further spans are written with their counters.
    with_counters: u32,
    /// The spans of the open region. `None`: no rule for spans ends a region early.
    measured: Option<WindowProgress>,
    close_time: CloseTime,
    /// For each vCPU, when spans of the open region start to count for `measured`, in cycles of its time.
    counted_from: Vec<u64>,
}

/// The vCPU and the region that spans belong to.
#[derive(Clone, Copy)]
pub(crate) struct SpanSource {
    pub(crate) vcpu: u32,
    /// The number of the region of interest.
    pub(crate) region: u32,
}

impl Spans {
    /// Makes `tracker` keep spans and transitions if the options ask for them.
    pub(crate) fn new(options: &Options, tracker: &mut Tracker) -> Spans {
        let stop_rule = options.until.filter(|rule| rule.enough.needs_spans());
        for cpu in &mut tracker.cpus {
            if options.spans || stop_rule.is_some() {
                cpu.stack.keep_spans();
            }
            if options.transitions {
                cpu.stack.keep_transitions();
            }
        }
        Spans {
            are_written: options.spans,
            with_counters: if options.span_counts { SPAN_COUNTS_MAX } else { 0 },
            measured: stop_rule.map(|rule| WindowProgress::new(rule.enough)),
            close_time: CloseTime::new(stop_rule.map_or(0, |rule| rule.warm_up_ns)),
            counted_from: Vec::new(),
        }
    }

    /// Starts to measure a region, which opens. `counted_from`: for each vCPU, the time from which its spans count for
    /// the rule that ends the region early, in cycles.
    pub(crate) fn open_region(&mut self, counted_from: Vec<u64>) {
        if let Some(measured) = &mut self.measured {
            measured.restart();
        }
        self.close_time.restart();
        self.counted_from = counted_from;
    }

    /// Whether the open region closes now, because it has measured enough. `open_ns`: how long it has been open.
    pub(crate) fn end_region(&mut self, open_ns: u64) -> bool {
        let Some(measured) = &self.measured else { return false };
        self.close_time.is_due(open_ns, || measured.is_enough())
    }

    /// Writes the spans and transitions that the last event of a vCPU's tracker has caused.
    pub(crate) fn write_ended(
        &mut self,
        source: SpanSource,
        tracker: &mut Tracker,
        clock: &Clock,
        writer: &mut Writer,
    ) {
        let vcpu = source.vcpu;
        let stack = &mut tracker.cpus[vcpu as usize].stack;
        for span in stack.take_spans() {
            if let Some(measured) = &mut self.measured
                && self.counted_from.get(vcpu as usize).is_some_and(|from| span.start >= *from)
            {
                measured.add(&span);
            }
            if !self.are_written {
                continue;
            }
            writer.write(&span_row(source, &span));
            if self.with_counters > 0 {
                self.with_counters -= 1;
                writer.counters_without_zeros(vcpu, CountersOf::Span, &span.self_counts);
            }
        }
        for end in tracker.delays.take_ended() {
            writer.write(&delay_row(source, &end));
        }
        tracker.requests.take_records().iter().for_each(|record| writer.write(record));
        tracker.groups.take_records().iter().for_each(|record| writer.write(record));
        tracker.senders.take_records().iter().for_each(|record| writer.write(record));
        let stack = &mut tracker.cpus[vcpu as usize].stack;
        for transition in stack.take_transitions() {
            let tsc = clock.tsc_at(vcpu, &transition.at);
            writer.write(&transition_row(source, &transition, tsc));
        }
    }
}

/// The record of a span. Its start is the end minus the inclusive cycles, so that readers get the end of a span whose task was
/// switched out. A span may have moved from another CPU with another time: then the difference may be negative, and wraps.
fn span_row(SpanSource { vcpu: cpu, region }: SpanSource, span: &KernelSpan<COUNTERS>) -> Record {
    Record::Span(Span {
        cpu,
        region,
        code: span.context.code(),
        start: span.end.wrapping_sub(span.inclusive[CYCLES]),
        self_cycles: span.self_counts[CYCLES],
        inclusive_cycles: span.inclusive[CYCLES],
        self_instructions: span.self_counts[INSTRUCTIONS],
        inclusive_instructions: span.inclusive[INSTRUCTIONS],
    })
}

/// The record of a delay.
fn delay_row(SpanSource { vcpu: cpu, region }: SpanSource, end: &DelayEnd) -> Record {
    let DelayEnd { context, events, at, cycles } = *end;
    Record::Delay(Delay { cpu, region, code: context.code(), events, at, cycles })
}

/// The record of a transition. `tsc`: the time of the transition by the time-stamp counter.
fn transition_row(
    SpanSource { vcpu: cpu, region }: SpanSource,
    transition: &ContextTransition<COUNTERS>,
    tsc: u64,
) -> Record {
    let (code, task) = (transition.context.code(), transition.task.code());
    let (at, cycles) = (transition.at[TIME], transition.at[CYCLES]);
    Record::Transition(Transition { cpu, region, code, task, at, cycles, tsc })
}

#[cfg(test)]
mod tests {
    use attribution::KernelContext;

    use super::*;

    fn recorded_end(start: u64, end: u64, inclusive_cycles: u64) -> u64 {
        let mut inclusive = [0; COUNTERS];
        inclusive[CYCLES] = inclusive_cycles;
        let context = KernelContext::Exception(14);
        let span = KernelSpan { context, start, end, self_counts: inclusive, inclusive };
        match span_row(SpanSource { vcpu: 0, region: 1 }, &span) {
            Record::Span(row) => row.ended_at(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_recorded_end_is_the_real_one() {
        assert_eq!(recorded_end(100, 150, 50), 150);
        assert_eq!(recorded_end(100, 900, 50), 900, "its task was switched out");
        assert_eq!(recorded_end(1_000, 20, 50), 20, "it ended on a CPU with an earlier time");
    }
}
