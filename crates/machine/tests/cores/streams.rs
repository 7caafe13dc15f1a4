//! Random programs from a seed: blocks of all kinds of instructions, and a path through them. A seed
//! gives the same program on any host.

use machine::VirtualAddress;
use machine::core::{
    AnyCore, CoreCounts, CoreModel, ExecutedBlock, Instruction, Layout, Register, SingleThreadCore,
    Special, Unit,
};
use machine::predict::BranchKind;

use crate::support::{
    Block, Core, FAR, Step, Waits, add, block, closed, layout, load, operation, register, set,
    store,
};

/// Marsaglia's xorshift.
pub struct Thrown(u64);

impl Thrown {
    pub fn new(seed: u64) -> Thrown {
        Thrown(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

const UNITS: [Unit; 7] = [
    Unit::Integer,
    Unit::Multiply,
    Unit::Divide,
    Unit::FloatAdd,
    Unit::FloatMultiply,
    Unit::FloatDivide,
    Unit::Vector,
];

/// Data addresses: a few near, many far, multiples of 8 bytes.
fn address(thrown: &mut Thrown) -> u64 {
    match thrown.below(8) {
        0 => FAR + thrown.below(4_000) * 64,
        _ => 0x1_0000 + thrown.below(64) * 8,
    }
}

fn step(thrown: &mut Thrown) -> Step {
    let (to, from) = (thrown.below(16), thrown.below(16));
    match thrown.below(40) {
        0..10 => load(to, from, address(thrown)),
        10..15 => store(to, from, address(thrown)),
        15..18 => operation(UNITS[thrown.below(7) as usize], to, from),
        18 => {
            // Loads, adds and stores.
            let sum = Instruction::of_unit(Unit::Integer).loading(&[register(to)]);
            (sum.reading(&[register(from)]).writing(&[Register::FLAGS]), Some(address(thrown)))
        }
        19 if thrown.below(20) == 0 => {
            let all = [Special::Serialise, Special::Fence, Special::Pause, Special::Microcode];
            (Instruction::nothing(4).doing(all[thrown.below(4) as usize]), None)
        }
        20..26 => set(to),
        _ => add(to, from),
    }
}

/// Blocks and their order of execution.
pub struct Program {
    blocks: Vec<Block>,
    order: Vec<usize>,
    /// Whether each block ends in a conditional branch.
    conditional: Vec<bool>,
    /// The elements of `order` whose branch is not taken.
    untaken: Vec<bool>,
    /// The elements of `order` after which an interrupt comes.
    interrupts: Vec<usize>,
}

impl Program {
    pub fn new(seed: u64, layout: Layout, length: usize) -> Program {
        let mut thrown = Thrown::new(seed);
        let mut conditional = Vec::new();
        let blocks = (0..40).map(|number| {
            let kind = match thrown.below(8) {
                0 => BranchKind::Jump,
                1 => BranchKind::IndirectJump,
                2 => BranchKind::Call,
                3 => BranchKind::Return,
                _ => BranchKind::Conditional,
            };
            conditional.push(kind == BranchKind::Conditional);
            let mut steps: Vec<Step> = (0..thrown.below(12)).map(|_| step(&mut thrown)).collect();
            let branch = Instruction::of_unit(Unit::Branch).branching(kind);
            steps.push((branch.reading(&[register(thrown.below(16))]), None));
            block(layout, 0x40_0000 + number * 0x110, &steps)
        });
        let blocks: Vec<Block> = blocks.collect();
        // The path mostly returns to a few blocks.
        let mut number = 0;
        let order = (0..length).map(|_| {
            number =
                if thrown.below(3) == 0 { thrown.below(40) as usize } else { (number * 7 + 1) % 9 };
            number
        });
        let order: Vec<usize> = order.collect();
        // Every fifth branch is not taken, and others at random.
        let untaken = (0..length).map(|step| step % 5 == 0 || thrown.below(12) == 0).collect();
        let interrupts = (0..length).filter(|_| thrown.below(100) == 0).collect();
        Program { blocks, order, conditional, untaken, interrupts }
    }

    /// The executed blocks, with the address that follows each.
    pub fn each(&self) -> impl Iterator<Item = (&Block, VirtualAddress, bool)> {
        self.order.iter().enumerate().map(|(step, number)| {
            let next = self.order.get(step + 1).copied().unwrap_or(0);
            let untaken = self.conditional[*number] && self.untaken[step];
            let block = &self.blocks[*number];
            let next =
                if untaken { block.fall_through } else { self.blocks[next].template.address() };
            (block, next, self.interrupts.binary_search(&step).is_ok())
        })
    }

    pub fn instructions(&self) -> u64 {
        self.each().map(|(block, ..)| block.template.len() as u64).sum()
    }
}

/// Runs a program on the core of a model, and checks the properties of any core.
pub fn play(model: &CoreModel, program: &Program, far_cycles: u64) -> CoreCounts {
    let mut waits = Waits { fetch_cycles: far_cycles / 4, ..Waits::far(far_cycles) };
    let counts = match AnyCore::new(model, 64) {
        Some(mut core) => {
            for (block, next, interrupted) in program.each() {
                core.play(block, next, &mut waits);
                if interrupted {
                    core.interrupt();
                }
                closed(core.counts(), model);
            }
            core.counts()
        }
        None => play_threads(model, program, &mut waits),
    };
    assert_eq!(counts.instructions, program.instructions());
    assert!(counts.instructions <= counts.cycles * u64::from(model.width));
    counts
}

/// Runs a program on one of the threads, with all others idle.
fn play_threads(model: &CoreModel, program: &Program, waits: &mut Waits) -> CoreCounts {
    let mut core = machine::core::MultithreadedCore::new(model).expect("some sort of core");
    for (block, next, interrupted) in program.each() {
        let instructions = block.template.len() as u32;
        let executed = ExecutedBlock { instructions, accesses: &block.accesses, next };
        core.run(0, &block.template, &executed, waits);
        if interrupted {
            core.interrupt(0);
        }
    }
    core.drain();
    closed(core.counts(0), model)
}

pub fn program(model: &CoreModel, seed: u64, length: usize) -> Program {
    Program::new(seed, layout(model), length)
}
