//! What reading the PMU events adds to the events of a span, by context, from empty spans in situ.
//!
//! The caches of the loop of [`super::calibrate`] are warm. Interrupts find colder caches, and there
//! reading the events adds more to them. So while a condition warms up, empty spans are opened and
//! closed at the entry of each device IRQ, softirq and vector, two in a row.
//!
//! The first finds the caches as the interrupt does. But its exit program runs on the path that the
//! entry program has just warmed, and in a real span a handler runs in between. The difference between
//! the counts of the first and of the second is the cost of leaving a program with cold caches; entering
//! one is assumed to cost the same. The subtracted cost is at most an eighth of the rest of the span: a
//! short span cools no cache.
//!
//! This is subtracted from spans of the same context in that condition's window. A context with too
//! few empty spans gets the overhead of its kind, and without that the warm loop's.
//!
//! Its 95 % interval is that of the empty spans, by batch means, and what is subtracted for a cold exit:
//! the two assumptions may be wrong by the whole of that cost. The interval of the warm loop's overhead is not known,
//! because nothing shows how far interrupts are from a warm loop.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use attribution::context::VECTORS;
use lab::experiment::BenchError;
use stats::{Batches, JointBatch, Term};

use super::CoreCalibration;
use crate::bpf::layout::{
    Config, EVENTS_MAX, KEY_IRQ, KEY_NMI, KEY_SECOND, KEY_SOFTIRQ, KEY_VECTOR, Row,
};
use crate::bpf::memory::KernelMemory;
use crate::bpf::programs::choose;
use crate::bpf::{BpfError, CountedRow, Flavour, LoadSpec, Maps, Probes};
use crate::host::CoreType;
use crate::perf::EventGroup;
use crate::window::{WindowEdge, move_gates};

/// Least number of empty spans from which an overhead is computed.
const SPANS_MIN: u64 = 8;
/// At most 2^-this of a span's events is subtracted for a cold exit.
const COLD_EXIT_SHIFT: u32 = 3;

/// Vectors that are too rare in a warm-up: they get the overhead of all vectors.
const RARE: [&str; 6] = [
    "x86_platform_ipi",
    "error_apic",
    "spurious_apic",
    "thermal_apic",
    "threshold_apic",
    "deferred_error_apic",
];

/// The keys of the same kind: vectors, softirqs or device IRQs.
fn keys_of_kind(key: u32) -> Range<u32> {
    match key {
        key if key >= KEY_IRQ => KEY_IRQ..KEY_SECOND,
        key if key >= KEY_SOFTIRQ => KEY_SOFTIRQ..KEY_NMI,
        _ => KEY_VECTOR..KEY_SOFTIRQ,
    }
}

/// The calibration programs of a pass that reads events, loaded and not attached.
pub struct EventCalibration {
    probes: Probes,
    /// The four programs of each tracepoint, in the order of attachment.
    programs: Vec<[String; 4]>,
    cpus: Vec<u32>,
    warm: Vec<CoreCalibration>,
    /// Number of events that the programs read.
    events: usize,
}

