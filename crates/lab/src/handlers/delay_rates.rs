//! Delays between two readings of a window that stays open. `irqlab watch --delays` shows them.

use std::collections::BTreeMap;

use attribution::Context;

use super::delays::{DelayMethod, DelayStats};
use super::rates::{Interval, Total};
use super::sample::{Timing, WindowSample};

/// The delays of a softirq, thread or function that ended in an interval. The times are `None` if none ended.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayRates {
    /// `None`: all CPUs together.
    pub cpu: Option<u32>,
    pub context: Context,
    pub method: DelayMethod,
    /// Delays that ended.
    pub count: u64,
    /// `count` per second of the interval.
    pub rate_hz: f64,
    pub mean_ns: Option<f64>,
    /// 99th percentile, within 1/32; `None` with fewer than 100 delays.
    pub p99_ns: Option<u64>,
    /// The longest delay. Exact if no earlier delay of the window was longer. Otherwise the upper bound of its bucket, at
    /// most 1/16 above the exact value.
    pub max_ns: Option<u64>,
    /// The longest delay since the window opened; exact.
    pub max_since_open_ns: Option<u64>,
    /// See [`DelayStats::unjoined_end_count`]: of the interval.
    pub unjoined_end_count: u64,
    /// See [`DelayStats::awake_count`]: of the interval.
    pub awake_count: Option<u64>,
}

/// Totals of one kind of work since the window opened, on one CPU or on all CPUs.
struct DelayTotal {
    method: DelayMethod,
    delays: Total,
    unjoined_end_count: u64,
    awake_count: Option<u64>,
}

impl DelayTotal {
    fn new(method: DelayMethod) -> DelayTotal {
        // Nothing is subtracted from delays, as from times that the kernel measures.
        let delays = Total::new(Timing::Kernel);
        DelayTotal { method, delays, unjoined_end_count: 0, awake_count: None }
    }

    fn add(&mut self, stats: &DelayStats) {
        self.delays.add_times(&stats.delays);
        self.unjoined_end_count += stats.unjoined_end_count;
        if let Some(awake_count) = stats.awake_count {
            *self.awake_count.get_or_insert(0) += awake_count;
        }
    }
}

/// Totals by context and CPU. A CPU of `None` stands for all CPUs together.
type DelayTotals<'a> = BTreeMap<(&'a Context, Option<u32>), DelayTotal>;

fn totals(reading: &WindowSample) -> DelayTotals<'_> {
    let mut totals = DelayTotals::new();
    for stats in reading.delays.iter().flatten() {
        for cpu in [None, Some(stats.cpu)] {
            let total = totals.entry((&stats.context, cpu));
            total.or_insert_with(|| DelayTotal::new(stats.method)).add(stats);
        }
    }
    totals
}

/// The delays between two readings, in the order of contexts; `None` if they were not measured. `interval`: the interval
/// on a CPU, or on all CPUs together; `None` for a CPU that was offline all the time.
pub(super) fn between(
    before: Option<&WindowSample>,
    after: &WindowSample,
    interval: impl Fn(Option<u32>) -> Option<Interval>,
) -> Option<Vec<DelayRates>> {
    after.delays.as_ref()?;
    let totals_before = before.map(totals).unwrap_or_default();
    let rates = |((context, cpu), total): (&(&Context, Option<u32>), &DelayTotal)| {
        let total_before = totals_before.get(&(*context, *cpu));
        let delays_before = total_before.map(|before| &before.delays);
        let rates = interval(*cpu)?.rates((context, *cpu), delays_before, &total.delays);
        let times = rates.times.unwrap_or_default();
        let unjoined_before = total_before.map_or(0, |before| before.unjoined_end_count);
        let awake_before = total_before.and_then(|before| before.awake_count).unwrap_or(0);
        Some(DelayRates {
            cpu: *cpu,
            context: rates.context,
            method: total.method,
            count: rates.count,
            rate_hz: rates.rate_hz,
            mean_ns: times.mean_ns,
            p99_ns: times.p99_ns,
            max_ns: times.max_ns,
            max_since_open_ns: times.max_since_open_ns,
            unjoined_end_count: total.unjoined_end_count.saturating_sub(unjoined_before),
            awake_count: total.awake_count.map(|count| count.saturating_sub(awake_before)),
        })
    };
    Some(totals(after).iter().filter_map(rates).collect())
}

