//! The tool that reports which contexts ran in a traced repetition.

/// The largest level whose calibration costs a simulated machine little time of the host, in lines.
const SMALL_LEVEL_LINES_MAX: u64 = 2_048;

/// Reports which contexts ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// BPF probes, attached for this repetition only, because they displace lines too.
    Probes,
    /// A simulator outside this machine, which needs only the times of the window.
    Outside,
}

impl Watcher {
    /// Shortest interruption of the loop, ns: kernel entry, the shortest handler, kernel exit. The loop takes a longer
    /// chunk for an interrupted one. In a simulated machine neither host nor firmware stalls a chunk, so the limit
    /// is lower there; a timer's interrupt takes 550 ns on the model zen3.
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

    /// Shortest delay of the interrupt, ns, because requesting it takes some time. A simulated machine repeats itself,
    /// so that the time of the request before is enough, and its loop costs time of the host.
    pub fn delay_ns_min(self) -> u64 {
        match self {
            Watcher::Probes => 400_000,
            Watcher::Outside => 20_000,
        }
    }

    /// Repetitions for each point of the calibration curve of a level with so many lines. In a simulated machine a point
    /// of a large level spreads by a few cycles of thousands, and each repetition costs time of the host.
    pub fn curve_repetitions(self, lines: u64) -> usize {
        match self {
            Watcher::Outside if lines > SMALL_LEVEL_LINES_MAX => 16,
            Watcher::Outside | Watcher::Probes => 48,
        }
    }

    /// A chunk was interrupted if it took longer than this many displaced lines, and than the shortest interrupt. In a
    /// simulated machine nothing delays a line, and 32 lines of the L2 of the model zen3 take 0.3 µs.
    pub fn gap_lines(self) -> f64 {
        match self {
            Watcher::Probes => 128.0,
            Watcher::Outside => 32.0,
        }
    }
}
