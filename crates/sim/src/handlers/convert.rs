//! Converts the accounting of a machine to a sample of the experiment `handlers`, as the live bench would make it.

use std::sync::Arc;

use attribution::Context;
use lab::cpu_warnings::CpuWarning;
use lab::cpus::UnmeasuredCpu;
use lab::handlers::in_guest::GuestWindow;
use lab::handlers::{ContextStats, CpuWindow, EventSums, Timing, VictimsBy, WindowSample};
use simrecord::counters::{CYCLES, Counts, INSTRUCTIONS, TIME};
use stats::interval::Cell;
use stats::{Batches, JointBatch};

use super::agreement::lines_of;
use super::delays::delays_of;
use super::events::Event;
use super::parties::Parties;
use super::senders::{MachineNames, senders_of};
use super::victims::{root_warning, victims_of};
use crate::Symbols;
use crate::accounting::{Accounting, ContextUse, CpuUse, SpanUse};
use crate::contexts::{callback_of, context_of, irq_thread_of};
use crate::timeline::timeline_of;

const NS_PER_S: u128 = 1_000_000_000;
/// Why a CPU has no window.
const OFFLINE_BEFORE: &str = "it was offline when the window opened";
/// Why a CPU has no window, if the guest did not report which CPUs were offline.
const NO_TIME: &str = "it has no time in the record, as a CPU that was offline";
/// Maximum number of batches of a window, as on the live bench.
const BATCHES_MAX: u64 = 64;

/// Parameters of the conversion.
pub(super) struct Reading {
    pub(super) clock_hz: u64,
    /// The events of the tables, in the order of their columns.
    pub(super) events: Vec<Event>,
    /// Whether delays were recorded.
    pub(super) has_delays: bool,
    /// Whether senders of function calls and interrupts were recorded.
    pub(super) has_senders: bool,
    /// How victims and causes are named. `None`: they were not recorded.
    pub(super) victims: Option<VictimsBy>,
    /// Whether the machine has a model, so that all CPUs have one clock.
    pub(super) has_model: bool,
    /// Memory for single events, bytes. `None`: no timeline was requested.
    pub(super) trace_bytes_max: Option<u64>,
}

