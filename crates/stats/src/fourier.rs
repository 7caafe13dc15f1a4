//! The discrete Fourier transform, radix 2, in place (Cooley and Tukey, 1965).

use std::f64::consts::PI;

/// A complex number: real and imaginary part.
pub type Complex = (f64, f64);

/// The power at each frequency from 0 to the half of the series' length, of a series that is
/// filled with zeros up to `length`.
///
/// # Panics
/// When `length` is no power of two or shorter than the series.
#[must_use]
pub fn power(series: &[f64], length: usize) -> Vec<f64> {
    assert!(length.is_power_of_two() && length >= series.len(), "transform of {length}");
    let mut values: Vec<Complex> = series.iter().map(|value| (*value, 0.0)).collect();
    values.resize(length, (0.0, 0.0));
    transform(&mut values);
    values[..=length / 2].iter().map(|(re, im)| re * re + im * im).collect()
}

fn transform(values: &mut [Complex]) {
    let length = values.len();
    if length < 2 {
        return;
    }
    let shift = usize::BITS - length.trailing_zeros();
    for at in 0..length {
        let other = at.reverse_bits() >> shift;
        if at < other {
            values.swap(at, other);
        }
    }
    let twiddles: Vec<Complex> = (0..length / 2)
        .map(|k| (-2.0 * PI * k as f64 / length as f64).sin_cos())
        .map(|(sin, cos)| (cos, sin))
        .collect();
    let mut half = 1;
    while half < length {
        let stride = length / (2 * half);
        for block in values.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (k, (a, b)) in low.iter_mut().zip(high).enumerate() {
                let (wr, wi) = twiddles[k * stride];
                let turned = (b.0 * wr - b.1 * wi, b.0 * wi + b.1 * wr);
                *b = (a.0 - turned.0, a.1 - turned.1);
                *a = (a.0 + turned.0, a.1 + turned.1);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_definition(series: &[f64], length: usize) -> Vec<f64> {
        let at = |k: usize| {
            let angle = |n: usize| -2.0 * PI * (n * k) as f64 / length as f64;
            let sum = |part: fn(f64) -> f64| -> f64 {
                series.iter().enumerate().map(|(n, value)| value * part(angle(n))).sum()
            };
            sum(f64::cos).powi(2) + sum(f64::sin).powi(2)
        };
        (0..=length / 2).map(at).collect()
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
