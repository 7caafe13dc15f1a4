//! The measured counterparts of the figures in `signal-afterburner`, from the samples of the experiment `signal`.

use lab::signal::{
    Load, RateWindow, RoundTripWindow, Samples, TransferWindow, is_mostly_overloaded,
};
use signalling::Scheme;
use stats::interval::from_values;

use crate::judge::{Figure, Known, Reason};

/// Bits in a Mbit.
const MBIT: f64 = 1e6;

/// Figures from the samples, as the paper defines them.
#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub samples: &'a Samples,
}

/// The mean of the repetitions, with its interval.
fn over_repetitions(values: Vec<f64>) -> Known {
    match (from_values(&values), values.first()) {
        (Some(interval), _) => Ok(Figure::from_measurement(interval.mean, interval.half_width)),
        // A single repetition has no interval. An infinite half width decides no comparison.
        (None, Some(value)) => Ok(Figure::from_measurement(*value, f64::INFINITY)),
        (None, None) => Err(Reason::not_measured("", "")),
    }
}

impl<'a> Measured<'a> {
    /// Throughput of a scheme under a load, Mbit/s. `bytes` is the size of the socket buffers.
    pub fn mbit_per_s(self, load: Load, scheme: Scheme, bytes: u64) -> Known {
        let windows = self.samples.transfers.iter().filter(|window| {
            let point = window.point;
            (point.load, point.scheme, point.socket_buffer_bytes) == (load, scheme, bytes)
        });
        over_repetitions(windows.filter_map(mbit_per_s).collect())
    }

    /// The round trips of a scheme without a CPU-bound job. `bulk`: whether a bulk transfer runs.
    pub fn round_trips(self, scheme: Scheme, bulk: bool) -> RoundTrips<'a> {
        let windows = self.samples.round_trips.iter().filter(|window| {
            let point = window.point;
            (point.load, point.scheme, point.bulk) == (Load::Idle, scheme, bulk)
        });
        RoundTrips { scheme, windows: windows.collect() }
    }

    /// The CPU use of a scheme.
    pub fn cpu_use(self, scheme: Scheme) -> CpuUse<'a> {
        let windows = self.samples.rates.iter().filter(|window| window.point.scheme == scheme);
        CpuUse { scheme, windows: windows.collect() }
    }
}

/// The repetitions of a point of round trips.
pub(super) struct RoundTrips<'a> {
    scheme: Scheme,
    windows: Vec<&'a RoundTripWindow>,
}

impl<'a> RoundTrips<'a> {
    /// The windows whose mean and maximum count, by the rule of the table `round_trips`. In a window that lacks answers,
    /// only the answered requests have round trips, and they are the fast ones.
    ///
    /// Fails if at least half of the windows lack answers.
    fn accepted(&self) -> Result<Vec<&'a RoundTripWindow>, Reason> {
        let (overloaded, answered): (Vec<_>, Vec<_>) =
            self.windows.iter().copied().partition(|window| window.is_overloaded());
        if is_mostly_overloaded(overloaded.len(), self.windows.len()) {
            let (scheme, count, all) = (self.scheme, overloaded.len(), self.windows.len());
            let reason = format!("{scheme} leaves requests unanswered in {count} of {all} windows");
            return Err(reason.into());
        }
        Ok(answered.into_iter().filter(|window| window.round_trip.count > 0).collect())
    }

    /// The lower end of the bucket of the shortest round trip, ns. `None` without round trips.
    pub fn min_ns(&self) -> Option<f64> {
        let filled = self.windows.iter().map(|window| window.round_trip.histogram.filled());
        let lows = filled.filter_map(|mut buckets| buckets.next()).map(|(low, _, _)| low);
        lows.min().map(|ns| ns as f64)
    }

    /// The mean over the windows, ns.
    pub fn mean_ns(&self) -> Known {
        let accepted = self.accepted()?;
        over_repetitions(accepted.iter().filter_map(|window| window.round_trip.mean()).collect())
    }

    /// The longest round trip, ns. `None` without round trips, or if at least half of the windows lack answers.
    pub fn max_ns(&self) -> Option<f64> {
        let accepted = self.accepted().ok()?;
        accepted.iter().map(|window| window.round_trip.peak.value).max().map(|ns| ns as f64)
    }

    /// How many windows [`RoundTrips::mean_ns`] leaves out, and why. `None` if all count.
    pub fn remark(&self) -> Option<String> {
        let accepted = self.accepted().ok()?;
        counted(accepted.len(), self.windows.len(), "the others lack answers")
    }
}

/// The repetitions of a scheme at the rate of packets.
pub(super) struct CpuUse<'a> {
    scheme: Scheme,
    windows: Vec<&'a RateWindow>,
}

