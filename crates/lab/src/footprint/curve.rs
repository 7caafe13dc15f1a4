//! The calibration curve: the extra time of a pass after a known number of displaced lines. The crate `touch_loop`
//! measures the points. `estimate.rs` reads the curve backwards: from the extra time after an interrupt to the
//! number of displaced lines.
//!
//! Each point of the curve is a median of repetitions and has an error. A reading starts from a *difference* of times,
//! so an offset that all points share cancels. Only a point's error relative to the point of no lines counts. This
//! error is zero at no lines, and grows with the number of lines.
//!
//! The interval of a reading inverts a test (Fieller, Some problems in interval estimation, J. R. Statist. Soc. B 16,
//! 1954). The interval contains each number of lines whose cost differs from the measured time by no more than both
//! errors allow. Therefore the interval is wide where the curve is flat. The method is valid for large errors, too.

use serde::{Deserialize, Serialize};
use stats::interval::t_95;
use stats::{median, median_error};

/// Minimum number of repetitions of a point. The error of a single repetition is unknown.
const REPETITIONS_MIN: usize = 2;

/// The extra time of a pass after a known number of displaced lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Repetitions", into = "Repetitions")]
pub struct Curve {
    measured: Repetitions,
    /// The points that [`estimate`] computes from `measured`. They must change together.
    points: Vec<CurvePoint>,
}

/// The measurements of a curve. A guest's response contains them, and its reader estimates the points again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Repetitions {
    /// Step of the clock, cycles. With 0, the clock's resolution adds no error.
    step_cycles: u64,
    /// For each point: the number of displaced lines, and the extra time of each repetition, cycles. Both are ascending.
    points: Vec<(u64, Vec<i64>)>,
}

/// A point of the curve, estimated from its repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Lines that the loop itself displaced.
    pub lines: u64,
    /// Median of the extra time of the next pass, cycles.
    pub excess_cycles: f64,
    /// Standard error of the median, cycles. It includes the error of the clock's resolution.
    pub error_cycles: f64,
    /// Number of repetitions; at least 2.
    pub repetitions: usize,
}

impl CurvePoint {
    /// Half the width of a 95 % confidence interval, in standard errors: the 97.5 % quantile of Student's t distribution with
    /// the point's degrees of freedom.
    fn standard_errors_95(&self) -> f64 {
        // A point has at least two repetitions, so the quantile exists.
        t_95(self.repetitions as u64 - 1).unwrap_or(f64::INFINITY)
    }

    /// Half the width of the median's 95 % confidence interval, cycles.
    #[must_use]
    pub fn half_width_cycles(&self) -> f64 {
        self.standard_errors_95() * self.error_cycles
    }
}

/// The cost of one displaced line: the slope of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineCost {
    /// Mean cost over the whole curve, cycles per line.
    pub mean_cycles: f64,
    /// Half the width of the mean's 95 % confidence interval, cycles per line.
    pub half_width_cycles: f64,
}

impl From<Repetitions> for Curve {
    fn from(measured: Repetitions) -> Curve {
        Curve::new(measured.points).by_clock(measured.step_cycles)
    }
}

impl From<Curve> for Repetitions {
    fn from(curve: Curve) -> Repetitions {
        curve.measured
    }
}

impl Curve {
    /// The curve through these points. A point is the number of lines that the loop itself displaced, and the extra
    /// time of each repetition, cycles. Points with equal numbers of lines are merged. A point with fewer than two
    /// repetitions is dropped.
    #[must_use]
    pub fn new(points: impl IntoIterator<Item = (u64, Vec<i64>)>) -> Curve {
        let mut points: Vec<(u64, Vec<i64>)> = points.into_iter().collect();
        points.sort_by_key(|(lines, _)| *lines);
        points.dedup_by(|(next_lines, next_repetitions), (lines, repetitions)| {
            let has_same_lines = next_lines == lines;
            if has_same_lines {
                repetitions.append(next_repetitions);
            }
            has_same_lines
        });
        points.retain(|(_, repetitions)| repetitions.len() >= REPETITIONS_MIN);
        points.iter_mut().for_each(|(_, repetitions)| repetitions.sort_unstable());
        let measured = Repetitions { step_cycles: 0, points };
        Curve { points: estimate(&measured), measured }
    }

