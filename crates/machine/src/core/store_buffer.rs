//! The store buffer of a core: when stores drain to the cache, and which loads take their values from it (store-to-load
//! forwarding). All cores use it; only the out-of-order core has the rules for lines, vector stores, aliases and memory
//! renaming. "Leave" means: drain to the cache.

use super::Access;
use super::ready_time::ReadyTime;
use super::stages::{EntryQueue, WidthLimiter};
use crate::address::VirtualAddress;
use crate::cycle::Cycle;

/// The logarithm of the size of a granule in bytes.
const GRANULE_SHIFT: u32 = 3;
/// Number of 8-byte granules with a known last store; a power of two. A store to another granule with the same index
/// replaces the known store.
const GRANULES: usize = 512;

/// The last store to a granule: the part that each load reads.
#[derive(Clone, Copy, Debug, Default)]
struct Granule {
    /// The granule's number plus one. Zero: none.
    name: u64,
    /// When the store leaves for the cache.
    leaves: Cycle,
}

/// The value of the last store to a granule: the part that only loads after a recent store read.
#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    /// When the value is known.
    known: Cycle,
    /// How the address of the store was formed: see `Instruction::address_form`.
    form: u16,
    /// The stored bytes of the granule, a bit each.
    mask: u8,
}

/// When a store's value and address are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) value: Cycle,
    pub(super) address: Cycle,
}

/// The source of a load's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Cache,
    /// A store forwards its value, which is known at this time.
    Store(Cycle),
    /// Memory renaming: the load's register is renamed to the store's register, whose value is known at this time.
    Renamed(Cycle),
    /// The cache, after this time: a store to a part of the value must drain first.
    CacheAfter(Cycle),
}

#[derive(Clone, Debug)]
pub(super) struct StoreBuffer {
    /// When each entry becomes free, and whether its store missed.
    entries: EntryQueue<ReadyTime>,
    /// Limits how many stores leave per cycle.
    leaving: WidthLimiter,
    /// When the last store leaves. Stores leave in program order.
    last_left: Cycle,
    /// Whether all stores that leave in a cycle go to one line.
    one_line: bool,
    /// With `one_line`: whether they may have any width and go to the same bytes.
    any_of_line: bool,
    /// Maximum number of vector stores that leave per cycle. Zero: no limit.
    vectors_per_cycle_max: u32,
    /// The cycle when the last vector store left, and the number of vector stores in that cycle.
    vectors: (Cycle, u32),
    /// With `one_line`: the bytes of the last store.
    last: StoredBytes,
    granules: Box<[Granule; GRANULES]>,
    stored: Box<[Stored; GRANULES]>,
    /// For each offset in a page, the last stored granule and the time at which its value is known. Empty if the core
    /// has no 4K aliasing.
    aliases: Box<[(Granule, Cycle)]>,
    /// When the address of the last store to each granule was known. Empty unless loads may retry: see
    /// [`DataModel::forward_again_cycles`](super::DataModel::forward_again_cycles).
    addresses: Box<[Cycle]>,
}

/// Bytes by their virtual addresses, from `start` to before `end`.
#[derive(Clone, Copy, Debug, Default)]
struct StoredBytes {
    start: VirtualAddress,
    end: VirtualAddress,
}

/// The index of a granule. Addresses that are 4 KiB apart have different indices.
#[inline]
fn slot(granule: u64) -> usize {
    (granule ^ granule >> 9 ^ granule >> 18) as usize & (GRANULES - 1)
}

/// Takes the next load, or store if `write`, of an instruction. Joins adjacent accesses up to `bytes_max` bytes within
/// a page, because QEMU splits a wide access.
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

/// The general path of [`next_access`], for any number of accesses. `None` if there is no further access of this kind.
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
            && next.virtual_address == merged.end()
            && u16::from(merged.bytes) + u16::from(next.bytes) <= u16::from(bytes_max)
            && next.virtual_address.offset_in_page() != 0
        {
            merged.bytes += next.bytes;
            *accesses = rest;
        }
        return Some(merged);
    }
}

