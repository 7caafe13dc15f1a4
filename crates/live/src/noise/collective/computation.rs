//! The computation of a rank: a fixed number of iterations of a loop that reads the clock, and records each gap.
//!
//! Invariant: like the loops of `noise`, it makes no system calls, allocates nothing and takes no locks.

use crate::clock::now;
use crate::ring::Ring;
use loop_bodies::ATTEMPTS;

/// Iterations of a trial, which calibrates the loop.
const TRIAL_ITERATIONS: u64 = 2_000;
/// An iteration after a record takes longer, because recording evicts the loop's lines: it is a gap only if it takes this
/// many times longer than the threshold.
const AFTER_RECORD_RATIO: u64 = 2;

/// The computation, in cycles of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Computation {
    pub iterations: u64,
    /// Time of an undisturbed iteration.
    pub iteration_cycles: u64,
    /// A longer gap is a detour.
    pub threshold_cycles: u64,
}

impl Computation {
    /// Calibrates the loop on this thread's CPU: a computation of `granularity_cycles` without detours.
    pub fn calibrate(granularity_cycles: u64, threshold_cycles: u64) -> Computation {
        let ring = Ring::new(1);
        let trial = Computation {
            iterations: TRIAL_ITERATIONS,
            iteration_cycles: 1,
            threshold_cycles: u64::MAX,
        };
        let cycles = |()| {
            let (start, end) = trial.run(&ring);
            end.saturating_sub(start)
        };
        // In thousandths, because an iteration takes few cycles.
        let shortest = [(); ATTEMPTS].map(cycles).into_iter().min().unwrap_or(1).max(1);
        let iterations = u128::from(granularity_cycles) * u128::from(TRIAL_ITERATIONS);
        let iteration_cycles = shortest.div_ceil(TRIAL_ITERATIONS).max(1);
        Computation {
            iterations: u64::try_from(iterations / u128::from(shortest)).unwrap_or(u64::MAX).max(1),
            iteration_cycles,
            threshold_cycles: threshold_cycles.max(2 * iteration_cycles),
        }
    }

    /// Computes once. Returns start and end. A record has the start of a gap without the loop's own time, and its end.
    ///
    /// Not inlined: trials and job then execute the same instructions.
    #[inline(never)]
    pub fn run(&self, ring: &Ring) -> (u64, u64) {
        let start = now();
        let (mut last, mut limit) = (start, self.threshold_cycles);
        for _ in 0..self.iterations {
            let seen = now();
            let gap = seen.saturating_sub(last);
            if gap > limit {
                ring.push([last + self.iteration_cycles.min(gap), seen, 0]);
                limit = self.threshold_cycles.saturating_mul(AFTER_RECORD_RATIO);
            } else {
                limit = self.threshold_cycles;
            }
            last = seen;
        }
        (start, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computation_records_the_gaps_in_it() {
        if !cfg!(target_arch = "x86_64") {
            return needs::not_run(needs::Need::Tsc, "the loop is for x86-64");
        }
        // With a threshold of one cycle, nearly each iteration is a gap.
        let computation =
            Computation { iterations: 1_000, iteration_cycles: 1, threshold_cycles: 1 };
        let ring = Ring::new(1_024);
        let (start, end) = computation.run(&ring);
        let (mut count, mut last_end) = (0, start);
        ring.drain(|[gap_start, gap_end, _]| {
            assert!(last_end <= gap_start && gap_start <= gap_end && gap_end <= end);
            (count, last_end) = (count + 1, gap_end);
        });
        assert!(count > 0 && count <= 1_000, "{count}");
    }

    #[test]
    fn a_calibrated_computation_has_iterations_and_a_threshold() {
        let computation = Computation::calibrate(1_000_000, 5);
        assert!(computation.iterations > 0 && computation.iteration_cycles > 0);
        assert!(computation.threshold_cycles >= 2 * computation.iteration_cycles);
    }
}
