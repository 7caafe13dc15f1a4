//! [`Cache`], fast for LRU: its ways are words, and the line of a set that was used last is found by
//! one comparison with an address.

use crate::cache::{Cache, Evicted, Outcome};
use crate::model::{CacheModel, Replacement};

/// Word of a way that holds no line: the address of a line that no memory has. Of a line, the word is
/// the address where it begins, plus one if it is dirty.
const EMPTY: u64 = u64::MAX;

/// A cache with the outcomes of [`Cache`], of all physical addresses but those of the last line of 64
/// bits.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// The ways of a set side by side, the last used first. With another replacement than LRU there
    /// is one way, which stays empty, so that each access goes on to `other`.
    ways: Box<[u64]>,
    /// An address, rotated and masked, is the index of its set's first way: rotated, because a set
    /// may have more ways than a line has bytes.
    rotation: u32,
    first_mask: u64,
    line_bytes: u64,
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
        // Room of a set is a power of two, for masks.
        let room = associativity.next_power_of_two() as u64;
        Lines {
            ways: vec![EMPTY; (sets * room) as usize].into(),
            rotation: (64 + model.line_bytes.ilog2() - room.ilog2()) % 64,
            first_mask: (sets - 1) * room,
            line_bytes: model.line_bytes,
            associativity,
            other,
        }
    }

    /// Size of a line, bytes.
    #[inline(always)]
    pub(crate) fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Whether `physical` lies in the line that was used last in its set; if so it is used again, and
    /// no more is to be done. If not, [`Lines::access`] has to be asked.
    #[inline(always)]
    pub(crate) fn again(&mut self, physical: u64, write: bool) -> bool {
        let first = self.first_way(physical);
        match self.ways.get_mut(first) {
            Some(way) if *way ^ physical < self.line_bytes => {
                *way |= u64::from(write);
                true
            }
            _ => false,
        }
    }

    /// Whether `physical` lies in the line that was used last in its set. To read it again changes
    /// nothing.
    #[inline(always)]
    pub(crate) fn is_first(&self, physical: u64) -> bool {
        let way = self.ways.get(self.first_way(physical));
        way.is_some_and(|way| way ^ physical < self.line_bytes)
    }

    /// As [`Cache::access`], but that what is evicted has its address instead of its number.
    #[inline(always)]
    pub(crate) fn access(&mut self, physical: u64, write: bool) -> Outcome {
        if let Some(other) = &mut self.other {
            return elsewhere(other, physical, self.line_bytes, write);
        }
        let first = self.first_way(physical);
        let set = &mut self.ways[first..first + self.associativity];
        let bytes = self.line_bytes;
        // Loops of a known length are unrolled.
        match self.associativity {
            1 => used::<1>(set, physical, bytes, write),
            2 => used::<2>(set, physical, bytes, write),
            4 => used::<4>(set, physical, bytes, write),
            8 => used::<8>(set, physical, bytes, write),
            16 => used::<16>(set, physical, bytes, write),
            _ => to_front(set, physical, bytes, write),
        }
    }

    #[inline(always)]
    fn first_way(&self, physical: u64) -> usize {
        (physical.rotate_right(self.rotation) & self.first_mask) as usize
    }
}

#[inline(never)]
fn elsewhere(cache: &mut Cache, physical: u64, line_bytes: u64, write: bool) -> Outcome {
    match cache.access(physical / line_bytes, write) {
        Outcome::Miss(Some(Evicted { line, dirty })) => {
            Outcome::Miss(Some(Evicted { line: line * line_bytes, dirty }))
        }
        outcome => outcome,
    }
}

#[inline(always)]
fn used<const WAYS: usize>(set: &mut [u64], physical: u64, bytes: u64, write: bool) -> Outcome {
    match <&mut [u64; WAYS]>::try_from(set) {
        Ok(set) => to_front(set, physical, bytes, write),
        Err(_) => unreachable!("a set has the ways of its cache"),
    }
}

/// Puts a line in front and moves those before its old place back by one: all, if it is new.
#[inline(always)]
fn to_front(set: &mut [u64], physical: u64, line_bytes: u64, write: bool) -> Outcome {
    let mut moved = physical & !(line_bytes - 1) | u64::from(write);
    for way in &mut *set {
        let old = std::mem::replace(way, moved);
        if old ^ physical < line_bytes {
            set[0] |= old & 1;
            return Outcome::Hit;
        }
        moved = old;
    }
    let evicted = Evicted { line: moved & !1, dirty: moved & 1 == 1 };
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
            line_bytes in prop::sample::select(&[4u64, 16, 64, 4096][..]),
            replacement in prop_oneof![
                3 => Just(Replacement::Lru), 1 => Just(Replacement::Random)
            ],
            accesses in prop::collection::vec((0u64..150, any::<u64>(), any::<bool>()), 1..400),
        ) {
            let size_bytes = (u64::from(ways) << sets_log) * line_bytes;
            let model = CacheModel { size_bytes, ways, line_bytes, replacement };
            prop_assert!(model.check("cache").is_ok());
            let (mut cache, mut lines) = (Cache::new(&model), Lines::new(&model));
            for (line, offset, write) in accesses {
                // The largest addresses have lines too.
                let line = if line > 140 { u64::MAX / line_bytes - (line - 140) } else { line };
                let physical = line * line_bytes + offset % line_bytes;
                let again = lines.again(physical, write);
                let outcome = if again { Outcome::Hit } else { lines.access(physical, write) };
                let expected = match cache.access(line, write) {
                    Outcome::Miss(Some(Evicted { line, dirty })) => {
                        Outcome::Miss(Some(Evicted { line: line * line_bytes, dirty }))
                    }
                    outcome => outcome,
                };
                prop_assert_eq!(outcome, expected);
            }
        }
    }
}
