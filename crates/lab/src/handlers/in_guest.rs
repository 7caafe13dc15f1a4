//! One window of a condition, created in a guest by the code of the live bench: the request and the
//! response.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::condition::Condition;
use super::sample::{ContextStats, StimulusStats, Timing};
use crate::guest_protocol::response::Response;

/// Maximum number of contexts of a response, over all CPUs.
const CONTEXTS_MAX: usize = 1 << 14;
/// Number of contexts of an item.
const CONTEXTS_OF_AN_ITEM: usize = 64;

/// A window to create. All CPUs of the guest are measured. Times are of the guest's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandlersRequest {
    /// The load and the stimulus.
    pub condition: Condition,
    /// How long they run before the window opens, ns.
    pub warm_up_ns: u64,
    /// How long the window is open, ns; with a command until that ends.
    pub duration_ns: u64,
    /// A line for the guest's shell, in [`Condition::Command`].
    pub command: Option<String>,
    /// Time between two operations at a low rate, ns.
    pub low_interval_ns: u64,
    /// CPUs for helper threads.
    pub housekeeping: Vec<u32>,
    /// File or block device of the guest that the disk stimulus reads; by default its first disk.
    pub disk_file: Option<PathBuf>,
    /// Whether the live bench measures in the guest as well.
    pub probed: bool,
    /// Names of the events that it reads, in a second window.
    pub events: Vec<String>,
}

/// An item of the response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlersItem {
    /// The window, without the contexts that the live bench measured.
    Window(Box<GuestWindow>),
    /// Some of these contexts.
    Contexts(Vec<ProbedContext>),
}

/// A window that was open.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestWindow {
    /// How long it was open by the guest's clock, ns.
    pub length_ns: u64,
    /// CPU time of the irqlab in the guest meanwhile, ns.
    pub user_cpu_ns: u64,
    /// Statistics of the load.
    pub load_work: Option<StimulusStats>,
    /// Statistics of the stimulus.
    pub stimulus_work: Option<StimulusStats>,
    /// Settings in force that only the guest knows.
    pub facts: Map<String, Json>,
    /// CPUs that were offline for a part of the window, or are still.
    pub offline_cpus: Vec<u32>,
    /// What a reader must know.
    pub warnings: Vec<String>,
    /// What the live bench measured, if it did.
    pub probed: Option<Probed>,
}

/// What the live bench measured in the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// Overhead of a pair of probes inside its own span, ns; subtracted.
    pub in_span_ns: u64,
    /// Whole overhead of a pair of probes, ns.
    pub total_ns: u64,
    /// Events that were lost.
    pub lost: u64,
    /// The contexts, CPU by CPU.
    pub contexts: Vec<ProbedContext>,
}

/// A context on a CPU, as the live bench measured it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbedContext {
    pub cpu: u32,
    /// [`attribution::ContextKind::label`].
    pub kind: String,
    /// As in [`attribution::Context`].
    pub number: u32,
    /// As in [`attribution::Context`].
    pub name: String,
    /// Spans.
    pub count: u64,
    /// Sum of self times, ns, with the probe overhead subtracted; may be negative.
    pub self_total_ns: i64,
    /// What was subtracted for the probes inside the spans, sum, ns.
    pub probe_overhead_total_ns: u64,
    /// Spans whose events were read.
    pub event_spans: u64,
    /// Sums of the events' self counts, by event, with the overhead of reading subtracted.
    pub event_totals: BTreeMap<String, f64>,
}

impl ProbedContext {
    /// Returns the statistics of a context, if its times come from probes.
    #[must_use]
    pub fn of(stats: &ContextStats) -> Option<ProbedContext> {
        (stats.timing == Timing::Probes).then(|| ProbedContext {
            cpu: stats.cpu,
            kind: stats.context.kind.label().to_owned(),
            number: stats.context.number,
            name: stats.context.name.clone(),
            count: stats.count,
            self_total_ns: stats.self_total_ns(),
            probe_overhead_total_ns: stats.probe_overhead_total_ns,
            event_spans: 0,
            event_totals: BTreeMap::new(),
        })
    }