/// The logarithm of the line size for the rules of accesses that cross lines. It does not depend on the model.
pub(super) const LINE_SHIFT: u32 = 6;

/// Whether an access crosses the boundary between two lines.
#[inline]
pub(super) fn is_split(access: &Access) -> bool {
    !access.virtual_address.is_in_block_of(access.last_byte(), LINE_SHIFT)
}

/// Whether two of an instruction's accesses are the two parts of a load, or store if `write`, that crosses pages.
#[inline(never)]
pub(super) fn crosses_pages(accesses: &[Access], write: bool) -> bool {
    accesses.windows(2).any(|pair| {
        let [first, second] = pair else { return false };
        first.write == write
            && second.write == write
            && first.end() == second.virtual_address
            && first.end().offset_in_page() == 0
    })
}

/// The granules of an access: the number of each, and the mask of its accessed bytes.
fn parts(access: &Access) -> impl Iterator<Item = (u64, u8)> {
    let VirtualAddress(first) = access.virtual_address;
    // Bytes beyond the last address are ignored.
    let last = first.saturating_add(u64::from(access.bytes.max(1)) - 1);
    (first >> GRANULE_SHIFT..=last >> GRANULE_SHIFT).map(move |granule| {
        let first_byte = first.max(granule << GRANULE_SHIFT) & 7;
        let last_byte = last.min(granule << GRANULE_SHIFT | 7) & 7;
        (granule, (0xff << first_byte) as u8 & (0xff >> (7 - last_byte)))
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

    /// Limits the drain to one line per cycle if `one_line`. Unless `any_of_line`, the stores of a cycle must go to
    /// different bytes and have at most 16 bytes each.
    pub(super) fn one_line_per_cycle(mut self, one_line: bool, any_of_line: bool) -> StoreBuffer {
        (self.one_line, self.any_of_line) = (one_line, any_of_line);
        self
    }

    /// Limits the number of vector stores that drain per cycle. `None`: no limit.
    pub(super) fn with_vector_limit(mut self, limit: Option<u32>) -> StoreBuffer {
        self.vectors_per_cycle_max = limit.unwrap_or(0);
        self
    }

    /// The earliest time at which the next store can drain under the limit of vector stores. Without the limit, it
    /// could drain at `earliest`. Counts the store, so it must be called once per store.
    #[inline]
    pub(super) fn after_vectors(&mut self, earliest: Cycle, is_vector: bool) -> Cycle {
        if self.vectors_per_cycle_max == 0 || !is_vector {
            return earliest;
        }
        let earliest = earliest.max(self.last_left).max(self.leaving.next(Cycle::START));
        let (cycle, number) = self.vectors;
        let drained = if earliest > cycle {
            earliest
        } else if number < self.vectors_per_cycle_max {
            cycle
        } else {
            cycle.next()
        };
        self.vectors = (drained, if drained == cycle { number + 1 } else { 1 });
        drained
    }

    /// Records the offsets of stores in their pages, for loads with 4K aliasing.
    pub(super) fn with_aliases(mut self, is_enabled: bool) -> StoreBuffer {
        let offsets = if is_enabled { GRANULES } else { 0 };
        self.aliases = vec![(Granule::default(), Cycle::START); offsets].into();
        self
    }

    /// Records when each store's address became known, for [`StoreBuffer::address_known`].
    pub(super) fn with_addresses(mut self, is_enabled: bool) -> StoreBuffer {
        self.addresses = vec![Cycle::START; if is_enabled { GRANULES } else { 0 }].into();
        self
    }

    /// For a load whose source is a store: when the address of that store was known. `None` if the core does not record
    /// addresses.
    #[inline]
    pub(super) fn address_known(&self, load: &Access) -> Option<Cycle> {
        self.addresses.get(slot(load.virtual_address.block_number(GRANULE_SHIFT))).copied()
    }

    /// 4K aliasing: the time at which the value of an aliased store is known. The store went to another page, at the
    /// offset of a load that starts at `start`, and had not left by then. `None` if there is no such store, or if the load
    /// is from a device.
    #[inline]
    pub(super) fn aliased(&self, load: &Access, start: Cycle) -> Option<Cycle> {
        if load.is_of_device() {
            return None;
        }
        let granule = load.virtual_address.block_number(GRANULE_SHIFT);
        let (store, known) = self.aliases.get(granule as usize % GRANULES)?;
        let is_other = store.name != 0 && store.name != granule + 1;
        (is_other && store.leaves >= start).then_some(*known)
    }

    /// When the next store gets an entry, and whether it waits for a store that missed.
    #[inline]
    pub(super) fn next_entry(&self) -> ReadyTime {
        self.entries.oldest()
    }

    /// Whether a load within a line that starts at `start` may get a part of its value from a store. `false` is
    /// certain; `true` needs [`StoreBuffer::source`].
    #[inline(always)]
    pub(super) fn may_be_source(&self, load: &Access, start: Cycle) -> bool {
        let bytes = u64::from(load.bytes.max(1));
        let granule = load.virtual_address.block_number(GRANULE_SHIFT);
        let offset = load.virtual_address.offset_in_block(GRANULE_SHIFT);
        let store = &self.granules[slot(granule)];
        let is_one_granule = offset <= 8 - bytes.min(8) && bytes <= 8;
        // `|` and `&` instead of `||` and `&&`: no branches on the host.
        !is_one_granule | ((store.name == granule + 1) & (store.leaves > start))
    }

    /// The source of the value of a load that starts at `start`. `form`: the form of the load's address if the core
    /// renames memory, else 0. Memory renaming needs a store with an equal form whose bytes are all loaded, and no
    /// others. A load from a device always gets its value from the device, which may differ from the stored value:
    /// [`Source::Cache`].
    #[inline]
    pub(super) fn source(&self, load: &Access, form: u16, start: Cycle) -> Source {
        if load.is_of_device() {
            return Source::Cache;
        }
        let granule = load.virtual_address.block_number(GRANULE_SHIFT);
        if granule == load.last_byte().block_number(GRANULE_SHIFT) {
            // The common case: one granule, which no store in the buffer has stored to.
            let store = &self.granules[slot(granule)];
            if store.name != granule + 1 || store.leaves <= start {
                return Source::Cache;
            }
        }
        self.source_of_parts(load, form, start)
    }

    /// [`StoreBuffer::source`] for a load with any number of granules.
    #[inline(never)]
    fn source_of_parts(&self, load: &Access, form: u16, start: Cycle) -> Source {
        let mut source = Source::Cache;
        if form != 0 {
            let granule = load.virtual_address.block_number(GRANULE_SHIFT);
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
            let is_stored =
                store.name == granule + 1 && store.leaves > start && stored.mask & mask != 0;
            let single_store = Source::Store(stored.known);
            source = match source {
                // A value from two stores, or from a store and the cache, comes from the cache once all have left.
                Source::Cache if !is_stored => Source::Cache,
                Source::Cache if number == 0 && mask & !stored.mask == 0 => single_store,
                Source::Store(_)
                    if is_stored && mask & !stored.mask == 0 && source == single_store =>
                {
                    single_store
                }
                _ if is_stored => Source::CacheAfter(self.last_left.max(store.leaves)),
                _ => Source::CacheAfter(self.last_left),
            };
        }
        source
    }

    /// Lets the stores of an instruction leave together, not before `earliest`. Returns when. `missed`: whether they
    /// waited for a line.
    #[inline]
    pub(super) fn leave(&mut self, earliest: Cycle, missed: bool) -> Cycle {
        let leaves = self.leaving.take(earliest.max(self.last_left));
        self.record_leave(leaves, missed)
    }

    /// Lets the only store of an instruction leave, which crosses no line. Does what [`StoreBuffer::leave_by_line`] does.
    #[inline(always)]
    pub(super) fn leave_alone(&mut self, store: &Access, earliest: Cycle, missed: bool) -> Cycle {
        if self.one_line {
            self.join_line(store);
        }
        self.leave(earliest, missed)
    }

    /// Ends the cycle of the last store, unless the next store may leave in the same cycle by the rules of its line.
    #[inline(always)]
    fn join_line(&mut self, store: &Access) {
        let start = store.virtual_address;
        let stored = StoredBytes { start, end: start.plus(store.bytes.max(1).into()) };
        let is_same_line = stored.start.is_in_block_of(self.last.start, LINE_SHIFT);
        let is_apart = stored.end <= self.last.start || stored.start >= self.last.end;
        // Two stores of up to 16 bytes each can leave together.
        let is_narrow = store.bytes <= 16;
        if !(is_same_line && (is_apart && is_narrow || self.any_of_line)) {
            self.leaving.end_cycle();
        }
        self.last = stored;
    }

    /// Lets the stores of an instruction leave, not before `earliest`. Returns when the last one leaves. On a core that
    /// writes one line per cycle, each store leaves together with other stores to its line only, and a store that crosses
    /// lines takes two cycles. `missed`: whether the stores waited for a line.
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
        let mut has_stores = false;
        while let Some(store) = next_access(&mut remaining, true, bytes_max) {
            has_stores = true;
            self.join_line(&store);
            leaves = self.leaving.take(leaves);
            if is_split(&store) {
                self.leaving.end_cycle();
                leaves = self.leaving.take(leaves);
                self.leaving.end_cycle();
            }
        }
        if !has_stores {
            // A fence takes a whole cycle.
            self.leaving.end_cycle();
            leaves = self.leaving.take(leaves);
            self.leaving.end_cycle();
        }
        self.record_leave(leaves, missed)
    }

    /// Records that all stores of an instruction have left at `leaves`, and frees their entry then.
    #[inline(always)]
    fn record_leave(&mut self, leaves: Cycle, missed: bool) -> Cycle {
        self.last_left = leaves;
        self.entries.push(ReadyTime::new(leaves, missed));
        leaves
    }

    /// Remembers a store for later loads. `form`: the form of its address. The store leaves at `leaves`.
    #[inline(always)]
    pub(super) fn remember(&mut self, store: &Access, form: u16, known: Known, leaves: Cycle) {
        let granule = store.virtual_address.block_number(GRANULE_SHIFT);
        let offset = store.virtual_address.offset_in_block(GRANULE_SHIFT);
        if offset + u64::from(store.bytes) > 8 || store.bytes == 0 {
            return self.remember_parts(store, form, known, leaves);
        }
        let mask = (0xff_u64 >> (8 - u32::from(store.bytes)) << offset) as u8;
        self.remember_part(granule, leaves, (known, form, mask));
    }

    /// [`StoreBuffer::remember`] for a store to any number of granules.
    #[inline(never)]
    fn remember_parts(&mut self, store: &Access, form: u16, known: Known, leaves: Cycle) {
        for (granule, mask) in parts(store) {
            self.remember_part(granule, leaves, (known, form, mask));
        }
    }

    /// Remembers the part of a store in one granule.
    #[inline(always)]
    fn remember_part(
        &mut self,
        granule: u64,
        leaves: Cycle,
        (known, form, mask): (Known, u16, u8),
    ) {
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

    /// When all stores so far have left.
    #[inline]
    pub(super) fn all_left(&self) -> Cycle {
        self.last_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::PhysicalAddress;

    fn access(address: u64, bytes: u8) -> Access {
        Access {
            virtual_address: VirtualAddress(address),
            physical: Some(PhysicalAddress(address)),
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
