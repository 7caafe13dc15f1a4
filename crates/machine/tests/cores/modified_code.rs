//! Code that a program modifies: the core drops its decoded instructions, and fetches and decodes the new ones.

use std::ops::Range;

use machine::core::{
    AnyCore, CoreModel, ExecutedBlock, Memory, MultithreadedCore, SingleThreadCore, Template,
};
use machine::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};
use machine::{PhysicalAddress, SystemModel, VirtualAddress};

use crate::presets::ALL;
use crate::support::{block, set};

/// A core with one thread, or a core whose other threads are halted.
enum Core {
    Single(AnyCore),
    Threads(Box<MultithreadedCore>),
}

impl Core {
    fn new(model: &CoreModel) -> Option<Core> {
        if let Some(core) = AnyCore::new(model, 64) {
            return Some(Core::Single(core));
        }
        let mut core = MultithreadedCore::new(model)?;
        (1..core.threads()).for_each(|thread| core.set_halted(thread, true));
        Some(Core::Threads(Box::new(core)))
    }

    fn run(&mut self, block: &Template, executed: &ExecutedBlock, memory: &mut impl Memory) {
        match self {
            Core::Single(core) => core.run(block, executed, memory),
            Core::Threads(core) => core.run(0, block, executed, memory),
        }
    }

    fn forget_code(&mut self, code: Range<PhysicalAddress>) {
        match self {
            Core::Single(core) => core.forget_code(code),
            Core::Threads(core) => core.forget_code(code),
        }
    }

    fn cycles(&self) -> u64 {
        match self {
            Core::Single(core) => core.cycles(),
            Core::Threads(core) => core.cycles(0),
        }
    }
}

/// A processor with its caches, that executes one block.
struct Processor {
    system: MemorySystem,
    core: Core,
    line_bytes: u64,
    model: SystemModel,
}

impl Processor {
    fn new(text: &str) -> Processor {
        let model = SystemModel::parse(text).expect("a good model");
        let line_bytes = model.l1i.line_bytes;
        let core = model.core.as_ref().and_then(Core::new);
        Processor {
            system: MemorySystem::new(&without_mshr_limit(&model), 1),
            core: core.expect("a core"),
            line_bytes,
            model,
        }
    }

    /// Executes a block 100 times. Returns how often its code misses L1I, and how many cycles pass. `is_modified`:
    /// whether a store modifies the code before each execution.
    fn misses_and_cycles(&mut self, is_modified: bool) -> (u64, u64) {
        let layout = self.model.core.as_ref().expect("it has one").layout(self.line_bytes);
        let block = block(layout, 0x40_0000, &[set(0), set(1), set(2)]);
        let before = (self.system.counts(0).basic.l1i_misses, self.core.cycles());
        for _ in 0..100 {
            if is_modified {
                let code = PhysicalAddress(0x40_0004);
                self.core.forget_code(code..code.plus(1));
                self.system.code_written(0, code, 1);
            }
            let mut port = MemoryPort {
                system: &mut self.system,
                cpu: 0,
                code: Some(&block.template),
                pc: VirtualAddress::default(),
                page: PageSize::Small,
            };
            let executed =
                ExecutedBlock { instructions: 3, accesses: &[], next: block.template.address() };
            self.core.run(&block.template, &executed, &mut port);
        }
        let misses = self.system.counts(0).basic.l1i_misses - before.0;
        (misses, self.core.cycles() - before.1)
    }
}

#[test]
fn modified_code_is_fetched_again() {
    for (name, text) in ALL {
        let mut processor = Processor::new(text);
        processor.misses_and_cycles(false);
        let (misses, cycles) = processor.misses_and_cycles(false);
        assert_eq!(misses, 0, "{name}");
        let (modified_misses, modified_cycles) = processor.misses_and_cycles(true);
        assert_eq!(modified_misses, 100, "{name}");
        assert!(modified_cycles > cycles, "{name}: {modified_cycles} and {cycles}");
    }
}
