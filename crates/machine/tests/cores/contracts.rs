//! Timing contracts of the core out of order: streams whose cycles can be computed by hand.

use machine::core::{
    CoreCounts, CoreModel, Instruction, Register, SingleThreadCore, Special, Unit, UnitModel,
};

use crate::support::{
    Block, Core, FAR, MXS, Step, Waits, add, block, branch, closed, layout, load, model, operation,
    out_of_order, plain, run, set, store,
};

fn cycles(model: &CoreModel, steps: &[Step]) -> u64 {
    run(model, steps, &mut Waits::default()).cycles
}

fn far(model: &CoreModel, wait: u64, steps: &[Step]) -> CoreCounts {
    run(model, steps, &mut Waits::far(wait))
}

fn repeat(number: u64, step: impl Fn(u64) -> Step) -> Vec<Step> {
    (0..number).map(step).collect()
}

#[test]
fn contract_1_a_chain_of_additions_is_one_a_cycle() {
    assert_eq!(cycles(&plain(), &repeat(1_000, |_| add(0, 0))), 1_000);
    assert_eq!(cycles(&model(MXS), &repeat(1_000, |_| add(0, 0))), 1_000);
}

#[test]
fn contract_2_independent_additions_are_as_many_a_cycle_as_the_core_is_wide() {
    for width in [1, 2, 4, 6] {
        let mut model = plain();
        (model.width, model.issue_width) = (width, Some(width.max(4)));
        model.units.integer.count = width;
        assert_eq!(cycles(&model, &repeat(1_200, set)), 1_200 / u64::from(width));
    }
}

#[test]
fn contract_3_units_limit_what_begins_in_a_cycle() {
    let mut model = plain();
    model.units.multiply = UnitModel { count: 2, latency_cycles: 5, interval_cycles: 1 };
    model.units.divide = UnitModel { count: 1, latency_cycles: 20, interval_cycles: 20 };
    let all = |unit| repeat(400, move |number| (operation(unit, number, number).0, None));
    // Sixteen registers, each a chain: two start per cycle, the last is done 5 later.
    assert_eq!(cycles(&model, &all(Unit::Multiply)), 199 + 5);
    assert_eq!(cycles(&model, &all(Unit::Divide)), 400 * 20);
    model.issue_width = Some(1);
    assert_eq!(cycles(&model, &repeat(400, set)), 400);
}

#[test]
fn contract_4_a_chain_of_loads_takes_the_latency_of_each() {
    let mut model = plain();
    model.units.load.latency_cycles = 5;
    assert_eq!(cycles(&model, &repeat(100, |_| load(0, 0, 0x1000))), 100 * 5);
    let chase = repeat(100, |link| load(0, 0, FAR + 64 * link));
    let counts = far(&model, 200, &chase);
    assert_eq!((counts.cycles, counts.load_misses), (100 * 205, 100));
    // The open slots and the slots that retire loads are not charged to data. All others are.
    assert_eq!(counts.data_stall_slots, 100 * 205 * 4 - 100 - counts.open_slots);
}

#[test]
fn contract_5_independent_misses_overlap_as_far_as_there_are_places() {
    for misses in [1, 2, 4, 8] {
        let mut model = plain();
        model.data.mshrs = misses;
        let counts =
            far(&model, 100, &repeat(64, |number| load(number % 8, 15, FAR + 64 * number)));
        // Four start per cycle: the first four are ready after 100 cycles and one for the load
        // itself.
        let first = if misses == 8 { 1 } else { 0 };
        assert_eq!(counts.cycles, 64 / u64::from(misses) * 100 + 1 + first, "{misses} places");
    }
}

#[test]
fn contract_6_two_loads_of_a_line_wait_for_one_miss() {
    let mut model = plain();
    model.data.mshrs = 1;
    let both = [load(0, 15, FAR), load(1, 15, FAR + 8)];
    assert_eq!(far(&model, 100, &both).cycles, 101);
    let apart = [load(0, 15, FAR), load(1, 15, FAR + 64)];
    assert_eq!(far(&model, 100, &apart).cycles, 201);
}

