//! The times at which events are due, and a spinning wait until a time. The senders of all rigs use both.

use std::hint::spin_loop;

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use stats::Random;

/// CLOCK_MONOTONIC now, ns.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// Poisson arrivals. Their times do not depend on whether the receiver keeps up.
pub struct Arrivals {
    random: Random,
    mean_gap_ns: f64,
    /// Time of the last arrival, with its fraction of a ns, so that rounding errors do not add up.
    next_ns: f64,
}

impl Arrivals {
    /// `start_ns`: CLOCK_MONOTONIC. `rate_hz`: events per second on average; 0 counts as 1.
    pub fn new(start_ns: u64, rate_hz: u64, seed: u64) -> Arrivals {
        let mean_gap_ns = 1e9 / rate_hz.max(1) as f64;
        Arrivals { random: Random::new(seed), mean_gap_ns, next_ns: start_ns as f64 }
    }

    /// The time at which the next event is due, ns of CLOCK_MONOTONIC.
    pub fn next_ns(&mut self) -> u64 {
        self.next_ns += self.mean_gap_ns * self.random.exponential();
        self.next_ns as u64
    }
}

/// Spins until `due_ns` (CLOCK_MONOTONIC), and calls `meanwhile` with the current time in each iteration.
/// Returns the time at which it ended.
pub fn spin_until(due_ns: u64, mut meanwhile: impl FnMut(u64)) -> u64 {
    loop {
        let now = now_ns();
        if now >= due_ns {
            return now;
        }
        meanwhile(now);
        spin_loop();
    }
}

/// Sleeps until `due_ns` (CLOCK_MONOTONIC). A signal (signal(7)) ends the sleep early.
pub fn sleep_until(due_ns: u64) {
    let due = Timespec {
        tv_sec: (due_ns / 1_000_000_000) as i64,
        tv_nsec: (due_ns % 1_000_000_000) as i64,
    };
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &due);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_their_rate_and_the_spread_of_poisson() {
        let mut arrivals = Arrivals::new(1_000_000, 20_000, 7);
        let mut times = vec![1_000_000_u64];
        times.extend((0..100_000).map(|_| arrivals.next_ns()));
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 50_000.0 - 1.0).abs() < 0.02, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{variance}");
        assert_eq!(Arrivals::new(0, 10, 1).next_ns(), Arrivals::new(0, 10, 1).next_ns());
    }
}
