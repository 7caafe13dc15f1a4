//! Streams, and a memory with fixed waits, so that cycles can be computed by hand.

use machine::core::{
    Access, AccessMode, CoreCounts, CoreModel, ExecutedBlock, Instruction, Layout, Memory,
    OutOfOrderCore, Register, SingleThreadCore, Template, Unit,
};
use machine::predict::BranchKind;
use machine::{CodeSpan, Cycle, PhysicalAddress, SystemModel, VirtualAddress};

/// The 1996 model of the paper.
pub const MXS: &str = include_str!("../../../../machines/r10000-1996.toml");

/// The core of a machine's file.
pub fn model(text: &str) -> CoreModel {
    let machine = SystemModel::parse(text).unwrap_or_else(|error| panic!("{error}"));
    machine.core.expect("each has one")
}

/// A four-wide core with latencies of one and limits that are out of reach: each contract changes
/// the parameter that it tests.
pub fn plain() -> CoreModel {
    let mut model = model(MXS);
    model.issue_width = Some(8);
    model.front.queue_entries = Some(64);
    model.front.btb_miss_cycles = 0;
    model.front.taken_ends_cycle = false;
    model.data.mshrs = 64;
    model.data.load_entries = Some(512);
    model.data.store_entries = 512;
    model.data.forward_cycles = Some(1);
    model.units.load.latency_cycles = 1;
    model.units.load.count = 4;
    model.units.store.count = 4;
    let window = model.window.as_mut().expect("it has one");
    window.reorder_entries = 512;
    window.scheduler_entries = 512;
    window.unresolved_branches = None;
    window.stores_hold_retirement = false;
    model
}

/// Accesses to addresses from here on wait.
pub const FAR: u64 = 1 << 30;

/// A memory with lines of 64 bytes: the first access to a line from [`FAR`] on waits `far_cycles`,
/// the first fetch of a line waits `fetch_cycles`, and nothing else waits.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    pub far_cycles: u64,
    pub fetch_cycles: u64,
    pub known: std::collections::HashSet<u64>,
}

impl Waits {
    pub fn far(far_cycles: u64) -> Waits {
        Waits { far_cycles, ..Waits::default() }
    }

    fn data(&mut self, access: &Access) -> u64 {
        let new = self.known.insert(access.virtual_address.block_number(6));
        if new && access.virtual_address >= VirtualAddress(FAR) { self.far_cycles } else { 0 }
    }
}

impl Memory for Waits {
    fn fetch(&mut self, virtual_address: VirtualAddress, _: PhysicalAddress, _: Cycle) -> u64 {
        if self.known.insert(virtual_address.block_number(6)) { self.fetch_cycles } else { 0 }
    }

    fn look_up_fetch(&mut self, virtual_address: VirtualAddress, _: PhysicalAddress) {
        self.known.insert(virtual_address.block_number(6));
    }

    fn look_up(&mut self, access: &Access, _: AccessMode) {
        self.data(access);
    }

    fn access(&mut self, access: &Access, _: AccessMode, _: Cycle) -> u64 {
        self.data(access)
    }
}

/// An instruction with the address that it accesses, if it does.
pub type Step = (Instruction, Option<u64>);

pub fn register(number: u64) -> Register {
    Register::general((number % 16) as u8)
}

/// `to = to + from`, executed by a unit.
pub fn operation(unit: Unit, to: u64, from: u64) -> Step {
    let (to, from) = (register(to), register(from));
    (Instruction::of_unit(unit).reading(&[to, from]).writing(&[to]), None)
}

pub fn add(to: u64, from: u64) -> Step {
    operation(Unit::Integer, to, from)
}

/// `to = from`: no addition, so that nothing depends on `to`.
pub fn set(to: u64) -> Step {
    (Instruction::of_unit(Unit::Integer).writing(&[register(to)]), None)
}

pub fn load(to: u64, from: u64, address: u64) -> Step {
    let to = [register(to)];
    (Instruction::nothing(4).loading(&[register(from)]).writing(&to), Some(address))
}

pub fn store(to: u64, from: u64, address: u64) -> Step {
    (Instruction::nothing(4).storing(&[register(to)]).reading(&[register(from)]), Some(address))
}

/// An instruction that increments a value in memory.
pub fn increment(address_from: u64) -> Instruction {
    let address_from = [register(address_from)];
    Instruction::of_unit(Unit::Integer).loading(&address_from).storing(&address_from)
}

