//! The tags of [`BlockingMachine`]'s caches: like [`TagArray`], but in a quarter of the memory for the usual geometry.
//!
//! The host's caches hold little more than the tags of one simulated cache. So the size of the tags decides the speed
//! of the simulation. With LRU and few ways, the order of a set's lines is all the replacement state, and no times
//! are needed. A property test compares both representations.
//!
//! [`BlockingMachine`]: crate::BlockingMachine

use crate::address::{LineAddress, LineRange};
use crate::model::{CacheModel, Replacement};
use crate::tag_array::{Outcome, TagArray};

/// Stands for no line. Line numbers are below 2^62, because an address has at most 64 bits and a line at least 4 bytes.
const EMPTY: u64 = u64::MAX;
/// The bit of a dirty line: it was written, and the next level has the old content.
const DIRTY: u64 = 1;
/// Maximum ways of [`CompactLru`]: larger sets take too long to reorder.
const WAYS_MAX: usize = 4;

/// The tags of a set-associative cache.
#[derive(Clone, Debug)]
pub(crate) enum Tags {
    /// LRU, with at most [`WAYS_MAX`] ways.
    Compact(CompactLru),
    /// Any other geometry or policy.
    Any(TagArray),
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Hit,
    /// The line was filled, and the evicted line must be written back.
    MissWritesBack(LineAddress),
    /// The line was filled, and nothing must be written back.
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

    /// Whether `line` is known to be the most recently used line of its set. Reading that line changes nothing.
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

    /// Looks up a line, fills it if it is absent, and marks it dirty if `write`.
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

    /// Removes lines without writing them back.
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

/// The lines of each set, the most recently used line first, and empty ways last. A word is a line's number times two,
/// plus [`DIRTY`] if it is dirty.
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

    /// The index of the first word of the set of `line`: its most recently used line.
    #[inline(always)]
    fn first_index(&self, line: LineAddress) -> usize {
        (line.0 & self.set_mask) as usize * self.ways
    }

    /// The word of the most recently used line of the set of `line`: its number, shifted, and the dirty bit.
    #[inline(always)]
    fn mru(&self, line: LineAddress) -> Option<u64> {
        self.words.get(self.first_index(line)).copied()
    }

    #[inline(always)]
    fn access_mru(&mut self, line: LineAddress, write: bool) -> bool {
        let first = self.first_index(line);
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
        let first = self.first_index(line);
        let LineAddress(line) = line;
        let set = &mut self.words[first..first + self.ways];
        let mut moved = line << 1 | u64::from(write);
        // The line comes first. Each word moves down by one way, up to the line's old way, or until the last word
        // drops.
        for word in set.iter_mut() {
            let previous = std::mem::replace(word, moved);
            if previous >> 1 == line {
                set[0] |= previous & DIRTY;
                return Access::Hit;
            }
            moved = previous;
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
            let first = self.first_index(LineAddress(start.wrapping_add(set)));
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
