//! The cost of `BlockingMachine`: nanoseconds per instruction of a synthetic program.
//!
//! ```text
//! cargo run --release -p machine --example throughput [ROUNDS]
//! ```
//!
//! The stream is the run of a synthetic program, in blocks of 5 instructions and 2 data accesses on
//! average. Each block and each access is a call that is not inlined, as in a plugin. `replay` is the
//! same stream with calls that do nothing but add up; `net` is without it. The minimum of
//! the rounds is less disturbed by other processes than their median.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program that measures the pure crate: it reads files and the clock, and prints"
)]

#[path = "throughput/program.rs"]
mod program;

use std::hint::black_box;
use std::time::Instant;

use machine::{BlockingMachine, BlockingModel, CodeBlock, Counts, VirtualAddress};
use program::{Program, physical};

const R4400: &str = include_str!("../../../machines/r4400-1994.toml");
const MODERN: &str = r#"
name = "modern"
clock_hz = 3_000_000_000
instruction_cycles = 1
l2_hit_cycles = 12
memory_cycles = 240
tlb_miss_cycles = 20
l1i = { size_bytes = 32768, ways = 8, line_bytes = 64 }
l1d = { size_bytes = 32768, ways = 8, line_bytes = 64 }
l2 = { size_bytes = 1048576, ways = 16, line_bytes = 64 }
itlb = { entries = 64, ways = 64, page_bytes = 4096 }
dtlb = { entries = 64, ways = 64, page_bytes = 4096 }
"#;

/// Replays the run of a program on a machine.
fn play(program: &Program, machine: &mut impl Machine) {
    let mut accesses_start = 0;
    for step in &program.steps {
        machine.block(&program.blocks[step.block]);
        for (address, write) in &program.accesses[accesses_start..step.accesses_end] {
            if *write {
                machine.store(*address);
            } else {
                machine.load(*address);
            }
        }
        accesses_start = step.accesses_end;
    }
}

trait Machine {
    fn block(&mut self, block: &CodeBlock);
    fn load(&mut self, address: u64);
    fn store(&mut self, address: u64);
}

impl Machine for BlockingMachine {
    #[inline(never)]
    fn block(&mut self, block: &CodeBlock) {
        BlockingMachine::execute_block(self, block);
    }

    #[inline(never)]
    fn load(&mut self, address: u64) {
        BlockingMachine::load(self, VirtualAddress(address), physical);
    }

    #[inline(never)]
    fn store(&mut self, address: u64) {
        BlockingMachine::store(self, VirtualAddress(address), physical);
    }
}

/// A machine that only adds up.
struct Sum(u64);

impl Machine for Sum {
    #[inline(never)]
    fn block(&mut self, block: &CodeBlock) {
        self.0 += u64::from(block.instructions());
    }

    #[inline(never)]
    fn load(&mut self, address: u64) {
        self.0 += address;
    }

    #[inline(never)]
    fn store(&mut self, address: u64) {
        self.0 ^= address;
    }
}

/// The nanoseconds of one replay per instruction.
fn timed_ns(program: &Program, machine: &mut impl Machine) -> f64 {
    let start = Instant::now();
    play(program, black_box(machine));
    start.elapsed().as_nanos() as f64 / program.instructions as f64
}

fn minimum_and_median(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2]]
}

fn report(text: &str, objects: u64, rounds: usize) {
    let model = BlockingModel::parse(text).expect("a good model");
    let mut machine = BlockingMachine::new(&model);
    let program = Program::new(machine.fetch_line_shift(), objects);
    let mut sum = Sum(0);
    play(&program, &mut machine);
    let warm = machine.counts();
    let (mut replay_ns, mut model_ns) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        replay_ns.push(timed_ns(&program, &mut sum));
        model_ns.push(timed_ns(&program, &mut machine));
    }
    println!("{}, {objects} objects:", model.name);
    let (replay_ns, model_ns) = (minimum_and_median(replay_ns), minimum_and_median(model_ns));
    for (what, replay_ns, model_ns) in
        [("median", replay_ns[1], model_ns[1]), ("least", replay_ns[0], model_ns[0])]
    {
        println!(
            "    {what}: {model_ns:.3} ns/instruction (replay {replay_ns:.3}, net {:.3}), {:.0} MIPS",
            model_ns - replay_ns,
            1e3 / model_ns
        );
    }
    describe(&program, machine.counts().since(&warm), rounds);
}

/// A summary of the run.
fn describe(program: &Program, counts: Counts, rounds: usize) {
    let percent = |part: u64, of: u64| part as f64 * 100.0 / of as f64;
    let data = counts.loads + counts.stores;
    let blocks = (program.steps.len() * rounds) as f64;
    println!(
        "    a block: {:.2} instructions, {:.2} fetches, {:.2} accesses; cycles/instruction {:.2}",
        counts.instructions as f64 / blocks,
        counts.fetches as f64 / blocks,
        data as f64 / blocks,
        counts.cycles as f64 / counts.instructions as f64
    );
    println!(
        "    misses in 100: L1I {:.2}, L1D {:.2}, L2 {:.2}, of pages {:.2} and {:.2}",
        percent(counts.l1i_misses, counts.fetches),
        percent(counts.l1d_load_misses + counts.l1d_store_misses, data),
        percent(counts.l2_fetch_misses + counts.l2_data_misses, data),
        percent(counts.itlb_misses, counts.fetches),
        percent(counts.dtlb_misses, data)
    );
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(31).max(1);
    for objects in [100, 2_000] {
        for text in [R4400, MODERN] {
            report(text, objects, rounds);
        }
    }
}
