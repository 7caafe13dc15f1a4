//! Timing contracts of cores in order, and the one that waits for each miss against the reference.

use machine::core::{
    Access, AccessMode, CoreCounts, CoreModel, ExecutedBlock, InOrderCore, Memory,
    SingleThreadCore, Unit,
};
use machine::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};
use machine::{
    BlockingMachine, BlockingModel, CodeBlock, Cycle, PhysicalAddress, SystemModel, VirtualAddress,
};
use proptest::prelude::*;

use crate::support::{
    Core, FAR, Step, Waits, add, block, branch, closed, layout, load, model, operation, run_on,
    set, span, store,
};

const R4400: &str = include_str!("../../../../machines/r4400-1994.toml");

/// Two wide, not blocking, latencies of one.
fn two_wide() -> CoreModel {
    let mut model = model(R4400);
    (model.width, model.issue_width) = (2, 2);
    model.front.queue_entries = 8;
    model.units.integer.count = 2;
    model.data.blocking = false;
    (model.data.mshrs, model.data.store_entries) = (4, 8);
    model
}

fn in_order(model: &CoreModel) -> InOrderCore {
    assert_eq!(model.check("core"), Ok(()));
    InOrderCore::new(model, 64).expect("no window")
}

fn run(model: &CoreModel, steps: &[Step], far_cycles: u64) -> CoreCounts {
    let mut core = in_order(model);
    run_on(&mut core, layout(model), steps, &mut Waits::far(far_cycles));
    closed(core.counts(), model)
}

fn cycles(model: &CoreModel, steps: &[Step]) -> u64 {
    run(model, steps, 0).cycles
}

fn repeat(number: u64, step: impl Fn(u64) -> Step) -> Vec<Step> {
    (0..number).map(step).collect()
}

#[test]
fn contract_1_single_issue_is_an_instruction_a_cycle() {
    let model = model(R4400);
    assert_eq!(cycles(&model, &repeat(500, set)), 500);
    assert_eq!(cycles(&model, &repeat(500, |_| add(0, 0))), 500);
    assert_eq!(cycles(&model, &repeat(500, |_| operation(Unit::Multiply, 0, 0))), 500);
}

#[test]
fn contract_2_pairs_issue_together_if_units_and_operands_let_them() {
    let model = two_wide();
    assert_eq!(cycles(&model, &repeat(500, set)), 250);
    assert_eq!(cycles(&model, &repeat(500, |_| add(0, 0))), 500);
    // One load unit: two loads take two cycles, a load and an addition take one.
    assert_eq!(cycles(&model, &repeat(500, |number| load(number % 8, 15, 0x1000))), 500);
    let mixed = |number: u64| if number.is_multiple_of(2) { load(0, 15, 0x1000) } else { set(1) };
    assert_eq!(cycles(&model, &repeat(500, mixed)), 250);
}

#[test]
fn contract_3_what_is_behind_an_instruction_that_waits_waits_too() {
    let mut model = two_wide();
    model.units.multiply.latency_cycles = 5;
    // The sum waits for the product, and so do the independent instructions after it.
    let steps = [vec![operation(Unit::Multiply, 0, 0), add(0, 0)], repeat(6, |_| set(1))].concat();
    assert_eq!(cycles(&model, &steps), 5 + 1 + 3);
}

#[test]
fn contract_4_a_miss_is_waited_for_at_its_use_or_at_once() {
    let mut model = two_wide();
    let steps = [vec![load(0, 15, FAR)], repeat(9, |_| set(1)), vec![add(0, 0)]].concat();
    // The use comes after ten instructions, which take five cycles; the load itself takes one.
    let counts = run(&model, &steps, 100);
    assert_eq!((counts.cycles, counts.load_misses), (101 + 1, 1));
    // The first five cycles are full; the use takes one of the two slots of the last.
    assert_eq!(counts.data_stall_slots, 102 * 2 - 11 - counts.open_slots);
    model.data.blocking = true;
    let counts = run(&model, &steps, 100);
    assert_eq!(counts.cycles, 1 + 100 + 5);
    assert_eq!(counts.data_stall_slots, 100 * 2 + 1);
}

#[test]
fn contract_5_a_branch_that_was_not_foreseen_costs_its_penalty() {
    let mut model = two_wide();
    model.front.mispredict_cycles = 4;
    let block = block(layout(&model), 0x40_0000, &[set(1), branch(0)]);
    let mut core = in_order(&model);
    // Predicted taken, and never taken.
    (0..100).for_each(|_| core.play(&block, block.fall_through, &mut Waits::default()));
    let counts = closed(core.counts(), &model);
    assert_eq!((counts.cycles, counts.mispredicted_branches), (100 + 99 * 4, 100));
}

