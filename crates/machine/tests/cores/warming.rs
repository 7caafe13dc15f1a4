//! Functional warming: memory and predictors see what they see when the core executes.

use machine::core::{
    Access, AccessMode, ExecutedBlock, Instruction, Memory, OutOfOrderCore, Register,
    SingleThreadCore, Unit,
};
use machine::predict::BranchKind;
use machine::{Cycle, PhysicalAddress, VirtualAddress};
use proptest::prelude::*;

use crate::presets::ALL;
use crate::streams::program;
use crate::support::{block, layout, model};

/// An access: its address, its bytes, and how it was made. A fetch has none.
type Logged = (u64, Option<(u8, AccessMode)>);

/// A memory that records the accesses in their order, without their times.
#[derive(Clone, Debug, Default, PartialEq)]
struct Log(Vec<Logged>);

impl Memory for Log {
    fn look_up_fetch(&mut self, virtual_address: VirtualAddress, _: PhysicalAddress) {
        self.0.push((virtual_address.0, None));
    }

    fn look_up(&mut self, access: &Access, how: AccessMode) {
        self.0.push((access.virtual_address.0, Some((access.bytes, how))));
    }

    fn fetch(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
        _: Cycle,
    ) -> u64 {
        self.look_up_fetch(virtual_address, physical);
        0
    }

    fn access(&mut self, access: &Access, how: AccessMode, _: Cycle) -> u64 {
        self.look_up(access, how);
        if how == AccessMode::Load { 7 } else { 0 }
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

#[test]
fn an_operation_that_is_fused_with_a_branch_takes_no_slot() {
    let model = model(include_str!("../../../../machines/zen3.toml"));
    let flags = [Register::FLAGS];
    let compare = Instruction::of_unit(Unit::Integer).writing(&flags).fusible();
    let branch =
        Instruction::of_unit(Unit::Branch).branching(BranchKind::Conditional).reading(&flags);
    let steps = [(compare, None), (branch, None)];
    let block = block(layout(&model), 0x40_0000, &steps);
    let executed = ExecutedBlock { instructions: 2, accesses: &[], next: block.fall_through };
    let mut core = OutOfOrderCore::new(&model, 64).unwrap();
    core.run(&block.template, &executed, &mut Log::default());
    let warmed = core.warm_from(0, &block.template, &executed, &mut Log::default());
    assert_eq!((core.counts().instructions, warmed.slots), (1, 1));
}
