//! The tag array: which lines a cache holds, or which pages a TLB holds. It holds no data. All caches and TLBs of
//! `memory`, the cache of decoded instructions and [`BlockingMachine`](crate::BlockingMachine) use it, several times
//! per simulated access. So speed matters: measure a change with `cargo bench -p machine`.
//!
//! It is flat: the ways of a set are adjacent. A line keeps its slot until it is removed. So a cache can keep more
//! about the line in other arrays, at the index of the slot. The most recently used (MRU) line of each set is stored a
//! second time, in an array without the other ways: most lookups end there after one comparison.

use std::cmp::Reverse;

use crate::address::{LineAddress, LineRange, VirtualAddress};
use crate::model::{CacheModel, Replacement};
use crate::system_model::Index;

/// The tag of a way that holds no line. No line has this number, because an address has at most 64 bits and a line at
/// least 4 bytes.
const EMPTY: u64 = u64::MAX;
/// Virtual and physical addresses have equal bits below this one.
const PAGE_SHIFT: u32 = 12;
/// Maximum ways of a set that remembers its most recently used line. Larger sets use only hints.
const WAYS_SEARCHED: usize = 16;
/// Maximum lines of an array with hints: slots where lines were found, to save a search. Arrays whose sets exceed
/// [`WAYS_SEARCHED`] always have hints.
const LINES_HINTED: usize = 4096;
/// Minimum number of hints, if there are any.
const HINTS_MIN: usize = 256;

/// Flag: the line was written, and the next level has the old content.
pub(crate) const DIRTY: u8 = 1;
/// Flag: no other core has the line, so it may be written without a request.
pub(crate) const WRITABLE: u8 = 2;
/// Flag: a prefetcher filled the line, and no access has used it since.
pub(crate) const PREFETCHED: u8 = 4;

/// `flag` if `condition` holds, else no flag.
pub(crate) fn flag_if(condition: bool, flag: u8) -> u8 {
    if condition { flag } else { 0 }
}

/// The position of a way: the index of its line in all arrays.
pub(crate) type Slot = usize;

/// A slot and the set that it belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotOfSet {
    pub(crate) set: usize,
    pub(crate) slot: Slot,
}

/// Identifies a line or page within its set: the line's number, or the page's number with its address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Tag(pub(crate) u64);

/// A number that selects a set by its low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct SetIndex(pub(crate) u64);

impl SetIndex {
    /// Selects the set by a virtual address, in blocks of `1 << shift` bytes.
    #[inline(always)]
    pub(crate) fn of_virtual(virtual_address: VirtualAddress, shift: u32) -> SetIndex {
        SetIndex(virtual_address.block_number(shift))
    }

    /// Selects the set that is `sets` after this one.
    #[inline(always)]
    pub(crate) fn plus(self, sets: u64) -> SetIndex {
        SetIndex(self.0 + sets)
    }
}

impl From<LineAddress> for Tag {
    #[inline(always)]
    fn from(line: LineAddress) -> Tag {
        Tag(line.0)
    }
}

impl From<LineAddress> for SetIndex {
    #[inline(always)]
    fn from(line: LineAddress) -> SetIndex {
        SetIndex(line.0)
    }
}

/// A line that was evicted or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    pub line: LineAddress,
    pub(crate) flags: u8,
}

impl Evicted {
    /// Whether the line must be written back.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.flags & DIRTY != 0
    }
}

/// The result of [`TagArray::access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Hit,
    /// The line was filled, and may have evicted another line.
    Miss(Option<Evicted>),
}

/// A way of a set, with its line.
#[derive(Clone, Copy, Debug)]
struct Way {
    tag: u64,
    /// The line's flags in the low bits ([`FLAGS`]). With LRU, the time of the last use in the bits above.
    state: u64,
}

const EMPTY_WAY: Way = Way { tag: EMPTY, state: 0 };
const FLAGS: u64 = 7;
/// The step of time in [`Way::state`]: it leaves room for the flags.
const TICK: u64 = FLAGS + 1;

impl Way {
    fn evicted(self) -> Evicted {
        Evicted { line: LineAddress(self.tag), flags: (self.state & FLAGS) as u8 }
    }

    /// The line as a victim. `None` if the way is empty.
    fn victim(self) -> Option<Evicted> {
        (self.tag != EMPTY).then(|| self.evicted())
    }
}

/// The replacement state of policies other than LRU.
#[derive(Clone, Debug)]
enum Policy {
    Lru,
    /// One tree of bits for each set.
    TreePlru(Box<[u64]>),
    /// The state of a generator with a fixed seed, so that runs repeat.
    Random(u64),
}

