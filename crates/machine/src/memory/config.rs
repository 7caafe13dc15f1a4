//! The constants of a model that tags and times read at each access: a [`SystemModel`] with its
//! defaults filled in and its sizes as powers of two.

use super::coherence::CoherenceGranule;
use crate::address::{LineAddress, LineRange, PhysicalAddress, VirtualAddress};
use crate::system_model::{
    Dma, Index, LevelModel, Prefetch, Protocol, SystemModel, Walk, WritePolicy,
};
use crate::tag_array::SetIndex;

/// The constants of a model. A `_shift` is the logarithm of a size in bytes; latencies are in cycles.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) l1i_shift: u32,
    pub(super) l1d_shift: u32,
    pub(super) sub_block_shift: u32,
    pub(super) is_l1i_virtual: bool,
    pub(super) is_l1d_virtual: bool,
    pub(super) l1i_prefetch: Prefetch,
    pub(super) l1i_prefetch_distance: u64,
    pub(super) l1d_prefetch: Prefetch,
    pub(super) l1d_prefetch_distance: u64,
    /// Whether L1I is a trace cache: the address at which code enters a line identifies the line.
    pub(super) is_l1i_trace_cache: bool,
    pub(super) writes_through: bool,
    pub(super) allocates_on_write: bool,
    pub(super) l1_hit_cycles: u64,
    pub(super) stlb_hit_cycles: u64,
    /// For L2 and L3. 0 for a level that the machine does not have.
    pub(super) hit_cycles: [u64; 2],
    /// Whether walks load page table entries.
    pub(super) has_page_walks: bool,
    pub(super) tlb_miss_cycles: u64,
    pub(super) memory_cycles: u64,
    pub(super) memory_write_cycles: u64,
    pub(super) cache_to_cache_cycles: u64,
    pub(super) upgrade_cycles: u64,
    pub(super) device_read_cycles: u64,
    pub(super) local_device_cycles: u64,
    pub(super) device_write_cycles: Option<u64>,
    pub(super) instruction_cycles: u64,
    pub(super) protocol: Protocol,
    pub(super) dma: Dma,
    /// Ways of a set of the last level that lines written by devices can take.
    pub(super) dma_ways: usize,
    /// The longest line of a private cache.
    pub(super) granule_shift: u32,
    /// The longest line of any cache: memory transfers such lines.
    pub(super) memory_line_shift: u32,
    /// Number of levels below L1 that are private to a core; they come before the shared levels.
    pub(super) private_levels: usize,
}

impl Config {
    pub(super) fn new(model: &SystemModel) -> Config {
        let shift = |level: &LevelModel| level.line_bytes.ilog2();
        let private_levels = model.outer().take_while(|level| !level.shared).count();
        let l1_shift = shift(&model.l1i).max(shift(&model.l1d));
        let private = model.outer().take(private_levels).map(shift);
        Config {
            l1i_shift: shift(&model.l1i),
            l1d_shift: shift(&model.l1d),
            sub_block_shift: model.l1d.fill_bytes().ilog2(),
            is_l1i_virtual: model.l1i.index == Index::Virtual,
            is_l1d_virtual: model.l1d.index == Index::Virtual,
            l1i_prefetch: model.l1i.prefetch,
            l1i_prefetch_distance: model.l1i.prefetch_distance.into(),
            l1d_prefetch: model.l1d.prefetch,
            l1d_prefetch_distance: model.l1d.prefetch_distance.into(),
            is_l1i_trace_cache: model.l1i.trace,
            writes_through: model.l1d.write == WritePolicy::Through,
            allocates_on_write: model.l1d.allocate,
            l1_hit_cycles: model.l1_hit_cycles,
            stlb_hit_cycles: model.stlb_hit_cycles.unwrap_or(0),
            hit_cycles: [model.l2_hit_cycles, model.l3_hit_cycles].map(Option::unwrap_or_default),
            has_page_walks: model.walk != Walk::Fixed,
            tlb_miss_cycles: model.tlb_miss_cycles,
            memory_cycles: model.memory_cycles,
            memory_write_cycles: model.or_memory(model.memory_write_cycles),
            cache_to_cache_cycles: model.or_memory(model.cache_to_cache_cycles),
            upgrade_cycles: model.or_memory(model.upgrade_cycles),
            device_read_cycles: model.or_memory(model.device_read_cycles),
            local_device_cycles: model
                .or_memory(model.local_device_cycles.or(model.device_read_cycles)),
            device_write_cycles: model.device_write_cycles,
            instruction_cycles: model.instruction_cycles,
            protocol: model.protocol,
            dma: model.dma,
            dma_ways: model.dma_ways as usize,
            granule_shift: private.fold(l1_shift, u32::max),
            memory_line_shift: model.outer().map(shift).fold(l1_shift, u32::max),
            private_levels,
        }
    }

    pub(super) fn granule(&self, physical: PhysicalAddress) -> CoherenceGranule {
        CoherenceGranule(physical.block_number(self.granule_shift))
    }

    /// The granules that `bytes` from `start` on touch.
    pub(super) fn granules(
        &self,
        start: PhysicalAddress,
        bytes: u64,
    ) -> impl Iterator<Item = CoherenceGranule> + use<> {
        let blocks = LineRange::touched_by(start, bytes, self.granule_shift);
        blocks.map(|LineAddress(number)| CoherenceGranule(number))
    }

    /// The sub-blocks of L1D that an access within one line touches, a bit for each. `bytes` is at least 1.
    pub(super) fn sub_block_mask(&self, physical: PhysicalAddress, bytes: u32) -> u64 {
        let line_offset = physical.offset_in_block(self.l1d_shift);
        let first = line_offset >> self.sub_block_shift;
        let last = ((line_offset + u64::from(bytes) - 1) >> self.sub_block_shift).min(63);
        (u64::MAX >> (63 - last)) & (u64::MAX << first)
    }

    /// The parts of a coherence granule that an access of at least one byte touches, a bit for each. A granule has
    /// 64 parts; a granule shorter than 64 bytes has one part for each byte.
    pub(super) fn granule_mask(&self, physical: PhysicalAddress, bytes: u32) -> u64 {
        let part_shift = self.granule_shift.saturating_sub(6);
        let granule_offset = physical.offset_in_block(self.granule_shift);
        let first = granule_offset >> part_shift;
        let last = ((granule_offset + u64::from(bytes) - 1) >> part_shift).min(63);
        (u64::MAX >> (63 - last)) & (u64::MAX << first)
    }

    /// The line number of code in L1I. In a trace cache, the whole address where a trace starts, with its low bits
    /// moved to the top: they distinguish traces, and do not select the set.
    pub(super) fn code_line(&self, physical: PhysicalAddress) -> LineAddress {
        LineAddress(self.code_number(physical.0))
    }

    /// The address where a line of L1I starts: the inverse of [`Config::code_line`].
    pub(super) fn code_address(&self, line: LineAddress) -> PhysicalAddress {
        let shift = self.l1i_shift;
        let low = if self.is_l1i_trace_cache { line.0 >> (64 - shift) } else { 0 };
        PhysicalAddress(line.0 << shift | low)
    }

    /// Selects the set of code in an L1I that virtual addresses index.
    pub(super) fn code_index(&self, virtual_address: VirtualAddress) -> SetIndex {
        SetIndex(self.code_number(virtual_address.0))
    }

    fn code_number(&self, address: u64) -> u64 {
        let shift = self.l1i_shift;
        if self.is_l1i_trace_cache {
            let low = address & ((1 << shift) - 1);
            (low << (64 - shift)) | address >> shift
        } else {
            address >> shift
        }
    }
}
