//! Rates and times of each context between two readings of a window that stays open. `irqlab watch` shows them.
//!
//! A reading is a [`WindowSample`] with the totals since the window opened. The difference of two
//! readings is exact, except for spans that end while a row is read. This interval may then contain such
//! a span's count, and the next interval its time.

use std::collections::BTreeMap;

use attribution::Context;
use stats::Distribution;

use super::delay_rates::{self, DelayRates};
use super::sample::{ContextStats, CpuWindow, SpanOverhead, Timing, WindowSample};

/// The rates of the interval between two readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Mean length of the interval over the CPUs that stayed online, ns.
    pub length_ns: u64,
    /// Interrupts of all CPUs over `length_ns`. Each counts once, as in [`CpuRates::interrupt_rate_hz`]. A CPU that went
    /// offline in the interval adds the interrupts that it took.
    pub interrupt_rate_hz: f64,
    /// Self time of all timed contexts over the CPU time of all CPUs. Can be negative, as [`CpuRates::self_ratio`].
    pub self_ratio: f64,
    /// The CPUs, by ascending number.
    pub cpus: Vec<CpuRates>,
    /// Each context on all CPUs together and then on each CPU, in the order of tables. A context that did not occur in
    /// the interval has a count of 0.
    pub contexts: Vec<ContextRates>,
    /// The delays of softirqs, work items, threads and timers; `None` if they are not measured.
    pub delays: Option<Vec<DelayRates>>,
    /// Events lost in the interval: the kernel dropped them, or they had no room in a map.
    pub lost_count: u64,
    /// CPU time of the probes, measured in situ, over the CPU time of all CPUs. `None` if
    /// the bench did not measure the probes' time.
    pub probe_ratio: Option<f64>,
    /// CPU time of the measuring process over the interval's length; 1 means one busy CPU.
    pub process_ratio: Option<f64>,
}

/// The rates of one CPU in the interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuRates {
    pub cpu: u32,
    /// Whether the CPU went offline before the interval.
    pub is_offline: bool,
    /// IRQs, vectors and NMIs per second. Softirqs and polls are not included, because they run within or after an
    /// interrupt. Exceptions are not included either. An interrupt of a shared line with several actions counts once.
    pub interrupt_rate_hz: f64,
    /// Self time of all timed contexts over the interval's length. Shares below the detection limit are
    /// included, so it can be negative.
    pub self_ratio: f64,
}

/// The rates of one context in the interval.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextRates {
    /// `None`: all CPUs together.
    pub cpu: Option<u32>,
    pub context: Context,
    pub timing: Timing,
    /// Spans that ended, polls, or faults.
    pub count: u64,
    /// `count` per second of the interval.
    pub rate_hz: f64,
    /// `None` for a context without times.
    pub times: Option<SelfTimes>,
}

/// Self times of a context in the interval. The times per span are `None` if no span ended in the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SelfTimes {
    /// Self time of all spans over the CPU time of the row's CPUs: `count` times the mean. Can be negative
    /// below the detection limit.
    pub cpu_ratio: f64,
    /// Half width of the 95 % confidence interval of `cpu_ratio`, by the probe overhead that was subtracted. `None` for
    /// times without probe overhead.
    pub cpu_error_ratio: Option<f64>,
    /// Mean per span; the probe overhead is subtracted.
    pub mean_ns: Option<f64>,
    /// Half width of the 95 % confidence interval of the probe overhead that was subtracted from a span. `None` for times
    /// without probe overhead. A mean up to this limit cannot be distinguished from 0.
    pub overhead_error_ns: Option<f64>,
    /// 99th percentile, within 1/32; `None` with fewer than 100 spans.
    pub p99_ns: Option<u64>,
    /// The longest span. Exact if no earlier span of the window was longer. Otherwise the upper bound of its
    /// bucket, at most 1/16 above the exact value.
    pub max_ns: Option<u64>,
    /// The longest span since the window opened; exact.
    pub max_since_open_ns: Option<u64>,
}

