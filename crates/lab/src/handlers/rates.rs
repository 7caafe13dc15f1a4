//! What happened between two readings of a window that stays open: how often each context came, and what
//! it took.
//!
//! A reading is a [`WindowSample`] with the totals since the window opened. A difference of two is exact
//! but for spans that end while a row is read: those may be in one sum of this interval, and in another
//! sum of the next one.

use std::collections::BTreeMap;

use attribution::Context;
use stats::Distribution;

use super::sample::{ContextStats, CpuWindow, Timing, WindowSample};

/// The rates of an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Mean length of the interval on the CPUs that stayed online, ns.
    pub length_ns: u64,
    /// Each CPU, in order of its number.
    pub cpus: Vec<CpuRates>,
    /// Each context on all CPUs together and then on each CPU, in the order of tables. Those that did
    /// not come in the interval are here too, with a count of 0.
    pub contexts: Vec<ContextRates>,
    /// Events that were lost in the interval: dropped by the kernel, or without a place.
    pub lost_count: u64,
    /// CPU time that the probes used, over that of all CPUs, by what they cost where they ran.
    pub probe_ratio: Option<f64>,
    /// CPU time that the measuring process used, over the interval: 1 is one CPU.
    pub process_ratio: Option<f64>,
}

/// A CPU in the interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuRates {
    /// Its number.
    pub cpu: u32,
    /// Whether it had gone offline before the interval.
    pub is_offline: bool,
    /// Spans of interrupts per second: IRQs, vectors, NMIs. Not softirqs and polls, which run within or
    /// after an interrupt, nor exceptions.
    pub interrupt_rate_hz: f64,
    /// Self time of all timed contexts over the interval.
    pub self_ratio: f64,
}

/// A context in the interval.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextRates {
    /// The CPU; `None`: all together.
    pub cpu: Option<u32>,
    pub context: Context,
    /// Where its times come from.
    pub timing: Timing,
    /// Spans that ended, polls, or faults.
    pub count: u64,
    /// The same per second.
    pub rate_hz: f64,
    /// Its times; `None` where they are not measured.
    pub times: Option<SelfTimes>,
}

/// Self times of a context in the interval. Those of a span are absent where none ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SelfTimes {
    /// Share of the CPU time of the row's CPUs.
    pub cpu_ratio: f64,
    /// Mean; the probe overhead is subtracted.
    pub mean_ns: Option<f64>,
    /// 99th percentile, within 1/32; absent with fewer than 100 spans.
    pub p99_ns: Option<u64>,
    /// The longest span: exact if it is the longest since the window opened, else the upper bound of its
    /// bucket, at most 1/16 above it.
    pub max_ns: Option<u64>,
    /// The longest span since the window opened; exact.
    pub max_since_open_ns: Option<u64>,
}

/// The totals of one context on one CPU, or on all.
struct Total {
    timing: Timing,
    count: u64,
    self_total_ns: i64,
    own: Distribution,
}

type Totals<'a> = BTreeMap<(&'a Context, Option<u32>), Total>;

/// Contexts that a reading has twice, such as two actions of one name on an IRQ line, are one.
fn totals(reading: &WindowSample) -> Totals<'_> {
    let mut totals = Totals::new();
    for stats in &reading.contexts {
        for cpu in [None, Some(stats.cpu)] {
            let empty = || Total {
                timing: stats.timing,
                count: 0,
                self_total_ns: 0,
                own: Distribution::default(),
            };
            totals.entry((&stats.context, cpu)).or_insert_with(empty).add(stats);
        }
    }
    totals
}

impl Total {
    fn add(&mut self, stats: &ContextStats) {
        self.count += stats.count;
        self.self_total_ns = self.self_total_ns.saturating_add(stats.self_total_ns());
        self.own.merge(&stats.own);
    }
}

impl Rates {
    /// The rates between two readings of the same window; without `before`, since it opened.
    #[must_use]
    pub fn between(before: Option<&WindowSample>, after: &WindowSample) -> Rates {
        let lengths = lengths(before, after);
        let all_ns: u64 = lengths.values().map(|length| length.of_interval_ns).sum();
        let length_ns = interval_ns(lengths.values());
        let earlier = before.map(totals).unwrap_or_default();
        let mut contexts = Vec::new();
        for ((context, cpu), total) in totals(after) {
            let here = match cpu {
                None => Interval { cpu_time_ns: all_ns, length_ns, since_ns: None },
                Some(number) => {
                    let Some(length) = lengths.get(&number) else { continue };
                    Interval {
                        cpu_time_ns: length.of_interval_ns,
                        length_ns: length.of_interval_ns,
                        since_ns: length.since_ns,
                    }
                }
            };
            contexts.push(here.rates((context, cpu), earlier.get(&(context, cpu)), &total));
        }
        let of_before = |pick: fn(&WindowSample) -> u64| before.map_or(0, pick);
        let ratio = |ns: u64, of_ns: u64| (of_ns > 0).then(|| ns as f64 / of_ns as f64);
        let probe_ns = after.probe_ns.map(|after| {
            after.saturating_sub(before.and_then(|before| before.probe_ns).unwrap_or(0))
        });
        let own_ns = after.user_cpu_ns.saturating_sub(of_before(|before| before.user_cpu_ns));
        Rates {
            length_ns,
            cpus: lengths.iter().map(|(cpu, length)| length.cpu_rates(*cpu, &contexts)).collect(),
            contexts,
            lost_count: after.lost().saturating_sub(of_before(WindowSample::lost)),
            probe_ratio: probe_ns.and_then(|ns| ratio(ns, all_ns)),
            process_ratio: ratio(own_ns, length_ns),
        }
    }
}

