//! A bounded, even sample of a stream (Vitter, "Random Sampling with a Reservoir", 1985, algorithm R). The same seed
//! keeps the same items. `noise` uses it for the single detours of a CPU (`lab/src/noise/ledger.rs`).

use crate::random::Random;

/// Keeps at most `limit` of the offered items. Each offered item is kept with equal probability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservoir<T> {
    items: Vec<T>,
    limit: usize,
    /// Number of offered items.
    seen: u64,
    random: Random,
}

impl<T> Reservoir<T> {
    /// An empty reservoir. `limit` 0 keeps nothing.
    #[must_use]
    pub fn new(limit: usize, seed: u64) -> Self {
        Reservoir { items: Vec::new(), limit, seen: 0, random: Random::new(seed) }
    }

    /// Offers the next item of the stream.
    pub fn offer(&mut self, item: T) {
        self.seen += 1;
        if self.items.len() < self.limit {
            self.items.push(item);
            return;
        }
        // A new item replaces a kept one with probability `limit / seen`: an index beyond the kept items replaces none.
        let index = usize::try_from(self.random.below(self.seen));
        if let Some(replaced) = index.ok().and_then(|index| self.items.get_mut(index)) {
            *replaced = item;
        }
    }

    /// Number of items offered.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The sampled items, in no particular order.
    #[must_use]
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_part_of_a_long_stream_is_kept_alike() {
        let mut reservoir = Reservoir::new(10_000, 7);
        (0..1_000_000_u32).for_each(|item| reservoir.offer(item));
        for tenth in 0..10 {
            let of_tenth = |item: &&u32| **item / 100_000 == tenth;
            let items = reservoir.items().iter().filter(of_tenth).count();
            assert!((850..1150).contains(&items), "{items} of tenth {tenth}");
        }
    }

    proptest! {
        #[test]
        fn it_keeps_items_of_the_stream_and_never_more_than_its_limit(
            length in 0u64..500, limit in 0usize..50, seed: u64,
        ) {
            let mut reservoir = Reservoir::new(limit, seed);
            (0..length).for_each(|item| reservoir.offer(item));
            prop_assert_eq!(reservoir.seen(), length);
            prop_assert_eq!(reservoir.items().len() as u64, length.min(limit as u64));
            let mut items = reservoir.items().to_vec();
            items.sort_unstable();
            items.dedup();
            prop_assert_eq!(items.len(), reservoir.items().len());
            prop_assert!(items.iter().all(|item| *item < length));
        }
    }
}
