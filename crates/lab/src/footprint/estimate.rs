//! From repetitions to lines: means with intervals, the control subtracted, and what could have
//! been seen at all.

use stats::interval::t_95;

use super::curve::{Curve, Reading};
use super::sample::{Repetition, Verdict};

/// Fewest repetitions that count, of each sort (the paper, section 2.3).
pub const REPETITIONS_MIN: usize = 16;
/// Fewest repetitions that count, of each sort, when it is decided whether a series ends.
pub const REPETITIONS_BEFORE_STOP: usize = 32;
/// Half the interval's width over the mean at which repeating ends (the paper, section 2.3).
pub const HALF_WIDTH_RATIO: f64 = 0.05;
/// Standard deviations of a nothing that is distinguished from something, with 5 % of errors either way
/// (Currie: Limits for qualitative detection, Anal. Chem. 40, 1968).
pub(super) const DETECTED_DEVIATIONS: f64 = 3.29;

/// A mean with the half width of its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    pub mean: f64,
    /// Half the width of its interval.
    pub half_width: f64,
    /// Variance of one value.
    pub variance: f64,
    /// How many values.
    pub count: usize,
}

/// The mean of values that don't depend on each other; `None` with fewer than two.
#[must_use]
pub fn mean(values: &[f64]) -> Option<Mean> {
    let count = values.len();
    let t = t_95(count.checked_sub(1)? as u64)?;
    let n = count as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some(Mean { mean, half_width: t * (variance / n).sqrt(), variance, count })
}

/// The difference of two means (Welch's interval, with the degrees of freedom of the smaller one:
/// never too narrow).
#[must_use]
pub fn difference(treatment: Mean, control: Mean) -> Option<Mean> {
    let (a, b) = (treatment.count as f64, control.count as f64);
    let error = (treatment.variance / a + control.variance / b).sqrt();
    let t = t_95(treatment.count.min(control.count).checked_sub(1)? as u64)?;
    Some(Mean {
        mean: treatment.mean - control.mean,
        half_width: t * error,
        variance: treatment.variance + control.variance,
        count: treatment.count.min(control.count),
    })
}

/// The values of those that count.
pub fn accepted<'r>(
    repetitions: &'r [Repetition],
    value: impl Fn(&Repetition) -> Option<f64> + 'r,
) -> Vec<f64> {
    let accepted = repetitions.iter().filter(|one| one.verdict == Verdict::Accepted);
    accepted.filter_map(value).collect()
}

/// The excess as a number.
#[must_use]
pub fn excess(repetition: &Repetition) -> Option<f64> {
    repetition.excess_cycles.map(|cycles| cycles as f64)
}

/// Misses in user mode as a number.
#[must_use]
pub fn user_misses(repetition: &Repetition) -> Option<f64> {
    repetition.user_misses.map(|misses| misses as f64)
}

/// Misses in the kernel as a number.
#[must_use]
pub fn kernel_misses(repetition: &Repetition) -> Option<f64> {
    repetition.kernel_misses.map(|misses| misses as f64)
}

/// The mean with the interrupt beyond that without; `None` with too few of either.
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

/// Lines that an interrupt displaces, found by timing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lines {
    /// Displaced lines; absent below the limit.
    pub lines: Option<f64>,
    /// Least and most that the interval allows: that of the times and that of the curve.
    pub interval: (f64, f64),
    /// Half the width of the interval if the curve alone had an error.
    pub calibration_half_width: f64,
    /// Fewer lines are not distinguishable from none.
    pub limit: f64,
    /// The pass took longer than with all lines displaced: some came from farther than the next
    /// level, and the number of lines is unknown.
    pub from_farther: bool,
}