/// How long the interval was on all CPUs together: the mean over those that stayed online, ns; where none did,
/// the longest.
fn interval_ns<'a>(lengths: impl Iterator<Item = &'a Length> + Clone) -> u64 {
    let stayed = || lengths.clone().filter(|length| !length.went_offline);
    match stayed().count() as u64 {
        0 => lengths.clone().map(|length| length.of_interval_ns).max().unwrap_or(0),
        number => stayed().map(|length| length.of_interval_ns).sum::<u64>() / number,
    }
}

/// How long the interval was on a CPU, and when it started there in the clock of the peaks.
struct Length {
    of_interval_ns: u64,
    went_offline: bool,
    since_ns: Option<u64>,
}

impl Length {
    fn cpu_rates(&self, cpu: u32, contexts: &[ContextRates]) -> CpuRates {
        use attribution::ContextKind::{HardIrq, Nmi, Vector};
        let here = || contexts.iter().filter(|one| one.cpu == Some(cpu));
        let interrupts = here().filter(|one| matches!(one.context.kind, HardIrq | Vector | Nmi));
        CpuRates {
            cpu,
            is_offline: self.went_offline && self.of_interval_ns == 0,
            interrupt_rate_hz: interrupts.map(|one| one.rate_hz).sum(),
            self_ratio: here().filter_map(|one| one.times).map(|times| times.cpu_ratio).sum(),
        }
    }
}

fn lengths(before: Option<&WindowSample>, after: &WindowSample) -> BTreeMap<u32, Length> {
    let earlier: BTreeMap<u32, &CpuWindow> = before
        .map(|before| before.windows.iter().map(|window| (window.cpu, window)).collect())
        .unwrap_or_default();
    let one = |window: &CpuWindow| {
        let before_ns = earlier.get(&window.cpu).map_or(0, |earlier| earlier.length_ns);
        let length = Length {
            of_interval_ns: window.length_ns.saturating_sub(before_ns),
            went_offline: window.went_offline,
            since_ns: window.start_ns.map(|start| start.saturating_add(before_ns)),
        };
        (window.cpu, length)
    };
    after.windows.iter().map(one).collect()
}

/// The interval on the CPUs of a row.
struct Interval {
    cpu_time_ns: u64,
    length_ns: u64,
    /// When it started, where that is one time.
    since_ns: Option<u64>,
}

impl Interval {
    fn rates(
        &self,
        (context, cpu): (&Context, Option<u32>),
        before: Option<&Total>,
        after: &Total,
    ) -> ContextRates {
        let count = after.count.saturating_sub(before.map_or(0, |before| before.count));
        let seconds = self.length_ns as f64 / 1e9;
        let is_timed = !matches!(after.timing, Timing::CountOnly | Timing::Packets);
        ContextRates {
            cpu,
            context: context.clone(),
            timing: after.timing,
            count,
            rate_hz: if seconds > 0.0 { count as f64 / seconds } else { 0.0 },
            times: is_timed.then(|| self.times(count, before, after)),
        }
    }

