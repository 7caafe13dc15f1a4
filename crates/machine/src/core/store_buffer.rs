//! The store buffer of a core, and which loads take their values from it.

use super::Access;
use super::ready_time::ReadyTime;
use super::stages::{EntryQueue, WidthLimiter};
use crate::cycle::Cycle;

/// Number of 8-byte granules with a known last store. A later store with equal low address bits replaces a
/// granule's store, like the 4 KiB aliases of real cores.
const GRANULES: usize = 512;

/// The last store to a granule: what each load asks for.
#[derive(Clone, Copy, Debug, Default)]
struct Granule {
    /// The granule's number plus one; zero for none.
    name: u64,
    /// When it leaves for the cache.
    leaves: Cycle,
}

/// The value of a store, for the loads that memory renaming serves.
#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    /// When the value is known.
    known: Cycle,
    /// How the address of the store was formed; see [`Instruction::address_form`].
    form: u16,
    /// The bytes that were stored, a bit each.
    mask: u8,
}

/// When what a store needs is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) value: Cycle,
    pub(super) address: Cycle,
}

/// Where a load gets its value from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Cache,
    /// An earlier store, whose value is known at this time.
    Store(Cycle),
    /// The store's value, after the load's register was renamed to the store's register.
    Renamed(Cycle),
    /// The cache, after a store to a part of the value has drained at this time.
    CacheAfter(Cycle),
}

#[derive(Clone, Debug)]
pub(super) struct StoreBuffer {
    /// When each becomes free, and whether its store missed.
    entries: EntryQueue<ReadyTime>,
    leaving: WidthLimiter,
    last_left: Cycle,
    one_line: bool,
    /// Whether stores of a cycle may be of any width, and to the same bytes of that line.
    any_of_line: bool,
    /// How many stores of vector registers leave in a cycle; zero if there is no limit.
    vectors_per_cycle_max: u32,
    /// When the last store of a vector register left, and how many have left in that cycle.
    vectors: (Cycle, u32),
    /// The bytes that were stored last, in one line.
    last: StoredBytes,
    granules: Box<[Granule; GRANULES]>,
    stored: Box<[Stored; GRANULES]>,
    /// The last stored granule for each offset in a page, and the time at which its value is known. Empty if
    /// the core has no 4K aliasing.
    aliases: Box<[(Granule, Cycle)]>,
    /// When the address of the last store to each granule was known. Empty if that does not matter.
    addresses: Box<[Cycle]>,
}

/// Bytes by their virtual addresses, from `start` to before `end`.
#[derive(Clone, Copy, Debug, Default)]
struct StoredBytes {
    start: u64,
    end: u64,
}

/// Where a granule is kept. Addresses that are 4 KiB apart have different places.
#[inline]
fn slot(granule: u64) -> usize {
    (granule ^ granule >> 9 ^ granule >> 18) as usize & (GRANULES - 1)
}

/// Accesses of an instruction that are adjacent are one access, up to `most` bytes: QEMU makes
/// several of a wide one.
#[inline]
pub(super) fn next_access(accesses: &mut &[Access], write: bool, bytes_max: u8) -> Option<Access> {
    match accesses {
        // The common cases.
        [] => None,
        [only] => {
            *accesses = &[];
            (only.write == write).then_some(*only)
        }
        _ => next_of_several(accesses, write, bytes_max),
    }
}

#[inline(never)]
fn next_of_several(accesses: &mut &[Access], write: bool, bytes_max: u8) -> Option<Access> {
    loop {
        let (first, rest) = accesses.split_first()?;
        *accesses = rest;
        if first.write != write {
            continue;
        }
        let mut merged = *first;
        while let Some((next, rest)) = accesses.split_first()
            && next.write == write
            && next.virtual_address == merged.virtual_address.wrapping_add(merged.bytes.into())
            && u16::from(merged.bytes) + u16::from(next.bytes) <= u16::from(bytes_max)
            && next.virtual_address & 4_095 != 0
        {
            merged.bytes += next.bytes;
            *accesses = rest;
        }
        return Some(merged);
    }
}

/// Lines of L1D for the rules of loads and stores that cross them.
const LINE_SHIFT: u32 = 6;

/// Whether an access crosses from a line to the next.
#[inline]
pub(super) fn is_split(access: &Access) -> bool {
    let last = access.virtual_address.wrapping_add(u64::from(access.bytes.max(1)) - 1);
    access.virtual_address >> LINE_SHIFT != last >> LINE_SHIFT
}

