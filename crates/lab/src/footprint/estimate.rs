//! Estimates from repetitions: means with intervals, treatment minus control, displaced lines and their detection
//! limit. Also the rule that ends a series. The tables and `experiment.rs` use them; all functions are pure.

use stats::interval::t_95;

use super::curve::{Curve, Reading, Rising};
use super::sample::{Repetition, Verdict};

/// Minimum number of accepted treatment repetitions, and of accepted control repetitions (the paper, section 2.3).
pub const REPETITIONS_MIN: usize = 16;
/// Minimum number of accepted treatment repetitions, and of accepted control repetitions, before a series may end.
pub const REPETITIONS_BEFORE_STOP: usize = 32;
/// A series may end when half the interval's width is at most this fraction of the mean (the paper, section 2.3).
pub const HALF_WIDTH_RATIO: f64 = 0.05;
/// Detection limit in standard deviations of a measurement of zero, with 5 % false positives and 5 % false
/// negatives (Currie: Limits for qualitative detection, Anal. Chem. 40, 1968).
pub(super) const DETECTED_DEVIATIONS: f64 = 3.29;

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    pub mean: f64,
    /// Half the width of the interval.
    pub half_width: f64,
    /// Variance of a single value.
    pub variance: f64,
    /// Number of values. For a difference, the smaller number of the two samples.
    pub count: usize,
}

/// The mean of independent values. `None` with fewer than two values.
#[must_use]
pub fn mean(values: &[f64]) -> Option<Mean> {
    let count = values.len();
    let t = t_95(count.checked_sub(1)? as u64)?;
    let n = count as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some(Mean { mean, half_width: t * (variance / n).sqrt(), variance, count })
}

/// The difference of two independent means, with Welch's interval. The interval uses the degrees of freedom of the
/// smaller sample, so it is never too narrow. `None` if a sample has fewer than two values.
#[must_use]
pub fn difference(treatment: Mean, control: Mean) -> Option<Mean> {
    let (treatment_count, control_count) = (treatment.count as f64, control.count as f64);
    let error = (treatment.variance / treatment_count + control.variance / control_count).sqrt();
    let t = t_95(treatment.count.min(control.count).checked_sub(1)? as u64)?;
    Some(Mean {
        mean: treatment.mean - control.mean,
        half_width: t * error,
        variance: treatment.variance + control.variance,
        count: treatment.count.min(control.count),
    })
}

/// The values of the accepted repetitions. Skips a repetition without a value.
pub fn accepted<'r>(
    repetitions: &'r [Repetition],
    value: impl Fn(&Repetition) -> Option<f64> + 'r,
) -> Vec<f64> {
    let accepted = repetitions.iter().filter(|repetition| repetition.verdict == Verdict::Accepted);
    accepted.filter_map(value).collect()
}

/// Extra time of the pass after the interrupt, cycles. `None` if the repetition was not timed.
#[must_use]
pub fn excess(repetition: &Repetition) -> Option<f64> {
    repetition.excess_cycles.map(|cycles| cycles as f64)
}

/// The loop's misses in the window. `None` without counters.
#[must_use]
pub fn user_misses(repetition: &Repetition) -> Option<f64> {
    repetition.user_misses.map(|misses| misses as f64)
}

/// The kernel's misses in the window. `None` without counters.
#[must_use]
pub fn kernel_misses(repetition: &Repetition) -> Option<f64> {
    repetition.kernel_misses.map(|misses| misses as f64)
}

/// Mean of `value` per interrupt: treatment minus control. `None` with fewer than [`REPETITIONS_MIN`] accepted
/// repetitions of either kind.
#[must_use]
pub fn beyond_control(
    treatment: &[Repetition],
    control: &[Repetition],
    value: fn(&Repetition) -> Option<f64>,
) -> Option<Mean> {
    let (treatment, control) = (accepted(treatment, value), accepted(control, value));
    if treatment.len() < REPETITIONS_MIN || control.len() < REPETITIONS_MIN {
        return None;
    }
    difference(mean(&treatment)?, mean(&control)?)
}

/// Lines that an interrupt displaces, estimated from the time of a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DisplacedLines {
    /// Estimated number. `None` in three cases: the estimate is below `limit`; `limit` is above `level_lines`;
    /// `exceeds_level` is true.
    pub count: Option<f64>,
    /// 95 % confidence interval of the number of lines. It includes the errors of the times and of the curve.
    pub interval: (f64, f64),
    /// Half the width of the interval before the ends of the level cut it, lines. If only one end is known, the distance
    /// from the estimate to that end.
    pub half_width: f64,
    /// Half width of the interval that the curve's error alone would give, lines.
    pub calibration_half_width: f64,
    /// Detection limit: fewer lines are not distinguishable from none. Infinite if no number is. May exceed `level_lines`.
    pub limit: f64,
    /// Number of lines of the level.
    pub level_lines: f64,
    /// Whether the pass took longer than with all lines displaced. Some lines then came from farther than the next
    /// level, and the number of lines is unknown.
    pub exceeds_level: bool,
}

