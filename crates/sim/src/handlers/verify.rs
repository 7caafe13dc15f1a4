//! Checks the live bench: its BPF programs measure in the guest, and their results are compared with the simulator's
//! record of the same window, which is exact. `irqlab sim verify-probes` prints the comparison.

use std::collections::{BTreeMap, BTreeSet};

use attribution::context::{SYSTEM_VECTORS, vector_named};
use attribution::{Context, KernelContext};
use lab::experiment::BenchError;
use lab::handlers::Condition;
use lab::handlers::in_guest::{Probed, ProbedContext};
use lab::handlers::probe_check::{
    CheckedContext, CheckedDelays, CheckedEvent, CheckedSender, ProbeCost,
};
use plugin_interface::symbols::{BODY_FIRST, GATE_PROBE, PROBE_FIRST, probe_name};

use super::bench::SimBench;
use super::senders::MachineNames;
use super::verify_delays::check_delays;
use super::verify_senders::checked_senders;
use crate::accounting::{Accounting, CpuUse, RegionUse, SpanUse};
use crate::contexts::context_of as named_context;

/// The results of the live bench and of the simulator for a condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// The contexts that the probes timed or that only the simulator has, each with the values of both sides.
    pub sources: Vec<CheckedContext>,
    /// The senders of both sides.
    pub senders: Vec<CheckedSender>,
    /// Delays of threads and timers, if they were measured.
    pub delays: Vec<CheckedDelays>,
    /// Cost of the probes, by class of tracepoints.
    pub costs: Vec<ProbeCost>,
    /// The measurements of the live bench in the guest.
    pub probed: Probed,
    pub warnings: Vec<String>,
}

impl SimBench {
    /// Has the live bench measure a condition in the guest. Returns `None` when the user asked to stop.
    ///
    /// Fails as [`lab::handlers::HandlersBench::measure`] does, when the live bench can't measure there,
    /// and with [`BenchError::TimeLimit`] when a limit ends the machine.
    pub fn verify(&mut self, condition: Condition) -> Result<Option<Verified>, BenchError> {
        let Some(outcome) = self.take(condition)? else { return Ok(None) };
        // A window that ended early is not compared.
        if let Some(reason) = outcome.early {
            return match self.settings.guest.limit_text(reason) {
                Some(limit) => Err(BenchError::TimeLimit(limit)),
                None => Ok(None),
            };
        }
        if let Some(broken) = outcome.accounting.broken.first() {
            return Err(BenchError::Failed(format!(
                "the record of the machine is broken: {broken}"
            )));
        }
        let never_opened = || BenchError::Failed("the window was never opened".to_owned());
        let region = outcome.accounting.regions.first().ok_or_else(never_opened)?;
        let events_region = outcome.accounting.regions.get(1);
        let probed = outcome.window.probed.ok_or_else(never_opened)?;
        let label = condition.label();
        let symbols = self.settings.kernel.0.as_ref();
        let symbols = self.settings.guest.with_modules_of_boot(symbols, &outcome.modules)?;
        let names = MachineNames { accounting: &outcome.accounting, symbols: symbols.as_deref() };
        let senders = if self.settings.guest.watch.senders {
            checked_senders(&label, &probed, region, &names, |cycles| self.reading.ns(cycles))
        } else {
            Vec::new()
        };
        let missed = contexts_without_probes(&probed, region, &outcome.accounting);
        let sources = by_context(&probed)
            .into_values()
            .chain(missed)
            .filter_map(|source| {
                self.check(&label, (&source, probed.in_span_ns), region, events_region)
            })
            .collect();
        let delays = check_delays(&label, &probed, region, &names, |cycles| self.ns_of(cycles));
        let probes = (0..).map_while(|position| Some((position, probe_name(position)?)));
        let costs = probes
            .filter(|(position, _)| *position != GATE_PROBE)
            .filter_map(|(position, name)| self.cost_of_probe(&label, position, name, region));
        let mut warnings = outcome.window.warnings;
        warnings.extend(unseen_interrupts(&label, region));
        let mut cpus = outcome.accounting.regions.iter().flat_map(|region| &region.cpus);
        if cpus.any(|cpu| gates(cpu).is_none()) {
            warnings.push(GATE_UNSEEN.to_owned());
        }
        Ok(Some(Verified { sources, senders, delays, costs: costs.collect(), warnings, probed }))
    }

