//! Descriptions of translated blocks, prepared once and read on each execution.

use std::any::Any;

use machine::core::Template;
use machine::{CodeBlock, CodeSpan};

use crate::guest::symbols::Action;

/// The description of a block. It fits one cache line of the host: each execution reads it, and
/// there are more blocks than the host's cache holds.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Block {
    /// Address of the first instruction.
    pub(crate) address: u64,
    /// The model's view of the code; without a model it has no lines.
    pub(crate) code: CodeBlock,
    /// How many instructions it has.
    pub(crate) length: u16,
    /// Whether it is the kernel's.
    pub(crate) in_kernel: bool,
    /// Whether its last instruction is a branch.
    pub(crate) ends_in_branch: bool,
    /// Whether its last instruction is a software interrupt, which is executed although it ends in
    /// an exception at its own address.
    pub(crate) ends_in_trap: bool,
    /// Whether an instruction of the block may reach other vCPUs or devices in another way than by a store.
    pub(crate) acts_outside: bool,
    /// Needed when the block is left early.
    starts: Box<Starts>,
}

const _: () = assert!(size_of::<Block>() == 64);

/// Where each instruction starts, in bytes from the first.
#[derive(Debug)]
struct Starts(Box<[u16]>);

impl Block {
    /// A block of the instructions at `addresses`, which don't decrease. A block spans two pages at
    /// most, so offsets and numbers of instructions fit.
    pub(crate) fn new(addresses: &[u64], kind: Kind, code: CodeBlock) -> Block {
        let address = addresses.first().copied().unwrap_or(0);
        let offset = |at: &u64| u16::try_from(at.wrapping_sub(address)).unwrap_or(u16::MAX);
        Block {
            address,
            length: u16::try_from(addresses.len()).expect("instructions of two pages"),
            in_kernel: kind.in_kernel,
            ends_in_branch: kind.ends_in_branch,
            ends_in_trap: kind.ends_in_trap,
            acts_outside: kind.acts_outside,
            code,
            starts: Box::new(Starts(addresses.iter().map(offset).collect())),
        }
    }

    /// The number of the instruction at `address`.
    pub(crate) fn index_of(&self, address: u64) -> Option<u32> {
        let offset = u16::try_from(address.wrapping_sub(self.address)).ok()?;
        self.starts.0.binary_search(&offset).ok().map(|index| index as u32)
    }

    /// How many instructions it has.
    pub(crate) fn length(&self) -> u32 {
        self.length.into()
    }
}

/// The description of a block at the level `ooo`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct OooBlock {
    /// Comes first, so that its address is that of the whole.
    pub(crate) known: Block,
    /// The block as the core sees it.
    pub(crate) template: Template,
}

/// The description of a block for shadow caches.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ShadowBlock {
    /// As in [`OooBlock`].
    pub(crate) known: Block,
    /// The one or two pages that it lies in.
    pub(crate) spans: (CodeSpan, Option<CodeSpan>),
}

/// Properties of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    /// See [`Block::in_kernel`].
    pub(crate) in_kernel: bool,
    /// See [`Block::ends_in_branch`].
    pub(crate) ends_in_branch: bool,
    /// See [`Block::ends_in_trap`].
    pub(crate) ends_in_trap: bool,
    /// See [`Block::acts_outside`].
    pub(crate) acts_outside: bool,
}

/// An annotated instruction of a block.
#[derive(Debug)]
pub(crate) struct Point {
    /// The action before the instruction executes.
    pub(crate) action: Action,
    pub(crate) address: u64,
    /// How many instructions of the block, with itself, are still to execute.
    pub(crate) remaining: u32,
}

impl Point {
    /// How many instructions of the block are still to execute in the context after this point. A
    /// return belongs to the context that it leaves.
    pub(crate) fn remaining_after(&self) -> u32 {
        self.remaining - u32::from(self.action.is_return())
    }
}

/// Blocks that are allocated at once: 8 MiB of addresses, which the host backs when they are used.
const CHUNK: usize = 1 << 17;