#[test]
fn contract_7_a_long_miss_is_hidden_as_far_as_the_window_reaches() {
    let mut model = plain();
    model.window.as_mut().unwrap().reorder_entries = 64;
    model.window.as_mut().unwrap().scheduler_entries = 64;
    // One of 64 instructions misses: it is done 101 cycles after it has entered, and only then is
    // there room for the next 64.
    let steps = repeat(64 * 10, |number| match number % 64 {
        0 => load(0, 15, FAR + 64 * number),
        _ => set(1),
    });
    assert_eq!(far(&model, 100, &steps).cycles, 10 * 101 + 63 / 4);
    // 16 cycles of work are hidden. If the reorder buffer holds all instructions, only one miss is
    // waited for.
    model.window.as_mut().unwrap().reorder_entries = 640;
    assert_eq!(far(&model, 100, &steps).cycles, 101 + 639 / 4);
}

#[test]
fn contract_8_a_full_scheduler_stops_what_is_behind_a_miss() {
    let mut model = plain();
    model.window.as_mut().unwrap().scheduler_entries = 8;
    // The load leaves the scheduler; its dependent instructions stay, and the ninth cannot enter.
    let dependent = [vec![load(0, 15, FAR)], repeat(20, |_| add(1, 0)), repeat(4, set)].concat();
    let counts = far(&model, 100, &dependent);
    // The chain of 20 starts when the load is ready, one per cycle.
    assert_eq!(counts.cycles, 101 + 20 + 1);
    let independent = [vec![load(0, 15, FAR)], repeat(400, set)].concat();
    assert_eq!(far(&model, 100, &independent).cycles, 101 + 100);
}

#[test]
fn contract_9_a_load_takes_the_value_of_a_store_before_it() {
    let mut model = plain();
    model.data.forward_cycles = Some(3);
    model.units.load.latency_cycles = 4;
    // Value, store, load: the multiplication is done after 10, and the value 3 later.
    let forwarded = [operation(Unit::Multiply, 0, 0), store(15, 0, 0x1000), load(1, 15, 0x1000)];
    let counts = run(&model, &forwarded, &mut Waits::default());
    assert_eq!((counts.cycles, counts.forwarded_loads), (10 + 3, 1));
    // The load reads another address: it is independent, and retires in order.
    let apart = [forwarded[0], forwarded[1], load(1, 15, 0x2000)];
    let counts = run(&model, &apart, &mut Waits::default());
    assert_eq!((counts.cycles, counts.forwarded_loads), (10, 0));
    // The load reads only a part of the stored bytes and some others: the store has to drain to the cache first, at 10.
    let part = [forwarded[0], forwarded[1], load(1, 15, 0x1004)];
    let counts = run(&model, &part, &mut Waits::default());
    assert_eq!((counts.cycles, counts.forwarded_loads), (10 + 4, 0));
}

#[test]
fn contract_10_loads_wait_for_addresses_of_stores_where_they_may_not_pass() {
    let mut model = plain();
    // The address of the store is the product.
    let steps = [operation(Unit::Multiply, 0, 0), store(0, 15, 0x1000), load(1, 15, 0x2000)];
    let chain = [&steps[..], &repeat(20, |_| add(1, 1))].concat();
    assert_eq!(cycles(&model, &chain), 1 + 20);
    model.window.as_mut().unwrap().loads_pass_stores = false;
    assert_eq!(cycles(&model, &chain), 10 + 1 + 20);
}

/// Runs a loop of one block, `steps` and a branch, `times` times.
fn rounds(
    model: &CoreModel,
    steps: &[Step],
    taken: impl Fn(u64) -> bool,
    times: u64,
) -> CoreCounts {
    let mut core = out_of_order(model);
    let steps = [steps, &[branch(0)]].concat();
    let Block { template, accesses, fall_through } = block(layout(model), 0x40_0000, &steps);
    let block = Block { template, accesses, fall_through };
    for round in 0..times {
        let next = if taken(round) { block.template.address() } else { fall_through };
        core.play(&block, next, &mut Waits::default());
    }
    closed(core.counts(), model)
}

