//! What a pair of probes adds inside a span, measured in situ: where the spans are.
//!
//! The caches of the loop of [`super::calibrate`] are warm. Interrupts find colder caches, and their
//! probes cost more. So while a condition warms up, empty spans are opened and closed at the entry of
//! each device IRQ, softirq and vector, two in a row.
//!
//! The first finds the caches as the interrupt does. But its exit program runs on the path that the
//! entry program has just warmed, and in a real span a handler runs in between. The difference between
//! the first and the second is the cost of leaving a program with cold caches; entering one is assumed
//! to cost the same, except where the span is too short to have cooled the path.
//!
//! This is subtracted from spans of the same context in that condition's window. A context with too
//! few empty spans gets the overhead of its kind, and without that the warm loop's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use attribution::context::{SOFTIRQS, VECTORS};
use attribution::key::ContextKey;
use lab::experiment::BenchError;
use serde_json::{Map, Value as Json, json};
use stats::LogLinear;

use super::CoreCalibration;
use super::events::EventOverheads;
use crate::bpf::layout::{
    Config, EVENTS_MAX, KEY_IRQ, KEY_NMI, KEY_SECOND, KEY_SOFTIRQ, KEY_VECTOR, KEYS_DENSE,
    ProbeOverhead, ProbeOverheads,
};
use crate::bpf::memory::KernelMemory;
use crate::bpf::programs::choose;
use crate::bpf::{BpfError, CountedRow, Flavour, LoadSpec, Maps, Probes};
use crate::host::CoreType;
use crate::perf::EventGroup;
use crate::window::{WindowEdge, move_gates};

/// Least number of empty spans from which an overhead is computed.
pub(super) const SPANS_MIN: u64 = 8;
/// Largest accepted overhead, as a multiple of the warm loop's: caches explain no larger one.
const COLD_RATIO_MAX: u64 = 32;
/// Largest accepted difference between mean and median, as a divisor of the median: the host causes
/// larger ones.
const MEAN_OFF: u64 = 8;

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
pub(super) fn keys_of_kind(key: u32) -> Range<u32> {
    match key {
        key if key >= KEY_IRQ => KEY_IRQ..KEY_SECOND,
        key if key >= KEY_SOFTIRQ => KEY_SOFTIRQ..KEY_NMI,
        _ => KEY_VECTOR..KEY_SOFTIRQ,
    }
}

/// The calibration programs of a pass, loaded and not attached.
pub struct InSituCalibration {
    probes: Probes,
    /// The four programs of each tracepoint, in the order of attachment.
    programs: Vec<[String; 4]>,
    cpus: Vec<u32>,
    warm: Vec<CoreCalibration>,
    /// Number of events that the programs read.
    events: usize,
}

fn bench_error(error: BpfError) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl InSituCalibration {
    /// Loads the programs, which count in `maps` and read `events`, if there are any; `warm` is the warm
    /// loop's result.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load(
        flavour: Flavour,
        cpus: &[u32],
        maps: Maps<'_>,
        warm: &[CoreCalibration],
        events: Option<&EventGroup>,
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
        let number = events.map_or(0, |group| group.names().len());
        let config = Config { events: number as u32, empty_spans_only: 1, ..Config::default() };
        let probes = Probes::load(&LoadSpec { flavour, config, maps, programs: &all })?;
        events.map_or(Ok(()), |group| group.hand_to(&probes, cpus))?;
        let (cpus, warm) = (cpus.to_vec(), warm.to_vec());
        Ok(InSituCalibration { probes, programs, cpus, warm, events: number })
    }

    /// Attaches the programs while `pass_time` lets time pass, and returns the overhead there. A
    /// tracepoint that refuses its programs gets the warm loop's overhead.
    ///
    /// # Errors
    /// When the kernel refuses a call.
    pub fn measure(&self, pass_time: impl FnOnce()) -> Result<InSituOverhead, BenchError> {
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
        Ok(InSituOverhead::from_rows(self.events, &self.warm, &rows))
    }

    /// The kernel memory of its maps and programs; `None` where the kernel does not state it.
    #[must_use]
    pub fn kernel_memory(&self) -> Option<KernelMemory> {
        self.probes.kernel_memory()
    }

    /// The warm loop's overhead, for all contexts.
    #[must_use]
    pub fn warm(&self) -> InSituOverhead {
        InSituOverhead::from_rows(self.events, &self.warm, &[])
    }
}

