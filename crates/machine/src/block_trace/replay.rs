//! Executes a block trace again on a core and its memory, without QEMU. Used by the example `replay` and by tests.

use super::{BlockCode, BlockRun, TraceEntry};
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::core::{
    Access, AnyCore, CoreCounts, CoreModel, ExecutedBlock, Instruction, Layout, MultithreadedCore,
    SingleThreadCore, Template,
};
use crate::decode::Decoder;
use crate::memory::{
    CpuCounts, GlobalPages, LinuxPort, MemoryPort, MemorySystem, PageSize, TlbFlush,
    without_mshr_limit,
};
use crate::{CodeSpan, Instructions, SystemModel};

/// A trace, decoded for cores of one layout.
#[derive(Clone, Debug, Default)]
pub struct RecordedBlocks {
    blocks: Vec<Template>,
    steps: Vec<Step>,
    /// The accesses of all steps, in their order.
    accesses: Vec<Access>,
    instructions: Instructions,
}

#[derive(Clone, Copy, Debug)]
pub struct TraceSizes {
    /// Number of different blocks.
    pub blocks: usize,
    /// Executed instructions.
    pub instructions: Instructions,
    /// Accesses of the executed instructions.
    pub accesses: usize,
}

/// A step of a replay: a [`TraceEntry`] without code.
#[derive(Clone, Debug)]
enum Step {
    /// The accesses of the run are all accesses of the trace before `accesses_end` that no earlier run has.
    Run {
        block: u32,
        first: u32,
        instructions: u32,
        next: VirtualAddress,
        accesses_end: usize,
    },
    Interrupt,
    Flush(TlbFlush),
    GlobalPages(GlobalPages),
    Space(u16, PhysicalAddress),
}

/// How a core executes a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// As at the level `ooo`.
    #[default]
    Detail,
    /// As between sampled units: an out-of-order core only updates caches and predictors, and each instruction that
    /// would use an issue slot takes a cycle. Other cores execute in detail.
    Warming,
    /// In detail, but without the fast paths of an out-of-order core. The times must be equal.
    Slow,
}

#[derive(Debug)]
enum Core {
    Single(AnyCore),
    Thread(Box<MultithreadedCore>),
}

impl Core {
    fn new(model: &CoreModel, line_bytes: u64) -> Option<Core> {
        match AnyCore::new(model, line_bytes) {
            Some(core) => Some(Core::Single(core)),
            None => MultithreadedCore::new(model).map(|core| Core::Thread(core.into())),
        }
    }

    fn flush_translations(&mut self) {
        match self {
            Core::Single(core) => core.flush_translations(),
            Core::Thread(core) => core.flush_translations(0),
        }
    }

    fn interrupt(&mut self) {
        match self {
            Core::Single(core) => core.interrupt(),
            Core::Thread(core) => core.interrupt(0),
        }
    }

    /// Executes a block from instruction `first` on. Returns the cycles of instructions that got no times: the core's
    /// clock does not include them.
    fn run(
        &mut self,
        (first, block): (usize, &Template),
        executed: &ExecutedBlock,
        port: &mut LinuxPort<'_>,
        way: Way,
    ) -> u64 {
        match self {
            Core::Single(AnyCore::OutOfOrder(core)) => match way {
                Way::Detail => core.run_from(first, block, executed, port),
                Way::Slow => core.run_slowly_from(first, block, executed, port),
                Way::Warming => {
                    return core.warm_from(first, block, executed, port).slots.into();
                }
            },
            Core::Single(core) => core.run_from(first, block, executed, port),
            Core::Thread(core) => core.run_from(0, (first, block), executed, port),
        }
        0
    }

    fn cycles(&self) -> u64 {
        match self {
            Core::Single(core) => core.cycles(),
            Core::Thread(core) => core.cycles(0),
        }
    }

    fn counts(&mut self) -> CoreCounts {
        match self {
            Core::Single(core) => core.counts(),
            Core::Thread(core) => {
                core.drain();
                core.counts(0)
            }
        }
    }
}

/// A machine with one processor, which executes traces.
#[derive(Debug)]
pub struct ReplayMachine {
    core: Core,
    system: MemorySystem,
}

impl ReplayMachine {
    /// Returns a machine of a model that has executed nothing. `None` if the model has no core.
    #[must_use]
    pub fn new(model: &SystemModel) -> Option<ReplayMachine> {
        let core = Core::new(model.core.as_ref()?, model.l1d.line_bytes)?;
        Some(ReplayMachine { core, system: MemorySystem::new(&without_mshr_limit(model), 1) })
    }