/// The most recently used line of a set.
#[derive(Clone, Copy, Debug)]
struct Mru {
    /// [`EMPTY`] if the line is not known.
    tag: u64,
    slot: Slot,
}

const NO_MRU: Mru = Mru { tag: EMPTY, slot: 0 };

/// The tags and flags of a set-associative cache or TLB.
///
/// A lookup takes an index, which selects the set, and a tag, which identifies the line or page. Both are the line's
/// number, except in TLBs and in caches that virtual addresses index.
#[derive(Clone, Debug)]
pub struct TagArray {
    /// The most recently used line of each set. Never known for large sets.
    mru: Box<[Mru]>,
    /// The ways of all sets. The ways of a set are adjacent.
    ways: Box<[Way]>,
    /// The time of the last use, in steps of [`TICK`].
    clock: u64,
    /// Slots where lines were last found, by bits of the tag. Empty if sets are small and many.
    hints: Box<[u32]>,
    /// Whether the policy is LRU, sets are small and there is one slice: the common case, with a fast path.
    is_small_lru: bool,
    is_lru: bool,
    /// Whether `mru` is kept.
    knows_mru: bool,
    associativity: usize,
    /// Selects the set of a slice.
    set_mask: u64,
    /// Number of slices, each of a power of two of sets. 1 in most arrays.
    slices: u64,
    line_shift: u32,
    /// Number of sets that may hold the same physical line. 1 unless virtual addresses index the array.
    colours: u64,
    policy: Policy,
}

impl TagArray {
    /// Returns an empty array of a geometry that [`CacheModel::check`] has accepted.
    #[must_use]
    pub fn new(model: &CacheModel) -> Self {
        TagArray::indexed(model, Index::Physical)
    }

    /// Returns an empty array whose sets are selected by physical or virtual addresses.
    pub(crate) fn indexed(model: &CacheModel, index: Index) -> Self {
        TagArray::build(model, index, model.ways as usize <= WAYS_SEARCHED)
    }

    /// Returns an empty array, for lines without flags, that does not know the most recently used line of a set.
    /// [`TagArray::touch_at`] and [`TagArray::touch_or_fill`] need this, because they do not maintain that line.
    pub(crate) fn without_mru(model: &CacheModel) -> Self {
        TagArray::build(model, Index::Physical, false)
    }

    fn build(model: &CacheModel, index: Index, knows_mru: bool) -> Self {
        let (sets, ways) = (model.sets() as usize, model.ways as usize);
        let policy = match model.replacement {
            Replacement::Lru => Policy::Lru,
            Replacement::TreePlru => Policy::TreePlru(vec![0; sets].into()),
            Replacement::Random => Policy::Random(0x9e37_79b9_7f4a_7c15),
        };
        let way_bytes = model.line_bytes * sets as u64;
        TagArray {
            mru: vec![NO_MRU; sets].into(),
            ways: vec![EMPTY_WAY; sets * ways].into(),
            clock: 0,
            hints: vec![0; hint_count(sets * ways, knows_mru)].into(),
            is_lru: model.replacement == Replacement::Lru,
            knows_mru,
            is_small_lru: model.replacement == Replacement::Lru && knows_mru && model.slices() == 1,
            associativity: ways,
            set_mask: sets as u64 / model.slices() - 1,
            slices: model.slices(),
            line_shift: model.line_bytes.ilog2(),
            colours: match index {
                Index::Physical => 1,
                Index::Virtual => (way_bytes >> PAGE_SHIFT).max(1),
            },
            policy,
        }
    }

    /// Looks up a line, fills it if it is absent, and marks it dirty if `write`.
    #[inline(always)]
    pub fn access(&mut self, line: LineAddress, write: bool) -> Outcome {
        if !self.is_small_lru {
            return self.access_any(line, write);
        }
        self.clock += TICK;
        let now = self.clock | u64::from(flag_if(write, DIRTY));
        let LineAddress(line) = line;
        let set = (line & self.set_mask) as usize;
        let first = set * self.associativity;
        let ways = &mut self.ways[first..first + self.associativity];
        let (way, outcome) = match way_of(ways, line) {
            Some(way) => {
                ways[way].state = ways[way].state & FLAGS | now;
                (way, Outcome::Hit)
            }
            None => {
                let way = least_recent(ways);
                let old = std::mem::replace(&mut ways[way], Way { tag: line, state: now });
                (way, Outcome::Miss(old.victim()))
            }
        };
        self.mru[set] = Mru { tag: line, slot: first + way };
        outcome
    }

