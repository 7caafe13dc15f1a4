//! The caches of [`BlockingMachine`]: as [`TagArray`], for the usual geometry in a quarter of its memory.
//!
//! A simulator's own caches hold little more than the tags of one simulated cache, so its speed depends on
//! how small they are. With LRU and few ways, the order of a set's lines says all about their replacement,
//! and no times are needed.
//!
//! [`BlockingMachine`]: crate::BlockingMachine

use crate::address::{LineAddress, LineRange};
use crate::model::{CacheModel, Replacement};
use crate::tag_array::{Outcome, TagArray};

/// No line. A line's number is below 2^62: an address has at most 64 bits and a line at least 4 bytes.
const EMPTY: u64 = u64::MAX;
/// The line was written, and the next level has the old content.
const DIRTY: u64 = 1;
/// Sets with more ways take too long to reorder.
const WAYS_MAX: usize = 4;

/// A set-associative cache, by the tags of its lines.
#[derive(Clone, Debug)]
pub(crate) enum Tags {
    /// LRU, with at most [`WAYS_MAX`] ways.
    Compact(CompactLru),
    /// Any other.
    Any(TagArray),
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The line was in.
    Hit,
    /// The line was filled; the line that was evicted for it must be written back.
    MissWritesBack(LineAddress),
    /// The line was filled.
    Miss,
}

impl Tags {
    /// An empty cache of a geometry that [`CacheModel::check`] has accepted.
    pub(crate) fn new(model: &CacheModel) -> Tags {
        let ways = model.ways as usize;
        if model.replacement == Replacement::Lru && ways <= WAYS_MAX {
            Tags::Compact(CompactLru::new(model.sets() as usize, ways))
        } else {
            Tags::Any(TagArray::new(model))
        }
    }

    /// Whether `line` is known to be the most recently used line of its set. To read it changes nothing.
    #[inline(always)]
    pub(crate) fn is_mru(&self, line: LineAddress) -> bool {
        match self {
            Tags::Compact(tags) => tags.mru(line).is_some_and(|word| word >> 1 == line.0),
            Tags::Any(tags) => tags.is_mru(line),
        }
    }

    /// Accesses `line` if it is known to be the most recently used line of its set. Otherwise does
    /// nothing and returns false: the caller uses [`Tags::access`].
    #[inline(always)]
    pub(crate) fn access_mru(&mut self, line: LineAddress, write: bool) -> bool {
        match self {
            Tags::Compact(tags) => tags.access_mru(line, write),
            Tags::Any(tags) => tags.access_mru(line, write),
        }
    }

    /// Looks a line up, fills it if it is absent, and marks it dirty if `write`.
    #[inline(always)]
    pub(crate) fn access(&mut self, line: LineAddress, write: bool) -> Access {
        match self {
            Tags::Compact(tags) => tags.access(line, write),
            Tags::Any(tags) => match tags.access(line, write) {
                Outcome::Hit => Access::Hit,
                Outcome::Miss(Some(line)) if line.is_dirty() => Access::MissWritesBack(line.line),
                Outcome::Miss(_) => Access::Miss,
            },
        }
    }

    /// Removes these lines, without writing them back.
    pub(crate) fn remove(&mut self, mut lines: LineRange) {
        match self {
            Tags::Compact(tags) => tags.remove(lines),
            Tags::Any(tags) => {
                while let Some((line, slot)) = tags.find_first(lines.clone()) {
                    lines.skip_through(line);
                    tags.remove(slot);
                }
            }
        }
    }
}

/// The lines of each set, the most recently used one first and empty ways last. A word is a line's number
/// times two, plus [`DIRTY`].
#[derive(Clone, Debug)]
pub(crate) struct CompactLru {
    words: Box<[u64]>,
    ways: usize,
    set_mask: u64,
}

impl CompactLru {
    fn new(sets: usize, ways: usize) -> CompactLru {
        CompactLru { words: vec![EMPTY; sets * ways].into(), ways, set_mask: sets as u64 - 1 }
    }

    /// The index of the most recently used line of the set of `line`.
    #[inline(always)]
    fn first(&self, line: LineAddress) -> usize {
        (line.0 & self.set_mask) as usize * self.ways
    }