    fn times(&self, count: u64, before: Option<&Total>, after: &Total) -> SelfTimes {
        let total_before = before.map_or(0, |before| before.self_total_ns);
        let total = after.self_total_ns.saturating_sub(total_before);
        let sum = after.own.sum.saturating_sub(before.map_or(0, |before| before.own.sum));
        let histogram = match before {
            Some(before) => after.own.histogram.since(&before.own.histogram),
            None => after.own.histogram.clone(),
        };
        let peak = after.own.peak;
        let of_spans = count > 0;
        let is_new = before.is_none_or(|before| peak.value > before.own.peak.value)
            || self.since_ns.is_some_and(|since| peak.at >= since);
        let bucket = histogram.filled().last().map(|(_, high, _)| high.min(peak.value));
        let max_ns = if is_new { Some(peak.value) } else { bucket };
        SelfTimes {
            cpu_ratio: if self.cpu_time_ns > 0 {
                sum as f64 / self.cpu_time_ns as f64
            } else {
                0.0
            },
            mean_ns: of_spans.then(|| total as f64 / count as f64),
            p99_ns: histogram.quantile(99_000).map(|value| value.min(peak.value)),
            max_ns: max_ns.filter(|_| of_spans),
            max_since_open_ns: (after.count > 0).then_some(peak.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attribution::ContextKind;

    /// A context with spans of those lengths, the first at 1 ns after the window opened, and so on.
    fn stats(cpu: u32, name: &str, timing: Timing, values: &[u64]) -> ContextStats {
        let mut own = Distribution::default();
        (1..).zip(values).for_each(|(at, value)| own.record(*value, at));
        let context = Context { kind: ContextKind::HardIrq, number: 36, name: name.to_owned() };
        ContextStats { own, ..ContextStats::new(cpu, context, timing, values.len() as u64) }
    }

    /// A reading `length_ns` after the window opened on two CPUs.
    fn reading(length_ns: u64, contexts: Vec<ContextStats>) -> WindowSample {
        let window = |cpu| CpuWindow { cpu, start_ns: Some(0), length_ns, ..CpuWindow::default() };
        WindowSample {
            windows: vec![window(0), window(1)],
            contexts,
            probe_ns: Some(length_ns / 50),
            user_cpu_ns: length_ns / 1000,
            ..WindowSample::default()
        }
    }

    fn find<'a>(rates: &'a Rates, cpu: Option<u32>, name: &str) -> &'a ContextRates {
        let is_it = |one: &&ContextRates| one.cpu == cpu && one.context.name == name;
        rates.contexts.iter().find(is_it).unwrap()
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
        let rates = Rates::between(Some(&before), &after);
        assert_eq!(rates.length_ns, 2_000);
        let on_0 = find(&rates, Some(0), "disk");
        let times = on_0.times.unwrap();
        assert_eq!((on_0.count, on_0.rate_hz), (2, 1e6));
        assert_eq!((times.mean_ns, times.cpu_ratio), (Some(200.0), 0.2));
        // 200 is in the bucket from 200 to 207; 500 came before.
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
    fn what_did_not_come_has_no_times_and_no_row_of_the_table() {
        let first = reading(1_000, vec![stats(0, "disk", Timing::Probes, &[100])]);
        let second = reading(2_000, first.contexts.clone());
        let rates = Rates::between(Some(&first), &second);
        let times = find(&rates, Some(0), "disk").times.unwrap();
        assert_eq!((times.mean_ns, times.max_ns, times.max_since_open_ns), (None, None, Some(100)));
        assert!(rates.table().rows().is_empty());
        assert_eq!(Rates::between(None, &second).table().rows().len(), 2);
    }

    /// CPU 1 goes offline at 1,500 ns. Its context stops; that of the other CPU keeps its rate.
    #[test]
    fn a_cpu_that_went_offline_takes_part_of_no_later_interval() {
        let two = |first: &[u64], second: &[u64]| {
            vec![stats(0, "disk", Timing::Probes, first), stats(1, "disk", Timing::Probes, second)]
        };
        let offline = |length_ns, contexts| {
            let mut reading = reading(length_ns, contexts);
            (reading.windows[1].length_ns, reading.windows[1].went_offline) = (1_500, true);
            reading
        };
        let first = reading(1_000, two(&[100], &[100]));
        let second = offline(2_000, two(&[100, 100], &[100, 100]));
        let third = offline(3_000, two(&[100, 100, 100], &[100, 100]));
        let rates = Rates::between(Some(&first), &second);
        assert_eq!(rates.length_ns, 1_000);
        assert_eq!(find(&rates, Some(1), "disk").rate_hz, 2e6, "one in 500 ns");
        assert_eq!(find(&rates, None, "disk").times.unwrap().cpu_ratio, 200.0 / 1_500.0);
        let rates = Rates::between(Some(&second), &third);
        assert_eq!(rates.length_ns, 1_000);
        assert_eq!(find(&rates, None, "disk").rate_hz, 1e6);
        assert_eq!(find(&rates, Some(0), "disk").rate_hz, 1e6);
        assert_eq!(rates.cpus.iter().map(|cpu| cpu.is_offline).collect::<Vec<_>>(), [false, true]);
        let gone = find(&rates, Some(1), "disk");
        assert_eq!((gone.count, gone.times.unwrap().cpu_ratio), (0, 0.0));
    }

    #[test]
    fn two_actions_of_one_name_are_one_row() {
        let one = || stats(0, "shared", Timing::Probes, &[10]);
        let rates = Rates::between(None, &reading(1_000, vec![one(), one()]));
        assert_eq!(find(&rates, Some(0), "shared").count, 2);
        assert_eq!(rates.contexts.len(), 2);
    }
}
