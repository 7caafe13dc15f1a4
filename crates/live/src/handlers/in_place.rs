//! What a pair of probes adds inside a span, measured where the spans are.
//!
//! The loop of [`super::calibrate`] is hot. Interrupts find colder caches, and their probes cost
//! more. So while a condition warms up, spans without work are opened and closed at the entry of
//! each device IRQ, softirq and vector, two in a row.
//!
//! The first finds the caches as the interrupt does. But the way into its program at exit is the
//! one that the program at entry has just taken, and in a real span a handler lies between. By how
//! much the first is longer than the second is what the cold way out of a program costs; the way in
//! is taken to be as cold, but where the span is too short to have cooled it.
//!
//! This is what is subtracted from spans of the same source in that condition's window. A source of
//! which too few came gets what its sort has, and without these what the hot loop said.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use attribution::context::{SOFTIRQS, VECTORS};
use lab::handlers::BenchError;
use serde_json::{Map, Value as Json, json};
use stats::LogLinear;

use super::calibrate::Calibration;
use super::event_costs::EventCosts;
use super::gates::{Edge, move_gates};
use super::perf::EventGroup;
use super::programs::choose;
use crate::bpf::layout::{
    Config, Inside, InsideSpan, KEY_AGAIN, KEY_IRQ, KEY_SOFTIRQ, KEY_VECTOR, Row, SLOTS_MAX,
};
use crate::bpf::{BpfError, Flavour, LoadSpec, Probes};

/// The fewest spans that give a figure.
pub(super) const SPANS_MIN: u64 = 8;
/// Longest figure that is believed, as a multiple of the hot loop's: more is no cache effect.
const COLD_MAX: u64 = 32;
/// By which part of the median the mean may be off it, as a divisor: more comes from the host.
const MEAN_OFF: u64 = 8;

/// Vectors that don't come often enough in a warm-up: they get the figure of vectors.
const RARE: [&str; 6] = [
    "x86_platform_ipi",
    "error_apic",
    "spurious_apic",
    "thermal_apic",
    "threshold_apic",
    "deferred_error_apic",
];

/// The programs of a pass, loaded and not attached.
pub struct InPlace {
    probes: Probes,
    /// The four programs of each place, in their order.
    places: Vec<[String; 4]>,
    cpus: Vec<u32>,
    hot: Calibration,
    /// Events that they read.
    events: usize,
}

fn bench_error(error: BpfError) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl InPlace {
    /// Loads the programs, which read `events`, if there are any; `hot` is what the hot loop said.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load(
        flavour: Flavour,
        cpus: &[u32],
        hot: &Calibration,
        events: Option<&EventGroup>,
    ) -> Result<Self, BpfError> {
        let has: BTreeSet<String> = choose(flavour).programs.into_iter().collect();
        let places = [("irq", "irq_handler"), ("softirq", "softirq")].into_iter();
        let places = places.chain(VECTORS.iter().map(|vector| (*vector, *vector)));
        let places = places.filter(|(place, _)| !RARE.contains(place));
        let names = |place| {
            ["open_at", "close_at", "open_again_at", "close_again_at"]
                .map(|program| format!("{program}_{place}"))
        };
        let places: Vec<[String; 4]> = places
            .filter(|(_, program)| has.contains(&format!("{program}_in")))
            .map(|(place, _)| names(place))
            .collect();
        let programs: Vec<&str> = places.as_flattened().iter().map(String::as_str).collect();
        let number = events.map_or(0, |group| group.names().len());
        let config = Config { slots: SLOTS_MAX, events: number as u32, ..Config::default() };
        let probes = Probes::load(&LoadSpec { flavour, config, programs: &programs })?;
        events.map_or(Ok(()), |group| group.hand_to(&probes, cpus))?;
        Ok(InPlace { probes, places, cpus: cpus.to_vec(), hot: hot.clone(), events: number })
    }

    /// Attaches the programs while `pass_time` lets the time pass, and says what it cost there.
    /// A tracepoint that refuses leaves the hot loop's figure.
    ///
    /// # Errors
    /// When the kernel refuses what it took before.
    pub fn measure(&self, pass_time: impl FnOnce()) -> Result<Figures, BenchError> {
        self.probes.clear().map_err(bench_error)?;
        let attach = |programs: &[String; 4]| -> Option<Vec<_>> {
            programs.iter().map(|program| self.probes.link(program).ok()).collect()
        };
        let links: Vec<_> = self.places.iter().map(attach).collect();
        move_gates(&self.probes, &self.cpus, Edge::Open)?;
        pass_time();
        move_gates(&self.probes, &self.cpus, Edge::Close)?;
        drop(links);
        let rows = self.probes.rows().map_err(bench_error)?;
        let mut of_keys: BTreeMap<u32, Spans> = BTreeMap::new();
        for (_, row) in &rows {
            of_keys.entry(row.key).or_default().merge(&Spans::of(row));
        }
        let rows = rows.iter().map(|(_, row)| &**row);
        Ok(Figures {
            inside: inside_of(&of_keys, self.hot.inside_ns),
            events: EventCosts::new(self.events, &self.hot.events, rows),
        })
    }

    /// What the hot loop said, for all.
    #[must_use]
    pub fn hot(&self) -> Figures {
        Figures {
            inside: Inside::same(self.hot.inside_ns),
            events: EventCosts::new(self.events, &self.hot.events, std::iter::empty()),
        }
    }
}

