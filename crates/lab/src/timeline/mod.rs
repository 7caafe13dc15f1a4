//! A timeline of single events (`--trace`): the spans, the tasks below them, and the requests that led
//! to them, in bounded memory.
//!
//! A bench makes a [`Timeline`] of each window from [`CpuEvents`]. [`table`] makes the table `timeline`, which
//! `export --format perfetto` draws.

pub mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use attribution::Context;
use serde_json::{Value as Json, json};

/// Bytes of an event in the memory that `--trace` bounds. The live bench's programs write events of this size.
pub const EVENT_BYTES: u64 = 40;
/// Smallest memory for the events of a window, bytes.
pub const BYTES_MIN: u64 = 64 << 10;
/// Largest memory for the events of all windows of a run, bytes: 2,097,152 events. A reader of runs accepts no more rows.
pub const BYTES_MAX: u64 = EVENT_BYTES << 21;

/// The activity of a CPU in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A whole span of a context, or the last part of a span that a task switch divided. Table `handlers` counts it.
    Span {
        context: Arc<Context>,
        /// Self time of the whole span, ns. On the live bench 0 for a span shorter than the probe overhead.
        self_ns: u64,
    },
    /// A part of a span that table `handlers` does not count: it began before the window, had not ended when the window
    /// closed, or continued after a task switch.
    Part { context: Arc<Context> },
    /// A task had the CPU, or nothing had.
    Task {
        /// `None`: the CPU was idle.
        name: Option<Arc<str>>,
        /// Number of tasks that could run on the CPU when this one got it, with itself. `None`: not known.
        runnable: Option<u32>,
    },
    /// Anything else, as kind and name.
    Other(&'static str, Arc<str>),
}

/// An interval on one CPU. Intervals of a CPU are one after the other, or one contains the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub cpu: u32,
    /// ns since the first window of the condition opened.
    pub start_ns: u64,
    /// Not before `start_ns`.
    pub end_ns: u64,
    pub activity: Activity,
}

/// Kind of a request, where an arrow begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A softirq was raised.
    Raise,
    /// A function call was queued for another CPU.
    Call,
    /// An interrupt was sent to another CPU.
    Send,
}

impl RequestKind {
    /// Name of the kind in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            RequestKind::Raise => "raise",
            RequestKind::Call => "call",
            RequestKind::Send => "send",
        }
    }
}

/// A request, and the time at which a CPU serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub kind: RequestKind,
    /// The CPU of the request.
    pub cpu: u32,
    /// Time of the request, ns as in [`Event`].
    pub at_ns: u64,
    /// Name of the requested softirq, function or vector.
    pub name: Arc<str>,
    /// The CPU that serves the request.
    pub target_cpu: u32,
    /// When the CPU started to serve the request: in the span, or just before its start.
    pub served_ns: u64,
    /// The contexts of the spans that can serve the request.
    pub target: Target,
}

/// The contexts whose spans serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A softirq, by number.
    Softirq(u32),
    /// A vector, by the first letters of its name.
    Vector(&'static str),
}

impl Target {
    fn includes(self, context: &Context) -> bool {
        use attribution::ContextKind::{Softirq, Vector};
        match self {
            Target::Softirq(number) => context.kind == Softirq && context.number == number,
            Target::Vector(prefix) => context.kind == Vector && context.name.starts_with(prefix),
        }
    }
}

/// The events of a CPU that ended in its window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuEvents {
    pub cpu: u32,
    pub events: Vec<Event>,
    pub requests: Vec<Request>,
    /// Number of the earliest events and requests that had no room.
    pub lost: u64,
    /// All events that ended later are kept, ns as in [`Event`]. 0 if nothing was lost.
    pub lost_until_ns: u64,
}

impl CpuEvents {
    /// Drops the events and requests that ended first, until at most `events_max` of both are left.
    pub fn keep_latest(&mut self, events_max: usize) {
        let excess = (self.events.len() + self.requests.len()).saturating_sub(events_max);
        if excess == 0 {
            return;
        }
        let ends = self.events.iter().map(|event| event.end_ns);
        let mut ends: Vec<u64> =
            ends.chain(self.requests.iter().map(|request| request.served_ns)).collect();
        // Events with the same end are dropped together, so that the kept events have no gap.
        let (_, last_lost_ns, _) = ends.select_nth_unstable(excess - 1);
        let last_lost_ns = *last_lost_ns;
        let before = self.events.len() + self.requests.len();
        self.events.retain(|event| event.end_ns > last_lost_ns);
        self.requests.retain(|request| request.served_ns > last_lost_ns);
        self.lost += (before - self.events.len() - self.requests.len()) as u64;
        self.lost_until_ns = self.lost_until_ns.max(last_lost_ns);
    }
}

