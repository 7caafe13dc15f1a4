//! Finds the peaks of a loop of fixed work from its times alone, like the paper `noise-t1`. A peak is a quantum that
//! takes longer than the others, for example because a tick interrupts it.

use lab::noise::{Fixed, LoopResult, NoiseSample, Quantum, Relation};
use stats::interval::{Interval, from_moments, from_values};
use stats::median;
use stats::periodicity::{Event, Search, periods};

use super::published::Tick;
use crate::judge::Figure;

/// A quantum is a peak if it exceeds the median by this fraction plus a step of the clock.
pub(super) const PEAK_RATIO: f64 = 0.001;

/// A run of the loop at one placement.
#[derive(Debug)]
pub struct PlacedRun {
    /// The CPUs that the tick interrupts.
    pub tick: Tick,
    /// Relation of the loop's CPU to CPU 0.
    pub placement: Relation,
    pub cpu: u32,
    /// Step of the clock that measures quanta, ns.
    pub step_ns: u64,
    /// The window, or the reason why it is missing.
    pub sample: Result<NoiseSample, String>,
}

/// The peaks among a loop's quanta.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peaks {
    /// Number of quanta without a page fault of the loop. All figures are of these quanta.
    pub quanta: usize,
    /// Number of peaks among the quanta.
    pub count: usize,
    /// Time from the start of the first to the end of the last quantum, ns.
    pub length_ns: f64,
    /// Median time of a quantum, ns.
    pub median_ns: f64,
    /// Slowdown of the longest quantum, as a share of the median. 0 if no quantum is longer than the median. A longer
    /// run can only have a larger one: [`Peaks::part_max`] says how exact it is.
    pub max_ratio: f64,
    /// Mean of the slowdowns of the longest quantum of each of [`PARTS`] equal parts of the run. Its interval says how
    /// much these maxima vary.
    pub part_max: Figure,
    /// Mean slowdown of the peaks, as a share of the median. `None` without peaks.
    pub mean: Option<Figure>,
    /// Period of the peaks, ns. `None` without a period.
    pub period_ns: Option<Figure>,
}

impl PlacedRun {
    /// Finds the peaks among the quanta of the run.
    ///
    /// Fails with the reason if no quanta are known.
    pub(super) fn peaks(&self) -> Result<Peaks, String> {
        let sample = self.sample.as_ref().map_err(Clone::clone)?;
        let loop_on_cpu = sample.cpus.iter().find(|cpu| cpu.cpu == self.cpu);
        match loop_on_cpu.map(|cpu| &cpu.result) {
            Some(LoopResult::Quanta(fixed)) => Peaks::find(fixed, self.step_ns),
            _ => Err(format!("no loop of fixed work ran on CPU {}", self.cpu)),
        }
    }
}

impl Peaks {
    /// Finds the peaks among the quanta of a loop, without quanta in which the loop had a page fault. `step_ns`: step
    /// of the clock that measured the quanta.
    ///
    /// Fails if no quantum is left, or if their median time is 0.
    fn find(fixed: &Fixed, step_ns: u64) -> Result<Peaks, String> {
        // A page fault of the loop itself also lengthens a quantum.
        let has_no_fault = |quantum: &&Quantum| quantum.faulted != Some(true);
        let quanta: Vec<&Quantum> = fixed.first.iter().filter(has_no_fault).collect();
        let mut times: Vec<f64> = quanta.iter().map(|quantum| quantum.time_ns as f64).collect();
        times.sort_unstable_by(f64::total_cmp);
        let Some(median_ns) = median(&times).filter(|median| *median > 0.0) else {
            return Err("no quantum was measured".to_owned());
        };
        let slowdown = |quantum: &Quantum| quantum.time_ns as f64 / median_ns - 1.0;
        let limit = PEAK_RATIO + step_ns as f64 / median_ns;
        let peaks: Vec<&&Quantum> =
            quanta.iter().filter(|quantum| slowdown(quantum) > limit).collect();
        let events: Vec<Event> =
            peaks.iter().map(|peak| Event { at_ns: peak.start_ns, weight: 1.0 }).collect();
        let peak_times: Vec<u64> = peaks.iter().map(|peak| peak.time_ns).collect();
        let period_ns = periods(&events, &SEARCH)
            .first()
            .map(|period| Figure::from_measurement(period.period_ns, period.half_width_ns));
        Ok(Peaks {
            quanta: quanta.len(),
            count: peaks.len(),
            length_ns: length_ns(&quanta),
            median_ns,
            max_ratio: quanta.iter().map(|quantum| slowdown(quantum)).fold(0.0, f64::max),
            part_max: part_max(&quanta.iter().map(|quantum| slowdown(quantum)).collect::<Vec<_>>()),
            mean: mean_slowdown(&peak_times, median_ns),
            period_ns,
        })
    }
}