    /// [`TagArray::access`] for any geometry and policy.
    #[inline(never)]
    fn access_any(&mut self, line: LineAddress, write: bool) -> Outcome {
        let dirty = flag_if(write, DIRTY);
        match self.lookup_line(line) {
            Some(slot) => {
                self.set_flags(slot, self.flags(slot) | dirty);
                Outcome::Hit
            }
            None => Outcome::Miss(self.insert_line(line, dirty).1),
        }
    }

    /// Whether `line` is known to be the most recently used line of its set. Reading that line changes nothing.
    #[inline(always)]
    pub(crate) fn is_mru(&self, LineAddress(line): LineAddress) -> bool {
        self.mru.get((line & self.set_mask) as usize).is_some_and(|mru| mru.tag == line)
    }

    /// The flags of `line`, if it is known to be the most recently used line of its set. Reading that line changes
    /// nothing.
    #[inline(always)]
    pub(crate) fn mru_flags(&self, LineAddress(line): LineAddress) -> Option<u8> {
        let mru = self.mru.get((line & self.set_mask) as usize)?;
        let way = self.ways.get(mru.slot)?;
        (mru.tag == line).then_some((way.state & FLAGS) as u8)
    }

    /// Accesses `line` if it is known to be the most recently used line of its set. Otherwise does
    /// nothing and returns false: the caller uses [`TagArray::access`].
    #[inline(always)]
    pub(crate) fn access_mru(&mut self, LineAddress(line): LineAddress, write: bool) -> bool {
        match self.mru.get((line & self.set_mask) as usize) {
            Some(mru) if mru.tag == line => {
                if write && let Some(way) = self.ways.get_mut(mru.slot) {
                    way.state |= u64::from(DIRTY);
                }
                true
            }
            _ => false,
        }
    }

    /// Touches the line with this tag if it is in `slot`. Otherwise does nothing and returns false, and the caller uses
    /// [`TagArray::lookup`]. The caller counts the time. Only for LRU arrays made by [`TagArray::without_mru`].
    #[inline(always)]
    pub(crate) fn touch_at(&mut self, slot: Slot, Tag(tag): Tag, time: u64) -> bool {
        match self.ways.get_mut(slot) {
            Some(way) if way.tag == tag => {
                way.state = time * TICK;
                true
            }
            _ => false,
        }
    }

    /// Sets the clock so that the next touch happens at `time`, at least 1: for use with [`TagArray::touch_at`].
    pub(crate) fn set_time(&mut self, time: u64) {
        self.clock = (time - 1) * TICK;
    }

    pub(crate) fn is_lru(&self) -> bool {
        self.is_lru
    }

    /// Looks up a line and touches it. Returns its slot, or `None` for a miss.
    #[inline(always)]
    pub(crate) fn lookup(&mut self, index: SetIndex, Tag(tag): Tag) -> Option<Slot> {
        let set = self.set_of(index);
        let mru = self.mru[set];
        if mru.tag == tag { Some(mru.slot) } else { self.search(set, tag) }
    }

    /// Looks up and touches a line whose number also selects its set. `None` on a miss.
    #[inline(always)]
    pub(crate) fn lookup_line(&mut self, line: LineAddress) -> Option<Slot> {
        self.lookup(line.into(), line.into())
    }

    /// Touches the line with this tag if it is in this slot and replacement is LRU: the effect is that of
    /// [`TagArray::lookup`]. Otherwise does nothing and returns false.
    #[inline(always)]
    pub(crate) fn touch_in(&mut self, position: SlotOfSet, Tag(tag): Tag) -> bool {
        let SlotOfSet { set, slot } = position;
        match self.ways.get_mut(slot) {
            Some(way) if way.tag == tag && self.is_lru => {
                self.clock += TICK;
                way.state = way.state & FLAGS | self.clock;
                if self.knows_mru {
                    self.mru[set] = Mru { tag, slot };
                }
                true
            }
            _ => false,
        }
    }

    /// The number of the set that lines with this index belong to.
    #[inline(always)]
    pub(crate) fn set_of(&self, index: SetIndex) -> usize {
        let set = (index.0 & self.set_mask) as usize;
        if self.slices == 1 { set } else { set + self.first_set_of_slice(index) }
    }

    /// The first set of the slice that has an index. Processors select slices by a hash that spreads lines evenly, whatever
    /// their stride (Maurice et al., "Reverse Engineering Intel Last-Level Cache Complex Addressing", RAID 2015). This one
    /// multiplies by the golden ratio.
    fn first_set_of_slice(&self, SetIndex(index): SetIndex) -> usize {
        let hash = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let slice = (hash * self.slices) >> 32;
        (slice * (self.set_mask + 1)) as usize
    }