    /// Returns the simulator's values for a context of the probes. `warm_overhead_ns`: their overhead in a span in warm caches.
    /// `events`: the region with the probes' counts of events, if there was such a region.
    fn check(
        &self,
        condition: &str,
        (source, warm_overhead_ns): (&ProbedContext, u64),
        region: &RegionUse,
        events: Option<&RegionUse>,
    ) -> Option<CheckedContext> {
        let context = context_of(source)?;
        let [count, cycles, instructions] = spans_of(region, context);
        let event_sums = events.map_or([0; 3], |region| spans_of(region, context));
        let event = |name: &str, truth| CheckedEvent {
            probed: source.event_totals.get(name).copied(),
            truth,
        };
        Some(CheckedContext {
            condition: condition.to_owned(),
            kind: source.kind.clone(),
            number: source.number,
            name: source.name.clone(),
            probed_count: source.count,
            probed_self_ns: source.self_total_ns,
            probe_overhead_total_ns: source.probe_overhead_total_ns,
            warm_overhead_ns,
            true_count: count,
            true_self_ns: self.ns_of(cycles),
            true_self_instructions: instructions,
            probed_event_spans: source.event_spans,
            true_event_spans: event_sums[0],
            cycles: event("cycles", event_sums[1]),
            instructions: event("instructions", event_sums[2]),
        })
    }

    /// Returns the cost of the programs at a class of tracepoints; `None` if they never ran.
    fn cost_of_probe(
        &self,
        condition: &str,
        position: u32,
        name: &str,
        region: &RegionUse,
    ) -> Option<ProbeCost> {
        let [calls, cycles, instructions] = calls_of_probe(position, region);
        (calls > 0).then(|| ProbeCost {
            condition: condition.to_owned(),
            function: name.to_owned(),
            calls,
            instructions,
            cycles,
            ns: self.ns_of(cycles),
        })
    }
}

/// Returns the number of calls of the programs at a class of tracepoints in the probes' window, their self cycles and their
/// self instructions, in this order. An interrupt in a call is not its cost.
fn calls_of_probe(position: u32, region: &RegionUse) -> [u64; 3] {
    let context = KernelContext::Function(PROBE_FIRST + position);
    let mut sums = [0; 3];
    for cpu in &region.cpus {
        let window = window_of(cpu);
        let is_call = |span: &&SpanUse| span.context == context && is_within(span, window);
        for call in cpu.spans.iter().filter(is_call) {
            let amounts = [1, call.self_cycles, call.self_instructions];
            sums.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += amount);
        }
    }
    sums
}

/// Warning for a CPU on which [`gates`] finds no window.
const GATE_UNSEEN: &str = "this kernel does not show where the probes' window opens and closes on a \
                           CPU: true counts cover a slightly longer window";

/// Returns the number of a context's spans in the probes' window, their self cycles and their self
/// instructions, in this order.
///
/// The probes see the part of a nested interrupt between two tracepoints. The kernel's work before the first
/// and after the last tracepoint counts as self time of the interrupted span, as it does for the probes.
fn spans_of(region: &RegionUse, context: KernelContext) -> [u64; 3] {
    let (mut span_count, mut cycles, mut instructions) = (0, 0, 0);
    for cpu in &region.cpus {
        let window = window_of(cpu);
        for (span, [cycles_around, instructions_around]) in
            cpu.spans.iter().zip(around_tracepoints(&cpu.spans))
        {
            if span.context == context && is_within(span, window) {
                span_count += 1;
                cycles += span.self_cycles + cycles_around;
                instructions += span.self_instructions + instructions_around;
            }
        }
    }
    [span_count, cycles, instructions]
}

/// Returns for each span the self cycles and self instructions of the interrupts directly inside it. The kernel executes
/// these before the first and after the last tracepoint of the interrupt. `spans` are in the order of their ends.
fn around_tracepoints(spans: &[SpanUse]) -> Vec<[u64; 2]> {
    let mut cycles_and_instructions = vec![[0; 2]; spans.len()];
    // Backwards from the last end: an enclosing span comes before the spans in it.
    let mut enclosing: Vec<usize> = Vec::new();
    for (position, span) in spans.iter().enumerate().rev() {
        let starts_later = |outer: &mut usize| started_at(&spans[*outer]) >= span.ended_at_cycles;
        while enclosing.pop_if(starts_later).is_some() {}
        if let (KernelContext::Interrupt(_), Some(outer)) = (span.context, enclosing.last()) {
            let [cycles, instructions] = &mut cycles_and_instructions[*outer];
            *cycles += span.self_cycles;
            *instructions += span.self_instructions;
        }
        enclosing.push(position);
    }
    cycles_and_instructions
}