impl SelfTimes {
    /// The upper bound of a mean below the detection limit, ns. `None` if the mean is above it.
    #[must_use]
    pub fn mean_bound_ns(&self) -> Option<f64> {
        let (mean, limit) = self.mean_ns.zip(self.overhead_error_ns)?;
        (mean <= limit).then_some(mean + limit)
    }

    /// The upper bound of a share of CPU time below the detection limit. `None` if the share is above it.
    #[must_use]
    pub fn cpu_bound_ratio(&self) -> Option<f64> {
        self.mean_bound_ns()?;
        Some(self.cpu_ratio + self.cpu_error_ratio?)
    }
}

/// Totals of one context since the window opened, on one CPU or on all CPUs.
pub(super) struct Total {
    timing: Timing,
    count: u64,
    self_total_ns: i64,
    overhead_total_ns: u64,
    self_times: Distribution,
}

/// Totals by context and CPU. A CPU of `None` stands for all CPUs together.
type Totals<'a> = BTreeMap<(&'a Context, Option<u32>), Total>;

/// Sums a reading's statistics. Two entries of one context on a CPU, such as two actions of one name on an IRQ
/// line, become one total.
fn totals(reading: &WindowSample) -> Totals<'_> {
    let mut totals = Totals::new();
    for stats in &reading.contexts {
        for cpu in [None, Some(stats.cpu)] {
            let total = totals.entry((&stats.context, cpu));
            total.or_insert_with(|| Total::new(stats.timing)).add(stats);
        }
    }
    totals
}

impl Total {
    pub(super) fn new(timing: Timing) -> Total {
        Total {
            timing,
            count: 0,
            self_total_ns: 0,
            overhead_total_ns: 0,
            self_times: Distribution::default(),
        }
    }

    /// Adds times from which nothing is subtracted.
    pub(super) fn add_times(&mut self, times: &Distribution) {
        self.count += times.count;
        let sum = i64::try_from(times.sum).unwrap_or(i64::MAX);
        self.self_total_ns = self.self_total_ns.saturating_add(sum);
        self.self_times.merge(times);
    }

    fn add(&mut self, stats: &ContextStats) {
        self.count += stats.count;
        self.self_total_ns = self.self_total_ns.saturating_add(stats.self_total_ns());
        self.overhead_total_ns += stats.probe_overhead_total_ns;
        self.self_times.merge(&stats.own);
    }
}

impl Rates {
    /// The rates between two readings of one window. Without `before`, the interval starts when the window opened.
    /// `warm_overhead_ns`: the probe overhead within a span in warm caches, for the detection limit of means.
    #[must_use]
    pub fn between(
        before: Option<&WindowSample>,
        after: &WindowSample,
        warm_overhead_ns: u64,
    ) -> Rates {
        let cpu_intervals = cpu_intervals(before, after);
        let cpu_time_ns: u64 = cpu_intervals.values().map(|interval| interval.length_ns).sum();
        let length_ns = mean_interval_ns(cpu_intervals.values());
        let totals_before = before.map(totals).unwrap_or_default();
        // On a CPU that was offline all the time nothing was measured: its rates are not 0.
        let interval_of = |cpu: Option<u32>| match cpu {
            None => Some(Interval { cpu_time_ns, length_ns, start_ns: None, warm_overhead_ns }),
            Some(number) => {
                let interval = cpu_intervals.get(&number);
                let interval = interval.filter(|interval| interval.length_ns > 0)?;
                Some(Interval {
                    cpu_time_ns: interval.length_ns,
                    length_ns: interval.length_ns,
                    start_ns: interval.start_ns,
                    warm_overhead_ns,
                })
            }
        };
        let mut contexts = Vec::new();
        for ((context, cpu), total) in totals(after) {
            let Some(interval) = interval_of(cpu) else { continue };
            let total_before = totals_before.get(&(context, cpu));
            contexts.push(interval.rates((context, cpu), total_before, &total));
        }
        let value_before = |field: fn(&WindowSample) -> u64| before.map_or(0, field);
        let ratio = |ns: u64, total_ns: u64| (total_ns > 0).then(|| ns as f64 / total_ns as f64);
        let probe_ns = after.probe_ns.map(|after| {
            after.saturating_sub(before.and_then(|before| before.probe_ns).unwrap_or(0))
        });
        let process_ns = after.user_cpu_ns.map(|after| {
            after.saturating_sub(before.and_then(|before| before.user_cpu_ns).unwrap_or(0))
        });
        let interrupts_before = before.map(interrupt_counts).unwrap_or_default();
        let interrupts = interrupt_counts(after);
        let interrupt_count = |cpu: u32| {
            let [before, after] =
                [&interrupts_before, &interrupts].map(|counts| counts.get(&cpu).copied());
            after.unwrap_or(0).saturating_sub(before.unwrap_or(0))
        };
        let cpu_rates = |(cpu, interval): (&u32, &CpuInterval)| CpuRates {
            cpu: *cpu,
            is_offline: interval.went_offline && interval.length_ns == 0,
            interrupt_rate_hz: per_second(interrupt_count(*cpu), interval.length_ns),
            self_ratio: self_ratio(&contexts, Some(*cpu)),
        };
        Rates {
            length_ns,
            interrupt_rate_hz: per_second(
                cpu_intervals.keys().copied().map(interrupt_count).sum(),
                length_ns,
            ),
            self_ratio: self_ratio(&contexts, None),
            cpus: cpu_intervals.iter().map(cpu_rates).collect(),
            contexts,
            delays: delay_rates::between(before, after, interval_of),
            lost_count: after.lost().saturating_sub(value_before(WindowSample::lost)),
            probe_ratio: probe_ns.and_then(|ns| ratio(ns, cpu_time_ns)),
            process_ratio: process_ns.and_then(|ns| ratio(ns, length_ns)),
        }
    }
}

