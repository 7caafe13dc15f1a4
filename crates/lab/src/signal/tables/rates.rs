//! Table `rates`: CPU use and latency by scheme and event rate.

use record::{Column, Format, Kind, Table, Value};

use super::super::sample::RateWindow;
use super::RATES;
use super::columns::{
    activity_columns, activity_values, column, grouped_by_load, key_columns, latency_columns,
    latency_values,
};
use super::fit::Model;
use super::point::{Point, points};

fn columns() -> Vec<Column> {
    let mut columns = key_columns();
    columns.extend([
        column("rate_hz", Kind::Uint, "Requested events per second; Poisson arrivals.")
            .shown_as("rate", 98)
            .key(),
        column(
            "repetitions",
            Kind::Uint,
            "Windows of the row: the uncontaminated windows, or all windows if all are \
             contaminated.",
        )
        .detail(),
        column(
            "contaminated_count",
            Kind::Uint,
            "Windows with other work on one of the two CPUs. Either the sender's mean lateness \
             exceeded both 1 us and a tenth of the mean latency. Or the receiver and the job had \
             the CPU for less than 97 % of the window or its control.",
        )
        .shown_as("contaminated", 56),
    ]);
    columns.extend(latency_columns(
        "latency",
        "the time from when an event was due until it was handled (no coordinated omission)",
    ));
    columns.extend(activity_columns());
    columns.extend([
        column("events_per_signal", Kind::Real, "Events handled per signal.")
            .shown_as("events/signal", 55),
        column("offered_hz", Kind::Real, "Events that were due per second.").detail(),
        column("throughput_hz", Kind::Real, "Events that were handled per second.")
            .shown_as("handled", 50),
        column(
            "dropped_ratio",
            Kind::Real,
            "Share of the events that found the ring or the socket's buffer full.",
        )
        .shown_as("dropped", 65),
        column(
            "lateness_p99_ns",
            Kind::Uint,
            "99th percentile of the sender's lateness. The latency includes it.",
        )
        .format(Format::Microseconds)
        .detail(),
        column(
            "cpu_median_ratio",
            Kind::Real,
            "Median of the windows' CPU use. The fit and the crossovers use it. A pause of the \
             host affects the mean of all windows, but hardly the median.",
        )
        .detail(),
        column(
            "latency_mean_median_ns",
            Kind::Real,
            "Median of the windows' mean latencies. The fit uses it.",
        )
        .format(Format::Microseconds)
        .detail(),
        column(
            "cpu_standard_error_ratio",
            Kind::Real,
            "Standard error of cpu_median_ratio (Price and Bonett 2001); absent with one window. \
             Figures with a large error weigh less in the fit.",
        )
        .detail(),
        column(
            "latency_standard_error_ns",
            Kind::Real,
            "Standard error of latency_mean_median_ns (Price and Bonett 2001); absent with one \
             window.",
        )
        .format(Format::Microseconds)
        .detail(),
        column(
            "predicted_cpu_ratio",
            Kind::Real,
            "CPU use by the model with the costs of table costs; absent where no closed form \
             holds.",
        )
        .shown_as("CPU by model", 58),
        column(
            "cpu_error_ratio",
            Kind::Real,
            "Relative error of predicted_cpu_ratio: its difference from cpu_median_ratio, over \
             the latter.",
        )
        .detail(),
        column("predicted_latency_mean_ns", Kind::Real, "Mean latency by the model.")
            .title("latency by model")
            .format(Format::Microseconds)
            .priority(57),
        column(
            "latency_error_ratio",
            Kind::Real,
            "Relative error of predicted_latency_mean_ns: its difference from \
             latency_mean_median_ns, over the latter.",
        )
        .detail(),
    ]);
    columns
}

/// One row for each point.
pub(super) fn rates(points: &[Point<'_>], model: &Model) -> Table {
    let doc = "CPU use and latency by event rate and scheme, measured and by the fitted model.";
    let mut table = Table::new(RATES, doc, columns())
        .displayed(grouped_by_load("Interrupt, poll or clock?", model.notes()));
    for (number, point) in points.iter().enumerate() {
        let windows = &point.windows;
        let sum =
            |count: fn(&RateWindow) -> u64| windows.iter().map(|window| count(window)).sum::<u64>();
        let mut row: Vec<Value> = vec![
            point.at.load.word().into(),
            point.at.scheme.to_string().into(),
            point.at.rate_hz.into(),
            (windows.len() as u64).into(),
            (point.contaminated as u64).into(),
        ];
        row.extend(latency_values(windows, |window| &window.latency));
        row.extend(activity_values(windows, point.at.load, |window| &window.activity));
        let per_signal = point.delivered_hz().zip(point.signals_hz());
        let per_signal = per_signal.filter(|(_, signals)| *signals > 0.0);
        let offered = sum(|window| window.offered);
        let mut lateness = stats::Distribution::default();
        windows.iter().for_each(|window| lateness.merge(&window.lateness));
        let (cpu, latency) = (point.cpu_ratio(), point.latency_mean_ns());
        row.extend([
            per_signal.map(|(events, signals)| events / signals).into(),
            point.offered_hz().into(),
            point.delivered_hz().into(),
            (offered > 0).then(|| sum(|window| window.dropped) as f64 / offered as f64).into(),
            lateness.quantile(99_000).into(),
            cpu.map(|median| median.value).into(),
            latency.map(|median| median.value).into(),
            cpu.and_then(|median| median.error).into(),
            latency.and_then(|median| median.error).into(),
        ]);
        row.extend(model.values(number));
        table.push(row);
    }
    table
}

/// Warns of rows that have only contaminated windows.
pub(super) fn warnings(windows: &[RateWindow]) -> Vec<String> {
    let points = points(windows);
    let is_contaminated =
        |point: &&Point<'_>| point.windows.iter().all(|window| window.contamination().is_some());
    let rows: Vec<&Point<'_>> = points.iter().filter(is_contaminated).collect();
    let Some(reason) = rows.first().and_then(|point| point.windows[0].contamination()) else {
        return Vec::new();
    };
    let is_simulated = windows.iter().all(|window| window.activity.counted.is_some());
    let remedy = if is_simulated {
        "the machine is too slow for this rate: choose a lower rate (--rates)"
    } else {
        "keep other work off both CPUs, take shorter windows (-d) or more windows (--repetitions)"
    };
    vec![format!(
        "{} of {} rows of table rates have contaminated windows alone (of the first: {reason}); \
         {remedy}",
        rows.len(),
        points.len()
    )]
}