/// When a span would have started if its task had never been switched out. 0 for a span that started on another CPU, with
/// another time, if that time would be negative.
pub(super) fn started_at(span: &SpanUse) -> u64 {
    span.ended_at_cycles.saturating_sub(span.inclusive_cycles)
}

/// Returns when the probes' window opened and closed on a CPU, in cycles on the CPU's time axis. The window opens at
/// the end of the gate's first run on the CPU, and closes at the start of its last run. Other contexts may
/// delay the task that runs the gate, so the task's markers are further apart.
pub(super) fn gates(cpu: &CpuUse) -> Option<(u64, u64)> {
    let is_gate =
        |span: &&SpanUse| span.context == KernelContext::Function(PROBE_FIRST + GATE_PROBE);
    let mut runs = cpu.spans.iter().filter(is_gate);
    let opens = runs.next()?;
    let closes = runs.next_back()?;
    Some((opens.ended_at_cycles, started_at(closes)))
}

/// Like [`gates`]. A window with unknown gates is always open.
pub(super) fn window_of(cpu: &CpuUse) -> (u64, u64) {
    gates(cpu).unwrap_or((0, u64::MAX))
}

fn is_within(span: &SpanUse, (opened, closed): (u64, u64)) -> bool {
    span.ended_at_cycles <= closed && started_at(span) >= opened
}

/// Sums up each context over the CPUs, by kind, number and name.
fn by_context(probed: &Probed) -> BTreeMap<(String, u32, String), ProbedContext> {
    let mut sums: BTreeMap<_, ProbedContext> = BTreeMap::new();
    for source in &probed.contexts {
        let key = (source.kind.clone(), source.number, source.name.clone());
        let add = |sum: &mut ProbedContext| {
            sum.count += source.count;
            sum.self_total_ns += source.self_total_ns;
            sum.probe_overhead_total_ns += source.probe_overhead_total_ns;
            sum.event_spans += source.event_spans;
            for (name, total) in &source.event_totals {
                *sum.event_totals.entry(name.clone()).or_default() += total;
            }
        };
        sums.entry(key).and_modify(add).or_insert_with(|| source.clone());
    }
    sums
}

/// Returns the contexts with spans in the probes' window that the live bench lacks: without counts, and with
/// the names of the simulator.
fn contexts_without_probes(
    probed: &Probed,
    region: &RegionUse,
    accounting: &Accounting,
) -> Vec<ProbedContext> {
    let known: BTreeSet<KernelContext> = probed.contexts.iter().filter_map(context_of).collect();
    let mut missed = BTreeSet::new();
    for cpu in &region.cpus {
        let window = window_of(cpu);
        let in_window = cpu.spans.iter().filter(|span| is_within(span, window));
        missed
            .extend(in_window.map(|span| span.context).filter(|context| !known.contains(context)));
    }
    missed.into_iter().filter_map(|context| uncounted(context, accounting)).collect()
}

/// Returns a context of which the live bench has no span. `None` for contexts that are not compared.
fn uncounted(context: KernelContext, accounting: &Accounting) -> Option<ProbedContext> {
    let named = match context {
        KernelContext::Irq(_) | KernelContext::Softirq(_) => context,
        KernelContext::Function(number) if (BODY_FIRST..PROBE_FIRST).contains(&number) => {
            KernelContext::Interrupt(u8::try_from(number - BODY_FIRST).ok()?)
        }
        _ => return None,
    };
    let Context { kind, number, name } = named_context(named, accounting)?;
    Some(ProbedContext {
        cpu: 0,
        kind: kind.label().to_owned(),
        number,
        name,
        count: 0,
        self_total_ns: 0,
        probe_overhead_total_ns: 0,
        event_spans: 0,
        event_totals: BTreeMap::new(),
    })
}

/// Interrupts at the edges of the window that may lack a body, on a CPU.
const EDGE_INTERRUPTS_MAX: u64 = 2;

