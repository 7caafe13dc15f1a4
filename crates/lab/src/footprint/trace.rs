//! What ran around one repetition: which task or handler had the loop's CPU when (the paper's Figure 2).

use record::{Column, Kind, Table, TableDisplay, Value};
use serde::{Deserialize, Serialize};

use super::columns::{column, key_columns};
use super::sample::Verdict;
use super::what::{Level, Method, Stimulus};
use crate::noise::{ContextName, Mark, What};

/// Maximum number of intervals of a trace: a window is short.
pub const SPANS_MAX: usize = 20_000;
/// The loop itself: name and kind.
pub const LOOP: (&str, &str) = ("loop", "task");
/// Where the loop was stalled and the kernel named nothing: name and kind.
const UNNAMED: (&str, &str) = ("kernel entry and exit, host", "unnamed");

/// A repetition in times of the loop's clock, cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceTimes {
    /// When the window started.
    pub opened: u64,
    pub ended: u64,
    /// When the loop resumed after it was stalled.
    pub resumed: u64,
    /// How long it was stalled.
    pub stalled_cycles: u64,
}

/// An interval in which a CPU executed one task or handler. Times are ns from the window's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSpan {
    pub cpu: u32,
    /// Which task or handler.
    pub who: String,
    pub kind: String,
    /// Start.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
}

/// One repetition with the interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// What was filled.
    pub level: Level,
    /// What interrupted.
    pub stimulus: Stimulus,
    pub method: Method,
    /// Whether the repetition counts. Where none did, the last one is here.
    pub verdict: Verdict,
    /// CPU of the loop.
    pub cpu: u32,
    pub thread: u32,
    /// By the loop's clock.
    pub times: TraceTimes,
    /// How long the window was, ns.
    pub window_ns: u64,
    /// When the loop was stalled and when it resumed, ns from the window's start.
    pub stalled_ns: (u64, u64),
    /// What ran, on each CPU in order of time. Empty in a guest: the simulated bench fills them in.
    pub spans: Vec<TraceSpan>,
}

/// Name and kind of the loop's own measurement.
const REPETITION: (&str, &str) = ("repetition", "loop");
/// The interval in which the loop was stalled, by its own clock.
const STALLED: (&str, &str) = ("stalled", "loop");

fn columns() -> Vec<Column> {
    use Kind::{Text, Uint};
    let mut columns = key_columns();
    columns.extend([
        column("not_accepted", Text, "Why the repetition does not count; absent where it does.")
            .detail(),
        column("cpu", Uint, "The CPU; absent in what the loop measured by its own clock."),
        column("kind", Text, "Kind of the task or handler."),
        column("name", Text, "Which task or handler had the CPU."),
        column("start_ns", Uint, "Start, from the start of the repetition."),
        column("length_ns", Uint, "Length."),
    ]);
    columns
}

/// Table `trace`: what ran when in one repetition of each series.
pub(super) fn table(traces: &[Trace]) -> Table {
    let doc = "Who had each CPU when, in one repetition of each series; and what the loop measured by its own \
               clock.";
    // Hundreds of rows: for `export`.
    let display = TableDisplay { rows_max: Some(0), ..TableDisplay::default() };
    let mut table = Table::new("trace", doc, columns()).displayed(display);
    for trace in traces {
        let against: Value = trace.verdict.against().into();
        let mut push = |cpu: Option<u32>, (name, kind): (&str, &str), (from, to): (u64, u64)| {
            table.push(vec![
                trace.level.to_string().into(),
                trace.stimulus.to_string().into(),
                trace.method.to_string().into(),
                against.clone(),
                cpu.map(u64::from).into(),
                kind.into(),
                name.into(),
                from.into(),
                to.saturating_sub(from).into(),
            ]);
        };
        push(None, REPETITION, (0, trace.window_ns));
        push(None, STALLED, trace.stalled_ns);
        let mut spans: Vec<&TraceSpan> = trace.spans.iter().collect();
        spans.sort_by_key(|span| (span.cpu != trace.cpu, span.cpu));
        for span in spans {
            push(Some(span.cpu), (&span.who, &span.kind), (span.from_ns, span.to_ns));
        }
    }
    table
}

/// Name and kind of a context.
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
        ContextName::Other(kind, name) => (format!("{kind} {name}"), (*kind).to_owned()),
    }
}

