//! The counters of a vCPU: a vector of numbers. The plugin counts in this vector, and writes it to the record in the
//! same order. So a change of the order or the names changes the format: increase
//! [`FORMAT_VERSION`](crate::record::FORMAT_VERSION).

use machine::{Counts as ModelCounts, SystemModel};

pub const COUNTERS: usize = FURTHER + FURTHER_NAMES.len();
/// The counters of one vCPU, in the order of [`name`].
pub type Counts = attribution::Counts<COUNTERS>;

/// Cycles on the vCPU's time axis: executed and halted cycles.
pub const TIME: usize = 0;
/// Position of the model's first counter. The model's counters have the order of [`machine::Counts`].
pub const MODEL: usize = 1;
pub const INSTRUCTIONS: usize = MODEL;
/// Executed cycles; without a model, one for each instruction.
pub const CYCLES: usize = MODEL + 1;
/// Misses of L1I, of loads in L1D, and of stores in L1D.
pub const L1_MISSES: [usize; 3] = [
    model_counter("l1i_misses"),
    model_counter("l1d_load_misses"),
    model_counter("l1d_store_misses"),
];
/// Misses of L2 by fetches, and by loads and stores.
pub const L2_MISSES: [usize; 2] =
    [model_counter("l2_fetch_misses"), model_counter("l2_data_misses")];
/// Cycles while the core waited for instructions.
pub const FETCH_STALL_CYCLES: usize = model_counter("fetch_stall_cycles");
/// Cycles while the core waited for data.
pub const DATA_STALL_CYCLES: usize = model_counter("data_stall_cycles");
/// Position of the first counter that only some levels of detail and models have.
const FURTHER: usize = MODEL + ModelCounts::LEN;
/// Branches: calls, returns and jumps, taken or not. Counted with a model only.
pub const BRANCHES: usize = FURTHER;
/// Branches that the model's predictor mispredicted.
pub const BRANCH_MISSES: usize = FURTHER + 1;
/// Cycles that the pipeline lost for reasons other than instruction fetches and data.
pub const PIPELINE_STALL_CYCLES: usize = FURTHER + 2;
/// L2 misses of fetches, loads and stores that missed L3 as well.
pub const L3_MISSES: usize = FURTHER + 3;
/// Misses of the first-level TLBs that missed the second level as well.
pub const STLB_MISSES: usize = FURTHER + 4;
/// Misses of fetches, loads and stores that the cache of another core supplied. Page walks and prefetches do not count.
pub const CACHE_TO_CACHE: usize = FURTHER + 5;
/// Stores to lines of this core's caches that invalidated the line in other cores. Locked loads count as stores. Stores
/// that miss the core's caches do not count; with a write-through first level, stores that miss L2.
pub const UPGRADES: usize = FURTHER + 6;
/// Cycles that fetches took beyond L1 hits, including page walks. A core hides some of them.
pub const FETCH_WAIT_CYCLES: usize = FURTHER + 7;
/// Cycles that loads and stores took beyond L1 hits, including page walks. A core hides some of them.
pub const DATA_WAIT_CYCLES: usize = FURTHER + 8;

/// The part of [`PIPELINE_STALL_CYCLES`] that the pipeline lost while it refilled after mispredicted branches.
pub const BRANCH_STALL_CYCLES: usize = FURTHER + 9;

const FURTHER_NAMES: [&str; 10] = [
    "branches",
    "branch_misses",
    "pipeline_stall_cycles",
    "l3_misses",
    "stlb_misses",
    "cache_to_cache",
    "upgrades",
    "fetch_wait_cycles",
    "data_wait_cycles",
    "branch_stall_cycles",
];

/// The counters that only models with an L2 have.
const L2_COUNTERS: [&str; 3] = ["l2_fetch_misses", "l2_data_misses", "l2_writebacks"];

/// The position of a model's counter. The build fails if no counter has this name.
const fn model_counter(name: &str) -> usize {
    let mut position = 0;
    while !is_same(ModelCounts::NAMES[position].as_bytes(), name.as_bytes()) {
        position += 1;
    }
    MODEL + position
}

