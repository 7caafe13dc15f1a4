//! Intervals of quantiles: the columns that stand beside those of the quantiles.

use record::{Column, Kind, Value};
use stats::Distribution;

/// The columns of a quantile's interval: of `self_p99_ns` they are `self_p99_ci95_low_ns` and
/// `self_p99_ci95_high_ns`.
pub(crate) fn interval_columns(quantile: &str) -> [Column; 2] {
    let (stem, unit) = quantile.strip_suffix("_ns").map_or((quantile, ""), |stem| (stem, "_ns"));
    let bound = |side: &str, word: &str| {
        let doc = format!(
            "{word} end of the 95 % interval of {quantile}, from the order of the values alone; absent \
             where so few do not bound it."
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
