//! How much the probes of a pass with PMU events add to the events' counts, for each context. It is
//! measured by empty spans in situ.
//!
//! `handlers` loads an [`EventCalibration`] for each such pass, and runs it while a condition warms up. It subtracts
//! the resulting [`EventOverheads`] from the spans of the window that follows.
//!
//! # Method
//!
//! The loop of [`super::calibrate`] has warm caches. Interrupts find colder caches, where the probes cause more
//! events. Therefore the calibration programs open and close two empty spans, one after the other, at the entry of each
//! device IRQ, softirq and vector.
//!
//! The first span finds the caches as the interrupt does. But its exit program runs on the path that the entry
//! program has just warmed, while in a real span a handler runs in between. The difference between the counts of
//! the first and the second span is the cost of leaving a program with cold caches. Entering the exit program with
//! cold caches is assumed to cost as much. The subtracted cost is at most an eighth of the rest of the span,
//! because a short span cools no cache.
//!
//! A context with too few empty spans gets the overhead of its kind: device IRQs, softirqs or vectors. A kind with too
//! few spans gets the overhead in the warm loop.
//!
//! The 95 % interval of the overhead combines two parts. One is the interval of the empty spans, by batch means.
//! The other is the total cost that is subtracted for a cold exit, because the assumptions about that cost may be
//! wrong by as much. The interval of the warm loop's overhead is not known, because nothing shows how much
//! interrupts differ from a warm loop.

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
use crate::window::{WindowEdge, set_windows};

/// Smallest number of empty spans from which an overhead is computed. With fewer, the overhead of the kind is used.
const SPANS_MIN: u64 = 8;
/// Limits the subtraction for a cold exit to 2^-this of the rest of a span's events.
const COLD_EXIT_SHIFT: u32 = 3;

/// Vectors that occur too rarely in a warm-up. They have no calibration programs, and get the overhead of all vectors.
const RARE_VECTORS: [&str; 6] = [
    "x86_platform_ipi",
    "error_apic",
    "spurious_apic",
    "thermal_apic",
    "threshold_apic",
    "deferred_error_apic",
];

/// The keys of all contexts of the kind of `key`: vectors, softirqs or device IRQs, with their threads. Spans of other
/// contexts (NMI, page faults, NAPI) have no events, so their result does not matter.
fn keys_of_kind(key: u32) -> Range<u32> {
    match key {
        key if key >= KEY_IRQ => KEY_IRQ..KEY_SECOND,
        key if key >= KEY_SOFTIRQ => KEY_SOFTIRQ..KEY_NMI,
        _ => KEY_VECTOR..KEY_SOFTIRQ,
    }
}

/// The calibration programs of a pass that reads events. They stay loaded, and are attached only while they measure,
/// because they take time at each interrupt.
pub struct EventCalibration {
    probes: Probes,
    /// The four programs of each tracepoint, in the order of attachment.
    programs: Vec<[String; 4]>,
    cpus: Vec<u32>,
    /// The warm loop's result, for each type of cores.
    warm: Vec<CoreCalibration>,
    /// Number of events that the programs read.
    events: usize,
}

impl EventCalibration {
    /// Loads the programs, which count in `maps` and read `events` on `cpus`. `warm`: the warm
    /// loop's result, for each type of cores.
    ///
    /// Fails if the kernel refuses.
    pub fn load(
        flavour: Flavour,
        cpus: &[u32],
        maps: Maps<'_>,
        warm: &[CoreCalibration],
        events: &EventGroup,
    ) -> Result<Self, BpfError> {
        let available: BTreeSet<String> = choose(flavour, false).programs.into_iter().collect();
        let calibration_programs = |suffix| {
            ["open_first_at", "close_first_at", "open_second_at", "close_second_at"]
                .map(|program| format!("{program}_{suffix}"))
        };
        // Suffix of the calibration programs' names, and prefix of the probe at the same tracepoint.
        let contexts = [("irq", "irq_handler"), ("softirq", "softirq")].into_iter();
        let programs: Vec<[String; 4]> = contexts
            .chain(VECTORS.iter().map(|vector| (*vector, *vector)))
            .filter(|(suffix, _)| !RARE_VECTORS.contains(suffix))
            .filter(|(_, probe)| available.contains(&format!("{probe}_in")))
            .map(|(suffix, _)| calibration_programs(suffix))
            .collect();
        let program_names: Vec<&str> = programs.as_flattened().iter().map(String::as_str).collect();
        let event_count = events.names().len();
        let config =
            Config { events: event_count as u32, empty_spans_only: 1, ..Config::default() };
        let probes = Probes::load(&LoadSpec { flavour, config, maps, programs: &program_names })?;
        events.hand_to(&probes, cpus)?;
        Ok(EventCalibration {
            probes,
            programs,
            cpus: cpus.to_vec(),
            warm: warm.to_vec(),
            events: event_count,
        })
    }

