//! The order in which the lines of a cache are touched.
//!
//! Lines of one set are touched one after the other, forward in one pass and backward in the next.
//! With any other order, a conflicting line in a set with LRU replacement makes *all* lines of
//! the set miss in turn: the line that it displaces is always the one that is touched next. Touched
//! backward, the displaced line comes last, and displaces the conflicting one: as many misses as conflicting
//! lines. The order of the sets, and of the ways in them, is shuffled, so that no prefetcher follows.
//!
//! The same is true in a set with tree pseudo-LRU replacement, if its lines were filled in the order of the
//! forward pass into a set that had none of them: the tree then has them in this order, and up to half a set
//! of conflicting lines is filled and evicted without changing it. After fills in any other order, a
//! conflicting line may make several miss. So a loop displaces all of its lines before it fills the cache.

use stats::Random;

/// A place in a cache's worth of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Which set, from 0.
    pub set: u32,
    /// Which of the lines of that set, from 0.
    pub way: u32,
}

/// Two passes over each line of `sets` by `ways`, the second with the ways of each set in the other
/// direction. A cache of a single set is passed forward and backward as a whole.
#[must_use]
pub fn two_passes(sets: u32, ways: u32, seed: u64) -> Vec<Place> {
    let mut random = Random::new(seed);
    let mut order: Vec<u32> = (0..sets).collect();
    random.shuffle(&mut order);
    let mut ways_of: Vec<Vec<u32>> = Vec::with_capacity(order.len());
    for _ in &order {
        let mut one: Vec<u32> = (0..ways).collect();
        random.shuffle(&mut one);
        ways_of.push(one);
    }
    let mut passes = Vec::with_capacity(2 * order.len() * ways as usize);
    for backward in [false, true] {
        for (&set, ways) in order.iter().zip(&ways_of) {
            let place = |way: &u32| Place { set, way: *way };
            if backward {
                passes.extend(ways.iter().rev().map(place));
            } else {
                passes.extend(ways.iter().map(place));
            }
        }
    }
    passes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_pass_touches_each_line_once() {
        for (sets, ways) in [(64, 12), (1, 64), (128, 1), (1024, 16), (1, 1)] {
            let passes = two_passes(sets, ways, 7);
            let lines = (sets * ways) as usize;
            assert_eq!(passes.len(), 2 * lines);
            for pass in passes.chunks(lines) {
                assert_eq!(pass.iter().collect::<HashSet<_>>().len(), lines);
                assert!(pass.iter().all(|place| place.set < sets && place.way < ways));
            }
        }
    }

    /// A cache of least-recently-used sets: misses of a touch of `line` in the set.
    fn touch(set: &mut Vec<u64>, ways: usize, line: u64) -> u64 {
        let there = set.iter().position(|one| *one == line);
        let missed = match there {
            Some(at) => {
                set.remove(at);
                0
            }
            None => {
                if set.len() == ways {
                    set.remove(0);
                }
                1
            }
        };
        set.push(line);
        missed
    }

    /// A tree-pseudo-least-recently-used set: its lines, and the tree, whose bits say which half comes next.
    struct Tree {
        lines: Vec<u64>,
        next_is_upper: Vec<bool>,
    }

    impl Tree {
        /// From the root down: to `way`, or else to what comes next. All nodes on the way point away from it.
        fn walk(&mut self, way: Option<usize>) -> usize {
            let (mut node, mut from, mut to) = (1, 0, self.lines.len());
            while to - from > 1 {
                let middle = (from + to) / 2;
                let is_upper = way.map_or(self.next_is_upper[node], |way| way >= middle);
                self.next_is_upper[node] = !is_upper;
                (from, to) = if is_upper { (middle, to) } else { (from, middle) };
                node = 2 * node + usize::from(is_upper);
            }
            from
        }

        fn touch(&mut self, line: u64) -> u64 {
            let there = self.lines.iter().position(|one| *one == line);
            let way = self.walk(there);
            self.lines[way] = line;
            u64::from(there.is_none())
        }
    }

    #[test]
    fn a_renewed_set_counts_foreign_lines_whatever_its_tree_was() {
        for (ways, tree) in
            [2, 4, 8, 16].into_iter().flat_map(|ways| (0..64).map(move |t| (ways, t)))
        {
            let passes = two_passes(1, ways, 3);
            let (forward, backward) = passes.split_at(ways as usize);
            let mut random = Random::new(tree);
            let next_is_upper = (0..ways).map(|_| random.below(2) > 0).collect();
            let lines = (0..u64::from(ways)).map(|line| 2000 + line).collect();
            let mut set = Tree { lines, next_is_upper };
            let pass = |set: &mut Tree, order: &[Place]| -> u64 {
                order.iter().map(|place| set.touch(u64::from(place.way))).sum()
            };
            assert_eq!(pass(&mut set, forward), u64::from(ways));
            for turn in 0..8 {
                let order = if turn % 2 == 0 { backward } else { forward };
                // More than half of a set only once: it mixes them.
                let most = u64::from(if turn < 7 { ways / 2 } else { ways });
                let foreign = random.below(most + 1);
                let came: u64 = (0..foreign).map(|line| set.touch(1000 + line)).sum();
                assert_eq!((came, pass(&mut set, order)), (foreign, foreign), "{ways} {turn}");
            }
        }
    }

    #[test]
    fn foreign_lines_between_two_passes_are_counted_exactly() {
        let (sets, ways) = (16, 8);
        for foreign in 0..=12_u64 {
            let passes = two_passes(sets, ways, 3);
            let mut cache: Vec<Vec<u64>> = vec![Vec::new(); sets as usize];
            let mut misses = 0;
            for (turn, place) in passes.iter().cycle().take(passes.len() * 2).enumerate() {
                if turn == passes.len() {
                    // All foreign lines in one set: the worst case.
                    (0..foreign).for_each(|n| _ = touch(&mut cache[5], ways as usize, 1000 + n));
                }
                let set = &mut cache[place.set as usize];
                let missed = touch(set, ways as usize, u64::from(place.way));
                misses += missed * u64::from(turn >= passes.len());
            }
            assert_eq!(misses, foreign.min(u64::from(ways)));
        }
    }
}
