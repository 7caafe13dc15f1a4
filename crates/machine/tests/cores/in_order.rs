//! Timing contracts of cores in order, and the one that waits for each miss against the reference.

use machine::core::{
    Access, AccessMode, CoreCounts, CoreModel, ExecutedBlock, InOrderCore, Instruction, Memory,
    Register, SingleThreadCore, Special, Unit,
};
use machine::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};
use machine::{
    BlockingMachine, BlockingModel, CodeBlock, Cycle, PhysicalAddress, SystemModel, VirtualAddress,
};
use proptest::prelude::*;

use crate::support::{
    Core, FAR, Step, Waits, access, add, add_from_memory, block, blocks_of, branch, closed,
    copy_in_memory, increment, layout, load, model, operation, run_on, set, span, store,
};

const ULTRA_1: &str = include_str!("../../../../machines/ultra-1.toml");
const CORTEX_A55: &str = include_str!("../../../../machines/cortex-a55.toml");
const R4400: &str = include_str!("../../../../machines/r4400-1994.toml");

/// Two wide, not blocking, latencies of one.
fn two_wide() -> CoreModel {
    let mut model = model(R4400);
    (model.width, model.issue_width) = (2, Some(2));
    model.front.queue_entries = Some(8);
    model.units.integer.count = 2;
    model.data.blocking = false;
    (model.data.mshrs, model.data.store_entries, model.data.load_entries) = (4, 8, Some(64));
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

/// Runs an instruction once for each pair of addresses, in blocks of their own.
fn run_alone(
    model: &CoreModel,
    instruction: Instruction,
    addresses: impl Iterator<Item = (Option<u64>, Option<u64>)>,
) -> CoreCounts {
    let (mut core, mut waits) = (in_order(model), Waits::far(100));
    for block in blocks_of(layout(model), instruction, addresses) {
        core.play(&block, block.fall_through, &mut waits);
    }
    closed(core.counts(), model)
}

/// The addresses of an instruction that loads from a far line of its own and stores to the same address.
fn far_lines(number: u64) -> impl Iterator<Item = (Option<u64>, Option<u64>)> {
    (0..number).map(|line| (Some(FAR + 64 * line), Some(FAR + 64 * line)))
}

#[test]
fn contract_7_a_blocking_core_waits_once_for_each_line() {
    for mshrs in [1, 4] {
        let mut model = model(R4400);
        model.data.mshrs = mshrs;
        let counts = run_alone(&model, increment(15), far_lines(40));
        assert_eq!((counts.cycles, counts.data_stall_slots), (40 * 101, 40 * 100));
        assert_eq!((counts.load_misses, counts.store_misses), (40, 0));
        // A copy waits for the line that it loads, and then for the line that it stores to.
        let copied = |line: u64| (Some(FAR + 128 * line), Some(FAR + 128 * line + 64));
        let counts = run_alone(&model, copy_in_memory(), (0..40).map(copied));
        assert_eq!((counts.cycles, counts.data_stall_slots), (40 * 201, 40 * 200));
        assert_eq!((counts.load_misses, counts.store_misses), (40, 40));
    }
}

#[test]
fn contract_8_an_instruction_takes_one_cycle_if_its_load_and_its_operation_take_one() {
    let model = model(R4400);
    let near = || (0..500).map(|_| (Some(0x1000), None));
    // Each addition needs the result of the addition before.
    let counts = run_alone(&model, add_from_memory(0, 15), near());
    assert_eq!((counts.cycles, counts.pipeline_stall_slots), (500, 0));
    // Each increment loads the value that the increment before has stored.
    let near = (0..500).map(|_| (Some(0x1000), Some(0x1000)));
    let counts = run_alone(&model, increment(15), near);
    assert_eq!((counts.cycles, counts.pipeline_stall_slots), (500, 0));
}

#[test]
fn contract_9_an_instruction_waits_for_the_data_that_it_loads_and_uses() {
    let mut model = two_wide();
    for (load_cycles, wait) in [(1, 100), (3, 103)] {
        model.units.load.latency_cycles = load_cycles;
        let compare = Instruction::of_unit(Unit::Integer).loading(&[]);
        let loaded = || far_lines(40).map(|(loaded, _)| (loaded, None));
        // The next instruction issues when the operation on the loaded data starts.
        for counts in [
            run_alone(&model, increment(15), far_lines(40)),
            run_alone(&model, copy_in_memory(), far_lines(40)),
            run_alone(&model, compare, loaded()),
        ] {
            assert_eq!(counts.cycles, 39 * wait + 1, "{load_cycles} {counts:?}");
            assert_eq!(counts.data_stall_slots, 39 * (wait * 2 - 1), "{load_cycles} {counts:?}");
        }
        // A load that nothing uses waits for nothing but the fill buffers.
        let load = Instruction::nothing(4).loading(&[]);
        assert!(run_alone(&model, load, loaded()).cycles < 40 * 100 / 3);
    }
    // Instructions whose loads hit wait, too. Each addition also needs the sum of the addition before.
    let near = (0..500).map(|_| (Some(0x1000), None));
    assert_eq!(run_alone(&model, add_from_memory(0, 15), near).cycles, 499 * 4 + 1);
    let near = (0..500).map(|number| (Some(0x1000 + 8 * (number % 64)), Some(0x2000)));
    assert_eq!(run_alone(&model, copy_in_memory(), near).cycles, 499 * 3 + 1);
}

#[test]
fn contract_10_an_increment_takes_as_long_as_its_load_addition_and_store() {
    for text in [ULTRA_1, CORTEX_A55] {
        let model = model(text);
        let apart = |line: u64| {
            let address = FAR + 64 * line;
            vec![load(0, 15, address), add(0, 0), store(15, 0, address)]
        };
        let apart = (0..1_000).flat_map(apart).collect::<Vec<_>>();
        let apart = run(&model, &apart, 100);
        let together = run_alone(&model, increment(15), far_lines(1_000));
        assert!(together.cycles.abs_diff(apart.cycles) * 40 < apart.cycles);
        assert!(together.data_stall_slots.abs_diff(apart.data_stall_slots) * 40 < apart.slots());
    }
}

#[test]
fn contract_11_no_more_loads_miss_at_a_time_than_there_are_fill_buffers() {
    let mut model = two_wide();
    for mshrs in [1, 2, 4, 8, 64] {
        model.data.mshrs = mshrs;
        let mut steps = repeat(40, |number| load(number % 8, 15, FAR + 64 * number));
        steps.push(add(14, 14));
        let counts = run(&model, &steps, 100);
        // A load starts in each cycle while a buffer is free. The addition issues when the last load has a buffer.
        let (rounds, place) = (39 / u64::from(mshrs), 39 % u64::from(mshrs));
        let last_starts = rounds * 100 + place;
        let addition_issues = if rounds == 0 { last_starts } else { last_starts.max(39) };
        assert_eq!(counts.cycles, addition_issues + 1, "{mshrs}: {counts:?}");
        assert_eq!(counts.load_misses, 40);
        if rounds > 0 {
            assert!(counts.data_stall_slots > (last_starts - 40) * 2, "{mshrs}: {counts:?}");
        }
    }
}

#[test]
fn contract_12_a_load_waits_for_an_entry_of_the_load_queue() {
    let mut model = two_wide();
    (model.data.load_entries, model.data.mshrs) = (Some(4), 64);
    let counts = run(&model, &repeat(40, |number| load(number % 8, 15, FAR + 64 * number)), 100);
    // The data of a load arrives 101 cycles after its issue. The last load is the fourth of the tenth group.
    assert_eq!(counts.cycles, 9 * 101 + 3 + 1, "{counts:?}");
    assert!(counts.data_stall_slots > 8 * 100 * 2, "{counts:?}");
}

#[test]
fn contract_13_the_front_end_executes_moves_and_follows_the_stack_as_its_model_says() {
    let (mut model, mut quick) = (two_wide(), two_wide());
    (model.units.integer.count, quick.units.integer.count) = (1, 1);
    (quick.front.eliminates_moves, quick.front.eliminates_zeroing) = (true, true);
    let moves = repeat(40, |number| (set(number % 8).0.moving_register(), None));
    let zeroes = repeat(40, |number| (set(number % 8).0.zeroing(), None));
    for steps in [moves, zeroes] {
        assert_eq!((cycles(&model, &steps), cycles(&quick, &steps)), (40, 20));
    }
    (model.units.store.count, quick.units.store.count) = (2, 2);
    quick.front.follows_stack = true;
    let (push, address) = store(4, 1, 0x1000);
    let push = push.moving(&[Register::STACK_POINTER]).moving_stack();
    let pushes = repeat(8, |_| (push, address));
    assert_eq!((cycles(&model, &pushes), cycles(&quick, &pushes)), (8, 4));
}

#[test]
fn contract_14_a_barrier_and_a_locked_instruction_wait_for_earlier_loads() {
    let mut model = two_wide();
    (model.events.atomic_cycles, model.events.of.mfence_cycles) = (7, Some(30));
    let barrier = (Instruction::nothing(3).doing(Special::Barrier), None);
    let locked = (increment(15).doing(Special::Atomic), Some(0x2000));
    let missing = |number: u64| load(number, 15, FAR + 64 * number);
    // The loads miss together in cycles 0 and 1. The data of the last arrives after 1 + 100 cycles, in cycle 102.
    let loads = || repeat(2, missing);
    let after = |special: Step| [loads(), vec![special, set(5)]].concat();
    let counts = run(&model, &after(barrier), 100);
    assert_eq!(counts.cycles, 102 + 30 + 1);
    assert!(counts.data_stall_slots > 190, "{counts:?}");
    // The next instruction issues together with the locked one: only later loads wait for that.
    assert_eq!(run(&model, &after(locked), 100).cycles, 102 + 1);
    // A barrier alone takes its cycles.
    assert_eq!(cycles(&model, &repeat(10, |_| barrier)), 9 * 30 + 1);
}

#[test]
fn contract_15_non_temporal_stores_go_around_the_caches() {
    #[derive(Default)]
    struct Modes(Vec<AccessMode>);
    impl Memory for Modes {
        fn look_up_fetch(&mut self, _: VirtualAddress, _: PhysicalAddress) {}
        fn look_up(&mut self, _: &Access, _: AccessMode) {}
        fn fetch(&mut self, _: VirtualAddress, _: PhysicalAddress, _: Cycle) -> u64 {
            0
        }
        fn access(&mut self, _: &Access, mode: AccessMode, _: Cycle) -> u64 {
            self.0.push(mode);
            50
        }
    }
    for is_blocking in [false, true] {
        let mut model = two_wide();
        model.data.blocking = is_blocking;
        let (ordinary, address) = store(15, 14, 0x1000);
        let steps = [(ordinary.streaming(), address), (ordinary, address)];
        let block = block(layout(&model), 0x40_0000, &steps);
        let executed =
            ExecutedBlock { instructions: 2, accesses: &block.accesses, next: block.fall_through };
        let (mut core, mut modes) = (in_order(&model), Modes::default());
        core.run(&block.template, &executed, &mut modes);
        assert_eq!(modes.0, [AccessMode::StoreAround, AccessMode::Store]);
        let counts = closed(core.counts(), &model);
        // No line is filled for the non-temporal store.
        assert_eq!((counts.stores, counts.store_misses), (2, 1));
        // A blocking core waits until a combining buffer takes the store, and then for the line of the other store.
        assert_eq!(counts.cycles, if is_blocking { 2 * 51 } else { 2 }, "{counts:?}");
    }
}

/// The kind of an instruction of a random program.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Add,
    Load,
    Store,
    /// Adds a value in memory to a register.
    AddFromMemory,
    Increment,
    Copy,
    /// Loads two values.
    Compare,
}

