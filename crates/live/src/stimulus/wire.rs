//! The protocol between the measuring process (`running.rs`) and the stimulus process (`helper.rs`). The measuring
//! process passes one JSON argument; the stimulus process answers with lines of JSON. Both are the same program, so
//! the format may change.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::WorkerError;
use super::settings::{LoadSettings, StimulusSettings};

/// The argument of the hidden verb.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HelperRequest {
    /// PID of the measuring process. If it is no longer the parent, the measuring process has died.
    pub parent_pid: u32,
    pub job: Job,
}

/// The work of a stimulus process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Job {
    Source(StimulusSettings),
    Load(LoadSettings),
}

/// A line from the stimulus process: first `Ready` or `Error`, last `Report` or `Error`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    Ready { facts: Map<String, Value> },
    Report(Report),
    Error(WorkerError),
}

/// Statistics of a stimulus between `Ready` and its stop.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Reads, answered pings, sent blocks, requested timer expirations, barriers or compressed
    /// chunks, depending on the stimulus (`docs/stimuli.md`).
    pub operations: u64,
    /// Bytes read, received, sent or compressed; 0 if no data moves.
    pub bytes: u64,
    /// Operations that failed (a lost ping, a read error).
    pub errors: u64,
    /// Time from ready to stopped, ns.
    pub elapsed_ns: u64,
    /// Workers that ended early because they lost their CPU: role and CPU.
    pub lost_cpus: Vec<(String, u32)>,
    /// Why the operations are not what the kernel did, as sentences without a full stop.
    pub warnings: Vec<String>,
}

impl Report {
    /// All warnings for the reader of the numbers: about lost CPUs, and about the operations.
    #[must_use]
    pub fn all_warnings(&self) -> Vec<String> {
        let threads = self.lost_cpus.iter().map(|(role, cpu)| format!("{role} on CPU {cpu}"));
        let threads: Vec<String> = threads.collect();
        let lost_cpus = (!threads.is_empty()).then(|| {
            format!(
                "threads of load or stimulus ended because their CPU went offline: {}",
                threads.join(", ")
            )
        });
        lost_cpus.into_iter().chain(self.warnings.iter().cloned()).collect()
    }
}
