//! Cores with the memory systems of their machines: published latencies and overlap.

use machine::SystemModel;
use machine::core::{ExecutedBlock, Layout, OutOfOrderCore};
use machine::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};

use crate::streams::Thrown;
use crate::support::{Step, block, layout, load};

const ZEN3: &str = include_str!("../../../../machines/zen3.toml");
const GOLDEN_COVE: &str = include_str!("../../../../machines/golden-cove.toml");
const NEOVERSE_N1: &str = include_str!("../../../../machines/neoverse-n1.toml");

/// A core with its memory system.
struct Bench {
    core: OutOfOrderCore,
    system: MemorySystem,
    layout: Layout,
}

impl Bench {
    fn new(text: &str) -> Bench {
        let machine = SystemModel::parse(text).expect("a good machine");
        let line_bytes = machine.l1d.cache.line_bytes;
        let core = machine.core.as_ref().expect("with a core");
        Bench {
            core: OutOfOrderCore::new(core, line_bytes).expect("a window"),
            system: MemorySystem::new(&without_mshr_limit(&machine), 1),
            layout: layout(core),
        }
    }

    /// Runs the steps in blocks of eight. Returns the cycles.
    fn run(&mut self, steps: &[Step]) -> u64 {
        let before = self.core.cycles();
        for steps in steps.chunks(8) {
            let block = block(self.layout, 0x40_0000, steps);
            let (instructions, next) = (steps.len() as u32, block.fall_through);
            let executed = ExecutedBlock { instructions, accesses: &block.accesses, next };
            let (pc, page) = (0x40_0000, PageSize::Huge);
            let mut port = MemoryPort { system: &mut self.system, cpu: 0, pc, page };
            self.core.run(&block.template, &executed, &mut port);
        }
        self.core.cycles() - before
    }
}

/// Each line of a footprint once, in an order that no prefetcher predicts.
fn order(lines: u64) -> Vec<u64> {
    let mut thrown = Thrown::new(lines);
    let mut order: Vec<u64> = (0..lines).collect();
    for at in (1..lines).rev() {
        order.swap(at as usize, thrown.below(at + 1) as usize);
    }
    order
}

/// The cycles of a load in a chain of dependent loads, in the last of several rounds over a number
/// of lines, `apart` bytes apart.
fn chase(bench: &mut Bench, (lines, apart): (u64, u64), rounds: usize) -> f64 {
    let address = |line| 0x4000_0000 + line * apart;
    let steps: Vec<Step> = order(lines).into_iter().map(|line| load(0, 0, address(line))).collect();
    let cycles: Vec<u64> = (0..rounds).map(|_| bench.run(&steps)).collect();
    cycles[rounds - 1] as f64 / lines as f64
}

#[test]
fn a_chase_takes_the_latency_of_the_level_that_holds_it() {
    // Footprints within L1, L2 and L3; and cold, from memory.
    let machines = [
        (ZEN3, [16 << 10, 256 << 10, 8 << 20]),
        (GOLDEN_COVE, [24 << 10, 512 << 10, 16 << 20]),
        (NEOVERSE_N1, [32 << 10, 512 << 10, 8 << 20]),
    ];
    for (text, footprints) in machines {
        let waits = *Bench::new(text).system.latencies();
        let hit = waits.l1_hit_cycles;
        // The latencies in the machines' files, from their sources.
        let published = [hit, hit + waits.l2_hit_cycles, hit + waits.l3_hit_cycles];
        let measured = footprints.map(|bytes| chase(&mut Bench::new(text), (bytes / 64, 64), 3));
        // So far apart that no prefetcher fetches the next one.
        let cold = chase(&mut Bench::new(text), (20_000, 65 * 64), 1);
        let all = published.into_iter().zip(measured);
        for (published, measured) in all.chain([(hit + waits.memory_cycles, cold)]) {
            let within = (measured / published as f64 - 1.0).abs() <= 0.1;
            assert!(within, "{}: {measured} of {published}", text.lines().next().unwrap_or(""));
        }
    }
}

#[test]
fn independent_misses_overlap_as_far_as_the_core_has_places() {
    let lines = 1 << 18;
    let mut bench = Bench::new(ZEN3);
    let waits = *bench.system.latencies();
    let steps: Vec<Step> = order(lines)[..20_000]
        .iter()
        .map(|line| load(line % 8, 15, 0x4000_0000 + line * 64))
        .collect();
    let cycles = bench.run(&steps);
    // All come from memory: 24 at a time, on a bus that each occupies for some cycles.
    let by_places = 20_000 * (waits.memory_cycles) / 24;
    let by_way = 20_000 * waits.memory_line_cycles;
    let expected = by_places.max(by_way);
    assert!((expected..expected + expected / 10).contains(&cycles), "{cycles} of {expected}");
}