    /// The counts of the core and its memory since the start.
    pub fn counts(&mut self) -> (CoreCounts, CpuCounts) {
        (self.core.counts(), self.system.counts(0))
    }

    /// Executes a trace, which must be read for the layout of this model's core. Returns a hash (FNV) of the cycles
    /// after each block: two [`Way`]s that give all instructions equal times have equal hashes.
    #[inline(never)]
    pub fn execute(&mut self, trace: &RecordedBlocks, way: Way) -> u64 {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let (mut accesses_start, mut skew_cycles) = (0, 0);
        let ReplayMachine { core, system } = self;
        for step in &trace.steps {
            match step {
                Step::Run { block, first, instructions, next, accesses_end } => {
                    let Some(block) = trace.blocks.get(*block as usize) else { continue };
                    let accesses = &trace.accesses[accesses_start..*accesses_end];
                    accesses_start = *accesses_end;
                    let executed =
                        ExecutedBlock { instructions: *instructions, accesses, next: *next };
                    let page = PageSize::Small;
                    let port = MemoryPort {
                        system,
                        cpu: 0,
                        code: Some(block),
                        pc: VirtualAddress::default(),
                        page,
                    };
                    let mut port = LinuxPort { port, skew_cycles };
                    skew_cycles += core.run((*first as usize, block), &executed, &mut port, way);
                    hash = (hash ^ (core.cycles() + skew_cycles)).wrapping_mul(0x100_0000_01b3);
                }
                Step::Interrupt => core.interrupt(),
                Step::Flush(flush) => {
                    core.flush_translations();
                    system.flush_tlbs(0, *flush);
                }
                Step::GlobalPages(pages) => {
                    core.flush_translations();
                    system.set_global_pages(0, *pages);
                }
                Step::Space(space, page_tables) => {
                    core.flush_translations();
                    system.set_address_space(0, *space, *page_tables);
                }
            }
        }
        hash
    }
}

/// Physical addresses in a trace are below this value. They have at most 52 bits (Intel SDM, volume 3, 5.1.4); the last
/// page is excluded, so that no access wraps.
const PHYSICAL_END: PhysicalAddress = PhysicalAddress((1 << 52) - 4_096);
/// Maximum bytes of a block.
const BLOCK_BYTES_MAX: u32 = 2 * 4_096;
/// Maximum bytes of an access.
const ACCESS_BYTES_MAX: u8 = 64;
/// Maximum bytes of an instruction (Intel SDM, volume 2, 2.3.11).
const INSTRUCTION_BYTES_MAX: usize = 15;

/// Whether a processor can execute a block with this code: addresses and lengths are in range. Rejects damaged traces.
fn is_valid_code(code: &BlockCode) -> bool {
    let is_span = |span: &CodeSpan| span.physical < PHYSICAL_END && span.bytes <= BLOCK_BYTES_MAX;
    let lengths = code.instructions.iter().map(Vec::len);
    is_span(&code.spans.0)
        && code.spans.1.as_ref().is_none_or(is_span)
        && !code.instructions.is_empty()
        && lengths.clone().all(|length| (1..=INSTRUCTION_BYTES_MAX).contains(&length))
        && lengths.sum::<usize>() <= BLOCK_BYTES_MAX as usize
}

impl RecordedBlocks {
    /// Whether a processor can execute `run`: it names a known block, and its accesses are in range and in the order of
    /// the block's instructions. Rejects damaged traces.
    fn is_valid_run(&self, run: &BlockRun) -> bool {
        let Some(block) = self.blocks.get(run.block as usize) else { return false };
        let is_access = |access: &Access| {
            (1..=ACCESS_BYTES_MAX).contains(&access.bytes)
                && access.physical.is_none_or(|physical| physical < PHYSICAL_END)
                && u32::from(access.instruction) < run.instructions
        };
        run.first < run.instructions
            && run.instructions as usize <= block.len()
            && run.accesses.iter().all(is_access)
            && run.accesses.is_sorted_by_key(|access| access.instruction)
    }

