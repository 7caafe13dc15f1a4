//! Timing contracts of a core that threads share.

use machine::core::{
    Access, AccessMode, CoreCounts, CoreModel, ExecutedBlock, Instruction, Memory,
    MultithreadedCore, Special,
};
use machine::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};
use machine::{Cycle, PhysicalAddress, SystemModel, VirtualAddress};

use crate::support::{
    FAR, Step, Waits, add, block, blocks_of, branch, copy_in_memory, increment, layout, load,
    model, operation, set, store,
};

const T1: &str = include_str!("../../../../machines/t1.toml");

/// The T1 with latencies of one, and branches that cost nothing.
fn plain() -> CoreModel {
    let mut model = model(T1);
    model.units.load.latency_cycles = 1;
    (model.front.mispredict_cycles, model.front.btb_miss_cycles) = (0, 0);
    model
}

/// Queues the program of each thread, issues all, and returns the core.
fn run(model: &CoreModel, far_cycles: u64, of_threads: &[Vec<Step>]) -> MultithreadedCore {
    let mut core = MultithreadedCore::new(model).expect("threads");
    run_on(&mut core, model, far_cycles, of_threads);
    core
}

fn run_on(
    core: &mut MultithreadedCore,
    model: &CoreModel,
    far_cycles: u64,
    of_threads: &[Vec<Step>],
) {
    let mut waits = Waits::far(far_cycles);
    for (thread, steps) in of_threads.iter().enumerate() {
        for steps in steps.chunks(32) {
            let block = block(layout(model), 0x40_0000, steps);
            let instructions = steps.len() as u32;
            let next = block.fall_through;
            let executed = ExecutedBlock { instructions, accesses: &block.accesses, next };
            core.run(thread, &block.template, &executed, &mut waits);
        }
    }
    core.drain();
    for thread in 0..core.threads() {
        let counts = core.counts(thread);
        assert_eq!(counts.slots(), counts.cycles, "{counts:?}");
    }
}

fn repeat(number: u64, step: impl Fn(u64) -> Step) -> Vec<Step> {
    (0..number).map(step).collect()
}

#[test]
fn contract_1_a_thread_alone_has_each_cycle() {
    let core = run(&plain(), 0, &[repeat(1_000, |_| add(0, 0))]);
    assert_eq!(
        (core.now().0, core.counts(0).cycles, core.counts(0).shared_slots),
        (1_000, 1_000, 0)
    );
}

#[test]
fn contract_2_threads_share_cycles_evenly() {
    for threads in 2..=4 {
        let all = vec![repeat(1_000, set); threads as usize];
        let core = run(&plain(), 0, &all);
        assert_eq!(core.now().0, threads * 1_000);
        for thread in 0..threads {
            let counts = core.counts(thread as usize);
            // Each thread has one cycle of `threads` cycles, from its first instruction on.
            assert_eq!(counts.cycles, 999 * threads + thread + 1);
            assert_eq!(counts.shared_slots, counts.cycles - 1_000);
        }
    }
}

#[test]
fn contract_3_a_thread_that_waits_gives_its_cycles_away() {
    // One thread waits for memory all the time, three add.
    let chase = repeat(10, |link| load(0, 0, FAR + 64 * link));
    let all = [chase, repeat(300, set), repeat(300, set), repeat(300, set)];
    let core = run(&plain(), 90, &all);
    // Ten loads and 900 additions take a cycle each; none is lost until the additions are done.
    let waiting = core.counts(0);
    assert_eq!(waiting.load_misses, 10);
    for thread in 1..4 {
        let counts = core.counts(thread);
        assert!((895..=910).contains(&counts.cycles), "{counts:?}");
        assert_eq!((counts.data_stall_slots, counts.pipeline_stall_slots), (0, 0));
    }
    // Each load waits for 90, takes one cycle itself, and waits for at most three others.
    assert!((10 * 91 - 90..=10 * 94).contains(&waiting.cycles), "{waiting:?}");
    assert!(waiting.data_stall_slots >= 9 * 90, "{waiting:?}");
}

#[test]
fn contract_4_four_threads_hide_the_latency_of_loads() {
    let mut model = plain();
    model.units.load.latency_cycles = 3;
    let chase = || repeat(100, |_| load(0, 0, 0x1000));
    let alone = run(&model, 0, &[chase()]);
    assert_eq!(alone.now().0, 99 * 3 + 1);
    let counts = alone.counts(0);
    assert_eq!((counts.pipeline_stall_slots, counts.data_stall_slots), (99 * 2, 0));
    let four = run(&model, 0, &[chase(), chase(), chase(), chase()]);
    assert_eq!(four.now().0, 400);
}