    /// Adds the error of a clock that advances in steps of `step_cycles`. On a simulated machine, all repetitions start
    /// at the same point of a clock step, so their spread does not contain this error.
    #[must_use]
    pub fn by_clock(mut self, step_cycles: u64) -> Curve {
        self.measured.step_cycles = step_cycles;
        self.points = estimate(&self.measured);
        self
    }

    /// One curve from the repetitions of several curves.
    #[must_use]
    pub fn pooled<'c>(curves: impl IntoIterator<Item = &'c Curve>) -> Curve {
        let mut pooled = Repetitions::default();
        for Curve { measured, .. } in curves {
            pooled.step_cycles = pooled.step_cycles.max(measured.step_cycles);
            pooled.points.extend_from_slice(&measured.points);
        }
        Curve::from(pooled)
    }

    /// The points, by ascending number of lines.
    #[must_use]
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }

    /// Largest number of displaced lines. `None` if the curve has no point.
    #[must_use]
    pub fn lines_max(&self) -> Option<u64> {
        self.points.last().map(|point| point.lines)
    }

    /// Cost of one displaced line: the mean slope of the whole curve. `None` with fewer than two numbers of lines.
    #[must_use]
    pub fn line_cost(&self) -> Option<LineCost> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let lines = last.lines.checked_sub(first.lines).filter(|lines| *lines > 0)? as f64;
        Some(LineCost {
            mean_cycles: (last.excess_cycles - first.excess_cycles) / lines,
            half_width_cycles: first.half_width_cycles().hypot(last.half_width_cycles()) / lines,
        })
    }

    /// The monotone curve for readings. `None` if the curve does not rise: time then contains no information
    /// about the displaced lines.
    #[must_use]
    pub fn rising(&self) -> Option<Rising> {
        Rising::new(&self.points)
    }
}

/// The points of a curve: the median of each point's repetitions, and its standard error.
fn estimate(measured: &Repetitions) -> Vec<CurvePoint> {
    // An excess is the difference of two durations, and a duration is the difference of two clock readings. The
    // four readings have independent uniform errors of one step, each with variance step^2 / 12.
    let clock_error = measured.step_cycles as f64 * (4.0_f64 / 12.0).sqrt();
    let mut points = Vec::with_capacity(measured.points.len());
    for (lines, repetitions) in &measured.points {
        let repetitions: Vec<f64> = repetitions.iter().map(|cycles| *cycles as f64).collect();
        let point = |(excess_cycles, error): (f64, f64)| CurvePoint {
            lines: *lines,
            excess_cycles,
            error_cycles: error.hypot(clock_error),
            repetitions: repetitions.len(),
        };
        points.extend(median(&repetitions).zip(median_error(&repetitions)).map(point));
    }
    points
}

/// A curve that never falls and is linear between its points. It averages neighbours that fall (Barlow et al.,
/// Statistical Inference under Order Restrictions, 1972).
#[derive(Clone, Debug, PartialEq)]
pub struct Rising {
    /// At least two points, by ascending number of lines.
    points: Vec<RisingPoint>,
    /// Variance of each pool's cycles, cycles squared.
    variances: Vec<f64>,
    /// The largest 97.5 % quantile of Student's t distribution among the points.
    t: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct RisingPoint {
    /// Number of displaced lines.
    lines: f64,
    /// Extra time of a repetition, cycles: the mean over the pool's points.
    cycles: f64,
    /// Index of the point's variance in `variances`. Averaged neighbours form one pool and share one error.
    pool: usize,
}

/// Neighbouring points that are averaged because their medians fall.
struct Pool {
    cycles_sum: f64,
    /// Sum of the points' squared standard errors, cycles squared.
    variance_sum: f64,
    /// Number of displaced lines of each point in the pool.
    lines: Vec<u64>,
}

impl Pool {
    fn mean_cycles(&self) -> f64 {
        self.cycles_sum / self.lines.len() as f64
    }

