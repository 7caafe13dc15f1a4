//! Columns that several tables have: keys, latencies, and the activity of the receiving CPU.

use record::{Column, Format, IntervalColumns, Kind, TableDisplay, Value};
use stats::interval::{self, Interval};

use super::super::sample::{Activity, Load};

/// A median, and its standard error. `error` is `None` with one value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Median {
    pub value: f64,
    pub error: Option<f64>,
}

/// Values of the repetitions of a point.
pub(super) struct Values(Vec<f64>);

impl Values {
    /// The values of the repetitions. Without a value of every repetition, the result has no values: a mean over
    /// only some windows would pass for a mean over all.
    pub fn from_windows<T>(windows: &[T], value: impl Fn(&T) -> Option<f64>) -> Values {
        Values(windows.iter().map(value).collect::<Option<Vec<f64>>>().unwrap_or_default())
    }

    /// The mean of the values, or `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    /// The median, with its standard error. `None` without values.
    pub fn median(&self) -> Option<Median> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let value = stats::median(&sorted)?;
        Some(Median { value, error: stats::median_error(&sorted) })
    }

    /// Half width of the 95 % interval of the mean over the repetitions. `None` with fewer than two values.
    pub fn half_width(&self) -> Option<f64> {
        interval::from_values(&self.0).map(|Interval { half_width, .. }| half_width)
    }
}

/// `count` per second of the window. `None` if the window has no length.
pub(super) fn per_second(count: u64, activity: &Activity) -> Option<f64> {
    (activity.window_ns > 0).then(|| count as f64 * 1e9 / activity.window_ns as f64)
}

pub(super) fn column(name: &str, kind: Kind, doc: &str) -> Column {
    Column::new(name, kind, doc)
}

/// The link to a column with the half width of an interval over the repetitions.
pub(super) fn over_repetitions(half_width: &str) -> IntervalColumns {
    IntervalColumns::half_width(half_width).repetitions("repetitions")
}

/// A column `name` with the half width of the interval of the column `mean_column`.
pub(super) fn ci95(name: &str, mean_column: &str) -> Column {
    let doc = format!(
        "Half width of the 95 % confidence interval of {mean_column}, over the repetitions \
         (Student's t); absent with one repetition."
    );
    column(name, Kind::Real, &doc).detail()
}

/// The scheme and the load of a row.
pub(super) fn key_columns() -> Vec<Column> {
    vec![
        column(
            "load",
            Kind::Text,
            "Competing load on the receiving CPU: nothing (idle), a CPU-bound job of the lowest \
             priority (background), or a CPU-bound job of the receiver's own priority (busy).",
        )
        .priority(99)
        .key(),
        column("scheme", Kind::Text, "How the receiver learns of events.").priority(100).key(),
    ]
}

/// Shows all rows, grouped by load.
pub(super) fn grouped_by_load(title: &str, notes: Vec<String>) -> TableDisplay {
    TableDisplay {
        title: title.to_owned(),
        group_by: vec!["load".to_owned()],
        notes,
        ..TableDisplay::default()
    }
}

/// Columns of the activity of the receiving CPU: shares of its time, and rates per second.
pub(super) fn activity_columns() -> Vec<Column> {
    let rate =
        |name: &str, title: &str, doc: &str| column(name, Kind::Real, doc).shown_as(title, 45);
    vec![
        column(
            "cpu_ratio",
            Kind::Real,
            "Share of the receiving CPU's time that signalling and handling took, including \
             interrupts and softirqs: the time that the job of the lowest priority did not get. \
             Time that other work or the host took does not matter. Absent unless load is \
             background. On a simulated machine, with any load: the share of cycles for anything \
             but the job and the idle task, in excess of this share without events.",
        )
        .title("CPU")
        .interval(over_repetitions("cpu_ci95_ratio"))
        .plus_minus("cpu_ci95_ratio")
        .priority(95)
        .cpu_share(),
        ci95("cpu_ci95_ratio", "cpu_ratio"),
        column(
            "leftover_ratio",
            Kind::Real,
            "Rate of the CPU-bound job over its rate without events (measured just before each \
             window, with the receiver asleep); absent with load idle. On a simulated machine 1 - \
             cpu_ratio.",
        )
        .title("leftover")
        .interval(over_repetitions("leftover_ci95_ratio"))
        .plus_minus("leftover_ci95_ratio")
        .priority(60),
        ci95("leftover_ci95_ratio", "leftover_ratio"),
        column(
            "receiver_ratio",
            Kind::Real,
            "CPU time of the receiver's thread as a share of the window, without interrupts that \
             come while another thread runs or the CPU is idle.",
        )
        .shown_as("receiver", 40),
        rate(
            "signals_hz",
            "signals",
            "How often handling was signalled: wake-ups by an event, clock ticks, or NAPI polls \
             on this CPU that found work. On the cards of a simulated machine: NET_RX softirqs.",
        ),
        rate(
            "cpu_interrupts_hz",
            "interrupts",
            "Interrupts of all kinds on the receiving CPU, by /proc/interrupts, or counted by the \
             simulator.",
        ),
        rate(
            "card_interrupts_hz",
            "card's",
            "Interrupts of the receiving card, counted by the simulator; absent without a card.",
        ),
        rate(
            "net_rx_hz",
            "NET_RX",
            "NET_RX softirqs on the receiving CPU, by /proc/softirqs, or counted by the \
             simulator; absent if the rig does not use the kernel's network stack.",
        )
        .detail(),
        rate(
            "polls_hz",
            "polls",
            "NAPI polls of the rig on the receiving CPU, by the tracepoint napi_poll.",
        )
        .detail(),
        rate("switches_hz", "switches", "Context switches of the receiver's thread.").priority(30),
    ]
}

