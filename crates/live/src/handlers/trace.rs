//! The timeline of a live window: names the single events of the BPF programs (`bpf/trace.h`), and converts them to
//! `lab::timeline`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use attribution::Context;
use attribution::context::SOFTIRQS;
use lab::handlers::CpuWindow;
use lab::timeline::{Activity, CpuEvents, Event, Request, RequestKind, Target, Timeline};

use super::convert::context_of;
use crate::bpf::CountedRow;
use crate::bpf::layout::{
    DEPTH_MAX, KEY_NMI, TRACE_CALL, TRACE_PART, TRACE_RAISE, TRACE_RUNNABLE_UNKNOWN, TRACE_SEND,
    TRACE_SPAN, TRACE_TASK, TRACE_TYPE_BITS, TraceEvent,
};
use crate::bpf::trace::TracedCpu;
use crate::host::{KernelFunctions, Root};

/// Name of the vector whose senders are joined by time.
const RESCHEDULE: &str = "reschedule";
/// First letters of the names of the vectors that run queued function calls.
const CALL_FUNCTION: &str = "call_function";

/// The type of an event, without the number of tasks in it.
fn type_of(event: &TraceEvent) -> u32 {
    event.event & ((1 << TRACE_TYPE_BITS) - 1)
}

/// Names of contexts, by key and object.
struct Names {
    /// Also by CPU: an IRQ line has a row on each CPU.
    by_row: HashMap<(u32, u32, u64), Arc<Context>>,
    /// From any CPU: a part of a work item's span may be on a CPU without a row of the function.
    by_key: HashMap<(u32, u64), Arc<Context>>,
    functions: KernelFunctions,
}

impl Names {
    fn new(rows: &[CountedRow], root: &Root, functions: KernelFunctions) -> Names {
        let (mut by_row, mut by_key) = (HashMap::new(), HashMap::new());
        for row in rows {
            let Some((context, _)) = context_of(row, root, &functions) else { continue };
            let context = Arc::new(context);
            by_key.insert((row.key, row.object), Arc::clone(&context));
            by_row.insert((row.cpu, row.key, row.object), context);
        }
        Names { by_row, by_key, functions }
    }

    /// The context of a span's or a part's event. `None` for keys of the bench itself.
    fn context(&self, cpu: u32, event: &TraceEvent) -> Option<Arc<Context>> {
        // The programs do not look up the object of the NMI's row.
        let object = if event.key == KEY_NMI { 0 } else { event.words[1] };
        let of_row = self.by_row.get(&(cpu, event.key, object));
        of_row.or_else(|| self.by_key.get(&(event.key, object))).cloned()
    }
}

/// The addresses of the functions that events and rows name.
fn functions_of(traced: &[TracedCpu], rows: &[CountedRow]) -> BTreeSet<u64> {
    let events = traced.iter().flat_map(|cpu| &cpu.events);
    let calls = events.filter(|event| type_of(event) == TRACE_CALL).map(|event| event.words[0]);
    let rows = rows.iter().map(|row| row.object);
    calls.chain(rows).filter(|address| *address != 0).collect()
}

/// Name of a task, from the bytes of its event.
fn task_name(words: [u64; 2]) -> Arc<str> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into()
}

/// The timeline of the windows. `rows`: the rows of the same windows, which name the contexts.
pub(super) fn timeline_of(
    traced: Vec<TracedCpu>,
    rows: &[CountedRow],
    windows: &[CpuWindow],
    root: &Root,
    bytes_max: u64,
) -> Timeline {
    let opened_ns = windows.iter().filter_map(|window| window.start_ns).min().unwrap_or(0);
    let functions = KernelFunctions::find(root, &functions_of(&traced, rows));
    let names = Names::new(rows, root, functions);
    let is_measured = |traced: &TracedCpu| windows.iter().any(|window| window.cpu == traced.cpu);
    let traced: Vec<TracedCpu> = traced.into_iter().filter(is_measured).collect();
    let (timed, timed_ns) = traced
        .iter()
        .fold((0, 0), |(timed, timed_ns), cpu| (timed + cpu.timed, timed_ns + cpu.timed_ns));
    let event_cost_ns = (timed > 0).then(|| timed_ns as f64 / timed as f64);
    let mut sends = Vec::new();
    let mut cpus: Vec<CpuEvents> =
        traced.into_iter().map(|cpu| events_of(cpu, opened_ns, &names, &mut sends)).collect();
    add_sends(&mut cpus, &sends);
    Timeline::new(cpus, bytes_max, event_cost_ns)
}