    /// Looks up and touches a line that is not known to be the most recently used line of its set. `None` on a miss.
    #[inline(never)]
    fn search(&mut self, set: usize, tag: u64) -> Option<Slot> {
        if !self.is_small_lru {
            let slot = self.find_in(set, tag)?;
            self.touch(set, slot, tag);
            return Some(slot);
        }
        let slot = match self.hinted(set, tag) {
            Some(slot) => slot,
            None => {
                let first = set * self.associativity;
                let slot = first + way_of(&self.ways[first..first + self.associativity], tag)?;
                self.remember(tag, slot);
                slot
            }
        };
        self.clock += TICK;
        let way = &mut self.ways[slot];
        way.state = way.state & FLAGS | self.clock;
        self.mru[set] = Mru { tag, slot };
        Some(slot)
    }

    /// The slot where a line with these bits of a tag was last found. `None` if the array has no hints.
    #[inline(always)]
    fn hint(&self, tag: u64) -> Option<Slot> {
        self.hints.get(hint_index(tag, self.hints.len())).map(|slot| *slot as usize)
    }

    /// The slot of a set that holds a tag, if the line is still where it was last found.
    #[inline(always)]
    fn hinted(&self, set: usize, tag: u64) -> Option<Slot> {
        let slot = self.hint(tag)?;
        let is_in_set = slot.wrapping_sub(set * self.associativity) < self.associativity;
        (is_in_set && self.ways.get(slot)?.tag == tag).then_some(slot)
    }

    /// Sets the hint of a tag.
    #[inline(always)]
    fn remember(&mut self, tag: u64, slot: Slot) {
        let index = hint_index(tag, self.hints.len());
        if let Some(hint) = self.hints.get_mut(index) {
            *hint = slot as u32;
        }
    }

    /// Touches a line, or fills it. Returns whether it was present. Only for arrays made by [`TagArray::without_mru`]:
    /// suits arrays whose sets are rarely asked for a line twice in a row.
    #[inline(always)]
    pub(crate) fn touch_or_fill(&mut self, Tag(tag): Tag) -> bool {
        match self.hint(tag) {
            // No check of the set is needed, because a tag is only ever in its own set.
            Some(slot) if self.is_lru && self.ways.get(slot).is_some_and(|way| way.tag == tag) => {
                self.clock += TICK;
                self.ways[slot].state = self.clock;
                true
            }
            _ => self.touch_or_fill_slowly(tag),
        }
    }

    /// [`TagArray::touch_or_fill`] without a hint.
    #[inline(never)]
    fn touch_or_fill_slowly(&mut self, tag: u64) -> bool {
        let set = self.set_of(SetIndex(tag));
        let first = set * self.associativity;
        if !self.is_lru {
            let (index, tag) = (SetIndex(tag), Tag(tag));
            let is_in = self.lookup(index, tag).is_some();
            if !is_in {
                self.insert(index, tag, 0);
            }
            return is_in;
        }
        let ways = &self.ways[first..first + self.associativity];
        let found = way_of(ways, tag);
        let slot = first + found.unwrap_or_else(|| least_recent(ways));
        self.clock += TICK;
        self.ways[slot] = Way { tag, state: self.clock };
        self.remember(tag, slot);
        found.is_some()
    }

    /// Looks up a line without touching it.
    #[inline]
    fn find(&self, index: SetIndex, tag: Tag) -> Option<Slot> {
        self.find_in(self.set_of(index), tag.0)
    }

    /// Finds a line whose number also selects its set, without touching it. `None` if the line is absent.
    #[inline]
    pub(crate) fn find_line(&self, line: LineAddress) -> Option<Slot> {
        self.find(line.into(), line.into())
    }

    /// Finds a line in a set, without touching it. `None` if the line is absent.
    #[inline(always)]
    fn find_in(&self, set: usize, tag: u64) -> Option<Slot> {
        let first = set * self.associativity;
        if let Some(slot) = self.hinted(set, tag) {
            return Some(slot);
        }
        Some(first + way_of(&self.ways[first..first + self.associativity], tag)?)
    }

    /// Looks up a physical line, without touching it, in all sets that may hold it.
    #[inline]
    pub(crate) fn find_physical(&self, line: LineAddress) -> Option<Slot> {
        if self.colours == 1 {
            return self.find_line(line);
        }
        // Only the bits of the line number within a page are known of the virtual index.
        let page_bits = PAGE_SHIFT.saturating_sub(self.line_shift);
        let known_bits = line.0 & ((1 << page_bits) - 1);
        let index = |colour| SetIndex(known_bits | colour << page_bits);
        (0..self.colours).find_map(|colour| self.find(index(colour), line.into()))
    }