/// `==`, which a `const fn` cannot use on slices.
const fn is_same(left: &[u8], right: &[u8]) -> bool {
    let mut equal_bytes = 0;
    while equal_bytes < left.len()
        && equal_bytes < right.len()
        && left[equal_bytes] == right[equal_bytes]
    {
        equal_bytes += 1;
    }
    equal_bytes == left.len() && equal_bytes == right.len()
}

/// Bit mask of the counters that a recording without a model has.
pub const MASK_PLAIN: u32 = 1 << TIME | 1 << INSTRUCTIONS | 1 << CYCLES;
/// Bit mask of the counters of the level `timed`.
pub const MASK_TIMED: u32 = (1 << (BRANCHES + 1)) - 1;

/// Bit mask of the counters that sampled recordings lack: those of stalls, waits and page walks. Their cycles are known
/// only of instructions that are simulated in detail.
pub const MASK_DETAILED_CYCLES: u32 = 1 << FETCH_STALL_CYCLES
    | 1 << DATA_STALL_CYCLES
    | 1 << PIPELINE_STALL_CYCLES
    | 1 << BRANCH_STALL_CYCLES
    | 1 << FETCH_WAIT_CYCLES
    | 1 << DATA_WAIT_CYCLES
    | 1 << model_counter("fetch_walk_cycles")
    | 1 << model_counter("data_walk_cycles");

/// Bit mask of the counters of the level `ooo`, for a model and a number of vCPUs.
#[must_use]
pub fn mask_of(model: &SystemModel, cpus: u32) -> u32 {
    let bit = |counter: usize, is_counted: bool| u32::from(is_counted) << counter;
    let threads = model.core.as_ref().and_then(|core| core.threads).unwrap_or(1);
    let has_several_cores = cpus > threads;
    let l2_counters = L2_COUNTERS.iter().map(|name| bit(model_counter(name), model.l2.is_none()));
    let without_l2: u32 = l2_counters.sum();
    MASK_TIMED & !without_l2
        | bit(BRANCH_MISSES, true)
        | bit(PIPELINE_STALL_CYCLES, true)
        | bit(BRANCH_STALL_CYCLES, true)
        | bit(FETCH_WAIT_CYCLES, true)
        | bit(DATA_WAIT_CYCLES, true)
        | bit(L3_MISSES, model.l3.is_some())
        | bit(STLB_MISSES, model.stlb.is_some())
        | bit(CACHE_TO_CACHE, has_several_cores)
        | bit(UPGRADES, has_several_cores)
}

/// The name of the counter at `position`, or `None` from [`COUNTERS`] on.
#[must_use]
pub fn name(position: usize) -> Option<&'static str> {
    match position {
        TIME => Some("time_cycles"),
        FURTHER.. => FURTHER_NAMES.get(position - FURTHER).copied(),
        _ => ModelCounts::NAMES.get(position - MODEL).copied(),
    }
}

/// Whether caches and TLBs can count the counter at `position` without a core, as shadow caches do.
#[must_use]
pub fn is_of_memory(position: usize) -> bool {
    const COUNTERS_OF_CORES: [&str; 14] = [
        "fetch_walk_cycles",
        "data_walk_cycles",
        "fetch_wait_cycles",
        "data_wait_cycles",
        "time_cycles",
        "instructions",
        "cycles",
        "fetch_stall_cycles",
        "data_stall_cycles",
        "device_accesses",
        "branches",
        "branch_misses",
        "pipeline_stall_cycles",
        "branch_stall_cycles",
    ];
    name(position).is_some_and(|name| !COUNTERS_OF_CORES.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_names_are_unique() {
        let mut names: Vec<&str> = (0..COUNTERS).filter_map(name).collect();
        assert_eq!((names[INSTRUCTIONS], names[CYCLES]), ("instructions", "cycles"));
        let stalls = [names[FETCH_STALL_CYCLES], names[DATA_STALL_CYCLES]];
        assert_eq!(stalls, ["fetch_stall_cycles", "data_stall_cycles"]);
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), name(COUNTERS)), (COUNTERS, None));
    }
}
