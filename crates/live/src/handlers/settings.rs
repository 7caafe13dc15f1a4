//! The configuration of the live bench. The command line sets it, or `in_guest.rs` for a request.

use std::path::PathBuf;
use std::time::Duration;

use lab::handlers::VictimsBy;

use crate::bpf::Flavour;
use crate::bpf::layout::VICTIM_CELLS_MAX;
use crate::bpf::rows::ROWS_MAX;
use crate::host::CoreType;
use crate::probe_overhead::CALLS;
use crate::window::{BenchPhase, Stop, WindowEdge, WindowEnd};

/// Configuration of [`LiveBench`](super::LiveBench).
#[derive(Clone, Debug)]
pub struct LiveSettings {
    pub cpus: Vec<u32>,
    /// CPUs for auxiliary threads.
    pub housekeeping: Vec<u32>,
    pub until: WindowEnd,
    /// How long a condition runs before its window opens.
    pub warm_up: Duration,
    /// Names of the PMU events to read; empty: none.
    pub events: Vec<String>,
    /// Whether functions that timers, tasklets, work items and RCU call have spans.
    pub callbacks: bool,
    /// Whether delays from raise or queueing to run are measured.
    pub delays: bool,
    /// Whether senders of function calls and interrupts to other CPUs are measured.
    pub senders: bool,
    /// Memory for single events of a window, bytes; `None`: they are not recorded. Not together with victims.
    pub trace_bytes_max: Option<u64>,
    /// Largest number of rows of a CPU, for contexts and delays.
    pub rows_max: u32,
    /// The key of victims and causes; `None`: they are not measured.
    pub victims: Option<VictimsBy>,
    /// Largest number of victims, causes and contexts that are told apart.
    pub victim_cells_max: u32,
    /// `HOST[:PORT]` of the peer of the net stimulus, reached by a real NIC.
    pub peer: Option<String>,
    /// See [`StimulusSettings::cards`](crate::stimulus::StimulusSettings::cards).
    pub cards: bool,
    /// File or block device for the disk stimulus.
    pub disk_file: Option<PathBuf>,
    /// Time between two operations at a low rate.
    pub low_interval: Option<Duration>,
    /// The program that handles `__stimulus`; by default the running program.
    pub helper: Option<PathBuf>,
    /// How to attach the BPF programs; by default the best way that the kernel supports.
    pub flavour: Option<Flavour>,
    /// The measured CPUs by the type of their cores. Probes are calibrated on each type. By
    /// default the types come from sysfs.
    pub core_types: Option<Vec<CoreType>>,
    /// What the user can do to get a PMU on this machine.
    pub remedy_pmu: Option<String>,
    /// Called just before the gates open, and after they have closed.
    pub at_edge: Option<fn(WindowEdge)>,
    /// Called where a phase starts. The bench starts in the phase set-up.
    pub at_phase: Option<fn(BenchPhase)>,
    /// System calls per side (with and without probes) of a round of the calibration.
    pub calibration_calls: u32,
    /// The user's request to stop early.
    pub stop: Stop,
}

impl LiveSettings {
    /// The default settings for windows on `cpus` that end with `until`.
    #[must_use]
    pub fn new(cpus: Vec<u32>, until: WindowEnd, stop: Stop) -> Self {
        LiveSettings {
            cpus,
            housekeeping: Vec::new(),
            until,
            warm_up: Duration::from_millis(500),
            events: Vec::new(),
            callbacks: false,
            delays: false,
            senders: false,
            trace_bytes_max: None,
            rows_max: ROWS_MAX,
            victims: None,
            victim_cells_max: VICTIM_CELLS_MAX,
            peer: None,
            cards: false,
            disk_file: None,
            low_interval: None,
            helper: None,
            flavour: None,
            core_types: None,
            remedy_pmu: None,
            at_edge: None,
            at_phase: None,
            calibration_calls: CALLS,
            stop,
        }
    }
}
