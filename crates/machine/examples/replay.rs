//! Executes a block trace again, by a core and its memory alone: what the models cost without QEMU.
//!
//! ```text
//! cargo run -p machine --example replay TRACE MODEL.toml [ROUNDS] [warm]
//! ```
//!
//! TRACE is written by the plugin, see `IRQLAB_BLOCK_TRACE` in docs/plugin.md. Each round starts with a
//! cold machine. With `warm`, an out-of-order core only keeps its caches and predictors warm, as it does
//! between the units of a sampled simulation; each instruction is a cycle. Printed are the CPU time of an instruction (least of the rounds), and a hash of the
//! cycles after each block and of all counts: a change of the program that changes no result changes no
//! hash. `valgrind --tool=callgrind --toggle-collect='replay::play*'` counts the host's instructions.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program that measures the pure crate: it reads files and the clock, and prints"
)]

use std::hint::black_box;

use machine::SystemModel;
use machine::block_trace::{BlockCode, Event};
use machine::core::{
    Access, CoreModel, ExecutedBlock, InOrderCore, Instruction, Layout, Memory, MultithreadedCore,
    OutOfOrderCore, Template, WaitParts,
};
use machine::decode::Decoder;
use machine::memory::{MemoryPort, MemorySystem, PageSize, TlbFlush, without_mshr_limit};

/// A trace in the form in which it is executed.
#[derive(Default)]
struct Trace {
    blocks: Vec<Template>,
    steps: Vec<Step>,
    accesses: Vec<Access>,
    instructions: u64,
}

enum Step {
    Run { block: u32, first: u32, instructions: u32, next: u64, accesses_end: usize },
    Interrupt,
    Flush(TlbFlush),
    Space(u16, u64),
}

fn template(decoder: &mut Decoder, layout: Layout, code: &BlockCode) -> Template {
    let (mut target, mut address) = (None, code.spans.0.virtual_address);
    let mut of_core = |bytes: &Vec<u8>| {
        let decoded = decoder.decode(bytes, address);
        address += bytes.len() as u64;
        target = decoded.target();
        decoder.core_instruction(&decoded).with_bytes(bytes.len() as u8)
    };
    let instructions: Vec<Instruction> = code.instructions.iter().map(&mut of_core).collect();
    Template::new(layout, code.spans, &instructions, target)
}

fn read(mut bytes: &[u8], layout: Layout) -> Trace {
    let (mut trace, mut decoder) = (Trace::default(), Decoder::default());
    while let Some(event) = Event::read(&mut bytes) {
        trace.steps.push(match event {
            Event::Code(code) => {
                trace.blocks.push(template(&mut decoder, layout, &code));
                continue;
            }
            Event::Run(run) => {
                trace.accesses.extend(&run.accesses);
                trace.instructions += u64::from(run.instructions - run.first);
                Step::Run {
                    block: run.block,
                    first: run.first,
                    instructions: run.instructions,
                    next: run.next,
                    accesses_end: trace.accesses.len(),
                }
            }
            Event::Interrupt => Step::Interrupt,
            Event::Flush(flush) => Step::Flush(flush),
            Event::Space(space, page_tables) => Step::Space(space, page_tables),
        });
    }
    trace
}

/// A core of any sort.
enum Core {
    OutOfOrder(Box<OutOfOrderCore>),
    InOrder(Box<InOrderCore>),
    Thread(Box<MultithreadedCore>),
}

impl Core {
    fn new(model: &CoreModel, line_bytes: u64) -> Core {
        let in_order =
            || InOrderCore::new(model, line_bytes).map(|core| Core::InOrder(core.into()));
        OutOfOrderCore::new(model, line_bytes)
            .map(|core| Core::OutOfOrder(core.into()))
            .or_else(in_order)
            .or_else(|| MultithreadedCore::new(model).map(|core| Core::Thread(core.into())))
            .expect("a core of some sort")
    }

    fn flush_translations(&mut self) {
        match self {
            Core::OutOfOrder(core) => core.flush_translations(),
            Core::InOrder(core) => core.flush_translations(),
            Core::Thread(core) => core.flush_translations(0),
        }
    }
}

/// A hash of numbers (FNV).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Hash(u64);

impl Hash {
    fn add(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x100_0000_01b3);
    }
}

/// The memory port, with pages as Linux has them, in a time that is later than the core's.
struct Port<'s> {
    port: MemoryPort<'s>,
    skew_cycles: u64,
}

fn page_size(address: u64) -> PageSize {
    const LARGE: [std::ops::Range<u64>; 3] = [
        0xffff_8880_0000_0000..0xffff_c880_0000_0000,
        0xffff_ea00_0000_0000..0xffff_eb00_0000_0000,
        0xffff_ffff_8000_0000..0xffff_ffff_a000_0000,
    ];
    let large = address >> 63 == 1 && LARGE.iter().any(|range| range.contains(&address));
    if large { PageSize::Large } else { PageSize::Small }
}

