//! From the counts of a model to the vector of counters.

use machine::Counts as ModelCounts;
use machine::core::CoreCounts;
use machine::memory::CpuCounts;
use simrecord::counters::{
    BRANCH_MISSES, CACHE_TO_CACHE, Counts, DATA_WAIT_CYCLES, FETCH_WAIT_CYCLES, L3_MISSES, MODEL,
    PIPELINE_STALL_CYCLES, STLB_MISSES, UPGRADES,
};

/// Puts the counts of a vCPU's memory accesses into their places.
pub(crate) fn add_memory(memory: &CpuCounts, counts: &mut Counts) {
    let basic = &memory.basic;
    place(basic, counts);
    counts[L3_MISSES] = memory.l3_misses;
    counts[STLB_MISSES] = basic.itlb_misses + basic.dtlb_misses - memory.stlb_hits;
    counts[CACHE_TO_CACHE] = memory.cache_to_cache;
    counts[UPGRADES] = memory.upgrades;
    counts[FETCH_WAIT_CYCLES] = memory.fetch_wait_cycles;
    counts[DATA_WAIT_CYCLES] = memory.data_wait_cycles;
}

/// Adds the counts of a core. `width` slots are a cycle.
pub(crate) fn add_core(core: &CoreCounts, width: u64, counts: &mut Counts) {
    let lost = ModelCounts {
        fetch_stall_cycles: core.fetch_stall_slots / width,
        data_stall_cycles: core.data_stall_slots / width,
        ..of_model(counts)
    };
    place(&lost, counts);
    counts[BRANCH_MISSES] = core.mispredicted_branches;
    // Slots that went to other threads are lost in the pipeline that they share.
    counts[PIPELINE_STALL_CYCLES] = (core.pipeline_stall_slots + core.shared_slots) / width;
}

/// The model's counters.
pub(crate) fn of_model(counts: &Counts) -> ModelCounts {
    let part: [u64; ModelCounts::LEN] = std::array::from_fn(|position| counts[MODEL + position]);
    part.into()
}

/// Puts a model's counters into their places.
pub(crate) fn place(model: &ModelCounts, counts: &mut Counts) {
    counts[MODEL..MODEL + ModelCounts::LEN]
        .copy_from_slice(&<[u64; ModelCounts::LEN]>::from(*model));
}
