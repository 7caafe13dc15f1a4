//! Cores with the memory systems of their machines: published latencies and overlap.

use machine::core::{
    Access, ExecutedBlock, Instruction, Layout, OutOfOrderCore, SingleThreadCore, Special, Unit,
};
use machine::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};
use machine::{SystemModel, VirtualAddress};

use crate::streams::Thrown;
use crate::support::{Step, block, layout, load, register, store};

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
        let line_bytes = machine.l1d.line_bytes;
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
            let mut block = block(self.layout, 0x40_0000, steps);
            // An instruction that loads and stores makes both accesses.
            let loads =
                |access: &&Access| access.write && steps[access.instruction as usize].0.loads();
            let more: Vec<Access> = block.accesses.iter().filter(loads).copied().collect();
            block.accesses.extend(more.iter().map(|access| Access { write: false, ..*access }));
            block.accesses.sort_by_key(|access| (access.instruction, access.write));
            let (instructions, next) = (steps.len() as u32, block.fall_through);
            let executed = ExecutedBlock { instructions, accesses: &block.accesses, next };
            let (pc, page) = (0x40_0000, PageSize::Huge);
            let mut port = MemoryPort {
                system: &mut self.system,
                cpu: 0,
                code: None,
                pc: VirtualAddress(pc),
                page,
            };
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

/// A machine with the load-to-use latencies that others published, in cycles. They are written down here
/// a second time: a model whose file is changed by mistake differs from them.
struct Published {
    model: &'static str,
    /// Footprints within L1D, L2 and L3, in bytes.
    footprints: [u64; 3],
    /// The latencies of L1D, L2 and L3, and of memory.
    cycles: [f64; 4],
}

const PUBLISHED: [Published; 3] = [
    // L1D, L2, L3: AMD, "Software Optimization Guide for AMD Family 19h Processors" (56665, rev. 3.00,
    // 2020): 4 cycles (integer), 12 cycles, 46 cycles on average. Memory: AnandTech, "AMD Zen
    // 3 Ryzen Deep Dive Review" (2020): 79 ns, here at 4.7 GHz.
    Published {
        model: ZEN3,
        footprints: [16 << 10, 256 << 10, 8 << 20],
        cycles: [4.0, 12.0, 46.0, 79.0 * 4.7],
    },
    // L1D, L2, L3: Chips and Cheese, "Going Armchair Quarterback on Golden Cove's Caches" (2022): 5, 15 and
    // some 68 cycles. Memory: AnandTech, "The Intel 12th Gen Core i9-12900K Review" (2021): 92 ns with
    // DDR5, here at 4.9 GHz.
    Published {
        model: GOLDEN_COVE,
        footprints: [24 << 10, 512 << 10, 16 << 20],
        cycles: [5.0, 15.0, 68.0, 92.0 * 4.9],
    },
    // AnandTech, "Amazon's Arm-based Graviton2 Against AMD and Intel" (2020): 4 and 11 cycles (L2 of
    // 1 MB), some 30 ns to the system level cache and 81 to 83 ns to memory, at 2.5 GHz.
    Published {
        model: NEOVERSE_N1,
        footprints: [32 << 10, 512 << 10, 8 << 20],
        cycles: [4.0, 11.0, 30.0 * 2.5, 82.0 * 2.5],
    },
];

impl Published {
    /// The cycles of a dependent load from a level: 0 to 2 for caches, 3 for memory.
    fn load_to_use(&self, model: &str, level: usize) -> f64 {
        let mut bench = Bench::new(model);
        match self.footprints.get(level) {
            Some(bytes) => chase(&mut bench, (bytes / 64, 64), 3),
            // So far apart that no prefetcher fetches the next one.
            None => chase(&mut bench, (20_000, 65 * 64), 1),
        }
    }

    /// The relative error of a model's latency, against the published latency.
    fn apart(&self, model: &str, level: usize) -> f64 {
        (self.load_to_use(model, level) / self.cycles[level] - 1.0).abs()
    }
}

#[test]
fn a_chase_takes_the_latency_that_was_published_for_the_level_that_holds_it() {
    for published in PUBLISHED {
        let title = published.model.lines().next().unwrap_or_default();
        for level in 0..published.cycles.len() {
            let apart = published.apart(published.model, level);
            assert!(
                apart <= 0.1,
                "{title}: level {level}: {apart} apart from {:?}",
                published.cycles
            );
        }
    }
}