/// A reschedule interrupt that was sent.
#[derive(Clone, Copy, Debug)]
struct Send {
    cpu: u32,
    /// ns since the first window opened.
    at_ns: u64,
    target_cpu: u32,
}

/// The events of a CPU. Adds the reschedule interrupts that it sent to `sends`.
fn events_of(traced: TracedCpu, opened_ns: u64, names: &Names, sends: &mut Vec<Send>) -> CpuEvents {
    let TracedCpu { cpu, mut events, mut lost, .. } = traced;
    let mut lost_until_ns = 0;
    if lost > 0 {
        // An event of an interrupt in the middle of a program is written before that program's own event, which ended
        // earlier. So the lost events ended before the last of the first ones.
        let first = events.iter().take(DEPTH_MAX).map(|event| event.end_ns);
        lost_until_ns = first.max().unwrap_or(0);
        let before = events.len();
        events.retain(|event| event.end_ns > lost_until_ns);
        lost += (before - events.len()) as u64;
    }
    let since_opened = |ns: u64| ns.saturating_sub(opened_ns);
    let lost_until_ns = since_opened(lost_until_ns);
    let mut converted = CpuEvents { cpu, lost, lost_until_ns, ..CpuEvents::default() };
    let mut task_names: HashMap<[u64; 2], Arc<str>> = HashMap::new();
    for event in &events {
        let (start_ns, end_ns) = (since_opened(event.start_ns), since_opened(event.end_ns));
        let request = |kind, cpu, name, target| Request {
            kind,
            cpu,
            at_ns: start_ns,
            name,
            target_cpu: converted.cpu,
            served_ns: end_ns,
            target,
        };
        let activity = match type_of(event) {
            TRACE_SPAN => {
                let Some(context) = names.context(cpu, event) else { continue };
                Activity::Span { context, self_ns: event.words[0] }
            }
            TRACE_PART => {
                let Some(context) = names.context(cpu, event) else { continue };
                Activity::Part { context }
            }
            TRACE_TASK => {
                let runnable = event.event >> TRACE_TYPE_BITS;
                let name = || {
                    Arc::clone(
                        task_names.entry(event.words).or_insert_with(|| task_name(event.words)),
                    )
                };
                Activity::Task {
                    name: (event.key != 0).then(name),
                    runnable: (runnable != TRACE_RUNNABLE_UNKNOWN).then_some(runnable),
                }
            }
            TRACE_RAISE => {
                let Some(name) = SOFTIRQS.get(event.key as usize) else { continue };
                let target = Target::Softirq(event.key);
                let raise = request(RequestKind::Raise, cpu, (*name).into(), target);
                converted.requests.push(raise);
                continue;
            }
            TRACE_CALL => {
                let function = names.functions.name(event.words[0]).into();
                let target = Target::Vector(CALL_FUNCTION);
                let call = request(RequestKind::Call, event.key, function, target);
                converted.requests.push(call);
                continue;
            }
            TRACE_SEND => {
                sends.push(Send { cpu, at_ns: start_ns, target_cpu: event.key });
                continue;
            }
            _ => continue,
        };
        converted.events.push(Event { cpu, start_ns, end_ns, activity });
    }
    converted
}

/// Adds a request for each reschedule interrupt that was sent after the start of the span before, and not after the start of
/// a span on its target. Interrupts that are sent before the target handles one of them are one interrupt.
fn add_sends(cpus: &mut [CpuEvents], sends: &[Send]) {
    let mut starts: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for event in cpus.iter().flat_map(|cpu| &cpu.events) {
        if let Activity::Span { context, .. } = &event.activity
            && context.name == RESCHEDULE
        {
            starts.entry(event.cpu).or_default().insert(event.start_ns);
        }
    }
    for send in sends {
        let lost_until_ns =
            |cpu: &CpuEvents| cpu.cpu == send.target_cpu && send.at_ns < cpu.lost_until_ns;
        if cpus.iter().any(lost_until_ns) {
            continue;
        }
        let spans = starts.get(&send.target_cpu);
        let served_ns = spans.and_then(|spans| spans.range(send.at_ns..).next());
        let sender = cpus.iter_mut().find(|cpu| cpu.cpu == send.cpu);
        let Some((&served_ns, sender)) = served_ns.zip(sender) else { continue };
        sender.requests.push(Request {
            kind: RequestKind::Send,
            cpu: send.cpu,
            at_ns: send.at_ns,
            name: RESCHEDULE.into(),
            target_cpu: send.target_cpu,
            served_ns,
            target: Target::Vector(RESCHEDULE),
        });
    }
}

