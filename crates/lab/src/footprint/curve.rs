//! The calibration curve: what touching lines costs after known evictions, read backwards.
//!
//! Its points are medians of repetitions and have errors. A reading is of a *difference* of times, so what
//! all points have too much cancels: what counts is the error of a point against that of no lines, which is
//! none at no lines and grows from there. The interval of a reading inverts a test: it holds each number of
//! lines whose cost differs from the measured time by no more than both errors allow (Fieller, Some problems
//! in interval estimation, J. R. Statist. Soc. B 16, 1954). So it is as wide as it must be where the curve
//! is flat, and no error has to be small.

use serde::{Deserialize, Serialize};
use stats::interval::t_95;
use stats::{median, median_error};

/// Fewest repetitions of a point: one alone has no error.
const REPETITIONS_MIN: usize = 2;

/// The cost of touching lines after known evictions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Repetitions", into = "Repetitions")]
pub struct Curve {
    measured: Repetitions,
    /// What they tell.
    points: Vec<CurvePoint>,
}

/// What a curve is estimated from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Repetitions {
    /// The steps in which the clock advances, cycles; 0 where they are shorter than what is timed.
    step_cycles: u64,
    /// Numbers of lines, ascending, and the excess of each repetition, cycles, ascending.
    points: Vec<(u64, Vec<i64>)>,
}

/// A point of the curve, as its repetitions tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Lines displaced by the loop itself.
    pub lines: u64,
    /// Median of the excess after that, cycles.
    pub excess_cycles: f64,
    /// Standard error of that median, that of the clock's steps included, cycles.
    pub error_cycles: f64,
    /// Repetitions; at least 2.
    pub repetitions: usize,
}

impl CurvePoint {
    /// The 97.5 % quantile of the error over its standard error.
    fn t(&self) -> f64 {
        // From two repetitions on there is one.
        t_95(self.repetitions as u64 - 1).unwrap_or(f64::INFINITY)
    }

    /// Half the width of the median's 95 % interval, cycles.
    #[must_use]
    pub fn half_width_cycles(&self) -> f64 {
        self.t() * self.error_cycles
    }
}

/// The cost of a line, cycles: the slope of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineCost {
    /// Its mean over the curve.
    pub mean_cycles: f64,
    /// Half the width of its 95 % interval.
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
    /// From points, each with the number of lines that the loop itself displaced and the excess of each
    /// repetition after that, cycles. Points of the same number are joined; one with fewer than two
    /// repetitions is left out.
    #[must_use]
    pub fn new(points: impl IntoIterator<Item = (u64, Vec<i64>)>) -> Curve {
        let mut all: Vec<(u64, Vec<i64>)> = points.into_iter().collect();
        all.sort_by_key(|point| point.0);
        all.dedup_by(|next, point| {
            let is_same = next.0 == point.0;
            if is_same {
                point.1.append(&mut next.1);
            }
            is_same
        });
        all.retain(|point| point.1.len() >= REPETITIONS_MIN);
        all.iter_mut().for_each(|point| point.1.sort_unstable());
        let measured = Repetitions { step_cycles: 0, points: all };
        Curve { points: estimate(&measured), measured }
    }

    /// The same curve by a clock that advances in steps, cycles. Where repetitions start at the same place in a
    /// step, as a simulated machine's do, their spread does not show the error of the steps.
    #[must_use]
    pub fn by_clock(mut self, step_cycles: u64) -> Curve {
        self.measured.step_cycles = step_cycles;
        self.points = estimate(&self.measured);
        self
    }

    /// One curve from the repetitions of several.
    #[must_use]
    pub fn pooled<'c>(curves: impl IntoIterator<Item = &'c Curve>) -> Curve {
        let mut pooled = Repetitions::default();
        for Curve { measured, .. } in curves {
            pooled.step_cycles = pooled.step_cycles.max(measured.step_cycles);
            pooled.points.extend_from_slice(&measured.points);
        }
        Curve::from(pooled)
    }

    /// The points, ascending.
    #[must_use]
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }

    /// The most lines that were displaced; `None` without a point.
    #[must_use]
    pub fn lines_max(&self) -> Option<u64> {
        self.points.last().map(|point| point.lines)
    }

    /// Cycles a displaced line, over the whole curve; `None` with fewer than two points.
    #[must_use]
    pub fn line_cost(&self) -> Option<LineCost> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let lines = last.lines.checked_sub(first.lines).filter(|lines| *lines > 0)? as f64;
        Some(LineCost {
            mean_cycles: (last.excess_cycles - first.excess_cycles) / lines,
            half_width_cycles: first.half_width_cycles().hypot(last.half_width_cycles()) / lines,
        })
    }

    /// The curve as it is read; `None` if it does not rise: time then has no information about the level.
    #[must_use]
    pub fn rising(&self) -> Option<Rising> {
        Rising::new(&self.points)
    }
}