#[cfg(test)]
mod tests {
    use attribution::ContextKind;
    use stats::Distribution;

    use super::super::rates::Rates;
    use super::super::sample::CpuWindow;
    use super::*;

    /// A reading of two CPUs, `length_ns` after the window opened: delays of TIMER on each CPU.
    fn reading(length_ns: u64, delays: [(&[u64], u64); 2]) -> WindowSample {
        let context = Context { kind: ContextKind::Softirq, number: 1, name: "TIMER".to_owned() };
        let method = DelayMethod { begins: "raise", ends: "run", not_seen: "nothing" };
        let stats = |(cpu, (values, unjoined_end_count)): (u32, (&[u64], u64))| {
            let mut delays = Distribution::default();
            values.iter().for_each(|value| delays.record(*value, 1));
            DelayStats {
                cpu,
                context: context.clone(),
                method,
                delays,
                unjoined_end_count,
                unjoined_begin_count: 0,
                awake_count: None,
            }
        };
        let window = |cpu| CpuWindow { cpu, start_ns: Some(0), length_ns, ..CpuWindow::default() };
        WindowSample {
            windows: vec![window(0), window(1)],
            delays: Some((0..).zip(delays).map(stats).collect()),
            ..WindowSample::default()
        }
    }

    #[test]
    fn an_interval_has_the_delays_that_ended_in_it() {
        let before = reading(1_000, [(&[100, 500], 1), (&[], 0)]);
        let after = reading(3_000, [(&[100, 500, 200, 300], 1), (&[700], 2)]);
        let rates = Rates::between(Some(&before), &after, 0);
        let delays = rates.delays.as_ref().expect("delays");
        let on = |cpu| delays.iter().find(|delays| delays.cpu == cpu).expect("a row");
        let first = on(Some(0));
        assert_eq!((first.count, first.rate_hz, first.mean_ns), (2, 1e6, Some(250.0)));
        assert_eq!((first.max_since_open_ns, first.unjoined_end_count), (Some(500), 0));
        let all = on(None);
        assert_eq!((all.count, all.mean_ns, all.max_ns), (3, Some(400.0), Some(700)));
        assert_eq!((all.unjoined_end_count, all.p99_ns), (2, None));
        let table = rates.delay_table().expect("a table");
        assert_eq!(table.rows().len(), 3);
        // Nothing ended in an interval without runs: the times are absent, and not 0.
        let again = Rates::between(Some(&after), &after, 0).delays.expect("delays");
        assert!(again.iter().all(|delays| delays.count == 0 && delays.mean_ns.is_none()));
    }

    #[test]
    fn only_threads_count_the_requests_that_found_them_awake() {
        let reading = |length_ns, awake_counts: [Option<u64>; 2]| {
            let mut reading = reading(length_ns, [(&[], 0), (&[], 0)]);
            let rows = reading.delays.iter_mut().flatten();
            rows.zip(awake_counts).for_each(|(stats, count)| stats.awake_count = count);
            reading
        };
        let awake_counts = |before, after| -> Vec<Option<u64>> {
            let rates = Rates::between(Some(&reading(1_000, before)), &reading(3_000, after), 0);
            rates.delays.iter().flatten().map(|delays| delays.awake_count).collect()
        };
        // The rows are: all CPUs, CPU 0, CPU 1.
        let expected = [Some(6), Some(2), Some(4)];
        assert_eq!(awake_counts([Some(3), Some(0)], [Some(5), Some(4)]), expected);
        assert_eq!(awake_counts([None, None], [None, None]), [None, None, None]);
        // A thread that was only awake in the interval has a row in the table.
        let rates = Rates::between(None, &reading(1_000, [Some(0), Some(2)]), 0);
        let table = rates.delay_table().expect("a table");
        let cell = |row: &Vec<record::Value>| {
            table.get(row, "awake_count").and_then(record::Value::number)
        };
        let counts: Vec<Option<f64>> = table.rows().iter().map(cell).collect();
        assert_eq!(counts, [Some(2.0), Some(2.0)]);
    }

    #[test]
    fn a_reading_without_delays_has_none() {
        let without = WindowSample { delays: None, ..reading(1_000, [(&[], 0), (&[], 0)]) };
        let rates = Rates::between(None, &without, 0);
        assert_eq!((rates.delays.is_none(), rates.delay_table()), (true, None));
    }
}