/// The values of [`activity_columns`] from the windows of a point.
pub(super) fn activity_values<T>(
    windows: &[T],
    load: Load,
    activity: impl Fn(&T) -> &Activity,
) -> Vec<Value> {
    let values = |value: &dyn Fn(&Activity) -> Option<f64>| {
        Values::from_windows(windows, |window| value(activity(window)))
    };
    let leftover = values(&Activity::leftover_ratio);
    let cpu = values(&|activity| activity.cpu_ratio(load));
    let rate = |count: fn(&Activity) -> Option<u64>| {
        values(&|activity| per_second(count(activity)?, activity)).mean()
    };
    let receiver_ratio = |activity: &Activity| {
        let window_ns = activity.window_ns;
        (window_ns > 0).then(|| activity.receiver_ns as f64 / window_ns as f64)
    };
    let receiver = values(&receiver_ratio);
    vec![
        cpu.mean().into(),
        cpu.half_width().into(),
        leftover.mean().into(),
        leftover.half_width().into(),
        receiver.mean().into(),
        rate(|activity| activity.signals).into(),
        rate(|activity| activity.interrupts).into(),
        rate(|activity| activity.card_interrupts).into(),
        rate(|activity| activity.net_rx).into(),
        rate(|activity| activity.polls).into(),
        rate(|activity| activity.switches).into(),
    ]
}

/// Columns of a latency: mean and interval, quantiles, and maximum. `meaning` says which time the latency is.
pub(super) fn latency_columns(stem: &str, meaning: &str) -> Vec<Column> {
    let time = |suffix: &str, kind: Kind, doc: String| {
        column(&format!("{stem}_{suffix}_ns"), kind, &doc).format(Format::Microseconds)
    };
    let half = format!("{stem}_mean_ci95_ns");
    let mut columns = vec![
        time("mean", Kind::Real, format!("Mean of {meaning}."))
            .title(&format!("{stem} mean"))
            .interval(over_repetitions(&half))
            .plus_minus(&half)
            .priority(90)
            .cost(),
        ci95(&half, &format!("{stem}_mean_ns")),
    ];
    for (suffix, title, priority, share) in [
        ("p50", "p50", 94, "median"),
        ("p99", "p99", 92, "99th percentile"),
        ("p999", "p99.9", 70, "99.9th percentile"),
    ] {
        let doc = format!("The {share} of {meaning}, all repetitions together; exact within 1/16.");
        columns.push(time(suffix, Kind::Uint, doc).shown_as(title, priority).cost());
    }
    let doc = format!("Maximum of {meaning}.");
    columns.push(time("max", Kind::Uint, doc).shown_as("max", 80));
    columns
}

/// The values of [`latency_columns`].
pub(super) fn latency_values<T>(
    windows: &[T],
    latency: impl Fn(&T) -> &stats::Distribution,
) -> Vec<Value> {
    let means = Values::from_windows(windows, |window| latency(window).mean());
    let mut all = stats::Distribution::default();
    windows.iter().for_each(|window| all.merge(latency(window)));
    let max = (all.count > 0).then_some(all.peak.value);
    vec![
        means.mean().into(),
        means.half_width().into(),
        all.quantile(50_000).into(),
        all.quantile(99_000).into(),
        all.quantile(99_900).into(),
        max.into(),
    ]
}

/// Groups windows by `key`. The groups are sorted by their keys.
pub(super) fn grouped<T, K: Ord>(windows: &[T], key: impl Fn(&T) -> K) -> Vec<(K, Vec<&T>)> {
    let mut groups: Vec<(K, Vec<&T>)> = Vec::new();
    for window in windows {
        let key = key(window);
        match groups.iter_mut().find(|(group_key, _)| *group_key == key) {
            Some((_, members)) => members.push(window),
            None => groups.push((key, vec![window])),
        }
    }
    groups.sort_by(|(first, _), (second, _)| first.cmp(second));
    groups
}
