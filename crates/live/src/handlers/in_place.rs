//! What a pair of probes adds inside a span, measured where the spans are.
//!
//! The loop of [`super::calibrate`] is hot. Interrupts find colder caches, and their probes cost
//! more. So while a condition warms up, spans without work are opened and closed at the entry of
//! device IRQs, of softirqs and of the local timer: their length is what is subtracted in that
//! condition's window. Where too few of them came, the hot loop's figure stands.

use lab::handlers::BenchError;

use super::gates::{Edge, move_gates};
use crate::bpf::layout::{Config, Inside, KEY_AT_SOFTIRQ, KEY_AT_VECTOR, KEY_BENCH, Row};
use crate::bpf::{BpfError, Flavour, LoadSpec, Probes};

/// The fewest spans that give a figure.
const SPANS_MIN: u64 = 16;
/// Longest figure that is believed, as a multiple of the hot loop's: more is no cache effect.
const COLD_MAX: u64 = 8;

const PLACES: [[&str; 2]; 3] = [
    ["open_at_irq", "close_at_irq"],
    ["open_at_softirq", "close_at_softirq"],
    ["open_at_vector", "close_at_vector"],
];

/// The programs, loaded and not attached.
pub struct InPlace {
    probes: Probes,
    cpus: Vec<u32>,
    hot_ns: u64,
}

fn bench_error(error: BpfError) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl InPlace {
    /// Loads the programs; `hot_ns` is what the hot loop said.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load(flavour: Flavour, cpus: &[u32], hot_ns: u64) -> Result<Self, BpfError> {
        let spec = LoadSpec {
            flavour,
            config: Config { slots: 8, ..Config::default() },
            programs: PLACES.as_flattened(),
        };
        Ok(InPlace { probes: Probes::load(&spec)?, cpus: cpus.to_vec(), hot_ns })
    }

    /// Attaches the programs while `pass_time` lets the time pass, and says what it cost there.
    /// A tracepoint that refuses leaves the hot loop's figure.
    ///
    /// # Errors
    /// When the kernel refuses what it took before.
    pub fn measure(&self, pass_time: impl FnOnce()) -> Result<Inside, BenchError> {
        self.probes.clear().map_err(bench_error)?;
        let pair = |names: &[&str; 2]| {
            let open = self.probes.link(names[0]).ok()?;
            Some([open, self.probes.link(names[1]).ok()?])
        };
        let links: Vec<_> = PLACES.iter().map(pair).collect();
        move_gates(&self.probes, &self.cpus, Edge::Open(Inside::default()))?;
        pass_time();
        move_gates(&self.probes, &self.cpus, Edge::Close)?;
        drop(links);
        let rows = self.probes.rows().map_err(bench_error)?;
        let found = |key: u32| {
            let of_key: Vec<&Row> =
                rows.iter().filter(|(_, row)| row.key == key).map(|(_, row)| &**row).collect();
            self.figure(&of_key)
        };
        Ok(Inside {
            vector_ns: found(KEY_AT_VECTOR),
            softirq_ns: found(KEY_AT_SOFTIRQ),
            irq_ns: found(KEY_BENCH),
        })
    }

    /// The median of the spans: a mean would hold the interrupts of the host that fell into some.
    fn figure(&self, rows: &[&Row]) -> u64 {
        let mut histogram = stats::LogLinear::default();
        for row in rows {
            for part in [&row.flat, &row.nested_self] {
                if let Some(part) = stats::LogLinear::from_counts(part.to_vec()) {
                    histogram.merge(&part);
                }
            }
        }
        let median = histogram.quantile(50_000).filter(|_| histogram.total() >= SPANS_MIN);
        median.filter(|ns| *ns <= COLD_MAX * self.hot_ns.max(1)).unwrap_or(self.hot_ns)
    }
}
