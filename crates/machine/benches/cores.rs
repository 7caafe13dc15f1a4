//! Throughput of the cores with their predictors, without QEMU: simulated instructions per second.
//!
//! `cargo bench -p machine --bench cores [NAME...]`. Times are CPU times of this process.
//! Other processes slow it down, but their time is not counted.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program that measures the pure crate: it reads files and the clock, and prints"
)]

use std::hint::black_box;

use machine::core::{
    Access, AccessMode, AnyCore, CoreCounts, CoreModel, ExecutedBlock, Instruction, Layout, Memory,
    MultithreadedCore, OutOfOrderCore, Register, SingleThreadCore, Template, Unit,
};
use machine::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};
use machine::predict::BranchKind;
use machine::{CodeSpan, Cycle, PhysicalAddress, SystemModel, VirtualAddress};

const BLOCKS: usize = 2_000;
const ROUNDS: usize = 400;

/// Two of a hundred accesses wait, at random.
struct Thrown(u64);

impl Thrown {
    fn throw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn wait(&mut self) -> u64 {
        match self.throw() % 1_000 {
            0..4 => 200,
            4..20 => 12,
            _ => 0,
        }
    }
}

impl Memory for Thrown {
    fn look_up_fetch(&mut self, _: VirtualAddress, _: PhysicalAddress) {}

    fn look_up(&mut self, _: &Access, _: AccessMode) {}

    fn fetch(&mut self, _: VirtualAddress, _: PhysicalAddress, _: Cycle) -> u64 {
        if self.throw().is_multiple_of(64) { 12 } else { 0 }
    }

    fn access(&mut self, _: &Access, _: AccessMode, _: Cycle) -> u64 {
        self.wait()
    }
}

/// A block with its accesses and the address that follows it.
struct Block {
    template: Template,
    accesses: Vec<Access>,
    taken: u64,
}

/// Blocks like a kernel's blocks: six instructions with one load, a store in each second block, and a branch.
fn block(thrown: &mut Thrown, layout: Layout) -> Block {
    let mut register = || Register::general((thrown.throw() % 16) as u8);
    let mut instructions = vec![
        Instruction::nothing(4).loading(&[register()]).writing(&[register()]),
        Instruction::of_unit(Unit::Integer)
            .reading(&[register(), register()])
            .writing(&[register(), Register::FLAGS]),
        Instruction::of_unit(Unit::Integer).reading(&[register()]).writing(&[register()]),
        Instruction::of_unit(Unit::Integer)
            .reading(&[register(), register()])
            .writing(&[register(), Register::FLAGS]),
    ];
    let stored = Instruction::nothing(4).storing(&[register()]).reading(&[register()]);
    let stores = thrown.throw().is_multiple_of(2);
    instructions.extend(stores.then_some(stored));
    let branch = Instruction::of_unit(Unit::Branch).branching(BranchKind::Conditional);
    instructions.push(branch.reading(&[Register::FLAGS]));
    let address = 0x40_0000 + thrown.throw() % (1 << 18);
    let (virtual_address, physical) = (VirtualAddress(address), PhysicalAddress(address));
    let span = CodeSpan { virtual_address, physical, bytes: 24 };
    let mut access = |instruction, write| Access {
        virtual_address: VirtualAddress(thrown.throw() % (1 << 20) * 8),
        physical: Some(PhysicalAddress(0)),
        instruction,
        bytes: 8,
        write,
    };
    let accesses = [Some(access(0, false)), stores.then(|| access(4, true))];
    Block {
        template: Template::new(layout, (span, None), &instructions, Some(virtual_address)),
        accesses: accesses.into_iter().flatten().collect(),
        // One branch of eight is random.
        taken: if thrown.throw().is_multiple_of(8) { u64::MAX } else { thrown.throw() },
    }
}

/// The CPU time of this process.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("a Linux");
    let ns = text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
    ns.expect("nanoseconds first") as f64 / 1e9
}

