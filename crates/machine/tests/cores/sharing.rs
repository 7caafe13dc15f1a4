//! Threads of a core take issue slots from each other, independently of the order that simulates
//! them.

use machine::core::{CoreCounts, CoreModel, ExecutedBlock, MultithreadedCore};
use proptest::prelude::*;

use crate::streams::{Program, program};
use crate::support::{Step, Waits, block, layout, model, set};

const T1: &str = include_str!("../../../../machines/t1.toml");
const THREADS: usize = 4;

/// The T1 without units that are occupied for long: threads wait only for each other's
/// instructions.
fn piped() -> CoreModel {
    let mut model = model(T1);
    model.units.multiply.interval_cycles = 1;
    model.units.divide.interval_cycles = 1;
    model.units.float_divide.interval_cycles = 1;
    model
}

/// A core, and the program and memory of each of its threads.
struct Bench {
    core: MultithreadedCore,
    programs: Vec<Program>,
    memories: Vec<Waits>,
    done: [usize; THREADS],
}

impl Bench {
    fn new(model: &CoreModel, seed: u64, blocks: usize) -> Bench {
        let programs = (0..THREADS as u64).map(|thread| program(model, seed ^ thread, blocks));
        Bench {
            core: MultithreadedCore::new(model).expect("threads"),
            programs: programs.collect(),
            memories: (0..THREADS).map(|_| Waits::far(90)).collect(),
            done: [0; THREADS],
        }
    }

    /// Queues up to `blocks` further blocks of a thread.
    fn hand_in(&mut self, thread: usize, blocks: usize) {
        let each = self.programs[thread].each().skip(self.done[thread]).take(blocks);
        for (block, next, interrupted) in each {
            let instructions = block.template.len() as u32;
            let executed = ExecutedBlock { instructions, accesses: &block.accesses, next };
            let memory = &mut self.memories[thread];
            self.core.run(thread, &block.template, &executed, memory);
            if interrupted {
                self.core.interrupt(thread);
            }
            self.done[thread] += 1;
        }
    }

    fn drain(&mut self) -> Vec<CoreCounts> {
        self.core.drain();
        (0..THREADS).map(|thread| self.core.counts(thread)).collect()
    }
}

/// Time slices: the thread, and the number of blocks.
fn slices(most: usize) -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0..THREADS, 1usize..40), 1..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The issue cycles of each thread do not depend on the time slices.
    #[test]
    fn slices_change_nothing(seed in any::<u64>(), slices in slices(80)) {
        let model = model(T1);
        let mut sliced = Bench::new(&model, seed, 300);
        for (thread, blocks) in slices {
            sliced.hand_in(thread, blocks);
            sliced.core.advance();
        }
        let mut at_once = Bench::new(&model, seed, 300);
        (0..THREADS).for_each(|thread| at_once.hand_in(thread, sliced.done[thread]));
        prop_assert_eq!(sliced.drain(), at_once.drain());
        prop_assert_eq!(sliced.core.now().0, at_once.core.now().0);
    }

    /// Threads halt and wake, run alone for long, and are retired in between: no thread waits for
    /// more than one instruction of each other thread per own instruction, each cycle has one
    /// owner, and the core issues one instruction per cycle.
    #[test]
    fn no_thread_pays_for_what_others_did_while_it_was_not_there(
        seed in any::<u64>(),
        events in prop::collection::vec((0..THREADS, 0usize..60, 0..8u8), 1..120),
    ) {
        pays_only_for_what_others_do_meanwhile(seed, &events)?;
    }

    /// Threads that run all the time lose only the slots that others used.
    #[test]
    fn a_thread_takes_what_it_takes_alone_and_what_others_had(
        seed in any::<u64>(), slices in slices(60),
    ) {
        let model = piped();
        let mut bench = Bench::new(&model, seed, 300);
        for (thread, blocks) in slices {
            bench.hand_in(thread, blocks);
            bench.core.advance();
        }
        for (thread, counts) in bench.drain().iter().enumerate() {
            let mut alone = Bench::new(&model, seed, 300);
            alone.hand_in(thread, bench.done[thread]);
            let cycles_min = alone.drain()[thread].cycles;
            prop_assert!(counts.cycles >= cycles_min, "{:?} and alone {}", counts, cycles_min);
            // `time` includes the cycles that the last instruction blocks the thread.
            let cycles_max = alone.core.time(thread).0 + counts.shared_slots;
            prop_assert!(counts.cycles <= cycles_max, "{:?}, at most {}", counts, cycles_max);
        }
    }
}

/// Checks the property on events: a thread, a number of blocks, and the kind of event.
fn pays_only_for_what_others_do_meanwhile(
    seed: u64,
    events: &[(usize, usize, u8)],
) -> Result<(), TestCaseError> {
    let model = piped();
    let mut bench = Bench::new(&model, seed, 2_000);
    for &(thread, blocks, event) in events {
        match event {
            0 | 1 => bench.core.set_halted(thread, true),
            2 => bench.core.set_halted(thread, false),
            3 if blocks < 10 => bench.core.drain(),
            _ => bench.hand_in(thread, blocks),
        }
        bench.core.advance();
    }
    let counts = bench.drain();
    let mut instructions = 0;
    for (thread, counts) in counts.iter().enumerate() {
        prop_assert_eq!(counts.slots(), counts.cycles);
        prop_assert!(counts.shared_slots <= 3 * counts.instructions, "{:?}", counts);
        let mut alone = Bench::new(&model, seed, 2_000);
        alone.hand_in(thread, bench.done[thread]);
        let counted_alone = alone.drain()[thread];
        prop_assert_eq!(counted_alone.instructions, counts.instructions);
        // `time` includes the cycles that the last instruction blocks the thread. The thread is charged for
        // them if others run on.
        let cycles_max = alone.core.time(thread).0 + 3 * counts.instructions;
        prop_assert!(counts.cycles <= cycles_max, "{:?} and alone {:?}", counts, counted_alone);
        instructions += counts.instructions;
    }
    prop_assert!(instructions <= bench.core.now().0);
    Ok(())
}