/// Room for blocks, in large pages where the host has them: it would miss its TLB at most blocks.
fn chunk<B>() -> Vec<B> {
    let chunk = Vec::with_capacity(CHUNK);
    let bytes = CHUNK * size_of::<B>();
    let start = chunk.as_ptr() as usize;
    let (first, end) = (start.next_multiple_of(HOST_PAGE), (start + bytes) & !(HOST_PAGE - 1));
    // SAFETY: whole pages of memory that is this vector's. The advice changes none of it; if it is
    // refused nothing is lost.
    unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
    chunk
}

/// Pages of the host, bytes.
const HOST_PAGE: usize = 4_096;

/// Keeps descriptions at addresses that don't change while translated code refers to them, which
/// is until QEMU flushes its code cache. QEMU bounds that cache, and so this.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    /// Contiguous in chunks, in the order of translation, which is about that of execution.
    blocks: Vec<Vec<Block>>,
    templates: Vec<Vec<OooBlock>>,
    shadow_blocks: Vec<Vec<ShadowBlock>>,
    /// Descriptions of single instructions: the vector grows, the boxes stay where they are.
    instructions: Vec<Box<dyn Any>>,
}

impl Arena {
    /// Keeps a block, and returns its address.
    pub(crate) fn keep_block(&mut self, block: Block) -> *const Block {
        keep(&mut self.blocks, block)
    }

    /// Keeps a block with its template, and returns its address.
    pub(crate) fn keep_template(&mut self, block: OooBlock) -> *const OooBlock {
        keep(&mut self.templates, block)
    }

    /// Keeps a block with its spans, and returns its address.
    pub(crate) fn keep_spans(&mut self, block: ShadowBlock) -> *const ShadowBlock {
        keep(&mut self.shadow_blocks, block)
    }

    /// Keeps an instruction's description for its callback, and returns its address.
    pub(crate) fn keep_instruction<D: 'static>(&mut self, description: D) -> *const D {
        self.instructions.push(Box::new(description));
        let kept = self.instructions.last().and_then(|kept| kept.downcast_ref());
        kept.map_or(std::ptr::null(), std::ptr::from_ref)
    }

    /// Forgets all: no translated code is left.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.templates.clear();
        self.shadow_blocks.clear();
        self.instructions.clear();
    }
}

/// Appends something, and returns its address.
fn keep<B>(chunks: &mut Vec<Vec<B>>, one: B) -> *const B {
    if chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
        chunks.push(chunk());
    }
    let Some(chunk) = chunks.last_mut() else { return std::ptr::null() };
    // There is room, so that those before it stay where they are.
    chunk.push(one);
    chunk.last().map_or(std::ptr::null(), std::ptr::from_ref)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(addresses: &[u64]) -> Block {
        Block::new(addresses, Kind::default(), CodeBlock::default())
    }

    #[test]
    fn instructions_are_found_by_their_first_byte_only() {
        let block = block(&[0x1000, 0x1003, 0x1004, 0x1100]);
        assert_eq!(block.index_of(0x1000), Some(0));
        assert_eq!(block.index_of(0x1100), Some(3));
        for elsewhere in [0xfff, 0x1001, 0x1101, 0, u64::MAX, 0x1_1000] {
            assert_eq!(block.index_of(elsewhere), None, "{elsewhere:#x}");
        }
    }

    #[test]
    fn kept_blocks_stay_where_they_are() {
        let mut arena = Arena::default();
        let count = CHUNK as u64 + 1;
        let kept: Vec<*const Block> =
            (0..count).map(|address| arena.keep_block(block(&[address]))).collect();
        for (address, kept) in (0..count).zip(kept) {
            assert!(kept.is_aligned());
            // SAFETY: the arena keeps it.
            assert_eq!(unsafe { (*kept).address }, address);
        }
    }

    #[test]
    fn an_empty_block_has_no_instruction() {
        assert_eq!(block(&[]).index_of(0), None);
    }
}
