//! The cores of real machines: their files, published figures, and results that must not change.

use machine::VirtualAddress;
use machine::core::{AnyCore, CoreModel, Instruction, Unit};

use crate::streams::{play, program};
use crate::support::{Core, MXS, Step, Waits, add, block, branch, layout, load, model, set};

/// Each with its name.
pub const ALL: [(&str, &str); 12] = [
    ("r4400-1994", include_str!("../../../../machines/r4400-1994.toml")),
    ("ultra-1", include_str!("../../../../machines/ultra-1.toml")),
    ("r10000-1996", MXS),
    ("t1", include_str!("../../../../machines/t1.toml")),
    ("p2-333", include_str!("../../../../machines/p2-333.toml")),
    ("p4-1700", include_str!("../../../../machines/p4-1700.toml")),
    ("zen3", include_str!("../../../../machines/zen3.toml")),
    ("zen4", include_str!("../../../../machines/zen4.toml")),
    ("golden-cove", include_str!("../../../../machines/golden-cove.toml")),
    ("emerald-rapids", include_str!("../../../../machines/emerald-rapids.toml")),
    ("neoverse-n1", include_str!("../../../../machines/neoverse-n1.toml")),
    ("cortex-a55", include_str!("../../../../machines/cortex-a55.toml")),
];

fn named(name: &str) -> CoreModel {
    let (_, text) = ALL.iter().find(|(known, _)| *known == name).expect("a name of the list");
    model(text)
}

/// The cycles of one execution of a block, in hundredths, averaged over thousands.
fn round_cycles(
    model: &CoreModel,
    steps: &[Step],
    next: impl Fn(u64, VirtualAddress) -> VirtualAddress,
) -> u64 {
    let block = block(layout(model), 0x40_0000, steps);
    let mut waits = Waits::default();
    let mut run = |core: &mut dyn Core| {
        let mut rounds = |from: u64, to: u64| {
            (from..to)
                .for_each(|round| core.play(&block, next(round, block.fall_through), &mut waits));
            core.counted().cycles
        };
        // The predictor is trained and the caches are warm.
        let before = rounds(0, 2_000);
        (rounds(2_000, 4_000) - before) * 100 / 2_000
    };
    run(&mut AnyCore::new(model, 64).expect("a core of one thread"))
}

fn repeat(number: u64, step: impl Fn(u64) -> Step) -> Vec<Step> {
    (0..number).map(step).collect()
}

fn straight(_: u64, fall_through: VirtualAddress) -> VirtualAddress {
    fall_through
}

fn nothing(_: u64) -> Step {
    (Instruction::nothing(4), None)
}

/// Published figures of a core: NOPs per cycle, additions per cycle, the latency of a load that
/// hits, and the cycles of a mispredicted branch.
struct Published {
    name: &'static str,
    width: u64,
    additions: u64,
    load_cycles: u64,
    mispredict_cycles: u64,
}

const PUBLISHED: [Published; 8] = [
    Published { name: "ultra-1", width: 4, additions: 2, load_cycles: 2, mispredict_cycles: 4 },
    Published { name: "r10000-1996", width: 4, additions: 4, load_cycles: 2, mispredict_cycles: 4 },
    Published { name: "p2-333", width: 3, additions: 2, load_cycles: 3, mispredict_cycles: 11 },
    Published { name: "p4-1700", width: 3, additions: 3, load_cycles: 2, mispredict_cycles: 20 },
    Published { name: "zen3", width: 6, additions: 4, load_cycles: 4, mispredict_cycles: 15 },
    Published {
        name: "golden-cove",
        width: 6,
        additions: 5,
        load_cycles: 5,
        mispredict_cycles: 17,
    },
    Published {
        name: "neoverse-n1",
        width: 4,
        additions: 3,
        load_cycles: 4,
        mispredict_cycles: 11,
    },
    Published { name: "cortex-a55", width: 2, additions: 2, load_cycles: 3, mispredict_cycles: 8 },
];

#[test]
fn cores_are_as_fast_as_published() {
    for published in PUBLISHED {
        let (name, model) = (published.name, named(published.name));
        // Sixty is a multiple of each width.
        let a_cycle = |steps: &[Step]| 60 * 100 / round_cycles(&model, steps, straight);
        assert_eq!(a_cycle(&repeat(60, nothing)), published.width, "{name}");
        assert_eq!(a_cycle(&repeat(60, |number| set(number % 14))), published.additions, "{name}");
        assert_eq!(round_cycles(&model, &repeat(60, |_| add(0, 0)), straight), 6_000, "{name}");
        let chase = round_cycles(&model, &repeat(60, |_| load(0, 0, 0x1000)), straight);
        assert_eq!(chase, 6_000 * published.load_cycles, "{name}");
    }
}

