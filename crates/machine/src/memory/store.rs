//! The places of a cache: which lines are in, and what is noted with each.

use crate::model::{CacheModel, Replacement};
use crate::schema::Index;

/// Tag of a way that holds no line.
const EMPTY: u64 = u64::MAX;
/// Pages that the guest may map differently are not shorter: bits below are the same in both addresses.
const PAGE_SHIFT: u32 = 12;
/// A search through more ways than these is spared by remembering where a line was found.
const WAYS_SEARCHED: usize = 16;
const REMEMBERED: usize = 256;

/// The line was written, and memory has not got it.
pub(crate) const DIRTY: u8 = 1;
/// No other core has the line: it may be written.
pub(crate) const WRITABLE: u8 = 2;
/// It was brought in before it was asked for, and was not asked for since.
pub(crate) const PREFETCHED: u8 = 4;

/// A flag, if something holds.
pub(crate) fn only_if(holds: bool, flag: u8) -> u8 {
    if holds { flag } else { 0 }
}

/// A place of a line: its index in all arrays.
pub(crate) type Slot = usize;

/// A line that was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) line: u64,
    pub(crate) flags: u8,
}

/// The state of replacement.
#[derive(Clone, Debug)]
enum Policy {
    /// When each way was used last.
    Lru(Box<[u64]>),
    /// One tree of bits a set.
    TreePlru(Box<[u64]>),
    /// A generator that is seeded, so that runs repeat.
    Random(u64),
}

/// A set-associative store of line numbers. The number that picks the set is told apart from the line's,
/// for caches that are indexed by virtual addresses.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    tags: Box<[u64]>,
    flags: Box<[u8]>,
    /// Ways where lines were found last: that of each set, or by some bits of the line's number.
    hints: Box<[u8]>,
    hint_mask: u64,
    /// Whether a hint is of a set, and so the one that was used last in it.
    hint_is_last: bool,
    ways: usize,
    set_mask: u64,
    /// Sets in which the same line may be: 1 but for some that are indexed by virtual addresses.
    colours: u64,
    clock: u64,
    policy: Policy,
}

impl Store {
    /// An empty one of a model that was accepted.
    pub(crate) fn new(model: &CacheModel, index: Index) -> Self {
        let (sets, ways) = (model.sets() as usize, model.ways as usize);
        let policy = match model.replacement {
            Replacement::Lru => Policy::Lru(vec![0; sets * ways].into()),
            Replacement::TreePlru => Policy::TreePlru(vec![0; sets].into()),
            Replacement::Random => Policy::Random(0x9e37_79b9_7f4a_7c15),
        };
        let hint_is_last = ways <= WAYS_SEARCHED;
        let hints = if hint_is_last { sets } else { sets.max(REMEMBERED) };
        let way_bytes = model.line_bytes * sets as u64;
        Store {
            tags: vec![EMPTY; sets * ways].into(),
            flags: vec![0; sets * ways].into(),
            hints: vec![0; hints].into(),
            hint_mask: hints as u64 - 1,
            hint_is_last,
            ways,
            set_mask: sets as u64 - 1,
            colours: match index {
                Index::Physical => 1,
                Index::Virtual => (way_bytes >> PAGE_SHIFT).max(1),
            },
            clock: 0,
            policy,
        }
    }

    /// How many lines it has room for.
    pub(crate) fn slots(&self) -> usize {
        self.tags.len()
    }

    /// Looks a line up and uses it.
    #[inline(always)]
    pub(crate) fn used(&mut self, index: u64, line: u64) -> Option<Slot> {
        let first = (index & self.set_mask) as usize * self.ways;
        let slot = first + usize::from(self.hints[(index & self.hint_mask) as usize]);
        if self.hint_is_last && self.tags.get(slot) == Some(&line) {
            return Some(slot);
        }
        self.search(index, line)
    }

    /// As [`Store::used`], when it is not the line that was used last in its set.
    #[inline(never)]
    fn search(&mut self, index: u64, line: u64) -> Option<Slot> {
        let slot = self.find(index, line)?;
        self.touch(index, slot);
        Some(slot)
    }

    /// Looks a line up without using it.
    pub(crate) fn find(&self, index: u64, line: u64) -> Option<Slot> {
        let first = (index & self.set_mask) as usize * self.ways;
        let hint = first + usize::from(self.hints[(index & self.hint_mask) as usize]);
        if self.tags[hint] == line {
            return Some(hint);
        }
        let at = self.tags[first..first + self.ways].iter().position(|tag| *tag == line)?;
        Some(first + at)
    }

    /// Looks a line up in all sets in which it may be. `line_shift` is that of the store's lines.
    pub(crate) fn find_physical(&self, line: u64, line_shift: u32) -> Option<Slot> {
        if self.colours == 1 {
            return self.find(line, line);
        }
        let in_page = PAGE_SHIFT.saturating_sub(line_shift);
        let fixed = line & ((1 << in_page) - 1);
        (0..self.colours).find_map(|colour| self.find(fixed | colour << in_page, line))
    }

    /// Notes that a place was used.
    pub(crate) fn touch(&mut self, index: u64, slot: Slot) {
        let way = slot % self.ways;
        self.hints[(index & self.hint_mask) as usize] = way as u8;
        match &mut self.policy {
            Policy::Lru(used) => {
                self.clock += 1;
                used[slot] = self.clock;
            }
            Policy::TreePlru(trees) => {
                let tree = &mut trees[slot / self.ways];
                *tree = plru_used(*tree, way, self.ways);
            }
            Policy::Random(_) => {}
        }
    }