    /// Variance of the error of the mean.
    fn variance(&self) -> f64 {
        let points = self.lines.len();
        self.variance_sum / (points * points) as f64
    }
}

/// An extra time to convert into lines, with the errors that the interval allows for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Extra time of a pass compared with a pass without displaced lines, cycles.
    pub cycles: f64,
    /// Half the width of the interval of `cycles`.
    pub half_width: f64,
    /// Number of standard errors of the curve that the interval allows for, such as
    /// [`Rising::standard_errors_95`].
    pub curve_errors: f64,
}

impl Rising {
    /// Merges neighbouring points until the means never fall (pool adjacent violators). `None`
    /// if the curve does not rise.
    fn new(points: &[CurvePoint]) -> Option<Rising> {
        let mut pools: Vec<Pool> = Vec::new();
        for point in points {
            pools.push(Pool {
                cycles_sum: point.excess_cycles,
                variance_sum: point.error_cycles.powi(2),
                lines: vec![point.lines],
            });
            while let [.., previous, last] = &pools[..]
                && previous.mean_cycles() > last.mean_cycles()
            {
                let Some(last) = pools.pop() else { break };
                let Some(previous) = pools.last_mut() else { break };
                previous.cycles_sum += last.cycles_sum;
                previous.variance_sum += last.variance_sum;
                previous.lines.extend(last.lines);
            }
        }
        let variances = pools.iter().map(Pool::variance).collect();
        let mut rising_points = Vec::with_capacity(points.len());
        for (index, pool) in pools.iter().enumerate() {
            let cycles = pool.mean_cycles();
            let point = |lines: &u64| RisingPoint { lines: *lines as f64, cycles, pool: index };
            rising_points.extend(pool.lines.iter().map(point));
        }
        let is_rising = rising_points.last()?.cycles > rising_points.first()?.cycles;
        let t = points.iter().map(CurvePoint::standard_errors_95).fold(0.0, f64::max);
        is_rising.then_some(Rising { points: rising_points, variances, t })
    }

    fn last_point(&self) -> RisingPoint {
        self.points[self.points.len() - 1]
    }

    /// Number of the curve's standard errors that a 95 % interval allows for.
    #[must_use]
    pub fn standard_errors_95(&self) -> f64 {
        self.t
    }

    /// Extra time of a pass with all lines displaced, cycles.
    #[must_use]
    pub fn top(&self) -> f64 {
        self.last_point().cycles - self.points[0].cycles
    }

    /// Number of lines of the level: that of the last point.
    #[must_use]
    pub fn lines_max(&self) -> f64 {
        self.last_point().lines
    }

    /// Detection limit, lines: with this number of displaced lines, a pass stays below `critical_cycles` with the probability
    /// that `errors` standard errors leave. The limit can exceed the level: beyond the last point, the curve has its mean
    /// slope. Infinite if the curve's errors hide this slope.
    #[must_use]
    pub fn detection_limit(&self, critical_cycles: f64, errors: f64) -> f64 {
        let reading =
            Reading { cycles: critical_cycles, half_width: critical_cycles, curve_errors: errors };
        let last_segment = Segment::after_point(self, self.points.len() - 2);
        let is_in_curve = last_segment.excess(reading).value(1.0) > 0.0;
        if is_in_curve {
            return self.interval(reading).1;
        }
        // The squared difference of the limit's cost and `critical_cycles` is the sum of both squared errors. The curve's
        // error grows in proportion to the lines, as their cost does. One solution is no lines, and this is the other.
        let slope = self.top() / self.lines_max();
        let slope_error = errors * last_segment.variance.value(1.0).sqrt() / self.lines_max();
        if slope <= slope_error {
            return f64::INFINITY;
        }
        2.0 * critical_cycles * slope / (slope * slope - slope_error * slope_error)
    }

