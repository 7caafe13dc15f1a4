//! The largest items of a stream, in bounded memory. `noise` uses it for the longest detours of a CPU
//! (`lab/src/noise/ledger.rs`).

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Keeps the `limit` largest of the offered items. Among items of equal size, the earlier items stay.
#[derive(Clone, Debug)]
pub struct Largest<T> {
    limit: usize,
    /// Number of offered items.
    offered: u64,
    /// The heap's top is the smallest kept item, which a larger item replaces: see the order of [`Ranked`].
    kept: BinaryHeap<Ranked<T>>,
}

#[derive(Clone, Debug)]
struct Ranked<T> {
    size: u64,
    /// The item's number in the stream.
    number: u64,
    item: T,
}

impl<T> Largest<T> {
    /// An empty collection. `limit` 0 keeps nothing.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Largest { limit, offered: 0, kept: BinaryHeap::new() }
    }

    /// Offers the next item of the stream. `make` is called only if the item is kept, because making it can be expensive.
    pub fn offer(&mut self, size: u64, make: impl FnOnce() -> T) {
        let number = self.offered;
        self.offered += 1;
        if self.kept.len() >= self.limit {
            match self.kept.peek() {
                Some(smallest) if smallest.size < size => self.kept.pop(),
                _ => return,
            };
        }
        self.kept.push(Ranked { size, number, item: make() });
    }

    /// The kept items, largest first.
    #[must_use]
    pub fn sorted(&self) -> Vec<&T> {
        let mut kept: Vec<&Ranked<T>> = self.kept.iter().collect();
        kept.sort_unstable();
        kept.into_iter().map(|ranked| &ranked.item).collect()
    }
}

impl<T> Ord for Ranked<T> {
    /// Larger sizes come first, and earlier items among equal sizes. Therefore the maximum of the
    /// heap is the item to replace.
    fn cmp(&self, other: &Self) -> Ordering {
        other.size.cmp(&self.size).then(self.number.cmp(&other.number))
    }
}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Ranked<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_item_among_a_million_short_ones_stays_wherever_it_comes() {
        for position in [0, 1, 499_999, 999_999] {
            let mut largest = Largest::new(64);
            for number in 0..1_000_000_u64 {
                let size = if number == position { 5_000_000 } else { 100 + number % 77 };
                largest.offer(size, || number);
            }
            assert_eq!(largest.sorted().first(), Some(&&position));
        }
    }

    proptest! {
        #[test]
        fn it_keeps_what_sorting_the_whole_stream_puts_first(
            sizes in prop::collection::vec(0u64..20, 0..200), limit in 0usize..30,
        ) {
            let mut largest = Largest::new(limit);
            for (number, size) in sizes.iter().enumerate() {
                largest.offer(*size, || (number, *size));
            }
            let mut expected: Vec<(usize, u64)> = sizes.into_iter().enumerate().collect();
            expected.sort_by_key(|&(number, size)| (std::cmp::Reverse(size), number));
            expected.truncate(limit);
            prop_assert_eq!(largest.sorted().into_iter().copied().collect::<Vec<_>>(), expected);
        }
    }
}
