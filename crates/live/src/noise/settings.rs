//! The configuration of the live bench for `noise`.

use std::time::Duration;

use lab::noise::Body;

use crate::window::Stop;

/// How long a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// This many quanta or slots, or their time.
    Repetitions(u64),
    /// This long.
    Time(Duration),
}

/// Configuration of [`LiveNoise`](super::LiveNoise).
#[derive(Clone, Debug)]
pub struct NoiseSettings {
    /// CPUs on which loops run.
    pub cpus: Vec<u32>,
    /// CPUs for irqlab's other threads; empty: any CPU that they may run on.
    pub housekeeping: Vec<u32>,
    /// The work of the loops FWQ and FTQ.
    pub body: Body,
    /// Length of a quantum and of a slot, ns.
    pub quantum_ns: u64,
    /// How long a window is.
    pub length: Length,
    /// How long a loop runs before its window opens.
    pub warm_up: Duration,
    /// Shortest gap that is a detour, ns; absent: chosen by the clock's resolution.
    pub threshold_ns: Option<u64>,
    /// Priority under SCHED_FIFO; absent: SCHED_OTHER.
    pub fifo: Option<u32>,
    /// Record the kernel's marks.
    pub trace: bool,
    /// Size of the last-level cache.
    pub cache_bytes: Option<u64>,
    /// Selects the single detours that are kept.
    pub seed: u64,
    /// The command that runs beside the loops, and its arguments; empty: none.
    pub command: Vec<String>,
    /// Whether what it prints goes to stderr, because the results go to stdout.
    pub command_to_stderr: bool,
    /// The command that grants the rights to load BPF programs.
    pub remedy_rights: Option<String>,
    /// The request to stop early.
    pub stop: Stop,
}

impl NoiseSettings {
    /// The planned length of a window, ns.
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        match self.length {
            Length::Repetitions(number) => number.saturating_mul(self.quantum_ns),
            Length::Time(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// The number of quanta in a window, or `u64::MAX`.
    #[must_use]
    pub fn repetitions(&self) -> u64 {
        match self.length {
            Length::Repetitions(number) => number,
            Length::Time(_) => u64::MAX,
        }
    }
}
