//! A pointer chase on a model: the latency of a chain of dependent loads. `cargo xtask bench chase` compares it with
//! the latency on the host.

use super::instruction::{Instruction, Layout, Register, Template};
use super::single_thread::{AnyCore, SingleThreadCore};
use super::{Access, ExecutedBlock};
use crate::CodeSpan;
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::memory::{MemoryPort, MemorySystem, PageSize, without_mshr_limit};
use crate::system_model::SystemModel;

/// Loads in a block of the chain.
const BLOCK_LOADS: usize = 32;
/// The address of the block's code.
const CODE: VirtualAddress = VirtualAddress(0x40_0000);

/// The cycles of a chain of dependent loads from `addresses` in their order. The chain runs `warm` times first, to
/// fill the caches, and is then measured once. Virtual addresses equal physical ones, in pages of `page`. `None` if
/// the model has no core, or a core that threads share.
#[must_use]
pub fn chase_cycles(
    model: &SystemModel,
    addresses: &[u64],
    page: PageSize,
    warm: u32,
) -> Option<u64> {
    let core_model = model.core.as_ref()?;
    let mut core = AnyCore::new(core_model, model.l1d.line_bytes)?;
    let layout = core_model.layout(model.l1i.line_bytes);
    let mut system = MemorySystem::new(&without_mshr_limit(model), 1);
    let mut port = MemoryPort { system: &mut system, cpu: 0, code: None, pc: CODE, page };
    let block = loads(layout);
    let mut before = 0;
    for round in 0..=warm {
        if round == warm {
            before = core.cycles();
        }
        for part in addresses.chunks(BLOCK_LOADS) {
            let accesses: Vec<Access> = part.iter().enumerate().map(access).collect();
            let instructions = part.len() as u32;
            let executed = ExecutedBlock { instructions, accesses: &accesses, next: CODE };
            core.run(&block, &executed, &mut port);
        }
    }
    Some(core.cycles() - before)
}

/// A block of loads. Each load reads the register that the previous load wrote.
fn loads(layout: Layout) -> Template {
    let register = [Register::general(0)];
    let load = Instruction::nothing(4).loading(&register).writing(&register);
    let physical = PhysicalAddress(CODE.0);
    let code = CodeSpan { virtual_address: CODE, physical, bytes: 4 * BLOCK_LOADS as u32 };
    Template::new(layout, (code, None), &[load; BLOCK_LOADS], None)
}

fn access((instruction, address): (usize, &u64)) -> Access {
    Access {
        virtual_address: VirtualAddress(*address),
        physical: Some(PhysicalAddress(*address)),
        instruction: instruction as u16,
        bytes: 8,
        write: false,
    }
}