/// Medians with their errors.
fn estimate(measured: &Repetitions) -> Vec<CurvePoint> {
    // An excess is a difference of two times, of which each is off by a difference of two readings: four
    // uniform errors.
    let of_clock = measured.step_cycles as f64 * (4.0_f64 / 12.0).sqrt();
    let mut points = Vec::with_capacity(measured.points.len());
    for (lines, all) in &measured.points {
        let all: Vec<f64> = all.iter().map(|cycles| *cycles as f64).collect();
        let point = |(excess_cycles, error): (f64, f64)| CurvePoint {
            lines: *lines,
            excess_cycles,
            error_cycles: error.hypot(of_clock),
            repetitions: all.len(),
        };
        points.extend(median(&all).zip(median_error(&all)).map(point));
    }
    points
}

/// A curve as it must be, never falling (pooled neighbours: Barlow et al., Statistical Inference under Order
/// Restrictions, 1972), and linear between its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Rising {
    /// At least two: lines, cycles, and the index of the error in `variances`. Pooled points have one error.
    points: Vec<(f64, f64, usize)>,
    /// The square of each error, cycles squared.
    variances: Vec<f64>,
    /// The 97.5 % quantile of an error over its standard error.
    t: f64,
}

/// A time to be read off, cycles, with the errors that are allowed for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// How much longer a pass took than one with nothing displaced.
    pub cycles: f64,
    /// Half the width of the interval of that.
    pub half_width: f64,
    /// How many standard errors of the curve are allowed for.
    pub curve_errors: f64,
}

impl Rising {
    fn new(points: &[CurvePoint]) -> Option<Rising> {
        let mut pools: Vec<(f64, f64, Vec<u64>)> = Vec::new(); // sum, sum of squared errors, lines
        let mean = |pool: &(f64, f64, Vec<u64>)| pool.0 / pool.2.len() as f64;
        for point in points {
            pools.push((point.excess_cycles, point.error_cycles.powi(2), vec![point.lines]));
            while let [.., before, last] = &pools[..]
                && mean(before) > mean(last)
            {
                let Some(last) = pools.pop() else { break };
                let Some(before) = pools.last_mut() else { break };
                before.0 += last.0;
                before.1 += last.1;
                before.2.extend(last.2);
            }
        }
        let square = |number: usize| (number * number) as f64;
        let variances = pools.iter().map(|pool| pool.1 / square(pool.2.len())).collect();
        let level = |(at, pool): (usize, &(f64, f64, Vec<u64>))| {
            let cycles = mean(pool);
            pool.2.iter().map(|lines| (*lines as f64, cycles, at)).collect::<Vec<_>>()
        };
        let t = points.iter().map(CurvePoint::t).fold(0.0, f64::max);
        let rising =
            Rising { points: pools.iter().enumerate().flat_map(level).collect(), variances, t };
        (rising.points.last()?.1 > rising.points.first()?.1).then_some(rising)
    }

    /// How many standard errors a 95 % interval allows for.
    #[must_use]
    pub fn t(&self) -> f64 {
        self.t
    }

    /// What a pass takes longer with all lines displaced, cycles.
    #[must_use]
    pub fn top(&self) -> f64 {
        self.points[self.points.len() - 1].1 - self.points[0].1
    }

    /// Number of displaced lines for which a pass takes a number of cycles longer than with none displaced;
    /// interpolated between points, and all beyond the last one.
    #[must_use]
    pub fn lines(&self, cycles: f64) -> f64 {
        if cycles <= 0.0 {
            return 0.0;
        }
        let cycles = cycles + self.points[0].1;
        let pair = self.points.windows(2).find(|pair| cycles <= pair[1].1 && pair[1].1 > pair[0].1);
        let Some(&[a, b]) = pair.and_then(|pair| <&[_; 2]>::try_from(pair).ok()) else {
            return self.points[self.points.len() - 1].0;
        };
        a.0 + (b.0 - a.0) * ((cycles - a.1) / (b.1 - a.1)).clamp(0.0, 1.0)
    }

    /// Whether a pass took longer than with all lines displaced, beyond the errors.
    #[must_use]
    pub fn is_beyond(&self, reading: Reading) -> bool {
        let last = self.points.len() - 1;
        reading.cycles > self.top() && Segment::of(self, last - 1).excess(reading).at(1.0) > 0.0
    }