/// What is subtracted on one type of cores.
#[derive(Clone, Debug, Default)]
pub struct CoreOverhead {
    /// The cores.
    pub core: CoreType,
    /// From times.
    pub times: ProbeOverheads,
    /// From events.
    pub events: EventOverheads,
    /// By the warm loop, from each event of the pass.
    pub warm_events: [u64; EVENTS_MAX],
}

/// What is subtracted in a window, by the type of the cores: the empty spans of all CPUs of a type are taken
/// together.
#[derive(Clone, Debug, Default)]
pub struct InSituOverhead {
    by_core: Vec<CoreOverhead>,
    /// For CPUs of no known type.
    nothing: CoreOverhead,
}

impl InSituOverhead {
    /// From the rows of empty spans, and where these are too few, from the warm loop.
    fn from_rows(events: usize, warm: &[CoreCalibration], rows: &[CountedRow]) -> Self {
        let of_core = |one: &CoreCalibration| {
            let here = || rows.iter().filter(|row| one.core.cpus.contains(&row.cpu));
            let mut by_key: BTreeMap<u32, EmptySpans> = BTreeMap::new();
            for row in here() {
                by_key.entry(row.key).or_default().merge(&EmptySpans::of(row));
            }
            CoreOverhead {
                core: one.core.clone(),
                times: time_overheads(&by_key, one.warm.in_span_ns),
                events: EventOverheads::new(events, &one.warm.events, here().map(|row| &*row.row)),
                warm_events: whole_events(&one.warm.events),
            }
        };
        InSituOverhead { by_core: warm.iter().map(of_core).collect(), ..Self::default() }
    }

    /// The overhead on a CPU.
    #[must_use]
    pub fn on(&self, cpu: u32) -> &CoreOverhead {
        let found = self.by_core.iter().find(|one| one.core.cpus.contains(&cpu));
        found.unwrap_or(&self.nothing)
    }

    /// With the times of `other`, which is of the same cores.
    #[must_use]
    pub fn with_times_of(mut self, other: &Self) -> Self {
        for (to, from) in self.by_core.iter_mut().zip(&other.by_core) {
            to.times = from.times.clone();
        }
        self
    }

    /// What is subtracted from times by context, for the manifest; with several types of cores, by type.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match &self.by_core[..] {
            [only] => to_json(&only.times),
            several => {
                let named = |one: &CoreOverhead| (one.core.name.clone(), to_json(&one.times));
                several.iter().map(named).collect::<Map<String, Json>>().into()
            }
        }
    }
}

/// What reading adds to each event, as the programs subtract it.
fn whole_events(added: &[f64]) -> [u64; EVENTS_MAX] {
    let mut whole = [0; EVENTS_MAX];
    for (to, added) in whole.iter_mut().zip(added) {
        *to = added.max(0.0).round() as u64;
    }
    whole
}

/// Empty spans of one context.
#[derive(Default)]
struct EmptySpans {
    sum_ns: u64,
    histogram: LogLinear,
}

impl EmptySpans {
    fn of(row: &CountedRow) -> EmptySpans {
        // The programs count no span with another one inside: it is not empty.
        let histogram = LogLinear::from_counts(row.flat.to_vec()).unwrap_or_default();
        EmptySpans { sum_ns: row.sum, histogram }
    }

    fn merge(&mut self, other: &EmptySpans) {
        self.sum_ns += other.sum_ns;
        self.histogram.merge(&other.histogram);
    }

    /// Their length. The mean is exact but includes the host's interrupts; where it differs too much
    /// from the median, the median counts, which the histogram knows to a sixteenth.
    fn length_ns(&self) -> Option<u64> {
        let mean = self.sum_ns.checked_div(self.histogram.total())?;
        let median = self.histogram.quantile(50_000)?;
        Some(if mean.abs_diff(median) <= median / MEAN_OFF { mean } else { median })
    }
}