#[test]
fn contract_6_a_full_store_buffer_waits() {
    let mut model = two_wide();
    (model.data.store_entries, model.data.mshrs) = (4, 1);
    let counts = run(&model, &repeat(40, |number| store(15, 14, FAR + 64 * number)), 100);
    // The last starts when the 36th has left; a line is filled each 100 cycles.
    assert_eq!(counts.cycles, 36 * 100 + 1);
}

/// A piece of a stream: consecutive instructions, each with its data.
#[derive(Clone, Debug)]
struct Run {
    line: u64,
    steps: Vec<(bool, u64)>,
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    let step = (any::<bool>(), 0u64..200);
    let run = (0u64..64, prop::collection::vec(step, 1..12));
    prop::collection::vec(run.prop_map(|(line, steps)| Run { line, steps }), 1..60)
}

fn r4400_system() -> MemorySystem {
    let model = SystemModel::parse(R4400).expect("a good model");
    MemorySystem::new(&without_mshr_limit(&model), 1)
}

fn port(system: &mut MemorySystem) -> MemoryPort<'_> {
    MemoryPort { system, cpu: 0, code: None, pc: VirtualAddress::default(), page: PageSize::Small }
}

fn reference_model() -> BlockingModel {
    let text = include_str!("../../../../machines/r4400-1994.toml");
    BlockingModel::parse(text).expect("a good model")
}

proptest! {
    /// A core that executes one instruction per cycle and waits for each miss takes the same cycles
    /// as the fast path, which has no core. The fields that the fast path ignores change nothing.
    #[test]
    fn the_core_that_waits_takes_the_cycles_of_the_paper(
        runs in runs(),
        (queue_entries, issue_width, count) in (1u32..9, 1u32..4, 1u32..4),
        (entries, mshrs, forward_cycles) in (1u32..9, 1u32..5, 0u32..2),
        taken_ends_cycle in any::<bool>(),
    ) {
        let machine = reference_model();
        let mut core_model = model(R4400);
        core_model.issue_width = issue_width;
        let front = &mut core_model.front;
        (front.queue_entries, front.taken_ends_cycle) = (queue_entries, taken_ends_cycle);
        (core_model.units.load.count, core_model.units.store.count) = (count, count);
        let data = &mut core_model.data;
        (data.load_entries, data.store_entries, data.mshrs) = (entries, entries, mshrs);
        data.forward_cycles = forward_cycles;
        let mut system_model = SystemModel::parse(R4400).expect("a good model");
        system_model.core = Some(core_model.clone());
        prop_assert!(system_model.blocking().is_ok());
        let mut system = r4400_system();
        let mut caches = port(&mut system);
        let mut core = InOrderCore::new(&core_model, machine.l1d.line_bytes).expect("no window");
        let mut fast = BlockingMachine::new(&machine);
        for run in &runs {
            let address = run.line * 4096;
            let data = |slot: u64| 0x100_0000 + slot * 88;
            let steps = run.steps.iter().map(|(write, at)| {
                if *write { store(15, 14, data(*at) & !7) } else { load(0, 15, data(*at) & !7) }
            });
            let steps: Vec<Step> = steps.collect();
            let mut layout = layout(&core_model);
            layout.line_shift = fast.fetch_line_shift();
            let block = block(layout, address, &steps);
            let instructions = steps.len() as u32;
            let executed = ExecutedBlock { instructions, accesses: &block.accesses, next: block.fall_through };
            core.run(&block.template, &executed, &mut caches);
            // The fast path fetches a block at once; the core fetches what it executes.
            for (at, access) in (address..).step_by(4).zip(&block.accesses) {
                let span = span(at, 4);
                fast.execute_block(&CodeBlock::new(fast.fetch_line_shift(), 1, span, None));
                let same = |address: VirtualAddress| Some(PhysicalAddress(address.0));
                if access.write { fast.store(access.virtual_address, same) } else { fast.load(access.virtual_address, same) }
            }
        }
        prop_assert_eq!(core.cycles(), fast.cycles());
        let counts = closed(core.counts(), &core_model);
        prop_assert_eq!(counts.data_stall_slots, fast.counts().data_stall_cycles);
        prop_assert_eq!(counts.fetch_stall_slots, fast.counts().fetch_stall_cycles);
        prop_assert_eq!(counts.pipeline_stall_slots, 0);
    }
}

#[test]
fn an_access_of_several_lines_asks_for_each() {
    let mut system = r4400_system();
    // 40 bytes from 8 on lie in three lines of 16.
    let access = |address, bytes| Access {
        virtual_address: VirtualAddress(address),
        physical: Some(PhysicalAddress(address)),
        instruction: 0,
        bytes,
        write: false,
    };
    port(&mut system).access(&access(8, 40), AccessMode::Load, Cycle::START);
    assert_eq!(system.counts(0).basic.loads, 3);
    assert_eq!(port(&mut system).access(&access(47, 1), AccessMode::Load, Cycle(10_000)), 0);
    assert!(port(&mut system).access(&access(48, 1), AccessMode::Load, Cycle(10_000)) > 0);
}