/// Returns a warning for each system vector with interrupts that called no BPF program. Table `probes` lacks these interrupts
/// on both sides.
fn unseen_interrupts(condition: &str, region: &RegionUse) -> Vec<String> {
    let count_of = |context: KernelContext| spans_of(region, context)[0];
    let edges = EDGE_INTERRUPTS_MAX * region.cpus.len() as u64;
    let mut warnings = Vec::new();
    for known in &SYSTEM_VECTORS {
        let interrupts = count_of(KernelContext::Interrupt(known.vector));
        let bodies = count_of(KernelContext::Function(BODY_FIRST + u32::from(known.vector)));
        if interrupts > bodies + edges {
            warnings.push(format!(
                "{condition}: in {} of {interrupts} interrupts {}, the kernel called no BPF program: neither side of table \
                 probes has them",
                interrupts - bodies,
                known.name
            ));
        }
    }
    warnings
}

/// Returns the simulator's context between the two probes of a context that the live bench timed.
fn context_of(source: &ProbedContext) -> Option<KernelContext> {
    match source.kind.as_str() {
        "irq" => Some(KernelContext::Irq(source.number)),
        "softirq" => Some(KernelContext::Softirq(u8::try_from(source.number).ok()?)),
        "vector" => {
            let vector = vector_named(&source.name)?;
            Some(KernelContext::Function(BODY_FIRST + u32::from(vector)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(kind: &str, number: u32, name: &str, cpu: u32) -> ProbedContext {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        let event_totals = [("cycles".to_owned(), 7.0)].into_iter().collect();
        let event_spans = 1;
        ProbedContext {
            cpu,
            kind,
            number,
            name,
            count: 2,
            self_total_ns: 10,
            probe_overhead_total_ns: 3,
            event_spans,
            event_totals,
        }
    }

    #[test]
    fn sources_are_found_between_their_probes() {
        let found = |kind, number, name| context_of(&source(kind, number, name, 0));
        assert_eq!(found("irq", 24, "nvme0q1"), Some(KernelContext::Irq(24)));
        assert_eq!(found("softirq", 3, "NET_RX"), Some(KernelContext::Softirq(3)));
        let timer = KernelContext::Function(BODY_FIRST + 0xec);
        assert_eq!(found("vector", 0, "local_timer"), Some(timer));
        assert_eq!((found("vector", 0, "unheard_of"), found("nmi", 2, "nmi")), (None, None));
    }

    #[test]
    fn only_what_began_and_ended_between_the_gates_is_true() {
        let span = |context, start: u64, ended: u64| SpanUse {
            context,
            ended_at_cycles: ended,
            self_cycles: 1,
            inclusive_cycles: ended - start,
            self_instructions: 1,
        };
        let (gate, irq) =
            (KernelContext::Function(PROBE_FIRST + GATE_PROBE), KernelContext::Irq(24));
        let early = [span(irq, 10, 20), span(gate, 30, 40), span(irq, 25, 45), span(irq, 50, 60)];
        let late = [span(irq, 60, 70), span(gate, 80, 90), span(irq, 75, 95), span(irq, 100, 110)];
        let spans = [early, late].concat();
        let mut region =
            RegionUse { cpus: vec![CpuUse { spans, ..CpuUse::default() }], ..RegionUse::default() };
        assert_eq!(spans_of(&region, irq), [2, 2, 2]);
        region.cpus[0].spans.retain(|span| span.context == irq);
        assert_eq!((gates(&region.cpus[0]), spans_of(&region, irq)), (None, [6, 6, 6]));
    }

    #[test]
    fn entry_and_exit_of_a_nested_interrupt_are_the_spans() {
        let span = |context, start: u64, ended: u64, own: u64| SpanUse {
            context,
            ended_at_cycles: ended,
            self_cycles: own,
            inclusive_cycles: ended - start,
            self_instructions: own / 2,
        };
        let (softirq, interrupt) = (KernelContext::Softirq(1), KernelContext::Interrupt(0xec));
        let (body, probe) =
            (KernelContext::Function(BODY_FIRST + 0xec), KernelContext::Function(PROBE_FIRST));
        // One interrupt in the softirq, one in a probe there, one after it. In the order of their ends.
        let spans = vec![
            span(body, 110, 140, 30),
            span(interrupt, 100, 150, 20),
            span(interrupt, 210, 220, 10),
            span(probe, 200, 230, 20),
            span(softirq, 50, 300, 170),
            span(interrupt, 300, 340, 40),
        ];
        let region =
            RegionUse { cpus: vec![CpuUse { spans, ..CpuUse::default() }], ..RegionUse::default() };
        assert_eq!(spans_of(&region, softirq), [1, 170 + 20, 85 + 10]);
        assert_eq!(spans_of(&region, body), [1, 30, 15]);
    }

    fn span(context: KernelContext, start: u64, ended: u64, own: u64) -> SpanUse {
        SpanUse {
            context,
            ended_at_cycles: ended,
            self_cycles: own,
            inclusive_cycles: ended - start,
            self_instructions: own / 2,
        }
    }

    fn region_of(spans: Vec<SpanUse>) -> RegionUse {
        RegionUse { cpus: vec![CpuUse { spans, ..CpuUse::default() }], ..RegionUse::default() }
    }

    /// A timer with two programs of its own interrupts the first call. The last call is after the window.
    #[test]
    fn a_call_of_a_probe_does_not_cost_the_interrupts_in_it() {
        let (gate, probe) = (PROBE_FIRST + GATE_PROBE, KernelContext::Function(PROBE_FIRST + 2));
        let vector_probe = KernelContext::Function(PROBE_FIRST + 3);
        let region = region_of(vec![
            span(KernelContext::Function(gate), 0, 10, 10),
            span(vector_probe, 110, 174, 64),
            span(vector_probe, 400, 464, 64),
            span(KernelContext::Interrupt(0xec), 100, 552, 324),
            span(probe, 50, 726, 224),
            span(probe, 800, 820, 20),
            span(KernelContext::Function(gate), 900, 910, 10),
            span(probe, 920, 990, 70),
        ]);
        assert_eq!(calls_of_probe(2, &region), [2, 244, 122]);
        assert_eq!(calls_of_probe(3, &region), [2, 128, 64]);
        assert_eq!(calls_of_probe(0, &region), [0; 3]);
    }

    /// The live bench has counted one line, and neither the softirq nor the timer.
    #[test]
    fn a_context_that_the_live_bench_lacks_is_compared_with_zero() {
        let body = KernelContext::Function(BODY_FIRST + 0xec);
        let region = region_of(vec![
            span(KernelContext::Irq(24), 10, 20, 10),
            span(KernelContext::Irq(25), 30, 40, 10),
            span(body, 52, 58, 6),
            span(KernelContext::Interrupt(0xec), 50, 60, 4),
            span(KernelContext::Softirq(3), 60, 70, 10),
            span(KernelContext::Exception(14), 80, 90, 10),
        ]);
        let contexts = vec![source("irq", 24, "a", 0)];
        let probed = Probed { contexts, ..Probed::default() };
        let irqs = [(25, "b".to_owned())].into_iter().collect();
        let accounting = Accounting { irqs, ..Accounting::default() };
        let missed = contexts_without_probes(&probed, &region, &accounting);
        let mut names: Vec<_> = missed
            .iter()
            .map(|context| (&context.kind[..], context.number, &context.name[..], context.count))
            .collect();
        names.sort_unstable();
        let expected =
            [("irq", 25, "b", 0), ("softirq", 3, "NET_RX", 0), ("vector", 0, "local_timer", 0)];
        assert_eq!(names, expected);
        assert!(missed.iter().all(|context| context_of(context).is_some()));
    }

    #[test]
    fn interrupts_that_called_no_program_are_a_warning() {
        let timer = |start| span(KernelContext::Interrupt(0xec), start, start + 9, 9);
        let body = |start| span(KernelContext::Function(BODY_FIRST + 0xec), start, start + 5, 5);
        let mut spans = vec![body(2), timer(0), timer(20), timer(40)];
        assert_eq!(unseen_interrupts("idle", &region_of(spans.clone())), [""; 0], "the edges");
        spans.push(timer(60));
        let warnings = unseen_interrupts("idle", &region_of(spans));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("idle: in 3 of 4 interrupts local_timer"), "{warnings:?}");
    }

    #[test]
    fn cpus_are_summed_up_and_lines_of_the_same_name_are_distinct() {
        let lines = [(24, 0), (24, 1), (25, 0)];
        let contexts = lines.map(|(number, cpu)| source("irq", number, "a", cpu)).to_vec();
        let sums = by_context(&Probed { contexts, ..Probed::default() });
        let [sum, other] = sums.values().collect::<Vec<_>>()[..] else { panic!("{}", sums.len()) };
        assert_eq!((sum.number, sum.count, sum.self_total_ns), (24, 4, 20));
        assert_eq!((other.number, other.count), (25, 2));
        assert_eq!((sum.event_spans, sum.event_totals["cycles"]), (2, 14.0));
    }
}
