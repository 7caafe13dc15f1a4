//! The observer of a traced repetition, and the times that depend on whether the machine is real or simulated.

use super::raised_lines::OtherDevices;

/// The largest level whose calibration costs a simulated machine little time of the host, in lines.
const SMALL_LEVEL_LINES_MAX: u64 = 2_048;

/// Observes which contexts run in a traced repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// On a real machine: BPF probes, attached for this repetition only, because they displace lines too.
    Probes,
    /// On a simulated machine: the simulator, which needs only the times of the window.
    Outside,
}

impl Watcher {
    /// Whether devices other than the stimulus's interrupt.
    pub(super) fn other_devices(self) -> OtherDevices {
        match self {
            Watcher::Probes => OtherDevices::MayInterrupt,
            Watcher::Outside => OtherDevices::AreQuiet,
        }
    }

    /// Shortest interruption of the loop, ns: kernel entry, the shortest handler, kernel exit. A chunk that takes
    /// longer counts as interrupted. The limit is lower on a simulated machine, where neither host nor firmware
    /// stalls a chunk. There, a timer's interrupt takes 550 ns on the model zen3.
    pub fn interrupt_ns_min(self) -> u64 {
        match self {
            Watcher::Probes => 700,
            Watcher::Outside => 400,
        }
    }

    /// Shortest interruption by a tick, ns.
    pub fn tick_ns_min(self) -> u64 {
        match self {
            Watcher::Probes => 1_000,
            Watcher::Outside => self.interrupt_ns_min(),
        }
    }

    /// Shortest delay from the request of the interrupt to its arrival, ns: the request itself takes some time. On a
    /// simulated machine all requests take about the same time, so the last request's time suffices; and each
    /// iteration of the loop costs host time.
    pub fn delay_ns_min(self) -> u64 {
        match self {
            Watcher::Probes => 400_000,
            Watcher::Outside => 20_000,
        }
    }

    /// Repetitions for each point of the calibration curve of a level with this many lines. On a simulated machine a
    /// point of a large level spreads by a few cycles of thousands, and each repetition costs host time.
    pub fn curve_repetitions(self, lines: u64) -> usize {
        match self {
            Watcher::Outside if lines > SMALL_LEVEL_LINES_MAX => 16,
            Watcher::Outside | Watcher::Probes => 48,
        }
    }

    /// A chunk counts as interrupted if it took longer than this many displaced lines, and longer than the shortest
    /// interrupt. On a simulated machine nothing delays a line: 32 lines of the L2 of the model zen3 take 0.3 µs.
    pub fn gap_lines(self) -> f64 {
        match self {
            Watcher::Probes => 128.0,
            Watcher::Outside => 32.0,
        }
    }
}