    /// The first present line of a range of physical lines, and its slot. `None` if no line is present. Does not touch
    /// the line that it finds.
    pub(crate) fn find_first(&self, mut lines: LineRange) -> Option<(LineAddress, Slot)> {
        let (LineAddress(start), count) = (lines.first(), lines.lines());
        let set = start & self.set_mask;
        // Only arrays of small sets know the MRU line. Large sets have hints, which are faster than a scan.
        let can_scan = self.colours == 1 && self.slices == 1 && self.knows_mru;
        let sets_to_end = self.set_mask + 1 - set;
        if can_scan && count <= sets_to_end {
            // The lines of the range belong to adjacent sets, one each: a scan finds them in order. An empty way never
            // matches, because EMPTY is beyond every range.
            let first = set as usize * self.associativity;
            let ways = &self.ways[first..][..count as usize * self.associativity];
            let way = ways.iter().position(|way| way.tag.wrapping_sub(start) < count)?;
            return Some((LineAddress(ways[way].tag), first + way));
        }
        lines.find_map(|line| Some((line, self.find_physical(line)?)))
    }

    /// All lines, those that were used least recently first. With LRU the order within each set is exact. Between sets
    /// it is not known, because repeated uses of a set's newest line are not noted: the oldest lines of all full sets
    /// come first, and the newest lines of all sets last. Without LRU the order within a set is that of its ways.
    pub(crate) fn lines_by_use(&self) -> Vec<LineAddress> {
        let mut lines = Vec::new();
        for set in self.ways.chunks_exact(self.associativity) {
            let mut held: Vec<Way> = set.iter().copied().filter(|way| way.tag != EMPTY).collect();
            held.sort_by_key(|way| way.state / TICK);
            let newest_first = held.iter().rev().enumerate();
            lines.extend(newest_first.map(|(newer_lines, way)| {
                (Reverse(newer_lines), way.state / TICK, LineAddress(way.tag))
            }));
        }
        lines.sort_unstable();
        lines.into_iter().map(|(_, _, line)| line).collect()
    }

    /// Whether a line is present. Does not touch it.
    #[must_use]
    pub fn contains(&self, line: LineAddress) -> bool {
        self.find_physical(line).is_some()
    }

    /// Updates the replacement state: `tag`, which is in `slot`, is now the most recently used line
    /// of its set.
    #[inline(always)]
    fn touch(&mut self, set: usize, slot: Slot, tag: u64) {
        if self.is_lru {
            self.clock += TICK;
            self.ways[slot].state = self.ways[slot].state & FLAGS | self.clock;
        } else {
            self.touch_tree(set, slot);
        }
        self.remember(tag, slot);
        if self.knows_mru {
            self.mru[set] = Mru { tag, slot };
        }
    }

    /// Updates the tree of a set with tree pseudo-LRU.
    #[inline(never)]
    fn touch_tree(&mut self, set: usize, slot: Slot) {
        if let Policy::TreePlru(trees) = &mut self.policy {
            trees[set] = plru_touch(trees[set], slot % self.associativity, self.associativity);
        }
    }