#[test]
fn contract_5_units_that_are_taken_are_taken_from_all() {
    let mut model = plain();
    model.units.divide.latency_cycles = 20;
    model.units.divide.interval_cycles = 20;
    let divide = || repeat(10, |_| operation(machine::core::Unit::Divide, 0, 0));
    assert_eq!(run(&model, 0, &[divide(), divide()]).now().0, 19 * 20 + 1);
}

#[test]
fn contract_6_a_taken_branch_keeps_its_thread_and_no_other() {
    let mut model = plain();
    model.front.mispredict_cycles = 3;
    let mut core = MultithreadedCore::new(&model).expect("threads");
    let branching = block(layout(&model), 0x40_0000, &[branch(0)]);
    let mut waits = Waits::default();
    let next = branching.template.address();
    let executed = ExecutedBlock { instructions: 1, accesses: &[], next };
    for _ in 0..50 {
        core.run(0, &branching.template, &executed, &mut waits);
    }
    core.drain();
    // Each branch is done a cycle after its issue, and the misprediction costs three more.
    assert_eq!((core.now().0, core.counts(0).mispredicted_branches), (49 * 4 + 1, 50));
    let mut both = MultithreadedCore::new(&model).expect("threads");
    for _ in 0..50 {
        both.run(0, &branching.template, &executed, &mut waits);
    }
    // The other thread has three of four cycles.
    run_on(&mut both, &model, 0, &[vec![], repeat(147, set)]);
    assert_eq!((both.now().0, both.counts(1).shared_slots), (49 * 4 + 1, 49));
}

#[test]
fn contract_7_an_interrupt_keeps_its_thread_and_no_other() {
    let mut model = plain();
    model.events.interrupt_cycles = 50;
    let mut core = MultithreadedCore::new(&model).expect("threads");
    run_on(&mut core, &model, 0, &[repeat(10, set)]);
    core.interrupt(0);
    core.halt_until(1, core.now());
    run_on(&mut core, &model, 0, &[repeat(10, set), repeat(40, set)]);
    let (hit, other) = (core.counts(0), core.counts(1));
    assert_eq!((hit.cycles, hit.interrupts, hit.pipeline_stall_slots), (10 + 50 + 10, 1, 50));
    // The other thread's 40 instructions are done before the handler starts. Its halted time is not
    // charged.
    assert_eq!((other.cycles, other.shared_slots), (40, 0));
}

/// Runs an instruction on thread 0, once for each pair of addresses, and then `set`.
fn run_alone(
    model: &CoreModel,
    instruction: Instruction,
    addresses: impl Iterator<Item = (Option<u64>, Option<u64>)>,
) -> CoreCounts {
    let mut core = MultithreadedCore::new(model).expect("threads");
    let mut waits = Waits::far(100);
    for block in blocks_of(layout(model), instruction, addresses) {
        let executed =
            ExecutedBlock { instructions: 1, accesses: &block.accesses, next: block.fall_through };
        core.run(0, &block.template, &executed, &mut waits);
    }
    run_on(&mut core, model, 0, &[vec![set(0)]]);
    core.counts(0)
}

#[test]
fn contract_8_a_blocking_thread_waits_once_for_each_line() {
    let model = plain();
    let far = |line: u64| FAR + 128 * line;
    let counts =
        run_alone(&model, increment(15), (0..40).map(|line| (Some(far(line)), Some(far(line)))));
    assert_eq!((counts.cycles, counts.data_stall_slots), (40 * 101 + 1, 40 * 100));
    assert_eq!((counts.load_misses, counts.store_misses), (40, 0));
    // A copy waits for the line that it loads, and then for the line that it stores to.
    let copied = |line: u64| (Some(far(line)), Some(far(line) + 64));
    let counts = run_alone(&model, copy_in_memory(), (0..40).map(copied));
    assert_eq!((counts.cycles, counts.data_stall_slots), (40 * 201 + 1, 40 * 200));
    assert_eq!((counts.load_misses, counts.store_misses), (40, 40));
}

