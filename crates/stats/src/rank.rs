//! The nearest rank of a quantile, and the quantile of sorted values. Histograms and sorted values have one rule.

/// The nearest rank of the quantile at `per_100k` of 100,000 among `count` sorted values, from 1. For 100,000, this is
/// the rank of the largest value.
///
/// `None` if less than one value is expected above the quantile, which would only repeat the largest value: a 99th
/// percentile needs 100 values. `None` also if `per_100k` is 0 or above 100,000.
#[must_use]
pub fn quantile_rank(count: u64, per_100k: u32) -> Option<u64> {
    if count == 0 || per_100k == 0 || per_100k > 100_000 {
        return None;
    }
    let above = u128::from(count) * u128::from(100_000 - per_100k);
    if per_100k < 100_000 && above < 100_000 {
        return None;
    }
    Some((u128::from(count) * u128::from(per_100k)).div_ceil(100_000) as u64)
}

/// The value with the rank of [`quantile_rank`].
#[must_use]
pub fn sorted_quantile(sorted: &[u64], per_100k: u32) -> Option<u64> {
    debug_assert!(sorted.is_sorted(), "{sorted:?}");
    let position = quantile_rank(sorted.len() as u64, per_100k)?.checked_sub(1)?;
    sorted.get(usize::try_from(position).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let quantiles = |values: &[u64]| {
            [50_000, 90_000, 99_000, 100_000].map(|per_100k| sorted_quantile(values, per_100k))
        };
        assert_eq!(quantiles(&[]), [None; 4]);
        assert_eq!(quantiles(&[7]), [None, None, None, Some(7)]);
        assert_eq!(quantiles(&[1, 2, 3, 4]), [Some(2), None, None, Some(4)]);
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(quantiles(&values[..10]), [Some(5), Some(9), None, Some(10)]);
        assert_eq!(quantiles(&values[..99]), [Some(50), Some(90), None, Some(99)]);
        assert_eq!(quantiles(&values), [50, 90, 99, 100].map(Some));
        assert_eq!([0, 100_001].map(|per_100k| sorted_quantile(&values, per_100k)), [None; 2]);
    }
}
