//! The spectrum of an evenly sampled series (Welch, 1967): the mean over windowed segments that overlap by half.
//!
//! Table `spectrum` of `noise` uses it for the lost work in quanta of fixed time.

use std::f64::consts::TAU;

use crate::fourier::power;

/// Maximum number of samples in a segment. It limits the number of frequencies.
pub const SEGMENT_MAX: usize = 1 << 13;
/// A series is divided into about this number of segments, unless they would be longer than [`SEGMENT_MAX`] or
/// shorter than [`SEGMENT_MIN`].
const SEGMENTS: usize = 8;
/// Minimum number of samples in a segment, and in a series.
pub const SEGMENT_MIN: usize = 16;

/// Frequencies in cycles per sample (above 0, up to 0.5), each with the amplitude of its sine in the unit of the
/// series. Empty for a series shorter than [`SEGMENT_MIN`].
#[must_use]
pub fn spectrum(series: &[f64]) -> Vec<(f64, f64)> {
    if series.len() < SEGMENT_MIN {
        return Vec::new();
    }
    let segment_length = (series.len() / SEGMENTS).clamp(SEGMENT_MIN, SEGMENT_MAX);
    // The largest power of two up to the length.
    let length = if segment_length.is_power_of_two() {
        segment_length
    } else {
        segment_length.next_power_of_two() / 2
    };
    let mean = series.iter().sum::<f64>() / series.len() as f64;
    // Hann's window: a frequency between two lines appears in both and leaks little into other lines.
    let window: Vec<f64> =
        (0..length).map(|index| 0.5 - 0.5 * (TAU * index as f64 / length as f64).cos()).collect();
    let window_sum: f64 = window.iter().sum();
    let mut sums = vec![0.0; length / 2 + 1];
    let mut segments = 0.0;
    for first in (0..=series.len() - length).step_by(length / 2) {
        let segment = series[first..first + length].iter().zip(&window);
        let segment: Vec<f64> = segment.map(|(value, weight)| (value - mean) * weight).collect();
        for (sum, line_power) in sums.iter_mut().zip(power(&segment, length)) {
            *sum += line_power;
        }
        segments += 1.0;
    }
    let amplitude = |line: usize, sum: f64| {
        // A sine has half of its amplitude at its frequency, and half at the negative frequency. At 0.5 cycles per
        // sample, both are one line.
        let halves = if line == length / 2 { 1.0 } else { 2.0 };
        halves * (sum / segments).sqrt() / window_sum
    };
    let lines = sums.iter().enumerate().skip(1);
    lines.map(|(line, sum)| (line as f64 / length as f64, amplitude(line, *sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sine_has_its_amplitude_at_its_frequency() {
        for length in [16, 1000, 70_000] {
            let series: Vec<f64> = (0..length)
                .map(|index| 5.0 + 0.3 * (TAU * 0.25 * f64::from(index)).sin())
                .collect();
            let lines = spectrum(&series);
            assert!(lines.len() <= SEGMENT_MAX / 2);
            let peak = lines.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("a line");
            assert_eq!(peak.0, 0.25);
            assert!((peak.1 - 0.3).abs() < 0.01, "{length}: {peak:?}");
            let elsewhere = lines.iter().filter(|line| (line.0 - 0.25).abs() > 0.13);
            assert!(elsewhere.map(|line| line.1).fold(0.0, f64::max) < 1e-6);
        }
    }

    /// A series that alternates between two values has all its power in the last line.
    #[test]
    fn the_highest_frequency_has_its_amplitude() {
        let series: Vec<f64> =
            (0..1024).map(|index| if index % 2 == 0 { 5.3 } else { 4.7 }).collect();
        let lines = spectrum(&series);
        let (frequency, amplitude) = *lines.last().expect("a line");
        assert_eq!(frequency, 0.5);
        assert!((amplitude - 0.3).abs() < 1e-9, "{amplitude}");
    }

    #[test]
    fn constant_values_have_no_amplitude_and_15_values_no_spectrum() {
        assert!(spectrum(&[1.0; 15]).is_empty());
        assert!(spectrum(&[1.0; 100]).iter().all(|line| line.1 == 0.0));
    }
}
