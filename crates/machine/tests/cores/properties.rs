//! Properties of any core and any program.

use machine::core::{CoreModel, UnitModel};
use proptest::prelude::*;

use crate::presets::ALL;
use crate::streams::{play, program};
use crate::support::{model, plain};

fn unit() -> impl Strategy<Value = UnitModel> {
    (1u32..4, 1u32..30, 1u32..6).prop_map(|(count, latency_cycles, interval_cycles)| UnitModel {
        count,
        latency_cycles,
        interval_cycles,
    })
}

/// Any of the real cores, with some of its parameters changed.
pub fn any_core() -> impl Strategy<Value = CoreModel> {
    let of_units = (unit(), unit(), unit(), unit(), unit());
    let of_data = (1u32..20, 1u32..20, 1u32..10, 0u32..10);
    let of_window = (0u32..100, 1u32..100, prop::option::of(1u32..6), any::<bool>(), any::<bool>());
    (0..ALL.len(), of_units, of_data, of_window, any::<bool>()).prop_map(
        |(which, units, data, window, follows_stack)| {
            let mut model = model(ALL[which].1);
            (model.units.integer, model.units.multiply) = (units.0, units.1);
            (model.units.divide, model.units.load, model.units.store) = (units.2, units.3, units.4);
            (model.data.load_entries, model.data.store_entries) = (Some(data.0), data.1);
            (model.data.mshrs, model.data.forward_cycles) = (data.2, Some(data.3));
            model.front.follows_stack = follows_stack;
            if let Some(ports) = &mut model.units.ports {
                let integer = &mut model.units.integer;
                (integer.count, integer.interval_cycles) = (integer.count.min(4), 1);
                ports.shift = ports.shift.min(integer.count);
                ports.select = ports.select.min(integer.count);
                ports.branch = ports.branch.min(integer.count);
            }
            if model.window.is_none() {
                // An in-order core refuses units that it cannot use.
                let width = model.width;
                for unit in self::units(&mut model) {
                    unit.count = if unit.interval_cycles > 1 { 1 } else { unit.count.min(width) };
                }
                model.units.store.latency_cycles = 1;
            }
            if model.threads.is_some() {
                (model.data.load_entries, model.data.forward_cycles) = (None, None);
            }
            if let Some(of_it) = &mut model.window {
                of_it.reorder_entries = model.width + window.0;
                of_it.scheduler_entries = window.1.min(of_it.reorder_entries);
                let vector = &mut of_it.vector_scheduler_entries;
                *vector = vector.map(|entries| entries.min(of_it.scheduler_entries));
                of_it.unresolved_branches = window.2;
                (of_it.loads_pass_stores, of_it.stores_hold_retirement) = (window.3, window.4);
            }
            model
        },
    )
}

/// A core without a choice of what to issue: at most fifteen operations are in flight, and as many
/// may start per cycle. With fewer units, a longer latency can by chance free a unit for a critical
/// operation, as in any schedule.
fn without_choice() -> CoreModel {
    let mut model = plain();
    model.issue_width = Some(15);
    for unit in units(&mut model) {
        unit.count = 15;
    }
    model.front.queue_entries = Some(4);
    let window = model.window.as_mut().expect("it has one");
    (window.reorder_entries, window.scheduler_entries) = (5, 5);
    model.data.mshrs = 64;
    model
}

fn units(model: &mut CoreModel) -> [&mut UnitModel; 10] {
    let units = &mut model.units;
    [
        &mut units.integer,
        &mut units.multiply,
        &mut units.divide,
        &mut units.float_add,
        &mut units.float_multiply,
        &mut units.float_divide,
        &mut units.vector,
        &mut units.branch,
        &mut units.load,
        &mut units.store,
    ]
}

/// The cycles with one unit slower, with one event slower, and with slower memory.
fn slower(model: &CoreModel, seed: u64, (unit, more, far_cycles): (usize, u32, u64)) -> [u64; 5] {
    let program = program(model, seed, 60);
    let cycles = |model: &CoreModel, far_cycles| play(model, &program, far_cycles).cycles;
    let (mut of_unit, mut of_branch, mut of_event) = (model.clone(), model.clone(), model.clone());
    units(&mut of_unit)[unit].latency_cycles += more;
    // Forwarding from a store is no faster than a load.
    of_unit.data.forward_cycles = Some(of_unit.units.load.latency_cycles);
    of_branch.front.mispredict_cycles += more;
    of_event.events.serialise_cycles += more;
    of_event.events.interrupt_cycles += more;
    [
        cycles(model, far_cycles),
        cycles(&of_unit, far_cycles),
        cycles(&of_branch, far_cycles),
        cycles(&of_event, far_cycles),
        cycles(model, far_cycles + u64::from(more)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The sums are checked after each block.
    #[test]
    fn slots_add_up_and_no_core_is_faster_than_it_is_wide(
        model in any_core(), seed: u64, far_cycles in 0u64..300,
    ) {
        prop_assert_eq!(model.check("core"), Ok(()));
        play(&model, &program(&model, seed, 150), far_cycles);
    }

    #[test]
    fn the_same_again_gives_the_same(model in any_core(), seed: u64) {
        let program = program(&model, seed, 100);
        prop_assert_eq!(play(&model, &program, 100), play(&model, &program, 100));
    }

    #[test]
    fn more_latency_never_takes_fewer_cycles_out_of_order(
        seed: u64, unit in 0usize..10, more in 1u32..50, far_cycles in 0u64..200,
    ) {
        let mut model = without_choice();
        model.data.forward_cycles = Some(model.units.load.latency_cycles);
        let [as_it_is, slower @ ..] = slower(&model, seed, (unit, more, far_cycles));
        prop_assert!(slower.iter().all(|cycles| *cycles >= as_it_is), "{} {:?}", as_it_is, slower);
    }

    #[test]
    fn more_latency_never_takes_fewer_cycles_in_order(
        which in prop::sample::select(&["r4400-1994", "ultra-1", "cortex-a55", "t1"][..]),
        seed: u64, unit in 0usize..10, more in 1u32..50, far_cycles in 0u64..200,
    ) {
        let (_, text) = ALL.iter().find(|(name, _)| *name == which).expect("a name");
        let mut model = model(text);
        model.data.forward_cycles = Some(model.units.load.latency_cycles);
        let [as_it_is, slower @ ..] = slower(&model, seed, (unit, more, far_cycles));
        prop_assert!(slower.iter().all(|cycles| *cycles >= as_it_is), "{} {:?}", as_it_is, slower);
    }
}