impl Kind {
    fn instruction(self) -> Instruction {
        match self {
            Kind::Add => add(1, 0).0,
            Kind::Load => load(0, 15, 0).0,
            Kind::Store => store(15, 14, 0).0,
            Kind::AddFromMemory => add_from_memory(1, 15),
            Kind::Increment => increment(15),
            Kind::Copy => copy_in_memory(),
            Kind::Compare => Instruction::of_unit(Unit::Integer).loading(&[]),
        }
    }

    /// The accesses of the instruction, all of which are made at `address` or at `second`.
    fn accesses(self, address: u64, second: u64) -> Vec<Access> {
        match self {
            Kind::Add => vec![],
            Kind::Load | Kind::AddFromMemory => vec![access(address, false)],
            Kind::Store => vec![access(address, true)],
            Kind::Increment => vec![access(address, false), access(address, true)],
            Kind::Copy => vec![access(address, false), access(second, true)],
            Kind::Compare => vec![access(address, false), access(second, false)],
        }
    }
}

/// A piece of a stream: consecutive instructions, each with the slots of its data.
#[derive(Clone, Debug)]
struct Run {
    line: u64,
    steps: Vec<(Kind, u64, u64)>,
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    use Kind::{Add, AddFromMemory, Compare, Copy, Increment, Load, Store};
    let kind =
        prop::sample::select(vec![Add, Load, Store, AddFromMemory, Increment, Copy, Compare]);
    let step = (kind, 0u64..200, 0u64..200);
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
        (queue_entries, count) in (1u32..9, 1u32..4),
        (entries, mshrs, forward_cycles) in (1u32..9, 1u32..5, 0u32..2),
        taken_ends_cycle in any::<bool>(),
    ) {
        let machine = reference_model();
        let mut core_model = model(R4400);
        let front = &mut core_model.front;
        (front.queue_entries, front.taken_ends_cycle) = (Some(queue_entries), taken_ends_cycle);
        (core_model.units.load.count, core_model.units.store.count) = (count, count);
        let data = &mut core_model.data;
        (data.load_entries, data.store_entries, data.mshrs) = (Some(entries), entries, mshrs);
        data.forward_cycles = Some(forward_cycles);
        let mut system_model = SystemModel::parse(R4400).expect("a good model");
        system_model.core = Some(core_model.clone());
        prop_assert!(system_model.blocking().is_ok());
        let mut system = r4400_system();
        let mut caches = port(&mut system);
        let mut core = InOrderCore::new(&core_model, machine.l1d.line_bytes).expect("no window");
        let mut fast = BlockingMachine::new(&machine);
        for run in &runs {
            let address = run.line * 4096;
            let data = |slot: u64| (0x100_0000 + slot * 88) & !7;
            let steps = run.steps.iter().map(|(kind, _, _)| (kind.instruction(), None));
            let steps: Vec<Step> = steps.collect();
            let mut layout = layout(&core_model);
            layout.line_shift = fast.fetch_line_shift();
            let mut block = block(layout, address, &steps);
            let accesses = run.steps.iter().map(|(kind, slot, second)| kind.accesses(data(*slot), data(*second)));
            let accesses: Vec<Vec<Access>> = accesses.collect();
            let numbered = |(index, accesses): (usize, &Vec<Access>)| {
                let numbered = |access: &Access| Access { instruction: index as u16, ..*access };
                accesses.iter().map(numbered).collect::<Vec<_>>()
            };
            block.accesses = accesses.iter().enumerate().flat_map(numbered).collect();
            let instructions = steps.len() as u32;
            let executed = ExecutedBlock { instructions, accesses: &block.accesses, next: block.fall_through };
            core.run(&block.template, &executed, &mut caches);
            // The fast path fetches a block at once; the core fetches what it executes.
            for (at, accesses) in (address..).step_by(4).zip(&accesses) {
                let span = span(at, 4);
                fast.execute_block(&CodeBlock::new(fast.fetch_line_shift(), 1, span, None));
                let same = |address: VirtualAddress| Some(PhysicalAddress(address.0));
                for access in accesses {
                    if access.write { fast.store(access.virtual_address, same) } else { fast.load(access.virtual_address, same) }
                }
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