/// Whether two of an instruction's accesses are the parts of a store, or of a load, on both sides of a page's end.
#[inline(never)]
pub(super) fn crosses_pages(accesses: &[Access], write: bool) -> bool {
    accesses.windows(2).any(|pair| {
        let [first, second] = pair else { return false };
        let end = first.virtual_address.wrapping_add(first.bytes.into());
        first.write == write
            && second.write == write
            && end == second.virtual_address
            && end & 4_095 == 0
    })
}

/// The granules of an access: number and mask of each.
fn parts(access: &Access) -> impl Iterator<Item = (u64, u8)> {
    let (first, bytes) = (access.virtual_address, u64::from(access.bytes.max(1)));
    let last = first.saturating_add(bytes - 1);
    (first >> 3..=last >> 3).map(move |granule| {
        let from = first.max(granule << 3) & 7;
        let to = last.min(granule << 3 | 7) & 7;
        (granule, (0xff << from) as u8 & (0xff >> (7 - to)))
    })
}

impl StoreBuffer {
    pub(super) fn new(entries: u32, ports: u32) -> StoreBuffer {
        StoreBuffer {
            entries: EntryQueue::new(entries),
            leaving: WidthLimiter::new(ports),
            last_left: Cycle::START,
            one_line: false,
            any_of_line: false,
            vectors_per_cycle_max: 0,
            vectors: (Cycle::START, 0),
            last: StoredBytes::default(),
            granules: Box::new([Granule::default(); GRANULES]),
            stored: Box::new([Stored::default(); GRANULES]),
            aliases: Box::default(),
            addresses: Box::default(),
        }
    }

    /// Limits the drain to one line per cycle. Unless `any` is set, no byte of the line may be stored twice in
    /// a cycle.
    pub(super) fn one_line_per_cycle(mut self, one_line: bool, any: bool) -> StoreBuffer {
        (self.one_line, self.any_of_line) = (one_line, any);
        self
    }

    /// Limits the number of vector stores that drain per cycle. `None`: no limit.
    pub(super) fn with_vector_limit(mut self, limit: Option<u32>) -> StoreBuffer {
        self.vectors_per_cycle_max = limit.unwrap_or(0);
        self
    }

    /// The time at which the next store can drain. The store is ready at `earliest`, and is a vector store or
    /// not.
    #[inline]
    pub(super) fn after_vectors(&mut self, earliest: Cycle, is_vector: bool) -> Cycle {
        if self.vectors_per_cycle_max == 0 || !is_vector {
            return earliest;
        }
        let earliest = earliest.max(self.last_left).max(self.leaving.next(Cycle::START));
        let (cycle, number) = self.vectors;
        let cycle = match earliest <= cycle {
            true if number < self.vectors_per_cycle_max => cycle,
            true => cycle.next(),
            false => earliest,
        };
        self.vectors = (cycle, if cycle == self.vectors.0 { number + 1 } else { 1 });
        cycle
    }

    /// Records the offsets of stores in their pages, for loads with 4K aliasing.
    pub(super) fn with_aliases(mut self, with: bool) -> StoreBuffer {
        let places = if with { GRANULES } else { 0 };
        self.aliases = vec![(Granule::default(), Cycle::START); places].into();
        self
    }

    /// Records when each store's address became known, for `address_known_at`.
    pub(super) fn with_addresses(mut self, with: bool) -> StoreBuffer {
        self.addresses = vec![Cycle::START; if with { GRANULES } else { 0 }].into();
        self
    }

    /// When the address of the store was known that a load gets its value from; none if that does not matter.
    #[inline]
    pub(super) fn address_known(&self, load: &Access) -> Option<Cycle> {
        self.addresses.get(slot(load.virtual_address >> 3)).copied()
    }

    /// If a load that starts at `start` has the same place in a page as a store to another page that has
    /// not left before: when the value of that store is known.
    #[inline]
    pub(super) fn aliased(&self, load: &Access, start: Cycle) -> Option<Cycle> {
        let granule = load.virtual_address >> 3;
        let (store, known) = self.aliases.get(granule as usize % GRANULES)?;
        let is_other = store.name != 0 && store.name != granule + 1;
        (is_other && store.leaves >= start).then_some(*known)
    }

    /// When the next store has an entry, and whether it waits for a miss.
    #[inline]
    pub(super) fn next_entry(&self) -> ReadyTime {
        self.entries.oldest()
    }

    /// Whether a load in one line that starts at `start` may get a part of its value from a store: false if it
    /// does not.
    #[inline(always)]
    pub(super) fn may_be_source(&self, load: &Access, start: Cycle) -> bool {
        let (first, bytes) = (load.virtual_address, u64::from(load.bytes.max(1)));
        let store = &self.granules[slot(first >> 3)];
        let is_one = first & 7 <= 8 - bytes.min(8) && bytes <= 8;
        !is_one | ((store.name == (first >> 3) + 1) & (store.leaves > start))
    }

