//! What is counted on each vCPU: a vector of numbers, the same everywhere in this crate and in the
//! record.

use machine::core::CoreCounts;
use machine::memory::CpuCounts;
use machine::{Counts as ModelCounts, SystemModel};

/// How many counters there are.
pub const COUNTERS: usize = FURTHER + FURTHER_NAMES.len();
/// The counters of one vCPU, in the order of [`name`].
pub type Counts = attribution::Counts<COUNTERS>;

/// Cycles on the vCPU's own time axis: those it executed and those it was halted.
pub const TIME: usize = 0;
/// Where the counters of the model begin: those of [`machine::Counts`], in its order.
const MODEL: usize = 1;
/// Instructions.
pub const INSTRUCTIONS: usize = MODEL;
/// Cycles executed. Without a model one for each instruction.
pub const CYCLES: usize = MODEL + 1;
/// Where the counters begin that only some levels of detail and models have.
const FURTHER: usize = MODEL + ModelCounts::LEN;
/// Branches: calls, returns and jumps, taken or not. Counted with a model only.
pub const BRANCHES: usize = FURTHER;
/// Branches that the model's predictor did not foresee.
pub const BRANCH_MISSES: usize = FURTHER + 1;
/// Cycles lost in the pipeline: neither to fetches nor to data.
pub const PIPELINE_STALL_CYCLES: usize = FURTHER + 2;
/// Misses of L2, of fetches, loads and stores, that were not in L3 either.
pub const L3_MISSES: usize = FURTHER + 3;
/// Misses of the first TLBs that were not in the second either.
pub const STLB_MISSES: usize = FURTHER + 4;
/// Misses that the cache of another core served.
pub const CACHE_TO_CACHE: usize = FURTHER + 5;
/// Stores to lines that other cores had to give up.
pub const UPGRADES: usize = FURTHER + 6;

const FURTHER_NAMES: [&str; 7] = [
    "branches",
    "branch_misses",
    "pipeline_stall_cycles",
    "l3_misses",
    "stlb_misses",
    "cache_to_cache",
    "upgrades",
];

/// Bit mask of the counters that a recording without a model has.
pub const MASK_PLAIN: u32 = 1 << TIME | 1 << INSTRUCTIONS | 1 << CYCLES;
/// Bit mask of those of the level `timed`.
pub const MASK_TIMED: u32 = (1 << (BRANCHES + 1)) - 1;

/// Bit mask of the counters of the level `ooo`, of a model for so many vCPUs.
#[must_use]
pub fn mask_of(model: &SystemModel, cpus: u32) -> u32 {
    let bit = |counter: usize, counted: bool| u32::from(counted) << counter;
    let threads = model.core.as_ref().and_then(|core| core.threads).unwrap_or(1);
    let several = cpus > threads;
    MASK_TIMED
        | bit(BRANCH_MISSES, true)
        | bit(PIPELINE_STALL_CYCLES, true)
        | bit(L3_MISSES, model.l3.is_some())
        | bit(STLB_MISSES, model.stlb.is_some())
        | bit(CACHE_TO_CACHE, several)
        | bit(UPGRADES, several)
}

/// The name of a counter, by its position; none beyond [`COUNTERS`].
#[must_use]
pub fn name(position: usize) -> Option<&'static str> {
    match position {
        TIME => Some("time_cycles"),
        FURTHER.. => FURTHER_NAMES.get(position - FURTHER).copied(),
        _ => ModelCounts::NAMES.get(position - MODEL).copied(),
    }
}

/// Whether it is a counter of caches and TLBs, which don't need a core to count.
#[must_use]
pub fn is_of_memory(position: usize) -> bool {
    const OTHERS: [&str; 9] = [
        "time_cycles",
        "instructions",
        "cycles",
        "fetch_stall_cycles",
        "data_stall_cycles",
        "device_accesses",
        "branches",
        "branch_misses",
        "pipeline_stall_cycles",
    ];
    name(position).is_some_and(|name| !OTHERS.contains(&name))
}

/// Adds what a memory has counted of a vCPU.
pub(crate) fn add_memory(memory: &CpuCounts, counts: &mut Counts) {
    let basic = &memory.basic;
    place(basic, counts);
    counts[L3_MISSES] = memory.l3_misses;
    counts[STLB_MISSES] = basic.itlb_misses + basic.dtlb_misses - memory.stlb_hits;
    counts[CACHE_TO_CACHE] = memory.cache_to_cache;
    counts[UPGRADES] = memory.upgrades;
}

/// Adds what a core of `width` has counted. Slots become cycles of whole width.
pub(crate) fn add_core(core: &CoreCounts, width: u64, counts: &mut Counts) {
    let lost = ModelCounts {
        fetch_stall_cycles: core.fetch_stall_slots / width,
        data_stall_cycles: core.data_stall_slots / width,
        ..of_model(counts)
    };
    place(&lost, counts);
    counts[BRANCH_MISSES] = core.mispredicted_branches;
    // Slots that went to other threads are lost to the pipeline that they share.
    counts[PIPELINE_STALL_CYCLES] = (core.pipeline_stall_slots + core.shared_slots) / width;
}

/// The model's part of the counts.
pub(crate) fn of_model(counts: &Counts) -> ModelCounts {
    let part: [u64; ModelCounts::LEN] = std::array::from_fn(|position| counts[MODEL + position]);
    part.into()
}

/// Puts a model's counts into their places.
pub(crate) fn place(model: &ModelCounts, counts: &mut Counts) {
    counts[MODEL..MODEL + ModelCounts::LEN]
        .copy_from_slice(&<[u64; ModelCounts::LEN]>::from(*model));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_name_of_its_own() {
        let mut names: Vec<&str> = (0..COUNTERS).filter_map(name).collect();
        assert_eq!((names[INSTRUCTIONS], names[CYCLES]), ("instructions", "cycles"));
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), name(COUNTERS)), (COUNTERS, None));
    }
}
