//! How often the interval of a series that ends by itself holds the mean.

use stats::Random;

use super::estimate::{Stopping, difference, mean};

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