/// A branch that is mispredicted blocks its thread while another one runs.
#[test]
fn the_last_instruction_of_a_thread_may_block_it() {
    let events = [(3, 1, 4), (0, 10, 3)];
    pays_only_for_what_others_do_meanwhile(121_663_277_558_389_778, &events).unwrap();
}

/// A core on which threads execute independent instructions of one cycle.
struct Plain {
    core: MultithreadedCore,
    model: CoreModel,
    waits: Waits,
}

impl Plain {
    fn new() -> Plain {
        let model = model(T1);
        let core = MultithreadedCore::new(&model).expect("threads");
        Plain { core, model, waits: Waits::default() }
    }

    fn slice(&mut self, thread: usize, instructions: usize) {
        let steps: Vec<Step> = (0..instructions as u64).map(|_| set(0)).collect();
        for steps in steps.chunks(32) {
            let block = block(layout(&self.model), 0x40_0000, steps);
            let instructions = steps.len() as u32;
            let executed = ExecutedBlock { instructions, accesses: &[], next: block.fall_through };
            self.core.run(thread, &block.template, &executed, &mut self.waits);
        }
        self.core.advance();
    }

    /// The cycles of a thread, whose queue is empty except at the end of a slice.
    fn cycles(&self, thread: usize) -> u64 {
        self.core.counts(thread).cycles
    }
}

#[test]
fn contract_1_a_thread_that_wakes_shares_from_then_on_and_pays_for_nothing_before() {
    let mut plain = Plain::new();
    (1..4).for_each(|thread| plain.core.set_halted(thread, true));
    for wake in 1..=20 {
        // A loop runs alone for long, in slices.
        (0..100).for_each(|_| plain.slice(0, 1_000));
        assert_eq!(plain.core.now().0, plain.core.time(0).0);
        // Another wakes and executes 3,000: two slices before the loop's, then another one.
        for own in [2_000, 1_000] {
            plain.slice(1, own);
            plain.slice(0, 1_000);
        }
        plain.core.set_halted(1, true);
        plain.slice(0, 1_000);
        // Each had every second cycle while both ran; the one that wakes comes first.
        let (hit, other) = (plain.core.counts(0), plain.core.counts(1));
        assert_eq!((other.instructions, other.shared_slots), (3_000 * wake, 2_999 * wake));
        assert_eq!((hit.instructions, hit.shared_slots), (103_000 * wake, 3_000 * wake));
        assert_eq!((other.cycles, hit.cycles), (5_999 * wake, 106_000 * wake));
    }
}

#[test]
fn contract_2_nothing_is_given_away_before_it_is_known_who_is_ready() {
    let mut plain = Plain::new();
    (2..4).for_each(|thread| plain.core.set_halted(thread, true));
    plain.slice(0, 1_000);
    assert_eq!((plain.core.now().0, plain.core.cycles(0)), (0, 1_000));
    plain.slice(1, 100);
    // Both threads alternate for the 100 queued instructions of thread 1.
    assert_eq!((plain.core.now().0, plain.cycles(0), plain.cycles(1)), (200, 199, 200));
    assert_eq!((plain.core.cycles(0), plain.core.cycles(1)), (1_099, 200));
    // Thread 1 halts: all further cycles belong to thread 0.
    plain.core.set_halted(1, true);
    plain.core.advance();
    assert_eq!((plain.core.now().0, plain.cycles(0), plain.cycles(1)), (1_100, 1_100, 200));
}

#[test]
fn contract_3_a_thread_that_is_not_there_is_not_waited_for_without_end() {
    let mut plain = Plain::new();
    // The core is not informed that the others are halted.
    (0..100).for_each(|_| plain.slice(0, 1_000));
    assert_eq!(plain.core.counts(0).instructions, plain.core.now().0);
    assert!(plain.core.now().0 > 60_000, "{}", plain.core.now().0);
    plain.slice(1, 10);
    plain.core.drain();
    // The cycles that passed are not charged to it, and it has every second cycle from its start
    // on.
    let (first, late) = (plain.core.counts(0), plain.core.counts(1));
    assert_eq!((first.instructions, first.shared_slots), (100_000, 10));
    assert_eq!((late.instructions, late.cycles, late.shared_slots), (10, 19, 9));
}

#[test]
fn contract_4_one_that_executes_is_not_halted() {
    let mut plain = Plain::new();
    (1..4).for_each(|thread| plain.core.set_halted(thread, true));
    plain.slice(0, 500);
    // The core is not informed that it woke.
    plain.slice(1, 500);
    plain.slice(0, 500);
    assert_eq!((plain.core.now().0, plain.cycles(1)), (1_499, 999));
}
