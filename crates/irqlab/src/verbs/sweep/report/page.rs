//! The HTML page of a sweep's report.

use record::Run;
use sweep::SweepDirectory;

use super::{Combination, Facts};

/// The page as HTML.
pub fn page(
    _sweep: &SweepDirectory,
    _facts: &Facts,
    _combinations: &[Combination<'_>],
    _report: &Run,
    _best: &[String],
) -> anyhow::Result<String> {
    anyhow::bail!("no page yet")
}
