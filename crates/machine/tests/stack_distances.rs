//! Stack distances against caches of each size, one by one.

use machine::memory::{SetStackDistances, StackDistances};
use machine::{CacheModel, LineAddress, Outcome, PhysicalAddress, Replacement, TagArray};
use proptest::prelude::*;

fn misses(ways: u32, sets: u64, addresses: &[u64]) -> u64 {
    let model = CacheModel {
        size_bytes: u64::from(ways) * sets * 64,
        ways,
        line_bytes: 64,
        replacement: Replacement::Lru,
    };
    let mut cache = TagArray::new(&model);
    let lines = addresses.iter().map(|address| LineAddress(address / 64));
    lines.filter(|line| cache.access(*line, false) != Outcome::Hit).count() as u64
}

/// Addresses that recur at short and long distances.
fn addresses() -> impl Strategy<Value = Vec<u64>> {
    let address = prop_oneof![0u64..2048, 0u64..16384, Just(4096u64)];
    prop::collection::vec(address, 1..600)
}

proptest! {
    #[test]
    fn distances_give_the_misses_of_all_fully_associative_caches(addresses in addresses()) {
        let mut distances = StackDistances::new(64);
        for at in &addresses {
            distances.access(PhysicalAddress(*at));
        }
        let mut last = u64::MAX;
        for lines in 1..=64u32 {
            let ours = distances.misses(lines as usize).unwrap();
            prop_assert_eq!(ours, misses(lines, 1, &addresses), "{} lines", lines);
            // A larger stack holds everything that a smaller one does.
            prop_assert!(ours <= last);
            last = ours;
        }
        let mut all = addresses.clone();
        all.iter_mut().for_each(|address| *address /= 64);
        all.sort_unstable();
        all.dedup();
        prop_assert_eq!(distances.first_accesses(), all.len() as u64);
        prop_assert_eq!(distances.misses(1 << 20), Some(distances.first_accesses()));
    }

    #[test]
    fn depths_give_the_misses_of_all_numbers_of_ways(
        sets_log in 0u32..6,
        addresses in addresses(),
    ) {
        let mut depths = SetStackDistances::new(64, 1 << sets_log, 16);
        addresses.iter().for_each(|address| depths.access(PhysicalAddress(*address)));
        for ways in 1..=16u32 {
            let ours = depths.misses(ways as usize).unwrap();
            prop_assert_eq!(ours, misses(ways, 1 << sets_log, &addresses), "{} ways", ways);
        }
        prop_assert_eq!(depths.misses(17), None);
    }
}

#[test]
fn many_uses_are_renumbered() {
    // More accesses than there are marks at the start: 300 lines, again and again.
    let mut distances = StackDistances::new(64);
    for n in 0..200_000u64 {
        distances.access(PhysicalAddress(n % 300 * 64));
    }
    assert_eq!(distances.first_accesses(), 300);
    assert_eq!(distances.misses(299), Some(200_000));
    assert_eq!(distances.misses(300), Some(300));
}
