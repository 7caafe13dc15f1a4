//! Columns that several tables of `signal` have: keys, latencies, and the activity of the receiving CPU. Names and
//! order of the columns are public.

use record::{Column, Columns, Format, IntervalColumns, TableDisplay, column};
use signalling::{LOST_RATIO_MAX, Scheme};
use stats::Distribution;
use stats::interval::{self, Interval};

use super::super::sample::{Activity, Load};

/// A median, and its standard error. `error` is `None` with a single value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Median {
    pub value: f64,
    pub error: Option<f64>,
}

/// One value for each repetition of a point. A repetition is one window. Empty if a repetition has no value.
pub(super) struct Values(Vec<f64>);

impl Values {
    /// The values of the repetitions. If `value` returns `None` for a repetition, the result is empty: a mean over only
    /// some windows would be taken for a mean over all windows.
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

/// The link from a column to the column `half_width` with the half width of its interval over the repetitions.
pub(super) fn over_repetitions(half_width: &str) -> IntervalColumns {
    IntervalColumns::half_width(half_width).repetitions("repetitions")
}

/// The column `name`: half width of the interval of the column `mean_column`, over the repetitions.
pub(super) fn ci95(name: &str, mean_column: &str) -> Column {
    let doc = format!(
        "Half width of the 95 % confidence interval of {mean_column}, over the repetitions \
         (Student's t); absent with one repetition."
    );
    column(name, &doc).detail()
}

/// The columns that identify a row: load and scheme.
pub(super) fn key_columns<'a>() -> Columns<'a, (Load, Scheme)> {
    Columns::all([
        column(
            "load",
            "Competing load on the receiving CPU: nothing (idle), a CPU-bound job of the lowest \
             priority (background), or a CPU-bound job of the receiver's own priority (busy).",
        )
        .priority(99)
        .key()
        .text(|(load, _): &(Load, Scheme)| load.word()),
        column("scheme", "How the receiver learns of events.")
            .priority(100)
            .key()
            .text(|(_, scheme): &(Load, Scheme)| scheme.to_string()),
    ])
}

/// Display hints: all rows, grouped by load.
pub(super) fn grouped_by_load(title: &str, notes: Vec<String>) -> TableDisplay {
    TableDisplay {
        title: title.to_owned(),
        group_by: vec!["load".to_owned()],
        notes,
        ..TableDisplay::default()
    }
}

/// The activity of the receiving CPU in the windows of a point.
pub(super) struct Activities<'w> {
    pub load: Load,
    pub windows: Vec<&'w Activity>,
}

impl Activities<'_> {
    fn values(&self, value: impl Fn(&Activity) -> Option<f64>) -> Values {
        Values::from_windows(&self.windows, |activity| value(activity))
    }

    fn cpu_ratio(&self) -> Values {
        self.values(|activity| activity.cpu_ratio(self.load))
    }

    fn leftover_ratio(&self) -> Values {
        self.values(Activity::leftover_ratio)
    }

    /// CPU time of the receiver's thread, as a share of the window. `None` without windows of a positive length.
    fn receiver_ratio(&self) -> Option<f64> {
        let ratio = |activity: &Activity| {
            let window_ns = activity.window_ns;
            (window_ns > 0).then(|| activity.receiver_ns as f64 / window_ns as f64)
        };
        self.values(ratio).mean()
    }

    /// `count` per second, mean of the windows. `None` if a window lacks the count.
    fn rate_hz(&self, count: fn(&Activity) -> Option<u64>) -> Option<f64> {
        self.values(|activity| per_second(count(activity)?, activity)).mean()
    }
}

