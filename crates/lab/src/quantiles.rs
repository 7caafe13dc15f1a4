//! The columns of the confidence intervals of quantiles.

use record::{Column, Kind, Value};
use stats::Distribution;

/// The shares of 100,000 of a median and a 99th percentile.
const P50_P99: [u32; 2] = [50_000, 99_000];

/// The columns of a quantile's interval: of `self_p99_ns` they are `self_p99_ci95_low_ns` and
/// `self_p99_ci95_high_ns`.
pub(crate) fn interval_columns(quantile: &str) -> [Column; 2] {
    let (stem, unit) = quantile.strip_suffix("_ns").map_or((quantile, ""), |stem| (stem, "_ns"));
    let bound = |side: &str, word: &str| {
        let doc = format!(
            "{word} end of the 95 % interval of {quantile}, from the order of the values alone; absent \
             where there are too few to bound it."
        );
        Column::new(&format!("{stem}_ci95_{side}{unit}"), Kind::Uint, &doc).detail()
    };
    [bound("low", "Lower"), bound("high", "Upper")]
}

/// The values of those columns, for the quantile at `per_100k` of 100,000.
pub(crate) fn interval_values(of: &Distribution, per_100k: u32) -> [Value; 2] {
    let (low, high) = of.quantile_interval(per_100k);
    [low.into(), high.into()]
}

/// The columns of the intervals of a median and a 99th percentile, by the names of their columns.
pub(crate) fn p50_p99_interval_columns(names: [&str; 2]) -> Vec<Column> {
    names.into_iter().flat_map(interval_columns).collect()
}

/// The values of those columns.
pub(crate) fn p50_p99_interval_values(of: &Distribution) -> Vec<Value> {
    P50_P99.into_iter().flat_map(|share| interval_values(of, share)).collect()
}
