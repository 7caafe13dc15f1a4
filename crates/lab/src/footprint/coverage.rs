//! Tests of the coverage of intervals: how often a 95 % interval contains the true value. The series stop
//! sequentially, and the calibration curve has measurement errors too.

use stats::Random;

use super::curve::Curve;
use super::estimate::{DisplacedLines, Stopping, difference, estimate_displaced_lines, mean};
use super::rounds::{ROUNDS_MIN, estimate_from_rounds};
use super::sample::Repetition;
use super::series::{Round, Series};
use super::tests::{repetition, series};

const SERIES: usize = 600;
/// Treatment repetitions between two checks of the interval; also the control repetitions.
const BATCH: usize = 8;
/// Maximum number of treatment repetitions.
const REPETITIONS_MAX: usize = 512;

/// A distribution with mean 0 and standard deviation 1.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Normal,
    Exponential,
    /// One value in ten is three standard deviations above the mean.
    Outliers,
}

fn normal(random: &mut Random) -> f64 {
    let angle = std::f64::consts::TAU * random.unit();
    (2.0 * random.exponential()).sqrt() * angle.cos()
}

fn draw(random: &mut Random, shape: Shape) -> f64 {
    match shape {
        Shape::Normal => normal(random),
        Shape::Exponential => random.exponential() - 1.0,
        Shape::Outliers => {
            let level = if random.below(10) == 0 { 3.0 } else { -1.0 / 3.0 };
            level + 0.1 * normal(random)
        }
    }
}

/// Share of series whose interval contains the true difference, 100. `deviation`: standard deviation
/// of a treatment repetition.
fn coverage(shape: Shape, deviation: f64) -> f64 {
    let mut random = Random::new(5);
    let contains_truth = |_: &usize| {
        let (mut treatment, mut control) = (Vec::new(), Vec::new());
        let mut stopping = Stopping::default();
        while treatment.len() < REPETITIONS_MAX && !stopping.is_enough(&treatment, &control) {
            for _ in 0..BATCH {
                treatment.push(100.0 + deviation * draw(&mut random, shape));
                control.push(0.1 * deviation * draw(&mut random, shape));
            }
        }
        let both = mean(&treatment).zip(mean(&control));
        both.and_then(|(treatment, control)| difference(treatment, control))
            .is_some_and(|found| (found.mean - 100.0).abs() <= found.half_width)
    };
    (0..SERIES).filter(contains_truth).count() as f64 / SERIES as f64
}

#[test]
fn a_series_that_ends_by_itself_keeps_its_coverage() {
    let mut outside = Vec::new();
    for (shape, coverage_min) in
        [(Shape::Normal, 0.92), (Shape::Exponential, 0.92), (Shape::Outliers, 0.88)]
    {
        for deviation in [5.0, 10.0, 20.0, 30.0] {
            let coverage = coverage(shape, deviation);
            if !(coverage_min..=0.97).contains(&coverage) {
                outside.push((shape, deviation, coverage));
            }
        }
    }
    assert!(outside.is_empty(), "{outside:?}");
}

/// Points of a curve, without the point of no lines.
const STEPS: u64 = 8;
/// Repetitions of each point of a curve.
const CURVE_REPETITIONS: usize = 48;
const LEVEL_LINES: u64 = 512;
/// Cost of a displaced line, cycles.
const LINE_CYCLES: f64 = 4.0;

/// A measurement with a calibration curve. The curve is measured as on the benches, with the noise of `shape`.
#[derive(Clone, Copy, Debug)]
struct Reading {
    shape: Shape,
    /// Standard deviation of one repetition, both in the series and in the curve, cycles.
    deviation: f64,
    /// Number of treatment repetitions, and of control repetitions.
    repetitions: usize,
    /// True number of displaced lines.
    truth: f64,
}

impl Reading {
    fn excess(&self, random: &mut Random, lines: f64) -> f64 {
        (LINE_CYCLES * lines + self.deviation * draw(random, self.shape)).round()
    }

    fn curve(&self, random: &mut Random) -> Curve {
        let point = |step| {
            let lines = LEVEL_LINES * step / STEPS;
            let repetition = |_| self.excess(random, lines as f64) as i64;
            (lines, (0..CURVE_REPETITIONS).map(repetition).collect())
        };
        Curve::new((0..=STEPS).map(point))
    }

    fn series(&self, random: &mut Random, lines: f64) -> Vec<f64> {
        (0..self.repetitions).map(|_| self.excess(random, lines)).collect()
    }

    /// Share of series whose interval contains the truth. Each series has its own curve.
    fn coverage(&self) -> f64 {
        let mut random = Random::new(7);
        let contains_truth = |_: &usize| {
            let curve = self.curve(&mut random);
            let [treatment, control] =
                [self.truth, 0.0].map(|lines| mean(&self.series(&mut random, lines)).unwrap());
            let found = difference(treatment, control).unwrap();
            let (low, high) = estimate_displaced_lines(found, &curve).unwrap().interval;
            (low..=high).contains(&self.truth)
        };
        (0..SERIES).filter(contains_truth).count() as f64 / SERIES as f64
    }

