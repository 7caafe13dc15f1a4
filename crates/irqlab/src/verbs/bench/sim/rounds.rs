//! How often each cell of the table is measured within a budget of host time. Pure: times are arguments.

use std::time::Duration;

/// A cell that was measured.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// How often it was measured.
    pub done: u32,
    /// How often it is to be measured, if the budget suffices.
    pub wanted: u32,
    /// What one measurement takes.
    pub cost: Duration,
}

impl Progress {
    /// Host time of all its measurements when it has been measured `rounds` times.
    fn time(&self, rounds: u32) -> Duration {
        self.cost * rounds
    }
}

/// How often each cell is measured in the end, where all further measurements together take at most
/// `remaining`. The cell that takes the most time of the whole bench gives up a round first.
pub fn plan(cells: &[Progress], remaining: Duration) -> Vec<u32> {
    let mut rounds: Vec<u32> = cells.iter().map(|cell| cell.wanted.max(cell.done)).collect();
    loop {
        let further = |(cell, rounds): (&Progress, &u32)| cell.time(rounds - cell.done);
        if cells.iter().zip(&rounds).map(further).sum::<Duration>() <= remaining {
            return rounds;
        }
        let reducible = (0..cells.len()).filter(|at| rounds[*at] > cells[*at].done);
        let Some(largest) = reducible.max_by_key(|at| cells[*at].time(rounds[*at])) else {
            return rounds;
        };
        rounds[largest] -= 1;
    }
}

/// What a measurement at a level is expected to take, from those at another level: `known` has pairs of times
/// of works at both, and `other` is that of this work at the other level. Zero if nothing is known.
pub fn expected(known: impl Iterator<Item = (Duration, Duration)>, other: Duration) -> Duration {
    let ratio = known.filter(|(_, other)| !other.is_zero());
    let ratio = ratio.map(|(this, other)| this.as_secs_f64() / other.as_secs_f64());
    other.mul_f64(ratio.fold(0.0, f64::max))
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
    fn where_time_suffices_all_are_measured_as_often_as_wanted() {
        assert_eq!(plan(&[cell(1), cell(10)], seconds(44)), [5, 5]);
    }

    #[test]
    fn the_slow_give_up_rounds_first() {
        assert_eq!(plan(&[cell(1), cell(10)], seconds(43)), [5, 4]);
        assert_eq!(plan(&[cell(1), cell(10), cell(12)], seconds(40)), [5, 3, 2]);
        assert_eq!(plan(&[cell(1), cell(10)], seconds(3)), [4, 1]);
    }

    #[test]
    fn what_was_measured_is_not_undone() {
        assert_eq!(plan(&[cell(10), cell(10)], seconds(0)), [1, 1]);
        let more_than_wanted = Progress { done: 3, wanted: 1, cost: seconds(1) };
        assert_eq!(plan(&[more_than_wanted], seconds(10)), [3]);
    }

    #[test]
    fn a_slow_level_is_expected_to_take_as_much_more_as_in_other_works() {
        let known = [(seconds(20), seconds(4)), (seconds(12), seconds(3))];
        assert_eq!(expected(known.into_iter(), seconds(6)), seconds(30));
        assert_eq!(expected([].into_iter(), seconds(6)), seconds(0));
    }
}