#[cfg(test)]
mod tests {
    use attribution::ContextKind;
    use attribution::key::{KEY_SOFTIRQ, KEY_VECTOR};

    use super::*;

    fn names() -> Names {
        let context =
            |kind, number, name: &str| Arc::new(Context { kind, number, name: name.to_owned() });
        let known = [
            (KEY_SOFTIRQ + 3, context(ContextKind::Softirq, 3, "NET_RX")),
            (KEY_VECTOR + 1, context(ContextKind::Vector, 1, RESCHEDULE)),
        ];
        let by_key = known.into_iter().map(|(key, context)| ((key, 0), context)).collect();
        let functions = KernelFunctions::find(&Root::default(), &BTreeSet::new());
        Names { by_row: HashMap::new(), by_key, functions }
    }

    fn event(kind: u32, key: u32, start_ns: u64, end_ns: u64) -> TraceEvent {
        TraceEvent { start_ns, end_ns, words: [7, 0], key, event: kind }
    }

    fn traced(cpu: u32, events: Vec<TraceEvent>, lost: u64) -> TracedCpu {
        TracedCpu { cpu, events, lost, timed: 0, timed_ns: 0 }
    }

    fn convert(cpus: Vec<TracedCpu>) -> Timeline {
        let (names, mut sends) = (names(), Vec::new());
        let mut cpus: Vec<CpuEvents> =
            cpus.into_iter().map(|cpu| events_of(cpu, 1_000, &names, &mut sends)).collect();
        add_sends(&mut cpus, &sends);
        Timeline::new(cpus, 1 << 16, None)
    }

    #[test]
    fn events_have_names_and_raises_point_at_their_runs() {
        let mut task = event(TRACE_TASK | 2 << TRACE_TYPE_BITS, 50, 1_000, 1_900);
        task.words = [u64::from_ne_bytes(*b"make\0\0\0\0"), 0];
        let idle = event(TRACE_TASK | TRACE_RUNNABLE_UNKNOWN << TRACE_TYPE_BITS, 0, 1_900, 2_000);
        let softirq = KEY_SOFTIRQ + 3;
        let events = vec![
            event(TRACE_RAISE, 3, 1_050, 1_099),
            event(TRACE_SPAN, softirq, 1_100, 1_200),
            event(TRACE_PART, softirq, 1_300, 1_400),
            task,
            idle,
        ];
        let timeline = convert(vec![traced(1, events, 0)]);
        let activities: Vec<_> =
            timeline.events.iter().map(|event| (event.start_ns, &event.activity)).collect();
        let [(0, Activity::Task { name: Some(name), runnable: Some(2) }), span, part, idle] =
            &activities[..]
        else {
            panic!("{activities:?}")
        };
        assert_eq!(&**name, "make");
        assert!(matches!(span, (100, Activity::Span { self_ns: 7, .. })), "{span:?}");
        assert!(matches!(part, (300, Activity::Part { .. })), "{part:?}");
        assert_eq!(*idle, (900, &Activity::Task { name: None, runnable: None }));
        let [arrow] = &timeline.arrows[..] else { panic!("{:?}", timeline.arrows) };
        assert_eq!((arrow.request.at_ns, arrow.target), (50, 1));
    }

    #[test]
    fn a_reschedule_interrupt_points_at_the_next_one_that_its_target_handles() {
        let reschedule = KEY_VECTOR + 1;
        let sends = [1_010, 1_020, 1_150, 1_500].map(|at_ns| event(TRACE_SEND, 1, at_ns, at_ns));
        let spans = vec![
            event(TRACE_SPAN, reschedule, 1_100, 1_120),
            event(TRACE_SPAN, reschedule, 1_200, 1_220),
        ];
        let timeline = convert(vec![traced(0, sends.to_vec(), 0), traced(1, spans, 0)]);
        let joined = timeline.arrows.iter().map(|arrow| (arrow.request.at_ns, arrow.target));
        assert_eq!(joined.collect::<Vec<_>>(), [(10, 0), (20, 0), (150, 1)]);
    }

    #[test]
    fn a_gap_ends_with_the_latest_of_the_first_events() {
        let softirq = KEY_SOFTIRQ + 3;
        let events = (0..20).map(|n| event(TRACE_SPAN, softirq, 2_000 + n, 2_010 + n)).collect();
        let timeline = convert(vec![traced(0, events, 5)]);
        assert_eq!((timeline.events.len(), timeline.lost()), (4, 5 + 16));
        assert_eq!(timeline.gaps[0].until_ns, 1_025);
    }
}
