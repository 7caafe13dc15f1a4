//! The request and the response of a guest that creates one window of a condition with the code of the live bench. The
//! simulated bench (`sim/src/handlers`) sends the request; `live/src/handlers/in_guest.rs` executes it in the guest.
//!
//! Names of fields and variants are keys in JSON. Any change needs a new [`crate::guest_protocol::VERSION`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::condition::Condition;
use super::delays::DelayStats;
use super::sample::{ContextStats, StimulusStats, Timing};
use super::senders::SenderRow;
use crate::guest_protocol::response::Response;

/// Maximum number of contexts in a response, over all CPUs.
const CONTEXTS_MAX: usize = 1 << 14;
/// Maximum number of senders in a response.
const SENDERS_MAX: usize = 1 << 13;
/// Maximum number of contexts or senders in an item.
const ROWS_PER_ITEM: usize = 64;

/// The window to create. It measures all CPUs of the guest. Times are by the guest's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandlersRequest {
    pub condition: Condition,
    /// How long load and stimulus run before the window opens, ns.
    pub warm_up_ns: u64,
    /// Whether a simulator executes only samples of the warm-up in detail.
    pub warms_in_samples: bool,
    /// How long the window is open, ns. With a command, the window is open until the command ends.
    pub duration_ns: u64,
    /// The line for the guest's shell; only with [`Condition::Command`].
    pub command: Option<String>,
    /// Time between two operations at a low rate, ns.
    pub low_interval_ns: u64,
    /// CPUs for helper threads.
    pub housekeeping: Vec<u32>,
    /// File or block device of the guest that the disk stimulus reads. Default: the guest's first disk.
    pub disk_file: Option<PathBuf>,
    /// Whether the live bench also measures in the guest.
    pub probed: bool,
    /// Whether the live bench also measures senders.
    pub senders: bool,
    /// Names of the events that the live bench reads in a second window.
    pub events: Vec<String>,
    /// Whether the live bench measures delays.
    pub delays: bool,
}

/// An item of the response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlersItem {
    /// The window, without the contexts of the live bench.
    Window(Box<GuestWindow>),
    /// Contexts of the live bench.
    Contexts(Vec<ProbedContext>),
    /// Senders of the live bench.
    Senders(Vec<SenderRow>),
}

/// A window that the guest created, with the facts that only the guest knows. The simulator measures the contexts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestWindow {
    /// How long the window was open, by the guest's clock, ns.
    pub length_ns: u64,
    /// CPU time of irqlab in the guest during the window, ns; `None` if it was not measured.
    pub user_cpu_ns: Option<u64>,
    pub load_work: Option<StimulusStats>,
    pub stimulus_work: Option<StimulusStats>,
    /// Settings that only the guest knows.
    pub facts: Map<String, Json>,
    /// CPUs that were offline when the window opened.
    pub offline_cpus: Vec<u32>,
    /// The CPUs of `offline_cpus` that were online when the window closed.
    pub came_online: Vec<u32>,
    /// Warnings about the window.
    pub warnings: Vec<String>,
    /// Whether a request to stop ended the window, or came before the window opened.
    /// In the second case, the length is 0.
    pub interrupted: bool,
    /// The measurements of the live bench; `None` if it did not measure.
    pub probed: Option<Probed>,
}

/// The measurements of the live bench in the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// Overhead of a pair of probes inside its span, ns; subtracted from all times.
    pub in_span_ns: u64,
    /// The whole overhead of a pair of probes, ns.
    pub total_ns: u64,
    /// Events that were lost.
    pub lost: u64,
    /// The contexts of each CPU.
    pub contexts: Vec<ProbedContext>,
    /// The senders. `None` if the live bench did not measure them.
    pub senders: Option<Vec<SenderRow>>,
    /// The delays of each CPU, if the request asked for them.
    pub delays: Vec<ProbedDelays>,
}

/// The delays of one kind of work on a CPU, as the live bench measured them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbedDelays {
    pub cpu: u32,
    /// Label of the [`attribution::ContextKind`].
    pub kind: String,
    /// Number of the [`attribution::Context`].
    pub number: u32,
    /// Name of the [`attribution::Context`].
    pub name: String,
    pub count: u64,
    pub total_ns: u64,
    pub max_ns: u64,
}

impl ProbedDelays {
    #[must_use]
    pub fn of(stats: &DelayStats) -> ProbedDelays {
        ProbedDelays {
            cpu: stats.cpu,
            kind: stats.context.kind.label().to_owned(),
            number: stats.context.number,
            name: stats.context.name.clone(),
            count: stats.delays.count,
            total_ns: stats.delays.sum,
            max_ns: stats.delays.peak.value,
        }
    }
}

/// A context on a CPU, as the live bench measured it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbedContext {
    pub cpu: u32,
    /// Label of the [`attribution::ContextKind`].
    pub kind: String,
    /// Number of the [`attribution::Context`].
    pub number: u32,
    /// Name of the [`attribution::Context`].
    pub name: String,
    /// Number of measured spans.
    pub count: u64,
    /// Sum of the self times, ns, with the probe overhead subtracted. Can be negative.
    pub self_total_ns: i64,
    /// Sum of the probe overhead that was subtracted from the spans, ns.
    pub probe_overhead_total_ns: u64,
    /// Number of spans with events.
    pub event_spans: u64,
    /// For each event: the sum over spans, without nested spans, with the overhead of reading subtracted.
    pub event_totals: BTreeMap<String, f64>,
}

impl ProbedContext {
    /// Converts the statistics of a context. `None` if its times do not come from probes.
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

    /// Whether `stats` belong to this context and CPU. IRQ lines may share a name.
    #[must_use]
    pub fn is_of(&self, stats: &ContextStats) -> bool {
        let context = &stats.context;
        let of_stats = (stats.cpu, context.kind.label(), context.number, &context.name[..]);
        (self.cpu, &self.kind[..], self.number, &self.name[..]) == of_stats
    }