impl Reading {
    /// Converts cycles of guest time to ns, rounded to the nearest, so that sums over many spans have no bias.
    pub(super) fn ns(&self, cycles: u64) -> u64 {
        let clock_hz = u128::from(self.clock_hz.max(1));
        let ns = (u128::from(cycles) * NS_PER_S + clock_hz / 2) / clock_hz;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// Returns the sample of the first region. `window`: what the guest reports about it. `symbols` name functions that timers,
/// work items, tasklets and RCU call.
///
/// Fails when there is no region, or its numbers cannot be trusted.
pub(super) fn sample_of(
    accounting: &Accounting,
    window: GuestWindow,
    reading: &Reading,
    symbols: Option<&Symbols>,
) -> Result<WindowSample, String> {
    if let Some(broken) = accounting.broken.first() {
        return Err(format!("the record of the machine is broken: {broken}"));
    }
    let region = accounting.regions.first().ok_or("the window was never opened")?;
    let had_enough = region.had_enough;
    if !accounting.ended_by_guest && !window.interrupted && !had_enough {
        return Err(
            "the guest did not end the record: the end of the window is not known".to_owned()
        );
    }
    let window = if had_enough { without_times(window) } else { window };
    // Without a response there is neither the guest's length of the window nor its list of offline CPUs.
    let has_response = window.length_ns > 0;
    let cpu_ns = || region.cpus.iter().map(|cpu| reading.ns(cpu.used[TIME])).max().unwrap_or(0);
    let length_ns = if has_response && !had_enough { window.length_ns } else { cpu_ns() };
    let mut sample = WindowSample {
        user_cpu_ns: window.user_cpu_ns,
        load_work: window.load_work,
        stimulus_work: window.stimulus_work,
        warnings: window.warnings,
        facts: window.facts,
        came_online: window.came_online,
        delays: reading.has_delays.then(Vec::new),
        interrupted: window.interrupted && !had_enough,
        had_enough,
        ..WindowSample::default()
    };
    sample.warnings.extend(accounting.lost_misses_warning(1));
    for cpu in &region.cpus {
        let reason = if window.offline_cpus.contains(&cpu.cpu) {
            Some(OFFLINE_BEFORE)
        } else if !has_response && cpu.used[TIME] == 0 {
            Some(NO_TIME)
        } else {
            None
        };
        match reason {
            Some(reason) => {
                let reason = reason.to_owned();
                sample.unmeasured.push(UnmeasuredCpu { cpu: cpu.cpu, reason });
            }
            None => add_cpu(&mut sample, cpu, accounting, reading, symbols, length_ns),
        }
    }
    if reading.has_senders {
        let is_measured = |cpu| sample.windows.iter().any(|window| window.cpu == cpu);
        let names = MachineNames { accounting, symbols };
        let ns = |cycles| reading.ns(cycles);
        sample.senders = Some(senders_of(&region.senders, &names, is_measured, ns));
    }
    if let Some(by) = reading.victims {
        let is_measured = |cpu: &&CpuUse| sample.windows.iter().any(|window| window.cpu == cpu.cpu);
        let cpus = region.cpus.iter().filter(is_measured);
        let parties = Parties { by, accounting, region };
        let victims = victims_of(cpus, &parties, |cycles| reading.ns(cycles));
        sample.warnings.extend(root_warning(by, &victims));
        sample.victims = Some(victims);
    }
    if let Some(bytes_max) = reading.trace_bytes_max {
        let is_measured = |cpu: &&CpuUse| sample.windows.iter().any(|window| window.cpu == cpu.cpu);
        let cpus = region.cpus.iter().filter(is_measured);
        let ns = |cycles| reading.ns(cycles);
        let timeline = timeline_of(cpus, &region.senders, accounting, symbols, bytes_max, ns);
        sample.timeline = Some(Arc::new(timeline));
    }
    Ok(sample)
}

/// Adds a CPU to the sample: its window, its contexts with their spans, its delays, and its warnings. `length_ns`: length of
/// the window for a CPU that stays online.
fn add_cpu(
    sample: &mut WindowSample,
    cpu: &CpuUse,
    accounting: &Accounting,
    reading: &Reading,
    symbols: Option<&Symbols>,
    length_ns: u64,
) {
    let offline_after_ns = cpu.offline_after_cycles().map(|cycles| reading.ns(cycles));
    sample.came_online.extend(cpu.came_online.then_some(cpu.cpu));
    sample.windows.push(CpuWindow {
        cpu: cpu.cpu,
        start_ns: Some(0),
        length_ns: offline_after_ns.unwrap_or(length_ns),
        went_offline: offline_after_ns.is_some(),
        ..CpuWindow::default()
    });
    sample.agreement.extend(lines_of(cpu, &accounting.irqs));
    let batches_ns = if is_behind(cpu, reading, length_ns) { None } else { Some(length_ns) };
    if batches_ns.is_none() {
        sample.cpu_warnings.push(CpuWarning::new(cpu.cpu, CLOCK_STOOD_STILL));
    }
    if let Some(delays) = &mut sample.delays {
        delays.extend(delays_of(cpu, accounting, symbols, reading, batches_ns));
    }
    for context_use in &cpu.contexts {
        let context = context_of(context_use.context, accounting)
            .or_else(|| irq_thread_of(context_use.context, accounting))
            .or_else(|| callback_of(context_use.context, symbols));
        let Some(context) = context else { continue };
        let mut stats = stats_of(cpu, context, context_use, reading);
        add_spans(&mut stats, cpu, context_use, reading, batches_ns);
        sample.contexts.push(stats);
    }
    if cpu.overflows > 0 {
        let reason =
            "since the machine's start, entries were nested too deep and were not followed";
        let warning = CpuWarning::new(cpu.cpu, reason);
        sample.cpu_warnings.push(warning.with_count(cpu.overflows, "entries"));
    }
}

/// Removes the values that the guest measured by its clock, for a window that the plugin closed early. The clock then
/// jumped to the planned end of the window: tasks were charged for the jump, and stimuli caught up with it.
fn without_times(window: GuestWindow) -> GuestWindow {
    GuestWindow { user_cpu_ns: None, load_work: None, stimulus_work: None, ..window }
}

/// Returns the counts of a context on a CPU, without the times of its spans.
fn stats_of(cpu: &CpuUse, context: Context, used: &ContextUse, reading: &Reading) -> ContextStats {
    let event_counts = |counts: &[u64]| -> Vec<u64> {
        reading.events.iter().filter_map(|(_, counter)| counts.get(*counter).copied()).collect()
    };
    ContextStats {
        events: EventSums {
            spans: used.completed,
            own: event_counts(&self_counts_of_spans(cpu, used)),
            inclusive: event_counts(&used.inclusive),
            ..EventSums::default()
        },
        ..ContextStats::new(cpu.cpu, context, Timing::Simulator, used.completed)
    }
}

/// Returns the self counts of a context's completed spans on a CPU. The context's own self counts also include the spans
/// that did not complete: those that were open at an end of the window, and those in which a signal ended the task.
///
/// The record may have counters of the first spans only. Then cycles and instructions are those of the spans, and the other
/// counts are those of the context. Without spans, all counts are those of the context.
fn self_counts_of_spans(cpu: &CpuUse, context_use: &ContextUse) -> Counts {
    let is_span = |span: &&SpanUse| span.context == context_use.context;
    let spans = cpu.spans.iter().filter(is_span);
    if spans.clone().count() as u64 != context_use.completed {
        return context_use.self_counts;
    }
    if cpu.span_counts.len() == cpu.spans.len() {
        let mut sums = Counts::default();
        let with_counts = cpu.spans.iter().zip(&cpu.span_counts);
        for (_, counts) in with_counts.filter(|(span, _)| is_span(span)) {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        return sums;
    }
    let mut counts = context_use.self_counts;
    counts[CYCLES] = spans.clone().map(|span| span.self_cycles).sum();
    counts[INSTRUCTIONS] = spans.map(|span| span.self_instructions).sum();
    counts
}

/// Without a model, QEMU executes the CPUs one after the other.
const CLOCK_STOOD_STILL: &str = "its clock stood still while other CPUs executed, because without a model they do so one after the other: rates, shares \
     and events have no intervals, those of means take spans as independent, and times since the opening are too early \
     (--on sim:MODEL has one clock for all CPUs)";

/// Whether a CPU's own clock has advanced by less than 95 % of the window, although the CPU was online all the time.
fn is_behind(cpu: &CpuUse, reading: &Reading, length_ns: u64) -> bool {
    let was_online = cpu.offline_at_cycles.is_none() && !cpu.came_online;
    let has_own_clock = !reading.has_model && was_online && cpu.used[TIME] > 0;
    has_own_clock && reading.ns(cpu.used[TIME]) < length_ns / 20 * 19
}

/// Adds the times of a context's spans on a CPU, in batches by the time at which they ended. The batches cover
/// `batches_ns`; without it there are none.
fn add_spans(
    stats: &mut ContextStats,
    cpu: &CpuUse,
    context_use: &ContextUse,
    reading: &Reading,
    batches_ns: Option<u64>,
) {
    stats.own.batches = batches(batches_ns);
    for span in cpu.spans.iter().filter(|span| span.context == context_use.context) {
        let ended_ns = reading.ns(span.ended_at_cycles.saturating_sub(cpu.opened_at_cycles));
        let own_ns = reading.ns(span.self_cycles);
        stats.own.record(own_ns, ended_ns);
        stats.own.batches.record(own_ns, ended_ns);
        stats.inclusive.record(reading.ns(span.inclusive_cycles), ended_ns);
        stats.nested_count += u64::from(span.inclusive_cycles > span.self_cycles);
    }
    // The record may have counters of the first spans only: then the batches would be incomplete.
    if cpu.span_counts.len() == cpu.spans.len() {
        stats.events.batches = event_batches(cpu, context_use, reading, batches_ns);
    }
}

/// Returns the events of a context's spans on a CPU, in batches by the time at which the spans ended.
fn event_batches(
    cpu: &CpuUse,
    context_use: &ContextUse,
    reading: &Reading,
    batches_ns: Option<u64>,
) -> Batches<JointBatch> {
    let mut batches = batches(batches_ns);
    let spans = cpu.spans.iter().zip(&cpu.span_counts);
    for (span, counts) in spans.filter(|(span, _)| span.context == context_use.context) {
        let ended_ns = reading.ns(span.ended_at_cycles.saturating_sub(cpu.opened_at_cycles));
        let count = |(_, counter): &Event| i64::try_from(counts[*counter]).unwrap_or(i64::MAX);
        let sums = reading.events.iter().map(count).collect();
        batches.add_at(ended_ns, &JointBatch { count: 1, sums });
    }
    batches
}

/// Empty batches over a window; none without its length.
pub(super) fn batches<C: Cell>(length_ns: Option<u64>) -> Batches<C> {
    length_ns.map_or_else(Batches::default, |length_ns| Batches::covering(length_ns, BATCHES_MAX))
}

#[cfg(test)]
mod tests {
    use attribution::KernelContext;
    use simrecord::counters::COUNTERS;
    use simrecord::record::{MissCount, MissKind};

    use super::*;
    use crate::accounting::RegionUse;

    const READING: Reading = Reading {
        clock_hz: 500_000_000,
        events: Vec::new(),
        has_delays: false,
        victims: None,
        has_senders: false,
        has_model: false,
        trace_bytes_max: None,
    };

    fn used(context: KernelContext) -> ContextUse {
        let mut counts: Counts = [0; COUNTERS];
        (counts[INSTRUCTIONS], counts[CYCLES]) = (70, 80);
        ContextUse { context, self_counts: counts, inclusive: counts, entries: 4, completed: 2 }
    }

    fn accounting() -> Accounting {
        let timer = KernelContext::Interrupt(0xec);
        let contexts = vec![
            used(KernelContext::User(7)),
            used(KernelContext::Exception(14)),
            used(timer),
            used(KernelContext::Softirq(3)),
            used(KernelContext::Irq(24)),
        ];
        let span = |self_cycles, inclusive_cycles, ended_at_cycles| SpanUse {
            context: timer,
            ended_at_cycles,
            self_cycles,
            inclusive_cycles,
            self_instructions: 0,
        };
        let spans = vec![span(30, 30, 1100), span(50, 70, 1300)];
        let counts_of = |cycles| {
            let mut counts: Counts = [0; COUNTERS];
            (counts[INSTRUCTIONS], counts[CYCLES]) = (cycles - 5, cycles);
            counts
        };
        let cpu = CpuUse {
            opened_at_cycles: 1000,
            contexts,
            spans,
            span_counts: vec![counts_of(30), counts_of(50)],
            overflows: 2,
            ..CpuUse::default()
        };
        let region = RegionUse { cpus: vec![cpu], ..RegionUse::default() };
        Accounting {
            ended_by_guest: true,
            regions: vec![region],
            irqs: [(24, "nvme0q0".to_owned())].into(),
            ..Accounting::default()
        }
    }

    #[test]
    fn a_cpu_whose_clock_stood_still_has_no_batches_and_a_warning() {
        let window = || GuestWindow { length_ns: 1000, ..GuestWindow::default() };
        // 940 and 960 of the window's 1,000 ns.
        for (cycles, is_behind) in [(470, true), (480, false)] {
            let mut accounting = accounting();
            accounting.regions[0].cpus[0].used[TIME] = cycles;
            let sample = sample_of(&accounting, window(), &READING, None).unwrap();
            assert_eq!(
                sample.cpu_warnings.len(),
                1 + usize::from(is_behind),
                "overflows, and this"
            );
            let has_batches = |stats: &ContextStats| stats.own.batches != Batches::default();
            assert!(sample.contexts.iter().all(|stats| has_batches(stats) != is_behind));
            let reading = Reading { has_model: true, events: Vec::new(), ..READING };
            let sample = sample_of(&accounting, window(), &reading, None).unwrap();
            assert_eq!(sample.cpu_warnings.len(), 1, "with a model, all CPUs have one clock");
        }
    }

    #[test]
    fn sources_of_interrupts_and_no_others() {
        let window = GuestWindow { length_ns: 1000, ..GuestWindow::default() };
        let events = vec![("cycles", CYCLES), ("instructions", INSTRUCTIONS)];
        let sample =
            sample_of(&accounting(), window, &Reading { events, ..READING }, None).unwrap();
        let names: Vec<&str> = sample.contexts.iter().map(|stats| &*stats.context.name).collect();
        assert_eq!(names, ["page_fault", "local_timer", "NET_RX", "nvme0q0"]);
        let timer = &sample.contexts[1];
        assert_eq!((timer.count, timer.events.own.as_slice()), (2, &[80, 70][..]));
        // A cycle is 2 ns.
        assert_eq!((timer.own.sum, timer.inclusive.sum), (160, 200));
        assert_eq!((timer.own.peak.value, timer.own.peak.at, timer.nested_count), (100, 600, 1));
        assert_eq!(timer.own.batches.cells.iter().map(|cell| cell.sum).sum::<u64>(), 160);
        let filled: Vec<&JointBatch> =
            timer.events.batches.cells.iter().filter(|cell| cell.count > 0).collect();
        let batch_of = |sums: [i64; 2]| JointBatch { count: 1, sums: sums.to_vec() };
        assert_eq!(
            filled,
            [&batch_of([30, 25]), &batch_of([50, 45])],
            "ended after 200 and 600 ns"
        );
        assert_eq!((sample.length_ns(), sample.lost()), (1000, 0));
        let nested =
            "since the machine's start, entries were nested too deep and were not followed";
        assert_eq!(sample.cpu_warnings, [CpuWarning::new(0, nested).with_count(2, "entries")]);
    }

    /// A signal ended a task in an interrupt that returned to user mode: the interrupt's row has the whole exit, and no span.
    #[test]
    fn events_are_those_of_completed_spans() {
        let mut accounting = accounting();
        let cpu = &mut accounting.regions[0].cpus[0];
        let timer = cpu.contexts.iter_mut().find(|used| used.context == cpu.spans[0].context);
        let timer = timer.unwrap();
        timer.self_counts[INSTRUCTIONS] += 1_000;
        timer.self_counts[CYCLES] += 2_000;
        for (span, instructions) in cpu.spans.iter_mut().zip([25, 45]) {
            span.self_instructions = instructions;
        }
        let own_events = |accounting: &Accounting| {
            let window = GuestWindow { length_ns: 1000, ..GuestWindow::default() };
            let events = vec![("cycles", CYCLES), ("instructions", INSTRUCTIONS)];
            let reading = Reading { events, ..READING };
            let sample = sample_of(accounting, window, &reading, None).unwrap();
            sample.contexts[1].events.own.clone()
        };
        assert_eq!(own_events(&accounting), [80, 70]);
        accounting.regions[0].cpus[0].span_counts.pop();
        assert_eq!(own_events(&accounting), [80, 70], "counters of the first spans only");
        accounting.regions[0].cpus[0].spans.clear();
        assert_eq!(own_events(&accounting), [2_080, 1_070], "no spans were recorded");
    }

    /// The window of a CPU that goes offline ends at that time. A CPU that was offline when the window opened
    /// has no window, even if it comes online.
    #[test]
    fn a_cpu_that_went_offline_has_a_part_of_the_window() {
        let mut accounting = accounting();
        let region = &mut accounting.regions[0];
        let next = |cpu| CpuUse { cpu, ..region.cpus[0].clone() };
        let (stayed, before) = (next(1), next(2));
        region.cpus[0].offline_at_cycles = Some(1_250);
        region.cpus[0].came_online = true;
        region.cpus.extend([stayed, before]);
        let window = GuestWindow {
            length_ns: 1000,
            offline_cpus: vec![2],
            came_online: vec![2],
            ..GuestWindow::default()
        };
        let sample = sample_of(&accounting, window, &READING, None).unwrap();
        let windows: Vec<_> = sample
            .windows
            .iter()
            .map(|window| (window.cpu, window.length_ns, window.went_offline))
            .collect();
        // A cycle is 2 ns.
        assert_eq!(windows, [(0, 500, true), (1, 1000, false)]);
        assert_eq!((sample.length_ns(), sample.cpu_time_ns()), (1000, 1500));
        assert!(sample.contexts.iter().all(|stats| stats.cpu < 2) && !sample.has_all_cpus());
        let [unmeasured] = &sample.unmeasured[..] else { panic!("{:?}", sample.unmeasured) };
        assert_eq!((unmeasured.cpu, &*unmeasured.reason), (2, OFFLINE_BEFORE));
        assert_eq!(sample.came_online, [2, 0]);
    }

    #[test]
    fn misses_that_are_in_no_row_are_a_warning_with_their_number() {
        let mut accounting = accounting();
        let lost =
            |region, count| MissCount { region, cache: 0, kind: MissKind::NotKept, key: 0, count };
        accounting.misses =
            vec![MissCount { kind: MissKind::Class, ..lost(1, 7) }, lost(1, 5), lost(2, 9)];
        let window = GuestWindow { length_ns: 1000, ..GuestWindow::default() };
        let sample = sample_of(&accounting, window, &READING, None).unwrap();
        let [warning] = &sample.warnings[..] else { panic!("{:?}", sample.warnings) };
        assert!(warning.starts_with("5 cache misses are in no row"), "{warning}");
        assert_eq!(accounting.lost_misses_warning(3), None);
    }

    #[test]
    fn a_guest_that_did_not_respond_gives_no_zeros() {
        let mut accounting = accounting();
        let region = &mut accounting.regions[0];
        region.cpus[0].used[TIME] = 400;
        let contexts = Vec::new();
        region.cpus.push(CpuUse { cpu: 1, contexts, ..CpuUse::default() });
        let window = GuestWindow { interrupted: true, ..GuestWindow::default() };
        let sample = sample_of(&accounting, window, &READING, None).unwrap();
        assert_eq!((sample.length_ns(), sample.user_cpu_ns), (800, None));
        assert_eq!(sample.windows.iter().map(|window| window.cpu).collect::<Vec<_>>(), [0]);
        let [unmeasured] = &sample.unmeasured[..] else { panic!("{:?}", sample.unmeasured) };
        assert_eq!((unmeasured.cpu, &*unmeasured.reason), (1, NO_TIME));
    }

    #[test]
    fn events_of_some_of_the_spans_have_no_batches() {
        let mut accounting = accounting();
        accounting.regions[0].cpus[0].span_counts.pop();
        let window = GuestWindow { length_ns: 1000, ..GuestWindow::default() };
        let sample = sample_of(&accounting, window, &READING, None).unwrap();
        assert!(sample.contexts.iter().all(|stats| stats.events.batches.cells.is_empty()));
    }

    #[test]
    fn what_cannot_be_trusted_is_no_sample() {
        type Change = (fn(&mut Accounting), &'static str);
        let changes: [Change; 3] = [
            (|accounting| accounting.broken.push("why".to_owned()), "broken: why"),
            (|accounting| accounting.ended_by_guest = false, "did not end"),
            (|accounting| accounting.regions.clear(), "never opened"),
        ];
        for (change, words) in changes {
            let mut accounting = accounting();
            change(&mut accounting);
            let error = sample_of(&accounting, GuestWindow::default(), &READING, None).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
