//! Plans how often `cargo xtask bench sim` measures each cell of its table within the budget of host time. The
//! functions read no clock; the caller passes times.

use std::time::Duration;

/// The progress of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// How often the cell was measured.
    pub done: u32,
    /// How often to measure the cell if the budget suffices.
    pub wanted: u32,
    /// Host time of one measurement.
    pub cost: Duration,
}

impl Progress {
    /// Host time of `rounds` measurements.
    fn time(&self, rounds: u32) -> Duration {
        self.cost * rounds
    }
}

/// Returns for each cell how often to measure it in all, past rounds included. Future rounds take at most `remaining`
/// together. While the plan takes more, the cell with the largest total time loses a future round.
pub fn plan(cells: &[Progress], remaining: Duration) -> Vec<u32> {
    let mut rounds: Vec<u32> = cells.iter().map(|cell| cell.wanted.max(cell.done)).collect();
    loop {
        let further_time = |(cell, rounds): (&Progress, &u32)| cell.time(rounds - cell.done);
        if cells.iter().zip(&rounds).map(further_time).sum::<Duration>() <= remaining {
            return rounds;
        }
        let reducible = (0..cells.len()).filter(|index| rounds[*index] > cells[*index].done);
        let total_time = |index: &usize| cells[*index].time(rounds[*index]);
        let Some(largest) = reducible.max_by_key(total_time) else { return rounds };
        rounds[largest] -= 1;
    }
}

/// Estimates the time of a work at a slow level from its time at the fast levels. `measured` has the slow and the fast
/// time of other works. The largest ratio counts. Zero if `measured` is empty.
pub fn expected(
    measured: impl Iterator<Item = (Duration, Duration)>,
    fast_time: Duration,
) -> Duration {
    let divisible = measured.filter(|(_, fast)| !fast.is_zero());
    let ratios = divisible.map(|(slow, fast)| slow.as_secs_f64() / fast.as_secs_f64());
    fast_time.mul_f64(ratios.fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn cell(cost: u64) -> Progress {
        Progress { done: 1, wanted: 5, cost: seconds(cost) }
    }

    #[test]
    fn with_enough_time_all_cells_get_the_wanted_rounds() {
        assert_eq!(plan(&[cell(1), cell(10)], seconds(44)), [5, 5]);
    }

    #[test]
    fn the_slow_give_up_rounds_first() {
        assert_eq!(plan(&[cell(1), cell(10)], seconds(43)), [5, 4]);
        assert_eq!(plan(&[cell(1), cell(10), cell(12)], seconds(40)), [5, 3, 2]);
        assert_eq!(plan(&[cell(1), cell(10)], seconds(3)), [4, 1]);
    }

    #[test]
    fn measured_rounds_are_kept() {
        assert_eq!(plan(&[cell(10), cell(10)], seconds(0)), [1, 1]);
        let more_than_wanted = Progress { done: 3, wanted: 1, cost: seconds(1) };
        assert_eq!(plan(&[more_than_wanted], seconds(10)), [3]);
    }

    #[test]
    fn the_expected_time_uses_the_largest_ratio_of_other_works() {
        let known = [(seconds(20), seconds(4)), (seconds(12), seconds(3))];
        assert_eq!(expected(known.into_iter(), seconds(6)), seconds(30));
        assert_eq!(expected([].into_iter(), seconds(6)), seconds(0));
    }
}
