//! A set-associative cache of line numbers: it knows which lines are in, not what is in them.

use crate::model::{CacheModel, Replacement};

/// Tag of a way that holds no line. No line has this number: an address has at most 64 bits and a
/// line at least 4 bytes.
const EMPTY: u64 = u64::MAX;

/// A line that had to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its number (address over line size).
    pub line: u64,
    /// Whether it has to be written back.
    pub dirty: bool,
}

/// What an access met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The line was in.
    Hit,
    /// It was not, and is now; another one may have left for it.
    Miss(Option<Evicted>),
}

#[derive(Clone, Copy, Debug)]
struct Way {
    line: u64,
    dirty: bool,
}

/// The state of replacement besides the order of the ways.
#[derive(Clone, Debug)]
enum Policy {
    /// Ways stand in order of use, the last used first.
    Lru,
    /// One tree of bits a set; ways stay where they are.
    TreePlru(Vec<u64>),
    /// A generator that is seeded, so that runs repeat.
    Random(u64),
}

/// A set-associative, write-back, write-allocate cache.
///
/// Flat: the ways of a set lie side by side, with LRU the last used first, so that most hits are
/// found at the first comparison.
#[derive(Clone, Debug)]
pub struct Cache {
    ways: Vec<Way>,
    associativity: usize,
    set_mask: u64,
    policy: Policy,
}

impl Cache {
    /// An empty cache of the model's geometry, which [`CacheModel::check`] has accepted.
    #[must_use]
    pub fn new(model: &CacheModel) -> Self {
        let sets = model.sets();
        let associativity = model.ways as usize;
        let policy = match model.replacement {
            Replacement::Lru => Policy::Lru,
            Replacement::TreePlru => Policy::TreePlru(vec![0; sets as usize]),
            Replacement::Random => Policy::Random(0x9e37_79b9_7f4a_7c15),
        };
        Cache {
            ways: vec![Way { line: EMPTY, dirty: false }; sets as usize * associativity],
            associativity,
            set_mask: sets - 1,
            policy,
        }
    }

    /// Looks a line up, brings it in when it is not there, and marks it dirty when it is written.
    pub fn access(&mut self, line: u64, write: bool) -> Outcome {
        let set = (line & self.set_mask) as usize;
        let first = set * self.associativity;
        let ways = &mut self.ways[first..first + self.associativity];
        if let Policy::Lru = self.policy {
            // The common case, before any search.
            if ways[0].line == line {
                ways[0].dirty |= write;
                return Outcome::Hit;
            }
            return push_in(ways, Way { line, dirty: write });
        }
        if let Some(at) = ways.iter().position(|way| way.line == line) {
            ways[at].dirty |= write;
            self.used(set, at);
            return Outcome::Hit;
        }
        let victim = self.victim(set);
        let old = std::mem::replace(&mut self.ways[first + victim], Way { line, dirty: write });
        self.used(set, victim);
        let evicted = (old.line != EMPTY).then_some(Evicted { line: old.line, dirty: old.dirty });
        Outcome::Miss(evicted)
    }

    /// Whether a line is in, without using it.
    #[must_use]
    pub fn holds(&self, line: u64) -> bool {
        let first = (line & self.set_mask) as usize * self.associativity;
        self.ways[first..first + self.associativity].iter().any(|way| way.line == line)
    }

    /// Empties the cache.
    pub fn clear(&mut self) {
        self.ways.fill(Way { line: EMPTY, dirty: false });
    }

    /// The way of `set` that a new line goes to: an empty one if there is one.
    fn victim(&mut self, set: usize) -> usize {
        let first = set * self.associativity;
        let ways = &self.ways[first..first + self.associativity];
        if let Some(empty) = ways.iter().position(|way| way.line == EMPTY) {
            return empty;
        }
        match &mut self.policy {
            // What leaves is found where a line is pushed in.
            Policy::Lru => self.associativity - 1,
            Policy::TreePlru(trees) => plru_victim(trees[set], self.associativity),
            Policy::Random(state) => {
                *state = xorshift(*state);
                (*state % self.associativity as u64) as usize
            }
        }
    }

    /// Notes that way `at` of `set` was used.
    fn used(&mut self, set: usize, at: usize) {
        if let Policy::TreePlru(trees) = &mut self.policy {
            trees[set] = plru_used(trees[set], at, self.associativity);
        }
    }
}

/// Puts a line before those of its set, which are in order of use: each moves on by a place, as far as
/// the one that leaves: itself, if it was in, an empty one, or the last.
#[inline]
fn push_in(ways: &mut [Way], new: Way) -> Outcome {
    let mut moves = new;
    for at in 0..ways.len() {
        std::mem::swap(&mut ways[at], &mut moves);
        if moves.line == new.line {
            ways[0].dirty |= moves.dirty;
            return Outcome::Hit;
        }
        if moves.line == EMPTY {
            return Outcome::Miss(None);
        }
    }
    Outcome::Miss(Some(Evicted { line: moves.line, dirty: moves.dirty }))
}

/// Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003.
fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

/// Follows the tree's bits to the way that was not used of late. Node `n` has the children `2n`
/// and `2n + 1`; its bit says which of them to leave by.
fn plru_victim(tree: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (tree >> node & 1) as usize;
    }
    node - ways
}

/// Turns the bits on the path to way `at` away from it.
fn plru_used(mut tree: u64, at: usize, ways: usize) -> u64 {
    let mut node = at + ways;
    while node > 1 {
        let parent = node / 2;
        let away = (node & 1 ^ 1) as u64;
        tree = tree & !(1 << parent) | away << parent;
        node = parent;
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(size_bytes: u64, ways: u32, replacement: Replacement) -> Cache {
        let model = CacheModel { size_bytes, ways, line_bytes: 64, replacement };
        model.check("test").unwrap();
        Cache::new(&model)
    }

    #[test]
    fn the_line_unused_for_longest_leaves() {
        let mut cache = cache(4 * 64, 4, Replacement::Lru);
        for line in [1, 2, 3, 4, 1] {
            cache.access(line, false);
        }
        assert_eq!(cache.access(5, false), Outcome::Miss(Some(Evicted { line: 2, dirty: false })));
        assert!(cache.holds(1) && !cache.holds(2));
    }

    #[test]
    fn a_written_line_leaves_dirty() {
        let mut cache = cache(64, 1, Replacement::Lru);
        assert_eq!(cache.access(7, true), Outcome::Miss(None));
        assert_eq!(cache.access(7, false), Outcome::Hit);
        assert_eq!(cache.access(8, false), Outcome::Miss(Some(Evicted { line: 7, dirty: true })));
        assert_eq!(cache.access(7, false), Outcome::Miss(Some(Evicted { line: 8, dirty: false })));
    }

    #[test]
    fn the_tree_never_evicts_the_line_used_last() {
        let mut cache = cache(8 * 64, 8, Replacement::TreePlru);
        for line in 0..1000u64 {
            let line = line * 7 % 23;
            cache.access(line, false);
            assert!(cache.holds(line));
            cache.access(line + 100, false);
            assert!(cache.holds(line), "{line}");
        }
    }

    #[test]
    fn random_replacement_repeats() {
        let run = || {
            let mut cache = cache(16 * 64, 4, Replacement::Random);
            (0..500u64).map(|n| cache.access(n * n % 61, false)).collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
    }
}
