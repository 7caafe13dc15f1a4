//! The BPF programs, run in the kernel on synthetic events. The tests compare the span stack with its model, the
//! histogram's layout with `stats`, and the counts of shared lines. Needs the rights to load BPF programs.

use std::sync::Mutex;

use attribution::stack::{ClosedSpan, DEPTH_MAX, SpanStack};
use attribution::{ContextKey, ContextKind};
use live::bpf::layout::{
    BATCHES, Config, CpuOverheads, KEY_BENCH, KEY_IRQ, Learning, NestedTimes, OVERHEAD_UNIT_SHIFT,
    RATIO_SHIFT, ROWS_RESERVED, SECTION_SLOTS, SECTIONS, TRACE_SPAN, TraceEvent, VICTIMS_BY_CGROUP,
};
use live::bpf::rows::ROWS_MAX;
use live::bpf::{
    BpfError, CountedRow, Flavour, KnownContexts, LoadSpec, Maps, Probes, RowLayout, TraceLayout,
};
use proptest::prelude::*;

const CPU: u32 = 0;
const ENTER: u64 = 1;
const EXIT: u64 = 2;
const RAN_SINCE: u64 = 3;
const ENTER_INTERRUPTED: u64 = 4;
const EXIT_INTERRUPTED: u64 = 5;
const EXIT_LATE: u64 = 6;

/// Loads `programs` with `rows` rows; `None`, with the reason printed, if that is not permitted.
fn load(flavour: Flavour, rows: u32, programs: &[&str]) -> Option<Probes> {
    load_with(Config::default(), flavour, rows, programs)
}

fn load_with(config: Config, flavour: Flavour, rows: u32, programs: &[&str]) -> Option<Probes> {
    let maps = Maps::New(&RowLayout::same(&[CPU], rows));
    permitted(Probes::load(&LoadSpec { flavour, config, maps, programs }))
}