impl<'a> CpuUse<'a> {
    /// The windows whose CPU use counts. What a scheme loses costs it nothing, so overloaded windows do not count.
    ///
    /// Fails if all windows are contaminated, or if at least half of the others are overloaded.
    fn accepted(&self) -> Result<Vec<&'a RateWindow>, Reason> {
        let uncontaminated: Vec<&RateWindow> = self
            .windows
            .iter()
            .copied()
            .filter(|window| window.contamination().is_none())
            .collect();
        let scheme = self.scheme;
        if uncontaminated.is_empty() && !self.windows.is_empty() {
            let reason = format!("something else had a CPU in all windows of {scheme}");
            return Err(Reason::too_few(reason));
        }
        let all = uncontaminated.len();
        let (overloaded, accepted): (Vec<_>, Vec<_>) =
            uncontaminated.into_iter().partition(|window| window.is_overloaded());
        if is_mostly_overloaded(overloaded.len(), all) {
            let count = overloaded.len();
            let reason =
                format!("{scheme} does not keep up with the packets in {count} of {all} windows");
            return Err(reason.into());
        }
        Ok(accepted)
    }

    /// Mean of the windows, as a share of a CPU.
    pub fn ratio(&self) -> Known {
        let cpu_ratio = |window: &&RateWindow| window.activity.cpu_ratio(window.point.load);
        over_repetitions(self.accepted()?.iter().filter_map(cpu_ratio).collect())
    }

    /// How many windows [`CpuUse::ratio`] leaves out, and why. `None` if all count.
    pub fn remark(&self) -> Option<String> {
        let reason = "in the others something else had a CPU, or packets were lost";
        counted(self.accepted().ok()?.len(), self.windows.len(), reason)
    }
}

/// `4 of 5 windows count: REASON`. `None` if all windows count.
fn counted(accepted: usize, all: usize, reason: &str) -> Option<String> {
    (accepted < all).then(|| format!("{accepted} of {all} windows count: {reason}"))
}

/// The throughput of a window, Mbit/s. `None` if the window is empty.
fn mbit_per_s(window: &TransferWindow) -> Option<f64> {
    let ns = window.activity.window_ns;
    (ns > 0).then(|| window.bytes as f64 * 8.0 / MBIT * 1e9 / ns as f64)
}

#[cfg(test)]
mod tests {
    use lab::signal::{Activity, CountedUse, RatePoint, RoundTripPoint};
    use record::{Table, Value};
    use signalling::BUDGET_DEFAULT;
    use stats::Distribution;

    use super::super::published::Paper;
    use super::super::{findings, tables};
    use super::*;
    use crate::Selection;

    const INTERRUPT: Scheme = Scheme::Drain { budget: BUDGET_DEFAULT };
    const SLOW_CLOCK: Scheme = Scheme::Clocked { period_ns: 2_000_000 };
    const FAST_CLOCK: Scheme = Scheme::Clocked { period_ns: 250_000 };

    /// A window of round trips without a bulk transfer.
    fn round_trip_window(scheme: Scheme, sent: u64, answered_ns: &[u64]) -> RoundTripWindow {
        let mut round_trip = Distribution::default();
        answered_ns.iter().for_each(|ns| round_trip.record(*ns, 0));
        let point = RoundTripPoint { scheme, load: Load::Idle, rate_hz: 100, bulk: false };
        RoundTripWindow { point, sent, round_trip, activity: Activity::default() }
    }

    /// A window of packets on a simulated machine. The scheme drops the packets that it does not deliver.
    fn rate_window(scheme: Scheme, delivered: u64, busy_ns: u64) -> RateWindow {
        let counted =
            CountedUse { busy_ns, window_ns: 1_000, control_ns: 1_000, control_busy_ns: 0 };
        RateWindow {
            point: RatePoint { scheme, load: Load::Background, rate_hz: 10_000 },
            offered: 10_000,
            delivered,
            dropped: 10_000 - delivered,
            latency: Distribution::default(),
            lateness: Distribution::default(),
            activity: Activity { counted: Some(counted), ..Activity::default() },
        }
    }

    fn number(table: &Table, row: usize, column: &str) -> Option<f64> {
        table.get(&table.rows()[row], column).and_then(Value::number)
    }

    /// The text of a column in the row of a finding.
    fn finding(samples: &Samples, name: &str, column: &str) -> String {
        let table = findings::findings(&Paper::built_in().unwrap(), samples, Selection::All);
        let is_row = |row: &&Vec<Value>| table.get(row, "finding") == Some(&name.into());
        let row = table.rows().iter().find(is_row).expect(name);
        match table.get(row, column) {
            Some(Value::Text(text)) => text.to_string(),
            _ => "-".to_owned(),
        }
    }

