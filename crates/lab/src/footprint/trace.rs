//! A traced repetition: which task or handler ran when on each CPU (the paper's Figure 2), and table `trace`.
//!
//! The live bench makes the spans from the kernel's marks ([`spans`]). On the simulated bench, the guest returns a
//! trace without spans, and `sim` fills them in from the simulator's context transitions. [`Trace`] is a wire format:
//! the names of its fields must not change.

use record::{Columns, Table, TableDisplay, column};
use serde::{Deserialize, Serialize};

use super::columns::key_columns;
use super::sample::Verdict;
use super::what::{Level, Method, Stimulus};
use crate::noise::{ContextName, Mark, What};

/// Maximum number of spans in a trace. Later spans are dropped.
pub const SPANS_MAX: usize = 20_000;
/// Name and kind of the loop's spans.
pub const LOOP: (&str, &str) = ("loop", "task");
/// Name and kind of a span in which the loop was stalled and no mark says why.
const UNNAMED: (&str, &str) = ("kernel entry and exit, host", "unnamed");

/// Times of a repetition, in cycles of the loop's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceTimes {
    /// Time when the window started.
    pub opened: u64,
    /// Time when the window ended.
    pub ended: u64,
    /// Time when the loop resumed after it was stalled.
    pub resumed: u64,
    /// How long the loop was stalled, with the interrupted chunk.
    pub stalled_cycles: u64,
}

/// An interval in which a CPU executes one task or handler. Times are ns from the window's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSpan {
    pub cpu: u32,
    /// Name of the task or handler.
    pub who: String,
    /// Kind of the task or handler, such as `task` or `irq`.
    pub kind: String,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// A trace of one treatment repetition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    pub level: Level,
    pub stimulus: Stimulus,
    pub method: Method,
    /// Whether the repetition counts. If no repetition counted, the trace shows the last one that was tried.
    pub verdict: Verdict,
    /// CPU that runs the loop.
    pub cpu: u32,
    /// Thread id of the loop.
    pub thread: u32,
    pub times: TraceTimes,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// When the stall of the loop started and ended, ns from the window's start.
    pub stalled_ns: (u64, u64),
    /// The spans of each CPU, in order of time. A guest leaves them empty.
    pub spans: Vec<TraceSpan>,
}

/// Name and kind of the row for the whole window, by the loop's clock.
const REPETITION: (&str, &str) = ("repetition", "loop");
/// Name and kind of the row for the loop's stall, by the loop's clock.
const STALLED: (&str, &str) = ("stalled", "loop");

