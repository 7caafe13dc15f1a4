//! The fast paths of the out-of-order core give the results of the general path.

use machine::core::{
    Access, AccessMode, CoreModel, ExecutedBlock, Instruction, Memory, Operation, OutOfOrderCore,
    Register, SingleThreadCore, Special, StringOperation, Template, Unit, WaitParts,
};
use machine::predict::BranchKind;
use machine::{Cycle, PhysicalAddress, VirtualAddress};
use proptest::prelude::*;

use crate::presets::ALL;
use crate::properties::any_core;
use crate::streams::Thrown;
use crate::support::{layout, model, span};

/// A memory that records each access and its time. The wait depends on the address and on the number of
/// earlier accesses.
#[derive(Clone, Debug, Default, PartialEq)]
struct Log {
    asked: Vec<(u64, Cycle, &'static str)>,
    last: WaitParts,
}

impl Log {
    fn wait(&mut self, address: u64, now: Cycle, what: &'static str) -> u64 {
        self.asked.push((address, now, what));
        let number = self.asked.len() as u64;
        let wait = match (address >> 6).wrapping_mul(number) % 11 {
            0 => 200,
            1 => 12,
            2 => 31,
            _ => 0,
        };
        let translation_cycles = if wait == 31 { 20 } else { 0 };
        self.last = WaitParts { translation_cycles, under_way: wait == 12 };
        if wait == 0 {
            // Nobody asks then.
            self.last = WaitParts { translation_cycles: 5, under_way: true };
        }
        wait
    }
}

impl Memory for Log {
    fn fetch(&mut self, virtual_address: VirtualAddress, _: PhysicalAddress, now: Cycle) -> u64 {
        self.wait(virtual_address.0, now, "fetch")
    }

    fn look_up_fetch(&mut self, _: VirtualAddress, _: PhysicalAddress) {}

    fn look_up(&mut self, _: &Access, _: AccessMode) {}

    fn access(&mut self, access: &Access, how: AccessMode, now: Cycle) -> u64 {
        let how = match how {
            AccessMode::Load => "load",
            AccessMode::LoadLocked => "locked",
            AccessMode::Store => "store",
            AccessMode::StoreAround => "around",
        };
        self.wait(access.virtual_address.0, now, how)
    }

