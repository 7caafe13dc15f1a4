//! Samples of kernels, and the processor that they ran on. Both benches return samples, on a real processor (`live`)
//! and on a model (`sim`). The fields' names are a wire format (`in_guest.rs`).

use std::fmt;

use serde::{Deserialize, Serialize};

/// The identity of a processor, by its CPUID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// The vendor's name in CPUID, such as `AuthenticAMD`.
    pub vendor: String,
    /// Family of the CPUID signature, with the extended family.
    pub family: u32,
    /// Model of the CPUID signature, with the extended model.
    pub model: u32,
}

impl fmt::Display for Processor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.vendor, self.family, self.model)
    }
}

/// The statistics of the windows that are the figures of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Statistics {
    /// The median and the tenth percentile.
    MedianAndTenthPercentile,
    /// The median and the minimum: fewer than ten windows have no tenth percentile of their own.
    MedianAndMinimum,
    /// The minimum alone, for both figures. Some kept data has only this.
    Minimum,
}

impl Statistics {
    /// The statistics of a measurement with this number of undisturbed windows.
    #[must_use]
    pub fn of_windows(windows: usize) -> Statistics {
        if windows < 10 {
            Statistics::MedianAndMinimum
        } else {
            Statistics::MedianAndTenthPercentile
        }
    }
}

/// Cycles of a kernel, and the windows that measured them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Core cycles per unit of work: the median of the windows, unless `statistics` says otherwise.
    pub cycles: f64,
    /// Core cycles per unit of work: the tenth percentile of the windows, which other guests disturb least. See
    /// `statistics` for exceptions.
    pub low_cycles: f64,
    /// Interval of the median with at least 95 % confidence. `None` with few windows.
    pub cycles_95: Option<(f64, f64)>,
    /// The statistics that `cycles` and `low_cycles` are.
    pub statistics: Statistics,
    /// Number of processes that have cycles of the kernel. `None` for kept data, which does not say.
    pub processes: Option<u64>,
    /// Number of undisturbed windows, which alone determine the cycles. `None` for kept data that does not say.
    pub windows: Option<u64>,
    /// Number of windows that do not count because the core's clock rate changed. `None` for kept data, which does not
    /// say.
    pub rate_changed: Option<u64>,
    /// Number of windows that do not count because the sibling hardware thread was busy or other work ran. `None` for
    /// kept data.
    pub sibling_busy: Option<u64>,
}

impl Figures {
    /// Number of windows that do not count. `None` for kept data.
    #[must_use]
    pub fn disturbed_windows(&self) -> Option<u64> {
        Some(self.rate_changed? + self.sibling_busy?)
    }

    /// Whether all cycles are finite and positive, and the interval's lower end does not exceed its upper end.
    #[must_use]
    pub fn are_possible(&self) -> bool {
        let is_time = |cycles: f64| cycles.is_finite() && cycles > 0.0;
        let (low, high) = self.cycles_95.unwrap_or((self.cycles, self.cycles));
        [self.cycles, self.low_cycles, low, high].into_iter().all(is_time) && low <= high
    }
}

/// The measurement of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelSample {
    pub name: String,
    pub group: String,
    /// The unit of work that the cycles are counted per, such as `instruction`.
    pub unit: String,
    /// A sentence about the purpose of the kernel.
    pub about: String,
    /// Whether other guests of the host share the hardware that the kernel depends on.
    pub shared: bool,
    /// The cycles, or the reason why they are absent.
    pub figures: Result<Figures, String>,
}

impl KernelSample {
    /// The cycles to compare: the median, or the tenth percentile on shared hardware, because other guests can make a
    /// kernel slower, but never faster. `None` if the kernel has no cycles.
    #[must_use]
    pub fn compared_cycles(&self) -> Option<f64> {
        let figures = self.figures.as_ref().ok()?;
        Some(if self.shared { figures.low_cycles } else { figures.cycles })
    }

    /// The 95 % interval of [`Self::compared_cycles`]. `None` on shared hardware: the tenth percentile has no interval.
    #[must_use]
    pub fn compared_cycles_95(&self) -> Option<(f64, f64)> {
        let figures = self.figures.as_ref().ok()?;
        if self.shared { None } else { figures.cycles_95 }
    }

    /// Name of the statistic that [`Self::compared_cycles`] returns. `None` if the kernel has no cycles.
    #[must_use]
    pub fn statistic(&self) -> Option<&'static str> {
        let statistics = self.figures.as_ref().ok()?.statistics;
        Some(match (statistics, self.shared) {
            (Statistics::Minimum, _) | (Statistics::MedianAndMinimum, true) => "minimum",
            (Statistics::MedianAndTenthPercentile, true) => "p10",
            (_, false) => "median",
        })
    }
}
