//! The counters of a vCPU: a vector of numbers with the same order in the plugin and in its record.

use machine::{Counts as ModelCounts, SystemModel};

pub const COUNTERS: usize = FURTHER + FURTHER_NAMES.len();
/// The counters of one vCPU, in the order of [`name`].
pub type Counts = attribution::Counts<COUNTERS>;

/// Cycles on the vCPU's time axis: executed and halted cycles.
pub const TIME: usize = 0;
/// Position of the first counter of the model. The counters of [`machine::Counts`] follow, in its order.
pub const MODEL: usize = 1;
pub const INSTRUCTIONS: usize = MODEL;
/// Executed cycles; without a model, one for each instruction.
pub const CYCLES: usize = MODEL + 1;
/// Cycles of waiting for instructions.
pub const FETCH_STALL_CYCLES: usize = of_model("fetch_stall_cycles");
/// Cycles of waiting for data.
pub const DATA_STALL_CYCLES: usize = of_model("data_stall_cycles");
/// Position of the first counter that only some levels of detail and models have.
const FURTHER: usize = MODEL + ModelCounts::LEN;
/// Branches: calls, returns and jumps, taken or not. Counted with a model only.
pub const BRANCHES: usize = FURTHER;
/// Branches that the model's predictor mispredicted.
pub const BRANCH_MISSES: usize = FURTHER + 1;
/// Cycles lost in the pipeline: neither to instruction fetches nor to data.
pub const PIPELINE_STALL_CYCLES: usize = FURTHER + 2;
/// Misses of L2, by fetches, loads and stores, that missed L3, too.
pub const L3_MISSES: usize = FURTHER + 3;
/// Misses of the first-level TLBs that missed the second level, too.
pub const STLB_MISSES: usize = FURTHER + 4;
/// Misses that the cache of another core supplied.
pub const CACHE_TO_CACHE: usize = FURTHER + 5;
/// Stores that invalidated the line in other cores.
pub const UPGRADES: usize = FURTHER + 6;
/// Cycles that fetches took beyond hits of L1, page walks included; a core hides some of them.
pub const FETCH_WAIT_CYCLES: usize = FURTHER + 7;
/// Cycles that loads and stores took beyond hits of L1, likewise.
pub const DATA_WAIT_CYCLES: usize = FURTHER + 8;

const FURTHER_NAMES: [&str; 9] = [
    "branches",
    "branch_misses",
    "pipeline_stall_cycles",
    "l3_misses",
    "stlb_misses",
    "cache_to_cache",
    "upgrades",
    "fetch_wait_cycles",
    "data_wait_cycles",
];

/// The position of a counter of the model; the build fails if no counter has that name.
const fn of_model(name: &str) -> usize {
    let mut at = 0;
    while !is_same(ModelCounts::NAMES[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    MODEL + at
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Bit mask of the counters without a model.
pub const MASK_PLAIN: u32 = 1 << TIME | 1 << INSTRUCTIONS | 1 << CYCLES;
/// Bit mask of the counters of the level `timed`.
pub const MASK_TIMED: u32 = (1 << (BRANCHES + 1)) - 1;

/// Bit mask of the counters that only a core that executes all instructions has.
pub const MASK_STALLS: u32 =
    1 << FETCH_STALL_CYCLES | 1 << DATA_STALL_CYCLES | 1 << PIPELINE_STALL_CYCLES;

/// Bit mask of the counters of the level `ooo`, for a model and a number of vCPUs.
#[must_use]
pub fn mask_of(model: &SystemModel, cpus: u32) -> u32 {
    let bit = |counter: usize, counted: bool| u32::from(counted) << counter;
    let threads = model.core.as_ref().and_then(|core| core.threads).unwrap_or(1);
    let several = cpus > threads;
    MASK_TIMED
        | bit(BRANCH_MISSES, true)
        | bit(PIPELINE_STALL_CYCLES, true)
        | bit(FETCH_WAIT_CYCLES, true)
        | bit(DATA_WAIT_CYCLES, true)
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

/// Whether caches and TLBs alone, without a core, can count it.
#[must_use]
pub fn is_of_memory(position: usize) -> bool {
    const OTHERS: [&str; 13] = [
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
    ];
    name(position).is_some_and(|name| !OTHERS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_name_of_its_own() {
        let mut names: Vec<&str> = (0..COUNTERS).filter_map(name).collect();
        assert_eq!((names[INSTRUCTIONS], names[CYCLES]), ("instructions", "cycles"));
        let stalls = [names[FETCH_STALL_CYCLES], names[DATA_STALL_CYCLES]];
        assert_eq!(stalls, ["fetch_stall_cycles", "data_stall_cycles"]);
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), name(COUNTERS)), (COUNTERS, None));
    }
}
