//! Converts between the counts of the models (crate `machine`) and the vector of counters of a vCPU
//! ([`simrecord::counters`]), which spans, regions and the record use.

use machine::Counts as ModelCounts;
use machine::core::CoreCounts;
use machine::memory::CpuCounts;
use simrecord::counters::{
    BRANCH_MISSES, BRANCH_STALL_CYCLES, CACHE_TO_CACHE, Counts, DATA_WAIT_CYCLES,
    FETCH_WAIT_CYCLES, L3_MISSES, MODEL, PIPELINE_STALL_CYCLES, STLB_MISSES, UPGRADES,
};

/// Sets the counters of a vCPU's memory accesses.
pub(crate) fn put_memory_counts(memory: &CpuCounts, counts: &mut Counts) {
    let basic = &memory.basic;
    put_model_counts(basic, counts);
    counts[L3_MISSES] = memory.l3_misses;
    counts[STLB_MISSES] = basic.itlb_misses + basic.dtlb_misses - memory.stlb_hits;
    counts[CACHE_TO_CACHE] = memory.cache_to_cache;
    counts[UPGRADES] = memory.upgrades;
    counts[FETCH_WAIT_CYCLES] = memory.fetch_wait_cycles;
    counts[DATA_WAIT_CYCLES] = memory.data_wait_cycles;
}

/// Sets the counters of a core, which has `width` issue slots per cycle.
pub(crate) fn put_core_counts(core: &CoreCounts, width: u64, counts: &mut Counts) {
    let with_stalls = ModelCounts {
        fetch_stall_cycles: core.fetch_stall_slots / width,
        data_stall_cycles: core.data_stall_slots / width,
        ..model_counts(counts)
    };
    put_model_counts(&with_stalls, counts);
    counts[BRANCH_MISSES] = core.mispredicted_branches;
    // A slot that another thread of the core used is lost for this one.
    counts[PIPELINE_STALL_CYCLES] = (core.pipeline_stall_slots + core.shared_slots) / width;
    counts[BRANCH_STALL_CYCLES] = core.branch_stall_slots / width;
}

/// Reads the counters of a model from the vector of counters.
pub(crate) fn model_counts(counts: &Counts) -> ModelCounts {
    let part: [u64; ModelCounts::LEN] = std::array::from_fn(|position| counts[MODEL + position]);
    part.into()
}

/// Sets the counters of a model in the vector of counters. Overwrites instructions and cycles, too.
pub(crate) fn put_model_counts(model: &ModelCounts, counts: &mut Counts) {
    counts[MODEL..MODEL + ModelCounts::LEN]
        .copy_from_slice(&<[u64; ModelCounts::LEN]>::from(*model));
}