/// What is subtracted in a window.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// From times.
    pub inside: Inside,
    /// From events.
    pub events: EventCosts,
}

/// Spans without work.
#[derive(Default)]
struct Spans {
    sum_ns: u64,
    histogram: LogLinear,
}

impl Spans {
    fn of(row: &Row) -> Spans {
        let mut spans = Spans { sum_ns: row.sum, ..Spans::default() };
        for part in [&row.flat, &row.nested_self] {
            if let Some(part) = LogLinear::from_counts(part.to_vec()) {
                spans.histogram.merge(&part);
            }
        }
        spans
    }

    fn merge(&mut self, other: &Spans) {
        self.sum_ns += other.sum_ns;
        self.histogram.merge(&other.histogram);
    }

    /// Their length: the mean, which is exact, but where it holds the interrupts of the host that
    /// fell into some. Then it is the median, which a histogram knows to a sixteenth.
    fn length_ns(&self) -> Option<u64> {
        let mean = self.sum_ns.checked_div(self.histogram.total())?;
        let median = self.histogram.quantile(50_000)?;
        Some(if mean.abs_diff(median) <= median / MEAN_OFF { mean } else { median })
    }
}

/// The figures of spans without work, by their keys.
fn inside_of(of_keys: &BTreeMap<u32, Spans>, hot_ns: u64) -> Inside {
    let sum = |keys: Range<u32>| {
        let mut all = Spans::default();
        of_keys.range(keys).for_each(|(_, spans)| all.merge(spans));
        all
    };
    let figure = |keys: Range<u32>| {
        let again = keys.start + KEY_AGAIN..keys.end + KEY_AGAIN;
        figure(&sum(keys), &sum(again), hot_ns)
    };
    let first = of_keys.keys().copied().filter(|key| *key < KEY_AGAIN);
    let hot = InsideSpan { always_ns: hot_ns, way_in_ns: 0 };
    Inside {
        vector: figure(KEY_VECTOR..KEY_SOFTIRQ).unwrap_or(hot),
        softirq: figure(KEY_SOFTIRQ..KEY_IRQ).unwrap_or(hot),
        irq: figure(KEY_IRQ..KEY_AGAIN).unwrap_or(hot),
        of_keys: first.filter_map(|key| Some((key, figure(key..key + 1)?))).collect(),
    }
}

/// How long the first spans are, and by how much that is above those behind them.
fn figure(spans: &Spans, again: &Spans, hot_ns: u64) -> Option<InsideSpan> {
    let first = spans.length_ns().filter(|_| spans.histogram.total() >= SPANS_MIN)?;
    let is_believed = first <= COLD_MAX * hot_ns.max(1);
    let way_in_ns = first.saturating_sub(again.length_ns().unwrap_or(first));
    is_believed.then_some(InsideSpan { always_ns: first, way_in_ns })
}

