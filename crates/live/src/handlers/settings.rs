//! How the live bench is to measure.

use std::path::PathBuf;
use std::time::Duration;

use super::stop::Stop;
use super::wait::Until;
use crate::bpf::Flavour;

/// How to measure.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    /// CPUs to measure.
    pub cpus: Vec<u32>,
    /// CPUs for what must run besides.
    pub housekeeping: Vec<u32>,
    /// When a window ends.
    pub until: Until,
    /// How long a condition runs before its window opens.
    pub warm_up: Duration,
    /// Names of the PMU events to read; empty: none.
    pub events: Vec<String>,
    /// `HOST[:PORT]` for the net source, behind a real NIC.
    pub peer: Option<String>,
    /// See [`StimulusSettings::cards`](crate::stimulus::StimulusSettings::cards).
    pub cards: bool,
    /// File or block device for the disk source.
    pub disk_file: Option<PathBuf>,
    /// Time between two operations at a low rate.
    pub low_interval: Option<Duration>,
    /// The program that serves `__stimulus`; by default this one.
    pub helper: Option<PathBuf>,
    /// How to attach; by default the best that the kernel has.
    pub flavour: Option<Flavour>,
    /// The line that gives the rights to load BPF programs.
    pub remedy_rights: Option<String>,
    /// The line that gives the machine a PMU.
    pub remedy_pmu: Option<String>,
    /// Called when the gates are about to open, and when they have closed.
    pub at_edge: Option<fn(WindowEdge)>,
    /// Requested to stop early.
    pub stop: Stop,
}

/// An edge of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEdge {
    /// It opens.
    Open,
    /// It closes.
    Close,
}

impl LiveSettings {
    /// The default settings for a window of `until` on `cpus`.
    #[must_use]
    pub fn new(cpus: Vec<u32>, until: Until, stop: Stop) -> Self {
        LiveSettings {
            cpus,
            housekeeping: Vec::new(),
            until,
            warm_up: Duration::from_millis(500),
            events: Vec::new(),
            peer: None,
            cards: false,
            disk_file: None,
            low_interval: None,
            helper: None,
            flavour: None,
            remedy_rights: None,
            remedy_pmu: None,
            at_edge: None,
            stop,
        }
    }
}