    /// Reads a trace for cores of this [layout](CoreModel::layout). Stops at an entry that is cut, or that
    /// no processor can execute.
    #[must_use]
    pub fn read(mut bytes: &[u8], layout: Layout) -> RecordedBlocks {
        let (mut trace, mut decoder) = (RecordedBlocks::default(), Decoder::default());
        while let Some(entry) = TraceEntry::read(&mut bytes) {
            trace.steps.push(match entry {
                TraceEntry::Code(code) if !is_valid_code(&code) => break,
                TraceEntry::Run(run) if !trace.is_valid_run(&run) => break,
                TraceEntry::Code(code) => {
                    trace.blocks.push(template(&mut decoder, layout, &code));
                    continue;
                }
                TraceEntry::Run(run) => {
                    trace.accesses.extend(&run.accesses);
                    trace.instructions += Instructions::from(run.instructions - run.first);
                    Step::Run {
                        block: run.block,
                        first: run.first,
                        instructions: run.instructions,
                        next: run.next,
                        accesses_end: trace.accesses.len(),
                    }
                }
                TraceEntry::Interrupt => Step::Interrupt,
                TraceEntry::Flush(flush) => Step::Flush(flush),
                TraceEntry::GlobalPages(pages) => Step::GlobalPages(pages),
                TraceEntry::Space { pcid, page_tables } => Step::Space(pcid, page_tables),
            });
        }
        trace
    }

    #[must_use]
    pub fn sizes(&self) -> TraceSizes {
        TraceSizes {
            blocks: self.blocks.len(),
            instructions: self.instructions,
            accesses: self.accesses.len(),
        }
    }
}

/// Decodes a block for a layout.
fn template(decoder: &mut Decoder, layout: Layout, code: &BlockCode) -> Template {
    let (mut target, mut address) = (None, code.spans.0.virtual_address);
    let mut decode = |bytes: &Vec<u8>| {
        let decoded = decoder.decode(bytes, address);
        address = address.plus(bytes.len() as u64);
        target = decoded.target();
        decoder.core_instruction(&decoded).with_bytes(bytes.len() as u8)
    };
    let instructions: Vec<Instruction> = code.instructions.iter().map(&mut decode).collect();
    Template::new(layout, code.spans, &instructions, target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block of a load, a store and a jump back to it, and how it runs.
    fn trace() -> Vec<u8> {
        let virtual_address = VirtualAddress(0x40_0000);
        let physical = PhysicalAddress(0x7000);
        let spans = (CodeSpan { virtual_address, physical, bytes: 8 }, None);
        let instructions = vec![vec![0x48, 0x8b, 0x07], vec![0x48, 0x89, 0x06], vec![0xeb, 0xf8]];
        let access = |instruction, write| Access {
            virtual_address: VirtualAddress(0x7fff_0000),
            physical: Some(PhysicalAddress(0x9000)),
            instruction,
            bytes: 8,
            write,
        };
        let accesses = vec![access(0, false), access(1, true)];
        let run = BlockRun { block: 0, first: 0, instructions: 3, next: virtual_address, accesses };
        let mut bytes = Vec::new();
        TraceEntry::Code(BlockCode { spans, instructions }).write(&mut bytes);
        for _ in 0..3 {
            TraceEntry::Run(run.clone()).write(&mut bytes);
            TraceEntry::Interrupt.write(&mut bytes);
            TraceEntry::Flush(TlbFlush::All).write(&mut bytes);
        }
        bytes
    }

    fn executed(bytes: &[u8], way: Way) -> (u64, u64) {
        let model = include_str!("../../../../machines/zen3.toml");
        let model = SystemModel::parse(model).expect("a model");
        let layout = model.core.as_ref().expect("a core").layout(model.l1i.line_bytes);
        let trace = RecordedBlocks::read(bytes, layout);
        let mut machine = ReplayMachine::new(&model).expect("a core");
        (machine.execute(&trace, way), trace.sizes().instructions.0)
    }

    #[test]
    fn all_of_a_trace_is_executed() {
        let (hash, instructions) = executed(&trace(), Way::Detail);
        assert_eq!(instructions, 9);
        assert_eq!(hash, executed(&trace(), Way::Slow).0);
        // The last run is cut.
        assert_eq!(executed(&trace()[..trace().len() - 60], Way::Detail).1, 6);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn a_damaged_trace_is_executed_up_to_the_damage(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = trace();
            for (position, value) in changes {
                let position = position.index(bytes.len());
                bytes[position] = value;
            }
            prop_assert_eq!(executed(&bytes, Way::Detail), executed(&bytes, Way::Slow));
        }
    }
}
