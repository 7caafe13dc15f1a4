//! What a simulated bench asks of the irqlab in its guest, and what that answers: one window of one
//! condition, made by the code that makes it on the live bench.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::condition::Condition;
use super::sample::{ContextStats, StimulusStats, Timing};
use crate::experiment::BenchError;

/// A window to make. All CPUs of the guest are measured. Times are of the guest's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestOrder {
    /// Which load and stimulus run.
    pub condition: Condition,
    /// How long they run before the window opens, ns.
    pub warm_up_ns: u64,
    /// How long the window is open, ns; with a command until that ends.
    pub duration_ns: u64,
    /// For the guest's shell, in [`Condition::Command`].
    pub command: Option<String>,
    /// Time between two operations at a low rate, ns.
    pub low_interval_ns: u64,
    /// CPUs for what must run besides.
    pub housekeeping: Vec<u32>,
    /// File or block device of the guest that the disk stimulus reads; by default its first disk.
    pub disk_file: Option<PathBuf>,
    /// Whether the live bench measures in the guest meanwhile.
    #[serde(default)]
    pub probed: bool,
    /// Names of the events that it reads, in a window of their own after the other.
    #[serde(default)]
    pub events: Vec<String>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestAnswer {
    /// The window was opened and closed.
    Done(GuestWindow),
    /// The guest cannot have this condition.
    Unavailable {
        /// Why.
        reason: String,
        /// What would unlock it.
        remedy: Option<String>,
    },
    /// Something broke.
    Failed(String),
}

/// A window that was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestWindow {
    /// How long it was open by the guest's clock, ns.
    pub length_ns: u64,
    /// CPU time of the irqlab in the guest meanwhile, ns.
    pub user_cpu_ns: u64,
    /// What the load did.
    pub load_work: Option<StimulusStats>,
    /// What the stimulus did.
    pub stimulus_work: Option<StimulusStats>,
    /// Settings in force that only the guest knows.
    pub facts: Map<String, Json>,
    /// What a reader must know.
    pub warnings: Vec<String>,
    /// What the live bench measured, if it did.
    #[serde(default)]
    pub probed: Option<Probed>,
}

/// What the live bench measured in the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// What it took a probe pair to add inside its own span, ns, and subtracted.
    pub inside_ns: u64,
    /// What it took a pair to add in all, ns.
    pub added_ns: u64,
    /// Events that it lost.
    pub lost: u64,
    /// Its sources, CPU by CPU.
    pub sources: Vec<ProbedSource>,
}

/// A source on a CPU, as the live bench saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbedSource {
    /// The CPU.
    pub cpu: u32,
    /// [`attribution::ContextKind::label`].
    pub kind: String,
    /// As in [`attribution::Context`].
    pub number: u32,
    /// As in [`attribution::Context`].
    pub name: String,
    /// Spans.
    pub count: u64,
    /// Sum of self times, ns, what the probes add subtracted.
    pub self_total_ns: u64,
    /// Spans whose events were read.
    #[serde(default)]
    pub event_spans: u64,
    /// Sums of what they counted themselves, what reading adds subtracted, by event.
    #[serde(default)]
    pub event_totals: BTreeMap<String, f64>,
}

impl ProbedSource {
    /// What a sample says, if its times come from probes.
    #[must_use]
    pub fn of(sample: &ContextStats) -> Option<ProbedSource> {
        (sample.timing == Timing::Probes).then(|| ProbedSource {
            cpu: sample.cpu,
            kind: sample.context.kind.label().to_owned(),
            number: sample.context.number,
            name: sample.context.name.clone(),
            count: sample.count,
            self_total_ns: sample.own.sum,
            event_spans: 0,
            event_totals: BTreeMap::new(),
        })
    }

    /// Adds what a pass of events says of the source: names and what reading adds to a span of each.
    pub fn add_events(&mut self, sample: &ContextStats, names: &[String], overheads: &[f64]) {
        self.event_spans = sample.events.spans;
        for (at, (name, total)) in names.iter().zip(&sample.events.own).enumerate() {
            if let Some(added) = sample.events.added(at, overheads.get(at).copied()) {
                self.event_totals.insert(name.clone(), *total as f64 - added);
            }
        }
    }
}

impl From<BenchError> for GuestAnswer {
    fn from(error: BenchError) -> GuestAnswer {
        match error {
            BenchError::Unavailable { reason, remedy }
            | BenchError::NothingMeasurable { reason, remedy } => {
                GuestAnswer::Unavailable { reason, remedy }
            }
            BenchError::Failed(reason) => GuestAnswer::Failed(reason),
        }
    }
}

impl GuestAnswer {
    /// The window.
    ///
    /// # Errors
    /// Why there is none.
    pub fn window(self) -> Result<GuestWindow, BenchError> {
        match self {
            GuestAnswer::Done(window) => Ok(window),
            GuestAnswer::Unavailable { reason, remedy } => {
                Err(BenchError::Unavailable { reason, remedy })
            }
            GuestAnswer::Failed(reason) => Err(BenchError::Failed(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::{Load, Rate, Stimulus};

    #[test]
    fn orders_and_answers_pass_through_a_line_of_json() {
        let condition =
            Condition::Made { load: Load::Busy, rate: Rate::High, stimulus: Stimulus::Disk };
        let order = GuestOrder {
            condition,
            warm_up_ns: 1,
            duration_ns: u64::MAX,
            command: Some("echo \"a\nb\"".to_owned()),
            low_interval_ns: 3,
            housekeeping: vec![1],
            disk_file: Some("/dev/vda".into()),
            probed: true,
            events: vec!["cycles".to_owned()],
        };
        let line = serde_json::to_string(&order).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<GuestOrder>(&line).unwrap(), order);
        let done = GuestWindow {
            stimulus_work: Some(StimulusStats { operations: 2, ..StimulusStats::default() }),
            ..GuestWindow::default()
        };
        for answer in [
            GuestAnswer::Done(done),
            GuestAnswer::Unavailable { reason: "no".to_owned(), remedy: None },
            GuestAnswer::Failed("broke".to_owned()),
        ] {
            let line = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<GuestAnswer>(&line).unwrap(), answer);
        }
    }
}
