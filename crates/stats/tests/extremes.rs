//! The largest of many draws, against closed forms and against counting.

use proptest::prelude::*;
use stats::{Extremes, Piece};

fn steps(values: &[u64]) -> Extremes {
    let piece = |(index, &low): (usize, &u64)| Piece {
        low,
        weight: 1,
        is_ramp: false,
        block: (index % 16) as u32,
    };
    let pieces: Vec<Piece> = values.iter().enumerate().map(piece).collect();
    Extremes::new(&pieces).expect("some weight")
}

#[test]
fn the_largest_of_exponential_draws_grows_with_the_harmonic_numbers() {
    // Quantiles in the middle of 10^6 equal parts of an exponential of mean 10^6.
    let n = 1_000_000_u32;
    let value = |index: u32| -1e6 * ((f64::from(index) + 0.5) / f64::from(n)).ln();
    let values: Vec<u64> = (0..n).map(|index| value(index) as u64).collect();
    let distribution = steps(&values);
    for number in [1_u64, 10, 1000] {
        let harmonic: f64 = (1..=number).map(|k| 1.0 / k as f64).sum();
        let mean = distribution.mean_of_largest(number);
        assert!((mean / 1e6 - harmonic).abs() < 0.003 * harmonic, "{number}: {mean}");
    }
}

#[test]
fn the_largest_of_even_draws_is_near_the_end() {
    let ramp = Piece { low: 500, weight: 1000, is_ramp: true, block: 0 };
    let distribution = Extremes::new(&[ramp]).expect("some weight");
    for number in [1_u64, 2, 9, 1_000_000_000] {
        let n = number as f64;
        let mean = 500.0 + 1000.0 * n / (n + 1.0);
        assert!((distribution.mean_of_largest(number) - mean).abs() < 1e-6, "{number}");
        let median = 500.0 + 1000.0 * 0.5_f64.powf(1.0 / n);
        assert!((distribution.quantile_of_largest(number, 0.5) - median).abs() < 1e-6);
    }
    assert_eq!(distribution.interval_of_largest(2, 1), None);
}

#[test]
fn one_draw_can_be_from_the_steps_alone() {
    // Half of the steps at 0, half at 100; and a ramp from 0 to 200.
    let step = |low| Piece { low, weight: 100, is_ramp: false, block: 0 };
    let ramp = Piece { low: 0, weight: 200, is_ramp: true, block: 0 };
    let distribution = Extremes::with_one_of_steps(&[step(0), step(100), ramp]).expect("steps");
    assert_eq!(distribution.mean_of_largest(1), 50.0);
    // Two: chance to be at most x is 1/2 (100 + x) / 400 below 100, and (200 + x) / 400 above.
    let mean = 200.0 - (100.0 * 150.0 / 800.0 + 100.0 * 350.0 / 400.0);
    assert!((distribution.mean_of_largest(2) - mean).abs() < 1e-9);
    assert!((distribution.quantile_of_largest(2, 0.9) - 160.0).abs() < 1e-9);
    assert_eq!(distribution.quantile_of_largest(1, 0.4), 0.0);
    assert_eq!(distribution.quantile_of_largest(1, 0.6), 100.0);
    assert!(Extremes::with_one_of_steps(&[ramp]).is_none());
}

#[test]
fn without_weight_there_is_nothing() {
    let none = Piece { low: 5, weight: 0, is_ramp: false, block: 0 };
    assert!(Extremes::new(&[]).is_none() && Extremes::new(&[none]).is_none());
}

proptest! {
    #[test]
    fn the_largest_is_what_counting_all_draws_gives(
        values in prop::collection::vec(0_u64..50, 1..6), number in 1_u32..4,
    ) {
        // All tuples of draws, one by one.
        let tuples = values.len().pow(number);
        let largest = |tuple: usize| {
            (0..number).map(|k| values[tuple / values.len().pow(k) % values.len()]).max()
        };
        let sum: u64 = (0..tuples).filter_map(largest).sum();
        let mean = steps(&values).mean_of_largest(u64::from(number));
        prop_assert!((mean - sum as f64 / tuples as f64).abs() < 1e-9);
    }

    #[test]
    fn more_draws_never_have_a_smaller_largest(
        pieces in prop::collection::vec((0_u64..1000, 1_u64..500, any::<bool>(), 0_u32..20), 1..40),
        seed: u64,
    ) {
        let piece = |&(low, weight, is_ramp, block)| Piece { low, weight, is_ramp, block };
        let pieces: Vec<Piece> = pieces.iter().map(piece).collect();
        let distribution = Extremes::new(&pieces).expect("some weight");
        let mut last = 0.0;
        for number in [1, 2, 64, 4096, 1 << 20, 1 << 40] {
            let mean = distribution.mean_of_largest(number);
            prop_assert!(mean >= last - 1e-6 && mean <= distribution.greatest() as f64 + 1e-6);
            let (p10, p90) = (
                distribution.quantile_of_largest(number, 0.1),
                distribution.quantile_of_largest(number, 0.9),
            );
            prop_assert!(p10 <= p90 && p90 <= distribution.greatest() as f64);
            if let Some((low, high)) = distribution.interval_of_largest(number, seed) {
                prop_assert!(low <= high && high <= distribution.greatest() as f64 + 1e-6);
            }
            last = mean;
        }
    }
}