/// Columns of the activity of the receiving CPU: shares of its time, and rates per second.
pub(super) fn activity_columns<'a>() -> Columns<'a, Activities<'a>> {
    let rate = |name: &str, title: &str, doc: &str| column(name, doc).shown_as(title, 45);
    Columns::all([
        column(
            "cpu_ratio",
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
        .cpu_share()
        .real(|activities: &Activities<'_>| activities.cpu_ratio().mean()),
        ci95("cpu_ci95_ratio", "cpu_ratio")
            .real(|activities: &Activities<'_>| activities.cpu_ratio().half_width()),
        column(
            "leftover_ratio",
            "Rate of the CPU-bound job over its rate without events (measured just before each \
             window, with the receiver asleep); absent with load idle. On a simulated machine 1 - \
             cpu_ratio.",
        )
        .title("leftover")
        .interval(over_repetitions("leftover_ci95_ratio"))
        .plus_minus("leftover_ci95_ratio")
        .priority(60)
        .real(|activities: &Activities<'_>| activities.leftover_ratio().mean()),
        ci95("leftover_ci95_ratio", "leftover_ratio")
            .real(|activities: &Activities<'_>| activities.leftover_ratio().half_width()),
        column(
            "receiver_ratio",
            "CPU time of the receiver's thread as a share of the window, without interrupts that \
             come while another thread runs or the CPU is idle.",
        )
        .shown_as("receiver", 40)
        .real(|activities: &Activities<'_>| activities.receiver_ratio()),
        rate(
            "signals_hz",
            "signals",
            "How often handling was signalled: wake-ups by an event, clock ticks, or NAPI polls \
             on this CPU that found work. On the cards of a simulated machine: NET_RX softirqs.",
        )
        .real(|activities: &Activities<'_>| activities.rate_hz(|activity| activity.signals)),
        rate(
            "cpu_interrupts_hz",
            "interrupts",
            "Interrupts of all kinds on the receiving CPU, by /proc/interrupts, or counted by the \
             simulator. Absent if the kernel freed an IRQ line in a window, as in the reset of a device: its counts \
             are lost then.",
        )
        .real(|activities: &Activities<'_>| activities.rate_hz(|activity| activity.interrupts)),
        rate(
            "card_interrupts_hz",
            "card's",
            "Interrupts of the receiving card, counted by the simulator; absent without a card.",
        )
        .real(|activities: &Activities<'_>| {
            activities.rate_hz(|activity| activity.card_interrupts)
        }),
        rate(
            "disk_interrupts_hz",
            "disk's",
            "Interrupts of the disk on all CPUs, by /proc/interrupts, or counted by the simulator; \
             absent without a disk, or if the kernel freed one of its IRQ lines in a window.",
        )
        .real(|activities: &Activities<'_>| {
            activities.rate_hz(|activity| activity.disk_interrupts)
        }),
        rate(
            "net_rx_hz",
            "NET_RX",
            "NET_RX softirqs on the receiving CPU, by /proc/softirqs, or counted by the \
             simulator; absent if the rig does not use the kernel's network stack.",
        )
        .detail()
        .real(|activities: &Activities<'_>| activities.rate_hz(|activity| activity.net_rx)),
        rate(
            "polls_hz",
            "polls",
            "NAPI polls of the rig on the receiving CPU, by the tracepoint napi_poll.",
        )
        .detail()
        .real(|activities: &Activities<'_>| activities.rate_hz(|activity| activity.polls)),
        rate("switches_hz", "switches", "Context switches of the receiver's thread.")
            .priority(30)
            .real(|activities: &Activities<'_>| activities.rate_hz(|activity| activity.switches)),
    ])
}

/// The latencies of a window, and how many of its events have none because they were lost.
pub(super) struct WindowLatency<'w> {
    pub latency: &'w Distribution,
    /// Events that were due.
    pub offered: u64,
    /// Events that were never handled.
    pub lost: u64,
}

/// A latency in the windows of a point.
pub(super) struct Latency {
    /// The mean of each repetition.
    means: Values,
    /// The latencies of all repetitions together.
    all: Distribution,
    /// Share of the events of all repetitions that were lost.
    pub lost_ratio: f64,
}

impl Latency {
    /// `windows` has one distribution for each repetition. If a distribution is empty, `means` is empty, but `all` has
    /// the latencies of the other repetitions.
    pub fn from_windows<'w>(windows: impl Iterator<Item = WindowLatency<'w>>) -> Latency {
        let windows: Vec<WindowLatency<'w>> = windows.collect();
        let mut all = Distribution::default();
        windows.iter().for_each(|window| all.merge(window.latency));
        let offered: u64 = windows.iter().map(|window| window.offered).sum();
        let lost: u64 = windows.iter().map(|window| window.lost).sum();
        Latency {
            means: Values::from_windows(&windows, |window| window.latency.mean()),
            all,
            lost_ratio: lost as f64 / offered.max(1) as f64,
        }
    }

    /// Whether more events were lost than a scheme that keeps up may lose.
    pub fn has_losses(&self) -> bool {
        self.lost_ratio >= LOST_RATIO_MAX
    }

    /// The quantile of all events. Lost events count as later than all others. `None` if a lost event is the quantile.
    fn quantile(&self, per_100k: u32) -> Option<u64> {
        let per_100k_handled = f64::from(per_100k) / (1.0 - self.lost_ratio);
        if per_100k_handled >= 100_000.0 {
            return None;
        }
        self.all.quantile(per_100k_handled.round() as u32)
    }

    /// The maximum. `None` without events, or with more losses than a scheme that keeps up may have.
    fn max(&self) -> Option<u64> {
        (self.all.count > 0 && !self.has_losses()).then_some(self.all.peak.value)
    }
}

/// Explains the latencies of a row with losses in a warning.
pub(super) const LATENCY_WITH_LOSSES: &str = "the mean is that of the others; the quantiles count lost ones as later than all others, and are absent where \
     that leaves no figure, as is the maximum";

/// Columns of a latency: mean and interval, quantiles, and maximum. Their names start with `stem`. `meaning` describes
/// the latency in the columns' documentation.
pub(super) fn latency_columns<'a>(stem: &str, meaning: &str) -> Columns<'a, Latency> {
    let time = |suffix: &str, doc: String| {
        column(&format!("{stem}_{suffix}_ns"), &doc).format(Format::Microseconds)
    };
    let half_width_column = format!("{stem}_mean_ci95_ns");
    let quantile = |suffix, title, priority, word, per_100k| {
        let doc = format!(
            "The {word} of {meaning}, all repetitions together; exact within 1/16. Lost events count as later than all \
             others; absent if too many were lost for a figure."
        );
        time(suffix, doc)
            .shown_as(title, priority)
            .cost()
            .uint(move |latency: &Latency| latency.quantile(per_100k))
    };
    Columns::all([
        time("mean", format!("Mean of {meaning}, without lost events."))
            .shown_as(&format!("{stem} mean"), 90)
            .interval(over_repetitions(&half_width_column))
            .plus_minus(&half_width_column)
            .cost()
            .real(|latency: &Latency| latency.means.mean()),
        ci95(&half_width_column, &format!("{stem}_mean_ns"))
            .real(|latency: &Latency| latency.means.half_width()),
        quantile("p50", "p50", 94, "median", 50_000),
        quantile("p99", "p99", 92, "99th percentile", 99_000),
        quantile("p999", "p99.9", 70, "99.9th percentile", 99_900),
        time(
            "max",
            format!("Maximum of {meaning}; absent if one event in 10,000 or more was lost."),
        )
        .shown_as("max", 80)
        .uint(Latency::max),
    ])
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
