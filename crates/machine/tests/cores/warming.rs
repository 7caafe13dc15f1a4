//! Functional warming: memory and predictors see what they see when the core executes.

use machine::core::{Access, ExecutedBlock, Memory, OutOfOrderCore, SingleThreadCore};
use machine::{PhysicalAddress, VirtualAddress};
use proptest::prelude::*;

use crate::presets::ALL;
use crate::streams::program;
use crate::support::model;

/// A memory that records the accesses, without their times.
#[derive(Clone, Debug, Default, PartialEq)]
struct Log {
    fetches: Vec<(VirtualAddress, PhysicalAddress)>,
    data: Vec<(u64, u8, bool, bool)>,
}

impl Memory for Log {
    fn fetch(&mut self, virtual_address: VirtualAddress, physical: PhysicalAddress, _: u64) -> u64 {
        self.fetches.push((virtual_address, physical));
        0
    }

    fn load(&mut self, access: &Access, _: u64) -> u64 {
        self.data.push((access.virtual_address, access.bytes, false, false));
        7
    }

    fn load_locked(&mut self, access: &Access, _: u64) -> u64 {
        self.data.push((access.virtual_address, access.bytes, false, true));
        0
    }

    fn store(&mut self, access: &Access, _: u64) -> u64 {
        self.data.push((access.virtual_address, access.bytes, true, false));
        0
    }

    fn store_around(&mut self, access: &Access, now: u64) -> u64 {
        self.store(access, now)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Each block is executed or only kept warm, as the bits of a number say.
    #[test]
    fn what_is_not_executed_reaches_memory_and_predictors_all_the_same(
        which in 0..ALL.len(),
        seed in any::<u64>(),
        detail in any::<u64>(),
    ) {
        let model = model(ALL[which].1);
        let Some(mut whole) = OutOfOrderCore::new(&model, 64) else { return Ok(()) };
        let mut sampled = whole.clone();
        let (mut of_whole, mut of_sampled) = (Log::default(), Log::default());
        let program = program(&model, seed, 200);
        let mut warmed = 0;
        for (at, (block, next, _)) in program.each().enumerate() {
            let instructions = block.template.len() as u32;
            let executed = ExecutedBlock { instructions, accesses: &block.accesses, next };
            whole.run(&block.template, &executed, &mut of_whole);
            if detail >> (at % 64) & 1 == 1 {
                sampled.run(&block.template, &executed, &mut of_sampled);
                continue;
            }
            let before = sampled.cycles();
            let of_block = sampled.warm_from(0, &block.template, &executed, &mut of_sampled);
            prop_assert_eq!(sampled.cycles(), before);
            warmed += u64::from(of_block.slots);
        }
        prop_assert_eq!(of_sampled, of_whole);
        let (one, other) = (sampled.counts(), whole.counts());
        prop_assert_eq!(one.branches, other.branches);
        prop_assert_eq!(one.mispredicted_branches, other.mispredicted_branches);
        prop_assert_eq!(one.btb_misses, other.btb_misses);
        prop_assert_eq!(one.instructions + warmed, other.instructions);
        prop_assert_eq!(one.slots(), one.cycles * u64::from(model.width));
    }
}