    /// Adds the statistics of a pass with events: their names, and the overhead of reading each in a span.
    pub fn add_events(&mut self, stats: &ContextStats, names: &[String], overheads: &[f64]) {
        self.event_spans = stats.events.spans;
        for (at, (name, total)) in names.iter().zip(&stats.events.own).enumerate() {
            if let Some(added) = stats.events.added(at, overheads.get(at).copied()) {
                self.event_totals.insert(name.clone(), *total as f64 - added);
            }
        }
    }
}

#[must_use]
pub fn items(mut window: GuestWindow) -> Vec<HandlersItem> {
    let contexts = window.probed.as_mut().map(|probed| std::mem::take(&mut probed.contexts));
    let contexts = contexts.unwrap_or_default();
    let pieces = contexts.chunks(CONTEXTS_OF_AN_ITEM);
    let pieces = pieces.map(|some| HandlersItem::Contexts(some.to_vec()));
    [HandlersItem::Window(Box::new(window))].into_iter().chain(pieces).collect()
}

/// The response: one window.
#[derive(Debug, Default)]
pub struct HandlersResponse {
    /// The window; absent until it is read.
    pub window: Option<GuestWindow>,
}

impl Response for HandlersResponse {
    type Item = HandlersItem;

    fn add(&mut self, item: HandlersItem) -> Result<(), String> {
        match item {
            HandlersItem::Window(_) if self.window.is_some() => {
                return Err("it has two windows".to_owned());
            }
            HandlersItem::Window(window) => self.window = Some(*window),
            HandlersItem::Contexts(some) => {
                let probed = self.window.as_mut().and_then(|window| window.probed.as_mut());
                let probed = probed.ok_or("it has contexts that no probe measured")?;
                probed.contexts.extend(some);
            }
        }
        let probed = self.window.as_ref().and_then(|window| window.probed.as_ref());
        match probed.is_some_and(|probed| probed.contexts.len() > CONTEXTS_MAX) {
            true => Err(format!("it has more than {CONTEXTS_MAX} contexts")),
            false => Ok(()),
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.window.is_some() { Ok(()) } else { Err("it has no window".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::BenchError;
    use crate::guest_protocol::{decode, encode};

    fn read(items: Vec<HandlersItem>) -> Result<GuestWindow, BenchError> {
        let lines = encode(Ok(items));
        let response = decode::<HandlersResponse>(lines.iter().map(String::as_str))?;
        Ok(response.window.unwrap())
    }

    fn window(contexts: usize) -> GuestWindow {
        let one = |number| ProbedContext {
            cpu: 1,
            kind: "irq".to_owned(),
            number,
            name: "disk \"a\"".to_owned(),
            count: 3,
            self_total_ns: -4,
            probe_overhead_total_ns: 9,
            event_spans: 5,
            event_totals: BTreeMap::from([("cycles".to_owned(), 0.1)]),
        };
        let contexts = (0..contexts as u32).map(one).collect();
        GuestWindow {
            stimulus_work: Some(StimulusStats { operations: 2, ..StimulusStats::default() }),
            probed: Some(Probed { contexts, ..Probed::default() }),
            ..GuestWindow::default()
        }
    }

    #[test]
    fn a_window_reads_back() {
        for sent in [GuestWindow::default(), window(0), window(1), window(1000)] {
            assert_eq!(read(items(sent.clone())).unwrap(), sent);
        }
    }

    #[test]
    fn a_response_is_one_window_with_bounded_contexts() {
        let [one] = items(GuestWindow::default()).try_into().unwrap();
        let contexts = HandlersItem::Contexts(Vec::new());
        for (items, words) in [
            (vec![], "no window"),
            (vec![one.clone(), one.clone()], "two windows"),
            (vec![contexts.clone()], "that no probe measured"),
            (vec![one, contexts], "that no probe measured"),
            (items(window(CONTEXTS_MAX + 1)), "more than 16384 contexts"),
        ] {
            let error = read(items).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