    /// Adds the events of a pass. `names`: the pass's events. `overheads`: the overhead of reading each event, per
    /// span and in the order of `names`.
    pub fn add_events(&mut self, stats: &ContextStats, names: &[String], overheads: &[f64]) {
        self.event_spans = stats.events.spans;
        for (event, (name, total)) in names.iter().zip(&stats.events.own).enumerate() {
            if let Some(added) = stats.events.added_by_reading(event, overheads.get(event).copied())
            {
                self.event_totals.insert(name.clone(), *total as f64 - added);
            }
        }
    }
}

/// The items of the guest's response, in order: the window, then its contexts and its senders in
/// groups, since the length of a line is limited.
#[must_use]
pub fn items(mut window: GuestWindow) -> Vec<HandlersItem> {
    let contexts = window.probed.as_mut().map(|probed| std::mem::take(&mut probed.contexts));
    let contexts = contexts.unwrap_or_default();
    let chunks = contexts.chunks(ROWS_PER_ITEM);
    let contexts = chunks.map(|chunk| HandlersItem::Contexts(chunk.to_vec()));
    let senders = window.probed.as_mut().and_then(|probed| probed.senders.as_mut());
    let senders = senders.map(std::mem::take).unwrap_or_default();
    let senders = senders.chunks(ROWS_PER_ITEM).map(|chunk| HandlersItem::Senders(chunk.to_vec()));
    let rows = contexts.chain(senders);
    [HandlersItem::Window(Box::new(window))].into_iter().chain(rows).collect()
}

/// The guest's response: one window.
#[derive(Debug, Default)]
pub struct HandlersResponse {
    /// `None` before the window's item.
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
            HandlersItem::Contexts(contexts) => {
                let probed = self.window.as_mut().and_then(|window| window.probed.as_mut());
                let probed = probed.ok_or("it has contexts that no probe measured")?;
                probed.contexts.extend(contexts);
            }
            HandlersItem::Senders(senders) => {
                let probed = self.window.as_mut().and_then(|window| window.probed.as_mut());
                let known = probed.and_then(|probed| probed.senders.as_mut());
                known.ok_or("it has senders that no probe measured")?.extend(senders);
            }
        }
        let probed = self.window.as_ref().and_then(|window| window.probed.as_ref());
        let rows = probed.map_or(0, |probed| probed.contexts.len().max(probed.delays.len()));
        if rows > CONTEXTS_MAX {
            return Err(format!("it has more than {CONTEXTS_MAX} contexts"));
        }
        let senders = probed.and_then(|probed| probed.senders.as_ref());
        if senders.is_some_and(|senders| senders.len() > SENDERS_MAX) {
            return Err(format!("it has more than {SENDERS_MAX} senders"));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.window.is_some() { Ok(()) } else { Err("it has no window".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use attribution::{Context, ContextKind};

    use super::*;
    use crate::experiment::BenchError;
    use crate::guest_protocol::{decode, encode};

    fn read(items: Vec<HandlersItem>) -> Result<GuestWindow, BenchError> {
        let lines = encode(Ok(items));
        let response = decode::<HandlersResponse>(lines.iter().map(String::as_str))?;
        Ok(response.window.unwrap())
    }

    fn window(contexts: usize) -> GuestWindow {
        let context = |number| ProbedContext {
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
        let contexts = (0..contexts as u32).map(context).collect();
        GuestWindow {
            stimulus_work: Some(StimulusStats { operations: 2, ..StimulusStats::default() }),
            probed: Some(Probed { contexts, ..Probed::default() }),
            ..GuestWindow::default()
        }
    }

    #[test]
    fn a_window_reads_back() {
        let sender =
            SenderRow { name: Some("ipi_mb".to_owned()), count: 3, ..SenderRow::default() };
        let mut with_senders = window(1);
        with_senders.probed.as_mut().unwrap().senders = Some(vec![sender; 100]);
        for sent in [GuestWindow::default(), window(0), window(1), window(1000), with_senders] {
            assert_eq!(read(items(sent.clone())).unwrap(), sent);
        }
    }

    #[test]
    fn a_response_is_one_window_with_bounded_contexts() {
        let [window_item] = items(GuestWindow::default()).try_into().unwrap();
        let contexts = HandlersItem::Contexts(Vec::new());
        for (items, words) in [
            (vec![], "no window"),
            (vec![window_item.clone(), window_item.clone()], "two windows"),
            (vec![contexts.clone()], "that no probe measured"),
            (vec![window_item.clone(), HandlersItem::Senders(Vec::new())], "senders that no probe"),
            (vec![window_item, contexts], "that no probe measured"),
            (items(window(CONTEXTS_MAX + 1)), "more than 16384 contexts"),
        ] {
            let error = read(items).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    /// Two lines and a softirq with one name, on two CPUs.
    #[test]
    fn statistics_belong_to_the_context_with_their_number_and_kind() {
        let stats = |cpu, kind, number| {
            let context = Context { kind, number, name: "ata_piix".to_owned() };
            ContextStats::new(cpu, context, Timing::Probes, 1)
        };
        let all = [
            stats(0, ContextKind::HardIrq, 14),
            stats(0, ContextKind::HardIrq, 15),
            stats(1, ContextKind::HardIrq, 15),
            stats(0, ContextKind::Softirq, 15),
        ];
        for (position, own) in all.iter().enumerate() {
            let context = ProbedContext::of(own).unwrap();
            let found: Vec<usize> =
                (0..all.len()).filter(|index| context.is_of(&all[*index])).collect();
            assert_eq!(found, [position]);
        }
    }
}
