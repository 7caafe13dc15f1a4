//! Applies `noise scale` to the detours of the ranks, and compares its prediction with the measured slowdown.

use stats::interval::{BATCHES_MIN, from_values};

use super::sample::Rank;
use super::steps::Steps;
use crate::noise::scale::{self, Arrivals, Trace};

/// Number of blocks of steps for the interval of the measured slowdown, if there are enough steps.
const BLOCKS: usize = 32;
/// Seed of the model's bootstrap.
const SEED: u64 = 1;

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// Absent with too little data. The upper end can be unknown alone.
    pub interval: Option<(f64, Option<f64>)>,
}

/// The measured mean slowdown, and the prediction of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Whether the model assumes that all ranks have their detours at the same times.
    pub coscheduled: bool,
    pub predicted: Estimate,
    /// Whether the prediction is a lower bound.
    pub is_lower_bound: bool,
    pub measured: Estimate,
}

/// How [`Comparison::verdict`] judges.
pub const VERDICT_METHOD: &str = "95 % interval of the difference (MOVER)";

impl Comparison {
    /// The measured mean minus the predicted one.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.measured.mean - self.predicted.mean
    }

    /// The ends of the 95 % interval of [`Comparison::difference`]: the distances of both means from the ends of their
    /// intervals, added as independent errors (MOVER, Zou and Donner 2008). Both come from the same detours, so the
    /// interval is rather too wide. An end is `None` if one of the two intervals lacks it.
    #[must_use]
    pub fn difference_interval(&self) -> (Option<f64>, Option<f64>) {
        let Comparison { predicted, measured, .. } = self;
        let (Some((predicted_low, predicted_high)), Some((measured_low, measured_high))) =
            (predicted.interval, measured.interval)
        else {
            return (None, None);
        };
        let distance = |estimate: &Estimate, end: f64| (end - estimate.mean).abs();
        let low = predicted_high.map(|high| {
            self.difference() - distance(measured, measured_low).hypot(distance(predicted, high))
        });
        let high = measured_high.map(|high| {
            self.difference() + distance(measured, high).hypot(distance(predicted, predicted_low))
        });
        (low, high)
    }

    /// `within` if the interval of the difference contains 0: the measured mean and the predicted one agree within their
    /// errors. `below` or `above` if the whole interval is. `not judged` if the interval lacks the end that decides.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.difference_interval() {
            (_, Some(high)) if high < 0.0 => "below",
            (Some(low), _) if low > 0.0 => "above",
            (Some(_), Some(_)) => "within",
            _ => "not judged",
        }
    }
}

/// The measured slowdown of the steps: the mean time of a step over the undisturbed time, minus 1. The interval comes from
/// means of blocks of steps.
#[must_use]
pub fn measured(steps: &Steps) -> Estimate {
    let slowdown = |lengths_ns: f64, count: usize| {
        lengths_ns / count.max(1) as f64 / steps.undisturbed_ns - 1.0
    };
    let length_ns =
        |block: &[super::steps::Step]| block.iter().map(|step| step.length_ns as f64).sum::<f64>();
    let mean = slowdown(length_ns(&steps.steps), steps.steps.len());
    let block_steps = steps.steps.len() / BLOCKS;
    let blocks =
        if block_steps > 0 { steps.steps.chunks_exact(block_steps) } else { [].chunks_exact(1) };
    let means: Vec<f64> = blocks.map(|block| slowdown(length_ns(block), block.len())).collect();
    let interval = from_values(&means).filter(|_| means.len() >= BATCHES_MIN);
    let ends =
        interval.map(|interval| (mean - interval.half_width, Some(mean + interval.half_width)));
    Estimate { mean, interval: ends }
}