/// An instruction that adds a value in memory to register `to`.
pub fn add_from_memory(to: u64, address_from: u64) -> Instruction {
    let to = [register(to)];
    Instruction::of_unit(Unit::Integer).loading(&[register(address_from)]).reading(&to).writing(&to)
}

/// An instruction that copies a value from memory to memory.
pub fn copy_in_memory() -> Instruction {
    Instruction::nothing(4).loading(&[register(6)]).storing(&[register(7)])
}

/// An access of 8 bytes by instruction 0 of a block.
pub fn access(address: u64, write: bool) -> Access {
    Access {
        virtual_address: VirtualAddress(address),
        physical: Some(PhysicalAddress(address)),
        instruction: 0,
        bytes: 8,
        write,
    }
}

/// Blocks of one instruction each, which loads from the first address of its pair and stores to the second.
pub fn blocks_of(
    layout: Layout,
    instruction: Instruction,
    addresses: impl Iterator<Item = (Option<u64>, Option<u64>)>,
) -> Vec<Block> {
    let one_block = |(loaded, stored): (Option<u64>, Option<u64>)| {
        let mut block = block(layout, 0x40_0000, &[(instruction, None)]);
        let loads = loaded.map(|address| access(address, false));
        let stores = stored.map(|address| access(address, true));
        block.accesses = loads.into_iter().chain(stores).collect();
        block
    };
    addresses.map(one_block).collect()
}

/// A conditional branch that reads `register`.
pub fn branch(on: u64) -> Step {
    let branch = Instruction::of_unit(Unit::Branch).branching(BranchKind::Conditional);
    (branch.reading(&[register(on)]), None)
}

/// Steps as a block at an address.
pub struct Block {
    pub template: Template,
    pub accesses: Vec<Access>,
    pub fall_through: VirtualAddress,
}

/// Code whose physical addresses equal its virtual ones.
pub fn span(address: u64, bytes: u32) -> CodeSpan {
    CodeSpan { virtual_address: VirtualAddress(address), physical: PhysicalAddress(address), bytes }
}

pub fn block(layout: Layout, address: u64, steps: &[Step]) -> Block {
    let instructions: Vec<Instruction> =
        steps.iter().map(|(instruction, _)| *instruction).collect();
    let bytes = 4 * instructions.len() as u32;
    let span = span(address, bytes);
    let access = |(index, (instruction, address)): (usize, &Step)| {
        address.map(|address| Access {
            virtual_address: VirtualAddress(address),
            physical: Some(PhysicalAddress(address)),
            instruction: index as u16,
            bytes: 8,
            write: instruction.stores(),
        })
    };
    let address = span.virtual_address;
    Block {
        template: Template::new(layout, (span, None), &instructions, Some(address)),
        accesses: steps.iter().enumerate().filter_map(access).collect(),
        fall_through: address.plus(bytes.into()),
    }
}

pub fn layout(model: &CoreModel) -> Layout {
    model.layout(64)
}

pub trait Core {
    fn play(&mut self, block: &Block, next: VirtualAddress, waits: &mut Waits);
    fn counted(&self) -> CoreCounts;
}

impl<C: SingleThreadCore> Core for C {
    fn play(&mut self, block: &Block, next: VirtualAddress, waits: &mut Waits) {
        let instructions = block.template.len() as u32;
        let executed = ExecutedBlock { instructions, accesses: &block.accesses, next };
        self.run(&block.template, &executed, waits);
    }

    fn counted(&self) -> CoreCounts {
        self.counts()
    }
}

pub fn out_of_order(model: &CoreModel) -> OutOfOrderCore {
    assert_eq!(model.check("core"), Ok(()));
    OutOfOrderCore::new(model, 64).expect("it has a window")
}

/// Runs `steps` once on an out-of-order core, in consecutive blocks of up to 32.
pub fn run(model: &CoreModel, steps: &[Step], waits: &mut Waits) -> CoreCounts {
    let mut core = out_of_order(model);
    run_on(&mut core, layout(model), steps, waits);
    closed(core.counted(), model)
}

pub fn run_on(core: &mut impl Core, layout: Layout, steps: &[Step], waits: &mut Waits) {
    for (number, steps) in steps.chunks(32).enumerate() {
        let block = block(layout, 0x40_0000 + 128 * number as u64, steps);
        let next = block.fall_through;
        core.play(&block, next, waits);
    }
}

/// Returns the counts, after checking that the slots add up.
pub fn closed(counts: CoreCounts, model: &CoreModel) -> CoreCounts {
    assert_eq!(counts.slots(), counts.cycles * u64::from(model.width), "{counts:?}");
    counts
}
