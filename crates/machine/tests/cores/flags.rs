//! Condition flags that one block writes and another block reads, on each kind of core.

use machine::core::{
    CoreModel, ExecutedBlock, Instruction, MultithreadedCore, Register, SingleThreadCore, Unit,
};

use crate::support::{Block, Step, Waits, block, layout, model, out_of_order, plain, register};

const R4400: &str = include_str!("../../../../machines/r4400-1994.toml");
const T1: &str = include_str!("../../../../machines/t1.toml");

/// Reads the zero flag, and writes register 1.
fn zero_flag_reader() -> Step {
    let select = Instruction::of_unit(Unit::Select);
    (select.reading(&[Register::FLAGS_BUT_CARRY]).writing(&[register(1)]), None)
}

/// A multiplication of register 1, whose result sets some flags.
fn flag_writer(flags: Register) -> Step {
    (
        Instruction::of_unit(Unit::Multiply).reading(&[register(1)]).writing(&[register(2), flags]),
        None,
    )
}

/// Cycles of 100 iterations of two blocks on a core of this model, after it has warmed up.
fn cycles(model: &CoreModel, blocks: [&[Step]; 2]) -> u64 {
    let layout = layout(model);
    let blocks = [block(layout, 0x40_0000, blocks[0]), block(layout, 0x40_1000, blocks[1])];
    let mut waits = Waits::default();
    let mut round = |run: &mut dyn FnMut(&Block, &ExecutedBlock<'_>, &mut Waits)| {
        for (block, other) in [(&blocks[0], &blocks[1]), (&blocks[1], &blocks[0])] {
            let instructions = block.template.len() as u32;
            let next = other.template.address();
            run(block, &ExecutedBlock { instructions, accesses: &[], next }, &mut waits);
        }
    };
    let mut measured = |run: &mut dyn FnMut(&Block, &ExecutedBlock<'_>, &mut Waits) -> u64| {
        let mut cycles = 0;
        let mut totals = [0; 2];
        for total in &mut totals {
            (0..100).for_each(|_| {
                round(&mut |block, executed, waits| cycles = run(block, executed, waits));
            });
            *total = cycles;
        }
        totals[1] - totals[0]
    };
    if let Some(mut core) = MultithreadedCore::new(model) {
        return measured(&mut |block, executed, waits| {
            core.run(0, &block.template, executed, waits);
            core.drain();
            core.cycles(0)
        });
    }
    if model.window.is_some() {
        let mut core = out_of_order(model);
        return measured(&mut |block, executed, waits| {
            core.run(&block.template, executed, waits);
            core.cycles()
        });
    }
    let mut core = machine::core::InOrderCore::new(model, 64).expect("an in-order core");
    measured(&mut |block, executed, waits| {
        core.run(&block.template, executed, waits);
        core.cycles()
    })
}

fn models() -> [CoreModel; 3] {
    [plain(), model(R4400), model(T1)]
}

#[test]
fn a_reader_of_the_zero_flag_waits_for_its_writer_in_an_earlier_block() {
    for model in models() {
        let latency = u64::from(model.units.multiply.latency_cycles);
        for flags in [Register::FLAGS, Register::FLAGS_BUT_CARRY] {
            let chained = cycles(&model, [&[zero_flag_reader()], &[flag_writer(flags)]]);
            assert!(chained >= 100 * latency, "{flags:?}: {chained} with latency {latency}");
        }
    }
}

/// A block in between that writes no flags, or the carry alone, changes nothing.
#[test]
fn a_writer_of_the_carry_does_not_hide_the_zero_flag() {
    let carry_writer = (Instruction::of_unit(Unit::Integer).writing(&[Register::CARRY]), None);
    for model in models() {
        let latency = u64::from(model.units.multiply.latency_cycles);
        for flags in [Register::FLAGS, Register::FLAGS_BUT_CARRY] {
            let same_block = [flag_writer(flags), carry_writer];
            let chained = cycles(&model, [&[zero_flag_reader()], &same_block]);
            assert!(chained >= 100 * latency, "{flags:?}: {chained} with latency {latency}");
            let other_block = [carry_writer, zero_flag_reader()];
            let chained = cycles(&model, [&other_block, &[flag_writer(flags)]]);
            assert!(chained >= 100 * latency, "{flags:?}: {chained} with latency {latency}");
        }
    }
}
