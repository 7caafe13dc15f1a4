//! Timing contracts: synthetic streams whose cycles can be computed by hand, on the general memory
//! system and on the fast path; and properties of the tag array.

use machine::memory::{Access, MemorySystem, PageSize};
use machine::{
    AccessKind, BlockingMachine, BlockingModel, CacheModel, CodeBlock, CodeSpan, Counts, Cycle,
    LineAddress, Outcome, PhysicalAddress, Replacement, SystemModel, TagArray, VirtualAddress,
};
use proptest::prelude::*;

/// A machine as the contracts use it. Virtual addresses equal physical ones.
trait Machine {
    fn execute(&mut self, number: u32);
    /// Returns the wait in cycles beyond a hit.
    fn load(&mut self, address: u64) -> u64;
    fn store(&mut self, address: u64);
    fn counts(&self) -> Counts;
}

impl Machine for MemorySystem {
    fn execute(&mut self, number: u32) {
        MemorySystem::execute(self, 0, number.into());
    }

    fn load(&mut self, address: u64) -> u64 {
        self.access_blocking(&access(AccessKind::Load, address))
    }

    fn store(&mut self, address: u64) {
        self.access_blocking(&access(AccessKind::Store, address));
    }

    fn counts(&self) -> Counts {
        MemorySystem::counts(self, 0).basic
    }
}

/// Physical addresses equal virtual ones.
fn same(address: VirtualAddress) -> Option<PhysicalAddress> {
    Some(PhysicalAddress(address.0))
}

fn access(kind: AccessKind, address: u64) -> Access {
    Access {
        cpu: 0,
        kind,
        virtual_address: VirtualAddress(address),
        physical: PhysicalAddress(address),
        bytes: 1,
        pc: VirtualAddress::default(),
        page: PageSize::Small,
        start: Cycle::START,
    }
}

impl Machine for BlockingMachine {
    fn execute(&mut self, number: u32) {
        let (virtual_address, physical) = (VirtualAddress(0), PhysicalAddress(0));
        let nowhere = CodeSpan { virtual_address, physical, bytes: 0 };
        self.execute_block(&CodeBlock::new(self.fetch_line_shift(), number, nowhere, None));
    }

    fn load(&mut self, address: u64) -> u64 {
        let before = self.cycles();
        BlockingMachine::load(self, VirtualAddress(address), same);
        self.cycles() - before
    }

    fn store(&mut self, address: u64) {
        BlockingMachine::store(self, VirtualAddress(address), same);
    }

    fn counts(&self) -> Counts {
        BlockingMachine::counts(self)
    }
}

/// Checks a contract on a cold machine of each kind.
fn on_both(contract: fn(&mut dyn Machine)) {
    let text = include_str!("../../../machines/r4400-1994.toml");
    let model = BlockingModel::parse(text).expect("a good model");
    let general = SystemModel::parse(text).expect("a good model");
    contract(&mut MemorySystem::new(&general, 1));
    contract(&mut BlockingMachine::new(&model));
}

/// Loads one address in each of `lines` lines of `line_bytes`, `rounds` times.
fn walk(machine: &mut dyn Machine, lines: u64, line_bytes: u64, rounds: u64) -> Vec<u64> {
    (0..rounds).map(|_| (0..lines).map(|line| machine.load(line * line_bytes)).sum()).collect()
}

#[test]
fn contract_1_instructions_that_wait_for_nothing_take_a_cycle_each() {
    on_both(|machine| {
        machine.execute(1_000);
        assert_eq!((machine.counts().cycles, machine.counts().instructions), (1_000, 1_000));
    });
}

#[test]
fn contract_2_a_footprint_within_l1_waits_only_once() {
    on_both(|machine| {
        // 64 lines of 16 bytes lie in one page and eight L2 lines.
        let waits = walk(machine, 64, 16, 3);
        assert_eq!(waits, [10 + 8 * 100 + 56 * 10, 0, 0]);
        let counts = machine.counts();
        assert_eq!((counts.l1d_load_misses, counts.l2_data_misses, counts.dtlb_misses), (64, 8, 1));
    });
}

#[test]
fn contract_3_a_footprint_between_l1_and_l2_waits_for_l2_each_time() {
    on_both(|machine| {
        // 32 KiB in eight pages, twice the size of L1, cyclically: with LRU every access misses.
        let waits = walk(machine, 2_048, 16, 3);
        assert_eq!(waits[1..], [2_048 * 10, 2_048 * 10]);
    });
}

#[test]
fn contract_4_a_footprint_beyond_l2_waits_for_memory_each_time() {
    on_both(|machine| {
        // 2 MiB in steps of an L2 line; a page of 32 such lines misses the TLB of 32 pages once.
        let waits = walk(machine, 16_384, 128, 2);
        assert_eq!(waits[1], 16_384 * 100 + 512 * 10);
    });
}

#[test]
fn contract_5_a_stride_of_the_cache_conflicts_in_one_set() {
    on_both(|machine| {
        // Three lines 8 KiB apart share a set of two ways: with LRU every access misses.
        assert_eq!(walk(machine, 3, 8_192, 3)[1..], [30, 30]);
    });
    on_both(|machine| assert_eq!(walk(machine, 2, 8_192, 3)[1..], [0, 0]));
}

#[test]
fn contract_6_a_dirty_line_is_written_back_to_memory_once() {
    on_both(|machine| {
        machine.store(0);
        // Out of L1 (2 ways, 8 KiB apart) into L2, then out of L2 (1 way, 1 MiB apart).
        for address in [8_192, 16_384, 24_576] {
            machine.load(address);
        }
        assert_eq!(machine.counts().l2_writebacks, 0);
        machine.load(1 << 20);
        assert_eq!(machine.counts().l2_writebacks, 1);
        machine.load(2 << 20);
        assert_eq!(machine.counts().l2_writebacks, 1);
    });
}

#[test]
fn contract_7_counts_of_a_region_are_a_difference() {
    on_both(|machine| {
        walk(machine, 64, 16, 1);
        let before = machine.counts();
        walk(machine, 64, 16, 1);
        machine.execute(64);
        let region = machine.counts().since(&before);
        assert_eq!((region.cycles, region.l1d_load_misses, region.loads), (64, 0, 64));
    });
}

proptest! {
    /// The stack property: with LRU and equal sets, a larger cache never misses where a smaller one
    /// hits.
    #[test]
    fn more_ways_never_miss_more(lines in prop::collection::vec(0u64..100, 1..400)) {
        let cache = |ways| TagArray::new(&CacheModel {
            size_bytes: u64::from(ways) * 4 * 64, ways, line_bytes: 64, replacement: Replacement::Lru,
        });
        let (mut small, mut large) = (cache(2), cache(5));
        for line in lines.into_iter().map(LineAddress) {
            let small_hit = small.access(line, false) == Outcome::Hit;
            let large_hit = large.access(line, false) == Outcome::Hit;
            prop_assert!(large_hit || !small_hit);
        }
    }

    /// With any policy, a line that was just used is in.
    #[test]
    fn what_was_just_used_is_in(
        replacement in prop_oneof![
            Just(Replacement::Lru), Just(Replacement::TreePlru), Just(Replacement::Random)
        ],
        lines in prop::collection::vec(0u64..1_000, 1..300),
    ) {
        let model = CacheModel { size_bytes: 4 * 8 * 64, ways: 4, line_bytes: 64, replacement };
        let mut cache = TagArray::new(&model);
        for line in lines.into_iter().map(LineAddress) {
            cache.access(line, false);
            prop_assert!(cache.contains(line));
        }
    }
}
