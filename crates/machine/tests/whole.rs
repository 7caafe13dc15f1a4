//! Cores with their memory systems: published latencies of modern machines, and the paper's machine
//! against the reference.

#[path = "cores/support.rs"]
#[allow(dead_code, reason = "what the cores' own tests need besides")]
mod support;

use machine::core::{ExecutedBlock, OutOfOrderCore, SingleThreadCore, chase_cycles};
use machine::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};
use machine::system_model::Prefetch;
use machine::{SystemModel, VirtualAddress};

use support::{block, layout, load};

/// Published latencies of a machine: cycles from a load to the next one, by the level that holds
/// the line.
struct Published {
    model: &'static str,
    l1: u64,
    l2: u64,
    l3: u64,
    memory: u64,
}

const PUBLISHED: [Published; 3] = [
    // AMD 56665 and AnandTech (79 ns at 4.7 GHz).
    Published {
        model: include_str!("../../../machines/zen3.toml"),
        l1: 4,
        l2: 12,
        l3: 46,
        memory: 371,
    },
    // Chips and Cheese; AnandTech (92 ns at 4.9 GHz).
    Published {
        model: include_str!("../../../machines/golden-cove.toml"),
        l1: 5,
        l2: 15,
        l3: 68,
        memory: 451,
    },
    // AnandTech: 11 cycles, 30 ns and 82 ns at 2.5 GHz.
    Published {
        model: include_str!("../../../machines/neoverse-n1.toml"),
        l1: 4,
        l2: 11,
        l3: 75,
        memory: 205,
    },
];

/// The cycles of each load of a chain through `addresses`, in the round after `warm` rounds.
fn chain(model: &SystemModel, addresses: &[u64], warm: u32) -> u64 {
    let cycles = chase_cycles(model, addresses, PageSize::Huge, warm).unwrap();
    cycles / addresses.len() as u64
}

/// The lines of `bytes` of memory, each once, in an order that no prefetcher predicts.
fn lines(bytes: u64) -> Vec<u64> {
    let number = bytes / 64;
    // An odd step visits all lines if their number is a power of two.
    let count = number.next_power_of_two();
    let all = (0..count).map(|n| n.wrapping_mul(0x9e37_79b1) % count);
    all.filter(|line| *line < number).map(|line| line * 64).collect()
}

#[test]
fn latencies_are_within_a_tenth_of_what_is_published() {
    for published in PUBLISHED {
        let mut model = SystemModel::parse(published.model).unwrap();
        for level in [&mut model.l1i, &mut model.l1d].into_iter().chain(&mut model.l2) {
            level.prefetch = Prefetch::None;
        }
        let l2 = model.l2.as_ref().unwrap().size_bytes;
        let measured = [
            ("L1", chain(&model, &lines(16 << 10), 2), published.l1),
            ("L2", chain(&model, &lines(l2 / 2), 2), published.l2),
            ("L3", chain(&model, &lines(2 * l2), 2), published.l3),
            ("memory", chain(&model, &lines(1 << 20), 0), published.memory),
        ];
        for (level, ours, theirs) in measured {
            let near = ours.abs_diff(theirs) * 10 <= theirs;
            assert!(near, "{} {level}: {ours}, published {theirs}", model.name);
        }
    }
}

/// Independent loads overlap, up to the number of MSHRs.
#[test]
fn misses_of_a_core_overlap() {
    let mut model = SystemModel::parse(PUBLISHED[0].model).unwrap();
    for level in [&mut model.l1i, &mut model.l1d].into_iter().chain(&mut model.l2) {
        level.prefetch = Prefetch::None;
    }
    model.memory_line_cycles = 0;
    let core = model.core.clone().unwrap();
    let mut system = MemorySystem::new(&without_mshr_limit(&model), 1);
    let mut runs = OutOfOrderCore::new(&core, 64).unwrap();
    let mut port = MemoryPort {
        system: &mut system,
        cpu: 0,
        code: None,
        pc: VirtualAddress(0x40_0000),
        page: PageSize::Huge,
    };
    let addresses = lines(1 << 20);
    for part in addresses.chunks(32) {
        let steps: Vec<_> = part.iter().map(|address| load(1, 2, *address)).collect();
        let block = block(layout(&core), 0x40_0000, &steps);
        let next = block.template.address();
        let executed = ExecutedBlock { instructions: 32, accesses: &block.accesses, next };
        runs.run(&block.template, &executed, &mut port);
    }
    // An MSHR is in use until the line is filled, without the latency of a hit.
    let each = model.memory_cycles;
    let ideal = each * addresses.len() as u64 / u64::from(core.data.mshrs);
    let ours = runs.cycles();
    assert!(ours >= ideal && ours < ideal * 11 / 10, "{ours} cycles, {ideal} at least");
}
