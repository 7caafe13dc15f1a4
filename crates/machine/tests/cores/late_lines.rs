//! Accesses to lines that are under way or wait for stores, on cores with the caches of their machines.

use machine::core::{
    Access, AccessMode, AnyCore, ExecutedBlock, Instruction, Memory, SingleThreadCore, Special,
};
use machine::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};
use machine::system_model::{Prefetch, Walk};
use machine::{PhysicalAddress, SystemModel, VirtualAddress};

use crate::support::{access, add, block, layout, register};

const ZEN3: &str = include_str!("../../../../machines/zen3.toml");
const CORTEX_A55: &str = include_str!("../../../../machines/cortex-a55.toml");
const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x100_0000;

/// A model without prefetchers, whose translations take no time and whose bus has no limit.
fn plain(text: &str) -> SystemModel {
    let mut model = SystemModel::parse(text).expect("a good model");
    for level in [&mut model.l1i, &mut model.l1d].into_iter().chain(&mut model.l2) {
        level.prefetch = Prefetch::None;
    }
    (model.walk, model.walk_entries, model.tlb_miss_cycles) = (Walk::Fixed, 0, 0);
    (model.stlb_hit_cycles, model.memory_line_cycles) = (Some(0), 0);
    model
}

fn port(system: &mut MemorySystem, cpu: usize) -> MemoryPort<'_> {
    let pc = VirtualAddress(CODE);
    MemoryPort { system, cpu, code: None, pc, page: PageSize::Huge }
}

fn load(to: u64) -> Instruction {
    Instruction::nothing(4).loading(&[register(15)]).writing(&[register(to)])
}

fn store() -> Instruction {
    Instruction::nothing(4).storing(&[register(15)]).reading(&[register(14)])
}

/// The cycles of a block of instructions, each with at most one access. Code and translations are at hand. `prepare`
/// makes the accesses before, without times.
fn cycles(
    model: &SystemModel,
    steps: &[(Instruction, Option<Access>)],
    prepare: impl Fn(&mut MemorySystem),
) -> u64 {
    let core_model = model.core.as_ref().expect("with a core");
    let mut core = AnyCore::new(core_model, 64).expect("one thread");
    let mut system = MemorySystem::new(&without_mshr_limit(model), 2);
    for cpu in 0..2 {
        let mut port = port(&mut system, cpu);
        port.look_up_fetch(VirtualAddress(CODE), PhysicalAddress(CODE));
        port.look_up(&access(DATA + 0x8000, false), AccessMode::Load);
    }
    prepare(&mut system);
    let instructions: Vec<_> = steps.iter().map(|(instruction, _)| (*instruction, None)).collect();
    let block = block(layout(core_model), CODE, &instructions);
    let numbered = |(index, (_, access)): (usize, &(Instruction, Option<Access>))| {
        access.map(|access| Access { instruction: index as u16, ..access })
    };
    let accesses: Vec<Access> = steps.iter().enumerate().filter_map(numbered).collect();
    let instructions = steps.len() as u32;
    let executed = ExecutedBlock { instructions, accesses: &accesses, next: block.fall_through };
    core.run(&block.template, &executed, &mut port(&mut system, 0));
    core.cycles()
}

fn nothing(_: &mut MemorySystem) {}

#[test]
fn a_locked_instruction_waits_for_the_right_to_write_a_line_under_way() {
    let model = plain(ZEN3);
    let locked = load(1).doing(Special::Atomic);
    let steps = [(load(0), Some(access(DATA, false))), (locked, Some(access(DATA, false)))];
    let owned = |system: &mut MemorySystem| {
        port(system, 0).look_up(&access(DATA, true), AccessMode::Store);
    };
    let held_by_other = |system: &mut MemorySystem| {
        port(system, 1).look_up(&access(DATA, true), AccessMode::Store);
    };
    let waited = cycles(&model, &steps, held_by_other) - cycles(&model, &steps, owned);
    let expected = model.cache_to_cache_cycles.unwrap() + model.upgrade_cycles.unwrap();
    // The locked instruction may issue after the load.
    assert!((expected - 3..=expected).contains(&waited), "{waited}");
}

#[test]
fn a_load_across_lines_waits_for_its_second_line_if_the_first_is_under_way() {
    for text in [ZEN3, CORTEX_A55] {
        let model = plain(text);
        let used = (add(1, 1).0, None);
        let crossing = (load(1), Some(access(DATA + 60, false)));
        let both = [(load(0), Some(access(DATA, false))), crossing, used];
        let second_is_held = |system: &mut MemorySystem| {
            port(system, 0).look_up(&access(DATA + 64, false), AccessMode::Load);
        };
        let waited = cycles(&model, &both, nothing) - cycles(&model, &both, second_is_held);
        assert_eq!(waited, model.memory_cycles, "{}", model.name);
    }
}

#[test]
fn loads_of_one_line_of_a_device_come_one_after_the_other() {
    for text in [ZEN3, CORTEX_A55] {
        let mut model = plain(text);
        model.device_read_cycles = Some(1_000);
        let device = |address| Some(Access { physical: None, ..access(address, false) });
        let used = (add(1, 1).0, None);
        let one = [(load(1), device(DATA)), used];
        let two = [(load(0), device(DATA)), (load(1), device(DATA + 8)), used];
        let waited = cycles(&model, &two, nothing) - cycles(&model, &one, nothing);
        assert!((1_000..1_010).contains(&waited), "{}: {waited}", model.name);
    }
}

/// What a device answers need not be the value that was stored to it.
#[test]
fn a_load_from_a_device_does_not_take_the_value_of_a_store() {
    for text in [ZEN3, CORTEX_A55] {
        let mut model = plain(text);
        model.device_read_cycles = Some(1_000);
        let device = |write| Some(Access { physical: None, ..access(DATA, write) });
        let used = (add(1, 1).0, None);
        let without_store = cycles(&model, &[(load(1), device(false)), used], nothing);
        let steps = [(store(), device(true)), (load(1), device(false)), used];
        let after_store = cycles(&model, &steps, nothing);
        assert!(after_store >= without_store, "{}: {after_store} {without_store}", model.name);
    }
}

#[test]
fn a_load_that_waits_for_a_store_waits_for_its_line_once() {
    for text in [ZEN3, CORTEX_A55] {
        let model = plain(text);
        let byte = Access { bytes: 1, ..access(DATA, true) };
        let steps =
            [(store(), Some(byte)), (load(1), Some(access(DATA, false))), (add(1, 1).0, None)];
        let held = |system: &mut MemorySystem| {
            port(system, 0).look_up(&access(DATA, true), AccessMode::Store);
        };
        // The load needs bytes of the store and of the line, so it starts once the store has drained.
        let waited = cycles(&model, &steps, nothing) - cycles(&model, &steps, held);
        let memory = model.memory_cycles;
        assert!((memory - 20..memory + 20).contains(&waited), "{}: {waited}", model.name);
    }
}
