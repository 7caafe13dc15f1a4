//! The constants of a model, for tags and times.

use super::coherence::CoherenceGranule;
use crate::address::{LineAddress, LineRange, PhysicalAddress, VirtualAddress};
use crate::system_model::{
    Dma, Index, LevelModel, Prefetch, Protocol, SystemModel, Walk, WritePolicy,
};
use crate::tag_array::SetIndex;

/// The constants of a model.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) l1i_shift: u32,
    pub(super) l1d_shift: u32,
    pub(super) sub_block_shift: u32,
    pub(super) l1i_virtual: bool,
    pub(super) l1d_virtual: bool,
    pub(super) l1i_prefetch: Prefetch,
    pub(super) l1i_prefetch_distance: u64,
    pub(super) l1d_prefetch: Prefetch,
    pub(super) l1d_prefetch_distance: u64,
    /// L1I is a trace cache: lines are named by the address at which they are entered.
    pub(super) trace: bool,
    pub(super) write_through: bool,
    pub(super) write_allocate: bool,
    pub(super) l1_hit_cycles: u64,
    pub(super) stlb_hit_cycles: u64,
    /// Of each level below L1.
    pub(super) hit_cycles: [u64; 2],
    /// Whether walks load page table entries.
    pub(super) walks: bool,
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
    /// Ways of the last level that lines of devices can take.
    pub(super) dma_ways: usize,
    /// The coherence granule, as a power of two: the longest line of a private cache.
    pub(super) granule_shift: u32,
    /// How many levels below L1 are private to a core.
    pub(super) private_levels: usize,
}

impl Config {
    pub(super) fn new(model: &SystemModel) -> Config {
        let shift = |level: &LevelModel| level.line_bytes.ilog2();
        let private_levels = model.outer().take_while(|level| !level.shared).count();
        let private = model.outer().take(private_levels).map(shift);
        Config {
            l1i_shift: shift(&model.l1i),
            l1d_shift: shift(&model.l1d),
            sub_block_shift: model.l1d.fill_bytes().ilog2(),
            l1i_virtual: model.l1i.index == Index::Virtual,
            l1d_virtual: model.l1d.index == Index::Virtual,
            l1i_prefetch: model.l1i.prefetch,
            l1i_prefetch_distance: model.l1i.prefetch_distance.into(),
            l1d_prefetch: model.l1d.prefetch,
            l1d_prefetch_distance: model.l1d.prefetch_distance.into(),
            trace: model.l1i.trace,
            write_through: model.l1d.write == WritePolicy::Through,
            write_allocate: model.l1d.allocate,
            l1_hit_cycles: model.l1_hit_cycles,
            stlb_hit_cycles: model.stlb_hit_cycles.unwrap_or(0),
            hit_cycles: [model.l2_hit_cycles, model.l3_hit_cycles.unwrap_or(0)],
            walks: model.walk != Walk::Fixed,
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
            granule_shift: private.fold(shift(&model.l1i).max(shift(&model.l1d)), u32::max),
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

    /// The bit of the sub-block that an address lies in.
    pub(super) fn sub_block_bit(&self, physical: PhysicalAddress) -> u64 {
        let in_line = physical.offset_in_block(self.l1d_shift);
        1 << (in_line >> self.sub_block_shift)
    }

    /// The parts of a coherence granule that an access touches: a bit for each 64th, at least a
    /// byte.
    pub(super) fn granule_mask(&self, physical: PhysicalAddress, bytes: u32) -> u64 {
        let part_shift = self.granule_shift.saturating_sub(6);
        let in_granule = physical.offset_in_block(self.granule_shift);
        let first = in_granule >> part_shift;
        let last = ((in_granule + u64::from(bytes) - 1) >> part_shift).min(63);
        (u64::MAX >> (63 - last)) & (u64::MAX << first)
    }

    /// The number of code in L1I: that of its line, or the address where a trace starts, whose low
    /// bits are moved to the top.
    pub(super) fn code_line(&self, physical: PhysicalAddress) -> LineAddress {
        LineAddress(self.code_number(physical.0))
    }

    /// The set of code in an L1I that virtual addresses index.
    pub(super) fn code_index(&self, virtual_address: VirtualAddress) -> SetIndex {
        SetIndex(self.code_number(virtual_address.0))
    }

    fn code_number(&self, address: u64) -> u64 {
        let shift = self.l1i_shift;
        if self.trace {
            let low = address & ((1 << shift) - 1);
            (low << (64 - shift)) | address >> shift
        } else {
            address >> shift
        }
    }
}