    /// Share of series in rounds whose interval contains the truth. Each round has its own curve.
    fn coverage_in_rounds(&self, rounds: usize) -> f64 {
        self.share_in_rounds(rounds, SERIES, |found| {
            (found.interval.0..=found.interval.1).contains(&self.truth)
        })
    }

    /// Share of `count` series in rounds whose displaced lines satisfy `is_counted`.
    fn share_in_rounds(
        &self,
        rounds: usize,
        count: usize,
        is_counted: impl Fn(&DisplacedLines) -> bool,
    ) -> f64 {
        let mut random = Random::new(8);
        let add_round = |random: &mut Random, series: &mut Series| {
            let curve = Some(self.curve(random));
            for (lines, repetitions) in
                [(self.truth, &mut series.treatment), (0.0, &mut series.control)]
            {
                let excess = self.series(random, lines);
                repetitions.extend(excess.into_iter().map(|cycles| Repetition {
                    excess_cycles: Some(cycles as i64),
                    ..repetition(None, None)
                }));
            }
            let (treatment, control) = (series.treatment.len(), series.control.len());
            let number = series.rounds.len() as u64 + 1;
            series.rounds.push(Round { number, curve, treatment, control });
        };
        let is_counted = |_: &usize| {
            let mut series = series(Vec::new(), Vec::new());
            (0..rounds).for_each(|_| add_round(&mut random, &mut series));
            is_counted(&estimate_from_rounds(&series).unwrap().lines.unwrap())
        };
        (0..count).filter(is_counted).count() as f64 / count as f64
    }
}

#[test]
fn lines_read_off_a_measured_curve_keep_their_coverage() {
    let mut outside = Vec::new();
    for (shape, repetitions, deviation, truth) in [
        (Shape::Normal, 48, 30.0, 100.0),
        (Shape::Normal, 48, 100.0, 330.0),
        (Shape::Normal, 256, 100.0, 16.0),
        (Shape::Normal, 256, 100.0, 500.0),
        // A point's standard error is a third of the cycles between two points of the curve.
        (Shape::Normal, 256, 400.0, 330.0),
        (Shape::Exponential, 96, 30.0, 100.0),
        (Shape::Exponential, 96, 100.0, 330.0),
        (Shape::Outliers, 96, 100.0, 330.0),
    ] {
        let reading = Reading { shape, deviation, repetitions, truth };
        let coverage = reading.coverage();
        if !(0.92..=0.97).contains(&coverage) {
            outside.push((reading, coverage));
        }
    }
    assert!(outside.is_empty(), "{outside:#?}");
}

/// Each round has its own curve, so the spread between rounds contains the curves' errors. An interval from
/// rounds therefore needs no separate term for them. It also contains the interval of the noise within rounds, which is wider
/// if few rounds agree by chance. With few rounds, more than 95 % of the intervals contain the truth.
#[test]
fn lines_of_rounds_keep_their_coverage() {
    let mut outside = Vec::new();
    for (shape, deviation, truth) in [
        (Shape::Normal, 100.0, 16.0),
        (Shape::Exponential, 30.0, 100.0),
        (Shape::Outliers, 100.0, 330.0),
    ] {
        let reading = Reading { shape, deviation, repetitions: 16, truth };
        let coverage = reading.coverage_in_rounds(ROUNDS_MIN);
        if !(0.92..=0.99).contains(&coverage) {
            outside.push((reading, coverage));
        }
    }
    assert!(outside.is_empty(), "{outside:#?}");
}

/// At an end of the level, half of the rounds read fewer lines than none, or more than all. Intervals are cut there, so
/// they may contain the truth more often than 95 % of the time.
#[test]
fn lines_of_many_rounds_at_the_ends_of_the_level_keep_their_coverage() {
    let mut outside = Vec::new();
    for (rounds, truth, coverage_max) in
        [(ROUNDS_MIN, 0.0, 1.0), (32, 0.0, 0.99), (32, 3.0, 0.97), (32, 512.0, 1.0)]
    {
        let reading = Reading { shape: Shape::Normal, deviation: 100.0, repetitions: 16, truth };
        let coverage = reading.coverage_in_rounds(rounds);
        if !(0.92..=coverage_max).contains(&coverage) {
            outside.push((rounds, truth, coverage));
        }
    }
    assert!(outside.is_empty(), "{outside:#?}");
}

#[test]
fn many_rounds_detect_no_lines_where_none_are_displaced() {
    let reading = Reading { shape: Shape::Normal, deviation: 100.0, repetitions: 16, truth: 0.0 };
    let detected = reading.share_in_rounds(100, 60, |found| found.count.is_some());
    assert!(detected <= 0.05, "{detected}");
}
