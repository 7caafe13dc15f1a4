//! The power spectrum of a real series, for the search for periods and for the table `spectrum` of `noise`.

use realfft::RealFftPlanner;

/// The squared magnitude of the Fourier transform at `length / 2 + 1` frequencies, from 0 to half of the sampling rate.
/// The series is first padded with zeros to `length`. Panics if `length` is shorter than the series.
#[must_use]
pub fn power(series: &[f64], length: usize) -> Vec<f64> {
    assert!(length >= series.len(), "transform of {length}");
    let transform = RealFftPlanner::<f64>::new().plan_fft_forward(length);
    let (mut input, mut output) = (transform.make_input_vec(), transform.make_output_vec());
    input[..series.len()].copy_from_slice(series);
    let result = transform.process(&mut input, &mut output);
    result.expect("the buffers have the lengths that the transform asked for");
    output.iter().map(|line| line.norm_sqr()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::f64::consts::PI;

    fn by_definition(series: &[f64], length: usize) -> Vec<f64> {
        let power_at = |k: usize| {
            let angle = |n: usize| -2.0 * PI * (n * k) as f64 / length as f64;
            let sum = |part: fn(f64) -> f64| -> f64 {
                series.iter().enumerate().map(|(n, value)| value * part(angle(n))).sum()
            };
            sum(f64::cos).powi(2) + sum(f64::sin).powi(2)
        };
        (0..=length / 2).map(power_at).collect()
    }

    proptest! {
        #[test]
        fn it_is_the_transform_of_the_definition(
            series in prop::collection::vec(-10.0..10.0f64, 0..64), extra in 0u32..2,
        ) {
            let length = series.len().max(1).next_power_of_two() << extra;
            let (fast, slow) = (power(&series, length), by_definition(&series, length));
            prop_assert_eq!(fast.len(), slow.len());
            for (fast, slow) in fast.iter().zip(slow) {
                prop_assert!((fast - slow).abs() < 1e-6 * (1.0 + slow), "{} {}", fast, slow);
            }
        }
    }
}
