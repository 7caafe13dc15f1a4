//! The peaks that a loop of fixed work sees, from its times alone, as the paper does.

use stats::interval::{Interval, from_moments};
use stats::median;
use stats::periodicity::{Event, Search, periods};

use super::super::placement::Relation;
use super::super::quantum::Quantum;
use super::super::sample::{Fixed, LoopResult, NoiseSample};
use super::published::Tick;
use crate::judge::{Figure, Known, exactly};

/// A quantum is a peak if it takes this much longer than the median, and a step of the clock besides.
pub(super) const PEAK_RATIO: f64 = 0.001;

/// The loop on one CPU.
#[derive(Debug)]
pub struct PlacedRun {
    /// Where the clock interrupts.
    pub tick: Tick,
    /// What the loop's CPU shares with CPU 0.
    pub placement: Relation,
    /// The loop's CPU.
    pub cpu: u32,
    /// Step of the clock that quanta are measured by, ns.
    pub step_ns: u64,
    /// The window; or why there is none.
    pub sample: Result<NoiseSample, String>,
}

/// What stands out of a loop's quanta.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peaks {
    /// Quanta in all.
    pub quanta: usize,
    /// Peaks among them.
    pub count: usize,
    /// Median time of a quantum, ns.
    pub median_ns: f64,
    /// Slowdown of the longest quantum of all, as a share of the median.
    pub max_ratio: f64,
    /// Mean slowdown of the peaks.
    pub mean: Option<Figure>,
    /// Their period, ns.
    pub period_ns: Option<Figure>,
}

impl PlacedRun {
    /// The peaks.
    ///
    /// # Errors
    /// Why there is no loop whose quanta are known one by one.
    pub(super) fn peaks(&self) -> Result<Peaks, String> {
        let sample = self.sample.as_ref().map_err(Clone::clone)?;
        let of_cpu = sample.cpus.iter().find(|one| one.cpu == self.cpu);
        match of_cpu.map(|one| &one.result) {
            Some(LoopResult::Quanta(fixed)) => Peaks::of(fixed, self.step_ns),
            _ => Err(format!("no loop of fixed work ran on CPU {}", self.cpu)),
        }
    }

    /// Slowdown of the longest quantum.
    pub(super) fn max_ratio(&self) -> Known {
        self.peaks().map(|peaks| exactly(peaks.max_ratio))
    }

    /// Mean slowdown of the peaks; 0 without one.
    pub(super) fn mean_ratio(&self) -> Known {
        self.peaks().map(|peaks| peaks.mean.unwrap_or_default())
    }

    /// Period of the peaks, ns.
    pub(super) fn period_ns(&self) -> Known {
        self.peaks()?.period_ns.ok_or_else(|| "no period".to_owned())
    }

    /// The largest slowdown that is no peak.
    pub(super) fn limit_ratio(&self) -> Known {
        let peaks = self.peaks()?;
        Ok(exactly(PEAK_RATIO + self.step_ns as f64 / peaks.median_ns))
    }
}

impl Peaks {
    fn of(fixed: &Fixed, step_ns: u64) -> Result<Peaks, String> {
        let is_sound = |one: &&Quantum| !one.migrated && one.faulted != Some(true);
        let quanta: Vec<&Quantum> = fixed.first.iter().filter(is_sound).collect();
        let mut times: Vec<f64> = quanta.iter().map(|one| one.time_ns as f64).collect();
        times.sort_unstable_by(f64::total_cmp);
        let Some(median_ns) = median(&times).filter(|median| *median > 0.0) else {
            return Err("no quantum was measured".to_owned());
        };
        let slowdown = |one: &Quantum| one.time_ns as f64 / median_ns - 1.0;
        let limit = PEAK_RATIO + step_ns as f64 / median_ns;
        let peaks: Vec<&&Quantum> = quanta.iter().filter(|one| slowdown(one) > limit).collect();
        let events: Vec<Event> =
            peaks.iter().map(|one| Event { at_ns: one.start_ns, weight: 1.0 }).collect();
        let found = periods(&events, &SEARCH);
        let period_ns = found
            .first()
            .map(|period| Figure { mean: period.period_ns, half_width: period.half_width_ns });
        Ok(Peaks {
            quanta: quanta.len(),
            count: peaks.len(),
            median_ns,
            max_ratio: quanta.iter().map(|one| slowdown(one)).fold(0.0, f64::max),
            mean: mean(&peaks.iter().map(|one| one.time_ns).collect::<Vec<_>>(), median_ns),
            period_ns,
        })
    }
}

/// The paper's ticks have 4 and 10 ms.
const SEARCH: Search = Search {
    period_ns_min: 500_000,
    period_ns_max: 50_000_000,
    periods_max: 1,
    resultant_length_min: 0.3,
    p_value_max: 1e-6,
};

/// Mean slowdown of these times.
fn mean(times_ns: &[u64], median_ns: f64) -> Option<Figure> {
    let (count, sum) = (times_ns.len() as u64, times_ns.iter().sum::<u64>());
    let squares = times_ns.iter().map(|time| u128::from(*time).pow(2)).sum();
    let interval: Option<Interval> = from_moments(count, sum, squares);
    let half_width = interval.map_or(f64::INFINITY, |interval| interval.half_width / median_ns);
    let mean = sum as f64 / count as f64 / median_ns - 1.0;
    (count > 0).then_some(Figure { mean, half_width })
}