/// Executes all blocks in their order with `each`, several times.
fn execute(
    blocks: &[Block],
    thrown: &mut Thrown,
    mut each: impl FnMut(&Template, &ExecutedBlock, &mut Thrown),
) {
    for _ in 0..ROUNDS {
        for block in blocks {
            let coin = if block.taken == u64::MAX { thrown.throw() } else { block.taken };
            let fall_through = block.template.address().plus(24);
            let next = if coin.is_multiple_of(2) { VirtualAddress(0x1000) } else { fall_through };
            let instructions = block.template.len() as u32;
            let executed = ExecutedBlock { instructions, accesses: &block.accesses, next };
            each(black_box(&block.template), &executed, thrown);
        }
    }
}

/// Runs the blocks on the core of a model.
fn on_core(model: &CoreModel, blocks: &[Block], thrown: &mut Thrown) -> CoreCounts {
    if let Some(mut core) = AnyCore::new(model, 64) {
        execute(blocks, thrown, |block, executed, memory| core.run(block, executed, memory));
        return core.counts();
    }
    let mut core = MultithreadedCore::new(model).expect("some sort of core");
    let mut number = 0;
    execute(blocks, thrown, |block, executed, memory| {
        core.run(number / 200 % 4, block, executed, memory);
        number += 1;
        if number % 800 == 0 {
            core.drain();
        }
    });
    let mut counts = core.counts(0);
    counts.instructions = (0..4).map(|thread| core.counts(thread).instructions).sum();
    counts
}

/// Runs the blocks on an out-of-order core with the memory system of its machine.
fn on_machine(
    model: &CoreModel,
    machine: &str,
    blocks: &[Block],
    thrown: &mut Thrown,
) -> CoreCounts {
    let machine = SystemModel::parse(machine).expect("a machine");
    let mut system = MemorySystem::new(&without_mshr_limit(&machine), 1);
    let mut port = MemoryPort {
        system: &mut system,
        cpu: 0,
        code: None,
        pc: VirtualAddress::default(),
        page: PageSize::Large,
    };
    let mut core = OutOfOrderCore::new(model, 64).expect("a window");
    execute(blocks, thrown, |block, executed, _| core.run(block, executed, &mut port));
    core.counts()
}

fn run(name: &str, text: &str, machine: Option<&str>) {
    let model = SystemModel::parse(text).expect("a model").core.expect("with a core");
    let mut thrown = Thrown(88_172_645_463_325_252);
    let layout = model.layout(64);
    let blocks: Vec<Block> = (0..BLOCKS).map(|_| block(&mut thrown, layout)).collect();
    let start = cpu_seconds();
    let counts = match machine {
        Some(machine) => on_machine(&model, machine, &blocks, &mut thrown),
        None => on_core(&model, &blocks, &mut thrown),
    };
    let seconds = cpu_seconds() - start;
    let name = format!("{name}{}", if machine.is_some() { ", its memory" } else { "" });
    println!(
        "{name:24} {:6.1} MIPS, {:4.1} ns an instruction; IPC {:.2}, {:.1} % of branches wrong",
        counts.instructions as f64 / seconds / 1e6,
        seconds * 1e9 / counts.instructions as f64,
        counts.instructions as f64 / counts.cycles as f64,
        100.0 * counts.mispredicted_branches as f64 / counts.branches as f64,
    );
}

fn main() {
    let all = [
        ("r4400-1994", include_str!("../../../machines/r4400-1994.toml")),
        ("ultra-1", include_str!("../../../machines/ultra-1.toml")),
        ("t1", include_str!("../../../machines/t1.toml")),
        ("cortex-a55", include_str!("../../../machines/cortex-a55.toml")),
        ("r10000-1996", include_str!("../../../machines/r10000-1996.toml")),
        ("p4-1700", include_str!("../../../machines/p4-1700.toml")),
        ("neoverse-n1", include_str!("../../../machines/neoverse-n1.toml")),
        ("zen3", include_str!("../../../machines/zen3.toml")),
        ("golden-cove", include_str!("../../../machines/golden-cove.toml")),
    ];
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, text) in all {
        if wanted.is_empty() || wanted.iter().any(|wanted_name| wanted_name == name) {
            run(name, text, None);
            if name == "zen3" {
                run(name, text, Some(include_str!("../../../machines/zen3.toml")));
            }
        }
    }
}
