//! Table `timeline`: the events of each condition, interval by interval. Users' programs read the columns: names and order
//! must not change.

use attribution::Context;
use record::limits::ROWS_MAX;
use record::{Columns, Format, Table, TableDisplay, column};

use super::{Activity, Arrow, Event, Gap, Timeline};

/// The table's name.
pub const NAME: &str = "timeline";
/// Kind of a row that stands for events without room in the timeline.
pub const LOST: &str = "lost";

/// The event, arrow or gap that a row shows.
enum RowContent<'a> {
    Event(&'a Event),
    /// An arrow, and the number of the row that the arrow points to.
    Arrow(&'a Arrow, u64),
    Gap(&'a Gap),
}

struct Row<'a> {
    condition: &'a str,
    /// The row's number in the table, from 1. The column is named `event`.
    number: u64,
    content: RowContent<'a>,
}

impl Row<'_> {
    fn cpu(&self) -> u32 {
        match &self.content {
            RowContent::Event(event) => event.cpu,
            RowContent::Arrow(arrow, _) => arrow.request.cpu,
            RowContent::Gap(gap) => gap.cpu,
        }
    }

    fn start_ns(&self) -> u64 {
        match &self.content {
            RowContent::Event(event) => event.start_ns,
            RowContent::Arrow(arrow, _) => arrow.request.at_ns,
            RowContent::Gap(_) => 0,
        }
    }

    fn length_ns(&self) -> u64 {
        match &self.content {
            RowContent::Event(event) => event.end_ns - event.start_ns,
            RowContent::Arrow(..) => 0,
            RowContent::Gap(gap) => gap.until_ns,
        }
    }

    fn context(&self) -> Option<&Context> {
        match &self.content {
            RowContent::Event(Event { activity: Activity::Span { context, .. }, .. })
            | RowContent::Event(Event { activity: Activity::Part { context }, .. }) => {
                Some(context)
            }
            _ => None,
        }
    }

    fn kind(&self) -> &'static str {
        match &self.content {
            RowContent::Event(event) => match &event.activity {
                Activity::Span { context, .. } | Activity::Part { context } => context.kind.label(),
                Activity::Task { name: Some(_), .. } => "task",
                Activity::Task { name: None, .. } => "idle",
                Activity::Other(kind, _) => kind,
            },
            RowContent::Arrow(arrow, _) => arrow.request.kind.label(),
            RowContent::Gap(_) => LOST,
        }
    }

    fn name(&self) -> String {
        match &self.content {
            RowContent::Event(event) => match &event.activity {
                Activity::Span { context, .. } | Activity::Part { context } => context.name.clone(),
                Activity::Task { name: Some(name), .. } | Activity::Other(_, name) => {
                    name.as_ref().to_owned()
                }
                Activity::Task { name: None, .. } => "idle".to_owned(),
            },
            RowContent::Arrow(arrow, _) => arrow.request.name.as_ref().to_owned(),
            RowContent::Gap(gap) => format!("{} earlier events had no room", gap.lost),
        }
    }

    /// The self time of a whole span, ns. `None` for every other row: a part of a span has no self time of its own.
    fn self_ns(&self) -> Option<u64> {
        match &self.content {
            RowContent::Event(Event { activity: Activity::Span { self_ns, .. }, .. }) => {
                Some(*self_ns)
            }
            _ => None,
        }
    }

    /// How often table `handlers` counts the row: once for a whole span, never for a part of one. `None` for other rows.
    fn count(&self) -> Option<u64> {
        match &self.content {
            RowContent::Event(Event { activity: Activity::Span { .. }, .. }) => Some(1),
            RowContent::Event(Event { activity: Activity::Part { .. }, .. }) => Some(0),
            _ => None,
        }
    }

    fn runnable(&self) -> Option<u32> {
        match &self.content {
            RowContent::Event(Event { activity: Activity::Task { runnable, .. }, .. }) => *runnable,
            _ => None,
        }
    }

    fn target_row(&self) -> Option<u64> {
        match &self.content {
            RowContent::Arrow(_, target) => Some(*target),
            _ => None,
        }
    }
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    Columns::all([
        column("condition", "Condition: load/rate/stimulus, `ambient` (no load, no stimulus) or `command`.")
            .key()
            .text(|row: &Row<'_>| row.condition.to_owned()),
        column("event", "Number of the row.").uint(|row: &Row<'_>| row.number),
        column("cpu", "CPU of the event.").uint(Row::cpu),
        column("start_ns", "Start of the event, from the opening of the condition's first window.")
            .format(Format::Milliseconds)
            .uint(Row::start_ns),
        column(
            "length_ns",
            "Length of the event by the clock, with all events in it; on live also with the time of the probes in it. 0: \
             an event without a length.",
        )
        .format(Format::Microseconds)
        .uint(Row::length_ns),
        column(
            "self_ns",
            "Self time of the whole span: without nested spans, and on live without the probes' overhead. A span shorter than \
             that overhead has 0 here, and a negative time in the total of table handlers.",
        )
        .format(Format::Microseconds)
        .uint(Row::self_ns),
        column(
            "kind",
            "Kind of the context, `task`, `idle`, `syscall` or `function`; `raise` (of a softirq), `call` (of a function on \
             another CPU) or `send` (of an interrupt to another CPU): the begin of an arrow; `lost`: the time whose events \
             are not complete.",
        )
        .text(Row::kind),
        column("number", "IRQ number, index of the vector or softirq number.")
            .uint(|row: &Row<'_>| row.context().map(|context| context.number)),
        column("name", "Name of the context, of the task, or of the requested softirq, function or vector.").text(Row::name),
        column(
            "count",
            "1: table handlers counts the span. 0: it does not, because this is an earlier part of a span that a task \
             switch divided, or the span began before the window or had not ended when it closed.",
        )
        .uint(Row::count),
        column("runnable_count", "Tasks that could run on the CPU when this task got it, with itself.")
            .uint(Row::runnable),
        column("to_event", "Number of the row of the span that serves this request.")
            .uint(Row::target_row),
    ])
}

/// Table `timeline` of conditions, each with its label.
#[must_use]
pub fn table<'a>(conditions: impl IntoIterator<Item = (&'a str, &'a Timeline)>) -> Table {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for (condition, timeline) in conditions {
        // The number of a row is its position, from 1. So the events of this condition come first.
        let first = rows.len() as u64 + 1;
        let events = timeline.events.iter().map(RowContent::Event);
        let arrows = timeline.arrows.iter();
        let arrows = arrows.map(|arrow| RowContent::Arrow(arrow, first + arrow.target as u64));
        let contents = events.chain(arrows).chain(timeline.gaps.iter().map(RowContent::Gap));
        rows.extend((first..).zip(contents).map(|(number, content)| Row {
            condition,
            number,
            content,
        }));
    }
    rows.truncate(ROWS_MAX as usize);
    let doc = "What ran on the measured CPUs (--trace), event by event: spans of interrupts within the tasks that they \
               interrupt, and the requests that led to them.";
    let display = TableDisplay { rows_max: Some(0), ..TableDisplay::default() };
    columns().table(NAME, doc, rows).displayed(display)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use attribution::ContextKind;
    use record::Value;

    use super::*;
    use crate::timeline::{CpuEvents, Request, RequestKind, Target};

    #[test]
    fn events_have_names_and_requests_point_at_the_spans_that_serve_them() {
        let context =
            Arc::new(Context { kind: ContextKind::Softirq, number: 3, name: "NET_RX".to_owned() });
        let event = |start_ns, end_ns, activity| Event { cpu: 1, start_ns, end_ns, activity };
        let span = Activity::Span { context: Arc::clone(&context), self_ns: 9 };
        let task =
            |name: Option<&str>, runnable| Activity::Task { name: name.map(Arc::from), runnable };
        let cpu = CpuEvents {
            cpu: 1,
            events: vec![
                event(60, 70, Activity::Part { context }),
                event(20, 30, span),
                event(10, 50, task(Some("make"), Some(2))),
                event(50, 90, task(None, None)),
            ],
            requests: vec![Request {
                kind: RequestKind::Raise,
                cpu: 1,
                at_ns: 15,
                name: "NET_RX".into(),
                target_cpu: 1,
                served_ns: 19,
                target: Target::Softirq(3),
            }],
            lost: 7,
            lost_until_ns: 10,
        };
        let timeline = Timeline::new(vec![cpu], 480, None);
        let both = table([("idle", &timeline), ("busy", &timeline)]);
        let cells = |row: &[Value]| {
            let wanted = ["event", "start_ns", "length_ns", "kind", "name", "count", "to_event"];
            wanted.map(|name| both.get(row, name).unwrap().clone())
        };
        let absent = || Value::Absent;
        let row = |event: u64, start: u64, length: u64, (kind, name): (&str, &str), count, to| {
            [event.into(), start.into(), length.into(), kind.into(), name.into(), count, to]
        };
        let lost = "7 earlier events had no room";
        let expected = [
            row(1, 10, 40, ("task", "make"), absent(), absent()),
            row(2, 20, 10, ("softirq", "NET_RX"), 1.into(), absent()),
            row(3, 50, 40, ("idle", "idle"), absent(), absent()),
            row(4, 60, 10, ("softirq", "NET_RX"), 0.into(), absent()),
            row(5, 15, 0, ("raise", "NET_RX"), absent(), 2.into()),
            row(6, 0, 10, ("lost", lost), absent(), absent()),
        ];
        let found: Vec<_> = both.rows().iter().take(6).map(|row| cells(row)).collect();
        assert_eq!(found, expected);
        assert_eq!(both.get(&both.rows()[10], "to_event"), Some(&Value::from(8)));
        assert_eq!(both.check_display(), Ok(()));
    }
}
