//! What to measure on this machine.

use std::time::Duration;

use lab::noise::Body;

use crate::window::Stop;

/// How long a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many quanta, slots, or as much time.
    Repetitions(u64),
    /// So long.
    Time(Duration),
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct NoiseSettings {
    /// CPUs on which loops run.
    pub cpus: Vec<u32>,
    /// CPUs for what irqlab does besides; empty: wherever it is allowed to.
    pub housekeeping: Vec<u32>,
    /// What the loops with work do.
    pub body: Body,
    /// Time of a quantum, and of a slot, ns.
    pub quantum_ns: u64,
    /// How long a window is.
    pub length: Length,
    /// How long a loop runs before its window opens.
    pub warm_up: Duration,
    /// Shortest gap that is a detour, ns; absent: chosen by the clock's grain.
    pub threshold_ns: Option<u64>,
    /// Priority under SCHED_FIFO; absent: SCHED_OTHER.
    pub fifo: Option<u32>,
    /// Watch the kernel's side.
    pub trace: bool,
    /// Whether there is a host below this machine.
    pub is_virtual: bool,
    /// Size of the last-level cache.
    pub cache_bytes: Option<u64>,
    /// Chooses which single detours are kept.
    pub seed: u64,
    /// The line that gives the rights to watch the kernel.
    pub remedy_rights: Option<String>,
    /// The wish to stop.
    pub stop: Stop,
}

impl NoiseSettings {
    /// How long a window is planned to be, ns.
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        match self.length {
            Length::Repetitions(number) => number.saturating_mul(self.quantum_ns),
            Length::Time(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// How many quanta make a window, or `u64::MAX`.
    #[must_use]
    pub fn repetitions(&self) -> u64 {
        match self.length {
            Length::Repetitions(number) => number,
            Length::Time(_) => u64::MAX,
        }
    }
}
