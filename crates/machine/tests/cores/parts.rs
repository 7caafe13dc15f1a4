//! Blocks that are executed in parts, and threads that are advanced while others continue.

use machine::core::{
    Access, AnyCore, CoreCounts, CoreModel, ExecutedBlock, MultithreadedCore, SingleThreadCore,
};
use proptest::prelude::*;

use crate::presets::ALL;
use crate::streams::program;
use crate::support::{Block, Waits, model};

const T1: &str = include_str!("../../../../machines/t1.toml");

/// The two parts of a block that is cut once: their instructions and accesses.
fn parts(block: &Block, cut: usize) -> Vec<(usize, usize, Vec<Access>)> {
    let length = block.template.len();
    let part = |from: usize, to: usize| {
        let inside = |access: &&Access| (from..to).contains(&usize::from(access.instruction));
        (from, to, block.accesses.iter().filter(inside).copied().collect())
    };
    match cut % length.max(1) {
        0 => vec![part(0, length)],
        cut => vec![part(0, cut), part(cut, length)],
    }
}

/// Runs a program with each block cut at another place.
fn play(model: &CoreModel, seed: u64, cut: usize) -> CoreCounts {
    let program = program(model, seed, 200);
    let mut waits = Waits { fetch_cycles: 20, ..Waits::far(80) };
    let mut single = AnyCore::new(model, 64);
    let mut threads = MultithreadedCore::new(model);
    for (at, (block, next, _)) in program.each().enumerate() {
        for (from, to, accesses) in parts(block, cut * at) {
            let executed = ExecutedBlock { instructions: to as u32, accesses: &accesses, next };
            let template = &block.template;
            if let Some(core) = &mut single {
                core.run_from(from, template, &executed, &mut waits);
            }
            if let Some(core) = &mut threads {
                core.run_from(0, (from, template), &executed, &mut waits);
            }
        }
    }
    let issued = threads.map(|mut core| {
        core.drain();
        core.counts(0)
    });
    let counts = single.map(|core| core.counts());
    counts.or(issued).expect("some sort of core")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_block_in_parts_takes_what_it_takes_at_once(
        which in 0..ALL.len(),
        seed in any::<u64>(),
        cut in 1usize..50,
    ) {
        let model = model(ALL[which].1);
        prop_assert_eq!(play(&model, seed, cut), play(&model, seed, 0));
    }

    /// The lower bound of a thread's cycles never falls and is never above the final value; with
    /// all other threads halted it is exact.
    #[test]
    fn threads_that_go_on_as_far_as_they_can(
        seed in any::<u64>(),
        slices in prop::collection::vec((0usize..4, 1usize..30), 1..60),
        alone in any::<bool>(),
    ) {
        let model = model(T1);
        let program = program(&model, seed, 400);
        let blocks: Vec<_> = program.each().collect();
        let mut core = MultithreadedCore::new(&model).expect("threads");
        if alone {
            (1..4).for_each(|thread| core.set_halted(thread, true));
        }
        let mut waits = Waits::far(80);
        let (mut said, mut at) = ([0; 4], 0);
        for (thread, number) in slices {
            let thread = if alone { 0 } else { thread };
            for _ in 0..number {
                let (block, next, _) = blocks[at % blocks.len()];
                at += 1;
                let instructions = block.template.len() as u32;
                let executed = ExecutedBlock { instructions, accesses: &block.accesses, next };
                core.run(thread, &block.template, &executed, &mut waits);
            }
            core.advance();
            for (thread, said) in said.iter_mut().enumerate() {
                let now = core.cycles(thread);
                prop_assert!(now >= *said, "thread {}: {} after {}", thread, now, said);
                *said = now;
            }
        }
        core.drain();
        for (thread, said) in said.into_iter().enumerate() {
            prop_assert!(core.cycles(thread) >= said);
            let counts = core.counts(thread);
            prop_assert_eq!(counts.slots(), counts.cycles);
            if alone {
                prop_assert_eq!(core.cycles(thread), said);
            }
        }
    }
}