    /// Attaches the programs, calls `pass_time`, which lets the condition warm up, and detaches them. Returns the
    /// overhead that they counted meanwhile. If a tracepoint refuses its programs, its contexts get the overhead of
    /// their kind or of the warm loop.
    ///
    /// Fails if the kernel refuses a call.
    pub fn measure(&self, pass_time: impl FnOnce()) -> Result<EventOverheadsByCore, BenchError> {
        self.probes.clear()?;
        let attach = |programs: &[String; 4]| -> Option<Vec<_>> {
            programs.iter().map(|program| self.probes.attach_guarded(program).ok()).collect()
        };
        let links: Vec<_> = self.programs.iter().map(attach).collect();
        set_windows(&self.probes, &self.cpus, WindowEdge::Open)?;
        pass_time();
        set_windows(&self.probes, &self.cpus, WindowEdge::Close)?;
        drop(links);
        let rows = self.probes.rows()?;
        let states = self.probes.states()?;
        let window_ns = |cpu: &u32| Some(states.get(*cpu as usize)?.window_ns());
        let length_ns = self.cpus.iter().filter_map(window_ns).max().unwrap_or(0);
        Ok(EventOverheadsByCore::new(self.events, &self.warm, &rows, length_ns))
    }

    /// Overheads that give every context the warm loop's overhead, for windows without a warm-up.
    #[must_use]
    pub fn warm(&self) -> EventOverheadsByCore {
        EventOverheadsByCore::new(self.events, &self.warm, &[], 0)
    }

    /// The kernel memory of the calibration's maps and programs; `None` if the
    /// kernel does not state it.
    #[must_use]
    pub fn kernel_memory(&self) -> Option<KernelMemory> {
        self.probes.kernel_memory()
    }
}

/// The overheads on events, for each type of cores. The empty spans of all CPUs of a type count together.
#[derive(Clone, Debug, Default)]
pub struct EventOverheadsByCore {
    by_core: Vec<(CoreType, EventOverheads)>,
    /// Used on CPUs of an unknown type: adds nothing.
    no_overhead: EventOverheads,
}

impl EventOverheadsByCore {
    /// Computes the overheads from the rows of empty spans in a window of `length_ns`, and from the
    /// warm loop if there are too few spans.
    fn new(events: usize, warm: &[CoreCalibration], rows: &[CountedRow], length_ns: u64) -> Self {
        let overheads_of_type = |calibration: &CoreCalibration| {
            let CoreCalibration { core, warm, .. } = calibration;
            let core_rows = rows.iter().filter(|row| core.cpus.contains(&row.cpu));
            let core_rows = core_rows.map(|row| &*row.row);
            (core.clone(), EventOverheads::new(events, &warm.events, core_rows, length_ns))
        };
        EventOverheadsByCore {
            by_core: warm.iter().map(overheads_of_type).collect(),
            ..Self::default()
        }
    }

    /// The overheads on the cores of the type of `cpu`.
    #[must_use]
    pub fn on(&self, cpu: u32) -> &EventOverheads {
        let found = self.by_core.iter().find(|(core, _)| core.cpus.contains(&cpu));
        found.map_or(&self.no_overhead, |(_, overheads)| overheads)
    }
}

/// Sums of the events over some spans.
#[derive(Clone, Debug, Default)]
struct EventTotals {
    spans: u64,
    sums: [u64; EVENTS_MAX],
    batches: Batches<JointBatch>,
}

impl EventTotals {
    fn add(&mut self, other: &EventTotals) {
        self.spans += other.spans;
        for (sum, other_sum) in self.sums.iter_mut().zip(&other.sums) {
            *sum = sum.saturating_add(*other_sum);
        }
        self.batches.merge(&other.batches);
    }

    fn mean(&self, event: usize) -> f64 {
        self.sums[event] as f64 / self.spans.max(1) as f64
    }

    /// Half of the 95 % interval of the mean of `event`. 0 if the event never occurred. `None` with too few batches.
    fn mean_half_width(&self, event: usize) -> Option<f64> {
        if self.sums[event] == 0 {
            return Some(0.0);
        }
        Some(self.batches.mean(Term { at: event, less: 0.0 })?.half_width)
    }
}

/// The counts that the probes add to one event in the spans of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddedEvents {
    /// Added in all spans of the row together.
    pub total: u64,
    /// Half of the 95 % interval of the mean addition per span; `None` if it is not known.
    pub mean_half_width: Option<f64>,
}

/// The overheads on events, by context, on the CPUs of one type of cores.
#[derive(Clone, Debug, Default)]
pub struct EventOverheads {
    /// Number of events of the pass.
    events: usize,
    /// Means of the warm loop's spans, for each event of the pass.
    warm: Vec<f64>,
    /// Sums of the empty spans, by key.
    by_key: BTreeMap<u32, EventTotals>,
}