impl Memory for Port<'_> {
    fn fetch(&mut self, virtual_address: u64, physical: u64, now_cycles: u64) -> u64 {
        self.port.page = page_size(virtual_address);
        self.port.fetch(virtual_address, physical, now_cycles + self.skew_cycles)
    }

    #[inline(always)]
    fn load(&mut self, access: &Access, now_cycles: u64) -> u64 {
        let now_cycles = now_cycles + self.skew_cycles;
        if self.port.hits_at_once(access, false, page_size, now_cycles) {
            return 0;
        }
        self.port.page = page_size(access.virtual_address);
        self.port.load(access, now_cycles)
    }

    fn load_locked(&mut self, access: &Access, now_cycles: u64) -> u64 {
        self.port.page = page_size(access.virtual_address);
        self.port.load_locked(access, now_cycles + self.skew_cycles)
    }

    #[inline(always)]
    fn store(&mut self, access: &Access, now_cycles: u64) -> u64 {
        let now_cycles = now_cycles + self.skew_cycles;
        if self.port.hits_at_once(access, true, page_size, now_cycles) {
            return 0;
        }
        self.port.page = page_size(access.virtual_address);
        self.port.store(access, now_cycles)
    }

    fn store_around(&mut self, access: &Access, now_cycles: u64) -> u64 {
        self.port.page = page_size(access.virtual_address);
        self.port.store_around(access, now_cycles + self.skew_cycles)
    }

    fn last_wait(&self) -> WaitParts {
        self.port.last_wait()
    }
}

/// Executes the trace on a cold machine. Returns the hash and what was counted, as text.
#[inline(never)]
fn play(trace: &Trace, core: &mut Core, system: &mut MemorySystem, warms: bool) -> Hash {
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    let mut at = 0;
    let mut skew_cycles = 0;
    for step in &trace.steps {
        match step {
            Step::Run { block, first, instructions, next, accesses_end } => {
                let block = &trace.blocks[*block as usize];
                let accesses = &trace.accesses[at..*accesses_end];
                at = *accesses_end;
                let first = *first as usize;
                let executed = ExecutedBlock { instructions: *instructions, accesses, next: *next };
                let page = PageSize::Small;
                let port = MemoryPort { system, cpu: 0, code: Some(block), pc: 0, page };
                let mut port = Port { port, skew_cycles };
                let cycles = match core {
                    Core::OutOfOrder(core) if warms => {
                        let warmed = core.warm_from(first, block, &executed, &mut port);
                        skew_cycles += u64::from(warmed.slots);
                        skew_cycles
                    }
                    Core::OutOfOrder(core) => {
                        core.run_from(first, block, &executed, &mut port);
                        core.cycles()
                    }
                    Core::InOrder(core) => {
                        core.run_from(first, block, &executed, &mut port);
                        core.cycles()
                    }
                    Core::Thread(core) => {
                        core.run_from(0, (first, block), &executed, &mut port);
                        core.cycles(0)
                    }
                };
                hash.add(cycles);
            }
            Step::Interrupt => match core {
                Core::OutOfOrder(core) => core.interrupt(),
                Core::InOrder(core) => core.interrupt(),
                Core::Thread(core) => core.interrupt(0),
            },
            Step::Flush(flush) => {
                core.flush_translations();
                system.flush_tlbs(0, *flush);
            }
            Step::Space(space, page_tables) => {
                core.flush_translations();
                system.set_address_space(0, *space, *page_tables);
            }
        }
    }
    hash
}

/// The CPU time of this process.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("a Linux");
    let ns = text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
    ns.expect("nanoseconds first") as f64 / 1e9
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, model, rest @ ..] = &arguments[..] else {
        eprintln!("usage: replay TRACE MODEL.toml [ROUNDS] [warm]");
        std::process::exit(2);
    };
    let rounds = rest.first().map_or(5, |text| text.parse().expect("a number of rounds"));
    let warms = rest.get(1).is_some_and(|text| text == "warm");
    let text = std::fs::read_to_string(model).expect("a readable model");
    let model = SystemModel::parse(&text).expect("a model");
    let of_core = model.core.as_ref().expect("a model with a core");
    let bytes = std::fs::read(path).expect("a readable trace");
    let trace = read(&bytes, of_core.layout(model.l1i.cache.line_bytes));
    drop(bytes);
    let mut least = f64::MAX;
    let mut last = None;
    for _ in 0..rounds {
        let mut system = MemorySystem::new(&without_mshr_limit(&model), 1);
        let mut core = Core::new(of_core, model.l1d.cache.line_bytes);
        let start = cpu_seconds();
        let mut hash = play(black_box(&trace), &mut core, &mut system, warms);
        least = least.min(cpu_seconds() - start);
        let counts = match &mut core {
            Core::OutOfOrder(core) => core.counts(),
            Core::InOrder(core) => core.counts(),
            Core::Thread(core) => {
                core.drain();
                core.counts(0)
            }
        };
        let texts = [format!("{counts:?}"), format!("{:?}", system.counts(0))];
        texts.iter().flat_map(|text| text.bytes()).for_each(|byte| hash.add(byte.into()));
        assert!(last.is_none_or(|last| last == hash), "two rounds differ");
        if last.is_none() {
            println!("{} blocks, {} accesses", trace.blocks.len(), trace.accesses.len());
            texts.iter().for_each(|text| println!("{text}"));
        }
        last = Some(hash);
    }
    println!(
        "{}: {} instructions, {:.1} ns each, hash {:016x}",
        model.name,
        trace.instructions,
        least * 1e9 / trace.instructions as f64,
        last.map_or(0, |hash| hash.0)
    );
}