    /// The source of the value of a load that starts at `start`. `form` is the form of its address if the core
    /// renames memory: then a load of the whole value of a store with the same form needs no access.
    #[inline]
    pub(super) fn source(&self, load: &Access, form: u16, start: Cycle) -> Source {
        let first = load.virtual_address;
        let last = first.wrapping_add(u64::from(load.bytes.max(1)) - 1);
        if first >> 3 == last >> 3 {
            // The common case: one granule, which no store in the buffer has stored to.
            let store = &self.granules[slot(first >> 3)];
            if store.name != (first >> 3) + 1 || store.leaves <= start {
                return Source::Cache;
            }
        }
        self.source_of_parts(load, form, start)
    }

    /// [`StoreBuffer::source`] of any load.
    #[inline(never)]
    fn source_of_parts(&self, load: &Access, form: u16, start: Cycle) -> Source {
        let mut source = Source::Cache;
        if form != 0 {
            let granule = load.virtual_address >> 3;
            let (store, stored) = (&self.granules[slot(granule)], &self.stored[slot(granule)]);
            if stored.form == form && store.name == granule + 1 && store.leaves > start {
                let mut parts = parts(load);
                let covers_store = parts.next().is_some_and(|(_, mask)| mask == stored.mask);
                if covers_store && parts.next().is_none() {
                    return Source::Renamed(stored.known);
                }
            }
        }
        for (number, (granule, mask)) in parts(load).enumerate() {
            let (store, stored) = (&self.granules[slot(granule)], &self.stored[slot(granule)]);
            let there =
                store.name == granule + 1 && store.leaves > start && stored.mask & mask != 0;
            let single_store = Source::Store(stored.known);
            source = match source {
                // From two stores, or a store and the cache: from the cache, once all have left.
                Source::Cache if !there => Source::Cache,
                Source::Cache if number == 0 && mask & !stored.mask == 0 => single_store,
                Source::Store(_) if there && mask & !stored.mask == 0 && source == single_store => {
                    single_store
                }
                _ if there => Source::CacheAfter(self.last_left.max(store.leaves)),
                _ => Source::CacheAfter(self.last_left),
            };
        }
        source
    }

    /// The stores of an instruction leave for the cache, not before `earliest`. Returns when.
    #[inline]
    pub(super) fn leave(&mut self, earliest: Cycle, missed: bool) -> Cycle {
        let leaves = self.leaving.take(earliest.max(self.last_left));
        self.record_leave(leaves, missed)
    }

    /// [`StoreBuffer::leave_by_line`] of an instruction with one store, which crosses no line.
    #[inline(always)]
    pub(super) fn leave_alone(&mut self, store: &Access, earliest: Cycle, missed: bool) -> Cycle {
        if self.one_line {
            self.join_line(store);
        }
        self.leave(earliest, missed)
    }

    /// Lets a store drain in the cycle of the last store if the rules of its line allow that, or else in a later one.
    #[inline(always)]
    fn join_line(&mut self, store: &Access) {
        let start = store.virtual_address;
        let stored = StoredBytes { start, end: start.wrapping_add(store.bytes.max(1).into()) };
        let same_line = (stored.start ^ self.last.start) >> LINE_SHIFT == 0;
        let apart = stored.end <= self.last.start || stored.start >= self.last.end;
        // Two of up to 16 bytes each.
        let narrow = store.bytes <= 16;
        if !(same_line && (apart && narrow || self.any_of_line)) {
            self.leaving.end_cycle();
        }
        self.last = stored;
    }

    /// Like `leave`, on a core that writes one line per cycle: stores to the same line drain together.
    #[inline]
    pub(super) fn leave_by_line(
        &mut self,
        accesses: &[Access],
        bytes_max: u8,
        earliest: Cycle,
        missed: bool,
    ) -> Cycle {
        if !self.one_line {
            return self.leave(earliest, missed);
        }
        let mut remaining = accesses;
        let mut leaves = self.last_left.max(earliest);
        let mut any = false;
        while let Some(store) = next_access(&mut remaining, true, bytes_max) {
            any = true;
            self.join_line(&store);
            leaves = self.leaving.take(leaves);
            if is_split(&store) {
                self.leaving.end_cycle();
                leaves = self.leaving.take(leaves);
                self.leaving.end_cycle();
            }
        }
        if !any {
            // A fence takes a cycle of its own.
            self.leaving.end_cycle();
            leaves = self.leaving.take(leaves);
            self.leaving.end_cycle();
        }
        self.record_leave(leaves, missed)
    }

