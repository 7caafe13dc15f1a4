//! Formats the last reading of `irqlab watch` as metrics for Prometheus. The server calls [`metrics()`] in the thread
//! of a scrape. The names, labels and units of the metrics are public: dashboards use them.

use std::collections::BTreeMap;
use std::sync::Arc;

use attribution::Context;
use lab::handlers::{ContextStats, Timing, WindowSample};
use report::{Buckets, Exposition, MetricKind, Metrics};
use stats::Distribution;

use super::alert::Alerts;
use super::throttled::Throttled;

/// The series that a context has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesOfContexts {
    /// One set over all CPUs, so that the number of series does not grow with the number of CPUs.
    #[default]
    OverAllCpus,
    /// A set for each CPU, with the label `cpu`.
    PerCpu,
}

impl SeriesOfContexts {
    /// The label `cpu` of the series that includes `stats`; `None` for the series over all CPUs.
    fn cpu(self, stats: &ContextStats) -> Option<u32> {
        (self == SeriesOfContexts::PerCpu).then_some(stats.cpu)
    }
}

/// Facts that do not change while the window is open.
#[derive(Clone, Debug, Default)]
pub struct Constants {
    /// The kernel's release.
    pub kernel: String,
    /// How the probes are attached.
    pub attachment: String,
    /// Time that a pair of probes adds to an empty span, ns.
    pub probe_overhead_ns: u64,
    pub series: SeriesOfContexts,
}

/// State of the alerts at the end of an interval.
#[derive(Clone, Debug, Default)]
pub struct AlertCounts {
    rules: Vec<RuleCounts>,
}

/// The counts of one rule of `--alert`.
#[derive(Clone, Debug)]
struct RuleCounts {
    /// The rule as the user wrote it: the label `rule`.
    rule: String,
    /// How often the rule has fired since the start.
    fired_count: u64,
    /// Number of contexts that make the rule fire now.
    firing_contexts: usize,
}

impl AlertCounts {
    pub fn from_alerts(alerts: &Alerts) -> AlertCounts {
        let counts = alerts.counts().map(|(rule, fired_count, firing_contexts)| RuleCounts {
            rule: rule.to_owned(),
            fired_count,
            firing_contexts,
        });
        AlertCounts { rules: counts.collect() }
    }
}

/// Exponents of the upper bounds of the histograms' buckets: `n` stands for the largest whole ns below 2^n. The
/// bounds are powers of four from 256 ns to 1.07 s. The recorded histogram has a bucket that ends at each power of
/// two, so the counts are exact.
const BOUND_BITS: [u32; 12] = [8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];

