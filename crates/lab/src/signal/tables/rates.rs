//! Table `rates`: CPU use and latency by scheme and event rate, measured and by the fitted model. Names and order of
//! the columns are public: `signal fit` reads the table again (`observations.rs`).

use record::{Absence, Columns, Format, Table, column, keys};
use signalling::{Residual, Scheme};
use stats::Distribution;

use super::super::sample::{BUSY_CONTROL, Load, RateWindow};
use super::RATES;
use super::columns::{
    Activities, LATENCY_WITH_LOSSES, Latency, WindowLatency, activity_columns, grouped,
    grouped_by_load, key_columns, latency_columns,
};
use super::fit::Model;
use super::point::{Point, points};

/// A row of table `rates`: a point, and the residual of the fit at this point.
struct Row<'w> {
    point: &'w Point<'w>,
    /// `None` if the point is not part of the fit.
    residual: Option<&'w Residual>,
}

impl Row<'_> {
    /// Events handled per signal. `None` without signals, or if nothing counts them.
    fn events_per_signal(&self) -> Option<f64> {
        let signals_hz = self.point.signals_hz().filter(|signals_hz| *signals_hz > 0.0)?;
        Some(self.point.delivered_hz()? / signals_hz)
    }

    /// Interrupts of the disk per completed read, over all windows. `None` without a disk, or without reads.
    fn disk_interrupts_per_event(&self) -> Option<f64> {
        let windows = &self.point.windows;
        let counts = windows.iter().map(|window| window.activity.disk_interrupts);
        let interrupts: u64 = counts.sum::<Option<u64>>()?;
        let delivered: u64 = windows.iter().map(|window| window.delivered).sum();
        (delivered > 0).then(|| interrupts as f64 / delivered as f64)
    }

    /// The sender's lateness in all windows together.
    fn lateness(&self) -> Distribution {
        let mut lateness = Distribution::default();
        self.point.windows.iter().for_each(|window| lateness.merge(&window.lateness));
        lateness
    }
}