    /// Number of displaced lines that make a pass `cycles` longer. Interpolates between points. Times beyond the last
    /// point give the lines of the last point.
    #[must_use]
    pub fn lines(&self, cycles: f64) -> f64 {
        if cycles <= 0.0 {
            return 0.0;
        }
        let cycles = cycles + self.points[0].cycles;
        // The first rising segment that reaches the time.
        let reaches_cycles =
            |pair: &&[RisingPoint]| cycles <= pair[1].cycles && pair[1].cycles > pair[0].cycles;
        let pair = self.points.windows(2).find(reaches_cycles);
        let Some(&[low, high]) = pair.and_then(|pair| <&[_; 2]>::try_from(pair).ok()) else {
            return self.last_point().lines;
        };
        let position = (cycles - low.cycles) / (high.cycles - low.cycles);
        low.lines + (high.lines - low.lines) * position.clamp(0.0, 1.0)
    }

    /// Number of displaced lines for one of several readings whose mean is the estimate: as [`Rising::lines`] in the curve,
    /// below 0 for negative times, and above the level for times beyond the last point.
    ///
    /// Readings that are cut at 0 have a mean above 0 if nothing is displaced, however many they are. The curve therefore
    /// goes on beyond both ends, symmetric about each end: equal errors up and down then cancel in the mean.
    #[must_use]
    pub fn unclipped_lines(&self, cycles: f64) -> f64 {
        let period_cycles = 2.0 * self.top();
        let periods = (cycles / period_cycles).round();
        let remainder = cycles - periods * period_cycles;
        2.0 * self.lines_max() * periods + self.lines(remainder.abs()).copysign(remainder)
    }

    /// [`Rising::interval`] for one of several readings, around [`Rising::unclipped_lines`]: it goes on beyond both ends of
    /// the curve, symmetric about each end.
    #[must_use]
    pub fn unclipped_interval(&self, reading: Reading) -> (f64, f64) {
        let period_cycles = 2.0 * self.top();
        let periods = (reading.cycles / period_cycles).round();
        let remainder = reading.cycles - periods * period_cycles;
        let high = |cycles: f64| {
            if cycles + reading.half_width >= 0.0 {
                self.interval(Reading { cycles, ..reading }).1
            } else {
                -self.interval(Reading { cycles: -cycles, ..reading }).0
            }
        };
        let offset = 2.0 * self.lines_max() * periods;
        (offset - high(-remainder), offset + high(remainder))
    }

    /// Whether a pass took longer than with all lines displaced, by more than the errors allow.
    #[must_use]
    pub fn is_beyond(&self, reading: Reading) -> bool {
        let last_segment = Segment::after_point(self, self.points.len() - 2);
        reading.cycles > self.top() && last_segment.excess(reading).value(1.0) > 0.0
    }

    /// The smallest and the largest number of displaced lines that the errors allow.
    #[must_use]
    pub fn interval(&self, reading: Reading) -> (f64, f64) {
        let estimate = self.lines(reading.cycles);
        let (mut low, mut high) = (estimate, estimate);
        for left_index in 0..self.points.len() - 1 {
            let [left_lines, right_lines] =
                [left_index, left_index + 1].map(|index| self.points[index].lines);
            let excess = Segment::after_point(self, left_index).excess(reading);
            for position in excess.ends_not_above_zero() {
                let lines = left_lines + (right_lines - left_lines) * position;
                (low, high) = (low.min(lines), high.max(lines));
            }
        }
        (low, high)
    }
}

/// A polynomial of degree 2 in a position from 0 to 1: the constant, linear and quadratic coefficients.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quadratic([f64; 3]);

impl Quadratic {
    fn value(self, position: f64) -> f64 {
        let [constant, linear, quadratic] = self.0;
        constant + position * (linear + position * quadratic)
    }

