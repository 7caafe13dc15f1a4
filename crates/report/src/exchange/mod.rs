//! A run in the formats of other programs: flame graphs, trace viewers, histogram logs, monitoring.
//!
//! Each format takes what it can from the tables that a run has, and says what it lacks
//! ([`Unexported`]). Exact figures stay exact in the file.

mod bucketed;
mod folded;
mod hlog;
mod metrics;
mod openmetrics;
mod perfetto;

use std::error::Error;
use std::fmt;

pub use folded::{Folded, folded, weights};
pub use hlog::hlog;
pub use metrics::{RunMetrics, metrics};
pub use openmetrics::{Buckets, Exposition, Family, Labels, MetricKind, Metrics};
pub use perfetto::perfetto;

/// Why a run has nothing for a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexported(String);

impl fmt::Display for Unexported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Unexported {}
