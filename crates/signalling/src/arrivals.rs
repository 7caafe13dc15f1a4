//! When events arrive: the arrival processes of the event simulation (`simulate.rs`).

use stats::Random;

/// Most events of a trace.
pub const TRACE_MAX: usize = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals<'a> {
    /// At random times, independent of one another: exponentially distributed gaps.
    Poisson,
    /// At equal distances in time.
    Periodic,
    /// At random times in bursts, with gaps between the bursts. The rate is the mean over bursts and gaps; bursts have
    /// a higher rate.
    Bursty {
        /// Mean length of a burst, ns; exponentially distributed; from 1.
        on_ns: u64,
        /// Mean time between two bursts, ns; exponentially distributed.
        off_ns: u64,
    },
    /// At these times, ns since any origin; ascending, equal times are allowed.
    Trace(&'a [u64]),
}

/// A trace that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The trace has less than two events, or more than [`TRACE_MAX`]: its number of events.
    #[error("cannot use the trace: it has {0} events (give 2 to {TRACE_MAX})")]
    Length(usize),
    /// The times are not ascending: index of the first event that is earlier than its predecessor.
    #[error("cannot use the trace: event {0} is earlier than its predecessor (sort the times)")]
    Order(usize),
    /// All events have the same time, so the trace has no rate.
    #[error("cannot use the trace: all events are at the same time (give times in ns)")]
    NoTime,
}

impl Arrivals<'_> {
    /// Events per second of a trace, rounded, at least 1; `None` for other arrivals. For a figure, take
    /// [`Arrivals::exact_trace_rate_hz`].
    ///
    /// Fails when the trace cannot be used.
    pub fn trace_rate_hz(&self) -> Result<Option<u64>, TraceError> {
        let rate_hz = self.exact_trace_rate_hz()?;
        Ok(rate_hz.map(|rate_hz| (rate_hz.round() as u64).max(1)))
    }

    /// Events per second of a trace, from its first to its last event; above 0. `None` for other arrivals.
    ///
    /// Fails when the trace cannot be used.
    pub fn exact_trace_rate_hz(&self) -> Result<Option<f64>, TraceError> {
        let Arrivals::Trace(times) = self else { return Ok(None) };
        let ([first, .., last], ..=TRACE_MAX) = (times, times.len()) else {
            return Err(TraceError::Length(times.len()));
        };
        if let Some(index) = times.windows(2).position(|pair| pair[1] < pair[0]) {
            return Err(TraceError::Order(index + 1));
        }
        if first == last {
            return Err(TraceError::NoTime);
        }
        Ok(Some((times.len() - 1) as f64 * 1e9 / (last - first) as f64))
    }
}

/// Poisson arrivals with fewer counted events keep their random rate: scaling would distort the few gaps.
pub(crate) const SCALED_EVENTS_MIN: u64 = 100;

/// Generates the times of arrivals, ascending, ns. The same arguments give the same times.
pub(crate) struct Source<'a> {
    arrivals: Arrivals<'a>,
    random: Random,
    /// Mean gap between arrivals, ns; of bursty arrivals, the mean gap in a burst.
    gap_ns: f64,
    /// The last arrival. It keeps its fraction of a ns, so that rounding errors do not add up.
    at_ns: f64,
    burst_end_ns: f64,
    /// Arrivals still to come.
    remaining: u64,
    /// Index of the next arrival in a trace.
    position: usize,
}

impl<'a> Source<'a> {
    /// Poisson arrivals after the first `warm_up` events have exactly the rate `rate_hz`: their gaps are scaled
    /// ([`gap_scale`]). Bursty arrivals are not scaled, because this would also scale the rate inside a burst.
    pub(crate) fn new(
        arrivals: Arrivals<'a>,
        rate_hz: u64,
        events: u64,
        warm_up: u64,
        seed: u64,
    ) -> Source<'a> {
        let mut gap_ns = 1e9 / rate_hz as f64;
        match arrivals {
            Arrivals::Bursty { on_ns, off_ns } => {
                gap_ns *= on_ns as f64 / (on_ns as f64 + off_ns as f64);
            }
            Arrivals::Poisson => gap_ns *= gap_scale(events, warm_up, seed),
            Arrivals::Periodic | Arrivals::Trace(_) => {}
        }
        let remaining = match arrivals {
            Arrivals::Trace(times) => events.min(times.len() as u64),
            _ => events,
        };
        let random = Random::new(seed);
        Source { arrivals, random, gap_ns, at_ns: 0.0, burst_end_ns: 0.0, remaining, position: 0 }
    }

    /// The next arrival; `u64::MAX` after the last.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        if self.remaining == 0 {
            return u64::MAX;
        }
        self.remaining -= 1;
        match self.arrivals {
            Arrivals::Poisson => self.at_ns += self.random.exponential() * self.gap_ns,
            Arrivals::Periodic => self.at_ns += self.gap_ns,
            Arrivals::Bursty { on_ns, off_ns } => {
                let mut at_ns = self.at_ns + self.random.exponential() * self.gap_ns;
                while at_ns > self.burst_end_ns {
                    // An exponential gap has no memory: the part after the burst's end is redrawn in the next
                    // burst.
                    let start_ns = self.burst_end_ns + self.random.exponential() * off_ns as f64;
                    self.burst_end_ns = start_ns + self.random.exponential() * on_ns as f64;
                    at_ns = start_ns + self.random.exponential() * self.gap_ns;
                }
                self.at_ns = at_ns;
            }
            Arrivals::Trace(times) => {
                let since_first = times[self.position] - times[0];
                self.position += 1;
                return since_first;
            }
        }
        self.at_ns as u64
    }
}