    fn last_wait(&self) -> WaitParts {
        self.last
    }
}

const UNITS: [Unit; 11] = [
    Unit::Integer,
    Unit::Multiply,
    Unit::Divide,
    Unit::FloatAdd,
    Unit::FloatDivide,
    Unit::Vector,
    Unit::Branch,
    Unit::Shuffle,
    Unit::Integer,
    Unit::Shift,
    Unit::Select,
];
const SPECIALS: [Special; 10] = [
    Special::Microcode,
    Special::Pause,
    Special::StoreFence,
    Special::FlushLine,
    Special::Atomic,
    Special::Barrier,
    Special::Fence,
    Special::Serialise,
    Special::Port,
    Special::SystemCall,
];

/// Up to `most` registers.
fn registers(thrown: &mut Thrown, most: u64) -> Vec<Register> {
    let number = thrown.below(most + 1);
    (0..number).map(|_| Register::general(thrown.below(12) as u8)).collect()
}

/// Any instruction but a branch: mostly simple ones, and each special case at a low rate.
fn instruction(thrown: &mut Thrown) -> Instruction {
    let mut seldom = |interval: u64| thrown.below(interval) == 0;
    let (special, many, odd) = (seldom(40), seldom(12), seldom(10));
    let mut instruction = if seldom(3) {
        Instruction::nothing(1 + thrown.below(8) as u8)
    } else {
        Instruction::of_unit(UNITS[thrown.below(11) as usize])
    };
    let kind = thrown.below(10);
    if kind < 4 || kind == 8 {
        instruction = instruction.loading(&registers(thrown, if many { 3 } else { 2 }));
    }
    if (4..6).contains(&kind) || kind == 8 {
        instruction = instruction.storing(&registers(thrown, 2));
    }
    instruction = instruction.reading(&registers(thrown, if many { 4 } else { 2 }));
    instruction = instruction.writing(&registers(thrown, if many { 3 } else { 1 }));
    if many {
        instruction = instruction.moving(&registers(thrown, 1));
    }
    if special {
        return instruction.doing(SPECIALS[thrown.below(10) as usize]);
    }
    match thrown.below(8) {
        0 if odd => instruction.streaming(),
        1 if odd => instruction.loading_vector(),
        2 if odd => instruction.moving_register(),
        3 if odd => instruction.zeroing(),
        4 if odd => instruction.moving_stack(),
        5 if odd => instruction.as_operation(Operation::LeaThree),
        6 if odd => instruction.as_operation(Operation::FloatRoot),
        0 => instruction.fusible(),
        1 => instruction.with_scaled_index(),
        _ => instruction.with_address_form(1 + thrown.below(4) as u16),
    }
}

/// The accesses of instruction `index`: mostly what it should have.
fn accesses(thrown: &mut Thrown, index: u16, one: &Instruction) -> Vec<Access> {
    let mut of_it = Vec::new();
    let access = |thrown: &mut Thrown, write| {
        let odd = thrown.below(8) == 0;
        let bytes = if odd { [1, 2, 4, 16, 32, 0][thrown.below(6) as usize] } else { 8 };
        let page = [0x1_0000, 0x7000_0000][thrown.below(2) as usize];
        let offset = thrown.below(0xfe0);
        let address = page + if odd { offset } else { offset & 0xff8 };
        let physical = (thrown.below(60) > 0).then_some(PhysicalAddress(address));
        let virtual_address = VirtualAddress(address);
        Access { virtual_address, physical, instruction: index, bytes, write }
    };
    let times = |thrown: &mut Thrown| match thrown.below(16) {
        0 => 0,
        1 => 2,
        2 => 3,
        _ => 1,
    };
    if one.loads() {
        (0..times(thrown)).for_each(|_| of_it.push(access(thrown, false)));
    }
    if one.stores() {
        (0..times(thrown)).for_each(|_| of_it.push(access(thrown, true)));
    }
    if thrown.below(50) == 0 {
        // An access that the instruction should not make.
        let write = thrown.below(2) == 0;
        of_it.push(access(thrown, write));
    }
    of_it
}

fn block(thrown: &mut Thrown, model: &CoreModel, number: u64) -> (Template, Vec<Instruction>) {
    let length = 1 + thrown.below(14);
    let repeats = thrown.below(12) == 0;
    let mut instructions: Vec<Instruction> = match repeats {
        true => {
            let (one, to, from) =
                (Instruction::nothing(2), Register::general(7), Register::general(6));
            vec![match thrown.below(4) {
                0 => one.storing(&[to]).loading(&[from]).repeating(StringOperation::Copy),
                1 => one.storing(&[to]).repeating(StringOperation::Fill),
                2 => one.loading(&[from]).repeating(StringOperation::Load),
                _ => one
                    .loading(&[from, to])
                    .writing(&[Register::FLAGS])
                    .repeating(StringOperation::Compare),
            }]
        }
        false => (0..length).map(|_| instruction(thrown)).collect(),
    };
    let mut target = None;
    if !repeats && thrown.below(8) > 0 {
        let kind = match thrown.below(8) {
            0 => BranchKind::Jump,
            1 => BranchKind::IndirectJump,
            2 => BranchKind::Call,
            3 => BranchKind::Return,
            _ => BranchKind::Conditional,
        };
        let branch = match thrown.below(6) {
            0 => Instruction::nothing(2),
            _ => Instruction::of_unit(Unit::Branch),
        };
        let branch = branch.branching(kind).reading(&registers(thrown, 2));
        instructions.push(match kind {
            BranchKind::Call => branch.storing(&[Register::STACK_POINTER]).moving_stack(),
            BranchKind::Return => branch.loading(&[Register::STACK_POINTER]).moving_stack(),
            _ => branch,
        });
        target = Some(VirtualAddress(0x40_0000 + thrown.below(8) * 0x100));
    }
    let address = 0x40_0000 + number * 0x100;
    let bytes = instructions.iter().map(|instruction| u32::from(instruction.bytes())).sum();
    (
        Template::new(layout(model), (span(address, bytes), None), &instructions, target),
        instructions,
    )
}

/// Executes random blocks on the fast and the general path, and compares both after each block.
fn compare(model: &CoreModel, seed: u64) -> Result<(), TestCaseError> {
    let mut thrown = Thrown::new(seed);
    let Some(mut fast) = OutOfOrderCore::new(model, 64) else { return Ok(()) };
    let mut slow = fast.clone();
    let (mut of_fast, mut of_slow) = (Log::default(), Log::default());
    let blocks: Vec<_> = (0..8).map(|number| block(&mut thrown, model, number)).collect();
    for _ in 0..150 {
        let (block, instructions) = &blocks[thrown.below(8) as usize];
        let next = &blocks[thrown.below(8) as usize].0;
        let next = if thrown.below(3) == 0 { block.address().plus(0x80) } else { next.address() };
        let length = block.len();
        // The block executes in one part, or in two parts, and the last part may end early.
        let (first, end) = match thrown.below(6) {
            0 => (thrown.below(length as u64) as usize, length),
            1 => (0, thrown.below(length as u64 + 1) as usize),
            _ => (0, length),
        };
        let all: Vec<Access> = (0..length)
            .flat_map(|index| accesses(&mut thrown, index as u16, &instructions[index]))
            .collect();
        let part = |from: usize, to: usize| -> Vec<Access> {
            let is_in = |access: &&Access| (from..to).contains(&usize::from(access.instruction));
            all.iter().filter(is_in).copied().collect()
        };
        for (from, to) in [(0, first), (first, end)] {
            let accesses = part(from, to);
            let executed = ExecutedBlock { instructions: to as u32, accesses: &accesses, next };
            fast.run_from(from, block, &executed, &mut of_fast);
            slow.run_slowly_from(from, block, &executed, &mut of_slow);
        }
        prop_assert_eq!(fast.counts(), slow.counts());
        prop_assert_eq!(of_fast.asked.len(), of_slow.asked.len());
        prop_assert_eq!(of_fast.asked.last(), of_slow.asked.last());
        if thrown.below(50) == 0 {
            fast.interrupt();
            slow.interrupt();
        }
    }
    prop_assert_eq!(of_fast, of_slow);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_instructions_take_what_they_take_on_the_one_way(
        which in 0..ALL.len(), changed in any_core(), seed: u64,
    ) {
        compare(&model(ALL[which].1), seed)?;
        compare(&changed, seed)?;
    }
}