/// What is subtracted, by source, for the manifest.
#[must_use]
pub fn described(inside: &Inside) -> Json {
    let figure =
        |one: &InsideSpan| json!({ "always_ns": one.always_ns, "way_in_ns": one.way_in_ns });
    let sorts = [("vector", &inside.vector), ("softirq", &inside.softirq), ("irq", &inside.irq)];
    let mut figures: Map<String, Json> =
        sorts.into_iter().map(|(sort, one)| (sort.to_owned(), figure(one))).collect();
    let named = |(key, one): (&u32, &InsideSpan)| Some((name_of(*key)?, figure(one)));
    figures.extend(inside.of_keys.iter().filter_map(named));
    figures.into()
}

fn name_of(key: u32) -> Option<String> {
    let named = |sort: &str, names: &[&str], first: u32| {
        let name = names.get((key - first) as usize)?;
        Some(format!("{sort} {name}"))
    };
    match key {
        key if key >= KEY_IRQ => Some(format!("irq {}", key - KEY_IRQ)),
        key if key >= KEY_SOFTIRQ => named("softirq", &SOFTIRQS, KEY_SOFTIRQ),
        key if key >= KEY_VECTOR => named("vector", &VECTORS, KEY_VECTOR),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(ns: u64, count: u64) -> Spans {
        let mut spans = Spans { sum_ns: ns * count, ..Spans::default() };
        (0..count).for_each(|_| spans.histogram.record(ns));
        spans
    }

    #[test]
    fn each_source_has_its_own_figure_or_that_of_its_sort() {
        let of_keys = BTreeMap::from([
            (KEY_VECTOR, spans(10, 50)),
            (KEY_SOFTIRQ + 1, spans(13, SPANS_MIN - 1)),
            (KEY_SOFTIRQ + 3, spans(15, SPANS_MIN)),
            (KEY_IRQ + 24, spans(14, SPANS_MIN - 1)),
        ]);
        let inside = inside_of(&of_keys, 2);
        let [timer, rare, often, rare_irq] =
            [KEY_VECTOR, KEY_SOFTIRQ + 1, KEY_SOFTIRQ + 3, KEY_IRQ + 24]
                .map(|key| inside.of(key).always_ns);
        assert_eq!((timer, often), (10, 15));
        assert!((13..=15).contains(&rare), "{rare}");
        assert_eq!(rare_irq, 2, "the hot loop's, without better");
        let said = described(&inside);
        assert_eq!(said["softirq NET_RX"]["always_ns"], 15);
        assert_eq!(said["vector local_timer"]["always_ns"], 10);
        assert!(said.get("softirq TIMER").is_none());
    }

    #[test]
    fn the_way_in_is_as_cold_as_the_way_out() {
        for (first, second, way_in) in [(14, 11, 3), (11, 14, 0)] {
            let of_keys = BTreeMap::from([
                (KEY_VECTOR, spans(first, 9)),
                (KEY_VECTOR + KEY_AGAIN, spans(second, 9)),
            ]);
            let inside = InsideSpan { always_ns: first, way_in_ns: way_in };
            assert_eq!(inside_of(&of_keys, 2).of(KEY_VECTOR), inside);
        }
    }

    #[test]
    fn what_no_cache_explains_is_not_believed() {
        let of_keys = BTreeMap::from([(KEY_VECTOR, spans(1_000, 50))]);
        assert_eq!(inside_of(&of_keys, 10).of(KEY_VECTOR).always_ns, 10);
        assert_eq!(inside_of(&of_keys, 100).of(KEY_VECTOR).always_ns, 1_000);
        // An interrupt of the host in one of them.
        let mut some = spans(1_000, 50);
        some.merge(&spans(1_000_000, 1));
        assert!(some.length_ns().unwrap().abs_diff(1_000) < 1_000 / 16);
    }
}
