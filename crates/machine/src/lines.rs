//! [`Cache`], fast for LRU: its ways are words, and the line of a set that was used last is found by
//! one comparison.

use crate::cache::{Cache, Evicted, Outcome};
use crate::model::{CacheModel, Replacement};

/// Word of a way that holds no line. Of a line, the word is twice its number (less than 2^62), plus
/// one if it is dirty.
const EMPTY: u64 = u64::MAX;

/// A cache with the outcomes of [`Cache`].
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// The ways of a set side by side, the last used first. With another replacement than LRU there
    /// is one way, which stays empty, so that each access goes on to `other`.
    ways: Box<[u64]>,
    set_mask: u64,
    /// Room of a set is a power of two, for a shift.
    room_shift: u32,
    associativity: usize,
    /// Replacement by order of use is the only fast one.
    other: Option<Cache>,
}

impl Lines {
    /// An empty cache of a model that was accepted.
    pub(crate) fn new(model: &CacheModel) -> Self {
        let other = (model.replacement != Replacement::Lru).then(|| Cache::new(model));
        let (sets, associativity) = match other {
            Some(_) => (1, 1),
            None => (model.sets(), model.ways as usize),
        };
        let room = associativity.next_power_of_two();
        Lines {
            ways: vec![EMPTY; sets as usize * room].into(),
            set_mask: sets - 1,
            room_shift: room.ilog2(),
            associativity,
            other,
        }
    }

    /// Whether `line` is the one that was used last in its set; if so it is used again, and no more
    /// is to be done. If not, [`Lines::access`] has to be asked.
    #[inline(always)]
    pub(crate) fn again(&mut self, line: u64, write: bool) -> bool {
        let first = self.first_way(line);
        match self.ways.get_mut(first) {
            Some(way) if is(*way, line) => {
                *way |= u64::from(write);
                true
            }
            _ => false,
        }
    }

    /// As [`Cache::access`].
    #[inline]
    pub(crate) fn access(&mut self, line: u64, write: bool) -> Outcome {
        if let Some(other) = &mut self.other {
            return other.access(line, write);
        }
        let first = self.first_way(line);
        let set = &mut self.ways[first..first + self.associativity];
        // Loops of a known length are unrolled.
        match self.associativity {
            1 => used::<1>(set, line, write),
            2 => used::<2>(set, line, write),
            4 => used::<4>(set, line, write),
            8 => used::<8>(set, line, write),
            16 => used::<16>(set, line, write),
            _ => to_front(set, line, write),
        }
    }

    #[inline(always)]
    fn first_way(&self, line: u64) -> usize {
        ((line & self.set_mask) << self.room_shift) as usize
    }
}

#[inline(always)]
fn is(way: u64, line: u64) -> bool {
    way ^ line << 1 <= 1
}

#[inline(always)]
fn used<const WAYS: usize>(set: &mut [u64], line: u64, write: bool) -> Outcome {
    match <&mut [u64; WAYS]>::try_from(set) {
        Ok(set) => to_front(set, line, write),
        Err(_) => unreachable!("a set has the ways of its cache"),
    }
}

/// Puts a line in front and moves those before its old place back by one: all, if it is new.
#[inline(always)]
fn to_front(set: &mut [u64], line: u64, write: bool) -> Outcome {
    let mut moved = line << 1 | u64::from(write);
    for way in &mut *set {
        let old = std::mem::replace(way, moved);
        if is(old, line) {
            set[0] |= old & 1;
            return Outcome::Hit;
        }
        moved = old;
    }
    let evicted = Evicted { line: moved >> 1, dirty: moved & 1 == 1 };
    Outcome::Miss((moved != EMPTY).then_some(evicted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn outcomes_are_those_of_the_cache(
            ways in prop_oneof![1u32..17, Just(64)],
            sets_log in 0u32..4,
            replacement in prop_oneof![
                3 => Just(Replacement::Lru), 1 => Just(Replacement::Random)
            ],
            accesses in prop::collection::vec((0u64..150, any::<bool>()), 1..400),
        ) {
            let size_bytes = (u64::from(ways) << sets_log) * 64;
            let model = CacheModel { size_bytes, ways, line_bytes: 64, replacement };
            prop_assert!(model.check("cache").is_ok());
            let (mut cache, mut lines) = (Cache::new(&model), Lines::new(&model));
            for (line, write) in accesses {
                // The largest numbers are lines too.
                let line = if line > 140 { (u64::MAX >> 2) - line } else { line };
                let again = lines.again(line, write);
                let outcome = if again { Outcome::Hit } else { lines.access(line, write) };
                prop_assert_eq!(outcome, cache.access(line, write));
            }
        }
    }
}
