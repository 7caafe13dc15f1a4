//! What was measured of a kernel, and on which processor.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The processor that kernels were measured on, as CPUID says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// Such as `AuthenticAMD`.
    pub vendor: String,
    /// Family of the CPUID signature, with the extended family.
    pub family: u32,
    /// Model of the CPUID signature, with the extended model.
    pub model: u32,
}

impl fmt::Display for Processor {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {} {}", self.vendor, self.family, self.model)
    }
}

/// Cycles of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Cycles of the core for a unit: the median of the windows.
    pub cycles: f64,
    /// Their tenth percentile: what is left where other guests disturb less.
    pub low_cycles: f64,
    /// Where the median lies with 95 % and more; absent with few windows.
    pub cycles_95: Option<(f64, f64)>,
    /// Windows that counted.
    pub windows: u64,
    /// Windows that did not, because the core's rate changed.
    pub rate_changed: u64,
    /// Windows that did not, because the sibling was busy or something else ran.
    pub sibling_busy: u64,
}

impl Figures {
    /// Whether all numbers are possible ones.
    #[must_use]
    pub fn are_possible(&self) -> bool {
        let is_time = |cycles: f64| cycles.is_finite() && cycles > 0.0;
        let (low, high) = self.cycles_95.unwrap_or((self.cycles, self.cycles));
        [self.cycles, self.low_cycles, low, high].into_iter().all(is_time) && low <= high
    }
}

/// What was measured of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelSample {
    pub name: String,
    pub group: String,
    /// What its cycles are of.
    pub unit: String,
    /// What it measures, in a sentence.
    pub about: String,
    /// Whether other guests of the host share what it depends on.
    pub shared: bool,
    /// Its cycles, or why there are none.
    pub figures: Result<Figures, String>,
}

impl KernelSample {
    /// The cycles to compare: the median, or the tenth percentile where other guests share what the
    /// kernel depends on, since they make it longer and never shorter.
    #[must_use]
    pub fn compared_cycles(&self) -> Option<f64> {
        let figures = self.figures.as_ref().ok()?;
        Some(if self.shared { figures.low_cycles } else { figures.cycles })
    }

    /// Which figure [`Self::compared_cycles`] is.
    #[must_use]
    pub fn statistic(&self) -> &'static str {
        if self.shared { "p10" } else { "median" }
    }
}