/// The latencies of the windows without overload. Empty if the point is overloaded.
fn latency(point: &Point<'_>) -> Latency {
    let windows = point.latency_windows().into_iter().map(|window| WindowLatency {
        latency: &window.latency,
        offered: window.offered,
        lost: window.dropped,
    });
    Latency::from_windows(windows)
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    let meaning = "the time from when an event was due until it was handled (no coordinated \
                   omission; absent with overload)";
    Columns::all([
        key_columns().of(|row: &Row<'_>| (row.point.key.load, row.point.key.scheme)),
        column("rate_hz", "Requested events per second; Poisson arrivals.")
            .shown_as("rate", 98)
            .key()
            .uint(|row: &Row<'_>| row.point.key.rate_hz),
        column(
            "repetitions",
            "Windows of the row: the uncontaminated windows, or all windows if all are \
             contaminated.",
        )
        .detail()
        .uint(|row: &Row<'_>| row.point.windows.len()),
        column(
            "contaminated_count",
            "Windows with other work on one of the two CPUs. Either the sender's mean lateness \
             exceeded both 1 us and a tenth of the mean latency (with overload, of the mean time \
             between events). Or the receiver and the job had the CPU for less than 97 % of the \
             window or its control.",
        )
        .shown_as("contaminated", 56)
        .uint(|row: &Row<'_>| row.point.contaminated),
        latency_columns("latency", meaning).of(|row: &Row<'_>| latency(row.point)),
        activity_columns().of(|row: &Row<'_>| Activities {
            load: row.point.key.load,
            windows: row.point.windows.iter().map(|window| &window.activity).collect(),
        }),
        column("events_per_signal", "Events handled per signal.")
            .shown_as("events/signal", 55)
            .real(|row: &Row<'_>| row.events_per_signal()),
        column(
            "disk_interrupts_per_event",
            "Interrupts of the disk per read; absent without a disk. 0: no interrupt; the reader \
             polled.",
        )
        .shown_as("interrupts/read", 64)
        .real(|row: &Row<'_>| row.disk_interrupts_per_event()),
        column("offered_hz", "Events that were due per second.")
            .detail()
            .real(|row: &Row<'_>| row.point.offered_hz()),
        column("throughput_hz", "Events that were handled per second, within the window.")
            .shown_as("handled", 50)
            .real(|row: &Row<'_>| row.point.delivered_hz()),
        column(
            "dropped_ratio",
            "Share of the events that found the ring or the socket's buffer full.",
        )
        .shown_as("dropped", 65)
        .real(|row: &Row<'_>| row.point.share_of_offered(|window| window.dropped)),
        column(
            "backlog_ratio",
            "Share of the events that were neither handled within the window nor dropped: they \
             waited when the window ended.",
        )
        .shown_as("backlog", 66)
        .real(|row: &Row<'_>| row.point.share_of_offered(RateWindow::backlog)),
        column(
            "is_over_capacity",
            "Whether the scheme does not keep up with the rate: in half of the windows or more, \
             less than 98 % of the events were handled. A backlog that the scheme's own delay \
             explains counts as handled. The latency is then absent.",
        )
        .detail()
        .bool(|row: &Row<'_>| row.point.is_overloaded()),
        column(
            "overloaded_count",
            "Windows of the row with overload. The latency leaves them out.",
        )
        .detail()
        .uint(|row: &Row<'_>| row.point.overloaded_count()),
        column(
            "lateness_p99_ns",
            "99th percentile of the sender's lateness; exact within 1/16. The latency includes it.",
        )
        .format(Format::Microseconds)
        .detail()
        .uint(|row: &Row<'_>| row.lateness().quantile(99_000)),
        column(
            "cpu_median_ratio",
            "Median of the windows' CPU use. The fit and the crossovers use it. A pause of the \
             host affects the mean of all windows, but hardly the median.",
        )
        .detail()
        .real(|row: &Row<'_>| row.point.cpu_ratio().map(|median| median.value)),
        column(
            "latency_mean_median_ns",
            "Median of the windows' mean latencies; absent with overload. The fit uses it.",
        )
        .format(Format::Microseconds)
        .detail()
        .real(|row: &Row<'_>| row.point.latency_mean_ns().map(|median| median.value)),
        column(
            "cpu_standard_error_ratio",
            "Standard error of cpu_median_ratio (Price and Bonett 2001); absent with one window. \
             Figures with a large error weigh less in the fit.",
        )
        .detail()
        .real(|row: &Row<'_>| row.point.cpu_ratio().and_then(|median| median.error)),
        column(
            "latency_standard_error_ns",
            "Standard error of latency_mean_median_ns (Price and Bonett 2001); absent with one \
             window.",
        )
        .format(Format::Microseconds)
        .detail()
        .real(|row: &Row<'_>| row.point.latency_mean_ns().and_then(|median| median.error)),
        column(
            "predicted_cpu_ratio",
            "CPU use by the model with the costs of table costs; absent where no closed form \
             holds, and in rows that the fit leaves out.",
        )
        .shown_as("CPU by model", 58)
        .real(|row: &Row<'_>| row.residual.and_then(|residual| residual.cpu_ratio)),
        column(
            "cpu_error_ratio",
            "Relative error of predicted_cpu_ratio: its difference from cpu_median_ratio, over \
             the latter.",
        )
        .detail()
        .real(|row: &Row<'_>| row.residual.and_then(|residual| residual.cpu_error_ratio)),
        column("predicted_latency_mean_ns", "Mean latency by the model.")
            .title("latency by model")
            .format(Format::Microseconds)
            .priority(57)
            .real(|row: &Row<'_>| row.residual.and_then(|residual| residual.latency_mean_ns)),
        column(
            "latency_error_ratio",
            "Relative error of predicted_latency_mean_ns: its difference from \
             latency_mean_median_ns, over the latter.",
        )
        .detail()
        .real(|row: &Row<'_>| row.residual.and_then(|residual| residual.latency_error_ratio)),
        column(
            "is_contaminated",
            "Whether all windows are contaminated. The figures are then those of contaminated windows, and the fit \
             leaves out the row.",
        )
        .detail()
        .bool(|row: &Row<'_>| row.point.is_contaminated()),
    ])
}

/// Table `rates`: one row for each point.
pub(super) fn rates(points: &[Point<'_>], model: &Model) -> Table {
    let doc = "CPU use and latency by event rate and scheme, measured and by the fitted model.";
    let rows = points
        .iter()
        .enumerate()
        .map(|(number, point)| Row { point, residual: model.residual(number) });
    columns()
        .table(RATES, doc, rows)
        .displayed(grouped_by_load("Interrupt, poll or clock?", model.notes()))
}

/// The overloaded points of each scheme under each load, by ascending rate.
fn overloaded_points<'p, 'w>(points: &'p [Point<'w>]) -> Vec<((Load, Scheme), Vec<&'p Point<'w>>)> {
    let overloaded: Vec<&Point<'_>> = points.iter().filter(|point| point.is_overloaded()).collect();
    let key = |point: &&Point<'_>| (point.key.load, point.key.scheme);
    let groups = grouped(&overloaded, key).into_iter();
    groups.map(|(key, points)| (key, points.into_iter().copied().collect())).collect()
}

/// The absent latencies of overloaded points: one absence for each scheme and load.
pub(super) fn absences(points: &[Point<'_>]) -> Vec<Absence> {
    let absence = |((load, scheme), overloaded): ((Load, Scheme), Vec<&Point<'_>>)| {
        let rates: Vec<String> =
            overloaded.iter().map(|point| point.key.rate_hz.to_string()).collect();
        let what =
            format!("latency of {scheme}, load {}, at {} events/s", load.word(), rates.join(", "));
        let reason = "the receiver does not keep up: the latencies would be those of the events that \
                      were not dropped, many of them handled after the window";
        Absence::new(RATES, what, reason)
    };
    overloaded_points(points).into_iter().map(absence).collect()
}

/// A warning for each scheme and load with overloaded points. It has the shares of the lowest of their rates.
fn overload_warnings(points: &[Point<'_>]) -> Vec<String> {
    let warning = |((load, scheme), overloaded): ((Load, Scheme), Vec<&Point<'_>>)| {
        let lowest = overloaded.first()?;
        let percent = |count: fn(&RateWindow) -> u64| {
            Some(format!("{:.1} %", 100.0 * lowest.share_of_offered(count)?))
        };
        let further = further(overloaded.len() - 1);
        let is_short = lowest.windows.iter().any(|window| window.is_short_for_scheme());
        let or_short = if is_short {
            ", or the window is shorter than four periods of the scheme's clock"
        } else {
            ""
        };
        Some(format!(
            "{scheme}, load {}, {} events/s: overloaded{or_short}{further}. The receiver handled {} of the \
             events within the window, {} were dropped, and {} waited when the window ended; the \
             latency is absent",
            load.word(),
            lowest.key.rate_hz,
            percent(|window| window.delivered)?,
            percent(|window| window.dropped)?,
            percent(RateWindow::backlog)?,
        ))
    };
    overloaded_points(points).into_iter().filter_map(warning).collect()
}

/// A warning for each scheme and load with points that lose events and are not overloaded. The warning states the lost
/// share at the lowest rate.
fn loss_warnings(points: &[Point<'_>]) -> Vec<String> {
    let losing: Vec<(&Point<'_>, f64)> = points
        .iter()
        .map(|point| (point, latency(point)))
        .filter(|(_, latency)| latency.has_losses())
        .map(|(point, latency)| (point, latency.lost_ratio))
        .collect();
    let key = |(point, _): &(&Point<'_>, f64)| (point.key.load, point.key.scheme);
    let warning = |((load, scheme), points): ((Load, Scheme), Vec<&(&Point<'_>, f64)>)| {
        let (lowest, lost_ratio) = points[0];
        format!(
            "{scheme}, load {}, {} events/s{}: {:.2} % of the events were dropped. Of the latencies, {LATENCY_WITH_LOSSES}",
            load.word(),
            lowest.key.rate_hz,
            further(points.len() - 1),
            100.0 * lost_ratio
        )
    };
    grouped(&losing, key).into_iter().map(warning).collect()
}

/// How many higher rates a warning is also about, in words.
fn further(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " (also at 1 higher rate)".to_owned(),
        count => format!(" (also at {count} higher rates)"),
    }
}

/// Warnings of contaminated rows, of overloaded rows, and of other rows that lose events.
pub(super) fn warnings(windows: &[RateWindow]) -> Vec<String> {
    let points = points(windows);
    let mut warnings = contamination_warnings(windows, &points);
    warnings.extend(overload_warnings(&points));
    warnings.extend(loss_warnings(&points));
    warnings
}

/// A warning if rows have only contaminated windows. It names the reason of the first of these rows.
fn contamination_warnings(windows: &[RateWindow], points: &[Point<'_>]) -> Vec<String> {
    let contaminated: Vec<&Point<'_>> =
        points.iter().filter(|point| point.is_contaminated()).collect();
    let Some(reason) = contaminated.first().and_then(|point| point.windows[0].contamination())
    else {
        return Vec::new();
    };
    let is_simulated = windows.iter().all(|window| window.activity.counted.is_some());
    let remedy = if reason == BUSY_CONTROL {
        "they have no CPU use: take longer windows (-d), whose control is longer, too"
    } else if is_simulated {
        "the machine is too slow for this rate: choose a lower rate (--rates)"
    } else {
        "keep other work off both CPUs, take shorter windows (-d) or more windows (--repetitions)"
    };
    vec![format!(
        "{} of {} rows of table rates {}{}{reason}); {remedy}",
        contaminated.len(),
        points.len(),
        keys::ONLY_CONTAMINATED_WINDOWS,
        keys::FIRST_ROW
    )]
}
