//! The search for the first of several values that breaks a rule: of kernels from an old one to a new one, for example.
//! The caller judges one value after the other; [`Search`] chooses which.

/// What is known about a value after its task was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The value keeps the rule.
    Good,
    /// The value breaks the rule.
    Bad,
    /// The task failed, or its figures do not decide.
    Unknown,
}

/// The search over values in their order. The first value is good and the last one is bad.
///
/// It assumes one change: that all values before a good one are good, and all values after a bad one are bad. If the rule is
/// broken, kept and broken again, it finds one of the values where the rule changes from kept to broken.
#[derive(Clone, Debug)]
pub struct Search {
    judgements: Vec<Option<Judgement>>,
    last_good: usize,
    first_bad: usize,
}

impl Search {
    /// A search over `values` values in order. The first one is known to be good, and the last one to be bad.
    ///
    /// # Panics
    /// With fewer than two values.
    #[must_use]
    pub fn new(values: usize) -> Search {
        assert!(values >= 2, "a search needs a good and a bad value");
        let mut judgements = vec![None; values];
        judgements[0] = Some(Judgement::Good);
        judgements[values - 1] = Some(Judgement::Bad);
        Search { judgements, last_good: 0, first_bad: values - 1 }
    }

    /// Position of the value to judge next: the unjudged one closest to the middle between the last good and the first bad
    /// value, the earlier of two. `None` at the end of the search.
    #[must_use]
    pub fn next_position(&self) -> Option<usize> {
        let middle = usize::midpoint(self.last_good, self.first_bad);
        self.unjudged().min_by_key(|position| position.abs_diff(middle))
    }

    /// Positions of the unjudged values that may be the first bad one.
    fn unjudged(&self) -> impl Iterator<Item = usize> {
        (self.last_good + 1..self.first_bad).filter(|position| self.judgements[*position].is_none())
    }

    /// Records the judgement of the value at [`Search::next_position`]. A value that cannot be judged narrows nothing.
    ///
    /// # Panics
    /// If the position is not between the last good and the first bad value.
    pub fn record(&mut self, position: usize, judgement: Judgement) {
        assert!(self.last_good < position && position < self.first_bad, "{position} is known");
        self.judgements[position] = Some(judgement);
        match judgement {
            Judgement::Good => self.last_good = position,
            Judgement::Bad => self.first_bad = position,
            Judgement::Unknown => {}
        }
    }

    /// The last value that is known to be good.
    #[must_use]
    pub fn last_good(&self) -> usize {
        self.last_good
    }

    /// The first value that is known to be bad.
    #[must_use]
    pub fn first_bad(&self) -> usize {
        self.first_bad
    }

    /// How many more values are judged at most.
    #[must_use]
    pub fn steps_max(&self) -> usize {
        let halvings = (self.first_bad - self.last_good).next_power_of_two().ilog2() as usize;
        let between = self.first_bad - self.last_good - 1;
        let unjudged = self.unjudged().count();
        // Each value that could not be judged may make one more necessary.
        (halvings + between - unjudged).min(unjudged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches among `values` values. Those from `first_bad` on are bad; those in `unknown` cannot be judged. Returns the
    /// search at its end, and the number of judged values.
    fn searched(values: usize, first_bad: usize, unknown: &[usize]) -> (Search, usize) {
        let mut search = Search::new(values);
        let mut judged_count = 0;
        while let Some(position) = search.next_position() {
            let judgement = match position {
                position if unknown.contains(&position) => Judgement::Unknown,
                position if position >= first_bad => Judgement::Bad,
                _ => Judgement::Good,
            };
            search.record(position, judgement);
            judged_count += 1;
        }
        (search, judged_count)
    }

    #[test]
    fn the_first_bad_value_is_found_in_logarithmic_time() {
        for values in 2..70_usize {
            for first_bad in 1..values {
                let (search, judged) = searched(values, first_bad, &[]);
                assert_eq!((search.last_good(), search.first_bad()), (first_bad - 1, first_bad));
                assert!(judged <= Search::new(values).steps_max(), "{judged} of {values}");
            }
        }
    }

    #[test]
    fn values_that_are_not_known_leave_a_range() {
        let (search, _) = searched(20, 10, &[8, 9, 10, 11]);
        assert_eq!((search.last_good(), search.first_bad()), (7, 12));
        // They do not matter where the change is elsewhere.
        let (search, _) = searched(20, 3, &[8, 9, 10, 11]);
        assert_eq!((search.last_good(), search.first_bad()), (2, 3));
        let (search, judged) = searched(9, 5, &[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((search.last_good(), search.first_bad(), judged), (0, 8, 7));
    }
}