impl DisplacedLines {
    /// The detection limit, or `None` if it is above the level.
    #[must_use]
    pub fn limit_in_level(&self) -> Option<f64> {
        (self.limit <= self.level_lines).then_some(self.limit)
    }
}

/// Whether an estimated number of lines is distinguishable from none. An estimate is never above the level, so nothing is
/// detected if the limit is above it.
pub(super) fn is_detected(estimate: f64, limit: f64, level_lines: f64) -> bool {
    limit <= level_lines && estimate >= limit
}

/// Converts an extra time of a pass (cycles) to displaced lines with the calibration curve. `None` if the curve does not rise
/// (the time then tells nothing about the level), or if `cycles` comes from fewer than two values.
#[must_use]
pub fn estimate_displaced_lines(cycles: Mean, curve: &Curve) -> Option<DisplacedLines> {
    let curve = curve.rising()?;
    let Mean { mean, half_width, .. } = cycles;
    let reading = Reading { cycles: mean, half_width, curve_errors: curve.standard_errors_95() };
    let curve_error_interval = curve.interval(Reading { half_width: 0.0, ..reading });
    let limit = detection_limit(cycles, &curve)?;
    let level_lines = curve.lines_max();
    let estimate = curve.lines(mean);
    let exceeds_level = curve.is_beyond(reading);
    let is_detected = is_detected(estimate, limit, level_lines) && !exceeds_level;
    let (low, high) = curve.interval(reading);
    let is_cut = low <= 0.0 || high >= level_lines;
    let half_width =
        if is_cut { (high - estimate).max(estimate - low) } else { (high - low) / 2.0 };
    Some(DisplacedLines {
        count: is_detected.then_some(estimate),
        interval: (low, high),
        half_width,
        calibration_half_width: (curve_error_interval.1 - curve_error_interval.0) / 2.0,
        limit,
        level_lines,
        exceeds_level,
    })
}

/// Standard error of a mean. `None` with fewer than two values.
pub(super) fn standard_error(mean: Mean) -> Option<f64> {
    Some(mean.half_width / t_95(mean.count.checked_sub(1)? as u64)?)
}

/// Detection limit of an extra time, lines. It can exceed the level, and be infinite ([`Rising::detection_limit`]). `None`
/// with fewer than two values.
fn detection_limit(cycles: Mean, curve: &Rising) -> Option<f64> {
    // The standard error of the difference already contains the control's variance.
    Some(limit_of_error(standard_error(cycles)?, curve))
}

/// Detection limit of an extra time with this standard error in cycles, lines.
pub(super) fn limit_of_error(standard_error: f64, curve: &Rising) -> f64 {
    // Without displaced lines, 5 % of the measurements exceed the critical time. The curve has no error at no lines.
    // With a number of lines at the limit, 5 % stay below the critical time. The curve has an error there.
    let errors = DETECTED_DEVIATIONS / 2.0;
    curve.detection_limit(errors * standard_error, errors)
}

/// Decides when a series ends. The paper's rule ends a series as soon as the interval is narrow. That rule prefers
/// repetitions that agree by chance: with rare long repetitions, only three in four intervals contain the mean.
///
/// This rule first waits for [`REPETITIONS_BEFORE_STOP`] repetitions. Once the interval is narrow, the series grows by
/// half of its length. These last repetitions have no part in the decision. Starr (On the asymptotic efficiency of a
/// sequential procedure for estimating the mean, Ann. Math. Statist. 37, 1966) shows that a few observations after the
/// stop restore the coverage of Chow and Robbins' rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopping {
    /// The series ends at this number of accepted repetitions of each kind. `None` until the interval is narrow.
    stop_count: Option<usize>,
}

impl Stopping {
    /// Whether a series ends with these values of its accepted repetitions. The first call with a narrow interval fixes
    /// the length of the series, so call it after each batch.
    pub fn is_enough(&mut self, treatment: &[f64], control: &[f64]) -> bool {
        let count = treatment.len().min(control.len());
        if self.stop_count.is_none()
            && count >= REPETITIONS_BEFORE_STOP
            && is_narrow(treatment, control)
        {
            self.stop_count = Some(count + count / 2);
        }
        self.stop_count.is_some_and(|stop_count| count >= stop_count)
    }
}

fn is_narrow(treatment: &[f64], control: &[f64]) -> bool {
    let means = mean(treatment).zip(mean(control));
    let beyond = means.and_then(|(treatment, control)| difference(treatment, control));
    beyond.is_some_and(|beyond| beyond.half_width <= HALF_WIDTH_RATIO * beyond.mean.abs())
}