#[test]
fn contract_11_a_branch_that_was_not_foreseen_costs_its_penalty() {
    let mut model = plain();
    model.front.mispredict_cycles = 12;
    // The branch is never taken, as predicted: four instructions per cycle, the last one cycle after the
    // instruction that it waits for.
    let right = rounds(&model, &repeat(3, set), |_| false, 100);
    assert_eq!((right.cycles, right.mispredicted_branches), (100 + 1, 0));
    model.predictor.direction = machine::predict::DirectionModel::Taken;
    // The branch is done two cycles after its entry, as it waits for `set`: one for each.
    let wrong = rounds(&model, &repeat(3, |_| set(0)), |_| false, 100);
    assert_eq!(wrong.mispredicted_branches, 100);
    assert_eq!(wrong.cycles, 100 * 2 + 99 * 12);
    // The branch waits for a product, so the penalty starts after the product.
    let late = rounds(&model, &[operation(Unit::Multiply, 0, 0)], |_| false, 100);
    assert_eq!(late.cycles, 100 * (10 + 1) + 99 * 12);
    // No instruction is available, and none waits for a line: the slots are charged to the pipeline, and of them those
    // of the 12 cycles after each branch but the last to the refill.
    assert_eq!((wrong.fetch_stall_slots, wrong.data_stall_slots), (0, 0));
    assert_eq!((right.branch_stall_slots, wrong.branch_stall_slots % 99), (0, 0));
    for counts in [wrong, late] {
        assert!((12 * 4..14 * 4).contains(&(counts.branch_stall_slots / 99)), "{counts:?}");
        assert!(counts.branch_stall_slots < counts.pipeline_stall_slots, "{counts:?}");
    }
}

#[test]
fn contract_12_taken_branches_end_a_cycle_of_fetch_and_wait_for_unknown_targets() {
    let mut model = plain();
    model.predictor.direction = machine::predict::DirectionModel::Taken;
    let taken = |model: &CoreModel| rounds(model, &repeat(1, set), |_| true, 100);
    // No BTB: each branch resteers the front end at decode, so that nothing more is fetched in its
    // cycle.
    assert_eq!((taken(&model).cycles, taken(&model).btb_misses), (101, 100));
    model.front.btb_miss_cycles = 3;
    assert_eq!(taken(&model).cycles, 99 * 4 + 2);
    model.predictor.btb = Some(machine::predict::TableModel { entries: 16, ways: 4 });
    // One BTB miss; then two blocks of two instructions per cycle.
    assert_eq!((taken(&model).cycles, taken(&model).btb_misses), (4 + 49 + 2, 1));
    model.front.taken_ends_cycle = true;
    assert_eq!(taken(&model).cycles, 4 + 98 + 2);
}

#[test]
fn contract_13_so_many_branches_may_be_unresolved() {
    // Each branch waits for a product of its own register: all at the same time, or four at a time.
    let mut model = plain();
    let steps = |number: u64| [operation(Unit::Multiply, number, number), branch(number)];
    let run = |model: &CoreModel| {
        let mut core = out_of_order(model);
        for number in 0..8 {
            let block = block(layout(model), 0x40_0000 + 64 * number, &steps(number));
            let next = block.fall_through;
            core.play(&block, next, &mut Waits::default());
        }
        closed(core.counts(), model).cycles
    };
    // Two pairs per cycle; the last is done 10 and 1 later.
    assert_eq!(run(&model), 3 + 11);
    model.window.as_mut().unwrap().unresolved_branches = Some(4);
    // The fifth and sixth branch enter at 11, when the first two are resolved; the last two at 12,
    // and the last product with them.
    assert_eq!(run(&model), 12 + 11);
}