/// Interrupts since the window opened, by CPU: IRQs, vectors and NMIs. Each action of a shared line has its own row, and only
/// that of the line's first action counts.
fn interrupt_counts(reading: &WindowSample) -> BTreeMap<u32, u64> {
    use attribution::ContextKind::{HardIrq, Nmi, Vector};
    let mut counts = BTreeMap::new();
    for stats in &reading.contexts {
        if matches!(stats.context.kind, HardIrq | Vector | Nmi) && !stats.shared {
            *counts.entry(stats.cpu).or_default() += stats.count;
        }
    }
    counts
}

/// Self time of all timed contexts on a CPU, or on all CPUs for `None`, over the CPU time.
fn self_ratio(contexts: &[ContextRates], cpu: Option<u32>) -> f64 {
    let rows = contexts.iter().filter(|rates| rates.cpu == cpu);
    rows.filter_map(|rates| rates.times).map(|times| times.cpu_ratio).sum()
}

/// `count` per second of an interval; 0 if the interval has no length.
fn per_second(count: u64, length_ns: u64) -> f64 {
    if length_ns > 0 { count as f64 / (length_ns as f64 / 1e9) } else { 0.0 }
}

/// Mean length of the interval over the CPUs that stayed online, ns. If no CPU stayed online: the maximum length.
fn mean_interval_ns<'a>(intervals: impl Iterator<Item = &'a CpuInterval> + Clone) -> u64 {
    let online = || intervals.clone().filter(|interval| !interval.went_offline);
    match online().count() as u64 {
        0 => intervals.clone().map(|interval| interval.length_ns).max().unwrap_or(0),
        count => online().map(|interval| interval.length_ns).sum::<u64>() / count,
    }
}

/// The interval between two readings on one CPU.
struct CpuInterval {
    length_ns: u64,
    /// Whether the CPU's window has ended because the CPU went offline, in this interval or before.
    went_offline: bool,
    /// Start of the interval by the clock of the peaks, ns; `None` if the window may have another clock.
    start_ns: Option<u64>,
}

/// The interval between two readings on each CPU with a window, by CPU. Without `before`, or for a CPU that `before`
/// lacks, the interval starts when the window opened.
fn cpu_intervals(
    before: Option<&WindowSample>,
    after: &WindowSample,
) -> BTreeMap<u32, CpuInterval> {
    let lengths_before_ns: BTreeMap<u32, u64> = before
        .map(|reading| {
            reading.windows.iter().map(|window| (window.cpu, window.length_ns)).collect()
        })
        .unwrap_or_default();
    let cpu_and_interval = |window: &CpuWindow| {
        let length_before_ns = lengths_before_ns.get(&window.cpu).copied().unwrap_or(0);
        let interval = CpuInterval {
            length_ns: window.length_ns.saturating_sub(length_before_ns),
            went_offline: window.went_offline,
            start_ns: window.start_ns.map(|start_ns| start_ns.saturating_add(length_before_ns)),
        };
        (window.cpu, interval)
    };
    after.windows.iter().map(cpu_and_interval).collect()
}

