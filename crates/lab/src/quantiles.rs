//! The columns of the confidence intervals of quantiles. Tables of `handlers` and `services` use them, and `compare`
//! reads them through the links. Users' programs read these columns: their names must not change.

use record::{Columns, IntervalColumns, column};
use stats::{Distribution, Inflation, QuantileMethod};

/// The shares of 100,000 of a median and a 99th percentile.
const P50_P99: [u32; 2] = [50_000, 99_000];

/// The probability that a quantile is beyond one end of its interval in the columns `ci9999`.
pub(crate) const WIDE_TAIL: f64 = 0.5e-4;

/// The name of the column that says how the intervals of a row's quantiles were computed.
const METHOD: &str = "quantiles_ci95_method";

/// The names of the columns with the lower and upper end of an interval. For `self_p99_ns` and `ci95`, they are
/// `self_p99_ci95_low_ns` and `self_p99_ci95_high_ns`.
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

/// The lower and upper end of an interval; `None` if there are too few values to bound it.
type Bounds = (Option<u64>, Option<u64>);

/// The columns of both ends of an interval. `quantile`: the quantile's column. `interval`: the part of the names that
/// tells intervals apart, such as `ci95`. `confidence` and `method`: parts of the columns' documentation.
fn bounds_columns<'a>(
    quantile: &str,
    interval: &str,
    confidence: &str,
    method: &str,
) -> Columns<'a, Bounds> {
    let [low, high] = bounds_names(quantile, interval);
    let bound = |name: &str, side: &str| {
        let doc = format!("{side} end of the {confidence} interval of {quantile}, {method}.");
        column(name, &doc).detail()
    };
    Columns::all([
        bound(&low, "Lower").uint(|(low, _): &Bounds| *low),
        bound(&high, "Upper").uint(|(_, high): &Bounds| *high),
    ])
}

/// The columns of a quantile's interval, computed as if the values were independent. For `self_p99_ns`, they are
/// `self_p99_ci95_low_ns` and `self_p99_ci95_high_ns`.
pub(crate) fn interval_columns<'a>(quantile: &str) -> Columns<'a, Bounds> {
    let method = "from the order of the values alone, as if they were independent; absent where there are too \
                  few to bound it";
    bounds_columns(quantile, "ci95", "95 %", method)
}

/// The intervals of a quantile in a window that was divided into sections. The differences between the sections show
/// how much values depend on one another.
pub(crate) struct SectionIntervals {
    /// The 95 % interval of the window's quantile.
    narrow: Bounds,
    /// The 99.99 % interval between windows, for `compare`.
    wide: Bounds,
}

impl SectionIntervals {
    /// The intervals of the quantile at `per_100k` of 100,000. `inflation`: the inflation of this quantile; `None` if
    /// the sections do not give it.
    pub(crate) fn new(
        distribution: &Distribution,
        per_100k: u32,
        inflation: Option<Inflation>,
    ) -> SectionIntervals {
        let between = inflation.map(Inflation::between_windows);
        let wide =
            between.map(|inflation| distribution.quantile_bounds(per_100k, inflation, WIDE_TAIL));
        SectionIntervals {
            narrow: distribution.quantile_interval_by(per_100k, inflation),
            wide: wide.unwrap_or_default(),
        }
    }
}

/// The columns of both intervals of a quantile in a window with sections. The columns of the 95 % interval have the
/// names that [`interval_columns`] gives them. `compare` uses the wide interval: for `self_p99_ns`, its columns are
/// `self_p99_ci9999_low_ns` and `self_p99_ci9999_high_ns`.
pub(crate) fn section_interval_columns<'a>(quantile: &str) -> Columns<'a, SectionIntervals> {
    let narrow_method = "from the order of the values and how much the sections of the window differ (see \
                  quantiles_ci95_method); absent where there are too few to bound it";
    let wide_method = "between windows: `compare` uses it for many figures at once; absent also where the sections do not \
                say how much they differ";
    Columns::all([
        bounds_columns(quantile, "ci95", "95 %", narrow_method)
            .of_ref(|intervals: &SectionIntervals| &intervals.narrow),
        bounds_columns(quantile, "ci9999", "99.99 %", wide_method)
            .of_ref(|intervals: &SectionIntervals| &intervals.wide),
    ])
}

/// The column that says how the intervals of a row's quantiles were computed. It takes the inflation of each quantile
/// that the row has; absent if the row has no quantile.
pub(crate) fn method_column<'a>() -> Columns<'a, Vec<Option<Inflation>>> {
    let doc = "How the intervals of the quantiles were computed: sections (from the order of the values, wider by \
               how much the sections of the window differ); sections-correlated where the window was too short for \
               sections that do not correlate, so that they may be too narrow; or order (as if independent).";
    column(METHOD, doc).detail().text(|inflations: &Vec<Option<Inflation>>| {
        let methods = inflations.iter().map(|inflation| QuantileMethod::for_inflation(*inflation));
        // Of the row's methods, the column names the least reliable one.
        let unreliability = |method: &QuantileMethod| match method {
            QuantileMethod::Sections => 0,
            QuantileMethod::SectionsCorrelated => 1,
            QuantileMethod::Order => 2,
        };
        methods.max_by_key(unreliability).map(QuantileMethod::label)
    })
}

/// The columns of the intervals of a median and a 99th percentile. `names`: the names of the columns of these two
/// quantiles. The intervals assume that the values are independent.
pub(crate) fn p50_p99_interval_columns<'a>(names: [&str; 2]) -> Columns<'a, Distribution> {
    Columns::all(names.into_iter().zip(P50_P99).map(|(name, per_100k)| {
        interval_columns(name)
            .of(move |distribution: &Distribution| distribution.quantile_interval(per_100k))
    }))
}

/// The columns of the intervals of a median and a 99th percentile, in a window with sections. `names`: the names of the
/// columns of these two quantiles.
pub(crate) fn p50_p99_section_columns<'a>(names: [&str; 2]) -> Columns<'a, Distribution> {
    let intervals = names.into_iter().zip(P50_P99).map(|(name, share)| {
        section_interval_columns(name).of(move |distribution: &Distribution| {
            SectionIntervals::new(distribution, share, distribution.quantile_inflation(share))
        })
    });
    let known_inflations = |distribution: &Distribution| {
        let present = P50_P99.into_iter().filter(|share| distribution.quantile(*share).is_some());
        present.map(|share| distribution.quantile_inflation(share)).collect()
    };
    Columns::all(intervals).and([method_column().of(known_inflations)])
}
