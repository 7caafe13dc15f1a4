//! How long a measurement on this machine takes, known before it starts.

use std::time::Duration;

/// How long the parts of a measurement take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedTime {
    /// Number of windows, which run one after the other.
    pub windows: u32,
    /// A window with its warm-up.
    pub window_time: Duration,
    /// The comparison of windows without and with probes, all pairs together. Zero if there is none.
    pub comparison: Duration,
}

impl ExpectedTime {
    #[must_use]
    pub fn total(&self) -> Duration {
        self.window_time * self.windows + self.comparison
    }
}