    /// The ends of the ranges of positions in which the value is not above zero: the zero crossings, and the positions
    /// 0 and 1 if the value there is not above zero.
    fn ends_not_above_zero(self) -> impl Iterator<Item = f64> {
        let [constant, linear, quadratic] = self.0;
        let root = (linear * linear - 4.0 * quadratic * constant).sqrt(); // NaN without a crossing
        // This form avoids cancellation (Press et al., Numerical Recipes, section 5.6).
        let sum = -0.5 * (linear + root.copysign(linear));
        let borders = [0.0, 1.0].into_iter().filter(move |position| self.value(*position) <= 0.0);
        let crossings = [sum / quadratic, constant / sum];
        borders.chain(crossings.into_iter().filter(|position| (0.0..=1.0).contains(position)))
    }
}

/// A curve between two neighbouring points. A position is 0 at the left point and 1 at the right point.
struct Segment {
    /// Cycles more than the point of no lines: the value at position 0, and the slope.
    cycles: (f64, f64),
    /// Variance of the error of `cycles`.
    variance: Quadratic,
}

impl Segment {
    /// The segment from the point `left_index` to the next point.
    fn after_point(curve: &Rising, left_index: usize) -> Segment {
        let [zero, left, right] = [0, left_index, left_index + 1].map(|index| curve.points[index]);
        // The cycles at a position are (1 - position) times the left point, plus position times the right point, minus
        // the point of no lines. Points of one pool share one error, so their factors are added first. A factor is a
        // polynomial of the position: its constant and its linear coefficient.
        let factors =
            [(left.pool, (1.0, -1.0)), (right.pool, (0.0, 1.0)), (zero.pool, (-1.0, 0.0))];
        let mut variance = [0.0; 3];
        let mut pools = [left.pool, right.pool, zero.pool];
        pools.sort_unstable();
        for pool in pools.chunk_by(|pool, next| pool == next).map(|equal_pools| equal_pools[0]) {
            let pool_factors = factors.iter().filter(|(factor_pool, _)| *factor_pool == pool);
            let (constant, linear) = pool_factors
                .fold((0.0, 0.0), |sum, (_, factor)| (sum.0 + factor.0, sum.1 + factor.1));
            let pool_variance = curve.variances[pool];
            variance[0] += pool_variance * constant * constant;
            variance[1] += pool_variance * 2.0 * constant * linear;
            variance[2] += pool_variance * linear * linear;
        }
        let cycles = (left.cycles - zero.cycles, right.cycles - left.cycles);
        Segment { cycles, variance: Quadratic(variance) }
    }

