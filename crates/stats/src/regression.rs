//! Linear regression, and estimates of a population's total from a sample and what is known of all.

use crate::interval::t_95;

/// Passes over the coefficients. They converge in far fewer, unless predictors are almost the same, when it
/// does not matter which of them gets the weight.
const PASSES: usize = 2_000;
/// A change of all coefficients below this fraction ends the passes.
const CHANGE_MIN: f64 = 1e-9;

/// The coefficients, none below zero, for which `values` are predicted best by `predictors` times
/// coefficients (least squares), by cyclic coordinate descent on the normal equations (Franc and others,
/// Sequential coordinate-wise algorithm for the non-negative least squares problem, CAIP 2005). Each row is
/// a value and its predictors.
#[must_use]
pub fn non_negative<const N: usize>(rows: &[(f64, [f64; N])]) -> [f64; N] {
    let mut products = [[0.0; N]; N];
    let mut with_value = [0.0; N];
    for (value, predictors) in rows {
        for (one, own) in predictors.iter().enumerate() {
            with_value[one] += own * value;
            for (other, theirs) in predictors.iter().enumerate() {
                products[one][other] += own * theirs;
            }
        }
    }
    let mut coefficients = [0.0_f64; N];
    for _ in 0..PASSES {
        let mut largest = 0.0_f64;
        for one in 0..N {
            let own = products[one][one];
            if own <= 0.0 {
                continue;
            }
            let explained: f64 =
                products[one].iter().zip(coefficients).map(|(product, by)| product * by).sum();
            let next = (coefficients[one] + (with_value[one] - explained) / own).max(0.0);
            let scale = next.max(coefficients[one]);
            if scale > 0.0 {
                largest = largest.max((next - coefficients[one]).abs() / scale);
            }
            coefficients[one] = next;
        }
        if largest < CHANGE_MIN {
            break;
        }
    }
    coefficients
}

/// An estimate of a total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TotalEstimate {
    /// The total.
    pub total: f64,
    /// Half the width of its 95 % confidence interval; absent if the sample is too small for one.
    pub half_width: Option<f64>,
}

/// Sampled units that count in full for an interval, at the least. Residuals of fewer units are too skewed.
pub const UNITS_MIN: f64 = 12.0;

/// The ratio estimate of a total (Cochran, Sampling Techniques, ch. 6): `units` are pairs of what was
/// measured and what was predicted of it, `predicted` is the prediction of all, and `sampled` the fraction of
/// the population that the units are. `None` if nothing was predicted of any unit.
///
/// Degrees of freedom are those of the units that count in full: where a few have most of what was predicted,
/// those few (Kish, Survey Sampling, 1965).
#[must_use]
pub fn ratio_total(units: &[(f64, f64)], predicted: f64, sampled: f64) -> Option<TotalEstimate> {
    let measured_sum: f64 = units.iter().map(|unit| unit.0).sum();
    let predicted_sum: f64 = units.iter().map(|unit| unit.1).sum();
    if predicted_sum <= 0.0 {
        return None;
    }
    let ratio = measured_sum / predicted_sum;
    let squares: f64 = units.iter().map(|unit| unit.1 * unit.1).sum();
    let effective = predicted_sum * predicted_sum / squares;
    let residuals: f64 = units.iter().map(|unit| (unit.0 - ratio * unit.1).powi(2)).sum();
    let half_width = (effective >= UNITS_MIN).then(|| {
        let count = units.len() as f64;
        let variance = residuals * count / (count - 1.0) * (1.0 - sampled).clamp(0.0, 1.0);
        let quantile = t_95(effective as u64 - 1)?;
        Some(quantile * variance.sqrt() / predicted_sum * predicted)
    });
    Some(TotalEstimate { total: ratio * predicted, half_width: half_width.flatten() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Random;

    proptest! {
        #[test]
        fn coefficients_that_are_not_negative_are_found(
            wanted in prop::array::uniform3(0.0_f64..50.0), seed in any::<u64>(),
        ) {
            let mut random = Random::new(seed);
            let row = |random: &mut Random| {
                let predictors = [random.unit(), random.unit() * 9.0, random.unit() * 0.1];
                let value = predictors.iter().zip(wanted).map(|(one, by)| one * by).sum();
                (value, predictors)
            };
            let rows: Vec<(f64, [f64; 3])> = (0..200).map(|_| row(&mut random)).collect();
            for (found, wanted) in non_negative(&rows).iter().zip(wanted) {
                prop_assert!((found - wanted).abs() < 1e-3 + 1e-3 * wanted, "{found} {wanted}");
            }
        }
    }

    #[test]
    fn a_predictor_that_would_be_negative_is_left_out() {
        // The second predicts the opposite.
        let rows: Vec<(f64, [f64; 2])> =
            (1..50).map(|at| (f64::from(at), [f64::from(at), f64::from(50 - at)])).collect();
        let [first, second] = non_negative(&rows);
        assert!((first - 1.0).abs() < 1e-6 && second.abs() < 1e-6, "{first} {second}");
    }

    /// The interval holds the total in 95 of 100 samples, of values that are predicted with an error that is
    /// far from normal.
    #[test]
    fn intervals_of_totals_cover_them() {
        const UNITS: usize = 20_000;
        let mut random = Random::new(11);
        let unit = |random: &mut Random| {
            let predicted = 500.0 + 500.0 * random.unit();
            (predicted * (0.7 + 0.3 * random.exponential()), predicted)
        };
        let all: Vec<(f64, f64)> = (0..UNITS).map(|_| unit(&mut random)).collect();
        let total: f64 = all.iter().map(|unit| unit.0).sum();
        let predicted: f64 = all.iter().map(|unit| unit.1).sum();
        let mut held = 0;
        for _ in 0..1_000 {
            let sample: Vec<(f64, f64)> =
                (0..60).map(|_| all[(random.unit() * UNITS as f64) as usize]).collect();
            let estimate = ratio_total(&sample, predicted, 60.0 / UNITS as f64).unwrap();
            held += u32::from((estimate.total - total).abs() <= estimate.half_width.unwrap());
        }
        assert!((920..=975).contains(&held), "{held}");
    }

    #[test]
    fn few_units_have_no_interval() {
        let few = [(3.0, 2.0); 5];
        assert_eq!(ratio_total(&few, 100.0, 0.0).unwrap().total, 150.0);
        assert_eq!(ratio_total(&few, 100.0, 0.0).unwrap().half_width, None);
        // One unit has almost all of it.
        let mut uneven = [(3.0, 2.0); 50];
        uneven[0] = (3_000.0, 2_000.0);
        assert_eq!(ratio_total(&uneven, 100.0, 0.0).unwrap().half_width, None);
        assert_eq!(ratio_total(&[], 100.0, 0.0), None);
    }
}