/// The earliest events of a CPU that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub cpu: u32,
    pub lost: u64,
    /// End of the gap, ns since the first window of the condition opened. The gap starts at 0.
    pub until_ns: u64,
}

/// A request with the position of the event that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    pub request: Request,
    /// Position in [`Timeline::events`].
    pub target: usize,
}

/// The single events of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Sorted by CPU and start. An outer event comes before the events in it.
    pub events: Vec<Event>,
    /// Sorted by CPU and time of the request. Requests whose span is not among the events are left out.
    pub arrows: Vec<Arrow>,
    pub gaps: Vec<Gap>,
    /// Largest number of bytes of the events.
    pub bytes_max: u64,
    /// Mean CPU time of recording an event, ns. `None` on a bench that records without cost to what it measures.
    pub event_cost_ns: Option<f64>,
}

impl Timeline {
    /// The timeline of the CPUs of a window.
    #[must_use]
    pub fn new(cpus: Vec<CpuEvents>, bytes_max: u64, event_cost_ns: Option<f64>) -> Timeline {
        let gaps = cpus.iter().filter(|cpu| cpu.lost > 0);
        let gaps =
            gaps.map(|cpu| Gap { cpu: cpu.cpu, lost: cpu.lost, until_ns: cpu.lost_until_ns });
        let gaps = gaps.collect();
        let (mut events, mut requests) = (Vec::new(), Vec::new());
        for cpu in cpus {
            events.extend(cpu.events);
            requests.extend(cpu.requests);
        }
        // Both benches write an event at its end, so of two events with the same times the outer one comes later.
        events.reverse();
        events.sort_by_key(|event| (event.cpu, event.start_ns, u64::MAX - event.end_ns));
        requests.sort_by_key(|request| (request.cpu, request.at_ns));
        let arrows = joined(requests, &events);
        Timeline { events, arrows, gaps, bytes_max, event_cost_ns }
    }

    /// Number of events and requests that had no room, on all CPUs.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.lost).sum()
    }

    /// The memory for events, the numbers of kept and lost events, and the cost of an event, for the settings of a condition.
    /// Requests count as events.
    #[must_use]
    pub fn facts(&self) -> [(String, Json); 4] {
        [
            ("trace_bytes_max", json!(self.bytes_max)),
            ("trace_events", json!(self.events.len() + self.arrows.len())),
            ("trace_lost_events", json!(self.lost())),
            ("trace_event_cost_ns", json!(self.event_cost_ns)),
        ]
        .map(|(key, value)| (key.to_owned(), value))
    }

    /// A warning for each CPU that lost events.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let warning = |gap: &Gap| {
            format!(
                "the timeline of CPU {} starts {:.1} ms after the window opened: {} earlier events had no room (raise \
                 --trace, which sets the memory; counts and times in the tables are complete)",
                gap.cpu,
                gap.until_ns as f64 / 1e6,
                gap.lost
            )
        };
        self.gaps.iter().map(warning).collect()
    }
}

/// Joins each request to the span that serves it: the one of its target that contains the time of service. The time of a softirq may
/// be read just before the span starts, so without such a span it is the next one. A function call that no interrupt executes, because
/// an idle CPU polls for calls, has no span. `events` are sorted by CPU and start.
fn joined(requests: Vec<Request>, events: &[Event]) -> Vec<Arrow> {
    /// Positions of events, by CPU and start.
    type Positions = BTreeMap<(u32, u64), usize>;
    let mut by_target: Vec<(Target, Positions)> = Vec::new();
    for request in &requests {
        if by_target.iter().any(|(target, _)| *target == request.target) {
            continue;
        }
        let serves = |event: &Event| match &event.activity {
            Activity::Span { context, .. } | Activity::Part { context } => {
                request.target.includes(context)
            }
            _ => false,
        };
        let spans = events.iter().enumerate().filter(|(_, event)| serves(event));
        let spans = spans.map(|(position, event)| ((event.cpu, event.start_ns), position));
        by_target.push((request.target, spans.collect()));
    }
    let arrow = |request: Request| {
        let (_, spans) = by_target.iter().find(|(target, _)| *target == request.target)?;
        let (cpu, served_ns) = (request.target_cpu, request.served_ns);
        let last_started = spans.range((cpu, 0)..=(cpu, served_ns)).next_back();
        let around = last_started.filter(|(_, position)| events[**position].end_ns > served_ns);
        let next = || spans.range((cpu, served_ns)..=(cpu, u64::MAX)).next();
        let may_start_later = matches!(request.target, Target::Softirq(_));
        let (_, target) = around.or_else(|| next().filter(|_| may_start_later))?;
        Some(Arrow { target: *target, request })
    };
    requests.into_iter().filter_map(arrow).collect()
}

