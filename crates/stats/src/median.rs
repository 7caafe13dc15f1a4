//! The median of a sample, and its standard error.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal};

/// The median of sorted values, the mean of the middle two of an even number; `None` without a value.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    let low = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some((low + sorted.get(sorted.len() / 2)?) / 2.0)
}

/// The standard error of the median of sorted values, whatever their distribution; `None` with fewer than
/// two.
///
/// The distance of two order statistics, over twice the normal quantile of the probability that the median
/// lies between them (Price and Bonett, Estimating the variance of the sample median, J. Statist. Comput.
/// Simul. 68, 2001; for differences of medians: Bonett and Price, Statistical inference for a linear function
/// of medians, Psychological Methods 7, 2002).
#[must_use]
pub fn median_error(sorted: &[f64]) -> Option<f64> {
    let count = sorted.len();
    if count < 2 {
        return None;
    }
    // The lower one's place, from 0.
    let place = ((count as f64 + 1.0) / 2.0 - (count as f64).sqrt()).round() - 1.0;
    let place = place.max(0.0) as usize;
    let below = Binomial::new(0.5, count as u64).ok()?.cdf(place as u64);
    let quantile = Normal::standard().inverse_cdf(1.0 - below);
    Some((sorted[count - 1 - place] - sorted[place]) / (2.0 * quantile))
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
        // Between the two lies the median in half of the samples: 0.6745 standard deviations either way.
        assert!((median_error(&[3.0, 7.0]).unwrap() - 2.0 / 0.6745).abs() < 1e-3);
    }

    /// The standard deviation of medians of 48 values is what the samples say of it, by themselves.
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
                medians.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / SAMPLES as f64;
            let ratio = (squares / SAMPLES as f64 / variance).sqrt();
            assert!((0.95..1.1).contains(&ratio), "shape {number}: {ratio}");
        }
    }
}