/// The loaded programs; `None`, with the reason printed, if loading is not permitted.
fn permitted(loaded: Result<Probes, BpfError>) -> Option<Probes> {
    match loaded {
        Ok(probes) => Some(probes),
        Err(BpfError::NotPermitted(reason)) => {
            needs::not_run(needs::Need::Bpf, reason);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn drive(probes: &Probes, operation: u64, key: u64, now_ns: u64) -> u32 {
    probes.run_on(CPU, "drive", [operation, key, now_ns, 0, 0, 0, 0]).expect("drive runs")
}

/// Drives an operation during which a hard IRQ comes.
fn drive_interrupted(probes: &Probes, operation: u64, key: u64, now_ns: u64, irq: &Irq) -> u32 {
    let (from, again) = (now_ns + irq.after, now_ns + irq.after + irq.length + irq.back);
    let arguments = [operation, key, now_ns, irq.key, from, from + irq.length, again];
    probes.run_on(CPU, "drive", arguments).expect("drive runs")
}

fn rows(probes: &Probes) -> Vec<CountedRow> {
    let rows = probes.rows().expect("rows");
    assert!(rows.iter().all(|row| row.cpu == CPU), "no other CPU has rows");
    rows
}

/// Starts again with the window open. No program is attached, so only driven operations count.
fn start_over(probes: &Probes) {
    probes.clear().expect("clear");
    probes.open_gate(CPU).expect("gate");
}

/// Loading takes most of a case's time, so all cases share one object.
static SHARED: Mutex<Option<Probes>> = Mutex::new(None);

#[derive(Clone, Copy, Debug)]
struct Event {
    enter: bool,
    key: u64,
    gap: u64,
    /// A hard IRQ during the probe, and whether it comes after an exit has computed its sums.
    irq: Option<(Irq, bool)>,
}

/// A hard IRQ that comes `after` ns after the probe has read the clock. The probe can read the
/// clock again `back` ns after the IRQ's end.
#[derive(Clone, Copy, Debug)]
struct Irq {
    key: u64,
    after: u64,
    length: u64,
    back: u64,
}

/// Keys of the IRQs during probes. They differ from the events' keys, whose exits they would match.
const IRQ_KEYS: std::ops::Range<u64> = 96..99;

fn any_event() -> impl Strategy<Value = Event> {
    let key = prop_oneof![1u64..4, 32u64..35, 64u64..67];
    let irq = (IRQ_KEYS, 0u64..50, 1u64..10_000_000, 1u64..50, any::<bool>());
    let irq =
        irq.prop_map(|(key, after, length, back, late)| (Irq { key, after, length, back }, late));
    (any::<bool>(), key, 1u64..100_000_000, prop::option::weighted(0.3, irq))
        .prop_map(|(enter, key, gap, irq)| Event { enter, key, gap, irq })
}

/// Drives all events from `start` on.
fn drive_all(probes: &Probes, events: &[Event], start: u64) {
    let mut now = start;
    for event in events {
        now += event.gap;
        match event.irq {
            None => drive(probes, if event.enter { ENTER } else { EXIT }, event.key, now),
            Some((irq, late)) => {
                let operation = match (event.enter, late) {
                    (true, _) => ENTER_INTERRUPTED,
                    (false, true) => EXIT_LATE,
                    (false, false) => EXIT_INTERRUPTED,
                };
                let ended = drive_interrupted(probes, operation, event.key, now, &irq);
                now += irq.after + irq.length + irq.back;
                ended
            }
        };
    }
}

/// The model's sums of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    count: u64,
    own: u64,
    inclusive: u64,
    longest: u64,
    nested: u64,
}

fn model_sums(events: &[Event], start: u64) -> (Vec<Sums>, SpanStack<u64>) {
    let mut stack = SpanStack::default();
    let (mut sums, mut now) = (vec![Sums::default(); 128], start);
    for event in events {
        now += event.gap;
        let ends = run_in_model(&mut stack, event, &mut now);
        for span in ends.into_iter().flatten() {
            let sum = &mut sums[span.key as usize];
            sum.count += 1;
            sum.own += span.self_time;
            sum.inclusive += span.inclusive_time;
            sum.longest = sum.longest.max(span.self_time);
            sum.nested += u64::from(span.descendants > 0);
        }
    }
    (sums, stack)
}

/// Executes an event and its IRQ in the model, one after the other. A span starts after
/// an IRQ in its entry probe. It ends after an IRQ in its exit probe, or before an IRQ
/// that comes after its end.
fn run_in_model(
    stack: &mut SpanStack<u64>,
    event: &Event,
    now: &mut u64,
) -> [Option<ClosedSpan<u64>>; 2] {
    let operation = |stack: &mut SpanStack<u64>, now| {
        if event.enter {
            stack.enter(event.key, now);
            return None;
        }
        stack.exit(event.key, now)
    };
    let Some((irq, late)) = event.irq else { return [operation(stack, *now), None] };
    // A probe without a frame or an entry does nothing that an IRQ could disturb, and does not read
    // the clock again. The same holds if the IRQ finds no frame.
    let has_frame = stack.depth() + usize::from(event.enter) < DEPTH_MAX;
    let is_open = event.enter || stack.open().any(|key| key == event.key);
    let from = *now + irq.after;
    let (at, to) = (*now, from + irq.length);
    *now = to + irq.back;
    let interrupt = |stack: &mut SpanStack<u64>| {
        stack.enter(irq.key, from);
        stack.exit(irq.key, to)
    };
    match (event.enter, late) {
        (true, _) if stack.depth() == DEPTH_MAX => [operation(stack, at), None],
        (true, _) if !has_frame => {
            // The IRQ is refused inside of the claimed frame.
            let entered = operation(stack, at);
            [entered, interrupt(stack)]
        }
        (true, _) => {
            let ended = interrupt(stack);
            [ended, operation(stack, *now)]
        }
        (false, true) if !is_open => [operation(stack, at), None],
        (false, true) if stack.depth() == DEPTH_MAX && stack.open().last() == Some(event.key) => {
            let refused = interrupt(stack);
            [refused, operation(stack, at)]
        }
        (false, true) => {
            let ended = operation(stack, at);
            [ended, interrupt(stack)]
        }
        (false, false) => {
            let refused = stack.depth() == DEPTH_MAX;
            let ended = interrupt(stack);
            [ended, operation(stack, if refused { at } else { *now })]
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The program and the model agree on any sequence: sums, faults, and open spans.
    #[test]
    fn the_kernels_stack_is_the_models(events in prop::collection::vec(any_event(), 0..120)) {
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if shared.is_none() {
            *shared = load(Flavour::Btf, 32, &["drive"]);
        }
        let Some(probes) = shared.as_ref() else { return Ok(()) };
        start_over(probes);
        let start = probes.states().expect("states")[CPU as usize].armed_ns;
        drive_all(probes, &events, start);
        let (model, stack) = model_sums(&events, start);
        let state = probes.states().expect("states")[CPU as usize];
        let mut seen = vec![Sums::default(); 128];
        for row in rows(probes) {
            let alone: u64 = row.slots.iter().sum();
            let nested = |pick: fn(&NestedTimes) -> &[u64]| -> u64 {
                row.nested.as_ref().map_or(0, |nested| pick(nested).iter().sum())
            };
            prop_assert_eq!(alone + nested(|times| &times.self_time), row.count);
            prop_assert_eq!(nested(|times| &times.inclusive_time), row.nested_count);
            let in_batches =
                row.batches.iter().fold((0, 0), |(n, s), batch| (n + batch.count, s + batch.sum));
            prop_assert_eq!(in_batches, (row.count, row.sum));
            let per_section = row.batches.chunks(BATCHES / SECTIONS);
            let of_batches: Vec<u64> =
                per_section.map(|batches| batches.iter().map(|batch| batch.count).sum()).collect();
            let sections = row.sections.chunks(SECTION_SLOTS);
            let of_sections: Vec<u64> =
                sections.map(|slots| slots.iter().map(|count| u64::from(*count)).sum()).collect();
            prop_assert_eq!(of_sections, of_batches);
            seen[row.key as usize] = Sums {
                count: row.count,
                own: row.sum,
                inclusive: row.inclusive_sum_ns(),
                longest: row.max,
                nested: row.nested_count,
            };
        }
        prop_assert_eq!(seen, model);
        let faults = stack.faults();
        prop_assert_eq!(state.unmatched_exits, faults.unmatched_exits);
        prop_assert_eq!(state.abandoned, faults.abandoned);
        prop_assert_eq!(state.overflows, faults.overflows);
        let frames = state.frames[..state.depth as usize].iter();
        let open: Vec<u64> = frames.map(|frame| u64::from(frame.key)).collect();
        prop_assert_eq!(open, stack.open().collect::<Vec<_>>());
    }
}

/// Every power of two, its neighbours and its middle fall into the slot that `stats` names.
#[test]
fn the_histograms_layout_is_that_of_stats() {
    let Some(probes) = load(Flavour::Btf, 32, &["drive"]) else {
        return;
    };
    for power in 0..37u32 {
        for value in [(1u64 << power) - 1, 1 << power, (1 << power) + 1, 3u64 << power >> 1] {
            start_over(&probes);
            let start = probes.states().expect("states")[CPU as usize].armed_ns;
            drive(&probes, ENTER, 1, start);
            drive(&probes, EXIT, 1, start + value);
            let row = rows(&probes).pop().expect("one row");
            let slot = row.slots.iter().position(|count| *count == 1);
            assert_eq!(slot, Some(stats::histogram::slot_of(value)), "{value}");
            assert_eq!((row.sum, row.max), (value, value));
        }
    }
}

/// The kernel verifies each of dozens of programs separately. 80,000 instructions in each took a
/// simulated guest half a minute.
#[test]
fn the_programs_are_quick_to_verify() {
    for events in [0, 5] {
        let config = Config { events, ..Config::default() };
        let programs = [
            "drive",
            "local_timer_out",
            "irq_handler_out",
            "napi_polled",
            "softirq_in",
            "switched",
            "close_now",
        ];
        let Some(probes) = load_with(config, Flavour::Btf, 32, &programs) else { return };
        let Some(most) = probes.verified_instructions_max().expect("the programs' info") else {
            return needs::not_run(
                needs::Need::Other,
                "before Linux 5.16 the kernel does not tell what was verified",
            );
        };
        assert!(most < 30_000, "{most} instructions with {events} events");
    }
}

/// The overhead inside is subtracted from the span itself, and the whole overhead from its parents.
#[test]
fn the_probe_overhead_is_subtracted() {
    let Some(probes) = load(Flavour::Btf, 32, &["drive"]) else { return };
    let learning = Learning { outside_ratio: 3 << (RATIO_SHIFT - 1), ..Learning::default() };
    let overheads = CpuOverheads { in_span_ns: 40, learning, ..CpuOverheads::default() };
    probes.clear_for(overheads).expect("clear");
    probes.open_gate(CPU).expect("gate");
    let t = probes.states().expect("states")[CPU as usize].armed_ns;
    for (operation, key, at) in [
        (ENTER, 32, 0),
        (ENTER, 64, 1_000),
        (EXIT, 64, 1_230),
        (RAN_SINCE, 1_230, 1_300),
        (RAN_SINCE, 2_000, 2_005),
        (EXIT, 32, 3_000),
        (ENTER, 1, 4_000),
        (EXIT, 1, 4_020),
    ] {
        let key = if operation == RAN_SINCE { t + key } else { key };
        drive(&probes, operation, key, t + at);
    }
    let row_of = |key: u32| rows(&probes).into_iter().find(|row| row.key == key).expect("row");
    let inside = 40;
    assert_eq!((row_of(64).sum, row_of(64).overhead_ns), (230 - inside, inside));
    // Around a span, a pair adds one and a half times its overhead inside. The exit program ran for
    // 70 after its clock reading, and another program ran for 5.
    let outside = inside * 3 / 2 + 70 + 5;
    // The raw 3000, minus the nested 230 and the probes around it, minus the span's own 40.
    assert_eq!(row_of(32).sum, 3_000 - 230 - outside - inside);
    // The inclusive time keeps the nested span's real time.
    assert_eq!(row_of(32).inclusive_sum_ns(), 3_000 - 2 * inside - outside);
    assert_eq!(
        (row_of(1).sum, row_of(1).clamped, row_of(1).clamped_ns, row_of(1).count),
        (0, 1, 20, 1)
    );
}

/// A span inside is shorter than its overhead: the inclusive time of the outer span is still at least its self time.
#[test]
fn a_span_around_one_shorter_than_its_overhead_has_no_larger_self_time() {
    let Some(probes) = load(Flavour::Btf, 32, &["drive"]) else { return };
    let overheads = CpuOverheads { in_span_ns: 40, ..CpuOverheads::default() };
    probes.clear_for(overheads).expect("clear");
    probes.open_gate(CPU).expect("gate");
    let t = probes.states().expect("states")[CPU as usize].armed_ns;
    for (operation, key, at) in
        [(ENTER, 32, 0), (ENTER, 64, 1_000), (EXIT, 64, 1_010), (EXIT, 32, 3_000)]
    {
        drive(&probes, operation, key, t + at);
    }
    let row = rows(&probes).into_iter().find(|row| row.key == 32).expect("row");
    assert_eq!((row.sum, row.inclusive_sum_ns()), (3_000 - 10 - 40, 3_000 - 10 - 40));
}

/// The nested span leaves less self time than the overhead. This missing self time is no missing inclusive time.
#[test]
fn the_inclusive_total_of_a_clamped_span_lacks_nothing() {
    let Some(probes) = load(Flavour::Btf, 32, &["drive"]) else { return };
    let overheads = CpuOverheads { in_span_ns: 40, ..CpuOverheads::default() };
    probes.clear_for(overheads).expect("clear");
    probes.open_gate(CPU).expect("gate");
    let t = probes.states().expect("states")[CPU as usize].armed_ns;
    for (operation, key, at) in
        [(ENTER, 32, 0), (ENTER, 64, 10), (EXIT, 64, 990), (EXIT, 32, 1_000)]
    {
        drive(&probes, operation, key, t + at);
    }
    let row = rows(&probes).into_iter().find(|row| row.key == 32).expect("row");
    assert!(row.sum == 0 && row.clamped == 1 && row.clamped_ns > 0, "{}", row.clamped_ns);
    // The only span, so its inclusive time is the total.
    assert_eq!(row.inclusive_sum_ns() - row.clamped_ns, row.nested_max);
}

/// The subtracted overhead follows the exit program's own time, by the configured share.
#[test]
fn timed_exit_programs_correct_the_overhead() {
    let spans_of = |times_exits, learning| {
        let config = Config { times_exits, ..Config::default() };
        let probes = load_with(config, Flavour::Btf, 4, &["open_now", "start_now", "close_now"])?;
        let overheads = CpuOverheads { in_span_ns: 7, learning, ..CpuOverheads::default() };
        probes.clear_for(overheads).expect("clear");
        let links =
            ["open_now", "close_now"].map(|program| probes.attach_guarded(program).expect("link"));
        probes.open_gate(CPU).expect("gate");
        live::syscall_loop::ns_per_call(CPU, 4_000).expect("the loop runs");
        probes.close_gate(CPU).expect("gate");
        drop(links);
        let row = rows(&probes).into_iter().find(|row| row.key == KEY_BENCH).expect("row");
        Some((row, probes.states().expect("states")[CPU as usize].learned_ns(KEY_BENCH)))
    };
    let Some((row, overhead_ns)) = spans_of(0, Learning::default()) else { return };
    assert_eq!((row.timed_exits, overhead_ns, row.overhead_ns), (0, 7, 7 * row.count));
    let (row, overhead_ns) = spans_of(1, Learning::default()).expect("loaded before");
    assert_eq!((overhead_ns, row.overhead_ns), (7, 7 * row.count), "timed, and nothing learned");
    assert!(row.timed_exits * 8 >= row.count - 8, "{} of {}", row.timed_exits, row.count);
    // A fixed microsecond, and no share of the program's time.
    let fixed = 1_000 << OVERHEAD_UNIT_SHIFT;
    let learning = Learning {
        inside_fixed: fixed,
        inside_ratio: 1,
        overhead_max_ns: u32::MAX >> 8,
        ..Learning::default()
    };
    let (row, overhead_ns) = spans_of(1, learning).expect("loaded before");
    let part_ns = (row.timed_exits_ns / row.timed_exits) >> RATIO_SHIFT;
    assert!((1_000..2_000 + part_ns as u32).contains(&overhead_ns), "{overhead_ns}");
    assert!(row.overhead_ns > 900 * row.count, "{} of {}", row.overhead_ns, row.count);
    // Overhead above the bound, which caches do not explain, is not learned.
    let bounded = Learning { overhead_max_ns: 999, ..learning };
    let (row, overhead_ns) = spans_of(1, bounded).expect("loaded before");
    assert_eq!((overhead_ns, row.timed_exits), (7, 0));
}

/// The program of both tracepoints opens and closes a span. It knows its tracepoint from the link's
/// cookie, or from the program before it.
#[test]
fn each_system_call_is_a_span_with_cookies_and_without() {
    for cookies in [false, live::bpf::has_cookies()] {
        let config = Config { cookies: cookies.into(), ..Config::default() };
        let programs = ["open_now", "start_now", "close_now"];
        let Some(probes) = load_with(config, Flavour::Btf, 4, &programs) else { return };
        let links =
            ["open_now", "close_now"].map(|program| probes.attach_guarded(program).expect("link"));
        probes.clear().expect("clear");
        probes.open_gate(CPU).expect("gate");
        live::syscall_loop::ns_per_call(CPU, 4_000).expect("the loop runs");
        probes.close_gate(CPU).expect("gate");
        drop(links);
        let row = rows(&probes).into_iter().find(|row| row.key == KEY_BENCH).expect("row");
        let state = probes.states().expect("states")[CPU as usize];
        assert!(row.count >= 4_000, "{} with cookies {cookies}", row.count);
        let lost = (state.unmatched_exits, state.abandoned, state.overflows, row.abandoned);
        assert_eq!(lost, (0, 0, 0, 0), "cookies {cookies}");
    }
}

/// Each action of a shared line has a separate row, and counts once.
#[test]
fn the_actions_of_a_shared_line_are_counted_apart() {
    let programs = ["irq_handler_in", "irq_handler_out"];
    let Some(probes) = load(Flavour::Raw, 32, &programs) else {
        return;
    };
    start_over(&probes);
    let interrupt = |action: u64, handled: u64| {
        probes.run_on(CPU, "irq_handler_in", [300, action, 0]).expect("entry");
        probes.run_on(CPU, "irq_handler_out", [300, action, 0]).expect("entry");
        probes.run_on(CPU, "irq_handler_out", [300, action, handled]).expect("exit");
    };
    for _ in 0..5 {
        interrupt(0xa000, 0);
        interrupt(0xb000, 1);
    }
    interrupt(0xa000, 1);
    let mut seen: Vec<_> =
        rows(&probes).iter().map(|row| (row.object, row.count, row.special, row.shared)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(0xa000, 6, 5, 0), (0xb000, 5, 0, 1)]);
    assert!(rows(&probes).iter().all(|row| row.key == KEY_IRQ + 300));
}

/// netpoll passes a budget of 0 (`poll_one_napi` in net/core/netpoll.c), which no poll can use up.
#[test]
fn a_poll_without_a_budget_uses_none_up() {
    let Some(probes) = load(Flavour::Raw, 32, &["napi_polled"]) else {
        return;
    };
    start_over(&probes);
    let poll = |packets: u64, budget: u64| {
        probes.run_on(CPU, "napi_polled", [0, packets, budget]).expect("poll");
    };
    poll(0, 0);
    poll(63, 64);
    poll(64, 64);
    let seen: Vec<_> = rows(&probes).iter().map(|row| (row.count, row.special)).collect();
    assert_eq!(seen, [(3, 1)]);
}

/// Linux numbers IRQ lines beyond any dense range. No line may be lost or taken for another.
#[test]
fn an_irq_line_has_a_row_whatever_its_number() {
    let programs = ["irq_handler_in", "irq_handler_out", "drive"];
    let Some(probes) = load(Flavour::Raw, 32, &programs) else {
        return;
    };
    start_over(&probes);
    let lines = [0, 2_016, 2_017, 4_095, 4_096, 5_000, 70_000, 1_000_000];
    for (times, irq) in (1..).zip(lines) {
        for _ in 0..times {
            for action in [0xa000, 0xb000] {
                probes.run_on(CPU, "irq_handler_in", [irq, action, 0]).expect("entry");
                probes.run_on(CPU, "irq_handler_out", [irq, action, 0]).expect("entry");
                probes.run_on(CPU, "irq_handler_out", [irq, action, 1]).expect("exit");
            }
        }
    }
    let mut seen: Vec<_> = rows(&probes)
        .iter()
        .map(|row| (ContextKey::from_key(row.key), row.object, row.count, row.shared))
        .collect();
    seen.sort_by_key(|(key, object, ..)| (format!("{key:?}"), *object));
    let mut wanted: Vec<_> = (1..)
        .zip(lines)
        .flat_map(|(times, irq)| {
            let key = Some(ContextKey::Irq(irq as u32));
            [(key, 0xa000, times, 0), (key, 0xb000, times, 1)]
        })
        .collect();
    wanted.sort_by_key(|(key, object, ..)| (format!("{key:?}"), *object));
    assert_eq!(seen, wanted);
    assert_eq!(probes.states().expect("states")[CPU as usize].unattributed, 0);
}

/// If there are more sources than rows, the spans count as unattributed, and
/// never for another source.
#[test]
fn sources_without_a_row_are_counted_as_lost() {
    let Some(probes) = load(Flavour::Btf, 3, &["drive"]) else {
        return;
    };
    start_over(&probes);
    let start = probes.states().expect("states")[CPU as usize].armed_ns;
    for key in 0..6 {
        drive(&probes, ENTER, 64 + key, start);
        drive(&probes, EXIT, 64 + key, start + 10);
    }
    assert_eq!(rows(&probes).len(), 3);
    assert_eq!(probes.states().expect("states")[CPU as usize].unattributed, 3);
}

/// Each function has a row of delays, until only the rows reserved for other contexts are left. Further functions share a
/// row, so no delay is lost.
#[test]
fn functions_share_a_row_of_delays_if_there_are_more_than_rows() {
    let Some(probes) = load(Flavour::Btf, ROWS_RESERVED + 4, &["drive_delay"]) else { return };
    start_over(&probes);
    for (function, delay_ns) in (1..=10).zip(0..).chain([(2, 5)]) {
        let arguments = [0xffff_ffff_8000_0000 + function, delay_ns, 0, 0, 0, 0, 0];
        probes.run_on(CPU, "drive_delay", arguments).expect("drive_delay runs");
    }
    let rows = rows(&probes);
    let of_timers = ContextKey::DelayOfFunctions(ContextKind::Hrtimer);
    assert!(rows.iter().all(|row| ContextKey::from_key(row.key) == Some(of_timers)));
    let mut counts: Vec<(u64, u64)> =
        rows.iter().map(|row| (row.object & 0xff, row.count + row.special)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [(0, 6), (1, 1), (2, 2), (3, 1), (4, 1)]);
    assert_eq!(probes.states().expect("states")[CPU as usize].unattributed, 0);
}

/// A span without a histogram is lost as a whole, and counted as lost.
#[test]
fn spans_without_a_histogram_are_counted_as_lost() {
    let known = KnownContexts { all: 90, nesting: 10, irq_threads: 0 };
    let contexts = [(CPU, known)].into();
    let layout = RowLayout::for_contexts(&contexts, ROWS_MAX);
    let spec = LoadSpec {
        flavour: Flavour::Btf,
        config: Config::default(),
        maps: Maps::New(&layout),
        programs: &["drive"],
    };
    let Some(probes) = permitted(Probes::load(&spec)) else { return };
    start_over(&probes);
    let start = probes.states().expect("states")[CPU as usize].armed_ns;
    let contexts = u64::from(layout.on(CPU).nested) + 5;
    for at in 0..contexts {
        let from = start + 100 * at;
        for (operation, key, at) in
            [(ENTER, 64 + at, 0), (ENTER, 1, 10), (EXIT, 1, 20), (EXIT, 64 + at, 40)]
        {
            drive(&probes, operation, key, from + at);
        }
    }
    let counted: u64 = rows(&probes).iter().map(|row| row.nested_count).sum();
    assert_eq!(counted, contexts - 5);
    assert!(rows(&probes).iter().all(|row| row.count > 0 || row.sum == 0));
    assert_eq!(probes.states().expect("states")[CPU as usize].unattributed, 5);
}

/// Objects that share maps count only in their own windows, and each starts from zero.
#[test]
fn of_objects_with_the_same_maps_one_counts() {
    let Some(first) = load(Flavour::Btf, 32, &["drive"]) else { return };
    let spec = LoadSpec {
        flavour: Flavour::Btf,
        config: Config { empty_spans_only: 1, ..Config::default() },
        maps: Maps::Shared(&first),
        programs: &["drive"],
    };
    let second = Probes::load(&spec).expect("as the first");
    let span = |probes: &Probes, key: u64| {
        let start = first.states().expect("states")[CPU as usize].armed_ns;
        for (operation, key, at) in
            [(ENTER, key, 0), (ENTER, 1, 10), (EXIT, 1, 20), (EXIT, key, 40)]
        {
            drive(probes, operation, key, start + at);
        }
    };
    let keys = |probes: &Probes| -> Vec<(u32, u64)> {
        rows(probes).iter().map(|row| (row.key, row.count)).collect()
    };
    start_over(&first);
    span(&first, 40);
    span(&second, 41);
    assert_eq!(keys(&first), [(1, 1), (40, 1)]);
    start_over(&second);
    span(&first, 42);
    span(&second, 43);
    // The outer span is not empty, so its row counts nothing.
    assert_eq!(keys(&second), [(1, 1), (43, 0)]);
}

/// The maps of a machine with 512 CPUs. Five passes with their calibration need hardly more kernel
/// memory than one, and the layout's sum is right.
#[test]
fn the_memory_of_512_cpus_is_bounded_whatever_the_passes() {
    let layout = RowLayout::for_contexts(
        &(0..512)
            .map(|cpu| (cpu, KnownContexts { all: 50, nesting: 10, irq_threads: 0 }))
            .collect(),
        ROWS_MAX,
    );
    let load = |maps, events| {
        let config = Config { events, ..Config::default() };
        let programs = ["irq_handler_in", "irq_handler_out", "softirq_in", "softirq_out"];
        let spec = LoadSpec { flavour: Flavour::Btf, config, maps, programs: &programs };
        permitted(Probes::load(&spec))
    };
    let Some(first) = load(Maps::New(&layout), 0) else { return };
    let memory = |probes: &Probes| probes.kernel_memory().expect("this kernel states it");
    let mut all = memory(&first);
    let one_object = all.bytes();
    for pass in 1..10 {
        all = all.with(memory(&load(Maps::Shared(&first), pass % 2 * 5).expect("as the first")));
    }
    println!("512 CPUs: {one_object} bytes with one object, {} with ten", all.bytes());
    assert!(
        all.bytes() - one_object < 4 << 20,
        "{one_object} bytes with one object, {} with ten",
        all.bytes()
    );
    assert!(
        one_object.abs_diff(layout.bytes()) < layout.bytes() / 10,
        "{one_object}, not {}",
        layout.bytes()
    );
    assert!(one_object < 512 << 20, "{one_object}");
}

/// The kernel wakes all tasks whose wake-ups are queued in one run, and executes queued irq_work without an event. A cause is
/// certain only if one party queued all wake-ups, and if no irq_work can be in the interrupt.
#[test]
fn calls_without_an_event_leave_the_cause_unknown_unless_it_is_certain() {
    const NOTE_WAKEUP: u64 = 1;
    const IS_ONLY_WAKER: u64 = 2;
    const NOTE_IRQ_WORK: u64 = 3;
    const MAY_CONTAIN_IRQ_WORK: u64 = 4;
    let config = Config { victims: VICTIMS_BY_CGROUP, ..Config::default() };
    let Some(probes) = load_with(config, Flavour::Btf, 4, &["drive_unseen_calls"]) else { return };
    let drive = |operation: u64, group: u64, now_ns: u64| {
        let arguments = [operation, group, now_ns];
        probes.run_on(CPU, "drive_unseen_calls", arguments).expect("the program runs")
    };
    let is_first_the_only_one = |groups: &[u64]| {
        for group in groups {
            drive(NOTE_WAKEUP, *group, 0);
        }
        drive(IS_ONLY_WAKER, groups[0], 0) == 1
    };
    assert!(is_first_the_only_one(&[7]));
    assert!(is_first_the_only_one(&[7, 7]));
    assert!(!is_first_the_only_one(&[7, 8]));
    assert!(!is_first_the_only_one(&[7, 0]), "0: a waker that is not known");
    assert!(is_first_the_only_one(&[8]), "the runs before have woken all others");
    assert_eq!(drive(IS_ONLY_WAKER, 8, 0), 0, "no wake-up is queued");
    let may_contain_irq_work = |start_ns| drive(MAY_CONTAIN_IRQ_WORK, 0, start_ns) == 1;
    assert!(!may_contain_irq_work(100));
    drive(NOTE_IRQ_WORK, 0, 150);
    assert!(may_contain_irq_work(200));
    assert!(!may_contain_irq_work(300));
    // It may run in the span from 400, which is open, or in the next one.
    drive(NOTE_IRQ_WORK, 0, 410);
    assert!(may_contain_irq_work(400));
    assert!(may_contain_irq_work(500));
    assert!(!may_contain_irq_work(600));
}

/// A CPU keeps its latest events, the oldest first, and counts the lost ones.
#[test]
fn a_full_trace_keeps_the_latest_events() {
    let rows = RowLayout::same(&[CPU], 4);
    let spec = LoadSpec {
        flavour: Flavour::Btf,
        config: Config::default(),
        maps: Maps::New(&rows),
        programs: &["drive_trace"],
    };
    let trace = TraceLayout::new(&[CPU], 5 * size_of::<TraceEvent>() as u64);
    let Some(probes) = permitted(Probes::load_with(&spec, Some(trace))) else { return };
    let write = |key: u64| {
        let arguments = [key, 10 * key, 10 * key + 3, 7, 8];
        probes.run_on(CPU, "drive_trace", arguments).expect("the program runs");
    };
    let traced = || {
        let cpus = probes.traced().expect("events");
        let keys: Vec<u32> = cpus[0].events.iter().map(|event| event.key).collect();
        (keys, cpus[0].lost)
    };
    (1..=3).for_each(write);
    assert_eq!(traced(), (vec![1, 2, 3], 0));
    (4..=7).for_each(write);
    assert_eq!(traced(), (vec![3, 4, 5, 6, 7], 2));
    let event = probes.traced().expect("events")[0].events[0];
    assert_eq!((event.event, event.start_ns, event.end_ns), (TRACE_SPAN, 30, 33));
    assert_eq!(event.words, [7, 8]);
    probes.clear().expect("clear");
    assert_eq!(traced(), (vec![], 0));
}
