//! The columns of the confidence intervals of quantiles.

use record::{Column, IntervalColumns, Kind, Value};
use stats::{Distribution, Inflation, QuantileMethod};

/// The shares of 100,000 of a median and a 99th percentile.
const P50_P99: [u32; 2] = [50_000, 99_000];

/// The probability that a quantile is beyond one end of its interval in the columns `ci9999`.
pub(crate) const WIDE_TAIL: f64 = 0.5e-4;

/// The name of the column that says how the intervals of a row's quantiles were computed.
const METHOD: &str = "quantiles_ci95_method";

/// The names of the columns with the ends of an interval: of `self_p99_ns` and `ci95`, `self_p99_ci95_low_ns` and
/// `self_p99_ci95_high_ns`.
fn bounds_names(quantile: &str, interval: &str) -> [String; 2] {
    let (stem, unit) = quantile.strip_suffix("_ns").map_or((quantile, ""), |stem| (stem, "_ns"));
    ["low", "high"].map(|side| format!("{stem}_{interval}_{side}{unit}"))
}

/// The link from a quantile to its [`interval_columns`].
pub(crate) fn interval_link(quantile: &str) -> IntervalColumns {
    let [low, high] = bounds_names(quantile, "ci95");
    IntervalColumns::bounds(&low, &high)
}

/// The link from a quantile to its [`section_interval_columns`].
pub(crate) fn section_link(quantile: &str) -> IntervalColumns {
    let [low, high] = bounds_names(quantile, "ci9999");
    interval_link(quantile).wide_bounds(&low, &high).method(METHOD)
}

/// The columns of a quantile's interval: of `self_p99_ns` they are `self_p99_ci95_low_ns` and
/// `self_p99_ci95_high_ns`.
pub(crate) fn interval_columns(quantile: &str) -> [Column; 2] {
    let how = "from the order of the values alone, as if they were independent; absent where there are too \
               few to bound it";
    columns_of(quantile, "ci95", "95 %", how)
}

/// As [`interval_columns`], where the sections of the window are known; and the columns of the wider interval
/// by which runs are compared: of `self_p99_ns`, `self_p99_ci9999_low_ns` and `self_p99_ci9999_high_ns`.
pub(crate) fn section_interval_columns(quantile: &str) -> Vec<Column> {
    let how = "from the order of the values and how much the sections of the window differ (see \
               quantiles_ci95_method); absent where there are too few to bound it";
    let wide = "between windows: `compare` uses it for many figures at once; absent also where the sections do not \
                say how much they differ";
    let mut columns = columns_of(quantile, "ci95", "95 %", how).to_vec();
    columns.extend(columns_of(quantile, "ci9999", "99.99 %", wide));
    columns
}

fn columns_of(quantile: &str, interval: &str, confidence: &str, how: &str) -> [Column; 2] {
    let (stem, unit) = quantile.strip_suffix("_ns").map_or((quantile, ""), |stem| (stem, "_ns"));
    let bound = |side: &str, word: &str| {
        let doc = format!("{word} end of the {confidence} interval of {quantile}, {how}.");
        Column::new(&format!("{stem}_{interval}_{side}{unit}"), Kind::Uint, &doc).detail()
    };
    [bound("low", "Lower"), bound("high", "Upper")]
}

/// The values of [`interval_columns`], for the quantile at `per_100k` of 100,000.
pub(crate) fn interval_values(of: &Distribution, per_100k: u32) -> [Value; 2] {
    let (low, high) = of.quantile_interval(per_100k);
    [low.into(), high.into()]
}

/// The values of [`section_interval_columns`]. `inflation` is that of this quantile.
pub(crate) fn section_interval_values(
    of: &Distribution,
    per_100k: u32,
    inflation: Option<Inflation>,
) -> [Value; 4] {
    let (low, high) = of.quantile_interval_by(per_100k, inflation);
    let between = inflation.map(Inflation::between_windows);
    let wide = between.map(|inflation| of.quantile_bounds(per_100k, inflation, WIDE_TAIL));
    let (wide_low, wide_high) = wide.unwrap_or_default();
    [low.into(), high.into(), wide_low.into(), wide_high.into()]
}

/// The column that says how the intervals of a row's quantiles were computed.
pub(crate) fn method_column() -> Column {
    let doc = "How the intervals of the quantiles were computed: sections (from the order of the values, wider by \
               how much the sections of the window differ); sections-correlated where the window was too short for \
               sections that do not correlate, so that they may be too narrow; or order (as if independent).";
    Column::new("quantiles_ci95_method", Kind::Text, doc).detail()
}

/// The value of that column, from the inflation of each quantile that there is; absent without a quantile.
pub(crate) fn method_value(inflations: &[Option<Inflation>]) -> Value {
    let methods = inflations.iter().map(|inflation| QuantileMethod::of(*inflation));
    // The method that says the least.
    let rank = |method: &QuantileMethod| match method {
        QuantileMethod::Sections => 0,
        QuantileMethod::SectionsCorrelated => 1,
        QuantileMethod::Order => 2,
    };
    methods.max_by_key(rank).map(QuantileMethod::label).into()
}

/// The columns of the intervals of a median and a 99th percentile, by the names of their columns.
pub(crate) fn p50_p99_interval_columns(names: [&str; 2]) -> Vec<Column> {
    names.into_iter().flat_map(interval_columns).collect()
}

/// The values of those columns.
pub(crate) fn p50_p99_interval_values(of: &Distribution) -> Vec<Value> {
    P50_P99.into_iter().flat_map(|share| interval_values(of, share)).collect()
}

/// As [`p50_p99_interval_columns`], where the sections of the window are known.
pub(crate) fn p50_p99_section_columns(names: [&str; 2]) -> Vec<Column> {
    let mut columns: Vec<Column> = names.into_iter().flat_map(section_interval_columns).collect();
    columns.push(method_column());
    columns
}

/// The values of those columns.
pub(crate) fn p50_p99_section_values(of: &Distribution) -> Vec<Value> {
    let inflations = P50_P99.map(|share| of.quantile_inflation(share));
    let quantiles = P50_P99.into_iter().zip(inflations);
    let mut values: Vec<Value> = quantiles
        .flat_map(|(share, inflation)| section_interval_values(of, share, inflation))
        .collect();
    let quantiles = P50_P99.into_iter().zip(inflations);
    let of_those_there_are = quantiles.filter(|(share, _)| of.quantile(*share).is_some());
    let known: Vec<_> = of_those_there_are.map(|(_, inflation)| inflation).collect();
    values.push(method_value(&known));
    values
}