#[test]
fn a_model_with_a_wrong_latency_is_found() {
    // A wrong latency of L1D is found by the schema: the core states it, too.
    for (level, right, wrong) in [
        (1, "l2_hit_cycles = 8 ", "l2_hit_cycles = 12 "),
        (2, "l3_hit_cycles = 42 ", "l3_hit_cycles = 52 "),
        (3, "memory_cycles = 368 ", "memory_cycles = 420 "),
    ] {
        let changed = ZEN3.replacen(right, wrong, 1);
        assert_ne!(ZEN3, changed, "{right}");
        let apart = PUBLISHED[0].apart(&changed, level);
        assert!(apart > 0.1, "{wrong}: {apart} apart");
    }
}

#[test]
fn independent_misses_overlap_as_far_as_the_core_has_places() {
    let lines = 1 << 18;
    let mut bench = Bench::new(ZEN3);
    let steps: Vec<Step> = order(lines)[..20_000]
        .iter()
        .map(|line| load(line % 8, 15, 0x4000_0000 + line * 64))
        .collect();
    let cycles = bench.run(&steps) as f64;
    // All come from memory, 79 ns at 4.7 GHz each (AnandTech, as above), 24 at a time (56665: 24 miss
    // address buffers); two channels of DDR4-3200 (JESD79-4) carry 64 bytes in 1.25 ns.
    let expected = (79.0 * 4.7 / 24.0_f64).max(1.25 * 4.7) * 20_000.0;
    assert!((0.95..1.10).contains(&(cycles / expected)), "{cycles} of {expected}");
}

#[test]
fn a_locked_addition_in_l1_takes_what_was_measured() {
    let step =
        Instruction::of_unit(Unit::Integer).loading(&[register(15)]).storing(&[register(15)]);
    let step = step.reading(&[register(0)]).writing(&[register(0)]).doing(Special::Atomic);
    let steps = vec![(step, Some(0x4000_0000)); 2_000];
    let mut bench = Bench::new(ZEN3);
    bench.run(&steps);
    let cycles = bench.run(&steps) as f64 / 2_000.0;
    // `lock xadd` on an EPYC 7003 (Zen 3): 7.83 cycles (docs/validation.md).
    assert!((7.0..8.7).contains(&cycles), "{cycles}");
}

/// The cycles per line of a pass over `bytes`, in steps of 32 bytes. An earlier pass has filled the caches,
/// unless `is_cold`.
fn stream(bytes: u64, write: bool, is_cold: bool) -> f64 {
    let mut bench = Bench::new(ZEN3);
    let step = |address: u64| {
        if write { store(15, 0, address) } else { load(address / 32 % 8, 15, address) }
    };
    let pass: Vec<Step> = (0..bytes / 32).map(|n| step(0x4000_0000 + n * 32)).collect();
    if !is_cold {
        bench.run(&pass);
    }
    bench.run(&pass) as f64 / (bytes / 64) as f64
}

#[test]
fn streams_take_what_was_measured() {
    // Reads and writes of lines one after the other on an EPYC 7003 (Zen 3), cycles a line
    // (docs/validation.md), in 256 KiB, 4 MiB and 128 MiB.
    for (name, bytes, write, is_cold, measured) in [
        ("rd256K", 256 << 10, false, false, 2.05),
        ("rd4M", 4 << 20, false, false, 3.50),
        ("wr4M", 4 << 20, true, false, 3.20),
        ("rd128M", 16 << 20, false, true, 9.06),
        ("wr128M", 16 << 20, true, true, 11.47),
    ] {
        let cycles = stream(bytes, write, is_cold);
        assert!((0.8..1.25).contains(&(cycles / measured)), "{name}: {cycles}, not {measured}");
    }
}

/// Eight stores around the caches complete a line; the next ones to the same line wait until it is in
/// memory: measured on a Zen 5 (`movnti`), 44.6 cycles a store, an eighth of the latency of memory.
#[test]
fn stores_around_the_caches_wait_until_their_line_is_in_memory() {
    let around = |lines: u64| {
        let mut bench = Bench::new(ZEN3);
        let streaming_store = |index: u64| {
            let (instruction, address) = store(1, 2, 0x4000_0000 + index % (8 * lines) * 8);
            (instruction.streaming(), address)
        };
        let steps: Vec<Step> = (0..4_000).map(streaming_store).collect();
        bench.run(&steps[..1_000]);
        bench.run(&steps) as f64 / steps.len() as f64
    };
    let memory = SystemModel::parse(ZEN3).unwrap().memory_cycles as f64;
    let same = around(1);
    assert!((memory / 8.0 * 0.95..memory / 8.0 * 1.1).contains(&same), "{same}");
    // Stores to many lines wait for one of 24 buffers.
    let many = around(500);
    assert!((memory / 8.0 / 24.0 * 0.95..memory / 8.0 / 24.0 * 1.1).contains(&many), "{many}");
}
