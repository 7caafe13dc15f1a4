//! The costs of signalling and handling, as constants or distributions. The closed forms (`predict.rs`) use
//! their means and variances, the event simulation (`simulate.rs`) draws from them.

use stats::{LogLinear, Random};

use crate::scheme::Scheme;

/// Upper limit of every cost, ns.
pub const COST_MAX_NS: u64 = 1_000_000_000;

/// The distribution of a cost.
#[derive(Clone, Debug, PartialEq)]
pub enum Times {
    /// A constant, ns; 0 to [`COST_MAX_NS`].
    Constant(u64),
    /// Exponentially distributed.
    Exponential {
        /// Mean, ns; 1 to [`COST_MAX_NS`].
        mean_ns: u64,
    },
    /// The distribution of a measured histogram, such as a histogram of `irqlab handlers`.
    Empirical(Empirical),
}

/// A measured histogram from which times are drawn. The probability of a bucket is proportional to its count;
/// the times within a bucket are equally probable.
#[derive(Clone, Debug, PartialEq)]
pub struct Empirical {
    /// Smallest and largest value of each bucket, ns; both included.
    buckets: Vec<(u64, u64)>,
    /// Walker's alias table, a cell for each bucket: the bucket's share of the cell in units of 2^-32, and the
    /// index of the bucket that has the remainder of the cell.
    alias: Vec<(u32, u32)>,
    mean_ns: f64,
    mean_square_ns2: f64,
}

/// A cost is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use these costs: {what} {reason} ({remedy})")]
pub struct CostsError {
    what: &'static str,
    reason: String,
    remedy: &'static str,
}

/// The cost of each step of signalling, on the CPU that handles the events.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// The paper's C: CPU time of an interrupt's entry and exit, without the handling of events.
    pub interrupt: Times,
    /// CPU time of a clock tick, including setting the timer again. `None`: a tick has the cost of an interrupt, as in
    /// the paper. In a virtual machine a tick costs several times more, because the host emulates the timer.
    pub tick: Option<Times>,
    /// The paper's alpha: CPU time of handling one event, above 0. All schemes share it.
    pub event: Times,
    /// CPU time of looking at the device and finding nothing, ns; from 1.
    pub poll_ns: u64,
    /// CPU time of yielding the CPU and returning, ns, without the time of other threads in between.
    pub yield_ns: u64,
    /// Wake-up latency, ns: from the event (or the timer's end) to the first instruction of the
    /// interrupt's entry on a CPU that handles no event. It adds to the latency, not to the CPU time.
    pub wake_ns: u64,
    /// Latency of every event under every scheme, such as wire and network stack, ns. It adds no CPU time.
    pub fixed_ns: u64,
}

impl Costs {
    /// Whether a cost is drawn from a measured histogram, which can have rare long times.
    pub(crate) fn are_measured(&self) -> bool {
        let times = [Some(&self.interrupt), self.tick.as_ref(), Some(&self.event)];
        times.into_iter().flatten().any(|times| matches!(times, Times::Empirical(_)))
    }

    /// Constant costs: C, alpha, an empty poll of 100 ns, a yield of 500 ns, and no wake-up or fixed latency.
    #[must_use]
    pub fn constant(interrupt_ns: u64, event_ns: u64) -> Costs {
        Costs {
            interrupt: Times::Constant(interrupt_ns),
            tick: None,
            event: Times::Constant(event_ns),
            poll_ns: 100,
            yield_ns: 500,
            wake_ns: 0,
            fixed_ns: 0,
        }
    }

    /// CPU time of the signal that makes the CPU look under `scheme`: a tick or an interrupt.
    #[must_use]
    pub fn signal(&self, scheme: Scheme) -> &Times {
        match &self.tick {
            Some(tick) if scheme.is_by_clock() => tick,
            _ => &self.interrupt,
        }
    }

