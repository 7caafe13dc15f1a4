//! Columns and confidence intervals of amounts per time: the rate of a window's spans, and their share of CPU time.
//! The tables of `handlers` use them, and `compare` reads them through the links.
//!
//! The number of spans is not a Poisson variable: interrupts come in bursts, or as regularly as a clock. The interval
//! therefore comes from the variance between the batches of the window. Counts and totals have no interval, because
//! windows differ in length.
//!
//! Users' programs read these columns: their names must not change.

use record::{Columns, IntervalColumns, column};
use stats::interval::Batch;
use stats::{Distribution, Interval};

/// Units that a column's name may end in.
const UNITS: [&str; 3] = ["_ns", "_hz", "_ratio"];

/// The name of a column without its unit, and the unit.
fn stem_and_unit(name: &str) -> (&str, &str) {
    let unit = UNITS.into_iter().find(|unit| name.ends_with(unit)).unwrap_or("");
    (name.strip_suffix(unit).unwrap_or(name), unit)
}

/// The link from the column `name` to its [`interval_columns`].
pub(crate) fn interval_link(name: &str) -> IntervalColumns {
    let (stem, unit) = stem_and_unit(name);
    spread_link(name, &format!("{stem}_ci95{unit}"))
}

/// The link from the column `name` to the column `half_width` and to its [`spread_columns`].
pub(crate) fn spread_link(name: &str, half_width: &str) -> IntervalColumns {
    let (stem, unit) = stem_and_unit(name);
    IntervalColumns::half_width(half_width)
        .degrees_of_freedom(&format!("{stem}_ci95_dof"))
        .drift(&format!("{stem}_drift{unit}"))
}

/// The name of the column that says how the interval of the column `name` was computed.
fn method_name(name: &str) -> String {
    format!("{}_ci95_method", stem_and_unit(name).0)
}

/// The link from the column `name`, a mean, to its [`interval_columns`] and its [`method_column`].
pub(crate) fn mean_link(name: &str) -> IntervalColumns {
    interval_link(name).method(&method_name(name))
}

/// The column that says how the interval of the column `name`, a mean, was computed. `compare` does not judge a mean by
/// one run if the interval assumes independent values.
pub(crate) fn method_column<'a>(name: &str) -> Columns<'a, Option<Interval>> {
    let doc = format!(
        "Method of the interval of {name}: batch-means; batch-means-correlated where the window was too short for \
         uncorrelated batches (the interval may be too narrow); or independent with few batches."
    );
    column(&method_name(name), &doc)
        .detail()
        .text(|interval: &Option<Interval>| interval.map(|interval| interval.method.label()))
}

/// The columns of a column's interval: half width, and [`spread_columns`]. For `rate_hz`, the
/// half width is the column `rate_ci95_hz`.
pub(crate) fn interval_columns<'a>(name: &str) -> Columns<'a, Option<Interval>> {
    let (stem, unit) = stem_and_unit(name);
    let doc = format!(
        "Half width of the 95 % confidence interval of {name}, from the batches of the window; absent where \
         fewer than 8 of them have a span."
    );
    let half_width = column(&format!("{stem}_ci95{unit}"), &doc)
        .detail()
        .real(|interval: &Option<Interval>| interval.map(|interval| interval.half_width));
    half_width.and([spread_columns(name)])
}

/// The columns that `compare` needs besides the half width: it compares many figures at once, so it makes each interval
/// wider than 95 %. For the column `rate_hz`, they are `rate_ci95_dof` and `rate_drift_hz`, which [`spread_link`]
/// names, too.
pub(crate) fn spread_columns<'a>(name: &str) -> Columns<'a, Option<Interval>> {
    let (stem, unit) = stem_and_unit(name);
    let freedom = format!(
        "Degrees of freedom of the 95 % confidence interval of {name} (Student's t); `compare` computes wider \
         ones by it."
    );
    let drift = format!(
        "Standard deviation of {name} between windows of this length because of what changes slowly: the variance \
         of the batches that does not fall with their length."
    );
    Columns::all([
        column(&format!("{stem}_ci95_dof"), &freedom).detail().uint(
            |interval: &Option<Interval>| interval.map(|interval| interval.degrees_of_freedom),
        ),
        column(&format!("{stem}_drift{unit}"), &drift)
            .detail()
            .real(|interval: &Option<Interval>| interval.map(|interval| interval.drift)),
    ])
}

/// The interval of the spans' rate per second, in a window of `length_ns`. `cpu_time_ns`: sum of the window's lengths
/// over the CPUs. `None` with too few batches.
pub(crate) fn rate_interval(
    spans: &Distribution,
    length_ns: u64,
    cpu_time_ns: u64,
) -> Option<Interval> {
    // On each CPU, the count is uncertain by one span at the window's edges, even if spans come like a clock.
    let length = length_ns.max(1) as f64;
    let edge = cpu_time_ns as f64 / length / length;
    let rate = spans.batches.per_time(length_ns, |batch| batch.count);
    rate.map(|rate| Interval {
        half_width: rate.half_width.hypot(edge) * 1e9,
        drift: rate.drift * 1e9,
        ..rate
    })
}

/// The interval of the spans' share of `cpu_time_ns`, in a window of `length_ns`. `None` with too few batches.
pub(crate) fn share_interval(
    spans: &Distribution,
    length_ns: u64,
    cpu_time_ns: u64,
) -> Option<Interval> {
    let cpus = cpu_time_ns as f64 / length_ns.max(1) as f64;
    let share = spans.batches.per_time(length_ns, |batch: &Batch| batch.sum);
    share.map(|share| Interval {
        half_width: share.half_width / cpus,
        drift: share.drift / cpus,
        ..share
    })
}