#[test]
fn contract_14_lines_of_instructions_are_waited_for() {
    let model = plain();
    let mut waits = Waits { fetch_cycles: 50, ..Waits::default() };
    // A line holds sixteen instructions of 4 bytes.
    let counts = run(&model, &repeat(64, set), &mut waits);
    assert_eq!((counts.cycles, counts.fetch_misses), (4 * 50 + 16, 4));
    // Nothing else is lost.
    assert_eq!((counts.fetch_stall_slots, counts.pipeline_stall_slots), (4 * 50 * 4, 0));
    assert_eq!(counts.data_stall_slots, 0);
}

#[test]
fn contract_15_serialising_instructions_wait_and_have_others_wait() {
    let mut model = plain();
    model.events.serialise_cycles = 30;
    let serialise = (Instruction::nothing(4).doing(Special::Serialise), None);
    let fence = (Instruction::nothing(4).doing(Special::Fence), None);
    let around =
        |middle| [operation(Unit::Multiply, 0, 0), middle, operation(Unit::Multiply, 1, 1)];
    // The first product, then the serialising instruction, then the other product.
    assert_eq!(cycles(&model, &around(serialise)), 10 + 31 + 10);
    assert_eq!(cycles(&model, &around(fence)), 10 + 1 + 10);
    assert_eq!(cycles(&model, &around(set(5))), 10);
}

#[test]
fn contract_16_locked_instructions_come_behind_stores_and_before_loads() {
    let mut model = plain();
    model.events.atomic_cycles = 18;
    let sum = Instruction::of_unit(Unit::Integer).loading(&[]).storing(&[]).doing(Special::Atomic);
    // The store misses and leaves at 101; the locked load is ready at 102, its sum 19 later.
    let steps = [store(15, 14, FAR), (sum, Some(0x1000)), load(0, 15, 0x2000)];
    let mut core = out_of_order(&model);
    let mut of_steps = block(layout(&model), 0x40_0000, &steps);
    // A locked instruction loads, too.
    let mut loaded = of_steps.accesses[1];
    loaded.write = false;
    of_steps.accesses.insert(1, loaded);
    core.play(&of_steps, of_steps.fall_through, &mut Waits::far(100));
    // The next load starts when it is done.
    assert_eq!(closed(core.counts(), &model).cycles, 100 + 1 + 19 + 1);
}

#[test]
fn contract_17_an_interrupt_costs_its_entry_and_nothing_before_it_is_lost() {
    let mut model = plain();
    model.events.interrupt_cycles = 40;
    let mut core = out_of_order(&model);
    let product = block(layout(&model), 0x40_0000, &[operation(Unit::Multiply, 0, 0)]);
    core.play(&product, product.fall_through, &mut Waits::default());
    core.interrupt();
    core.play(&product, product.fall_through, &mut Waits::default());
    let counts = closed(core.counts(), &model);
    assert_eq!((counts.cycles, counts.interrupts), (10 + 40 + 10, 1));
}

#[test]
fn contract_18_the_stack_pointer_is_followed_where_the_front_does() {
    let mut model = plain();
    let pointer = Register::STACK_POINTER;
    let push = Instruction::of_unit(Unit::Integer)
        .storing(&[pointer])
        .reading(&[pointer])
        .writing(&[pointer])
        .moving_stack();
    let pushes = repeat(80, |number| (push, Some(0x1000 - 8 * number)));
    assert_eq!(cycles(&model, &pushes), 80);
    model.front.follows_stack = true;
    assert_eq!(cycles(&model, &pushes), 20);
}

#[test]
fn contract_19_a_full_store_buffer_waits_for_misses() {
    let mut model = plain();
    (model.data.store_entries, model.data.mshrs) = (4, 1);
    let stores = repeat(40, |number| store(15, 14, FAR + 64 * number));
    let counts = far(&model, 100, &stores);
    // Each line takes 100 cycles, one after the other. The last four stores retire before their lines are filled.
    assert_eq!((counts.cycles, counts.store_misses), (36 * 100 + 1, 40));
    assert!(counts.data_stall_slots > counts.cycles * 4 * 9 / 10, "{counts:?}");
    // If stores hold retirement, the core waits for all lines.
    model.window.as_mut().unwrap().stores_hold_retirement = true;
    assert_eq!(far(&model, 100, &stores).cycles, 40 * 100);
}
