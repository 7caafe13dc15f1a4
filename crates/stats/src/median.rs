//! The median of a sample, and its standard error. `footprint` uses it for the points of calibration curves, `signal`
//! for figures over repetitions.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal};

/// The median of sorted values. With an even number, it is the mean of the middle two. `None` without values.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    debug_assert!(sorted.is_sorted(), "{sorted:?}");
    let low = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some((low + sorted.get(sorted.len() / 2)?) / 2.0)
}

/// The standard error of the median of sorted values, for any distribution. `None` with fewer than two values.
///
/// The error is the distance between two order statistics, divided by twice a normal quantile. The quantile belongs to
/// the probability that the median lies between the two order statistics (Price and Bonett, Estimating the variance of
/// the sample median, J. Statist. Comput. Simul. 68, 2001; for differences of medians: Bonett and Price, Statistical
/// inference for a linear function of medians, Psychological Methods 7, 2002).
#[must_use]
pub fn median_error(sorted: &[f64]) -> Option<f64> {
    debug_assert!(sorted.is_sorted(), "{sorted:?}");
    let count = sorted.len();
    if count < 2 {
        return None;
    }
    // Position of the lower order statistic, from 0. The upper one has the same distance from the other end.
    let low = ((count as f64 + 1.0) / 2.0 - (count as f64).sqrt()).round() - 1.0;
    let low = low.max(0.0) as usize;
    // Probability that the median lies below the lower order statistic.
    let tail = Binomial::new(0.5, count as u64).ok()?.cdf(low as u64);
    let quantile = Normal::standard().inverse_cdf(1.0 - tail);
    Some((sorted[count - 1 - low] - sorted[low]) / (2.0 * quantile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[4.0]), Some(4.0));
        assert_eq!(median(&[1.0, 4.0]), Some(2.5));
        assert_eq!(median(&[1.0, 4.0, 9.0]), Some(4.0));
    }

    #[test]
    fn samples_without_spread_and_too_small_ones() {
        assert_eq!(median_error(&[1.0]), None);
        assert_eq!(median_error(&[7.0; 5]), Some(0.0));
        // The median lies between two values in half of the samples: within 0.6745 standard errors.
        assert!((median_error(&[3.0, 7.0]).unwrap() - 2.0 / 0.6745).abs() < 1e-3);
    }

    /// The standard error from single samples agrees with the standard deviation of the medians of many samples.
    #[test]
    fn the_standard_error_is_the_deviation_of_medians() {
        const SAMPLES: usize = 2_000;
        let shapes: [fn(&mut Random) -> f64; 3] = [
            |random| random.unit(),
            |random| random.exponential(),
            |random| if random.below(10) == 0 { 40.0 } else { random.unit() + random.unit() },
        ];
        let mut random = Random::new(3);
        for (number, shape) in shapes.into_iter().enumerate() {
            let (mut medians, mut squares) = (Vec::new(), 0.0);
            for _ in 0..SAMPLES {
                let mut values: Vec<f64> = (0..48).map(|_| shape(&mut random)).collect();
                values.sort_unstable_by(f64::total_cmp);
                medians.extend(median(&values));
                squares += median_error(&values).unwrap().powi(2);
            }
            let mean = medians.iter().sum::<f64>() / SAMPLES as f64;
            let variance =
                medians.iter().map(|median| (median - mean).powi(2)).sum::<f64>() / SAMPLES as f64;
            let ratio = (squares / SAMPLES as f64 / variance).sqrt();
            assert!((0.95..1.1).contains(&ratio), "shape {number}: {ratio}");
        }
    }
}