/// The prediction of `noise scale` next to the measured slowdown: for detours at independent times, and for detours that all
/// ranks have at the same times. Both are delays over the undisturbed time of the job's steps. The model's own undisturbed
/// time, granularity plus bare latency, lacks what the ranks' computations differ by.
///
/// Fails with the reason if the model cannot be applied.
pub fn compare(ranks: &[Rank], steps: &Steps) -> Result<Vec<Comparison>, String> {
    let traces: Vec<Trace> =
        ranks.iter().enumerate().map(|(number, rank)| trace(number, rank)).collect();
    let rounds = u64::from((ranks.len() as u64).next_power_of_two().trailing_zeros()).max(1);
    let job = scale::Job {
        nodes: vec![ranks.len() as u64],
        granularities_ns: vec![steps.granularity_ns().round() as u64],
        latency_ns: ranks[0].sample.bare_latency_ns / rounds,
        without: Vec::new(),
        seed: SEED,
    };
    let rows = scale::scale(&traces, &job).map_err(|error| error.to_string())?;
    let measured = measured(steps);
    let compare = |row: &scale::Row| Comparison {
        coscheduled: row.coscheduled,
        predicted: predicted(row, steps.undisturbed_ns),
        is_lower_bound: row.is_lower_bound,
        measured,
    };
    Ok(rows.iter().map(compare).collect())
}

/// The model's slowdown, with the undisturbed time of the measured steps in place of the model's.
fn predicted(row: &scale::Row, undisturbed_ns: f64) -> Estimate {
    let factor = (row.granularity_ns + row.barrier_ns) as f64 / undisturbed_ns;
    let interval = row.interval.map(|(low, high)| (low * factor, high.map(|high| high * factor)));
    Estimate { mean: row.slowdown_ratio * factor, interval }
}