#[cfg(test)]
mod tests {
    use attribution::ContextKind;

    use super::*;

    fn span(cpu: u32, kind: ContextKind, number: u32, start_ns: u64, end_ns: u64) -> Event {
        let context = Arc::new(Context { kind, number, name: "NET_RX".to_owned() });
        let activity = Activity::Span { context, self_ns: end_ns - start_ns };
        Event { cpu, start_ns, end_ns, activity }
    }

    fn raise(cpu: u32, at_ns: u64, served_ns: u64) -> Request {
        Request {
            kind: RequestKind::Raise,
            cpu,
            at_ns,
            name: "NET_RX".into(),
            target_cpu: cpu,
            served_ns,
            target: Target::Softirq(3),
        }
    }

    #[test]
    fn a_request_is_joined_to_the_span_that_serves_it() {
        let softirq = |start, end| span(1, ContextKind::Softirq, 3, start, end);
        let events = vec![
            softirq(40, 50),
            span(1, ContextKind::Softirq, 4, 16, 18),
            softirq(10, 20),
            span(0, ContextKind::Softirq, 3, 21, 30),
        ];
        // Read in the span, just before it, and after the last span.
        let requests = vec![raise(1, 5, 12), raise(1, 25, 39), raise(1, 45, 60)];
        let cpu = CpuEvents { cpu: 1, events, requests, ..CpuEvents::default() };
        let timeline = Timeline::new(vec![cpu], 1_000, None);
        let joined = timeline.arrows.iter().map(|arrow| {
            let target = &timeline.events[arrow.target];
            (arrow.request.at_ns, target.cpu, target.start_ns)
        });
        assert_eq!(joined.collect::<Vec<_>>(), [(5, 1, 10), (25, 1, 40)]);
        assert!(timeline.warnings().is_empty());
    }

    #[test]
    fn a_call_that_no_interrupt_executes_has_no_arrow() {
        let vector = |start, end| {
            let context =
                Arc::new(Context { kind: ContextKind::Vector, number: 1, name: "call".to_owned() });
            Event {
                cpu: 1,
                start_ns: start,
                end_ns: end,
                activity: Activity::Span { context, self_ns: end - start },
            }
        };
        let call = |at_ns, served_ns| Request {
            kind: RequestKind::Call,
            cpu: 0,
            name: "function".into(),
            target: Target::Vector("call"),
            ..raise(1, at_ns, served_ns)
        };
        let events = vec![vector(10, 20), vector(40, 50)];
        // In the first interrupt, and in the idle loop between both.
        let requests = vec![call(5, 12), call(25, 30)];
        let cpu = CpuEvents { cpu: 1, events, requests, ..CpuEvents::default() };
        let timeline = Timeline::new(vec![cpu], 1_000, None);
        let [arrow] = &timeline.arrows[..] else { panic!("{:?}", timeline.arrows) };
        assert_eq!((arrow.request.at_ns, timeline.events[arrow.target].start_ns), (5, 10));
    }

    #[test]
    fn the_latest_events_are_kept_and_the_loss_is_stated() {
        let events = (0..10).map(|n| span(2, ContextKind::Softirq, 3, n * 10, n * 10 + 5));
        let requests = vec![raise(2, 1, 10), raise(2, 75, 80)];
        let mut cpu =
            CpuEvents { cpu: 2, events: events.collect(), requests, ..CpuEvents::default() };
        cpu.keep_latest(12);
        assert_eq!((cpu.events.len(), cpu.lost), (10, 0));
        cpu.keep_latest(4);
        assert_eq!((cpu.events.len(), cpu.requests.len(), cpu.lost), (3, 1, 8));
        let timeline = Timeline::new(vec![cpu], 4 * EVENT_BYTES, None);
        assert_eq!(timeline.gaps, [Gap { cpu: 2, lost: 8, until_ns: 65 }]);
        assert!(timeline.events.iter().all(|event| event.end_ns > 65));
        assert_eq!((timeline.lost(), timeline.arrows.len()), (8, 1));
        let [warning] = &timeline.warnings()[..] else { panic!("one CPU lost events") };
        let says = "the timeline of CPU 2 starts 0.0 ms after the window opened: 8 earlier events had no room (raise";
        assert!(warning.starts_with(says), "{warning}");
    }
}
