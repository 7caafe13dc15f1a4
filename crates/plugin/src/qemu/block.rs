//! Descriptions of translated blocks and instructions. `translate.rs` prepares them once; callbacks read them on each
//! execution, by the addresses that the arena gives them. The arena keeps them until QEMU has dropped the translated
//! code.

use std::any::Any;

use machine::core::Template;
use machine::{CodeBlock, CodeSpan, VirtualAddress};

use plugin_interface::symbols::Action;

/// The description of a block. Its size must stay one cache line of the host: each execution reads it, and there are
/// more blocks than the host's caches hold.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Block {
    /// The address of the first instruction.
    pub(crate) address: VirtualAddress,
    /// The lines of the code, for the model of the level `timed`. Empty without such a model.
    pub(crate) code: CodeBlock,
    /// The number of instructions.
    pub(crate) length: u16,
    /// Whether the block is code of the kernel.
    pub(crate) in_kernel: bool,
    /// Whether the last instruction is a branch.
    pub(crate) ends_in_branch: bool,
    /// Whether the last instruction is a software interrupt. It counts as executed although it raises an exception at
    /// its own address.
    pub(crate) ends_in_trap: bool,
    /// Whether an instruction of the block may affect other vCPUs or devices otherwise than by a store.
    pub(crate) acts_outside: bool,
    /// The starts of the instructions. Needed only when a vCPU leaves the block early, so they are outside of the line.
    starts: Box<Starts>,
}

const _: () = assert!(size_of::<Block>() == 64);

/// The start of each instruction, in bytes from the start of the block.
#[derive(Debug)]
struct Starts(Box<[u16]>);

impl Block {
    /// A block of the instructions at `addresses`, in ascending order. A block spans at most two pages, so offsets and
    /// numbers of instructions fit 16 bits.
    pub(crate) fn new(
        addresses: &[VirtualAddress],
        properties: BlockProperties,
        code: CodeBlock,
    ) -> Block {
        let address = addresses.first().copied().unwrap_or_default();
        let offset =
            |start: &VirtualAddress| u16::try_from(start.bytes_after(address)).unwrap_or(u16::MAX);
        Block {
            address,
            length: u16::try_from(addresses.len()).expect("instructions of two pages"),
            in_kernel: properties.in_kernel,
            ends_in_branch: properties.ends_in_branch,
            ends_in_trap: properties.ends_in_trap,
            acts_outside: properties.acts_outside,
            code,
            starts: Box::new(Starts(addresses.iter().map(offset).collect())),
        }
    }

    /// The number of the instruction at `address`, from 0. `None` if no instruction of the block starts there.
    pub(crate) fn index_of(&self, address: VirtualAddress) -> Option<u32> {
        let offset = u16::try_from(address.bytes_after(self.address)).ok()?;
        self.starts.0.binary_search(&offset).ok().map(|index| index as u32)
    }

    /// The number of instructions.
    pub(crate) fn length(&self) -> u32 {
        self.length.into()
    }
}

/// The description of a block at the level `ooo`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct OooBlock {
    /// Must come first: callbacks use the address of this field as the address of the whole description.
    pub(crate) description: Block,
    /// The block as the core sees it.
    pub(crate) template: Template,
}

/// The description of a block for shadow caches.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ShadowBlock {
    /// Must come first: see [`OooBlock`].
    pub(crate) description: Block,
    /// The block's code in each of the one or two pages that it covers.
    pub(crate) spans: (CodeSpan, Option<CodeSpan>),
}

/// Properties of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockProperties {
    /// See [`Block::in_kernel`].
    pub(crate) in_kernel: bool,
    /// See [`Block::ends_in_branch`].
    pub(crate) ends_in_branch: bool,
    /// See [`Block::ends_in_trap`].
    pub(crate) ends_in_trap: bool,
    /// See [`Block::acts_outside`].
    pub(crate) acts_outside: bool,
}

/// An instruction of a block at which the plugin acts.
#[derive(Debug)]
pub(crate) struct ActionPoint {
    /// The plugin takes this action before the instruction executes.
    pub(crate) action: Action,
    pub(crate) address: VirtualAddress,
    /// How many instructions of the block are still to execute, this one included.
    pub(crate) remaining: u32,
}

/// The number of descriptions per allocation: 8 MiB of addresses for [`Block`]. The host provides memory at first use.
const CHUNK_BLOCKS: usize = 1 << 17;

/// Memory for descriptions, in large pages if the host has them. With small pages the host's TLB would miss at most
/// blocks.
fn chunk<B>() -> Vec<B> {
    let chunk = Vec::with_capacity(CHUNK_BLOCKS);
    let bytes = CHUNK_BLOCKS * size_of::<B>();
    let start = chunk.as_ptr() as usize;
    let (first, end) = (start.next_multiple_of(HOST_PAGE), (start + bytes) & !(HOST_PAGE - 1));
    // SAFETY: whole pages of this vector's memory. The advice changes no data, and may be refused without harm.
    unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
    chunk
}

/// The size of the host's small pages, in bytes.
const HOST_PAGE: usize = 4_096;

/// Keeps descriptions at fixed addresses until QEMU flushes its cache of translated code, which refers to them. QEMU
/// limits the size of that cache, which also limits the size of the arena.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    /// Chunks of blocks in the order of translation. Blocks execute in about the same order.
    blocks: Vec<Vec<Block>>,
    templates: Vec<Vec<OooBlock>>,
    shadow_blocks: Vec<Vec<ShadowBlock>>,
    /// Descriptions of single instructions. Boxes keep their address when the vector grows.
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

    /// Drops all descriptions. QEMU must have dropped all translated code before.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.templates.clear();
        self.shadow_blocks.clear();
        self.instructions.clear();
    }
}

/// Appends a description, and returns its address.
fn keep<B>(chunks: &mut Vec<Vec<B>>, description: B) -> *const B {
    if chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_BLOCKS) {
        chunks.push(chunk());
    }
    let Some(chunk) = chunks.last_mut() else { return std::ptr::null() };
    // The chunk has room, so earlier descriptions keep their addresses.
    chunk.push(description);
    chunk.last().map_or(std::ptr::null(), std::ptr::from_ref)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(addresses: &[u64]) -> Block {
        let addresses: Vec<_> = addresses.iter().copied().map(VirtualAddress).collect();
        Block::new(&addresses, BlockProperties::default(), CodeBlock::default())
    }

    #[test]
    fn instructions_are_found_by_their_first_byte_only() {
        let block = block(&[0x1000, 0x1003, 0x1004, 0x1100]);
        assert_eq!(block.index_of(VirtualAddress(0x1000)), Some(0));
        assert_eq!(block.index_of(VirtualAddress(0x1100)), Some(3));
        for elsewhere in [0xfff, 0x1001, 0x1101, 0, u64::MAX, 0x1_1000] {
            assert_eq!(block.index_of(VirtualAddress(elsewhere)), None, "{elsewhere:#x}");
        }
    }

    #[test]
    fn kept_blocks_stay_where_they_are() {
        let mut arena = Arena::default();
        let count = CHUNK_BLOCKS as u64 + 1;
        let kept: Vec<*const Block> =
            (0..count).map(|address| arena.keep_block(block(&[address]))).collect();
        for (address, kept) in (0..count).zip(kept) {
            assert!(kept.is_aligned());
            // SAFETY: the arena keeps it.
            assert_eq!(unsafe { (*kept).address }, VirtualAddress(address));
        }
    }

    #[test]
    fn an_empty_block_has_no_instruction() {
        assert_eq!(block(&[]).index_of(VirtualAddress(0)), None);
    }
}