/// The detours of a rank's computations, as if the computations had followed one another.
fn trace(number: usize, rank: &Rank) -> Trace {
    let sample = &rank.sample;
    let mut found =
        sample.interruptions.iter().filter(|interruption| !interruption.in_collective).peekable();
    let (mut detours, mut own_ns, mut max_ns) = (Vec::new(), 0_u64, 0);
    for times in &sample.times {
        // Time in detours of this computation so far.
        let mut lost_ns = 0_u64;
        while let Some(detour) = found.next_if(|detour| detour.start_ns < times.arrival_ns) {
            let passed_ns = detour.start_ns.saturating_sub(times.start_ns);
            let length_ns = detour.length_ns();
            detours.push((own_ns.saturating_add(passed_ns.saturating_sub(lost_ns)), length_ns));
            lost_ns = lost_ns.saturating_add(length_ns);
            max_ns = max_ns.max(length_ns);
        }
        let computation_ns = times.arrival_ns - times.start_ns;
        own_ns = own_ns.saturating_add(computation_ns.saturating_sub(lost_ns));
    }
    // A detour can end after the last reading of the clock.
    let last_ns = own_ns.saturating_sub(1);
    detours.iter_mut().for_each(|(start_ns, _)| *start_ns = (*start_ns).min(last_ns));
    Trace {
        cpu: number as u64,
        own_ns,
        count: detours.len() as u64,
        detours,
        arrivals: Arrivals::Measured,
        lost: sample.lost_detours,
        max_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Interruption, RankSample, StepTimes};
    use super::super::steps::{
        find,
        tests::{cause, rank_ahead},
    };
    use super::*;
    use stats::Random;

    const WORK_NS: u64 = 1_000_000;
    const LATENCY_NS: u64 = 10_000;

    /// Two ranks that replay random detours of 200 us, one in five computations on average, with an exact collective
    /// that takes `latency_ns` in the job, and [`LATENCY_NS`] alone.
    fn replayed_with(latency_ns: u64, steps: usize) -> Vec<Rank> {
        let mut random = Random::new(7);
        let mut samples = [(); 2].map(|()| RankSample {
            causes: vec![cause(true, "task", "a")],
            bare_latency_ns: LATENCY_NS,
            ..RankSample::default()
        });
        let mut start_ns = 1_000;
        for _ in 0..steps {
            let arrivals = samples.each_mut().map(|sample| {
                let has_detour = random.below(5) == 0;
                if has_detour {
                    let start_ns = start_ns + random.below(WORK_NS);
                    let parts = vec![(0, 200_000)];
                    sample.interruptions.push(Interruption {
                        start_ns,
                        in_collective: false,
                        parts,
                    });
                }
                start_ns + WORK_NS + if has_detour { 200_000 } else { 0 }
            });
            let leave_ns = arrivals[0].max(arrivals[1]) + latency_ns;
            for (sample, arrival_ns) in samples.iter_mut().zip(arrivals) {
                sample.times.push(StepTimes { start_ns, arrival_ns, leave_ns });
            }
            start_ns = leave_ns;
        }
        samples.into_iter().map(|sample| rank_ahead(0, 0, sample)).collect()
    }

    fn replayed(steps: usize) -> Vec<Rank> {
        replayed_with(LATENCY_NS, steps)
    }

    /// Collectives of the job take 500 us longer than alone, so an undisturbed step is longer than the model's.
    #[test]
    fn prediction_and_measurement_are_over_the_same_undisturbed_time() {
        let ranks = replayed_with(LATENCY_NS + 500_000, 4_000);
        let steps = find(&ranks).unwrap();
        let comparisons = compare(&ranks, &steps).unwrap();
        let independent = comparisons.iter().find(|row| !row.coscheduled).unwrap();
        let slowdown = 0.36 * 200.0 / 1_510.0;
        for estimate in [independent.predicted, independent.measured] {
            assert!((estimate.mean / slowdown - 1.0).abs() < 0.1, "{independent:?}");
        }
        assert_eq!(independent.verdict(), "within", "{independent:?}");
    }

    #[test]
    fn the_verdict_takes_the_errors_of_both_means_into_account() {
        let estimate = |low, mean, high| Estimate { mean, interval: Some((low, high)) };
        let verdict = |predicted, measured| {
            let (coscheduled, is_lower_bound) = (false, false);
            Comparison { coscheduled, predicted, is_lower_bound, measured }.verdict()
        };
        let predicted = estimate(0.095, 0.10, Some(0.105));
        assert_eq!(verdict(predicted, estimate(0.09, 0.11, Some(0.13))), "within");
        assert_eq!(verdict(predicted, estimate(0.109, 0.11, Some(0.111))), "above");
        assert_eq!(verdict(predicted, estimate(0.089, 0.09, Some(0.091))), "below");
        let without_interval = Estimate { mean: 0.2, interval: None };
        assert_eq!(verdict(predicted, without_interval), "not judged");
        let without_end = estimate(0.095, 0.10, None);
        assert_eq!(verdict(without_end, estimate(0.089, 0.09, Some(0.091))), "below");
        assert_eq!(verdict(without_end, estimate(0.19, 0.2, Some(0.21))), "not judged");
    }

    #[test]
    fn a_job_with_independent_detours_is_within_the_models_interval() {
        let ranks = replayed(4_000);
        let steps = find(&ranks).unwrap();
        assert_eq!(steps.undisturbed_ns, (WORK_NS + LATENCY_NS) as f64);
        let comparisons = compare(&ranks, &steps).unwrap();
        let independent = comparisons.iter().find(|row| !row.coscheduled).unwrap();
        assert_eq!(independent.verdict(), "within", "{independent:?}");
        // 1 - 0.8 * 0.8 of the steps take 200 us longer.
        assert!((independent.measured.mean / (0.36 * 200.0 / 1_010.0) - 1.0).abs() < 0.1);
        let coscheduled = comparisons.iter().find(|row| row.coscheduled).unwrap();
        assert_eq!(coscheduled.verdict(), "above", "{coscheduled:?}");
    }

    #[test]
    fn a_short_job_cannot_be_compared() {
        let ranks = replayed(5);
        let steps = find(&ranks).unwrap();
        assert!(compare(&ranks, &steps).unwrap_err().contains("granularity"));
        assert_eq!(measured(&steps).interval, None);
    }
}