impl EventOverheads {
    /// Uses the warm loop's means and the rows of empty spans in a window of `length_ns`, in a pass
    /// with `events` events.
    pub fn new<'a>(
        events: usize,
        warm: &[f64],
        rows: impl Iterator<Item = &'a Row>,
        length_ns: u64,
    ) -> Self {
        let mut by_key: BTreeMap<u32, EventTotals> = BTreeMap::new();
        for row in rows {
            let batches = row.event_batches(events, length_ns);
            let totals = EventTotals { spans: row.event_spans, sums: row.event_self, batches };
            by_key.entry(row.key).or_default().add(&totals);
        }
        EventOverheads { events, warm: warm.to_vec(), by_key }
    }

    /// The number of events of the pass.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events
    }

    /// The totals of all empty spans with these keys.
    fn totals_of_keys(&self, keys: Range<u32>) -> EventTotals {
        let mut all = EventTotals::default();
        self.by_key.range(keys).for_each(|(_, totals)| all.add(totals));
        all
    }

    /// How much the probes added to the self counts of a row's spans, for each event of the pass. Uses the empty spans of the
    /// row's context, else of its kind, else of the warm loop. Keys of the second empty spans are those of the first plus
    /// [`KEY_SECOND`].
    #[must_use]
    pub fn added_by_probes(&self, row: &Row) -> Vec<AddedEvents> {
        let has_enough_spans =
            |keys: &Range<u32>| self.totals_of_keys(keys.clone()).spans >= SPANS_MIN;
        let keys = [row.key..row.key + 1, keys_of_kind(row.key)].into_iter().find(has_enough_spans);
        let spans = row.event_spans as f64;
        let Some(keys) = keys else {
            let total = |warm: &f64| (warm.max(0.0) * spans).round() as u64;
            let warm_overhead = |warm| AddedEvents { total: total(warm), mean_half_width: None };
            return self.warm.iter().map(warm_overhead).collect();
        };
        let (first, second) = (
            self.totals_of_keys(keys.clone()),
            self.totals_of_keys(keys.start + KEY_SECOND..keys.end + KEY_SECOND),
        );
        let added_of = |event: usize| {
            let first_mean = first.mean(event);
            let cold_difference =
                if second.spans > 0 { first_mean - second.mean(event) } else { 0.0 };
            let rest_of_span = row.event_self[event] as f64 / spans.max(1.0) - first_mean;
            let cold_exit_max = rest_of_span / f64::from(1u32 << COLD_EXIT_SHIFT);
            let cold_exit = cold_difference.min(cold_exit_max).max(0.0);
            AddedEvents {
                total: ((first_mean + cold_exit) * spans).round() as u64,
                mean_half_width: first
                    .mean_half_width(event)
                    .map(|half_width| half_width.hypot(cold_exit)),
            }
        };
        (0..self.events).map(added_of).collect()
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
        overheads(rows).added_by_probes(of).iter().map(|added| added.total).collect()
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
        let added = |cpu, key| overheads.on(cpu).added_by_probes(&row(key, 1, 1_000))[0].total;
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

    /// A row of empty spans with `means` events, eight spans in each batch.
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
        let added_to = |rows: &[Box<Row>], span| {
            let overheads =
                EventOverheads::new(1, &[7.0], rows.iter().map(|row| &**row), (8 << 20) - 1);
            overheads.added_by_probes(&row(key, 1, span))[0]
        };
        // Student's t for 7 degrees of freedom, times the error of the mean of eight batches.
        let of_spans = 2.365 * (32.0_f64 / 7.0 / 8.0).sqrt();
        let found = added_to(&[batched(key, &means)], 1_000);
        assert_eq!(found.total, 100);
        assert!((found.mean_half_width.unwrap() - of_spans).abs() < 0.001, "{found:?}");
        let second = batched(key + KEY_SECOND, &[60; 8]);
        let found = added_to(&[batched(key, &means), second], 1_000);
        assert_eq!(found.total, 140);
        assert!((found.mean_half_width.unwrap() - of_spans.hypot(40.0)).abs() < 0.001, "{found:?}");
        let too_few = added_to(&[batched(key, &means[..7])], 1_000);
        assert_eq!((too_few.total, too_few.mean_half_width), (100, None), "too few batches");
        assert_eq!(
            added_to(&[], 1_000),
            AddedEvents { total: 7, mean_half_width: None },
            "the warm loop's"
        );
        let none = added_to(&[batched(key, &[0; 8])], 1_000);
        assert_eq!(none, AddedEvents { total: 0, mean_half_width: Some(0.0) }, "reading adds none");
    }
}