    #[test]
    fn extremes_are_those_of_all_windows() {
        let windows = [[4_000_000, 5_000_000], [3_000_000, 25_000_000]];
        let windows = windows.map(|answered| round_trip_window(INTERRUPT, 2, &answered));
        let samples = Samples { round_trips: windows.to_vec(), ..Samples::default() };
        let table = tables::round_trips(&Paper::built_in().unwrap(), &samples);
        // The first row of the paper is that of interrupts, alone.
        assert_eq!(number(&table, 0, "measured_max_ns"), Some(25e6));
        assert_eq!(number(&table, 0, "measured_mean_ns"), Some(9.25e6));
        let (low, high) = stats::histogram::bounds_of(stats::histogram::slot_of(3_000_000));
        assert!(low < 3_000_000 && 3_000_000 < high);
        assert_eq!(number(&table, 0, "measured_min_ns"), Some(low as f64));
    }

    /// Three of five windows of the clock leave most requests without an answer.
    #[test]
    fn a_scheme_that_leaves_requests_unanswered_has_no_mean() {
        let answered = || round_trip_window(SLOW_CLOCK, 2, &[4_000_000, 4_100_000]);
        let unanswered = || round_trip_window(SLOW_CLOCK, 1_000, &[4_000_000]);
        let interrupt = || round_trip_window(INTERRUPT, 2, &[3_000_000, 3_100_000]);
        let samples = |clock: Vec<RoundTripWindow>| {
            let round_trips = clock.into_iter().chain([interrupt(), interrupt()]).collect();
            Samples { round_trips, ..Samples::default() }
        };
        let clock_figures = |samples: &Samples| {
            let round_trips = Measured { samples }.round_trips(SLOW_CLOCK, false);
            (round_trips.mean_ns().is_ok(), round_trips.max_ns())
        };
        let name = "the clock costs latency";
        let three_unanswered =
            samples(vec![answered(), answered(), unanswered(), unanswered(), unanswered()]);
        assert_eq!(clock_figures(&three_unanswered), (false, None));
        assert_eq!(finding(&three_unanswered, name, "verdict"), "not judged");
        let reason = "clocked:2ms leaves requests unanswered in 3 of 5 windows";
        assert_eq!(finding(&three_unanswered, name, "reason"), reason);
        // One of five is left out, and the evidence says so.
        let one_unanswered =
            samples(vec![answered(), answered(), answered(), answered(), unanswered()]);
        assert_eq!(clock_figures(&one_unanswered), (true, Some(4.1e6)));
        assert_eq!(finding(&one_unanswered, name, "verdict"), "holds");
        let evidence = finding(&one_unanswered, name, "evidence");
        let remark = "; clocked:2ms: 4 of 5 windows count: the others lack answers";
        assert!(evidence.ends_with(remark), "{evidence}");
        let none_unanswered = samples(vec![answered(), answered()]);
        assert!(!finding(&none_unanswered, name, "evidence").contains("count"));
    }

    /// A scheme that loses half of the packets uses little CPU time, and that proves nothing.
    #[test]
    fn a_scheme_that_loses_packets_has_no_cpu_use() {
        let name = "a higher clock rate costs CPU time";
        let verdict = |slow_delivered: [u64; 3]| {
            let slow = slow_delivered.map(|delivered| rate_window(SLOW_CLOCK, delivered, 100));
            let fast = [10_000; 3].map(|delivered| rate_window(FAST_CLOCK, delivered, 400));
            let samples = Samples { rates: [slow, fast].concat(), ..Samples::default() };
            ["verdict", "reason", "evidence"].map(|column| finding(&samples, name, column))
        };
        let [judged, reason, _] = verdict([5_000, 5_000, 10_000]);
        assert_eq!(judged, "not judged");
        assert_eq!(reason, "clocked:2ms does not keep up with the packets in 2 of 3 windows");
        let [judged, _, evidence] = verdict([5_000, 10_000, 10_000]);
        assert_eq!(judged, "holds");
        assert!(evidence.contains("; clocked:2ms: 2 of 3 windows count"), "{evidence}");
        let [judged, _, evidence] = verdict([10_000; 3]);
        assert_eq!(judged, "holds");
        assert!(!evidence.contains("count"), "{evidence}");
    }

    #[test]
    fn a_scheme_whose_windows_are_all_contaminated_says_so() {
        let mut window = rate_window(SLOW_CLOCK, 10_000, 100);
        window.activity.counted.as_mut().unwrap().control_busy_ns = 500;
        let samples = Samples { rates: vec![window], ..Samples::default() };
        let error = Measured { samples: &samples }.cpu_use(SLOW_CLOCK).ratio().unwrap_err();
        assert_eq!(error.text(), "something else had a CPU in all windows of clocked:2ms");
    }
}