    /// Least and most displaced lines that the errors allow.
    #[must_use]
    pub fn interval(&self, reading: Reading) -> (f64, f64) {
        let found = self.lines(reading.cycles);
        let (mut low, mut high) = (found, found);
        for from in 0..self.points.len() - 1 {
            let (a, b) = (self.points[from].0, self.points[from + 1].0);
            for place in Segment::of(self, from).excess(reading).not_above_zero() {
                let lines = a + (b - a) * place;
                (low, high) = (low.min(lines), high.max(lines));
            }
        }
        (low, high)
    }
}

/// A polynomial of degree 2, of a place from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quadratic([f64; 3]);

impl Quadratic {
    fn at(self, place: f64) -> f64 {
        let [constant, linear, square] = self.0;
        constant + place * (linear + place * square)
    }

    /// The outermost places at which it is not above zero, and where it crosses zero.
    fn not_above_zero(self) -> impl Iterator<Item = f64> {
        let [constant, linear, square] = self.0;
        let root = (linear * linear - 4.0 * square * constant).sqrt(); // NaN without a root
        // Without cancellation (Press et al., Numerical Recipes, section 5.6).
        let sum = -0.5 * (linear + root.copysign(linear));
        let ends = [0.0, 1.0].into_iter().filter(move |place| self.at(*place) <= 0.0);
        let crossings = [sum / square, constant / sum];
        ends.chain(crossings.into_iter().filter(|place| (0.0..=1.0).contains(place)))
    }
}

/// The part of a curve between two neighbours. Each number is a constant and a factor of the place, from 0
/// at the left one to 1 at the right one.
struct Segment {
    /// The excess over that with no lines, cycles.
    cycles: (f64, f64),
    /// Variance of its error.
    variance: Quadratic,
}

impl Segment {
    fn of(curve: &Rising, from: usize) -> Segment {
        let [none, a, b] = [0, from, from + 1].map(|at| curve.points[at]);
        // What is read is (1 - place) of the left point and place of the right one, less the first: points with
        // one error share it.
        let shares = [(a.2, (1.0, -1.0)), (b.2, (0.0, 1.0)), (none.2, (-1.0, 0.0))];
        let mut variance = [0.0; 3];
        let mut levels = [a.2, b.2, none.2];
        levels.sort_unstable();
        for level in levels.chunk_by(|one, next| one == next).map(|same| same[0]) {
            let of_level = shares.iter().filter(|share| share.0 == level);
            let (constant, linear) =
                of_level.fold((0.0, 0.0), |sum, share| (sum.0 + share.1.0, sum.1 + share.1.1));
            let square = curve.variances[level];
            variance[0] += square * constant * constant;
            variance[1] += square * 2.0 * constant * linear;
            variance[2] += square * linear * linear;
        }
        Segment { cycles: (a.1 - none.1, b.1 - a.1), variance: Quadratic(variance) }
    }