    /// Squared difference between reading and curve, minus the squared error that the interval allows. The interval
    /// contains the positions where this value is not above zero.
    fn excess(&self, reading: Reading) -> Quadratic {
        let (difference, slope) = (reading.cycles - self.cycles.0, self.cycles.1);
        let factor = reading.curve_errors.powi(2);
        let [constant, linear, quadratic] = self.variance.0;
        Quadratic([
            difference * difference - reading.half_width.powi(2) - factor * constant,
            -2.0 * difference * slope - factor * linear,
            slope * slope - factor * quadratic,
        ])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A curve without errors.
    pub(crate) fn exact(points: &[(u64, i64)]) -> Curve {
        Curve::new(points.iter().map(|(lines, cycles)| (*lines, vec![*cycles; 8])))
    }

    /// A curve with seven repetitions of each point, `spread` cycles apart.
    fn noisy(points: &[(u64, i64)], spread: i64) -> Curve {
        let around = |cycles: i64| (-3..=3).map(|step| cycles + step * spread).collect();
        Curve::new(points.iter().map(|(lines, cycles)| (*lines, around(*cycles))))
    }

    const STRAIGHT: [(u64, i64); 5] = [(0, 0), (50, 500), (100, 1000), (150, 1500), (200, 2000)];

    fn read(curve: &Curve, cycles: f64, half_width: f64) -> (f64, f64) {
        let curve = curve.rising().unwrap();
        let curve_errors = curve.standard_errors_95();
        curve.interval(Reading { cycles, half_width, curve_errors })
    }

    #[test]
    fn a_curve_is_read_backwards() {
        let straight = exact(&[(0, 4), (50, 104), (100, 304)]);
        for (cycles, lines) in
            [(-9.0, 0.0), (0.0, 0.0), (50.0, 25.0), (200.0, 75.0), (900.0, 100.0)]
        {
            assert_eq!(straight.rising().unwrap().lines(cycles), lines, "{cycles}");
        }
        for (cycles, lines) in [
            (-300.0, -100.0),
            (-200.0, -75.0),
            (0.0, 0.0),
            (50.0, 25.0),
            (300.0, 100.0),
            (400.0, 125.0),
            (600.0, 200.0),
            (650.0, 225.0),
        ] {
            assert_eq!(straight.rising().unwrap().unclipped_lines(cycles), lines, "{cycles}");
        }
        assert_eq!(straight.line_cost().unwrap().mean_cycles, 3.0);
        assert_eq!(straight.rising().unwrap().top(), 300.0);
        assert_eq!(exact(&[(0, 5), (100, 5)]).rising(), None);
        assert_eq!(exact(&[]).rising(), None);
        assert_eq!(exact(&[]).line_cost(), None);
        // A dip by noise is averaged with its neighbour.
        let dip = exact(&[(0, 0), (10, 20), (20, 10), (30, 30)]).rising().unwrap();
        assert_eq!(dip.lines(15.0), 10.0);
    }

    #[test]
    fn a_point_has_at_least_two_repetitions() {
        let curve = Curve::new([(9, vec![5, 1]), (0, vec![0, 0, 0]), (4, vec![2]), (9, vec![3])]);
        let points = curve.points();
        assert_eq!(points.iter().map(|point| point.lines).collect::<Vec<_>>(), [0, 9]);
        assert_eq!((points[1].excess_cycles, points[1].repetitions), (3.0, 3));
        assert!(points[0].error_cycles < 1e-9 && points[1].error_cycles > 0.5, "{points:?}");
        let text = serde_json::to_string(&curve).unwrap();
        assert_eq!(text, r#"{"step_cycles":0,"points":[[0,[0,0,0]],[9,[1,3,5]]]}"#);
        assert_eq!(serde_json::from_str::<Curve>(&text).unwrap(), curve);
        assert_eq!(Curve::pooled([&curve, &curve]).points()[1].repetitions, 6);
    }

    #[test]
    fn an_interval_contains_both_errors() {
        let width = |interval: (f64, f64)| (interval.1 - interval.0) / 2.0;
        // On a curve without errors, the interval is the error of the time, converted to lines.
        let exact_curve = width(read(&exact(&STRAIGHT), 1200.0, 50.0));
        assert!((exact_curve - 5.0).abs() < 1e-6, "{exact_curve}");
        let curve = noisy(&STRAIGHT, 30);
        let point = curve.points()[0].half_width_cycles();
        // At a point, the interval combines the errors of the point and of the point of no lines.
        let at_point = width(read(&curve, 1000.0, 0.0));
        let expected = point * 2.0_f64.sqrt() / 10.0;
        assert!((at_point / expected - 1.0).abs() < 0.1, "{at_point} {expected}");
        let both = width(read(&curve, 1000.0, 50.0));
        assert!((both / at_point.hypot(5.0) - 1.0).abs() < 0.1, "{both} {at_point}");
    }

    #[test]
    fn an_offset_of_all_points_cancels_and_an_error_of_the_slope_does_not() {
        let moved: Vec<(u64, i64)> =
            STRAIGHT.iter().map(|point| (point.0, point.1 + 777)).collect();
        for cycles in [0.0, 30.0, 760.0, 2100.0] {
            let [original, shifted] =
                [&STRAIGHT[..], &moved].map(|points| read(&noisy(points, 30), cycles, 9.0));
            assert!((original.0 - shifted.0).abs() < 1e-6);
            assert!((original.1 - shifted.1).abs() < 1e-6);
        }
        // The curve's error is zero at no lines, and grows to the error of two points.
        let width = |cycles| {
            let interval = read(&noisy(&STRAIGHT, 30), cycles, 0.0);
            interval.1 - interval.0
        };
        assert_eq!(width(0.0), 0.0);
        assert!(width(50.0) < 0.3 * width(500.0), "{} {}", width(50.0), width(500.0));
    }

    #[test]
    fn a_detection_limit_has_no_jump_at_the_end_of_the_curve() {
        let errors = 1.645;
        let limit = |curve: &Curve, critical_cycles| {
            curve.rising().unwrap().detection_limit(critical_cycles, errors)
        };
        let (without_error, with_error) = (exact(&STRAIGHT), noisy(&STRAIGHT, 30));
        assert_eq!(
            [500.0, 1_000.0, 2_000.0].map(|critical| limit(&without_error, critical)),
            [100.0, 200.0, 400.0]
        );
        let ends = [0.0, 0.1, 0.2].map(|step| limit(&with_error, 920.0 + step));
        assert!(ends.is_sorted(), "{ends:?}");
        let mut steps = (0..2_000).map(|step| limit(&with_error, f64::from(step)));
        let mut previous = steps.next().unwrap();
        for next in steps {
            assert!(next >= previous && next - previous < 0.5, "{previous} {next}");
            previous = next;
        }
        // The curve's error hides its slope.
        assert_eq!(limit(&noisy(&STRAIGHT, 3_000), 500.0), f64::INFINITY);
    }

    #[test]
    fn the_error_includes_the_steps_of_the_clock() {
        let curve = exact(&STRAIGHT).by_clock(60);
        let error = curve.points()[3].error_cycles;
        assert!((error - 60.0 / 3.0_f64.sqrt()).abs() < 1e-9, "{error}");
        let text = serde_json::to_string(&curve).unwrap();
        assert_eq!(serde_json::from_str::<Curve>(&text).unwrap(), curve);
        assert_eq!(Curve::pooled([&exact(&STRAIGHT), &curve]).points()[3].error_cycles, error);
    }

    #[test]
    fn the_interval_contains_a_flat_part_of_the_curve_completely() {
        let flat = [(0, 0), (50, 1000), (100, 1010), (150, 1020), (200, 2000)];
        let (low, high) = read(&noisy(&flat, 30), 1010.0, 0.0);
        assert!(low < 50.0 && high > 150.0, "{low} {high}");
    }

    #[test]
    fn only_a_time_beyond_the_errors_is_beyond_the_curve() {
        let curve = noisy(&STRAIGHT, 30).rising().unwrap();
        let beyond = |cycles, half_width| {
            curve.is_beyond(Reading {
                cycles,
                half_width,
                curve_errors: curve.standard_errors_95(),
            })
        };
        assert!(!beyond(2030.0, 0.0) && beyond(2300.0, 0.0));
        assert!(!beyond(2300.0, 300.0) && !beyond(1500.0, 1.0));
    }

    proptest! {
        #[test]
        fn readings_never_fall_and_are_in_their_intervals(
            mut cycles in prop::collection::vec(-50..1000_i64, 2..20), time in -10.0..900.0_f64,
            more in 0.0..100.0_f64, spread in 0..60_i64, half_width in 0.0..50.0_f64,
        ) {
            cycles[0] = 0;
            let points: Vec<_> = cycles.iter().enumerate().map(|(n, cycles)| (n as u64 * 8, *cycles)).collect();
            let Some(curve) = noisy(&points, spread).rising() else { return Ok(()) };
            let all = (cycles.len() as u64 - 1) as f64 * 8.0;
            let (few, many) = (curve.lines(time), curve.lines(time + more));
            prop_assert!(0.0 <= few && few <= many + 1e-9 && many <= all, "{few} {many}");
            let interval = |curve_errors| {
                curve.interval(Reading { cycles: time, half_width, curve_errors })
            };
            let (narrow, wide) = (interval(0.0), interval(curve.standard_errors_95()));
            prop_assert!(narrow.0 <= few && few <= narrow.1, "{narrow:?} {few}");
            prop_assert!(wide.0 <= narrow.0 + 1e-9 && narrow.1 <= wide.1 + 1e-9, "{narrow:?} {wide:?}");
            prop_assert!(0.0 <= wide.0 && wide.1 <= all, "{wide:?}");
        }
    }
}
