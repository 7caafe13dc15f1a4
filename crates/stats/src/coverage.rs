//! How often the 95 % intervals hold the mean, on simulated streams whose mean is known.

use crate::interval::{Batches, from_batches};
use crate::{IntervalMethod, Random};

/// Batches that a row keeps on both benches.
const BATCHES: u64 = 64;
/// Windows of each stream.
const WINDOWS: usize = 1_000;

/// Standard normal (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let angle = std::f64::consts::TAU * random.unit();
    (2.0 * random.exponential()).sqrt() * angle.cos()
}

/// `count` values at equal distances, of mean 1,000, each correlated by `correlation` with the last.
fn autoregressive(random: &mut Random, count: u64, correlation: f64) -> Batches {
    let mut batches = Batches::covering(count - 1, BATCHES);
    let mut deviation = normal(random);
    for at in 0..count {
        batches.record((1_000.0 + 50.0 * deviation).round() as u64, at);
        let fresh = (1.0 - correlation * correlation).sqrt() * normal(random);
        deviation = correlation * deviation + fresh;
    }
    batches
}

/// A stream that is busy and quiet in turn, each for exponentially distributed times of mean `phase` in
/// a window of 65,536. Busy: ten times as many values, each of mean 400 instead of 1,000.
fn bursts(random: &mut Random, phase: f64) -> Batches {
    const WINDOW: f64 = 65_536.0;
    let mut batches = Batches::covering(WINDOW as u64 - 1, BATCHES);
    let mut at = 0.0;
    let mut is_busy = random.below(2) == 0;
    let mut end = phase * random.exponential();
    while at < WINDOW {
        let (gap, mean) = if is_busy { (16.0, 400.0) } else { (160.0, 1_000.0) };
        let next = at + gap * random.exponential();
        if next > end {
            (at, is_busy) = (end, !is_busy);
            end = at + phase * random.exponential();
            continue;
        }
        at = next;
        if at < WINDOW {
            batches.record((mean * (0.5 + random.unit())) as u64, at as u64);
        }
    }
    batches
}

/// Share of intervals that hold `mean`, and share of those marked as correlated.
fn shares(mean: f64, mut window: impl FnMut(&mut Random) -> Batches) -> (f64, f64) {
    let mut random = Random::new(11);
    let (mut held, mut marked) = (0, 0);
    for _ in 0..WINDOWS {
        let Some(interval) = from_batches(&window(&mut random).cells) else { continue };
        held += usize::from((interval.mean - mean).abs() <= interval.half_width);
        marked += usize::from(interval.method == IntervalMethod::BatchMeansCorrelated);
    }
    let share = |of: usize| of as f64 / WINDOWS as f64;
    (share(held), share(marked))
}

/// Streams with the share of intervals that hold the mean outside of 92 to 97 %.
fn outside(found: &[(String, f64)]) -> Vec<&(String, f64)> {
    found.iter().filter(|(_, held)| !(0.92..=0.97).contains(held)).collect()
}

#[test]
fn intervals_of_autoregressive_streams_hold_the_mean() {
    let streams = [(640, 0.0), (1_024, 0.5), (1_024, 0.8), (2_048, 0.9), (4_096, 0.95)];
    let found = streams.map(|(count, correlation)| {
        let (held, _) = shares(1_000.0, |random| autoregressive(random, count, correlation));
        (format!("{count} {correlation}"), held)
    });
    assert!(outside(&found).is_empty(), "{:?}", outside(&found));
}

#[test]
fn intervals_of_bursty_streams_hold_the_mean() {
    // Ten values of 400 for each of 1,000.
    let mean = (10.0 * 400.0 + 1_000.0) / 11.0;
    let found = [100.0, 400.0, 1_000.0].map(|phase| {
        let (held, _) = shares(mean, |random| bursts(random, phase));
        (format!("{phase}"), held)
    });
    assert!(outside(&found).is_empty(), "{:?}", outside(&found));
}

/// Where a window is too short for its correlation, the interval does not hold the mean often enough: it is
/// marked.
#[test]
fn windows_that_are_too_short_are_marked() {
    for correlation in [0.98, 0.999] {
        let (held, marked) = shares(1_000.0, |random| autoregressive(random, 512, correlation));
        assert!(held < 0.92 && marked > 0.88, "{correlation}: {held} {marked}");
    }
}