    /// By how much the square of what is left unexplained exceeds that of the errors.
    fn excess(&self, reading: Reading) -> Quadratic {
        let (rest, slope) = (reading.cycles - self.cycles.0, self.cycles.1);
        let factor = reading.curve_errors.powi(2);
        let [constant, linear, square] = self.variance.0;
        Quadratic([
            rest * rest - reading.half_width.powi(2) - factor * constant,
            -2.0 * rest * slope - factor * linear,
            slope * slope - factor * square,
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

    /// A curve whose points have repetitions `spread` to either side.
    fn noisy(points: &[(u64, i64)], spread: i64) -> Curve {
        let around = |cycles: i64| (-3..=3).map(|step| cycles + step * spread).collect();
        Curve::new(points.iter().map(|(lines, cycles)| (*lines, around(*cycles))))
    }

    const STRAIGHT: [(u64, i64); 5] = [(0, 0), (50, 500), (100, 1000), (150, 1500), (200, 2000)];

    fn read(curve: &Curve, cycles: f64, half_width: f64) -> (f64, f64) {
        let curve = curve.rising().unwrap();
        let curve_errors = curve.t();
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
        assert_eq!(straight.line_cost().unwrap().mean_cycles, 3.0);
        assert_eq!(straight.rising().unwrap().top(), 300.0);
        assert_eq!(exact(&[(0, 5), (100, 5)]).rising(), None);
        assert_eq!(exact(&[]).rising(), None);
        assert_eq!(exact(&[]).line_cost(), None);
        // A dip by noise is pooled with its neighbour.
        let dip = exact(&[(0, 0), (10, 20), (20, 10), (30, 30)]).rising().unwrap();
        assert_eq!(dip.lines(15.0), 10.0);
    }

    #[test]
    fn repetitions_make_points_and_one_alone_makes_none() {
        let curve = Curve::new([(9, vec![5, 1]), (0, vec![0, 0, 0]), (4, vec![2]), (9, vec![3])]);
        let points = curve.points();
        assert_eq!(points.iter().map(|one| one.lines).collect::<Vec<_>>(), [0, 9]);
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
        // Without an error of the curve: that of the time, in lines.
        let none = width(read(&exact(&STRAIGHT), 1200.0, 50.0));
        assert!((none - 5.0).abs() < 1e-6, "{none}");
        let curve = noisy(&STRAIGHT, 30);
        let point = curve.points()[0].half_width_cycles();
        // At a point: those of this point and of no lines.
        let at_point = width(read(&curve, 1000.0, 0.0));
        let expected = point * 2.0_f64.sqrt() / 10.0;
        assert!((at_point / expected - 1.0).abs() < 0.1, "{at_point} {expected}");
        let both = width(read(&curve, 1000.0, 50.0));
        assert!((both / at_point.hypot(5.0) - 1.0).abs() < 0.1, "{both} {at_point}");
    }

    #[test]
    fn what_all_points_have_too_much_cancels_and_the_slope_does_not() {
        let moved: Vec<(u64, i64)> =
            STRAIGHT.iter().map(|point| (point.0, point.1 + 777)).collect();
        for cycles in [0.0, 30.0, 760.0, 2100.0] {
            let [one, other] =
                [&STRAIGHT[..], &moved].map(|all| read(&noisy(all, 30), cycles, 9.0));
            assert!((one.0 - other.0).abs() < 1e-6 && (one.1 - other.1).abs() < 1e-6);
        }
        // At no lines the error of the curve is none; it grows from there to that of two points.
        let width = |cycles| {
            let interval = read(&noisy(&STRAIGHT, 30), cycles, 0.0);
            interval.1 - interval.0
        };
        assert_eq!(width(0.0), 0.0);
        assert!(width(50.0) < 0.3 * width(500.0), "{} {}", width(50.0), width(500.0));
    }

    #[test]
    fn steps_of_the_clock_are_in_the_error() {
        let curve = exact(&STRAIGHT).by_clock(60);
        let error = curve.points()[3].error_cycles;
        assert!((error - 60.0 / 3.0_f64.sqrt()).abs() < 1e-9, "{error}");
        let text = serde_json::to_string(&curve).unwrap();
        assert_eq!(serde_json::from_str::<Curve>(&text).unwrap(), curve);
        assert_eq!(Curve::pooled([&exact(&STRAIGHT), &curve]).points()[3].error_cycles, error);
    }

    #[test]
    fn a_flat_part_is_in_the_interval_as_a_whole() {
        let flat = [(0, 0), (50, 1000), (100, 1010), (150, 1020), (200, 2000)];
        let (low, high) = read(&noisy(&flat, 30), 1010.0, 0.0);
        assert!(low < 50.0 && high > 150.0, "{low} {high}");
    }

    #[test]
    fn only_a_time_beyond_the_errors_is_beyond_the_curve() {
        let curve = noisy(&STRAIGHT, 30).rising().unwrap();
        let beyond = |cycles, half_width| {
            curve.is_beyond(Reading { cycles, half_width, curve_errors: curve.t() })
        };
        assert!(!beyond(2030.0, 0.0) && beyond(2300.0, 0.0));
        assert!(!beyond(2300.0, 300.0) && !beyond(1500.0, 1.0));
    }

    proptest! {
        #[test]
        fn readings_never_fall_and_are_in_their_intervals(
            mut cycles in prop::collection::vec(-50..1000_i64, 2..20), a in -10.0..900.0_f64,
            more in 0.0..100.0_f64, spread in 0..60_i64, half_width in 0.0..50.0_f64,
        ) {
            cycles[0] = 0;
            let points: Vec<_> = cycles.iter().enumerate().map(|(n, c)| (n as u64 * 8, *c)).collect();
            let Some(curve) = noisy(&points, spread).rising() else { return Ok(()) };
            let all = (cycles.len() as u64 - 1) as f64 * 8.0;
            let (few, many) = (curve.lines(a), curve.lines(a + more));
            prop_assert!(0.0 <= few && few <= many + 1e-9 && many <= all, "{few} {many}");
            let of = |half_width, curve_errors| {
                curve.interval(Reading { cycles: a, half_width, curve_errors })
            };
            let (narrow, wide) = (of(half_width, 0.0), of(half_width, curve.t()));
            prop_assert!(narrow.0 <= few && few <= narrow.1, "{narrow:?} {few}");
            prop_assert!(wide.0 <= narrow.0 + 1e-9 && narrow.1 <= wide.1 + 1e-9, "{narrow:?} {wide:?}");
            prop_assert!(0.0 <= wide.0 && wide.1 <= all, "{wide:?}");
        }
    }
}