/// The interval between two readings, on one CPU or on all CPUs together.
pub(super) struct Interval {
    /// Sum of the interval's lengths over the CPUs, ns.
    cpu_time_ns: u64,
    /// Mean length of the interval over the CPUs, ns.
    length_ns: u64,
    /// Start of the interval by the clock of the peaks, ns; `None` for all CPUs together.
    start_ns: Option<u64>,
    warm_overhead_ns: u64,
}

impl Interval {
    /// The rates of a context from its totals at the start (`before`) and at the end of the interval. Without
    /// `before`, the totals were 0.
    pub(super) fn rates(
        &self,
        (context, cpu): (&Context, Option<u32>),
        before: Option<&Total>,
        after: &Total,
    ) -> ContextRates {
        let count = after.count.saturating_sub(before.map_or(0, |before| before.count));
        let is_timed = !matches!(after.timing, Timing::CountOnly | Timing::Packets);
        ContextRates {
            cpu,
            context: context.clone(),
            timing: after.timing,
            count,
            rate_hz: per_second(count, self.length_ns),
            times: is_timed.then(|| self.times(count, before, after)),
        }
    }

    /// The self times of the `count` spans that ended in the interval, from the totals at its start and end.
    fn times(&self, count: u64, before: Option<&Total>, after: &Total) -> SelfTimes {
        let total_before = before.map_or(0, |before| before.self_total_ns);
        let total = after.self_total_ns.saturating_sub(total_before);
        let histogram = match before {
            Some(before) => after.self_times.histogram.since(&before.self_times.histogram),
            None => after.self_times.histogram.clone(),
        };
        let peak = after.self_times.peak;
        let has_spans = count > 0;
        let overhead_before = before.map_or(0, |before| before.overhead_total_ns);
        let overhead = after.overhead_total_ns.saturating_sub(overhead_before);
        let overhead_error_ns = (has_spans && after.timing == Timing::Probes).then(|| {
            let mean_ns = overhead as f64 / count as f64;
            SpanOverhead { mean_ns, warm_ns: self.warm_overhead_ns as f64 }.half_width_95_ns()
        });
        // The peak is the longest span since the window opened. It is exact for this interval only if it is new.
        let is_new_peak = before.is_none_or(|before| peak.value > before.self_times.peak.value)
            || self.start_ns.is_some_and(|start| peak.at >= start);
        let buckets = histogram.filled_up_to(peak.value);
        let bucket_max = buckets.last().map(|(_, high, _)| high.min(peak.value));
        let max_ns = if is_new_peak { Some(peak.value) } else { bucket_max };
        let ratio = |ns: f64| if self.cpu_time_ns > 0 { ns / self.cpu_time_ns as f64 } else { 0.0 };
        SelfTimes {
            // Not the sum of the distribution: there, a span shorter than its probe overhead counts as 0.
            cpu_ratio: ratio(total as f64),
            cpu_error_ratio: overhead_error_ns.map(|error_ns| ratio(error_ns * count as f64)),
            mean_ns: has_spans.then(|| total as f64 / count as f64),
            overhead_error_ns,
            p99_ns: histogram.quantile(99_000).map(|value| value.min(peak.value)),
            max_ns: if has_spans { max_ns } else { None },
            max_since_open_ns: (after.count > 0).then_some(peak.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attribution::ContextKind;

    /// A context with one span per value. The spans end 1 ns, 2 ns and so on after the window opened.
    fn stats(cpu: u32, name: &str, timing: Timing, values: &[u64]) -> ContextStats {
        let mut self_times = Distribution::default();
        (1..).zip(values).for_each(|(end_ns, value)| self_times.record(*value, end_ns));
        let context = Context { kind: ContextKind::HardIrq, number: 36, name: name.to_owned() };
        let count = values.len() as u64;
        ContextStats { own: self_times, ..ContextStats::new(cpu, context, timing, count) }
    }

    /// A reading `length_ns` after the window opened on two CPUs.
    fn reading(length_ns: u64, contexts: Vec<ContextStats>) -> WindowSample {
        let window = |cpu| CpuWindow { cpu, start_ns: Some(0), length_ns, ..CpuWindow::default() };
        WindowSample {
            windows: vec![window(0), window(1)],
            contexts,
            probe_ns: Some(length_ns / 50),
            user_cpu_ns: Some(length_ns / 1000),
            ..WindowSample::default()
        }
    }

    fn find<'a>(rates: &'a Rates, cpu: Option<u32>, name: &str) -> &'a ContextRates {
        let matches = |rates: &&ContextRates| rates.cpu == cpu && rates.context.name == name;
        rates.contexts.iter().find(matches).unwrap()
    }

    #[test]
    fn an_interval_is_the_difference_of_two_readings() {
        let before = reading(1_000, vec![stats(0, "disk", Timing::Probes, &[100, 500])]);
        let after = reading(
            3_000,
            vec![
                stats(0, "disk", Timing::Probes, &[100, 500, 200, 200]),
                stats(1, "disk", Timing::Probes, &[600]),
                stats(1, "fault", Timing::CountOnly, &[]),
            ],
        );
        let rates = Rates::between(Some(&before), &after, 0);
        assert_eq!(rates.length_ns, 2_000);
        let on_0 = find(&rates, Some(0), "disk");
        let times = on_0.times.unwrap();
        assert_eq!((on_0.count, on_0.rate_hz), (2, 1e6));
        assert_eq!((times.mean_ns, times.cpu_ratio), (Some(200.0), 0.2));
        // The bucket of 200 ends at 207. The span of 500 came before the interval.
        assert_eq!((times.max_ns, times.max_since_open_ns), (Some(207), Some(500)));
        let all = find(&rates, None, "disk");
        let times = all.times.unwrap();
        assert_eq!((all.count, all.rate_hz, times.cpu_ratio), (3, 1.5e6, 0.25));
        assert_eq!((times.max_ns, times.p99_ns), (Some(600), None), "a new peak is exact");
        assert_eq!(find(&rates, Some(1), "fault").times, None);
        assert_eq!(rates.cpus.iter().map(|cpu| cpu.self_ratio).collect::<Vec<_>>(), [0.2, 0.3]);
        assert_eq!((rates.probe_ratio, rates.process_ratio), (Some(0.01), Some(0.001)));
    }

    #[test]
    fn a_mean_within_the_error_of_the_overhead_has_an_upper_bound() {
        let overhead_of_100 = |values: &[u64]| ContextStats {
            probe_overhead_total_ns: 100 * values.len() as u64,
            ..stats(0, "disk", Timing::Probes, values)
        };
        let bound = |values: &[u64]| {
            let rates = Rates::between(None, &reading(1_000, vec![overhead_of_100(values)]), 100);
            find(&rates, None, "disk").times.unwrap().mean_bound_ns()
        };
        // A quarter of the overhead is the detection limit.
        assert_eq!((bound(&[20, 24]), bound(&[30, 40])), (Some(22.0 + 25.0), None));
    }

    /// Two spans of 200 ns, and two that were 150 ns shorter than their overhead: 0 in the distribution.
    #[test]
    fn a_share_of_cpu_time_is_the_count_times_the_mean() {
        let with_short_spans = ContextStats {
            probe_overhead_total_ns: 4 * 400,
            clamped_count: 2,
            clamped_total_ns: 2 * 150,
            ..stats(0, "disk", Timing::Probes, &[200, 200, 0, 0])
        };
        let rates = Rates::between(None, &reading(1_000, vec![with_short_spans]), 400);
        let times = find(&rates, Some(0), "disk").times.unwrap();
        assert_eq!((times.mean_ns, times.cpu_ratio), (Some(25.0), 0.1));
        assert_eq!(times.mean_bound_ns(), Some(125.0));
        assert_eq!(times.cpu_bound_ratio(), Some(0.1 + 0.4));
        assert_eq!(rates.cpus[0].self_ratio, 0.1);
    }

    #[test]
    fn a_context_that_did_not_come_has_no_times_and_no_row() {
        let first = reading(1_000, vec![stats(0, "disk", Timing::Probes, &[100])]);
        let second = reading(2_000, first.contexts.clone());
        let rates = Rates::between(Some(&first), &second, 0);
        let times = find(&rates, Some(0), "disk").times.unwrap();
        assert_eq!((times.mean_ns, times.max_ns, times.max_since_open_ns), (None, None, Some(100)));
        assert!(rates.table().rows().is_empty());
        assert_eq!(Rates::between(None, &second, 0).table().rows().len(), 2);
    }

    /// CPU 1 goes offline at 1,500 ns. Its context stops. The context of CPU 0 keeps its rate.
    #[test]
    fn a_cpu_that_went_offline_is_in_no_later_interval() {
        let on_two_cpus = |first: &[u64], second: &[u64]| {
            vec![stats(0, "disk", Timing::Probes, first), stats(1, "disk", Timing::Probes, second)]
        };
        let offline = |length_ns, contexts| {
            let mut reading = reading(length_ns, contexts);
            (reading.windows[1].length_ns, reading.windows[1].went_offline) = (1_500, true);
            reading
        };
        let first = reading(1_000, on_two_cpus(&[100], &[100]));
        let second = offline(2_000, on_two_cpus(&[100, 100], &[100, 100]));
        let third = offline(3_000, on_two_cpus(&[100, 100, 100], &[100, 100]));
        let rates = Rates::between(Some(&first), &second, 0);
        assert_eq!(rates.length_ns, 1_000);
        assert_eq!(find(&rates, Some(1), "disk").rate_hz, 2e6, "one in 500 ns");
        assert_eq!(find(&rates, None, "disk").times.unwrap().cpu_ratio, 200.0 / 1_500.0);
        // The sums agree with the row of all CPUs.
        assert_eq!((rates.interrupt_rate_hz, rates.self_ratio), (2e6, 200.0 / 1_500.0));
        assert_eq!(rates.cpus[1].interrupt_rate_hz, 2e6, "one in 500 ns");
        let rates = Rates::between(Some(&second), &third, 0);
        assert_eq!(rates.length_ns, 1_000);
        assert_eq!(find(&rates, None, "disk").rate_hz, 1e6);
        assert_eq!(find(&rates, Some(0), "disk").rate_hz, 1e6);
        assert_eq!(rates.cpus.iter().map(|cpu| cpu.is_offline).collect::<Vec<_>>(), [false, true]);
        let of_the_offline = rates.contexts.iter().filter(|context| context.cpu == Some(1));
        assert_eq!(of_the_offline.count(), 0, "not measured, so not 0");
    }

    #[test]
    fn an_interrupt_of_a_shared_line_counts_once() {
        let action = |name: &str, shared: bool, count: usize| ContextStats {
            shared,
            ..stats(0, name, Timing::Probes, &vec![10; count])
        };
        let line = |count: usize| vec![action("a", false, count), action("b", true, count)];
        let (before, after) = (reading(1_000, line(1)), reading(3_000, line(5)));
        let rates = Rates::between(Some(&before), &after, 0);
        let counts = ["a", "b"].map(|name| find(&rates, Some(0), name).count);
        assert_eq!(counts, [4, 4], "each action has its row");
        assert_eq!((rates.cpus[0].interrupt_rate_hz, rates.interrupt_rate_hz), (2e6, 2e6));
        assert_eq!(rates.cpus[0].self_ratio, 80.0 / 2_000.0, "and its time");
    }

    #[test]
    fn two_actions_of_one_name_are_one_row() {
        let action = || stats(0, "shared", Timing::Probes, &[10]);
        let rates = Rates::between(None, &reading(1_000, vec![action(), action()]), 0);
        assert_eq!(find(&rates, Some(0), "shared").count, 2);
        assert_eq!(rates.contexts.len(), 2);
    }
}
