//! How often intervals hold the truth: of a sequentially stopped series, and of lines read off a curve that
//! was measured itself.

use stats::Random;

use super::curve::Curve;
use super::estimate::{Stopping, difference, lines, mean};
use super::rounds::{ROUNDS_MIN, of_rounds};
use super::sample::Repetition;
use super::series::{Round, Series};
use super::tests::{repetition, series};

const SERIES: usize = 600;
/// Repetitions of each sort between two decisions, and most of them.
const BATCH: usize = 8;
const REPETITIONS_MAX: usize = 512;

/// Values of mean 0 and standard deviation 1.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Normal,
    Exponential,
    /// One of ten is three deviations up.
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

/// Share of the series whose interval holds the difference, 100; `deviation`: of the treatment.
fn held(shape: Shape, deviation: f64) -> f64 {
    let mut random = Random::new(5);
    let holds = |_: &usize| {
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
    (0..SERIES).filter(holds).count() as f64 / SERIES as f64
}

#[test]
fn a_series_that_ends_by_itself_keeps_its_coverage() {
    let mut outside = Vec::new();
    for (shape, least) in
        [(Shape::Normal, 0.92), (Shape::Exponential, 0.92), (Shape::Outliers, 0.88)]
    {
        for deviation in [5.0, 10.0, 20.0, 30.0] {
            let held = held(shape, deviation);
            if !(least..=0.97).contains(&held) {
                outside.push((shape, deviation, held));
            }
        }
    }
    assert!(outside.is_empty(), "{outside:?}");
}

/// Points of a curve in addition to zero, repetitions of each, and lines of the level.
const STEPS: u64 = 8;
const CURVE_REPETITIONS: usize = 48;
const LEVEL_LINES: u64 = 512;
/// Cost of a displaced line, cycles.
const LINE_CYCLES: f64 = 4.0;

/// What lines are read off: a curve that is measured as the benches do, with the noise of `shape`.
#[derive(Clone, Copy, Debug)]
struct Reading {
    shape: Shape,
    /// Standard deviation of one repetition, of the series and of the curve, cycles.
    deviation: f64,
    /// Repetitions of treatment and of control.
    repetitions: usize,
    /// Lines that are displaced.
    truth: f64,
}

impl Reading {
    fn excess(&self, random: &mut Random, lines: f64) -> f64 {
        (LINE_CYCLES * lines + self.deviation * draw(random, self.shape)).round()
    }

    fn curve(&self, random: &mut Random) -> Curve {
        let point = |step| {
            let lines = LEVEL_LINES * step / STEPS;
            let one = |_| self.excess(random, lines as f64) as i64;
            (lines, (0..CURVE_REPETITIONS).map(one).collect())
        };
        Curve::new((0..=STEPS).map(point))
    }

    fn series(&self, random: &mut Random, lines: f64) -> Vec<f64> {
        (0..self.repetitions).map(|_| self.excess(random, lines)).collect()
    }

    /// Share of the series whose interval holds the truth; each with a curve of its own.
    fn held(&self) -> f64 {
        let mut random = Random::new(7);
        let holds = |_: &usize| {
            let curve = self.curve(&mut random);
            let [treatment, control] =
                [self.truth, 0.0].map(|lines| mean(&self.series(&mut random, lines)).unwrap());
            let found = difference(treatment, control).unwrap();
            let (low, high) = lines(found, &curve).unwrap().interval;
            (low..=high).contains(&self.truth)
        };
        (0..SERIES).filter(holds).count() as f64 / SERIES as f64
    }

    /// The same of series in rounds, each with a curve of its own.
    fn held_in_rounds(&self, rounds: usize) -> f64 {
        let mut random = Random::new(8);
        let one_round = |random: &mut Random, series: &mut Series| {
            let curve = Some(self.curve(random));
            for (lines, all) in [(self.truth, &mut series.treatment), (0.0, &mut series.control)] {
                let excess = self.series(random, lines);
                all.extend(excess.into_iter().map(|cycles| Repetition {
                    excess_cycles: Some(cycles as i64),
                    ..repetition(None, None)
                }));
            }
            let (treatment, control) = (series.treatment.len(), series.control.len());
            series.rounds.push(Round { curve, treatment, control });
        };
        let holds = |_: &usize| {
            let mut series = series(Vec::new(), Vec::new());
            (0..rounds).for_each(|_| one_round(&mut random, &mut series));
            let (low, high) = of_rounds(&series).unwrap().lines.unwrap().interval;
            (low..=high).contains(&self.truth)
        };
        (0..SERIES).filter(holds).count() as f64 / SERIES as f64
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
        // A point's error is a third of a step of the curve.
        (Shape::Normal, 256, 400.0, 330.0),
        (Shape::Exponential, 96, 30.0, 100.0),
        (Shape::Exponential, 96, 100.0, 330.0),
        (Shape::Outliers, 96, 100.0, 330.0),
    ] {
        let reading = Reading { shape, deviation, repetitions, truth };
        let held = reading.held();
        if !(0.92..=0.97).contains(&held) {
            outside.push((reading, held));
        }
    }
    assert!(outside.is_empty(), "{outside:#?}");
}

/// Rounds need nothing for their curves: each has its own, so that what differs between rounds contains the
/// curves' errors.
#[test]
fn lines_of_rounds_keep_their_coverage() {
    let mut outside = Vec::new();
    for (shape, deviation, truth) in [
        (Shape::Normal, 100.0, 16.0),
        (Shape::Exponential, 30.0, 100.0),
        (Shape::Outliers, 100.0, 330.0),
    ] {
        let reading = Reading { shape, deviation, repetitions: 16, truth };
        let held = reading.held_in_rounds(ROUNDS_MIN);
        if !(0.92..=0.97).contains(&held) {
            outside.push((reading, held));
        }
    }
    assert!(outside.is_empty(), "{outside:#?}");
}