    /// All stores of an instruction have left at `leaves`.
    #[inline(always)]
    fn record_leave(&mut self, leaves: Cycle, missed: bool) -> Cycle {
        self.last_left = leaves;
        self.entries.push(ReadyTime::new(leaves, missed));
        leaves
    }

    /// Remembers the value of a store by the form of its address. Both are known at `known`, and the store
    /// drains at `leaves`.
    #[inline(always)]
    pub(super) fn remember(&mut self, store: &Access, form: u16, known: Known, leaves: Cycle) {
        let (granule, at) = (store.virtual_address >> 3, store.virtual_address & 7);
        if at + u64::from(store.bytes) > 8 || store.bytes == 0 {
            return self.remember_parts(store, form, known, leaves);
        }
        let mask = (0xff_u64 >> (8 - u32::from(store.bytes)) << at) as u8;
        self.remember_part(granule, leaves, (known, form, mask));
    }

    /// [`StoreBuffer::remember`] of a store to any number of granules.
    #[inline(never)]
    fn remember_parts(&mut self, store: &Access, form: u16, known: Known, leaves: Cycle) {
        for (granule, mask) in parts(store) {
            self.remember_part(granule, leaves, (known, form, mask));
        }
    }

    #[inline(always)]
    fn remember_part(&mut self, granule: u64, leaves: Cycle, of: (Known, u16, u8)) {
        let (known, form, mask) = of;
        let (name, stored) = (granule + 1, Stored { known: known.value, form, mask });
        self.granules[slot(granule)] = Granule { name, leaves };
        self.stored[slot(granule)] = stored;
        if let Some(address) = self.addresses.get_mut(slot(granule)) {
            *address = known.address;
        }
        if let Some(alias) = self.aliases.get_mut(granule as usize % GRANULES) {
            *alias = (Granule { name, leaves }, stored.known);
        }
    }

    /// When the last store has left.
    #[inline]
    pub(super) fn all_left(&self) -> Cycle {
        self.last_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(address: u64, bytes: u8) -> Access {
        Access {
            virtual_address: address,
            physical: Some(address),
            instruction: 0,
            bytes,
            write: true,
        }
    }

    #[test]
    fn granules_have_the_bytes_of_an_access() {
        let all = |address, bytes| parts(&access(address, bytes)).collect::<Vec<_>>();
        assert_eq!(all(0x1000, 8), [(0x200, 0xff)]);
        assert_eq!(all(0x1002, 2), [(0x200, 0b1100)]);
        assert_eq!(all(0x1006, 4), [(0x200, 0b1100_0000), (0x201, 0b11)]);
        assert_eq!(all(0x1000, 0), [(0x200, 1)]);
        assert_eq!(all(0x1004, 64).len(), 9);
        assert_eq!(all(u64::MAX, 8), [(u64::MAX >> 3, 0x80)]);
    }

    fn known_at(value: u64) -> Known {
        let value = Cycle(value);
        Known { value, address: value }
    }

    #[test]
    fn a_load_takes_what_is_whole_in_one_store_that_has_not_left() {
        let mut stores = StoreBuffer::new(8, 1);
        let leaves = stores.leave(Cycle(50), false);
        stores.remember(&access(0x1000, 16), 0, known_at(20), leaves);
        let source =
            |address, bytes, start| stores.source(&access(address, bytes), 0, Cycle(start));
        assert_eq!(source(0x1004, 4, 10), Source::Store(Cycle(20)));
        assert_eq!(source(0x1004, 8, 10), Source::Store(Cycle(20)));
        assert_eq!(source(0x100c, 8, 10), Source::CacheAfter(Cycle(50)));
        assert_eq!(source(0x1010, 8, 10), Source::Cache);
        assert_eq!(source(0x1004, 4, 50), Source::Cache);
        // A later store overwrites a part of the first store's bytes.
        let leaves = stores.leave(Cycle(60), false);
        stores.remember(&access(0x1004, 4), 0, known_at(30), leaves);
        let source =
            |address, bytes, start| stores.source(&access(address, bytes), 0, Cycle(start));
        assert_eq!(source(0x1004, 4, 10), Source::Store(Cycle(30)));
        assert_eq!(source(0x1000, 8, 10), Source::CacheAfter(Cycle(60)));
    }

    #[test]
    fn stores_drain_in_order_at_a_limited_rate() {
        let mut stores = StoreBuffer::new(2, 1);
        let drained = [10, 5, 5].map(|earliest| stores.leave(Cycle(earliest), true));
        assert_eq!(drained, [10, 11, 12].map(Cycle));
        assert_eq!(stores.next_entry(), ReadyTime::new(Cycle(11), true));
        assert_eq!(stores.all_left(), Cycle(12));
    }
}
