//! Queues of a core: entries that become free in program order, and the store buffer.

use super::Access;
use super::front_end::WidthLimiter;

/// A queue that is filled in program order, as the times at which its entries become free.
#[derive(Clone, Debug)]
pub(super) struct EntryQueue {
    times: Box<[u64]>,
    next: usize,
}

impl EntryQueue {
    pub(super) fn new(entries: u32) -> EntryQueue {
        EntryQueue { times: vec![0; entries as usize].into(), next: 0 }
    }

    /// When the entry is free that the next instruction takes.
    #[inline]
    pub(super) fn oldest(&self) -> u64 {
        self.times[self.next]
    }

    /// The next instruction takes its entry until `time`.
    #[inline]
    pub(super) fn push(&mut self, time: u64) {
        self.times[self.next] = time;
        self.next = if self.next + 1 == self.times.len() { 0 } else { self.next + 1 };
    }
}

/// Granules of 8 bytes for which the last store is known. A store is forgotten when a later one has
/// the same low address bits, like the 4 KiB aliases of real cores.
const GRANULES: usize = 512;

/// The last store to a granule.
#[derive(Clone, Copy, Debug, Default)]
struct Granule {
    /// The granule's number plus one; zero for none.
    name: u64,
    /// The bytes that were stored, a bit each.
    mask: u8,
    /// When the value is known.
    known: u64,
    /// When it leaves for the cache.
    leaves: u64,
}

/// Where a load gets its value from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The cache.
    Cache,
    /// An earlier store, whose value is known at this time.
    Store(u64),
    /// The cache, once a store to a part of it has left the buffer at this time.
    CacheAfter(u64),
}

#[derive(Clone, Debug)]
pub(super) struct StoreBuffer {
    entries: EntryQueue,
    /// For each entry, whether its store missed.
    missed: Box<[bool]>,
    at: usize,
    leaving: WidthLimiter,
    last_left: u64,
    ports: u32,
    granules: Box<[Granule]>,
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
            missed: vec![false; entries as usize].into(),
            at: 0,
            leaving: WidthLimiter::default(),
            last_left: 0,
            ports,
            granules: vec![Granule::default(); GRANULES].into(),
        }
    }

    /// When the next store has an entry, and whether it waits for a miss.
    #[inline]
    pub(super) fn place(&self) -> (u64, bool) {
        (self.entries.oldest(), self.missed[self.at])
    }

    /// Where a load that starts at `start` gets its value from.
    #[inline]
    pub(super) fn source(&self, load: &Access, start: u64) -> Source {
        let mut source = Source::Cache;
        for (number, (granule, mask)) in parts(load).enumerate() {
            let store = &self.granules[granule as usize & (GRANULES - 1)];
            let there = store.name == granule + 1 && store.leaves > start && store.mask & mask != 0;
            let whole = Source::Store(store.known);
            source = match source {
                // From two stores, or a store and the cache: from the cache, once all have left.
                Source::Cache if !there => Source::Cache,
                Source::Cache if number == 0 && mask & !store.mask == 0 => whole,
                Source::Store(_) if there && mask & !store.mask == 0 && source == whole => whole,
                _ => Source::CacheAfter(self.last_left.max(if there { store.leaves } else { 0 })),
            };
        }
        source
    }

    /// The stores of an instruction leave for the cache, not before `earliest`. Returns when.
    #[inline]
    pub(super) fn leave(&mut self, earliest: u64, missed: bool) -> u64 {
        let leaves = self.leaving.take(earliest.max(self.last_left), self.ports);
        self.last_left = leaves;
        self.entries.push(leaves);
        self.missed[self.at] = missed;
        self.at = if self.at + 1 == self.missed.len() { 0 } else { self.at + 1 };
        leaves
    }

    /// Remembers the value of a store, which is known at `known` and leaves at `leaves`.
    #[inline]
    pub(super) fn remember(&mut self, store: &Access, known: u64, leaves: u64) {
        for (granule, mask) in parts(store) {
            let entry = &mut self.granules[granule as usize & (GRANULES - 1)];
            *entry = Granule { name: granule + 1, mask, known, leaves };
        }
    }

    /// When the last store has left.
    #[inline]
    pub(super) fn all_left(&self) -> u64 {
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

    #[test]
    fn a_load_takes_what_is_whole_in_one_store_that_has_not_left() {
        let mut stores = StoreBuffer::new(8, 1);
        let leaves = stores.leave(50, false);
        stores.remember(&access(0x1000, 16), 20, leaves);
        let source = |address, bytes, start| stores.source(&access(address, bytes), start);
        assert_eq!(source(0x1004, 4, 10), Source::Store(20));
        assert_eq!(source(0x1004, 8, 10), Source::Store(20));
        assert_eq!(source(0x100c, 8, 10), Source::CacheAfter(50));
        assert_eq!(source(0x1010, 8, 10), Source::Cache);
        assert_eq!(source(0x1004, 4, 50), Source::Cache);
        // Half of it was stored again.
        let leaves = stores.leave(60, false);
        stores.remember(&access(0x1004, 4), 30, leaves);
        let source = |address, bytes, start| stores.source(&access(address, bytes), start);
        assert_eq!(source(0x1004, 4, 10), Source::Store(30));
        assert_eq!(source(0x1000, 8, 10), Source::CacheAfter(60));
    }

    #[test]
    fn stores_leave_in_order_so_many_a_cycle() {
        let mut stores = StoreBuffer::new(2, 1);
        let left: Vec<u64> = [10, 5, 5].map(|earliest| stores.leave(earliest, true)).into();
        assert_eq!(left, [10, 11, 12]);
        assert_eq!((stores.place(), stores.all_left()), ((11, true), 12));
    }
}