/// Converts a kernel's marks on a CPU to what ran there, from 0 to `window_ns`. Times of marks are ns from
/// the window's start, and negative before it. Between its marks the loop runs, except in the interval in
/// which it was stalled by its own clock.
#[must_use]
pub fn spans(marks: &[(i64, What)], names: &[ContextName], trace: &Trace) -> Vec<TraceSpan> {
    let mut spans = Vec::new();
    let (mut stack, mut task, mut at) = (Vec::new(), None, 0);
    let mut ordered = marks.to_vec();
    ordered.sort_by_key(|(at, _)| *at);
    ordered.push((i64::MAX, What::Fault));
    for (mark_at, what) in ordered {
        let to = u64::try_from(mark_at).unwrap_or(0).min(trace.window_ns);
        let who = stack.last().copied().or(task);
        for (from, to, who) in pieces((at, to), who, trace.stalled_ns) {
            let of = |who: u32| names.get(who as usize).map(words);
            let (name, kind) = match who {
                Who::Loop => (LOOP.0.to_owned(), LOOP.1.to_owned()),
                Who::Unnamed => (UNNAMED.0.to_owned(), UNNAMED.1.to_owned()),
                Who::Source(number) => of(number).unwrap_or_default(),
            };
            if spans.len() < SPANS_MAX {
                spans.push(TraceSpan { cpu: trace.cpu, who: name, kind, from_ns: from, to_ns: to });
            }
        }
        at = at.max(to);
        match what {
            What::Enter(source) => stack.push(source),
            What::Leave(source) => {
                if let Some(place) = stack.iter().rposition(|one| *one == source) {
                    stack.truncate(place);
                }
            }
            What::SwitchTo(other) => task = Some(other),
            What::SwitchBack => task = None,
            What::Fault => {}
        }
    }
    spans
}

/// What ran in a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Loop,
    Unnamed,
    Source(u32),
}

/// An interval without a mark, cut where the loop was stalled and where it resumed.
fn pieces(
    (from, to): (u64, u64),
    who: Option<u32>,
    (stopped, resumed): (u64, u64),
) -> impl Iterator<Item = (u64, u64, Who)> {
    let cut = |at: u64| at.clamp(from, to.max(from));
    let of = |unnamed| who.map_or(unnamed, Who::Source);
    let cuts = match who {
        Some(_) => [(from, to, of(Who::Loop)), (to, to, Who::Loop), (to, to, Who::Loop)],
        None => [
            (from, cut(stopped), Who::Loop),
            (cut(stopped), cut(resumed), Who::Unnamed),
            (cut(resumed), to, Who::Loop),
        ],
    };
    cuts.into_iter().filter(|(from, to, _)| from < to)
}

/// Marks of one CPU as [`spans`] takes them; `start_ns` is the window's start by the marks' clock.
#[must_use]
pub fn from_start(marks: &[(u32, Mark)], cpu: u32, start_ns: u64) -> Vec<(i64, What)> {
    let there = marks.iter().filter(|(on, _)| *on == cpu);
    there.map(|(_, mark)| (mark.at_ns.wrapping_sub(start_ns).cast_signed(), mark.what)).collect()
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
    fn marks_become_stretches_end_to_end() {
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
            found.iter().map(|one| (one.who.as_str(), one.from_ns, one.to_ns)).collect();
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
        /// Whatever the marks: intervals lie end to end and fill the window.
        #[test]
        fn stretches_fill_the_window(
            marks in prop::collection::vec((-50..400_i64, 0..5_u8, 0..4_u32), 0..40),
            window in 1..300_u64, stop in (0..300_u64, 0..300_u64),
        ) {
            let marks: Vec<(i64, What)> = marks.into_iter().map(|(at, what, who)| (at, match what {
                0 => What::Enter(who),
                1 => What::Leave(who),
                2 => What::SwitchTo(who),
                3 => What::SwitchBack,
                _ => What::Fault,
            })).collect();
            let stopped = (stop.0.min(stop.1), stop.0.max(stop.1));
            let found = spans(&marks, &names(), &trace(window, stopped));
            prop_assert_eq!(found.first().map(|one| one.from_ns), Some(0));
            prop_assert_eq!(found.last().map(|one| one.to_ns), Some(window));
            prop_assert!(found.windows(2).all(|two| two[0].to_ns == two[1].from_ns));
        }
    }
}
