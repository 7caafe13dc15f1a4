//! Two-level prediction: for each branch, a history and counters by that history. See
//! [`TwoLevelModel`](super::TwoLevelModel).

use super::model::TwoLevelModel;

/// Marks an unused entry. No branch has this address, because it would end beyond the last address.
const NO_BRANCH: u64 = u64::MAX;
/// Initial counters, all weakly taken, because a new branch was just taken. An estimate: no manual tells the initial
/// counters of the P6.
const START: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// A known branch, with its history and counters.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    /// The last directions, the most recent in the lowest bit.
    history: u64,
    /// A two-bit counter for each history: 2 and 3 predict taken.
    counters: u64,
}

/// The branches with an entry. In each set, the most recently used branch comes first.
#[derive(Clone, Debug)]
pub(super) struct TwoLevel {
    entries: Box<[Entry]>,
    associativity: usize,
    set_mask: u64,
    history_mask: u64,
}

impl TwoLevel {
    pub(super) fn new(model: &TwoLevelModel) -> TwoLevel {
        let unused = Entry { address: NO_BRANCH, history: 0, counters: START };
        TwoLevel {
            entries: vec![unused; model.entries as usize].into(),
            associativity: model.ways as usize,
            set_mask: u64::from(model.entries / model.ways) - 1,
            history_mask: (1 << model.history_bits) - 1,
        }
    }

    /// Trains the predictor. Returns its earlier prediction: whether the branch is taken. `None` for a branch without
    /// an entry, which gets an entry if it was taken.
    #[inline]
    pub(super) fn step(&mut self, address: u64, taken: bool) -> Option<bool> {
        let first = (address & self.set_mask) as usize * self.associativity;
        let set = &mut self.entries[first..first + self.associativity];
        let Some(way) = set.iter().position(|entry| entry.address == address) else {
            if taken {
                set.rotate_right(1);
                set[0] = Entry { address, history: 1 & self.history_mask, counters: START };
            }
            return None;
        };
        set[..=way].rotate_right(1);
        let entry = &mut set[0];
        let shift = 2 * entry.history;
        let counter = entry.counters >> shift & 3;
        let trained = if taken { (counter + 1).min(3) } else { counter.saturating_sub(1) };
        entry.counters = entry.counters & !(3 << shift) | trained << shift;
        entry.history = (entry.history << 1 | u64::from(taken)) & self.history_mask;
        Some(counter >= 2)
    }
}