    /// Fills a line that is absent. Returns its slot, and the victim if all ways were in use.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        index: SetIndex,
        Tag(tag): Tag,
        flags: u8,
    ) -> (Slot, Option<Evicted>) {
        let set = self.set_of(index);
        let slot = self.victim(set);
        let new = Way { tag, state: flags.into() };
        let old = std::mem::replace(&mut self.ways[slot], new);
        self.touch(set, slot, tag);
        (slot, old.victim())
    }

    /// [`TagArray::insert`] for a line whose number also selects its set.
    #[inline(always)]
    pub(crate) fn insert_line(&mut self, line: LineAddress, flags: u8) -> (Slot, Option<Evicted>) {
        self.insert(line.into(), line.into(), flags)
    }

    /// Fills a line that is absent into one of the first `ways` ways of its set; at least 1. Returns the victim, or
    /// `None` if a way was empty. For writes of devices into the last level.
    pub(crate) fn insert_within(
        &mut self,
        LineAddress(tag): LineAddress,
        flags: u8,
        ways: usize,
    ) -> Option<Evicted> {
        let set = self.set_of(SetIndex(tag));
        let first = set * self.associativity;
        let allowed_ways = &self.ways[first..first + ways.min(self.associativity)];
        let way = match way_of(allowed_ways, EMPTY) {
            Some(empty) => empty,
            None if self.is_lru => least_recent(allowed_ways),
            // Other policies do not order the allowed ways, so consecutive lines of a set take turns.
            None => (tag / (self.set_mask + 1)) as usize % allowed_ways.len(),
        };
        let victim =
            std::mem::replace(&mut self.ways[first + way], Way { tag, state: flags.into() });
        self.touch(set, first + way, tag);
        victim.victim()
    }

    /// The slot that the next new line of a set takes: an empty one if there is one.
    #[inline(always)]
    fn victim(&mut self, set: usize) -> Slot {
        let first = set * self.associativity;
        let slots = first..first + self.associativity;
        // With LRU, an empty way has the earliest time: 0.
        first
            + if self.is_lru {
                least_recent(&self.ways[slots])
            } else {
                self.victim_way(set, slots)
            }
    }

    /// The way of a victim, for policies other than LRU.
    #[inline(never)]
    fn victim_way(&mut self, set: usize, slots: std::ops::Range<Slot>) -> usize {
        if let Some(empty) = way_of(&self.ways[slots], EMPTY) {
            return empty;
        }
        match &mut self.policy {
            Policy::TreePlru(trees) => plru_victim(trees[set], self.associativity),
            Policy::Random(state) => {
                *state = xorshift(*state);
                (*state % self.associativity as u64) as usize
            }
            Policy::Lru => 0,
        }
    }

    /// Removes the line in a slot.
    pub(crate) fn remove(&mut self, slot: Slot) -> Evicted {
        let removed = std::mem::replace(&mut self.ways[slot], EMPTY_WAY).evicted();
        let set = slot / self.associativity;
        if self.mru[set].slot == slot {
            self.mru[set] = NO_MRU;
        }
        removed
    }

    /// Removes all lines whose tags fulfil a condition.
    pub(crate) fn remove_if(&mut self, mut condition: impl FnMut(Tag) -> bool) {
        for slot in 0..self.ways.len() {
            if self.ways[slot].tag != EMPTY && condition(Tag(self.ways[slot].tag)) {
                self.remove(slot);
            }
        }
    }

    pub fn clear(&mut self) {
        self.mru.fill(NO_MRU);
        self.ways.fill(EMPTY_WAY);
    }

    #[inline(always)]
    pub(crate) fn flags(&self, slot: Slot) -> u8 {
        (self.ways[slot].state & FLAGS) as u8
    }

    #[inline(always)]
    pub(crate) fn set_flags(&mut self, slot: Slot, flags: u8) {
        let state = &mut self.ways[slot].state;
        *state = *state & !FLAGS | u64::from(flags);
    }

    /// The number of lines that the array has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.ways.len()
    }

    /// All present lines, in no particular order.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Evicted> {
        self.ways.iter().filter_map(|way| way.victim())
    }
}

/// The number of hints of an array: zero or a power of two.
fn hint_count(lines: usize, knows_mru: bool) -> usize {
    match lines {
        0..=LINES_HINTED => (2 * lines).next_power_of_two().max(HINTS_MIN),
        _ if knows_mru => 0,
        _ => HINTS_MIN,
    }
}

/// The index of a tag's hint. `hints`: the number of hints, zero or a power of two. Mixes in the highest bits, where
/// some tags have the lowest bits of an address.
#[inline(always)]
fn hint_index(tag: u64, hints: usize) -> usize {
    (tag ^ tag >> 53) as usize & hints.wrapping_sub(1)
}

/// The way of a set that holds a tag. `None` if no way does. The compiler unrolls loops of a constant length.
#[inline(always)]
fn way_of(ways: &[Way], tag: u64) -> Option<usize> {
    #[inline(always)]
    fn unrolled<const WAYS: usize>(ways: &[Way], tag: u64) -> Option<usize> {
        let ways: &[Way; WAYS] = ways.try_into().ok()?;
        // No branch per way, because the host could not predict which way it is.
        let mut found = WAYS;
        for (index, way) in ways.iter().enumerate().rev() {
            found = if way.tag == tag { index } else { found };
        }
        (found < WAYS).then_some(found)
    }
    match ways.len() {
        1 => unrolled::<1>(ways, tag),
        2 => unrolled::<2>(ways, tag),
        4 => unrolled::<4>(ways, tag),
        8 => unrolled::<8>(ways, tag),
        _ => ways.iter().position(|way| way.tag == tag),
    }
}

/// The least recently used way of a set, or the first empty one.
#[inline(always)]
fn least_recent(ways: &[Way]) -> usize {
    #[inline(always)]
    fn unrolled<const WAYS: usize>(ways: &[Way]) -> usize {
        <&[Way; WAYS]>::try_from(ways).map_or(0, |ways| oldest_way(ways))
    }
    #[inline(always)]
    fn oldest_way(ways: &[Way]) -> usize {
        let (mut oldest, mut earliest) = (0, u64::MAX);
        for (index, way) in ways.iter().enumerate() {
            if way.state < earliest {
                (oldest, earliest) = (index, way.state);
            }
        }
        oldest
    }
    match ways.len() {
        1 => 0,
        2 => unrolled::<2>(ways),
        4 => unrolled::<4>(ways),
        8 => unrolled::<8>(ways),
        _ => oldest_way(ways),
    }
}