impl EventCalibration {
    /// Loads the programs, which count in `maps` and read `events`; `warm` is the warm loop's result.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load(
        flavour: Flavour,
        cpus: &[u32],
        maps: Maps<'_>,
        warm: &[CoreCalibration],
        events: &EventGroup,
    ) -> Result<Self, BpfError> {
        let has: BTreeSet<String> = choose(flavour, false).programs.into_iter().collect();
        let names = |tracepoint| {
            ["open_first_at", "close_first_at", "open_second_at", "close_second_at"]
                .map(|program| format!("{program}_{tracepoint}"))
        };
        let tracepoints = [("irq", "irq_handler"), ("softirq", "softirq")].into_iter();
        let programs: Vec<[String; 4]> = tracepoints
            .chain(VECTORS.iter().map(|vector| (*vector, *vector)))
            .filter(|(tracepoint, _)| !RARE.contains(tracepoint))
            .filter(|(_, program)| has.contains(&format!("{program}_in")))
            .map(|(tracepoint, _)| names(tracepoint))
            .collect();
        let all: Vec<&str> = programs.as_flattened().iter().map(String::as_str).collect();
        let number = events.names().len();
        let config = Config { events: number as u32, empty_spans_only: 1, ..Config::default() };
        let probes = Probes::load(&LoadSpec { flavour, config, maps, programs: &all })?;
        events.hand_to(&probes, cpus)?;
        Ok(EventCalibration {
            probes,
            programs,
            cpus: cpus.to_vec(),
            warm: warm.to_vec(),
            events: number,
        })
    }

    /// Attaches the programs while `pass_time` lets time pass, and returns what reading adds there. A
    /// tracepoint that refuses its programs gets the warm loop's overhead.
    ///
    /// # Errors
    /// When the kernel refuses a call.
    pub fn measure(&self, pass_time: impl FnOnce()) -> Result<EventOverheadsByCore, BenchError> {
        let bench_error = |error: BpfError| BenchError::Failed(error.to_string());
        self.probes.clear().map_err(bench_error)?;
        let attach = |programs: &[String; 4]| -> Option<Vec<_>> {
            programs.iter().map(|program| self.probes.link(program).ok()).collect()
        };
        let links: Vec<_> = self.programs.iter().map(attach).collect();
        move_gates(&self.probes, &self.cpus, WindowEdge::Open)?;
        pass_time();
        move_gates(&self.probes, &self.cpus, WindowEdge::Close)?;
        drop(links);
        let rows = self.probes.rows().map_err(bench_error)?;
        let states = self.probes.states().map_err(bench_error)?;
        let length = |cpu: &u32| Some(states.get(*cpu as usize)?.window_ns());
        let length_ns = self.cpus.iter().filter_map(length).max().unwrap_or(0);
        Ok(EventOverheadsByCore::new(self.events, &self.warm, &rows, length_ns))
    }

    /// The warm loop's overhead, for all contexts.
    #[must_use]
    pub fn warm(&self) -> EventOverheadsByCore {
        EventOverheadsByCore::new(self.events, &self.warm, &[], 0)
    }

    /// The kernel memory of its maps and programs; `None` where the kernel does not state it.
    #[must_use]
    pub fn kernel_memory(&self) -> Option<KernelMemory> {
        self.probes.kernel_memory()
    }
}

/// What reading the events adds to a span, by the type of the cores: the empty spans of all CPUs of a type
/// are taken together.
#[derive(Clone, Debug, Default)]
pub struct EventOverheadsByCore {
    by_core: Vec<(CoreType, EventOverheads)>,
    /// For CPUs of no known type.
    nothing: EventOverheads,
}

impl EventOverheadsByCore {
    /// From the rows of empty spans in a window of that length, and where these are too few, from the warm
    /// loop.
    fn new(events: usize, warm: &[CoreCalibration], rows: &[CountedRow], length_ns: u64) -> Self {
        let of_core = |one: &CoreCalibration| {
            let here = rows.iter().filter(|row| one.core.cpus.contains(&row.cpu));
            let here = here.map(|row| &*row.row);
            (one.core.clone(), EventOverheads::new(events, &one.warm.events, here, length_ns))
        };
        EventOverheadsByCore { by_core: warm.iter().map(of_core).collect(), ..Self::default() }
    }

    #[must_use]
    pub fn on(&self, cpu: u32) -> &EventOverheads {
        let found = self.by_core.iter().find(|(core, _)| core.cpus.contains(&cpu));
        found.map_or(&self.nothing, |(_, overheads)| overheads)
    }
}

/// Sums over spans.
#[derive(Clone, Debug, Default)]
struct EventTotals {
    spans: u64,
    sums: [u64; EVENTS_MAX],
    batches: Batches<JointBatch>,
}

impl EventTotals {
    fn add(&mut self, other: &EventTotals) {
        self.spans += other.spans;
        for (sum, more) in self.sums.iter_mut().zip(&other.sums) {
            *sum = sum.saturating_add(*more);
        }
        self.batches.merge(&other.batches);
    }

    fn mean(&self, event: usize) -> f64 {
        self.sums[event] as f64 / self.spans.max(1) as f64
    }