/// Displaced lines from a difference in cycles, by the curve. `None` if the curve does not rise: time then
/// has no information about this level.
#[must_use]
pub fn lines(cycles: Mean, curve: &Curve) -> Option<Lines> {
    let curve = curve.rising()?;
    let Mean { mean, half_width, .. } = cycles;
    let reading = Reading { cycles: mean, half_width, curve_errors: curve.t() };
    let calibration = curve.interval(Reading { half_width: 0.0, ..reading });
    // That of the difference: the control's variance is in it already.
    let deviation = half_width / t_95(cycles.count.checked_sub(1)? as u64)?;
    // Nothing is above the critical value in 5 %, where the curve has no error; as many lines as the limit
    // are below it in 5 %, where it has one.
    let errors = DETECTED_DEVIATIONS / 2.0;
    let critical = errors * deviation;
    let limit = Reading { cycles: critical, half_width: critical, curve_errors: errors };
    let limit = curve.interval(limit).1;
    let found = curve.lines(mean);
    let from_farther = curve.is_beyond(reading);
    Some(Lines {
        lines: (found >= limit && !from_farther).then_some(found),
        interval: curve.interval(reading),
        calibration_half_width: (calibration.1 - calibration.0) / 2.0,
        limit,
        from_farther,
    })
}

/// When a series ends. The rule of the paper, to stop as soon as the interval is narrow, prefers repetitions
/// that happen to agree: with a few rare long ones, the interval then holds the mean in three of four
/// series. So the first sample is of at least [`REPETITIONS_BEFORE_STOP`], and when the interval is narrow,
/// half as many follow, which had no part in the decision (after Starr, On the asymptotic efficiency of
/// a sequential procedure for estimating the mean, Ann. Math. Statist. 37, 1966: a few observations after
/// the stop restore the coverage of Chow and Robbins' rule).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopping {
    /// Repetitions of each sort at which it ends, once the interval was narrow.
    enough: Option<usize>,
}

impl Stopping {
    /// Whether a series with these values has ended.
    pub fn is_enough(&mut self, treatment: &[f64], control: &[f64]) -> bool {
        let count = treatment.len().min(control.len());
        if self.enough.is_none()
            && count >= REPETITIONS_BEFORE_STOP
            && is_narrow(treatment, control)
        {
            self.enough = Some(count + count / 2);
        }
        self.enough.is_some_and(|enough| count >= enough)
    }
}

fn is_narrow(treatment: &[f64], control: &[f64]) -> bool {
    let both = mean(treatment).zip(mean(control));
    let found = both.and_then(|(treatment, control)| difference(treatment, control));
    found.is_some_and(|found| found.half_width <= HALF_WIDTH_RATIO * found.mean.abs())
}

#[cfg(test)]
mod tests {
    use super::super::curve::tests::exact;
    use super::*;

    #[test]
    fn what_cannot_be_told_from_nothing_is_not_told() {
        let spread = |middle: f64| -> Vec<f64> {
            (0..20).map(|n| middle + f64::from(n % 5) * 10.0 - 20.0).collect()
        };
        let line = exact(&[(0, 0), (100, 1000)]);
        let control = mean(&spread(0.0)).unwrap();
        let of = |middle: f64| {
            let found = difference(mean(&spread(middle)).unwrap(), control).unwrap();
            lines(found, &line).unwrap()
        };
        assert_eq!(of(2.0).lines, None);
        assert!(of(2.0).limit > 0.2);
        let farther = of(1200.0);
        assert!(farther.from_farther && farther.lines.is_none());
        let found = of(300.0);
        assert_eq!(found.lines.unwrap().round(), 30.0);
        assert!(found.interval.0 < 30.0 && found.interval.1 > 30.0);
    }

    #[test]
    fn the_detection_limit_has_the_variance_of_the_control_once() {
        let one = |middle: f64| {
            let values: Vec<f64> = (0..40).map(|n| middle + f64::from(n % 2) * 200.0).collect();
            mean(&values).unwrap()
        };
        let found = difference(one(500.0), one(0.0)).unwrap();
        // A line for each 5 cycles; the variance of both means, 200^2 / 4 * 40 / 39 / 40.
        let limit = lines(found, &exact(&[(0, 0), (200, 1_000)])).unwrap().limit;
        let expected = 3.29 * (2.0 * 10_000.0 / 39.0_f64).sqrt() / 5.0;
        assert!((limit - expected).abs() < 1e-6 * expected, "{limit} {expected}");
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