    /// Checks the ranges given at the fields.
    ///
    /// The error names the first cost that is outside of its range.
    pub fn check(&self) -> Result<(), CostsError> {
        let refuse = |cost, reason, remedy| Err(CostsError { what: cost, reason, remedy });
        let tick = self.tick.as_ref().unwrap_or(&self.interrupt);
        let times = [
            ("the cost of an interrupt", &self.interrupt),
            ("the cost of a tick", tick),
            ("the cost of an event", &self.event),
        ];
        for (what, times) in times {
            if times.mean_ns() > COST_MAX_NS as f64 {
                return refuse(what, format!("is {} ns", times.mean_ns()), "give at most 1s");
            }
            if matches!(times, Times::Exponential { mean_ns: 0 }) {
                return refuse(what, "has a mean of 0".to_owned(), "give a constant 0, or a mean");
            }
        }
        if self.event.mean_ns() <= 0.0 {
            return refuse("the cost of an event", "is 0".to_owned(), "give at least 1ns");
        }
        if self.poll_ns == 0 {
            return refuse("the cost of an empty poll", "is 0".to_owned(), "give at least 1ns");
        }
        for (what, ns) in [
            ("the cost of an empty poll", self.poll_ns),
            ("the cost of a yield", self.yield_ns),
            ("the wake-up latency", self.wake_ns),
            ("the fixed latency", self.fixed_ns),
        ] {
            if ns > COST_MAX_NS {
                return refuse(what, format!("is {ns} ns"), "give at most 1s");
            }
        }
        Ok(())
    }
}

impl Times {
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        match self {
            Times::Constant(ns) | Times::Exponential { mean_ns: ns } => *ns as f64,
            Times::Empirical(empirical) => empirical.mean_ns,
        }
    }

    #[must_use]
    pub fn mean_square_ns2(&self) -> f64 {
        match self {
            Times::Constant(ns) => (*ns as f64).powi(2),
            Times::Exponential { mean_ns } => 2.0 * (*mean_ns as f64).powi(2),
            Times::Empirical(empirical) => empirical.mean_square_ns2,
        }
    }

    #[must_use]
    pub fn variance_ns2(&self) -> f64 {
        (self.mean_square_ns2() - self.mean_ns().powi(2)).max(0.0)
    }

    /// A random time from the distribution, ns.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Times::Constant(ns) => *ns,
            Times::Exponential { mean_ns } => {
                (random.exponential() * *mean_ns as f64).round() as u64
            }
            Times::Empirical(empirical) => empirical.draw(random),
        }
    }
}

impl Empirical {
    /// The distribution of a histogram of times in ns. `None` if it is empty or has a value above [`COST_MAX_NS`].
    #[must_use]
    pub fn new(histogram: &LogLinear) -> Option<Empirical> {
        Empirical::from_buckets(&histogram.filled().collect::<Vec<_>>())
    }

    /// The distribution of buckets. Each bucket has its smallest value, its largest value (both ns) and its number of
    /// values. `None` if all buckets are empty, a bucket ends before it starts, or a value is above [`COST_MAX_NS`].
    #[must_use]
    pub fn from_buckets(buckets: &[(u64, u64, u64)]) -> Option<Empirical> {
        let filled: Vec<(u64, u64, u64)> =
            buckets.iter().filter(|(_, _, count)| *count > 0).copied().collect();
        let total = filled.iter().fold(0_u64, |sum, (_, _, count)| sum.saturating_add(*count));
        let is_valid = |&(low, high, _): &(u64, u64, u64)| low <= high && high <= COST_MAX_NS;
        if filled.is_empty() || filled.len() > u32::MAX as usize || !filled.iter().all(is_valid) {
            return None;
        }
        let mean_of = |value: &dyn Fn(f64, f64) -> f64| {
            let sum = filled
                .iter()
                .map(|&(low, high, count)| value(low as f64, high as f64) * count as f64);
            sum.sum::<f64>() / total as f64
        };
        // The moments of integers from low to high, each with the same probability.
        let mean_ns = mean_of(&|low, high| f64::midpoint(low, high));
        let mean_square_ns2 = mean_of(&|low, high| {
            let width = high - low + 1.0;
            f64::midpoint(low, high).powi(2) + (width * width - 1.0) / 12.0
        });
        Some(Empirical {
            buckets: filled.iter().map(|&(low, high, _)| (low, high)).collect(),
            alias: alias(&filled.iter().map(|bucket| bucket.2).collect::<Vec<_>>(), total),
            mean_ns,
            mean_square_ns2,
        })
    }

