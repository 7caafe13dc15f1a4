//! Checks the delays that the live bench measures in the guest: threads of IRQ lines and timers. The simulator's delays of
//! the same events are exact.
//!
//! The probes read the clock when they start, before the switch to a thread or the call of a timer's function. So an exact
//! delay ends where the first probe at that event starts. Softirqs and work items are not compared: probes run between their two begins, the
//! tracepoint and the simulator's event.

use std::collections::BTreeMap;

use attribution::{Context, ContextKind, KernelContext};
use lab::handlers::in_guest::Probed;
use lab::handlers::probe_check::CheckedDelays;
use plugin_interface::symbols::{HRTIMER_PROBE, PROBE_FIRST, SWITCH_PROBE};
use simrecord::record::DelayEvents;

use super::senders::MachineNames;
use super::verify::{started_at, window_of};
use crate::accounting::{CpuUse, DelayUse, RegionUse, SpanUse};
use crate::contexts::{callback_of, irq_thread_of};

/// How many delays there are, and how long they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    count: u64,
    total_cycles: u64,
    max_cycles: u64,
}

/// The work of a delay that is compared; `None` for other delays.
fn compared(context: KernelContext, names: &MachineNames<'_>) -> Option<Context> {
    match context {
        KernelContext::Callback(ContextKind::Hrtimer | ContextKind::Timer, _) => {
            callback_of(context, names.symbols)
        }
        other => irq_thread_of(other, names.accounting),
    }
}

/// The class of tracepoints at the end of a delay, by its position in [`plugin_interface::symbols::probe_name`], and how many
/// programs of the live bench run there. `None`: the delay has no finer clock than jiffies.
fn probes_at_end(kind: ContextKind) -> Option<(u32, usize)> {
    match kind {
        ContextKind::Hrtimer => Some((HRTIMER_PROBE, 1)),
        // A program of delays, and that of the rows of threads.
        ContextKind::IrqThread => Some((SWITCH_PROBE, 2)),
        _ => None,
    }
}

/// The exact length of a delay until the first probe at its end, in cycles. `None` if the probes are not known. `probes`: the
/// spans of the programs there, in the order of their ends.
fn until_probe(delay: &DelayUse, probes: &[&SpanUse], programs: usize) -> Option<u64> {
    let before_end = probes.partition_point(|span| span.ended_at_cycles <= delay.at_cycles);
    let first = before_end.checked_sub(programs)?;
    let in_probes = delay.at_cycles.saturating_sub(started_at(probes[first]));
    Some(delay.cycles.saturating_sub(in_probes))
}

/// The exact delays of a CPU in the probes' window, by work.
fn add_delays_of(cpu: &CpuUse, names: &MachineNames<'_>, sums: &mut BTreeMap<Context, Sums>) {
    let (opened, closed) = window_of(cpu);
    let spans_of = |position: u32| -> Vec<&SpanUse> {
        let probe = KernelContext::Function(PROBE_FIRST + position);
        cpu.spans.iter().filter(|span| span.context == probe).collect()
    };
    let probes = [HRTIMER_PROBE, SWITCH_PROBE].map(|position| (position, spans_of(position)));
    for delay in cpu.delays.iter().filter(|delay| delay.events == DelayEvents::Joined) {
        let began = delay.at_cycles.saturating_sub(delay.cycles);
        let Some(context) = compared(delay.context, names) else { continue };
        if began < opened || delay.at_cycles > closed {
            continue;
        }
        let cycles = match probes_at_end(context.kind) {
            None => Some(delay.cycles),
            Some((position, programs)) => probes
                .iter()
                .find(|(class, _)| *class == position)
                .and_then(|(_, spans)| until_probe(delay, spans, programs)),
        };
        let Some(cycles) = cycles else { continue };
        let sum = sums.entry(context).or_default();
        sum.count += 1;
        sum.total_cycles += cycles;
        sum.max_cycles = sum.max_cycles.max(cycles);
    }
}