/// A row of the metrics: a context, on a CPU or over all CPUs. Entries of a reading with equal context
/// and CPU add up to one row.
struct Row {
    timing: Timing,
    count: u64,
    self_times: Distribution,
    labels: Vec<(&'static str, String)>,
}

impl Row {
    fn labels(&self) -> Vec<(&str, &str)> {
        borrowed(&self.labels)
    }
}

fn borrowed<'l>(labels: &'l [(&'static str, String)]) -> Vec<(&'l str, &'l str)> {
    labels.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// The labels of a context on a CPU; without a CPU, of its series over all CPUs.
fn labels(context: &Context, cpu: Option<u32>) -> Vec<(&'static str, String)> {
    let context = [
        ("kind", context.kind.label().to_owned()),
        ("name", context.name.clone()),
        ("number", context.number.to_string()),
    ];
    cpu.map(|cpu| ("cpu", cpu.to_string())).into_iter().chain(context).collect()
}

/// A context, and its CPU; `None` for the series over all CPUs.
type RowKey = (Context, Option<u32>);

/// The CPU time of each row as a counter: the largest total of its self times so far, ns. The total falls when a span
/// is shorter than its probe overhead, but a counter must not fall: Prometheus takes a smaller value for a restart,
/// and counts all of it again.
#[derive(Clone, Debug, Default)]
pub struct SelfTimeCounters(BTreeMap<RowKey, u64>);

impl SelfTimeCounters {
    fn add(&mut self, series: SeriesOfContexts, reading: &WindowSample) {
        let mut totals_ns: BTreeMap<RowKey, i64> = BTreeMap::new();
        for stats in &reading.contexts {
            let key = (stats.context.clone(), series.cpu(stats));
            let total_ns = totals_ns.entry(key).or_default();
            *total_ns = total_ns.saturating_add(stats.self_total_ns());
        }
        for (key, total_ns) in totals_ns {
            let counter_ns = self.0.entry(key).or_default();
            *counter_ns = u64::try_from(total_ns).unwrap_or(0).max(*counter_ns);
        }
    }

    fn seconds(&self, (context, cpu): (&Context, Option<u32>)) -> f64 {
        self.0.get(&(context.clone(), cpu)).copied().unwrap_or(0) as f64 / 1e9
    }
}

/// A reading for a scrape, with the counters at its end.
#[derive(Clone, Debug)]
pub struct Snapshot {
    reading: Arc<WindowSample>,
    self_times: SelfTimeCounters,
}

impl Snapshot {
    /// The snapshot of a further reading. `before`: the snapshot of the reading before; `None` for the first one.
    pub fn new(
        before: Option<&Snapshot>,
        series: SeriesOfContexts,
        reading: Arc<WindowSample>,
    ) -> Snapshot {
        let mut self_times = before.map(|before| before.self_times.clone()).unwrap_or_default();
        self_times.add(series, &reading);
        Snapshot { reading, self_times }
    }
}

/// The rows of a reading, sorted by context and CPU.
fn rows(
    series: SeriesOfContexts,
    reading: &WindowSample,
) -> BTreeMap<(&Context, Option<u32>), Row> {
    let mut rows: BTreeMap<(&Context, Option<u32>), Row> = BTreeMap::new();
    for stats in &reading.contexts {
        let cpu = series.cpu(stats);
        let row = rows.entry((&stats.context, cpu)).or_insert_with(|| Row {
            timing: stats.timing,
            count: 0,
            self_times: Distribution::default(),
            labels: labels(&stats.context, cpu),
        });
        row.count += stats.count;
        row.self_times.merge(&stats.own);
    }
    rows
}

/// A row of the delays: a softirq, a thread or a function, on a CPU or over all CPUs.
struct DelayRow {
    delays: Distribution,
    unjoined_end_count: u64,
    labels: Vec<(&'static str, String)>,
}

/// The delays of a reading, sorted by context and CPU. Empty if they are not measured.
fn delay_rows(series: SeriesOfContexts, reading: &WindowSample) -> Vec<DelayRow> {
    let mut rows: BTreeMap<(&Context, Option<u32>), DelayRow> = BTreeMap::new();
    for stats in reading.delays.iter().flatten() {
        let cpu = (series == SeriesOfContexts::PerCpu).then_some(stats.cpu);
        let row = rows.entry((&stats.context, cpu)).or_insert_with(|| DelayRow {
            delays: Distribution::default(),
            unjoined_end_count: 0,
            labels: labels(&stats.context, cpu),
        });
        row.delays.merge(&stats.delays);
        row.unjoined_end_count += stats.unjoined_end_count;
    }
    rows.into_values().collect()
}

/// Adds three families with a sample for each row of the delays. Adds none without rows.
fn add_delay_metrics(metrics: &mut Metrics, rows: &[DelayRow]) {
    if rows.is_empty() {
        return;
    }
    let seconds = Some("seconds");
    let help = "Time from the raise of a softirq, the queueing of a work item, the request for an interrupt's thread or the due \
                time of a timer, to its run.";
    let mut delays = metrics.family("irqlab_delay_seconds", MetricKind::Histogram, seconds, help);
    for row in rows {
        delays
            .histogram(&borrowed(&row.labels), &buckets(&row.delays, row.delays.sum as f64 / 1e9));
    }
    let help = "The longest delay since the probes were attached.";
    let mut longest = metrics.family("irqlab_delay_max_seconds", MetricKind::Gauge, seconds, help);
    for row in rows.iter().filter(|row| row.delays.count > 0) {
        longest.sample(&borrowed(&row.labels), row.delays.peak.value as f64 / 1e9);
    }
    let help = "Runs without a delay: no begin can be joined to them.";
    let mut unjoined =
        metrics.family("irqlab_delay_unjoined_runs", MetricKind::Counter, None, help);
    for row in rows {
        unjoined.sample(&borrowed(&row.labels), row.unjoined_end_count as f64);
    }
}

/// The metrics of a reading.
pub fn metrics(
    format: Exposition,
    constants: &Constants,
    snapshot: &Snapshot,
    alerts: &AlertCounts,
) -> String {
    let reading = &*snapshot.reading;
    let mut metrics = Metrics::new(format);
    add_measurement_metrics(&mut metrics, constants, reading);
    add_alert_metrics(&mut metrics, alerts);
    let rows = rows(constants.series, reading);
    let help = "Interrupts, softirqs, polls and page faults: spans that ended, or counted events.";
    let mut events = metrics.family("irqlab_context_events", MetricKind::Counter, None, help);
    rows.values().for_each(|row| events.sample(&row.labels(), row.count as f64));
    let has_times = |row: &&Row| !matches!(row.timing, Timing::CountOnly | Timing::Packets);
    let seconds = Some("seconds");
    let help =
        "Self time of each span, without the contexts nested within it and without the probes.";
    let mut times =
        metrics.family("irqlab_context_self_seconds", MetricKind::Histogram, seconds, help);
    for (key, row) in rows.iter().filter(|(_, row)| has_times(row)) {
        let sum_seconds = snapshot.self_times.seconds(*key);
        times.histogram(&row.labels(), &buckets(&row.self_times, sum_seconds));
    }
    let help = "The longest self time of a span since the probes were attached.";
    let mut longest =
        metrics.family("irqlab_context_self_max_seconds", MetricKind::Gauge, seconds, help);
    for row in rows.values().filter(has_times).filter(|row| row.count > 0) {
        longest.sample(&row.labels(), row.self_times.peak.value as f64 / 1e9);
    }
    let help = "Packets that polls handled, by NAPI instance.";
    let mut packets = metrics.family("irqlab_napi_packets", MetricKind::Counter, None, help);
    for row in rows.values().filter(|row| row.timing == Timing::Packets) {
        packets.sample(&row.labels(), row.self_times.sum as f64);
    }
    add_delay_metrics(&mut metrics, &delay_rows(constants.series, reading));
    metrics.finish()
}

/// Adds two families, each with a sample for each rule. Adds none without rules.
fn add_alert_metrics(metrics: &mut Metrics, alerts: &AlertCounts) {
    if alerts.rules.is_empty() {
        return;
    }
    let help = "Contexts that break a rule of --alert now, for as long as the rule says.";
    let mut firing = metrics.family("irqlab_alert_firing_contexts", MetricKind::Gauge, None, help);
    for counts in &alerts.rules {
        firing.sample(&[("rule", counts.rule.as_str())], counts.firing_contexts as f64);
    }
    let help = "How often a rule of --alert has fired.";
    let mut fired = metrics.family("irqlab_alerts", MetricKind::Counter, None, help);
    for counts in &alerts.rules {
        fired.sample(&[("rule", counts.rule.as_str())], counts.fired_count as f64);
    }
}

/// Adds the metrics about the measurement itself: how it is done, its length, and its overhead.
fn add_measurement_metrics(metrics: &mut Metrics, constants: &Constants, reading: &WindowSample) {
    let (counter, gauge, seconds) = (MetricKind::Counter, MetricKind::Gauge, Some("seconds"));
    let help = "The measuring program: its version, the kernel, and how the probes are attached.";
    let labels = [
        ("version", crate::VERSION),
        ("kernel", constants.kernel.as_str()),
        ("attachment", constants.attachment.as_str()),
    ];
    metrics.family("irqlab_build_info", gauge, None, help).sample(&labels, 1.0);
    let help = "How long each CPU has been observed, until it goes offline.";
    let mut observed = metrics.family("irqlab_observed_seconds", counter, seconds, help);
    for window in &reading.windows {
        observed.sample(&[("cpu", &window.cpu.to_string())], window.length_ns as f64 / 1e9);
    }
    let help = "Events that were not counted: the kernel dropped them, or a map had no room.";
    metrics.family("irqlab_lost_events", counter, None, help).sample(&[], reading.lost() as f64);
    if let Some(ns) = reading.probe_ns {
        let help =
            "CPU time of the probes on all CPUs, from their overhead as measured on each CPU.";
        metrics
            .family("irqlab_probe_cpu_seconds", counter, seconds, help)
            .sample(&[], ns as f64 / 1e9);
    }
    if let Some(throttled) = Throttled::between(None, reading) {
        let help = "Time for which a CPU quota stopped this process's control groups, summed over the CPUs.";
        metrics
            .family("irqlab_cpu_quota_throttled_seconds", counter, seconds, help)
            .sample(&[], throttled.time_ns as f64 / 1e9);
    }
    let help =
        "Time that a pair of probes adds to an empty span in a warm loop, measured at the start.";
    metrics
        .family("irqlab_probe_overhead_seconds", gauge, seconds, help)
        .sample(&[], constants.probe_overhead_ns as f64 / 1e9);
    if let Some(ns) = reading.user_cpu_ns {
        let help = "CPU time of this process since the probes were attached.";
        metrics
            .family("irqlab_process_cpu_seconds", counter, seconds, help)
            .sample(&[], ns as f64 / 1e9);
    }
}

/// The distribution as cumulative buckets, in seconds. `sum_seconds`: the sum of the times. For self times, the distribution's
/// own sum is too large, because it has 0 for spans that are shorter than their probe overhead.
fn buckets(times: &Distribution, sum_seconds: f64) -> Buckets {
    let bound = |bits: u32| (1_u64 << bits, ((1_u64 << bits) - 1) as f64 / 1e9);
    let up_to =
        BOUND_BITS.map(bound).map(|(limit_ns, seconds)| (seconds, times.histogram.below(limit_ns)));
    // Not `times.count`: a span that ended while its row was read may be in the count and not in the histogram, or
    // the reverse. Prometheus requires that the count equals the last bucket.
    Buckets { up_to: up_to.to_vec(), count: times.histogram.total(), sum: Some(sum_seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attribution::ContextKind;
    use lab::handlers::{DelayMethod, DelayStats};

    fn stats(kind: ContextKind, name: &str, timing: Timing, values: &[u64]) -> ContextStats {
        let mut times = Distribution::default();
        values.iter().for_each(|value| times.record(*value, 0));
        let context = Context { kind, number: 7, name: name.to_owned() };
        ContextStats { own: times, ..ContextStats::new(1, context, timing, values.len() as u64) }
    }

    /// The lines of text that are samples, each of them one series.
    fn series_count(text: &str) -> usize {
        text.lines().filter(|line| !line.starts_with('#')).count()
    }

    #[test]
    fn a_context_has_one_set_of_series_however_many_cpus_there_are() {
        let on_cpu = |cpu| {
            let contexts = [
                stats(ContextKind::HardIrq, "eth0", Timing::Probes, &[300]),
                stats(ContextKind::NapiPoll, "eth0", Timing::Packets, &[2]),
                stats(ContextKind::Exception, "fault", Timing::CountOnly, &[1]),
            ];
            contexts.into_iter().map(move |stats| ContextStats { cpu, ..stats })
        };
        let contexts = (0..256).flat_map(on_cpu).collect();
        let reading = Arc::new(WindowSample { contexts, ..WindowSample::default() });
        let text = |series| {
            let constants = Constants { series, ..Constants::default() };
            let snapshot = Snapshot::new(None, series, Arc::clone(&reading));
            metrics(Exposition::Prometheus, &constants, &snapshot, &AlertCounts::default())
        };
        let summed = text(SeriesOfContexts::OverAllCpus);
        let without_contexts = series_count(&metrics(
            Exposition::Prometheus,
            &Constants::default(),
            &Snapshot::new(None, SeriesOfContexts::OverAllCpus, Arc::default()),
            &AlertCounts::default(),
        ));
        assert_eq!(series_count(&summed), without_contexts + 17 + 2 + 1);
        let labels = "kind=\"irq\",name=\"eth0\",number=\"7\"";
        assert!(summed.contains(&format!("irqlab_context_events_total{{{labels}}} 256.0\n")));
        let per_cpu = text(SeriesOfContexts::PerCpu);
        assert_eq!(series_count(&per_cpu), without_contexts + 256 * (17 + 2 + 1));
        assert!(
            per_cpu.contains(&format!("irqlab_context_events_total{{cpu=\"255\",{labels}}} 1.0\n"))
        );
    }

    #[test]
    fn delays_have_series_only_if_they_are_measured() {
        let delays_of = |cpu, values: &[u64]| {
            let mut delays = Distribution::default();
            values.iter().for_each(|value| delays.record(*value, 0));
            DelayStats {
                cpu,
                context: Context {
                    kind: ContextKind::Softirq,
                    number: 3,
                    name: "NET_RX".to_owned(),
                },
                method: DelayMethod { begins: "raise", ends: "run", not_seen: "nothing" },
                delays,
                unjoined_end_count: 2,
                unjoined_begin_count: 0,
                awake_count: None,
            }
        };
        let text = |delays: Option<Vec<DelayStats>>, series| {
            let constants = Constants { series, ..Constants::default() };
            let reading = WindowSample { delays, ..WindowSample::default() };
            let snapshot = Snapshot::new(None, series, Arc::new(reading));
            metrics(Exposition::Prometheus, &constants, &snapshot, &AlertCounts::default())
        };
        let measured = || Some(vec![delays_of(0, &[300, 5_000]), delays_of(1, &[900])]);
        let without = text(None, SeriesOfContexts::OverAllCpus);
        let summed = text(measured(), SeriesOfContexts::OverAllCpus);
        assert_eq!(series_count(&summed), series_count(&without) + 17);
        let labels = "kind=\"softirq\",name=\"NET_RX\",number=\"3\"";
        for line in [
            format!("irqlab_delay_seconds_bucket{{{labels},le=\"1.023e-06\"}} 2"),
            format!("irqlab_delay_seconds_count{{{labels}}} 3"),
            format!("irqlab_delay_unjoined_runs_total{{{labels}}} 4.0"),
        ] {
            assert!(summed.lines().any(|found| found == line), "{line}\n{summed}");
        }
        let per_cpu = text(measured(), SeriesOfContexts::PerCpu);
        assert_eq!(series_count(&per_cpu), series_count(&without) + 2 * 17);
    }

    #[test]
    fn two_actions_of_one_name_are_one_series_with_exact_buckets() {
        let irq = |values: &[u64]| stats(ContextKind::HardIrq, "a\"b", Timing::Probes, values);
        let fault = stats(ContextKind::Exception, "fault", Timing::CountOnly, &[]);
        let contexts = vec![irq(&[255, 256]), irq(&[1 << 31]), fault];
        let reading = WindowSample { contexts, ..WindowSample::default() };
        let rule = "irq[name=a].rate > 5".to_owned();
        let alerts =
            AlertCounts { rules: vec![RuleCounts { rule, fired_count: 7, firing_contexts: 2 }] };
        let snapshot = Snapshot::new(None, SeriesOfContexts::OverAllCpus, Arc::new(reading));
        let text = metrics(Exposition::OpenMetrics, &Constants::default(), &snapshot, &alerts);
        let labels = "kind=\"irq\",name=\"a\\\"b\",number=\"7\"";
        for line in [
            "irqlab_alert_firing_contexts{rule=\"irq[name=a].rate > 5\"} 2.0".to_owned(),
            "irqlab_alerts_total{rule=\"irq[name=a].rate > 5\"} 7.0".to_owned(),
            format!("irqlab_context_events_total{{{labels}}} 3.0"),
            format!("irqlab_context_self_seconds_bucket{{{labels},le=\"2.55e-07\"}} 1"),
            format!("irqlab_context_self_seconds_bucket{{{labels},le=\"1.023e-06\"}} 2"),
            format!("irqlab_context_self_seconds_bucket{{{labels},le=\"+Inf\"}} 3"),
            format!("irqlab_context_self_max_seconds{{{labels}}} 2.147483648"),
        ] {
            assert_eq!(text.lines().filter(|found| **found == line).count(), 1, "{line}\n{text}");
        }
        assert!(!text.contains("self_seconds_bucket{kind=\"exception\""), "{text}");
    }

    /// Two spans of 300 ns, and short ones that lack 50 ns each after the overhead is subtracted.
    #[test]
    fn the_sum_of_self_times_counts_short_spans_as_negative_and_never_falls() {
        let snapshot = |before: Option<&Snapshot>, short: u64| {
            let values = [[300; 2].to_vec(), vec![0; short as usize]].concat();
            let stats = ContextStats {
                clamped_count: short,
                clamped_total_ns: 50 * short,
                ..stats(ContextKind::HardIrq, "eth0", Timing::Probes, &values)
            };
            let reading = WindowSample { contexts: vec![stats], ..WindowSample::default() };
            Snapshot::new(before, SeriesOfContexts::OverAllCpus, Arc::new(reading))
        };
        let sum = |snapshot: &Snapshot| -> String {
            let (constants, alerts) = (Constants::default(), AlertCounts::default());
            let text = metrics(Exposition::Prometheus, &constants, snapshot, &alerts);
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with("irqlab_context_self_seconds_sum"));
            line.and_then(|line| line.split_once("} ")).expect("a sum").1.to_owned()
        };
        let first = snapshot(None, 4);
        assert_eq!(sum(&first), "4.0e-07");
        let second = snapshot(Some(&first), 6);
        assert_eq!(sum(&second), "4.0e-07", "300 ns would look like a restart");
        assert_eq!(sum(&snapshot(Some(&second), 1)), "5.5e-07");
        assert_eq!(sum(&snapshot(None, 40)), "0.0");
    }
}