/// A row of table `trace`: an interval, ns from the start of the repetition.
struct Row<'a> {
    trace: &'a Trace,
    /// `None`: the loop measured the interval by its own clock.
    cpu: Option<u32>,
    name: &'a str,
    kind: &'a str,
    from_ns: u64,
    to_ns: u64,
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    let key = |row: &Row<'_>| (row.trace.level, row.trace.stimulus, row.trace.method);
    key_columns().of(key).and([
        column("not_accepted", "Why the repetition does not count; absent if it counts.")
            .detail()
            .text(|row: &Row<'_>| row.trace.verdict.against()),
        column("cpu", "CPU; absent in rows that the loop measured by its own clock.")
            .uint(|row: &Row<'_>| row.cpu),
        column("kind", "Kind of the task or handler.").text(|row: &Row<'_>| row.kind.to_owned()),
        column("name", "Task or handler that the CPU executed.")
            .text(|row: &Row<'_>| row.name.to_owned()),
        column("start_ns", "Start, from the start of the repetition.")
            .uint(|row: &Row<'_>| row.from_ns),
        column("length_ns", "Length.").uint(|row: &Row<'_>| row.to_ns.saturating_sub(row.from_ns)),
    ])
}

/// Table `trace`: which task or handler ran when, in one repetition of each series.
pub(super) fn table(traces: &[Trace]) -> Table {
    let doc = "Tasks and handlers of each CPU over time, in one repetition of each series; and the loop's own \
               measurement by its clock.";
    // The table has hundreds of rows. A terminal shows none of them; `export` writes them.
    let display = TableDisplay { rows_max: Some(0), ..TableDisplay::default() };
    let mut rows = Vec::new();
    for trace in traces {
        let mut push = |cpu, (name, kind), (from_ns, to_ns)| {
            rows.push(Row { trace, cpu, name, kind, from_ns, to_ns });
        };
        push(None, REPETITION, (0, trace.window_ns));
        push(None, STALLED, trace.stalled_ns);
        let mut spans: Vec<&TraceSpan> = trace.spans.iter().collect();
        // The loop's CPU comes first.
        spans.sort_by_key(|span| (span.cpu != trace.cpu, span.cpu));
        for span in spans {
            push(Some(span.cpu), (&span.who, &span.kind), (span.from_ns, span.to_ns));
        }
    }
    columns().table("trace", doc, rows).displayed(display)
}

/// Name and kind of a context, as [`TraceSpan`] has them.
#[must_use]
pub fn words(name: &ContextName) -> (String, String) {
    match name {
        ContextName::Context(context) => {
            let kind = context.kind.label();
            (
                format!("{kind} {} {}", context.number, context.name).trim_end().to_owned(),
                kind.to_owned(),
            )
        }
        ContextName::Task(name) => (name.clone(), "task".to_owned()),
        ContextName::Sent(sent) => {
            let kind = sent.context.kind.label();
            (format!("{kind} {} {}", sent.context.number, sent.label()), kind.to_owned())
        }
        ContextName::Other(kind, name) => (format!("{kind} {name}"), (*kind).to_owned()),
    }
}

/// Converts the marks of the loop's CPU to spans from 0 to `window_ns`. A mark's time is ns from the window's start,
/// and negative before the window. The position in `names` is the number of a context or task in the marks. Where no
/// mark names a task or handler, the loop runs, except during `stalled_ns`.
#[must_use]
pub fn spans(marks: &[(i64, What)], names: &[ContextName], trace: &Trace) -> Vec<TraceSpan> {
    let mut spans = Vec::new();
    let (mut stack, mut task, mut last_mark_ns) = (Vec::new(), None, 0);
    let mut ordered = marks.to_vec();
    ordered.sort_by_key(|(mark_ns, _)| *mark_ns);
    // An extra mark ends the last span. `What::Fault` changes neither stack nor task.
    ordered.push((i64::MAX, What::Fault));
    for (mark_ns, what) in ordered {
        let mark_ns = u64::try_from(mark_ns).unwrap_or(0).min(trace.window_ns);
        let innermost = stack.last().copied().or(task);
        let between_marks = (last_mark_ns, mark_ns);
        for (from_ns, to_ns, runner) in pieces(between_marks, innermost, trace.stalled_ns) {
            let (who, kind) = match runner {
                Runner::Loop => (LOOP.0.to_owned(), LOOP.1.to_owned()),
                Runner::Unnamed => (UNNAMED.0.to_owned(), UNNAMED.1.to_owned()),
                Runner::Named(number) => names.get(number as usize).map(words).unwrap_or_default(),
            };
            if spans.len() < SPANS_MAX {
                spans.push(TraceSpan { cpu: trace.cpu, who, kind, from_ns, to_ns });
            }
        }
        last_mark_ns = last_mark_ns.max(mark_ns);
        match what {
            What::Enter(context) => stack.push(context),
            What::Leave(context) => {
                if let Some(depth) = stack.iter().rposition(|entered| *entered == context) {
                    stack.truncate(depth);
                }
            }
            What::SwitchTo(switched_to) => task = Some(switched_to),
            What::SwitchBack => task = None,
            What::Fault | What::Wake(_) => {}
        }
    }
    spans
}

/// The task or handler that a CPU executes in a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    Loop,
    /// The kernel or the host, without a mark.
    Unnamed,
    /// The context or task with this index in the names.
    Named(u32),
}

/// Splits the interval between two marks into pieces that are not empty. With a context or task that runs (`named`),
/// the interval stays whole. Otherwise, the loop runs except between `stalled` and `resumed`.
fn pieces(
    (from, to): (u64, u64),
    named: Option<u32>,
    (stalled, resumed): (u64, u64),
) -> impl Iterator<Item = (u64, u64, Runner)> {
    let clamp = |time_ns: u64| time_ns.clamp(from, to.max(from));
    let (stalled, resumed) = (clamp(stalled), clamp(resumed));
    let pieces = match named {
        Some(number) => vec![(from, to, Runner::Named(number))],
        None => vec![
            (from, stalled, Runner::Loop),
            (stalled, resumed, Runner::Unnamed),
            (resumed, to, Runner::Loop),
        ],
    };
    pieces.into_iter().filter(|(from, to, _)| from < to)
}

/// The marks of one CPU, with times from the window's start, as [`spans`] needs them. `start_ns`: the start of the
/// window, by the clock of the marks.
#[must_use]
pub fn from_start(marks: &[(u32, Mark)], cpu: u32, start_ns: u64) -> Vec<(i64, What)> {
    let of_cpu = marks.iter().filter(|(mark_cpu, _)| *mark_cpu == cpu);
    of_cpu.map(|(_, mark)| (mark.at_ns.wrapping_sub(start_ns).cast_signed(), mark.what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attribution::{Context, ContextKind};
    use proptest::prelude::*;

    fn trace(window_ns: u64, stalled_ns: (u64, u64)) -> Trace {
        Trace {
            level: Level::L1d,
            stimulus: Stimulus::Disk,
            method: Method::Refined,
            verdict: Verdict::Accepted,
            cpu: 1,
            thread: 7,
            times: TraceTimes::default(),
            window_ns,
            stalled_ns,
            spans: Vec::new(),
        }
    }

    fn names() -> Vec<ContextName> {
        let irq = Context { kind: ContextKind::HardIrq, number: 30, name: "virtio3".to_owned() };
        let soft = Context { kind: ContextKind::Softirq, number: 4, name: "block".to_owned() };
        vec![
            ContextName::Context(irq),
            ContextName::Context(soft),
            ContextName::Task("kworker/1".to_owned()),
        ]
    }

    #[test]
    fn marks_become_contiguous_intervals() {
        let marks = [
            (-5, What::SwitchBack),
            (120, What::Enter(0)),
            (150, What::Leave(0)),
            (160, What::Enter(1)),
            (165, What::Enter(0)),
            (166, What::Leave(0)),
            (180, What::Leave(1)),
            (182, What::SwitchTo(2)),
            (190, What::SwitchBack),
        ];
        let found = spans(&marks, &names(), &trace(300, (100, 200)));
        let seen: Vec<(&str, u64, u64)> =
            found.iter().map(|span| (span.who.as_str(), span.from_ns, span.to_ns)).collect();
        let (irq, soft) = (words(&names()[0]).0, words(&names()[1]).0);
        let expect = [
            ("loop", 0, 100),
            (UNNAMED.0, 100, 120),
            (&irq, 120, 150),
            (UNNAMED.0, 150, 160),
            (&soft, 160, 165),
            (&irq, 165, 166),
            (&soft, 166, 180),
            (UNNAMED.0, 180, 182),
            ("kworker/1", 182, 190),
            (UNNAMED.0, 190, 200),
            ("loop", 200, 300),
        ];
        assert_eq!(seen, expect);
    }

    proptest! {
        #[test]
        fn intervals_of_any_marks_are_contiguous_and_fill_the_window(
            marks in prop::collection::vec((-50..400_i64, 0..5_u8, 0..4_u32), 0..40),
            window in 1..300_u64, stop in (0..300_u64, 0..300_u64),
        ) {
            let marks: Vec<(i64, What)> = marks.into_iter().map(|(mark_ns, what, source)| (mark_ns, match what {
                0 => What::Enter(source),
                1 => What::Leave(source),
                2 => What::SwitchTo(source),
                3 => What::SwitchBack,
                _ => What::Fault,
            })).collect();
            let stalled = (stop.0.min(stop.1), stop.0.max(stop.1));
            let found = spans(&marks, &names(), &trace(window, stalled));
            prop_assert_eq!(found.first().map(|span| span.from_ns), Some(0));
            prop_assert_eq!(found.last().map(|span| span.to_ns), Some(window));
            prop_assert!(found.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
        }
    }
}
