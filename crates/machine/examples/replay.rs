//! Replays a block trace on the models of a core and its memory, without QEMU. Measures what the models cost.
//!
//! ```text
//! cargo run -p machine --example replay TRACE MODEL.toml [ROUNDS] [warm | slow]
//! ```
//!
//! TRACE is written by the plugin, see `IRQLAB_BLOCK_TRACE` in docs/plugin.md. Each round starts with a
//! cold machine. With `warm`, an out-of-order core only keeps its caches and predictors warm; with `slow`,
//! it executes without its fast paths, with the same hash. Printed are the CPU time of an instruction
//! (least of the rounds), and a hash of the cycles after each block and of all counts: a change of the
//! program that changes no result changes no hash.
//! `valgrind --tool=callgrind --toggle-collect='*ReplayMachine::execute*'` counts the host's instructions.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program that measures the pure crate: it reads files and the clock, and prints"
)]

use std::hint::black_box;

use machine::block_trace::{RecordedBlocks, ReplayMachine, TraceSizes, Way};
use machine::{Instructions, SystemModel};

/// The CPU time of this process.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("a Linux");
    let ns = text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
    ns.expect("nanoseconds first") as f64 / 1e9
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, model, rest @ ..] = &arguments[..] else {
        eprintln!("usage: replay TRACE MODEL.toml [ROUNDS] [warm | slow]");
        std::process::exit(2);
    };
    let rounds = rest.first().map_or(5, |text| text.parse().expect("a number of rounds"));
    let way = match rest.get(1).map(String::as_str) {
        Some("warm") => Way::Warming,
        Some("slow") => Way::Slow,
        _ => Way::Detail,
    };
    let text = std::fs::read_to_string(model).expect("a readable model");
    let model = SystemModel::parse(&text).expect("a model");
    let of_core = model.core.as_ref().expect("a model with a core");
    let bytes = std::fs::read(path).expect("a readable trace");
    let trace = RecordedBlocks::read(&bytes, of_core.layout(model.l1i.line_bytes));
    drop(bytes);
    let TraceSizes { blocks, instructions: Instructions(instructions), accesses } = trace.sizes();
    println!("{blocks} blocks, {accesses} accesses");
    let mut seconds_min = f64::MAX;
    let mut last = None;
    for _ in 0..rounds {
        let mut machine = ReplayMachine::new(&model).expect("a core of some sort");
        let start = cpu_seconds();
        let cycles = machine.execute(black_box(&trace), way);
        seconds_min = seconds_min.min(cpu_seconds() - start);
        let (of_core, of_memory) = machine.counts();
        let texts = [format!("{of_core:?}"), format!("{of_memory:?}")];
        let bytes = texts.iter().flat_map(|text| text.bytes());
        let hash =
            bytes.fold(cycles, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        assert!(last.is_none_or(|last| last == hash), "two rounds differ");
        if last.is_none() {
            texts.iter().for_each(|text| println!("{text}"));
        }
        last = Some(hash);
    }
    println!(
        "{}: {} instructions, {:.1} ns each, hash {:016x}",
        model.name,
        instructions,
        seconds_min * 1e9 / instructions as f64,
        last.unwrap_or(0)
    );
}