/// The overheads from empty spans, by their keys.
fn time_overheads(by_key: &BTreeMap<u32, EmptySpans>, warm_ns: u64) -> ProbeOverheads {
    let sum = |keys: Range<u32>| {
        let mut all = EmptySpans::default();
        by_key.range(keys).for_each(|(_, spans)| all.merge(spans));
        all
    };
    let overhead = |keys: Range<u32>| {
        let second = keys.start + KEY_SECOND..keys.end + KEY_SECOND;
        time_overhead(&sum(keys), &sum(second), warm_ns)
    };
    // The programs have a word for each key that is an index; all others get the overhead of their kind.
    let first = by_key.keys().copied().filter(|key| *key < KEYS_DENSE);
    let warm = ProbeOverhead { base_ns: warm_ns, ..ProbeOverhead::default() };
    ProbeOverheads {
        vector: overhead(KEY_VECTOR..KEY_SOFTIRQ).unwrap_or(warm),
        softirq: overhead(KEY_SOFTIRQ..KEY_IRQ).unwrap_or(warm),
        irq: overhead(KEY_IRQ..KEY_SECOND).unwrap_or(warm),
        by_key: first.filter_map(|key| Some((key, overhead(key..key + 1)?))).collect(),
    }
}

/// The length of the first spans, and its excess over the length of the second ones.
fn time_overhead(first: &EmptySpans, second: &EmptySpans, warm_ns: u64) -> Option<ProbeOverhead> {
    let base_ns = first.length_ns().filter(|_| first.histogram.total() >= SPANS_MIN)?;
    let is_plausible = base_ns <= COLD_RATIO_MAX * warm_ns.max(1);
    let cold_exit_ns = base_ns.saturating_sub(second.length_ns().unwrap_or(base_ns));
    is_plausible.then_some(ProbeOverhead { base_ns, cold_exit_ns, in_situ: true })
}

/// What is subtracted, by context, for the manifest.
fn to_json(overheads: &ProbeOverheads) -> Json {
    let overhead = |one: &ProbeOverhead| {
        let method = if one.in_situ { "in situ" } else { "hot loop" };
        json!({ "base_ns": one.base_ns, "cold_exit_ns": one.cold_exit_ns, "method": method })
    };
    let kinds =
        [("vector", &overheads.vector), ("softirq", &overheads.softirq), ("irq", &overheads.irq)];
    let mut all: Map<String, Json> =
        kinds.into_iter().map(|(kind, one)| (kind.to_owned(), overhead(one))).collect();
    let named = |(key, one): (&u32, &ProbeOverhead)| Some((name_of(*key)?, overhead(one)));
    all.extend(overheads.by_key.iter().filter_map(named));
    all.into()
}

