//! What is counted on each vCPU: a vector of numbers, the same everywhere in this crate and in the
//! record.

use machine::Counts as ModelCounts;

/// How many counters there are.
pub const COUNTERS: usize = 2 + ModelCounts::LEN;
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
/// Branches: calls, returns and jumps, taken or not. Counted with a model only.
pub const BRANCHES: usize = COUNTERS - 1;

/// Bit mask of the counters that a recording without a model has.
pub const MASK_PLAIN: u32 = 1 << TIME | 1 << INSTRUCTIONS | 1 << CYCLES;
/// Bit mask of all counters.
pub const MASK_ALL: u32 = (1 << COUNTERS) - 1;

/// The name of a counter, by its position; none beyond [`COUNTERS`].
#[must_use]
pub fn name(position: usize) -> Option<&'static str> {
    match position {
        TIME => Some("time_cycles"),
        BRANCHES => Some("branches"),
        _ => ModelCounts::NAMES.get(position - MODEL).copied(),
    }
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