    /// This distribution with each time multiplied by `factor`. Drawn times are whole ns; the moments are exact.
    #[must_use]
    pub fn scaled_by(mut self, factor: f64) -> Empirical {
        let scaled = |ns: u64| ((ns as f64 * factor).round() as u64).min(COST_MAX_NS);
        for (low, high) in &mut self.buckets {
            (*low, *high) = (scaled(*low), scaled(*high));
        }
        self.mean_ns *= factor;
        self.mean_square_ns2 *= factor * factor;
        self
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let bits = random.next();
        let cell = ((u128::from(bits >> 32) * self.alias.len() as u128) >> 32) as usize;
        let (share, alias_bucket) = self.alias[cell];
        let bucket = if (bits as u32) < share { cell } else { alias_bucket as usize };
        let (low, high) = self.buckets[bucket];
        if low == high { low } else { low + random.below(high - low + 1) }
    }
}

/// The table of Walker's alias method, built as in Vose, IEEE Transactions on Software Engineering 17 (1991).
/// See [`Empirical::alias`].
fn alias(counts: &[u64], total: u64) -> Vec<(u32, u32)> {
    let cells = counts.len() as f64;
    let mut part: Vec<f64> =
        counts.iter().map(|count| *count as f64 / total as f64 * cells).collect();
    let mut table: Vec<(u32, u32)> =
        (0..counts.len() as u32).map(|cell| (u32::MAX, cell)).collect();
    let (mut underfull, mut overfull): (Vec<usize>, Vec<usize>) =
        (0..counts.len()).partition(|cell| part[*cell] < 1.0);
    while let (Some(cell), Some(&donor)) = (underfull.pop(), overfull.last()) {
        table[cell] = ((part[cell] * 4_294_967_296.0) as u32, donor as u32);
        part[donor] -= 1.0 - part[cell];
        if part[donor] < 1.0 {
            overfull.pop();
            underfull.push(donor);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(times: &Times) -> (f64, f64) {
        let mut random = Random::new(5);
        let draws: Vec<f64> = (0..200_000).map(|_| times.draw(&mut random) as f64).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        (mean, draws.iter().map(|x| x * x).sum::<f64>() / draws.len() as f64)
    }

    #[test]
    fn what_is_drawn_has_the_moments_that_the_closed_forms_use() {
        let mut histogram = LogLinear::default();
        for (value, count) in [(300, 70), (310, 20), (5_000, 9), (100_000, 1)] {
            (0..count).for_each(|_| histogram.record(value));
        }
        for times in [
            Times::Constant(700),
            Times::Exponential { mean_ns: 700 },
            Times::Empirical(Empirical::new(&histogram).unwrap()),
            Times::Empirical(Empirical::new(&histogram).unwrap().scaled_by(0.9)),
        ] {
            let (mean, square) = moments(&times);
            assert!((mean / times.mean_ns() - 1.0).abs() < 0.02, "{times:?}: {mean}");
            assert!((square / times.mean_square_ns2() - 1.0).abs() < 0.05, "{times:?}: {square}");
        }
        assert_eq!(Empirical::new(&LogLinear::default()), None);
    }

    #[test]
    fn each_bucket_is_drawn_by_its_count() {
        let mut histogram = LogLinear::default();
        for value in 0..10 {
            (0..=value * value).for_each(|_| histogram.record(value));
        }
        let times = Times::Empirical(Empirical::new(&histogram).unwrap());
        let (total, mut drawn) = (histogram.total() as f64, [0_u32; 10]);
        let mut random = Random::new(9);
        (0..100_000).for_each(|_| drawn[times.draw(&mut random) as usize] += 1);
        for (value, count) in drawn.iter().enumerate() {
            let expected = (1 + value * value) as f64 / total;
            assert!((f64::from(*count) / 1e5 - expected).abs() < 0.004, "{value}: {count}");
        }
    }

    #[test]
    fn costs_out_of_range_are_refused() {
        let good = Costs::constant(4_000, 500);
        assert_eq!(good.check(), Ok(()));
        for (bad, what) in [
            (Costs { event: Times::Constant(0), ..good.clone() }, "event is 0"),
            (Costs { poll_ns: 0, ..good.clone() }, "poll is 0"),
            (Costs { wake_ns: COST_MAX_NS + 1, ..good.clone() }, "wake-up"),
            (Costs { interrupt: Times::Exponential { mean_ns: 0 }, ..good.clone() }, "mean of 0"),
            (Costs { interrupt: Times::Constant(u64::MAX), ..good.clone() }, "interrupt"),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