    /// Half of the 95 % interval of the mean; 0 of what was never counted, `None` with too few batches.
    fn mean_ci95(&self, event: usize) -> Option<f64> {
        if self.sums[event] == 0 {
            return Some(0.0);
        }
        Some(self.batches.mean(Term { at: event, less: 0.0 })?.half_width)
    }
}

/// What reading added to the self events of all of a row's spans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddedEvents {
    /// The sum.
    pub total: u64,
    /// Half of the 95 % interval of what it added to one span; `None` where it is not known.
    pub mean_ci95: Option<f64>,
}

/// What reading the events adds to a span.
#[derive(Clone, Debug, Default)]
pub struct EventOverheads {
    /// Events of the pass.
    events: usize,
    /// By the warm loop, for each event of the pass.
    warm: Vec<f64>,
    /// Empty spans by key.
    by_key: BTreeMap<u32, EventTotals>,
}

impl EventOverheads {
    /// For that many events, from the warm loop's means and the rows of empty spans in a window of that
    /// length.
    pub fn new<'a>(
        events: usize,
        warm: &[f64],
        rows: impl Iterator<Item = &'a Row>,
        length_ns: u64,
    ) -> Self {
        let mut by_key: BTreeMap<u32, EventTotals> = BTreeMap::new();
        for row in rows {
            let batches = row.event_batches(events, length_ns);
            let here = EventTotals { spans: row.event_spans, sums: row.event_self, batches };
            by_key.entry(row.key).or_default().add(&here);
        }
        EventOverheads { events, warm: warm.to_vec(), by_key }
    }

    /// The number of events of the pass.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events
    }

    fn sum(&self, keys: Range<u32>) -> EventTotals {
        let mut all = EventTotals::default();
        self.by_key.range(keys).for_each(|(_, one)| all.add(one));
        all
    }

    /// What reading added to the self events of all of a row's spans, for each event of the pass.
    #[must_use]
    pub fn added(&self, row: &Row) -> Vec<AddedEvents> {
        let enough = |keys: &Range<u32>| self.sum(keys.clone()).spans >= SPANS_MIN;
        let keys = [row.key..row.key + 1, keys_of_kind(row.key)].into_iter().find(enough);
        let spans = row.event_spans as f64;
        let Some(keys) = keys else {
            let total = |warm: &f64| (warm.max(0.0) * spans).round() as u64;
            let of_warm = |warm| AddedEvents { total: total(warm), mean_ci95: None };
            return self.warm.iter().map(of_warm).collect();
        };
        let (first, second) =
            (self.sum(keys.clone()), self.sum(keys.start + KEY_SECOND..keys.end + KEY_SECOND));
        let overhead = |event: usize| {
            let base = first.mean(event);
            let colder = if second.spans > 0 { base - second.mean(event) } else { 0.0 };
            let rest = row.event_self[event] as f64 / spans.max(1.0) - base;
            let most = rest / f64::from(1u32 << COLD_EXIT_SHIFT);
            let cold_exit = colder.min(most).max(0.0);
            AddedEvents {
                total: ((base + cold_exit) * spans).round() as u64,
                mean_ci95: first.mean_ci95(event).map(|of_base| of_base.hypot(cold_exit)),
            }
        };
        (0..self.events).map(overhead).collect()
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::probe_overhead::WarmOverhead;

    fn row(key: u32, spans: u64, mean: u64) -> Box<Row> {
        let mut row = Box::new(Row::new_zeroed());
        (row.key, row.event_spans, row.event_self[0]) = (key, spans, mean * spans);
        row
    }

    fn overheads(rows: &[Box<Row>]) -> EventOverheads {
        EventOverheads::new(1, &[7.0], rows.iter().map(|row| &**row), 1 << 20)
    }

    fn added(rows: &[Box<Row>], of: &Row) -> Vec<u64> {
        overheads(rows).added(of).iter().map(|added| added.total).collect()
    }

    #[test]
    fn a_context_has_its_own_overhead_or_that_of_its_kind_or_the_warm_loops() {
        let rows = [row(KEY_VECTOR, 8, 100), row(KEY_SOFTIRQ, 7, 50), row(KEY_SOFTIRQ + 1, 1, 58)];
        assert_eq!(added(&rows, &row(KEY_VECTOR, 3, 1_000)), [300]);
        assert_eq!(added(&rows, &row(KEY_VECTOR + 1, 3, 1_000)), [300]);
        assert_eq!(added(&rows, &row(KEY_SOFTIRQ, 2, 1_000)), [102]);
        assert_eq!(added(&rows, &row(KEY_IRQ, 2, 1_000)), [14]);
    }

    #[test]
    fn each_type_of_cores_has_its_own_overhead() {
        let calibration = |name: &str, cpus: &[u32], added| CoreCalibration {
            calibrated_on_cpu: cpus[0],
            core: CoreType { name: name.to_owned(), cpus: cpus.to_vec() },
            warm: WarmOverhead { events: vec![added], ..WarmOverhead::default() },
        };
        let warm = [calibration("cpu_core", &[0, 1], 2.0), calibration("cpu_atom", &[2, 3], 5.0)];
        let counted = |cpu, mean| CountedRow { cpu, row: row(KEY_VECTOR, 8, mean), nested: None };
        let rows = [counted(0, 30), counted(1, 30), counted(3, 90)];
        let overheads = EventOverheadsByCore::new(1, &warm, &rows, 1 << 20);
        let added = |cpu, key| overheads.on(cpu).added(&row(key, 1, 1_000))[0].total;
        assert_eq!([0, 1, 2, 3].map(|cpu| added(cpu, KEY_VECTOR)), [30, 30, 90, 90]);
        assert_eq!([0, 3].map(|cpu| added(cpu, KEY_IRQ)), [2, 5], "the warm loop's");
    }

    #[test]
    fn the_cold_exit_is_subtracted_as_far_as_the_span_can_have_cooled_it() {
        let rows = [row(KEY_IRQ, 9, 100), row(KEY_IRQ + KEY_SECOND, 9, 60)];
        assert_eq!(added(&rows, &row(KEY_IRQ, 1, 1_000)), [140]);
        assert_eq!(added(&rows, &row(KEY_IRQ, 1, 180)), [110]);
        assert_eq!(added(&rows, &row(KEY_IRQ, 1, 90)), [100]);
    }

    /// Empty spans with `means` events, eight in each batch.
    fn batched(key: u32, means: &[u64]) -> Box<Row> {
        let mut row = row(key, 0, 0);
        row.batch_shift = 20;
        for (at, mean) in means.iter().enumerate() {
            row.event_spans += 8;
            row.event_self[0] += 8 * mean;
            (row.batches[at].count, row.slots[at * EVENTS_MAX]) = (8, 8 * mean);
        }
        row
    }

    #[test]
    fn the_interval_of_what_reading_adds_is_that_of_the_empty_spans_and_the_cold_exit() {
        let (key, means) = (KEY_IRQ, [98, 102, 102, 98, 98, 102, 102, 98]);
        let of = |rows: &[Box<Row>], span| {
            let overheads =
                EventOverheads::new(1, &[7.0], rows.iter().map(|row| &**row), (8 << 20) - 1);
            overheads.added(&row(key, 1, span))[0]
        };
        // t of 7 degrees of freedom, and the error of the mean of eight batches.
        let of_spans = 2.365 * (32.0_f64 / 7.0 / 8.0).sqrt();
        let found = of(&[batched(key, &means)], 1_000);
        assert_eq!(found.total, 100);
        assert!((found.mean_ci95.unwrap() - of_spans).abs() < 0.001, "{found:?}");
        let second = batched(key + KEY_SECOND, &[60; 8]);
        let found = of(&[batched(key, &means), second], 1_000);
        assert_eq!(found.total, 140);
        assert!((found.mean_ci95.unwrap() - of_spans.hypot(40.0)).abs() < 0.001, "{found:?}");
        let few = of(&[batched(key, &means[..7])], 1_000);
        assert_eq!((few.total, few.mean_ci95), (100, None), "too few batches");
        assert_eq!(of(&[], 1_000), AddedEvents { total: 7, mean_ci95: None }, "the warm loop's");
        let none = of(&[batched(key, &[0; 8])], 1_000);
        assert_eq!(none, AddedEvents { total: 0, mean_ci95: Some(0.0) }, "reading adds none");
    }
}
