//! The configuration of the live bench for `noise`. The command line sets it.

use std::time::Duration;

use lab::noise::{Body, KeepDetours};

use crate::marks::Senders;
use crate::window::Stop;

/// The length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The time of this number of quanta or slots.
    Repetitions(u64),
    /// A fixed time, whatever the number of quanta.
    Time(Duration),
}

/// Configuration of [`LiveNoise`](super::LiveNoise).
#[derive(Clone, Debug)]
pub struct NoiseSettings {
    /// CPUs on which loops run.
    pub cpus: Vec<u32>,
    /// CPUs for the observer, irqlab's own thread. Empty: the usable CPUs without a loop.
    pub housekeeping: Vec<u32>,
    /// The work of the loops FWQ and FTQ.
    pub body: Body,
    /// Length of a quantum and of a slot, ns.
    pub quantum_ns: u64,
    pub length: Length,
    /// How long a loop runs before its window opens.
    pub warm_up: Duration,
    /// Length of the shortest gap that counts as a detour, ns. `None`: a default that fits the clock's resolution.
    pub threshold_ns: Option<u64>,
    /// Priority under SCHED_FIFO; `None`: SCHED_OTHER.
    pub fifo: Option<u32>,
    /// Whether to record the kernel's marks.
    pub trace: bool,
    /// Whether the marks name the senders of interrupts.
    pub senders: Senders,
    /// Size of the last-level cache.
    pub cache_bytes: Option<u64>,
    /// Which single detours of each CPU the sample keeps.
    pub keep: KeepDetours,
    /// The command that runs concurrently with the loops, and its arguments; empty: none.
    pub command: Vec<String>,
    /// Whether the command's output goes to stderr, because the results go to stdout.
    pub command_to_stderr: bool,
    /// The user's request to stop early.
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

    /// The number of quanta in a window; `u64::MAX` if its time limits it.
    #[must_use]
    pub fn repetitions(&self) -> u64 {
        match self.length {
            Length::Repetitions(number) => number,
            Length::Time(_) => u64::MAX,
        }
    }
}