/// The search for the period of peaks. The paper's ticks have periods of 4 and 10 ms.
const SEARCH: Search = Search {
    period_ns_min: 500_000,
    period_ns_max: 50_000_000,
    periods_max: 1,
    resultant_length_min: 0.3,
    p_value_max: 1e-6,
};

/// Time from the start of the first to the end of the last quantum, ns. 0 without quanta.
fn length_ns(quanta: &[&Quantum]) -> f64 {
    let ends = quanta.first().zip(quanta.last());
    ends.map_or(0.0, |(first, last)| {
        (last.start_ns + last.time_ns).saturating_sub(first.start_ns) as f64
    })
}

/// Number of parts of a run, each with its longest quantum. A part of the paper's run has at least two ticks.
pub(super) const PARTS: usize = 5;

/// The mean of the largest slowdown of each part of a run. `slowdowns`: of all quanta, in the order of their start.
fn part_max(slowdowns: &[f64]) -> Figure {
    let parts = slowdowns.chunks(slowdowns.len().div_ceil(PARTS).max(1));
    let maxima: Vec<f64> = parts.map(|part| part.iter().copied().fold(0.0, f64::max)).collect();
    let interval = from_values(&maxima);
    let half_width = interval.map_or(f64::INFINITY, |interval| interval.half_width);
    Figure::from_measurement(maxima.iter().sum::<f64>() / maxima.len().max(1) as f64, half_width)
}

/// Mean slowdown of quanta with these times, as a share of the median. `None` without times.
fn mean_slowdown(times_ns: &[u64], median_ns: f64) -> Option<Figure> {
    let (count, sum) = (times_ns.len() as u64, times_ns.iter().sum::<u64>());
    let squares = times_ns.iter().map(|time| u128::from(*time).pow(2)).sum();
    let interval: Option<Interval> = from_moments(count, sum, squares);
    let half_width = interval.map_or(f64::INFINITY, |interval| interval.half_width / median_ns);
    let mean = sum as f64 / count as f64 / median_ns - 1.0;
    (count > 0).then_some(Figure::from_measurement(mean, half_width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_is_as_exact_as_the_maxima_of_parts_are_alike() {
        // A peak of 30 % in each fifth of the run.
        let regular: Vec<f64> =
            (0..100).map(|number| if number % 20 == 7 { 0.3 } else { 0.0 }).collect();
        let figure = part_max(&regular);
        assert!((figure.mean - 0.3).abs() < 1e-12 && figure.half_width < 1e-9, "{figure:?}");
        // A single peak in the run says nothing about the next run.
        let single: Vec<f64> = (0..100).map(|number| if number == 7 { 0.3 } else { 0.0 }).collect();
        let figure = part_max(&single);
        assert!(
            (figure.mean - 0.06).abs() < 1e-12 && figure.half_width > figure.mean,
            "{figure:?}"
        );
        assert!(part_max(&[0.3]).half_width.is_infinite());
    }
}
