//! Orders the lines of a cache for `fill.rs`, which touches them. The order has the properties of
//! `lab::footprint::order`, but this module uses no library.
//!
//! The lines of a set are touched one after the other, forward in one pass and backward in the next. A displaced
//! line then costs exactly one miss in a set with LRU replacement. The order of the sets is shuffled, and also the
//! order of the ways in each set.

/// Maximum number of ways.
pub const WAYS_MAX: usize = 64;

/// A line of memory that is as large as the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Number of the set, from 0.
    pub set: u32,
    /// Number of the line in its set, from 0.
    pub way: u32,
}

/// A pseudo-random generator (Knuth's MMIX). Only the upper half of each number is used.
struct Random(u64);

impl Random {
    /// A number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }

    fn shuffle(&mut self, order: &mut [u32]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last as u32 + 1) as usize);
        }
    }
}

/// Calls `visit` with the lines of two passes, in order. The second pass has the ways of each set in reverse order.
/// `sets`: a buffer with one entry per set, of any content. `ways`: 1 to [`WAYS_MAX`].
pub fn two_passes(sets: &mut [u32], ways: usize, mut visit: impl FnMut(Place)) {
    sets.iter_mut().enumerate().for_each(|(index, set)| *set = index as u32);
    Random(1).shuffle(sets);
    for is_backward in [false, true] {
        for set in sets.iter().copied() {
            let mut buffer = [0; WAYS_MAX];
            let Some(way_order) = buffer.get_mut(..ways) else { return };
            way_order.iter_mut().enumerate().for_each(|(index, way)| *way = index as u32);
            // The seed depends on the set only: both passes shuffle the ways alike.
            Random(u64::from(set) + 2).shuffle(way_order);
            if is_backward {
                way_order.reverse();
            }
            way_order.iter().for_each(|way| visit(Place { set, way: *way }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn passes(sets: usize, ways: usize) -> Vec<Place> {
        let mut all = Vec::new();
        two_passes(&mut vec![0; sets], ways, |visited| all.push(visited));
        all
    }

    #[test]
    fn each_pass_touches_each_line_once_and_the_second_reverses_the_ways() {
        for (sets, ways) in [(64, 12), (1, 64), (128, 1), (512, 2), (1, 1)] {
            let all = passes(sets, ways);
            assert_eq!(all.len(), 2 * sets * ways);
            let (forward, backward) = all.split_at(sets * ways);
            for pass in [forward, backward] {
                assert_eq!(pass.iter().collect::<HashSet<_>>().len(), sets * ways);
                assert!(pass.iter().all(|line| (line.way as usize) < ways));
            }
            for (forward_set, backward_set) in forward.chunks(ways).zip(backward.chunks(ways)) {
                assert!(forward_set.iter().eq(backward_set.iter().rev()));
                assert!(forward_set.iter().all(|line| line.set == forward_set[0].set));
            }
        }
    }

    /// Returns whether a touch of `line` misses in a set with LRU replacement.
    fn misses(set: &mut Vec<u64>, ways: usize, line: u64) -> bool {
        let there = set.iter().position(|held| *held == line);
        match there {
            Some(at) => _ = set.remove(at),
            None if set.len() == ways => _ = set.remove(0),
            None => {}
        }
        set.push(line);
        there.is_none()
    }

    #[test]
    fn a_displaced_line_costs_one_miss() {
        for (sets, ways) in [(16, 8), (32, 2), (64, 1)] {
            let all = passes(sets, ways);
            for displacing in 0..(sets * ways + 5) as u64 {
                let mut cache = vec![Vec::new(); sets];
                let mut found = 0;
                for (step, place) in all.iter().chain(&all).enumerate() {
                    if step == all.len() {
                        for line in 0..displacing {
                            let set = &mut cache[line as usize % sets];
                            misses(set, ways, 1000 + line);
                        }
                    }
                    let set = &mut cache[place.set as usize];
                    let missed = misses(set, ways, u64::from(place.way));
                    found += u64::from(missed && step >= all.len());
                }
                assert_eq!(found, displacing.min((sets * ways) as u64));
            }
        }
    }
}
