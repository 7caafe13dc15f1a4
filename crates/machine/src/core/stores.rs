//! Stores on their way to the cache, and loads that take their value from one.

use super::front::Pace;
use super::memory::Access;
use super::ring::Ring;

/// Granules of 8 bytes that are told apart. A store whose granule is that of a later one in this
/// table is forgotten, as one 4 KiB away is on real cores.
const GRANULES: usize = 512;

/// What the last store to a granule has left there.
#[derive(Clone, Copy, Debug, Default)]
struct Granule {
    /// Its number plus one; zero for none.
    name: u64,
    /// Bytes, a bit each.
    mask: u8,
    /// When the value is known.
    known: u64,
    /// When it leaves for the cache.
    leaves: u64,
}

/// Where a load has its value from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The cache.
    Cache,
    /// A store before it, whose value is known then.
    Store(u64),
    /// The cache, once a store that has a part of it has left.
    CacheAfter(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Stores {
    entries: Ring,
    /// Whether the stores of the entry that is free next missed.
    missed: Box<[bool]>,
    at: usize,
    leaving: Pace,
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

impl Stores {
    pub(super) fn new(entries: u32, ports: u32) -> Stores {
        Stores {
            entries: Ring::new(entries),
            missed: vec![false; entries as usize].into(),
            at: 0,
            leaving: Pace::default(),
            last_left: 0,
            ports,
            granules: vec![Granule::default(); GRANULES].into(),
        }
    }

    /// When the next store has a place, and whether it is a miss that it waits for.
    #[inline]
    pub(super) fn place(&self) -> (u64, bool) {
        (self.entries.oldest(), self.missed[self.at])
    }

    /// Where a load that begins at `start` has its value from.
    #[inline]
    pub(super) fn source(&self, load: &Access, start: u64) -> Source {
        let mut source = Source::Cache;
        for (number, (granule, mask)) in parts(load).enumerate() {
            let store = &self.granules[granule as usize & (GRANULES - 1)];
            let there = store.name == granule + 1 && store.leaves > start && store.mask & mask != 0;
            let whole = Source::Store(store.known);
            source = match source {
                // Of two stores, or of one and the cache: from the cache, once all have left.
                Source::Cache if !there => Source::Cache,
                Source::Cache if number == 0 && mask & !store.mask == 0 => whole,
                Source::Store(_) if there && mask & !store.mask == 0 && source == whole => whole,
                _ => Source::CacheAfter(self.last_left.max(if there { store.leaves } else { 0 })),
            };
        }
        source
    }

    /// Stores of an instruction leave for the cache no earlier than at `earliest`. Returns when they
    /// have left.
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
        let mut stores = Stores::new(8, 1);
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
        let mut stores = Stores::new(2, 1);
        let left: Vec<u64> = [10, 5, 5].map(|earliest| stores.leave(earliest, true)).into();
        assert_eq!(left, [10, 11, 12]);
        assert_eq!((stores.place(), stores.all_left()), ((11, true), 12));
    }
}
