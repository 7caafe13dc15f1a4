//! A pointer chase on a model: the latency of a chain of dependent loads.

use super::ExecutedBlock;
use super::in_order::InOrderCore;
use super::instruction::{Instruction, Register};
use super::instruction::{Layout, Template};
use super::out_of_order::OutOfOrderCore;
use super::{Access, Memory};
use crate::CodeSpan;
use crate::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};
use crate::system_model::SystemModel;

/// Loads in a block of the chain.
const BLOCK: usize = 32;
/// The address of its code.
const CODE: u64 = 0x40_0000;

enum Core {
    OutOfOrder(Box<OutOfOrderCore>),
    InOrder(Box<InOrderCore>),
}

impl Core {
    fn new(model: &SystemModel) -> Option<Core> {
        let core = model.core.as_ref()?;
        let line_bytes = model.l1d.cache.line_bytes;
        let window =
            OutOfOrderCore::new(core, line_bytes).map(|core| Core::OutOfOrder(Box::new(core)));
        window.or_else(|| Some(Core::InOrder(Box::new(InOrderCore::new(core, line_bytes)?))))
    }

    fn run<M: Memory>(&mut self, block: &Template, executed: &ExecutedBlock, memory: &mut M) {
        match self {
            Core::OutOfOrder(core) => core.run(block, executed, memory),
            Core::InOrder(core) => core.run(block, executed, memory),
        }
    }

    fn cycles(&self) -> u64 {
        match self {
            Core::OutOfOrder(core) => core.cycles(),
            Core::InOrder(core) => core.cycles(),
        }
    }
}

/// The cycles of a chain of dependent loads from `addresses` in their order, in the round after
/// `warm` rounds. Virtual addresses equal physical ones, in pages of `page`. The whole model takes
/// part, with its prefetchers. Absent if the model has no core, or one that threads share.
#[must_use]
pub fn chase_cycles(
    model: &SystemModel,
    addresses: &[u64],
    page: PageSize,
    warm: u32,
) -> Option<u64> {
    let mut core = Core::new(model)?;
    let layout = model.core.as_ref()?.layout(model.l1i.cache.line_bytes);
    let mut system = MemorySystem::new(&without_mshr_limit(model), 1);
    let mut port = MemoryPort { system: &mut system, cpu: 0, code: None, pc: CODE, page };
    let block = loads(layout);
    let mut before = 0;
    for round in 0..=warm {
        if round == warm {
            before = core.cycles();
        }
        for part in addresses.chunks(BLOCK) {
            let accesses: Vec<Access> = part.iter().enumerate().map(access).collect();
            let instructions = part.len() as u32;
            let executed = ExecutedBlock { instructions, accesses: &accesses, next: CODE };
            core.run(&block, &executed, &mut port);
        }
    }
    Some(core.cycles() - before)
}

fn loads(layout: Layout) -> Template {
    let register = [Register::general(0)];
    let load = Instruction::nothing(4).loading(&register).writing(&register);
    let code = CodeSpan { virtual_address: CODE, physical: CODE, bytes: 4 * BLOCK as u32 };
    Template::new(layout, (code, None), &[load; BLOCK], None)
}

fn access((instruction, address): (usize, &u64)) -> Access {
    Access {
        virtual_address: *address,
        physical: Some(*address),
        instruction: instruction as u16,
        bytes: 8,
        write: false,
    }
}
