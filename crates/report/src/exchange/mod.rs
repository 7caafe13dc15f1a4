//! A run in the formats of other programs: flame graphs, trace viewers, histogram logs, monitoring. `irqlab export`
//! writes them; `irqlab watch` serves [`Metrics`].
//!
//! Each format uses the tables that it can express. If a run has none of them, the error says what the run lacks
//! ([`Unexported`]). Exact figures stay exact in the file.

mod bucketed;
mod folded;
mod hlog;
mod metrics;
mod openmetrics;
mod perfetto;
mod timeline;

use std::error::Error;
use std::fmt;

pub use folded::{Folded, folded, weights};
pub use hlog::hlog;
pub use metrics::{RunMetrics, metrics};
pub use openmetrics::{Buckets, Exposition, Family, Labels, MetricKind, Metrics};
pub use perfetto::perfetto;

/// The error if a run has nothing for a format: what the run lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexported(String);

impl fmt::Display for Unexported {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Unexported {}
