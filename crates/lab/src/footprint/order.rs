//! The access order of the loop that fills a cache. The loops of the live bench (`touch_loop`) and of the program
//! without a kernel (`bare`) use it. The order makes the number of misses equal to the number of displaced lines.
//!
//! The loop touches the lines of a set one after the other: forward in one pass, backward in the next. With LRU
//! replacement and another order, a single conflicting line makes *all* lines of the set miss, because each miss
//! displaces the line that the loop touches next. In the backward pass, the loop touches the displaced line last, and
//! the fill of this line displaces the conflicting line. The number of misses then equals the number of conflicting
//! lines. The order of the sets, and the order of the ways in each set, are shuffled to defeat prefetchers.
//!
//! With tree pseudo-LRU replacement, the number of misses is exact under one condition: the loop filled the set in the
//! order of the forward pass, and the set contained none of the loop's lines before. The tree then holds the lines in
//! this order. Up to half a set of conflicting lines comes and goes without changing the tree. After fills in another
//! order, a single conflicting line can cause several misses. Therefore a loop displaces all of its lines before it
//! fills the cache.

use stats::Random;

/// A line of memory that is as large as the cache, by the line's set and its position in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Number of the set, from 0.
    pub set: u32,
    /// Position among the lines of the set, from 0.
    pub way: u32,
}

/// Two passes over all lines of a cache, one after the other. Both visit the sets in the same random order. The second
/// pass visits the lines of each set in reverse. The same `seed` gives the same order.
#[must_use]
pub fn two_passes(sets: u32, ways: u32, seed: u64) -> Vec<Place> {
    let mut random = Random::new(seed);
    let mut set_order: Vec<u32> = (0..sets).collect();
    random.shuffle(&mut set_order);
    let mut way_orders: Vec<Vec<u32>> = Vec::with_capacity(set_order.len());
    for _ in &set_order {
        let mut way_order: Vec<u32> = (0..ways).collect();
        random.shuffle(&mut way_order);
        way_orders.push(way_order);
    }
    let mut passes = Vec::with_capacity(2 * set_order.len() * ways as usize);
    for is_backward in [false, true] {
        for (&set, way_order) in set_order.iter().zip(&way_orders) {
            let line = |way: &u32| Place { set, way: *way };
            if is_backward {
                passes.extend(way_order.iter().rev().map(line));
            } else {
                passes.extend(way_order.iter().map(line));
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
                assert!(pass.iter().all(|line| line.set < sets && line.way < ways));
            }
        }
    }

    /// Touches `line` in a set with LRU replacement. Returns the number of misses, 0 or 1.
    fn touch(set: &mut Vec<u64>, ways: usize, line: u64) -> u64 {
        let position = set.iter().position(|resident| *resident == line);
        let misses = match position {
            Some(position) => {
                set.remove(position);
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
        misses
    }

    /// A set with tree pseudo-LRU replacement.
    struct Tree {
        lines: Vec<u64>,
        /// For each node of the tree, whether the next victim is in the node's upper half. The root is node 1.
        victim_is_upper: Vec<bool>,
    }

    impl Tree {
        /// Walks from the root to `way`, or to the victim without a `way`, and returns the way reached. Every node on
        /// the path points away from it afterwards.
        fn walk(&mut self, way: Option<usize>) -> usize {
            let (mut node, mut from, mut to) = (1, 0, self.lines.len());
            while to - from > 1 {
                let middle = (from + to) / 2;
                let is_upper = way.map_or(self.victim_is_upper[node], |way| way >= middle);
                self.victim_is_upper[node] = !is_upper;
                (from, to) = if is_upper { (middle, to) } else { (from, middle) };
                node = 2 * node + usize::from(is_upper);
            }
            from
        }

        /// Touches `line`. Returns the number of misses, 0 or 1.
        fn touch(&mut self, line: u64) -> u64 {
            let hit_way = self.lines.iter().position(|resident| *resident == line);
            let way = self.walk(hit_way);
            self.lines[way] = line;
            u64::from(hit_way.is_none())
        }
    }

    #[test]
    fn a_refilled_set_counts_conflicting_lines_from_any_state_of_its_tree() {
        for (ways, seed) in
            [2, 4, 8, 16].into_iter().flat_map(|ways| (0..64).map(move |seed| (ways, seed)))
        {
            let passes = two_passes(1, ways, 3);
            let (forward, backward) = passes.split_at(ways as usize);
            let mut random = Random::new(seed);
            let victim_is_upper = (0..ways).map(|_| random.below(2) > 0).collect();
            let lines = (0..u64::from(ways)).map(|line| 2000 + line).collect();
            let mut set = Tree { lines, victim_is_upper };
            let pass = |set: &mut Tree, order: &[Place]| -> u64 {
                order.iter().map(|line| set.touch(u64::from(line.way))).sum()
            };
            assert_eq!(pass(&mut set, forward), u64::from(ways));
            for round in 0..8 {
                let order = if round % 2 == 0 { backward } else { forward };
                // More than half a set of conflicting lines changes the tree: only in the last round.
                let conflicting_max = u64::from(if round < 7 { ways / 2 } else { ways });
                let conflicting = random.below(conflicting_max + 1);
                let filled: u64 = (0..conflicting).map(|line| set.touch(1000 + line)).sum();
                let missed = pass(&mut set, order);
                assert_eq!((filled, missed), (conflicting, conflicting), "{ways} {round}");
            }
        }
    }

    #[test]
    fn conflicting_lines_between_two_passes_are_counted_exactly() {
        let (sets, ways) = (16, 8);
        for conflicting in 0..=12_u64 {
            let passes = two_passes(sets, ways, 3);
            let mut cache: Vec<Vec<u64>> = vec![Vec::new(); sets as usize];
            let mut misses = 0;
            for (step, line) in passes.iter().cycle().take(passes.len() * 2).enumerate() {
                if step == passes.len() {
                    // The worst case: one set gets all conflicting lines.
                    (0..conflicting)
                        .for_each(|line| _ = touch(&mut cache[5], ways as usize, 1000 + line));
                }
                let set = &mut cache[line.set as usize];
                let missed = touch(set, ways as usize, u64::from(line.way));
                misses += missed * u64::from(step >= passes.len());
            }
            assert_eq!(misses, conflicting.min(u64::from(ways)));
        }
    }
}