#[test]
fn contract_9_an_increment_waits_as_long_as_its_load_addition_and_store() {
    let model = model(T1);
    let far = |line: u64| FAR + 64 * line;
    let apart = |line: u64| vec![load(0, 15, far(line)), add(0, 0), store(15, 0, far(line))];
    let mut apart = (0..40).flat_map(apart).collect::<Vec<_>>();
    apart.push(set(0));
    let apart = run(&model, 100, &[apart]).counts(0);
    let far_pair = |line: u64| (Some(far(line)), Some(far(line)));
    let together = run_alone(&model, increment(15), (0..40).map(far_pair));
    // The load takes three cycles, and the core waits for 100. Two instructions less issue.
    assert_eq!(together.data_stall_slots, 40 * (100 + 3 - 1));
    assert_eq!(together.data_stall_slots, apart.data_stall_slots);
    assert_eq!(together.cycles, apart.cycles - 40 * 2);
}

#[test]
fn contract_10_a_barrier_waits_for_the_data_of_earlier_loads() {
    let mut model = plain();
    model.units.load.latency_cycles = 3;
    model.events.of.mfence_cycles = Some(30);
    let barrier = (Instruction::nothing(3).doing(Special::Barrier), None);
    let steps = vec![load(0, 15, FAR), barrier, set(1)];
    // The load issues in cycle 0, and its data arrives 100 + 3 cycles later, which only the barrier waits for.
    assert_eq!(run(&model, 100, &[steps]).now().0, 103 + 30 + 1);
    assert_eq!(run(&model, 100, &[vec![barrier; 10]]).now().0, 9 * 30 + 1);
}

#[test]
fn contract_11_non_temporal_stores_go_around_the_caches() {
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
    let model = plain();
    let (ordinary, address) = store(15, 14, 0x1000);
    let block =
        block(layout(&model), 0x40_0000, &[(ordinary.streaming(), address), (ordinary, address)]);
    let executed =
        ExecutedBlock { instructions: 2, accesses: &block.accesses, next: block.fall_through };
    let mut core = MultithreadedCore::new(&model).expect("threads");
    let mut modes = Modes::default();
    core.run(0, &block.template, &executed, &mut modes);
    core.drain();
    assert_eq!(modes.0, [AccessMode::StoreAround, AccessMode::Store]);
    let counts = core.counts(0);
    assert_eq!((counts.stores, counts.store_misses), (2, 1));
}

#[test]
fn contract_12_a_thread_waits_once_for_each_line_of_code() {
    let model = plain();
    let machine = SystemModel::parse(T1).expect("a good model");
    let mut system = MemorySystem::new(&without_mshr_limit(&machine), 1);
    let mut core = MultithreadedCore::new(&model).expect("threads");
    let mut layout = layout(&model);
    layout.line_shift = machine.l1i.line_bytes.ilog2();
    // 16 instructions of 4 bytes in two lines of 32 bytes.
    let steps = repeat(16, set);
    let block = block(layout, 0x40_0000, &steps);
    let executed =
        ExecutedBlock { instructions: 16, accesses: &[], next: block.template.address() };
    // The blocks stay in the thread's queue, because the other threads may be ready.
    for _ in 0..12 {
        let pc = VirtualAddress::default();
        let page = PageSize::Small;
        let mut port = MemoryPort { system: &mut system, cpu: 0, code: None, pc, page };
        core.run(0, &block.template, &executed, &mut port);
    }
    core.drain();
    let waited = system.counts(0).fetch_wait_cycles;
    assert_eq!(core.counts(0).fetch_misses, 2);
    assert_eq!(
        (core.counts(0).fetch_stall_slots, core.counts(0).cycles),
        (waited, 12 * 16 + waited)
    );
}

#[test]
fn contract_13_a_fetch_waits_after_the_data_of_the_instruction_before() {
    let model = plain();
    let mut core = MultithreadedCore::new(&model).expect("threads");
    let mut waits = Waits { fetch_cycles: 50, ..Waits::far(100) };
    // The load ends the first line of 64 bytes.
    let steps = [repeat(15, set), vec![load(0, 15, FAR), set(1)]].concat();
    let block = block(layout(&model), 0x40_0000, &steps);
    let executed =
        ExecutedBlock { instructions: 17, accesses: &block.accesses, next: block.fall_through };
    core.run(0, &block.template, &executed, &mut waits);
    core.drain();
    let counts = core.counts(0);
    assert_eq!((counts.fetch_stall_slots, counts.data_stall_slots), (100, 100));
    assert_eq!(counts.cycles, 50 + 16 + 100 + 50 + 1);
}