/// The delays of a condition by both benches, for each work that one of them has. `ns_of` converts cycles to ns.
pub(super) fn check_delays(
    condition: &str,
    probed: &Probed,
    region: &RegionUse,
    names: &MachineNames<'_>,
    ns_of: impl Fn(u64) -> f64,
) -> Vec<CheckedDelays> {
    let mut exact = BTreeMap::new();
    region.cpus.iter().for_each(|cpu| add_delays_of(cpu, names, &mut exact));
    let mut checked: BTreeMap<(String, u32, String), CheckedDelays> = BTreeMap::new();
    for (context, sums) in exact {
        let key = (context.kind.label().to_owned(), context.number, context.name);
        let row = checked.entry(key).or_default();
        row.true_count += sums.count;
        row.true_total_ns += ns_of(sums.total_cycles);
        row.true_max_ns = row.true_max_ns.max(ns_of(sums.max_cycles));
    }
    for delays in &probed.delays {
        let key = (delays.kind.clone(), delays.number, delays.name.clone());
        let is_compared = !matches!(delays.kind.as_str(), "softirq" | "work");
        if !is_compared {
            continue;
        }
        let row = checked.entry(key).or_default();
        row.probed_count += delays.count;
        row.probed_total_ns += delays.total_ns;
        row.probed_max_ns = row.probed_max_ns.max(delays.max_ns);
    }
    let named = checked.into_iter().map(|((kind, number, name), row)| CheckedDelays {
        condition: condition.to_owned(),
        kind,
        number,
        name,
        ..row
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use lab::handlers::in_guest::ProbedDelays;

    use super::*;
    use crate::accounting::Accounting;

    fn span(position: u32, start: u64, ended: u64) -> SpanUse {
        SpanUse {
            context: KernelContext::Function(PROBE_FIRST + position),
            ended_at_cycles: ended,
            self_cycles: ended - start,
            inclusive_cycles: ended - start,
            self_instructions: 1,
        }
    }

    #[test]
    fn an_exact_delay_ends_where_the_first_probe_starts() {
        let delay = |kind, at_cycles, cycles| DelayUse {
            context: KernelContext::Callback(kind, 0x8114_5820),
            events: DelayEvents::Joined,
            at_cycles,
            cycles,
        };
        let gate = plugin_interface::symbols::GATE_PROBE;
        let spans = vec![
            span(gate, 0, 10),
            span(HRTIMER_PROBE, 60, 70),
            span(HRTIMER_PROBE, 80, 90),
            span(gate, 200, 210),
        ];
        let delays = vec![
            delay(ContextKind::Hrtimer, 75, 80),
            delay(ContextKind::Hrtimer, 95, 40),
            delay(ContextKind::Timer, 100, 50),
            delay(ContextKind::Work, 100, 50),
        ];
        let cpus = vec![CpuUse { spans, delays, ..CpuUse::default() }];
        let region = RegionUse { cpus, ..RegionUse::default() };
        let probe_delays = |kind: &str, count, total_ns| ProbedDelays {
            kind: kind.to_owned(),
            name: "0xffffffff81145820".to_owned(),
            count,
            total_ns,
            max_ns: 9,
            ..ProbedDelays::default()
        };
        let delays = vec![probe_delays("hrtimer", 1, 24), probe_delays("softirq", 3, 30)];
        let probed = Probed { delays, ..Probed::default() };
        let accounting = Accounting::default();
        let names = MachineNames { accounting: &accounting, symbols: None };
        let checked = check_delays("idle", &probed, &region, &names, |cycles| cycles as f64);
        let [hrtimer, timer] = &checked[..] else { panic!("{checked:?}") };
        // The first delay began before the probes' window, the second one ends at the probe that starts at 80.
        assert_eq!((hrtimer.true_count, hrtimer.true_total_ns), (1, 25.0));
        assert_eq!((hrtimer.probed_count, hrtimer.probed_total_ns), (1, 24));
        assert_eq!((timer.true_count, timer.true_total_ns, timer.probed_count), (1, 50.0, 0));
    }
}