#[test]
fn a_branch_that_cannot_be_foreseen_costs_what_is_published() {
    for published in PUBLISHED {
        let model = named(published.name);
        // A random branch: half of the time the prediction is right, and it costs what `never`
        // does.
        let coin = |round: u64, fall_through: VirtualAddress| {
            let thrown = round.wrapping_mul(0xd134_2543_de82_ef95) ^ round >> 3;
            let thrown = (thrown ^ thrown >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            if thrown >> 40 & 1 == 1 { fall_through } else { VirtualAddress(0x40_0000) }
        };
        let mut core = AnyCore::new(&model, 64).expect("a core of one thread");
        let block = block(layout(&model), 0x40_0000, &[branch(0)]);
        let mut waits = Waits::default();
        for round in 0..10_000 {
            core.play(&block, coin(round, block.fall_through), &mut waits);
        }
        let counts = core.counted();
        let (wrong, name) = (counts.mispredicted_branches, published.name);
        assert!((4_000..6_500).contains(&wrong), "{name}: {counts:?}");
        // A mispredicted branch takes its own cycle and the penalty; any other takes a cycle at
        // most.
        let cost = (counts.cycles - (counts.branches - wrong)) as f64 / wrong as f64;
        let expected = published.mispredict_cycles as f64 + 1.0;
        assert!((cost - expected).abs() <= expected / 10.0, "{name}: {cost} of {expected}");
    }
}

#[test]
fn the_trace_cache_gives_three_a_cycle_and_the_decoder_one() {
    let mut model = named("p4-1700");
    let steps = repeat(60, nothing);
    assert_eq!(round_cycles(&model, &steps, straight), 2_000);
    // Ten lines in a cache of eight: with LRU, it never holds the whole block.
    let decoded = model.front.decoded.as_mut().expect("a trace cache");
    (decoded.lines, decoded.ways) = (8, 8);
    assert_eq!(round_cycles(&model, &steps, straight), 6_000);
    // Traces continue after taken branches.
    let mut model = named("p4-1700");
    let jump = Instruction::of_unit(Unit::Branch).branching(machine::predict::BranchKind::Jump);
    let around = [nothing(0), (jump, None)];
    let back = |_: u64, _: VirtualAddress| VirtualAddress(0x40_0000);
    assert_eq!(round_cycles(&model, &around, back), 100);
    model.width = 6;
    model.front.decoded.as_mut().expect("a trace cache").traces = false;
    assert_eq!(round_cycles(&model, &around, back), 100);
    model.front.decoded.as_mut().expect("a trace cache").traces = true;
    // Lines of six instructions; the one branch unit is the limit.
    assert_eq!(round_cycles(&model, &around, back), 100);
    model.units.branch.count = 3;
    assert!((33..=34).contains(&round_cycles(&model, &around, back)));
}

/// Cycles, stall slots, and mispredictions.
type Pinned = (&'static str, [u64; 5]);

const PINNED: [Pinned; 12] = [
    ("r4400-1994", [109_535, 1530, 1080, 0, 6998]),
    ("ultra-1", [153_410, 5698, 1541, 499_474, 7553]),
    ("r10000-1996", [107_907, 4163, 3652, 316_888, 7553]),
    ("t1", [276_126, 1530, 1084, 164_685, 11_526]),
    ("p2-333", [252_356, 3860, 1447, 644_834, 5888]),
    ("p4-1700", [358_052, 4025, 1440, 961_764, 7563]),
    ("zen3", [484_183, 6269, 2915, 2_788_985, 6308]),
    ("zen4", [495_743, 6273, 2915, 2_858_341, 6502]),
    ("golden-cove", [384_903, 8323, 2922, 2_191_244, 6411]),
    ("emerald-rapids", [541_334, 6321, 2921, 3_131_833, 6502]),
    ("neoverse-n1", [179_061, 5574, 1940, 601_805, 6206]),
    ("cortex-a55", [157_235, 2921, 833, 203_790, 6737]),
];

#[test]
fn the_same_program_gives_the_same_counts_for_ever() {
    let counted = ALL.map(|(name, text)| {
        let model = model(text);
        let counts = play(&model, &program(&model, 1995, 20_000), 120);
        let stalls =
            [counts.fetch_stall_slots, counts.data_stall_slots, counts.pipeline_stall_slots];
        let [fetch, data, pipeline] = stalls;
        (name, [counts.cycles, fetch, data, pipeline, counts.mispredicted_branches])
    });
    assert_eq!(counted, PINNED, "{counted:#?}");
}