#[cfg(test)]
mod tests {
    use super::super::curve::tests::exact;
    use super::*;

    #[test]
    fn lines_below_the_detection_limit_are_absent() {
        let spread_around = |center: f64| -> Vec<f64> {
            (0..20).map(|n| center + f64::from(n % 5) * 10.0 - 20.0).collect()
        };
        let line = exact(&[(0, 0), (100, 1000)]);
        let control = mean(&spread_around(0.0)).unwrap();
        let lines_by = |cycles: f64| {
            let treatment = mean(&spread_around(cycles)).unwrap();
            estimate_displaced_lines(difference(treatment, control).unwrap(), &line).unwrap()
        };
        assert_eq!(lines_by(2.0).count, None);
        assert!(lines_by(2.0).limit > 0.2);
        let farther = lines_by(1200.0);
        assert!(farther.exceeds_level && farther.count.is_none());
        let found = lines_by(300.0);
        assert_eq!(found.count.unwrap().round(), 30.0);
        assert!(found.interval.0 < 30.0 && found.interval.1 > 30.0);
    }

    #[test]
    fn the_detection_limit_has_the_variance_of_the_control_once() {
        let mean_from = |low: f64| {
            let values: Vec<f64> = (0..40).map(|n| low + f64::from(n % 2) * 200.0).collect();
            mean(&values).unwrap()
        };
        let found = difference(mean_from(500.0), mean_from(0.0)).unwrap();
        // A line costs 5 cycles. The variance of each mean is 200^2 / 4 * 40 / 39 / 40.
        let limit = estimate_displaced_lines(found, &exact(&[(0, 0), (200, 1_000)])).unwrap().limit;
        let expected = 3.29 * (2.0 * 10_000.0 / 39.0_f64).sqrt() / 5.0;
        assert!((limit - expected).abs() < 1e-6 * expected, "{limit} {expected}");
    }

    #[test]
    fn a_limit_above_the_level_detects_nothing() {
        // The level has 64 lines of 4 cycles. The standard error is as long as 64 lines.
        let curve = exact(&[(0, 0), (32, 128), (64, 256)]);
        let reading = |mean: f64, count: usize| {
            let half_width = t_95(count as u64 - 1).unwrap() * 256.0;
            estimate_displaced_lines(Mean { mean, half_width, variance: 0.0, count }, &curve)
                .unwrap()
        };
        let found = reading(300.0, 40);
        assert!((found.limit - 3.29 * 64.0).abs() < 1e-9, "{found:?}");
        assert_eq!((found.count, found.limit_in_level()), (None, None));
        assert_eq!(found.interval.1, 64.0);
        // A limit just within the level: 63 of 64 lines.
        let narrow = |mean: f64| {
            let half_width = t_95(39).unwrap() * 252.0 / 3.29;
            estimate_displaced_lines(Mean { mean, half_width, variance: 0.0, count: 40 }, &curve)
                .unwrap()
        };
        assert!((narrow(0.0).limit_in_level().unwrap() - 63.0).abs() < 1e-9);
        assert_eq!(narrow(256.0).count, Some(64.0));
    }

    #[test]
    fn series_without_displaced_lines_rarely_have_some() {
        let mut random = stats::Random::new(3);
        // The standard error of a difference of 40 values is this many lines, and the level has 64 lines of one cycle.
        for error_lines in [10.0_f64, 30.0, 64.0, 200.0] {
            let deviation = error_lines * 20.0_f64.sqrt();
            let mut values = || -> Mean {
                let normal = || {
                    let angle = std::f64::consts::TAU * random.unit();
                    (2.0 * random.exponential()).sqrt() * angle.cos()
                };
                let values: Vec<f64> = std::iter::repeat_with(normal)
                    .take(40)
                    .map(|value| deviation * value)
                    .collect();
                mean(&values).unwrap()
            };
            let curve = exact(&[(0, 0), (64, 64)]);
            let is_detected = |_: &u32| {
                let found = difference(values(), values()).unwrap();
                estimate_displaced_lines(found, &curve).unwrap().count.is_some()
            };
            let count = (0..400).filter(is_detected).count();
            assert!(count <= 20, "{count} of 400 with an error of {error_lines} lines");
        }
    }

    #[test]
    fn repeating_ends_some_time_after_a_narrow_interval() {
        let mut stopping = Stopping::default();
        let mut is_enough = |treatment: usize, control: usize| {
            stopping.is_enough(&vec![100.0; treatment], &vec![0.0; control])
        };
        assert!(!is_enough(40, 31));
        assert!(!is_enough(32, 32));
        assert!(!is_enough(60, 47));
        assert!(is_enough(48, 48));
        let wide: Vec<f64> = (0..64).map(|n| f64::from(n) * 20.0).collect();
        assert!(!Stopping::default().is_enough(&wide, &[0.0; 64]));
    }
}