fn name_of(key: u32) -> Option<String> {
    match ContextKey::of(key)? {
        ContextKey::Irq(number) => Some(format!("irq {number}")),
        ContextKey::Softirq(number) => Some(format!("softirq {}", SOFTIRQS.get(number as usize)?)),
        ContextKey::Vector(number) => Some(format!("vector {}", VECTORS.get(number as usize)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::bpf::layout::Row;
    use crate::probe_overhead::WarmOverhead;

    fn spans(ns: u64, count: u64) -> EmptySpans {
        let mut spans = EmptySpans { sum_ns: ns * count, ..EmptySpans::default() };
        (0..count).for_each(|_| spans.histogram.record(ns));
        spans
    }

    #[test]
    fn a_line_without_a_word_of_its_own_gets_the_overhead_of_its_kind() {
        let by_key = BTreeMap::from([
            (KEY_IRQ + 24, spans(20, SPANS_MIN)),
            (KEYS_DENSE, spans(40, 3 * SPANS_MIN)),
        ]);
        let overheads = time_overheads(&by_key, 10);
        assert_eq!(overheads.of(KEYS_DENSE), overheads.irq);
        assert_eq!(overheads.of(KEY_IRQ + 24).base_ns, 20);
        assert_ne!(overheads.irq.base_ns, 20);
    }

    #[test]
    fn each_type_of_cores_has_its_own_overhead() {
        let calibration = |name: &str, cpus: &[u32], in_span_ns| CoreCalibration {
            core: CoreType { name: name.to_owned(), cpus: cpus.to_vec() },
            warm: WarmOverhead { in_span_ns, ..WarmOverhead::default() },
        };
        let warm = [calibration("cpu_core", &[0, 1], 20), calibration("cpu_atom", &[2, 3], 50)];
        let row = |cpu, ns: u64| {
            let mut row = Box::new(Row::new_zeroed());
            (row.key, row.count, row.sum) = (KEY_VECTOR, SPANS_MIN, ns * SPANS_MIN);
            row.flat[stats::histogram::slot_of(ns)] = SPANS_MIN;
            CountedRow { cpu, row, nested: None }
        };
        let overhead = InSituOverhead::from_rows(0, &warm, &[row(0, 30), row(1, 30), row(3, 90)]);
        let base_ns = |cpu, key| overhead.on(cpu).times.of(key).base_ns;
        assert_eq!([0, 1, 2, 3].map(|cpu| base_ns(cpu, KEY_VECTOR)), [30, 30, 90, 90]);
        assert_eq!([0, 3].map(|cpu| base_ns(cpu, KEY_IRQ)), [20, 50], "the warm loop's");
        let json = overhead.to_json();
        assert_eq!(json["cpu_atom"]["vector"]["base_ns"], 90);
        assert_eq!(json["cpu_atom"]["vector"]["method"], "in situ");
        assert_eq!(json["cpu_core"]["irq"]["method"], "hot loop");
    }

    #[test]
    fn each_context_has_its_own_overhead_or_that_of_its_kind() {
        let by_key = BTreeMap::from([
            (KEY_VECTOR, spans(10, 50)),
            (KEY_SOFTIRQ + 1, spans(13, SPANS_MIN - 1)),
            (KEY_SOFTIRQ + 3, spans(15, SPANS_MIN)),
            (KEY_IRQ + 24, spans(14, SPANS_MIN - 1)),
        ]);
        let overheads = time_overheads(&by_key, 2);
        let [timer, rare, frequent, rare_irq] =
            [KEY_VECTOR, KEY_SOFTIRQ + 1, KEY_SOFTIRQ + 3, KEY_IRQ + 24]
                .map(|key| overheads.of(key).base_ns);
        assert_eq!((timer, frequent), (10, 15));
        assert!((13..=15).contains(&rare), "{rare}");
        assert_eq!(rare_irq, 2, "the warm loop's, without a better one");
        let json = to_json(&overheads);
        assert_eq!(json["softirq NET_RX"]["base_ns"], 15);
        assert_eq!(json["vector local_timer"]["base_ns"], 10);
        assert!(json.get("softirq TIMER").is_none());
    }

    #[test]
    fn the_cold_exit_is_the_excess_of_the_first_span_over_the_second() {
        for (first, second, cold_exit_ns) in [(14, 11, 3), (11, 14, 0)] {
            let by_key = BTreeMap::from([
                (KEY_VECTOR, spans(first, 9)),
                (KEY_VECTOR + KEY_SECOND, spans(second, 9)),
            ]);
            let overhead = ProbeOverhead { base_ns: first, cold_exit_ns, in_situ: true };
            assert_eq!(time_overheads(&by_key, 2).of(KEY_VECTOR), overhead);
        }
    }

    #[test]
    fn an_overhead_that_no_cache_explains_is_rejected() {
        let by_key = BTreeMap::from([(KEY_VECTOR, spans(1_000, 50))]);
        assert_eq!(time_overheads(&by_key, 10).of(KEY_VECTOR).base_ns, 10);
        assert_eq!(time_overheads(&by_key, 100).of(KEY_VECTOR).base_ns, 1_000);
        // One of the spans contains an interrupt of the host.
        let mut some = spans(1_000, 50);
        some.merge(&spans(1_000_000, 1));
        assert!(some.length_ns().unwrap().abs_diff(1_000) < 1_000 / 16);
    }
}