/// The factor on the gaps of Poisson arrivals that gives the events after the warm-up exactly their mean rate.
///
/// The random gaps of one simulation have a mean that differs from the expected mean by about 1 / sqrt(events). A
/// simulated scheme would thus run at another rate than a closed form, and their CPU use would seem to differ.
fn gap_scale(events: u64, warm_up: u64, seed: u64) -> f64 {
    let counted = events.saturating_sub(warm_up);
    if counted < SCALED_EVENTS_MIN {
        return 1.0;
    }
    let mut random = Random::new(seed);
    (0..warm_up).for_each(|_| _ = random.next());
    let sum: f64 = (0..counted).map(|_| random.exponential()).sum();
    counted as f64 / sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(arrivals: Arrivals, count: u64) -> Vec<f64> {
        let mut source = Source::new(arrivals, 1_000_000, count + 1, 0, 3);
        let times: Vec<u64> = (0..=count).map(|_| source.next()).collect();
        assert_eq!(source.next(), u64::MAX);
        times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
    }

    /// Mean, and squared coefficient of variation.
    fn moments(gaps: &[f64]) -> (f64, f64) {
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| gap * gap).sum::<f64>() / gaps.len() as f64;
        (mean, square / mean / mean - 1.0)
    }

    #[test]
    fn arrivals_have_their_rate_and_variation() {
        let (mean, variation) = moments(&gaps(Arrivals::Poisson, 200_000));
        assert!(
            (mean / 1e3 - 1.0).abs() < 0.01 && (variation - 1.0).abs() < 0.03,
            "{mean} {variation}"
        );
        assert_eq!(moments(&gaps(Arrivals::Periodic, 1_000)), (1e3, 0.0));
        // An interrupted Poisson process: 1 + 2 r_on off² / ... (Kuczura 1973) by its renewal form: with
        // on-time 1/w1, off-time 1/w2 and rate L, c² = 1 + 2 L w1 / (w1 + w2)².
        let bursty = Arrivals::Bursty { on_ns: 10_000, off_ns: 90_000 };
        let (mean, variation) = moments(&gaps(bursty, 2_000_000));
        let expected = 1.0 + 2.0 * 0.01 * 1e-4 / (1e-4_f64 + 1.0 / 9e4).powi(2);
        assert!((mean / 1e3 - 1.0).abs() < 0.03, "{mean}");
        assert!((variation / expected - 1.0).abs() < 0.05, "{variation}, expected {expected}");
    }

    /// Without scaling, 50,000 Poisson arrivals of seed 1 have a rate that is 0.68 % too high.
    #[test]
    fn poisson_arrivals_after_the_warm_up_have_exactly_their_rate() {
        for (events, warm_up, seed) in [(50_000, 2_500, 1), (200_000, 10_000, 1), (1_000, 50, 7)] {
            let mut source = Source::new(Arrivals::Poisson, 1_000, events, warm_up, seed);
            let times: Vec<u64> = (0..events).map(|_| source.next()).collect();
            let counted_ns = times[events as usize - 1] - times[warm_up as usize - 1];
            let expected_ns = (events - warm_up) * 1_000_000;
            assert!(counted_ns.abs_diff(expected_ns) <= 2, "{counted_ns}, expected {expected_ns}");
        }
    }

    #[test]
    fn a_trace_is_played_from_its_first_event() {
        let times = [500, 700, 700, 1_500];
        let trace = Arrivals::Trace(&times);
        assert_eq!(gaps(trace, 3), [200.0, 0.0, 800.0]);
        assert_eq!(trace.trace_rate_hz(), Ok(Some(3_000_000)));
        assert_eq!(Arrivals::Poisson.trace_rate_hz(), Ok(None));
        let slow = Arrivals::Trace(&[0, 10_000_000_000, 20_000_000_000]);
        assert_eq!(
            (slow.trace_rate_hz(), slow.exact_trace_rate_hz()),
            (Ok(Some(1)), Ok(Some(0.1)))
        );
        let error = |times: &[u64]| Arrivals::Trace(times).trace_rate_hz().unwrap_err();
        assert_eq!(error(&[1]), TraceError::Length(1));
        assert_eq!(error(&[1, 3, 2]), TraceError::Order(2));
        assert_eq!(error(&[7, 7]), TraceError::NoTime);
    }
}