    #[inline(always)]
    fn mru(&self, line: LineAddress) -> Option<u64> {
        self.words.get(self.first(line)).copied()
    }

    #[inline(always)]
    fn access_mru(&mut self, line: LineAddress, write: bool) -> bool {
        let first = self.first(line);
        match self.words.get_mut(first) {
            Some(word) if *word >> 1 == line.0 => {
                if write {
                    *word |= DIRTY;
                }
                true
            }
            _ => false,
        }
    }

    #[inline(always)]
    fn access(&mut self, line: LineAddress, write: bool) -> Access {
        let first = self.first(line);
        let LineAddress(line) = line;
        let set = &mut self.words[first..first + self.ways];
        let mut moved = line << 1 | u64::from(write);
        // Each word moves one way down, until the line's own is found or the last one is dropped.
        for word in set.iter_mut() {
            let old = std::mem::replace(word, moved);
            if old >> 1 == line {
                set[0] |= old & DIRTY;
                return Access::Hit;
            }
            moved = old;
        }
        match moved {
            EMPTY => Access::Miss,
            word if word & DIRTY != 0 => Access::MissWritesBack(LineAddress(word >> 1)),
            _ => Access::Miss,
        }
    }

    fn remove(&mut self, lines: LineRange) {
        let (LineAddress(start), count) = (lines.first(), lines.lines());
        let is_removed = |word: u64| word != EMPTY && (word >> 1).wrapping_sub(start) < count;
        // If there are more lines than sets, each set may hold some of them.
        for set in 0..count.min(self.set_mask + 1) {
            let first = self.first(LineAddress(start.wrapping_add(set)));
            let set = &mut self.words[first..first + self.ways];
            let mut kept = 0;
            for way in 0..set.len() {
                if !is_removed(set[way]) {
                    set[kept] = set[way];
                    kept += 1;
                }
            }
            set[kept..].fill(EMPTY);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A cache of lines of 16 bytes.
    fn model(sets: u64, ways: u32) -> CacheModel {
        CacheModel {
            size_bytes: sets * u64::from(ways) * 16,
            ways,
            line_bytes: 16,
            replacement: Replacement::Lru,
        }
    }

    proptest! {
        /// Both arrays give the same results to a caller.
        #[test]
        fn it_does_what_the_general_array_does(
            (sets, ways) in (0..4_u32, 1..=WAYS_MAX as u32).prop_map(|(sets, ways)| (1 << sets, ways)),
            steps in prop::collection::vec((0..60_u64, 0..8_u8, 0..20_u64), 1..300),
        ) {
            let mut compact = Tags::Compact(CompactLru::new(sets as usize, ways as usize));
            let mut general = Tags::Any(TagArray::new(&model(sets, ways)));
            for (line, what, count) in steps {
                let line = LineAddress(line);
                let write = what & 1 != 0;
                match what {
                    0 => {
                        compact.remove(LineRange::new(line, count));
                        general.remove(LineRange::new(line, count));
                    }
                    1 | 2 => {
                        // After a removal the two may disagree which line is the most recently used,
                        // but not whether a line is present.
                        if compact.is_mru(line) {
                            compact.access_mru(line, write);
                            prop_assert_eq!(general.access(line, write), Access::Hit);
                        } else {
                            prop_assert_eq!(compact.access(line, write), general.access(line, write));
                        }
                    }
                    _ => prop_assert_eq!(compact.access(line, write), general.access(line, write)),
                }
            }
        }
    }

    #[test]
    fn lines_that_are_removed_are_not_written_back() {
        let mut tags = CompactLru::new(1, 2);
        let [first, second, third, fourth, fifth] = [3, 4, 5, 6, 7].map(LineAddress);
        assert_eq!(tags.access(first, true), Access::Miss);
        assert_eq!(tags.access(second, true), Access::Miss);
        assert_eq!(tags.access(third, false), Access::MissWritesBack(first));
        tags.remove(LineRange::new(LineAddress(0), 5));
        assert_eq!(tags.access(fourth, false), Access::Miss);
        assert_eq!(tags.access(fifth, false), Access::Miss);
    }
}