    /// Brings a line in, which is not; returns its place and what had to leave for it.
    pub(crate) fn place(&mut self, index: u64, line: u64, flags: u8) -> (Slot, Option<Held>) {
        let slot = self.victim(index);
        let old = Held { line: self.tags[slot], flags: self.flags[slot] };
        (self.tags[slot], self.flags[slot]) = (line, flags);
        self.touch(index, slot);
        (slot, (old.line != EMPTY).then_some(old))
    }

    /// The place that the next new line of a set goes to: an empty one if there is one.
    fn victim(&mut self, index: u64) -> Slot {
        let set = (index & self.set_mask) as usize;
        let first = set * self.ways;
        let tags = &self.tags[first..first + self.ways];
        if let Some(empty) = tags.iter().position(|tag| *tag == EMPTY) {
            return first + empty;
        }
        first
            + match &mut self.policy {
                Policy::Lru(used) => oldest(&used[first..first + self.ways]),
                Policy::TreePlru(trees) => plru_victim(trees[set], self.ways),
                Policy::Random(state) => {
                    *state = xorshift(*state);
                    (*state % self.ways as u64) as usize
                }
            }
    }

    /// Takes a line out.
    pub(crate) fn remove(&mut self, slot: Slot) -> Held {
        let held = Held { line: self.tags[slot], flags: self.flags[slot] };
        (self.tags[slot], self.flags[slot]) = (EMPTY, 0);
        held
    }

    /// Takes out all lines of which something holds.
    pub(crate) fn remove_if(&mut self, mut leaves: impl FnMut(u64) -> bool) {
        for slot in 0..self.tags.len() {
            if self.tags[slot] != EMPTY && leaves(self.tags[slot]) {
                self.remove(slot);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn flags(&self, slot: Slot) -> u8 {
        self.flags[slot]
    }

    #[inline(always)]
    pub(crate) fn set_flags(&mut self, slot: Slot, flags: u8) {
        self.flags[slot] = flags;
    }

    /// All lines that are in, in no order.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Held> {
        let all = self.tags.iter().zip(&self.flags);
        all.filter(|(tag, _)| **tag != EMPTY).map(|(tag, flags)| Held { line: *tag, flags: *flags })
    }
}

fn oldest(used: &[u64]) -> usize {
    let mut oldest = 0;
    for (at, when) in used.iter().enumerate() {
        if *when < used[oldest] {
            oldest = at;
        }
    }
    oldest
}

/// Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003.
fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

/// Follows the tree's bits to the way that was not used of late. Node `n` has the children `2n` and
/// `2n + 1`; its bit says by which of them to go.
fn plru_victim(tree: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (tree >> node & 1) as usize;
    }
    node - ways
}

/// Turns the bits on the path to a way away from it.
fn plru_used(mut tree: u64, way: usize, ways: usize) -> u64 {
    let mut node = way + ways;
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
    use crate::{Cache, Outcome};
    use proptest::prelude::*;

    fn geometry() -> impl Strategy<Value = CacheModel> {
        let all = prop_oneof![Just(Replacement::Lru), Just(Replacement::Random)];
        let pow2 = prop::sample::select(&[1u32, 2, 4, 8, 16, 32, 64][..]);
        prop_oneof![(1u32..20, all).boxed(), (pow2, Just(Replacement::TreePlru)).boxed()]
            .prop_flat_map(|(ways, replacement)| {
                (0u32..5).prop_map(move |sets_log| CacheModel {
                    size_bytes: (u64::from(ways) << sets_log) * 64,
                    ways,
                    line_bytes: 64,
                    replacement,
                })
            })
    }

    proptest! {
        /// [`Cache`] keeps its ways in order of use, this one does not.
        #[test]
        fn hits_misses_and_victims_are_those_of_the_cache(
            model in geometry(),
            accesses in prop::collection::vec((0u64..200, any::<bool>()), 1..400),
        ) {
            prop_assert!(model.check("cache").is_ok());
            let (mut cache, mut store) = (Cache::new(&model), Store::new(&model, Index::Physical));
            // Ways stand in order of use only there; random victims are by place.
            let in_order = model.replacement != Replacement::Random || model.ways == 1;
            for (line, write) in accesses {
                let hit = store.used(line, line);
                let dirty = u8::from(write) * DIRTY;
                let outcome = match hit {
                    Some(slot) => {
                        store.set_flags(slot, store.flags(slot) | dirty);
                        Outcome::Hit
                    }
                    None => Outcome::Miss(store.place(line, line, dirty).1.map(|old| {
                        crate::Evicted { line: old.line, dirty: old.flags & DIRTY != 0 }
                    })),
                };
                let expected = cache.access(line, write);
                prop_assert!(outcome == expected || !in_order, "{outcome:?} {expected:?}");
                prop_assert_eq!(outcome, expected);
            }
        }

        /// Under virtual indexing a line is found in whichever set it is.
        #[test]
        fn lines_are_found_by_their_physical_address(colour in 0u64..4, offset in 0u64..64) {
            // Four ways' worth of pages: 16 KiB, direct-mapped.
            let model = CacheModel {
                size_bytes: 16 << 10, ways: 1, line_bytes: 64, replacement: Replacement::Lru,
            };
            let mut store = Store::new(&model, Index::Virtual);
            let line = 7 << 6 | offset;
            let (slot, _) = store.place(colour << 6 | offset, line, 0);
            prop_assert_eq!(store.find_physical(line, 6), Some(slot));
            store.remove(slot);
            prop_assert_eq!(store.find_physical(line, 6), None);
        }
    }
}