/// The next state of a random generator (Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003).
fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

/// Follows the bits of a tree to a way that was not used recently. Node `n` has the children `2n` and `2n + 1`, and its
/// bit selects one of both.
fn plru_victim(tree: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (tree >> node & 1) as usize;
    }
    node - ways
}

/// Returns the tree with the bits on the path to `way` pointing away from that way.
fn plru_touch(mut tree: u64, way: usize, ways: usize) -> u64 {
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
    use proptest::prelude::*;

    fn array(size_bytes: u64, ways: u32, replacement: Replacement) -> TagArray {
        let model = CacheModel { size_bytes, ways, line_bytes: 64, replacement };
        model.check("test").unwrap();
        TagArray::new(&model)
    }

    fn evicted(line: u64, flags: u8) -> Outcome {
        Outcome::Miss(Some(Evicted { line: LineAddress(line), flags }))
    }

    #[test]
    fn lru_evicts_the_line_that_was_unused_for_longest() {
        let mut array = array(4 * 64, 4, Replacement::Lru);
        for line in [1, 2, 3, 4, 1] {
            array.access(LineAddress(line), false);
        }
        assert_eq!(array.access(LineAddress(5), false), evicted(2, 0));
        assert!(array.contains(LineAddress(1)) && !array.contains(LineAddress(2)));
    }

    #[test]
    fn a_written_line_is_evicted_dirty() {
        let mut array = array(64, 1, Replacement::Lru);
        assert_eq!(array.access(LineAddress(7), true), Outcome::Miss(None));
        assert_eq!(array.access(LineAddress(7), false), Outcome::Hit);
        assert_eq!(array.access(LineAddress(8), false), evicted(7, DIRTY));
        assert_eq!(array.access(LineAddress(7), false), evicted(8, 0));
    }

    #[test]
    fn tree_plru_never_evicts_the_most_recently_used_line() {
        let mut array = array(8 * 64, 8, Replacement::TreePlru);
        for line in 0..1000u64 {
            let line = LineAddress(line * 7 % 23);
            array.access(line, false);
            assert!(array.contains(line));
            array.access(line.plus(100), false);
            assert!(array.contains(line), "{line:?}");
        }
    }

    #[test]
    fn random_replacement_repeats() {
        let run = || {
            let mut array = array(16 * 64, 4, Replacement::Random);
            (0..500u64).map(|n| array.access(LineAddress(n * n % 61), false)).collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
    }

    /// Sets as lists of lines, the most recently used first.
    struct Naive(Vec<Vec<(LineAddress, bool)>>);

    impl Naive {
        fn remove(&mut self, line: LineAddress) -> Option<(LineAddress, bool)> {
            let sets = self.0.len() as u64;
            let set = &mut self.0[(line.0 % sets) as usize];
            let position = set.iter().position(|(held, _)| *held == line)?;
            Some(set.remove(position))
        }

        /// Whether the line was in, and what it evicted.
        fn access(&mut self, line: LineAddress, write: bool, ways: usize) -> Outcome {
            let removed = self.remove(line);
            let sets = self.0.len() as u64;
            let set = &mut self.0[(line.0 % sets) as usize];
            set.insert(0, (line, write || removed.is_some_and(|(_, dirty)| dirty)));
            let out = if set.len() > ways { set.pop() } else { None };
            match removed {
                Some(_) => Outcome::Hit,
                None => Outcome::Miss(
                    out.map(|(line, dirty)| Evicted { line, flags: flag_if(dirty, DIRTY) }),
                ),
            }
        }
    }

    /// An array of `slices` slices of four sets.
    fn sliced(slices: u64, ways: u32) -> TagArray {
        let size_bytes = slices * 4 * u64::from(ways) * 64;
        let model = CacheModel { size_bytes, ways, line_bytes: 64, replacement: Replacement::Lru };
        model.check_sliced("test").unwrap();
        assert_eq!((model.slices(), model.check("test").is_ok()), (slices, slices == 1));
        TagArray::new(&model)
    }

    #[test]
    fn lines_of_any_stride_spread_over_all_slices() {
        for (slices, stride) in [(3, 1), (5, 64), (60 / 4, 4096), (7, 1 << 20), (1365, 3)] {
            let array = sliced(slices, 1);
            let mut lines = vec![0_u64; slices as usize];
            for number in 0..slices * 1000 {
                let set = array.set_of(SetIndex(number * stride));
                assert_eq!(set as u64 % 4, number * stride % 4);
                lines[set / 4] += 1;
            }
            assert!(lines.iter().all(|lines| (800..=1200).contains(lines)), "{stride} {lines:?}");
        }
    }

    proptest! {
        /// Each slice is a cache of its own.
        #[test]
        fn sliced_lru_equals_lists_in_order_of_use(
            slices in prop_oneof![Just(1u64), Just(3), Just(5), Just(15)],
            ways in prop_oneof![1u32..20, Just(64)],
            operations in prop::collection::vec((0u64..2000, any::<bool>(), 0u32..12), 1..600),
        ) {
            let mut array = sliced(slices, ways);
            let mut lists: Vec<_> =
                (0..slices * 4).map(|_| Naive(vec![Vec::new()])).collect();
            for (number, write, what) in operations {
                let line = LineAddress(number);
                let list = &mut lists[array.set_of(SetIndex(number))];
                let found = array.find_first(LineRange::new(line, 1)).map(|(line, _)| line);
                prop_assert_eq!(found.is_some(), list.0[0].iter().any(|(held, _)| *held == line));
                if what == 0 {
                    let removed = array.find_line(line).map(|slot| array.remove(slot).line);
                    prop_assert_eq!(removed, list.remove(line).map(|(line, _)| line));
                    continue;
                }
                let is_mru = array.is_mru(line);
                let outcome = if array.access_mru(line, write) {
                    Outcome::Hit
                } else {
                    array.access(line, write)
                };
                prop_assert_eq!(outcome, list.access(line, write, ways as usize));
                prop_assert!(!is_mru || outcome == Outcome::Hit);
            }
        }

        #[test]
        fn lru_equals_a_list_in_order_of_use(
            ways in prop_oneof![1u32..20, Just(64)],
            sets_log in 0u32..4,
            operations in prop::collection::vec((0u64..200, any::<bool>(), 0u32..12), 1..400),
        ) {
            let mut array = array((u64::from(ways) << sets_log) * 64, ways, Replacement::Lru);
            let mut naive = Naive(vec![Vec::new(); 1 << sets_log]);
            for (line, write, what) in operations {
                let line = LineAddress(line);
                if what == 0 {
                    let removed = array.find_line(line).map(|slot| array.remove(slot).line);
                    prop_assert_eq!(removed, naive.remove(line).map(|(line, _)| line));
                    continue;
                }
                let is_mru = array.is_mru(line);
                let outcome = if array.access_mru(line, write) {
                    Outcome::Hit
                } else {
                    array.access(line, write)
                };
                prop_assert_eq!(outcome, naive.access(line, write, ways as usize));
                prop_assert!(array.is_mru(line) || ways > 16);
                prop_assert!(!is_mru || outcome == Outcome::Hit);
            }
        }

        /// Lines whose numbers differ in the highest bits only have the same set, and hints of their own.
        #[test]
        fn touch_or_fill_equals_a_list_in_order_of_use(
            ways in prop_oneof![1u32..10, Just(32)],
            sets_log in 0u32..4,
            operations in prop::collection::vec((0u64..60, 0u64..4, 0u32..12), 1..400),
        ) {
            let size_bytes = (u64::from(ways) << sets_log) * 64;
            let model =
                CacheModel { size_bytes, ways, line_bytes: 64, replacement: Replacement::Lru };
            let mut array = TagArray::without_mru(&model);
            let mut naive = Naive(vec![Vec::new(); 1 << sets_log]);
            for (line, part, what) in operations {
                let line = LineAddress(line ^ part << 56);
                if what == 0 {
                    array.remove_if(|held| held == line.into());
                    naive.remove(line);
                    continue;
                }
                let outcome = naive.access(line, false, ways as usize);
                prop_assert_eq!(array.touch_or_fill(line.into()), outcome == Outcome::Hit);
            }
        }

        /// A lookup finds a line in every set that a virtual address can select.
        #[test]
        fn virtually_indexed_lines_are_found_by_their_physical_number(
            colour in 0u64..4,
            offset in 0u64..64,
            ways in prop_oneof![Just(1u32), Just(32)],
        ) {
            let model = CacheModel {
                size_bytes: (16 << 10) * u64::from(ways),
                ways,
                line_bytes: 64,
                replacement: Replacement::Lru,
            };
            let mut array = TagArray::indexed(&model, Index::Virtual);
            let line = LineAddress(7 << 6 | offset);
            let (slot, _) = array.insert(SetIndex(colour << 6 | offset), line.into(), 0);
            prop_assert_eq!(array.find_physical(line), Some(slot));
            array.remove(slot);
            prop_assert_eq!(array.find_physical(line), None);
        }
    }
}
